"""One HTML file with everything: tables, figures, runs, environments. Style and script are in it; it fetches nothing.

The template escapes whatever comes from a record, and the page's own policy lets no script run but the one in it.
"""

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from sirgcn.report.cells import NO_SCORE, OURS, Cell, Comparison
from sirgcn.report.figures import curves, dots, growth
from sirgcn.report.runs import Run
from sirgcn.report.runtimes import ratio_text, reading
from sirgcn.report.tables import caption_of, metric_of, notes_of, paper_text

_HUES = 11  # the page's style has s0 for the paper's model and s1 to s11
_PER_RUN = ("date", "git", "load_at_start")


def render_html(comparisons: Sequence[Comparison]) -> str:
    """The report on these tables and on all runs in them."""
    runs = [run for comparison in comparisons for cell in comparison.cells for run in cell.all_runs]
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    style, script = (Markup(_read(name)) for name in ("report.css", "report.js"))
    page = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page.filters |= {"figure": _figure, "time": _time, "count": _count, "best_first": _best_first}
    page.globals |= {"caption_of": caption_of, "notes_of": notes_of, "paper_text": paper_text, "state_of": _state_of}
    page.globals |= {"count_of": _count_of, "score_of": _score_of}
    page.globals |= {"metric_of": metric_of, "loads": json.loads, "ratio_text": ratio_text, "reading": reading}
    return page.get_template("report.html").render(
        comparisons=comparisons,
        cells=cells,
        runs=runs,
        failed=[run for run in runs if run.status == "failed"],
        models=list(dict.fromkeys(cell.model for cell in cells)),
        figures={comparison.table.title: _figures(comparison, _colours(cells)) for comparison in comparisons},
        colours=_colours(cells),
        environments=_environments(runs),
        data=Counter(json.dumps(run.data, sort_keys=True) for run in runs if run.data),
        newest=max((str(run.environment.get("date", "")) for run in runs), default=""),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _read(name: str) -> str:
    return (files("sirgcn.report") / "page" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours(cells: Sequence[Cell]) -> dict[str, str]:
    """The class of each model that was run, the same in every figure."""
    others = dict.fromkeys(cell.model for cell in cells if cell.runs and cell.model != OURS)
    return {OURS: "s0", **{model: f"s{1 + place % _HUES}" for place, model in enumerate(others)}}


def _figures(comparison: Comparison, colours: dict[str, str]) -> list[tuple[str, list[tuple[str, Markup]]]]:
    """For each column that was run: its name, and its panels with their titles."""
    found = []
    for column in comparison.columns:
        title = "every repetition, seconds" if comparison.table.kind == "runtime" else "every run"
        panels = [(title, dots(comparison, column, colours))]
        panels += curves(comparison, column, colours) + growth(comparison, column, colours)
        drawn = [(title, Markup(svg)) for title, svg in panels if svg]
        if drawn:
            found.append((column.name, drawn))
    return found


def _environments(runs: Sequence[Run]) -> list[tuple[dict[str, str], int]]:
    """Each machine with its versions, and the number of its runs."""
    found: Counter[str] = Counter()
    for run in runs:
        facts = {key: value for key, value in run.environment.items() if key not in _PER_RUN}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}
        found[json.dumps(texts, sort_keys=True)] += 1
    return [(json.loads(text), number) for text, number in found.most_common() if text != "{}"]


def _state_of(cell: Cell) -> str:
    """What the page's filter looks at."""
    if cell.runs:
        return "reduced" if cell.is_reduced else "full"
    return "failed" if cell.failed else "none"


def _count_of(cell: Cell) -> str:
    """How many values our figure is of; why there is none."""
    if cell.table.kind == "complexity":
        return ""
    if not cell.values:
        return "no test part"
    return _count(len(cell.values), "repetition" if cell.runs[0].samples else "run")


def _score_of(cell: Cell, run: Run) -> str:
    """A run's score for the list of runs; nothing of a run that failed, and of slopes."""
    if run.has_score:
        return "nan" if math.isnan(run.value) else _figure(run.value, 5)
    is_scored = run.status == "done" and cell.table.kind == "score"
    return f"{NO_SCORE} (no test part)" if is_scored else ""


def _figure(value: float | None, digits: int = 4) -> str:
    """A number for reading; empty where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _time(seconds: float | None) -> str:
    if seconds is None or math.isnan(seconds):
        return ""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.3g} s"


def _best_first(higher_is_better: bool) -> str:
    return "descending" if higher_is_better else "ascending"
