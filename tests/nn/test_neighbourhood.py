"""The neighbourhood context of the layer: SINC-GCN by its formula, on every route."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import to_hetero

from sirgcn import Neighbors, SIRConv, SIRNet
from sirgcn.nn import CONTEXTS, SIRGCN, NetConfig, Rows, build_net, config_from_dict, from_dgl_state_dict
from sirgcn.ops import native
from sirgcn.testing import (
    LAYER_LAWS,
    RICH,
    Graph,
    Inputs,
    aggregate_by_loop,
    assert_layer_laws,
    assert_same,
    graphs,
    random_graph,
    value_and_gradients,
)
from tests.nn.observe import SHAPES, LargestTensor, onnx_output

HIDDEN, OUT, EDGE = 4, 3, 2
NARROW, WIDE = 3, 7
"""Input widths below and above the hidden one: W_N acts after the aggregation, or before it."""

AGGREGATORS = ("sum", "mean", "sym", "max")
both_widths = pytest.mark.parametrize("width", [NARROW, WIDE])
every_context = pytest.mark.parametrize("context", CONTEXTS)
both_routes = pytest.mark.parametrize("fused", [True, False])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(width: int | tuple[int, int] = NARROW, **options: Any) -> Any:
    return SIRConv(width, OUT, **{"hidden_channels": HIDDEN, "context": "mean", **options}).double()


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def product(lin: Any, x: Tensor) -> Tensor:
    out = x @ lin.weight.t()
    return out if lin.bias is None else out + lin.bias


def by_formula(
    conv: Any,
    source: Tensor,
    target: Tensor,
    graph: Graph,
    edge_attr: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """SINC-GCN, one edge at a time."""
    nothing = source.new_zeros(graph.num_targets, source.size(1))
    context = aggregate_by_loop(nn.Identity(), graph, Inputs(nothing, source), conv.context)
    query = product(conv.lin_query, target) + context @ conv.lin_context.weight.t()
    edge = None if edge_attr is None else product(conv.lin_edge, edge_attr)
    terms = Inputs(query, product(conv.lin_key, source), edge, edge_weight)
    if conv.aggr == "max":
        return aggregate_by_loop(nn.Sequential(conv.activation, conv.lin_relation), graph, terms, "max")
    return product(conv.lin_relation, aggregate_by_loop(conv.activation, graph, terms, conv.aggr))


# The formula


@both_routes
@both_widths
@pytest.mark.parametrize("aggr", AGGREGATORS)
@every_context
def test_values_and_gradients_are_those_of_the_formula(context: str, aggr: str, width: int, fused: bool) -> None:
    conv = layer(width, aggr=aggr, context=context, activation="gelu", edge_dim=EDGE, fused=fused)
    x, edge_attr = draw(RICH.num_targets, width).requires_grad_(), draw(len(RICH.edges), EDGE).requires_grad_()
    weight = None if aggr == "max" else draw(len(RICH.edges)).requires_grad_()
    leaves = [x, edge_attr, *([] if weight is None else [weight]), *conv.parameters()]
    found = value_and_gradients(conv(x, RICH.edge_index, edge_attr, weight), leaves)
    expected = value_and_gradients(by_formula(conv, x, x, RICH, edge_attr, weight), leaves)
    assert_same(found, expected)


@given(
    graphs(), st.sampled_from(CONTEXTS), st.sampled_from(AGGREGATORS), st.sampled_from([NARROW, WIDE]), st.booleans()
)
def test_layer_is_the_formula_on_any_graph(graph: Graph, context: str, aggr: str, width: int, fused: bool) -> None:
    torch.manual_seed(0)
    is_one_set = graph.num_sources == graph.num_targets
    conv = layer((width, width + 1 - is_one_set), aggr=aggr, context=context, fused=fused)
    source = draw(graph.num_sources, width)
    target = source if is_one_set else draw(graph.num_targets, width + 1)
    found = conv((source, target), graph.edge_index)
    assert_same([found], [by_formula(conv, source, target, graph)])


@both_widths
@every_context
def test_laws_of_layers_hold(context: str, width: int) -> None:
    laws = [law for law in LAYER_LAWS if law != "repeated edges"]

    def make(**options: Any) -> Callable[[], nn.Module]:
        return lambda: SIRConv(width, OUT, HIDDEN, activation="gelu", context=context, **options)

    assert_layer_laws(make(), width, laws, plain=make(fused=False), bipartite=True, examples=5)


@both_routes
@every_context
def test_without_w_n_it_is_sir_gcn(context: str, fused: bool) -> None:
    conv, plain = layer(context=context, fused=fused), layer(context=None, fused=fused)
    plain.load_state_dict({name: value for name, value in conv.state_dict().items() if "context" not in name})
    x = draw(RICH.num_targets, NARROW)
    assert not torch.allclose(conv(x, RICH.edge_index), plain(x, RICH.edge_index))
    nn.init.zeros_(conv.lin_context.weight)
    assert torch.equal(conv(x, RICH.edge_index), plain(x, RICH.edge_index))


def test_w_n_has_no_bias_and_the_width_of_the_sources() -> None:
    for variant in ("corrected", "published"):
        conv = layer(NARROW, variant=variant)
        assert conv.lin_context.bias is None
    assert layer((5, 2)).lin_context.weight.shape == (HIDDEN, 5)
    more = sum(p.numel() for p in layer().parameters()) - sum(p.numel() for p in layer(context=None).parameters())
    assert more == HIDDEN * NARROW


def test_a_layer_without_context_draws_the_weights_that_it_drew_before() -> None:
    torch.manual_seed(1)
    plain = layer(context=None).state_dict()
    torch.manual_seed(1)
    torch.testing.assert_close(SIRConv(NARROW, OUT, HIDDEN).double().state_dict(), plain, rtol=0, atol=0)


@both_routes
@every_context
def test_edge_weights_weigh_messages_and_not_the_context(context: str, fused: bool) -> None:
    conv = layer(aggr="sum", context=context, fused=fused)
    x, weight = draw(RICH.num_targets, NARROW), draw(len(RICH.edges))
    halves = conv(x, RICH.edge_index, edge_weight=weight) + conv(x, RICH.edge_index, edge_weight=1 - weight)
    assert_same([halves - conv.lin_relation.bias], [conv(x, RICH.edge_index)])


@both_routes
@both_widths
@every_context
def test_dropout_acts_on_the_projected_context(context: str, width: int, fused: bool) -> None:
    conv = layer(width, aggr="mean", context=context, activation="identity", dropout=0.5, fused=fused)
    ring = torch.stack([torch.arange(200), torch.arange(1, 201) % 200])
    for lin in (conv.lin_query, conv.lin_key):
        nn.init.zeros_(lin.weight)
    nn.init.zeros_(conv.lin_query.bias)
    conv.lin_relation = nn.Identity()
    conv.out_channels = HIDDEN
    x = draw(200, width)
    whole = conv.eval()(x, ring)
    found = conv.train()(x, ring)
    is_kept = found != 0
    assert_same([found], [torch.where(is_kept, 2 * whole, 0.0)])
    # 800 elements: six standard deviations are 0.11.
    assert abs(is_kept.double().mean() - 0.5) < 0.11
    # Each element has a mask of its own.
    assert is_kept.any(1).double().mean() > 0.8


# Routes


@both_widths
@every_context
def test_batches_cached_flow_and_lazy_widths(context: str, width: int) -> None:
    conv = layer(width, context=context)
    x = draw(2, RICH.num_targets, width)
    expected = torch.stack([conv(signal, RICH.edge_index) for signal in x])
    for fused in (True, False):
        twin = copy.deepcopy(conv)
        twin.fused = fused
        assert_same([twin(x, RICH.edge_index)], [expected])
        reverse = layer(width, context=context, flow="target_to_source", fused=fused)
        reverse.load_state_dict(conv.state_dict())
        assert_same([reverse(x, RICH.edge_index.flip(0))], [expected])
        cached = layer(width, context=context, cached=True, fused=fused)
        cached.load_state_dict(conv.state_dict())
        for edge_index in (RICH.edge_index, RICH.edge_index[:, :3]):
            assert_same([cached(x, edge_index)], [expected])
        lazy = layer(-1, context=context, fused=fused)
        assert lazy(x, RICH.edge_index).shape == expected.shape
        lazy.load_state_dict(conv.state_dict())
        assert_same([lazy(x, RICH.edge_index)], [expected])


@both_widths
@every_context
def test_rows_that_nodes_share_count_as_rows_of_their_own(context: str, width: int) -> None:
    conv = layer(width, context=context)
    table, index = draw(3, width).requires_grad_(), torch.tensor([0, 2, 1, 1, 0, 2, 2])
    leaves = [table, *conv.parameters()]
    found = value_and_gradients(conv(Rows(table, index), RICH.edge_index), leaves)
    assert_same(found, value_and_gradients(conv(table[index], RICH.edge_index), leaves))


@pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
@pytest.mark.parametrize("training", [True, False])
@every_context
def test_nodes_of_a_kind_are_computed_once(context: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    edge_index = torch.cat([edges + 4 * i for i in range(100)], dim=1)
    categories = torch.tensor([0, 1, 0, 1]).repeat(100)
    net = SIRNet.of(2, 8, 2, 2, encoder="embedding", aggr="sym", context=context).double().train(training)
    twin = copy.deepcopy(net)
    twin.share = False
    targets: list[int] = []
    plain = SIRConv.forward

    def forward(self: SIRConv, x: Any, *given: Any) -> Tensor:
        targets.append(x[1].shape[0] if isinstance(x, tuple) else x.shape[0])
        return plain(self, x, *given)

    monkeypatch.setattr(SIRConv, "forward", forward)
    found = value_and_gradients(net(categories, edge_index), list(net.parameters()))
    expected = value_and_gradients(twin(categories, edge_index), list(twin.parameters()))
    # The four nodes of a path differ: two are ends, and two have one category each.
    assert targets == [4, 4, 400, 400]
    assert_same(found, expected, 1e-9)


@both_widths
@every_context
def test_no_tensor_of_edges_by_channels_is_built(context: str, width: int) -> None:
    graph = random_graph(40, 2000)
    neighbors = Neighbors.from_edge_index(graph.edge_index, 40)
    conv, x = layer(width, context=context), draw(40, width).requires_grad_()
    neighbors.weights("sym", torch.float64)
    with LargestTensor() as largest:
        conv(x, neighbors).sum().backward()
    assert 0 < largest.elements <= 2000


@both_routes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_context
def test_half_precision_is_near_full_precision(context: str, dtype: torch.dtype, fused: bool) -> None:
    conv, x = layer(context=context, fused=fused), draw(RICH.num_targets, NARROW)
    expected = conv(x, RICH.edge_index)
    found = conv.to(dtype)(x.to(dtype), RICH.edge_index)
    assert found.dtype == dtype
    # bfloat16 keeps 8 bits: a few roundings of numbers near 1.
    torch.testing.assert_close(found.double(), expected, rtol=0.05, atol=0.05)


@both_routes
@every_context
def test_autocast_is_near_full_precision(context: str, fused: bool) -> None:
    conv, x = layer(context=context, fused=fused).float(), draw(RICH.num_targets, NARROW).float()
    expected = conv(x, RICH.edge_index)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x, RICH.edge_index)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    found.float().sum().backward()
    assert conv.lin_context.weight.grad.isfinite().all()


@pytest.mark.usefixtures("fresh_dynamo")
@both_widths
@every_context
def test_compiled_layer_has_no_graph_break_and_equals_eager(context: str, width: int) -> None:
    conv, x = layer(width, context=context), draw(RICH.num_targets, width).requires_grad_()
    compiled: Any = torch.compile(conv, backend="aot_eager", fullgraph=True)
    leaves = [x, *conv.parameters()]
    found = value_and_gradients(compiled(x, RICH.edge_index), leaves)
    assert_same(found, value_and_gradients(conv(x, RICH.edge_index), leaves))


@both_widths
@every_context
def test_exported_layer_runs_on_graphs_of_any_size_without_a_custom_op(context: str, width: int) -> None:
    conv = layer(width, context=context)
    program = torch.export.export(conv, (draw(RICH.num_targets, width), RICH.edge_index), dynamic_shapes=SHAPES)
    assert not any("sirgcn" in str(node.target) for node in program.graph.nodes)
    x, edge_index = draw(30, width), torch.randint(0, 30, (2, 77))
    assert_same([program.module()(x, edge_index)], [conv(x, edge_index)])


# torch's own exporter copies what it deprecates.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning")
@every_context
def test_onnx_program_computes_the_same_on_another_graph(context: str, tmp_path: Path) -> None:
    conv = layer(context=context).float().eval()
    given = (draw(RICH.num_targets, NARROW).float(), RICH.edge_index)
    others = (draw(30, NARROW).float(), torch.randint(0, 30, (2, 77)))
    found = onnx_output(conv, given, others, tmp_path)
    torch.testing.assert_close(found, conv(*others), rtol=1e-4, atol=1e-5)


@every_context
def test_to_hetero_makes_a_layer_per_relation(context: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = layer((-1, -1), context=context)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    relations = [("user", "rates", "item"), ("item", "is_rated_by", "user")]
    net: Any = to_hetero(Net(), (["user", "item"], relations))
    x = {"user": draw(4, 3), "item": draw(3, 5)}
    edges = torch.tensor([[0, 1, 3], [2, 0, 0]])
    out = net(x, dict(zip(relations, (edges, edges.flip(0)), strict=True)))
    conv = net.conv["user__rates__item"]
    expected = by_formula(conv, x["user"], x["item"], Graph(tuple(map(tuple, edges.t().tolist())), 4, 3))
    assert_same([out["item"]], [expected])


# Explainers


def test_masked_edge_is_a_removed_edge_of_sums() -> None:
    conv, x = layer(aggr="sum", context="sum"), draw(RICH.num_targets, NARROW)
    mask = torch.ones(len(RICH.edges), dtype=torch.float64)
    mask[[0, 6]] = 0
    set_masks(conv, mask, RICH.edge_index, apply_sigmoid=False)
    found = conv(x, RICH.edge_index)
    clear_masks(conv)
    assert_same([found], [conv(x, RICH.edge_index[:, mask.bool()])])


@every_context
def test_gnn_explainer_sees_edges_by_their_messages_and_by_the_context(context: str) -> None:
    model = SIRGCN(8, 16, 2, 3, context=context, activation="gelu")
    x = torch.randn(RICH.num_targets, 8)
    before = model(x, RICH.edge_index)
    explainer = Explainer(
        model,
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(x, RICH.edge_index, index=3)
    assert (explanation.edge_mask[RICH.edge_index[1] == 3] > 0).all()
    torch.testing.assert_close(model(x, RICH.edge_index), before)


def test_hook_of_w_n_sees_the_context_itself() -> None:
    conv, x = layer(WIDE, context="sum"), draw(RICH.num_targets, WIDE)
    seen: list[Tensor] = []
    expected = conv(x, RICH.edge_index)
    conv.lin_context.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    assert_same([conv(x, RICH.edge_index)], [expected])
    nothing = x.new_zeros(RICH.num_targets, WIDE)
    assert_same(seen, [aggregate_by_loop(nn.Identity(), RICH, Inputs(nothing, x))])


def test_w_n_may_be_replaced_by_a_module_with_a_bias() -> None:
    conv, x = layer(WIDE, context="sum"), draw(RICH.num_targets, WIDE)
    conv.lin_context = nn.Linear(WIDE, HIDDEN).double()
    plain = copy.deepcopy(conv)
    plain.fused = False
    bias = conv.lin_context.bias.detach().clone()
    assert_same([conv(x, RICH.edge_index)], [plain(x, RICH.edge_index)])
    nn.init.zeros_(conv.lin_context.bias)
    with torch.no_grad():
        conv.lin_query.bias += bias
    assert_same([conv(x, RICH.edge_index)], [plain(x, RICH.edge_index)])


# Names: configurations, the authors' weights, refusals


def test_a_configuration_names_the_context() -> None:
    config = NetConfig.of(3, 8, 2, num_layers=2, context="sym", aggr="mean")
    assert config.conv.options == {"context": "sym", "aggr": "mean"}
    assert config_from_dict(config.to_dict()) == config
    net: Any = build_net(config)
    assert [block.conv.context for block in net.blocks] == ["sym", "sym"]
    assert [conv.context for conv in SIRGCN(3, 8, 2, context="max").convs] == ["max", "max"]


def test_one_layer_has_as_many_parameters_as_published() -> None:
    """UniqueSignature: 352 with the context and 336 without, of which 16 are the classifier's."""
    for context, published in (("sum", 352), (None, 336)):
        conv = SIRConv(1, 16, context=context)
        assert sum(p.numel() for p in conv.parameters()) + 16 == published


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_weights_of_the_authors_layer_load(aggr: str, context: str) -> None:
    theirs = {
        "linear_query.weight": draw(HIDDEN, NARROW),
        "linear_query.bias": draw(HIDDEN),
        "linear_key.weight": draw(HIDDEN, NARROW),
        "linear_neigh.weight": draw(HIDDEN, NARROW),
        "linear_relation.weight": draw(OUT, HIDDEN),
        "linear_relation.bias": draw(OUT),
    }
    conv = layer(aggr=aggr, context=context)
    conv.load_state_dict(from_dgl_state_dict(theirs), strict=True)
    assert torch.equal(conv.lin_context.weight, theirs["linear_neigh.weight"])
    x = draw(RICH.num_targets, NARROW)
    assert_same([conv(x, RICH.edge_index)], [by_formula(conv, x, x, RICH)])
    with pytest.raises(
        ValueError, match=r"linear_neigb\.weight: expected one of .*linear_neigh.*did you mean linear_neigh"
    ):
        from_dgl_state_dict({"convs.0.linear_neigb.weight": theirs["linear_key.weight"]})


@pytest.mark.parametrize("make", [lambda name: SIRConv(3, 4, context=name), lambda name: SIRGCN(3, 4, 1, context=name)])
def test_unknown_context_is_refused_with_the_nearest_known_one(make: Callable[[str], Any]) -> None:
    with pytest.raises(ValueError, match=r"^context: expected one of sum, mean, sym, max, .*'meen'; did you mean mean"):
        make("meen")


def test_message_network_with_a_context_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^context: .*message_network.*expected None, got 'mean'"):
        SIRConv(3, 4, message_network=nn.Linear(6, 4), context="mean")


def test_context_of_another_convolution_is_refused() -> None:
    with pytest.raises(ValueError, match=r"options of gcn: .*context"):
        NetConfig.of(3, 8, 2, num_layers=1, conv="gcn", context="mean")
