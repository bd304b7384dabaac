"""The figures of a run as plots: ratios to ours, memory, and the scaling curve."""

from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sirgcn.bench.peers import AGGREGATION, BOTH, LAYER, OURS
from sirgcn.bench.records import Results, Row, threads_text
from sirgcn.bench.targets import best
from sirgcn.report.plots import BLUE, ORANGE, new_plot, open_frame, save_plot


def write_plots(results: Results, stem: Path, suffixes: tuple[str, ...] = (".png", ".svg")) -> list[Path]:
    """Draw what a run has figures for. The names of the files start with `stem`.

    >>> write_plots(Results(), Path("unused"))
    []
    """
    figures = {
        "aggregation": _ratios(results, AGGREGATION),
        "layer": _ratios(results, LAYER),
        "memory": _memory(results),
        "scaling": _scaling(results),
    }
    return [
        save_plot(figure, stem.with_name(f"{stem.name}-{name}{suffix}"))
        for name, figure in figures.items()
        if figure is not None
        for suffix in suffixes
    ]


def _ratios(results: Results, suite: str) -> Figure | None:
    """Bars of time / ours by graph, one colour per family, at the largest number of threads."""
    where = {"suite": suite, "mode": BOTH}
    rows = [row for row in results.times if where.items() <= row.items() and row["family"] != OURS]
    if not rows:
        return None
    families = list(dict.fromkeys(row["family"] for row in rows))
    shapes = [shape for shape in results.shapes if any(row["shape"] == shape for row in rows)]
    threads = max(row["threads"] for row in rows)
    figure, axes = new_plot(width=2 + 1.6 * len(shapes))
    width = 0.8 / len(families)
    for place, family in enumerate(families):
        found = [best(results, suite, shape, threads, BOTH, family) for shape in shapes]
        _bars(axes, found, place, width, family)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(shapes))], shapes)
    axes.set_ylabel("time / ours")
    title = f"{suite}, {BOTH}, {threads_text(threads)} (log scale; above 1, ours is faster)"
    axes.set_title(title, fontsize=9)
    figure.legend(fontsize=7, ncols=4, loc="outside lower center")
    return figure


def _bars(axes: Axes, found: list[Row | None], place: int, width: float, family: str) -> None:
    """The bars of a family, one for each graph on which it was measured, with their quartiles."""
    bars = [(x, row["ratio"]) for x, row in enumerate(found) if row is not None]
    spread = [[r["median"] - r["q1"] for _, r in bars], [r["q3"] - r["median"] for _, r in bars]]
    # matplotlib's cycle has ten colours.
    colour = f"C{place}" if place < 10 else "black"
    heights = [ratio["median"] for _, ratio in bars]
    axes.bar([x + place * width for x, _ in bars], heights, width, yerr=spread, label=family, color=colour)


def _memory(results: Results) -> Figure | None:
    rows = [row for row in results.memory if row["mode"] == BOTH]
    if not rows:
        return None
    figure, axes = new_plot(height=1 + 0.22 * len(rows))
    labels = [f"{row['shape']}, {row['suite']}: {row['peer']}" for row in rows]
    colours = [BLUE if row["family"] == OURS else ORANGE for row in rows]
    axes.barh(range(len(rows)), [row["added_bytes"] / 1e6 for row in rows], color=colours)
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.invert_yaxis()
    # A pass on a tiny graph adds nothing that can be measured, and a plain log scale has no 0.
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel(f"MB added by {BOTH} (log scale above 1 MB)")
    return figure


def _scaling(results: Results) -> Figure | None:
    """Nanoseconds per edge as the edges grow, on the left, and as the channels grow, on the right."""
    if not results.scaling:
        return None
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _growth(left, results.scaling, "edges", "channels", log_base=10)
    _growth(right, results.scaling, "channels", "edges", log_base=2)
    left.legend(fontsize=7)
    return figure


def _growth(axes: Axes, rows: list[Row], grows: str, fixed: str, log_base: int) -> None:
    """A line for every peer, mode and number of threads, through the points that share the fixed size."""
    # The points at which one size grows have the other one in common, so that is its most frequent value.
    value = _most_frequent(row[fixed] for row in rows)
    lines: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for row in rows:
        if row[fixed] == value:
            point = row[grows], row["nanoseconds_per_edge"]["median"]
            lines.setdefault((row["peer"], row["mode"], row["threads"]), []).append(point)
    for (peer, mode, threads), points in lines.items():
        style = "-" if threads > 1 else "--"
        label = f"{peer}, {mode}, {threads} thr."
        axes.plot(*zip(*sorted(points), strict=True), style, marker="o", label=label)
    axes.set_xscale("log", base=log_base)
    axes.set_yscale("log")
    axes.set_xlabel(f"{grows} ({fixed}: {value:,})")
    axes.set_ylabel("ns per edge")
    open_frame(axes)


def _most_frequent(values: Iterable[int]) -> int:
    found = list(values)
    return max(found, key=found.count)
