"""The results of a search: what each model was given, what it chose, and which model wins by how much.

The trials are in `results/search/NAME.jsonl` and the runs of the winners in `results/NAME.jsonl`. Losses are shown as
wins are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from sirgcn.engine import plan, records
from sirgcn.engine.experiment import ModelConfig, TrainingExperiment, load, names
from sirgcn.engine.search import trials
from sirgcn.report.cells import MARKS, deviation
from sirgcn.report.claims import METRICS
from sirgcn.report.runs import Run, read_runs
from sirgcn.report.sheets import Entry, Fact, Sheet, Styled
from sirgcn.strict import changed

RESAMPLES = 10_000
"""How many samples of the differences make an interval."""

LEAST_PAIRS = 5
"""How many differences an interval needs. The means of samples of fewer say little about their spread."""

NOT_RUN = "not run"


@dataclass(frozen=True)
class Tuned:
    """A model of a search: its trials, and the runs of its winner.

    Args:
        row: its row in the experiment.
        asked: the number of trials that every model gets.
        wanted: the number of runs that the experiment asks of every model.
        kept: the records of its trials that count.
        winner: the record of the best trial; None if there is none yet.
        runs: the finished runs with the settings of the winner.
    """

    row: ModelConfig
    asked: int
    wanted: int
    kept: tuple[dict[str, Any], ...]
    winner: dict[str, Any] | None
    runs: tuple[Run, ...]

    @property
    def values(self) -> dict[int, float]:
        """The score of each run on its test part, by its seed, in the unit of the table."""
        return {run.seed: run.value for run in self.runs if run.has_score and math.isfinite(run.value)}

    @property
    def mean(self) -> float:
        """The mean of the scores; NaN without any."""
        return fmean(self.values.values()) if self.values else math.nan

    @property
    def validation(self) -> float:
        """The score of the winning trial on the validation part; NaN without one."""
        score = None if self.winner is None else trials.score_of(self.winner)
        return math.nan if score is None else score

    @property
    def score_text(self) -> str:
        """The mean with its spread and the mark of fewer runs; empty without any."""
        values = list(self.values.values())
        if not values:
            return ""
        text = f"{self.mean:.2f}" if len(values) < 2 else f"{self.mean:.2f} ± {deviation(values):.2f}"
        return f"{text}{MARKS['reduced'] * self.is_reduced}"

    @property
    def is_reduced(self) -> bool:
        """Whether there are fewer runs than the experiment asks of a model."""
        return bool(self.values) and len(self.values) < self.wanted

    def mean_of(self, cost: str) -> float:
        """The mean over the runs of a recorded cost; NaN where none was recorded."""
        found = [value for run in self.runs if (value := getattr(run, cost)) is not None]
        return fmean(found) if found else math.nan


def tuned(experiment: TrainingExperiment, results: str | Path) -> list[Sheet]:
    """The tables of a search for each of its columns: the scores, the differences and the chosen settings.

    >>> import tempfile
    >>> from sirgcn.engine.experiment import ColumnConfig, SearchConfig
    >>> row, column = ModelConfig("SIR-GCN"), ColumnConfig("PATTERN")
    >>> search = SearchConfig(trials=3, space={"dropout": [0.0, 0.5]})
    >>> experiment = TrainingExperiment("mine", "pattern", (row,), (column,), search=search)
    >>> tuned(experiment, tempfile.mkdtemp())[0].rows[0][:3]
    ['SIR-GCN', 'not run', '']
    """
    found: list[Sheet] = []
    for column in experiment.columns:
        models = read_tuned(experiment, column.title, results)
        title = f"{experiment.name}: {column.title}" if len(experiment.columns) > 1 else experiment.name
        found.append(_scores(experiment, title, models))
        more = _differences(title, models), _other_forms(title, models), _settings(title, models)
        found += [sheet for sheet in more if sheet.rows]
    return found


def searched() -> tuple[str, ...]:
    """The experiments of the package that have a search.

    >>> "tuned_minesweeper" in searched()
    True
    """
    return tuple(name for name in names() if getattr(load(name), "search", None) is not None)


def read_tuned(experiment: TrainingExperiment, column: str, results: str | Path) -> list[Tuned]:
    """The models of a search in the order of the experiment, with their trials and runs from the records.

    Runs of other settings than those of the winner are left out.
    """
    settings = plan.Settings(Path(results))
    made, file = trials.read_trials(settings, experiment.name), settings.file(experiment)
    runs = [run for run in (read_runs(file) if file.exists() else ()) if run.column == column and run.status == "done"]
    asked = trials.search_of(experiment).trials
    found = []
    # A row may have columns of its own.
    for row in (experiment.model(title) for _, place, title in experiment.cells(seeds=[0]) if place == column):
        kept = tuple(trials.trials_of(made, experiment, column, row))
        winner = trials.winner_of(kept) if len(kept) == asked else None
        own = tuple(_of_winner(experiment, column, row, winner, runs))
        found.append(Tuned(row, asked, experiment.seeds, kept, winner, own))
    return found


def _of_winner(
    experiment: TrainingExperiment, column: str, row: ModelConfig, winner: dict[str, Any] | None, runs: list[Run]
) -> list[Run]:
    """The runs of a row that have the settings of its winner."""
    if winner is None:
        return []
    chosen = trials.with_winners(experiment, column, {row.title: winner})
    wanted = plan.Run(chosen, column, row.title, 0).config
    return sorted((run for run in runs if run.model == row.title and run.config == wanted), key=lambda run: run.seed)


def _scores(experiment: TrainingExperiment, title: str, models: Sequence[Tuned]) -> Sheet:
    """The scores of all models, with what they cost and what their search cost."""
    best = best_of(models)
    rows = [_score_row(model, best) for model in models]
    head = ["Model", "Score", "Runs", "Parameters", "Seconds of a run", "Trials", "Failed", "Best validation"]
    return Sheet(title, [*head, "Minutes of the search"], rows, _notes(experiment, models, best))


def _score_row(model: Tuned, best: Tuned | None) -> list[Entry]:
    values, failed = list(model.values.values()), sum(one["status"] == records.FAILED for one in model.kept)
    score: Entry = Styled(model.score_text, is_bold=model is best) if values else NOT_RUN
    searched = sum(one.get("seconds") or 0.0 for one in model.kept) / 60
    return [
        model.row.title,
        score,
        f"{len(values)}" if values else "",
        _whole(model.mean_of("parameters")),
        _short(model.mean_of("seconds")),
        f"{len(model.kept)} of {model.asked}",
        str(failed),
        _best_validation(model),
        f"{searched:.1f}",
    ]


def _best_validation(model: Tuned) -> str:
    """The best validation metric of the trials so far, also where some are still to come."""
    best = trials.winner_of(model.kept)
    return "" if best is None else f"{trials.score_of(best):.4f}"


def _notes(experiment: TrainingExperiment, models: Sequence[Tuned], best: Tuned | None) -> list[Fact]:
    """The budget, how settings were chosen, and what the scores are."""
    search = trials.search_of(experiment)
    trained = changed(experiment.train, search.train, "search: train")
    notes = [
        Fact("Budget of every model", f"{search.trials} trials of {trained.epochs} epochs on split {search.split}"),
        Fact("Chosen by", "the best validation metric; the test part is read in the runs of the winners only"),
        Fact("Runs of the winners", f"{experiment.train.epochs} epochs on {experiment.seeds} seeds or splits"),
    ]
    metrics = {run.metric for model in models for run in model.runs}
    notes += [Fact("Score", f"{METRICS.get(metric, metric)}, mean ± standard deviation") for metric in metrics]
    return notes + _notes_on_models(experiment, models, best)


def _notes_on_models(experiment: TrainingExperiment, models: Sequence[Tuned], best: Tuned | None) -> list[Fact]:
    """Which models have no epochs, fewer runs or none, and which is ahead."""
    notes = []
    if any(model.row.control for model in models):
        notes.append(Fact("Epochs and parameters", "a control without a network has none"))
    if any(model.is_reduced for model in models):
        notes.append(Fact(f"{MARKS['reduced']} reduced", f"fewer than {experiment.seeds} runs"))
    missing = [model.row.title for model in models if not model.values]
    if missing:
        notes.append(Fact("Not run yet", ", ".join(missing)))
    if best is not None:
        notes.append(Fact("Best mean so far" if missing else "Best mean", best.row.title))
    return notes


def best_of(models: Sequence[Tuned]) -> Tuned | None:
    """The model with the best mean score; None where nothing was run."""
    scored = [model for model in models if model.values]
    return max(scored, key=lambda model: sign(model) * model.mean, default=None)


def sign(model: Tuned) -> int:
    return 1 if model.runs[0].higher_is_better else -1


def reference(models: Sequence[Tuned]) -> Tuned | None:
    """The form of SIR-GCN with the best validation metric in its search, among those whose winner was run.

    >>> reference([]) is None
    True
    """
    return max(_forms(models), key=lambda model: sign(model) * model.validation, default=None)


def _forms(models: Sequence[Tuned]) -> list[Tuned]:
    """The forms of SIR-GCN whose winner was run."""
    return [model for model in models if model.row.architecture.get("conv") == "sir" and model.winner and model.values]


def _other_forms(title: str, models: Sequence[Tuned]) -> Sheet:
    """Every opponent against each form of SIR-GCN but the best one, run by run."""
    forms, ours = _forms(models), reference(models)
    opponents = [model for model in models if model.values and model not in forms]
    rows = [[form.row.title, *difference_row(model, form)] for form in forms if form is not ours for model in opponents]
    head = ["Form", "Model", "Pairs", "Difference", "Interval", "Who is ahead"]
    return Sheet(f"{title}: paired differences of the other forms", head, rows, left=2)


def _differences(title: str, models: Sequence[Tuned]) -> Sheet:
    """Every model against the best form of SIR-GCN, run by run: the same seed is the same split."""
    ours = reference(models)
    others = [model for model in models if model is not ours and model.values]
    rows = [] if ours is None else [difference_row(model, ours) for model in others]
    name = "SIR-GCN" if ours is None else ours.row.title
    notes = [
        Fact("Difference", f"the score of the model less that of {name}, the form with the best validation metric"),
        Fact("Interval", f"95 %, from {RESAMPLES:,} samples of at least {LEAST_PAIRS} paired differences"),
        Fact("Who is ahead", "level where the interval holds 0, open where there are too few pairs"),
    ]
    return Sheet(
        f"{title}: paired differences", ["Model", "Pairs", "Difference", "Interval", "Who is ahead"], rows, notes
    )


def difference_row(model: Tuned, ours: Tuned) -> list[Entry]:
    """A model against ours: the number of pairs, the mean difference, its interval, and who is ahead."""
    pairs = [value - ours.values[seed] for seed, value in model.values.items() if seed in ours.values]
    if not pairs:
        return [model.row.title, "0", "", "", "not comparable"]
    low, high = interval(pairs)
    text = "" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}"
    return [model.row.title, str(len(pairs)), f"{fmean(pairs):+.2f}", text, ahead(model, ours, low, high)]


def ahead(model: Tuned, ours: Tuned, low: float, high: float) -> str:
    """The model that is ahead by an interval of differences that does not hold 0."""
    if math.isnan(low):
        return "open"
    if low <= 0 <= high:
        return "level"
    return model.row.title if (low > 0) == (sign(model) > 0) else ours.row.title


def interval(differences: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The ends of the middle 95 % of the means of samples with replacement; NaN below `LEAST_PAIRS` differences.

    >>> low, high = interval([1.0, 1.1, 0.9, 1.0, 1.0])
    >>> 0.9 < low < 1.0 < high < 1.1
    True
    """
    if len(differences) < LEAST_PAIRS:
        return math.nan, math.nan
    values = np.asarray(differences)
    drawn = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(1), [0.025, 0.975])
    return float(low), float(high)


def _settings(title: str, models: Sequence[Tuned]) -> Sheet:
    """What every model chose."""
    rows = [_settings_row(model.row.title, model.winner) for model in models if model.winner is not None]
    return Sheet(f"{title}: chosen settings", ["Model", "Settings", "Trial", "Validation"], rows, left=2)


def _settings_row(title: str, winner: dict[str, Any]) -> list[Entry]:
    settings = ", ".join(f"{name} = {_value(value)}" for name, value in winner["settings"].items())
    return [title, settings, str(winner["trial"] + 1), f"{trials.score_of(winner):.4f}"]


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _whole(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else _whole(value)
