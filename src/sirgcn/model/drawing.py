"""A neighbourhood as SVG: readable without colours, and for a screen reader."""

from dataclasses import dataclass
from html import escape

import numpy as np

from sirgcn.model.layout import Places

# Blue and vermilion of Okabe and Ito, which people with any colour vision tell apart; dashes say the same.
FOR, AGAINST, PLAIN, INK = "#0072B2", "#D55E00", "#8a8f98", "#1f2328"
_LONGEST = 22
# More numbers than these would cover each other.
_MOST_NUMBERS = 16


@dataclass(frozen=True)
class DrawnNode:
    """A node of a drawing.

    Args:
        name: its name.
        x: its place.
        y: its place, downwards.
        is_explained: whether it is what is explained.
        effect: its effect; None if it has none of its own.
    """

    name: str
    x: float
    y: float
    is_explained: bool = False
    effect: float | None = None


@dataclass(frozen=True)
class DrawnEdge:
    """An edge of a drawing.

    Args:
        source: the number of a node.
        target: the number of a node.
        effect: its effect; None for an edge that only connects.
        is_directed: whether it has a point.
    """

    source: int
    target: int
    effect: float | None = None
    is_directed: bool = False


@dataclass(frozen=True)
class Drawing:
    """What is drawn: nodes with their places, and edges.

    Args:
        nodes: the nodes.
        edges: the edges.
        labels_inside: whether names stand inside of the nodes, as those of atoms do.
        note: a sentence below.
    """

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    labels_inside: bool = False
    note: str = ""


def draw(drawing: Drawing, title: str, legend: str = "") -> str:
    """The text of an SVG.

    Args:
        drawing: what is drawn.
        title: the line above.
        legend: a sentence below.

    >>> nodes = DrawnNode("A", 0.0, 0.0, True), DrawnNode("B", 1.0, 0.0)
    >>> text = draw(Drawing(nodes, (DrawnEdge(1, 0, -0.5),)), "node A")
    >>> text.startswith("<svg"), "-0.500" in text
    (True, True)
    """
    places, width, height = _scaled(drawing)
    strongest = max((abs(edge.effect) for edge in drawing.edges if edge.effect is not None), default=1.0) or 1.0
    of_nodes = max((abs(node.effect) for node in drawing.nodes if node.effect is not None), default=1.0) or 1.0
    # Edges that only connect lie below the others.
    order = sorted(drawing.edges, key=lambda edge: -1.0 if edge.effect is None else abs(edge.effect))
    lines = [_line(drawing, edge, places, strongest) for edge in order]
    with_numbers = [edge for edge in order if edge.effect is not None][-_MOST_NUMBERS:]
    numbers = [_number(drawing, edge, places) for edge in with_numbers]
    circles = [
        _circle(node, x, y, drawing.labels_inside, width / 2, of_nodes)
        for node, (x, y) in zip(drawing.nodes, places, strict=True)
    ]
    below = [
        f'<g transform="translate(24 {height - 62})">',
        f'<line x1="0" x2="34" y1="-4" y2="-4" stroke="{FOR}" stroke-width="5"/>',
        '<text x="42">for the prediction (+)</text>',
        f'<line x1="220" x2="254" y1="-4" y2="-4" stroke="{AGAINST}" stroke-width="5" stroke-dasharray="7 4"/>',
        '<text x="262">against it (\u2212)</text>',
        f'<text y="22" class="small">{escape(legend)}</text>',
        f'<text y="42" class="small">{escape(drawing.note)}</text></g>',
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(_description(drawing))}</desc>',
            "<style>text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
            f"fill:{INK}}}.small{{font-size:12.5px}}.halo{{paint-order:stroke;stroke:#fff;stroke-width:4px;"
            "stroke-linejoin:round}.title{font-size:17px;font-weight:600}</style>",
            f'<defs><marker id="point" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{INK}"/></marker></defs>',
            f'<rect width="100%" height="100%" fill="#fff"/><text x="24" y="34" class="title">{escape(title)}</text>',
            *lines,
            *circles,
            *numbers,
            *below,
            "</svg>",
        ]
    )


