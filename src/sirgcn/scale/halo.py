r"""The graph of a rank that owns a part of the nodes, and the exchange of rows with the other ranks.

A message needs the query of its target and the key of its source. Both are projected where the node lives. The sources
of a rank's edges that other ranks own are its halo, and only their key rows travel.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops

from sirgcn.ops import Neighbors, sir_aggregate
from sirgcn.ops.activation import Activation
from sirgcn.ops.neighbors import rank_one_weights
from sirgcn.ops.prepare import GATES
from sirgcn.ops.reference import GATE_EPSILON
from sirgcn.ops.split import SplitNeighbors

Edge = Tensor | tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False, repr=False)
class _Part(Neighbors):
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
    local: _Part
    remote: dict[int, _Part]

    def _add_parts(self, edge_index: Tensor, wanted: list[Tensor], place: Tensor) -> None:
        """The edges grouped for the aggregation: those from own sources, and those from the halo.

        The halo is one part, or one part for each rank where rows come from one rank after another.
        """
        nodes = len(self.whole[1])
        degrees = torch.bincount(edge_index[1], minlength=nodes), torch.bincount(edge_index[0], minlength=nodes)
        source, target = edge_index[:, self.edges]
        target = torch.searchsorted(self.nodes, target)

        def group(sources: Tensor, first: int, last: int) -> _Part:
            some = slice(first, last)
            order = torch.argsort(sources)
            rows = order[torch.searchsorted(sources, source[some], sorter=order)] if last > first else source[:0]
            made = Neighbors.from_edge_index(torch.stack([rows, target[some]]), (len(sources), len(self.nodes)))
            of_nodes = degrees[0][self.nodes], degrees[1][sources], degrees[0][sources]
            plain = made.edge_index, made.by_target, made.by_source, made.num_sources, made.num_targets
            return _Part(*plain, of_nodes, some, is_checked=True)

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

    def aggregate(
        self,
        query: Tensor,
        key: Tensor,
        edge: Edge,
        edge_weight: Tensor | None,
        activation: str | Activation,
        reduce: str,
        backend: str | None,
        value: Tensor | None,
    ) -> Tensor:
        """As `sir_aggregate`, over the whole neighbourhoods of the nodes of this rank."""
        if query.dim() != 2:
            raise ValueError(f"query: expected shape [nodes, channels] on a partitioned graph, got {list(query.shape)}")
        width = key.size(1)
        # A gate needs key and value of the source: both travel as one row.
        rows = key if value is None else torch.cat([key, value], 1)

        def sum_over(part: _Part, of_targets: Tensor, of_sources: Tensor, term: Edge, weight: Tensor | None) -> Tensor:
            sources, values = of_sources[:, :width], None if value is None else of_sources[:, width:]
            terms = of_targets, sources, part, term, weight, activation
            if reduce != GATES:
                return sir_aggregate(*terms, reduce, backend, values)
            gates = sir_aggregate(*terms, "sum", backend)
            return torch.cat([sir_aggregate(*terms, "sum", backend, values), gates], 1)

        found = self._summed(sum_over, query, rows, edge, edge_weight)
        return found if reduce != GATES else found[:, :width] / (found[:, width:] + GATE_EPSILON)

    def _summed(
        self, sum_over: "SumOver", query: Tensor, rows: Tensor, edge: Edge, edge_weight: Tensor | None
    ) -> Tensor:
        near = sum_over, self.local, query, rows, edge, edge_weight
        if self.world == 1:
            return _over(*near)
        if self.memory_bound:
            table, kind = edge if isinstance(edge, tuple) else (edge, None)
            far: Tensor = _Sequential.apply(query, rows, table, edge_weight, kind, self, sum_over)  # type: ignore[no-untyped-call]
            return _over(*near) + far
        call = _Call(self)
        halo: Tensor = _Start.apply(rows, call)  # type: ignore[no-untyped-call]
        out = _over(*near)  # while the rows travel
        halo = _Wait.apply(halo, call)  # type: ignore[no-untyped-call]
        return out + _over(sum_over, self.remote[self.rank], query, halo, edge, edge_weight)


SumOver = Callable[[_Part, Tensor, Tensor, Edge, Tensor | None], Tensor]
"""The sum of messages over the edges of a part, from query, rows of its sources, edge term and weight."""


def _over(
    sum_over: SumOver, part: _Part, query: Tensor, rows: Tensor, edge: Edge, edge_weight: Tensor | None
) -> Tensor:
    """The sum over the edges of a part, whose terms are a range of those of the rank."""
    weight = None if edge_weight is None else edge_weight[part.edges]
    return sum_over(part, query, rows, _range_of(edge, part.edges), weight)


def _range_of(edge: Edge, edges: slice) -> Edge:
    if isinstance(edge, tuple):
        return edge[0], edge[1][edges]
    return None if edge is None else edge[edges]


def _distinct(nodes: Tensor, chosen: Tensor) -> Tensor:
    """The chosen nodes, each once, in rising order."""
    return nodes[chosen].unique()


class _Call:
    """One exchange: what travels, in the forward pass and back."""

    def __init__(self, graph: HaloGraph) -> None:
        self.index = torch.cat(graph.sent)
        self.sent, self.received = [len(rows) for rows in graph.sent], graph.received
        self.work: Any = None
        # What is on its way must not be freed.
        self.buffers: tuple[Tensor, ...] = ()

    def start(self, rows: Tensor, out_sizes: list[int], in_sizes: list[int]) -> Tensor:
        """Begin to send rows; the tensor that is filled meanwhile."""
        found = rows.new_empty(sum(out_sizes), rows.size(1))
        self.work = dist.all_to_all_single(found, rows, out_sizes, in_sizes, async_op=True)
        self.buffers = rows, found
        return found

    def wait(self) -> Tensor:
        """What has come."""
        self.work.wait()
        found = self.buffers[1]
        self.work, self.buffers = None, ()
        return found


class _Start(torch.autograd.Function):
    """Begins to fetch the rows of the halo. Its backward pass ends the way back, and adds what came to the rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, call: _Call) -> Tensor:
        ctx.call, ctx.shape = call, rows.shape
        return call.start(rows.index_select(0, call.index), call.received, call.sent)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The gradient of the halo's rows is on its way to their owners; `grad` only stands for it.
        came = ctx.call.wait()
        return grad.new_zeros(ctx.shape).index_add_(0, ctx.call.index, came), None


