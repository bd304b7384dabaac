"""Results in the documentation: the text between two markers is written from the records.

| marker | what it holds |
|---|---|
| `<!-- results: summary -->` | how much was run and how it compares with the paper |
| `<!-- results: table 1 -->` | a table of the paper with our figures; `table zinc_edges` for one of our own |
| `<!-- results: table 1 / SIR-GCN / n=10 -->` | one figure of ours, within a sentence |
| `<!-- results: reading 1 -->` | what the figures of a table say, as small tables; `reading Training steps` |
| `<!-- results: models -->` | the models that a row of an experiment can name |
| `<!-- results: collisions -->` | which neighbourhoods the models of Table 1 confuse |
| `<!-- results: separation -->` | how often random features tell apart what 1-WL cannot |
| `<!-- results: tuned -->` | the fair searches of the package; `tuned NAME` for one of them |
| `<!-- results: lesson NAME -->` | what one should take from a search |
| `<!-- results: published NAME -->` | published figures beside ours of an experiment |
| `<!-- results: goals -->` | the goals of our runs and what was reached |
| `<!-- results: changes NAME -->` | an experiment whose rows change one setting of another row |
| `<!-- results: curves NAME -->` | the learning curves of an experiment, drawn when the documentation is built |
| `<!-- results: seeds NAME -->` | the score of every run of an experiment by seed |
| `<!-- results: defaults: road -->` | what `sirgcn train` reaches; for other names see `report.defaults` |
| `<!-- results: calibration -->` | what sets and intervals hold on real data |

Each part ends with `<!-- /results -->`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sirgcn.files import write_atomic
from sirgcn.report.filling import STEPS
from sirgcn.report.presenter import Comparison
from sirgcn.report.sheets import NOTHING, Sheet, Styled
from sirgcn.report.tables import markdown
from sirgcn.strict import ConfigError

_MARKED = re.compile(r"(<!-- results: (.+?) -->)(.*?)(<!-- /results -->|(?=<!-- results:)|\Z)", re.DOTALL)


def render_docs(page: str, comparisons: Sequence[Comparison], texts: Mapping[str, str] | None = None) -> str:
    """A Markdown page with the text between its markers written anew. `texts` holds the text of further markers.

    >>> from sirgcn.report import compare
    >>> render_docs("We reach <!-- results: table 1 / GCN / n=10 --><!-- /results -->.", compare([]))
    'We reach <!-- results: table 1 / GCN / n=10 -->not run<!-- /results -->.'
    """
    known = texts or {}

    def write(match: re.Match[str]) -> str:
        start, key, _, end = match.groups()
        if not end:
            raise ConfigError(f"{start}: expected <!-- /results --> behind it, before the next one begins")
        text = _paragraph(known[key.strip()]) if key.strip() in known else _text(key.strip(), comparisons)
        return f"{start}{text}{end}"

    return _MARKED.sub(write, page)


def write_docs(
    pages: Iterable[str | Path], comparisons: Sequence[Comparison], texts: Mapping[str, str] | None = None
) -> list[Path]:
    """Render pages in place, as `render_docs` does, and return the paths of those that changed.

    >>> import tempfile
    >>> from sirgcn.report import compare
    >>> page = Path(tempfile.mkdtemp()) / "page.md"
    >>> _ = page.write_text("<!-- results: table 1 / GCN / n=10 --><!-- /results -->")
    >>> len(write_docs([page], compare([]))), len(write_docs([page], compare([])))
    (1, 0)
    """
    changed = []
    for page in map(Path, pages):
        before = page.read_text("utf-8")
        after = render_docs(before, comparisons, texts)
        if after != before:
            write_atomic(page, after.encode())
            changed.append(page)
    return changed


def summary(comparisons: Sequence[Comparison]) -> Sheet:
    """How many scores of SIR-GCN's paper were run, and how they compare with the published ones."""
    of_paper = [comparison for comparison in comparisons if comparison.table.number is not None]
    cells = [cell for comparison in of_paper for cell in comparison.cells if cell.claim and cell.interval]
    full = [cell for cell in cells if cell.values and not cell.is_reduced]
    verdicts = [cell.verdict for cell in full]
    counts = {
        "in the paper's tables": len(cells),
        "run in full": len(full),
        "run in the reduced form": sum(bool(cell.values) and cell.is_reduced for cell in cells),
        "in full, within the published mean ± 2 std": verdicts.count("inside"),
        "in full, better": verdicts.count("better"),
        "in full, worse": verdicts.count("worse"),
    }
    return Sheet("", ["Scores", "Number"], [[name, str(count)] for name, count in counts.items()])


def _text(key: str, comparisons: Sequence[Comparison]) -> str:
    """What belongs behind a marker."""
    if key == "summary":
        return _paragraph(summary(comparisons).markdown())
    if key == "models":
        return _paragraph(_models().markdown())
    what, _, rest = key.partition(" ")
    name, *place = rest.split(" / ")
    comparison = _named(name, comparisons)
    # A page may have room for the table of training steps before any step was timed.
    if comparison is None and name == STEPS:
        return _paragraph(NOTHING)
    if comparison is not None and what in ("reading", "table"):
        return _table_text(comparison, what, place) or _unknown(key)
    return _unknown(key)


def _table_text(comparison: Comparison, what: str, place: list[str]) -> str:
    """A table, a cell of it, or what its figures say; empty where the table has no such cell."""
    if place:
        named = (cell for cell in comparison.cells if [cell.model, cell.column.name] == place)
        return next((cell.ours_marked or "not run" for cell in named), "")
    if what == "table":
        return _paragraph(markdown(comparison))
    return _paragraph("\n".join(sheet.markdown() for sheet in comparison.presenter.reading(comparison)) or NOTHING)


def _named(name: str, comparisons: Sequence[Comparison]) -> Comparison | None:
    return next(
        (found for found in comparisons if name in (str(found.table.number), found.table.label, found.table.title)),
        None,
    )


def _unknown(key: str) -> NoReturn:
    raise ConfigError(
        f"<!-- results: {key} -->: expected summary, models, table N, table N / MODEL / COLUMN with names of that "
        "table, or reading N"
    )


def _paragraph(text: str) -> str:
    return f"\n\n{text.strip()}\n\n"


def _models() -> Sheet:
    # The table of models is made of networks. All else on a page is written without torch.
    from sirgcn.nn import MODEL_COLUMNS, model_rows

    shown = {"name": "Name", "key": "Key", "title": "Model", "formula": "Formula", "complexity": "Complexity"}
    lines = []
    for row in model_rows():
        entry = dict(zip(MODEL_COLUMNS, row, strict=True))
        cells = [entry[name] if name == "title" else Styled(entry[name], is_code=True) for name in shown]
        lines.append([*cells, entry["reference"]])
    return Sheet("", [*shown.values(), "Reference"], lines, left=len(shown) + 1)
