"""How the report shows training: scores beside the published interval, every run as a dot, and learning curves."""

import math
from collections.abc import Mapping

from sirgcn.report.cells import NO_SCORE, Cell, Verdict
from sirgcn.report.claims import Column
from sirgcn.report.figures import curves, dots
from sirgcn.report.presenter import Comparison, Presenter, facts_on_runs
from sirgcn.report.runs import Run
from sirgcn.report.scores import score_reading
from sirgcn.report.sheets import Fact, Sheet


class ScoreCell(Cell):
    """A cell of scores, which is judged against the published mean ± 2 std."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The published mean ± 2 std; None where nothing was published."""
        return self.claim.interval if self.claim else None

    @property
    def verdict(self) -> Verdict | None:
        """Where our mean lies against the published mean ± 2 std; None without a claim or scores."""
        if self.interval is None or not self.values:
            return None
        low, high = self.interval
        if low <= self.mean <= high:
            return "inside"
        is_better = (self.mean > high) == self.column.higher_is_better and not math.isnan(self.mean)
        return "better" if is_better else "worse"

    @property
    def without_score(self) -> str:
        """Why a finished run has no score."""
        return f"{NO_SCORE} (no test part)"


class TrainingPresenter(Presenter):
    """Shows the scores of trained models."""

    cells = ScoreCell
    ours = "mean ± standard deviation (number of runs)"
    figures = "Every run and its learning curve"

    def own_notes(self, comparison: Comparison) -> list[Fact]:
        """Which data are not the published ones, and which runs have no score or none that is a number."""
        notes = facts_on_runs("Data of our own making", comparison, _own_data)
        notes += facts_on_runs(f"No score ({NO_SCORE})", comparison, _why_no_score)
        return notes + [
            Fact("Score that is not a number", f"{cell.model}, seed {run.seed}", cell.column.name)
            for cell in comparison.cells
            for run in cell.runs
            if any(map(math.isnan, run.values))
        ]

    def reading(self, comparison: Comparison) -> list[Sheet]:
        return score_reading(comparison)

    def panels(self, comparison: Comparison, column: Column, colours: Mapping[str, str]) -> list[tuple[str, str]]:
        cells = comparison.cells_of(column)
        return [("every run", dots(cells, column, colours)), *curves(cells, column, colours)]


def _own_data(run: Run) -> str:
    return "" if run.making == "as published" else run.making


def _why_no_score(run: Run) -> str:
    return "" if run.has_score else "the split has no test part"
