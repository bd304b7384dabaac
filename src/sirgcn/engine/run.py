"""One run: planned, skipped when finished, made in this process, recorded."""

import hashlib
import json
import re
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch

from sirgcn.data import catalog
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.engine import records
from sirgcn.engine.checkpoint import CheckpointError, Checkpoints, weights_sha256
from sirgcn.engine.checkpoint import read as read_checkpoint
from sirgcn.engine.costs import Cost, Costs
from sirgcn.engine.environment import commit, environment, peak_memory_mb
from sirgcn.engine.experiment import Experiment
from sirgcn.engine.locks import Busy, held
from sirgcn.engine.loop import Interrupted, Trainer, splits_sha256
from sirgcn.engine.network import build
from sirgcn.engine.runtime import time_growth, time_passes
from sirgcn.ops.backend import choose_backend
from sirgcn.strict import ConfigError, check_fields, read

DONE, FAILED, PAUSED, BUSY, UNRECORDED = "done", "failed", "paused", "busy", "unrecorded"

# Longer names of folders are cut; some systems take no more than 255 bytes.
_LONGEST_SLUG = 150


@dataclass(frozen=True, eq=False)
class Run:
    """A cell of a table and a seed."""

    experiment: Experiment
    column: str
    model: str
    seed: int
    reduced: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.seed < 0:
            raise ConfigError(f"seed: expected at least 0, got {self.seed}")

    @property
    def split(self) -> int:
        """Which of the published splits."""
        return self.seed % self.experiment.splits

    @property
    def key(self) -> tuple[Any, ...]:
        """As `records.key_of` gives it for the run's record."""
        return self.experiment.name, self.column, self.model, self.seed, self.split, self.reduced

    @property
    def slug(self) -> str:
        """The key as a name of a folder: no other run of the experiment has it, and it leads nowhere else."""
        text = f"{self.column}-{self.model}-{self.seed}{'-reduced' if self.reduced else ''}"
        plain = re.sub(r"[^A-Za-z0-9.=+-]+", "_", text).lstrip(".")[:_LONGEST_SLUG]
        # Then the text says where the column ends, and what it is in full.
        if plain == text and "-" not in self.column:
            return text
        return f"{plain}-{hashlib.sha256(repr(self.key).encode()).hexdigest()[:8]}"

    @property
    def config(self) -> dict[str, Any]:
        """Everything that decides the result apart from the seed, as JSON values."""
        model = self.experiment.model(self.model)
        found: dict[str, Any] = {
            "data": self.experiment.data,
            "options": self.experiment.column(self.column).options,
            "preset": self.experiment.preset,
            "variant": self.experiment.variant,
            "model": {**model.architecture, "options": model.options, "budget": model.budget},
        }
        if self.experiment.kind in ("training", "step"):
            found["train"] = asdict(self.experiment.train_for(model, self.reduced))
        if self.experiment.kind != "training":
            found["timing"] = asdict(self.experiment.timing_for(self.reduced))
            found["axes"] = [asdict(axis) for axis in self.experiment.axes]
        return json.loads(json.dumps(found))

    @property
    def side_by_side(self) -> tuple[Any, ...]:
        """Runs for which this is equal are made in one process: the rows of a column that are timed in turn."""
        return (*self.key[:2], *self.key[3:]) if self.experiment.kind in ("runtime", "step") else self.key

    @property
    def cell(self) -> str:
        """What it is a run of, in words."""
        return f"{self.experiment.name} {self.column}, {self.model}{' (reduced)' * self.reduced}"

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}"


