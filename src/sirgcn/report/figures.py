"""Figures as inline SVG: every run as a dot beside the published interval, learning curves, and time by size.

Colours are classes (`s0`, `s1`, ...) that the style of the page defines for light and dark screens. The XML writer
escapes all text, so a record can never bring markup into the page.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement

from sirgcn.report.cells import Cell
from sirgcn.report.claims import METRICS, Column
from sirgcn.report.runs import Run, as_number
from sirgcn.report.svg import DECADES, WIDTH, Axis, canvas, line, numbers, text_of, ticks, write

_HEIGHT, _FOOT, _ROW = 190, 26, 22  # pixels of a figure, of the room below its axis, and of a row
_POINTS = 120  # of a curve at most

_PARTS = {"val": "validation set", "train": "training set", "test": "test set"}

Point = tuple[float, float]


def dots(cells: Sequence[Cell], title: str, colours: Mapping[str, str]) -> str:
    """Every value of some cells as a dot, beside the published interval of its model; empty without values."""
    drawn = [cell for cell in cells if any(map(math.isfinite, cell.values))]
    if not drawn:
        return ""
    gutter = 14 + 7 * max(len(cell.model) for cell in drawn)
    row = max(_ROW, (_HEIGHT - _FOOT - 6) / len(drawn))
    height = row * len(drawn) + _FOOT + 6
    axis = Axis.over(_extent(drawn), min(gutter, 170), WIDTH - 12)
    svg = canvas(height, title)
    ticks(svg, axis, "x", 4, height - _FOOT)
    for place, cell in enumerate(drawn):
        group = SubElement(svg, "g", {"class": f"series {colours[cell.model]}", "data-model": cell.model})
        middle = 4 + row * (place + 0.5)
        write(group, axis.start - 8, middle + 4, cell.model, "end", "name")
        _draw_interval(group, cell, axis, middle)
        _draw_values(group, cell, axis, middle)
    return text_of(svg)


def _extent(cells: Sequence[Cell]) -> list[float]:
    """The values that an axis must have room for: ours, and the ends of the published intervals."""
    values = [value for cell in cells for value in cell.values]
    low = min((value for value in values if value > 0), default=0.0)
    ends = [end for cell in cells for end in cell.interval or ()]
    # The lower end of a wide interval may be negative, which would forbid a log scale.
    return [*values, *(max(end, low / 2) if low else end for end in ends)]


def _draw_interval(group: Element, cell: Cell, axis: Axis, middle: float) -> None:
    if cell.claim is None or cell.interval is None:
        return
    low, high = (axis(end) for end in cell.interval)
    band = {"x": low, "y": middle - 7, "width": max(high - low, 1.5), "height": 14, "rx": 3}
    bar = SubElement(group, "rect", {"class": "band", **numbers(band)})
    SubElement(bar, "title").text = f"{cell.model}, published: {cell.claim}"
    line(group, axis(cell.claim.mean), middle - 7, axis(cell.claim.mean), middle + 7, "published")


def _draw_values(group: Element, cell: Cell, axis: Axis, middle: float) -> None:
    points = [(run, value) for run in cell.runs for value in run.values]
    for place, (run, value) in enumerate(points):
        if math.isfinite(value):
            # Equal values would hide each other, so the dots are spread over the height of the row.
            shift = 9 * ((place + 0.5) / len(points) - 0.5)
            at = numbers({"cx": axis(value), "cy": middle + shift, "r": 3.2})
            dot = SubElement(group, "circle", {"class": "dot reduced" if run.reduced else "dot", **at})
            SubElement(dot, "title").text = f"{cell.model}, {_seed(run)}: {value:.6g}{', reduced' * run.reduced}"


def curves(cells: Sequence[Cell], column: Column, colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """The learning curves of a column, a line per run: title and figure for the training loss and the metric."""
    runs = [(cell, run) for cell in cells for run in cell.runs if run.history]
    part = next((part for part in _PARTS if any(_points(run, part, 1.0) for _, run in runs)), "val")
    metric = f"{METRICS.get(column.metric, column.metric)}, {_PARTS[part]}"
    panels: list[tuple[str, Callable[[Run], list[Point]]]] = [
        ("training loss", lambda run: _points(run, "train_loss", 1.0) or _points(run, "step_loss", 1.0)),
        (metric, lambda run: _points(run, part, run.scale)),
    ]
    found = []
    for what, points_of in panels:
        lines = [(cell, run, points) for cell, run in runs if (points := points_of(run))]
        if lines:
            found.append((f"{what} by epoch", _curves(f"{column.name}: {what} by epoch", lines, colours)))
    return found


def growth(cells: Sequence[Cell], colours: Mapping[str, str]) -> list[tuple[str, str]]:
    """How the time of a layer grows, a line per model on logarithmic scales: title and figure for every size."""
    runs = [(cell, run) for cell in cells for run in cell.runs]
    found = []
    for name in dict.fromkeys(name for _, run in runs for name in run.samples if run.growth(name)):
        lines = [(cell, run, points) for cell, run in runs if (points := _sizes(run, name))]
        if lines:
            found.append((f"seconds by {name}", _curves(f"seconds by {name}", lines, colours, decades=0.0)))
    return found


def _sizes(run: Run, name: str) -> list[Point]:
    found = run.growth(name)
    points = zip(found.get("sizes", ()), found.get("seconds", ()), strict=False)
    return [(as_number(size), as_number(seconds)) for size, seconds in points if as_number(seconds) > 0]


def _points(run: Run, name: str, scale: float) -> list[Point]:
    """A curve of at most `_POINTS` points, which include the first and the last."""
    points = [(as_number(entry.get("epoch")), as_number(entry.get(name)) * scale) for entry in run.history]
    points = [point for point in points if all(map(math.isfinite, point))]
    if len(points) <= _POINTS:
        return points
    return [points[round(place * (len(points) - 1) / (_POINTS - 1))] for place in range(_POINTS)]


def _curves(
    title: str,
    lines: list[tuple[Cell, Run, list[Point]]],
    colours: Mapping[str, str],
    decades: float = math.inf,
) -> str:
    svg = canvas(_HEIGHT, title)
    x = Axis.over((epoch for *_, points in lines for epoch, _ in points), 52, WIDTH - 10, decades)
    values = (value for *_, points in lines for _, value in points)
    y = Axis.over(values, _HEIGHT - _FOOT, 6, min(decades, DECADES))
    ticks(svg, x, "x", 6, _HEIGHT - _FOOT)
    ticks(svg, y, "y", 52, WIDTH - 10)
    # The paper's model is drawn last, so that it lies on top.
    for cell, run, points in sorted(lines, key=lambda line: colours[line[0].model] == "s0"):
        group = SubElement(svg, "g", {"class": f"series {colours[cell.model]}", "data-model": cell.model})
        path = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in points)
        curve = SubElement(group, "polyline", {"class": "curve reduced" if run.reduced else "curve", "points": path})
        SubElement(curve, "title").text = f"{cell.model}, {_seed(run)}"
    return text_of(svg)


def _seed(run: Run) -> str:
    return f"seed {run.seed}" if run.split is None else f"seed {run.seed}, split {run.split}"
