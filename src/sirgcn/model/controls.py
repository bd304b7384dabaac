"""Does the graph help? Quick models beside the trained one, on the same rows and measured in the same way.

A control knows less than the model: nothing, the row's own columns, or simple sums over the neighbours. Their scores
and the intervals of the differences say what the graph adds, and what the network adds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from sirgcn.data.metrics import METRICS
from sirgcn.data.molecules import has_rdkit
from sirgcn.data.task import Task
from sirgcn.engine.controls import boosting, boosting_on, rows_of
from sirgcn.model.bootstrap import Score, interval, resampled, score_of
from sirgcn.model.calibration import calibrate_outputs
from sirgcn.model.evaluation import groups_of, plain, sample_scores
from sirgcn.model.plain_models import fingerprints, linear, majority, network
from sirgcn.model.problem import Problem
from sirgcn.strict import Count, check_fields, check_name

Sees = Literal["nothing", "columns", "graph"]
"""What a control knows: the targets alone, the columns of the row itself, or the graph too."""

Sampled = Mapping[str, tuple[float, Tensor]]
"""Each metric with its value in each draw of the rows."""

MOST_COLUMNS = 100
"""The most columns of a row that boosting reads, before those of its neighbours; the training rows choose them."""

SECONDS = 60.0
"""About how long all controls together may take."""

_TREES = {"max_iter": 200, "early_stopping": False}


@dataclass(frozen=True)
class Difference:
    """By how much the model is better than a control: positive where the model is better, whatever the metric.

    Args:
        gain: the difference, in the units of the metric.
        low: the lower end of its interval of level 95 %, from paired draws of the same rows.
        high: the upper end.

    >>> Difference(0.04, 0.01, 0.07).low > 0
    True
    """

    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class ControlResult:
    """A control on the rows of a part.

    Args:
        name: its key in `CONTROLS`.
        title: its name for a reader.
        sees: what it knows.
        seconds: how long it took.
        validation: the metric of the task on the validation part, by which the best control is chosen.
        scores: each metric with its interval.
        differences: for each metric, by how much the model is better.
        note: why there are no scores, or why they could be better; empty otherwise.

    >>> ControlResult("majority", "Most frequent class", "nothing").to_dict()["sees"]
    'nothing'
    """

    name: str
    title: str
    sees: Sees
    seconds: float = 0.0
    validation: float | None = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    differences: Mapping[str, Difference] = field(default_factory=dict)
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with None for a number that is not finite."""
        found: dict[str, Any] = plain(asdict(self))
        return found


@dataclass(frozen=True)
class Control:
    """An entry of `CONTROLS`.

    Args:
        title: its name for a reader.
        sees: what it knows.
        fit: the function from the task, the split, the seed, the seconds and SMILES to an output for every row.
        suits: whether it can be made for a task.

    >>> CONTROLS["gcn"].sees
    'graph'
    """

    title: str
    sees: Sees
    fit: Callable[["Asked"], Tensor]
    suits: Callable[["Asked"], bool] = lambda asked: True


@dataclass(frozen=True, eq=False)
class Asked:
    """What a control is fitted on.

    Args:
        task: the data; its test part is not read.
        split: the number of the task's split.
        seed: the seed of all draws.
        seconds: about how long it may take.
        smiles: the molecules of the rows, if they are molecules.
        notes: what a reader should know about the control, which `fit` adds.

    >>> from sirgcn.data import load
    >>> Asked(load("hetero_edge_count", c=2, num_graphs=10)).seconds
    10.0
    """

    task: Task
    split: int = 0
    seed: int = 0
    seconds: float = 10.0
    smiles: Sequence[str] | None = None
    notes: list[str] = field(default_factory=list)


def _boosted(asked: Asked, neighbours: bool) -> Tensor:
    return boosting(
        asked.task,
        asked.split,
        asked.seed,
        neighbours,
        max_columns=MOST_COLUMNS,
        seconds=asked.seconds,
        min_samples_leaf=_leaf(asked),
    ).outputs


def _of_fingerprints(asked: Asked) -> Tensor:
    table = fingerprints(asked.smiles or ())
    options = _TREES | {"min_samples_leaf": _leaf(asked), "random_state": asked.seed}
    return boosting_on(asked.task, table, asked.split, options, asked.seconds).outputs


def _network(asked: Asked, conv: str) -> Tensor:
    return network(asked.task, conv, asked.split, asked.seed, asked.seconds, asked.notes)


