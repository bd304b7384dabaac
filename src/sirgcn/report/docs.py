"""Results in the documentation: whatever stands between two markers is written from the records.

| marker | what it holds |
|---|---|
| `<!-- results: summary -->` | how much was run and how it compares, in a sentence |
| `<!-- results: table 1 -->` | a table of the paper with ours; `table zinc_edges`, `table Training steps` of our own |
| `<!-- results: table 1 / SIR-GCN / n=10 -->` | one figure of ours, within a sentence |
| `<!-- results: reading 1 -->` | what our figures of a table of the paper say beside it |
| `<!-- results: models -->` | the models that a row of an experiment can name |
| `<!-- results: collisions -->` | which neighbourhoods the models of Table 1 confuse |
| `<!-- results: separation -->` | how often random features tell apart what 1-WL cannot |

Each ends with `<!-- /results -->`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sirgcn.files import write_atomic
from sirgcn.report.cells import STEPS, Comparison
from sirgcn.report.runtimes import reading
from sirgcn.report.scores import score_reading
from sirgcn.report.tables import as_markdown, markdown, ours_text
from sirgcn.strict import ConfigError

_NOTHING = "Nothing was run yet."

_MARKED = re.compile(r"(<!-- results: (.+?) -->)(.*?)(<!-- /results -->|(?=<!-- results:)|\Z)", re.DOTALL)


def render_docs(page: str, comparisons: Sequence[Comparison], texts: Mapping[str, str] | None = None) -> str:
    """A Markdown page with what stands between its markers written anew; `texts` holds further markers' paragraphs."""
    known = texts or {}

    def write(match: re.Match[str]) -> str:
        start, key, _, end = match.groups()
        if not end:
            raise ConfigError(f"{start}: expected <!-- /results --> behind it, before the next one begins")
        if key.strip() in known:
            return f"{start}\n\n{known[key.strip()]}\n\n{end}"
        return f"{start}{_text(key.strip(), comparisons)}{end}"

    return _MARKED.sub(write, page)


def write_docs(
    pages: Iterable[str | Path], comparisons: Sequence[Comparison], texts: Mapping[str, str] | None = None
) -> list[Path]:
    """Render the pages in place; gives those that changed."""
    changed = []
    for page in map(Path, pages):
        before = page.read_text("utf-8")
        after = render_docs(before, comparisons, texts)
        if after != before:
            write_atomic(page, after.encode())
            changed.append(page)
    return changed


def summary(comparisons: Sequence[Comparison]) -> str:
    """How much of the paper's tables of scores was run, and how it compares, in a sentence."""
    scores = [comparison for comparison in comparisons if comparison.table.kind == "score"]
    cells = [cell for comparison in scores for cell in comparison.cells if cell.printed]
    full = [cell for cell in cells if cell.values and not cell.is_reduced]
    short = [cell for cell in cells if cell.values and cell.is_reduced]
    text = f"Of the {len(cells)} scores in the paper's tables: run in full {len(full)}, reduced {len(short)}"
    verdicts = [cell.verdict for cell in full if cell.verdict]
    if verdicts:
        sides = ", ".join(f"{side} {verdicts.count(side)}" for side in ("better", "worse"))
        text += f"; of those in full, within the published mean ± 2 std {verdicts.count('inside')}, {sides}"
    return text + "."


def _text(key: str, comparisons: Sequence[Comparison]) -> str:
    if key == "summary":
        return summary(comparisons)
    if key == "models":
        return f"\n\n{_models()}\n\n"
    if key.endswith(f" {STEPS}") and all(comparison.table.title != STEPS for comparison in comparisons):
        return f"\n\n{_NOTHING}\n\n"
    if key.startswith("reading "):
        return _reading(key, comparisons)
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


def _models() -> str:
    # The table of models is made of networks; all else on a page can be written without torch.
    from sirgcn.nn import MODEL_COLUMNS, model_rows

    shown = {"name": "Name", "key": "Key", "title": "Model", "formula": "Formula", "complexity": "Complexity"}
    lines = [[*shown.values(), "Reference"], ["---"] * (len(shown) + 1)]
    for row in model_rows():
        entry = dict(zip(MODEL_COLUMNS, row, strict=True))
        code = [f"`{entry[name]}`" if name != "title" else entry[name] for name in shown]
        lines.append([cell.replace("|", r"\|") for cell in (*code, entry["reference"])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _reading(key: str, comparisons: Sequence[Comparison]) -> str:
    for comparison in comparisons:
        if key in (f"reading {comparison.table.number}", f"reading {comparison.table.title}"):
            read = score_reading if comparison.table.kind == "score" else reading
            sentences = read(comparison) or [_NOTHING]
            return "\n\n" + "\n".join(f"- {as_markdown(sentence)}" for sentence in sentences) + "\n\n"
    raise ConfigError(f"<!-- results: {key} -->: expected reading N with the number of a table of the paper")
