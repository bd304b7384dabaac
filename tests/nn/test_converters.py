import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import (
    EdgeConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    Linear,
    MessagePassing,
    SAGEConv,
)
from torch_geometric.nn.aggr import MeanAggregation
from torch_geometric.nn.models import MLP
from torch_geometric.utils import softmax, to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from sirgcn.nn.conv import SIRConv
from sirgcn.nn.converted import ConvThen, Scale, WithSelfLoops
from sirgcn.nn.converters import (
    from_edge_conv,
    from_gatv2_scores,
    from_gcn,
    from_gin,
    from_gine,
    from_sage,
)
from sirgcn.nn.dgl import from_dgl_state_dict

SOURCE, TARGET, OUT, EDGE = 3, 5, 4, 2

Layer = TypeVar("Layer", bound=nn.Module)

LAYOUTS: dict[str, Callable[..., Tensor]] = {
    "coo": to_torch_coo_tensor,
    "csr": to_torch_csr_tensor,
    "csc": to_torch_csc_tensor,
}

# Torch announces its compressed layouts as beta and that it does not check what a sparse tensor holds; PyG says that it
# converts COO and CSC in its fused products.
sparse_warnings = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state:UserWarning"),
    pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR format:UserWarning"),
]


def with_sparse(test: Callable[..., None]) -> Callable[..., None]:
    for mark in sparse_warnings:
        test = mark(test)
    return test


class Drawn(NamedTuple):
    """A graph, and a seed for all that is drawn on it."""

    edge_index: Tensor
    num_sources: int
    num_targets: int
    seed: int

    def normal(self, *shape: int, stream: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 2**16 * stream)
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def x(self, width: int) -> Tensor:
        return self.normal(self.num_sources, width)

    def pair(self, source: int = SOURCE, target: int = TARGET) -> tuple[Tensor, Tensor]:
        return self.normal(self.num_sources, source), self.normal(self.num_targets, target, stream=1)

    def edge_attr(self, width: int = EDGE) -> Tensor:
        return self.normal(self.edge_index.size(1), width, stream=2)

    def adj_t(self, layout: str) -> Tensor:
        """Without repeated edges, which a sparse adjacency would sum into values of 2."""
        row, col = torch.unique(self.edge_index.flip(0), dim=1)
        ones = torch.ones(row.numel(), dtype=torch.float64)
        return LAYOUTS[layout](torch.stack([row, col]), ones, (self.num_targets, self.num_sources))


@st.composite
def graphs(draw: st.DrawFn, bipartite: bool = False) -> Drawn:
    """Isolated nodes, self-loops, repeated edges, one node and no edges at all occur."""
    sources = draw(st.integers(1, 6))
    targets = draw(st.integers(1, 6)) if bipartite else sources
    edge = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    edges = draw(st.lists(edge, max_size=14))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    return Drawn(edge_index, sources, targets, draw(st.integers(0, 2**16)))


def trained(layer: Layer, seed: int = 0) -> Layer:
    """The layer in float64 with every parameter drawn, also those that start as 0."""
    generator = torch.Generator().manual_seed(seed)
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return layer


def leaves(x: Tensor | tuple[Tensor, ...], rest: dict[str, Any]) -> tuple[Any, dict[str, Any], list[Tensor]]:
    """The same arguments as fresh leaves, and the list of them."""
    parts = [part.clone().requires_grad_() for part in ([x] if isinstance(x, Tensor) else x)]
    fresh = parts[0] if isinstance(x, Tensor) else tuple(parts)
    rest = dict(rest)
    if "edge_attr" in rest:
        rest["edge_attr"] = rest["edge_attr"].clone().requires_grad_()
        parts.append(rest["edge_attr"])
    return fresh, rest, parts


def assert_equal(
    expected: Callable[..., Tensor],
    module: nn.Module,
    x: Tensor | tuple[Tensor, ...],
    graph: Any,
    **rest: Any,
) -> None:
    """Equal outputs, and equal gradients of every input."""
    results = []
    for layer in (expected, module):
        args, kwargs, inputs = leaves(x, rest)
        out = layer(args, graph, **kwargs)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape).sin()
        grads = torch.autograd.grad(out, inputs, weight, allow_unused=True, materialize_grads=True)
        results.append([out, *grads])
    # Tighter than the default for float64, which lets a constant pass that was rounded to float32.
    torch.testing.assert_close(results[1], results[0], rtol=1e-11, atol=1e-11)


