"""Temperature: one number by which logits are divided, so that probabilities are as sure as the model is right."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

SCALE = 0.05
"""The scale of the Cauchy distribution that log T is expected to have before any row is seen.

It was chosen on small data sets: with few rows T stays near 1, where a wrong T would harm more than a right one helps.
Its heavy tails let T go far where the rows ask for it.
"""

_GRID = [place / 20 for place in range(-60, 61)]  # of log T: from 1/20 to 20
_STEPS = 40  # of a golden-section search between two places of the grid


def fit_temperature(outputs: Tensor, target: Tensor) -> float:
    r"""The temperature T with the smallest :math:`\sum_i \ell_i(z_i / T) + \log(1 + (\log T / 0.05)^2)`.

    :math:`\ell` is the log-loss. The second term is 0 at T = 1, so that the log-loss of these rows is never larger than
    with T = 1. It weighs as much as a few rows: with many rows T follows the rows, with few it stays near 1.

    Args:
        outputs: the logits, `[rows, classes]`, or `[rows]` of one label.
        target: the classes, int64 `[rows]`.

    >>> import torch
    >>> outputs = torch.tensor([[9.0, 0.0]] * 100)
    >>> fit_temperature(outputs, torch.tensor([0] * 80 + [1] * 20)) > 5
    True
    """
    if not len(target):
        return 1.0
    outputs = outputs.double()

    def cost(log_t: float) -> float:
        return float(log_losses(outputs * math.exp(-log_t), target).sum()) + math.log1p((log_t / SCALE) ** 2)

    near = min(_GRID, key=cost)
    found = _minimum(cost, near - 0.05, near + 0.05)
    return math.exp(found) if cost(found) < cost(0.0) else 1.0


def log_losses(outputs: Tensor, target: Tensor) -> Tensor:
    """The log-loss of every row: of classes for outputs `[rows, classes]`, of a label for outputs `[rows]`.

    >>> import torch
    >>> log_losses(torch.zeros(1, 2), torch.tensor([0])).item() == log_losses(torch.zeros(1), torch.ones(1)).item()
    True
    """
    if outputs.dim() == 2:
        return F.cross_entropy(outputs, target, reduction="none")
    return F.binary_cross_entropy_with_logits(outputs, target.to(outputs.dtype), reduction="none")


def _minimum(cost: Callable[[float], float], low: float, high: float) -> float:
    """The minimum of a function with one valley between two places, by golden-section search."""
    share = (5**0.5 - 1) / 2
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = cost(right)
    return (low + high) / 2
