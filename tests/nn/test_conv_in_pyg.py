"""The layer inside PyG's and torch's tools: whatever they do with a convolution, they can do with this one."""

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch_geometric import EdgeIndex
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GNNExplainer, PGExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GPSConv, HeteroConv, SAGEConv, Sequential, to_hetero
from torch_geometric.testing import assert_module
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from sirgcn import SIRGCN, Neighbors, SIRConv, SIRNet
from sirgcn.nn import AGGREGATORS

# torch's own warnings about the sparse tensors that are handed in
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning"),
]

# Nodes 4 and 6 receive nothing; a self-loop at 2; no repeated edge, which a coalesced sparse tensor would merge.
EDGE_INDEX = torch.tensor([[0, 2, 1, 5, 3, 2, 3, 0, 5, 4, 6], [3, 1, 1, 3, 0, 2, 5, 1, 0, 3, 2]])
NODES, EDGES = 7, EDGE_INDEX.size(1)
SIGMAS: dict[str, Callable[[], str | nn.Module]] = {"relu": lambda: "relu", "prelu": nn.PReLU}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to the rounding of float32 sums in another order."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def adjacencies(edge_index: Tensor, size: tuple[int, int]) -> dict[str, Any]:
    """One graph in every form; sparse ones transposed, targets as rows, as PyG passes them."""
    row_major = edge_index[:, (edge_index[1] * size[0] + edge_index[0]).argsort()]
    column_major = edge_index[:, (edge_index[0] * size[1] + edge_index[1]).argsort()]
    adj = to_torch_coo_tensor(edge_index, size=size)
    forms: dict[str, Any] = {
        "edge_index": edge_index,
        "edge_index int32": edge_index.int(),
        "permuted": edge_index[:, torch.randperm(edge_index.size(1))],
        "EdgeIndex": EdgeIndex(edge_index, sparse_size=size),
        "EdgeIndex by row": EdgeIndex(column_major, sparse_size=size, sort_order="row"),
        "EdgeIndex by column": EdgeIndex(row_major, sparse_size=size, sort_order="col"),
        "coo": adj.t(),
        "coo coalesced": adj.t().coalesce(),
        "csr": adj.t().to_sparse_csr(),
        "csc": adj.t().to_sparse_csc(),
        "csc of PyG": to_torch_csc_tensor(edge_index, size=size).t(),
        "csr of PyG": to_torch_csr_tensor(edge_index, size=size).t(),
        "Neighbors": Neighbors.from_edge_index(edge_index, size),
        "Neighbors of csr": Neighbors.from_sparse(adj.t().to_sparse_csr()),
    }
    if WITH_TORCH_SPARSE:
        forms["SparseTensor"] = SparseTensor.from_edge_index(edge_index, sparse_sizes=size).t()
    return forms


# Every form of a graph


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_every_form_of_a_graph_gives_the_same(aggr: str, sigma: str, fused: bool) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr, activation=SIGMAS[sigma](), residual=True, fused=fused)
    x = torch.randn(NODES, 8)
    expected = conv(x, EDGE_INDEX)
    assert expected.shape == (NODES, 16)
    for graph in adjacencies(EDGE_INDEX, (NODES, NODES)).values():
        close(conv(x, graph), expected)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])
