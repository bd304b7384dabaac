"""The figures of a model's page as inline SVG: curves, intervals, reliability, numbers against the truth, a map.

They are drawn from plain values. What is not a finite number is left out, and a figure without any is empty text.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from sirgcn.report.runs import as_number
from sirgcn.report.svg import WIDTH, Axis, canvas, line, numbers, text_of, ticks, write

_HEIGHT, _FOOT, _LEFT, _ROW = 220, 38, 52, 26
_POINTS = 150  # of a curve at most
_SHAPES = 8  # classes of a map that have a colour and a shape of their own

Values = Mapping[str, Any]


def learning_curves(history: Sequence[Values], name: str, title: str) -> str:
    """The values of a key of the history by epoch, a line for each network; empty without values."""
    members: dict[int, list[tuple[float, float]]] = {}
    for row in history:
        point = as_number(row.get("epoch")), as_number(row.get(name))
        if all(map(math.isfinite, point)):
            members.setdefault(int(as_number(row.get("member", 0))), []).append(point)
    if not members:
        return ""
    points = [point for own in members.values() for point in own]
    svg, x, y = _frame(title, [x for x, _ in points], [y for _, y in points], "epoch", "")
    for place, (member, own) in enumerate(sorted(members.items())):
        group = SubElement(svg, "g", {"class": f"series s{place % 12}"})
        shown = _thinned(own)
        path = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in shown)
        curve = SubElement(group, "polyline", {"class": "curve", "points": path})
        SubElement(curve, "title").text = f"network {member + 1}"
    return text_of(svg)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= _POINTS:
        return list(points)
    return [points[round(place * (len(points) - 1) / (_POINTS - 1))] for place in range(_POINTS)]


def intervals(rows: Sequence[Values], title: str, unit: str = "", zero: bool = False) -> str:
    """A dot with its interval in every row: keys `name`, `value`, `low`, `high`, and `strong` for the model's own.

    Args:
        rows: the rows, from top to bottom.
        title: the title for those who cannot see the figure.
        unit: what the axis shows.
        zero: whether a line marks 0.
    """
    known = [row for row in rows if math.isfinite(as_number(row.get("value")))]
    if not known:
        return ""
    ends = [as_number(row.get(key)) for row in known for key in ("value", "low", "high")]
    height = _ROW * len(known) + _FOOT + 8
    longest = max(len(_short(row["name"])) for row in known)
    axis = Axis.over([*ends, *([0.0] if zero else [])], min(14 + 6.6 * longest, 185), WIDTH - 14, math.inf)
    svg = canvas(height, title)
    ticks(svg, axis, "x", 4, height - _FOOT)
    if zero:
        line(svg, axis(0.0), 4, axis(0.0), height - _FOOT, "zero")
    for place, row in enumerate(known):
        _interval(svg, axis, row, 4 + _ROW * (place + 0.5))
    _label(svg, (axis.start + axis.end) / 2, height - 6, unit)
    return text_of(svg)


def _interval(svg: Element, axis: Axis, row: Values, middle: float) -> None:
    group = SubElement(svg, "g", {"class": "series s0" if row.get("strong") else "series s11"})
    write(group, axis.start - 8, middle + 4, _short(row["name"]), "end", "name")
    low, high = as_number(row.get("low")), as_number(row.get("high"))
    if math.isfinite(low) and math.isfinite(high):
        line(group, axis(low), middle, axis(high), middle, "whisker")
    at = numbers({"cx": axis(as_number(row["value"])), "cy": middle, "r": 4.5})
    dot = SubElement(group, "circle", {"class": "dot", **at})
    SubElement(dot, "title").text = f"{row['name']}: {as_number(row['value']):.4g} [{low:.4g}, {high:.4g}]"


def reliability(bins: Sequence[Values]) -> str:
    """How often the model was right by how sure it was; the diagonal is a model whose probabilities are true."""
    points = [(as_number(one.get("probability")), as_number(one.get("right")), one.get("rows")) for one in bins]
    points = [point for point in points if all(map(math.isfinite, point[:2]))]
    if not points:
        return ""
    low = max(0.0, min(min(x, y) for x, y, _ in points) - 0.05)
    title = "How often the model was right, by its probability"
    svg, x, y = _frame(title, [low, 1.0], [low, 1.0], "probability of the prediction", "share that was right")
    line(svg, x(low), y(low), x(1.0), y(1.0), "diagonal")
    most = max(as_number(rows) for *_, rows in points)
    group = SubElement(svg, "g", {"class": "series s0"})
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b, _ in points)
    SubElement(group, "polyline", {"class": "curve", "points": path})
    for a, b, rows in points:
        size = 2.5 + 5 * math.sqrt(as_number(rows) / most) if most > 0 else 3
        dot = SubElement(group, "circle", {"class": "dot", **numbers({"cx": x(a), "cy": y(b), "r": size})})
        SubElement(dot, "title").text = f"{rows} rows: probability {a:.2f}, right {b:.2f}"
    return text_of(svg)


def predicted_numbers(points: Sequence[Sequence[Any]], target: str) -> str:
    """Predicted numbers against true ones; on the diagonal they are equal."""
    known = [(as_number(point[0]), as_number(point[1])) for point in points if len(point) == 2]
    known = [point for point in known if all(map(math.isfinite, point))]
    if not known:
        return ""
    both = [value for point in known for value in point]
    title = f"Predicted {target} against the truth"
    svg, x, y = _frame(title, both, both, f"true {target}", f"predicted {target}")
    line(svg, x(min(both)), y(min(both)), x(max(both)), y(max(both)), "diagonal")
    group = SubElement(svg, "g", {"class": "series s0"})
    for true, predicted in known:
        SubElement(group, "circle", {"class": "point", **numbers({"cx": x(true), "cy": y(predicted), "r": 2.4})})
    return text_of(svg)


def histogram(counts: Sequence[Any], edges: Sequence[Any], label: str) -> str:
    """How many rows have an error in each range."""
    heights = [as_number(count) for count in counts]
    ends = [as_number(edge) for edge in edges]
    if not heights or len(ends) != len(heights) + 1 or not all(map(math.isfinite, [*heights, *ends])):
        return ""
    title = f"How many rows have each {label}"
    svg, x, y = _frame(title, ends, [0.0, max(heights)], label, "rows")
    group = SubElement(svg, "g", {"class": "series s0"})
    for low, high, count in zip(ends, ends[1:], heights, strict=False):
        top = y(count)
        box = {"x": x(low) + 0.5, "y": top, "width": max(x(high) - x(low) - 1, 0.5), "height": y(0.0) - top}
        bar = SubElement(group, "rect", {"class": "bar", **numbers(box)})
        SubElement(bar, "title").text = f"{low:.4g} to {high:.4g}: {count:.0f} rows"
    line(svg, x(0.0), 6, x(0.0), _HEIGHT - _FOOT, "zero")
    return text_of(svg)


def embedding_map(points: Sequence[Values], are_numbers: bool) -> tuple[str, list[tuple[str, str]]]:
    """Rows as points of a plane, and the legend: the class of the style and the name of each group.

    Groups have a colour and a shape, for those who see no colours. Numbers are cut into five groups of equal size.
    """
    known = [point for point in points if _has_place(point)]
    if not known:
        return "", []
    names, order, styles = _groups_of(known, are_numbers)
    height = 300.0
    svg = canvas(height, "Map of the rows by what the model knows about them")
    x = Axis.over([as_number(point["x"]) for point in known], 8, WIDTH - 8, math.inf)
    y = Axis.over([as_number(point["y"]) for point in known], height - 8, 8, math.inf)
    for point, name in zip(known, names, strict=True):
        place = 0 if are_numbers else min(order.index(name), _SHAPES)
        _mark(svg, x(as_number(point["x"])), y(as_number(point["y"])), styles[name], place)
    legend = [(styles[name], name) for name in order[:_SHAPES]]
    if len(order) > _SHAPES:
        legend.append(("s11", f"{len(order) - _SHAPES} more"))
    return text_of(svg), legend


def _has_place(point: Values) -> bool:
    return math.isfinite(as_number(point.get("x"))) and math.isfinite(as_number(point.get("y")))


def _groups_of(points: Sequence[Values], are_numbers: bool) -> tuple[list[str], list[str], dict[str, str]]:
    """The group of each point, the groups in order, and the class of the style of each group."""
    if are_numbers:
        names = _number_groups(points)
        order = sorted(set(names), key=lambda name: float(name.partition(" ")[0]))
        return names, order, {name: f"r{place}" for place, name in enumerate(order)}
    names = [str(point.get("true")) for point in points]
    order = sorted(set(names), key=lambda name: (-names.count(name), name))
    return names, order, {name: f"s{place}" if place < _SHAPES else "s11" for place, name in enumerate(order)}


def _number_groups(points: Sequence[Values]) -> list[str]:
    """For each point the range of numbers that it is in; five ranges hold about as many points each."""
    values = [as_number(point.get("true")) for point in points]
    ordered = sorted(value for value in values if math.isfinite(value)) or [0.0]
    cuts = [ordered[min(len(ordered) - 1, len(ordered) * part // 5)] for part in range(5)]
    found = []
    for value in values:
        place = max((part for part in range(5) if value >= cuts[part]), default=0)
        high = cuts[place + 1] if place < 4 else ordered[-1]
        found.append(f"{cuts[place]:.4g} to {high:.4g}")
    return found


def mark_of(style: str) -> str:
    """The mark of a group for the legend.

    >>> mark_of("s0")[:4]
    '<svg'
    """
    svg = Element("svg", {"viewBox": "0 0 12 12", "class": "mark", "aria-hidden": "true"})
    place = int(style[1:]) if style.startswith("s") else 0
    _mark(svg, 6, 6, style, _SHAPES if style == "s11" else place, 4.2)
    return text_of(svg)


def _mark(parent: Element, x: float, y: float, style: str, place: int, size: float = 3.4) -> None:
    """A point in the shape of its group: circle, square, triangle or diamond, filled or, from the fifth on, hollow."""
    role = f"point {style}" if place < 4 or place >= _SHAPES else f"point hollow {style}"
    shape = place % 4
    if shape == 0:
        SubElement(parent, "circle", {"class": role, **numbers({"cx": x, "cy": y, "r": size})})
        return
    corners = {
        1: ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        2: ((0, -1.2), (1.2, 1), (-1.2, 1)),
        3: ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)),
    }[shape]
    path = " ".join(f"{x + size * 0.9 * a:.1f},{y + size * 0.9 * b:.1f}" for a, b in corners)
    SubElement(parent, "polygon", {"class": role, "points": path})


def _frame(title: str, xs: Sequence[float], ys: Sequence[float], below: str, beside: str) -> tuple[Element, Axis, Axis]:
    """An empty figure with two axes and what they show."""
    svg = canvas(_HEIGHT, title)
    x = Axis.over(xs, _LEFT, WIDTH - 10, math.inf)
    y = Axis.over(ys, _HEIGHT - _FOOT, 8 if not beside else 20, math.inf)
    ticks(svg, x, "x", 8, _HEIGHT - _FOOT)
    ticks(svg, y, "y", _LEFT, WIDTH - 10)
    _label(svg, (x.start + x.end) / 2, _HEIGHT - 6, below)
    if beside:
        write(svg, 4, 12, beside, "start", "axis")
    return svg, x, y


def _label(svg: Element, x: float, y: float, text: str) -> None:
    if text:
        write(svg, x, y, text, "middle", "axis")


def _short(name: Any) -> str:
    text = str(name)
    return text if len(text) <= 27 else f"{text[:26]}…"
