"""Runs: which ones an experiment has, what tells them apart, and where they are made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment import Experiment
from sirgcn.engine.records import slug_of
from sirgcn.strict import ConfigError, check_fields


@dataclass(frozen=True, eq=False)
class Run:
    """One cell of a table and one seed."""

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
        """The number of the published split that this run uses."""
        return self.seed % self.experiment.splits

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this run from others, as `records.key_of` returns it for the run's record."""
        return self.experiment.name, self.column, self.model, self.seed, self.split, self.reduced

    @property
    def slug(self) -> str:
        """The key as the name of a folder. No other run of the experiment has the same name."""
        return slug_of(self.key)

    @property
    def config(self) -> dict[str, Any]:
        """The settings that decide the result, apart from the seed, as JSON values."""
        model = self.experiment.model(self.model)
        found: dict[str, Any] = {
            "data": self.experiment.data,
            "options": self.experiment.column(self.column).options,
            "preset": self.experiment.preset,
            "variant": self.experiment.variant,
            "model": {**model.architecture, "options": model.options, "budget": model.budget},
            **self.experiment.protocol(model, self.reduced),
        }
        return json.loads(json.dumps(found))

    @property
    def process(self) -> tuple[Any, ...]:
        """Runs for which this value is equal are made in one process."""
        return self.experiment.process_of(self.key)

    @property
    def cell(self) -> str:
        """The cell of the table, in words."""
        return f"{self.experiment.name} {self.column}, {self.model}{' (reduced)' * self.reduced}"

    def __str__(self) -> str:
        return f"{self.cell}, seed {self.seed}"


@dataclass(frozen=True)
class Settings:
    """Where and how runs are made.

    Args:
        results: the folder of the records.
        work: the folder of checkpoints and logs of unfinished runs.
        data: the data root. None means the one of `data_root`.
        threads: threads of torch in each run. None keeps torch's own number.
        device: the device that models are trained on. `find_device` checks it.
        every: seconds between checkpoints.
        deadline: the time, as `time.time` returns it, at which runs save their state and stop. None means never.

    >>> Settings("results", threads=2).file_of("zinc").as_posix()
    'results/zinc.jsonl'
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
        """The file of an experiment's records."""
        return self.file_of(experiment.name)

    def file_of(self, name: str) -> Path:
        """The file of the records of the experiment of that name."""
        return self.results / f"{name}.jsonl"

    def checkpoints_of(self, run: Run) -> Path:
        """The folder of a run's checkpoints. The run's log and lock are beside it."""
        return self.work / run.experiment.name / run.slug / "checkpoints"


def plan(
    experiment: Experiment,
    models: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    reduced: bool = False,
) -> list[Run]:
    """The runs of an experiment, seed by seed, so that an interrupted table has all its rows for the first seeds.

    None means all models, all columns, and the seeds of the experiment.

    >>> from sirgcn.engine.experiment import load
    >>> [str(run) for run in plan(load("zinc"), ["SIR-GCN", "GCN"], seeds=[0])]
    ['zinc ZINC, SIR-GCN, seed 0', 'zinc ZINC, GCN, seed 0']
    """
    cells = experiment.cells(models, columns, seeds, reduced)
    return [Run(experiment, column, row, seed, reduced) for seed, column, row in cells]


def seed_by_seed(runs: Sequence[Run]) -> list[Run]:
    """Sort the runs of several experiments as `plan` sorts those of one: one seed of every cell, then the next seed.

    An interrupted command has then made something of every experiment. The runs of a timed experiment stay together.
    """
    order = {seed: place for place, seed in enumerate(dict.fromkeys(run.seed for run in runs))}
    return sorted(runs, key=lambda run: 0 if run.experiment.is_timed else order[run.seed])


def identity_of(run: Run, data: Mapping[str, Any]) -> list[Any]:
    """Everything that decides the result of a run on a machine, as JSON values. Two runs with this in common agree.

    It has the settings of the row, the column and the protocol (`Run.config`, which includes the options of the model
    and all settings of the training or the timing), the seed, the split, and the hashes of the graphs, of the splits
    and of the schema, with the loss and the metric of the task (`describe`).

    The number of threads is left out, because it changes no more than the rounding of sums. It is recorded, and a
    training that is resumed with another number warns. The device and the versions of the libraries are left out for
    the same reason and recorded too. The scale of a table changes only how a result is shown.
    """
    return [run.config, dict(data), run.seed, run.split]