def test_every_form_of_a_bipartite_graph_gives_the_same(aggr: str, fused: bool) -> None:
    conv: Any = SIRConv((8, 5), 16, aggr=aggr, residual=True, fused=fused)
    x = (torch.randn(9, 8), torch.randn(NODES, 5))
    expected = conv(x, EDGE_INDEX)
    assert expected.shape == (NODES, 16)
    assert torch.equal(conv(x, EDGE_INDEX, size=(9, NODES)), expected)
    assert torch.equal(conv(list(x), EDGE_INDEX), expected)
    for graph in adjacencies(EDGE_INDEX, (9, NODES)).values():
        close(conv(x, graph), expected)


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_pyg_own_assertion_holds(aggr: str) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr)
    assert_module(conv, torch.randn(NODES, 8), EDGE_INDEX, expected_size=(NODES, 16), atol=1e-6)
    weighted: dict[str, Any] = {} if aggr == "max" else {"edge_weight": torch.rand(EDGES)}
    edges = SIRConv(8, 16, aggr=aggr, edge_dim=3)
    assert_module(
        edges,
        torch.randn(NODES, 8),
        EDGE_INDEX,
        expected_size=(NODES, 16),
        edge_attr=torch.randn(EDGES, 3),
        test_sparse_layouts=[],
        atol=1e-6,
        **weighted,
    )
    if aggr != "sym_in":
        bipartite = SIRConv((8, 5), 16, aggr=aggr)
        x = (torch.randn(9, 8), torch.randn(NODES, 5))
        assert_module(bipartite, x, EDGE_INDEX, expected_size=(NODES, 16), size=(9, NODES), atol=1e-6)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.parametrize("fused", [True, False])
def test_values_of_a_sparse_adjacency_are_edge_weights_or_edge_features(fused: bool, layout: str) -> None:
    value, x = torch.rand(EDGES), torch.randn(NODES, 8)
    adj_t = to_torch_coo_tensor(EDGE_INDEX, value, size=(NODES, NODES)).t()
    adj_t = {"coo": adj_t.coalesce, "csr": adj_t.to_sparse_csr, "csc": adj_t.to_sparse_csc}[layout]()
    for aggr in ("sum", "mean", "sym"):
        conv: Any = SIRConv(8, 16, aggr=aggr, fused=fused)
        close(conv(x, adj_t), conv(x, EDGE_INDEX, edge_weight=value))
    for aggr in AGGREGATORS:
        conv = SIRConv(8, 16, aggr=aggr, edge_dim=1, fused=fused)
        close(conv(x, adj_t), conv(x, EDGE_INDEX, value.unsqueeze(-1)))
    model = SIRGCN(8, 16, 2, 3)
    close(model(x, adj_t), model(x, EDGE_INDEX, edge_weight=value))
    net = SIRNet.of(8, 16, 3, 2, norm=None)
    close(net(x, adj_t), net(x, EDGE_INDEX, edge_weight=value))


@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_values_of_a_sparse_adjacency_get_the_gradient_of_edge_weights(layout: str, weight: float) -> None:
    x, conv = torch.randn(NODES, 8), SIRConv(8, 16)
    value = torch.full((EDGES,), weight, requires_grad=True)
    adj_t = to_torch_coo_tensor(EDGE_INDEX, value, size=(NODES, NODES)).t()
    convert = {"coo": adj_t.coalesce, "csr": adj_t.to_sparse_csr, "csc": adj_t.to_sparse_csc}[layout]
    (got,) = torch.autograd.grad(conv(x, convert()).square().sum(), value)
    (expected,) = torch.autograd.grad(conv(x, EDGE_INDEX, edge_weight=value).square().sum(), value)
    close(got, expected)


def test_gradient_that_torch_would_lose_is_refused() -> None:
    adj_t = torch.sparse_coo_tensor(EDGE_INDEX.flip(0), torch.rand(EDGES, requires_grad=True), (NODES, NODES))
    with pytest.raises(ValueError, match=r"^edge_index: expected a coalesced .*coalesce\(\)"):
        SIRConv(8, 16)(torch.randn(NODES, 8), adj_t)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_renumbering_nodes_renumbers_the_output(aggr: str, fused: bool) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr, edge_dim=2, residual=True, fused=fused)
    x, edge_attr = torch.randn(NODES, 8), torch.randn(EDGES, 2)
    new_place = torch.randperm(NODES)
    moved = torch.empty_like(x)
    moved[new_place] = x
    out = conv(moved, new_place[EDGE_INDEX], edge_attr)
    close(out[new_place], conv(x, EDGE_INDEX, edge_attr))


