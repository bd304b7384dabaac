"""PATTERN and CLUSTER of Benchmarking GNNs, drawn from stochastic block models by the benchmark's rules.

A seed gives the same graphs on any machine: all draws are integers of a named generator, PCG64, the probabilities are
twentieths, and no step rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import check_at_least
from sirgcn.strict import checked

Array = np.ndarray[Any, Any]

# Raised when the draws change, these constants included: a cache of other draws is made anew.
_DRAWS = 1
# Graphs drawn at once: about two million pairs of nodes.
_AT_ONCE = 256
# Nodes of a community or a pattern, both ends included.
_SIZES = (5, 34)
_NUM_PATTERNS = 100
# Probabilities of an edge, of 20: inside a community, between two, at a node of the pattern.
_PATTERN = (10, 7, 10)
_CLUSTER = (11, 5)


@checked
def pattern_task(seed: int = 0, num_graphs: int = 14_000, root: str | Path | None = None) -> Task:
    """PATTERN: which nodes belong to one of 100 patterns, planted into random communities (Table 3).

    A graph has five communities, each of 5 to 34 nodes, with an edge between two nodes with probability 0.5 inside a
    community and 0.35 between two, and node signals uniform in {0, 1, 2}. A pattern has 5 to 34 nodes, fixed edges
    (drawn with probability 0.5) and fixed signals; each of its nodes joins each node of the graph with probability 0.5.
    Nodes are shuffled; the label is 1 on the pattern's nodes. Each pattern occurs equally often in each part.

    Args:
        seed: of all draws.
        num_graphs: 14,000 is the benchmark's number, with 10,000 for training and 2,000 for validation and test each;
            fewer are divided alike.
        root: of the cache, see `cache_root`.
    """
    schema = Schema(vocabularies=(3,), outputs=2)
    return _task("PATTERN", pattern_graphs, schema, (10, 2, 2), seed, num_graphs, root)


@checked
def cluster_task(seed: int = 0, num_graphs: int = 12_000, root: str | Path | None = None) -> Task:
    """CLUSTER: which of six communities a node belongs to, one node of each being named (Table 3).

    Communities have 5 to 34 nodes; an edge has probability 0.55 inside a community and 0.25 between two. One random
    node of community k carries the signal k + 1, all others 0; nodes are shuffled.

    Args:
        seed: of all draws.
        num_graphs: 12,000 is the benchmark's number, with 10,000 for training and 1,000 for validation and test each;
            fewer are divided alike.
        root: of the cache, see `cache_root`.
    """
    schema = Schema(vocabularies=(7,), outputs=6)
    return _task("CLUSTER", cluster_graphs, schema, (10, 1, 1), seed, num_graphs, root)


@checked
def pattern_graphs(seed: int = 0, num_graphs: int = 14_000) -> Graphs:
    """The graphs of `pattern_task`, drawn now: x int64 `[V, 1]`, the signal; y int64 `[V]`, 1 on the pattern."""
    rng = _generator(seed, num_graphs)
    communities = 5
    size = _size(rng, _NUM_PATTERNS)
    signal = rng.integers(3, size=(_NUM_PATTERNS, _SIZES[1]), dtype=np.uint8)
    inside, between, join = _PATTERN
    wired = np.tril(rng.integers(20, size=(_NUM_PATTERNS, _SIZES[1], _SIZES[1]), dtype=np.uint8) < inside, -1)
    wired |= wired.transpose(0, 2, 1)
    # The pattern is one community more.
    chance = _chance(communities + 1, inside, between)
    chance[communities] = chance[:, communities] = join

    def draw(graphs: Array) -> _Drawn:
        # Of 14,000 graphs each pattern has 100 among the first 10,000, 20 among the next 2,000 and among the last.
        pattern = graphs % _NUM_PATTERNS
        nodes = _nodes(rng, np.column_stack([_size(rng, (len(graphs), communities)), size[pattern]]))
        planted = nodes.block == communities
        own = pattern[nodes.graph]
        x = np.where(planted, signal[own, nodes.rank], rng.integers(3, size=len(own), dtype=np.uint8))

        def fixed(later: Array, earlier: Array, drawn: Array) -> None:
            both = np.flatnonzero(planted[later] & planted[earlier])
            later, earlier = later[both], earlier[both]
            drawn[both] = wired[own[later], nodes.rank[later], nodes.rank[earlier]]

        return _drawn(rng, nodes, x, planted, chance, fixed)

    return _joined(draw, num_graphs, "PATTERN")


@checked
def cluster_graphs(seed: int = 0, num_graphs: int = 12_000) -> Graphs:
    """The graphs of `cluster_task`, drawn now: x int64 `[V, 1]`, the signal; y int64 `[V]`, the community."""
    rng = _generator(seed, num_graphs)
    communities = 6
    chance = _chance(communities, *_CLUSTER)

    def draw(graphs: Array) -> _Drawn:
        nodes = _nodes(rng, _size(rng, (len(graphs), communities)))
        # The first of a community before the shuffle is any of it afterwards.
        x = np.where(nodes.rank == 0, nodes.block + 1, 0)
        return _drawn(rng, nodes, x, nodes.block, chance)

    return _joined(draw, num_graphs, "CLUSTER")


@dataclass(frozen=True)
class _Nodes:
    """The nodes of some graphs, shuffled within each."""

    block: Array  # the community, uint8 [V]
    rank: Array  # the place within it before the shuffle, [V]
    graph: Array  # [V]
    count: Array  # nodes of each graph, [G]


@dataclass(frozen=True)
class _Drawn:
    """Some graphs: edges counted from 0 in each."""

    x: Array
    y: Array
    nodes: Array
    edges: Array
    edge_index: Array


def _generator(seed: int, num_graphs: int) -> np.random.Generator:
    check_at_least(1, num_graphs=num_graphs)
    check_at_least(0, seed=seed)
    return np.random.Generator(np.random.PCG64(seed))


def _size(rng: np.random.Generator, shape: Any) -> Array:
    return rng.integers(*_SIZES, size=shape, endpoint=True)


def _chance(blocks: int, inside: int, between: int) -> Array:
    chance = np.full((blocks, blocks), between, np.uint8)
    np.fill_diagonal(chance, inside)
    return chance


def _nodes(rng: np.random.Generator, sizes: Array) -> _Nodes:
    """Nodes of graphs whose communities have these sizes `[G, blocks]`."""
    each, count = sizes.ravel(), sizes.sum(1)
    graph = np.repeat(np.arange(len(sizes)), count)
    block = np.repeat(np.tile(np.arange(sizes.shape[1], dtype=np.uint8), len(sizes)), each)
    # Sorted by graph, then at random; a stable sort has one outcome even for equal keys.
    key = graph.astype(np.uint64) << np.uint64(48) | rng.integers(1 << 48, size=len(graph), dtype=np.uint64)
    order = np.argsort(key, kind="stable")
    return _Nodes(block[order], _ranks(each)[order], graph, count)


def _drawn(
    rng: np.random.Generator,
    nodes: _Nodes,
    x: Array,
    y: Array,
    chance: Array,
    fixed: Callable[[Array, Array, Array], None] | None = None,
) -> _Drawn:
    """Draw the edges; `fixed` may change what was drawn for the pairs (later, earlier)."""
    rank = _ranks(nodes.count)
    first = np.arange(len(rank)) - rank
    # All pairs, a node's with those before it: later runs 1, 2, 2, 3, 3, 3, ... and earlier 0, 0, 1, 0, 1, 2, ...
    later = np.repeat(np.arange(len(rank)), rank)
    earlier = _ranks(rank) + np.repeat(first, rank)
    drawn = rng.integers(20, size=len(later), dtype=np.uint8) < chance[nodes.block[later], nodes.block[earlier]]
    if fixed is not None:
        fixed(later, earlier, drawn)
    later, earlier = later[drawn], earlier[drawn]
    edges = 2 * np.bincount(nodes.graph[later], minlength=len(nodes.count))
    # Both directions, one after the other; a graph has at most 204 nodes.
    ends = np.column_stack([rank.astype(np.uint8)[later], rank.astype(np.uint8)[earlier]])
    return _Drawn(x, y, nodes.count, edges, np.stack([ends.ravel(), ends[:, ::-1].ravel()]))


def _joined(draw: Callable[[Array], _Drawn], num_graphs: int, name: str) -> Graphs:
    starts = range(0, num_graphs, _AT_ONCE)
    # Bytes until all are there: the edges of PATTERN take 1.3 GB once counted through all graphs.
    parts = [draw(np.arange(start, min(start + _AT_ONCE, num_graphs))) for start in progress(starts, name)]
    nodes, edges = (np.concatenate([getattr(part, field) for part in parts]) for field in ("nodes", "edges"))
    node_ptr, edge_ptr = (np.concatenate([[0], np.cumsum(count)]) for count in (nodes, edges))
    edge_index = np.empty((2, edge_ptr[-1]), np.int64)
    for start, part in zip(starts, parts, strict=True):
        graphs = slice(start, start + len(part.nodes))
        offset = np.repeat(node_ptr[graphs], part.edges)
        np.add(part.edge_index, offset, out=edge_index[:, edge_ptr[start] : edge_ptr[start] + len(offset)])
    return Graphs(
        x=torch.from_numpy(np.concatenate([part.x for part in parts]).astype(np.int64)).unsqueeze(1),
        edge_index=torch.from_numpy(edge_index),
        y=torch.from_numpy(np.concatenate([part.y for part in parts]).astype(np.int64)),
        level="node",
        node_ptr=torch.from_numpy(node_ptr),
        edge_ptr=torch.from_numpy(edge_ptr),
    )


def _ranks(counts: Array) -> Array:
    """0, ..., counts_0 - 1, 0, ..., counts_1 - 1, ..."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _task(
    name: str,
    draw: Callable[[int, int], Graphs],
    schema: Schema,
    shares: tuple[int, int, int],
    seed: int,
    num_graphs: int,
    root: str | Path | None,
) -> Task:
    check_at_least(3, num_graphs=num_graphs)
    check_at_least(0, seed=seed)
    header = {"data": name, "draws": _DRAWS, "seed": int(seed), "num_graphs": int(num_graphs)}
    path = cache_root(root) / "sbm" / f"{name}-{seed}-{num_graphs}.safetensors"
    graphs = cached(path, header, lambda: draw(seed, num_graphs))
    val, test = (max(1, share * num_graphs // sum(shares)) for share in shares[1:])
    split = Split(*torch.arange(num_graphs).split([num_graphs - val - test, val, test]))
    version = f"generated, seed {seed}, {num_graphs} graphs"
    return Task(name, graphs, schema, (split,), "weighted_cross_entropy", "class_accuracy", version)
