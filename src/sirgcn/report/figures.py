"""Figures as inline SVG: every run as a dot beside the published interval, learning curves, and time by size.

Colours are classes (`s0`, `s1`, ...) that the style of the page defines for light and dark screens. The XML writer
escapes all text, so a record can never bring markup into the page.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from sirgcn.report.cells import Cell
from sirgcn.report.claims import METRICS, Column
from sirgcn.report.runs import Run, as_number

_WIDTH, _HEIGHT, _FOOT, _ROW = 380, 190, 26, 22
_POINTS = 120  # of a curve at most
_DECADES = 2.5  # a positive range of more decades than this is drawn on a log scale

_PARTS = {"val": "validation set", "train": "training set", "test": "test set"}

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels with its ticks. It is logarithmic where the values span several decades."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, decades: float = _DECADES) -> "Axis":
        """The scale on which all these values have room; logarithmic where they span more than so many decades."""
        # NaN fails the comparison. A larger value would overflow below.
        known = [value for value in values if abs(value) < 1e300] or [0.0, 1.0]
        low, high = min(known), max(known)
        log = low > 0 and math.log10(high / low) > decades
        if log:
            low, high = math.log10(low), math.log10(high)
        span = high - low if high - low > 1e-4 * abs(high) else abs(high)
        room = 0.05 * span or 0.5
        return cls(low - room, high + room, start, end, log)

    def __call__(self, value: float) -> float:
        """The pixel of a value. A value beyond an end of the scale is drawn at that end."""
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """A few round values on the scale."""
        if not self.log:
            return _round(self.low, self.high)
        if self.high - self.low < 1:
            return _round(10**self.low, 10**self.high)
        if self.high - self.low < 2:
            return self._steps_of_decades()
        every = max(1, math.ceil((self.high - self.low) / 6))
        return [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1, every)]

    def _steps_of_decades(self) -> list[float]:
        """1, 2 and 5 of every decade, as far as they are on the scale."""
        powers = range(math.floor(self.low), math.ceil(self.high))
        ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        return [tick for tick in ticks if self.low <= math.log10(tick) <= self.high]


def _round(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * min((1, 2, 5, 10), key=lambda factor: abs(factor * power - rough))
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def dots(cells: Sequence[Cell], column: Column, colours: Mapping[str, str]) -> str:
    """Every value of a column as a dot, beside the published interval of its model; empty without values."""
    drawn = [cell for cell in cells if any(map(math.isfinite, cell.values))]
    if not drawn:
        return ""
    gutter = 14 + 7 * max(len(cell.model) for cell in drawn)
    row = max(_ROW, (_HEIGHT - _FOOT - 6) / len(drawn))
    height = row * len(drawn) + _FOOT + 6
    axis = Axis.over(_extent(drawn), min(gutter, 170), _WIDTH - 12)
    svg = _canvas(height, f"{column.name}: every run beside the published mean ± 2 std")
    _ticks(svg, axis, "x", 4, height - _FOOT)
    for place, cell in enumerate(drawn):
        group = SubElement(svg, "g", {"class": f"series {colours[cell.model]}", "data-model": cell.model})
        middle = 4 + row * (place + 0.5)
        _write(group, axis.start - 8, middle + 4, cell.model, "end", "name")
        _draw_interval(group, cell, axis, middle)
        _draw_values(group, cell, axis, middle)
    return _text_of(svg)


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
    bar = SubElement(group, "rect", {"class": "band", **_numbers(band)})
    SubElement(bar, "title").text = f"{cell.model}, published: {cell.claim}"
    _line(group, axis(cell.claim.mean), middle - 7, axis(cell.claim.mean), middle + 7, "published")


def _draw_values(group: Element, cell: Cell, axis: Axis, middle: float) -> None:
    points = [(run, value) for run in cell.runs for value in run.values]
    for place, (run, value) in enumerate(points):
        if math.isfinite(value):
            # Equal values would hide each other, so the dots are spread over the height of the row.
            shift = 9 * ((place + 0.5) / len(points) - 0.5)
            at = _numbers({"cx": axis(value), "cy": middle + shift, "r": 3.2})
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
    svg = _canvas(_HEIGHT, title)
    x = Axis.over((epoch for *_, points in lines for epoch, _ in points), 52, _WIDTH - 10, decades)
    values = (value for *_, points in lines for _, value in points)
    y = Axis.over(values, _HEIGHT - _FOOT, 6, min(decades, _DECADES))
    _ticks(svg, x, "x", 6, _HEIGHT - _FOOT)
    _ticks(svg, y, "y", 52, _WIDTH - 10)
    # The paper's model is drawn last, so that it lies on top.
    for cell, run, points in sorted(lines, key=lambda line: colours[line[0].model] == "s0"):
        group = SubElement(svg, "g", {"class": f"series {colours[cell.model]}", "data-model": cell.model})
        path = " ".join(f"{x(epoch):.1f},{y(value):.1f}" for epoch, value in points)
        line = SubElement(group, "polyline", {"class": "curve reduced" if run.reduced else "curve", "points": path})
        SubElement(line, "title").text = f"{cell.model}, {_seed(run)}"
    return _text_of(svg)


def _seed(run: Run) -> str:
    return f"seed {run.seed}" if run.split is None else f"seed {run.seed}, split {run.split}"


def _canvas(height: float, title: str) -> Element:
    # An SVG element without a size fills the width of its place on the page.
    return Element("svg", {"viewBox": f"0 0 {_WIDTH} {height:g}", "role": "img", "aria-label": title})


def _ticks(svg: Element, axis: Axis, direction: str, start: float, end: float) -> None:
    """Draw the grid lines and the figures of an axis. The lines go from `start` to `end` in the other direction."""
    for value in axis.ticks():
        at, text = axis(value), f"{value:g}"
        if direction == "x":
            _line(svg, at, start, at, end, "grid")
            _write(svg, at, end + 15, text, "middle", "tick")
        else:
            _line(svg, start, at, end, at, "grid")
            _write(svg, start - 6, at + 3.5, text, "end", "tick")


def _line(parent: Element, x1: float, y1: float, x2: float, y2: float, role: str) -> None:
    SubElement(parent, "line", {"class": role, **_numbers({"x1": x1, "y1": y1, "x2": x2, "y2": y2})})


def _write(parent: Element, x: float, y: float, text: str, anchor: str, role: str) -> None:
    SubElement(parent, "text", {"class": role, "text-anchor": anchor, **_numbers({"x": x, "y": y})}).text = text


def _numbers(values: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.1f}" for name, value in values.items()}


def _text_of(svg: Element) -> str:
    return tostring(svg, encoding="unicode")
