"""Theorems 1 and 2: the feature map of a pseudometric, its intervals, its extension, its quotient."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.theory import (
    FeatureMap,
    discrete,
    equivalence_classes,
    euclidean,
    feature_map,
    soft_injectivity,
    squared_score,
    violating_example,
)
from tests.theory.draws import Metric, metrics, points

# Eigenvectors of a 7 x 7 matrix keep 12 digits of squares; a root halves them.
SQUARE, ROOT = 1e-11, 1e-5


def squares_of(features: Tensor, other: Tensor | None = None) -> Tensor:
    other = features if other is None else other
    return (features.unsqueeze(1) - other.unsqueeze(0)).square().sum(-1)


@given(metrics(2), points(2))
def test_the_feature_map_has_the_distances_of_d_on_the_sample(metric: Metric, x: Tensor) -> None:
    squares = metric.d.squares(x, query=metric.query)
    found = feature_map(metric.d, x, metric.query).features
    assert found.size(1) < max(2, len(x))
    torch.testing.assert_close(squares_of(found), squares, rtol=0, atol=SQUARE * (1 + float(squares.max())))


@given(points(2), st.data())
def test_a_conditionally_positive_definite_kernel_is_minus_a_squared_distance(x: Tensor, data: st.DataObject) -> None:
    metric = data.draw(metrics(2))
    kernel = -metric.d.squares(x, query=metric.query)
    found = FeatureMap.of_kernel(kernel).features
    torch.testing.assert_close(-squares_of(found), kernel, rtol=0, atol=SQUARE * (1 + float(kernel.abs().max())))


@given(metrics(2), points(2, min_size=2), st.floats(0.01, 5), st.floats(0.01, 5))
def test_images_lie_between_the_bounds_exactly_when_the_distances_do(
    metric: Metric, x: Tensor, eps2: float, width: float
) -> None:
    distances = metric.d(x, query=metric.query)
    mapped = squares_of(feature_map(metric.d, x, metric.query).features).sqrt()
    assert soft_injectivity(distances, mapped, eps2, eps2 + width)


halves = st.integers(0, 6).map(lambda value: value / 2)


@given(st.lists(st.tuples(halves, halves), min_size=1, max_size=6), halves.filter(bool), halves.filter(bool))
def test_a_violation_is_a_pair_of_which_one_alone_lies_strictly_between_the_bounds(
    pairs: list[tuple[float, float]], eps2: float, width: float
) -> None:
    distances, mapped = torch.tensor(pairs, dtype=torch.float64).T
    found = soft_injectivity(distances, mapped, eps2, eps2 + width, tolerance=0.0)
    inside = [[eps2 < value < eps2 + width for value in pair] for pair in pairs]
    assert found.violations.flatten().tolist() == [place for place, (one, other) in enumerate(inside) if one != other]


def test_an_interval_that_only_one_of_two_distances_is_in_is_found() -> None:
    distances = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    found = soft_injectivity(distances, 2 * distances, 0.5, 1.5)
    assert not found
    assert found.violations.tolist() == [[0, 1], [1, 0]]
    assert soft_injectivity(distances, 2 * distances, 0.5, 3.0)
    at_the_end = soft_injectivity(distances, distances - 1e-9, 0.5, 1.0)
    assert at_the_end
    assert at_the_end.undecided == 2


@given(metrics(2), points(2, min_size=2), points(2, min_size=2))
def test_a_new_point_is_projected_and_its_distances_are_at_most_d(metric: Metric, x: Tensor, new: Tensor) -> None:
    d, query = metric.d, metric.query
    g = feature_map(d, x, query)
    features, residual = g.project(new)
    squares = d.squares(new, x, query)
    # Directions that the sample hardly spans magnify rounding.
    tolerance = 1e-6 * (1 + float(squares.max()) + float(d.squares(x, query=query).max()))
    found = squares_of(features, g.features)
    torch.testing.assert_close(found, squares - residual.square().unsqueeze(1), rtol=0, atol=tolerance)
    assert bool((found <= squares + tolerance).all())
    assert bool((squares_of(features) <= d.squares(new, query=query) + tolerance).all())


@given(metrics(2), points(2, min_size=2))
def test_a_point_of_the_sample_is_projected_onto_itself(metric: Metric, x: Tensor) -> None:
    g = feature_map(metric.d, x, metric.query)
    features, residual = g.project(x)
    largest = 1 + float(metric.d(x, query=metric.query).max())
    torch.testing.assert_close(features, g.features, rtol=0, atol=ROOT * largest)
    assert float(residual.max()) <= ROOT * largest


@given(points(2, min_size=2), st.sampled_from([squared_score(), discrete(), euclidean(), 2 * squared_score()]))
def test_the_feature_map_is_injective_on_the_quotient_by_d(x: Tensor, d: object) -> None:
    assert callable(d)
    distances = d(x)
    by_d = equivalence_classes(distances, 1e-9)
    assume(len(x) > int(by_d.max()) + 1)
    mapped = squares_of(feature_map(d, x).features).sqrt()  # type: ignore[arg-type]
    assert torch.equal(equivalence_classes(mapped.fill_diagonal_(0), ROOT * (1 + float(distances.max()))), by_d)
    # On the classes d is a metric.
    first = torch.tensor([int((by_d == label).nonzero()[0]) for label in by_d.unique()])
    between = distances[first][:, first]
    assert bool(((between > 1e-9) | torch.eye(len(first), dtype=torch.bool)).all())


def test_classes_are_joined_by_chains_and_numbered_by_their_first_members() -> None:
    line = torch.tensor([5.0, 0.0, 1.0, 6.0, 2.0]).unsqueeze(1)
    distances = (line - line.T).abs()
    assert equivalence_classes(distances, 1.0).tolist() == [0, 1, 1, 0, 1]
    assert equivalence_classes(distances, 0.5).tolist() == [0, 1, 2, 3, 4]


def test_a_sample_of_similar_points_needs_no_dimension() -> None:
    g = feature_map(squared_score(), torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    assert g.features.shape == (2, 0)
    features, residual = g.project(torch.tensor([[2.0]], dtype=torch.float64))
    assert features.shape == (1, 0)
    assert residual.tolist() == [3.0]
    assert repr(g) == "FeatureMap(2 points in 0 dimensions)"


def test_what_has_no_feature_map_is_refused() -> None:
    d, x = violating_example()
    with pytest.raises(ValueError, match=r"conditionally positive definite one \(Assumption 1\), got c\^T K c = -0.8"):
        feature_map(d, x)
    with pytest.raises(ValueError, match="Assumption 1 together with the sample"):
        feature_map(d, x[1:]).project(x[:1])
    with pytest.raises(ValueError, match="empty sample"):
        feature_map(euclidean(), torch.zeros(0, 2))
    with pytest.raises(ValueError, match="no negative distance"):
        FeatureMap.of_kernel(torch.tensor([[0.0, 1], [1, 0]]))
    with pytest.raises(ValueError, match="knows no points"):
        FeatureMap.of_kernel(torch.zeros(2, 2)).project(x)
    with pytest.raises(ValueError, match="expected 0 < eps2 < eps1"):
        soft_injectivity(torch.zeros(1), torch.zeros(1), 1.0, 0.5)
    with pytest.raises(ValueError, match="as many entries"):
        soft_injectivity(torch.zeros(1), torch.zeros(2), 0.5, 1.0)
    with pytest.raises(ValueError, match="tolerance: expected at least 0"):
        equivalence_classes(torch.zeros(1, 1), -1.0)