@pytest.mark.parametrize("aggr", AGGREGATORS)
@pytest.mark.parametrize("fused", [True, False])
def test_int32_indices_give_the_values_and_gradients_of_int64(fused: bool, aggr: str) -> None:
    # torch 2.13's gather misreads an expanded int32 index, and the gradient of PyG's scatter is such a gather.
    conv: Any = SIRConv(4, 5, aggr=aggr, edge_dim=2, activation="gelu", fused=fused)
    results = []
    for edge_index in (EDGE_INDEX, EDGE_INDEX.int()):
        x = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
        edge_attr = torch.ones(EDGES, 2, requires_grad=True)
        out = conv(x, edge_index, edge_attr)
        cotangent = torch.arange(out.numel()).view_as(out).sin()
        results.append([out, *torch.autograd.grad(out, [x, edge_attr, *conv.parameters()], cotangent)])
    for actual, expected in zip(results[1], results[0], strict=True):
        close(actual, expected)


# Lazy layers, repr, copies


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_lazy_width_is_read_off_the_first_input(aggr: str) -> None:
    lazy = SIRConv(-1, 16, aggr=aggr, edge_dim=-1, residual=True)
    x, edge_attr = torch.randn(NODES, 8), torch.randn(EDGES, 3)
    out = lazy(x, EDGE_INDEX, edge_attr)
    eager = SIRConv(8, 16, aggr=aggr, edge_dim=3, residual=True)
    eager.load_state_dict(lazy.state_dict())
    assert torch.equal(eager(x, EDGE_INDEX, edge_attr), out)
    with pytest.raises(ValueError, match="x: expected 8 features"):
        lazy(torch.randn(NODES, 9), EDGE_INDEX, edge_attr)
    bipartite: Any = SIRConv((-1, -1), 16, aggr="sum" if aggr == "sym_in" else aggr, residual=True)
    assert bipartite((torch.randn(9, 8), torch.randn(NODES, 5)), EDGE_INDEX).shape == (NODES, 16)
    assert bipartite.lin_key.in_channels == 8
    assert bipartite.lin_query.in_channels == bipartite.lin_residual.in_channels == 5


def test_repr_is_that_of_pyg() -> None:
    assert str(SIRConv(8, 16)) == "SIRConv(8, 16, aggr=sum)"
    assert str(SIRConv(8, 16, aggr="add")) == "SIRConv(8, 16, aggr=sum)"
    assert str(SIRConv((8, 4), 16, aggr="sym")) == "SIRConv((8, 4), 16, aggr=sym)"
    assert str(SIRConv((-1, -1), 16, aggr="max")) == "SIRConv((-1, -1), 16, aggr=max)"
    assert str(SIRGCN(8, 16, num_layers=2, out_channels=3)) == "SIRGCN(8, 3, num_layers=2)"


@pytest.mark.parametrize("aggr", AGGREGATORS)
@pytest.mark.parametrize("cached", [True, False])
def test_copies_compute_the_same_and_share_nothing(aggr: str, cached: bool) -> None:
    conv: Any = SIRConv(-1, 16, aggr=aggr, residual=nn.Linear(8, 16), activation=nn.PReLU(), cached=cached)
    lazy_copy = copy.deepcopy(conv)
    x = torch.randn(NODES, 8)
    expected = conv(x, EDGE_INDEX)
    for twin in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(twin(x, EDGE_INDEX), expected)
        assert not {id(p) for p in conv.parameters()} & {id(p) for p in twin.parameters()}
    lazy_copy.load_state_dict(conv.state_dict())
    assert torch.equal(lazy_copy(x, EDGE_INDEX), expected)


def test_state_dict_goes_round_and_keeps_its_names(tmp_path: Path) -> None:
    conv: Any = SIRConv(8, 16, edge_dim=3, residual=True, activation=nn.PReLU())
    names = {f"lin_{part}.weight" for part in ("query", "key", "edge", "relation", "residual")}
    names |= {"lin_query.bias", "lin_relation.bias", "lin_residual.bias", "activation.weight"}
    assert set(conv.state_dict()) == names
    torch.save(conv.state_dict(), tmp_path / "conv.pt")
    for twin in (
        SIRConv(8, 16, edge_dim=3, residual=True, activation=nn.PReLU()),
        SIRConv(-1, 16, edge_dim=-1, residual=True, activation=nn.PReLU()),
    ):
        twin.load_state_dict(torch.load(tmp_path / "conv.pt", weights_only=True))
        x, edge_attr = torch.randn(NODES, 8), torch.randn(EDGES, 3)
        assert torch.equal(twin(x, EDGE_INDEX, edge_attr), conv(x, EDGE_INDEX, edge_attr))