def _leaf(asked: Asked) -> int:
    """The smallest number of rows in a leaf: scikit-learn's 20, fewer where there are few rows."""
    return max(2, min(20, len(rows_of(asked.task, "train", asked.split)) // 20))


def _has_edges(asked: Asked) -> bool:
    return asked.task.graphs.num_edges > 0


CONTROLS: dict[str, Control] = {
    "majority": Control("Most frequent class", "nothing", lambda asked: majority(asked.task, asked.split)),
    "linear": Control(
        "Linear model", "columns", lambda asked: linear(asked.task, asked.split, asked.seconds, MOST_COLUMNS * 20)
    ),
    "boosting": Control("Boosting", "columns", lambda asked: _boosted(asked, neighbours=False)),
    "fingerprints": Control(
        "Boosting on Morgan fingerprints",
        "columns",
        _of_fingerprints,
        lambda asked: asked.smiles is not None and asked.task.level == "graph" and has_rdkit(),
    ),
    "mlp": Control("MLP", "columns", lambda asked: _network(asked, "mlp")),
    "boosting_neighbours": Control(
        "Boosting with neighbours", "graph", lambda asked: _boosted(asked, neighbours=True), _has_edges
    ),
    "gcn": Control("GCN", "graph", lambda asked: _network(asked, "gcn"), _has_edges),
}
"""Every control by its name."""


@dataclass(frozen=True)
class ControlSettings:
    """How controls are made.

    Args:
        names: names of `CONTROLS`; None for all that suit the task.
        split: the number of the task's split.
        seed: the seed of all draws.
        seconds: about how long all controls together may take.

    >>> ControlSettings(("majority", "gcn"), seconds=20).seconds
    20.0
    """

    names: tuple[str, ...] | None = None
    split: Count = 0
    seed: Count = 0
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.names or ():
            check_name("control", name, CONTROLS, exact=True)


def run_controls(
    task: Task,
    outputs: Tensor,
    rows: Tensor,
    settings: ControlSettings | None = None,
    *,
    smiles: Sequence[str] | None = None,
    calibration_rows: Tensor | None = None,
    told: Callable[[str], None] = lambda title: None,
) -> list[ControlResult]:
    """Fit the controls that suit a task, and compare the model with each of them on some rows.

    A control that fails says so in its `note`, and the others go on.

    Args:
        task: the data that the model was fitted on. Controls learn from its training part and stop by its validation
            part, as the model did.
        outputs: the model's outputs for the rows, `[rows, outputs]`; logits divided by their temperature.
        rows: the places of the rows in the targets, such as `rows_of(task, "test")`.
        settings: which controls, and how long they may take.
        smiles: the molecules, one for each graph, if they are molecules.
        calibration_rows: the rows that the model was calibrated on; controls are calibrated on them too.
        told: called with the title of each control before it is fitted.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=40)
    >>> rows = rows_of(task, "test")
    >>> found = run_controls(task, task.graphs.y[rows].unsqueeze(1), rows, ControlSettings(("majority",)))
    >>> found[0].differences["mse"].gain > 0
    True
    """
    settings = settings or ControlSettings()
    asked = Asked(task, settings.split, settings.seed, settings.seconds, smiles)
    suited = [name for name in settings.names or CONTROLS if CONTROLS[name].suits(asked)]
    problem = Problem.of(task)
    target, groups = task.graphs.y[rows], groups_of(task, rows)
    model = sample_scores(problem, outputs.double(), target, groups=groups, seed=settings.seed)
    found, started = [], time.thread_time()
    for place, name in enumerate(suited):
        told(_title(name, problem))
        # What one of them leaves is shared by those that follow.
        left = max(1.0, settings.seconds - (time.thread_time() - started))
        share = replace(asked, seconds=left / (len(suited) - place), notes=[])
        found.append(_result(name, share, problem, model, rows, calibration_rows))
    return found


def _title(name: str, problem: Problem) -> str:
    return "Mean" if name == "majority" and problem.sort == "numbers" else CONTROLS[name].title


def _result(
    name: str, asked: Asked, problem: Problem, model: Sampled, rows: Tensor, calibration_rows: Tensor | None
) -> ControlResult:
    control, task, started = CONTROLS[name], asked.task, time.thread_time()
    title = _title(name, problem)
    try:
        every = control.fit(asked).double()
    except (ValueError, RuntimeError, MemoryError) as error:
        return ControlResult(name, title, control.sees, time.thread_time() - started, note=str(error))
    taken = time.thread_time() - started
    val = rows_of(task, "val", asked.split)
    validation = _value(problem.metric, every[val], task.graphs.y[val]) if len(val) else None
    if calibration_rows is not None and len(calibration_rows) and problem.sort != "numbers":
        calibration = calibrate_outputs(problem.sort, every[calibration_rows], task.graphs.y[calibration_rows])
        every = calibration.scaled(every)
    own = sample_scores(problem, every[rows], task.graphs.y[rows], groups=groups_of(task, rows), seed=asked.seed)
    scores = {metric: score_of(metric, *sampled) for metric, sampled in own.items()}
    differences = {metric: _difference(metric, model[metric], own[metric]) for metric in own if metric in model}
    note = "; ".join(dict.fromkeys(asked.notes))
    return ControlResult(name, title, control.sees, taken, validation, scores, differences, note)


def _value(metric: str, outputs: Tensor, target: Tensor) -> float | None:
    try:
        return METRICS[metric]([outputs], [target])
    except ValueError:
        return None


def difference(
    metric: str, model: Tensor, control: Tensor, target: Tensor, groups: Tensor | None = None, seed: int = 0
) -> Difference:
    """By how much a model is better than a control, with an interval from draws that both share.

    Args:
        metric: a name of `METRICS`.
        model: the outputs of the model.
        control: those of the control.
        target: what is true.
        groups: rows that belong together.
        seed: the seed of the draws.

    >>> import torch
    >>> target = torch.arange(100) % 2
    >>> right = torch.nn.functional.one_hot(target, 2).double()
    >>> difference("accuracy", right, torch.zeros(100, 2), target).gain
    0.5
    """
    value = METRICS[metric]
    sampled = [
        (value([outputs.double()], [target]), resampled(metric, outputs, target, groups, seed))
        for outputs in (model, control)
    ]
    return _difference(metric, *sampled)


def _difference(metric: str, model: tuple[float, Tensor], control: tuple[float, Tensor]) -> Difference:
    """The difference of two values and of their draws, of which both have the same."""
    sign = 1.0 if METRICS[metric].maximise else -1.0
    return Difference(sign * (model[0] - control[0]), *interval(sign * (model[1] - control[1])))
