"""What several commands share: the consoles, options, and how a table is printed."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

# In a file or a pipe, tables need not be folded.
out, err = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)

Models = Annotated[
    list[str] | None,
    typer.Option("--models", "-m", help="Models by title. Repeat the option for several. Default: all."),
]
Reduced = Annotated[
    bool, typer.Option("--reduced", help="Run the shorter form of the experiment. Its records and tables say so.")
]
Results = Annotated[Path, typer.Option(help="The folder with the records of runs.")]
Root = Annotated[
    Path | None, typer.Option("--data", help="The folder of the data sets. Default: $SIRGCN_DATA, then a cache folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(2, "run")
    '2 runs'
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextmanager
def resumable() -> Iterator[None]:
    """Say, where somebody stops a command, that the same command goes on. The exit code of an interrupt stays."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped; the same command goes on from here", soft_wrap=True)
        raise


def show(head: tuple[str, ...], rows: list[tuple[Any, ...]], as_json: bool) -> None:
    """Print rows below their head, or the same as JSON."""
    if as_json:
        print(json.dumps([dict(zip(head, row, strict=True)) for row in rows]))
        return
    table = Table(box=None)
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(f"{entry:,}" if isinstance(entry, int | float) else str(entry) for entry in row))
    out.print(table, markup=False)
