"""What all figures of the pages share: scales with round ticks, and lines and text as SVG.

Colours are classes that the style of a page defines for light and dark screens. The XML writer escapes all text.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

WIDTH = 380
"""The width of a figure in its own units, which are pixels of a phone."""

DECADES = 2.5
"""A positive range of more decades than this is drawn on a log scale."""


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels with its ticks. It is logarithmic where the values span several decades."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, decades: float = DECADES) -> "Axis":
        """The scale on which all these values have room; logarithmic where they span more than so many decades."""
        # NaN fails the comparison. A larger value would overflow below.
        known = [value for value in values if abs(value) < 1e300] or [0.0, 1.0]
        low, high = min(known), max(known)
        is_log = low > 0 and math.log10(high / low) > decades
        if is_log:
            low, high = math.log10(low), math.log10(high)
        span = high - low if high - low > 1e-4 * abs(high) else abs(high)
        room = 0.05 * span or 0.5
        return cls(low - room, high + room, start, end, is_log)

    def __call__(self, value: float) -> float:
        """The pixel of a value. A value beyond an end of the scale is drawn at that end."""
        if self.is_log:
            value = math.log10(value) if value > 0 else self.low
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """A few round values on the scale."""
        if not self.is_log:
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


def canvas(height: float, title: str) -> Element:
    """An empty figure of this height; the title is for those who cannot see it."""
    # An SVG element without a size fills the width of its place on the page.
    return Element("svg", {"viewBox": f"0 0 {WIDTH} {height:g}", "role": "img", "aria-label": title})


def ticks(svg: Element, axis: Axis, direction: str, start: float, end: float) -> None:
    """Draw the grid lines and the figures of an axis. The lines go from `start` to `end` in the other direction."""
    for value in axis.ticks():
        at, text = axis(value), f"{value:g}"
        if direction == "x":
            line(svg, at, start, at, end, "grid")
            write(svg, at, end + 15, text, "middle", "tick")
        else:
            line(svg, start, at, end, at, "grid")
            write(svg, start - 6, at + 3.5, text, "end", "tick")


def line(parent: Element, x1: float, y1: float, x2: float, y2: float, role: str) -> None:
    """Draw a line; its role is a class of the style."""
    SubElement(parent, "line", {"class": role, **numbers({"x1": x1, "y1": y1, "x2": x2, "y2": y2})})


def write(parent: Element, x: float, y: float, text: str, anchor: str, role: str) -> None:
    """Write a text; its role is a class of the style."""
    SubElement(parent, "text", {"class": role, "text-anchor": anchor, **numbers({"x": x, "y": y})}).text = text


def numbers(values: Mapping[str, float]) -> dict[str, str]:
    """Attributes with one decimal, which is a tenth of a pixel."""
    return {name: f"{value:.1f}" for name, value in values.items()}


def text_of(svg: Element) -> str:
    """The figure as text."""
    return tostring(svg, encoding="unicode")
