"""A model's page for a person: one HTML file that needs no other file and no network.

The page is made of plain values, as the files of a model's folder hold them. A value that is absent is left out of the
page. The template escapes all text, and the page's own policy allows neither scripts nor anything from elsewhere.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from sirgcn.report.html import read_page, sha256_of_page
from sirgcn.report.model_figures import (
    embedding_map,
    histogram,
    intervals,
    learning_curves,
    mark_of,
    predicted_numbers,
    reliability,
)
from sirgcn.report.runs import as_number

SHARES = ("accuracy", "class_accuracy", "balanced_accuracy", "f1", "roc_auc", "average_precision")
"""The metrics that are shown in percent."""

_MOST_TRIALS = 40
_SHADES = 6  # of a confusion matrix

Values = Mapping[str, Any]


def render_model_page(values: Values) -> str:
    """The page of a model.

    Args:
        values: `name`, `summary`, `created`, `command`, `data` (a description of the data), `split` (how many rows each
            part has), `history`, `trials`, `notes`, `evaluation` (with `controls`, `sentence` and `map`), `environment`
            and `settings`; each as JSON values, and each may be absent.

    >>> page = render_model_page({"name": "papers", "summary": "Predicts the field of each paper."})
    >>> page[:15], "<script" in page
    ('<!doctype html>', False)
    """
    evaluation = _mapping(values.get("evaluation"))
    style = Markup(read_page("page.css") + read_page("model.css"))
    return _template().render(
        name=str(values.get("name") or "A model"),
        summary=values.get("summary") or "",
        sentence=evaluation.get("sentence") or "",
        created=values.get("created") or "",
        command=values.get("command") or "",
        evaluation=evaluation,
        tiles=_tiles(evaluation),
        models=_models(evaluation),
        forest=_forest(evaluation),
        gains=_gains(evaluation),
        matrices=[_matrix(one) for one in _rows(evaluation.get("confusion"))],
        residuals=_residuals(evaluation),
        reliability=Markup(reliability(_rows(evaluation.get("reliability")))),
        coverage=_mapping(evaluation.get("coverage")),
        slices=_slices(evaluation),
        mistakes=_mistakes(evaluation),
        map=_map(evaluation),
        curves=_curves(values),
        data=_data(_mapping(values.get("data"))),
        split=_mapping(values.get("split")),
        trials=_rows(values.get("trials"))[:_MOST_TRIALS],
        notes=[str(note) for note in _list(values.get("notes"))],
        environment=_flat(_mapping(values.get("environment"))),
        settings=_flat(_mapping(values.get("settings"))),
        style=style,
        style_hash=sha256_of_page(style),
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
    page.filters |= {"number": _number, "percent": _percent, "seconds": _seconds, "count": _count}
    return page.get_template("model.html")


def _mapping(value: Any) -> Values:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _rows(value: Any) -> list[Values]:
    return [entry for entry in _list(value) if isinstance(entry, Mapping)]


def _scores(evaluation: Values) -> dict[str, Values]:
    return {str(name): _mapping(score) for name, score in _mapping(evaluation.get("scores")).items()}


def shown(value: Any, metric: str) -> str:
    """The value of a metric for a reader: a share in percent, another number with four digits.

    >>> shown(0.8123, "accuracy"), shown(0.61234, "rmse"), shown(None, "rmse")
    ('81.2 %', '0.6123', '–')
    """
    number = as_number(value)
    if not math.isfinite(number):
        return "–"
    return f"{100 * number:.1f} %" if metric in SHARES else _number(number)


def _number(value: Any, digits: int = 4) -> str:
    number = as_number(value)
    if not math.isfinite(number):
        return "–"
    return f"{number:,.0f}" if abs(number) >= 10**digits else f"{number:.{digits}g}"


def _percent(value: Any) -> str:
    number = as_number(value)
    return f"{100 * number:.1f} %" if math.isfinite(number) else "–"


def _seconds(value: Any) -> str:
    number = as_number(value)
    if not math.isfinite(number):
        return "–"
    return f"{number:.1f} s" if number < 120 else f"{number / 60:.1f} min"


def _count(value: Any) -> str:
    number = as_number(value)
    return f"{number:,.0f}" if math.isfinite(number) else "–"


def _interval_text(score: Values, metric: str) -> str:
    """The ends of an interval; the unit stands behind the second one."""
    low, high = shown(score.get("low"), metric), shown(score.get("high"), metric)
    return f"{low.removesuffix(' %')} to {high}"


def _tiles(evaluation: Values) -> list[tuple[str, str, str]]:
    """Each metric of the model with its interval."""
    return [
        (str(score.get("title", metric)), shown(score.get("value"), metric), _interval_text(score, metric))
        for metric, score in _scores(evaluation).items()
    ]


def _models(evaluation: Values) -> dict[str, Any]:
    """The table of the model and its controls: metrics as columns, and the difference in the metric of the task."""
    scores, metric = _scores(evaluation), str(evaluation.get("metric", ""))
    heads = [(str(score.get("title", name)), "↑" if score.get("maximise") else "↓") for name, score in scores.items()]
    rows = [{"title": "This model", "sees": "the graph", "own": True, "cells": _cells(scores, scores), "gain": None}]
    for control in _rows(evaluation.get("controls")):
        found = _mapping(_mapping(control.get("differences")).get(metric))
        rows.append(
            {
                "title": control.get("title", ""),
                "sees": {"nothing": "only the targets", "columns": "own columns", "graph": "the graph"}.get(
                    str(control.get("sees")), ""
                ),
                "own": False,
                "cells": _cells(_mapping(control.get("scores")), scores),
                "gain": _gain(found, metric) if found else None,
                "verdict": _verdict(found),
                "seconds": control.get("seconds"),
                "note": control.get("note") or "",
                "scored": bool(_mapping(control.get("scores"))) or not control.get("note"),
            }
        )
    title = str(_mapping(scores.get(metric)).get("title", metric))
    return {"heads": heads, "rows": rows, "metric": title}


def _cells(own: Values, every: Values) -> list[tuple[str, str]]:
    return [
        (shown(_mapping(own[metric]).get("value"), metric), _interval_text(_mapping(own[metric]), metric))
        if metric in own
        else ("–", "")
        for metric in every
    ]


def _gain(found: Values, metric: str) -> tuple[str, str]:
    factor = 100 if metric in SHARES else 1
    gain, low, high = (as_number(found.get(key)) * factor for key in ("gain", "low", "high"))
    form = "{:+.1f}" if metric in SHARES else "{:+.3g}"
    return form.format(gain), f"{form.format(low)} to {form.format(high)}"


def _verdict(found: Values) -> str:
    if as_number(found.get("low")) > 0:
        return "better"
    return "worse" if as_number(found.get("high")) < 0 else "level"


def _scaled(score: Values, metric: str) -> dict[str, float]:
    factor = 100 if metric in SHARES else 1
    return {key: as_number(score.get(key)) * factor for key in ("value", "low", "high")}


def _forest(evaluation: Values) -> Markup:
    """The model and its controls in the metric of the task."""
    metric = str(evaluation.get("metric", ""))
    own = _mapping(_mapping(evaluation.get("scores")).get(metric))
    if not own:
        return Markup("")
    rows: list[Values] = [{"name": "This model", "strong": True, **_scaled(own, metric)}]
    for control in _rows(evaluation.get("controls")):
        score = _mapping(_mapping(control.get("scores")).get(metric))
        if score:
            rows.append({"name": control.get("title", ""), **_scaled(score, metric)})
    unit = f"{own.get('title', metric)}{' (%)' if metric in SHARES else ''}"
    return Markup(intervals(rows, f"This model and its controls: {unit}", unit)) if len(rows) > 1 else Markup("")


def _gains(evaluation: Values) -> Markup:
    """By how much the model is better than each control."""
    metric, rows = str(evaluation.get("metric", "")), []
    for control in _rows(evaluation.get("controls")):
        found = _mapping(_mapping(control.get("differences")).get(metric))
        if found:
            scaled = _scaled({**found, "value": found.get("gain")}, metric)
            rows.append({"name": control.get("title", ""), "strong": _verdict(found) == "better", **scaled})
    unit = "better by this many points" if metric in SHARES else "better by this much"
    return Markup(intervals(rows, "By how much this model is better than each control", unit, zero=True))


def _matrix(one: Values) -> dict[str, Any]:
    """A confusion matrix with the share of each row, and the shade of each cell."""
    names = [str(name) for name in _list(one.get("classes"))]
    rows = []
    for name, counts in zip(names, _list(one.get("counts")), strict=False):
        numbers = [as_number(count) for count in _list(counts)]
        total = sum(numbers)
        cells = [(f"{number:,.0f}", _shade(number / total) if total > 0 else 0) for number in numbers]
        rows.append((name, cells, f"{total:,.0f}"))
    return {"target": one.get("target", ""), "classes": names, "rows": rows}


def _shade(share: float) -> int:
    return 0 if share <= 0 else min(_SHADES, 1 + int(share * _SHADES))


def _residuals(evaluation: Values) -> list[tuple[str, list[tuple[str, Markup]]]]:
    found = []
    for one in _rows(evaluation.get("residuals")):
        target = str(one.get("target", ""))
        figures = [
            ("Predicted against true", predicted_numbers([_list(point) for point in _list(one.get("points"))], target)),
            ("Errors", histogram(_list(one.get("counts")), _list(one.get("edges")), "error (predicted minus true)")),
        ]
        found.append((target, [(title, Markup(svg)) for title, svg in figures if svg]))
    return found


def _slices(evaluation: Values) -> list[tuple[str, Markup]]:
    """A figure for each way to cut the rows."""
    groups: dict[str, list[Values]] = {}
    for one in _rows(evaluation.get("slices")):
        groups.setdefault(str(one.get("by", "")), []).append(one)
    found = []
    for by, own in groups.items():
        unit = str(own[0].get("value_is", ""))
        metric = "accuracy" if unit == "accuracy" else ""
        rows = [{"name": f"{one.get('name')} ({_count(one.get('rows'))})", **_scaled(one, metric)} for one in own]
        unit = f"{unit} (%)" if metric else unit
        found.append((by, Markup(intervals(rows, f"{unit} by {by}", unit))))
    return [(by, svg) for by, svg in found if svg]


def _mistakes(evaluation: Values) -> list[dict[str, Any]]:
    found = []
    for one in _rows(evaluation.get("mistakes")):
        explanation = _mapping(one.get("explanation"))
        found.append(
            {
                "id": one.get("id", one.get("row", "")),
                "target": one.get("target", ""),
                "true": _shown_value(one.get("true")),
                "predicted": _shown_value(one.get("predicted")),
                "probability": one.get("probability"),
                "why": _reasons(explanation),
                "unit": explanation.get("unit", ""),
            }
        )
    return found


def _reasons(explanation: Values) -> list[tuple[str, str]]:
    """The strongest columns, edges and nodes of an explanation, with their effects."""
    found = []
    for one in _rows(explanation.get("columns"))[:3]:
        value = f" = {one['value']}" if one.get("value") not in (None, "") else ""
        found.append((f"{one.get('column', '')}{value} ({one.get('of', '')})", _number(one.get("effect"), 3)))
    for one in _rows(explanation.get("edges"))[:3]:
        found.append((f"edge {one.get('source', '')} → {one.get('target', '')}", _number(one.get("effect"), 3)))
    for one in _rows(explanation.get("nodes"))[:3]:
        found.append((f"node {one.get('node', '')}", _number(one.get("effect"), 3)))
    return found


def _shown_value(value: Any) -> str:
    return _number(value) if isinstance(value, float) else str(value)


def _map(evaluation: Values) -> dict[str, Any]:
    given = _mapping(evaluation.get("map"))
    svg, legend = embedding_map(_rows(given.get("points")), bool(given.get("are_numbers")))
    shares = [as_number(share) for share in _list(given.get("shares"))]
    known = [share for share in shares if math.isfinite(share)]
    marks = [(Markup(mark_of(style)), name) for style, name in legend]
    return {"svg": Markup(svg), "legend": marks, "share": sum(known) if known else None}


def _curves(values: Values) -> list[tuple[str, Markup]]:
    history = _rows(values.get("history"))
    evaluation = _mapping(values.get("evaluation"))
    metric = str(evaluation.get("metric", ""))
    title = str(_mapping(_mapping(evaluation.get("scores")).get(metric)).get("title", "metric"))
    panels = (
        ("step_loss", "Training loss while it learns"),
        ("val_loss", "Validation loss"),
        ("val", f"Validation {title}"),
    )
    drawn = [(text, Markup(learning_curves(history, key, f"{text} by epoch"))) for key, text in panels]
    return [(text, svg) for text, svg in drawn if svg]


def _data(data: Values) -> dict[str, Any]:
    """The description of the data in groups of facts."""
    titles = {
        "task": "Task",
        "sizes": "Sizes",
        "degrees": "Edges into a node",
        "edges": "Edges",
        "labels": "Labels",
        "homophily": "Agreement along edges",
        "inferred": "What was inferred",
        "missing": "Missing values",
        "left_out": "Columns left out",
    }
    groups = [(title, _flat(_mapping(data.get(key)))) for key, title in titles.items()]
    columns = _mapping(data.get("columns"))
    return {
        "name": data.get("name", ""),
        "version": data.get("version", ""),
        "groups": [(title, facts) for title, facts in groups if facts],
        "columns": [(str(name), str(what)) for name, what in columns.items()],
        "warnings": [str(text) for text in _list(data.get("warnings"))],
    }


def _flat(values: Values, prefix: str = "") -> list[tuple[str, str]]:
    """Names and values as text; a table inside gives its own entries."""
    found = []
    for name, value in values.items():
        title = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            found += _flat(value, f"{title}: ")
        elif value is not None and value not in ("", []):
            found.append((title, _plain_text(value)))
    return found


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
