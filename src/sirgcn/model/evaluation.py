"""What a model is worth on rows that it has not seen: metrics with intervals, where it errs, and how sure it is.

Everything here is made of plain values, which JSON can hold and the report shows.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.metrics import METRICS
from sirgcn.data.task import Task
from sirgcn.model.bootstrap import Score, resampled, score_of
from sirgcn.model.calibration import Calibration, outputs_of
from sirgcn.model.problem import Problem
from sirgcn.model.slices import slices_of
from sirgcn.strict import Count

if TYPE_CHECKING:
    from sirgcn.model.fitted import Model

OF_CLASSES = ("accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision", "log_loss")
OF_NUMBERS = ("rmse", "mae", "r2")

_DECIDED = ("accuracy", "class_accuracy", "balanced_accuracy", "f1")
_MOST_CLASSES = 30  # of a confusion matrix
_MOST_MISTAKES = 12
_MOST_POINTS = 500  # of predicted numbers against true ones
_BINS = 10  # of probabilities


@dataclass(frozen=True)
class Evaluation:
    """A model on the rows of a part.

    Args:
        rows: how many rows there are.
        metric: the metric of the task.
        scores: each metric with its interval, the metric of the task first.
        confusion: the names of the classes and how many rows of each (a row of the matrix) are predicted to be of each
            (a column); for several labels, one such matrix for each of them.
        residuals: for numbers, each target with some pairs of true and predicted, and quantiles of the errors.
        reliability: for each range of the probability of the predicted class, how often it was right.
        coverage: what sets or intervals of a level hold, and how large they are.
        slices: the model on parts of the rows: by class, degree, neighbourhood and so on.
        mistakes: the rows that are worst predicted.

    >>> Evaluation(2, "mae", {"mae": Score("mean absolute error", 1.0, 0.5, 1.5, False)}).to_dict()["rows"]
    2
    """

    rows: Count
    metric: str
    scores: Mapping[str, Score]
    confusion: Sequence[Mapping[str, Any]] = ()
    residuals: Sequence[Mapping[str, Any]] = ()
    reliability: Sequence[Mapping[str, Any]] = ()
    coverage: Mapping[str, Any] = field(default_factory=dict)
    slices: Sequence[Mapping[str, Any]] = ()
    mistakes: Sequence[Mapping[str, Any]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with None for a number that is not finite."""
        found: dict[str, Any] = plain(asdict(self))
        return found


