"""What several commands share: the consoles, options, and how a table is printed."""

import json
import signal
import sys
import threading
import time
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
ShortJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(2, "run")
    '2 runs'
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def warn(text: str) -> None:
    """Print a warning."""
    err.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


class Interrupt:
    """Raises for the first Ctrl-C, and for none of those that follow within `patience` seconds.

    So the second one of an impatient user does not break the clean-up that the first one began.
    Python drops an exception that is raised in a destructor or a callback: `check`, called now and then, raises again.

    >>> Interrupt().came
    False
    """

    def __init__(self, patience: float = 10.0) -> None:
        self.patience = patience
        self.last: float | None = None

    @property
    def came(self) -> bool:
        """Whether there was a Ctrl-C."""
        return self.last is not None

    def __call__(self, number: int, frame: object) -> None:
        """Handle the signal."""
        now = time.monotonic()
        if self.last is None or now - self.last > self.patience:
            self.last = now
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise if there was a Ctrl-C whose exception got lost."""
        if self.came:
            raise KeyboardInterrupt


@contextmanager
def resumable() -> Iterator[Interrupt]:
    """Say, where somebody stops a command, that the same command goes on. The exit code of an interrupt stays."""
    interrupt = Interrupt()
    # Only the main thread has handlers, and what is started in the background by a shell ignores Ctrl-C.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else signal.SIG_IGN
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    except KeyboardInterrupt:
        err.print("stopped; the same command goes on from here", soft_wrap=True)
        raise
    finally:
        if before != signal.SIG_IGN:
            # The process is about to end, where a second Ctrl-C would only show a traceback.
            signal.signal(signal.SIGINT, signal.SIG_IGN if interrupt.came else before)


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
