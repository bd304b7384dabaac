"""The report as files: what `sirgcn results --write` writes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sirgcn.files import write_atomic
from sirgcn.report.html import render_html
from sirgcn.report.presenter import Comparison
from sirgcn.report.tables import as_csv, latex
from sirgcn.strict import check_name


def _markdown(comparisons: Sequence[Comparison]) -> str:
    return "\n".join(comparison.sheet().markdown(level=2) for comparison in comparisons)


def _latex(comparisons: Sequence[Comparison]) -> str:
    return "\n".join(map(latex, comparisons))


FILES: dict[str, Callable[[Sequence[Comparison]], str]] = {
    "report.html": render_html,
    "tables.md": _markdown,
    "tables.tex": _latex,
    "tables.csv": as_csv,
}
"""The files of a report by name, each with the function that returns its text."""


def write_report(
    comparisons: Sequence[Comparison], folder: str | Path, names: Sequence[str] = tuple(FILES)
) -> list[Path]:
    """Write the files of a report into a folder, each in full or not at all.

    Args:
        comparisons: the tables, as `compare` returns them.
        folder: where the files go. It is created where it does not exist.
        names: which of `FILES` to write; all by default.

    Returns:
        The paths of the files.

    >>> import tempfile
    >>> from sirgcn.report import compare
    >>> [path.name for path in write_report(compare([]), tempfile.mkdtemp())]
    ['report.html', 'tables.md', 'tables.tex', 'tables.csv']
    """
    for name in names:
        check_name("file of a report", name, FILES)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_atomic(folder / name, FILES[name](comparisons).encode())
    return [folder / name for name in names]
