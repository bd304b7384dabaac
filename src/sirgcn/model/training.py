"""`train`: the whole way from a task to a folder with a calibrated, evaluated model."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.splits import Part, Split
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.engine.environment import environment_of
from sirgcn.engine.loop import Watcher
from sirgcn.model.fitted import Model
from sirgcn.model.fitting import FitSettings, fit

LEAST_CALIBRATION = 20
"""The smallest number of rows that a calibration is made from."""


@dataclass(frozen=True, eq=False)
class Parts:
    """A task whose validation part is divided: one half stops and chooses, the other half calibrates.

    Args:
        task: the task, whose validation part lacks the rows of the calibration.
        calibration: the items of the calibration: graphs, or nodes or edges of the one graph.
    """

    task: Task
    calibration: Tensor

    def rows(self, part: Part) -> Tensor:
        """The labelled rows of a part, as indices into the targets."""
        return rows_of(self.task, part)

    def calibration_rows(self) -> Tensor:
        """The labelled rows of the calibration."""
        split = self.task.splits[0]
        return rows_of(replace(self.task, splits=(Split(split.train, self.calibration, split.test),)), "val")


def divide(task: Task, seed: int = 0) -> Parts:
    """Take half of the validation part of the first split for the calibration, of every class alike.

    A validation part of fewer than 40 labelled rows stays whole, and the calibration is empty.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(500), "size": [1.0, 2.0] * 250, "label": ["x", "y"] * 250})
    >>> edges = pd.DataFrame({"source": range(498), "target": range(2, 500)})
    >>> parts = divide(load_tables(nodes, edges))
    >>> len(parts.task.splits[0].val), len(parts.calibration)
    (50, 50)
    """
    split = task.splits[0]
    whole = replace(task, splits=(split,))
    if len(rows_of(whole, "val")) < 2 * LEAST_CALIBRATION or len(split.val) < 2:
        return Parts(whole, split.val.new_empty(0))
    order = split.val[torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).permutation(len(split.val)))]
    y = task.graphs.y
    if not y.is_floating_point() and len(y) > int(order.max()) and task.level == task.over.removesuffix("s"):
        # Rows of a class stand together, each second one calibrates.
        order = order[torch.sort(y[order], stable=True).indices]
    calibration, rest = order[1::2].sort().values, order[::2].sort().values
    return Parts(replace(task, splits=(Split(split.train, rest, split.test),)), calibration)


def split_ids(parts: Parts) -> dict[str, Any]:
    """The items of every part by the ids of the user's tables, as JSON values."""
    task = parts.task
    names = {"nodes": "ids", "graphs": "graph_ids", "edges": "edge_rows"}
    ids = task.details.get(names[task.over])
    split = task.splits[0]
    items = {"train": split.train, "val": split.val, "calibration": parts.calibration, "test": split.test}
    found: dict[str, Any] = {"over": task.over}
    for name, places in items.items():
        own = places.numpy() if ids is None else np.asarray(ids)[places.numpy()]
        found[name] = [_plain(value) for value in own.tolist()]
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else str(value)


class Teller(Protocol):
    """Is told what `train` does, for somebody who waits."""

    def __call__(self, text: str) -> None:
        """Called with one line."""


@dataclass(frozen=True, eq=False)
class TrainSettings:
    """How `train` works besides the fit.

    Args:
        fit: how the networks are fitted.
        controls: whether models without a graph or without contextual messages are fitted beside it.
        command: what the user typed, for the report.
        work: a folder for checkpoints; None: none are kept.
        watcher: called after every epoch.
        tell: called with a line for every step.

    >>> TrainSettings().controls
    True
    """

    fit: FitSettings = field(default_factory=FitSettings)
    controls: bool = True
    command: str = ""
    work: Path | None = None
    watcher: Watcher | None = None
    tell: Teller | None = None


def train(task: Task, settings: TrainSettings | None = None) -> Model:
    """Train a model on the first split of a task, calibrate it, and evaluate it beside simple controls.

    Half of the validation part is left for the calibration. The test part is read once, by the evaluation.

    Args:
        task: the data, as `load_tables` gives it.
        settings: how; default: the preset `good`, with controls.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> model = train(load_tables(nodes, edges), TrainSettings(FitSettings("fast"), controls=False))
    >>> sorted(model.about["split"])
    ['calibration', 'over', 'test', 'train', 'val']
    """
    settings = settings or TrainSettings()
    parts = divide(task, settings.fit.seed)
    model = fit(parts.task, settings.fit, settings.work, settings.watcher)
    about = {
        **model.about,
        "split": split_ids(parts),
        "environment": environment_of("cpu"),
        "command": settings.command,
        "data": task.describe().to_dict(),
    }
    return replace(model, about=about)
