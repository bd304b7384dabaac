"""The tables as Markdown, LaTeX and CSV. Works on records alone: torch is never loaded.

Every model has a line of the paper's figures and, where we ran it, one of ours: mean ± standard deviation (runs), with
the marks of `MARKS`.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sirgcn.report.cells import NO_SCORE, OURS, Cell, Comparison
from sirgcn.report.claims import METRICS, Column, plain_formula
from sirgcn.report.runs import Run
from sirgcn.report.runtimes import ratio_text, timing_notes
from sirgcn.spreadsheet import csv_text

MARKS = {
    "reduced": "†",
    "better": "▲",
    "worse": "▼",
}
"""Behind a figure of ours: from reduced runs; outside the published mean ± 2 std, on the better or the worse side."""


_OURS = {
    "score": "mean ± standard deviation (number of runs)",
    "runtime": "mean ± standard deviation (number of repetitions)",
    "complexity": "slope of log time ± its standard error (exponent in the formula)",
}


def markdown(comparison: Comparison) -> str:
    """The table as Markdown, with its notes below; the paper's best are bold, as it prints them."""
    rows = [_bar(head(comparison, _MARKDOWN)), "|---|---|" + "---:|" * len(comparison.columns)]
    rows += [_bar(line) for _, line in lines(comparison, _MARKDOWN)]
    notes = [f"- {as_markdown(note)}" for note in (*legend_of(comparison), *notes_of(comparison))]
    return "\n".join([*rows, "", *notes]).rstrip() + "\n"


def latex(comparison: Comparison) -> str:
    """The table as LaTeX (booktabs, amssymb)."""
    table = comparison.table
    body = []
    for rule, line in lines(comparison, _LATEX):
        body += [r"\midrule"] * rule + [" & ".join(line) + r" \\"]
    caption = (
        f"{table.caption} Published figures and ours." if table.caption else f"Our figures: {_latex(table.title)}."
    )
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
            rf"\label{{{re.sub(r'[^a-z0-9:_-]', '-', table.label.lower())}:ours}}",
            r"\centering",
            rf"\begin{{tabular}}{{ll{'c' * len(comparison.columns)}}}",
            r"\toprule",
            " & ".join(head(comparison, _LATEX)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *(rf"\par\small {_latex(note)}" for note in (*legend_of(comparison), *notes_of(comparison))),
            r"\end{table}",
            "",
        ]
    )


def as_csv(comparisons: Iterable[Comparison]) -> str:
    """Every cell of the tables as a line of CSV, at full precision; empty where the paper or we have nothing.

    A name that a spreadsheet would run as a formula has an apostrophe before it.
    """
    rows = [_fields(comparison, cell) for comparison in comparisons for cell in comparison.cells]
    return csv_text([tuple(rows[0]), *(tuple(row.values()) for row in rows)])


def caption_of(comparison: Comparison) -> str:
    """`Table 1: Test accuracy on DictionaryLookup.`"""
    table = comparison.table
    return f"{table.title}: {table.caption}" if table.caption else table.title


def ours_text(comparison: Comparison, cell: Cell) -> str:
    """Our figure with the number of its values and its marks: `0.99 ± 0.01 (5)†▼`; empty where nothing was run."""
    if not cell.runs:
        return "failed" if cell.failed else ""
    marks = MARKS["reduced"] * cell.is_reduced + MARKS.get(cell.verdict or "", "")
    if comparison.table.kind == "complexity":
        return f"{cell.ours}{marks}"
    if not cell.values:
        return f"{NO_SCORE}{marks}"
    ratio = f", {ratio_text(comparison, cell)}" if comparison.table.kind == "runtime" else ""
    return f"{cell.ours} ({len(cell.values)}){ratio}{marks}"


def paper_text(comparison: Comparison, cell: Cell) -> str:
    """The paper's figure: `0.10 ± 0.00`, in runtime tables with the ratio to SIR-GCN; a dash where it has none."""
    if cell.claim is None:
        return plain_formula(cell.printed) or "-"
    ratio = f", {comparison.ratios(cell)[0]:.2f}x" if comparison.table.kind == "runtime" else ""
    return f"{cell.claim}{ratio}"


