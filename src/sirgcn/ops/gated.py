"""Messages with a value: the call of a backend and its autograd function."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import gated_operators
from sirgcn.ops.activation import Activation
from sirgcn.ops.backend import BACKENDS, GatedPasses
from sirgcn.ops.calls import are_saved_tensors_hooked, is_traced
from sirgcn.ops.columns import empty_like_columns
from sirgcn.ops.door import opened
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.prepare import GATES, prepare
from sirgcn.ops.reference import EdgeTerms, Ends, Gate, GatedSums, Needs, accumulation_dtype, cast
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


def _dispatch(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, backend: str) -> Tensor:
    """Call the backend: as an operator where torch traces the call, otherwise directly, with autograd where needed."""
    needs_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (*ends, terms.edge, terms.edge_weight)
    )
    if is_traced():
        return gated_operators.call(ends, neighbors, terms, gate, backend, needs_grad)
    if not needs_grad:
        return passes(backend).forward(ends, neighbors, terms, gate, False).out
    out: Tensor = _Gated.apply(*ends, terms.edge, terms.edge_weight, terms, neighbors, gate, backend)  # type: ignore[no-untyped-call]
    return out


def passes(backend: str) -> GatedPasses:
    """The passes of a backend that has been chosen for messages with a value."""
    found = BACKENDS[backend].gated
    assert found is not None
    return found


class _Gated(torch.autograd.Function):
    """The eager route. Calling an operator of torch would take longer than the arithmetic of a small graph."""

    @staticmethod
    def forward(
        ctx: Any,
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
        ends = Ends(query, key, value, start)
        # Where saved tensors are packed away, as by a checkpoint, the sums are not kept but computed again.
        is_kept = any(ctx.needs_input_grad[i] for i in (0, 1, 2, 4, 5)) and not are_saved_tensors_hooked()
        sums = passes(backend).forward(ends, neighbors, terms, gate, is_kept)
        # Saving lets torch notice an in-place change of what the backward pass reads. The graph notices its own.
        ctx.save_for_backward(query, key, value, *terms)
        ctx.others = (neighbors, gate, backend)
        # A start that is a column of a matrix tells where its gradient belongs.
        ctx.start = None if start is None or start.is_contiguous() else start.detach()
        ctx.sums = sums._replace(out=sums.out.new_empty(0)) if is_kept else None
        return sums.out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Read only once: the checkpoints of torch unpack a tensor a single time.
        query, key, value, *rest = ctx.saved_tensors
        terms, ends = EdgeTerms(*rest), Ends(query, key, value, ctx.start)
        neighbors, gate, backend = ctx.others
        # A second backward pass computes the sums again, so that the first one frees them.
        sums, ctx.sums = ctx.sums, None
        saved = (query, key, value, None, terms.edge, terms.edge_weight)
        wanted = ctx.needs_input_grad[:6]
        with torch.no_grad():
            found = gradients(opened(grad), ends, sums, neighbors, terms, gate, passes(backend), wanted)
            grads = tuple(
                None if g is None or not needed else cast(g, query.dtype if tensor is None else tensor.dtype)
                for g, tensor, needed in zip(found, saved, wanted, strict=True)
            )
        return *once_differentiable(grads, saved, "sir_aggregate"), None, None, None, None


def gradients(
    grad: Tensor,
    ends: Ends,
    sums: GatedSums | None,
    neighbors: Neighbors,
    terms: EdgeTerms,
    gate: Gate,
    backend: GatedPasses,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value, start, edge (or its table) and edge_weight.

    Those of node terms that are columns of one matrix are columns of one matrix too.
    """
    if not any((*wanted[:3], *wanted[4:])):
        return None, None, None, grad, None, None
    if sums is None:
        sums = backend.forward(ends._replace(start=None), neighbors, terms, gate, True)
    matrices = ends if ends.start is not None else ends[:3]
    into = empty_like_columns(matrices, accumulation_dtype(ends.query.dtype))  # type: ignore[arg-type]
    grad_query, grad_key, grad_value = into[:3]
    grad_start = grad
    if len(into) == 4:
        grad_start = into[3].copy_(grad)
    assert sums.slopes is not None
    torch.mul(sums.slopes, grad, out=grad_query)
    needs = Needs(*wanted[4:])
    of_edges = backend.backward(grad, ends, sums, neighbors, terms, gate, needs, (grad_key, grad_value))
    return grad_query, grad_key, grad_value, grad_start, *of_edges