def _scaled(drawing: Drawing) -> tuple[Places, float, float]:
    """The places in pixels, and the size of the picture."""
    places = np.array([(node.x, node.y) for node in drawing.nodes], dtype=float).reshape(-1, 2)
    low, high = places.min(0), places.max(0)
    extent = high - low
    largest = max(float(extent.max()), 1e-9)
    unit = max(48.0, min(92.0, 1000 / largest)) if drawing.labels_inside else min(175.0, 900 / largest)
    beside = 60.0 if drawing.labels_inside else 190.0
    width = max(700.0, float(extent[0]) * unit + 2 * beside)
    inner = max(120.0, float(extent[1]) * unit + 90)
    centre = np.array([width / 2, 60 + inner / 2])
    return (places - (low + high) / 2) * unit + centre, width, 60 + inner + 92


def _line(drawing: Drawing, edge: DrawnEdge, places: Places, strongest: float) -> str:
    start, end = places[edge.source], places[edge.target]
    away = end - start
    length = float(np.hypot(*away)) or 1.0
    # A point must not be hidden by the node.
    end = end - away / length * (18 if edge.is_directed else 0)
    colour, dash, thick = PLAIN, "", 1.5
    if edge.effect is not None:
        colour = FOR if edge.effect >= 0 else AGAINST
        thick = 2.0 + 6.0 * abs(edge.effect) / strongest
        dash = "" if edge.effect >= 0 else ' stroke-dasharray="7 4"'
    point = ' marker-end="url(#point)"' if edge.is_directed else ""
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour}" '
        f'stroke-width="{thick:.1f}"{dash}{point}/>'
    )


def _number(drawing: Drawing, edge: DrawnEdge, places: Places) -> str:
    assert edge.effect is not None
    # Nearer to the source, where fewer lines meet.
    share = 0.5 if drawing.labels_inside else 0.62
    x, y = share * places[edge.source] + (1 - share) * places[edge.target]
    if drawing.labels_inside:
        # Beside the bond, away from the middle of the molecule.
        along = places[edge.target] - places[edge.source]
        across = np.array([-along[1], along[0]]) / (float(np.hypot(*along)) or 1.0)
        outwards = np.array([x, y]) - places.mean(0)
        x, y = np.array([x, y]) + across * (24 if float(across @ outwards) >= 0 else -24)
    return f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" class="small halo">{_signed(edge.effect)}</text>'


def _signed(value: float) -> str:
    return f"{value:+.3f}" if abs(value) < 10 else f"{value:+.3g}"


def _circle(node: DrawnNode, x: float, y: float, is_inside: bool, middle: float, strongest: float) -> str:
    radius = 15 if is_inside or node.is_explained else 9
    edge, thick, said = INK, 1.5, ""
    if node.effect is not None:
        said = f" {_signed(node.effect)}"
        if abs(node.effect) > 0.02 * strongest:
            edge = FOR if node.effect >= 0 else AGAINST
            thick = 2.0 + 3.0 * abs(node.effect) / strongest
    fill = INK if node.is_explained else "#fff"
    dash = ' stroke-dasharray="5 3"' if edge == AGAINST else ""
    line = f'stroke="{edge}" stroke-width="{thick:.1f}"{dash}'
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" {line}>'
        f"<title>{escape(node.name + said)}</title></circle>{_label(node, x, y, is_inside, middle)}"
    )


def _label(node: DrawnNode, x: float, y: float, is_inside: bool, middle: float) -> str:
    name = node.name if len(node.name) <= _LONGEST else f"{node.name[: _LONGEST - 1]}\u2026"
    if is_inside:
        return f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" class="small">{escape(name)}</text>'
    if node.is_explained:
        return f'<text x="{x:.1f}" y="{y - 22:.1f}" text-anchor="middle" class="halo">{escape(name)}</text>'
    anchor, shift = ("start", 15) if x >= middle else ("end", -15)
    return f'<text x="{x + shift:.1f}" y="{y + 5:.1f}" text-anchor="{anchor}" class="halo">{escape(name)}</text>'


def _description(drawing: Drawing) -> str:
    """The drawing in words, for those who do not see it."""
    named = sorted((e for e in drawing.edges if e.effect is not None), key=lambda e: -abs(e.effect or 0.0))
    said = [
        f"{drawing.nodes[e.source].name} to {drawing.nodes[e.target].name}: {_signed(e.effect or 0.0)}" for e in named
    ]
    return f"{len(drawing.nodes)} nodes and {len(drawing.edges)} edges. " + "; ".join(said)