def some_graph(seed: int = 0, bipartite: bool = False) -> Drawn:
    """With an isolated target, a self-loop and a repeated edge."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 1], [1, 1, 2, 0, 2, 2, 2]])
    return Drawn(edge_index, 4, 5 if bipartite else 4, seed)


def network(width: int = SOURCE, **kwargs: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 6), nn.ReLU(), Linear(6, OUT, **kwargs))


def edge_network(activation: nn.Module | None = None, bias: bool = True, last_bias: bool = True) -> nn.Module:
    activation = nn.ReLU() if activation is None else activation
    first = nn.Linear(2 * SOURCE, 6, bias=bias)
    return nn.Sequential(first, activation, Linear(6, OUT, bias=last_bias))


# GCN


@pytest.mark.parametrize("normalize", [True, False])
@given(graph=graphs(), bias=st.booleans())
def test_gcn_is_equal(normalize: bool, graph: Drawn, bias: bool) -> None:
    gcn = trained(GCNConv(SOURCE, OUT, bias=bias, normalize=normalize), graph.seed)
    sir = from_gcn(gcn)
    assert isinstance(sir, WithSelfLoops if normalize else SIRConv)
    assert_equal(gcn, sir, graph.x(SOURCE), graph.edge_index)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("normalize", [True, False])
@with_sparse
@given(graph=graphs())
def test_gcn_is_equal_on_sparse_adjacency(layout: str, normalize: bool, graph: Drawn) -> None:
    gcn = trained(GCNConv(SOURCE, OUT, normalize=normalize))
    assert_equal(gcn, from_gcn(gcn), graph.x(SOURCE), graph.adj_t(layout))


@given(graph=graphs())
def test_gcn_is_equal_for_the_other_flow_and_for_many_signals(graph: Drawn) -> None:
    gcn = trained(GCNConv(SOURCE, OUT, flow="target_to_source"))
    assert_equal(gcn, from_gcn(gcn), graph.x(SOURCE), graph.edge_index)
    gcn = trained(GCNConv(SOURCE, OUT))
    assert_equal(gcn, from_gcn(gcn), graph.normal(2, graph.num_sources, SOURCE), graph.edge_index)


def test_gcn_takes_edge_index_of_pyg() -> None:
    graph, gcn = some_graph(), trained(GCNConv(SOURCE, OUT))
    edge_index = EdgeIndex(graph.edge_index, sparse_size=(4, 4))
    assert_equal(gcn, from_gcn(gcn), graph.x(SOURCE), edge_index)


def test_cached_gcn_keeps_its_first_graph() -> None:
    graph, gcn = some_graph(), trained(GCNConv(SOURCE, OUT, cached=True))
    sir, x = from_gcn(gcn), graph.x(SOURCE)
    assert_equal(gcn, sir, x, graph.edge_index)
    assert_equal(gcn, sir, x, graph.edge_index[:, :2])


@given(graph=graphs())
def test_gcn_without_normalisation_takes_edge_weights(graph: Drawn) -> None:
    gcn = trained(GCNConv(SOURCE, OUT, normalize=False))
    weight = graph.edge_attr(1).squeeze(1)
    assert_equal(gcn, from_gcn(gcn), graph.x(SOURCE), graph.edge_index, edge_weight=weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"improved": True}, r"improved: expected False, .* self-loops of weight 2, got True"),
        ({"add_self_loops": False}, r"add_self_loops: expected True with normalize=True, .* weight 0 .* got False"),
        ({"aggr": "max"}, r"aggr: expected a GCNConv with sum, got 'max'"),
        ({"node_dim": 0}, r"node_dim: expected -2, .* got 0"),
    ],
)
def test_gcn_refuses_what_is_not_equal(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_gcn(GCNConv(SOURCE, OUT, **options))


@with_sparse
def test_converted_gcn_refuses_edge_weights_and_pairs() -> None:
    graph, sir = some_graph(), from_gcn(trained(GCNConv(SOURCE, OUT)))
    x, ones = graph.x(SOURCE), torch.ones(graph.edge_index.size(1), dtype=torch.float64)
    with pytest.raises(ValueError, match=r"edge_weight: expected none, .* got edge_weight"):
        sir(x, graph.edge_index, ones)
    for layout in LAYOUTS:
        with pytest.raises(ValueError, match=r"edge_weight: .* got an adjacency with values other than 1"):
            sir(x, 2 * graph.adj_t(layout))
    with pytest.raises(ValueError, match=r"x: expected the features of one set of nodes, .* got a pair"):
        sir((x, x), graph.edge_index)
    reverse = from_gcn(trained(GCNConv(SOURCE, OUT, flow="target_to_source")))
    with pytest.raises(ValueError, match=r"flow: target_to_source needs an edge_index tensor"):
        reverse(x, graph.adj_t("csr"))


# GraphSAGE


sage_options = st.fixed_dictionaries({"project": st.booleans(), "root_weight": st.booleans(), "bias": st.booleans()})


@pytest.mark.parametrize("aggr", ["mean", "sum", "add", "max"])
@given(graph=graphs(), options=sage_options)
def test_sage_is_equal(aggr: str, graph: Drawn, options: dict[str, bool]) -> None:
    sage = trained(SAGEConv(SOURCE, OUT, aggr=aggr, **options), graph.seed)
    sir = from_sage(sage)
    assert isinstance(sir, ConvThen if aggr == "max" else SIRConv)
    assert_equal(sage, sir, graph.x(SOURCE), graph.edge_index)


@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@given(graph=graphs(bipartite=True), options=sage_options)
def test_sage_is_equal_on_bipartite_graphs(aggr: str, graph: Drawn, options: dict[str, bool]) -> None:
    sage = trained(SAGEConv((SOURCE, TARGET), OUT, aggr=aggr, **options), graph.seed)
    size = (graph.num_sources, graph.num_targets)
    assert_equal(sage, from_sage(sage), graph.pair(), graph.edge_index, size=size)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aggr", ["mean", "sum", "max"])
@with_sparse
@given(graph=graphs(bipartite=True))
def test_sage_is_equal_on_sparse_adjacency(layout: str, aggr: str, graph: Drawn) -> None:
    sage = trained(SAGEConv((SOURCE, TARGET), OUT, aggr=aggr))
    assert_equal(sage, from_sage(sage), graph.pair(), graph.adj_t(layout))


@pytest.mark.parametrize("aggr", ["mean", "sum"])
@with_sparse
@given(graph=graphs())
def test_sage_reads_values_of_sparse_adjacency_as_weights(aggr: str, graph: Drawn) -> None:
    sage = trained(SAGEConv(SOURCE, OUT, aggr=aggr, project=True))
    assert_equal(sage, from_sage(sage), graph.x(SOURCE), -2.5 * graph.adj_t("csr"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": True}, r"normalize: expected False, .* got True"),
        ({"aggr": "lstm"}, r"aggr: expected a SAGEConv with sum, mean, max, got 'lstm'"),
        ({"aggr": "min"}, r"got 'min'"),
        ({"aggr": ["mean", "max"]}, r"got \['mean', 'max'\]"),
        ({"aggr": MeanAggregation()}, r"got 'MeanAggregation\(\)'"),
    ],
)
def test_sage_refuses_what_is_not_equal(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_sage(SAGEConv(SOURCE, OUT, **options))


# GIN and GINE


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@given(graph=graphs(), train_eps=st.booleans())
def test_gin_is_equal(aggr: str, graph: Drawn, train_eps: bool) -> None:
    gin = trained(GINConv(network(), eps=0.3, train_eps=train_eps, aggr=aggr), graph.seed)
    assert_equal(gin, from_gin(gin), graph.x(SOURCE), graph.edge_index)


@given(graph=graphs(bipartite=True))
def test_gin_is_equal_on_bipartite_graphs(graph: Drawn) -> None:
    gin = trained(GINConv(network(), eps=0.3), graph.seed)
    size = (graph.num_sources, graph.num_targets)
    assert_equal(gin, from_gin(gin), graph.pair(SOURCE, SOURCE), graph.edge_index, size=size)


@pytest.mark.parametrize("layout", LAYOUTS)
@with_sparse
@given(graph=graphs(bipartite=True))
def test_gin_is_equal_on_sparse_adjacency(layout: str, graph: Drawn) -> None:
    gin = trained(GINConv(network(), eps=0.3))
    assert_equal(gin, from_gin(gin), graph.pair(SOURCE, SOURCE), graph.adj_t(layout))


def test_gin_keeps_batch_norm_and_training_mode_of_its_network() -> None:
    graph = some_graph()
    layers = MLP([SOURCE, 6, OUT], norm="batch_norm")
    gin = trained(GINConv(layers))
    for training in (True, False):
        gin.train(training)
        assert_equal(gin, from_gin(gin), graph.x(SOURCE), graph.edge_index)
    gin.train()
    layers.norms.eval()
    sir = from_gin(gin)
    assert sir.training
    assert sir.conv.training
    assert isinstance(sir.after, MLP)
    assert not sir.after.norms[0].training
    assert_equal(gin, sir, graph.x(SOURCE), graph.edge_index)


@pytest.mark.parametrize("train_eps", [True, False])
def test_eps_is_trained_if_it_was_before(train_eps: bool) -> None:
    sir = from_gin(GINConv(network(), eps=0.3, train_eps=train_eps))
    scale = sir.conv.lin_residual
    assert isinstance(scale, Scale)
    assert [name for name, _ in scale.named_parameters()] == ["eps"] * train_eps
    assert [name for name, _ in scale.named_buffers()] == ["eps"] * (not train_eps)
    assert float(scale.eps.detach()) == pytest.approx(0.3)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@given(graph=graphs(), with_lin=st.booleans())
def test_gine_is_equal(aggr: str, graph: Drawn, with_lin: bool) -> None:
    edge_dim = EDGE if with_lin else None
    gine = trained(GINEConv(network(), eps=0.3, train_eps=True, edge_dim=edge_dim, aggr=aggr), graph.seed)
    edge_attr = graph.edge_attr(EDGE if with_lin else SOURCE)
    assert_equal(gine, from_gine(gine), graph.x(SOURCE), graph.edge_index, edge_attr=edge_attr)


@given(graph=graphs(bipartite=True))
def test_gine_is_equal_on_bipartite_graphs(graph: Drawn) -> None:
    gine = trained(GINEConv(network(), edge_dim=EDGE), graph.seed)
    x, edge_attr = graph.pair(SOURCE, SOURCE), graph.edge_attr()
    assert_equal(gine, from_gine(gine), x, graph.edge_index, edge_attr=edge_attr)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@with_sparse
@given(graph=graphs(bipartite=True))
def test_gine_is_equal_on_sparse_adjacency(layout: str, graph: Drawn) -> None:
    gine = trained(GINEConv(network(), edge_dim=EDGE))
    adj_t = graph.adj_t(layout)
    edge_attr = graph.normal(adj_t._nnz(), EDGE)
    assert_equal(gine, from_gine(gine), graph.pair(SOURCE, SOURCE), adj_t, edge_attr=edge_attr)


def test_gin_takes_width_from_argument_where_network_does_not_tell() -> None:
    graph = some_graph()
    layers: list[tuple[Any, Any, dict[str, Any]]] = [
        (GINConv, from_gin, {}),
        (GINEConv, from_gine, {"edge_attr": graph.edge_attr(SOURCE)}),
    ]
    for layer, convert, rest in layers:
        gin = trained(layer(nn.Sequential(nn.Tanh(), nn.Linear(SOURCE, OUT))))
        with pytest.raises(ValueError, match=r"in_channels: .* because Tanh, .* does not have it"):
            convert(gin)
        assert_equal(gin, convert(gin, SOURCE), graph.x(SOURCE), graph.edge_index, **rest)


@pytest.mark.parametrize(("layer", "convert"), [(GINConv, from_gin), (GINEConv, from_gine)])
def test_gin_refuses_what_is_not_equal(layer: Any, convert: Any) -> None:
    with pytest.raises(ValueError, match=r"aggr: expected a GINE?Conv with sum, mean, max, got 'median'"):
        convert(layer(network(), aggr="median"))
    with pytest.raises(TypeError, match=r"nn: expected a module, got builtin_function_or_method"):
        convert(layer(torch.relu), SOURCE)


# GATv2


def scores(conv: Any, x: Any, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
    """The scores of every edge before the softmax, `[edges, heads]`, by the formula of the GATv2 paper."""
    x_source, x_target = (x, x) if isinstance(x, Tensor) else x
    z = conv.lin_l(x_source)[edge_index[0]] + conv.lin_r(x_target)[edge_index[1]]
    if edge_attr is not None:
        z = z + conv.lin_edge(edge_attr)
    z = nn.functional.leaky_relu(z, conv.negative_slope).view(-1, conv.heads, conv.out_channels)
    return (z * conv.att).sum(-1)


def summed_scores(conv: Any) -> Callable[..., Tensor]:
    def expected(x: Any, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        score = scores(conv, x, edge_index, edge_attr)
        num_targets = len(x if isinstance(x, Tensor) else x[1])
        return score.new_zeros(num_targets, conv.heads).index_add(0, edge_index[1], score)

    return expected


gatv2_options = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 3),
        "bias": st.booleans(),
        "concat": st.booleans(),
        "negative_slope": st.sampled_from([0.0, 0.2]),
        "dropout": st.sampled_from([0.0, 0.5]),
        "add_self_loops": st.booleans(),
        "residual": st.booleans(),
    }
)


@given(graphs(), gatv2_options, st.booleans(), st.booleans())
def test_gatv2_scores_are_equal(graph: Drawn, options: dict[str, Any], shared: bool, with_edges: bool) -> None:
    edge_dim = EDGE if with_edges else None
    gat = trained(GATv2Conv(SOURCE, OUT, share_weights=shared, edge_dim=edge_dim, **options), graph.seed)
    rest = {"edge_attr": graph.edge_attr()} if with_edges else {}
    sir = from_gatv2_scores(gat)
    assert isinstance(sir, SIRConv)
    assert_equal(summed_scores(gat), sir, graph.x(SOURCE), graph.edge_index, **rest)


@given(graphs(bipartite=True), gatv2_options, st.booleans())
def test_gatv2_scores_are_equal_on_bipartite_graphs(graph: Drawn, options: dict[str, Any], shared: bool) -> None:
    target = SOURCE if shared else TARGET
    gat = trained(GATv2Conv((SOURCE, target), OUT, share_weights=shared, **options), graph.seed)
    assert_equal(summed_scores(gat), from_gatv2_scores(gat), graph.pair(SOURCE, target), graph.edge_index)


@given(graphs(bipartite=True), st.booleans())
def test_softmax_of_single_scores_is_attention_of_pyg(graph: Drawn, with_edges: bool) -> None:
    edge_dim = EDGE if with_edges else None
    gat = trained(GATv2Conv((SOURCE, TARGET), OUT, 2, edge_dim=edge_dim, add_self_loops=False), graph.seed)
    x_source, x_target = graph.pair()
    rest = {"edge_attr": graph.edge_attr()} if with_edges else {}
    source, target = graph.edge_index
    # Every edge gets a copy of its target for itself, so that the sum has one score.
    single = torch.stack([source, torch.arange(source.numel())])
    score = from_gatv2_scores(gat)((x_source, x_target[target]), single, **rest)
    _, (_, alpha) = gat((x_source, x_target), graph.edge_index, **rest, return_attention_weights=True)
    torch.testing.assert_close(softmax(score, target, num_nodes=graph.num_targets), alpha)


@pytest.mark.parametrize("layout", LAYOUTS)
@with_sparse
def test_gatv2_scores_and_edge_conv_take_sparse_adjacency_of_ones_only(layout: str) -> None:
    graph = some_graph()
    adj_t, x = graph.adj_t(layout), graph.x(SOURCE)
    gat, edge_conv = trained(GATv2Conv(SOURCE, OUT)), trained(EdgeConv(edge_network()))
    edge_index = torch.unique(graph.edge_index, dim=1)
    refusal = r"edge_index: expected a sparse adjacency with values 1 only"
    for sir in (from_gatv2_scores(gat), from_edge_conv(edge_conv)):
        torch.testing.assert_close(sir(x, adj_t), sir(x, edge_index))
        with pytest.raises(ValueError, match=refusal):
            sir(x, 2 * adj_t)
        with pytest.raises(ValueError, match=refusal):
            sir(x, edge_index=2 * adj_t)


@with_sparse
def test_gatv2_scores_read_edge_features_from_sparse_adjacency() -> None:
    graph, gat = some_graph(), trained(GATv2Conv(SOURCE, OUT, edge_dim=EDGE))
    edge_index, edge_attr = torch.unique(graph.edge_index.flip(0), dim=1), graph.normal(6, EDGE)
    adj_t = to_torch_csr_tensor(edge_index, edge_attr, (4, 4))
    sir, x = from_gatv2_scores(gat), graph.x(SOURCE)
    torch.testing.assert_close(sir(x, adj_t), sir(x, edge_index.flip(0), edge_attr))


# EdgeConv


# Hardswish is not in the table of activations; PReLU has a weight that must come along.
activations = st.sampled_from([nn.ReLU(), nn.GELU(), nn.LeakyReLU(0.3), nn.Hardswish(), nn.PReLU(), nn.PReLU(6)])


@pytest.mark.parametrize(("aggr", "last_bias"), [("max", True), ("max", False), ("sum", False), ("mean", False)])
@given(graph=graphs(), activation=activations, bias=st.booleans())
def test_edge_conv_is_equal(aggr: str, last_bias: bool, graph: Drawn, activation: nn.Module, bias: bool) -> None:
    layers = edge_network(copy.deepcopy(activation), bias, last_bias)
    edge_conv = trained(EdgeConv(layers, aggr=aggr), graph.seed)
    sir = from_edge_conv(edge_conv)
    assert isinstance(sir, SIRConv)
    assert_equal(edge_conv, sir, graph.x(SOURCE), graph.edge_index)


@given(graph=graphs(bipartite=True))
def test_edge_conv_is_equal_on_bipartite_graphs(graph: Drawn) -> None:
    edge_conv = trained(EdgeConv(edge_network()), graph.seed)
    assert_equal(edge_conv, from_edge_conv(edge_conv), graph.pair(SOURCE, SOURCE), graph.edge_index)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@with_sparse
@given(graph=graphs())
def test_edge_conv_is_equal_on_sparse_adjacency(layout: str, graph: Drawn) -> None:
    edge_conv = trained(EdgeConv(edge_network()))
    assert_equal(edge_conv, from_edge_conv(edge_conv), graph.x(SOURCE), graph.adj_t(layout))


@pytest.mark.parametrize("act", ["relu", "tanh", None])
@given(graph=graphs())
def test_edge_conv_is_equal_for_pygs_mlp(act: str | None, graph: Drawn) -> None:
    edge_conv = trained(EdgeConv(MLP([2 * SOURCE, 6, OUT], act=act, norm=None)), graph.seed)
    assert_equal(edge_conv, from_edge_conv(edge_conv), graph.x(SOURCE), graph.edge_index)


@given(graph=graphs())
def test_edge_conv_with_mean_and_bias_differs_at_isolated_nodes_only(graph: Drawn) -> None:
    edge_conv: Any = trained(EdgeConv(edge_network(), aggr="mean"), graph.seed)
    with pytest.warns(UserWarning, match=r"the output of an isolated node is the last layer.s bias, where EdgeConv"):
        sir = from_edge_conv(edge_conv)
    x = graph.x(SOURCE)
    has_neighbor = torch.zeros(graph.num_targets, dtype=torch.bool)
    has_neighbor[graph.edge_index[1]] = True
    out, expected = sir(x, graph.edge_index), edge_conv(x, graph.edge_index)
    torch.testing.assert_close(out[has_neighbor], expected[has_neighbor])
    torch.testing.assert_close(out[~has_neighbor], edge_conv.nn[2].bias.expand_as(out)[~has_neighbor])


@pytest.mark.parametrize(
    "layers",
    [
        nn.Linear(2 * SOURCE, OUT),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.Linear(6, OUT)),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.ReLU(), nn.Linear(6, OUT), nn.ReLU()),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.Dropout(), nn.Linear(6, OUT)),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.RReLU(), nn.Linear(6, OUT)),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.GLU(), nn.Linear(3, OUT)),
        nn.Sequential(nn.Linear(2 * SOURCE, 6), nn.Sequential(nn.BatchNorm1d(6), nn.ReLU()), nn.Linear(6, OUT)),
        MLP([2 * SOURCE, 6, OUT], norm="batch_norm"),
        MLP([2 * SOURCE, 6, OUT], norm=None, dropout=0.5),
        MLP([2 * SOURCE, 6, OUT], norm=None, plain_last=False),
        MLP([2 * SOURCE, 6, OUT], norm=None, act=torch.relu),
        MLP([2 * SOURCE, 6, 6, OUT], norm=None),
        MLP([2 * SOURCE, OUT], norm=None),
        torch.relu,
    ],
    ids=lambda layers: type(layers).__name__,
)
def test_edge_conv_refuses_other_networks(layers: Any) -> None:
    with pytest.raises(ValueError, match=r"nn: expected Sequential\(Linear, activation, Linear\) or an MLP of two"):
        from_edge_conv(EdgeConv(layers))


def test_edge_conv_refuses_what_is_not_equal() -> None:
    with pytest.raises(ValueError, match=r"nn: expected no bias in the last layer with aggr='sum'"):
        from_edge_conv(EdgeConv(edge_network(), aggr="add"))
    with pytest.raises(ValueError, match=r"aggr: expected a EdgeConv with sum, mean, max, got 'std'"):
        from_edge_conv(EdgeConv(edge_network(), aggr="std"))


# All converters


class Case(NamedTuple):
    convert: Callable[..., nn.Module]
    layer: Callable[[], MessagePassing]
    edge_dim: int | None = None


CASES = {
    "gcn": Case(from_gcn, lambda: GCNConv(SOURCE, OUT)),
    "sage": Case(from_sage, lambda: SAGEConv(SOURCE, OUT, project=True)),
    "sage-max": Case(from_sage, lambda: SAGEConv(SOURCE, OUT, aggr="max")),
    "gin": Case(from_gin, lambda: GINConv(network(), train_eps=True)),
    "gine": Case(from_gine, lambda: GINEConv(network(), edge_dim=EDGE), EDGE),
    "gatv2": Case(from_gatv2_scores, lambda: GATv2Conv(SOURCE, OUT, 2, edge_dim=EDGE), EDGE),
    "edge": Case(from_edge_conv, lambda: EdgeConv(edge_network(nn.PReLU()))),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(case: Case, module: nn.Module) -> Tensor:
    graph, dtype = some_graph(), next(module.parameters()).dtype
    rest = [] if case.edge_dim is None else [graph.edge_attr(case.edge_dim).to(dtype)]
    out: Tensor = module(graph.x(SOURCE).to(dtype), graph.edge_index, *rest)
    return out


def sir_convs(module: nn.Module) -> list[SIRConv]:
    return [part for part in module.modules() if isinstance(part, SIRConv)]


@cases
def test_weights_are_copied_and_the_original_is_left_alone(case: Case) -> None:
    layer = trained(case.layer())
    before = copy.deepcopy(layer.state_dict())
    state = torch.get_rng_state()
    sir = case.convert(layer)
    assert torch.equal(torch.get_rng_state(), state)
    theirs = {tensor.data_ptr() for tensor in layer.state_dict().values()}
    assert theirs.isdisjoint(tensor.data_ptr() for tensor in sir.state_dict().values())
    with torch.no_grad():
        for parameter in sir.parameters():
            assert parameter.is_leaf
            assert parameter.requires_grad
            parameter.zero_()
    torch.testing.assert_close(layer.state_dict(), before, rtol=0, atol=0)


@cases
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
def test_dtype_and_training_mode_are_kept(case: Case, dtype: torch.dtype, training: bool) -> None:
    layer = case.layer().to(dtype).train(training)
    sir = case.convert(layer)
    assert {tensor.dtype for tensor in sir.state_dict().values()} == {dtype}
    assert {part.training for part in sir.modules()} == {training}
    assert run(case, sir).dtype == dtype


@cases
def test_state_dict_round_trip_carries_everything(case: Case) -> None:
    first, second = (case.convert(trained(case.layer(), seed)) for seed in (0, 1))
    assert not torch.allclose(run(case, first), run(case, second))
    second.load_state_dict(first.state_dict(), strict=True)
    assert torch.equal(run(case, first), run(case, second))
    assert torch.equal(run(case, first), run(case, copy.deepcopy(first)))


@cases
def test_plain_route_of_explainers_is_equal(case: Case) -> None:
    sir = case.convert(trained(case.layer()))
    expected = run(case, sir)
    for conv in sir_convs(sir):
        conv.fused = False
    torch.testing.assert_close(run(case, sir), expected)


@cases
def test_all_parameters_get_a_gradient(case: Case) -> None:
    sir = case.convert(trained(case.layer()))
    run(case, sir).square().sum().backward()
    assert [name for name, parameter in sir.named_parameters() if parameter.grad is None] == []


@cases
def test_other_layers_are_refused(case: Case) -> None:
    for other in CASES.values():
        layer = other.layer()
        if other.convert is not case.convert:
            with pytest.raises(TypeError, match=rf"conv: expected PyG's \w+ itself, got {type(layer).__name__}"):
                case.convert(layer)


def test_subclasses_are_refused_as_they_may_compute_anything() -> None:
    class Doubled(GCNConv):
        pass

    with pytest.raises(TypeError, match=r"expected PyG's GCNConv itself, got Doubled"):
        from_gcn(Doubled(SOURCE, OUT))


def lazy_layers() -> Sequence[tuple[Callable[..., nn.Module], MessagePassing, str]]:
    return [
        (from_gcn, GCNConv(-1, OUT), "lin.weight"),
        (from_sage, SAGEConv(-1, OUT), "lin_l.weight"),
        (from_gin, GINConv(nn.Sequential(Linear(-1, OUT))), "nn.0.weight"),
        (from_gine, GINEConv(nn.Sequential(Linear(-1, OUT))), "nn.0.weight"),
        (from_gatv2_scores, GATv2Conv(-1, OUT), "lin_l.weight"),
        (from_edge_conv, EdgeConv(nn.Sequential(Linear(-1, 6), nn.ReLU(), Linear(6, OUT))), "nn.0.weight"),
    ]


def test_lazy_layers_are_refused_before_their_first_call_and_equal_after_it() -> None:
    graph = some_graph()
    x = graph.x(SOURCE)
    for convert, layer, name in lazy_layers():
        with pytest.raises(ValueError, match=rf"expected an initialised layer, but {name} has no shape yet"):
            convert(layer.double())
        rest = {"edge_attr": graph.edge_attr(SOURCE)} if isinstance(layer, GINEConv) else {}
        layer(x, graph.edge_index, **rest)
        trained(layer)
        expected = summed_scores(layer) if isinstance(layer, GATv2Conv) else layer
        rest_of_gin = [SOURCE] if isinstance(layer, GINEConv) else []
        assert_equal(expected, convert(layer, *rest_of_gin), x, graph.edge_index, **rest)


# The authors' DGL layers


class AuthorsLayer(nn.Module):
    """Their layer by its formula, one node at a time: a bias on query, key and edge, in-degrees at both ends."""

    def __init__(self, aggr: str, edge: nn.Module | None, activation: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.aggr = aggr
        self.activation = activation
        self.linear_query = nn.Linear(SOURCE, 6, bias=bias)
        self.linear_key = nn.Linear(SOURCE, 6, bias=bias)
        self.linear_edge = edge
        self.linear_relation = nn.Linear(6, OUT, bias=bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        query, key = self.linear_query(x), self.linear_key(x)
        edge = None if self.linear_edge is None else self.linear_edge(edge_attr)
        degree = torch.bincount(edge_index[1], minlength=len(x)).clamp(min=1).to(x.dtype)
        rows = []
        for u in range(len(x)):
            messages = []
            for e, (v, target) in enumerate(edge_index.t().tolist()):
                if target == u:
                    z = query[u] + key[v] + (0 if edge is None else edge[e])
                    scale = 1 / (degree[u] * degree[v]).sqrt() if self.aggr == "sym" else 1
                    messages.append(scale * self.activation(z))
            if self.aggr == "max":
                related = [self.linear_relation(message) for message in messages]
                rows.append(torch.stack(related).amax(0) if related else 0 * self.linear_relation(query[u]))
            else:
                total = torch.stack(messages).sum(0) if messages else x.new_zeros(6)
                rows.append(self.linear_relation(total / degree[u] if self.aggr == "mean" else total))
        return torch.stack(rows)


class BondEncoder(nn.Module):
    """As OGB's: the sum of one embedding per categorical feature of the edge."""

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.bond_embedding_list = nn.ModuleList(nn.Embedding(size, width) for size in sizes)

    def forward(self, kinds: Tensor) -> Tensor:
        return torch.stack([table(kinds[:, i]) for i, table in enumerate(self.bond_embedding_list)]).sum(0)


