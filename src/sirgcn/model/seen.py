"""The task as a fit sees it: without its test part, with scaled targets, and with rows to choose by."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
from torch import Tensor

from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.scaling import Scaling

CARVED = 0.15
"""The share of the training items that choose, where a task has no validation part."""

LEAST = 40
"""With fewer training items than this none are set aside, and the number of epochs is fixed."""


class SeenTask(Task):
    """A task whose targets may be scaled, and whose metric is in the units of the targets all the same.

    Rows that the metric cannot measure, such as those of a single class, have the value NaN.
    """

    @property
    def metric_function(self) -> Metric:
        """The metric of the name, in the units of the targets."""
        metric = METRICS[self.metric]
        return replace(metric, compute=partial(_measured, metric.compute, self.details.get("scaling")))


@dataclass(frozen=True, eq=False)
class Seen:
    """What a fit sees of a task.

    Args:
        task: the task, without test rows and with scaled targets.
        scaling: how they are scaled; None for classes and labels.
        notes: what was decided about the rows, in words.
    """

    task: Task
    scaling: Scaling | None
    notes: tuple[str, ...] = ()

    @property
    def has_validation(self) -> bool:
        """Whether there are rows to choose and to stop by."""
        return self.task.num_batches("val") > 0

    def can_measure(self) -> bool:
        """Whether the metric has a value on the validation rows."""
        target = self.task.graphs.y[rows_of(self.task, "val")]
        outputs = torch.zeros(len(target), self.task.schema.outputs)
        return math.isfinite(self.task.metric_function([outputs], [target]))


def see(task: Task, seed: int = 0) -> Seen:
    """The first split of a task as a fit sees it. Where it has no validation part, one is set aside from training.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=100)
    >>> seen = see(task)
    >>> seen.task.num_batches("test"), seen.has_validation, bool(seen.task.graphs.y.nanmean().abs() < 1)
    (0, True, True)
    """
    notes: tuple[str, ...] = ()
    if not task.num_batches("val"):
        task, notes = _with_validation(task, seed)
    scaling = Scaling.of(task)
    known = task.without_test(0)
    if scaling is not None:
        known = scaling.apply(known)
    values = {entry.name: getattr(known, entry.name) for entry in fields(Task) if entry.init}
    values |= {"splits": known.splits[:1], "details": known.details | {"scaling": scaling}}
    return Seen(SeenTask(**values), scaling, notes)


def _with_validation(task: Task, seed: int) -> tuple[Task, tuple[str, ...]]:
    split = task.splits[0]
    count = len(split.train)
    if count < LEAST:
        return task, (
            f"no validation part, and {count} training {task.over} are too few to set some aside: "
            f"the number of epochs is fixed, and nothing is chosen",
        )
    drawn = Split.draw(_items(task), seed, (1 - CARVED, CARVED, 0.0), _strata(task))
    note = f"no validation part: {len(drawn.val)} of the {count} training {task.over} choose and stop in its place"
    return replace(task, splits=(Split(drawn.train, drawn.val, split.test),)), (note,)


def _items(task: Task) -> int:
    graphs = task.graphs
    return {"graphs": graphs.num_graphs, "nodes": graphs.num_nodes, "edges": graphs.num_edges}[task.over]


def _strata(task: Task) -> Tensor:
    """The class of every training item, or 0 where items have none; -1 for items outside the training part."""
    strata = torch.full((_items(task),), -1)
    train, y = task.splits[0].train, task.graphs.y
    has_classes = not y.is_floating_point() and len(y) == len(strata)
    strata[train] = y[train] if has_classes else 0
    return strata


def _measured(
    compute: Callable[[Tensor, Tensor], float], scaling: Scaling | None, output: Tensor, target: Tensor
) -> float:
    if scaling is not None:
        output, target = scaling.back(output), scaling.back(target)
    try:
        return compute(output, target)
    except ValueError:
        return math.nan
