"""Ours beside the paper's in the terminal: what `sirgcn reproduce` prints."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sirgcn.report.cells import Comparison, compare
from sirgcn.report.claims import plain_formula
from sirgcn.report.runs import read_runs
from sirgcn.report.tables import MARKS, Format, caption_of, head, legend_of, lines, notes_of

_PLAIN = Format(str, str, plain_formula)
_COLOURS = {MARKS["better"]: "green", MARKS["worse"]: "red"}


def print_tables(
    results: str | Path, console: Console, experiments: Collection[str], outdated: Collection[tuple[Any, ...]] = ()
) -> None:
    """Print the rows and columns that these experiments have run, from their records in the folder `results`.

    Runs whose keys are `outdated` are left out.
    """
    files = [path for name in sorted(experiments) if (path := Path(results) / f"{name}.jsonl").exists()]
    runs = [run for path in files for run in read_runs(path) if run.key not in outdated]
    for comparison in compare(runs):
        part = comparison.run_part()
        if part.lines:
            console.print(as_rich(part))


def as_rich(comparison: Comparison) -> Group:
    """A table for `rich` with its notes below; figures outside the published interval are in colour."""
    table = Table(
        title=Text(caption_of(comparison), style="bold"),
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for place, name in enumerate(head(comparison, _PLAIN)):
        table.add_column(Text(name), justify="left" if place < 2 else "right", no_wrap=place < 2)
    for rule, line in lines(comparison, _PLAIN):
        if rule:
            table.add_section()
        # As Text, not markup: a record may hold anything.
        table.add_row(*(Text(text, style=_COLOURS.get(text[-1:], "")) for text in line))
    return Group(table, Text("\n".join([*legend_of(comparison), *notes_of(comparison)]), style="dim"))
