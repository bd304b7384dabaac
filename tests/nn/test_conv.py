"""The layer by itself: its formula, its two routes, its special cases and its refusals."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import EdgeConv

from sirgcn import Neighbors, SIRConv
from sirgcn.data import hetero_edge_count
from sirgcn.nn import AGGREGATORS
from sirgcn.nn.dropout import dropout
from sirgcn.ops import ACTIVATIONS
from sirgcn.testing import RICH, SIGMAS, Graph, Inputs, aggregate_by_loop, assert_same, graphs, value_and_gradients

EdgeAttr = Tensor | tuple[Tensor, Tensor] | None

IN, HIDDEN, OUT, EDGE = 3, 5, 4, 2

NETWORKS: dict[str, Callable[[], str | nn.Module]] = {
    "relu": lambda: "relu",
    "leaky_relu(0.2)": lambda: "leaky_relu(0.2)",
    "mlp": lambda: nn.Sequential(nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()),
    "prelu": lambda: nn.PReLU(HIDDEN),
}
RESIDUALS: dict[str, Callable[[], bool | nn.Module | None]] = {
    "no residual": lambda: None,
    "linear residual": lambda: True,
    "mlp residual": lambda: nn.Sequential(nn.Linear(IN, 6), nn.Tanh(), nn.Linear(6, OUT)),
}
EDGE_FORMS = ("none", "dense", "table")


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    """Oracles in double precision, and the same draws in every run."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def layer(edge: str = "none", **arguments: Any) -> Any:
    arguments = {"hidden_channels": HIDDEN, "edge_dim": None if edge == "none" else EDGE} | arguments
    return SIRConv(IN, OUT, **arguments)


def edge_features(form: str, num_edges: int) -> EdgeAttr:
    if form == "none":
        return None
    if form == "dense":
        return torch.randn(num_edges, EDGE, requires_grad=True)
    return torch.randn(4, EDGE, requires_grad=True), torch.randint(0, 3, (num_edges,))


def by_hand(lin: Any, x: Tensor) -> Tensor:
    """W x + b, written out."""
    out = torch.einsum("oi,...i->...o", lin.weight, x)
    return out if lin.bias is None else out + lin.bias


