r"""The graph of a rank that owns a part of the nodes, and the exchange of rows with the other ranks.

A message needs the query of its target and the key of its source. Both are projected where the node lives. The sources
of a rank's edges that other ranks own are its halo, and only their key rows travel.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops

from sirgcn.ops import Neighbors, sir_aggregate
from sirgcn.ops.neighbors import rank_one_weights
from sirgcn.ops.prepare import GATES
from sirgcn.ops.reference import GATE_EPSILON
from sirgcn.ops.split import Messages, SplitNeighbors
from sirgcn.scale.exchange import Call, Edge, Sequential, Start, SumOver, Wait, over


@dataclass(frozen=True, eq=False, repr=False)
class SourcesOf(Neighbors):
    """The edges whose sources one place has: sources are rows of that place, targets are the nodes of this rank.

    Args:
        degrees: of the whole graph: in-degrees of the targets, out-degrees and in-degrees of the sources.
        edges: the place of its first and of its last edge among the edges of the rank.
    """

    degrees: tuple[Tensor, Tensor, Tensor]
    edges: slice
    _known: dict[tuple[str, torch.dtype], tuple[Tensor | None, Tensor | None]] = field(default_factory=dict, init=False)

    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """As `Neighbors.weights`, with the degrees of the whole graph."""
        if (reduce, dtype) not in self._known:
            in_degree, of_out, of_in = self.degrees
            source_degree = of_out if reduce == "sym" else of_in
            self._known[reduce, dtype] = rank_one_weights(reduce, in_degree, source_degree, dtype)
        return self._known[reduce, dtype]


class HaloSizes(NamedTuple):
    """What a rank owns and what it exchanges in every layer.

    Args:
        nodes: the nodes that it owns.
        edges: the edges that end in them.
        halo: the rows that it receives.
        sent: the rows that it sends.

    >>> HaloSizes(nodes=10, edges=40, halo=3, sent=2).halo
    3
    """

    nodes: int
    edges: int
    halo: int
    sent: int


class HaloGraph(SplitNeighbors):
    """The edges that end in the nodes of one rank. An aggregation over them exchanges key rows with the other ranks.

    Every rank calls the same layers, so that every rank takes part in every exchange.

    - By default, all rows of the halo travel at once, while the rank sums over its own sources.
    - With `memory_bound`, they come from one rank after another, are summed over and dropped, and are fetched again in
      the backward pass, as in SAR (Mostafa, MLSys 2022). Then a rank holds the rows of one other rank at a time.

    Args:
        edge_index: the edges of the whole graph.
        part: the rank that owns each node, int64 `[nodes]`.
        rank: the number of this rank.
        world: the number of ranks.
        memory_bound: whether rows come from one rank after another.

    Attributes:
        nodes: the nodes that the rank owns, in the order of its rows.
        edges: the edges that end in them, in the order in which the rank reads edge features.

    >>> edge_index, part = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.tensor([0, 0, 1, 1])
    >>> graph = HaloGraph(edge_index, part, rank=0, world=2)
    >>> graph.nodes.tolist(), graph.edges.tolist(), graph.sizes
    ([0, 1], [0, 3], HaloSizes(nodes=2, edges=2, halo=1, sent=1))
    """

    def __init__(self, edge_index: Tensor, part: Tensor, rank: int, world: int, memory_bound: bool = False) -> None:
        owner, home = part[edge_index[0]], part[edge_index[1]]
        nodes, edges = (part == rank).nonzero().squeeze(1), (home == rank).nonzero().squeeze(1)
        # Edges from own sources come first, so that each place has a range of the edges.
        place = torch.where(owner[edges] == rank, -1, owner[edges])
        edges = edges[torch.sort(place, stable=True).indices]
        super().__init__(len(nodes), len(edges), edge_index.device)
        wanted = [_distinct(edge_index[0, edges], owner[edges] == other) for other in range(world)]
        wanted[rank] = wanted[rank][:0]
        sent = [_distinct(edge_index[0], (owner == rank) & (home == other)) for other in range(world)]
        sent[rank] = sent[rank][:0]
        found = {
            "nodes": nodes,
            "edges": edges,
            "rank": rank,
            "world": world,
            "memory_bound": memory_bound,
            "received": [len(rows) for rows in wanted],
            "sent": [torch.searchsorted(nodes, rows) for rows in sent],
            "whole": (edge_index, part),
        }
        self.__dict__.update(found)
        self._add_parts(edge_index, wanted, place.sort().values)

    nodes: Tensor
    edges: Tensor
    rank: int
    world: int
    memory_bound: bool
    received: list[int]
    sent: list[Tensor]
    whole: tuple[Tensor, Tensor]
    local: SourcesOf
    remote: dict[int, SourcesOf]

    def _add_parts(self, edge_index: Tensor, wanted: list[Tensor], place: Tensor) -> None:
        """The edges grouped for the aggregation: those from own sources, and those from the halo.

        The halo is one part, or one part for each rank where rows come from one rank after another.
        """
        nodes = len(self.whole[1])
        degrees = torch.bincount(edge_index[1], minlength=nodes), torch.bincount(edge_index[0], minlength=nodes)
        source, target = edge_index[:, self.edges]
        target = torch.searchsorted(self.nodes, target)

        def group(sources: Tensor, first: int, last: int) -> SourcesOf:
            some = slice(first, last)
            order = torch.argsort(sources)
            rows = order[torch.searchsorted(sources, source[some], sorter=order)] if last > first else source[:0]
            made = Neighbors.from_edge_index(torch.stack([rows, target[some]]), (len(sources), len(self.nodes)))
            of_nodes = degrees[0][self.nodes], degrees[1][sources], degrees[0][sources]
            plain = made.edge_index, made.by_target, made.by_source, made.num_sources, made.num_targets
            return SourcesOf(*plain, of_nodes, some, is_checked=True)

        bounds = torch.searchsorted(place, torch.arange(-1, self.world + 1)).tolist()
        found: dict[str, Any] = {"local": group(self.nodes, 0, bounds[1]), "remote": {}}
        if not self.memory_bound:
            found["remote"] = {self.rank: group(torch.cat(wanted), bounds[1], len(place))}
        else:
            for other in self._others():
                found["remote"][other] = group(wanted[other], bounds[other + 1], bounds[other + 2])
        self.__dict__.update(found)

    def _others(self) -> list[int]:
        """The other ranks in the order in which their rows come: in each round, all ranks send to different ones."""
        return [(self.rank - step) % self.world for step in range(1, self.world)]

    @property
    def sizes(self) -> HaloSizes:
        """What the rank owns and exchanges."""
        return HaloSizes(len(self.nodes), len(self.edges), sum(self.received), sum(map(len, self.sent)))

    def in_degree(self) -> Tensor:
        """The number of neighbours of every node of the rank."""
        return self.local.degrees[0]

    def out_degree(self) -> Tensor:
        """The number of edges of the whole graph that leave every node of the rank."""
        return self.local.degrees[1]

    def with_self_loops(self) -> "HaloGraph":
        """As `SplitNeighbors.with_self_loops`. The graph is kept for the next call."""
        if "looped" not in self.__dict__:
            edge_index, part = self.whole
            looped, _ = add_remaining_self_loops(edge_index, num_nodes=len(part))
            self.__dict__["looped"] = HaloGraph(looped, part, self.rank, self.world, self.memory_bound)
        found: HaloGraph = self.__dict__["looped"]
        return found

    def aggregate(self, messages: Messages) -> Tensor:
        """As `sir_aggregate`, over the whole neighbourhoods of the nodes of this rank."""
        query, key, edge, edge_weight, activation, reduce, backend, value = messages
        if query.dim() != 2:
            raise ValueError(f"query: expected shape [nodes, channels] on a partitioned graph, got {list(query.shape)}")
        width = key.size(1)
        # A gate needs key and value of the source: both travel as one row.
        rows = key if value is None else torch.cat([key, value], 1)

        def sum_over(part: SourcesOf, target: Tensor, source: Tensor, term: Edge, weight: Tensor | None) -> Tensor:
            keys, values = source[:, :width], None if value is None else source[:, width:]
            terms = target, keys, part, term, weight, activation
            if reduce != GATES:
                return sir_aggregate(*terms, reduce, backend, values)
            gates = sir_aggregate(*terms, "sum", backend)
            return torch.cat([sir_aggregate(*terms, "sum", backend, values), gates], 1)

        found = self._summed(sum_over, query, rows, edge, edge_weight)
        return found if reduce != GATES else found[:, :width] / (found[:, width:] + GATE_EPSILON)

    def _summed(self, sum_over: SumOver, query: Tensor, rows: Tensor, edge: Edge, edge_weight: Tensor | None) -> Tensor:
        near = sum_over, self.local, query, rows, edge, edge_weight
        if self.world == 1:
            return over(*near)
        if self.memory_bound:
            table, kind = edge if isinstance(edge, tuple) else (edge, None)
            far: Tensor = Sequential.apply(query, rows, table, edge_weight, kind, self, sum_over)  # type: ignore[no-untyped-call]
            return over(*near) + far
        call = Call(self.sent, self.received)
        halo: Tensor = Start.apply(rows, call)  # type: ignore[no-untyped-call]
        out = over(*near)  # while the rows travel
        halo = Wait.apply(halo, call)  # type: ignore[no-untyped-call]
        return out + over(sum_over, self.remote[self.rank], query, halo, edge, edge_weight)


def _distinct(nodes: Tensor, chosen: Tensor) -> Tensor:
    """The chosen nodes, each once, in rising order."""
    return nodes[chosen].unique()
