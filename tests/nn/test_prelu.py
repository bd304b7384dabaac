"""A sigma with learned slopes: the formula on every route, and no tensor of edges by channels."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

import sirgcn.nn.conv as module
from sirgcn import Neighbors, SIRConv, SIRNet
from sirgcn.nn import AGGREGATORS, SIRGCN, NetConfig, Rows, build_net, config_from_dict
from sirgcn.nn.slopes import PReLU
from sirgcn.ops import ACTIVATIONS, Activation, native, sir_aggregate
from sirgcn.ops.activation import LEARNED
from sirgcn.testing import (
    EDGE_FORMS,
    LAYER_LAWS,
    RICH,
    Graph,
    Inputs,
    aggregate_by_loop,
    assert_gradients,
    assert_layer_laws,
    assert_same,
    graphs,
    random_graph,
    value_and_gradients,
)
from tests.nn.observe import SHAPES, LargestTensor, onnx_output

IN, HIDDEN, OUT, EDGE = 3, 4, 2, 2
SUMS = ("sum", "mean", "sym", "sym_in")
GIVEN: dict[str, Callable[[], str | nn.Module]] = {
    "name": lambda: "prelu",
    "one slope": nn.PReLU,
    "a slope per channel": lambda: nn.PReLU(HIDDEN),
}

both_routes = pytest.mark.parametrize("fused", [True, False])
every_form = pytest.mark.parametrize("given_as", GIVEN)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def layer(given_as: str = "name", **options: Any) -> Any:
    """A layer whose slopes are drawn."""
    conv: Any = SIRConv(IN, OUT, **{"hidden_channels": HIDDEN, "activation": GIVEN[given_as](), **options}).double()
    nn.init.normal_(conv.activation.weight)
    return conv


class Oracle(nn.Module):
    """torch's own function, on rows."""

    def __init__(self, slopes: Tensor) -> None:
        super().__init__()
        self.slopes = slopes

    def forward(self, z: Tensor) -> Tensor:
        return F.prelu(z, self.slopes)


def by_formula(
    conv: Any, source: Tensor, target: Tensor, graph: Graph, edge: Any = None, edge_weight: Tensor | None = None
) -> Tensor:
    """The layer, one edge at a time."""
    terms = Inputs(conv.lin_query(target), conv.lin_key(source), edge, edge_weight)
    sigma = Oracle(conv.activation.weight)
    if conv.aggr == "max":
        return aggregate_by_loop(nn.Sequential(sigma, conv.lin_relation), graph, terms, "max")
    out: Tensor = conv.lin_relation(aggregate_by_loop(sigma, graph, terms, conv.aggr))
    return out


def edges_of(form: str) -> Any:
    """Edge features of `RICH`."""
    if form == "none":
        return None
    if form == "dense":
        return draw(len(RICH.edges), EDGE).requires_grad_()
    return draw(3, EDGE).requires_grad_(), torch.randint(3, (len(RICH.edges),))


def edge_term(conv: Any, edge_attr: Any) -> Any:
    if isinstance(edge_attr, tuple):
        return conv.lin_edge(edge_attr[0]), edge_attr[1]
    return None if edge_attr is None else conv.lin_edge(edge_attr)


# The formula


@both_routes
@every_form
@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_values_and_gradients_are_those_of_the_formula(aggr: str, edge: str, given_as: str, fused: bool) -> None:
    conv = layer(given_as, aggr=aggr, edge_dim=None if edge == "none" else EDGE, fused=fused)
    x, edge_attr = draw(RICH.num_targets, IN).requires_grad_(), edges_of(edge)
    weight = None if aggr == "max" else draw(len(RICH.edges)).requires_grad_()
    table = edge_attr[0] if isinstance(edge_attr, tuple) else edge_attr
    leaves = [leaf for leaf in (x, table, weight, *conv.parameters()) if leaf is not None]
    found = value_and_gradients(conv(x, RICH.edge_index, edge_attr, weight), leaves)
    expected = by_formula(conv, x, x, RICH, edge_term(conv, edge_attr), weight)
    assert_same(found, value_and_gradients(expected, leaves))