def legend_of(comparison: Comparison) -> list[str]:
    """How to read the figures: the metrics, and those marks that occur."""
    cells, metrics = comparison.cells, dict[str, list[str]]()
    for column in comparison.columns:
        # A column in which every run failed has none.
        if column.metric:
            metrics.setdefault(metric_of(column), []).append(column.name)
    legend = [f"Metric: {_by_column(comparison, metrics)}."] if metrics else []
    if any(cell.runs for cell in cells):
        legend.append(f"Ours: {_OURS[comparison.table.kind]}.")
    outside = [side for side in ("better", "worse") if any(cell.verdict == side for cell in cells)]
    if outside:
        legend.append(f"Outside the published mean ± 2 std: {', '.join(f'{MARKS[side]} {side}' for side in outside)}.")
    return legend


def _columns_of(comparison: Comparison, said: Callable[[Cell, Run], str]) -> dict[str, list[str]]:
    """What is said of the runs that count, each with the columns in which it is; nothing where it is empty.

    Where rows of a column differ, with these rows: `minesweeper (CPGNN)`.
    """
    found: dict[str, list[str]] = {}
    for column in comparison.columns:
        rows: dict[str, dict[str, None]] = {}
        for cell in comparison.cells:
            for text in (said(cell, run) for run in cell.runs if cell.column == column):
                if text:
                    rows.setdefault(text, {})[cell.model] = None
        for text, models in rows.items():
            name = column.name if len(rows) == 1 else f"{column.name} ({', '.join(models)})"
            found.setdefault(text, []).append(name)
    return found


def _by_column(comparison: Comparison, groups: dict[str, list[str]]) -> str:
    """`WikiCS, MNIST: accuracy, %; ZINC: mean absolute error`; without names where it is the same for all columns."""
    everywhere = [len(names) == len(comparison.columns) for names in groups.values()] == [True]
    return "; ".join(text if everywhere else f"{', '.join(names)}: {text}" for text, names in groups.items())


def metric_of(column: Column) -> str:
    """A column's metric with its unit."""
    return METRICS.get(column.metric, column.metric) + (f", {column.unit}" if column.unit else "")


def notes_of(comparison: Comparison) -> list[str]:
    """What a reader must know besides: the data, why runs were reduced or left out, whose figures the paper has."""
    table, cells, notes = comparison.table, comparison.cells, list[str]()
    data = _columns_of(comparison, lambda _, run: run.making * (run.making != "as published"))
    why = _columns_of(comparison, lambda cell, run: (run.reduced_why or "no reason given") * cell.is_reduced)
    if data and table.kind == "score":
        notes.append(f"Data of our own making: {_by_column(comparison, data)}.")
    if table.kind == "runtime":
        notes.append(
            f"x: the ratio to {OURS} in the same column, on the same machine; ours is the median over repetitions."
        )
    notes += timing_notes(comparison)
    notes += _notes_of_scores(comparison)
    if why:
        notes.append(f"{MARKS['reduced']} reduced runs: {_by_column(comparison, why)}.")
    other_data = sum(len(cell.other_data) for cell in cells)
    if other_data:
        one_or_more = ("record", "is") if other_data == 1 else ("records", "are")
        notes.append("{} {} of another version of the data {} left out.".format(other_data, *one_or_more))
    other = sum(run.reduced == cell.is_reduced for cell in cells for run in cell.set_aside)
    if other:
        notes.append(f"Runs under settings that were changed since, not in any mean: {other}.")
    failed = sum(len(cell.failed) for cell in cells)
    if failed:
        notes.append(f"Runs that failed, not in any mean: {failed}.")
    if table.source:
        notes.append(f"The paper takes the rows other than {OURS} from {table.source}.")
    if table.note:
        notes.append(f"The paper's note: {table.note.replace('$', '')}")
    return notes


