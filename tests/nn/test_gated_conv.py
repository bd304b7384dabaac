"""`SIRConv(gated=True)`: its formula on any graph, by every route, inside PyG's and torch's tools, and its refusals."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.export import Dim
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import to_hetero

from sirgcn import Neighbors, SIRConv, SIRNet
from sirgcn.nn import CONTEXTS, make_conv
from sirgcn.nn.dropout import dropout
from sirgcn.ops import sir_aggregate
from sirgcn.testing import (
    EDGE_CASES,
    RICH,
    Graph,
    assert_equals_plain,
    assert_layer_laws,
    assert_repeats,
    assert_same,
    graphs,
    scale,
    value_and_gradients,
)
from tests.nn.observe import LargestTensor

IN, HIDDEN, OUT, EDGE, TYPES = 3, 5, 4, 2, 3
REDUCTIONS = ("sum", "mean", "sym", "sym_in")
FORMS = ("none", "dense", "table")
DOUBLE = torch.float64
NODES, EDGES = RICH.num_targets, len(RICH.edges)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def layer(form: str = "none", **options: Any) -> Any:
    """A layer in float64 with slopes, where it has them, that are neither 0 nor 1."""
    edge_dim = None if form == "none" else EDGE
    found = SIRConv(IN, OUT, HIDDEN, gated=True, **{"activation": "sigmoid", "edge_dim": edge_dim, **options}).double()
    if isinstance(found.activation, nn.PReLU):
        nn.init.uniform_(found.activation.weight, -0.5, 0.5)
    return found


def edges_of(form: str, count: int) -> Any:
    if form == "none":
        return None
    if form == "dense":
        return torch.randn(count, EDGE, dtype=DOUBLE, requires_grad=True)
    return torch.randn(TYPES, EDGE, dtype=DOUBLE, requires_grad=True), torch.randint(TYPES, (count,))


def leaves(conv: nn.Module, *tensors: Any) -> list[Tensor]:
    given = [t[0] if isinstance(t, tuple) else t for t in tensors if t is not None]
    return [*given, *conv.parameters()]


def by_formula(conv: Any, h: Tensor, graph: Graph, edge: Any, weight: Tensor | None) -> Tensor:
    """The formula, one edge at a time, with the weights of the layer written out."""
    rows = [h.new_zeros(HIDDEN) for _ in range(graph.num_targets)]
    dense = edge[0][edge[1]] if isinstance(edge, tuple) else edge
    for place, (v, u) in enumerate(graph.edges):
        z = conv.lin_query.weight @ h[u] + conv.lin_query.bias + conv.lin_key.weight @ h[v]
        if dense is not None:
            z = z + conv.lin_edge.weight @ dense[place]
        value = conv.lin_value.weight @ h[v] + conv.lin_value.bias
        message = scale(graph, conv.aggr, v, u) * conv.activation(z) * value
        rows[u] = rows[u] + (message if weight is None else weight[place] * message)
    out = [conv.lin_relation.weight @ row + conv.lin_relation.bias for row in rows]
    return torch.stack(out) if out else h.new_zeros(0, OUT) + 0 * h.sum()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sigma", ["sigmoid", "gelu", "prelu"])
@given(
    graph=graphs(bipartite=False),
    aggr=st.sampled_from(REDUCTIONS),
    form=st.sampled_from(FORMS),
    weighted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_layer_is_its_formula(
    sigma: str, fused: bool, graph: Graph, aggr: str, form: str, weighted: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    conv, count = layer(form, aggr=aggr, activation=sigma, fused=fused), len(graph.edges)
    h = torch.randn(graph.num_targets, IN, dtype=DOUBLE, requires_grad=True)
    edge, weight = edges_of(form, count), torch.randn(count, dtype=DOUBLE, requires_grad=True) if weighted else None
    expected, found = by_formula(conv, h, graph, edge, weight), conv(h, graph.edge_index, edge, weight)
    wanted = leaves(conv, h, edge, weight)
    assert_same(value_and_gradients(found, wanted), value_and_gradients(expected, wanted), 1e-9)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_layer_keeps_the_laws_and_equals_its_plain_form(aggr: str) -> None:
    def make(fused: bool = True) -> SIRConv:
        return SIRConv(IN, OUT, aggr=aggr, activation="tanh", residual=True, gated=True, fused=fused)

    assert_layer_laws(make, IN, plain=lambda: make(fused=False), bipartite=True, examples=10)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("sigma", ["sigmoid", "prelu"])
def test_gate_and_context_and_slopes_go_together(sigma: str, context: str) -> None:
    def make(fused: bool = True) -> SIRConv:
        return SIRConv(IN, OUT, aggr="sym", activation=sigma, context=context, gated=True, fused=fused)

    assert_equals_plain(make, lambda: make(fused=False), IN, examples=10)
    conv: Any = make().double()
    h, edge_index = torch.randn(NODES, IN, dtype=DOUBLE), RICH.edge_index
    without: Any = SIRConv(IN, OUT, aggr="sym", activation=sigma, gated=True).double()
    without.load_state_dict(conv.state_dict(), strict=False)
    assert not torch.allclose(conv(h, edge_index), without(h, edge_index))
    nn.init.zeros_(conv.lin_context.weight)
    assert_same([conv(h, edge_index)], [without(h, edge_index)])


@pytest.mark.parametrize("aggr", REDUCTIONS)
def test_a_value_of_one_is_the_layer_without_gates(aggr: str) -> None:
    conv, plain = layer(aggr=aggr), SIRConv(IN, OUT, HIDDEN, aggr=aggr, activation="sigmoid").double()
    plain.load_state_dict(conv.state_dict(), strict=False)
    nn.init.zeros_(conv.lin_value.weight)
    nn.init.ones_(conv.lin_value.bias)
    h = torch.randn(NODES, IN, dtype=DOUBLE)
    assert_same([conv(h, RICH.edge_index)], [plain(h, RICH.edge_index)])


@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_cases_of_graphs(name: str) -> None:
    graph = EDGE_CASES[name]
    if graph.num_sources != graph.num_targets:
        return
    conv, h = layer(), torch.randn(graph.num_targets, IN, dtype=DOUBLE)
    assert_same([conv(h, graph.edge_index)], [by_formula(conv, h, graph, None, None)], 1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fused", [True, False])
def test_signals_on_one_graph_are_convolved_each_by_itself(fused: bool, form: str) -> None:
    conv, edge = layer(form, aggr="sym", fused=fused), edges_of(form, EDGES)
    h = torch.randn(4, NODES, IN, dtype=DOUBLE)
    together = conv(h, RICH.edge_index, edge)
    assert_same([together], [torch.stack([conv(one, RICH.edge_index, edge) for one in h])])


@pytest.mark.parametrize("fused", [True, False])
def test_ends_of_different_width(fused: bool) -> None:
    conv: Any = SIRConv((IN, 6), OUT, HIDDEN, activation="sigmoid", gated=True, fused=fused).double()
    assert (conv.lin_value.in_channels, conv.lin_query.in_channels) == (IN, 6)
    source, target = torch.randn(9, IN, dtype=DOUBLE), torch.randn(NODES, 6, dtype=DOUBLE)
    out = torch.zeros(NODES, HIDDEN, dtype=DOUBLE)
    for v, u in RICH.edges:
        gate = torch.sigmoid(conv.lin_query(target[u]) + conv.lin_key(source[v]))
        out[u] = out[u] + gate * conv.lin_value(source[v])
    assert_same([conv((source, target), RICH.edge_index)], [conv.lin_relation(out)])


@pytest.mark.parametrize("fused", [True, False])
def test_target_to_source_and_a_cached_graph(fused: bool) -> None:
    conv, h = layer(aggr="mean", fused=fused), torch.randn(NODES, IN, dtype=DOUBLE)
    for options in ({"flow": "target_to_source"}, {"cached": True}, {"flow": "target_to_source", "cached": True}):
        other = layer(aggr="mean", fused=fused, **options)
        other.load_state_dict(conv.state_dict())
        graph = RICH.edge_index.flip(0) if "flow" in options else RICH.edge_index
        for _ in range(2):
            assert_same([other(h, graph)], [conv(h, RICH.edge_index)])


def test_dropout_acts_on_the_query_and_on_key_and_value() -> None:
    conv, h = layer(dropout=0.5), torch.randn(NODES, IN, dtype=DOUBLE)
    torch.manual_seed(1)
    found = conv(h, RICH.edge_index)
    torch.manual_seed(1)
    query = dropout(conv.lin_query(h), 0.5)
    key, value = dropout(torch.cat([conv.lin_key(h), conv.lin_value(h)], dim=-1), 0.5).chunk(2, dim=-1)
    out = torch.zeros(NODES, HIDDEN, dtype=DOUBLE)
    for v, u in RICH.edges:
        out[u] = out[u] + torch.sigmoid(query[u] + key[v]) * value[v]
    assert_same([found], [conv.lin_relation(out)])
    conv.eval()
    assert torch.equal(conv(h, RICH.edge_index), conv(h, RICH.edge_index))


@pytest.mark.parametrize("form", ["none", "table"])
def test_no_tensor_of_edges_by_channels_is_built(form: str) -> None:
    edge_index = torch.randint(0, 40, (2, 2000))
    neighbors = Neighbors.from_edge_index(edge_index, 40)
    conv, x = layer(form, aggr="mean"), torch.randn(40, IN, dtype=DOUBLE, requires_grad=True)
    edge = (torch.randn(TYPES, EDGE, dtype=DOUBLE), torch.randint(0, TYPES, (2000,)))
    neighbors.weights("mean", DOUBLE)
    with LargestTensor() as largest:
        conv(x, neighbors, edge if form == "table" else None).sum().backward()
    assert 0 < largest.elements <= 2000


def test_forward_and_backward_repeat_bit_for_bit() -> None:
    conv = SIRConv(16, 16, aggr="sym", activation="sigmoid", gated=True)
    h, edge_index = torch.randn(200, 16, requires_grad=True), torch.randint(0, 200, (2, 3000))
    assert_repeats(lambda: value_and_gradients(conv(h, edge_index), [h, *conv.parameters()]))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_full_precision(dtype: torch.dtype, fused: bool) -> None:
    conv = layer("dense", fused=fused).float()
    h, edge = torch.randn(NODES, IN, requires_grad=True), torch.randn(EDGES, EDGE)
    expected = value_and_gradients(conv(h, RICH.edge_index, edge), [h])
    half = copy.deepcopy(conv).to(dtype)
    found = value_and_gradients(half(h.to(dtype), RICH.edge_index, edge.to(dtype)), [h])
    with torch.autocast("cpu", torch.bfloat16):
        cast = conv(h, RICH.edge_index, edge)
    assert cast.dtype == torch.bfloat16
    for some, exact in zip((*found, cast), (*expected, expected[0]), strict=True):
        # bfloat16 keeps 8 bits: a few roundings of numbers near 1.
        torch.testing.assert_close(some.float(), exact, rtol=0.1, atol=0.1)


def test_lazy_width_is_read_off_the_first_input() -> None:
    conv: Any = SIRConv((-1, -1), OUT, gated=True, residual=True)
    assert conv((torch.randn(9, 8), torch.randn(NODES, 5)), RICH.edge_index).shape == (NODES, OUT)
    assert (conv.lin_value.in_channels, conv.lin_key.in_channels, conv.lin_query.in_channels) == (8, 8, 5)
    x = torch.randn(NODES, 8), torch.randn(NODES, 5)
    eager: Any = SIRConv((8, 5), OUT, gated=True, residual=True)
    eager.load_state_dict(conv.state_dict())
    torch.testing.assert_close(eager(x, RICH.edge_index), conv(x, RICH.edge_index))


def test_repr_and_biases() -> None:
    assert str(SIRConv(8, 16, gated=True)) == "SIRConv(8, 16, aggr=sum, gated=True)"
    without: Any = SIRConv(8, 16, gated=True, inner_bias=False)
    assert without.lin_value.bias is None
    assert SIRConv(8, 16).lin_value is None


def test_second_derivative_is_that_of_the_plain_route() -> None:
    conv = layer(fused=False, activation="tanh")
    h = torch.randn(NODES, IN, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda h: conv(h, RICH.edge_index).square().sum(), [h])
    conv.fused = True
    (grad,) = torch.autograd.grad(conv(h, RICH.edge_index).square().sum(), [h], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        grad.sum().backward()


# Inside PyG's and torch's tools


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("sigma", ["sigmoid", "prelu"])
def test_compiled_layer_has_no_graph_break_and_equals_eager(sigma: str) -> None:
    conv = layer("dense", aggr="sym", activation=sigma, residual=True)
    compiled: Any = torch.compile(conv, backend="aot_eager", fullgraph=True)
    h, edge = torch.randn(NODES, IN, dtype=DOUBLE, requires_grad=True), edges_of("dense", EDGES)
    wanted = leaves(conv, h, edge)
    expected = value_and_gradients(conv(h, RICH.edge_index, edge), wanted)
    assert_same(value_and_gradients(compiled(h, RICH.edge_index, edge), wanted), expected)


def test_exported_layer_runs_on_graphs_of_any_size_without_a_custom_op() -> None:
    conv = layer("dense", aggr="sym", residual=True).float()
    nodes, edges = Dim("nodes", min=2), Dim("edges", min=2)
    given = torch.randn(NODES, IN), RICH.edge_index.long(), torch.randn(EDGES, EDGE)
    program = torch.export.export(conv, given, dynamic_shapes=({0: nodes}, {1: edges}, {0: edges}))
    assert not any("sirgcn" in str(node.target) for node in program.graph.nodes)
    other = torch.randn(30, IN), torch.randint(0, 30, (2, 77)), torch.randn(77, EDGE)
    torch.testing.assert_close(program.module()(*other), conv(*other))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_gives_the_values_of_the_layer_on_a_graph_of_another_size(tmp_path: Any) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    conv = layer(aggr="mean").float().eval()
    nodes, edges = Dim("nodes", min=2), Dim("edges", min=2)
    given = torch.randn(NODES, IN), RICH.edge_index.long()
    program = torch.onnx.export(conv, given, dynamo=True, dynamic_shapes=({0: nodes}, {1: edges}), verbose=False)
    assert program is not None
    program.save(tmp_path / "layer.onnx")
    run = runtime.InferenceSession(tmp_path / "layer.onnx", providers=["CPUExecutionProvider"])
    other = torch.randn(30, IN), torch.randint(0, 30, (2, 77))
    names = [entry.name for entry in run.get_inputs()]
    (found,) = run.run(None, {name: tensor.numpy() for name, tensor in zip(names, other, strict=True)})
    torch.testing.assert_close(torch.from_numpy(found), conv(*other))


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym"])
def test_edge_mask_acts_as_a_weight_on_the_messages(aggr: str) -> None:
    conv, h, mask = layer(aggr=aggr), torch.randn(NODES, IN, dtype=DOUBLE), torch.rand(EDGES, dtype=DOUBLE)
    weighted = conv(h, RICH.edge_index, edge_weight=mask)
    parameter = nn.Parameter(mask)
    set_masks(conv, parameter, RICH.edge_index, apply_sigmoid=False)
    out = conv(h, RICH.edge_index)
    assert_same([out], [weighted])
    out.square().sum().backward()
    assert parameter.grad is not None
    assert (parameter.grad != 0).all()
    clear_masks(conv)


def test_gnn_explainer_finds_masks() -> None:
    conv, h = layer().float(), torch.randn(NODES, IN)
    before = conv(h, RICH.edge_index)
    explainer = Explainer(
        conv,
        algorithm=GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    u = RICH.edges[0][1]
    explanation = explainer(h, RICH.edge_index.long(), index=u)
    assert (explanation.edge_mask[RICH.edge_index[1] == u] > 0).all()
    torch.testing.assert_close(conv(h, RICH.edge_index), before)


def test_hooks_see_the_value_and_the_messages() -> None:
    conv, h, seen = layer(), torch.randn(NODES, IN, dtype=DOUBLE), []
    expected = conv(h, RICH.edge_index)

    def doubled(module: nn.Module, given: Any, out: Tensor) -> Tensor:
        seen.append(list(out.shape))
        return 2 * out

    handle = conv.lin_value.register_forward_hook(doubled)
    assert_same([conv(h, RICH.edge_index) - conv.lin_relation.bias], [2 * (expected - conv.lin_relation.bias)])
    handle.remove()
    conv.register_message_forward_hook(doubled)
    assert_same([conv(h, RICH.edge_index) - conv.lin_relation.bias], [2 * (expected - conv.lin_relation.bias)])
    assert seen == [[NODES, HIDDEN], [EDGES, HIDDEN]]


def test_a_subclass_may_read_key_and_value_side_by_side() -> None:
    class Ungated(SIRConv):
        def message(self, query_i: Tensor, key_j: Tensor, edge: Any, weight: Any) -> Tensor:  # type: ignore[override]
            return key_j[:, HIDDEN:]

    conv: Any = Ungated(IN, OUT, HIDDEN, gated=True).double()
    h = torch.randn(NODES, IN, dtype=DOUBLE)
    out = torch.zeros(NODES, HIDDEN, dtype=DOUBLE).index_add(
        0, RICH.edge_index[1], conv.lin_value(h)[RICH.edge_index[0]]
    )
    assert_same([conv(h, RICH.edge_index)], [conv.lin_relation(out)])


def test_to_hetero_makes_a_gated_layer_per_relation() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = SIRConv((-1, -1), OUT, gated=True, aggr="mean")

        def forward(self, x: Tensor, edge_index: Tensor) -> Any:
            return self.conv(x, edge_index)

    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(5, IN), torch.randn(NODES, 6)
    data["author", "writes", "paper"].edge_index = torch.stack([torch.randint(5, (9,)), torch.randint(NODES, (9,))])
    data["paper", "cites", "paper"].edge_index = RICH.edge_index.long()
    data["paper", "by", "author"].edge_index = torch.stack([torch.randint(NODES, (9,)), torch.randint(5, (9,))])
    model: Any = to_hetero(Layer(), data.metadata())
    out = model(data.x_dict, data.edge_index_dict)
    writes, cites = (model.conv[name] for name in ("author__writes__paper", "paper__cites__paper"))
    expected = writes((data["author"].x, data["paper"].x), data["author", "writes", "paper"].edge_index)
    expected = expected + cites((data["paper"].x, data["paper"].x), RICH.edge_index)
    torch.testing.assert_close(out["paper"], expected)


# In networks


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("edges", [False, True])
def test_equal_nodes_of_a_network_are_computed_once(edges: bool, training: bool, monkeypatch: Any) -> None:
    import sirgcn.nn.conv as module

    rows, aggregate = [], sir_aggregate

    def spy(query: Tensor, *args: Any) -> Tensor:
        rows.append(len(query))
        return aggregate(query, *args)

    size, ring = 3000, torch.arange(3000)
    edge_index = torch.cat([torch.stack([ring, (ring + 1) % size]), torch.stack([ring, (ring + 2) % size])], dim=1)
    given: dict[str, Any] = {"x": ring % 2, "edge_index": edge_index}
    options: dict[str, Any] = {"encoder": "embedding", "activation": "sigmoid", "conv_options": {"gated": True}}
    if edges:
        options |= {"edge_channels": [2], "edge_encoder": "embedding"}
        given["edge_attr"] = torch.arange(2).repeat_interleave(size)
    net = SIRNet.of(2, 8, 2, 3, **options).double().train(training)
    other = copy.deepcopy(net)
    other.share = False
    monkeypatch.setattr(module, "sir_aggregate", spy)
    found = value_and_gradients(net(**given), list(net.parameters()))
    assert max(rows) < 10
    assert_same(found, value_and_gradients(other(**given), list(other.parameters())), 1e-9)
    assert max(rows) == size


def test_networks_take_the_option_by_name() -> None:
    net: Any = SIRNet.of(IN, 8, 2, 2, conv_options={"gated": True, "aggr": "sym"}, activation="sigmoid", residual=False)
    assert all(block.conv.lin_value is not None for block in net.blocks)
    assert "gated" in net.conv.options
    out = net(torch.randn(NODES, IN), RICH.edge_index)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_backends_are_passed_on() -> None:
    conv, h = layer(aggr="sym"), torch.randn(NODES, IN, dtype=DOUBLE)
    conv.backend = "reference"
    expected = conv(h, RICH.neighbors())
    conv.backend = None
    assert_same([conv(h, Neighbors.from_edge_index(RICH.edge_index, NODES))], [expected])


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggr": "max"}, r"^gated: expected False with aggr='max', because a gate weighs the values of a sum"),
        ({"message_network": nn.Linear(2 * IN, OUT)}, r"^gated: expected False with a message_network"),
        (
            {"activation": nn.Sequential(nn.Linear(OUT, OUT), nn.Tanh())},
            r"^activation: expected with gated=True one of identity, .*prelu, got Sequential; .* needs fused=False$",
        ),
        ({"gated": "yes"}, r"gated"),
    ],
)
def test_what_cannot_be_gated_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SIRConv(IN, OUT, **{"gated": True, **options})


def test_a_module_as_gate_runs_on_the_plain_route() -> None:
    gate = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
    conv, h = layer(activation=gate, fused=False), torch.randn(NODES, IN, dtype=DOUBLE, requires_grad=True)
    wanted = [h, *conv.parameters()]
    expected = value_and_gradients(by_formula(conv, h, RICH, None, None), wanted)
    assert_same(value_and_gradients(conv(h, RICH.edge_index), wanted), expected)
    with pytest.raises(ValueError, match=r"^activation: expected with gated=True one of"):
        make_conv("sir", IN, OUT, gated=True, sigma_layers=1)
