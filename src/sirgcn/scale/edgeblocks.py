"""The edges of a graph in blocks: ranges of targets with all edges that end in them."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.ops import Neighbors
from sirgcn.ops.sampling import InEdges, new_numbers


@dataclass(frozen=True, eq=False)
class EdgeBlock:
    """All edges that end in the targets of a range.

    Args:
        start, stop: the range.
        source: the source of every edge.
        target: its target, less `start`.
        edge: its number in the input; -1 for a self-loop that was added.
        blocks: the blocks to which it belongs.
    """

    start: int
    stop: int
    source: Tensor
    target: Tensor
    edge: Tensor
    blocks: "EdgeBlocks"

    def from_all(self) -> Neighbors:
        """The edges from all nodes to the targets."""
        size = (self.blocks.edges.num_sources, self.stop - self.start)
        return Neighbors.from_edge_index(torch.stack([self.source, self.target]), size)

    def alone(self) -> tuple[Tensor, Neighbors]:
        """The targets and then the other sources, and the edges among them, with the degrees of the whole graph."""
        numbers = new_numbers()
        numbers.add(torch.arange(self.start, self.stop))
        source = numbers.add(self.source.long())
        nodes = numbers.keys
        graph = Neighbors.from_edge_index(torch.stack([source, self.target.long()]), len(nodes))
        return nodes, graph.sampled_from(self.blocks.in_degree[nodes], self.blocks.out_degree[nodes])


@dataclass(frozen=True, eq=False)
class EdgeBlocks:
    """All edges of a graph in blocks of bounded size.

    Args:
        edges: the graph.
        self_loops: give every node one self-loop in place of those that it has.
        most_edges: a block has at most as many edges, unless one target has more.
        most_targets: a block has at most as many targets.

    >>> edges = InEdges.of(torch.tensor([[0, 1, 2], [1, 1, 0]]), (3, 3))
    >>> [(block.start, block.stop, block.source.tolist()) for block in EdgeBlocks(edges, False, 2, 3)]
    [(0, 1, [2]), (1, 3, [0, 1])]
    """

    edges: InEdges
    self_loops: bool
    most_edges: int
    most_targets: int

    def __iter__(self) -> Iterator[EdgeBlock]:
        start, nodes = 0, self.edges.num_targets
        while start < nodes:
            stop = self._stop(start)
            yield self._with_loops(start, stop) if self.self_loops else self._block(start, stop)
            start = stop

    def _stop(self, start: int) -> int:
        """Where the block that begins here ends."""
        ptr, last = self.edges.ptr, min(start + self.most_targets, self.edges.num_targets)
        full = int(ptr[start]) + self.most_edges
        return max(start + 1, int(torch.searchsorted(ptr[start : last + 1], full, right=True)) + start - 1)

    def _block(self, start: int, stop: int) -> EdgeBlock:
        first, end = int(self.edges.ptr[start]), int(self.edges.ptr[stop])
        source = self.edges.node[first:end].clone()
        counts = self.edges.ptr[start : stop + 1].diff()
        target = torch.repeat_interleave(torch.arange(stop - start, dtype=source.dtype), counts)
        known = self.edges.edge
        edge = torch.arange(first, end) if known is None else known[first:end].long()
        return EdgeBlock(start, stop, source, target, edge, self)

    def _with_loops(self, start: int, stop: int) -> EdgeBlock:
        block = self._block(start, stop)
        is_other = block.source != block.target + start
        own = torch.arange(stop - start, dtype=block.source.dtype)
        source = torch.cat([block.source[is_other], own + start])
        target = torch.cat([block.target[is_other], own])
        edge = torch.cat([block.edge[is_other], torch.full_like(own, -1, dtype=torch.int64)])
        return EdgeBlock(start, stop, source, target, edge, self)

    @functools.cached_property
    def _loops(self) -> Tensor:
        """What self-loops add to the degree of every node."""
        added = torch.ones(self.edges.num_targets, dtype=torch.int64)
        start = 0
        while start < self.edges.num_targets:
            stop = self._stop(start)
            block = self._block(start, stop)
            own = block.target[block.source == block.target + start].long()
            added[start:stop] -= torch.bincount(own, minlength=stop - start)
            start = stop
        return added

    @functools.cached_property
    def in_degree(self) -> Tensor:
        """The in-degree of every node."""
        degree = self.edges.in_degree().long()
        return degree + self._loops if self.self_loops else degree

    @functools.cached_property
    def out_degree(self) -> Tensor:
        """The out-degree of every node."""
        degree = self.edges.out_degree()
        return degree + self._loops if self.self_loops else degree
