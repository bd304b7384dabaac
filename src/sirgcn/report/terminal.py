"""The tables in the terminal, as `sirgcn reproduce` prints them."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sirgcn.report.filling import compare
from sirgcn.report.runs import read_runs

if TYPE_CHECKING:
    from rich.console import Console


def print_tables(
    results: str | Path, console: "Console", experiments: Collection[str], outdated: Collection[tuple[Any, ...]] = ()
) -> None:
    """Print what these experiments have run, beside the paper's figures.

    Args:
        results: the folder of the records.
        console: where to print.
        experiments: the names of the experiments. Rows and columns in which nothing was run are not printed.
        outdated: the keys of runs that do not count.

    >>> import io, tempfile
    >>> from rich.console import Console
    >>> console = Console(file=io.StringIO())
    >>> print_tables(tempfile.mkdtemp(), console, ["dictionary_lookup"])
    >>> console.file.getvalue()
    ''
    """
    files = [path for name in sorted(experiments) if (path := Path(results) / f"{name}.jsonl").exists()]
    runs = [run for path in files for run in read_runs(path) if run.key not in outdated]
    for comparison in compare(runs):
        part = comparison.run_part()
        if part.lines:
            console.print(part.sheet().rich())
