"""A sampled graph grows from its seeds, hop by hop."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.ops.sampling import Draw, Numbering, draw_neighbors, new_numbers, seed_of
from sirgcn.scale.stores import EdgeType, Stores


@dataclass(frozen=True)
class Growth:
    """How a sampled graph grows.

    Args:
        fanouts: how many neighbours are drawn along every type of edges, one number for each hop.
        replace: whether an edge may be drawn twice.
        is_disjoint: whether every seed grows a tree of its own.
        is_induced: whether the graph has all edges between its nodes, in place of those that were drawn.
        backend: see `draw_neighbors`.
    """

    fanouts: dict[EdgeType, list[int]]
    replace: bool = False
    is_disjoint: bool = False
    is_induced: bool = False
    backend: str | None = None

    @property
    def hops(self) -> int:
        """The number of hops."""
        return max((len(fanouts) for fanouts in self.fanouts.values()), default=0)


@dataclass(frozen=True, eq=False)
class Sampled:
    """A sampled graph, by the types of nodes and edges.

    Args:
        node: the sampled nodes; seeds come first, then the nodes of each hop.
        row, col: the places of sources and targets among them.
        edge: the numbers of the edges in the whole graph.
        tree: the seed in whose tree each node is; None without trees.
        num_nodes, num_edges: how many came with each hop; None where edges do not belong to hops.
    """

    node: dict[str, Tensor]
    row: dict[EdgeType, Tensor]
    col: dict[EdgeType, Tensor]
    edge: dict[EdgeType, Tensor]
    tree: dict[str, Tensor] | None
    num_nodes: dict[str, list[int]] | None
    num_edges: dict[EdgeType, list[int]] | None


def grow(stores: Stores, seeds: dict[str, Tensor], how: Growth, seed: int) -> Sampled:
    """The graph that grows from seeds; a node gets its neighbours in the hop after the one in which it is found."""
    state = _State(stores, how, seeds)
    for hop in range(how.hops):
        state.grow(hop, seed)
    if how.is_induced:
        state.induce()
    return state.sampled()


class _State:
    """The nodes and edges that have been found."""

    def __init__(self, stores: Stores, how: Growth, seeds: dict[str, Tensor]) -> None:
        self.stores, self.how = stores, how
        self.numbers: dict[str, Numbering] = {name: new_numbers(how.backend) for name in stores.num_nodes}
        self.begin = dict.fromkeys(stores.num_nodes, 0)
        self.edges: dict[EdgeType, list[tuple[Tensor, Tensor, Tensor]]] = {kind: [] for kind in stores.edges}
        self.num_nodes = {name: [len(seeds.get(name, ()))] for name in stores.num_nodes}
        self.num_edges: dict[EdgeType, list[int]] = {kind: [] for kind in stores.edges}
        self.root = torch.cat([*seeds.values()]) if how.is_disjoint else None
        trees = 0
        for name, nodes in seeds.items():
            keys = nodes
            if how.is_disjoint:
                keys = torch.arange(trees, trees + len(nodes)) * stores.num_nodes[name] + nodes
                trees += len(nodes)
            self.numbers[name].add(keys.contiguous(), keeps_repeats=True)

    def grow(self, hop: int, seed: int) -> None:
        """Draw neighbours of the nodes that the hop before has found."""
        end = self._ends()
        for place, (kind, edges) in enumerate(self.stores.edges.items()):
            frontier = self.numbers[kind[2]].keys[self.begin[kind[2]] : end[kind[2]]]
            draw = Draw(self.how.fanouts[kind][hop], seed_of(seed, hop, place), self.how.replace)
            found, owner, edge = draw_neighbors(edges, frontier, draw, self.root, self.how.backend)
            number = self.numbers[kind[0]].add(found)
            self.edges[kind].append((number, owner + self.begin[kind[2]], edge))
            self.num_edges[kind].append(len(found))
        self.begin = end
        for name, count in self._ends().items():
            self.num_nodes[name].append(count - end[name])

    def induce(self) -> None:
        """Take all edges between the nodes in place of those that were drawn."""
        for kind, edges in self.stores.edges.items():
            targets = self.numbers[kind[2]].keys
            found, owner, edge = draw_neighbors(edges, targets, Draw(-1, 0), self.root, self.how.backend)
            number = self.numbers[kind[0]].find(found)
            inside = number >= 0
            self.edges[kind] = [(number[inside], owner[inside], edge[inside])]

    def _ends(self) -> dict[str, int]:
        return {name: len(numbers.keys) for name, numbers in self.numbers.items()}

    def sampled(self) -> Sampled:
        """What has been found."""
        keys = {name: numbers.keys.clone() for name, numbers in self.numbers.items()}
        tree = None
        if self.how.is_disjoint:
            counts = self.stores.num_nodes
            tree = {name: key // max(1, counts[name]) for name, key in keys.items()}
            keys = {name: key % max(1, counts[name]) for name, key in keys.items()}
        nothing = torch.empty(0, dtype=torch.int64)
        row, col, edge = (
            {kind: torch.cat([nothing, *(hop[part] for hop in hops)]) for kind, hops in self.edges.items()}
            for part in range(3)
        )
        by_hop = (None, None) if self.how.is_induced else (self.num_nodes, self.num_edges)
        return Sampled(keys, row, col, edge, tree, *by_hop)