def authors_layer(aggr: str, edge: nn.Module | None = None, bias: bool = True) -> AuthorsLayer:
    torch.manual_seed(0)
    return AuthorsLayer(aggr, edge, nn.PReLU(init=0.2), bias).double()


def loaded(aggr: str, state: dict[str, Tensor], edge_dim: int | None = None, **options: Any) -> SIRConv:
    sir = SIRConv(SOURCE, OUT, 6, aggr, nn.PReLU(), edge_dim, **{"variant": "published", **options}).double()
    sir.load_state_dict(state, strict=True)
    return sir


aggregators = pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])


@aggregators
@given(graph=graphs(), with_edges=st.booleans(), bias=st.booleans())
def test_authors_layer_is_equal(aggr: str, graph: Drawn, with_edges: bool, bias: bool) -> None:
    edge = nn.Linear(EDGE, 6, bias=bias) if with_edges else None
    theirs = authors_layer(aggr, edge, bias)
    rest = {"edge_attr": graph.edge_attr()} if with_edges else {}
    edge_dim = EDGE if with_edges else None
    state = from_dgl_state_dict(theirs.state_dict())
    ours = loaded(aggr, state, edge_dim, inner_bias=bias, bias=bias)
    assert_equal(theirs, ours, graph.x(SOURCE), graph.edge_index, **rest)
    folded = from_dgl_state_dict(theirs.state_dict(), fold_biases=True)
    aggr = "sym_in" if aggr == "sym" else aggr
    ours = loaded(aggr, folded, edge_dim, variant="corrected", inner_bias=bias, bias=bias)
    assert_equal(theirs, ours, graph.x(SOURCE), graph.edge_index, **rest)


