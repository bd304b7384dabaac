"""What a page says of the tuned results: the goals, and what one should take from a search. And all its markers."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from sirgcn.engine.experiment import TrainingExperiment, load_training
from sirgcn.report import learning
from sirgcn.report.cells import deviation
from sirgcn.report.changes import changes, read_rows, score_text
from sirgcn.report.published import Goal, load_published, published
from sirgcn.report.runs import Run, as_number, read_runs
from sirgcn.report.sheets import NOTHING, Entry, Fact, Sheet
from sirgcn.report.tuned import Tuned, ahead, best_of, interval, read_tuned, reference, searched, tuned

_MARKER = re.compile(r"<!-- results: (tuned|goals|lesson|published|curves|changes|seeds)(?: ([^ ]+))? -->")


@dataclass(frozen=True)
class Scored:
    """A row with its scores on the test part and its score on the validation part, for a goal."""

    title: str
    values: tuple[float, ...]
    validation: float

    @property
    def mean(self) -> float:
        """The mean of the scores; NaN without any."""
        return fmean(self.values) if self.values else math.nan


def texts(pages: Sequence[str], results: str | Path) -> dict[str, str]:
    """The text of the markers of the tuned results that pages have, by marker.

    >>> import tempfile
    >>> texts(["A page without a marker."], tempfile.mkdtemp())
    {}
    """
    found = {}
    for what, name in dict.fromkeys(match.groups("") for page in pages for match in _MARKER.finditer(page)):
        found[f"{what} {name}".strip()] = _TEXTS[what](name, Path(results))
    return found


def goals(results: str | Path) -> Sheet:
    """Every goal of our runs with what was reached, and the best opponent under the same budget.

    >>> import tempfile
    >>> goals(tempfile.mkdtemp()).rows[0][-1]
    'not run'
    """
    head = ["Experiment", "Goal", "Published", "Our form", "Ours", "Runs", "Best opponent", "Its score", "Reached"]
    rows = [_goal_row(goal, results) for goal in load_published().goals]
    notes = [
        Fact("Our form", "of the forms of SIR-GCN that were run, the one with the best validation metric"),
        Fact("Best opponent", "of the other models of the table, the one with the best mean on the test parts"),
    ]
    return Sheet("", head, rows, notes, left=1)


def _goal_row(goal: Goal, results: str | Path) -> list[Entry]:
    experiment = load_training(goal.experiment)
    rows = [row for row in _scored(experiment, goal.column, results) if row.values]
    sign = 1 if goal.higher_is_better else -1
    ours = max((row for row in rows if row.title in goal.models), key=lambda row: sign * row.validation, default=None)
    other = max((row for row in rows if row.title not in goal.models), key=lambda row: sign * row.mean, default=None)
    start: list[Entry] = [goal.experiment, goal.text, f"{goal.aim:g}"]
    digits = 2 if goal.higher_is_better else 3
    opponent = ["", ""] if other is None else [other.title, f"{other.mean:.{digits}f}"]
    if ours is None:
        return [*start, "", "", "", *opponent, "not run"]
    missed, asked = goal.missed_by(ours.mean), experiment.seeds_of(ours.title)
    reached = "yes" if missed <= 0 else f"no, by {missed:.{digits}f}"
    so_far = f", so far {len(ours.values)} of {asked} runs" if len(ours.values) < asked else ""
    score = f"{ours.mean:.{digits}f}"
    return [*start, ours.title, score, str(len(ours.values)), *opponent, f"{reached}{so_far}"]


def _scored(experiment: TrainingExperiment, column: str, results: str | Path) -> list[Scored]:
    """The rows of an experiment with their full runs. Validation decides by the search where there is one."""
    if experiment.search is not None:
        return [
            Scored(model.row.title, tuple(model.values.values()), model.validation)
            for model in read_tuned(experiment, column, results)
        ]
    rows = [row for row in read_rows(experiment, results, column) if not row.is_reduced]
    return [Scored(row.title, tuple(row.values.values()), _validation(row.runs)) for row in rows]


def _validation(runs: Sequence[Run]) -> float:
    found = [as_number(run.metrics.get("val")) for run in runs]
    return fmean(found) if found else math.nan


def lesson(experiment: TrainingExperiment, results: str | Path) -> str:
    """What to take from a search as a short list: what was made, who is best, and how our best form compares.

    >>> import tempfile
    >>> lesson(load_training("tuned_actor"), tempfile.mkdtemp())
    '- Made so far: 0 of 56 trials, and the winners of 0 of 7 models. There is nothing to take from it yet.'
    """
    models = read_tuned(experiment, experiment.columns[0].title, results)
    run = [model for model in models if model.values]
    trials = f"{sum(len(model.kept) for model in models)} of {sum(model.asked for model in models)} trials"
    made = f"{trials}, and the winners of {len(run)} of {len(models)} models"
    best, ours = best_of(run), reference(models)
    if best is None:
        return f"- Made so far: {made}. There is nothing to take from it yet."
    is_whole = len(run) == len(models) and not any(model.is_reduced for model in models)
    lines = [f"- Made{'' if is_whole else ' so far'}: {made}.", f"- The best mean has {best.row.title}."]
    if ours is not None:
        lines.append(f"- {ours.row.title}, the form of SIR-GCN that validation prefers, {_standing(ours, run)}.")
    return "\n".join(lines)


def _standing(ours: Tuned, run: Sequence[Tuned]) -> str:
    """Which models a form is ahead of, level with and behind, by the intervals of the differences."""
    places: dict[str, list[str]] = {"is ahead of": [], "is level with": [], "is behind": [], "is open against": []}
    for model in run:
        if model is not ours:
            places[_place(model, ours)].append(model.row.title)
    said = [f"{place} {', '.join(titles)}" for place, titles in places.items() if titles]
    return "; ".join(said) or "is the only model that was run"


def _place(model: Tuned, ours: Tuned) -> str:
    pairs = [value - ours.values[seed] for seed, value in model.values.items() if seed in ours.values]
    who = ahead(model, ours, *interval(pairs))
    if who in ("open", "level"):
        return "is open against" if who == "open" else "is level with"
    return "is ahead of" if who == ours.row.title else "is behind"


def by_seed(name: str, results: str | Path) -> Sheet:
    """The score of every run on record of an experiment, by model and seed. Records of changed settings count, too."""
    file = Path(results) / f"{name}.jsonl"
    runs = [run for run in (read_runs(file) if file.exists() else ()) if run.status == "done"]
    seeds = sorted({run.seed for run in runs})
    models = dict.fromkeys((run.model, run.column, run.reduced) for run in runs)
    rows: list[list[Entry]] = []
    for key in models:
        own = {run.seed: run.value for run in runs if (run.model, run.column, run.reduced) == key}
        spread = deviation(list(own.values()))
        cells = [f"{own[seed]:.2f}" if seed in own else "" for seed in seeds]
        rows.append([f"{key[0]}{', reduced' * key[2]}", *cells, "" if math.isnan(spread) else f"{spread:.2f}"])
    return Sheet("", ["Model", *(f"seed {seed}" for seed in seeds), "standard deviation"], rows)


def _tuned_text(name: str, results: Path) -> str:
    chosen = [name] if name else searched()
    return "\n".join(sheet.markdown() for one in chosen for sheet in tuned(load_training(one), results))


def _published_text(name: str, results: Path) -> str:
    experiment = load_training(name)
    column = experiment.columns[0].title
    if experiment.search is not None:
        ours = {model.row.title: model.score_text for model in read_tuned(experiment, column, results)}
    else:
        ours = {row.title: score_text(row, 4) for row in read_rows(experiment, results, column)}
    sheet = published(column, ours)
    return sheet.markdown() if sheet.rows else "Nobody has published a figure for these data that we know of."


def _changes_text(name: str, results: Path) -> str:
    sheet = changes(load_training(name), results)
    return sheet.markdown() if sheet.rows else "\n".join([f"**`{name}`**", "", *(f"- {note}" for note in sheet.notes)])


def _seeds_text(name: str, results: Path) -> str:
    sheet = by_seed(name, results)
    return sheet.markdown() if sheet.rows else NOTHING


_TEXTS: Mapping[str, Callable[[str, Path], str]] = {
    "tuned": _tuned_text,
    "goals": lambda _, results: goals(results).markdown(),
    "lesson": lambda name, results: lesson(load_training(name), results),
    "published": _published_text,
    "curves": learning.markdown,
    "changes": _changes_text,
    "seeds": _seeds_text,
}
