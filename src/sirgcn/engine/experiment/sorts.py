"""The sorts of experiments: those that train, those that time passes over data, and those that time a growing layer.

Each sort is a class. The class knows its sections in a file, its plan, its part of a run's settings, and how its runs
are made. torch is imported by the methods that make runs, so that the report can read experiments without it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sirgcn.engine.experiment.configs import (
    AxisConfig,
    ColumnConfig,
    ModelConfig,
    TimingConfig,
    TrainConfig,
    check_at_least,
)
from sirgcn.engine.experiment.paths import with_paths
from sirgcn.engine.experiment.space import BaseConfig, SearchConfig, check_row
from sirgcn.strict import ConfigError, changed, check_fields, check_name, read

if TYPE_CHECKING:
    from sirgcn.data.task import Task
    from sirgcn.engine.plan import Run
    from sirgcn.engine.run import Execution

RANDOM = "random"
"""The name of the data of a growth experiment, which draws its graphs from its own settings."""

TABLES = "tables"
"""The name of the data of an experiment on the user's own tables."""

Entry = TypeVar("Entry", ModelConfig, ColumnConfig)


@dataclass(frozen=True)
class Experiment(ABC):
    """What fills a block of a table: rows of models, columns of data sets and one protocol.

    This class has what all sorts share. Files are read into one of its three subclasses.

    Args:
        name: the name of the files of its records and checkpoints. It is a plain name, without a folder.
        data: a name of the table of data sets, `"tables"` for the user's own tables, or `"random"`.
        models: the rows.
        columns: the columns.
        sort: the value of the key `sort` in a file, which chooses the class.
        table: the number of a table of SIR-GCN's paper, or the name of a table of another paper. None for what no paper
            has.
        preset: the arguments of `SIRNet`: the name of a preset, or `"schema"` for those that fit the data.
        variant: the variant of the layer, `"published"` for a reproduction of the paper's figures.
        seeds: the number of runs of a cell. Their seeds are 0, 1, ...
        redraw: whether the data set is drawn anew for each seed.
        splits: the number of published splits of the data. Seed s uses the split s modulo this number.
        scale: the factor from our metric to the unit of the table.
        reduced: the settings of the protocol that a reduced run changes.
        folder: the folder at which relative paths in the options of columns start. It is the folder of the file, and
            not a key of the file.
        overrides: the changes of settings that the name stands for, such as `train.lr=1e-3`. They are not a key of the
            file.

    >>> from sirgcn.engine.experiment import load
    >>> isinstance(load("zinc"), Experiment)
    True
    """

    name: str
    data: str
    models: tuple[ModelConfig, ...]
    columns: tuple[ColumnConfig, ...]
    sort: str = ""
    table: int | str | None = None
    preset: str = "schema"
    variant: Literal["corrected", "published"] = "corrected"
    seeds: int = 10
    redraw: bool = False
    splits: int = 1
    scale: float = 1.0
    reduced: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    overrides: tuple[str, ...] = ()

    is_timed = False
    """Whether the result is a time. Timed runs are made one at a time, on the CPU."""

    draws_graphs = False
    """Whether the settings alone decide the graphs, so that there are no data to read."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_file_name("name", self.name)
        check_at_least(self, 1, "seeds", "splits")
        if not math.isfinite(self.scale):
            raise ConfigError(f"scale: expected a finite number, got {self.scale}")
        if (self.data == RANDOM) != self.draws_graphs:
            raise ConfigError(f'data: expected "{RANDOM}" for the sort growth and for no other, got {self.data!r}')
        self._check_titles(self.models)
        self._check_titles(self.columns)
        for model in self.models:
            self._check_columns(model)
        self._check_rows()

    @staticmethod
    @abstractmethod
    def sections(sort: str) -> tuple[str, ...]:
        """The sections that a file of this sort must have. All other sections of `SECTIONS` are refused."""

    @abstractmethod
    def protocol(self, model: ModelConfig, is_reduced: bool) -> dict[str, Any]:
        """The settings of a row's run that this sort adds to the run's configuration."""

    @abstractmethod
    def execute(self, runs: "Sequence[Run]", execution: "Execution") -> list[dict[str, Any]]:
        """Make runs that share a process, and return what each adds to its record."""

    @abstractmethod
    def _check_rows(self) -> None:
        """Check the settings of every row, in full and reduced, before any run needs them."""

    def check_task(self, model: ModelConfig, task: "Task", split: int, is_reduced: bool) -> None:
        """Refuse a task that the protocol of a row cannot be run on."""
        del model, task, split, is_reduced

    def process_of(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """What runs have in common that are made in one process. The argument is a run's key."""
        return key

    def model(self, title: str) -> ModelConfig:
        """The row of that title."""
        return _named("model", self.models, title)

    def column(self, title: str) -> ColumnConfig:
        """The column of that title."""
        return _named("column", self.columns, title)

    def options_of(self, title: str) -> dict[str, Any]:
        """The loader's options of a column, with paths that can be opened. Records keep the paths as written."""
        options = self.column(title).options
        return with_paths(options, self.folder) if self.data == TABLES else options

    def reduced_for(self, model: ModelConfig) -> dict[str, Any]:
        """The settings that a reduced run of a row changes."""
        return self.reduced | model.reduced

    def cells(
        self,
        models: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        is_reduced: bool = False,
    ) -> list[tuple[int, str, str]]:
        """Seed, column and row of every run, seed by seed. None means all rows, all columns, all seeds.

        A row with columns or seeds of its own has no other runs, unless columns or seeds are asked for. What is
        asked for twice is listed once.
        """
        if read(bool, is_reduced, "reduced") and not self.reduced:
            raise ConfigError(f"{self.name}: reduced: expected a section [reduced] that says how, got none")
        rows = self._titles(self.models, read(tuple[str, ...] | None, models, "models"), "model")
        titles = self._titles(self.columns, read(tuple[str, ...] | None, columns, "columns"), "column")
        chosen = range(self.seeds) if seeds is None else seeds
        cells = dict.fromkeys((seed, column, row) for seed in chosen for column in titles for row in rows)
        # Seeds that are asked for by number are run in every row, and columns that are asked for by title.
        return [
            (seed, column, row)
            for seed, column, row in cells
            if (seeds is not None or seed < self.seeds_of(row)) and (columns is not None or self._has(row, column))
        ]

    def seeds_of(self, title: str) -> int:
        """The number of runs of a cell of a row."""
        own = self.model(title).seeds
        return self.seeds if own is None else min(own, self.seeds)

    def _has(self, title: str, column: str) -> bool:
        """Whether a row has a column."""
        own = self.model(title).columns
        return own is None or column.lower() in {name.lower() for name in own}

    def marks(self, title: str) -> dict[str, Any]:
        """What the records of a row's runs say besides what all records say."""
        del title
        return {}

    @staticmethod
    def _titles(entries: Sequence[Entry], asked: Sequence[str] | None, what: str) -> list[str]:
        if asked is None:
            return [entry.title for entry in entries]
        return [_named(what, entries, title).title for title in asked]

    def _check_columns(self, model: ModelConfig) -> None:
        """Refuse a row's own columns and seeds that the experiment does not have."""
        where = f"{self.name}: {model.title}"
        for title in model.columns or ():
            check_name(f"{where}: columns", title, [column.title for column in self.columns])
        if model.seeds is not None and model.seeds > self.seeds:
            raise ConfigError(
                f"{where}: seeds: expected at most {self.seeds}, those of the experiment, got {model.seeds}"
            )

    def _check_titles(self, entries: Sequence[ModelConfig | ColumnConfig | AxisConfig]) -> None:
        # Entries are looked up by title, and letter case makes no difference.
        titles = [entry.title for entry in entries]
        if not titles or len({title.lower() for title in titles}) < len(titles):
            raise ConfigError(f"{self.name}: expected entries of different titles, got {titles}")

    def _refuse_in_rows(self, *names: str) -> None:
        """Refuse rows with settings of their own that this sort does not use."""
        for model in self.models:
            given = [name for name in names if getattr(model, name)]
            if given:
                raise ConfigError(
                    f"{self.name}: {model.title}: {', '.join(given)}: expected none in the sort {self.sort}"
                )


