"""What a run finds out before it trains, found out without training: what `--dry-run` checks."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sirgcn.data.sets import catalog
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.engine.loop import check_validation
from sirgcn.engine.network import build
from sirgcn.engine.run import Run, Settings, check_files


def rehearse(runs: Sequence[Run]) -> dict[Run, str]:
    """The runs on own tables that would fail before they train, with the reason.

    The tables are read as a run reads them, each column's once, and the network of every row is built. Nothing is
    written and nothing is downloaded; `to_download` tells of the data sets of the catalogue.
    """
    tasks: dict[tuple[str, str], Task | str] = {}
    reasons: dict[tuple[Any, ...], str | None] = {}
    for run in runs:
        if run.experiment.data != "tables":
            continue
        column = (run.experiment.name, run.column)
        if column not in tasks:
            tasks[column] = _read(run)
        task, cell = tasks[column], (*column, run.model, run.split)
        if cell not in reasons:
            reasons[cell] = task if isinstance(task, str) else _try(run, task)
    found = {run: reasons.get((run.experiment.name, run.column, run.model, run.split)) for run in runs}
    return {run: reason for run, reason in found.items() if reason is not None}


def to_download(runs: Sequence[Run], settings: Settings) -> dict[str, Path]:
    """The data sets whose files are not there, each with the folder into which a run downloads them."""
    found: dict[str, Path] = {}
    for name in dict.fromkeys(run.experiment.data for run in runs):
        layouts = () if name in ("tables", "random") else catalog.find(name).raw
        if layouts and all(raw.missing(settings.data) for raw in layouts):
            found[name] = layouts[0].at(settings.data)
    return found


def _read(run: Run) -> Task | str:
    """The task of a run's column, or the reason why there is none."""
    options = run.experiment.options_of(run.column)
    try:
        check_files(options)
        if "dropped" not in options:
            return load_tables(**options)
        place = Path(options["dropped"])
        if not place.parent.is_dir():
            raise DataError("expected a file in a folder that is there", "dropped", str(place))
        with TemporaryDirectory() as folder:
            return load_tables(**{**options, "dropped": Path(folder) / place.name})
    # Whatever it is would be the reason of the run's failure, too.
    except Exception as error:
        return str(error)


def _try(run: Run, task: Task) -> str | None:
    """Why the run's network cannot be trained on the task; None if it can."""
    experiment, model = run.experiment, run.experiment.model(run.model)
    try:
        build(experiment, model, task, experiment.column(run.column).options)
        if experiment.kind == "training":
            check_validation(task, experiment.train_for(model, run.reduced), run.split)
    except Exception as error:
        return str(error)
    return None
