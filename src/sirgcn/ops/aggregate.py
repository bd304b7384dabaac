"""`sir_aggregate`: the call of a backend and its autograd function."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sirgcn.ops import operators
from sirgcn.ops.activation import Activation
from sirgcn.ops.backend import BACKENDS
from sirgcn.ops.calls import are_saved_tensors_hooked, is_exporting, is_traced
from sirgcn.ops.gated import gated_aggregate
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.prepare import GATES, prepare
from sirgcn.ops.reference import EdgeTerms, Needs, cast
from sirgcn.ops.reference import forward as reference_forward
from sirgcn.ops.split import Messages, SplitNeighbors


def sir_aggregate(
    query: Float[Tensor, "*batch targets d"],
    key: Float[Tensor, "*batch sources d"],
    neighbors: Neighbors,
    edge: Float[Tensor, "edges d"] | tuple[Float[Tensor, "types d"], Int[Tensor, " edges"]] | None = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
    activation: str | Activation = "relu",
    reduce: str = "sum",
    backend: str | None = None,
    value: Float[Tensor, "*batch sources d"] | None = None,
) -> Float[Tensor, "*batch targets d"]:
    r"""The sum of contextualised messages over every neighbourhood (Eq. 11 of the paper, before W_R).

    .. math:: out_u = a_u \sum_{v \in N(u)} w_{uv} \, b_v \, \sigma(q_u + k_v + e_{uv})

    With a value, sigma is a gate of what the neighbour sends:

    .. math:: out_u = a_u \sum_{v \in N(u)} w_{uv} \, b_v \, \sigma(q_u + k_v + e_{uv}) \odot v_v

    Args:
        query: q, one row per target node. With a leading batch dimension (`[B, targets, d]`), B signals share the
            graph.
        key: k, one row per source node.
        neighbors: the graph.
        edge: the edge term e in the order of the input's edges, `[E, d]`, or a pair (table `[K, d]`, type `[E]`), which
            stands for `table[type]` but is never expanded.
        edge_weight: w, one scalar per edge.
        activation: sigma, a name of the table such as `"relu"` or `"leaky_relu(0.2)"`.
        reduce: `"sum"` (a = b = 1), `"mean"` (a = 1 / in-degree of u), `"sym"` (a = in-degree of u to the power -1/2,
            b = out-degree of v to the power -1/2), `"sym_in"` (as sym with the in-degree of v); degrees at least 1.
            With a value also `"gates"`: in every channel, a = 1 / (the sum of w * sigma(q + k + e) + 1e-6), b = 1.
        backend: a name from `backends()`; None chooses the best available one.
        value: v, one row per source node; None stands for messages without a value.

    Query, key, value and edge term of different dtypes are promoted to one dtype, and edge_weight is cast to it. Sums
    of half precision are computed in float32. A target without neighbours gets 0. Query, key, value, edge (or its
    table) and edge_weight get gradients. A second derivative raises.

    >>> path = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> h = torch.tensor([[1.0], [-3.0], [4.0]])
    >>> sir_aggregate(h, h, path).flatten().tolist()
    [0.0, 0.0, 1.0]
    >>> sir_aggregate(h, h, path, value=10 * h).flatten().tolist()
    [0.0, 0.0, -30.0]
    """
    if isinstance(neighbors, SplitNeighbors):
        return neighbors.aggregate(Messages(query, key, edge, edge_weight, activation, reduce, backend, value))
    if value is not None:
        return gated_aggregate(query, key, value, neighbors, edge, edge_weight, activation, reduce, backend)
    if reduce == GATES:
        raise ValueError(f"reduce: {GATES} divides by the sum of the gates, and expects a value, got None")
    call = prepare((query, key), neighbors, edge, edge_weight, activation, reduce, backend)
    first, second = call.nodes
    return call.restored(_dispatch(first, second, neighbors, call.terms, call.activation, call.backend))


def _dispatch(
    query: Tensor, key: Tensor, neighbors: Neighbors, terms: EdgeTerms, activation: Activation, backend: str
) -> Tensor:
    """Call the backend: as an operator where torch traces the call, otherwise directly, with autograd where needed.

    An exported program gets plain operators of torch, because it may run where this package is not installed.
    """
    if is_exporting():
        return reference_forward(query, key, neighbors, terms, activation, False)[0]
    needs_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (query, key, terms.edge, terms.edge_weight)
    )
    if is_traced():
        return operators.aggregate(
            query, key, neighbors.tensors(), *terms, activation.name, activation.slope, backend, needs_grad
        )[0]
    if not needs_grad:
        return BACKENDS[backend].forward(query, key, neighbors, terms, activation, False)[0]
    out: Tensor = _Aggregate.apply(query, key, terms.edge, terms.edge_weight, terms, neighbors, activation, backend)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(torch.autograd.Function):
    """The eager route. Calling an operator of torch would take longer than the arithmetic of a small graph."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        edge: Tensor | None,
        edge_weight: Tensor | None,
        terms: EdgeTerms,
        neighbors: Neighbors,
        activation: Activation,
        backend: str,
    ) -> Tensor:
        # Where saved tensors are packed away, as by a checkpoint, the slopes are not kept but computed again.
        is_kept = ctx.needs_input_grad[0] and not are_saved_tensors_hooked()
        out, slopes = BACKENDS[backend].forward(query, key, neighbors, terms, activation, is_kept)
        # Saving lets torch notice an in-place change of what the backward pass reads. The graph notices its own.
        ctx.save_for_backward(query, key, *terms)
        ctx.others = (neighbors, activation, backend)
        ctx.slopes = slopes
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Read only once: the checkpoints of torch unpack a tensor a single time.
        query, key, *rest = ctx.saved_tensors
        terms = EdgeTerms(*rest)
        saved = query, key, terms.edge, terms.edge_weight
        neighbors, activation, backend = ctx.others
        with torch.no_grad():
            grad_query = None
            if ctx.needs_input_grad[0]:
                # The gradient overwrites the slopes; a second backward pass computes them again.
                slopes, ctx.slopes = ctx.slopes, None
                if slopes is None:
                    slopes = BACKENDS[backend].forward(query, key, neighbors, terms, activation, True)[1]
                grad_query = slopes.mul_(grad)
            grads: tuple[Tensor | None, ...] = (None, None, None)
            if any(ctx.needs_input_grad[1:4]):
                needs = Needs(*ctx.needs_input_grad[2:4])
                grads = BACKENDS[backend].backward(grad, query, key, neighbors, terms, activation, needs)
            grads = tuple(
                None if g is None or not needed else cast(g, tensor.dtype)
                for g, tensor, needed in zip((grad_query, *grads), saved, ctx.needs_input_grad[:4], strict=True)
            )
        return *once_differentiable(grads, saved, "sir_aggregate"), None, None, None, None
