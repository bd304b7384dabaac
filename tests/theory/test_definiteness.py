"""Definitions 1 and 2 and Theorem 3: the checks find every violation, and the worst one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.theory import (
    Axioms,
    centred_kernel,
    check_assumption,
    check_axioms,
    conditionally_positive_definite,
    euclidean,
    positive_definite,
)
from tests.theory.draws import Metric, metrics, points, seeded


@st.composite
def kernels(draw: st.DrawFn, max_size: int = 6) -> Tensor:
    """Symmetric matrices of small integers, few of them conditionally definite; or a_i + a_j - d^2, which always is."""
    if draw(st.booleans()):
        squares = euclidean().squares(draw(points(2, max_size=max_size)))
        # Without a the diagonal is 0, and the last term of Eq. 25 with it.
        a = torch.tensor(draw(st.lists(st.integers(-4, 4), min_size=len(squares), max_size=len(squares))))
        return a.unsqueeze(1) + a - squares
    size = draw(st.integers(1, max_size))
    entries = draw(st.lists(st.integers(-4, 4), min_size=size * size, max_size=size * size))
    half = torch.tensor(entries, dtype=torch.float64).reshape(size, size)
    return half + half.T


def worst_by_loop(distances: Tensor) -> Axioms:
    d = distances.tolist()
    places = range(len(d))
    excess = max(d[x][z] - d[x][y] - d[y][z] for x in places for y in places for z in places)
    return Axioms(
        negative=max(0.0, -min(min(row) for row in d)),
        identity=max(abs(d[x][x]) for x in places),
        symmetry=max(abs(d[x][y] - d[y][x]) for x in places for y in places),
        triangle=max(0.0, excess),
        triple=(0, 0, 0),
        tolerance=0.0,
    )


@given(st.integers(1, 5), st.integers(0, 99))
def test_the_check_of_the_axioms_returns_the_worst_violation(size: int, seed: int) -> None:
    matrix = seeded(seed, size, size)
    found, expected = check_axioms(matrix, tolerance=0.0), worst_by_loop(matrix)
    for name in ("negative", "identity", "symmetry", "triangle"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12)
    x, y, z = found.triple
    assert max(0.0, float(matrix[x, z] - matrix[x, y] - matrix[y, z])) == pytest.approx(found.triangle, abs=1e-12)
    assert bool(found) == (expected.worst == 0)


@given(kernels(), st.integers(0, 99))
def test_the_coefficients_attain_the_smallest_value_and_nothing_is_below(kernel: Tensor, seed: int) -> None:
    for conditional, found in (
        (True, conditionally_positive_definite(kernel)),
        (False, positive_definite(kernel)),
    ):
        c = found.coefficients
        if len(kernel) == 1 and conditional:
            assert found
            assert found.smallest == 0
            continue
        assert float(c.norm()) == pytest.approx(1)
        assert float(c @ kernel @ c) == pytest.approx(found.smallest, abs=1e-10)
        other = seeded(seed, len(kernel))
        if conditional:
            assert abs(float(c.sum())) < 1e-12
            other -= other.mean()
        assert float(other @ kernel @ other) >= found.smallest * float(other @ other) - 1e-10


@given(kernels(), st.data())
def test_the_centred_kernel_is_positive_definite_exactly_when_the_kernel_is_conditionally_so(
    kernel: Tensor, data: st.DataObject
) -> None:
    base = data.draw(st.one_of(st.none(), st.integers(0, len(kernel) - 1)))
    centred = centred_kernel(kernel, base)
    assert bool(positive_definite(centred)) == bool(conditionally_positive_definite(kernel))


@given(metrics(2), points(2), st.data())
def test_the_centred_kernel_has_the_distances_of_d(metric: Metric, x: Tensor, data: st.DataObject) -> None:
    base = data.draw(st.one_of(st.none(), st.integers(0, len(x) - 1)))
    squares = metric.d.squares(x, query=metric.query)
    kernel = centred_kernel(-squares, base)
    own = kernel.diagonal()
    found = own.unsqueeze(0) + own.unsqueeze(1) - 2 * kernel
    torch.testing.assert_close(found, squares, rtol=1e-12, atol=1e-12 * (1 + float(squares.max())))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: conditionally_positive_definite(torch.tensor([[0.0, 1], [2, 0]])), r"symmetric .* at \[0, 1\]"),
        (lambda: positive_definite(torch.zeros(2, 3)), "square floating-point matrix"),
        (lambda: positive_definite(torch.zeros(2, 2, dtype=torch.int64)), "square floating-point matrix"),
        (lambda: conditionally_positive_definite(torch.zeros(0, 0)), "at least one row"),
        (lambda: check_axioms(torch.zeros(0, 0)), "at least one row"),
        (lambda: check_axioms(torch.zeros(2, 3)), "square matrix"),
        (lambda: check_axioms(torch.tensor([[0.0, math.nan], [1, 0]])), "expected finite entries"),
        (lambda: check_assumption(euclidean(), torch.zeros(0, 2)), "empty sample"),
    ],
)
def test_what_is_no_kernel_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_a_base_point_outside_the_sample_is_refused() -> None:
    with pytest.raises(IndexError, match="expected 0 <= place < 2, got 2"):
        centred_kernel(torch.zeros(2, 2), 2)
