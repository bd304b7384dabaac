"""How the report shows growth: the slopes that were measured beside the exponents of the paper's formulas."""

import math
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

from sirgcn.report.cells import Cell
from sirgcn.report.claims import Column, exponents
from sirgcn.report.figures import growth
from sirgcn.report.presenter import Comparison, Presenter
from sirgcn.report.runs import as_number
from sirgcn.report.sheets import Fact, Sheet
from sirgcn.report.timing import facts_on_machine

# A slope that is further from its exponent is named.
_NEAR = 0.15


class Slope(NamedTuple):
    """How the logarithm of the time grows with that of a size: the slope, its standard error, the formula's exponent.

    The error is NaN where none was recorded. The exponent is None where the formula does not contain the size.
    """

    value: float
    error: float
    exponent: int | None

    def __str__(self) -> str:
        spread = "" if math.isnan(self.error) else f" ± {self.error:.2f}"
        return f"{self.value:.2f}{spread}" + ("" if self.exponent is None else f" ({self.exponent})")


class GrowthCell(Cell):
    """A cell of Table 8: a formula, and the slopes that were measured along each size that grows."""

    @property
    def slopes(self) -> dict[str, Slope]:
        """The slope by the size that grows; the mean over the runs."""
        claimed = exponents(self.printed)
        return {
            name: Slope(
                fmean(as_number(run.metrics.get(name)) for run in self.runs),
                fmean(as_number(run.growth(name).get("error")) for run in self.runs),
                claimed.get(name),
            )
            for name in dict.fromkeys(name for run in self.runs for name in run.metrics)
        }

    @property
    def ours(self) -> str:
        """The slopes as text: `|V| 0.98 ± 0.01 (1), ...`, with the exponent of the formula in brackets."""
        return ", ".join(f"{name} {slope}" for name, slope in self.slopes.items())

    @property
    def exact(self) -> str:
        """The slopes as text."""
        return self.ours

    @property
    def count(self) -> str:
        """Empty: every slope has an error of its own."""
        return ""

    def _counted_figure(self) -> str:
        return self.ours


class GrowthPresenter(Presenter):
    """Shows how the time of one layer grows."""

    cells = GrowthCell
    ours = "slope of log time ± its standard error (exponent in the formula)"
    figures = "Time by size"
    has_formulas = True

    def own_notes(self, comparison: Comparison) -> list[Fact]:
        """How the times were taken."""
        runs = [run for cell in comparison.cells for run in cell.runs if run.samples]
        if not runs:
            return []
        timed = "one layer in inference, on random graphs whose edges were grouped before"
        return [Fact("Timed", timed), *facts_on_machine(runs)]

    def reading(self, comparison: Comparison) -> list[Sheet]:
        found = list(_claimed_slopes(comparison.cells))
        return [sheet for sheet in (_near(found), _far(found)) if sheet.rows]

    def panels(self, comparison: Comparison, column: Column, colours: Mapping[str, str]) -> list[tuple[str, str]]:
        return growth(comparison.cells_of(column), colours)


class _Claimed(NamedTuple):
    """A slope whose exponent the formula gives."""

    model: str
    size: str
    slope: float
    exponent: int

    @property
    def distance(self) -> float:
        return self.slope - self.exponent


def _claimed_slopes(cells: Iterable[Cell]) -> Iterable[_Claimed]:
    for cell in cells:
        if isinstance(cell, GrowthCell):
            for name, slope in cell.slopes.items():
                if slope.exponent is not None:
                    yield _Claimed(cell.model, name, slope.value, slope.exponent)


def _near(found: list[_Claimed]) -> Sheet:
    """How many slopes are near the exponents, by size and in all."""
    sizes = dict.fromkeys(entry.size for entry in found)
    groups = {size: [entry for entry in found if entry.size == size] for size in sizes}
    if len(groups) > 1:
        groups["all"] = found
    rows = [
        [name, str(len(group)), str(sum(abs(entry.distance) <= _NEAR for entry in group))]
        for name, group in groups.items()
    ]
    return Sheet("Slopes and the exponents of the formulas", ["Size", "Slopes", f"Within {_NEAR}"], rows)


def _far(found: list[_Claimed]) -> Sheet:
    rows = []
    for entry in found:
        if abs(entry.distance) > _NEAR:
            side = "below" if entry.distance < 0 else "above"
            rows.append([entry.model, entry.size, f"{entry.slope:.2f}", str(entry.exponent), side])
    columns = ["Model", "Size", "Slope", "Exponent", "The slope is"]
    return Sheet(f"Slopes that are further than {_NEAR} from the exponent", columns, rows, left=2)
