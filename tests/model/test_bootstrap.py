"""The bootstrap: weighted metrics are those of repeated rows, and intervals hold what they promise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.data import METRICS
from sirgcn.model.bootstrap import _WEIGHTED, draw_weights, interval, resampled, score

seeds = st.integers(0, 2**31)


def drawn(sort: str, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Outputs with ties, and targets of which a few are unknown."""
    generator = torch.Generator().manual_seed(seed)
    if sort == "classes":
        return torch.randint(-3, 4, (rows, 4), generator=generator).double(), torch.randint(
            -1, 4, (rows,), generator=generator
        )
    if sort == "two classes":
        return torch.randint(-3, 4, (rows, 2), generator=generator).double(), torch.randint(
            -1, 2, (rows,), generator=generator
        )
    outputs = torch.randint(-3, 4, (rows, 3), generator=generator).double()
    target = torch.randn(rows, 3, generator=generator)
    if sort == "labels":
        target = (target > 0).float()
    target[torch.rand(rows, 3, generator=generator) < 0.2] = torch.nan
    return outputs, target


CASES = [
    (sort, name)
    for sort in ("classes", "two classes", "labels", "numbers")
    for name, metric in METRICS.items()
    if (metric.targets == "numbers") == (sort == "numbers")
]


def value_of(name: str, outputs: Tensor, target: Tensor) -> float:
    """The metric; NaN where it is not defined."""
    try:
        return METRICS[name]([outputs], [target])
    except ValueError:
        return float("nan")


def test_every_metric_has_a_weighted_form() -> None:
    assert set(_WEIGHTED) == set(METRICS)


@pytest.mark.parametrize(("sort", "name"), CASES)
@given(seeds, st.integers(2, 25))
def test_a_weighted_metric_is_the_metric_of_repeated_rows(sort: str, name: str, seed: int, rows: int) -> None:
    outputs, target = drawn(sort, rows, seed)
    if np.isnan(value_of(name, outputs, target)):
        return
    weights = torch.cat(list(draw_weights(rows, 5, seed % 1000)))
    weights[0] = 1
    found = _WEIGHTED[name](outputs, target)(weights)
    for own, value in zip(weights, found.tolist(), strict=True):
        repeated = torch.arange(rows).repeat_interleave(own.long())
        expected = value_of(name, outputs[repeated], target[repeated])
        # A draw without any variance has no R²; the definition divides rounding errors there.
        if name == "r2" and np.isnan(value):
            continue
        assert value == pytest.approx(expected, nan_ok=True, rel=1e-6, abs=1e-9)


def test_a_draw_takes_as_many_rows_as_there_are_and_groups_stay_whole() -> None:
    weights = torch.cat(list(draw_weights(7, 300)))
    assert weights.shape == (300, 7)
    assert weights.sum(1).tolist() == [7.0] * 300
    groups = torch.tensor([5, 5, 5, 8, 8, 9])
    of_groups = torch.cat(list(draw_weights(6, 300, groups=groups)))
    assert torch.equal(of_groups[:, 0], of_groups[:, 2])
    assert torch.equal(of_groups[:, 3], of_groups[:, 4])
    assert (of_groups[:, [0, 3, 5]].sum(1) == 3).all()


def test_equal_numbers_of_rows_have_equal_draws_so_that_models_can_be_paired() -> None:
    target = torch.randint(0, 2, (50,), generator=torch.Generator().manual_seed(0))
    right = torch.nn.functional.one_hot(target, 2).double()
    both = resampled("accuracy", right, target) + resampled("accuracy", 1 - right, target)
    assert both.tolist() == pytest.approx([1.0] * len(both))


def test_intervals_of_a_mean_hold_the_truth_as_often_as_they_say() -> None:
    held = 0
    for seed in range(200):
        y = torch.randn(80, generator=torch.Generator().manual_seed(seed)).abs()
        found = score("mae", torch.zeros(80, 1), y, seed=seed)
        held += found.low <= (2 / np.pi) ** 0.5 <= found.high
    # 95 % of 200 is 190; four deviations of a binomial are 12, and the bootstrap is a little narrow at 80 rows.
    assert 176 <= held <= 200


def test_draws_that_leave_a_metric_undefined_do_not_count() -> None:
    assert interval(torch.tensor([float("nan"), 1.0, float("nan"), 1.0])) == (1.0, 1.0)
    assert all(np.isnan(interval(torch.tensor([float("nan")]))))