class _Wait(torch.autograd.Function):
    """Waits for the rows of the halo. Its backward pass begins to send their gradient back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, call: _Call) -> Tensor:
        ctx.call = call
        call.wait()
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        call.start(grad.contiguous(), call.sent, call.received)
        return grad.new_zeros(()).expand(grad.shape), None


class _Sequential(torch.autograd.Function):
    """The sum over the halo, of which only the rows of one other rank are here at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        rows: Tensor,
        table: Tensor | None,
        edge_weight: Tensor | None,
        kind: Tensor | None,
        graph: HaloGraph,
        sum_over: SumOver,
    ) -> Tensor:
        ctx.save_for_backward(query, rows, table, edge_weight, kind)
        ctx.others = graph, sum_over
        edge = table if kind is None else (table, kind)
        out: Tensor | None = None
        for other, part in graph.remote.items():
            halo = _fetched(graph, rows, other)
            found = _over(sum_over, part, query, halo, edge, edge_weight)  # type: ignore[arg-type]
            out = found if out is None else out.add_(found)
            del halo, found
        assert out is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, rows, table, edge_weight, kind = ctx.saved_tensors
        graph, sum_over = ctx.others
        wanted = ctx.needs_input_grad[:4]
        into = [
            torch.zeros_like(tensor, memory_format=torch.contiguous_format) if needed else None
            for tensor, needed in zip((query, rows, table, edge_weight), wanted, strict=True)
        ]
        for other, part in graph.remote.items():
            _add_gradients(graph, other, part, (query, rows, table, edge_weight, kind), sum_over, grad, into)
        return *into, None, None, None


def _add_gradients(
    graph: HaloGraph,
    other: int,
    part: _Part,
    saved: tuple[Tensor | None, ...],
    sum_over: SumOver,
    grad: Tensor,
    into: list[Tensor | None],
) -> None:
    """Fetch the rows of one rank again, differentiate the sum over them, and send their gradient back."""
    query, rows, table, edge_weight, kind = saved
    assert query is not None and rows is not None
    # Of edge terms by edge only the range of this part; a table belongs to all parts.
    ranges = slice(None), slice(None), slice(None) if kind is not None else part.edges, part.edges
    given = query, _fetched(graph, rows, other), table, edge_weight
    leaves = [
        None if tensor is None else tensor.detach()[some if place > 1 else slice(None)].requires_grad_(target is not None)
        for place, (tensor, some, target) in enumerate(zip(given, ranges, into, strict=True))
    ]
    of_query, halo, of_edge, weight = leaves
    assert of_query is not None and halo is not None
    with torch.enable_grad():
        edge: Edge = of_edge if kind is None or of_edge is None else (of_edge, kind[part.edges])
        out = sum_over(part, of_query, halo, edge, weight)
    asked = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    found = dict(zip(map(id, asked), torch.autograd.grad(out, asked, grad, allow_unused=True), strict=True))
    del out
    for leaf, some, target in zip(leaves, ranges, into, strict=True):
        got = None if leaf is None or target is None else found.get(id(leaf))
        if target is not None and got is not None and leaf is not halo:
            target[some] += got
    if into[1] is not None:
        got = found[id(halo)]
        back = halo.detach() if got is None else got
        into[1].index_add_(0, graph.sent[_receiver(graph, other)], _exchanged(graph, back, other, is_back=True))


def _receiver(graph: HaloGraph, other: int) -> int:
    """The rank that receives from this one in the round in which this one receives from another."""
    return (2 * graph.rank - other) % graph.world


def _fetched(graph: HaloGraph, rows: Tensor, other: int) -> Tensor:
    """The rows of the halo that another rank owns. This rank sends to the one that is due in the same round."""
    return _exchanged(graph, rows.detach().index_select(0, graph.sent[_receiver(graph, other)]), other, is_back=False)


def _exchanged(graph: HaloGraph, rows: Tensor, other: int, is_back: bool) -> Tensor:
    """One round: rows come from one rank and go to one; on the way back, the other way round."""
    receiver = _receiver(graph, other)
    come, go = [0] * graph.world, [0] * graph.world
    come[other], go[receiver] = graph.received[other], len(graph.sent[receiver])
    if is_back:
        come, go = go, come
    found = rows.new_empty(sum(come), rows.size(1))
    dist.all_to_all_single(found, rows.contiguous(), come, go)
    return found