def plain(value: Any) -> Any:
    """A value as JSON can hold it: None for a number that is not finite, lists for tuples.

    >>> plain({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def evaluate(model: "Model", task: Task, rows: Tensor, split: int = 0, level: float = 0.9, seed: int = 0) -> Evaluation:
    """Evaluate a model on labelled rows of a task. Its calibration, if it has one, makes the probabilities.

    Args:
        model: the trained model.
        task: the data.
        rows: the places of the rows in the targets of the task, such as `rows_of(task, "test")`.
        split: the split whose training rows are the known labels of the slices.
        level: the level of sets and intervals.
        seed: the seed of the bootstrap.

    >>> from sirgcn.data import load
    >>> from sirgcn.engine.controls import rows_of
    >>> from sirgcn.engine.network import default_config
    >>> from sirgcn.model import Member, Model, Problem
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=50)
    >>> config = default_config(task)
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> list(evaluate(model, task, rows_of(task, "test")).scores)
    ['mse', 'rmse', 'mae', 'r2']
    """
    calibration: Calibration | None = getattr(model, "calibration", None)
    outputs = outputs_of(model, task, rows)
    return evaluate_outputs(model.problem, outputs, task, rows, calibration, split=split, level=level, seed=seed)


def evaluate_outputs(
    problem: Problem,
    outputs: Tensor,
    task: Task,
    rows: Tensor,
    calibration: Calibration | None = None,
    *,
    split: int = 0,
    level: float = 0.9,
    seed: int = 0,
) -> Evaluation:
    """Evaluate the outputs of a model for rows of a task; see `evaluate`.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Problem
    >>> task = load("hetero_edge_count", c=2, num_graphs=5)
    >>> evaluate_outputs(Problem.of(task), torch.zeros(5, 1), task, torch.arange(5)).rows
    5
    """
    if not len(rows):
        raise ValueError("rows: expected at least one labelled row to evaluate, got none")
    target = task.graphs.y[rows]
    outputs = outputs.double()
    if calibration is not None and problem.sort != "numbers":
        outputs = calibration.scaled(outputs)
    decided = _decided(outputs, calibration)
    groups = groups_of(task, rows)
    sampled = sample_scores(problem, outputs, target, decided=decided, groups=groups, seed=seed)
    scores = {name: score_of(name, value, draws) for name, (value, draws) in sampled.items()}
    found = Evaluation(len(rows), problem.metric, scores)
    about: dict[str, Any] = {
        "coverage": _coverage(problem, outputs, target, calibration, level),
        "slices": slices_of(problem, decided, task, rows, split=split, seed=seed),
        "mistakes": _mistakes(problem, outputs, decided, task, rows),
    }
    if problem.sort == "numbers":
        about["residuals"] = _residuals(problem, outputs, target, seed)
    else:
        about["confusion"] = _confusion(problem, decided, target)
        about["reliability"] = _reliability(problem, outputs, target)
    return Evaluation(found.rows, found.metric, found.scores, **about)


def metric_names(problem: Problem) -> tuple[str, ...]:
    """The metrics of an evaluation, that of the task first.

    >>> from sirgcn.data import load
    >>> metric_names(Problem.of(load("hetero_edge_count", c=2, num_graphs=5)))
    ('mse', 'rmse', 'mae', 'r2')
    """
    others = OF_NUMBERS if problem.sort == "numbers" else OF_CLASSES
    return tuple(dict.fromkeys((problem.metric, *others)))


def sample_scores(
    problem: Problem,
    outputs: Tensor,
    target: Tensor,
    *,
    decided: Tensor | None = None,
    groups: Tensor | None = None,
    seed: int = 0,
) -> dict[str, tuple[float, Tensor]]:
    """Every metric with its value in each draw of the rows. A metric that these rows leave undefined is left out.

    Two models that are measured on the same rows have the same draws.

    Args:
        problem: what is predicted.
        outputs: logits or numbers, `[rows, outputs]`.
        target: what is true.
        decided: the outputs whose largest one is predicted, where a threshold has moved them.
        groups: rows that belong together, such as the nodes of a graph.
        seed: the seed of the bootstrap.
    """
    found = {}
    for name in metric_names(problem):
        own = decided if decided is not None and name in _DECIDED else outputs
        if _is_defined(name, own, target):
            found[name] = METRICS[name]([own], [target]), resampled(name, own, target, groups, seed)
    return found


def _is_defined(name: str, outputs: Tensor, target: Tensor) -> bool:
    """Whether the rows have what a metric needs: two classes for a ranking, some variance for R²."""
    try:
        return math.isfinite(METRICS[name]([outputs], [target]))
    except ValueError:
        return False


def groups_of(task: Task, rows: Tensor) -> Tensor | None:
    """The graph of each row, where graphs have several labelled nodes or edges; otherwise None: rows stand alone."""
    if task.over != "graphs" or task.level == "graph":
        return None
    pointer = task.graphs.pointers()[0 if task.level == "node" else 1]
    return torch.searchsorted(pointer, rows, right=True) - 1


def _decided(outputs: Tensor, calibration: Calibration | None) -> Tensor:
    """Logits whose largest one, or whose sign, is the decision: moved by the logit of the threshold."""
    if calibration is None or calibration.decision is None:
        return outputs
    limits = torch.tensor((calibration.thresholds or {})[calibration.decision], dtype=outputs.dtype)
    shift = limits.clamp(1e-12, 1 - 1e-12).logit()
    if calibration.sort == "labels":
        return outputs - shift
    return outputs - torch.stack([torch.zeros_like(shift[0]), shift[0]])


def _confusion(problem: Problem, decided: Tensor, target: Tensor) -> list[dict[str, Any]]:
    if problem.sort == "classes":
        classes = problem.classes
        if len(classes) > _MOST_CLASSES:
            return []
        return [_matrix("", classes, target, decided.argmax(1))]
    target = target.reshape(len(target), -1)
    found = []
    for name, column, output in zip(problem.targets, target.T, decided.T, strict=True):
        known = ~torch.isnan(column)
        found.append(_matrix(name, ("0", "1"), column[known].long(), (output[known] > 0).long()))
    return found[:_MOST_CLASSES]


def _matrix(name: str, classes: Sequence[str], known: Tensor, predicted: Tensor) -> dict[str, Any]:
    counts = torch.bincount(known * len(classes) + predicted, minlength=len(classes) ** 2)
    return {"target": name, "classes": list(classes), "counts": counts.reshape(len(classes), -1).tolist()}


def _residuals(problem: Problem, outputs: Tensor, target: Tensor, seed: int) -> list[dict[str, Any]]:
    target = target.double().reshape(len(target), -1)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name, column, output in zip(problem.targets, target.T, outputs.T, strict=True):
        known = (~torch.isnan(column)).nonzero().squeeze(1)
        if not len(known):
            continue
        shown = known[torch.randperm(len(known), generator=generator)[:_MOST_POINTS]]
        errors = (output - column)[known]
        shares = (0.05, 0.25, 0.5, 0.75, 0.95)
        quantiles = torch.quantile(errors[:1_000_000], errors.new_tensor(shares)).tolist()
        counts, edges = np.histogram(errors.numpy(), bins=min(30, max(5, len(errors) // 5)))
        found.append(
            {
                "target": name,
                "points": torch.stack([column[shown], output[shown]], dim=1).tolist(),
                "quantiles": dict(zip(map(str, shares), quantiles, strict=True)),
                "counts": counts.tolist(),
                "edges": edges.tolist(),
            }
        )
    return found


def sureness(problem: Problem, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The probability of what is predicted, and whether it is right, for every label that is known.

    >>> from sirgcn.data import Schema
    >>> problem = Problem("a", "node", "classes", ("y",), ("n", "y"), "cross_entropy", "accuracy", Schema(outputs=2))
    >>> share, is_right = sureness(problem, torch.zeros(1, 2), torch.tensor([1]))
    >>> share.tolist(), is_right.tolist()
    ([0.5], [False])
    """
    if problem.sort == "classes":
        share, predicted = outputs.softmax(1).max(1)
        return share, predicted == target
    target = target.reshape(len(target), -1)
    known = ~torch.isnan(target)
    share = outputs.sigmoid()[known]
    return torch.maximum(share, 1 - share), (share > 0.5) == (target[known] == 1)


