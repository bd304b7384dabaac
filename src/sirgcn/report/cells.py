"""A cell of a table: what the paper claims, the runs of ours that belong to it, and our figure."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Literal

from sirgcn.engine.experiment import names as packaged
from sirgcn.engine.experiment import split_name
from sirgcn.report.claims import Claim, Column, Table, plain_formula
from sirgcn.report.runs import Run

OURS = "SIR-GCN"
"""The paper's model, which the other models are compared with."""

NO_SCORE = "-"
"""Printed in place of our figure where the split has no test part."""

MARKS = {"reduced": "†", "better": "▲", "worse": "▼"}
"""Printed behind a figure of ours: from reduced runs; outside the published mean ± 2 std, and on which side."""

Verdict = Literal["inside", "better", "worse"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what the paper claims and what we found.

    Args:
        table: the table that the cell belongs to.
        column: the column that the cell belongs to.
        model: the title of its row.
        claim: the published figure. None where there is none.
        printed: the paper's cell as text; a formula in Table 8.
        runs: the finished runs that our figure is the mean of. They are full runs, or reduced ones where there is no
            full run, and all have the settings and the data of the last run.
        left_out: finished runs that do not count.
        other_data: those runs among `left_out` that were made on another version of the data.
        failed: runs that failed.

    >>> from sirgcn.report import compare
    >>> cell = compare([])[0].cells[0]
    >>> print(cell.model, cell.column.name, cell.claim, len(cell.runs))
    GCN n=10 0.10 ± 0.00 0
    >>> cell.command
    'sirgcn reproduce table1 --models GCN --columns n=10'
    """

    table: Table
    column: Column
    model: str
    claim: Claim | None
    printed: str
    runs: tuple[Run, ...] = ()
    left_out: tuple[Run, ...] = ()
    other_data: tuple[Run, ...] = ()
    failed: tuple[Run, ...] = ()

    @property
    def all_runs(self) -> tuple[Run, ...]:
        """The runs that count, those left out, and those that failed."""
        return (*self.runs, *self.left_out, *self.failed)

    @property
    def set_aside(self) -> tuple[Run, ...]:
        """The runs left out for another reason than their data."""
        return tuple(run for run in self.left_out if all(run is not other for other in self.other_data))

    @cached_property
    def values(self) -> tuple[float, ...]:
        """One value per run, or per repetition of a timing, in the unit of the table."""
        return tuple(value for run in self.runs for value in run.values)

    @cached_property
    def mean(self) -> float:
        """The mean of the values; NaN without any."""
        return fmean(self.values) if self.values else math.nan

    @cached_property
    def std(self) -> float:
        """The standard deviation of the values, with n - 1 in the denominator; NaN below two values."""
        return deviation(self.values)

    @property
    def is_reduced(self) -> bool:
        """Whether our figure comes from reduced runs."""
        return bool(self.runs) and self.runs[0].reduced

    @property
    def verdict(self) -> Verdict | None:
        """Where our mean lies against the published mean ± 2 std; None for a cell that is not judged."""
        return None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The published interval that our values can be drawn beside; None where the figures cannot be compared."""
        return None

    @property
    def decimals(self) -> int:
        """The number of decimals of our figure.

        It is the number of the claim, or more where our figure is much smaller. Without a claim it is such that about
        five digits are printed.
        """
        printed = [claim.decimals for (_, name), claim in self.table.claims.items() if name == self.column.name]
        wanted = max(0, min(max(printed, default=4), 4 - _digits_before_the_point(self.mean)))
        return max(wanted, self.claim.decimals) if self.claim else wanted

    @property
    def ours(self) -> str:
        """Our figure as text without marks. It is empty where nothing was run, and a dash without a test part."""
        if not self.runs:
            return ""
        if not self.values:
            return NO_SCORE
        text = f"{self.mean:.{self.decimals}f}"
        return text if math.isnan(self.std) else f"{text} ± {self.std:.{self.decimals}f}"

    @property
    def ours_marked(self) -> str:
        """Our figure with the number of its values and its marks: `0.99 ± 0.01 (5)†▼`."""
        if not self.runs:
            return "failed" if self.failed else ""
        marks = MARKS["reduced"] * self.is_reduced + MARKS.get(self.verdict or "", "")
        return f"{self._counted_figure()}{marks}"

    @property
    def exact(self) -> str:
        """Our figure at full precision, for a spreadsheet; empty where there is none."""
        return "" if math.isnan(self.mean) else repr(self.mean)

    @property
    def published(self) -> str:
        """The paper's figure, `0.10 ± 0.00`, or its formula; a dash where the paper has none."""
        if self.claim is None:
            return plain_formula(self.printed) or "-"
        return str(self.claim)

    @property
    def ratios(self) -> tuple[float, float]:
        """The paper's and our ratio of a time to SIR-GCN's in the same column; NaN where there is none."""
        return math.nan, math.nan

    @property
    def ratio_std(self) -> float:
        """The standard deviation of our ratio to SIR-GCN; NaN where there is none."""
        return math.nan

    @property
    def ratio_text(self) -> str:
        """Our ratio to SIR-GCN as text; empty where figures are not compared as ratios."""
        return ""

    @property
    def count(self) -> str:
        """The number of values of our figure, `5 runs`, or why there is no figure."""
        if not self.values:
            return "no test part"
        return f"{len(self.values):,} {self._noun()}{'' if len(self.values) == 1 else 's'}"

    @property
    def without_score(self) -> str:
        """What the list of runs says of a finished run that has no score."""
        return ""

    def _noun(self) -> str:
        """What one value of the figure is."""
        return "run"

    def _counted_figure(self) -> str:
        """Our figure with the number of its values in brackets."""
        return f"{self.ours} ({len(self.values)})" if self.values else NO_SCORE

    def mean_of(self, cost: str) -> float:
        """The mean over the runs of a recorded cost, such as `seconds_per_epoch`; NaN where none was recorded."""
        values = [value for run in self.runs if (value := getattr(run, cost)) is not None]
        return fmean(values) if values else math.nan

    @property
    def command(self) -> str:
        """The command that runs this cell; empty for a cell of neither the paper nor our runs."""
        changes: list[str] = []
        if self.table.paper and any(row.model == self.model for row in self.table.rows):
            start, model = ["reproduce", self.table.argument], self.model
        elif self.all_runs:
            name, changes = split_name(self.all_runs[0].experiment)
            changes = self.all_runs[0].record.get("overrides", changes)
            verb = "search" if self.all_runs[0].record.get("search") else "reproduce"
            start = [verb, name if name in packaged() else f"{name}.toml"]
            model = self.all_runs[0].model
        else:
            return ""
        parts = ["sirgcn", *start, "--models", model, "--columns", self.column.name]
        parts += [part for change in changes for part in ("--set", change)]
        return shlex.join([*parts, "--reduced"] if self.is_reduced else parts)


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation; NaN below two values, or where one is not finite.

    >>> deviation([1.0, 3.0])
    1.4142135623730951
    """
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


def _digits_before_the_point(value: float) -> int:
    return math.floor(math.log10(abs(value))) + 1 if value and math.isfinite(value) else 1
