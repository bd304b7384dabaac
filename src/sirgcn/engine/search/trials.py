"""Trials: a trial as a run, the records of the trials of a row, and the winner among them.

The records decide everything: which trial comes next, and which settings win. This module never loads torch, so that
the report reads trials as the search does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from sirgcn.engine import records
from sirgcn.engine.experiment import ModelConfig, SearchConfig, TrainingExperiment
from sirgcn.engine.experiment.space import with_settings
from sirgcn.engine.plan import Run, Settings
from sirgcn.strict import ConfigError, changed

if TYPE_CHECKING:
    from sirgcn.data.task import Task

Record = dict[str, Any]

FOLDER = "search"
"""The folder of the records of trials, in the folder of the results, and that of their checkpoints."""


@dataclass(frozen=True)
class TrialExperiment(TrainingExperiment):
    """The experiment of a single trial. Its only row has the settings of the trial; its runs see no test part.

    Args:
        row: the title of the row whose settings are searched.
        number: the number of the trial.
        settings: the settings of the trial by their names in the space.
        basis: what decided them besides the trials before, see `SearchConfig.basis`.
    """

    row: str = ""
    number: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    basis: dict[str, Any] = field(default_factory=dict)

    def marks(self, title: str) -> dict[str, Any]:
        return {"row": self.row, "trial": self.number, "settings": self.settings, "search": self.basis}

    def seen(self, task: "Task", split: int) -> "Task":
        return task.without_test(split)


@dataclass(frozen=True)
class WinnerExperiment(TrainingExperiment):
    """An experiment whose rows have the settings that their trials chose.

    Args:
        chosen: by the title of a row, what the records of its runs say about the search.
    """

    chosen: dict[str, Any] = field(default_factory=dict)

    def marks(self, title: str) -> dict[str, Any]:
        return {"search": self.chosen[title]}


def search_of(experiment: TrainingExperiment) -> SearchConfig:
    """The section `[search]` of an experiment; raises a `ConfigError` if it has none."""
    if experiment.search is None:
        raise ConfigError(
            f"{experiment.name}: search: expected a section [search], got none; "
            f"to run its rows as they are, type: sirgcn reproduce {experiment.name}"
        )
    return experiment.search


def of_trials(settings: Settings) -> Settings:
    """The settings with the folders of trials, whose records are no results."""
    return replace(settings, results=settings.results / FOLDER, work=settings.work / FOLDER)


def trial(experiment: TrainingExperiment, column: str, row: ModelConfig, number: int, chosen: Mapping[str, Any]) -> Run:
    """The run of a trial: the row with the chosen settings, on the split of the search and with its budget."""
    search = search_of(experiment)
    title = f"{row.title}, trial {number + 1}"
    own = replace(with_settings(row, chosen), title=title, reduced={}, seeds=None, columns=None)
    shared = {entry.name: getattr(experiment, entry.name) for entry in fields(TrainingExperiment)}
    shared |= {
        "models": (own,),
        "columns": (experiment.column(column),),
        "train": changed(experiment.train, search.train, "search: train"),
        "reduced": {},
        "search": None,
        "table": None,
    }
    made = TrialExperiment(**shared, row=row.title, number=number, settings=dict(chosen), basis=search.basis(row))
    # Seed s has the split s: the split of the search is the seed.
    return Run(made, made.columns[0].title, title, search.split)


def trials_of(found: Sequence[Record], experiment: TrainingExperiment, column: str, row: ModelConfig) -> list[Record]:
    """The records of the trials of a row, in order, as far as they count.

    A trial counts if it was made with the settings, the space and the budget of today. A failed trial counts, but for
    one whose process was killed. The trials behind one that does not count do not count either, because what was
    suggested to them depends on it.
    """
    search = search_of(experiment)
    own = {record["trial"]: record for record in found if (record["column"], record.get("row")) == (column, row.title)}
    kept: list[Record] = []
    for number in range(search.trials):
        record = own.get(number)
        if record is None or not _counts(record, experiment, column, row):
            break
        kept.append(record)
    return kept


def _counts(record: Record, experiment: TrainingExperiment, column: str, row: ModelConfig) -> bool:
    if record.get("killed") or record["search"] != search_of(experiment).basis(row):
        return False
    try:
        made = trial(experiment, column, row, record["trial"], record["settings"])
    except ConfigError:
        # Settings that the row does not accept any more.
        return False
    return bool(record["config"] == made.config)


def read_trials(settings: Settings, name: str) -> list[Record]:
    """The records of the trials of an experiment; none where nothing was searched yet."""
    return records.read(of_trials(settings).file_of(name))


def score_of(record: Record) -> float | None:
    """The validation metric of a trial; None for one that failed."""
    value = record["metrics"].get("val") if record["status"] == records.DONE else None
    return None if value is None else float(value)


def winner_of(kept: Sequence[Record]) -> Record | None:
    """The trial with the best validation metric, the earliest of those that are level; None if all failed."""
    scored = [(score, record) for record in kept if (score := score_of(record)) is not None]
    if not scored:
        return None
    sign = 1 if scored[0][1]["higher_is_better"] else -1
    return max(scored, key=lambda pair: sign * pair[0])[1]


def best_of(found: Sequence[tuple[ModelConfig, Record]]) -> tuple[ModelConfig, Record]:
    """The row whose winner has the best validation metric, the first of those that are level."""
    best = winner_of([record for _, record in found])
    return next((row, record) for row, record in found if record is best)


def with_winners(experiment: TrainingExperiment, column: str, winners: Mapping[str, Record]) -> WinnerExperiment:
    """The experiment of a column whose rows have the settings of their winners. Rows without a winner are left out."""
    search = search_of(experiment)
    rows = [row for row in experiment.models if row.title in winners]
    shared = {entry.name: getattr(experiment, entry.name) for entry in fields(TrainingExperiment)}
    shared |= {
        "models": tuple(replace(with_settings(row, winners[row.title]["settings"]), columns=None) for row in rows),
        "columns": (experiment.column(column),),
        "search": None,
    }
    return WinnerExperiment(**shared, chosen={row.title: _told(search, winners[row.title]) for row in rows})


def _told(search: SearchConfig, winner: Record) -> Record:
    """What the records of a winner's runs say about its search."""
    return {
        "trials": search.trials,
        "split": search.split,
        "train": search.train,
        "trial": winner["trial"],
        "val": score_of(winner),
        "settings": winner["settings"],
    }
