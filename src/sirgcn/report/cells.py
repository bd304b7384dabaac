"""Ours beside the paper's: the runs sorted into the cells of its tables."""

import math
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median, stdev
from typing import Literal

from sirgcn.engine.experiment import names as packaged
from sirgcn.engine.experiment import split_name
from sirgcn.report.claims import Claim, Column, Kind, Row, Table, exponents, load_claims
from sirgcn.report.runs import Run, as_number, of_other_data
from sirgcn.strict import ConfigError

OURS = "SIR-GCN"
"""The paper's model, to which runtimes are compared."""

STEPS = "Training steps"
"""The table of the times of training steps, a column per experiment."""

NO_SCORE = "-"
"""In the place of our figure where the split has no test part."""

Verdict = Literal["inside", "better", "worse"]


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what the paper claims and what we found.

    Args:
        table: that it belongs to.
        column: likewise.
        model: the row's.
        claim: the published figure; None where there is none.
        printed: the paper's cell as text, a formula in Table 8.
        runs: the finished runs that our figure is the mean of: full ones, or reduced ones where no full one is, all of
            the settings and data of the last.
        left_out: finished runs that do not count.
        other_data: those of them that were made on another version of the data.
        failed: runs that failed.
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
        """Those that count, those left out, those that failed."""
        return (*self.runs, *self.left_out, *self.failed)

    @property
    def set_aside(self) -> tuple[Run, ...]:
        """Those left out though their data are those of the runs that count."""
        return tuple(run for run in self.left_out if all(run is not other for other in self.other_data))

    @cached_property
    def values(self) -> tuple[float, ...]:
        """One value per run, or per repetition of a timing, in the table's unit."""
        return tuple(value for run in self.runs for value in run.values)

    @cached_property
    def mean(self) -> float:
        """Over the values; NaN without any."""
        return fmean(self.values) if self.values else math.nan

    @cached_property
    def std(self) -> float:
        """Over the values, with n - 1 in the denominator; NaN below two."""
        return _stdev(self.values)

    def ratio(self, with_batches: bool = False) -> tuple[float, float]:
        """The median and the standard deviation of a timing's ratios to SIR-GCN, which was timed beside it.

        NaN where there are none; `with_batches` counts the building of the batches in.
        """
        found = [ratio for run in self.runs for ratio in run.ratios(with_batches)]
        return (median(found), _stdev(found)) if found else (math.nan, math.nan)

    @property
    def is_reduced(self) -> bool:
        """Whether our figure is one of reduced runs."""
        return bool(self.runs) and self.runs[0].reduced

    @property
    def verdict(self) -> Verdict | None:
        """Where our mean lies against the published mean ± 2 std; None without a claim or scores."""
        if self.claim is None or not self.values or self.table.kind != "score":
            return None
        low, high = self.claim.interval
        if low <= self.mean <= high:
            return "inside"
        is_better = (self.mean > high) == self.column.higher_is_better and not math.isnan(self.mean)
        return "better" if is_better else "worse"

    @property
    def decimals(self) -> int:
        """To print our figure with: the claim's, or more where ours is much smaller; about five digits without one."""
        printed = [claim.decimals for (_, name), claim in self.table.claims.items() if name == self.column.name]
        size = math.floor(math.log10(abs(self.mean))) + 1 if self.mean and math.isfinite(self.mean) else 1
        wanted = max(0, min(max(printed, default=4), 4 - size))
        return max(wanted, self.claim.decimals) if self.claim else wanted

    @property
    def ours(self) -> str:
        """Our figure as text, without marks; empty where nothing was run, a dash without a test part."""
        if not self.runs:
            return ""
        if self.table.kind == "complexity":
            return ", ".join(_slope_text(name, *found) for name, found in self.slopes.items())
        if not self.values:
            return NO_SCORE
        text = f"{self.mean:.{self.decimals}f}"
        return text if math.isnan(self.std) else f"{text} ± {self.std:.{self.decimals}f}"

    @property
    def slopes(self) -> dict[str, tuple[float, float, int | None]]:
        """By what grows: the slope that was measured, its standard error, and the exponent in the paper's formula.

        Means over the runs; NaN where no error was recorded, None where the formula says nothing.
        """
        names = dict.fromkeys(name for run in self.runs for name in run.metrics)
        claimed = exponents(self.printed)
        return {
            name: (
                fmean(as_number(run.metrics.get(name)) for run in self.runs),
                fmean(as_number(run.growth(name).get("error")) for run in self.runs),
                claimed.get(name),
            )
            for name in names
        }

    def mean_of(self, cost: str) -> float:
        """The mean over the runs of a recorded cost, such as `seconds_per_epoch`; NaN where none was recorded."""
        values = [value for run in self.runs if (value := getattr(run, cost)) is not None]
        return fmean(values) if values else math.nan

    @property
    def command(self) -> str:
        """The command that runs this cell; empty for one that neither the paper nor our runs have."""
        changes: list[str] = []
        if self.table.number is not None and any(row.model == self.model for row in self.table.rows):
            start, model = ["reproduce", f"table{self.table.number}"], self.model
        elif self.all_runs:
            name, changes = split_name(self.all_runs[0].experiment)
            changes = self.all_runs[0].record.get("overrides", changes)
            start = ["reproduce", name if name in packaged() else f"{name}.toml"]
            model = self.all_runs[0].model
        else:
            return ""
        parts = ["sirgcn", *start, "--models", model, "--columns", self.column.name]
        parts += [part for change in changes for part in ("--set", change)]
        return shlex.join([*parts, "--reduced"] if self.is_reduced else parts)


