"""What the graph adds, in plain words that claim no more than the intervals support."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sirgcn.data.metrics import METRICS
from sirgcn.data.task import Task
from sirgcn.model.controls import ControlResult, Difference
from sirgcn.model.evaluation import Evaluation

FEW = 30
"""With fewer test rows, an interval from draws of them is too narrow to claim anything."""

_SHARES = ("accuracy", "class_accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")


def first_sentence(evaluation: Evaluation, controls: Sequence[ControlResult]) -> str:
    """What the graph adds over the best model without it, and what this model adds over the best simple one with it.

    Of the controls, the one with the best validation metric is compared, so that its luck on the test part does not
    choose it. Where another one did better on the test part, it is named with its difference. Only an interval of level
    95 % that does not hold 0 is called a difference.

    Args:
        evaluation: the model on the test part.
        controls: the controls on the same rows.

    >>> from sirgcn.model.bootstrap import Score
    >>> from sirgcn.model.controls import Difference
    >>> evaluation = Evaluation(500, "accuracy", {"accuracy": Score("accuracy", 0.8, 0.77, 0.83, True)})
    >>> score = {"accuracy": Score("accuracy", 0.7, 0.66, 0.74, True)}
    >>> better = {"accuracy": Difference(0.1, 0.06, 0.14)}
    >>> control = ControlResult("boosting", "Boosting", "columns", 1.0, 0.7, score, better)
    >>> first_sentence(evaluation, [control])
    'The graph adds 10.0 [6.0, 14.0] points of accuracy over the best model without it (Boosting).'
    """
    measured = [control for control in controls if evaluation.metric in control.differences]
    if not measured:
        return "No control was fitted, so nothing is known about what the graph adds."
    if evaluation.rows < FEW:
        return (
            f"There are only {evaluation.rows} test rows: too few to say whether the graph helps. "
            f"Compare the figures below with care."
        )
    metric = evaluation.metric
    sentences = []
    for words, own in (
        (_without, [control for control in measured if control.sees != "graph"]),
        (_seeing, [control for control in measured if control.sees == "graph"]),
    ):
        chosen = best_of(own, metric)
        if chosen is not None:
            sentences += [words(chosen, metric), *_luckier(own, chosen, metric)]
    return " ".join(sentences)


def best_of(controls: Sequence[ControlResult], metric: str) -> ControlResult | None:
    """The control with the best validation metric; without validation rows, the one with the best score; or None.

    >>> best_of([], "accuracy") is None
    True
    """
    better = METRICS[metric].better
    best: ControlResult | None = None
    has_validation = all(control.validation is not None for control in controls)
    for control in controls:
        if best is None or better(_value(control, metric, has_validation), _value(best, metric, has_validation)):
            best = control
    return best


def _value(control: ControlResult, metric: str, has_validation: bool) -> float:
    return control.validation if has_validation and control.validation is not None else control.scores[metric].value


def _without(control: ControlResult, metric: str) -> str:
    found = control.differences[metric]
    if found.low > 0:
        if METRICS[metric].maximise:
            return f"The graph adds {_amount(found, metric)} over the best model without it ({control.title})."
        title, amount = METRICS[metric].title, _numbers(found, metric)
        return f"The graph lowers the {title} by {amount} against the best model without it ({control.title})."
    if found.high < 0:
        return f"A model without the graph is better: {control.title}, by {_amount(_turned(found), metric)}."
    return (
        f"It cannot be told whether the graph helps: this model and the best one without the graph ({control.title}) "
        f"differ by {_amount(found, metric)}, which may be chance."
    )


def _seeing(control: ControlResult, metric: str) -> str:
    found = control.differences[metric]
    if found.low > 0:
        return f"It is better than the best simple model with the graph ({control.title}) by {_amount(found, metric)}."
    if found.high < 0:
        return f"A simple model with the graph is better: {control.title}, by {_amount(_turned(found), metric)}."
    amount = _amount(found, metric)
    return f"The best simple model with the graph ({control.title}) is about as good: it differs by {amount}."


def _turned(found: Difference) -> Difference:
    return Difference(-found.gain, -found.high, -found.low)


def _luckier(controls: Sequence[ControlResult], chosen: ControlResult, metric: str) -> list[str]:
    """The control that did best on the test part, if it is not the one that validation chose."""
    best = min(controls, key=lambda control: control.differences[metric].gain)
    found = best.differences[metric]
    if found.gain >= chosen.differences[metric].gain:
        return []
    own = "this model is better by" if found.gain > 0 else "and better than this model by"
    amount = _numbers(found if found.gain > 0 else _turned(found), metric)
    return [f"Validation chose {chosen.title}; on the test part {best.title} did best of these, {own} {amount}."]


def _amount(found: Difference, metric: str) -> str:
    """A difference with its interval and its metric. Shares are in points: hundredths of the whole."""
    unit = "points of " if metric in _SHARES else "of "
    return f"{_numbers(found, metric)} {unit}{METRICS[metric].title}"


def _numbers(found: Difference, metric: str) -> str:
    if metric in _SHARES:
        return f"{100 * found.gain:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"{found.gain:.3g} [{found.low:.3g}, {found.high:.3g}]"


def embedding_map(
    vectors: Tensor, task: Task, rows: Tensor, predicted: Sequence[Any] = (), most: int = 600, seed: int = 0
) -> Mapping[str, Any]:
    """Rows as points in a plane: the two directions in which their embeddings vary most (PCA), as plain values.

    Args:
        vectors: the embedding of each of the rows, `[rows, channels]`.
        task: the data.
        rows: the places of these rows in the targets.
        predicted: what is predicted for each of the rows; empty leaves it out.
        most: the most points.
        seed: draws them.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> found = embedding_map(torch.randn(10, 4), task, torch.arange(10))
    >>> len(found["points"]), sum(found["shares"]) <= 1
    (10, True)
    """
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    kept = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most].sort().values
    plane = torch.zeros(len(rows), 2, dtype=torch.float64)
    plane[:, : min(2, directions.size(0))] = centred @ directions[:2].T
    total = sizes.square().sum().clamp_min(1e-12)
    y = task.graphs.y[rows]
    first = y if y.dim() == 1 else y[:, 0]
    names = task.classes
    points = []
    for place in kept.tolist():
        value = float(first[place])
        true = names[int(value)] if names and not y.is_floating_point() else value
        point = {"x": float(plane[place, 0]), "y": float(plane[place, 1]), "true": true}
        if len(predicted):
            point["predicted"] = predicted[place]
        points.append(point)
    is_number = task.loss_function.targets == "numbers"
    return {"points": points, "shares": (sizes.square()[:2] / total).tolist(), "are_numbers": is_number}
