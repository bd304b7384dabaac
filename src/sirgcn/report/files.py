"""The report as files: what `sirgcn results --write` writes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sirgcn.files import write_atomic
from sirgcn.report.cells import Comparison
from sirgcn.report.html import render_html
from sirgcn.report.tables import as_csv, caption_of, latex, markdown


def _markdown(comparisons: Sequence[Comparison]) -> str:
    return "\n".join(f"## {caption_of(comparison)}\n\n{markdown(comparison)}" for comparison in comparisons)


def _latex(comparisons: Sequence[Comparison]) -> str:
    return "\n".join(map(latex, comparisons))


FILES: dict[str, Callable[[Sequence[Comparison]], str]] = {
    "report.html": render_html,
    "tables.md": _markdown,
    "tables.tex": _latex,
    "tables.csv": as_csv,
}
"""The files of a report, by name, each with the function that writes its text."""


def write_report(
    comparisons: Sequence[Comparison], folder: str | Path, names: Sequence[str] = tuple(FILES)
) -> list[Path]:
    """Write the report's files, or those of the names given, into a folder, each in full or not; gives their paths."""
    unknown = [name for name in names if name not in FILES]
    if unknown:
        raise ValueError(f"report: expected files among {', '.join(FILES)}, got {', '.join(unknown)}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_atomic(folder / name, FILES[name](comparisons).encode())
    return [folder / name for name in names]
