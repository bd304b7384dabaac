"""Thresholds: the probability above which class 1 is predicted, such that a metric is as large as possible."""

from typing import Literal, get_args

import torch
from torch import Tensor

Decision = Literal["accuracy", "balanced_accuracy", "f1"]
"""The metrics that a threshold can be chosen for."""

DECISIONS: tuple[Decision, ...] = get_args(Decision)


def fit_threshold(probabilities: Tensor, target: Tensor, metric: Decision) -> float:
    """The threshold with the best value of a metric; of those that are level, the one nearest to one half.

    Thresholds lie halfway between neighbouring probabilities, 0 and 1 included. Here F1 is that of class 1, not the
    mean over classes.

    Args:
        probabilities: of class 1, `[rows]`.
        target: 0 or 1, `[rows]`.
        metric: what is maximised.

    >>> share = torch.tensor([0.0, 0.25, 0.5, 0.75])
    >>> fit_threshold(share, torch.tensor([0, 1, 1, 1]), "f1")
    0.125
    """
    positives, negatives = int((target == 1).sum()), int((target == 0).sum())
    if not positives or not negatives:
        return 0.5
    found = probabilities.double().unique()
    middle = (found[1:] + found[:-1]) / 2
    limits = torch.cat([found[:1] / 2, middle, (1 + found[-1:]) / 2, middle.new_tensor([0.5])])
    above = torch.stack([_above(limits, probabilities[target == label]) for label in (0, 1)])
    values = _value(metric, above[1], above[0], positives, negatives)
    best = (values >= values.max() - 1e-12).nonzero().squeeze(1)
    return float(limits[best[(limits[best] - 0.5).abs().argmin()]])


def _above(limits: Tensor, probabilities: Tensor) -> Tensor:
    """How many probabilities are above each limit."""
    ordered = probabilities.double().sort().values
    return (len(ordered) - torch.searchsorted(ordered, limits, right=True)).double()


def _value(metric: Decision, true: Tensor, false: Tensor, positives: int, negatives: int) -> Tensor:
    """The metric from the numbers of rows of class 1 and of class 0 that are predicted to be of class 1."""
    if metric == "accuracy":
        return (true + negatives - false) / (positives + negatives)
    if metric == "balanced_accuracy":
        return (true / positives + 1 - false / negatives) / 2
    return 2 * true / (positives + true + false)
