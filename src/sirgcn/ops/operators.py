"""The aggregation as an operator of torch, for `torch.compile`, `torch.export` and dispatch modes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.arguments import check_edge_type, types_in_range
from sirgcn.ops.backend import BACKENDS
from sirgcn.ops.gradients import refuse_second_derivative
from sirgcn.ops.neighbors import Grouping, Neighbors
from sirgcn.ops.reference import EdgeTerms, Needs, accumulation_dtype


def checked_graph(query: Tensor, key: Tensor, graph: Sequence[Tensor], terms: EdgeTerms) -> tuple[Neighbors, EdgeTerms]:
    """The graph and the edge terms of an operator, with every index checked.

    A traced graph was not checked when it was built, and C does not check indices at all.
    """
    neighbors = Neighbors(graph[0], Grouping(*graph[1:4]), Grouping(*graph[4:7]), key.size(0), query.size(0))
    if terms.edge is not None and terms.edge_type is not None:
        check_edge_type(terms.edge_type, neighbors.num_edges)
        terms = terms._replace(edge_type=types_in_range(terms.edge_type, terms.edge.size(0)))
    return neighbors, terms


@torch.library.custom_op("sirgcn::aggregate", mutates_args=())
def aggregate(
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    backend: str,
    save: bool,
) -> tuple[Tensor, Tensor]:
    neighbors, terms = checked_graph(
        query, key, graph, EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    )
    out, slopes = BACKENDS[backend].forward(query, key, neighbors, terms, Activation(activation, slope), save)
    # An operator cannot return None. An empty tensor stands for slopes that were not asked for.
    return out, query.new_empty(0, dtype=accumulation_dtype(query.dtype)) if slopes is None else slopes


@torch.library.custom_op("sirgcn::aggregate_backward", mutates_args=())
def _aggregate_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    neighbors, terms = checked_graph(
        query, key, graph, EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    )
    grad_key, grad_edge, grad_weight = BACKENDS[backend].backward(
        grad, query, key, neighbors, terms, Activation(activation, slope), Needs(True, True)
    )
    empty = query.new_empty(0)
    return (
        grad_key.to(key.dtype),
        empty if grad_edge is None or edge is None else grad_edge.to(edge.dtype),
        empty.clone() if grad_weight is None or edge_weight is None else grad_weight.to(edge_weight.dtype),
    )


@aggregate.register_fake
def _(query: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    save = args[-1]
    slopes = query.new_empty(query.shape if save else 0, dtype=accumulation_dtype(query.dtype))
    return query.new_empty(query.shape), slopes


@_aggregate_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    def like(tensor: Tensor | None) -> Tensor:
        return query.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)

    return like(key), like(edge), like(edge_weight)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, graph, *optional, activation, slope, backend, _ = inputs
    ctx.save_for_backward(query, key, output[1], *graph, *optional)
    ctx.mark_non_differentiable(output[1])
    ctx.options = (activation, slope, backend)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | list[None] | None, ...]:
    query, key, slopes, *rest = ctx.saved_tensors
    graph, optional = rest[:7], rest[7:]
    grad_query = (slopes * grad).to(query.dtype)
    grads = _aggregate_backward(grad.contiguous(), query, key, graph, *optional, *ctx.options)
    grad_edge = None if optional[0] is None else grads[1]
    grad_weight = None if optional[2] is None else grads[2]
    return (grad_query, grads[0], [None] * len(graph), grad_edge, None, grad_weight, *[None] * 6)


def _refuse(ctx: object, *grads: object) -> None:
    refuse_second_derivative("sir_aggregate")


aggregate.register_autograd(_backward, setup_context=_setup_context)
_aggregate_backward.register_autograd(_refuse)