# Containers of PyG


def hetero() -> HeteroData:
    data = HeteroData()
    data["author"].x = torch.randn(5, 6)
    data["paper"].x = torch.randn(NODES, 8)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 4, 2], [1, 6, 3, 1]])
    data["paper", "rev_writes", "author"].edge_index = torch.tensor([[1, 6, 3, 1], [0, 1, 4, 2]])
    data["paper", "cites", "paper"].edge_index = EDGE_INDEX
    return data


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])
def test_hetero_conv_sums_over_relations(aggr: str) -> None:
    data = hetero()
    convs: dict[Any, Any] = {
        ("author", "writes", "paper"): SIRConv((6, 8), 16, aggr=aggr),
        ("paper", "rev_writes", "author"): SIRConv((-1, -1), 16, aggr=aggr),
        ("paper", "cites", "paper"): SIRConv(8, 16, aggr=aggr, edge_dim=2),
    }
    cites = torch.randn(EDGES, 2)
    out = HeteroConv(convs, aggr="sum")(
        data.x_dict, data.edge_index_dict, edge_attr_dict={("paper", "cites", "paper"): cites}
    )
    paper, author = data["paper"].x, data["author"].x
    close(out["author"], convs["paper", "rev_writes", "author"]((paper, author), data["rev_writes"].edge_index))
    written = convs["author", "writes", "paper"]((author, paper), data["writes"].edge_index)
    close(out["paper"], written + convs["paper", "cites", "paper"](paper, EDGE_INDEX, cites))


class TwoLayers(nn.Module):
    def __init__(self, aggr: str) -> None:
        super().__init__()
        self.conv1 = SIRConv((-1, -1), 16, aggr=aggr, residual=True)
        self.conv2 = SIRConv((-1, -1), 4, aggr=aggr)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def by_relation(convs: Any, x: dict[str, Tensor], data: HeteroData) -> dict[str, Tensor]:
    """What a layer of a `to_hetero` model computes, relation by relation."""
    out: dict[str, Tensor] = {}
    for source, relation, target in data.edge_types:
        messages = convs[f"{source}__{relation}__{target}"](
            (x[source], x[target]), data[source, relation, target].edge_index
        )
        out[target] = out[target] + messages if target in out else messages
    return out


@pytest.mark.parametrize("aggr", ["sum", "sym", "max"])
def test_to_hetero_makes_a_layer_per_relation(aggr: str) -> None:
    data = hetero()
    model = to_hetero(TwoLayers(aggr), data.metadata())
    out = model(data.x_dict, data.edge_index_dict)
    hidden = by_relation(model.conv1, data.x_dict, data)
    expected = by_relation(model.conv2, {kind: h.relu() for kind, h in hidden.items()}, data)
    for kind in ("author", "paper"):
        close(out[kind], expected[kind])
    sum(value.sum() for value in out.values()).backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("jk", [None, "cat"])
def test_to_hetero_takes_sirgcn(jk: str | None) -> None:
    data = hetero()
    lazy: Any = (-1, -1)
    model: Any = to_hetero(SIRGCN(lazy, 16, num_layers=2, out_channels=4, jk=jk), data.metadata())
    out = model(data.x_dict, data.edge_index_dict)
    assert {kind: value.shape for kind, value in out.items()} == {"author": (5, 4), "paper": (NODES, 4)}
    if jk is None:
        hidden = by_relation(model.convs[0], data.x_dict, data)
        expected = by_relation(model.convs[1], {kind: h.relu() for kind, h in hidden.items()}, data)
        for kind in ("author", "paper"):
            close(out[kind], expected[kind])


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_gps_conv_takes_the_layer(aggr: str) -> None:
    conv = GPSConv(16, SIRConv(16, 16, aggr=aggr, edge_dim=2), heads=2, attn_type="multihead")
    conv.reset_parameters()
    x, batch = torch.randn(NODES, 16, requires_grad=True), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    out = conv(x, EDGE_INDEX, batch, edge_attr=torch.randn(EDGES, 2))
    assert out.shape == (NODES, 16)
    out.sum().backward()
    assert x.grad is not None


