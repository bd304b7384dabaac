"""Learning curves of an experiment as a picture: the median over its runs, a line for every model.

The documentation draws the pictures anew when it is built, from the curves beside the records.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sirgcn.engine.experiment import TrainingExperiment, load_training, names
from sirgcn.report.changes import read_rows
from sirgcn.report.claims import METRICS
from sirgcn.report.plots import open_frame, plot_style, save_plot
from sirgcn.report.runs import Run, as_number
from sirgcn.report.tuned import read_tuned

NOTHING = "No run of this experiment is on record, so there is no learning curve."

POINTS = 250
"""How many points a line has at most."""

SKIPPED = 0.1
"""The first part of the epochs does not decide which values the picture has room for."""

REACH = 4
"""How far below the best value a picture goes, in distances of the best value from the median of the last ones."""

LEAST = 0.05
"""The share of the best value that a picture goes below it at least."""

# Okabe and Ito; the forms of SIR-GCN come first in the experiments and have full lines.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#e69f00", "#56b4e9", "#cc79a7", "#6b7280", "#8c6d31")
_PARTS = {"val": "validation part", "train": "training part"}

Lines = dict[str, list[tuple[int, float]]]
"""Epochs and values by the title of the model."""


def curves_of(experiment: TrainingExperiment, results: str | Path) -> dict[str, dict[str, tuple[Run, ...]]]:
    """The runs that have curves, by column and model: those of the winners, if the experiment has a search.

    >>> import tempfile
    >>> curves_of(load_training("unique_signature"), tempfile.mkdtemp())
    {}
    """
    found: dict[str, dict[str, tuple[Run, ...]]] = {}
    for column in (entry.title for entry in experiment.columns):
        if experiment.search is not None:
            rows = [(model.row.title, model.runs) for model in read_tuned(experiment, column, results)]
        else:
            rows = [(row.title, row.runs) for row in read_rows(experiment, results, column)]
        # A control without a network has no epochs.
        own = {title: runs for title, runs in rows if any(run.epochs for run in runs)}
        if own:
            found[column] = own
    return found


def markdown(name: str, results: str | Path) -> str:
    """The picture of an experiment of the package for a page, or that there is none yet."""
    found = curves_of(load_training(name), results)
    if not found:
        return NOTHING
    models = dict.fromkeys(title for own in found.values() for title in own)
    text = f"Learning curves of {', '.join(models)}, by column {', '.join(found)}"
    return f"![{text}](_generated/{_file(name)})\n\nEach line is the median over the runs of a model: {_counts(found)}."


def write_curves(pages: Sequence[str], results: str | Path, folder: str | Path) -> list[Path]:
    """Draw the learning curves that pages show into a folder, and return the files.

    >>> import tempfile
    >>> write_curves(["<!-- results: curves unique_signature -->"], tempfile.mkdtemp(), tempfile.mkdtemp())
    []
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names():
        if any(f"<!-- results: curves {name} -->" in page for page in pages):
            experiment = load_training(name)
            found = curves_of(experiment, results)
            if found:
                # The controls of a search are far behind on some data.
                drawn = _drawn(found, is_cut=experiment.search is not None)
                paths.append(save_plot(drawn, folder / _file(name)))
    return paths


def _file(name: str) -> str:
    return f"curves-{name}.svg"


def _counts(found: Mapping[str, Mapping[str, Sequence[Run]]]) -> str:
    """How many runs each line has; by column where there are several."""
    texts = [
        (f"{column}: " if len(found) > 1 else "") + ", ".join(f"{title} {len(runs)}" for title, runs in own.items())
        for column, own in found.items()
    ]
    return "; ".join(texts)


def _drawn(found: Mapping[str, Mapping[str, Sequence[Run]]], is_cut: bool) -> Figure:
    """A panel for each column, at most two beside each other; `is_cut` leaves out models far behind."""
    wide = min(2, len(found))
    high = math.ceil(len(found) / wide)
    titles = list(dict.fromkeys(title for own in found.values() for title in own))
    with plot_style():
        figure = Figure(figsize=(8, 3.6 * high), layout="constrained")
        places = figure.subplots(high, wide, squeeze=False)
        for axes in places.flat[len(found) :]:
            axes.set_axis_off()
        for axes, (column, own) in zip(places.flat, found.items(), strict=False):
            _draw(axes, column, own, titles, is_cut)
        named = [axes.get_legend_handles_labels() for axes in places.flat]
        handles = {text: line for lines, texts in named for line, text in zip(lines, texts, strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw(axes: Axes, column: str, own: Mapping[str, Sequence[Run]], titles: Sequence[str], is_cut: bool) -> None:
    part = next((part for part in _PARTS if any(line_of(runs, part) for runs in own.values())), "val")
    lines: Lines = {title: line_of(runs, part) for title, runs in own.items()}
    run = next(run for runs in own.values() for run in runs)
    room = _room(lines, run.higher_is_better, is_cut)
    for title, points in lines.items():
        if points:
            place = titles.index(title)
            style = "-" if title.startswith(("SIR", "SINC")) else "--"
            label = title if room[0] <= points[-1][1] <= room[1] else f"{title} (outside)"
            axes.plot(*zip(*points, strict=True), style, color=_COLOURS[place % len(_COLOURS)], lw=1.2, label=label)
    axes.set(title=column, xlabel="epoch", ylabel=f"{METRICS.get(run.metric, run.metric)}, {_PARTS[part]}", ylim=room)
    axes.grid(visible=True, color="#e5e7eb", linewidth=0.6)
    open_frame(axes)


def _room(lines: Lines, higher_is_better: bool, is_cut: bool) -> tuple[float, float]:
    """The values that the picture has room for: those after the first epochs.

    A model far behind, such as a network without the graph, would press the others together. `is_cut` leaves it out.
    """
    sign = 1 if higher_is_better else -1
    found = [(epoch, sign * value) for points in lines.values() for epoch, value in points] or [(0, 0.0)]
    late = [value for epoch, value in found if epoch >= SKIPPED * max(epoch for epoch, _ in found)]
    ends = [sign * points[-1][1] for points in lines.values() if points] or [0.0]
    best = max(late)
    reach = max(REACH * (best - median(ends)), LEAST * abs(best))
    low = max(min(late), best - reach) if is_cut else min(late)
    room = 0.05 * (best - low) or 0.5
    bottom, top = sorted((sign * (low - room), sign * (best + room)))
    return bottom, top


def line_of(runs: Sequence[Run], part: str) -> list[tuple[int, float]]:
    """The median over runs of the metric on a part, epoch by epoch, at most `POINTS` of them.

    >>> line_of([], "val")
    []
    """
    values: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        for row in run.history:
            value = as_number(row.get(part)) * run.scale
            if math.isfinite(value):
                values[int(row["epoch"])].append(value)
    points = [(epoch, median(found)) for epoch, found in sorted(values.items())]
    if len(points) <= POINTS:
        return points
    return [points[round(place * (len(points) - 1) / (POINTS - 1))] for place in range(POINTS)]
