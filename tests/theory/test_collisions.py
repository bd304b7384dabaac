"""The collision finder: what it returns is what a loop over all pairs finds, for any layer."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import GCNConv

from sirgcn import SIRGCN, SIRConv
from sirgcn.nn import CONVS, make_conv
from sirgcn.testing import Graph, graphs
from sirgcn.theory import (
    Pseudometric,
    collisions,
    euclidean,
    gaussian,
    kernel_distance,
    layer_distance,
    lookup_distance,
    outputs_of,
    squared_score,
)
from sirgcn.theory.collisions import _ROWS
from tests.theory.draws import comparable_graphs, layer, seeded


def by_loop(
    out: Tensor, x: Tensor, graph: Graph, metric: Pseudometric, threshold: float, separation: float
) -> tuple[set[tuple[int, int]], int]:
    """The pairs of equal degree and features with close outputs that the metric separates; of how many such pairs."""
    found, compared = set(), 0
    hoods = [[v for v, target in graph.edges if target == u] for u in range(graph.num_targets)]
    for u in range(graph.num_targets):
        for w in range(u + 1, graph.num_targets):
            if not hoods[u] or len(hoods[u]) != len(hoods[w]) or not torch.equal(x[u], x[w]):
                continue
            compared += 1
            query = x[u] if metric.contextual else None
            apart = float(kernel_distance(metric, x[hoods[u]], x[hoods[w]], query))
            if apart > separation and float((out[u] - out[w]).norm()) <= threshold:
                found.add((u, w))
    return found, compared


@given(
    st.one_of(comparable_graphs(), graphs(bipartite=False)),
    st.integers(0, 99),
    st.sampled_from([0.1, 1.0, 3.0]),
    st.data(),
)
def test_the_finder_returns_what_a_loop_over_all_pairs_finds(
    graph: Graph, seed: int, threshold: float, data: st.DataObject
) -> None:
    # Two values only, so that queries are often equal.
    x = seeded(seed, graph.num_sources, 1).sign()
    conv = layer(seed, 1, data.draw(st.sampled_from(["sum", "mean", "max"])))
    metric = data.draw(st.sampled_from([euclidean(), gaussian(), layer_distance(layer(seed + 1, 1))]))
    found = collisions(conv, x, graph.edge_index, metric, threshold=threshold, separation=0.1)
    out = conv(x, graph.edge_index).detach()
    expected, compared = by_loop(out, x, graph, metric, threshold, separation=0.1)
    assert set(zip(found.pairs["first"], found.pairs["second"], strict=True)) == expected
    assert len(found) == found.found == len(expected)
    assert found.found <= found.separated <= found.compared == compared


@given(comparable_graphs(), st.integers(0, 99))
def test_a_layer_never_confuses_what_its_own_metric_separates(graph: Graph, seed: int) -> None:
    x = seeded(seed, graph.num_sources, 1).sign()
    conv = layer(seed, 1)
    found = collisions(conv, x, graph.neighbors(), layer_distance(conv), threshold=0.1, separation=0.1 + 1e-9)
    assert len(found) == 0
    assert found.farthest_equivalent <= 0.1 + 1e-8 < found.closest_separated + 1e-7


def scores() -> tuple[Tensor, Tensor]:
    """Two nodes whose neighbours have the scores {-1, 1} and {0, 0}: the anomaly detection of Section 3.1."""
    x = torch.tensor([[0.0], [0.0], [-1.0], [1.0], [0.0], [0.0]])
    return x, torch.tensor([[2, 3, 4, 5], [0, 0, 1, 1]])


def test_a_linear_layer_confuses_scores_that_cancel_and_a_dynamic_one_does_not() -> None:
    x, edges = scores()
    torch.manual_seed(0)
    linear = GCNConv(1, 4, add_self_loops=False, normalize=False)
    found = collisions(linear, x, edges, squared_score(), threshold=1e-6)
    assert found.pairs[["first", "second", "degree"]].to_numpy().tolist() == [[0, 1, 2]]
    assert found.pairs["metric"].tolist() == [2.0]
    assert len(collisions(SIRConv(1, 4), x, edges, squared_score(), threshold=1e-6)) == 0


def test_without_a_threshold_pairs_that_the_metric_deems_equal_give_it() -> None:
    # Sums 0, 0.2, 1, 1.1 of two neighbours each; the metric sees whether the squares agree.
    rows = [(-1.0, 1.0), (-0.9, 1.1), (1.0, 1.0), (-1.0, -1.0), (0.0, 0.1)]
    keys = torch.tensor(rows).reshape(-1, 1)
    x = torch.cat([torch.zeros(5, 1), keys])
    edges = torch.stack([torch.arange(5, 15), torch.arange(10) // 2])

    def total(x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.zeros(15, 1).index_add_(0, edge_index[1], x[edge_index[0]])

    found = collisions(total, x, edges, squared_score())
    # Equal to the metric are the pairs of nodes 0, 2, 3, with outputs 0, 2, -2 apart by 2, 2, 4.
    assert found.pairs["threshold"].unique().tolist() == [2.0]
    assert set(zip(found.pairs["first"], found.pairs["second"], strict=True)) == {
        (0, 1),
        (0, 4),
        (1, 2),
        (1, 4),
        (2, 4),
    }
    assert found.pairs["outputs"].is_monotonic_increasing
    assert (found.separated, found.compared, found.groups) == (7, 10, 1)
    assert found.closest_separated == pytest.approx(0.1)
    assert found.farthest_equivalent == 4.0


def test_a_context_puts_every_neighbourhood_under_one_query() -> None:
    x, edges = scores()
    x[0], x[1] = 0.3, 0.4
    torch.manual_seed(0)
    linear = SIRConv(1, 4, activation="identity")
    alone = collisions(linear, x, edges, squared_score(), threshold=1e-5)
    assert alone.compared == 0
    assert "`context` puts all under the query of one node" in repr(alone)
    found = collisions(linear, x, edges, squared_score(), threshold=1e-5, context=0)
    assert found.pairs[["first", "second"]].to_numpy().tolist() == [[0, 1]]
    # Outputs under the query of node 0 are apart by the layer's own D in that context.
    dynamic = SIRConv(1, 4, activation="gelu")
    contextual = collisions(dynamic, x, edges, layer_distance(dynamic), threshold=math.inf, context=0)
    expected = kernel_distance(layer_distance(dynamic), x[[2, 3]], x[[4, 5]], x[0])
    assert contextual.pairs["outputs"].tolist() == pytest.approx([float(expected)], rel=1e-5)
    assert float(expected) > 0.01


@pytest.mark.parametrize("name", CONVS)
def test_every_convolution_of_the_table_can_be_looked_at(name: str) -> None:
    torch.manual_seed(0)
    conv = make_conv(name, 8, 8)
    x = torch.randn(2, 8)[torch.randint(0, 2, (20,))]
    edges = torch.randint(0, 20, (2, 60))

    def called(x: Tensor, edge_index: Tensor) -> Tensor:
        context = {"batch": torch.zeros(len(x), dtype=torch.int64), "first": x}
        return conv(x, edge_index, **{key: value for key, value in context.items() if key in CONVS[name].extra_inputs})

    conv.eval()
    found = collisions(called, x, edges, euclidean(), threshold=math.inf)
    assert found.found == found.separated > 0
    assert found.farthest_equivalent < 1e-5 or name in ("gcn", "fagcn", "egc_s", "egc_m")


def test_large_groups_are_drawn_from_and_blocks_meet() -> None:
    size = 2 * _ROWS + 7
    x = torch.cat([torch.zeros(size, 1), torch.arange(size).unsqueeze(1).double()])
    edges = torch.stack([torch.arange(size, 2 * size), torch.arange(size)])

    def constant(x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.zeros(len(x), 1)

    every = collisions(constant, x.double(), edges, euclidean(), threshold=0.0, keep=5)
    assert every.found == every.compared == size * (size - 1) // 2
    assert len(every.pairs) == 5
    few = collisions(constant, x.double(), edges, euclidean(), nodes=torch.tensor([3, 5, 3]))
    assert few.compared == 1
    some = collisions(constant, x.double(), edges, euclidean(), threshold=0.0, limit=10)
    assert (some.compared, some.sampled) == (45, size - 10)
    assert "10 nodes" not in repr(every)
    assert f"{size - 10:,} nodes of large groups were left out" in repr(some)
    assert some.pairs.equals(collisions(constant, x.double(), edges, euclidean(), threshold=0.0, limit=10).pairs)


def test_the_result_reads_as_a_table() -> None:
    x, edges = scores()
    torch.manual_seed(0)
    linear = GCNConv(1, 4, add_self_loops=False, normalize=False)
    text = repr(collisions(linear, x, edges, squared_score(), threshold=1e-6))
    assert text.startswith("GCNConv confuses 1 of 1 pairs of neighbourhoods that squared_score separates,")
    assert text.splitlines()[-2].split() == ["first", "second", "degree", "outputs", "metric", "threshold"]
    empty = collisions(linear, x, edges[:, :0], squared_score())
    assert (len(empty), empty.compared, empty.closest_separated) == (0, 0, math.inf)
    assert json.loads(json.dumps(empty.to_dict(), allow_nan=False))["closest_separated"] is None


@given(st.permutations(range(4)), st.permutations(range(4)), st.integers(0, 3))
def test_the_metric_of_the_lookup_is_whether_the_stored_values_differ(
    one: list[int], two: list[int], asked: int
) -> None:
    first, second = (torch.tensor(list(enumerate(values))) for values in (one, two))
    found = kernel_distance(lookup_distance(4), first, second, torch.tensor([asked, 4]))
    assert float(found) == pytest.approx(float(one[asked] != two[asked]))


def test_a_layer_is_looked_at_within_its_network() -> None:
    torch.manual_seed(0)
    network = SIRGCN(1, 4, num_layers=2, dropout=0.5)
    x, edges = scores()
    found = outputs_of(network, "convs.0")(x, edges)
    assert torch.equal(found, network.convs[0](x, edges))
    assert not network.convs[0]._forward_hooks
    assert repr(collisions(outputs_of(network, "convs.0"), x, edges, euclidean())).startswith("SIRConv confuses")
    network.unused = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="called once, got 0 calls of unused"):
        outputs_of(network, "unused")(x, edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": torch.zeros(2, 1)}, "expected 6 rows, one per node as x has, got 2"),
        ({"threshold": -1.0}, "expected at least 0, got -1.0"),
        ({"separation": math.nan}, "expected at least 0"),
        ({"limit": 1}, "at least 2 nodes"),
        ({"keep": 0}, "1 pair"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    x, edges = scores()
    with pytest.raises(ValueError, match=message):
        collisions(SIRConv(1, 2), x, edges, euclidean(), **options)  # type: ignore[arg-type]


def test_wrong_layers_and_contexts_are_refused() -> None:
    x, edges = scores()
    with pytest.raises(ValueError, match=r"expected an output \[6, channels\], got shape \[6\]"):
        collisions(lambda x, edge_index: x.squeeze(1), x, edges, euclidean())
    with pytest.raises(IndexError, match="a node 0 <= u < 6, got 6"):
        collisions(SIRConv(1, 2), x, edges, euclidean(), context=6)