def test_swapping_one_line_of_a_sequential_model_keeps_the_rest() -> None:
    def model(conv: type[nn.Module]) -> Sequential:
        return Sequential(
            "x, edge_index",
            [
                (conv(8, 16, aggr="mean"), "x, edge_index -> x"),
                nn.ReLU(),
                (conv(16, 4, aggr="max"), "x, edge_index -> x"),
            ],
        )

    x = torch.randn(NODES, 8)
    assert model(SIRConv)(x, EDGE_INDEX).shape == model(SAGEConv)(x, EDGE_INDEX).shape


# Explainers


def explained_models(aggr: str = "sum") -> dict[str, nn.Module]:
    return {
        "SIRConv": SIRConv(8, 3, aggr=aggr, activation="gelu"),
        "SIRConv with a network": SIRConv(8, 3, aggr=aggr, message_network=nn.Sequential(nn.Linear(16, 3), nn.Tanh())),
        "SIRGCN": SIRGCN(8, 16, 2, 3, aggr=aggr, activation="gelu"),
        "SIRNet": SIRNet.of(8, 16, 3, 2, aggr=aggr, activation="gelu", act="gelu").eval(),
        "SIRNet pre_norm": SIRNet.of(8, 16, 3, 2, encoder="linear", block="pre_norm", aggr=aggr, norm="layer"),
    }


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym"])
@pytest.mark.parametrize("name", explained_models())
def test_edge_mask_acts_as_a_weight_on_the_messages(name: str, aggr: str) -> None:
    model = explained_models(aggr)[name]
    x, mask = torch.randn(NODES, 8), torch.rand(EDGES)
    mask[3] = 0
    plain = model(x, EDGE_INDEX)
    weighted = model(x, EDGE_INDEX, edge_weight=mask)
    parameter = nn.Parameter(mask)
    set_masks(model, parameter, EDGE_INDEX, apply_sigmoid=False)
    out = model(x, EDGE_INDEX)
    close(out, weighted)
    assert not torch.allclose(out, plain)
    out.square().sum().backward()
    assert parameter.grad is not None
    assert (parameter.grad != 0).all()
    clear_masks(model)
    close(model(x, EDGE_INDEX), plain)


@pytest.mark.parametrize("name", explained_models())
def test_masked_edge_is_a_removed_edge_of_a_sum(name: str) -> None:
    model = explained_models("sum")[name]
    x, mask = torch.randn(NODES, 8), torch.ones(EDGES)
    mask[[0, 6]] = 0
    set_masks(model, mask, EDGE_INDEX, apply_sigmoid=False)
    masked = model(x, EDGE_INDEX)
    clear_masks(model)
    close(masked, model(x, EDGE_INDEX[:, mask.bool()]))


@pytest.mark.parametrize("name", ["SIRConv", "SIRGCN", "SIRNet"])
def test_edge_mask_scales_the_messages_of_max(name: str) -> None:
    model = explained_models("max")[name]
    x = torch.randn(NODES, 8)
    plain = model(x, EDGE_INDEX)
    mask = nn.Parameter(torch.ones(EDGES))
    set_masks(model, mask, EDGE_INDEX, apply_sigmoid=False)
    out = model(x, EDGE_INDEX)
    close(out, plain)
    out.sum().backward()
    assert mask.grad is not None
    assert mask.grad.any()
    clear_masks(model)
    set_masks(model, torch.zeros(EDGES), EDGE_INDEX, apply_sigmoid=False)
    if name == "SIRConv":
        assert not model(x, EDGE_INDEX).any()
    assert not torch.allclose(model(x, EDGE_INDEX), plain)


