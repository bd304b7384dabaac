"""PNA's query is a shift (Section 4.4), and the two measures behind Figure 3 say what the layers' formulas say."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv

from sirgcn.nn import SIRConv
from sirgcn.theory.influence import MOMENTS, PNA_AGGREGATORS, Layer, measured_place, pna_query_influence

WIDTH = 4


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("aggregator", PNA_AGGREGATORS)
@given(st.integers(1, 6), st.data(), st.integers(0, 2**16))
def test_the_query_is_only_a_shift_in_pna(aggregator: str, num_nodes: int, data: st.DataObject, seed: int) -> None:
    node = st.integers(0, num_nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=15))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    x, query, key = normal(seed, num_nodes, 3), normal(seed + 1, 2, 3), normal(seed + 2, 2, 3)
    found = pna_query_influence(aggregator, x, edge_index, query, key)
    order = MOMENTS.get(aggregator, 1)
    # A root near 0 turns a rounding error of 1e-16 into 1e-5. Moments are therefore compared before the root.
    torch.testing.assert_close(found.aggregated**order, found.shifted**order, rtol=1e-10, atol=1e-12)

    degrees = torch.bincount(edge_index[1], minlength=num_nodes)
    bias = (x @ query.T)[degrees > 0]
    expected = {"sum": degrees[degrees > 0, None] * bias, "mean": bias, "max": bias, "min": bias}
    assert torch.equal(found.shift, expected.get(aggregator, torch.zeros_like(bias)))


def test_the_moments_are_those_of_the_messages() -> None:
    """Against numbers worked out by hand: the messages 0, 0, 3 have mean 1 and deviations -1, -1, 2."""
    x = torch.tensor([[0.0], [0.0], [3.0], [7.0]], dtype=torch.float64)
    edge_index, one = torch.tensor([[0, 1, 2], [3, 3, 3]]), torch.ones(1, 1, dtype=torch.float64)
    found = {name: float(pna_query_influence(name, x, edge_index, one, one).aggregated) for name in PNA_AGGREGATORS}
    expected = {"sum": 24, "mean": 8, "max": 10, "min": 7, "std": 2**0.5, "skewness": 2 ** (1 / 3), "kurtosis": 6**0.25}
    assert found == pytest.approx(expected)


def test_an_unknown_aggregator_is_refused_with_the_known_ones() -> None:
    x = torch.ones(2, 1)
    with pytest.raises(ValueError, match="expected one of sum, mean, max, min, std, skewness, kurtosis, got 'median'"):
        pna_query_influence("median", x, torch.tensor([[0], [1]]), x[:1], x[:1])


def weighted(build: Callable[[], nn.Module], seed: int) -> Layer:
    layer = build().double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(normal(seed + number, *parameter.shape))
    return layer


ISOTROPIC: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "GCN": (lambda: GCNConv(WIDTH, 3, add_self_loops=False), 0),
    "GraphSAGE": (lambda: SAGEConv(WIDTH, 3), 0),
    "GIN": (lambda: GINConv(nn.Identity(), train_eps=True), 1),
    "linear messages of query and key, summed": (lambda: SIRConv(WIDTH, 3, activation="identity"), 1),
}
CONTEXTUAL: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "GAT": (lambda: GATConv(WIDTH, 3, add_self_loops=False), 0),
    "GATv2": (lambda: GATv2Conv(WIDTH, 3, add_self_loops=False), 0),
    "SIR-GCN, sum": (lambda: SIRConv(WIDTH, 3, activation="gelu"), 1),
    "SIR-GCN, mean": (lambda: SIRConv(WIDTH, 3, activation="gelu", aggr="mean"), 0),
    "SIR-GCN, sym": (lambda: SIRConv(WIDTH, 3, activation="gelu", aggr="sym"), 0),
}


@pytest.mark.parametrize("name", ISOTROPIC)
@given(st.integers(0, 2**16))
def test_without_contextual_messages_the_measured_context_is_0(name: str, seed: int) -> None:
    build, growth = ISOTROPIC[name]
    place = measured_place([weighted(build, seed)], WIDTH, seed=seed)
    # Relative to the neighbours' effect, which some draws make small.
    assert place.context < 1e-9
    assert place.growth == pytest.approx(growth, abs=1e-9)


@pytest.mark.parametrize("name", CONTEXTUAL)
@given(st.integers(0, 2**16))
def test_with_contextual_messages_the_measured_context_is_not_0(name: str, seed: int) -> None:
    build, growth = CONTEXTUAL[name]
    # The attention of GAT is static if all its scores are on one side of the kink. This is not so in all draws.
    place = measured_place([weighted(build, seed + 100 * draw) for draw in range(5)], WIDTH, seed=seed)
    assert 1e-6 < place.context <= 1
    assert place.growth == pytest.approx(growth, abs=1e-9)


def test_a_place_needs_a_layer() -> None:
    with pytest.raises(ValueError, match="expected at least one"):
        measured_place([], WIDTH)
