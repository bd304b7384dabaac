"""Graphs to test on: the edge cases by name, and a strategy of hypothesis that draws any small graph."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.ops import Neighbors


@dataclass(frozen=True)
class Graph:
    """A graph as a list of edges (source, target), in the order of the input.

    >>> triangle = Graph(((0, 1), (1, 2), (2, 0)), 3, 3)
    >>> triangle.edge_index.tolist()
    [[0, 1, 2], [1, 2, 0]]
    """

    edges: tuple[tuple[int, int], ...]
    num_sources: int
    num_targets: int
    dtype: torch.dtype = torch.int64

    @property
    def edge_index(self) -> Tensor:
        """The edges as a tensor `[2, edges]`: sources in row 0, targets in row 1."""
        return torch.tensor(self.edges, dtype=self.dtype).reshape(-1, 2).t().contiguous()

    def neighbors(self) -> Neighbors:
        """The graph with its edges grouped by node."""
        return Neighbors.from_edge_index(self.edge_index, (self.num_sources, self.num_targets))


EDGE_CASES: dict[str, Graph] = {
    "no nodes": Graph((), 0, 0),
    "no sources": Graph((), 0, 3),
    "no targets": Graph((), 3, 0),
    "no edges": Graph((), 4, 4),
    "one node": Graph((), 1, 1),
    "one self-loop": Graph(((0, 0),), 1, 1),
    "self-loops": Graph(((0, 0), (1, 0), (1, 1), (0, 2), (2, 2)), 3, 3),
    "repeated edges": Graph(((0, 1), (0, 1), (1, 0), (0, 1)), 2, 2),
    "isolated nodes": Graph(((4, 1), (1, 4)), 6, 6),
    "hub": Graph(tuple((v, 2) for v in (5, 0, 3, 1, 4, 2, 6)), 7, 7),
    "bipartite": Graph(((3, 0), (0, 1), (3, 1), (2, 0)), 4, 2),
    "int32": Graph(((1, 0), (0, 1), (2, 1), (2, 2)), 3, 3, torch.int32),
}
"""Small graphs at the edge of what is allowed, by name."""

RICH = Graph(((0, 3), (2, 1), (0, 3), (1, 1), (5, 3), (3, 0), (2, 2), (3, 5), (0, 1), (5, 0), (4, 3)), 7, 7)
"""One graph with everything.

Targets 4 and 6 have no neighbours, 1 and 2 have self-loops, 3 is a hub, edge 0 -> 3 is repeated, no order in the edges.
"""


@st.composite
def graphs(draw: st.DrawFn, *, bipartite: bool | None = None, max_edges: int = 12) -> Graph:
    """A hypothesis strategy for any small graph; one graph in four is one of the `EDGE_CASES`.

    Args:
        draw: supplied by hypothesis.
        bipartite: False draws graphs with one set of nodes, True with two sets, None either.
        max_edges: the largest number of edges.

    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10, database=None)
    ... @given(graphs(bipartite=False))
    ... def targets_exist(graph):
    ...     assert all(target < graph.num_targets for _, target in graph.edges)
    >>> targets_exist()
    """
    cases = [g for g in EDGE_CASES.values() if bipartite is None or g.num_sources == g.num_targets]
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(cases))
    num_targets = draw(st.integers(0, 6))
    two_sets = draw(st.booleans()) if bipartite is None else bipartite
    num_sources = draw(st.integers(0, 6)) if two_sets else num_targets
    edges: list[tuple[int, int]] = []
    if num_sources and num_targets:
        pair = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
        edges = draw(st.lists(pair, max_size=max_edges))
    dtype = draw(st.sampled_from([torch.int64, torch.int32]))
    return Graph(tuple(edges), num_sources, num_targets, dtype)


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> Graph:
    """A graph with so many nodes and edges, large enough for several threads.

    >>> len(random_graph(300, 20_000).edges)
    20000
    """
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, num_nodes, (num_edges, 2), generator=generator).tolist()
    return Graph(tuple((v, u) for v, u in pairs), num_nodes, num_nodes)


def on_any_graph(law: Callable[[Graph], None], bipartite: bool | None, examples: int) -> None:
    """Check a law on the edge cases, on `RICH`, and on graphs that hypothesis draws; every run draws the same ones."""
    for graph in (*EDGE_CASES.values(), RICH):
        if bipartite is None or graph.num_sources == graph.num_targets:
            law(graph)

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(graph=graphs(bipartite=bipartite))
    def drawn(graph: Graph) -> None:
        law(graph)

    drawn()