@pytest.mark.parametrize("name", explained_models())
def test_gnn_explainer_finds_masks(name: str) -> None:
    model = explained_models("sym")[name]
    before = model(x := torch.randn(NODES, 8), EDGE_INDEX)
    explainer = Explainer(
        model,
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(x, EDGE_INDEX, index=3)
    assert explanation.validate(raise_on_error=True)
    assert explanation.edge_mask.shape == (EDGES,)
    # Edges into node 3 matter, and no edge outside of its two hops does.
    assert (explanation.edge_mask[EDGE_INDEX[1] == 3] > 0).all()
    close(model(x, EDGE_INDEX), before)


# PGExplainer returns its loss as float(loss).
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning")
@pytest.mark.parametrize("name", explained_models())
def test_pg_explainer_learns_masks(name: str) -> None:
    model = explained_models("mean")[name]
    x, target = torch.randn(NODES, 8), torch.randint(0, 3, (NODES,))
    explainer = Explainer(
        model,
        algorithm=PGExplainer(epochs=2),
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    algorithm: Any = explainer.algorithm
    for epoch in range(2):
        for index in (0, 3):
            algorithm.train(epoch, model, x, EDGE_INDEX, target=target, index=index)
            # Through the mask alone the loss reaches the explainer's network.
            assert all(p.grad.any() for p in algorithm.mlp.parameters())
    explanation = explainer(x, EDGE_INDEX, target=target, index=3)
    assert explanation.edge_mask.shape == (EDGES,)
    assert explanation.edge_mask.any()


# Hooks


def test_hooks_on_message_propagate_and_aggregate_fire_and_act() -> None:
    conv: Any = SIRConv(8, 16)
    x = torch.randn(NODES, 8)
    expected = conv(x, EDGE_INDEX)
    seen: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_: seen.append(name)

    for part in ("propagate", "message", "aggregate"):
        for when in ("forward_pre", "forward"):
            name = f"{part}_{when}"
            handle = getattr(conv, f"register_{name}_hook")(note(name))
            close(conv(x, EDGE_INDEX), expected)
            assert name in seen
            handle.remove()
            count = len(seen)
            assert torch.equal(conv(x, EDGE_INDEX), expected)
            assert len(seen) == count

    handle = conv.register_message_forward_hook(lambda module, inputs, message: message * 0)
    close(conv(x, EDGE_INDEX), conv.lin_relation.bias.expand(NODES, -1))
    handle.remove()


@pytest.mark.parametrize("model", [SIRGCN(8, 16, 2, 3), SIRNet.of(8, 16, 3, 2)], ids=["SIRGCN", "SIRNet"])
def test_hooks_of_layers_inside_models_fire(model: nn.Module) -> None:
    shapes: list[tuple[int, ...]] = []
    convs = [module for module in model.modules() if isinstance(module, SIRConv)]
    for conv in convs:
        conv.register_message_forward_hook(lambda module, inputs, message: shapes.append(tuple(message.shape)))
    model(torch.randn(NODES, 8), EDGE_INDEX)
    assert [shape[0] for shape in shapes] == [EDGES] * len(convs)


def test_module_forward_hooks_see_input_and_output() -> None:
    conv: Any = SIRConv(8, 16)
    seen: list[Tensor] = []
    conv.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    conv.register_forward_hook(lambda module, inputs, out: seen.append(out))
    x = torch.randn(NODES, 8)
    out = conv(x, EDGE_INDEX)
    assert [id(tensor) for tensor in seen] == [id(x), id(out)]


# Compiled and exported


def value_and_grads(model: nn.Module, run: Callable[..., Tensor], x: Tensor, *args: Any) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = run(x, *args)
    return [out, *torch.autograd.grad(out.square().sum(), [x, *model.parameters()], materialize_grads=True)]


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize(
    ("aggr", "sigma"), [("sum", "relu"), ("sym", "relu"), ("max", "relu"), ("mean", "prelu"), ("max", "prelu")]
)
def test_compiled_layer_has_no_graph_break_and_equals_eager(aggr: str, sigma: str) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr, activation=SIGMAS[sigma](), edge_dim=2, residual=True)
    x, edge_attr = torch.randn(NODES, 8), torch.randn(EDGES, 2)
    if sigma == "relu":
        explanation = torch._dynamo.explain(conv)(x, EDGE_INDEX, edge_attr)
        assert explanation.graph_break_count == 0
        torch._dynamo.reset()
    compiled: Any = torch.compile(conv, backend="aot_eager", fullgraph=True)
    expected = value_and_grads(conv, conv, x, EDGE_INDEX, edge_attr)
    for actual, value in zip(value_and_grads(conv, compiled, x, EDGE_INDEX, edge_attr), expected, strict=True):
        close(actual, value)
    if aggr == "sym":
        # Another graph, another number of nodes and edges.
        x, edge_index, edge_attr = x[:6], EDGE_INDEX[:, 1:10], edge_attr[1:10]
        close(compiled(x, edge_index, edge_attr), conv(x, edge_index, edge_attr))


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize(
    ("model", "graph_task"),
    [
        (SIRGCN(8, 16, 2, 3, aggr="sym", jk="cat"), False),
        (SIRNet.of(8, 16, 3, 2, aggr="max"), False),
        (SIRNet.of(8, 16, 3, 2, pool="sum", norm="layer", virtual_node=True, encoder="linear"), True),
    ],
    ids=["SIRGCN", "SIRNet", "SIRNet of graphs"],
)
def test_compiled_models_have_no_graph_break_and_equal_eager(model: nn.Module, graph_task: bool) -> None:
    x = torch.randn(NODES, 8)
    arguments = {"batch": torch.tensor([0, 0, 0, 0, 1, 1, 1]), "batch_size": 2} if graph_task else {}
    model.eval()
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    close(compiled(x, EDGE_INDEX, **arguments), model(x, EDGE_INDEX, **arguments))


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("options", [{}, {"cached": True}], ids=["Neighbors", "cached"])
def test_compiled_layer_takes_grouped_edges(options: dict[str, Any]) -> None:
    conv: Any = SIRConv(8, 16, aggr="sym", **options)
    x = torch.randn(NODES, 8)
    graph = EDGE_INDEX if options else Neighbors.from_edge_index(EDGE_INDEX, NODES)
    expected = conv(x, graph)
    compiled: Any = torch.compile(conv, backend="aot_eager", fullgraph=True)
    close(compiled(x, graph), expected)
    close(compiled(x, graph), expected)


@pytest.mark.usefixtures("fresh_dynamo")
# Inductor's own: it imports modules of torch that are still scripted.
@pytest.mark.filterwarnings("ignore:.torch.jit.script(_method)?. is deprecated:DeprecationWarning")
def test_inductor_compiles_the_layer() -> None:
    conv: Any = SIRConv(8, 16, aggr="sym")
    x = torch.randn(NODES, 8)
    compiled: Any = torch.compile(conv, fullgraph=True)
    expected = value_and_grads(conv, conv, x, EDGE_INDEX)
    for actual, value in zip(value_and_grads(conv, compiled, x, EDGE_INDEX), expected, strict=True):
        close(actual, value)


def exported_ops(program: torch.export.ExportedProgram) -> set[str]:
    return {str(node.target) for node in program.graph.nodes if node.op == "call_function"}


NODE_DIM, EDGE_DIM = Dim("nodes", min=2), Dim("edges", min=2)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_exported_layer_runs_on_graphs_of_any_size_without_a_custom_op(aggr: str, sigma: str) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr, activation=SIGMAS[sigma](), edge_dim=2, residual=True)
    program = torch.export.export(
        conv,
        (torch.randn(NODES, 8), EDGE_INDEX, torch.randn(EDGES, 2)),
        dynamic_shapes=({0: NODE_DIM}, {1: EDGE_DIM}, {0: EDGE_DIM}),
    )
    assert not any("sirgcn" in op for op in exported_ops(program))
    x, edge_index, edge_attr = torch.randn(30, 8), torch.randint(0, 30, (2, 77)), torch.randn(77, 2)
    close(program.module()(x, edge_index, edge_attr), conv(x, edge_index, edge_attr))


