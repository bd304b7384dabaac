"""A progress bar for what takes longer than a moment."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def progress(items: Iterable[Item], about: str, total: int | None = None) -> Iterator[Item]:
    """The items, with a bar on the terminal's error stream while they are taken; without a terminal none."""
    console = Console(stderr=True)
    yield from track(items, about, total, console=console, transient=True, disable=not console.is_terminal)