@dataclass(frozen=True)
class TrainingExperiment(Experiment):
    """An experiment that trains every model on every data set and reports the score on the test part.

    Args:
        train: the protocol. A row's `train` overrides it, and `reduced` overrides both in a reduced run.
        search: how the settings of the rows are searched before they are run. None runs the rows as they are.
        base: the winner of another search, whose settings the rows change. None runs the rows as they are.

    >>> row, column = ModelConfig("SIR-GCN"), ColumnConfig("n=3", {"n": 3})
    >>> experiment = TrainingExperiment("mine", "dictionary_lookup", (row,), (column,), reduced={"epochs": 5})
    >>> experiment.train_for(row).epochs, experiment.train_for(row, is_reduced=True).epochs
    (500, 5)
    >>> experiment.cells(seeds=[0, 1])
    [(0, 'n=3', 'SIR-GCN'), (1, 'n=3', 'SIR-GCN')]
    """

    sort: Literal["training"] = "training"
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig | None = None
    base: BaseConfig | None = None

    @staticmethod
    def sections(sort: str) -> tuple[str, ...]:
        return ("train",)

    def _check_rows(self) -> None:
        for model in self.models:
            self.train_for(model)
            self.train_for(model, is_reduced=True)
            check_row(self.search, model)
        if self.base is not None and self.search is not None:
            raise ConfigError("base: expected none beside a section [search], whose rows have no settings yet")
        if self.search is not None:
            changed(self.train, self.search.train, "search: train")
            if self.search.split >= self.splits:
                raise ConfigError(f"search: split: expected less than splits = {self.splits}, got {self.search.split}")

    def train_for(self, model: ModelConfig, is_reduced: bool = False) -> TrainConfig:
        """The protocol for a row, in full or reduced."""
        full = _train_for(self.train, model)
        return changed(full, self.reduced_for(model), f"{model.title}: reduced") if is_reduced else full

    def protocol(self, model: ModelConfig, is_reduced: bool) -> dict[str, Any]:
        # A control has no training whose settings could be told.
        return {} if model.control else {"train": self.train_for(model, is_reduced).recorded()}

    def check_task(self, model: ModelConfig, task: "Task", split: int, is_reduced: bool) -> None:
        from sirgcn.engine.loop import check_validation

        if model.control is None:
            check_validation(task, self.train_for(model, is_reduced), split)

    def seen(self, task: "Task", split: int) -> "Task":
        """What the runs of this experiment see of a task: all of it."""
        del split
        return task

    def execute(self, runs: "Sequence[Run]", execution: "Execution") -> list[dict[str, Any]]:
        from sirgcn.engine.training import train

        if self.base is not None:
            raise ConfigError(f"{self.name}: base: expected the settings of its winner, see `search.bases.based`")
        return [train(run, self, execution) for run in runs]