@pytest.mark.parametrize("model", [SIRGCN(8, 16, 2, 3, aggr="sym"), SIRNet.of(8, 16, 3, 2, aggr="max")], ids=type)
def test_exported_node_model_runs_on_graphs_of_any_size(model: nn.Module) -> None:
    model.eval()
    shapes = {"x": {0: NODE_DIM}, "edge_index": {1: EDGE_DIM}}
    program = torch.export.export(model, (torch.randn(NODES, 8), EDGE_INDEX), dynamic_shapes=shapes)
    assert not any("sirgcn" in op for op in exported_ops(program))
    x, edge_index = torch.randn(30, 8), torch.randint(0, 30, (2, 77))
    close(program.module()(x, edge_index), model(x, edge_index))


@pytest.mark.parametrize("options", [{}, {"virtual_node": True, "encoder": "linear"}], ids=["plain", "virtual node"])
def test_exported_graph_model_runs_on_batches_of_any_size(options: dict[str, Any]) -> None:
    model = SIRNet.of(8, 16, 3, 2, aggr="sym", pool="mean", **options).eval()
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    program = torch.export.export(
        model,
        (torch.randn(NODES, 8), EDGE_INDEX),
        kwargs={"batch": batch, "batch_size": 2},
        dynamic_shapes={
            "x": {0: NODE_DIM},
            "edge_index": {1: EDGE_DIM},
            "batch": {0: NODE_DIM},
            "batch_size": Dim.DYNAMIC,
        },
    )
    assert not any("sirgcn" in op for op in exported_ops(program))
    x, edge_index, batch = torch.randn(30, 8), torch.randint(0, 30, (2, 77)), torch.arange(5).repeat_interleave(6)
    close(program.module()(x, edge_index, batch=batch, batch_size=5), model(x, edge_index, batch=batch, batch_size=5))


