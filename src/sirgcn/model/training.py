"""`train`: the whole way from a task to a folder with a calibrated, evaluated model."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from sirgcn.data.named import split_to_ids
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.engine.environment import environment_of
from sirgcn.engine.loop import Watcher
from sirgcn.model.calibration import calibrate, carve
from sirgcn.model.fitted import Model
from sirgcn.model.fitting import FitSettings, fit


def split_of(task: Task, left: Task) -> dict[str, Any]:
    """The items of every part by the ids of the user's tables, as JSON values.

    Args:
        task: the data.
        left: the same without the rows of the calibration, as `carve` gives it.
    """
    whole, rest = task.splits[0], left.splits[0]
    taken = whole.val[~torch.isin(whole.val, rest.val)]
    found = split_to_ids(left)
    of_taken = replace(left, splits=(Split(whole.train, taken, whole.test),))
    return found | {"calibration": split_to_ids(of_taken)["val"]}


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
    ['by', 'calibration', 'inductive', 'of', 'test', 'train', 'val']
    """
    settings = settings or TrainSettings()
    task = replace(task, splits=task.splits[:1], unseen=task.unseen[:1])
    left, rows = carve(task, settings.fit.seed)
    model = fit(left, settings.fit, settings.work, settings.watcher)
    model = replace(model, calibration=calibrate(model, task, rows))
    about = {
        **model.about,
        "split": split_of(task, left),
        "environment": environment_of("cpu"),
        "command": settings.command,
        "data": task.describe().to_dict(),
    }
    return replace(model, about=about)
