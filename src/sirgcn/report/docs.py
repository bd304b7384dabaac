"""Results in the documentation: whatever stands between two markers is written from the records.

| marker | what it holds |
|---|---|
| `<!-- results: summary -->` | how much was run and how it compares, in a sentence |
| `<!-- results: table 1 -->` | a table of the paper with ours; `table zinc_edges` one of our own experiments |
| `<!-- results: table 1 / SIR-GCN / n=10 -->` | one figure of ours, within a sentence |

Each ends with `<!-- /results -->`.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from sirgcn.engine.experiment import ConfigError
from sirgcn.report.cells import Comparison
from sirgcn.report.tables import markdown, ours_text

_MARKED = re.compile(r"(<!-- results: (.+?) -->)(.*?)(<!-- /results -->|(?=<!-- results:)|\Z)", re.DOTALL)


def render_docs(page: str, comparisons: Sequence[Comparison]) -> str:
    """A Markdown page with what stands between its markers written anew."""

    def write(match: re.Match[str]) -> str:
        start, key, _, end = match.groups()
        if not end:
            raise ConfigError(f"{start}: expected <!-- /results --> behind it, before the next one begins")
        return f"{start}{_text(key.strip(), comparisons)}{end}"

    return _MARKED.sub(write, page)


def write_docs(pages: Iterable[str | Path], comparisons: Sequence[Comparison]) -> list[Path]:
    """Render the pages in place; gives those that changed."""
    changed = []
    for page in map(Path, pages):
        before = page.read_text("utf-8")
        after = render_docs(before, comparisons)
        if after != before:
            page.write_text(after, "utf-8")
            changed.append(page)
    return changed


def summary(comparisons: Sequence[Comparison]) -> str:
    """How much of the paper's tables was run, and how it compares, in a sentence."""
    cells = [cell for comparison in comparisons for cell in comparison.cells if cell.printed]
    full = [cell for cell in cells if cell.runs and not cell.is_reduced]
    short = [cell for cell in cells if cell.is_reduced]
    text = f"Of the {len(cells)} cells of the paper's tables: run in full {len(full)}, reduced {len(short)}"
    verdicts = [cell.verdict for cell in full if cell.verdict]
    if verdicts:
        sides = ", ".join(f"{side} {verdicts.count(side)}" for side in ("better", "worse"))
        text += f"; of those in full, within the published mean ± 2 std {verdicts.count('inside')}, {sides}"
    return text + "."


def _text(key: str, comparisons: Sequence[Comparison]) -> str:
    if key == "summary":
        return summary(comparisons)
    table, *place = key.removeprefix("table ").split(" / ")
    for comparison in comparisons:
        if table in (str(comparison.table.number), comparison.table.label):
            if not place:
                return f"\n\n{markdown(comparison)}\n"
            for cell in comparison.cells:
                if [cell.model, cell.column.name] == place:
                    return ours_text(comparison, cell) or "not run"
    raise ConfigError(
        f"<!-- results: {key} -->: expected summary, table N or table N / MODEL / COLUMN with names of that table"
    )
