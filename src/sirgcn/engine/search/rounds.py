"""The search of an experiment: the trials of all its rows, round by round, and then the runs of the winners.

A round makes one trial of every row, so that at any time all rows have had the same number of trials, or one more. The
next trial of a row is a function of the records. A search that was killed goes on from them, and a trial from its last
checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from sirgcn.data.validate import DataError
from sirgcn.engine import records
from sirgcn.engine.experiment import TrainingExperiment
from sirgcn.engine.finished import unfinished
from sirgcn.engine.inputs import CurrentData, load_data
from sirgcn.engine.plan import Run, Settings, plan, seed_by_seed
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import Listener
from sirgcn.engine.search import trials
from sirgcn.engine.search.spaces import space_of
from sirgcn.engine.search.suggesting import Tried, suggest
from sirgcn.engine.search.trials import Record
from sirgcn.engine.workers import Engine
from sirgcn.strict import changed


@dataclass(frozen=True)
class Study:
    """The trials of a row in a column that count so far.

    Args:
        column: the title of the column.
        row: the title of the row.
        kept: the records of the trials, in order.

    >>> made = {"status": "done", "metrics": {"val": 0.9}, "higher_is_better": True, "seconds": 2.0, "trial": 0}
    >>> study = Study("minesweeper", "GCN", (made,))
    >>> study.winner == made, study.seconds
    (True, 2.0)
    """

    column: str
    row: str
    kept: tuple[Record, ...] = ()

    @property
    def winner(self) -> Record | None:
        """The trial with the best validation metric."""
        return trials.winner_of(self.kept)

    @property
    def seconds(self) -> float | None:
        """The median time of a trial; None where none was finished."""
        times = [record["seconds"] for record in self.kept if record["status"] == DONE]
        return median(times) if times else None


@dataclass
class Search:
    """The search of an experiment: its trials, and the runs of its winners.

    Args:
        experiment: an experiment with a section `[search]`.
        settings: where and how runs are made. The records of trials are in the folder `search` of the results.
        models: the titles of the rows; None for all.
        columns: the titles of the columns; None for all.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.engine.experiment import ColumnConfig, ModelConfig, SearchConfig, TrainConfig, TrainingExperiment
    >>> experiment = TrainingExperiment(
    ...     "mine",
    ...     data="pattern",
    ...     models=(ModelConfig("Boosting", control="boosting", space={"max_iter": [2, 4]}),),
    ...     columns=(ColumnConfig("PATTERN", {"num_graphs": 140}),),
    ...     seeds=1,
    ...     search=SearchConfig(trials=2),
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     search = Search(experiment, Settings(folder, folder))
    ...     outcome = search.run()
    ...     [len(study.kept) for study in search.studies()], list(outcome.values())
    ([2], ['done', 'done', 'done'])
    """

    experiment: TrainingExperiment
    settings: Settings
    models: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    _data: CurrentData = field(init=False, repr=False)

    def __post_init__(self) -> None:
        trials.search_of(self.experiment)
        cells = self.experiment.cells(self.models, self.columns, [0])
        self._places = list(dict.fromkeys((column, row) for _, column, row in cells))
        self._data = CurrentData(self.settings)

    def check_data(self) -> None:
        """Refuse data without a validation part, on which nothing can be chosen."""
        split = trials.search_of(self.experiment).split
        for run in {run.column: run for run in self.all_runs()}.values():
            task = load_data(run, self.settings)
            if not task.num_batches("val", split=split):
                raise DataError(
                    f"expected data with a validation part, by which a search chooses, got {task.name} without one",
                    f"{self.experiment.name}: search",
                )

    def studies(self) -> list[Study]:
        """The study of every chosen row and column, by the records and on the data as they are now."""
        found = trials.read_trials(self.settings, self.experiment.name)
        return [Study(column, row, tuple(self._on_data(found, column, row))) for column, row in self._places]

    def _on_data(self, found: Sequence[Record], column: str, row: str) -> list[Record]:
        """The trials that count, up to the first that was made on other data."""
        kept = trials.trials_of(found, self.experiment, column, self.experiment.model(row))
        for place, record in enumerate(kept):
            data = self._data.of(self._run_of(column, row, place, record["settings"]))
            # A trial that failed before it read its data has nothing to compare.
            if isinstance(data, str) or (record.get("data") and not records.is_on(record, data)):
                return kept[:place]
        return kept

    def next_trials(self) -> list[Run]:
        """The next trial of every row that has had the fewest, in the order of the rows; none if all are made."""
        total = trials.search_of(self.experiment).trials
        left = [study for study in self.studies() if len(study.kept) < total]
        fewest = min((len(study.kept) for study in left), default=0)
        return [self._next(study) for study in left if len(study.kept) == fewest]

    def _next(self, study: Study) -> Run:
        search, row = trials.search_of(self.experiment), self.experiment.model(study.row)
        tried = [Tried(record["settings"], trials.score_of(record)) for record in study.kept]
        maximise = all(record["higher_is_better"] for record in study.kept if record["status"] == DONE)
        chosen = suggest(space_of(search, row), tried, search.seed, search.random, maximise)
        return self._run_of(study.column, study.row, len(study.kept), chosen)

    def _run_of(self, column: str, row: str, number: int, chosen: Record) -> Run:
        return trials.trial(self.experiment, column, self.experiment.model(row), number, chosen)

    def finals(self) -> list[Run]:
        """The runs of the winners of the rows that have had all their trials, seed by seed."""
        total, found = trials.search_of(self.experiment).trials, list[Run]()
        studies = [study for study in self.studies() if len(study.kept) == total]
        for column in dict.fromkeys(study.column for study in studies):
            winners = {
                study.row: study.winner for study in studies if study.column == column and study.winner is not None
            }
            if winners:
                found += plan(trials.with_winners(self.experiment, column, winners))
        return seed_by_seed(found)

    def all_runs(self) -> list[Run]:
        """A run of every row and column, with settings as the file has them: for whatever reads only the data."""
        split = trials.search_of(self.experiment).split
        return [Run(self.experiment, column, row, split) for column, row in self._places]

    def state(self) -> list[dict[str, Any]]:
        """What was made for every row and column, as JSON values."""
        left = {run.key for run in unfinished(self.finals(), self.settings)}
        made = [run.key[1:3] for run in self.finals() if run.key not in left]
        return [self._state_of(study, made.count((study.column, study.row))) for study in self.studies()]

    def _state_of(self, study: Study, runs: int) -> dict[str, Any]:
        winner = study.winner
        return {
            "column": study.column,
            "model": study.row,
            "trials": [
                {"settings": one["settings"], "status": one["status"], "val": trials.score_of(one)}
                for one in study.kept
            ],
            "trials_asked": trials.search_of(self.experiment).trials,
            "failed": sum(one["status"] == FAILED for one in study.kept),
            "settings": None if winner is None else winner["settings"],
            "val": None if winner is None else trials.score_of(winner),
            "runs": runs,
            "runs_asked": self.experiment.seeds_of(study.row),
        }

    def run(self, jobs: int = 1, listeners: Sequence[Listener] = (), engine: Engine | None = None) -> dict[Run, str]:
        """Make the trials that are left, then the runs of the winners that are left. Returns the outcome of each run.

        The rounds end before their time where a trial is paused, is made by another process, cannot be recorded, or had
        its process killed. The same call goes on from there. The other arguments are those of `run_all`.
        """
        self.check_data()
        outcome: dict[Run, str] = {}
        while runs := self.next_trials():
            made = run_all(runs, trials.of_trials(self.settings), jobs, listeners, engine)
            outcome |= made
            if set(made.values()) - {DONE, FAILED} or self._repeats(runs):
                return outcome
        left = unfinished(self.finals(), self.settings)
        return outcome | run_all(left, self.settings, jobs, listeners, engine)

    def _repeats(self, runs: Sequence[Run]) -> bool:
        """Whether a trial that was just made would be made again, because its process was killed."""
        return bool({run.key for run in runs} & {run.key for run in self.next_trials()})

    def seconds_left(self) -> list[float | None]:
        """How long each trial and each run of a winner that is left will take; None where that is unknown.

        A trial takes as long as the others of its row, and a run of a winner as long per epoch as a trial.
        """
        search, times = trials.search_of(self.experiment), list[float | None]()
        done = {run.key for run in self.finals()} - {run.key for run in unfinished(self.finals(), self.settings)}
        for study in self.studies():
            times += [study.seconds] * (search.trials - len(study.kept))
            made = sum(key[1:3] == (study.column, study.row) for key in done)
            times += [self._final_seconds(study)] * (self.experiment.seeds_of(study.row) - made)
        return times

    def _final_seconds(self, study: Study) -> float | None:
        row = self.experiment.model(study.row)
        if study.seconds is None or row.control is not None:
            return study.seconds
        trained = changed(self.experiment.train, trials.search_of(self.experiment).train, "search: train")
        return study.seconds * self.experiment.train_for(row).epochs / trained.epochs
