"""`train`: the whole way from a task to a folder with a calibrated, evaluated model."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sirgcn.data.named import split_to_ids
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.engine.environment import environment_of
from sirgcn.engine.loop import Watcher
from sirgcn.model.assessing import assess
from sirgcn.model.calibration import calibrate, carve, outputs_of
from sirgcn.model.card import card, report_html
from sirgcn.model.controls import ControlSettings
from sirgcn.model.crew import Crew
from sirgcn.model.fitted import Model
from sirgcn.model.fitting import FitSettings, fit
from sirgcn.model.folder import check_place, save
from sirgcn.model.predicting import columns_of, endings, frame_text
from sirgcn.model.seen import see
from sirgcn.model.trials import Listener, Workshop


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


@dataclass(frozen=True, eq=False)
class TrainSettings:
    """How `train` works besides the fit.

    Args:
        fit: how the networks are fitted.
        controls: whether models without a graph or without contextual messages are fitted beside it.
        command: what the user typed, for the report.
        watcher: called after every epoch. If it has a method `say`, it also gets what is done, in sentences.
        work: a folder for what is unfinished; None: nothing is kept.
        crew: the ranks that share the trainings, of which this one leads; None: this process trains alone.

    >>> TrainSettings().controls
    True
    """

    fit: FitSettings = field(default_factory=FitSettings)
    controls: bool = True
    command: str = ""
    watcher: Watcher | None = None
    work: Path | None = None
    crew: Crew | None = None

    def say(self, text: str) -> None:
        """Tell the watcher, if it listens."""
        if isinstance(self.watcher, Listener):
            self.watcher.say(text)


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
    task, left, rows = _carved(task, settings)
    model = fit(left, settings.fit, settings.work, settings.watcher, settings.crew)
    model = replace(model, calibration=calibrate(model, task, rows))
    about = {
        **model.about,
        "split": split_of(task, left),
        "environment": environment_of("cpu"),
        "command": settings.command,
        "data": task.describe().to_dict(),
    }
    settings_of = {"settings": model.about.get("fit", {})}
    controls = ControlSettings(seed=settings.fit.seed) if settings.controls else None
    found = assess(model, left, rows, controls, settings.say)
    return replace(model, about=about | settings_of | ({"evaluation": found} if found else {}))


def _carved(task: Task, settings: TrainSettings) -> tuple[Task, Task, Tensor]:
    """The first split of a task, what is left of it without the rows of the calibration, and these rows."""
    task = replace(task, splits=task.splits[:1], unseen=task.unseen[:1])
    return task, *carve(task, settings.fit.seed)


def train_as_rank(task: Task, folder: Path, settings: TrainSettings, memory_bound: bool = False) -> None:
    """What every rank of a shared training does: rank 0 does what `train_into` does, and the others train with it.

    The ranks share the graphs of every batch, or own parts of the nodes of one graph; then it is told what each of
    them owns and exchanges. Only rank 0 writes. The same call goes on where it was stopped, with any number of ranks.

    Args:
        task: the data, the same on all ranks.
        folder: as in `train_into`.
        settings: as in `train_into`.
        memory_bound: whether the rows of other ranks come from one rank after another, see `sirgcn.scale.HaloGraph`.

    >>> from sirgcn.scale.launch import launch
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> settings = TrainSettings(FitSettings("fast", train={"epochs": 1, "warmup": 0}), controls=False)
    >>> with TemporaryDirectory() as parent:
    ...     given = load_tables(nodes, edges), Path(parent) / "model", settings
    ...     _ = launch(train_as_rank, 2, given, seconds=300)
    ...     (Path(parent) / "model" / "config.json").exists()
    True
    """
    crew = Crew(memory_bound)
    if crew.leads:
        train_into(task, folder, replace(settings, crew=crew))
        return
    left = _carved(task, settings)[1]
    Workshop(see(left, settings.fit.seed), crew=crew).follow()


def train_into(task: Task, folder: Path, settings: TrainSettings) -> Model:
    """Train a model as `train` does, and write it into a folder. The same call goes on where it was stopped.

    What is unfinished is kept beside the folder, in one whose name ends in `.work`, until the model is written.

    Args:
        task: the data.
        folder: a new folder, or one with a model, which is replaced when the new one is complete.
        settings: how.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model import load
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> settings = TrainSettings(FitSettings("fast"), controls=False)
    >>> with TemporaryDirectory() as parent:
    ...     model = train_into(load_tables(nodes, edges), Path(parent) / "model", settings)
    ...     load(Path(parent) / "model").problem == model.problem
    True
    """
    check_place(folder)
    work = folder.with_name(f"{folder.name}.work")
    model = train(task, replace(settings, work=work))
    save(model, folder, pages_of(model, task))
    shutil.rmtree(work, ignore_errors=True)
    return model


def pages_of(model: Model, task: Task | None = None) -> dict[str, bytes]:
    """The files of a model's folder that are for a reader.

    Args:
        model: the model.
        task: the data with the test part that is predicted; None leaves the predictions out.
    """
    pages = {"README.md": card(model).encode(), "report.html": report_html(model).encode()}
    if task is not None and len(rows_of(task, "test")):
        pages["predictions.csv"] = test_predictions(model, task).encode()
    return pages


def test_predictions(model: Model, task: Task) -> str:
    """The text of a CSV file with the predictions for the test part, beside the truth."""
    rows = rows_of(task, "test")
    columns = columns_of(model, outputs_of(model, task, rows))
    truth = task.graphs.y[rows]
    found: dict[str, Any] = {"id": names_of_rows(task, rows)}
    if model.problem.sort == "classes":
        found["truth"] = [model.problem.classes[place] for place in truth.tolist()]
    else:
        every = truth.unsqueeze(1) if truth.dim() == 1 else truth
        found |= {f"truth{ending}": every[:, place].numpy() for place, ending in enumerate(endings(model))}
    return frame_text(pd.DataFrame(found | columns))


def names_of_rows(task: Task, rows: Tensor) -> Any:
    """The id of each row of the targets: of its node or graph, or the row of its edge in the table of edges."""
    ids = task.details.get({"node": "ids", "graph": "graph_ids", "edge": "edge_rows"}[task.level])
    return rows.numpy() if ids is None else np.asarray(ids)[rows.numpy()]