@aggregators
@given(graph=graphs(), fold_biases=st.booleans())
def test_authors_edge_embedding_is_equal(aggr: str, graph: Drawn, fold_biases: bool) -> None:
    theirs = authors_layer(aggr, nn.Embedding(3, 6))
    kind = torch.arange(graph.edge_index.size(1)) % 3
    state = from_dgl_state_dict(theirs.state_dict(), edge_embedding=True, fold_biases=fold_biases)
    options = {"variant": "corrected"} if fold_biases else {}
    ours = loaded("sym_in" if aggr == "sym" else aggr, state, 3, **options)
    expected = theirs(graph.x(SOURCE), graph.edge_index, kind)
    one_hot = torch.eye(3, dtype=torch.float64)
    for edge_attr in (one_hot[kind], (one_hot, kind)):
        torch.testing.assert_close(ours(graph.x(SOURCE), graph.edge_index, edge_attr), expected)


@given(graph=graphs())
def test_authors_bond_encoder_is_equal(graph: Drawn) -> None:
    sizes = (4, 2, 3)
    theirs = authors_layer("sum", BondEncoder(sizes, 6))
    kinds = torch.stack([torch.arange(graph.edge_index.size(1)) % size for size in sizes], dim=1)
    ours = loaded("sum", from_dgl_state_dict(theirs.state_dict(), edge_embedding=True), sum(sizes))
    codes = [torch.eye(size, dtype=torch.float64)[kinds[:, i]] for i, size in enumerate(sizes)]
    expected = theirs(graph.x(SOURCE), graph.edge_index, kinds)
    torch.testing.assert_close(ours(graph.x(SOURCE), graph.edge_index, torch.cat(codes, dim=1)), expected)


