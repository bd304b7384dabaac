import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.data import LOSSES

seeds = st.integers(0, 2**31)
NUMBERS = [name for name, loss in LOSSES.items() if not loss.is_for_classes]


def classified(seed: int, rows: int, classes: int) -> tuple[Tensor, Tensor, list[tuple[list[float], int]]]:
    """Logits, classes of which some are unknown, and the labelled rows as numbers."""
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(-1, classes, (rows,), generator=generator)
    target[0] = 0
    known = [(row, label) for row, label in zip(output.tolist(), target.tolist(), strict=True) if label >= 0]
    return output, target, known


def surprise(row: list[float], label: int) -> float:
    return math.log(sum(math.exp(score) for score in row)) - row[label]


@given(seeds, st.integers(1, 12), st.integers(2, 5))
def test_cross_entropy_is_the_mean_surprise(seed: int, rows: int, classes: int) -> None:
    output, target, known = classified(seed, rows, classes)
    expected = sum(surprise(*pair) for pair in known) / len(known)
    assert LOSSES["cross_entropy"](output, target).item() == pytest.approx(expected)


@given(seeds, st.integers(1, 12), st.integers(2, 5))
def test_a_class_weighs_as_much_as_the_others_are_many(seed: int, rows: int, classes: int) -> None:
    output, target, known = classified(seed, rows, classes)
    labels = [label for _, label in known]
    weight = [(len(labels) - labels.count(c)) / len(labels) if c in labels else 0 for c in range(classes)]
    total = sum(weight[label] for label in labels)
    if total == 0:
        expected = sum(surprise(*pair) for pair in known) / len(known)
    else:
        expected = sum(weight[pair[1]] * surprise(*pair) for pair in known) / total
    assert LOSSES["weighted_cross_entropy"](output, target).item() == pytest.approx(expected)


@given(seeds, st.integers(1, 12), st.integers(2, 5))
def test_log_cross_entropy_is_the_arxiv_models_formula(seed: int, rows: int, classes: int) -> None:
    output, target, known = classified(seed, rows, classes)
    epsilon = 1 - math.log(2)
    expected = sum(math.log(surprise(*pair) + epsilon) - math.log(epsilon) for pair in known) / len(known)
    assert LOSSES["log_cross_entropy"](output, target).item() == pytest.approx(expected)


@given(seeds, st.integers(1, 8), st.integers(1, 3))
def test_losses_of_numbers_are_means_over_all_labels(seed: int, rows: int, tasks: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(rows, tasks, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 2, (rows, tasks), generator=generator).float()
    target[torch.rand(rows, tasks, generator=generator) < 0.3] = float("nan")
    target[0, 0] = 1.0
    pairs = [(a, b) for a, b in zip(output.view(-1).tolist(), target.view(-1).tolist(), strict=True) if b == b]
    each: dict[str, Callable[[float, float], float]] = {
        "binary_cross_entropy": lambda a, b: math.log1p(math.exp(a)) - a * b,
        "l1": lambda a, b: abs(a - b),
        "mse": lambda a, b: (a - b) ** 2,
    }
    assert set(each) == set(NUMBERS)
    for name, formula in each.items():
        expected = sum(formula(*pair) for pair in pairs) / len(pairs)
        assert LOSSES[name](output, target).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", LOSSES)
def test_unlabelled_rows_have_no_gradient(name: str) -> None:
    output = torch.randn(4, 3 if LOSSES[name].is_for_classes else 1, requires_grad=True)
    numbers = [0.0, math.nan, 1.0, math.nan]
    target = torch.tensor([0, -1, 1, -1] if LOSSES[name].is_for_classes else numbers)
    (gradient,) = torch.autograd.grad(LOSSES[name](output, target), output)
    assert (gradient.abs().sum(1) > 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("name", LOSSES)
def test_no_label_at_all_is_a_loss_of_0(name: str) -> None:
    output = torch.randn(2, 3 if LOSSES[name].is_for_classes else 1, requires_grad=True)
    target = torch.tensor([-1, -1]) if LOSSES[name].is_for_classes else torch.tensor([math.nan, math.nan])
    loss = LOSSES[name](output, target)
    (gradient,) = torch.autograd.grad(loss, output)
    assert loss.item() == 0
    assert not bool(gradient.any())


@pytest.mark.parametrize("name", LOSSES)
def test_a_shape_that_does_not_fit_is_refused(name: str) -> None:
    target = torch.tensor([0, 1]) if LOSSES[name].is_for_classes else torch.tensor([0.0, 1.0])
    with pytest.raises(ValueError, match=r"^output: expected shape"):
        LOSSES[name](torch.zeros(3, 2), target)


def test_half_precision_holds_many_labels() -> None:
    # 100,000 is beyond half precision, whose largest number is 65,504.
    output = torch.zeros(100_000, 2, dtype=torch.float16)
    target = torch.arange(100_000) % 4 == 0
    # bfloat16 and float16 have about three digits.
    assert LOSSES["weighted_cross_entropy"](output, target.long()).item() == pytest.approx(math.log(2), rel=1e-2)
