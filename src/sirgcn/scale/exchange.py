"""The exchange of rows between ranks, as functions that autograd knows: all at once, or from one rank after another."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from sirgcn.scale.halo import HaloGraph, SourcesOf

Edge = Tensor | tuple[Tensor, Tensor] | None
"""An edge term: a row for each edge, or a table with the type of each edge."""

SumOver = Callable[["SourcesOf", Tensor, Tensor, Edge, Tensor | None], Tensor]
"""The sum of messages over the edges of a part, from query, rows of its sources, edge term and weight."""


def over(
    sumover: SumOver, part: "SourcesOf", query: Tensor, rows: Tensor, edge: Edge, edge_weight: Tensor | None
) -> Tensor:
    """The sum over the edges of a part, whose terms are a range of those of the rank."""
    weight = None if edge_weight is None else edge_weight[part.edges]
    return sumover(part, query, rows, _range_of(edge, part.edges), weight)


def _range_of(edge: Edge, edges: slice) -> Edge:
    if isinstance(edge, tuple):
        return edge[0], edge[1][edges]
    return None if edge is None else edge[edges]


class Call:
    """One exchange: what travels, in the forward pass and back."""

    def __init__(self, sent: list[Tensor], received: list[int]) -> None:
        self.index = torch.cat(sent)
        self.sent, self.received = [len(rows) for rows in sent], received
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


class Start(torch.autograd.Function):
    """Begins to fetch the rows of the halo. Its backward pass ends the way back, and adds what came to the rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, call: Call) -> Tensor:
        ctx.call, ctx.shape = call, rows.shape
        return call.start(rows.index_select(0, call.index), call.received, call.sent)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # The gradient of the halo's rows is on its way to their owners; `grad` only stands for it.
        came = ctx.call.wait()
        return grad.new_zeros(ctx.shape).index_add_(0, ctx.call.index, came), None


class Wait(torch.autograd.Function):
    """Waits for the rows of the halo. Its backward pass begins to send their gradient back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, call: Call) -> Tensor:
        ctx.call = call
        call.wait()
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call: Call = ctx.call
        call.start(grad.contiguous(), call.sent, call.received)
        return grad.new_zeros(()).expand(grad.shape), None


class Sequential(torch.autograd.Function):
    """The sum over the halo, of which only the rows of one other rank are here at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        rows: Tensor,
        table: Tensor | None,
        edge_weight: Tensor | None,
        kind: Tensor | None,
        graph: "HaloGraph",
        sum_over: SumOver,
    ) -> Tensor:
        ctx.save_for_backward(query, rows, table, edge_weight, kind)
        ctx.others = graph, sum_over
        edge = table if table is None or kind is None else (table, kind)
        out = None
        for other, part in graph.remote.items():
            halo = _fetched(graph, rows, other)
            found = over(sum_over, part, query, halo, edge, edge_weight)
            out = found if out is None else out.add_(found)
            # Before the rows of the next rank come.
            del halo, found
        assert out is not None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *given, kind = ctx.saved_tensors
        graph, sum_over = ctx.others
        into = [
            torch.zeros_like(tensor, memory_format=torch.contiguous_format) if needed else None
            for tensor, needed in zip(given, ctx.needs_input_grad, strict=False)
        ]
        for other in graph.remote:
            _add_gradients(graph, other, (*given, kind), sum_over, grad, into)
        return *into, None, None, None


def _add_gradients(
    graph: "HaloGraph",
    other: int,
    saved: tuple[Tensor | None, ...],
    sum_over: SumOver,
    grad: Tensor,
    into: list[Tensor | None],
) -> None:
    """Fetch the rows of one rank again, differentiate the sum over them, and send their gradient back.

    Args:
        graph: the graph of this rank.
        other: the rank whose rows are fetched.
        saved: query, own rows, edge term or its table, edge weight, type of each edge.
        sum_over: the sum over the edges of a part.
        grad: the gradient of the sum.
        into: where the gradients of the first four belong; None where none is wanted.
    """
    query, rows, table, edge_weight, kind = saved
    assert rows is not None
    part, every = graph.remote[other], slice(None)
    # A table belongs to all parts, and edge terms by edge to the part of the edge.
    ranges = every, every, part.edges if kind is None else every, part.edges
    given = query, _fetched(graph, rows, other), table, edge_weight
    leaves = [None if tensor is None else tensor.detach()[some] for tensor, some in zip(given, ranges, strict=True)]
    # What is absent has no gradient either.
    wanted = [leaf.requires_grad_() for leaf, target in zip(leaves, into, strict=True) if target is not None]  # type: ignore[union-attr]
    with torch.enable_grad():
        of_query, halo, of_edge, weight = leaves
        edge: Any = of_edge if kind is None else (of_edge, kind[part.edges])
        out = sum_over(part, of_query, halo, edge, weight)  # type: ignore[arg-type]
    found = iter(torch.autograd.grad(out, wanted, grad))
    for place, target in enumerate(into):
        if target is None:
            continue
        if place == 1:
            back = _exchanged(graph, next(found), other, is_back=True)
            target.index_add_(0, graph.sent[_receiver(graph, other)], back)
        else:
            target[ranges[place]] += next(found)


def _receiver(graph: "HaloGraph", other: int) -> int:
    """The rank that receives from this one in the round in which this one receives from another."""
    return (2 * graph.rank - other) % graph.world


def _fetched(graph: "HaloGraph", rows: Tensor, other: int) -> Tensor:
    """The rows of the halo that another rank owns. This rank sends to the one that is due in the same round."""
    return _exchanged(graph, rows.detach().index_select(0, graph.sent[_receiver(graph, other)]), other, is_back=False)


def _exchanged(graph: "HaloGraph", rows: Tensor, other: int, is_back: bool) -> Tensor:
    """One round: rows come from one rank and go to one; on the way back, the other way round."""
    receiver = _receiver(graph, other)
    come, go = [0] * graph.world, [0] * graph.world
    come[other], go[receiver] = graph.received[other], len(graph.sent[receiver])
    if is_back:
        come, go = go, come
    found = rows.new_empty(sum(come), rows.size(1))
    dist.all_to_all_single(found, rows.contiguous(), come, go)
    return found