def test_authors_models_keep_prefixes_and_other_entries() -> None:
    layers = nn.ModuleList([authors_layer("sum", nn.Linear(EDGE, 6)), authors_layer("max", nn.Linear(EDGE, 6))])
    model = nn.ModuleDict({"convs": layers, "norms": nn.ModuleList([nn.BatchNorm1d(OUT)])})
    state = from_dgl_state_dict(model.state_dict())
    ours = nn.ModuleDict(
        {
            "convs": nn.ModuleList(
                SIRConv(SOURCE, OUT, 6, aggr, nn.PReLU(), EDGE, variant="published") for aggr in ("sum", "max")
            ),
            "norms": nn.ModuleList([nn.BatchNorm1d(OUT)]),
        }
    )
    ours.load_state_dict(state, strict=True)
    folded = from_dgl_state_dict(model.state_dict(), fold_biases=True)
    missing = {f"convs.{i}.lin_{name}.bias" for i in (0, 1) for name in ("key", "edge")}
    assert set(state) - set(folded) == missing
    query, key, edge = (state[f"convs.1.lin_{name}.bias"] for name in ("query", "key", "edge"))
    torch.testing.assert_close(folded["convs.1.lin_query.bias"], query + key + edge)


def test_fold_gives_query_a_bias_where_it_had_none() -> None:
    state = {"linear_query.weight": torch.eye(2), "linear_key.bias": torch.ones(2)}
    folded = from_dgl_state_dict(state, fold_biases=True)
    assert set(folded) == {"lin_query.weight", "lin_query.bias"}
    assert folded["lin_query.bias"].tolist() == [1, 1]


