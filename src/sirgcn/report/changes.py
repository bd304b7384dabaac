"""Experiments whose rows change one setting of another row: the score of every row, and what its change adds.

A row is compared with the row whose title is its own up to the first comma, such as `GCN` for `GCN, width 512`. A row
with which others are compared in this way is compared with none, and all other rows with the first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sirgcn.engine.experiment import Experiment, TrainingExperiment
from sirgcn.engine.plan import Run as Planned
from sirgcn.engine.plan import Settings
from sirgcn.engine.search.bases import BasedExperiment, NoWinnerError, based
from sirgcn.report.cells import MARKS, deviation
from sirgcn.report.claims import METRICS
from sirgcn.report.runs import Run, read_runs
from sirgcn.report.sheets import Entry, Fact, Sheet

NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A row of an experiment with its finished runs: the full ones, or where there are none the reduced ones."""

    title: str
    runs: tuple[Run, ...]

    @property
    def values(self) -> dict[int, float]:
        """The score of each run on its test part, by its seed, in the unit of the table."""
        return {run.seed: run.value for run in self.runs if run.has_score and math.isfinite(run.value)}

    @property
    def is_reduced(self) -> bool:
        """Whether the runs are of the reduced form."""
        return any(run.reduced for run in self.runs)

    def mean_of(self, cost: str) -> float:
        """The mean over the runs of a recorded cost; NaN where none was recorded."""
        found = [value for run in self.runs if (value := getattr(run, cost)) is not None]
        return fmean(found) if found else math.nan


def changes(experiment: TrainingExperiment, results: str | Path) -> Sheet:
    """The score of every row and its differences from the row that it changes, by seed or split.

    Without a run there are no rows, and the notes say what is missing.

    >>> import tempfile
    >>> from sirgcn.engine.experiment import load_training
    >>> print(changes(load_training("minesweeper_differences"), tempfile.mkdtemp()).notes[0])
    Not run yet: 13 rows
    """
    notes: list[Fact] = []
    found: Experiment = experiment
    try:
        found = based(experiment, results)
    except NoWinnerError as error:
        notes = [Fact("Not yet possible", str(error).partition("base: ")[2])]
    assert isinstance(found, TrainingExperiment)
    rows = read_rows(found, results)
    notes += [*_notes(found, rows), *_base(found)]
    if not any(row.values for row in rows):
        notes = [Fact("Not run yet", f"{len(rows)} rows"), *notes]
        rows = []
    head = ["Row", "Score", "Runs", "Compared with", "Difference", "By seed or split", "Parameters", "Seconds of a run"]
    return Sheet(experiment.name, head, [_line(found, row, rows) for row in rows], notes)


def read_rows(experiment: TrainingExperiment, results: str | Path, column: str = "") -> list[Row]:
    """The rows of a column, by default of the first, with the runs on record that have the settings of today.

    >>> import tempfile
    >>> from sirgcn.engine.experiment import load_training
    >>> [row.title for row in read_rows(load_training("zinc_plus"), tempfile.mkdtemp())]
    ['GIN', 'SIR-GCN', 'SIR-GCN (gated)']
    """
    file = Settings(Path(results)).file(experiment)
    runs = [run for run in (read_runs(file) if file.exists() else ()) if run.status == "done"]
    place = column or experiment.columns[0].title
    return [Row(model.title, _runs_of(experiment, place, model.title, runs)) for model in experiment.models]


def _runs_of(experiment: TrainingExperiment, column: str, title: str, runs: Sequence[Run]) -> tuple[Run, ...]:
    own = [run for run in runs if (run.column, run.model) == (column, title)]
    for is_reduced in (False, True):
        config = Planned(experiment, column, title, 0, is_reduced).config
        same = [run for run in own if run.reduced == is_reduced and run.config == config]
        if same:
            return tuple(sorted(same, key=lambda run: run.seed))
    return ()


def reference_of(title: str, titles: Sequence[str]) -> str:
    """The row that a row is compared with; the row itself where it is compared with none.

    >>> reference_of("GCN, width 512", ["GIN", "GCN", "GCN, width 512"]), reference_of("depth: 3", ["base", "depth: 3"])
    ('GCN', 'base')
    """
    stems = {other.partition(", ")[0] for other in titles if ", " in other}
    stem = title.partition(", ")[0]
    return stem if stem in stems and stem in titles else titles[0]


def _line(experiment: TrainingExperiment, row: Row, rows: Sequence[Row]) -> list[Entry]:
    values, digits = row.values, 2 if experiment.scale != 1.0 else 4
    name = reference_of(row.title, [other.title for other in rows])
    start = [row.title, score_text(row, digits), f"{len(values)}" if values else ""]
    compared = ["", "", ""]
    if row.title != name:
        compared = [name, *_differences(row, next(other for other in rows if other.title == name), digits)]
    return [*start, *compared, _whole(row.mean_of("parameters")), _whole(row.mean_of("seconds"))]


def _differences(row: Row, reference: Row, digits: int) -> list[str]:
    """The mean difference of a row from another one, and that of each seed; empty where none is comparable."""
    own, others = row.values, reference.values
    pairs = [own[seed] - others[seed] for seed in own if seed in others and row.is_reduced == reference.is_reduced]
    if not pairs:
        return ["", ""]
    return [f"{fmean(pairs):+.{digits}f}", ", ".join(f"{pair:+.{digits}f}" for pair in pairs)]


def score_text(row: Row, digits: int = 2) -> str:
    """The mean of a row with its spread, or that it was not run.

    >>> score_text(Row("GCN", ()))
    'not run'
    """
    values = list(row.values.values())
    if not values:
        return NOT_RUN
    spread = f" ± {deviation(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}{MARKS['reduced'] * row.is_reduced}"


def _notes(experiment: TrainingExperiment, rows: Sequence[Row]) -> list[Fact]:
    """The protocol, the metric, and what is reduced or not run."""
    several = experiment.seeds > 1
    wanted = f"{experiment.train.epochs} epochs on {experiment.seeds} seed{'s' * several} or split{'s' * several}"
    notes = [Fact("Runs that the file asks for", wanted)]
    metrics = {(run.metric, run.higher_is_better) for row in rows for run in row.runs}
    for metric, is_higher in metrics:
        better = "higher is better" if is_higher else "lower is better"
        notes.append(Fact("Score", f"{METRICS.get(metric, metric)} on the test part, {better}"))
    if any(row.is_reduced for row in rows):
        settings = ", ".join(f"{name} = {value}" for name, value in experiment.reduced.items())
        notes.append(Fact(f"{MARKS['reduced']} reduced", settings))
    return notes


def _base(experiment: TrainingExperiment) -> list[Fact]:
    """The winner that the rows change."""
    if not isinstance(experiment, BasedExperiment):
        return []
    settings = ", ".join(f"{name} = {_value(value)}" for name, value in experiment.chosen["settings"].items())
    return [Fact("The winner", f"{experiment.chosen['model']} of {experiment.chosen['search']}: {settings}")]


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _whole(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"
