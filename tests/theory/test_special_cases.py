"""Section 4: SIR-GCN, the classical layer and the paper's formula agree on any graph, for any weights, in float64."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GINEConv, MessagePassing, SAGEConv

from sirgcn.data import hetero_edge_count
from sirgcn.nn import SIRConv
from sirgcn.theory import special_cases
from sirgcn.theory.special_cases import Sides

IN, OUT = 3, 4
Layer = TypeVar("Layer", bound=nn.Module)
# Sums of a dozen terms in another order.
TOLERANCE = 1e-12


class Drawn(NamedTuple):
    x: Tensor
    edge_index: Tensor
    generator: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Graphs with isolated nodes, self-loops and repeated edges, with a single node, and without edges."""
    num_nodes = draw(st.integers(1, 6))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=14))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    x = torch.randn(num_nodes, IN, generator=generator, dtype=torch.float64)
    return Drawn(x, torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous(), generator)


def drawn(layer: Layer, graph: Drawn) -> Layer:
    """The layer in float64, with random values in every parameter, including those that begin as 0."""
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(graph.normal(*parameter.shape))
    return layer


CLAIMS: dict[str, tuple[Callable[..., Sides], Callable[[], MessagePassing]]] = {
    "GCN": (special_cases.gcn, lambda: GCNConv(IN, OUT)),
    "GraphSAGE, mean": (special_cases.sage_mean, lambda: SAGEConv(IN, OUT, root_weight=False, bias=False)),
    "GraphSAGE, mean, root": (special_cases.sage_mean, lambda: SAGEConv(IN, OUT)),
    "GraphSAGE, max pool": (special_cases.sage_max, lambda: SAGEConv(IN, OUT, aggr="max", project=True)),
    "GraphSAGE, max": (special_cases.sage_max, lambda: SAGEConv(IN, OUT, aggr="max", root_weight=False)),
    "GATv2's scores": (special_cases.gatv2_scores, lambda: GATv2Conv(IN, OUT, heads=2)),
    "GATv2's scores, no loops": (special_cases.gatv2_scores, lambda: GATv2Conv(IN, OUT, add_self_loops=False)),
    "GAT": (special_cases.attention, lambda: GATConv(IN, OUT, heads=2)),
    "GAT, no loops": (special_cases.attention, lambda: GATConv(IN, OUT, add_self_loops=False)),
    "GATv2": (special_cases.attention, lambda: GATv2Conv(IN, OUT, heads=2, concat=False)),
    "GATv2, no loops": (special_cases.attention, lambda: GATv2Conv(IN, OUT, add_self_loops=False, bias=False)),
    "GIN": (special_cases.gin, lambda: GINConv(nn.Linear(IN, OUT), train_eps=True)),
}


@pytest.mark.parametrize("claim", CLAIMS)
@given(graph=graphs())
def test_the_sides_of_a_claim_are_equal(claim: str, graph: Drawn) -> None:
    statement, layer = CLAIMS[claim]
    sides = statement(drawn(layer(), graph), graph.x, graph.edge_index)
    assert sides.sir.shape == sides.layer.shape == sides.formula.shape
    assert sides.error() < TOLERANCE


@given(graph=graphs())
def test_gin_without_a_network_is_the_paper_s_formula(graph: Drawn) -> None:
    conv = drawn(GINConv(nn.Identity(), train_eps=True), graph)
    assert special_cases.gin(conv, graph.x, graph.edge_index, IN).error() < TOLERANCE


@pytest.mark.parametrize("edge_dim", [2, None])
@given(graph=graphs())
def test_gin_with_edge_features_is_sir_gcn(edge_dim: int | None, graph: Drawn) -> None:
    conv = drawn(GINEConv(nn.Linear(IN, OUT), train_eps=True, edge_dim=edge_dim), graph)
    edge_attr = graph.normal(graph.edge_index.size(1), edge_dim or IN)
    assert special_cases.gine(conv, graph.x, graph.edge_index, edge_attr).error() < TOLERANCE


@given(graph=graphs(), is_prelu=st.booleans())
def test_any_factors_of_w_give_gcn(graph: Drawn, is_prelu: bool) -> None:
    """W_R W_K = W, whatever the factors, and PReLU(1) for the identity, as the paper says."""
    sigma: str | nn.Module = nn.PReLU(init=1.0) if is_prelu else "identity"
    sir = SIRConv(IN, OUT, 5, aggr="sym", activation=sigma, inner_bias=False, bias=False).double()
    query, key, relation = (sir.get_parameter(f"lin_{name}.weight") for name in ("query", "key", "relation"))
    with torch.no_grad():
        for weight in (key, relation):
            weight.copy_(graph.normal(*weight.shape))
        query.zero_()
    source, target = graph.edge_index
    degrees = (torch.bincount(ends, minlength=graph.x.size(0)).clamp(min=1).double() for ends in (target, source))
    into, out_of = degrees
    messages = graph.x[source] @ (relation @ key).T / (into[target] * out_of[source]).sqrt()[:, None]
    formula = torch.zeros(graph.x.size(0), OUT, dtype=torch.float64).index_add(0, target, messages)
    torch.testing.assert_close(sir(graph.x, graph.edge_index), formula, rtol=TOLERANCE, atol=TOLERANCE)


@given(st.integers(1, 5), st.integers(1, 8), st.data())
def test_sir_gcn_counts_the_heterophilous_edges_of_any_graph(c: int, num_nodes: int, data: st.DataObject) -> None:
    node = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=20))
    labels = data.draw(st.lists(st.integers(0, c - 1), min_size=num_nodes, max_size=num_nodes))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    found = special_cases.count_heterophilous_edges(torch.tensor(labels), edge_index, c)
    assert found.tolist() == [sum(u == t and labels[v] != labels[u] for v, t in edges) for u in range(num_nodes)]


@pytest.mark.parametrize("c", [2, 10])
def test_sir_gcn_has_no_error_on_hetero_edge_count(c: int) -> None:
    for data in hetero_edge_count(c, num_graphs=20, seed=c):
        assert float(special_cases.count_heterophilous_edges(data.x, data.edge_index, c).sum()) == float(data.y)


def test_a_wrong_weight_breaks_a_claim() -> None:
    """A formula that is wrong by a factor has an error."""
    x, edge_index = torch.randn(4, IN, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 3]])
    sides = special_cases.gcn(GCNConv(IN, OUT).double(), x, edge_index)
    assert sides._replace(sir=1.01 * sides.sir).error() > 1e-4
    assert sides._replace(layer=1.01 * sides.layer).error() > 1e-4
    for side in ("sir", "layer", "formula"):
        assert not sides._replace(**{side: sides.formula * torch.nan}).error() < TOLERANCE


def test_the_attention_takes_the_layer_itself_without_extras() -> None:
    class Mine(GATConv):
        pass

    with pytest.raises(TypeError, match="expected PyG's GATConv or GATv2Conv itself, got Mine"):
        special_cases.attention_as_messages(Mine(IN, OUT))
    with pytest.raises(ValueError, match="without edge_dim and residual"):
        special_cases.attention_as_messages(GATv2Conv(IN, OUT, edge_dim=2))


def test_the_attention_leaves_torch_s_random_state() -> None:
    conv = GATv2Conv(IN, OUT)
    before = torch.random.get_rng_state()
    special_cases.attention_as_messages(conv)
    assert torch.equal(before, torch.random.get_rng_state())