def _notes_of_scores(comparison: Comparison) -> list[str]:
    """Where a training has no score, and where it has one that is not a number."""
    if comparison.table.kind != "score":
        return []
    notes = []
    absent = _columns_of(comparison, lambda _, run: "the split has no test part" * (not run.has_score))
    if absent:
        told = _by_column(comparison, absent)
        notes.append(f"No score ({NO_SCORE}): {told}; the scores of the other parts are in the records.")
    undefined = [
        f"{cell.model}, {cell.column.name} (seed {run.seed})"
        for cell in comparison.cells
        for run in cell.runs
        if any(map(math.isnan, run.values))
    ]
    if undefined:
        notes.append(f"nan is a score that is not a number, in a run of the mean: {'; '.join(undefined)}.")
    return notes


@dataclass(frozen=True)
class Format:
    """How a format writes text, the paper's best and a formula."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    formula: Callable[[str], str]


def head(comparison: Comparison, form: Format) -> list[str]:
    """The headings of the grid: the model, whose figures, the columns."""
    return ["Model", "", *(form.escape(column.heading) for column in comparison.columns)]


def lines(comparison: Comparison, form: Format) -> Iterator[tuple[bool, list[str]]]:
    """The lines of the grid, each with whether a rule goes above it."""
    for line in comparison.lines:
        name = line.row.latex if line.row.latex and form is _LATEX else form.escape(line.row.model)
        rule = line.row.rule_above
        if any(cell.printed for cell in line.cells):
            yield rule, [name, "paper", *(_published(comparison, cell, form) for cell in line.cells)]
            name, rule = "", False
        if any(cell.runs or cell.failed for cell in line.cells):
            yield rule, [name, "ours", *(form.escape(ours_text(comparison, cell)) for cell in line.cells)]


def _published(comparison: Comparison, cell: Cell, form: Format) -> str:
    if cell.printed and cell.claim is None:
        return form.formula(cell.printed)
    text = form.escape(paper_text(comparison, cell))
    return form.bold(text) if cell.column.best == cell.model else text


def _fields(comparison: Comparison, cell: Cell) -> dict[str, str]:
    column, claim = cell.column, cell.claim
    paper_ratio, our_ratio = comparison.ratios(cell) if cell.table.kind == "runtime" else (math.nan, math.nan)
    costs = ("seconds_per_epoch", "seconds", "peak_memory_mb", "parameters")
    return {
        "table": str(cell.table.number or cell.table.label),
        "model": cell.model,
        "column": column.name,
        "metric": column.metric,
        "unit": column.unit,
        "higher_is_better": str(column.higher_is_better).lower(),
        "paper_mean": f"{claim.mean:.{claim.decimals}f}" if claim else plain_formula(cell.printed),
        "paper_std": f"{claim.std:.{claim.decimals}f}" if claim else "",
        "ours_mean": cell.ours if cell.table.kind == "complexity" else _number(cell.mean),
        "ours_std": _number(cell.std),
        "paper_ratio": _number(paper_ratio),
        "ours_ratio": _number(our_ratio),
        "ours_ratio_std": _number(cell.ratio()[1]),
        "runs": str(len(cell.runs)),
        "failed": str(len(cell.failed)),
        "reduced": str(cell.is_reduced).lower() if cell.runs else "",
        "verdict": cell.verdict or "",
        **{name: _number(cell.mean_of(name)) for name in costs},
        "command": cell.command,
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(value)


def _bar(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def as_markdown(text: str) -> str:
    """Text as Markdown that shows just this text."""
    # Whatever could open markup, an entity or a new cell; a record may hold anything.
    return re.sub(r"([\\`*_{}\[\]<>|$~#&])", r"\\\1", " ".join(text.split()))


_LATEX_CHARACTERS = {
    **{char: rf"\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "▲": r"$^\blacktriangle$",
    "▼": r"$^\blacktriangledown$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "×": r"$\times$",
    "|": r"$|$",
    "<": r"$<$",
    ">": r"$>$",
}


def _latex(text: str) -> str:
    return "".join(_LATEX_CHARACTERS.get(char, char) for char in " ".join(text.split()))


_MARKDOWN = Format(as_markdown, "**{}**".format, lambda formula: as_markdown(plain_formula(formula)))
_LATEX = Format(_latex, r"\textbf{{{}}}".format, "${}$".format)