@dataclass(frozen=True)
class TimingExperiment(Experiment):
    """An experiment that times passes over batches, with all models of a column in one interleaved measurement.

    Args:
        sort: `"inference"` times inference over the test set. `"step"` times steps of the protocol's training.
        train: the protocol of the steps that are timed.
        timing: how time is measured.

    >>> rows = ModelConfig("SIR-GCN"), ModelConfig("GIN", conv="gin")
    >>> experiment = TimingExperiment("mine", "dictionary_lookup", rows, (ColumnConfig("n=3", {"n": 3}),))
    >>> experiment.is_timed, experiment.is_step
    (True, False)
    """

    sort: Literal["inference", "step"] = "inference"
    train: TrainConfig = field(default_factory=TrainConfig)
    timing: TimingConfig = field(default_factory=TimingConfig)

    is_timed = True

    @staticmethod
    def sections(sort: str) -> tuple[str, ...]:
        return ("train", "timing") if sort == "step" else ("timing",)

    @property
    def is_step(self) -> bool:
        """Whether steps of the training are timed, and not inference."""
        return self.sort == "step"

    def _check_rows(self) -> None:
        self.model(self.timing.reference)
        self.timing_for(is_reduced=True)
        self._refuse_in_rows("control", "space", *(("reduced",) if self.is_step else ("train", "reduced")))
        for model in self.models:
            self.train_for(model)

    def train_for(self, model: ModelConfig) -> TrainConfig:
        """The protocol of a row's steps."""
        return _train_for(self.train, model)

    def timing_for(self, is_reduced: bool = False) -> TimingConfig:
        """How time is measured, in full or reduced."""
        return _timing_for(self, self.timing, is_reduced)

    def protocol(self, model: ModelConfig, is_reduced: bool) -> dict[str, Any]:
        # Records have always had the axes of every timing, also where there are none.
        timed = {"timing": asdict(self.timing_for(is_reduced)), "axes": []}
        return {"train": self.train_for(model).recorded(), **timed} if self.is_step else timed

    def process_of(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Experiment, column, seed, split and form: the rows of a column are timed in turn in one process."""
        experiment, column, _, *others = key
        return (experiment, column, *others)

    def execute(self, runs: "Sequence[Run]", execution: "Execution") -> list[dict[str, Any]]:
        from sirgcn.engine.runtime import time_column

        return time_column(runs, self, execution)


@dataclass(frozen=True)
class GrowthExperiment(Experiment):
    """An experiment that times one layer on random graphs as the nodes, the edges or the width grow.

    Args:
        timing: how time is measured.
        axes: along which sizes the time grows.

    >>> axis = AxisConfig("|V|", nodes=(2, 4, 8), edges=(4,), width=(2,))
    >>> experiment = GrowthExperiment("mine", "random", (ModelConfig("GCN"),), (ColumnConfig("a"),), axes=(axis,))
    >>> experiment.sort
    'growth'
    """

    sort: Literal["growth"] = "growth"
    timing: TimingConfig = field(default_factory=TimingConfig)
    axes: tuple[AxisConfig, ...] = ()

    is_timed = True
    draws_graphs = True

    @staticmethod
    def sections(sort: str) -> tuple[str, ...]:
        return ("timing", "axes")

    def _check_rows(self) -> None:
        self._check_titles(self.axes)
        self.timing_for(is_reduced=True)
        self._refuse_in_rows("control", "space", "train", "reduced")

    def timing_for(self, is_reduced: bool = False) -> TimingConfig:
        """How time is measured, in full or reduced."""
        return _timing_for(self, self.timing, is_reduced)

    def protocol(self, model: ModelConfig, is_reduced: bool) -> dict[str, Any]:
        return {"timing": asdict(self.timing_for(is_reduced)), "axes": [asdict(axis) for axis in self.axes]}

    def execute(self, runs: "Sequence[Run]", execution: "Execution") -> list[dict[str, Any]]:
        from sirgcn.engine.runtime import time_layers

        return time_layers(runs, self, execution)


SORTS: dict[str, type[Experiment]] = {
    "training": TrainingExperiment,
    "inference": TimingExperiment,
    "step": TimingExperiment,
    "growth": GrowthExperiment,
}
"""The class of each value of the key `sort`."""

SECTIONS = ("train", "timing", "axes")
"""The sections of a file that not every sort has."""


def _train_for(train: TrainConfig, model: ModelConfig) -> TrainConfig:
    found: TrainConfig = changed(train, model.train, f"{model.title}: train")
    return found


def _timing_for(experiment: Experiment, timing: TimingConfig, is_reduced: bool) -> TimingConfig:
    found: TimingConfig = changed(timing, experiment.reduced if is_reduced else {}, "reduced")
    return found


def _named(what: str, entries: Sequence[Entry], title: str) -> Entry:
    check_name(what, title, [entry.title for entry in entries])
    return next(entry for entry in entries if entry.title.lower() == title.lower())


# Names that Windows gives to no file, and characters that Windows or a shell reads as something else.
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')

LONGEST_NAME = 200
"""The largest number of bytes in the name of an experiment; some systems allow 255 with a suffix."""


def check_file_name(key: str, name: str) -> None:
    """Refuse a name that is not a plain name of a file, so that files of this name are never written elsewhere."""
    is_plain = name == name.strip() and not name.startswith(".") and not name.endswith(".")
    if not name or not is_plain or _NOT_IN_NAMES.search(name) or _DEVICES.fullmatch(name):
        raise ConfigError(f"{key}: expected a plain name of a file, without a folder, got {name!r}")
    if len(name.encode()) > LONGEST_NAME:
        raise ConfigError(f"{key}: expected at most {LONGEST_NAME} bytes, got {len(name.encode())}: {name[:40]!r}...")
