"""Calibration: probabilities that mean what they say, sets and intervals that cover, thresholds that decide.

All of it is fitted on rows that neither trained the model nor stopped or chose it. It belongs to the model.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.conformal import Scores
from sirgcn.model.problem import Sort
from sirgcn.model.temperature import fit_temperature
from sirgcn.model.thresholds import DECISIONS, Decision, fit_threshold
from sirgcn.strict import ConfigError, Count, check_fields, check_name, checked, from_dict

if TYPE_CHECKING:
    from sirgcn.model.fitted import Model

FEWEST = 19
"""The fewest rows that a calibration is fitted on: a set or an interval of level 95 % needs so many."""

MOST = 10_000
"""The most rows that are taken from a validation part; more of them would not change a calibration that is shown."""


@dataclass(frozen=True)
class Calibration:
    r"""What turns the outputs of a model into probabilities, sets, intervals and decisions.

    - Probabilities are :math:`\mathrm{softmax}(z / T)` of classes and :math:`s(z / T)` of labels, T the temperature.
    - The set of a level holds all classes whose probability is at least :math:`1 - q`, and the interval is
      :math:`\hat{y} \pm q`. q is the :math:`\lceil (n + 1) \cdot \text{level} \rceil`-th smallest of n scores. The
      score of a row is 1 minus the probability of its class, or the distance of its number from the prediction.

    On new rows of the same kind, a set holds the class, or an interval the number, with at least that probability.

    Args:
        sort: whether targets are classes, labels or numbers.
        outputs: how many classes, labels or numbers a row has.
        rows: how many rows it was fitted on; 0 if there were too few, and then there are no sets and no intervals.
        temperatures: one for classes, one for each label, none for numbers.
        scores: one entry for classes, one for each label or number.
        thresholds: for each metric, the probability above which class 1 is predicted: one of two classes, one for
            each label.
        decision: the metric whose threshold decides; None predicts what is most probable.

    >>> calibration = Calibration("classes", 3, temperatures=(2.0,))
    >>> calibration.probabilities(torch.tensor([[0.0, 2.0, 4.0]])).argmax().item()
    2
    >>> Calibration.from_dict(calibration.to_dict()) == calibration
    True
    """

    sort: Sort
    outputs: Count
    rows: Count = 0
    temperatures: tuple[float, ...] = ()
    scores: tuple[Scores, ...] = ()
    thresholds: Mapping[str, tuple[float, ...]] | None = None
    decision: Decision | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check(self)

    @property
    def has_sets(self) -> bool:
        """Whether there were enough rows for sets or intervals."""
        return bool(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "calibration") -> "Calibration":
        """A calibration from what `to_dict` gave; unknown keys and wrong types are refused by name."""
        found: Calibration = from_dict(cls, data, where)
        return found

    def deciding_for(self, metric: Decision | None) -> "Calibration":
        """The calibration whose decisions maximise another metric; None predicts what is most probable.

        >>> Calibration("classes", 2, temperatures=(1.0,), thresholds={"f1": (0.3,)}).deciding_for("f1").decision
        'f1'
        """
        return replace(self, decision=metric)

    def scaled(self, outputs: Tensor) -> Tensor:
        """The logits divided by their temperatures, whose softmax or sigmoid are the probabilities."""
        self._refuse_numbers("probabilities")
        return outputs / outputs.new_tensor(self.temperatures)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """The probability of every class or label, `[rows, outputs]`, from the outputs of the model.

        >>> two = Calibration("labels", 1, temperatures=(1.0,))
        >>> two.probabilities(torch.tensor([[0.0]])).tolist()
        [[0.5]]
        """
        scaled = self.scaled(outputs)
        return scaled.softmax(1) if self.sort == "classes" else scaled.sigmoid()

    def sets(self, probabilities: Tensor, level: float = 0.9) -> Tensor:
        """Which classes are in the set of each row, bool `[rows, classes]`; for labels `[rows, labels, 2]`, 0 and 1.

        A set can be empty: the model is less sure of each class than it was of the true class in `level` of the rows of
        the calibration. It can also hold several classes.

        Args:
            probabilities: as `probabilities` gives them.
            level: the share of rows whose set holds their class.

        >>> from sirgcn.model.conformal import Scores
        >>> scores = Scores.of(torch.linspace(0.1, 0.6, 99))
        >>> calibration = Calibration("classes", 2, rows=99, temperatures=(1.0,), scores=(scores,))
        >>> calibration.sets(torch.tensor([[0.9, 0.1], [0.5, 0.5]])).tolist()
        [[True, False], [True, True]]
        """
        self._refuse_numbers("sets")
        limits = self._limits(level, probabilities)
        if self.sort == "classes":
            return 1 - probabilities <= limits
        both = torch.stack([1 - probabilities, probabilities], dim=-1)
        return 1 - both <= limits.unsqueeze(-1)

    def interval(self, numbers: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """The lower and the upper end of the interval of each number.

        Both are infinite if the calibration has too few rows for the level.

        Args:
            numbers: `[rows, targets]`, as the model gives them.
            level: the share of rows whose interval holds their number.

        >>> from sirgcn.model.conformal import Scores
        >>> calibration = Calibration("numbers", 1, rows=99, scores=(Scores.of(torch.arange(99.0)),))
        >>> [float(end) for end in calibration.interval(torch.tensor([[100.0]]))]
        [11.0, 189.0]
        """
        if self.sort != "numbers":
            raise ValueError(f"interval: expected a model of numbers, got one of {self.sort}; it has sets")
        limits = self._limits(level, numbers)
        return numbers - limits, numbers + limits

    def decide(self, probabilities: Tensor) -> Tensor:
        """The predicted class of each row, int64 `[rows]`; for labels 0 or 1, int64 `[rows, labels]`.

        >>> calibration = Calibration("classes", 2, temperatures=(1.0,), thresholds={"f1": (0.3,)}, decision="f1")
        >>> calibration.decide(torch.tensor([[0.6, 0.4], [0.8, 0.2]])).tolist()
        [1, 0]
        """
        self._refuse_numbers("decisions")
        if self.sort == "labels":
            limit = probabilities.new_tensor(self._thresholds() or (0.5,) * self.outputs)
            return (probabilities > limit).long()
        found = self._thresholds()
        if found is None:
            return probabilities.argmax(1)
        return (probabilities[:, 1] > found[0]).long()

    def _thresholds(self) -> tuple[float, ...] | None:
        return None if self.decision is None else (self.thresholds or {})[self.decision]

    def _limits(self, level: float, like: Tensor) -> Tensor:
        if not self.has_sets:
            raise ValueError(
                f"level: expected a model with calibration rows, got one without: its validation part had fewer than "
                f"{2 * FEWEST} labelled rows"
            )
        return like.new_tensor([entry.limit(level) for entry in self.scores])

    def _refuse_numbers(self, what: str) -> None:
        if self.sort == "numbers":
            raise ValueError(f"{what}: expected a model of classes or labels, got one of numbers; it has intervals")


def _check(calibration: Calibration) -> None:
    sort, outputs = calibration.sort, calibration.outputs
    for name, least in (("outputs", 1), ("rows", 0)):
        if getattr(calibration, name) < least:
            raise ConfigError(f"{name}: expected at least {least}, got {getattr(calibration, name)}")
    temperatures = {"classes": 1, "labels": outputs, "numbers": 0}[sort]
    if len(calibration.temperatures) != temperatures:
        raise ConfigError(f"temperatures: expected {temperatures}, got {len(calibration.temperatures)}")
    if not all(0 < value < math.inf for value in calibration.temperatures):
        raise ConfigError(f"temperatures: expected finite numbers above 0, got {calibration.temperatures}")
    scores = 1 if sort == "classes" else outputs
    if len(calibration.scores) not in (0, scores):
        raise ConfigError(f"scores: expected {scores} or none, got {len(calibration.scores)}")
    _check_thresholds(calibration)


def _check_thresholds(calibration: Calibration) -> None:
    size = calibration.outputs if calibration.sort == "labels" else 1
    found = calibration.thresholds or {}
    for metric, values in found.items():
        check_name("thresholds", metric, DECISIONS, exact=True)
        if len(values) != size or not all(0 <= value <= 1 for value in values):
            raise ConfigError(f"thresholds: {metric}: expected {size} numbers from 0 to 1, got {values}")
    if calibration.decision is not None and calibration.decision not in found:
        known = ", ".join(found) or "none: they are for labels and for two classes"
        raise ConfigError(f"decision: expected a metric with a threshold ({known}), got {calibration.decision!r}")


@checked
def carve(task: Task, seed: Count = 0, split: Count = 0) -> tuple[Task, Tensor]:
    """Take the calibration rows out of the validation part: the task without them, and their places in the targets.

    Half of the validation part is taken, in proportion to its classes, or to its numbers from small to large. Nothing
    is taken from a validation part of fewer than 38 labelled items, whose half could not bear a set of level 95 %. At
    most 10,000 items are taken. Where several graphs have labelled nodes or edges, whole graphs are taken.

    Args:
        task: the data.
        seed: draws the rows.
        split: the number of the task's split.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(250), "size": [1.0, 2.0] * 125, "label": ["x", "y"] * 125})
    >>> edges = pd.DataFrame({"source": range(249), "target": range(1, 250)})
    >>> task, rows = carve(load_tables(nodes, edges))
    >>> len(task.splits[0].val), len(rows)
    (25, 25)
    """
    whole = task.splits[split]
    generator = torch.Generator().manual_seed(seed)
    items = whole.val[_has_label(task, whole.val)]
    count = min(len(items) // 2, MOST)
    if count < FEWEST:
        return task, items.new_empty(0)
    items = items[torch.randperm(len(items), generator=generator)]
    items = items[_strata(task, items).argsort(stable=True)]
    # Every so many-th item, from a start that is drawn: each class gives its share.
    start = torch.rand(1, generator=generator, dtype=torch.float64)
    places = ((torch.arange(count) + start) * (len(items) / count)).long()
    taken = items[places.clamp_max(len(items) - 1)].unique()
    val = whole.val[~torch.isin(whole.val, taken)]
    of_taken = replace(task, splits=_with(task, split, Split(whole.train, taken, whole.test)))
    left = replace(task, splits=_with(task, split, Split(whole.train, val, whole.test)))
    return left, rows_of(of_taken, "val", split)


def _with(task: Task, number: int, changed: Split) -> tuple[Split, ...]:
    return tuple(changed if place == number else split for place, split in enumerate(task.splits))


def _has_label(task: Task, items: Tensor) -> Tensor:
    if task.over == "graphs" and task.level != "graph":
        return torch.ones(len(items), dtype=torch.bool)
    y = task.graphs.y[items]
    if not y.is_floating_point():
        return y >= 0
    known = ~torch.isnan(y)
    return known if known.dim() == 1 else known.any(1)


def _strata(task: Task, items: Tensor) -> Tensor:
    """A number for each item; items with near numbers are alike. Several targets count with the first of them."""
    if task.over == "graphs" and task.level != "graph":
        return torch.zeros(len(items))
    y = task.graphs.y[items]
    if y.dim() == 2:
        y = y[:, 0]
    return y.nan_to_num(-1.0) if y.is_floating_point() else y


def calibrate(model: "Model", task: Task, rows: Tensor) -> Calibration:
    """Fit the calibration of a model on rows that did not train it, stop it or choose it.

    Args:
        model: the trained model.
        task: the data.
        rows: the places of the rows in the targets of the task, as `carve` gives them; none gives a calibration that
            changes nothing and has no sets.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(250), "size": [1.0, 2.0] * 125, "label": ["x", "y"] * 125})
    >>> edges = pd.DataFrame({"source": range(249), "target": range(1, 250)})
    >>> from sirgcn.engine.network import default_config
    >>> from sirgcn.model import Member, Model, Problem
    >>> from sirgcn.nn import build_net
    >>> task, rows = carve(load_tables(nodes, edges))
    >>> config = default_config(task)
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> calibrate(model, task, rows).rows
    25
    """
    problem = model.problem
    if not len(rows):
        return _without_rows(problem.sort, problem.schema.outputs)
    return calibrate_outputs(problem.sort, outputs_of(model, task, rows), task.graphs.y[rows])


@checked
def calibrate_outputs(sort: Sort, outputs: Tensor, target: Tensor) -> Calibration:
    """Fit a calibration on outputs and targets.

    Args:
        sort: whether targets are classes, labels or numbers.
        outputs: `[rows, outputs]`: logits, or numbers in the units of the targets.
        target: `[rows]` or `[rows, outputs]`, all of them labels but those that are NaN.

    >>> calibrate_outputs("numbers", torch.zeros(99, 1), torch.arange(99.0)).scores[0].limit(0.5)
    49.0
    """
    outputs = outputs.double()
    if sort == "numbers":
        errors = (outputs - _columns(target)).abs()
        return Calibration(sort, outputs.size(1), len(outputs), scores=tuple(map(Scores.of, errors.T)))
    if sort == "classes":
        return _of_classes(outputs, target)
    return _of_labels(outputs, _columns(target))


def _without_rows(sort: Sort, outputs: int) -> Calibration:
    return Calibration(sort, outputs, temperatures=(1.0,) * {"classes": 1, "labels": outputs, "numbers": 0}[sort])


def _of_classes(outputs: Tensor, target: Tensor) -> Calibration:
    temperature = fit_temperature(outputs, target)
    probabilities = (outputs / temperature).softmax(1)
    scores = Scores.of(1 - probabilities.gather(1, target.unsqueeze(1)).squeeze(1))
    thresholds: dict[str, tuple[float, ...]] | None = None
    if outputs.size(1) == 2:
        thresholds = {str(metric): (fit_threshold(probabilities[:, 1], target, metric),) for metric in DECISIONS}
    return Calibration("classes", outputs.size(1), len(outputs), (temperature,), (scores,), thresholds)


def _of_labels(outputs: Tensor, target: Tensor) -> Calibration:
    temperatures, scores = [], []
    thresholds: dict[str, list[float]] = {metric: [] for metric in DECISIONS}
    for output, column in zip(outputs.T, target.T, strict=True):
        known = ~torch.isnan(column)
        label = column[known].long()
        temperatures.append(fit_temperature(output[known], label))
        share = (output[known] / temperatures[-1]).sigmoid()
        scores.append(Scores.of(torch.where(label == 1, 1 - share, share)))
        for metric in DECISIONS:
            thresholds[metric].append(fit_threshold(share, label, metric))
    chosen = {metric: tuple(values) for metric, values in thresholds.items()}
    return Calibration("labels", outputs.size(1), len(outputs), tuple(temperatures), tuple(scores), chosen)


def _columns(target: Tensor) -> Tensor:
    return target.double().unsqueeze(1) if target.dim() == 1 else target.double()


def outputs_of(model: "Model", task: Task, rows: Tensor) -> Tensor:
    """The outputs of a model for some rows of the targets. Only the graphs that these rows are in are computed.

    >>> from sirgcn.data import load
    >>> from sirgcn.engine.network import default_config
    >>> from sirgcn.model import Member, Model, Problem
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> config = default_config(task)
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> outputs_of(model, task, torch.tensor([3, 4])).shape
    torch.Size([2, 1])
    """
    graphs = task.graphs
    if graphs.num_graphs == 1:
        return model.outputs(graphs)[rows]
    if task.level == "graph":
        return model.outputs(graphs.select(rows))
    pointer = graphs.pointers()[0 if task.level == "node" else 1]
    graph = torch.searchsorted(pointer, rows, right=True) - 1
    needed, place = graph.unique(return_inverse=True)
    sizes = pointer.diff()[needed]
    first = sizes.cumsum(0) - sizes
    return model.outputs(graphs.select(needed))[first[place] + rows - pointer[graph]]