def _reliability(problem: Problem, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
    """Rows in ranges of how sure the model is. Two classes and labels begin at one half."""
    share, is_right = sureness(problem, outputs, target)
    place = (share * _BINS).long().clamp_max(_BINS - 1)
    found = []
    for number in range(_BINS):
        own = place == number
        if bool(own.any()):
            found.append(
                {
                    "from": number / _BINS,
                    "to": (number + 1) / _BINS,
                    "rows": int(own.sum()),
                    "probability": float(share[own].mean()),
                    "right": float(is_right[own].double().mean()),
                }
            )
    return found


def _coverage(
    problem: Problem, outputs: Tensor, target: Tensor, calibration: Calibration | None, level: float
) -> dict[str, Any]:
    """How often sets or intervals hold the truth, and how large they are."""
    if calibration is None or not calibration.has_sets:
        return {}
    if problem.sort == "numbers":
        low, high = calibration.interval(outputs, level)
        y = target.double().reshape(len(target), -1)
        known = ~torch.isnan(y)
        held, size = ((low <= y) & (y <= high))[known], (high - low)[known]
    elif problem.sort == "classes":
        sets = calibration.sets(outputs.softmax(1), level)
        held, size = sets.gather(1, target.unsqueeze(1)).squeeze(1), sets.sum(1)
    else:
        y = target.reshape(len(target), -1)
        known = ~torch.isnan(y)
        sets = calibration.sets(outputs.sigmoid(), level)
        held = sets.gather(2, y.nan_to_num().long().unsqueeze(2)).squeeze(2)[known]
        size = sets.sum(2)[known]
    return {
        "level": level,
        "held": float(held.double().mean()),
        "size": float(size.double().mean()),
        "empty": float((size == 0).double().mean()),
        "rows": calibration.rows,
    }


def _mistakes(problem: Problem, outputs: Tensor, decided: Tensor, task: Task, rows: Tensor) -> list[dict[str, Any]]:
    """The rows with the least probable label among those that are wrong, or with the largest errors."""
    target = task.graphs.y[rows]
    if problem.sort == "classes":
        share = outputs.softmax(1)
        own = share.gather(1, target.unsqueeze(1)).squeeze(1)
        predicted = decided.argmax(1)
        order = own.masked_fill(predicted == target, torch.inf).argsort()
        names = problem.classes
        count = min(int((predicted != target).sum()), _MOST_MISTAKES)
        return [
            {
                **row_name(task, int(rows[place])),
                "true": names[int(target[place])],
                "predicted": names[int(predicted[place])],
                "probability": float(share[place, predicted[place]]),
                "probability_of_true": float(own[place]),
            }
            for place in order[:count].tolist()
        ]
    y = target.double().reshape(len(target), -1)
    if problem.sort == "labels":
        error = (outputs.sigmoid() - y).abs().masked_fill((decided > 0) == (y == 1), torch.nan)
    else:
        # Targets of several scales are compared in units of their own deviation.
        spread = (y - y.nanmean(0)).square().nanmean(0).sqrt()
        error = (outputs - y).abs() / torch.where(spread > 0, spread, torch.ones_like(spread))
    worst = error.nan_to_num(-1.0).flatten().sort(descending=True)
    found = []
    for value, place in zip(worst.values[:_MOST_MISTAKES].tolist(), worst.indices.tolist(), strict=False):
        row, column = divmod(place, y.size(1))
        if value <= 0:
            break
        number = outputs.sigmoid()[row, column] if problem.sort == "labels" else outputs[row, column]
        found.append(
            {
                **row_name(task, int(rows[row])),
                "target": problem.targets[column],
                "true": float(y[row, column]),
                "predicted": float(number),
            }
        )
    return found


def row_name(task: Task, row: int) -> dict[str, Any]:
    """What a user calls a row: its place from 0 in the targets, and its id where the tables have one.

    >>> from sirgcn.data import load
    >>> row_name(load("hetero_edge_count", c=2, num_graphs=5), 3)
    {'row': 3}
    """
    ids = task.details.get({"node": "ids", "graph": "graph_ids"}.get(task.level, ""))
    if ids is None:
        return {"row": row}
    return {"row": row, "id": str(ids[row])}
