"""The graphs of the benchmark: generated ones in the shape of known data sets, and real ones whose data are found.

Edges are sorted by source, then by target, which is the order in which PyG's `to_undirected` and loaders give them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data import DataError, Graphs, load
from sirgcn.data.sets.images import Images, read_images
from sirgcn.data.sets.superpixels import superpixel_graphs


class Graph(NamedTuple):
    """A graph, or a batch of graphs as one graph: `edge_index` `[2, E]`, sources first.

    >>> Graph(torch.tensor([[0, 1], [1, 0]]), num_nodes=2).edge_index.shape
    torch.Size([2, 2])
    """

    edge_index: Tensor
    num_nodes: int


class LeftOut(Exception):
    """Something cannot be measured on this machine; the text is the reason.

    >>> raise LeftOut("needs about 18 GB of memory, 6 GB are free")
    Traceback (most recent call last):
    sirgcn.bench.graphs.LeftOut: needs about 18 GB of memory, 6 GB are free
    """


@dataclass(frozen=True)
class Shape:
    """A graph and the width at which it is measured. `build` can be pickled, because another process may call it.

    >>> Shape("tiny", 8, "2 random molecules", functools.partial(molecules, graphs=2)).build().num_nodes
    46
    """

    name: str
    channels: int
    what: str
    build: Callable[[], Graph]


def molecules(graphs: int = 128, nodes: int = 23, rings: int = 3) -> Graph:
    """Random trees of `nodes` atoms with `rings` more bonds each.

    A molecule has 2 * (nodes - 1 + rings) directed edges.

    >>> molecules(graphs=2).edge_index.size(1)
    100
    """
    random = np.random.default_rng(0)
    child = np.arange(1, nodes)
    # The parent is one of the last four atoms, which gives chains with branches, as in molecules.
    parent = child - random.integers(1, np.minimum(child, 4) + 1, (graphs, nodes - 1))
    ring = np.sort(random.permuted(np.tile(np.arange(nodes), (graphs, rings, 1)), axis=2)[..., :2])
    first = np.concatenate([parent, ring[..., 0]], 1) + nodes * np.arange(graphs)[:, None]
    second = np.concatenate([np.tile(child, (graphs, 1)), ring[..., 1]], 1) + nodes * np.arange(graphs)[:, None]
    return _both_ways(first.ravel(), second.ravel(), graphs * nodes)


def bipartite(graphs: int = 256, side: int = 30) -> Graph:
    """Complete bipartite graphs from `side` keys to `side` queries, as in DictionaryLookup.

    >>> bipartite(graphs=2, side=3).edge_index.size(1)
    18
    """
    key, query = np.divmod(np.arange(side * side), side)
    offset = 2 * side * np.arange(graphs)[:, None]
    return _sorted((key + offset).ravel(), (query + side + offset).ravel(), graphs * 2 * side)


def chain(nodes: int, edges: int) -> Graph:
    """A chain of nodes, like the words of a text, with random links between near nodes, `edges` directed edges in all.

    >>> chain(nodes=10, edges=30).edge_index.size(1)
    30
    """
    random = np.random.default_rng(0)
    links = edges // 2 - (nodes - 1)
    start = random.integers(0, nodes - 1, links)
    end = np.minimum(start + random.integers(2, 12, links), nodes - 1)
    step = np.arange(nodes - 1)
    return _both_ways(np.concatenate([step, start]), np.concatenate([step + 1, end]), nodes)


def power_law(nodes: int, edges: int, exponent: float = 0.5) -> Graph:
    """A graph whose degrees follow a power law, with the hubs at random places.

    The ends of the undirected edges are drawn with weights rank^-exponent. An exponent of 0 gives all nodes the same
    weight.

    >>> power_law(nodes=10, edges=30).edge_index.size(1)
    30
    """
    random = np.random.default_rng(0)
    weight = np.cumsum(np.arange(1, nodes + 1) ** -exponent)
    place = random.permutation(nodes)
    ends = place[np.searchsorted(weight, random.random((2, edges // 2)) * weight[-1])]
    return _both_ways(ends[0], ends[1], nodes)


def evenly(nodes: int, edges: int) -> Graph:
    """Directed edges between random nodes. Drawing them is fast at any size.

    >>> evenly(nodes=10, edges=30).edge_index.size(1)
    30
    """
    source = torch.sort(torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(0)))[0]
    target = torch.randint(nodes, (edges,), generator=torch.Generator().manual_seed(1))
    return Graph(torch.stack([source, target]), nodes)


def real_tolokers() -> Graph:
    """The tolokers graph of the heterophilous data sets."""
    return _of(_found(lambda: load("tolokers", download=False)).graphs.batch())


def real_zinc(graphs: int = 128) -> Graph:
    """The first training molecules of the rebuilt ZINC-12k as one batch."""
    task = _found(lambda: load("ZINC", bonds=False, download=False))
    return _of(next(task.batches("train", graphs)))


def real_superpixels(graphs: int = 128) -> Graph:
    """The first MNIST training images as superpixels, as one batch."""

    def made() -> Graphs:
        images, _ = read_images("MNIST")
        return superpixel_graphs("MNIST", Images(images.pixels[:graphs], images.labels[:graphs]), workers=1)

    return _of(_found(made).batch())


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("molecules", 75, "128 random molecules of 23 nodes", molecules),
        Shape("bipartite", 120, "256 complete bipartite graphs 30+30, key to query", bipartite),
        Shape("roman_empire", 512, "a chain with near links", functools.partial(chain, 22_662, 65_854)),
        Shape("arxiv", 128, "power law", functools.partial(power_law, 169_343, 2_500_000)),
        Shape("tolokers", 256, "dense, even degrees", functools.partial(power_law, 11_758, 1_038_000, 0.0)),
        Shape("large", 96, "power law", functools.partial(power_law, 60_000, 900_000)),
        Shape("real_zinc", 75, "128 molecules of the rebuilt ZINC-12k", real_zinc),
        Shape("real_superpixels", 80, "128 MNIST images as superpixels", real_superpixels),
        Shape("real_tolokers", 256, "the tolokers graph", real_tolokers),
    )
}
"""The graphs on which time is measured, by name. Those whose names start with `real_` need files in the data root."""

DRAWN = tuple(name for name in SHAPES if not name.startswith("real_"))
"""The shapes that need no data."""


T = TypeVar("T")


def _found(read: Callable[[], T]) -> T:
    try:
        return read()
    except (DataError, OSError, ModuleNotFoundError) as error:
        raise LeftOut(str(error)) from error


def _of(batch: Data) -> Graph:
    source, target = batch.edge_index.numpy()
    return _sorted(source, target, batch.x.size(0))


def _both_ways(first: np.ndarray, second: np.ndarray, nodes: int) -> Graph:
    return _sorted(np.concatenate([first, second]), np.concatenate([second, first]), nodes)


def _sorted(source: np.ndarray, target: np.ndarray, nodes: int) -> Graph:
    order = np.argsort(source * nodes + target, kind="stable")
    return Graph(torch.from_numpy(np.stack([source[order], target[order]]).astype(np.int64)), nodes)
