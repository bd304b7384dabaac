"""The graphs that are measured: drawn ones in the shape of known data sets, and real ones where the data are at hand.

Edges are sorted by source, then target, as PyG's `to_undirected` and loaders leave them.
"""

import functools
import gzip
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

DATA_VARIABLE = "SIRGCN_DATA"
"""The environment variable that names the folder of the real data."""


class Graph(NamedTuple):
    """A graph, or a batch of graphs as one: `edge_index` `[2, E]`, sources first."""

    edge_index: Tensor
    num_nodes: int


class LeftOut(Exception):
    """What cannot be measured here, and why."""


@dataclass(frozen=True)
class Shape:
    """A graph and the width at which it is measured; `build` can be sent to another process."""

    name: str
    channels: int
    what: str
    build: Callable[[], Graph]


def molecules(graphs: int = 128, nodes: int = 23, rings: int = 3) -> Graph:
    """Random trees of `nodes` atoms with `rings` more bonds: 2 * (nodes - 1 + rings) directed edges each."""
    random = np.random.default_rng(0)
    child = np.arange(1, nodes)
    # A parent among the last four atoms: chains with branches, as molecules are.
    parent = child - random.integers(1, np.minimum(child, 4) + 1, (graphs, nodes - 1))
    ring = np.sort(random.permuted(np.tile(np.arange(nodes), (graphs, rings, 1)), axis=2)[..., :2])
    first = np.concatenate([parent, ring[..., 0]], 1) + nodes * np.arange(graphs)[:, None]
    second = np.concatenate([np.tile(child, (graphs, 1)), ring[..., 1]], 1) + nodes * np.arange(graphs)[:, None]
    return _both_ways(first.ravel(), second.ravel(), graphs * nodes)


def bipartite(graphs: int = 256, side: int = 30) -> Graph:
    """Complete bipartite graphs from `side` keys to `side` queries, as DictionaryLookup has them."""
    key, query = np.divmod(np.arange(side * side), side)
    offset = 2 * side * np.arange(graphs)[:, None]
    return _sorted((key + offset).ravel(), (query + side + offset).ravel(), graphs * 2 * side)


def chain(nodes: int, edges: int) -> Graph:
    """A chain of nodes, as words in a text, with random links of near nodes up to `edges` directed edges."""
    random = np.random.default_rng(0)
    links = edges // 2 - (nodes - 1)
    start = random.integers(0, nodes - 1, links)
    end = np.minimum(start + random.integers(2, 12, links), nodes - 1)
    step = np.arange(nodes - 1)
    return _both_ways(np.concatenate([step, start]), np.concatenate([step + 1, end]), nodes)