def test_unknown_names_of_the_authors_are_refused() -> None:
    weight = torch.zeros(2, 2)
    known = "linear_query, linear_key, linear_edge, linear_neigh, linear_relation"
    with pytest.raises(
        ValueError, match=rf"^state_dict: convs.0.linear_value.weight: expected one of {known}, got 'linear_value'"
    ):
        from_dgl_state_dict({"convs.0.linear_value.weight": weight})
    with pytest.raises(ValueError, match=r"expected linear_key.weight or .bias, got 'linear_key.0.weight'$"):
        from_dgl_state_dict({"linear_key.0.weight": weight})


def test_edge_embeddings_of_the_authors_are_told_by_their_shape() -> None:
    linear, embedding = authors_layer("sum", nn.Linear(EDGE, 6)), authors_layer("sum", nn.Embedding(3, 6))
    bonds, none = authors_layer("sum", BondEncoder([3], 6)), authors_layer("sum")
    with pytest.raises(ValueError, match=r"shape \[6, edge_dim\], .* got \[3, 6\]; .* edge_embedding=True"):
        from_dgl_state_dict(embedding.state_dict())
    with pytest.raises(ValueError, match=r"shape \[types, 6\], .* got \[6, 2\]"):
        from_dgl_state_dict(linear.state_dict(), edge_embedding=True)
    with pytest.raises(ValueError, match=r"got 'linear_edge.bond_embedding_list.0.weight'; .* edge_embedding=True"):
        from_dgl_state_dict(bonds.state_dict())
    with pytest.raises(ValueError, match=r"edge_embedding: expected linear_edge in the state dict, got none"):
        from_dgl_state_dict(none.state_dict(), edge_embedding=True)
