"""The report as one HTML file: tables, figures, runs and environments. The file needs no other file and no network.

The template escapes all text of a record, and the page's own policy allows no script but the one in the page.
"""

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from sirgcn.report.cells import OURS, Cell
from sirgcn.report.presenter import Comparison
from sirgcn.report.runs import Run

_HUES = 11  # the style of the page has the colours s0, for the paper's model, and s1 to s11
_PER_RUN = ("date", "git", "load_at_start")


def render_html(comparisons: Sequence[Comparison]) -> str:
    """The page with these tables and all runs in them.

    >>> from sirgcn.report import compare
    >>> render_html(compare([]))[:15]
    '<!doctype html>'
    """
    cells = [cell for comparison in comparisons for cell in comparison.cells]
    runs = [run for cell in cells for run in cell.all_runs]
    colours = _colours(cells)
    style, script = Markup(read_page("page.css") + read_page("report.css")), Markup(read_page("report.js"))
    return _template().render(
        comparisons=comparisons,
        cells=cells,
        runs=runs,
        failed=[run for run in runs if run.status == "failed"],
        models=list(dict.fromkeys(cell.model for cell in cells)),
        figures={comparison.table.title: _figures(comparison, colours) for comparison in comparisons},
        colours=colours,
        environments=_environments(runs),
        data=_data(runs),
        newest=max((str(run.environment.get("date", "")) for run in runs), default=""),
        style=style,
        script=script,
        style_hash=sha256_of_page(style),
        script_hash=sha256_of_page(script),
    )


@cache
def _template() -> Template:
    page = Environment(
        loader=FunctionLoader(read_page),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters |= {"figure": _figure, "time": _time, "count": _count}
    page.globals |= {"state_of": _state_of, "score_of": _score_of}
    return page.get_template("report.html")


def read_page(name: str) -> str:
    """The text of a template, a style or a script of the pages."""
    return (files("sirgcn.report") / "page" / name).read_text("utf-8")


def sha256_of_page(text: str) -> str:
    """The hash of a style or a script, as the policy of a page names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours(cells: Sequence[Cell]) -> dict[str, str]:
    """The colour class of every model that was run. A model has the same colour in every figure."""
    others = dict.fromkeys(cell.model for cell in cells if cell.runs and cell.model != OURS)
    return {OURS: "s0", **{model: f"s{1 + place % _HUES}" for place, model in enumerate(others)}}


def _figures(comparison: Comparison, colours: dict[str, str]) -> list[tuple[str, list[tuple[str, Markup]]]]:
    """For each column that was run: its name, and its figures with their titles."""
    found = []
    for column in comparison.columns:
        panels = comparison.presenter.panels(comparison, column, colours)
        drawn = [(title, Markup(svg)) for title, svg in panels if svg]
        if drawn:
            found.append((column.name, drawn))
    return found


def _environments(runs: Sequence[Run]) -> list[tuple[dict[str, str], int]]:
    """Every machine with its versions, and the number of its runs."""
    found: Counter[str] = Counter()
    for run in runs:
        facts = {key: value for key, value in run.environment.items() if key not in _PER_RUN}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}
        found[json.dumps(texts, sort_keys=True)] += 1
    return [(json.loads(text), number) for text, number in found.most_common() if text != "{}"]


def _data(runs: Sequence[Run]) -> list[tuple[dict[str, str], int]]:
    """Every version of the data, and the number of its runs."""
    found = Counter(json.dumps(run.data, sort_keys=True) for run in runs if run.data)
    return [(json.loads(text), number) for text, number in found.items()]


def _state_of(cell: Cell) -> str:
    """What the filter of the page looks at."""
    if cell.runs:
        return "reduced" if cell.is_reduced else "full"
    return "failed" if cell.failed else "none"


def _score_of(cell: Cell, run: Run) -> str:
    """The score of a run for the list of runs; empty for a run that failed."""
    if run.has_score:
        return "nan" if math.isnan(run.value) else _figure(run.value, 5)
    return cell.without_score if run.status == "done" else ""


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