def by_formula(
    conv: Any,
    source: Tensor,
    target: Tensor,
    graph: Graph,
    edge_attr: EdgeAttr = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Eq. 8 with its extensions, one edge at a time; an isolated node as the protocols have it."""
    edge: Tensor | tuple[Tensor, Tensor] | None = None
    if isinstance(edge_attr, tuple):
        edge = by_hand(conv.lin_edge, edge_attr[0]), edge_attr[1]
    elif edge_attr is not None:
        edge = by_hand(conv.lin_edge, edge_attr)
    terms = Inputs(by_hand(conv.lin_query, target), by_hand(conv.lin_key, source), edge, edge_weight)
    if conv.aggr == "max":
        out = aggregate_by_loop(nn.Sequential(conv.activation, conv.lin_relation), graph, terms, "max")
    else:
        out = by_hand(conv.lin_relation, aggregate_by_loop(conv.activation, graph, terms, conv.aggr))
    return out if conv.lin_residual is None else out + conv.lin_residual(target)


def leaves(conv: nn.Module, *tensors: Any) -> list[Tensor]:
    """All that gets a gradient: inputs (an edge pair by its table) and parameters."""
    inputs = [t[0] if isinstance(t, tuple) else t for t in tensors if t is not None]
    return [*inputs, *conv.parameters()]


def plain_twin(conv: SIRConv) -> Any:
    twin = copy.deepcopy(conv)
    twin.fused = False
    return twin


# The formula


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("sigma", ["relu", "mlp", "prelu"])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_layer_is_the_formula(aggr: str, sigma: str, edge: str, residual: str) -> None:
    conv = layer(edge, aggr=aggr, activation=NETWORKS[sigma](), residual=RESIDUALS[residual]())
    x = torch.randn(RICH.num_targets, IN, requires_grad=True)
    edge_attr = edge_features(edge, len(RICH.edges))
    out = conv(x, RICH.edge_index, edge_attr)
    expected = by_formula(conv, x, x, RICH, edge_attr)
    inputs = leaves(conv, x, edge_attr)
    assert_same(value_and_gradients(out, inputs), value_and_gradients(expected, inputs))


@given(graphs(), st.sampled_from(AGGREGATORS), st.sampled_from(["relu", "mlp"]), st.booleans(), st.integers(0, 99))
def test_layer_is_the_formula_on_any_graph(graph: Graph, aggr: str, sigma: str, weighted: bool, seed: int) -> None:
    torch.manual_seed(seed)
    one_set = graph.num_sources == graph.num_targets
    if aggr == "sym_in" and not one_set:
        aggr = "sym"
    conv = layer(aggr=aggr, activation=NETWORKS[sigma]())
    target = torch.randn(graph.num_targets, IN)
    source = target if one_set else torch.randn(graph.num_sources, IN)
    weight = torch.randn(len(graph.edges)) if weighted and aggr != "max" else None
    out = conv(target if one_set else (source, target), graph.edge_index, edge_weight=weight)
    assert_same([out], [by_formula(conv, source, target, graph, edge_weight=weight)])


@given(graphs(), st.sampled_from(["sum", "mean", "sym"]), st.integers(0, 99))
def test_repeated_edges_count_as_often_as_the_dense_adjacency_says(graph: Graph, aggr: str, seed: int) -> None:
    torch.manual_seed(seed)
    conv = layer(aggr=aggr, activation="gelu")
    source, target = torch.randn(graph.num_sources, IN), torch.randn(graph.num_targets, IN)
    times = torch.zeros(graph.num_targets, graph.num_sources)
    for v, u in graph.edges:
        times[u, v] += 1
    weight = times
    if aggr == "mean":
        weight = times / times.sum(1, keepdim=True).clamp(min=1)
    elif aggr == "sym":
        weight = times / (times.sum(1, keepdim=True).clamp(min=1) * times.sum(0).clamp(min=1)).sqrt()
    pairs = F.gelu(by_hand(conv.lin_query, target)[:, None] + by_hand(conv.lin_key, source)[None])
    expected = by_hand(conv.lin_relation, torch.einsum("uv,uvd->ud", weight, pairs))
    assert_same([conv((source, target), graph.edge_index)], [expected])


@pytest.mark.parametrize("activation", [name for name in SIGMAS if name != "square"])  # torch has no such module
def test_a_module_that_the_table_knows_is_its_name(activation: str) -> None:
    torch.manual_seed(1)
    named = layer(activation=activation)
    torch.manual_seed(1)
    module = layer(activation=SIGMAS[activation])
    x = torch.randn(RICH.num_targets, IN)
    assert torch.equal(named(x, RICH.edge_index), module(x, RICH.edge_index))
    assert str(named.activation) == str(module.activation)


def test_add_is_sum() -> None:
    assert layer(aggr="add").aggr == "sum"


# Two routes


@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("sigma", ["leaky_relu(0.2)", "mlp", "prelu"])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_fused_route_equals_plain_route_in_values_and_gradients(aggr: str, sigma: str, edge: str) -> None:
    conv = layer(edge, aggr=aggr, activation=NETWORKS[sigma](), residual=True)
    x = torch.randn(RICH.num_targets, IN, requires_grad=True)
    edge_attr = edge_features(edge, len(RICH.edges))
    weight = None if aggr == "max" else torch.randn(len(RICH.edges), requires_grad=True)
    results = []
    for route in (conv, plain_twin(conv)):
        out = route(x, RICH.edge_index, edge_attr, weight)
        results.append(value_and_gradients(out, leaves(route, x, edge_attr, weight)))
    assert_same(results[0], results[1])


@given(graphs(), st.sampled_from(AGGREGATORS), st.sampled_from(EDGE_FORMS), st.integers(0, 99))
def test_fused_route_equals_plain_route_on_any_graph(graph: Graph, aggr: str, edge: str, seed: int) -> None:
    torch.manual_seed(seed)
    one_set = graph.num_sources == graph.num_targets
    if aggr == "sym_in" and not one_set:
        aggr = "sym"
    # Continuous draws and a smooth sigma: no ties for max but those of repeated edges, whose gradients add up.
    conv = layer(edge, aggr=aggr, activation="gelu")
    target = torch.randn(graph.num_targets, IN, requires_grad=True)
    source = target if one_set else torch.randn(graph.num_sources, IN, requires_grad=True)
    edge_attr = edge_features(edge, len(graph.edges))
    results = []
    for route in (conv, plain_twin(conv)):
        out = route(target if one_set else (source, target), graph.edge_index, edge_attr)
        results.append(value_and_gradients(out, leaves(route, source, target, edge_attr)))
    assert_same(results[0], results[1])


def test_second_derivative_is_that_of_the_plain_route_and_refused_by_the_fused_one() -> None:
    graph = Graph(((0, 1), (1, 0), (2, 1)), 3, 3)
    conv = layer(activation="tanh", fused=False)
    x = torch.randn(3, IN, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda t: conv(t, graph.edge_index), (x,))
    fused = layer(activation="tanh")
    (first,) = torch.autograd.grad(fused(x, graph.edge_index).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="fused=False"):
        first.sum().backward()


@pytest.mark.parametrize("sigma", ["leaky_relu(0.2)", "prelu"])
@pytest.mark.parametrize("aggr", ["sum", "sym", "max"])
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "hessian"])
def test_function_transforms_of_torch_give_the_plain_route_s_values(transform: str, aggr: str, sigma: str) -> None:
    conv = layer(aggr=aggr, activation=NETWORKS[sigma]())
    x = torch.randn(RICH.num_targets, IN)

    def transformed(route: Any) -> Any:
        def energy(x: Tensor) -> Tensor:
            out: Tensor = route(x, RICH.edge_index).square().sum()
            return out

        if transform == "grad":
            return torch.func.grad(energy)(x)
        if transform == "jvp":
            return torch.func.jvp(lambda x: route(x, RICH.edge_index), (x,), (x.cos(),))[1]
        if transform == "vmap":
            return torch.func.vmap(lambda x: route(x, RICH.edge_index))(torch.stack([x, -x]))
        return torch.func.hessian(energy)(x)

    expected = transformed(plain_twin(conv))
    assert expected.any()
    assert_same([transformed(conv)], [expected])


@pytest.mark.parametrize("aggr", AGGREGATORS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_are_those_of_finite_differences(activation: str, aggr: str) -> None:
    graph = Graph(((0, 1), (1, 0), (2, 1), (2, 2)), 4, 4)
    conv: Any = SIRConv(2, 2, 3, aggr=aggr, activation=activation, edge_dim=1, residual=True)
    x = torch.randn(4, 2, requires_grad=True)
    edge_attr = torch.randn(4, 1, requires_grad=True)
    weight = torch.rand(4, requires_grad=True)
    names, parameters = zip(*conv.named_parameters(), strict=True)

    def run(x: Tensor, edge_attr: Tensor, weight: Tensor, *parameters: Tensor) -> Any:
        inputs = (x, graph.edge_index, edge_attr, None if aggr == "max" else weight)
        return torch.func.functional_call(conv, dict(zip(names, parameters, strict=True)), inputs)

    assert torch.autograd.gradcheck(run, (x, edge_attr, weight, *parameters))


# Isolated nodes, biases, variants


@pytest.mark.parametrize("sigma", ["relu", "mlp"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_isolated_node_gets_the_outer_bias_and_with_max_zero(aggr: str, fused: bool, sigma: str) -> None:
    x = torch.randn(RICH.num_targets, IN)
    isolated = [4, 6]
    conv = layer(aggr=aggr, fused=fused, activation=NETWORKS[sigma]())
    value = torch.zeros(OUT) if aggr == "max" else conv.lin_relation.bias
    out = conv(x, RICH.edge_index)
    for u in isolated:
        assert torch.equal(out[u], value)
    assert not any(torch.equal(out[u], value) for u in range(7) if u not in isolated)
    without_bias = layer(aggr=aggr, fused=fused, bias=False)
    assert not without_bias(x, RICH.edge_index)[isolated].any()
    with_residual = layer(aggr=aggr, fused=fused, residual=True)
    expected = with_residual.lin_residual(x)[isolated]
    if aggr != "max":
        expected = expected + with_residual.lin_relation.bias
    assert_same([with_residual(x, RICH.edge_index)[isolated]], [expected])


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_graph_without_edges_makes_every_node_isolated(aggr: str) -> None:
    conv = layer(aggr=aggr, activation=nn.PReLU() if aggr == "max" else "relu")
    empty = torch.empty(2, 0, dtype=torch.int64)
    value = torch.zeros(OUT) if aggr == "max" else conv.lin_relation.bias
    assert torch.equal(conv(torch.randn(3, IN), empty), value.expand(3, -1))
    assert conv(torch.randn(0, IN), empty).shape == (0, OUT)


def test_biases_sit_where_the_protocols_put_them() -> None:
    def biased(**arguments: Any) -> dict[str, bool]:
        conv = layer("dense", residual=True, **arguments)
        return {name: getattr(conv, f"lin_{name}").bias is not None for name in ("query", "key", "edge", "relation")}

    assert biased() == {"query": True, "key": False, "edge": False, "relation": True}
    assert biased(inner_bias=False) == {"query": False, "key": False, "edge": False, "relation": True}
    assert biased(bias=False) == {"query": True, "key": False, "edge": False, "relation": False}
    assert biased(variant="published") == dict.fromkeys(("query", "key", "edge", "relation"), True)


@pytest.mark.parametrize("fused", [True, False])
def test_published_sym_takes_in_degrees_at_both_ends(fused: bool) -> None:
    conv = layer("dense", aggr="sym", variant="published", fused=fused)
    x, edge_attr = torch.randn(RICH.num_targets, IN), torch.randn(len(RICH.edges), EDGE)
    in_degree = [max(1, sum(u == node for _, u in RICH.edges)) for node in range(RICH.num_targets)]
    rows = [torch.zeros(HIDDEN) for _ in in_degree]
    for i, (v, u) in enumerate(RICH.edges):
        z = by_hand(conv.lin_query, x[u]) + by_hand(conv.lin_key, x[v]) + by_hand(conv.lin_edge, edge_attr[i])
        rows[u] = rows[u] + z.relu() / math.sqrt(in_degree[u] * in_degree[v])
    assert_same([conv(x, RICH.edge_index, edge_attr)], [by_hand(conv.lin_relation, torch.stack(rows))])
    corrected = layer("dense", aggr="sym", fused=fused)
    corrected.load_state_dict(conv.state_dict(), strict=False)
    assert not torch.allclose(corrected(x, RICH.edge_index, edge_attr), conv(x, RICH.edge_index, edge_attr))


@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_published_variant_refuses_bipartite_input(aggr: str) -> None:
    conv: Any = SIRConv((IN, IN), OUT, aggr=aggr, variant="published")
    with pytest.raises(ValueError, match=r"^x: .*published.*bipartite"):
        conv((torch.randn(4, IN), torch.randn(2, IN)), torch.tensor([[3, 0], [0, 1]]))
    x = torch.randn(4, IN)
    edge_index = torch.tensor([[3, 0], [0, 1]])
    assert torch.equal(conv((x, x), edge_index), conv(x, edge_index))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sigma", ["relu", "mlp"])
def test_sym_in_refuses_two_sets_of_nodes(fused: bool, sigma: str) -> None:
    # More targets than sources: every index is in range, so that only a check can notice.
    conv: Any = SIRConv((IN, IN), OUT, HIDDEN, aggr="sym_in", activation=NETWORKS[sigma](), fused=fused)
    with pytest.raises(ValueError, match="sym_in"):
        conv((torch.randn(3, IN), torch.randn(6, IN)), torch.tensor([[2, 0, 1], [5, 1, 1]]))


# Special cases


@pytest.mark.parametrize(("aggr", "bias"), [("max", True), ("max", False), ("sum", False), ("mean", False)])
def test_edge_conv_is_sirconv_with_stacked_weights(aggr: str, bias: bool) -> None:
    conv = layer(aggr=aggr, bias=bias)
    network: Any = nn.Sequential(nn.Linear(2 * IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT, bias=bias))
    edge_conv = EdgeConv(network, aggr=aggr)
    with torch.no_grad():
        # EdgeConv's input is [h_u || h_v - h_u].
        first = torch.cat([conv.lin_query.weight + conv.lin_key.weight, conv.lin_key.weight], dim=1)
        network[0].weight.copy_(first)
        network[0].bias.copy_(conv.lin_query.bias)
        network[2].load_state_dict(conv.lin_relation.state_dict())
    x = torch.randn(RICH.num_targets, IN)
    assert_same([conv(x, RICH.edge_index)], [edge_conv(x, RICH.edge_index)])


@pytest.mark.parametrize("c", [1, 2, 5, 10])
def test_closed_form_weights_count_heterophilous_edges_exactly(c: int) -> None:
    conv: Any = SIRConv(c, 1, c, inner_bias=False, bias=False)
    with torch.no_grad():
        conv.lin_query.weight.copy_(torch.eye(c))
        conv.lin_key.weight.copy_(-torch.eye(c))
        conv.lin_relation.weight.fill_(1)
    for graph in hetero_edge_count(c, num_graphs=50, seed=c):
        h = F.one_hot(graph.x, c).to(torch.get_default_dtype())
        assert conv(h, graph.edge_index).sum().item() == graph.y.item()


# The general message network


class Recurrent(nn.Module):
    """A GRU that reads both ends' sequences, step by step side by side, and whose last state is the message."""

    def __init__(self, steps: int, channels: int, out_channels: int) -> None:
        super().__init__()
        self.steps, self.channels = steps, channels
        self.gru = nn.GRU(2 * channels, out_channels, batch_first=True)

    def forward(self, z: Tensor) -> Tensor:
        target, source = z.view(-1, 2, self.steps, self.channels).unbind(1)
        out: Tensor = self.gru(torch.cat([target, source], dim=-1))[0][:, -1]
        return out


class Convolutional(nn.Module):
    """A convolution over both ends' sequences as two channels, averaged over the steps."""

    def __init__(self, steps: int, out_channels: int) -> None:
        super().__init__()
        self.steps = steps
        self.conv = nn.Conv1d(2, out_channels, kernel_size=3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        out: Tensor = self.conv(z.view(-1, 2, self.steps)).tanh().mean(-1)
        return out


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_message_network_reads_target_edge_and_source_in_this_order(aggr: str, edge: str, fused: bool) -> None:
    width = 2 * IN + (0 if edge == "none" else EDGE)
    network = nn.Sequential(nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, OUT))
    edge_dim = None if edge == "none" else EDGE
    conv: Any = SIRConv(IN, OUT, aggr=aggr, edge_dim=edge_dim, message_network=network, residual=True, fused=fused)
    assert conv.message_network is not network
    x = torch.randn(RICH.num_targets, IN, requires_grad=True)
    edge_attr = edge_features(edge, len(RICH.edges))
    out = conv(x, RICH.edge_index, edge_attr)
    expected = aggregate_by_loop(conv.message_network, RICH, Inputs(x, x, edge_attr), aggr, "cat")
    expected = expected + by_hand(conv.lin_residual, x)
    inputs = leaves(conv, x, edge_attr)
    assert_same(value_and_gradients(out, inputs), value_and_gradients(expected, inputs))


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])
@pytest.mark.parametrize("network", [Recurrent(5, 2, OUT), Convolutional(10, OUT)], ids=["recurrent", "convolutional"])
def test_nodes_may_be_sequences_under_a_recurrent_or_convolutional_network(network: nn.Module, aggr: str) -> None:
    sequences = torch.randn(RICH.num_targets, 5, 2, requires_grad=True)
    x = sequences.flatten(1)
    conv: Any = SIRConv(10, OUT, aggr=aggr, message_network=network.double())
    out = conv(x, RICH.edge_index)
    expected = aggregate_by_loop(conv.message_network, RICH, Inputs(x, x), aggr, "cat")
    inputs = leaves(conv, sequences)
    # The GRU takes its rows in one product or one by one: a few more roundings.
    assert_same(value_and_gradients(out, inputs), value_and_gradients(expected, inputs), tolerance=1e-10)