@dataclass(frozen=True)
class Settings:
    """Where and how runs are made.

    Args:
        results: the folder of the records.
        work: the folder of checkpoints and logs of unfinished runs.
        data: the data root; None as in `data_root`.
        threads: of torch in each run; None leaves torch's own number.
        device: that models are trained on; `find_device` checks it.
        every: seconds between checkpoints.
        deadline: the time (of `time.time`) at which runs stop and save; None: never.
    """

    results: Path = Path("results")
    work: Path = Path("runs")
    data: Path | None = None
    threads: int | None = None
    device: str = "cpu"
    every: float = 60.0
    deadline: float | None = None

    def __post_init__(self) -> None:
        for name in ("results", "work", "data"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))
        check_fields(self)
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads: expected at least 1, got {self.threads}")
        # Written so that NaN is refused too.
        if not self.every >= 0:
            raise ConfigError(f"every: expected at least 0, got {self.every}")

    def file(self, experiment: Experiment) -> Path:
        """Where the experiment's records are."""
        return self.results / f"{experiment.name}.jsonl"


def plan(
    experiment: Experiment,
    models: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    reduced: bool = False,
) -> list[Run]:
    """The runs of an experiment, seed by seed, so that what is interrupted leaves whole rows of few seeds.

    None takes all models, all columns, and the seeds of the experiment.
    """
    models, columns = (
        read(tuple[str, ...] | None, asked, name) for name, asked in (("models", models), ("columns", columns))
    )
    if read(bool, reduced, "reduced") and not experiment.reduced:
        raise ConfigError(f"{experiment.name}: reduced: expected a section [reduced] that says how, got none")
    rows = [row.title for row in (experiment.models if models is None else map(experiment.model, models))]
    titles = [entry.title for entry in (experiment.columns if columns is None else map(experiment.column, columns))]
    chosen = range(experiment.seeds) if seeds is None else seeds
    # Asked for twice is made once.
    cells = dict.fromkeys((seed, column, row) for seed in chosen for column in titles for row in rows)
    return [Run(experiment, column, row, seed, reduced) for seed, column, row in cells]


def seed_by_seed(runs: Sequence[Run]) -> list[Run]:
    """Runs of several experiments in the order that `plan` gives those of one: a seed of every cell, then the next.

    What is interrupted has then something of every experiment. Those of a timed experiment stay together.
    """
    order = {seed: place for place, seed in enumerate(dict.fromkeys(run.seed for run in runs))}
    return sorted(runs, key=lambda run: order[run.seed] if run.experiment.kind == "training" else 0)


def unfinished(runs: Sequence[Run], settings: Settings) -> list[Run]:
    """Those without a record of a finished run under the same settings and on the data as they are today."""
    return list(why_unfinished(runs, settings))


def why_unfinished(runs: Sequence[Run], settings: Settings) -> dict[Run, str]:
    """The runs that are not finished, each with what has changed since it was; empty for one that never was.

    The data of runs that seem to be finished are read, and nothing is downloaded for that.
    """
    found, today = dict[str, dict[tuple[Any, ...], dict[str, Any]]](), _Today(settings)
    left: dict[Run, str] = {}
    for run in runs:
        name = run.experiment.name
        if name not in found:
            found[name] = {records.key_of(record): record for record in records.read(settings.file(run.experiment))}
        record = found[name].get(run.key)
        if record is None or record["status"] != DONE:
            left[run] = ""
        elif (reason := _what_changed(record, run, today)) is not None:
            left[run] = reason
    return left


def _what_changed(record: dict[str, Any], run: Run, today: "_Today") -> str | None:
    """What is not as it was for the record of a finished run; None if all is."""
    if record["config"] != run.config:
        return "the settings have changed"
    # A layer's growth is measured on graphs that the settings describe in full.
    if run.experiment.kind == "complexity" or not record.get("data"):
        return None
    data = today.data(run)
    if isinstance(data, str):
        return f"the data cannot be compared: {data}"
    return None if records.is_on(record, data) else "the data have changed"