@given(graphs(), st.sampled_from(["sum", "mean", "sym", "max"]), st.sampled_from(list(GIVEN)), st.booleans())
def test_layer_is_the_formula_on_any_graph(graph: Graph, aggr: str, given_as: str, fused: bool) -> None:
    torch.manual_seed(0)
    conv = layer(given_as, aggr=aggr, fused=fused)
    source = draw(graph.num_sources, IN)
    target = source if graph.num_sources == graph.num_targets else draw(graph.num_targets, IN)
    assert_same([conv((source, target), graph.edge_index)], [by_formula(conv, source, target, graph)])


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])
def test_laws_of_layers_hold(aggr: str) -> None:
    """Among them: gradients, of the slopes too, are those of finite differences, and passes repeat bit for bit."""
    laws = [law for law in LAYER_LAWS if not (law == "repeated edges" and aggr == "sym")]

    def make(fused: bool = True) -> nn.Module:
        return SIRConv(IN, OUT, HIDDEN, aggr=aggr, activation=nn.PReLU(HIDDEN, init=0.3), fused=fused)

    assert_layer_laws(make, IN, laws, plain=lambda: make(fused=False), bipartite=True, examples=5)


def test_gradients_with_edge_features_and_weights_are_those_of_finite_differences() -> None:
    conv = layer(edge_dim=EDGE, aggr="sym")
    names, values = zip(*conv.named_parameters(), strict=True)

    def run(x: Tensor, edge_attr: Tensor, weight: Tensor, *parameters: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(
            conv, dict(zip(names, parameters, strict=True)), (x, RICH.edge_index, edge_attr, weight)
        )
        return found

    number = len(RICH.edges)
    inputs = draw(RICH.num_targets, IN), draw(number, EDGE), draw(number)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (*inputs, *values)]
    assert_gradients(run, leaves)


@both_routes
@pytest.mark.parametrize(("slope", "activation"), [(1.0, "identity"), (0.0, "relu")])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_slope_one_is_the_linear_layer_and_slope_zero_that_with_relu(
    aggr: str, slope: float, activation: str, fused: bool
) -> None:
    conv = layer(aggr=aggr, fused=fused)
    nn.init.constant_(conv.activation.weight, slope)
    twin = SIRConv(IN, OUT, HIDDEN, aggr=aggr, activation=activation, fused=fused).double()
    twin.load_state_dict({name: value for name, value in conv.state_dict().items() if "activation" not in name})
    x = draw(RICH.num_targets, IN).requires_grad_()
    leaves, twins = [[x, *(getattr(form, f"lin_{name}").weight for name in ("query", "key", "relation"))]
                     for form in (conv, twin)]  # fmt: skip
    found = value_and_gradients(conv(x, RICH.edge_index), leaves)
    assert_same(found, value_and_gradients(twin(x, RICH.edge_index), twins))


def test_the_slopes_begin_at_1_one_per_hidden_channel() -> None:
    conv: Any = SIRConv(IN, OUT, HIDDEN, activation="prelu")
    assert dict(conv.named_parameters())["activation.weight"].tolist() == [1.0] * HIDDEN
    nn.init.normal_(conv.activation.weight)
    conv.reset_parameters()
    assert conv.activation.weight.tolist() == [1.0] * HIDDEN


@every_form
def test_modules_of_torch_keep_their_slopes_and_names(given_as: str) -> None:
    conv: Any = SIRConv(IN, OUT, HIDDEN, activation=GIVEN[given_as]())
    assert set(conv.activation.state_dict()) == {"weight"}
    if given_as != "name":
        theirs: Any = GIVEN[given_as]()
        assert torch.equal(conv.activation.weight, theirs.weight)
    frozen = nn.PReLU(HIDDEN, init=0.1)
    frozen.weight.requires_grad_(False)
    taken: Any = SIRConv(IN, OUT, HIDDEN, activation=frozen)
    assert not taken.activation.weight.requires_grad
    assert taken.activation.weight is not frozen.weight
    torch.testing.assert_close(taken.activation.weight, frozen.weight)


# Routes


