"""The data of runs: reading them, describing them for a record, and finding out whether they are available."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sirgcn.data.sets import catalog
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.engine.experiment import TABLES
from sirgcn.engine.loop import splits_sha256
from sirgcn.engine.plan import Run, Settings

FILES = ("nodes", "edges", "graphs")
"""The options of the user's own tables that are files to read."""


def load_data(run: Run, settings: Settings, is_writing: bool = True) -> Task:
    """The data of a run. Data that are drawn anew for each seed are drawn with the seed of the run.

    With `is_writing=False`, no files are downloaded and the list of rows that were left out is not written.
    """
    options = run.experiment.options_of(run.column)
    seed = run.seed if run.experiment.redraw else 0
    if run.experiment.data != TABLES:
        return catalog.load(run.experiment.data, settings.data, seed=seed, download=is_writing, **options)
    with TemporaryDirectory() as folder:
        elsewhere = {} if is_writing or "dropped" not in options else {"dropped": Path(folder) / "dropped.csv"}
        return load_tables(seed=seed, **{**options, **elsewhere})


def describe(task: Task, run: Run) -> dict[str, Any]:
    """What the record of a run says about its data: their hashes, the loss and the metric, and how they were made."""
    found = {
        "name": task.name,
        "version": task.version,
        "sha256": task.graphs.sha256(),
        "splits_sha256": splits_sha256(task),
        "loss": task.loss,
        "metric": task.metric,
        "redraw": run.experiment.redraw,
    }
    options = run.experiment.options_of(run.column)
    if run.experiment.data == TABLES:
        # The graphs and splits drawn from the files differ from seed to seed. The files tell whether the source is the
        # same.
        digests = [hashlib.sha256(Path(options[part]).read_bytes()).hexdigest() for part in FILES if part in options]
        found["files_sha256"] = hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return found


class CurrentData:
    """The descriptions of the data of runs as the data are now. Each data set is read once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._known: dict[str, dict[str, Any] | str] = {}

    def of(self, run: Run) -> dict[str, Any] | str:
        """The description of the data of a run, or the reason why they cannot be read. Nothing is downloaded."""
        experiment = run.experiment
        place = [experiment.data, experiment.options_of(run.column), experiment.redraw, run.seed * experiment.redraw]
        key = json.dumps(place, default=str)
        if key not in self._known:
            try:
                self._known[key] = describe(load_data(run, self.settings, is_writing=False), run)
            # Any error at all: a run on these data would end with the same one.
            except Exception as error:
                self._known[key] = str(error)
        return self._known[key]


def without_data(runs: Sequence[Run], settings: Settings) -> dict[Run, str]:
    """The runs whose data are not available, with the reason. Missing files are downloaded first, once."""
    reasons: dict[tuple[str, ...], str | None] = {}
    found: dict[Run, str] = {}
    for run in runs:
        data = run.experiment.data
        place = (data, run.experiment.name, run.column) if data == TABLES else (data,)
        if place not in reasons:
            reasons[place] = _why_not_fetched(run, settings)
        if (reason := reasons[place]) is not None:
            found[run] = reason
    return found


def _why_not_fetched(run: Run, settings: Settings) -> str | None:
    """Download the missing files of a run's data. Returns the reason if that fails, and None if it succeeds."""
    name = run.experiment.data
    try:
        if name == TABLES:
            check_files(run.experiment.options_of(run.column))
        elif not run.experiment.draws_graphs and catalog.find(name).raw:
            catalog.fetch(name, settings.data)
    except DataError as error:
        return str(error)
    return None


def check_files(options: Mapping[str, Any]) -> None:
    """Refuse options of the user's own tables that name a file which does not exist."""
    for part in FILES:
        if part in options and not Path(str(options[part])).exists():
            raise DataError("expected a file, there is none of this name", part, str(options[part]))


def to_download(runs: Sequence[Run], settings: Settings) -> dict[str, Path]:
    """The data sets whose files are missing, each with the folder into which a run downloads them."""
    found: dict[str, Path] = {}
    for run in runs:
        name = run.experiment.data
        if name in found or name == TABLES or run.experiment.draws_graphs:
            continue
        layouts = catalog.find(name).raw
        if layouts and all(raw.missing(settings.data) for raw in layouts):
            found[name] = layouts[0].at(settings.data)
    return found
