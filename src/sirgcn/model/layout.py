"""Places for the nodes of a drawing."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.float64]


def rings(hops: Sequence[int], parents: Sequence[int | None]) -> Places:
    """A place for every node, in circles around those of 0 hops: children stand near their parent.

    Args:
        hops: the circle of each node.
        parents: the number of the node that each one belongs to, of one hop less; None for the centre.

    >>> rings([0, 1, 1], [None, 0, 0]).round(2).tolist()
    [[0.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
    """
    children: dict[int | None, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    weights = [1.0] * len(hops)
    for node in sorted(range(len(hops)), key=lambda node: -hops[node]):
        weights[node] = max(1.0, sum(weights[child] for child in children.get(node, [])))
    centre = children.get(None, [])
    angles = np.zeros(len(hops))
    _spread(centre, -math.pi if len(centre) == 1 else 0.0, 2 * math.pi, (children, weights, angles))
    radius = np.array(hops, dtype=float)
    # Two ends of an edge share the centre.
    radius[centre] = 0.35 if len(centre) > 1 else 0.0
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)


def _spread(
    nodes: Sequence[int], start: float, width: float, tree: tuple[dict[int | None, list[int]], list[float], Places]
) -> None:
    """Give every node its part of a sector, and every child its part of that."""
    children, weights, angles = tree
    total = sum(weights[node] for node in nodes)
    for node in nodes:
        own = width * weights[node] / total
        angles[node] = start + own / 2
        _spread(children.get(node, []), start, own, tree)
        start += own


def stress(count: int, edges: Sequence[tuple[int, int]], steps: int = 200) -> Places:
    r"""Places whose distances are near the distances in the graph.

    They minimise :math:`\sum_{i<j} d_{ij}^{-2} (|p_i - p_j| - d_{ij})^2` by majorisation (Gansner et al., 2004). The
    result is the same in every run.

    >>> places = stress(3, [(0, 1), (1, 2)])
    >>> round(float(np.linalg.norm(places[0] - places[2])), 1)
    2.0
    """
    if count == 1:
        return np.zeros((1, 2))
    distances = _distances(count, edges)
    with np.errstate(divide="ignore"):
        weights = np.where(distances > 0, distances**-2.0, 0.0)
    # The start: a circle with a small twist, so that no two nodes share a place or stand on one line.
    turn = np.arange(count) * 2 * math.pi / count
    places = np.stack([np.cos(turn), np.sin(1.1 * turn)], axis=1) * math.sqrt(count)
    laplacian = np.diag(weights.sum(1)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(steps):
        away = np.linalg.norm(places[:, None] - places[None], axis=2)
        ratio = np.divide(weights * distances, away, out=np.zeros_like(away), where=away > 1e-9)
        places = inverse @ ((np.diag(ratio.sum(1)) - ratio) @ places)
    places = places - places.mean(0)
    # The longest way lies flat, as a page does.
    return places @ np.linalg.eigh(places.T @ places)[1][:, ::-1]


def _distances(count: int, edges: Sequence[tuple[int, int]]) -> Places:
    """The lengths of the shortest paths; nodes without a path are a little farther apart than any others."""
    near: list[set[int]] = [set() for _ in range(count)]
    for v, u in edges:
        near[v].add(u)
        near[u].add(v)
    found = np.full((count, count), np.inf)
    for start in range(count):
        found[start, start], border, length = 0.0, {start}, 0
        while border:
            length += 1
            border = {u for v in border for u in near[v] if not np.isfinite(found[start, u])}
            found[start, list(border)] = length
    largest = found[np.isfinite(found)].max()
    return np.where(np.isfinite(found), found, min(largest, 5.0) + 1.0)