@dataclass(frozen=True)
class Line:
    """A row of a table with our figures."""

    row: Row
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Comparison:
    """A table of the paper with our figures; rows of ours that it lacks come last."""

    table: Table
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All of them, row by row."""
        return tuple(cell for line in self.lines for cell in line.cells)

    def run_part(self) -> "Comparison":
        """Only the rows and columns in which something was run."""
        tried = [(cell.model, cell.column) for cell in self.cells if cell.runs or cell.failed]
        models, columns = {model for model, _ in tried}, {column for _, column in tried}
        lines = (
            replace(line, cells=tuple(cell for cell in line.cells if cell.column in columns))
            for line in self.lines
            if line.row.model in models
        )
        return Comparison(self.table, tuple(column for column in self.columns if column in columns), tuple(lines))

    def ratios(self, cell: Cell) -> tuple[float, float]:
        """A runtime over SIR-GCN's of the same column: the paper's and ours, NaN where one is absent.

        Ours is the median over repetitions in which both were timed side by side; of runs without, that of the means.
        """
        claim = self.table.claims.get((OURS, cell.column.name))
        paper = cell.claim.mean / claim.mean if cell.claim and claim else math.nan
        ours, _ = cell.ratio()
        if math.isnan(ours):
            means = [other.mean for other in self.cells if other.model == OURS and other.column == cell.column]
            ours = cell.mean / means[0] if means else math.nan
        return paper, ours


def _stdev(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan


def _slope_text(name: str, slope: float, error: float, claimed: int | None) -> str:
    """`|V| 0.98 ± 0.01 (1)`, the exponent of the formula in brackets."""
    spread = "" if math.isnan(error) else f" ± {error:.2f}"
    return f"{name} {slope:.2f}{spread}{'' if claimed is None else f' ({claimed})'}"


def compare(runs: Iterable[Run]) -> tuple[Comparison, ...]:
    """The paper's eight tables with the runs in their cells, then a table per experiment that the paper does not have.

    The times of training steps, each data set's an experiment of the package, are in one table.
    Runs of the published variant fill the paper's rows. Another variant, or a model that the table lacks, gets a row of
    its own below. Full and reduced runs are never mixed: full ones count where there are any.
    """
    by_table: dict[int | str, list[Run]] = defaultdict(list)
    for run in runs:
        name = STEPS if run.is_step and run.experiment in packaged() else run.experiment
        by_table[name if run.table is None else run.table].append(run)
    found = [_compare(table, by_table.pop(number, [])) for number, table in enumerate(load_claims(), start=1)]
    for key, own in by_table.items():
        if isinstance(key, int):
            raise ConfigError(f"{own[0].experiment}: table: expected 1 to {len(found)}, got {key}")
        found.append(_compare(_own_table(key, own), own))
    return tuple(found)


def _compare(table: Table, runs: list[Run]) -> Comparison:
    columns, outdated = {column.name: column for column in table.columns}, of_other_data(runs)
    by_cell: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        if run.column not in columns:
            raise ConfigError(
                f"{run.experiment}: {table.title}: column: expected one of {', '.join(columns)}, got {run.column!r}"
            )
        metric = columns[run.column].metric
        if run.status == "done" and table.kind == "score" and run.metric != metric:
            raise ConfigError(f"{run.experiment}: {table.title}: metric: expected {metric}, got {run.metric!r}")
        by_cell[_title(table, run), run.column].append(run)
    rows = {row.model: row for row in table.rows}
    own = [title for title, _ in by_cell if title not in rows]
    for place, title in enumerate(dict.fromkeys(own)):
        rows[title] = Row(title, ("",) * len(columns), rule_above=place == 0)
    lines = []
    for title, row in rows.items():
        cells = [
            _cell(table, column, title, printed, by_cell[title, column.name], outdated)
            for column, printed in zip(table.columns, row.cells, strict=True)
        ]
        lines.append(Line(row, tuple(cells)))
    return Comparison(table, table.columns, tuple(lines))


def _title(table: Table, run: Run) -> str:
    published = table.number is None or run.variant == "published"
    return run.model if published else f"{run.model} ({run.variant})"


def _cell(table: Table, column: Column, title: str, printed: str, runs: list[Run], outdated: Collection[int]) -> Cell:
    experiments = sorted({run.experiment for run in runs})
    if len(experiments) > 1:
        raise ConfigError(
            f"{table.title}, {title}, {column.name}: expected runs of one experiment, got {' and '.join(experiments)}; "
            "leave `table` out of those that are not the paper's"
        )
    done = [run for run in runs if run.status == "done"]
    counted = _counted([run for run in done if id(run) not in outdated])
    return Cell(
        table=table,
        column=column,
        model=title,
        claim=table.claims.get((title, column.name)),
        printed=printed,
        runs=tuple(sorted(counted, key=lambda run: (run.seed, run.split or 0))),
        left_out=tuple(run for run in done if all(run is not other for other in counted)),
        other_data=tuple(run for run in done if id(run) in outdated),
        failed=tuple(run for run in runs if run.status == "failed"),
    )


def _counted(done: list[Run]) -> list[Run]:
    """The full runs, or without any the reduced ones, on the data and under the settings of the last: one protocol."""
    same = [run for run in done if not run.reduced] or done
    return [run for run in same if (run.config, run.making) == (same[-1].config, same[-1].making)]


def _own_table(experiment: str, runs: list[Run]) -> Table:
    """A table without claims for an experiment that the paper does not have."""
    # A failed run may not know its metric: a finished one of the same column comes after it and counts.
    in_order = sorted(runs, key=lambda run: run.status == "done")
    columns = {
        run.column: Column(run.column, run.metric, "s" * (run.metric in _TIMES), run.higher_is_better)
        for run in in_order
    }
    models = dict.fromkeys(run.model for run in runs)
    rows = tuple(Row(model, ("",) * len(columns)) for model in models)
    last = in_order[-1].metric
    kind: Kind = "runtime" if last in _TIMES else "complexity" if last == "complexity" else "score"
    return Table(None, kind, experiment, "", tuple(columns.values()), rows)


_TIMES = ("seconds", "step_seconds")