def test_message_network_takes_bipartite_ends_of_different_width() -> None:
    graph = Graph(((3, 0), (0, 1), (3, 1), (2, 0)), 4, 2)
    conv: Any = SIRConv((IN, 2), OUT, message_network=nn.Linear(2 + IN, OUT))
    source, target = torch.randn(4, IN), torch.randn(2, 2)
    expected = aggregate_by_loop(conv.message_network, graph, Inputs(target, source), "sum", "cat")
    assert_same([conv((source, target), graph.edge_index)], [expected])


@pytest.mark.parametrize("fused", [True, False])
def test_message_network_of_another_width_is_refused(fused: bool) -> None:
    conv: Any = SIRConv(IN, OUT, message_network=nn.Linear(2 * IN, OUT + 1), fused=fused)
    with pytest.raises(ValueError, match=rf"message_network.*{OUT}.*{OUT + 1}"):
        conv(torch.randn(RICH.num_targets, IN), RICH.edge_index)


# Static graphs, weights, flow, cache


@pytest.mark.parametrize("network", [False, True], ids=["factorised", "message network"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_signals_on_one_graph_are_convolved_each_by_itself(aggr: str, edge: str, fused: bool, network: bool) -> None:
    if network:
        edge_dim = None if edge == "none" else EDGE
        g = nn.Sequential(nn.Linear(2 * IN + (edge_dim or 0), OUT), nn.Tanh())
        conv: Any = SIRConv(IN, OUT, aggr=aggr, edge_dim=edge_dim, message_network=g, residual=True, fused=fused)
    else:
        conv = layer(edge, aggr=aggr, residual=True, fused=fused)
    x = torch.randn(3, RICH.num_targets, IN, requires_grad=True)
    edge_attr = edge_features(edge, len(RICH.edges))
    weight = None if aggr == "max" else torch.randn(len(RICH.edges), requires_grad=True)
    out = conv(x, RICH.edge_index, edge_attr, weight)
    expected = torch.stack([conv(signal, RICH.edge_index, edge_attr, weight) for signal in x])
    inputs = leaves(conv, x, edge_attr, weight)
    assert_same(value_and_gradients(out, inputs), value_and_gradients(expected, inputs))


@pytest.mark.parametrize("sigma", ["relu", "prelu"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "sym_in"])
def test_edge_weight_multiplies_the_message_and_leaves_degrees_alone(aggr: str, fused: bool, sigma: str) -> None:
    conv = layer(aggr=aggr, fused=fused, activation=NETWORKS[sigma]())
    x = torch.randn(RICH.num_targets, IN, requires_grad=True)
    weight = torch.randn(len(RICH.edges), requires_grad=True)
    out = conv(x, RICH.edge_index, edge_weight=weight)
    inputs = leaves(conv, x, weight)
    expected = by_formula(conv, x, x, RICH, edge_weight=weight)
    assert_same(value_and_gradients(out, inputs), value_and_gradients(expected, inputs))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", AGGREGATORS)
def test_target_to_source_reverses_every_edge(aggr: str, fused: bool) -> None:
    conv = layer("dense", aggr=aggr, fused=fused)
    reverse = layer("dense", aggr=aggr, fused=fused, flow="target_to_source")
    reverse.load_state_dict(conv.state_dict())
    x, edge_attr = torch.randn(RICH.num_targets, IN), torch.randn(len(RICH.edges), EDGE)
    assert_same([reverse(x, RICH.edge_index, edge_attr)], [conv(x, RICH.edge_index.flip(0), edge_attr)])


# torch's own warnings about the tensors that are handed in
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_target_to_source_is_refused_where_edges_cannot_be_flipped() -> None:
    conv = layer(flow="target_to_source")
    x = torch.randn(3, IN)
    edge_index = torch.tensor([[0, 1], [1, 2]])
    adj_t = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(2), (3, 3))
    for graph in (adj_t, adj_t.to_sparse_csr(), Neighbors.from_edge_index(edge_index, 3)):
        with pytest.raises(ValueError, match=r"^flow: target_to_source"):
            conv(x, graph)
    with pytest.raises(ValueError, match=r"^flow: target_to_source"):
        conv((x, torch.randn(3, IN)), edge_index)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("aggr", ["sum", "sym", "max"])
def test_cached_layer_uses_its_first_graph_until_reset(aggr: str, fused: bool, flow: str) -> None:
    conv = layer(aggr=aggr, cached=True, fused=fused, flow=flow)
    x, other = torch.randn(RICH.num_targets, IN), torch.tensor([[0, 1, 2], [3, 4, 5]])
    first = conv(x, RICH.edge_index)
    assert torch.equal(conv(x, other), first)
    assert torch.equal(copy.deepcopy(conv)(x, other), first)
    state = conv.state_dict()
    conv.reset_parameters()
    conv.load_state_dict(state)
    uncached = layer(aggr=aggr, fused=fused, flow=flow)
    uncached.load_state_dict(state)
    assert_same([conv(x, other)], [uncached(x, other)])


@pytest.mark.parametrize("fused", [True, False])
def test_cached_layer_refuses_a_graph_of_another_size(fused: bool) -> None:
    conv = layer(cached=True, fused=fused)
    conv(torch.randn(RICH.num_targets, IN), RICH.edge_index)
    with pytest.raises(ValueError, match=r"^cached: .*num_sources=7.*got x with 3 source"):
        conv(torch.randn(3, IN), torch.tensor([[0], [1]]))


def test_uncached_layer_keeps_no_graph() -> None:
    conv = layer()
    x, other = torch.randn(RICH.num_targets, IN), torch.tensor([[0, 1, 2], [3, 4, 5]])
    conv(x, RICH.edge_index)
    fresh = copy.deepcopy(conv)
    assert torch.equal(conv(x, other), fresh(x, other))


# Modules that are handed over, dropout


def test_every_layer_owns_a_copy_of_the_modules_given() -> None:
    sigma, residual, network = nn.PReLU(), nn.Linear(IN, OUT), nn.Linear(2 * IN, OUT)
    before = [p.clone() for module in (sigma, residual, network) for p in module.parameters()]
    first, second = (layer(activation=sigma, residual=residual) for _ in range(2))
    general = SIRConv(IN, OUT, message_network=network)
    given = {id(p) for module in (sigma, residual, network) for p in module.parameters()}
    owned = [{id(p) for p in conv.parameters()} for conv in (first, second, general)]
    assert not any(given & ids for ids in owned)
    assert not owned[0] & owned[1]
    after = [p for module in (sigma, residual, network) for p in module.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_reset_draws_every_parameter_anew() -> None:
    conv = layer("dense", activation=NETWORKS["mlp"](), residual=RESIDUALS["mlp residual"]())
    before = {name: parameter.clone() for name, parameter in conv.named_parameters()}
    conv.reset_parameters()
    assert all(not torch.equal(parameter, before[name]) for name, parameter in conv.named_parameters())


@pytest.mark.parametrize("edge", EDGE_FORMS)
@pytest.mark.parametrize("aggr", ["sum", "max"])
def test_dropout_acts_on_the_projected_terms_in_training_only(aggr: str, edge: str) -> None:
    conv = layer(edge, aggr=aggr, dropout=0.5)
    x = torch.randn(RICH.num_targets, IN)
    edge_attr = edge_features(edge, len(RICH.edges))
    torch.manual_seed(3)
    out = conv(x, RICH.edge_index, edge_attr)
    torch.manual_seed(3)
    query, key = dropout(by_hand(conv.lin_query, x)), dropout(by_hand(conv.lin_key, x))
    term: Any = None
    if isinstance(edge_attr, tuple):
        term = dropout(by_hand(conv.lin_edge, edge_attr[0])), edge_attr[1]
    elif edge_attr is not None:
        term = dropout(by_hand(conv.lin_edge, edge_attr))
    network = nn.Sequential(nn.ReLU(), conv.lin_relation) if aggr == "max" else nn.ReLU()
    expected = aggregate_by_loop(network, RICH, Inputs(query, key, term), aggr)
    assert_same([out], [expected if aggr == "max" else by_hand(conv.lin_relation, expected)])
    conv.eval()
    assert_same([conv(x, RICH.edge_index, edge_attr)], [by_formula(conv, x, x, RICH, edge_attr)])


def test_dropout_inside_a_message_network_keeps_its_mask_in_the_backward_pass() -> None:
    conv = layer(activation=nn.Sequential(nn.Tanh(), nn.Dropout(0.5)))
    x = torch.randn(RICH.num_targets, IN, requires_grad=True)

    def run(x: Tensor) -> Any:
        torch.manual_seed(5)
        return conv(x, RICH.edge_index)

    assert torch.autograd.gradcheck(run, (x,))
    conv.eval()
    assert torch.equal(conv(x, RICH.edge_index), conv(x, RICH.edge_index))


# Refusals


GRAPH = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 2, 0, 0]])
ROUTES: dict[str, dict[str, Any]] = {
    "fused": {},
    "tiled": {"activation": nn.Hardswish()},
    "max": {"aggr": "max"},
    "plain": {"fused": False},
}
BAD_CALLS: dict[str, tuple[dict[str, Any], Callable[[], tuple[Any, ...]], type[Exception], str]] = {
    "width": ({}, lambda: (torch.randn(4, 2), GRAPH), ValueError, r"^x: expected 3 features per source node, got 2"),
    "target width": (
        {"in_channels": (3, 2)},
        lambda: ((torch.randn(4, 3), torch.randn(4, 3)), GRAPH),
        ValueError,
        r"^x: expected 2 features per target node, got 3",
    ),
    "integer x": (
        {},
        lambda: (torch.ones(4, 3, dtype=torch.int64), GRAPH),
        ValueError,
        r"^x: expected a floating-point dtype, got torch.int64",
    ),
    "x of one dimension": ({}, lambda: (torch.randn(3), GRAPH), ValueError, r"^x: expected shape .*got \[3\]"),
    "no target features": ({}, lambda: ((torch.randn(4, 3), None), GRAPH), ValueError, r"^x: .*got \(x, None\)"),
    "no source features": ({}, lambda: ((None, torch.randn(4, 3)), GRAPH), ValueError, r"^x: .*None"),
    "no features": ({}, lambda: (None, GRAPH), ValueError, r"^x: .*None"),
    "edge_attr without edge_dim": (
        {},
        lambda: (torch.randn(4, 3), GRAPH, torch.randn(5, 2)),
        ValueError,
        r"^edge_attr: .*no edge_dim.*got shape \[5, 2\]",
    ),
    "edge_dim without edge_attr": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH),
        ValueError,
        r"^edge_attr: .*edge_dim=2.*got None",
    ),
    "edge_attr of another width": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, torch.randn(5, 3)),
        ValueError,
        r"^edge_attr: expected 2 features.*got shape \[5, 3\]",
    ),
    "edge_attr too short": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, torch.randn(4, 2)),
        ValueError,
        r"^edge_attr: expected 5.*got.* 4|^edge_attr: expected.*\[5.*got.*\[4",
    ),
    "edge_attr of one row": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, torch.randn(1, 2)),
        ValueError,
        r"^edge_attr: expected.*5.*got.*1",
    ),
    "integer edge_attr": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, torch.ones(5, 2, dtype=torch.int64)),
        ValueError,
        r"^edge_attr: expected a floating-point dtype.*got torch.int64",
    ),
    "edge types too short": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, (torch.randn(3, 2), torch.tensor([0, 1, 2, 0]))),
        ValueError,
        r"edge.*type: expected.*5.*got.*4",
    ),
    "edge types too long": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, (torch.randn(3, 2), torch.tensor([0, 1, 2, 0, 1, 1]))),
        ValueError,
        r"edge.*type: expected.*5.*got.*6",
    ),
    "edge type outside of the table": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, (torch.randn(3, 2), torch.tensor([0, 1, 2, 0, 3]))),
        IndexError,
        r"edge.*type\[4\] = 3: expected 0 <= type < 3",
    ),
    "edge type not an integer": (
        {"edge_dim": 2},
        lambda: (torch.randn(4, 3), GRAPH, (torch.randn(3, 2), torch.rand(5))),
        ValueError,
        r"edge.*type: expected int32 or int64.*got torch.float64",
    ),
    "index too large": (
        {},
        lambda: (torch.randn(3, 3), GRAPH),
        IndexError,
        r"^edge_index\[0, 3\] = 3: expected 0 <= index < 3",
    ),
    "negative index": (
        {},
        lambda: (torch.randn(4, 3), -GRAPH),
        IndexError,
        r"^edge_index\[0, 1\] = -1: expected 0 <= index < 4",
    ),
    "edge_index of floats": ({}, lambda: (torch.randn(4, 3), GRAPH.double()), ValueError, r"^edge_index: .*float64"),
    "edge_index transposed": ({}, lambda: (torch.randn(4, 3), GRAPH.t()), ValueError, r"^edge_index: .*\[5, 2\]"),
    "edge_index as a list": ({}, lambda: (torch.randn(4, 3), GRAPH.tolist()), TypeError, r"^edge_index: .*got list"),
    "neighbors of another size": (
        {},
        lambda: (torch.randn(5, 3), Neighbors.from_edge_index(GRAPH, 4)),
        ValueError,
        r"^edge_index: expected a graph of 5 source.*got Neighbors\(num_sources=4",
    ),
    "size in the place of edge_attr, as SAGEConv has it": (
        {},
        lambda: (torch.randn(4, 3), GRAPH, (4, 4)),
        TypeError,
        r"^edge_attr: expected a tensor or a pair.*got \(4, 4\); give edge_weight and size by their names",
    ),
    "edge_weight in the place of edge_attr, as GCNConv has it": (
        {},
        lambda: (torch.randn(4, 3), GRAPH, torch.rand(5)),
        ValueError,
        r"^edge_attr: .*got shape \[5\]; .*edge_weight=",
    ),
    "edge_attr as a list": (
        {"edge_dim": 1},
        lambda: (torch.randn(4, 3), GRAPH, [1.0] * 5),
        TypeError,
        r"^edge_attr: expected a tensor",
    ),
    "x as an array": ({}, lambda: (torch.randn(4, 3).numpy(), GRAPH), ValueError, r"^x: expected .*got ndarray"),
    "three sets of nodes": ({}, lambda: ((torch.randn(4, 3),) * 3, GRAPH), ValueError, r"^x: .*pair.*got 3 of them"),
    "size": (
        {},
        lambda: (torch.randn(4, 3), GRAPH, None, None, (4, 5)),
        ValueError,
        r"^size: expected \(4, 4\).*got \(4, 5\)",
    ),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_named_with_what_was_expected_and_what_came(case: str, route: str) -> None:
    arguments, call, error, message = BAD_CALLS[case]
    conv: Any = SIRConv(**{"in_channels": 3, "out_channels": 4} | arguments | ROUTES[route])
    with pytest.raises(error, match=message):
        conv(*call())


