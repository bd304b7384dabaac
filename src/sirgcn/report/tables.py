"""The paper's tables with our figures as Markdown, LaTeX and CSV."""

import math
from collections.abc import Iterable
from dataclasses import replace

from sirgcn.report.cells import Cell
from sirgcn.report.claims import plain_formula
from sirgcn.report.presenter import Comparison
from sirgcn.report.sheets import latex_text
from sirgcn.spreadsheet import csv_text

_COSTS = ("seconds_per_epoch", "seconds", "peak_memory_mb", "parameters")


def markdown(comparison: Comparison) -> str:
    """The table as Markdown with its notes below, without a title. Bold figures are bold in the paper.

    >>> from sirgcn.report import compare
    >>> markdown(compare([])[0]).splitlines()[-3]
    '| SIR-GCN | paper | **1.00 ± 0.00** | **1.00 ± 0.00** | **1.00 ± 0.00** | **1.00 ± 0.00** | **1.00 ± 0.00** |'
    """
    return replace(comparison.sheet(), title="").markdown()


def latex(comparison: Comparison) -> str:
    r"""The table as LaTeX (booktabs, amssymb).

    >>> from sirgcn.report import compare
    >>> latex(compare([])[0]).splitlines()[1]
    '\\caption{Test accuracy on DictionaryLookup. Published figures and ours.}'
    """
    table = comparison.table
    caption = f"Our figures: {latex_text(table.title)}."
    if table.caption:
        caption = f"{table.caption} Published figures and ours."
    return comparison.sheet().latex(f"{table.label}:ours", caption)


def as_csv(comparisons: Iterable[Comparison]) -> str:
    """Every cell of the tables as a line of CSV, at full precision; empty where the paper or we have nothing.

    A name that a spreadsheet would run as a formula gets an apostrophe in front of it.

    >>> from sirgcn.report import compare
    >>> as_csv(compare([])).splitlines()[1]
    '1,GCN,n=10,accuracy,,true,0.10,0.00,,,,,,0,0,,,,,,,sirgcn reproduce table1 --models GCN --columns n=10'
    """
    rows = [_fields(cell) for comparison in comparisons for cell in comparison.cells]
    return csv_text([tuple(rows[0]), *(tuple(row.values()) for row in rows)])


def _fields(cell: Cell) -> dict[str, str]:
    column = cell.column
    return {
        "table": str(cell.table.number or cell.table.label),
        "model": cell.model,
        "column": column.name,
        "metric": column.metric,
        "unit": column.unit,
        "higher_is_better": str(column.higher_is_better).lower(),
        **_published(cell),
        **_ours(cell),
        "runs": str(len(cell.runs)),
        "failed": str(len(cell.failed)),
        "reduced": str(cell.is_reduced).lower() if cell.runs else "",
        "verdict": cell.verdict or "",
        **{name: _number(cell.mean_of(name)) for name in _COSTS},
        "command": cell.command,
    }


def _published(cell: Cell) -> dict[str, str]:
    if cell.claim is None:
        return {"paper_mean": plain_formula(cell.printed), "paper_std": ""}
    mean, _, std = str(cell.claim).partition(" ± ")
    return {"paper_mean": mean, "paper_std": std}


def _ours(cell: Cell) -> dict[str, str]:
    paper_ratio, our_ratio = cell.ratios
    return {
        "ours_mean": cell.exact,
        "ours_std": _number(cell.std),
        "paper_ratio": _number(paper_ratio),
        "ours_ratio": _number(our_ratio),
        "ours_ratio_std": _number(cell.ratio_std),
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
