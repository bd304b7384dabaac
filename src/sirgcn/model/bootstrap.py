"""Intervals of metrics by the bootstrap: how far a value might move with another test part of the same size.

A draw takes as many rows as there are, with repetition. It is kept as one weight for each row: how often it was taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from sirgcn.data.losses import align
from sirgcn.data.metrics import METRICS
from sirgcn.model.temperature import log_losses
from sirgcn.strict import Count, Size, checked

LEVEL = 0.95
"""The level of the intervals."""

_WORK = 10_000_000  # weights of rows and classes that are looked at for one metric
_AT_ONCE = 4_000_000  # numbers in one tensor of weights


@dataclass(frozen=True)
class Score:
    """A metric on some rows, with its bootstrap interval of level 95 %.

    Args:
        title: the name of the metric for a reader.
        value: the metric.
        low: the lower end of the interval.
        high: its upper end.
        maximise: whether a larger value is better.

    >>> Score("accuracy", 0.81, 0.78, 0.84, True).value
    0.81
    """

    title: str
    value: float
    low: float
    high: float
    maximise: bool


@checked
def draws_for(rows: Count, outputs: Size = 1) -> int:
    """How many draws are made: 1,000, and down to 200 where there are many rows, to 100 with many classes besides.

    >>> draws_for(1000), draws_for(100_000), draws_for(100_000, 40)
    (1000, 200, 100)
    """
    least = 200 if rows * outputs <= _WORK / 10 else 100
    return max(least, min(1000, _WORK // max(1, rows * outputs)))


@checked
def draw_weights(rows: Count, draws: Size, seed: Count = 0, groups: Tensor | None = None) -> Iterator[Tensor]:
    """Weights of the draws, float64 `[some draws, rows]`, a few draws at a time. Equal arguments give equal draws.

    Args:
        rows: how many rows there are.
        draws: how many draws are made in all.
        seed: the seed of the draws.
        groups: the group of each row, int64 `[rows]`; whole groups are drawn, such as the graphs of nodes.

    >>> [weights.sum(1).tolist() for weights in draw_weights(4, 2)]
    [[4.0, 4.0]]
    """
    place = None if groups is None else groups.unique(return_inverse=True)[1]
    units = rows if place is None else int(place.max()) + 1
    for counts in _counts(units, draws, seed).split(max(1, _AT_ONCE // max(1, rows))):
        weights = counts.double()
        yield weights if place is None else weights[:, place]


@lru_cache(maxsize=2)
def _counts(units: int, draws: int, seed: int) -> Tensor:
    """How often each unit is taken in each draw. Every metric of every model looks at the same draws, made once."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(draws, units, dtype=torch.uint8)
    for row in found:
        taken = torch.randint(units, (units,), generator=generator)
        # One unit in a billion draws is taken more than a dozen times.
        row += torch.bincount(taken, minlength=units).clamp_max(255).to(torch.uint8)
    return found


def score(metric: str, outputs: Tensor, target: Tensor, groups: Tensor | None = None, seed: int = 0) -> Score:
    """A metric with its interval.

    Args:
        metric: a name of `METRICS`.
        outputs: `[rows, outputs]`: logits or numbers.
        target: `[rows]` or `[rows, outputs]`.
        groups: see `draw_weights`.
        seed: the seed of the draws.

    >>> found = score("mae", torch.zeros(100, 1), torch.arange(100.0))
    >>> found.value, 40 < found.low < 49.5 < found.high < 60
    (49.5, True)
    """
    return score_of(metric, METRICS[metric]([outputs], [target]), resampled(metric, outputs, target, groups, seed))


def score_of(metric: str, value: float, draws: Tensor) -> Score:
    """A metric with the interval of its draws.

    >>> score_of("mae", 1.0, torch.ones(10)).high
    1.0
    """
    return Score(METRICS[metric].title, value, *interval(draws), METRICS[metric].maximise)


def interval(values: Tensor) -> tuple[float, float]:
    """The middle 95 % of values; those that are NaN do not count.

    >>> interval(torch.ones(100))
    (1.0, 1.0)
    """
    known = values[~torch.isnan(values)].double()
    if not len(known):
        return float("nan"), float("nan")
    low, high = torch.quantile(known, known.new_tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2])).tolist()
    return low, high


