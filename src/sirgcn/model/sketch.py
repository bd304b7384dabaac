"""What an explanation draws: a graph as a whole, or the strongest edges around what is explained."""

from collections.abc import Callable, Sequence
from itertools import chain

from sirgcn.model.drawing import Drawing, DrawnEdge, DrawnNode
from sirgcn.model.effects import Effects, Link, Links
from sirgcn.model.layout import Places, rings, stress
from sirgcn.model.removal import Neighbourhood

# The largest graph that is drawn as a whole, and the most edges around a node.
_MOST_DRAWN, _MOST_AROUND = 70, 14

Pair = tuple[int, int]


def sketch(
    near: Neighbourhood,
    name: Callable[[int], str],
    links: Links,
    strongest: Sequence[tuple[Link, float]],
    of_nodes: Effects,
) -> Drawing:
    """The drawing of an explanation.

    Args:
        near: the neighbourhood.
        name: the name of a node of it.
        links: its edges.
        strongest: the edges that are told, with their effects.
        of_nodes: the effects of nodes.
    """
    is_whole = near.level == "graph" and near.graphs.num_nodes <= _MOST_DRAWN
    told = strongest if is_whole else strongest[:_MOST_AROUND]
    effects = {(link.source, link.target): effect for link, effect in told}
    if is_whole:
        pairs = [(link.source, link.target) for link in links]
        nodes = list(range(near.graphs.num_nodes))
    else:
        pairs = [*effects, *_ways(near, list(effects), links)]
        nodes = list(dict.fromkeys([*near.ends, *chain.from_iterable(pairs)]))
    place = {node: number for number, node in enumerate(nodes)}
    edges = tuple(DrawnEdge(place[v], place[u], effects.get((v, u)), links.directed) for v, u in dict.fromkeys(pairs))
    drawn = _nodes(near, name, nodes, _places(near, nodes, edges), of_nodes)
    # Names as short as those of atoms stand inside of their circles.
    is_short = near.level == "graph" and all(len(node.name) <= 4 for node in drawn)
    return Drawing(drawn, edges, is_short, _note(len(links) - len(effects), is_whole))


def _note(left: int, is_whole: bool) -> str:
    """What is said of the edges without a number."""
    if not left:
        return ""
    return f"{left:,} weaker edges {'have no number' if is_whole else 'are not drawn'}"


def _places(near: Neighbourhood, nodes: Sequence[int], edges: Sequence[DrawnEdge]) -> Places:
    if near.level == "graph":
        return stress(len(nodes), [(edge.source, edge.target) for edge in edges])
    hops = [int(near.hops[node]) for node in nodes]
    return rings(hops, _parents(hops, edges))


def _nodes(
    near: Neighbourhood, name: Callable[[int], str], nodes: Sequence[int], places: Places, of_nodes: Effects
) -> tuple[DrawnNode, ...]:
    effects = dict(zip(of_nodes.places, of_nodes.effect, strict=True))
    return tuple(
        DrawnNode(name(node), float(x), float(y), node in near.ends, effects.get(node))
        for node, (x, y) in zip(nodes, places, strict=True)
    )


def _ways(near: Neighbourhood, named: Sequence[Pair], links: Links) -> list[Pair]:
    """Edges that lead from the named ones to what is explained, so that the drawing hangs together."""
    known, found = set(named), []
    for _, target in named:
        step = _onwards(near, target, links)
        while step is not None and step not in known:
            known.add(step)
            found.append(step)
            step = _onwards(near, step[1], links)
    return found


def _onwards(near: Neighbourhood, node: int, links: Links) -> Pair | None:
    """An edge from a node to one that is nearer."""
    hops = near.hops.numpy()
    nearer = links.target[(links.source == node) & (hops[links.target] < hops[node])]
    return (node, int(nearer[0])) if len(nearer) else None


def _parents(hops: Sequence[int], edges: Sequence[DrawnEdge]) -> list[int | None]:
    """The node of one hop less with which each one is drawn."""
    found: dict[int, int] = {}
    for edge in edges:
        for one, other in ((edge.source, edge.target), (edge.target, edge.source)):
            if hops[other] == hops[one] - 1:
                found.setdefault(one, other)
    return [None if hop == 0 else found.get(place, 0) for place, hop in enumerate(hops)]