# Precision, devices


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_autocast_runs_forward_and_backward_near_full_precision(aggr: str, sigma: str, fused: bool) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr, activation=SIGMAS[sigma](), edge_dim=2, residual=True, fused=fused)
    x, edge_attr = torch.randn(NODES, 8, requires_grad=True), torch.randn(EDGES, 2, requires_grad=True)
    expected = conv(x, EDGE_INDEX, edge_attr)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(x, EDGE_INDEX, edge_attr)
    assert out.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits: a few roundings of numbers near 1.
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().square().sum().backward()
    for tensor in (x, edge_attr, *conv.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.dtype == torch.float32
        assert tensor.grad.isfinite().all()


def test_autocast_takes_edge_weights_and_whole_models() -> None:
    x, weight = torch.randn(NODES, 8), torch.rand(EDGES)
    for model in (SIRConv(8, 3), SIRConv(8, 3, fused=False), SIRGCN(8, 16, 2, 3), SIRNet.of(8, 16, 3, 2, aggr="mean")):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x, EDGE_INDEX, edge_weight=weight)
        out.float().sum().backward()
        assert out.isfinite().all()


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_inference_mode_and_frozen_parameters_change_no_value(aggr: str) -> None:
    conv: Any = SIRConv(8, 16, aggr=aggr)
    x = torch.randn(NODES, 8)
    expected = conv(x, EDGE_INDEX)
    with torch.inference_mode():
        assert torch.equal(conv(x, EDGE_INDEX), expected)
    conv.requires_grad_(False)
    assert not conv(x, EDGE_INDEX).requires_grad
    (grad,) = torch.autograd.grad(conv(x.requires_grad_(), EDGE_INDEX).sum(), x)
    assert grad.any()


def test_layer_takes_the_fields_of_a_data_object() -> None:
    data = Data(x=torch.randn(NODES, 8), edge_index=EDGE_INDEX, edge_attr=torch.randn(EDGES, 2))
    conv: Any = SIRConv(data.num_features, 16, edge_dim=data.num_edge_features)
    assert conv(data.x, data.edge_index, data.edge_attr).shape == (NODES, 16)
    assert conv(data.x, edge_index=data.edge_index, edge_attr=data.edge_attr).shape == (NODES, 16)
