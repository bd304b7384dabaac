"""The paper's figures, drawn from computed data, for `sirgcn figures` and the documentation.

One function draws each figure. Its data are what the library computes: the feature map of Theorem 1, hash functions,
measured properties of layers and generated samples.
"""

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Polygon
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from sirgcn.data import dictionary_lookup, hetero_edge_count
from sirgcn.nn import SIRConv
from sirgcn.report.plots import BLUE, FORMATS, GREEN, GREY, VERMILION, new_plot, open_frame, plot_style, save_plot
from sirgcn.strict import check_name
from sirgcn.theory.feature_map import feature_map
from sirgcn.theory.hashes import hash_surface
from sirgcn.theory.influence import Place, measured_place
from sirgcn.theory.pseudometrics import squared_score

POINTS = (1.29, -1.3, 0.5)
"""h1, h2 and h3 of Figure 1, with the paper's values."""

PANELS: tuple[tuple[str, str, float], ...] = (
    (r"$g_u(h) = h$", "linear", 0.0),
    (r"$g_u(h) = \mathrm{MLP}(h)$", "mlp", 0.0),
    (r"$g_u(h) = \mathrm{MLP}(h + 1)$", "mlp", 1.0),
    (r"$g_u(h) = -h^2$", "square", 0.0),
)
"""The four plots of Figure 2: title, message function and bias of each."""

