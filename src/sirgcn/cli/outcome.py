"""How scores of models are printed."""

from collections.abc import Mapping
from typing import Any

from sirgcn.cli.shared import out, show


def print_scores(scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Print metrics with their intervals, as an evaluation has them."""
    rows = [(entry["title"], number(entry["value"]), interval(entry)) for entry in scores.values()]
    show(("metric", "value", "95 % interval"), rows, as_json=False)


def print_controls(evaluation: Mapping[str, Any]) -> None:
    """Print the controls beside the model, by the metric of the task."""
    metric = evaluation["metric"]
    rows = [("this model", number(evaluation["scores"][metric]["value"]), interval(evaluation["scores"][metric]))]
    for control in evaluation.get("controls") or ():
        entry = control["scores"].get(metric)
        shown = (number(entry["value"]), interval(entry)) if entry else ("-", "")
        note = f" ({control['note']})" if entry and control["note"] else control["note"]
        rows.append((control["title"], shown[0], shown[1] + note))
    if len(rows) > 1:
        show(("beside it", metric, "95 % interval"), rows, as_json=False)


def interval(entry: Mapping[str, Any]) -> str:
    """The ends of an interval in words.

    >>> interval({"low": 0.5, "high": 0.75})
    '0.5 to 0.75'
    """
    if entry.get("low") is None or entry.get("high") is None:
        return ""
    return f"{number(entry['low'])} to {number(entry['high'])}"


def number(value: float | None) -> str:
    """A score with four digits; a dash for none.

    >>> number(0.123456), number(None)
    ('0.1235', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def print_lines(*lines: str) -> None:
    """Print sentences as they are."""
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