class _Today:
    """What records would say of the data of runs now; each data set is read once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.known: dict[str, dict[str, Any] | str] = {}

    def data(self, run: Run) -> dict[str, Any] | str:
        """Of a run, or the reason why they cannot be read."""
        experiment = run.experiment
        place = [experiment.data, experiment.options_of(run.column), experiment.redraw, run.seed * experiment.redraw]
        key = json.dumps(place, default=str)
        if key not in self.known:
            try:
                self.known[key] = describe(load_data(run, self.settings, is_writing=False), run)
            # Whatever it is, a run on these data would end with it, too.
            except Exception as error:
                self.known[key] = str(error)
        return self.known[key]


def describe(task: Task, run: Run) -> dict[str, Any]:
    """What the record of a run says of its data: which ones exactly, and how they came about."""
    found = {
        "name": task.name,
        "version": task.version,
        "sha256": task.graphs.sha256(),
        "splits_sha256": splits_sha256(task),
        "redraw": run.experiment.redraw,
    }
    options = run.experiment.options_of(run.column)
    if run.experiment.data == "tables":
        # What is drawn from them differs from seed to seed; the files say whether the source is the same.
        digests = [hashlib.sha256(Path(options[part]).read_bytes()).hexdigest() for part in FILES if part in options]
        found["files_sha256"] = hashlib.sha256(" ".join(digests).encode()).hexdigest()
    return found


def without_data(runs: Sequence[Run], settings: Settings) -> dict[Run, str]:
    """The runs whose data cannot be had, with the reason; files that are not there are downloaded first, once."""
    reasons: dict[tuple[str, ...], str | None] = {}
    found: dict[Run, str] = {}
    for run in runs:
        data = run.experiment.data
        place = (data, run.experiment.name, run.column) if data == "tables" else (data,)
        if place not in reasons:
            try:
                _fetch(run, settings)
                reasons[place] = None
            except DataError as error:
                reasons[place] = str(error)
        if (reason := reasons[place]) is not None:
            found[run] = reason
    return found


def expected_costs(runs: Sequence[Run], settings: Settings) -> list[Cost | None]:
    """What each run will still take: as `Costs` tells it, less what a paused one has behind it; None: not known."""
    costs, found = Costs(settings.results), list[Cost | None]()
    for run in runs:
        cost = costs.find(run.experiment, run.column, run.model, run.reduced)
        if cost is not None:
            cost = replace(cost, seconds=max(0.0, cost.seconds - _seconds_behind(run, settings)))
        found.append(cost)
    return found


def _seconds_behind(run: Run, settings: Settings) -> float:
    """How long the run was trained up to its newest checkpoint."""
    newest = max(_folder(run, settings).glob("*.json"), default=None)
    if newest is None:
        return 0.0
    try:
        of, state = read_checkpoint(newest)
    except CheckpointError:
        return 0.0
    return float(state["state"]["seconds"]) if of[0] == run.config else 0.0


class Report(Protocol):
    """Is told of what happens."""

    def __call__(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        """`event` is start, epoch, done, failed or paused."""


class _Log:
    """A line of JSON per epoch in the run's folder, and the same to whoever looks on.

    A killed run is taken up some epochs before its last: the lines from there on are dropped with its first epoch.
    """

    def __init__(self, path: Path, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self.path, self.tell, self.begun, self.is_broken = path, tell, False, False
        path.parent.mkdir(parents=True, exist_ok=True)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        try:
            self._write(row)
        except OSError as error:
            # A copy for the eye: the record has the history, and hours of training do not end for a line.
            if not self.is_broken:
                warnings.warn(f"{self.path}: the log cannot be written: {error.strerror}", stacklevel=2)
            self.is_broken = True
        self.tell("epoch", {**row, "epochs": epochs})

    def _write(self, row: dict[str, Any]) -> None:
        if not self.begun and self.path.exists():
            kept = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[: row["epoch"]]
            self.path.write_text("".join(kept), encoding="utf-8")
        self.begun = True
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def execute(
    run: Run,
    settings: Settings,
    tell: Callable[[str, dict[str, Any]], None] = lambda event, detail: None,
    asked: Callable[[], bool] = lambda: False,
) -> str:
    """Make one run in this process and append its record.

    DONE, FAILED or PAUSED (no record, its state is saved); BUSY if another process is making it, and UNRECORDED if its
    record could not be written: `tell` gets who or why, and the result.
    """
    return execute_together([run], settings, lambda run, event, detail: tell(event, detail), asked)


def execute_together(
    runs: Sequence[Run], settings: Settings, tell: Report, asked: Callable[[], bool] = lambda: False
) -> str:
    """Make runs of the same `side_by_side`, as `execute` does one, and append a record of each."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)

    def should_stop() -> bool:
        return asked() or (settings.deadline is not None and time.time() >= settings.deadline)

    with ExitStack() as stack:
        try:
            for run in runs:
                stack.enter_context(held(_folder(run, settings).with_name("lock")))
        except Busy as error:
            for run in runs:
                tell(run, BUSY, {"error": f"another process is making it: {error}"})
            return BUSY
        except OSError as error:
            # Say, a full disk: nothing was trained, and the next try may find room.
            for run in runs:
                tell(run, UNRECORDED, {"error": f"{error.filename}: the run cannot begin: {error.strerror or error}"})
            return UNRECORDED
        return _execute(runs, settings, tell, should_stop)


