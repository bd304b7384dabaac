"""What the aggregators keep of a neighbourhood, and what a context adds to the message."""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.nn import CONTEXTS, SIRConv
from sirgcn.theory import context_dependence, count_signatures, count_values, without_repetitions

VALUES = (-2.0, -1.0, 0.0, 1.0, 2.0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Integer features of a few values, and edges that may repeat, begin and end in one node, or be none."""
    nodes = draw(st.integers(1, 8))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=20))
    x = draw(st.lists(st.sampled_from(VALUES), min_size=nodes, max_size=nodes))
    return torch.tensor(x, dtype=torch.float64), torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()


def neighbourhoods(x: Tensor, edge_index: Tensor) -> list[list[float]]:
    """The features of the neighbours of every node."""
    found: list[list[float]] = [[] for _ in x]
    for source, target in edge_index.t().tolist():
        found[target].append(float(x[source]))
    return found


@given(graphs(), st.integers(0, 99))
def test_max_keeps_the_set_of_values_and_loses_their_sum(graph: tuple[Tensor, Tensor], seed: int) -> None:
    """The output of a layer by max, for any weights, is that for the set of the values; sums of two can differ."""
    x, edge_index = graph
    torch.manual_seed(seed)
    conv: Any = SIRConv(1, 3, 5, aggr="max", activation="gelu", residual=True).double()
    fewer = without_repetitions(x[:, None], edge_index)
    assert torch.equal(conv(x[:, None], edge_index), conv(x[:, None], fewer))
    every, once = neighbourhoods(x, edge_index), neighbourhoods(x, fewer)
    assert [sorted(set(values)) for values in every] == [sorted(values) for values in once]


def test_sums_that_max_cannot_tell_apart_exist() -> None:
    x = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    edge_index = torch.tensor([[0, 1], [2, 2]])
    sums = [sum(neighbourhoods(x, e)[2]) for e in (edge_index, without_repetitions(x[:, None], edge_index))]
    assert sums == [2.0, 1.0]


@given(graphs())
def test_sum_keeps_how_often_each_value_occurs(graph: tuple[Tensor, Tensor]) -> None:
    x, edge_index = graph
    counts = count_values(x, edge_index, torch.tensor(VALUES, dtype=torch.float64))
    expected = [[Counter(values)[value] for value in VALUES] for values in neighbourhoods(x, edge_index)]
    # The inverse of a triangular matrix of small integers; twenty terms.
    torch.testing.assert_close(counts, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)
    of_neighbours = [sum(values) for values in neighbourhoods(x, edge_index)]
    total = counts @ torch.tensor(VALUES, dtype=torch.float64)
    torch.testing.assert_close(total, torch.tensor(of_neighbours, dtype=torch.float64), rtol=0, atol=1e-10)


@given(graphs())
def test_one_layer_with_a_context_finds_unique_signatures(graph: tuple[Tensor, Tensor]) -> None:
    x, edge_index = graph
    expected = [float(values.count(sum(values))) for values in neighbourhoods(x, edge_index)]
    assert count_signatures(x, edge_index).tolist() == expected


@given(graphs(), st.sampled_from([None, *CONTEXTS]), st.sampled_from(["sum", "mean", "sym"]), st.integers(0, 99))
def test_a_message_depends_on_a_third_node_only_with_a_context(
    graph: tuple[Tensor, Tensor], context: str | None, aggr: str, seed: int
) -> None:
    x, edge_index = graph
    assume(edge_index.numel())
    torch.manual_seed(seed)
    # Different features, so that the maximum has one place.
    h = torch.randn(len(x), 2, dtype=torch.float64)
    found = context_dependence(SIRConv(2, 3, 4, aggr=aggr, activation="tanh", context=context).double(), h, edge_index)
    assert found.shape == (edge_index.size(1),)
    for edge, (source, target) in enumerate(edge_index.t().tolist()):
        others = {v for v, u in edge_index.t().tolist() if u == target} - {source, target}
        is_seen = context is not None and bool(others)
        if context == "max":
            # A third node matters where it holds the maximum of a channel.
            neighbours = [v for v, u in edge_index.t().tolist() if u == target]
            is_seen = bool({neighbours[int(place)] for place in h[neighbours].argmax(0)} & others)
        assert bool(found[edge] > 0) == is_seen


@pytest.mark.parametrize("values", [[], [1.0, 1.0], [2.0, 1.0]])
def test_values_that_do_not_rise_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^values: expected different numbers in rising order"):
        count_values(torch.zeros(2), torch.tensor([[0], [1]]), torch.tensor(values))
