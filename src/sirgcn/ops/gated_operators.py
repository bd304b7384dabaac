"""Messages with a value as operators of torch, for `torch.compile`, `torch.export` and dispatch modes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.backend import BACKENDS
from sirgcn.ops.gradients import refuse_second_derivative
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.operators import checked_graph
from sirgcn.ops.reference import EdgeTerms, Ends, Gate, GatedSums, GradEnds, Needs, accumulation_dtype


def call(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, backend: str, save: bool) -> Tensor:
    """The output of the operator."""
    sigma = gate.activation
    query, key, value, start = ends
    graph = neighbors.tensors()
    out = gated(query, key, value, graph, *terms, sigma.name, sigma.slope, gate.is_normalized, backend, save)[0]
    return out if start is None else out + start


@torch.library.custom_op("sirgcn::gated_aggregate", mutates_args=())
def gated(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    is_normalized: bool,
    backend: str,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    terms = EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    neighbors, terms = checked_graph(query, key, graph, terms)
    passes = BACKENDS[backend].gated
    assert passes is not None
    gate = Gate(Activation(activation, slope), is_normalized)
    out, *kept = passes.forward(Ends(query, key, value, None), neighbors, terms, gate, save)
    # An operator cannot return None. An empty tensor stands for what was not asked for.
    empty = (query.new_empty(0, dtype=accumulation_dtype(query.dtype)) for _ in kept)
    slopes, mean, share = (nothing if tensor is None else tensor for tensor, nothing in zip(kept, empty, strict=True))
    return out, slopes, mean, share


@torch.library.custom_op("sirgcn::gated_aggregate_backward", mutates_args=())
def _gated_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    share: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    is_normalized: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    terms = EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    neighbors, terms = checked_graph(query, key, graph, terms)
    passes = BACKENDS[backend].gated
    assert passes is not None
    sums = GatedSums(grad, None, mean, share) if is_normalized else GatedSums(grad)
    dtype = accumulation_dtype(query.dtype)
    into = GradEnds(None, key.new_empty(key.shape, dtype=dtype), value.new_empty(value.shape, dtype=dtype))
    gate, ends = Gate(Activation(activation, slope), is_normalized), Ends(query, key, value, None)
    grad_edge, grad_weight = passes.backward(grad, ends, sums, neighbors, terms, gate, Needs(True, True), into)
    empty = query.new_empty(0)
    return (
        into.key.to(key.dtype),
        into.value.to(value.dtype),
        empty if grad_edge is None or edge is None else grad_edge.to(edge.dtype),
        empty.clone() if grad_weight is None or edge_weight is None else grad_weight.to(edge_weight.dtype),
    )


@gated.register_fake
def _(query: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    is_normalized, _, save = args[-3:]

    def kept(is_kept: bool) -> Tensor:
        return query.new_empty(query.shape if is_kept else 0, dtype=accumulation_dtype(query.dtype))

    return query.new_empty(query.shape), kept(save), kept(save and is_normalized), kept(save and is_normalized)


@_gated_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mean: Tensor,
    share: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def like(tensor: Tensor | None) -> Tensor:
        return query.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)

    return like(key), like(value), like(edge), like(edge_weight)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, graph, *optional, activation, slope, is_normalized, backend, _ = inputs
    ctx.save_for_backward(query, key, value, *output[1:], *graph, *optional)
    ctx.mark_non_differentiable(*output[1:])
    ctx.options = (activation, slope, is_normalized, backend)


def _backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | list[None] | None, ...]:
    query, key, value, slopes, mean, share, *rest = ctx.saved_tensors
    graph, optional = rest[:7], rest[7:]
    grad_query = (slopes * grad).to(query.dtype)
    grads = _gated_backward(grad.contiguous(), query, key, value, mean, share, graph, *optional, *ctx.options)
    grad_edge = None if optional[0] is None else grads[2]
    grad_weight = None if optional[2] is None else grads[3]
    return (grad_query, *grads[:2], [None] * len(graph), grad_edge, None, grad_weight, *[None] * 7)


def _refuse(ctx: object, *grads: object) -> None:
    refuse_second_derivative("sir_aggregate")


gated.register_autograd(_backward, setup_context=_setup_context)
_gated_backward.register_autograd(_refuse)