def _execute(runs: Sequence[Run], settings: Settings, tell: Report, should_stop: Callable[[], bool]) -> str:
    """Make runs of which no other process is making one."""
    status, found = DONE, list[dict[str, Any]]()
    # Also a failed run says on which data it failed, as soon as they have been read.
    data: dict[str, Any] = {}
    try:
        if runs[0].experiment.kind == "training":
            found = [_train(run, settings, partial(tell, run), should_stop, data) for run in runs]
        else:
            found = _timed(runs, settings, should_stop)
    except Interrupted:
        return PAUSED
    except Exception as error:
        status = FAILED
        failure = {"status": FAILED, "error": str(error), "traceback": traceback.format_exc(), "data": data}
        found = [failure] * len(runs)
    outcome = []
    for run, fields in zip(runs, found, strict=True):
        kept, record = keep(run, header(run) | fields, settings)
        outcome.append(kept)
        tell(run, kept, record)
    return UNRECORDED if UNRECORDED in outcome else status


def keep(run: Run, record: dict[str, Any], settings: Settings) -> tuple[str, dict[str, Any]]:
    """Append the record of a run; its status, and what is to be told of it: where it cannot be written, that too."""
    status, file = str(record["status"]), settings.file(run.experiment)
    try:
        records.append(file, record)
    except OSError as error:
        why = f"{file}: the record cannot be written: {error.strerror or error}"
        return UNRECORDED, record | {"error": f"{why}; {record['error']}" if "error" in record else why}
    if status == DONE:
        Checkpoints(_folder(run, settings)).clear()
    return status, record


def _folder(run: Run, settings: Settings) -> Path:
    return settings.work / run.experiment.name / run.slug / "checkpoints"


def header(run: Run) -> dict[str, Any]:
    names = dict(zip(records.KEY, run.key, strict=True))
    model, experiment = run.experiment.model(run.model), run.experiment
    changes = experiment.reduced_for(model) if run.reduced else {}
    return {
        "format": records.FORMAT,
        **names,
        "table": experiment.table,
        "variant": experiment.variant,
        "conv": model.network or model.conv,
        "status": DONE,
        "reduced_why": ", ".join(f"{key} = {value}" for key, value in changes.items()),
        "config": run.config,
        "scale": experiment.scale,
        "traceback": None,
    }


def _fetch(run: Run, settings: Settings) -> None:
    """Download the files of a run's data that are not there; a DataError where they cannot be had."""
    name, options = run.experiment.data, run.experiment.options_of(run.column)
    if name == "tables":
        check_files(options)
    elif name != "random" and catalog.find(name).raw:
        catalog.fetch(name, settings.data)