@every_form
@pytest.mark.parametrize("aggr", SUMS)
def test_every_form_takes_the_fused_route(aggr: str, given_as: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def spy(*given: Any) -> Tensor:
        names.append(str(given[5]))
        return sir_aggregate(*given)

    monkeypatch.setattr(module, "sir_aggregate", spy)
    layer(given_as, aggr=aggr)(draw(RICH.num_targets, IN), RICH.edge_index)
    assert names == ["relu", "identity"]


@pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
@pytest.mark.parametrize("aggr", SUMS)
def test_no_tensor_of_edges_is_built(aggr: str) -> None:
    graph = Neighbors.from_edge_index(random_graph(40, 2000).edge_index, 40)
    conv, x = layer(aggr=aggr), draw(40, IN).requires_grad_()
    with LargestTensor() as largest:
        conv(x, graph).sum().backward()
    assert 0 < largest.elements <= 40 * HIDDEN


@both_routes
@pytest.mark.parametrize("aggr", ["mean", "max"])
@every_form
def test_slopes_belong_to_channels_in_a_batch_of_signals(given_as: str, aggr: str, fused: bool) -> None:
    conv, x = layer(given_as, aggr=aggr, fused=fused), draw(HIDDEN, RICH.num_targets, IN)
    assert_same([conv(x, RICH.edge_index)], [torch.stack([conv(signal, RICH.edge_index) for signal in x])])


@both_routes
@pytest.mark.parametrize("aggr", ["sum", "sym"])
def test_bipartite_input_and_shared_rows(aggr: str, fused: bool) -> None:
    conv = layer(aggr=aggr, fused=fused)
    graph = Graph(((3, 0), (0, 1), (3, 1), (2, 0)), 4, 2)
    source, target = draw(4, IN), draw(2, IN)
    assert_same([conv((source, target), graph.edge_index)], [by_formula(conv, source, target, graph)])
    table, index = draw(3, IN), torch.tensor([0, 2, 1, 1, 0, 2, 2])
    assert_same([conv(Rows(table, index), RICH.edge_index)], [conv(table[index], RICH.edge_index)])


@pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
def test_nodes_of_a_kind_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    edge_index = torch.cat([edges + 4 * i for i in range(100)], dim=1)
    categories = torch.tensor([0, 1, 0, 1]).repeat(100)
    net: Any = SIRNet.of(2, 8, 2, 2, encoder="embedding", aggr="mean", activation="prelu").double()
    for block in net.blocks:
        nn.init.uniform_(block.conv.activation.weight)
    twin = copy.deepcopy(net)
    twin.share = False
    targets: list[int] = []

    def spy(query: Tensor, *given: Any) -> Tensor:
        targets.append(len(query))
        return sir_aggregate(query, *given)

    monkeypatch.setattr(module, "sir_aggregate", spy)
    found = value_and_gradients(net(categories, edge_index), list(net.parameters()))
    expected = value_and_gradients(twin(categories, edge_index), list(twin.parameters()))
    # Two sums in each of two layers; the four nodes of a path differ.
    assert targets == [4] * 4 + [400] * 4
    assert_same(found, expected, 1e-9)


@both_routes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_half_precision_is_near_full_precision(aggr: str, dtype: torch.dtype, fused: bool) -> None:
    conv, x = layer(aggr=aggr, fused=fused), draw(RICH.num_targets, IN)
    expected = conv(x, RICH.edge_index)
    found = conv.to(dtype)(x.to(dtype), RICH.edge_index)
    assert found.dtype == dtype
    # bfloat16 keeps 8 bits: a few roundings of numbers near 1.
    torch.testing.assert_close(found.double(), expected, rtol=0.06, atol=0.06)


@both_routes
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_autocast_is_near_full_precision(aggr: str, fused: bool) -> None:
    conv, x = layer(aggr=aggr, fused=fused).float(), draw(RICH.num_targets, IN).float()
    expected = conv(x, RICH.edge_index)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x, RICH.edge_index)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.06, atol=0.06)
    found.float().sum().backward()
    assert conv.activation.weight.grad.dtype == torch.float32
    assert conv.activation.weight.grad.isfinite().all()


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_compiled_layer_has_no_graph_break_and_equals_eager(aggr: str) -> None:
    conv, x = layer(aggr=aggr), draw(RICH.num_targets, IN).requires_grad_()
    compiled: Any = torch.compile(conv, backend="aot_eager", fullgraph=True)
    leaves = [x, *conv.parameters()]
    found = value_and_gradients(compiled(x, RICH.edge_index), leaves)
    assert_same(found, value_and_gradients(conv(x, RICH.edge_index), leaves))


@every_form
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_exported_layer_runs_on_graphs_of_any_size_without_a_custom_op(aggr: str, given_as: str) -> None:
    conv = layer(given_as, aggr=aggr)
    program = torch.export.export(conv, (draw(RICH.num_targets, IN), RICH.edge_index), dynamic_shapes=SHAPES)
    assert not any("sirgcn" in str(node.target) for node in program.graph.nodes)
    x, edge_index = draw(30, IN), torch.randint(0, 30, (2, 77))
    assert_same([program.module()(x, edge_index)], [conv(x, edge_index)])


