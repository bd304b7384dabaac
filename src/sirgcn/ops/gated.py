"""Messages with a value: the call of a backend and its autograd function."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import gated_operators
from sirgcn.ops.activation import Activation
from sirgcn.ops.backend import BACKENDS, GatedPasses
from sirgcn.ops.calls import are_saved_tensors_hooked, is_plain_call, is_traced
from sirgcn.ops.columns import empty_like_columns, split_columns
from sirgcn.ops.door import opened
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.prepare import GATES, prepare
from sirgcn.ops.reference import EdgeTerms, Ends, Gate, GradEnds, Needs, accumulation_dtype, cast
from sirgcn.ops.split import Messages, SplitNeighbors


def gated_aggregate(
    query: Float[Tensor, "*batch targets d"],
    key: Float[Tensor, "*batch sources d"],
    value: Float[Tensor, "*batch sources d"],
    neighbors: Neighbors,
    edge: Any = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
    activation: str | Activation = "sigmoid",
    reduce: str = "sum",
    backend: str | None = None,
    start: Float[Tensor, "*batch targets d"] | None = None,
) -> Float[Tensor, "*batch targets d"]:
    r"""What `sir_aggregate` with a value is, plus a first summand.

    .. math:: out_u = s_u + a_u \sum_{v \in N(u)} w_{uv} \, b_v \, \sigma(q_u + k_v + e_{uv}) \odot v_v

    It is fastest where the node terms are columns of one product, as `split_columns` gives them: an edge then reads key
    and value from one place, and the gradients of all of them are one matrix.

    Args:
        query, key, value, neighbors, edge, edge_weight, activation, reduce, backend: as in `sir_aggregate`.
        start: s, one row per target node, such as the node's own term W h_u.

    >>> path = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> h, zero = torch.tensor([[1.0], [2.0], [4.0]]), torch.zeros(3, 1)
    >>> gated_aggregate(zero, zero, h, path, start=10 * h).flatten().tolist()
    [10.0, 20.5, 41.0]
    """
    if isinstance(neighbors, SplitNeighbors):
        out = neighbors.aggregate(Messages(query, key, edge, edge_weight, activation, reduce, backend, value))
        return out if start is None else out + start
    nodes = (query, key, value) if start is None else (query, key, value, start)
    call = prepare(nodes, neighbors, edge, edge_weight, activation, reduce, backend)
    gate = Gate(call.activation, reduce == GATES)
    return call.restored(_dispatch(Ends(*call.nodes), neighbors, call.terms, gate, call.backend))


def gated_columns(
    stacked: Float[Tensor, "nodes columns"],
    neighbors: Neighbors,
    edge: Any = None,
    activation: str | Activation = "sigmoid",
    reduce: str = "sum",
) -> Float[Tensor, "nodes d"]:
    """`gated_aggregate` of the four equal parts of a matrix, in this order: start, query, key and value.

    The gradient of the matrix is written in one piece.

    >>> path = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> gated_columns(torch.tensor([[10.0, 0, 0, 1], [20, 0, 0, 2], [40, 0, 0, 4]]), path).flatten().tolist()
    [10.0, 20.5, 41.0]
    """
    if not isinstance(neighbors, SplitNeighbors) and _has_one_gradient(stacked):
        start, query, key, value = parts = split_columns(stacked.detach(), 4)
        call = prepare((query, key, value, start), neighbors, edge, None, activation, reduce, None)
        # An edge term of another dtype promotes the columns to tensors of their own.
        if all(found.dtype == part.dtype for found, part in zip(call.nodes, parts, strict=True)):
            gate, nothing = Gate(call.activation, reduce == GATES), (None,) * 4
            out: Tensor = _Gated.apply(  # type: ignore[no-untyped-call]
                stacked, *nothing, call.terms.edge, call.terms.edge_weight, call.terms, neighbors, gate, call.backend
            )
            return out
    start, query, key, value = split_columns(stacked, 4)
    return gated_aggregate(query, key, value, neighbors, edge, None, activation, reduce, None, start)


def _has_one_gradient(stacked: Tensor) -> bool:
    """Whether a gradient is wanted that can be written in one piece."""
    return stacked.requires_grad and torch.is_grad_enabled() and stacked.dim() == 2 and is_plain_call()


def _dispatch(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, backend: str) -> Tensor:
    """Call the backend: as an operator where torch traces the call, otherwise directly, with autograd where needed."""
    needs_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (*ends, terms.edge, terms.edge_weight)
    )
    if is_traced():
        return gated_operators.call(ends, neighbors, terms, gate, backend, needs_grad)
    if not needs_grad:
        return passes(backend).forward(ends, neighbors, terms, gate, False).out
    out: Tensor = _Gated.apply(None, *ends, terms.edge, terms.edge_weight, terms, neighbors, gate, backend)  # type: ignore[no-untyped-call]
    return out


def passes(backend: str) -> GatedPasses:
    """The passes of a backend that has been chosen for messages with a value."""
    found = BACKENDS[backend].gated
    assert found is not None
    return found


class _Gated(torch.autograd.Function):
    """The eager route. Calling an operator of torch would take longer than the arithmetic of a small graph.

    The node terms are four tensors, or the columns of one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        stacked: Tensor | None,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        start: Tensor | None,
        edge: Tensor | None,
        edge_weight: Tensor | None,
        terms: EdgeTerms,
        neighbors: Neighbors,
        gate: Gate,
        backend: str,
    ) -> Tensor:
        ends = Ends(query, key, value, start) if stacked is None else _ends_of(stacked)
        # Where saved tensors are packed away, as by a checkpoint, the sums are not kept but computed again.
        is_kept = any(ctx.needs_input_grad[i] for i in (0, 1, 2, 3, 5, 6)) and not are_saved_tensors_hooked()
        sums = passes(backend).forward(ends, neighbors, terms, gate, is_kept)
        # Saving lets torch notice an in-place change of what the backward pass reads. The graph notices its own.
        ctx.save_for_backward(stacked, query, key, value, *terms)
        ctx.others = (neighbors, gate, backend)
        # A start that is a column of a matrix tells where its gradient belongs.
        ctx.start = None if start is None or start.is_contiguous() else start.detach()
        ctx.sums = sums._replace(out=sums.out.new_empty(0)) if is_kept else None
        return sums.out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Read only once: the checkpoints of torch unpack a tensor a single time.
        stacked, query, key, value, *rest = ctx.saved_tensors
        terms = EdgeTerms(*rest)
        ends = Ends(query, key, value, ctx.start) if stacked is None else _ends_of(stacked)
        neighbors, gate, backend = ctx.others
        # A second backward pass computes the sums again, so that the first one frees them.
        sums, ctx.sums = ctx.sums, None
        saved = (stacked, query, key, value, None, terms.edge, terms.edge_weight)
        wanted = ctx.needs_input_grad[:7]
        with torch.no_grad():
            grad, whole = opened(grad), None
            if not any((*wanted[:4], *wanted[5:])):
                found: tuple[Tensor | None, ...] = (None, None, None, grad, None, None)
            else:
                whole, into = _matrices(stacked, ends)
                if sums is None:
                    sums = passes(backend).forward(ends._replace(start=None), neighbors, terms, gate, True)
                needs = Needs(*wanted[5:])
                of_edges = passes(backend).backward(grad, ends, sums, neighbors, terms, gate, needs, into)
                found = (*into[:3], grad if into.start is None else into.start, *of_edges)
            grads = tuple(
                None if g is None or not needed else cast(g, ends.query.dtype if tensor is None else tensor.dtype)
                for g, tensor, needed in zip((whole, *found), saved, wanted, strict=True)
            )
        return *once_differentiable(grads, saved, "sir_aggregate"), None, None, None, None


def _matrices(stacked: Tensor | None, ends: Ends) -> tuple[Tensor | None, GradEnds]:
    """The gradient of the matrix of node terms, if they are columns of one, and the gradients of its columns.

    Node terms that are columns of a matrix of the caller get gradients that lie side by side too.
    """
    dtype = accumulation_dtype(ends.query.dtype)
    if stacked is not None:
        whole = stacked.new_empty(stacked.shape, dtype=dtype)
        return whole, GradEnds(*_ends_of(whole))
    matrices = [ends.query, ends.key, ends.value, *([] if ends.start is None else [ends.start])]
    return None, GradEnds(*empty_like_columns(matrices, dtype))


def _ends_of(stacked: Tensor) -> Ends:
    start, query, key, value = stacked.chunk(4, dim=1)
    return Ends(query, key, value, start)