FILES = ("nodes", "edges", "graphs")
"""The options of own tables that are files to read."""


def check_files(options: Mapping[str, Any]) -> None:
    """Refuse options of own tables with a file that is not there."""
    for part in FILES:
        if part in options and not Path(str(options[part])).exists():
            raise DataError("expected a file, there is none of this name", part, str(options[part]))


def load_data(run: Run, settings: Settings, is_writing: bool = True) -> Task:
    """The data of a run; those that are drawn anew for each seed are drawn by the run's.

    Unless it is writing, files are not downloaded, and rows that are left out are not written down.
    """
    options = run.experiment.options_of(run.column)
    seed = run.seed if run.experiment.redraw else 0
    if run.experiment.data == "tables":
        with TemporaryDirectory() as folder:
            elsewhere = {} if is_writing or "dropped" not in options else {"dropped": Path(folder) / "dropped.csv"}
            return load_tables(seed=seed, **{**options, **elsewhere})
    return catalog.load(run.experiment.data, settings.data, seed=seed, download=is_writing, **options)


def _timed(runs: Sequence[Run], settings: Settings, should_stop: Callable[[], bool]) -> list[dict[str, Any]]:
    first, experiment = runs[0], runs[0].experiment
    models, timing = [experiment.model(run.model) for run in runs], experiment.timing_for(first.reduced)
    torch.set_num_threads(timing.threads)
    where = _environment("cpu")  # with the load of the machine before we add to it
    if experiment.kind == "complexity":
        found = [time_growth(experiment, model, first.seed, timing, should_stop) for model in models]
    else:
        column, task = experiment.column(first.column), load_data(first, settings)
        found = time_passes(experiment, column, models, task, first.seed, timing, should_stop)
        found = [fields | {"data": describe(task, first)} for fields in found]
    return [fields | {"environment": where} for fields in found]


def _environment(device: str) -> dict[str, Any]:
    return environment() | {
        "git": commit(),
        "device": device,
        "backend": choose_backend(None, torch.device(device)),
        "threads": torch.get_num_threads(),
    }


def _train(
    run: Run,
    settings: Settings,
    tell: Callable[[str, dict[str, Any]], None],
    should_stop: Callable[[], bool],
    data: dict[str, Any],
) -> dict[str, Any]:
    """The fields of a training's record; what they say of the data stands in `data` before it begins."""
    experiment, model = run.experiment, run.experiment.model(run.model)
    folder, task = _folder(run, settings), load_data(run, settings)
    data |= describe(task, run)
    log, checkpoints = _Log(folder.with_name("log.jsonl"), tell), Checkpoints(folder, of=[run.config, data])
    torch.manual_seed(run.seed)
    network = build(experiment, model, task, experiment.column(run.column).options).to(settings.device)
    config = experiment.train_for(model, run.reduced)
    trainer = Trainer(network, task, config, run.split, run.seed, checkpoints, settings.every, should_stop, log)
    # Before hours of training: the commit whose code was loaded, and the load of the machine without ours.
    where = _environment(str(trainer.device))
    outcome = trainer.run()
    epochs = len(outcome.history)
    return {
        "metrics": outcome.metrics,
        "metric": task.metric,
        "higher_is_better": task.metric_function.maximise,
        "epochs": epochs,
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "seconds": outcome.seconds,
        "seconds_per_epoch": records.seconds_per_epoch(vars(outcome) | {"epochs": epochs}),
        "peak_memory_mb": peak_memory_mb(),
        "parameters": sum(p.numel() for p in network.parameters()),
        "weights_sha256": weights_sha256(network),
        "data": data,
        "environment": where,
        # More than one where it was taken up with another number.
        "threads": outcome.threads,
        # Six digits are enough for a curve; the metrics and the hash of the weights are exact.
        "history": [
            {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in outcome.history
        ],
    }