# torch's own exporter copies what it deprecates.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning")
@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_onnx_program_computes_the_same_on_another_graph(aggr: str, tmp_path: Path) -> None:
    conv = layer(aggr=aggr).float().eval()
    given = (draw(RICH.num_targets, IN).float(), RICH.edge_index)
    others = (draw(30, IN).float(), torch.randint(0, 30, (2, 77)))
    found = onnx_output(conv, given, others, tmp_path)
    torch.testing.assert_close(found, conv(*others), rtol=1e-4, atol=1e-5)


def test_edge_mask_of_an_explainer_acts_as_a_weight() -> None:
    conv, x = layer(aggr="sym"), draw(RICH.num_targets, IN)
    mask = torch.rand(len(RICH.edges), dtype=torch.float64)
    set_masks(conv, mask, RICH.edge_index, apply_sigmoid=False)
    found = conv(x, RICH.edge_index)
    clear_masks(conv)
    assert_same([found], [conv(x, RICH.edge_index, edge_weight=mask)])


def test_hook_of_the_activation_sees_every_message() -> None:
    conv, x = layer(), draw(RICH.num_targets, IN)
    expected = conv(x, RICH.edge_index)
    shapes: list[torch.Size] = []
    conv.activation.register_forward_hook(lambda _, given, out: shapes.append(out.shape))
    assert_same([conv(x, RICH.edge_index)], [expected])
    assert shapes == [(len(RICH.edges), HIDDEN)]


def test_second_derivative_is_that_of_the_plain_route_and_refused_by_the_fused_one() -> None:
    x = draw(RICH.num_targets, IN).requires_grad_()
    (first,) = torch.autograd.grad(layer()(x, RICH.edge_index).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="fused=False"):
        first.sum().backward()
    (first,) = torch.autograd.grad(layer(fused=False)(x, RICH.edge_index).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.any()


def test_weight_decay_pulls_slopes_as_it_pulls_other_parameters() -> None:
    conv: Any = SIRConv(IN, OUT, HIDDEN, activation="prelu")
    optimizer = torch.optim.AdamW(conv.parameters(), lr=0.1, weight_decay=0.5)
    (conv(torch.zeros(2, IN), torch.tensor([[0], [1]])) * 0).sum().backward()
    optimizer.step()
    torch.testing.assert_close(conv.activation.weight, torch.full((HIDDEN,), 0.95))


# Names


def test_a_configuration_names_the_slopes() -> None:
    config = NetConfig.of(3, 8, 2, num_layers=2, activation="prelu", aggr="mean")
    assert config_from_dict(config.to_dict()) == config
    net: Any = build_net(config)
    assert [block.conv.activation.weight.shape for block in net.blocks] == [(8,), (8,)]
    assert net.blocks[0].conv.activation is not net.blocks[1].conv.activation
    assert [type(conv.activation) for conv in SIRGCN(3, 8, 2, activation="prelu").convs] == [PReLU, PReLU]


def test_layers_inside_sigma_have_slopes_of_their_own() -> None:
    net: Any = SIRNet.of(3, 8, 2, 1, activation="prelu", sigma_layers=2).double()
    slopes = [part for part in net.blocks[0].conv.activation if isinstance(part, PReLU)]
    assert len({id(part.weight) for part in slopes}) == 3
    x = draw(RICH.num_targets, 3)
    plain = copy.deepcopy(net)
    plain.blocks[0].conv.fused = False
    assert_same([net.eval()(x, RICH.edge_index)], [plain.eval()(x, RICH.edge_index)])


def test_the_table_of_activations_without_parameters_has_no_prelu() -> None:
    assert LEARNED == ("prelu",)
    assert not set(LEARNED) & set(ACTIVATIONS)
    with pytest.raises(ValueError, match=r"^activation: only SIRConv can have prelu, .*expected one of identity, relu"):
        Activation.parse("prelu")
    graph = Neighbors.from_edge_index(RICH.edge_index, RICH.num_targets)
    query = draw(RICH.num_targets, HIDDEN)
    with pytest.raises(ValueError, match=r"^activation: only SIRConv can have prelu"):
        sir_aggregate(query, query, graph, activation="prelu")
    with pytest.raises(ValueError, match=r"^act: only SIRConv can have prelu"):
        NetConfig.of(3, 8, 2, num_layers=2, act="prelu")


def test_mistyped_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ValueError, match=r"^activation: expected one of .*square, prelu, got 'prleu'; did you mean p"):
        SIRConv(IN, OUT, activation="prleu")


def test_another_number_of_slopes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^activation: expected a PReLU with 1 slope or 4, .*got 3"):
        SIRConv(IN, OUT, HIDDEN, activation=nn.PReLU(3))
