"""A record as figures: ratios to ours, memory, and the scaling curve."""

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sirgcn.bench.peers import AGGREGATION, BOTH, LAYER, OURS
from sirgcn.bench.targets import best
from sirgcn.files import write_atomic


def write_plots(record: dict[str, Any], stem: Path, suffixes: tuple[str, ...] = (".png", ".svg")) -> list[Path]:
    """Draw what the record has figures for; the files' names start with `stem`."""
    figures = {
        "aggregation": _ratios(record, AGGREGATION),
        "layer": _ratios(record, LAYER),
        "memory": _memory(record),
        "scaling": _scaling(record),
    }
    written = []
    for name, figure in figures.items():
        if figure is not None:
            for suffix in suffixes:
                path = stem.with_name(f"{stem.name}-{name}{suffix}")
                drawn = BytesIO()
                figure.savefig(drawn, format=suffix.removeprefix("."), dpi=150)
                write_atomic(path, drawn.getvalue())
                written.append(path)
    return written


def _ratios(record: dict[str, Any], suite: str) -> Figure | None:
    rows = [row for row in record["times"] if row["suite"] == suite and row["mode"] == BOTH]
    families = [family for family in dict.fromkeys(row["family"] for row in rows) if family != OURS]
    shapes = [shape for shape in record["shapes"] if any(row["shape"] == shape for row in rows)]
    if not families or not shapes:
        return None
    threads = max(row["threads"] for row in rows)
    figure, axes = _axes(width=2 + 1.6 * len(shapes))
    width = 0.8 / len(families)
    for place, family in enumerate(families):
        found = [best(record, suite, shape, threads, BOTH, family) for shape in shapes]
        bars = [(x, row["ratio"]) for x, row in enumerate(found) if row is not None]
        middle = [ratio["median"] for _, ratio in bars]
        spread = [[r["median"] - r["q1"] for _, r in bars], [r["q3"] - r["median"] for _, r in bars]]
        colour = f"C{place}" if place < 10 else "black"
        axes.bar([x + place * width for x, _ in bars], middle, width, yerr=spread, label=family, color=colour)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(shapes))], shapes)
    axes.set_ylabel("time / ours")
    axes.set_title(
        f"{suite}, {BOTH}, {threads} thread{'s' * (threads > 1)} (log scale; above 1, ours is faster)", fontsize=9
    )
    figure.legend(fontsize=7, ncols=4, loc="outside lower center")
    return figure


def _memory(record: dict[str, Any]) -> Figure | None:
    rows = [row for row in record["memory"] if row["mode"] == BOTH]
    if not rows:
        return None
    figure, axes = _axes(height=1 + 0.22 * len(rows))
    labels = [f"{row['shape']}, {row['suite']}: {row['peer']}" for row in rows]
    colours = ["C0" if row["family"] == OURS else "C1" for row in rows]
    axes.barh(range(len(rows)), [row["added_bytes"] / 1e6 for row in rows], color=colours)
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("symlog", linthresh=1)  # a pass on a tiny graph adds nothing that can be measured: 0
    axes.set_xlabel(f"MB added by {BOTH} (log scale above 1 MB)")
    return figure


def _scaling(record: dict[str, Any]) -> Figure | None:
    if not record["scaling"]:
        return None
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    # The points where one grows share the other's commonest value.
    channels = _commonest(row["channels"] for row in record["scaling"])
    edges = _commonest(row["edges"] for row in record["scaling"])
    for axes, grows, fixed, value in ((left, "edges", "channels", channels), (right, "channels", "edges", edges)):
        for key in dict.fromkeys((row["peer"], row["mode"], row["threads"]) for row in record["scaling"]):
            points = sorted(
                (row[grows], row["nanoseconds_per_edge"]["median"])
                for row in record["scaling"]
                if (row["peer"], row["mode"], row["threads"]) == key and row[fixed] == value
            )
            peer, mode, threads = key
            style = "-" if threads > 1 else "--"
            axes.plot(*zip(*points, strict=True), style, marker="o", label=f"{peer}, {mode}, {threads} thr.")
        axes.set_xscale("log", base=10 if grows == "edges" else 2)
        axes.set_yscale("log")
        axes.set_xlabel(f"{grows} ({fixed}: {value:,})")
        axes.set_ylabel("ns per edge")
    left.legend(fontsize=7)
    return figure


def _commonest(values: Any) -> int:
    found: list[int] = list(values)
    return max(found, key=found.count)


def _axes(width: float = 8, height: float = 4.5) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