def resampled(metric: str, outputs: Tensor, target: Tensor, groups: Tensor | None = None, seed: int = 0) -> Tensor:
    """The values of a metric in every draw; NaN where a draw leaves it undefined. Equal rows give equal draws.

    >>> resampled("accuracy", torch.eye(4), torch.arange(4)).unique().tolist()
    [1.0]
    """
    outputs, target = outputs.double().cpu(), target.cpu()
    compute = _WEIGHTED[metric](outputs, target)
    draws = draws_for(len(target), outputs.size(1) if outputs.dim() == 2 else 1)
    return torch.cat([compute(weights) for weights in draw_weights(len(target), draws, seed, groups)])


Weighted = Callable[[Tensor], Tensor]
"""A function from weights `[draws, rows]` to a value for each draw."""


class _Decisions:
    """What is predicted and what is known, and the weights of each class."""

    def __init__(self, outputs: Tensor, target: Tensor) -> None:
        if outputs.dim() == 2 and outputs.size(1) == 1 and target.dim() == 1:
            outputs = outputs.squeeze(1)
        predicted = (outputs > 0).long() if outputs.dim() == target.dim() else outputs.argmax(-1)
        known = (target >= 0).nonzero(as_tuple=True)
        self.rows = known[0]
        self.predicted, self.known = predicted[known], target[known].long()
        classes = torch.arange(int(torch.cat([self.predicted, self.known]).max()) + 1)
        self.is_known = (self.known.unsqueeze(1) == classes).double()
        self.is_predicted = (self.predicted.unsqueeze(1) == classes).double()

    def counts(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For every draw and class: the rows of it, the rows predicted to be of it, and those of both."""
        own = weights[:, self.rows]
        return own @ self.is_known, own @ self.is_predicted, own @ (self.is_known * self.is_predicted)


def _accuracy(outputs: Tensor, target: Tensor) -> Weighted:
    found = _Decisions(outputs, target)

    def compute(weights: Tensor) -> Tensor:
        known, _, both = found.counts(weights)
        return both.sum(1) / known.sum(1)

    return compute


def _balanced_accuracy(outputs: Tensor, target: Tensor) -> Weighted:
    found = _Decisions(outputs, target)

    def compute(weights: Tensor) -> Tensor:
        known, _, both = found.counts(weights)
        return (both / known).nanmean(1)

    return compute


def _class_accuracy(outputs: Tensor, target: Tensor) -> Weighted:
    found = _Decisions(outputs, target)

    def compute(weights: Tensor) -> Tensor:
        known, predicted, both = found.counts(weights)
        return (both / known).nansum(1) / (known + predicted > 0).sum(1)

    return compute


def _f1(outputs: Tensor, target: Tensor) -> Weighted:
    found = _Decisions(outputs, target)

    def compute(weights: Tensor) -> Tensor:
        known, predicted, both = found.counts(weights)
        return (2 * both / (known + predicted)).nanmean(1)

    return compute


class _Ranking:
    """The rows of a task from the largest score to the smallest, equal scores in one step."""

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        known = labels >= 0
        rows = known.nonzero().squeeze(1)
        order = scores[known].argsort(descending=True)
        self.rows, self.is_positive = rows[order], labels[rows[order]] == 1
        ordered = scores[self.rows]
        self.last = torch.cat([ordered[1:] != ordered[:-1], torch.ones(min(len(ordered), 1), dtype=torch.bool)])

    def counts(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """For every draw and step: the positive and the negative rows down to it."""
        own = weights[:, self.rows]
        positive = (own * self.is_positive).cumsum(1)[:, self.last]
        return positive, (own * ~self.is_positive).cumsum(1)[:, self.last]

    def roc_auc(self, weights: Tensor) -> Tensor:
        positive, negative = self.counts(weights)
        risen, more = (
            torch.diff(counts, dim=1, prepend=torch.zeros(len(counts), 1)) for counts in (positive, negative)
        )
        below = negative[:, -1:] - negative + more / 2
        return (risen * below).sum(1) / (positive[:, -1] * negative[:, -1])

    def average_precision(self, weights: Tensor) -> Tensor:
        positive, negative = self.counts(weights)
        risen = _steps(positive)
        precision = (positive / (positive + negative)).nan_to_num(0.0)
        found = (risen * precision).sum(1) / positive[:, -1]
        return torch.where(negative[:, -1] > 0, found, torch.nan)


def _steps(counts: Tensor) -> Tensor:
    """How much each count is larger than the one before."""
    return torch.diff(counts, dim=1, prepend=counts.new_zeros(len(counts), 1))


def _rankings(outputs: Tensor, target: Tensor) -> list[_Ranking]:
    """One ranking for each task that has a positive and a negative label."""
    if target.dim() == 1 and outputs.dim() == 2 and outputs.size(1) > 2:
        labels = (target.unsqueeze(1) == torch.arange(outputs.size(1))).double()
        labels[target < 0] = -1
        scores = outputs.softmax(1)
    else:
        if target.dim() == 1 and outputs.dim() == 2 and outputs.size(1) == 2:
            outputs = outputs[:, 1:] - outputs[:, :1]
        scores, labels = outputs.reshape(len(target), -1), target.double().reshape(len(target), -1)
    columns = zip(scores.T, labels.nan_to_num(-1.0).T, strict=True)
    return [_Ranking(own, label) for own, label in columns if bool((label == 0).any()) and bool((label == 1).any())]


def _roc_auc(outputs: Tensor, target: Tensor) -> Weighted:
    rankings = _rankings(outputs, target)
    return lambda weights: torch.stack([ranking.roc_auc(weights) for ranking in rankings]).nanmean(0)


def _average_precision(outputs: Tensor, target: Tensor) -> Weighted:
    rankings = _rankings(outputs, target)
    return lambda weights: torch.stack([ranking.average_precision(weights) for ranking in rankings]).nanmean(0)


def _mean_of(each: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Weighted]:
    """The weighted mean of a value of every label."""

    def of(outputs: Tensor, target: Tensor) -> Weighted:
        if target.is_floating_point():
            known = (~torch.isnan(target)).nonzero(as_tuple=True)
            values = each(align(outputs, target)[known], target[known].double())
        else:
            known = (target >= 0).nonzero(as_tuple=True)
            values = each(outputs[known], target[known])
        return lambda weights: (weights[:, known[0]] @ values) / weights[:, known[0]].sum(1)

    return of


def _r2(outputs: Tensor, target: Tensor) -> Weighted:
    outputs, target = (align(outputs, target).reshape(len(target), -1), target.double().reshape(len(target), -1))

    def compute(weights: Tensor) -> Tensor:
        found = []
        for output, column in zip(outputs.T, target.T, strict=True):
            known = ~torch.isnan(column)
            # Centred on the mean of all rows, so that large numbers lose no digits.
            own, y = weights[:, known], column[known] - column[known].mean()
            squares = own @ y.square()
            spread = squares - (own @ y).square() / own.sum(1)
            error = own @ (output[known] - column[known]).square()
            found.append(torch.where(spread > 1e-9 * squares, 1 - error / spread, torch.nan))
        return torch.stack(found).nanmean(0)

    return compute


_squares = _mean_of(lambda output, target: (output - target).square())


def _rmse(outputs: Tensor, target: Tensor) -> Weighted:
    compute = _squares(outputs, target)
    return lambda weights: compute(weights).sqrt()


_WEIGHTED: dict[str, Callable[[Tensor, Tensor], Weighted]] = {
    "accuracy": _accuracy,
    "class_accuracy": _class_accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "f1": _f1,
    "roc_auc": _roc_auc,
    "average_precision": _average_precision,
    "log_loss": _mean_of(log_losses),
    "mae": _mean_of(lambda output, target: (output - target).abs()),
    "mse": _squares,
    "rmse": _rmse,
    "r2": _r2,
}
"""Every metric of `METRICS`, as a function of weights."""
