"""What the commands share: the consoles, the options that several have, how a table is shown."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

# In a file or a pipe, tables need not fold.
out, err = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)

Models = Annotated[
    list[str] | None, typer.Option("--models", "-m", help="Rows, by title; several by repeating. Default: all.")
]
Reduced = Annotated[bool, typer.Option("--reduced", help="The shorter form of the experiment; its records say so.")]
Results = Annotated[Path, typer.Option(help="The folder of the records.")]
Root = Annotated[
    Path | None, typer.Option("--data", help="The data root. Default: $SIRGCN_DATA, then a cache folder of the user.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for a script instead of a table.")]


def show(head: tuple[str, ...], rows: list[tuple[Any, ...]], as_json: bool) -> None:
    """Rows below their head, or the same as JSON."""
    if as_json:
        print(json.dumps([dict(zip(head, row, strict=True)) for row in rows]))
        return
    table = Table(box=None)
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(f"{entry:,}" if isinstance(entry, int | float) else str(entry) for entry in row))
    out.print(table, markup=False)
