"""One run: planned, skipped when finished, made in this process, recorded."""

import json
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
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
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.network import build
from sirgcn.engine.runtime import time_growth, time_passes
from sirgcn.ops.aggregate import choose_backend
from sirgcn.strict import ConfigError

DONE, FAILED, PAUSED = "done", "failed", "paused"


@dataclass(frozen=True, eq=False)
class Run:
    """A cell of a table and a seed."""

    experiment: Experiment
    column: str
    model: str
    seed: int
    reduced: bool = False

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
        """The key as a name of a folder."""
        text = f"{self.column}-{self.model}-{self.seed}{'-reduced' if self.reduced else ''}"
        return re.sub(r"[^A-Za-z0-9.=+-]+", "_", text)

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
    if reduced and not experiment.reduced:
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
    """Those without a record of a finished run under the same settings."""
    left, found = [], dict[str, dict[tuple[Any, ...], dict[str, Any]]]()
    for run in runs:
        name = run.experiment.name
        if name not in found:
            found[name] = {records.key_of(record): record for record in records.read(settings.file(run.experiment))}
        record = found[name].get(run.key)
        if record is None or record["status"] != DONE or record["config"] != run.config:
            left.append(run)
    return left


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
        self.path, self.tell, self.begun = path, tell, False
        path.parent.mkdir(parents=True, exist_ok=True)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        if not self.begun and self.path.exists():
            kept = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[: row["epoch"]]
            self.path.write_text("".join(kept), encoding="utf-8")
        self.begun = True
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.tell("epoch", {**row, "epochs": epochs})


def execute(
    run: Run,
    settings: Settings,
    tell: Callable[[str, dict[str, Any]], None] = lambda event, detail: None,
    asked: Callable[[], bool] = lambda: False,
) -> str:
    """Make one run in this process and append its record; DONE, FAILED or PAUSED (no record, its state is saved)."""
    return execute_together([run], settings, lambda run, event, detail: tell(event, detail), asked)


def execute_together(
    runs: Sequence[Run], settings: Settings, tell: Report, asked: Callable[[], bool] = lambda: False
) -> str:
    """Make runs of the same `side_by_side`, as `execute` does one, and append a record of each."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)

    def should_stop() -> bool:
        return asked() or (settings.deadline is not None and time.time() >= settings.deadline)

    status, found = DONE, list[dict[str, Any]]()
    try:
        if runs[0].experiment.kind == "training":
            found = [_train(run, settings, partial(tell, run), should_stop) for run in runs]
        else:
            found = _timed(runs, settings, should_stop)
    except Interrupted:
        return PAUSED
    except Exception as error:
        status = FAILED
        found = [{"status": FAILED, "error": str(error), "traceback": traceback.format_exc()}] * len(runs)
    for run, fields in zip(runs, found, strict=True):
        record = header(run) | fields
        records.append(settings.file(run.experiment), record)
        if status == DONE:
            Checkpoints(_folder(run, settings)).clear()
        tell(run, status, record)
    return status


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


def check_files(options: Mapping[str, Any]) -> None:
    """Refuse options of own tables with a file that is not there."""
    for part in ("nodes", "edges", "graphs"):
        if part in options and not Path(str(options[part])).exists():
            raise DataError("expected a file, there is none of this name", part, str(options[part]))


def load_data(run: Run, settings: Settings) -> Task:
    """The data of a run; those that are drawn anew for each seed are drawn by the run's."""
    options = run.experiment.options_of(run.column)
    seed = run.seed if run.experiment.redraw else 0
    if run.experiment.data == "tables":
        return load_tables(seed=seed, **options)
    return catalog.load(run.experiment.data, settings.data, seed=seed, **options)


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
    return [fields | {"environment": where} for fields in found]


def _environment(device: str) -> dict[str, Any]:
    return environment() | {
        "git": commit(),
        "device": device,
        "backend": choose_backend(None, torch.device(device)),
        "threads": torch.get_num_threads(),
    }


def _train(
    run: Run, settings: Settings, tell: Callable[[str, dict[str, Any]], None], should_stop: Callable[[], bool]
) -> dict[str, Any]:
    experiment, model = run.experiment, run.experiment.model(run.model)
    folder, task = _folder(run, settings), load_data(run, settings)
    data = {"name": task.name, "version": task.version, "sha256": task.graphs.sha256()}
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
        # Six digits are enough for a curve; the metrics and the hash of the weights are exact.
        "history": [
            {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()} for row in outcome.history
        ],
    }
