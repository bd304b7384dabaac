"""Corollary 1 and the appendix: the kernel distance, the hash, contexts, graphs, and the approximation."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.nn import SIRConv
from sirgcn.ops import Neighbors
from sirgcn.testing import Graph, graphs
from sirgcn.theory import (
    centred_kernel,
    check_axioms,
    conditionally_positive_definite,
    discrete,
    distance_matrix,
    equivalence_classes,
    euclidean,
    feature_distance,
    feature_map,
    fourier_distance,
    gaussian,
    hash_multiset,
    kernel_distance,
    layer_distance,
    multisets,
    neighborhood_distance,
    neighborhood_hash,
    soft_injectivity,
    squared_score,
    violating_example,
)
from sirgcn.theory.pseudometrics import row_distances
from tests.theory.draws import Metric, Squares, comparable_graphs, layer, metrics, points, seeded

# Sums of up to 49 squares cancel in D^2, of which a root leaves half of the digits.
SQUARE, ROOT = 1e-11, 1e-5


@st.composite
def pairs_of_multisets(draw: st.DrawFn, channels: int = 2) -> tuple[Tensor, Tensor]:
    size = draw(st.integers(1, 6))
    return draw(points(channels, size=size)), draw(points(channels, size=size))


def sums_of_squares(metric: Metric, first: Tensor, second: Tensor) -> float:
    squares = [metric.d(h.unsqueeze(0), k.unsqueeze(0), metric.query).item() ** 2 for h in first for k in second]
    return math.fsum(squares)


@given(metrics(2), pairs_of_multisets())
def test_the_kernel_distance_is_the_double_sum(metric: Metric, pair: tuple[Tensor, Tensor]) -> None:
    first, second = pair
    cross, own, other = (sums_of_squares(metric, *sides) for sides in (pair, (first, first), (second, second)))
    found = kernel_distance(metric.d, first, second, metric.query)
    assert float(found) ** 2 == pytest.approx(cross - own / 2 - other / 2, abs=SQUARE * (1 + cross + own + other))


@given(metrics(2), pairs_of_multisets(), st.data())
def test_the_kernel_distance_is_that_of_the_centred_kernel_for_any_base(
    metric: Metric, pair: tuple[Tensor, Tensor], data: st.DataObject
) -> None:
    first, second = pair
    both = torch.cat([first, second])
    base = data.draw(st.one_of(st.none(), st.integers(0, len(both) - 1)))
    squares = metric.d.squares(both, query=metric.query)
    sign = torch.cat([torch.ones(len(first)), -torch.ones(len(second))]).double()
    # Eq. 27: the sums within a multiset count once, those across with -2.
    expected = float(sign @ centred_kernel(-squares, base) @ sign)
    found = float(kernel_distance(metric.d, first, second, metric.query)) ** 2
    assert found == pytest.approx(expected, abs=SQUARE * (1 + float(squares.sum())))


def hashes(metric: Metric, rows: Tensor, reduce: str = "sum") -> Tensor:
    """The hashes of multisets `[B, n, F]` under the map g that Theorem 1 finds for all their elements."""
    g = feature_map(metric.d, rows.flatten(0, 1), metric.query).features
    places = torch.arange(len(g)).view(*rows.shape[:2], 1)
    return hash_multiset(lambda place, query: g[place.squeeze(-1)], places, reduce=reduce)


@given(metrics(2), pairs_of_multisets())
def test_the_hash_has_the_kernel_distances(metric: Metric, pair: tuple[Tensor, Tensor]) -> None:
    one, other = hashes(metric, torch.stack(pair))
    found = float(kernel_distance(metric.d, *pair, metric.query)) ** 2
    largest = float(metric.d.squares(torch.cat(pair), query=metric.query).sum())
    assert found == pytest.approx(float((one - other).square().sum()), abs=10 * SQUARE * (1 + largest))


@given(metrics(2), st.integers(1, 4), st.integers(0, 99), st.floats(0.01, 5), st.floats(0.01, 5))
def test_hashes_lie_between_the_bounds_exactly_when_the_kernel_distances_do(
    metric: Metric, size: int, seed: int, eps2: float, width: float
) -> None:
    rows = seeded(seed, 4, size, 2).mul(2).round() / 2
    found = hashes(metric, rows)
    mapped = row_distances(found, found)
    distances = distance_matrix(metric.d, rows, metric.query)
    assert soft_injectivity(distances, mapped, eps2, eps2 + width, tolerance=ROOT)


@given(metrics(2), pairs_of_multisets())
def test_means_of_features_are_apart_by_the_kernel_distance_over_the_size(
    metric: Metric, pair: tuple[Tensor, Tensor]
) -> None:
    one, other = hashes(metric, torch.stack(pair), reduce="mean")
    expected = (float(kernel_distance(metric.d, *pair, metric.query)) / len(pair[0])) ** 2
    largest = float(metric.d.squares(torch.cat(pair), query=metric.query).sum())
    assert float((one - other).square().sum()) == pytest.approx(expected, abs=10 * SQUARE * (1 + largest))


@given(metrics(2), st.integers(1, 4), st.integers(0, 99))
def test_the_kernel_distance_is_a_pseudometric_that_satisfies_assumption_1(
    metric: Metric, size: int, seed: int
) -> None:
    rows = seeded(seed, 5, size, 2).mul(2).round() / 2
    found = distance_matrix(metric.d, rows, metric.query)
    scale = float(metric.d(rows.flatten(0, 1), query=metric.query).max()) * size
    assert check_axioms(found, tolerance=ROOT * (1 + scale))
    assert conditionally_positive_definite(-found.square(), tolerance=SQUARE * 25 * (1 + scale**2))


@given(metrics(2), st.integers(1, 4), st.integers(0, 99))
def test_a_matrix_of_distances_holds_those_of_the_pairs(metric: Metric, size: int, seed: int) -> None:
    rows = seeded(seed, 4, size, 2).mul(2).round() / 2
    found = distance_matrix(metric.d, rows, metric.query)
    for i in range(4):
        for j in range(4):
            expected = kernel_distance(metric.d, rows[i], rows[j], metric.query)
            torch.testing.assert_close(found[i, j], expected, rtol=1e-9, atol=ROOT)


@given(pairs_of_multisets())
def test_with_a_gaussian_kernel_only_equal_multisets_have_distance_0(pair: tuple[Tensor, Tensor]) -> None:
    first, second = pair
    # Points of the grid are at least 0.5 apart, where the kernel is 0.25: no eigenvalue of a sample is near 0.
    found = float(kernel_distance(gaussian(scale=0.3), first, second))
    equal = Counter(map(tuple, first.tolist())) == Counter(map(tuple, second.tolist()))
    assert (found < 1e-5) == equal


@given(st.integers(1, 3), st.lists(st.integers(-2, 2), min_size=12, max_size=12))
def test_equal_sums_collide_with_the_euclidean_distance_and_equal_squares_with_squared_scores(
    size: int, scores: list[int]
) -> None:
    rows = torch.tensor(scores[: 4 * size], dtype=torch.float64).reshape(4, size, 1)
    for d, message in ((euclidean(), rows), (squared_score(), rows.square())):
        total = message.sum((1, 2)).unsqueeze(1)
        by_total = equivalence_classes((total - total.T).abs())
        assert torch.equal(equivalence_classes(distance_matrix(d, rows), 1e-9), by_total)


def test_the_discrete_distance_lets_no_two_of_four_multisets_collide() -> None:
    rows = torch.tensor([[[-1.0], [1.0]], [[0.0], [0.0]], [[1.0], [1.0]], [[-1.0], [-1.0]]], dtype=torch.float64)
    assert equivalence_classes(distance_matrix(discrete(), rows), 1e-5).tolist() == [0, 1, 2, 3]


@given(st.integers(0, 99), pairs_of_multisets(), st.sampled_from(["sum", "mean"]))
def test_outputs_of_a_layer_are_apart_by_the_contextual_distance(
    seed: int, pair: tuple[Tensor, Tensor], aggr: str
) -> None:
    first, second = pair
    conv, query, size = layer(seed, 2, aggr), seeded(seed, 2), len(first)
    sources = torch.arange(2 * size)
    graph = torch.stack([sources, 2 * size + sources // size])
    out = conv(torch.cat([first, second, query.expand(2, -1)]), graph)[2 * size :].detach()
    expected = kernel_distance(layer_distance(conv), first, second, query)
    found = (out[0] - out[1]).norm() * (size if aggr == "mean" else 1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@given(graphs(), metrics(2, features=True), st.integers(0, 99), st.sampled_from(["sum", "mean"]))
def test_the_hash_of_a_neighbourhood_is_that_of_its_multiset(
    graph: Graph, metric: Metric, seed: int, reduce: str
) -> None:
    assume(graph.num_sources)
    x, query = seeded(seed, graph.num_sources, 2), seeded(seed + 1, graph.num_targets, 2)
    assert metric.d.features is not None
    found = neighborhood_hash(metric.d, x, graph.neighbors(), query, reduce)
    assert len(found) == graph.num_targets
    for u in range(graph.num_targets):
        rows = [v for v, target in graph.edges if target == u]
        expected = torch.zeros(found.size(1), dtype=torch.float64)
        if rows:
            own = query[u] if metric.d.contextual else None
            expected = hash_multiset(metric.d.features, x[rows], own, reduce)
        torch.testing.assert_close(found[u], expected, rtol=1e-9, atol=1e-11)


@given(
    st.one_of(comparable_graphs(), graphs(bipartite=False)),
    st.one_of(metrics(2), metrics(2, contextual=True)),
    st.integers(0, 99),
)
def test_the_distance_of_neighbourhoods_is_that_of_their_multisets(graph: Graph, metric: Metric, seed: int) -> None:
    neighbors = graph.neighbors()
    degree = neighbors.in_degree().tolist()
    x = seeded(seed, graph.num_sources, 2)
    # Odd nodes ask one thing, even nodes another.
    query = seeded(seed + 1, 2, 2)[torch.arange(graph.num_targets) % 2]
    places = range(graph.num_targets)
    equal = [(u, w) for u in places for w in places[u::2] if degree[u] == degree[w]]
    pairs = torch.tensor(equal, dtype=torch.int64).reshape(-1, 2).T
    found = neighborhood_distance(metric.d, x, neighbors, pairs, query)
    for (u, w), value in zip(pairs.T.tolist(), found, strict=True):
        first, second = (x[[v for v, target in graph.edges if target == node]] for node in (u, w))
        if not len(first):
            assert float(value) == 0
            continue
        expected = kernel_distance(metric.d, first, second, query[u] if metric.d.contextual else None)
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=ROOT)


@given(metrics(2), pairs_of_multisets())
def test_blocks_do_not_change_a_distance(metric: Metric, pair: tuple[Tensor, Tensor]) -> None:
    rows = torch.stack(pair)
    expected = kernel_distance(metric.d, *pair, metric.query), distance_matrix(metric.d, rows, metric.query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multisets, "_BLOCK", 3)
        found = kernel_distance(metric.d, *pair, metric.query), distance_matrix(metric.d, rows, metric.query)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=ROOT)


def test_integers_have_the_distances_of_their_values() -> None:
    pair = torch.tensor([[[1], [-2]], [[3], [0]]])
    for d in (euclidean(), squared_score(), gaussian()):
        torch.testing.assert_close(kernel_distance(d, *pair), kernel_distance(d, *pair.double()))
    found, expected = (
        fourier_distance(rows[0], rows[1], generator=torch.Generator().manual_seed(0)).squared
        for rows in (pair, pair.double())
    )
    assert torch.equal(found, expected)


@given(pairs_of_multisets(), st.integers(0, 999))
def test_the_approximation_stays_within_its_bound(pair: tuple[Tensor, Tensor], seed: int) -> None:
    exact = float(kernel_distance(gaussian(scale=2.0), *pair)) ** 2
    found = fourier_distance(*pair, scale=2.0, num_features=64, generator=torch.Generator().manual_seed(seed))
    assert abs(float(found.squared) - exact) <= found.bound
    assert float(found.distance) == pytest.approx(math.sqrt(float(found.squared)))


def test_the_error_of_the_approximation_is_the_one_it_states_and_falls_with_the_root_of_the_frequencies() -> None:
    first, second = seeded(0, 40, 3), seeded(1, 40, 3) + 0.2
    exact = float(kernel_distance(gaussian(), first, second)) ** 2
    spread: dict[int, float] = {}
    for count in (64, 1024):
        estimates = [
            fourier_distance(first, second, 1.0, count, torch.Generator().manual_seed(seed)) for seed in range(200)
        ]
        errors = torch.tensor([float(estimate.squared) - exact for estimate in estimates])
        spread[count] = float(errors.square().mean().sqrt())
        stated = float(torch.stack([estimate.error for estimate in estimates]).square().mean().sqrt())
        # Over 200 seeds a root of a mean square is known to about 1 / sqrt(400).
        assert spread[count] == pytest.approx(stated, rel=0.2)
        assert abs(float(errors.mean())) < 4 * stated / math.sqrt(200)
    assert spread[64] / spread[1024] == pytest.approx(4, rel=0.3)


def test_large_multisets_need_no_square_of_their_size() -> None:
    first, second = seeded(0, 100_000, 4), seeded(1, 100_000, 4)
    d = feature_distance(Squares())
    expected = (first.square().sum(0) - second.square().sum(0)).norm()
    torch.testing.assert_close(kernel_distance(d, first, second), expected)
    # The Gaussian D^2 of two samples of one distribution is about 2 n (1 - E k), and E k is small in 4 dimensions.
    found = fourier_distance(first, second, 0.3, 64, torch.Generator().manual_seed(0))
    assert float(found.squared) == pytest.approx(2e5, rel=0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kernel_distance(euclidean(), torch.zeros(2, 1), torch.zeros(3, 1)), "of 2 elements .* got 3"),
        (lambda: kernel_distance(euclidean(), torch.zeros(0, 1), torch.zeros(0, 1)), "at least one element"),
        (lambda: kernel_distance(discrete(), torch.zeros(2), torch.zeros(2)), "rows of features"),
        (lambda: kernel_distance(euclidean(), torch.zeros(2, 1), torch.zeros(2, 3)), "expected 1 channels .* got 3"),
        (lambda: distance_matrix(euclidean(), torch.zeros(2, 1)), r"expected multisets \[B, n, channels\]"),
        (lambda: hash_multiset(lambda x, query: x, torch.zeros(0, 1)), "at least one element"),
        (lambda: hash_multiset(lambda x, query: x, torch.zeros(2, 1), reduce="max"), "reduce: expected one of"),
        (lambda: fourier_distance(torch.zeros(2, 1), torch.zeros(1, 1)), "of 2 elements .* got 1"),
        (lambda: fourier_distance(torch.zeros(2, 1), torch.zeros(2, 1), num_features=1), "num_features >= 2"),
        (lambda: kernel_distance(euclidean(), torch.zeros(2, 1), torch.ones(2, 1), torch.zeros(1)), "not contextual"),
    ],
)
def test_what_is_no_pair_of_multisets_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_a_metric_without_feature_map_is_refused_where_its_square_shows_it() -> None:
    d, x = violating_example()
    with pytest.raises(ValueError, match="satisfies Assumption 1, got D"):
        kernel_distance(d, x[:1].expand(4, -1), x[1:])


def test_wrong_pairs_of_nodes_are_refused() -> None:
    neighbors = Neighbors.from_edge_index(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]]), 3)
    x = seeded(0, 3, 2)
    with pytest.raises(ValueError, match=r"of equal size, got \[1, 2\] neighbours at nodes \[0, 2\]"):
        neighborhood_distance(euclidean(), x, neighbors, torch.tensor([[0], [2]]))
    with pytest.raises(ValueError, match="nodes with equal queries"):
        neighborhood_distance(layer_distance(SIRConv(2, 2).double()), x, neighbors, torch.tensor([[0], [1]]))
    with pytest.raises(ValueError, match=r"expected shape \[2, pairs\]"):
        neighborhood_distance(euclidean(), x, neighbors, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="with known features"):
        neighborhood_hash(discrete(), x, neighbors)
    with pytest.raises(ValueError, match="a row for each of the 3 targets, got 2"):
        neighborhood_hash(layer_distance(SIRConv(2, 2).double()), x, neighbors, x[:2])