@pytest.mark.parametrize("route", ["fused", "tiled", "plain"])
@pytest.mark.parametrize("shape", [(4,), (6,), (1,), (5, 1)])
def test_edge_weight_of_another_shape_is_refused(shape: tuple[int, ...], route: str) -> None:
    conv: Any = SIRConv(3, 4, **ROUTES[route])
    with pytest.raises(ValueError, match=r"^edge_weight: expected shape \[5\].*got \["):
        conv(torch.randn(4, 3), GRAPH, edge_weight=torch.rand(shape))


@pytest.mark.parametrize("fused", [True, False])
def test_edge_weight_is_refused_by_max(fused: bool) -> None:
    with pytest.raises(ValueError, match=r"^edge_weight: .*max"):
        SIRConv(3, 4, aggr="max", fused=fused)(torch.randn(4, 3), GRAPH, edge_weight=torch.rand(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"aggr": "median"}, r"^aggr: expected one of sum, mean, sym, sym_in, max.*got 'median'"),
        (
            {"activation": "swish"},
            r"^activation: expected one of identity, relu, .*softplus, square, prelu, got 'swish'",
        ),
        ({"variant": "draft"}, r"^variant: expected one of corrected, published, got 'draft'"),
        ({"dropout": 1.5}, r"^dropout: expected a number from 0 to 1, got 1.5"),
        ({"residual": "linear"}, r"^residual: .*'linear'"),
        ({"residual": nn.AdaptiveAvgPool1d(1)}, r"^residual: .*width 4 .*got 1"),
        ({"in_channels": -2}, r"^in_channels: expected .*got -2"),
        ({"in_channels": (3,)}, r"^in_channels: expected .*got \(3,\)"),
        ({"in_channels": None}, r"^in_channels: expected .*got None"),
        ({"message_network": torch.relu}, r"^message_network: expected Module, got <built-in"),
        ({"backend": "cuda"}, r"^backend: expected one of .*reference.*got 'cuda'"),
        ({"backend": "cuda", "aggr": "max"}, r"^backend: expected one of .*reference.*got 'cuda'"),
        ({"message_network": nn.Linear(6, 4), "hidden_channels": 8}, r"^message_network: .*hidden_channels"),
        ({"message_network": nn.Linear(6, 4), "dropout": 0.1}, r"^message_network: .*dropout"),
    ],
)
def test_bad_argument_is_named_with_the_known_ones(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SIRConv(**{"in_channels": 3, "out_channels": 4} | arguments)(torch.randn(4, 3), GRAPH)


@pytest.mark.parametrize("aggr", ["mean", "sym", "sym_in"])
def test_degrees_beyond_half_precision_weigh_the_same_on_both_routes(aggr: str) -> None:
    nodes = 70_001  # above 65,504, the largest number of float16
    star = torch.stack([torch.arange(1, nodes), torch.zeros(nodes - 1, dtype=torch.int64)])
    conv: Any = SIRConv(2, 2, aggr=aggr).half()
    # Small enough that PyG's sum, which is taken in float16, rounds little.
    x = torch.zeros(nodes, 2, dtype=torch.float16)
    x[1:9] = 1000
    fused = conv(x, star)
    conv.fused = False
    torch.testing.assert_close(conv(x, star), fused, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("fused", [True, False])
def test_nan_is_not_swallowed_by_max(fused: bool) -> None:
    conv: Any = SIRConv(3, 4, aggr="max", activation="gelu", fused=fused)
    x = torch.randn(4, 3)
    x[1, 0] = torch.nan
    out = conv(x, torch.tensor([[0, 1, 2, 1, 3], [2, 2, 2, 3, 0]]))
    # Node 1 sends to 2 and 3, receives nothing; 0 has only a clean neighbour.
    assert out.isnan().all(1).tolist() == [False, False, True, True]
