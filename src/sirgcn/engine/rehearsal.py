"""The checks of `--dry-run`: what a run finds out before it trains, without the training."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.engine.experiment import TABLES
from sirgcn.engine.inputs import check_files
from sirgcn.engine.network import build
from sirgcn.engine.plan import Run


def rehearse(runs: Sequence[Run]) -> dict[Run, str]:
    """The runs on the user's own tables that would fail before they train, with the reason.

    The tables of each column are read once, as a run reads them, and the network of every row is built. Nothing is
    written and nothing is downloaded. For the data sets of the catalogue, see `to_download`.
    """
    tasks: dict[tuple[str, str], Task | str] = {}
    reasons: dict[tuple[Any, ...], str | None] = {}
    failing: dict[Run, str] = {}
    for run in runs:
        if run.experiment.data != TABLES:
            continue
        column = (run.experiment.name, run.column)
        if column not in tasks:
            tasks[column] = _read(run)
        cell = (*column, run.model, run.split)
        if cell not in reasons:
            reasons[cell] = _why_not(run, tasks[column])
        if (reason := reasons[cell]) is not None:
            failing[run] = reason
    return failing


def _read(run: Run) -> Task | str:
    """The task of a run's column, or the reason why there is none."""
    options = run.experiment.options_of(run.column)
    try:
        check_files(options)
        if "dropped" not in options:
            return load_tables(**options)
        place = Path(options["dropped"])
        if not place.parent.is_dir():
            raise DataError("expected a file in a folder that exists", "dropped", str(place))
        with TemporaryDirectory() as folder:
            return load_tables(**{**options, "dropped": Path(folder) / place.name})
    # Any error at all: the run would fail with the same one.
    except Exception as error:
        return str(error)


def _why_not(run: Run, task: Task | str) -> str | None:
    """Why the run's network cannot be trained on the task; None if it can. A task that is a text is a reason."""
    if isinstance(task, str):
        return task
    experiment, model = run.experiment, run.experiment.model(run.model)
    try:
        build(experiment, model, task, experiment.column(run.column).options)
        experiment.check_task(model, task, run.split, run.reduced)
    # Any error at all: the run would fail with the same one.
    except Exception as error:
        return str(error)
    return None