_WIDTH = 4  # channels of the layers that Figure 3 measures
_DRAWS = 30  # random draws of the weights of each layer


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper.

    Args:
        number: its number in the paper.
        name: its name on the command line and in file names.
        caption: what it shows.
        draw: the function that draws it.

    >>> FIGURES["contours"].stem
    'figure2-contours'
    """

    number: int
    name: str
    caption: str
    draw: Callable[[], Figure]

    @property
    def stem(self) -> str:
        """The name of the file without its ending."""
        return f"figure{self.number}-{self.name}"


def soft_injective() -> Figure:
    """Figure 1: d calls h1 and h2 similar, so g maps them close together and h3 away from them."""
    grid = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)
    sample = torch.cat([grid, torch.tensor(POINTS, dtype=torch.float64)])
    found = feature_map(squared_score(), sample.unsqueeze(1)).features
    # g is unique up to a rotation and a shift. We choose g(0) = 0 and positive values elsewhere.
    g = found[:, 0] - found[grid.abs().argmin(), 0]
    g = g * g[0].sign()
    curve, images = g[: len(grid)].tolist(), g[len(grid) :].tolist()
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.3, 1))
    colours = (BLUE, VERMILION, GREEN)
    _bare_axis(left, "x", (-2, 2), r"$(\mathcal{H}, d)$")
    _bare_axis(right, "y", (-0.3, 2.6), r"$\mathcal{S}$")
    middle.plot(grid.tolist(), curve, color="black", linewidth=1.5)
    middle.axhline(0, color="black", linewidth=0.8)
    middle.axvline(0, color="black", linewidth=0.8)
    for place, (h, image, colour) in enumerate(zip(POINTS, images, colours, strict=True), start=1):
        left.plot(h, 0, "o", color=colour)
        left.annotate(f"$h^{{({place})}}$", (h, 0), (0, 12), textcoords="offset points", ha="center", color=colour)
        middle.plot([h, h, 0], [0, image, image], ":", color=colour, linewidth=1.2)
        middle.plot(h, image, "o", color=colour)
        right.plot(0, image, "o", color=colour)
        side, gap = ("left", 10) if place != 2 else ("right", -10)
        text = f"$g(h^{{({place})}}) = {image:.2f}$"
        right.annotate(text, (0, image), (gap, 0), textcoords="offset points", ha=side, va="center", color=colour)
    middle.set(xlabel=r"$h \in (\mathcal{H}, d)$", ylabel=r"$g(h) \in \mathcal{S}$", ylim=(-0.3, 2.6))
    open_frame(middle)
    figure.suptitle(r"$d(h, h') = |h^2 - h'^2|$ and its map $g$, by Theorem 1", fontsize=10)
    return figure


def contours() -> Figure:
    """Figure 2: the hash of two neighbours under four message functions. Points on one contour line collide."""
    grid = torch.linspace(-3, 3, 121, dtype=torch.float64)
    figure = Figure(figsize=(7.4, 6.2), layout="constrained")
    places = figure.subplots(2, 2, sharex=True, sharey=True).flat
    for letter, axes, (title, message, bias) in zip(string.ascii_lowercase, places, PANELS, strict=False):
        surface = hash_surface(message, grid, bias).tolist()
        filled = axes.contourf(grid, grid, surface, levels=12, cmap="viridis")
        # Drawn as paths, the filled bands would take up most of a megabyte.
        filled.set_rasterized(True)
        axes.contour(grid, grid, surface, levels=filled.levels, colors="white", linewidths=0.5, linestyles="solid")
        axes.set(title=f"({letter}) {title}", aspect="equal", xticks=range(-3, 4), yticks=range(-3, 4))
        axes.set(xlabel=r"$h_{v_1}$" if letter in "cd" else "", ylabel=r"$h_{v_2}$" if letter in "ac" else "")
        figure.colorbar(filled, ax=axes, shrink=0.9, label=r"$G_u$" if letter in "bd" else "")
    return figure


def quadrant_places() -> dict[str, Place]:
    """The measured place of every model in Figure 3.

    SIR-GCN has four places, the corners of what it can be: with and without W_Q, with the sum and with the mean.
    """

    def sir(aggr: str, has_query: bool) -> Callable[[], nn.Module]:
        def build() -> nn.Module:
            conv = SIRConv(_WIDTH, _WIDTH, aggr=aggr)
            if not has_query:
                # Only the weight: the bias does not depend on the query.
                nn.init.zeros_(conv.get_parameter("lin_query.weight"))
            return conv

        return build

    builders: dict[str, Callable[[], nn.Module]] = {
        "GCN": lambda: GCNConv(_WIDTH, _WIDTH, add_self_loops=False),
        "GraphSAGE": lambda: SAGEConv(_WIDTH, _WIDTH),
        "GAT": lambda: GATConv(_WIDTH, _WIDTH, add_self_loops=False),
        "GIN": lambda: GINConv(nn.Identity()),
        **{
            f"SIR-GCN, {aggr}{'' if has_query else ', W_Q = 0'}": sir(aggr, has_query)
            for has_query in (True, False)
            for aggr in ("sum", "mean")
        },
    }
    places = {}
    for name, build in builders.items():
        with torch.random.fork_rng(devices=[]):
            # Every model gets the same seed, so the corners of SIR-GCN differ only in what their names say.
            torch.manual_seed(0)
            places[name] = measured_place([build().double() for _ in range(_DRAWS)], _WIDTH)
    return places


def quadrants() -> Figure:
    """Figure 3: every model at the place of its two measured properties. SIR-GCN covers all between its corners."""
    places = quadrant_places()
    corners = [place for name, place in places.items() if name.startswith("SIR-GCN")]
    middle = Place(*(sum(side) / len(corners) for side in zip(*corners, strict=True)))
    corners.sort(key=lambda place: math.atan2(place.context - middle.context, place.growth - middle.growth))
    figure, axes = new_plot(6, 4.4)
    outline = [(place.growth, place.context) for place in corners]
    axes.add_patch(Polygon(outline, closed=True, fill=False, edgecolor=BLUE, linewidth=2.5))
    axes.plot(*zip(*outline, strict=True), "s", color=BLUE)
    right, high = (max(side) for side in zip(*outline, strict=True))
    axes.annotate("SIR-GCN", (right, high), (-4, 8), textcoords="offset points", ha="right", weight="bold", color=BLUE)
    # GCN and GraphSAGE have nearly the same place, so their names are written side by side.
    for name, (dx, dy) in {"GCN": (10, 8), "GraphSAGE": (42, 8), "GAT": (10, -4), "GIN": (-10, 8)}.items():
        place = (places[name].growth, places[name].context)
        axes.plot(*place, "o", color=VERMILION, zorder=3)
        axes.annotate(name, place, (dx, dy), textcoords="offset points", ha="right" if dx < 0 else "left")
    axes.axvline(0.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_xticks([0, 0.5, 1], ["0\nmean", "0.5", "1\nsum"])
    axes.set(xlim=(-0.15, 1.15), ylim=(-0.035, 1.2 * high))
    axes.set_xlabel("growth: effect of the neighbours when there are twice as many, log₂")
    axes.set_ylabel("context: how far the query changes\nwhat its neighbours do (0: isotropic)")
    return figure


def lookup_sample() -> Data:
    """The graph of Figure 4: the first graph of `dictionary_lookup` with 4 keys and seed 0."""
    return dictionary_lookup(4, num_graphs=1, seed=0)[0]


def draw_lookup() -> Figure:
    """Figure 4: a sample of DictionaryLookup. A thick edge carries the value that a query asks for."""
    data = lookup_sample()
    n = data.num_nodes // 2
    places = [(1.4 * (node % n), 1.6 if node < n else 0.0) for node in range(2 * n)]
    figure, axes = _canvas(5.4, 2.4)
    attributes, values = data.x.T.tolist()
    for source, target in data.edge_index.T.tolist():
        matches = attributes[source] == attributes[target]
        colour, width, layer = (BLUE, 2.5, 2) if matches else (GREY, 0.8, 1)
        ends = zip(places[source], places[target], strict=True)
        axes.plot(*ends, color=colour, linewidth=width, zorder=layer)
    for node, place in enumerate(places):
        # The id n means that there is no value. The paper counts values from 1.
        value = "*" if values[node] == n else str(values[node] + 1)
        _node(axes, place, f"{string.ascii_uppercase[attributes[node]]}, {value}")
    for place, answer in zip(places[:n], data.y.tolist(), strict=True):
        axes.annotate(f"→ {answer + 1}", place, (0, 24), textcoords="offset points", ha="center", color=BLUE)
    _row_name(axes, "queries", 1.6)
    _row_name(axes, "keys", 0.0)
    axes.set(xlim=(-1.7, 1.4 * n - 0.7), ylim=(-0.45, 2.25))
    return figure


def count_sample() -> Data:
    """The graph of Figure 5: the first of `hetero_edge_count` with 4 nodes, 5 to 8 edges and no self-loop, seed 0."""
    for data in hetero_edge_count(2, num_graphs=500, seed=0, max_nodes=4):
        source, target = data.edge_index
        if data.num_nodes == 4 and 5 <= len(source) <= 8 and not bool((source == target).any()):
            return data
    raise AssertionError("expected a graph with 4 nodes, 5 to 8 edges and no self-loop among 500, got none")


def draw_count() -> Figure:
    """Figure 5: a sample of HeteroEdgeCount. The thick edges are those that are counted."""
    data = count_sample()
    places = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]
    labels = [string.ascii_uppercase[label] for label in data.x.tolist()]
    edges = {(source, target) for source, target in data.edge_index.T.tolist()}
    figure, axes = _canvas(3.4, 3.4)
    for source, target in sorted(edges):
        counts = labels[source] != labels[target]
        # Two edges between the same nodes are bent apart.
        bend = 0.16 if (target, source) in edges else 0.0
        arrow = FancyArrowPatch(
            places[source],
            places[target],
            arrowstyle="-|>",
            mutation_scale=14,
            shrinkA=13,
            shrinkB=13,
            connectionstyle=f"arc3,rad={bend}",
            color=BLUE if counts else GREY,
            linewidth=2.5 if counts else 1.0,
        )
        axes.add_patch(arrow)
    for place, label in zip(places, labels, strict=True):
        _node(axes, place, label)
    axes.set(xlim=(-0.5, 2.5), ylim=(-0.7, 2.5))
    axes.text(1, -0.6, f"y = {int(data.y)} of {len(edges)} edges", ha="center", color=BLUE)
    return figure


FIGURES: dict[str, PaperFigure] = {
    entry.name: entry
    for entry in (
        PaperFigure(1, "soft-injective", "A soft-injective feature map g of a pseudometric d", soft_injective),
        PaperFigure(2, "contours", "Hash functions G under different message functions g", contours),
        PaperFigure(3, "quadrants", "SIR-GCN generalises classical GNNs, by measured properties", quadrants),
        PaperFigure(4, "dictionary-lookup", "A sample of DictionaryLookup", draw_lookup),
        PaperFigure(5, "hetero-edge-count", "A sample of HeteroEdgeCount", draw_count),
    )
}
"""The figures of the paper, by name."""


def find_figure(name: str) -> PaperFigure:
    """Find a figure by its name (`contours`), its number (`2`) or both (`figure2`).

    Raises:
        ValueError: no figure has this name.

    >>> find_figure("figure2").caption
    'Hash functions G under different message functions g'
    """
    wanted = name.lower().replace("_", "-")
    by_name: dict[str, PaperFigure] = {}
    for entry in FIGURES.values():
        by_name |= dict.fromkeys((entry.name, str(entry.number), f"figure{entry.number}", entry.stem), entry)
    if wanted not in by_name:
        check_name("figure", wanted, FIGURES, also=f"a number from 1 to {len(FIGURES)} or ")
    return by_name[wanted]


def write_figures(names: Sequence[str] = (), folder: str | Path = "figures", format: str = "png") -> list[Path]:
    """Draw figures of the paper into a folder.

    Args:
        names: the figures, by name or number; all of them by default.
        folder: where the files go. It is created where it does not exist.
        format: `"png"`, `"svg"` or `"pdf"`.

    Returns:
        The paths of the files. Equal data give equal bytes.

    >>> import tempfile
    >>> [path.name for path in write_figures(["hetero-edge-count"], tempfile.mkdtemp(), format="svg")]
    ['figure5-hetero-edge-count.svg']
    """
    check_name("format", format, FORMATS)
    entries = [find_figure(name) for name in names or FIGURES]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for entry in entries:
        with plot_style():
            figure = entry.draw()
        paths.append(save_plot(figure, folder / f"{entry.stem}.{format}"))
    return paths


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure, axes = new_plot(width, height)
    axes.set_axis_off()
    axes.set_aspect("equal")
    return figure, axes


def _node(axes: Axes, place: tuple[float, float], text: str) -> None:
    box = {"boxstyle": "circle,pad=0.35", "facecolor": "white", "edgecolor": "black"}
    axes.text(*place, text, ha="center", va="center", bbox=box, zorder=3)


def _row_name(axes: Axes, text: str, height: float) -> None:
    axes.text(-0.65, height, text, ha="right", va="center", color=GREY)


def _bare_axis(axes: Axes, direction: str, limits: tuple[float, float], name: str) -> None:
    """Replace the frame by one arrow with a name at its end."""
    axes.set_axis_off()
    ends = [(limits[0], 0), (limits[1], 0)] if direction == "x" else [(0, limits[0]), (0, limits[1])]
    axes.annotate("", ends[1], ends[0], arrowprops={"arrowstyle": "<->"})
    offset, ha = ((8, 0), "left") if direction == "x" else ((0, 6), "center")
    axes.annotate(name, ends[1], offset, textcoords="offset points", ha=ha, va="center" if ha == "left" else "bottom")
    room = (-1.0, 1.0)
    axes.set(xlim=limits if direction == "x" else room, ylim=room if direction == "x" else limits)
