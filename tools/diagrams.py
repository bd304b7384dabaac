"""Draw the diagrams and badges of the documentation: `python tools/diagrams.py [FOLDER]`.

The rooms are those of the import contract in pyproject.toml. All files are kept in docs/_static, because the README
shows most of them; a test compares them with what is drawn here.
"""

import math
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "_static"

# Readable in light and dark pages: dark text on light shapes, with a white ground.
INK, GROUND, QUERY, KEY, LINE = "#1f2430", "#ffffff", "#fde3c4", "#d6e6f7", "#7a8494"
FONT = "font-family='Helvetica, Arial, sans-serif'"

WORDS = {
    "cli": "the command line",
    "bench": "time and memory against peers",
    "model": "a trained model: predict, explain, export",
    "report": "tables, figures, HTML pages",
    "scale": "sampling, graphs on disk, many processes",
    "engine": "experiments, the training loop, search",
    "theory": "the paper's statements as functions",
    "testing": "laws for layers and backends",
    "nn": "SIRConv, networks, converters",
    "data": "graphs, tasks, your own tables",
    "ops": "the aggregation in C, Triton and plain PyTorch",
}


def svg(width: int, height: int, title: str, shapes: list[str]) -> str:
    """A drawing with its title for those who cannot see it."""
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img' aria-label='{title}'>"
    ground = f"<rect width='{width}' height='{height}' rx='8' fill='{GROUND}'/>"
    return "\n".join([head, f"<title>{title}</title>", ground, *shapes, "</svg>", ""])


def text(x: float, y: float, words: str, size: int = 15, anchor: str = "middle", weight: str = "normal") -> str:
    """Words at a place; `_{u}` lowers what stands in the braces."""
    lowered = words.replace("_{", f"<tspan dy='{size * 0.25:g}' font-size='{size * 0.7:g}'>")
    lowered = lowered.replace("}", f"</tspan><tspan dy='{-size * 0.25:g}'>&#8203;</tspan>")
    place = f"x='{x:g}' y='{y:g}' text-anchor='{anchor}'"
    return f"<text {place} font-size='{size}' font-weight='{weight}' fill='{INK}' {FONT}>{lowered}</text>"


def circle(x: float, y: float, radius: float, fill: str) -> str:
    """A node."""
    return f"<circle cx='{x:g}' cy='{y:g}' r='{radius:g}' fill='{fill}' stroke='{INK}' stroke-width='1.5'/>"


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A message from the first place to the second."""
    angle = math.atan2(y2 - y1, x2 - x1)
    wings = [(x2 - 10 * math.cos(angle + turn), y2 - 10 * math.sin(angle + turn)) for turn in (0.4, -0.4)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *wings])
    line = f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{LINE}' stroke-width='2'/>"
    return f"{line}<polygon points='{points}' fill='{LINE}'/>"


def message() -> str:
    """A node, its neighbours, and the message that each of them sends: it depends on both ends."""
    shapes, (x, y) = [], (150.0, 150.0)
    for place, angle in enumerate((210, 150, 90, 30, 330), start=1):
        far = math.radians(angle)
        left, top = x + 110 * math.cos(far), y - 85 * math.sin(far)
        near = math.hypot(left - x, top - y)
        across, down = (left - x) / near, (top - y) / near
        shapes.append(arrow(left - 24 * across, top - 24 * down, x + 36 * across, y + 36 * down))
        shapes += [circle(left, top, 22, KEY), text(left, top + 5, f"h_{{v{place}}}")]
    shapes += [circle(x, y, 32, QUERY), text(x, y + 5, "h_{u}", 18)]
    words = [
        (62, "every message sees both ends", 15, "normal"),
        (110, "m_{uv} = W_{R} σ( W_{Q} h_{u} + W_{K} h_{v} )", 21, "bold"),
        (158, "the node that receives it asks (query),", 15, "normal"),
        (180, "its neighbour answers (key)", 15, "normal"),
        (228, "products per node, one σ per edge:", 15, "normal"),
        (250, "never a tensor of edges by channels", 15, "normal"),
    ]
    shapes += [text(330, top, line, size, "start", weight) for top, line, size, weight in words]
    return svg(680, 290, "A message of SIR-GCN depends on the node that receives it", shapes)


def layers() -> list[list[str]]:
    """The rooms from the top of the house to its ground, those of one level together."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [layer.split(" | ") for layer in contracts[0]["layers"] if "strict" not in layer]


def rooms() -> str:
    """The rooms of the package. A room imports from those below it."""
    shapes, width, tall = [], 680, 52
    levels = layers()
    for level, names in enumerate(levels):
        top, each = 14 + level * (tall + 12), (width - 28 - 12 * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            left = 14 + place * (each + 12)
            shapes.append(
                f"<rect x='{left:g}' y='{top}' width='{each:g}' height='{tall}' rx='6' fill='{KEY}' stroke='{LINE}'/>"
            )
            shapes.append(text(left + each / 2, top + 21, name, 16, weight="bold"))
            shapes.append(text(left + each / 2, top + 41, WORDS[name], 12 if each > 300 else 10))
    return svg(
        width, 16 + len(levels) * (tall + 12), "The rooms of sirgcn; each imports only from those below it", shapes
    )


def badge(name: str, value: str) -> str:
    """A badge that needs no network."""
    left, right = 14 + 7 * len(name), 14 + 7 * len(value)
    shapes = [
        f"<rect width='{left}' height='20' fill='#4a5364'/>",
        f"<rect x='{left}' width='{right}' height='20' fill='#2b6cb0'/>",
    ]
    for place, words in ((left / 2, name), (left + right / 2, value)):
        head = f"<text x='{place:g}' y='14' text-anchor='middle' font-size='12' fill='#fff'"
        shapes.append(f"{head} {FONT}>{words}</text>")
    size = f"width='{left + right}' height='20'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{name} {value}'>"
    return "\n".join([head, *shapes, "</svg>", ""])


def project() -> dict[str, str]:
    """What pyproject.toml says of the package."""
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def count_of_tests() -> str:
    """How many test functions there are, rounded down, so that the badge seldom changes."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    count = sum(line.startswith("def test_") for file in files for line in file.read_text("utf-8").splitlines())
    return f"{count // 500 * 500:,}+"


DIAGRAMS: dict[str, Callable[[], str]] = {
    "message.svg": message,
    "rooms.svg": rooms,
    "badge-version.svg": lambda: badge("version", project()["version"]),
    "badge-python.svg": lambda: badge("Python", project()["requires-python"].removeprefix(">=") + "+"),
    "badge-licence.svg": lambda: badge("licence", project()["license"]),
    "badge-tests.svg": lambda: badge("tests", count_of_tests()),
}


def main() -> None:
    """Write all files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, draw in DIAGRAMS.items():
        (folder / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