def power_law(nodes: int, edges: int, exponent: float = 0.5) -> Graph:
    """Undirected edges whose ends are drawn with weights rank^-exponent: degrees of a power law, hubs at random places.

    An exponent of 0 draws them evenly.
    """
    random = np.random.default_rng(0)
    weight = np.cumsum(np.arange(1, nodes + 1) ** -exponent)
    place = random.permutation(nodes)
    ends = place[np.searchsorted(weight, random.random((2, edges // 2)) * weight[-1])]
    return _both_ways(ends[0], ends[1], nodes)


def evenly(nodes: int, edges: int) -> Graph:
    """Directed edges between random nodes, sorted by source; quick to draw at any size."""
    source = torch.sort(torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(0)))[0]
    target = torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(1))
    return Graph(torch.stack([source, target]), nodes)


def real_tolokers() -> Graph:
    """The tolokers graph of the heterophilous data sets."""
    with np.load(_data("heterophilous/tolokers/raw/tolokers.npz"), allow_pickle=False) as file:
        edges, nodes = file["edges"], len(file["node_labels"])
    return _both_ways(edges[:, 0], edges[:, 1], nodes)


def real_zinc(graphs: int = 128) -> Graph:
    """The first training molecules of the rebuilt ZINC-12k as one batch."""
    with np.load(_data("zinc12k/zinc12k.npz"), allow_pickle=False) as file:
        node_ptr, edge_ptr = file["node_ptr"].astype(np.int64), file["edge_ptr"].astype(np.int64)
        edge_index = file["edge_index"][:, : edge_ptr[graphs]].astype(np.int64)
    # Nodes are counted from 0 within every molecule.
    source, target = edge_index + np.repeat(node_ptr[:graphs], np.diff(edge_ptr[: graphs + 1]))
    return _sorted(source, target, int(node_ptr[graphs]))


def real_superpixels(graphs: int = 128, neighbors: int = 8) -> Graph:
    """SLIC superpixels of the first MNIST training images, each joined to its nearest ones by place, as one batch."""
    path = _data("mnist/MNIST/raw/train-images-idx3-ubyte.gz")
    if importlib.util.find_spec("skimage") is None:
        raise LeftOut("scikit-image, which finds the superpixels, is not installed")
    from skimage.segmentation import slic

    with gzip.open(path) as file:
        images = np.frombuffer(file.read(16 + graphs * 28 * 28), np.uint8, offset=16).reshape(graphs, 28, 28) / 255
    sources, targets, nodes = [], [], 0
    for image in images:
        label = slic(image, n_segments=75, compactness=0.25, channel_axis=None, start_label=0)
        label = np.unique(label, return_inverse=True)[1].ravel()
        count = np.bincount(label)
        row, column = np.divmod(np.arange(label.size), 28)
        centre = np.stack([np.bincount(label, row) / count, np.bincount(label, column) / count], 1)
        distance = ((centre[:, None] - centre[None]) ** 2).sum(2)
        np.fill_diagonal(distance, np.inf)
        nearest = np.argsort(distance, axis=1)[:, : min(neighbors, len(count) - 1)]
        sources.append(nodes + np.repeat(np.arange(len(count)), nearest.shape[1]))
        targets.append(nodes + nearest.ravel())
        nodes += len(count)
    return _sorted(np.concatenate(sources), np.concatenate(targets), nodes)


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("molecules", 75, "128 random molecules of 23 nodes", molecules),
        Shape("bipartite", 120, "256 complete bipartite graphs 30+30, key to query", bipartite),
        Shape("roman_empire", 512, "a chain with near links", functools.partial(chain, 22_662, 65_854)),
        Shape("arxiv", 128, "power law", functools.partial(power_law, 169_343, 2_500_000)),
        Shape("tolokers", 256, "dense, even degrees", functools.partial(power_law, 11_758, 1_038_000, 0.0)),
        Shape("real_zinc", 75, "128 molecules of the rebuilt ZINC-12k", real_zinc),
        Shape("real_superpixels", 80, "128 MNIST images as superpixels", real_superpixels),
        Shape("real_tolokers", 256, "the tolokers graph", real_tolokers),
    )
}
"""The graphs on which time is measured, by name; those that are called real need `SIRGCN_DATA`."""

DRAWN = tuple(name for name in SHAPES if not name.startswith("real_"))
"""The shapes that need no data."""


def _data(path: str) -> Path:
    root = os.environ.get(DATA_VARIABLE)
    if root is None:
        raise LeftOut(f"{DATA_VARIABLE} is not set")
    found = Path(root) / path
    if not found.exists():
        raise LeftOut(f"{DATA_VARIABLE} has no {path}")
    return found


def _both_ways(first: np.ndarray, second: np.ndarray, nodes: int) -> Graph:
    return _sorted(np.concatenate([first, second]), np.concatenate([second, first]), nodes)


def _sorted(source: np.ndarray, target: np.ndarray, nodes: int) -> Graph:
    order = np.argsort(source * nodes + target, kind="stable")
    return Graph(torch.from_numpy(np.stack([source[order], target[order]]).astype(np.int64)), nodes)
