"""The message network act2(W act1(q_u + k_v + e) + b) in C: one call per pass; scratch does not grow with the edges."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.door import flat, in_one_piece, opened, rows
from sirgcn.ops.native import ACTIVATION_NUMBERS, DTYPES, UNAVAILABLE, threads_for
from sirgcn.ops.neighbors import Neighbors

if UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

# The dtype of an edge's place within its group: as wide as the messages.
_PLACES = {torch.float32: torch.int32, torch.float64: torch.int64}


@dataclass(frozen=True, eq=False)
class Messages:
    """The computation apart from the tensors that get a gradient: activations, graph and reduction."""

    first: Activation
    second: Activation
    neighbors: Neighbors
    edge_type: Tensor | None
    reduce: str


class Inputs(NamedTuple):
    """The tensors that may get a gradient, or their gradients."""

    query: Tensor | None
    key: Tensor | None
    table: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


_NOTHING = Inputs(None, None, None, None, None)


def forward(messages: Messages, inputs: Inputs, save: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The reduced messages `[targets, d_out]` and, for the backward pass, winners and marks.

    The winners belong to max: the place of every maximum among the edges of its target, as large as the output. The
    marks belong to `save` with a ReLU as act2: one bit per message and channel, 1 where the message is above 0. They
    are kept only if they need at most half of the memory of the output.
    """
    query, weight = inputs.query, inputs.weight
    assert query is not None
    assert weight is not None
    out = query.new_zeros(query.size(0), weight.size(0))
    winner = torch.empty_like(out, dtype=_PLACES[out.dtype]) if messages.reduce == "max" else None
    size = 0
    if save:
        size = _kernels.marks_size(
            dtype=DTYPES[out.dtype],
            second=ACTIVATION_NUMBERS[messages.second.name],
            targets=out.size(0),
            edges=messages.neighbors.num_edges,
            d_in=weight.size(1),
            d_out=weight.size(0),
        )
    marks = out.new_empty(size, dtype=torch.uint8) if size else None
    _run(0, messages, inputs, out, winner, marks, None, _NOTHING)
    return out, winner, marks


def backward(
    messages: Messages,
    inputs: Inputs,
    winner: Tensor | None,
    marks: Tensor | None,
    grad: Tensor,
    needs: tuple[bool, ...],
) -> Inputs:
    """The gradients, None where one is not needed."""
    grads = Inputs(
        *(
            torch.zeros_like(tensor, memory_format=torch.contiguous_format) if tensor is not None and needed else None
            for tensor, needed in zip(inputs, needs, strict=True)
        )
    )
    _run(1, messages, inputs, None, winner, marks, in_one_piece(opened(grad)), grads)
    return grads


def _run(
    is_backward: int,
    messages: Messages,
    inputs: Inputs,
    out: Tensor | None,
    winner: Tensor | None,
    marks: Tensor | None,
    grad: Tensor | None,
    grads: Inputs,
) -> None:
    messages.neighbors.check_frozen()
    query, key = (in_one_piece(tensor) for tensor in inputs[:2] if tensor is not None)
    table, weight, bias = (None if tensor is None else tensor.contiguous() for tensor in inputs[2:])
    assert weight is not None
    grouping, first, second = messages.neighbors.by_target, messages.first, messages.second
    edge_type = None if messages.edge_type is None else messages.edge_type.contiguous()
    edges, (d_out, d_in) = grouping.node.numel(), weight.shape
    is_max = messages.reduce == "max"
    weights = (None, None) if is_max else messages.neighbors.weights(messages.reduce, query.dtype)
    (query_at, query_stride), (key_at, key_stride), (grad_at, grad_stride) = rows(query), rows(key), rows(grad)
    _kernels.network(
        backward=is_backward,
        dtype=DTYPES[query.dtype],
        threads=threads_for(edges * max(d_in, d_out)),
        is_max=is_max,
        first=ACTIVATION_NUMBERS[first.name],
        first_slope=first.slope,
        second=ACTIVATION_NUMBERS[second.name],
        second_slope=second.slope,
        targets=query.size(0),
        edges=edges,
        d_in=d_in,
        d_out=d_out,
        wide_index=grouping.node.dtype == torch.int64,
        ptr=flat(grouping.ptr),
        node=flat(grouping.node),
        edge=flat(grouping.edge),
        query=query_at,
        query_stride=query_stride,
        key=key_at,
        key_stride=key_stride,
        weight=flat(weight),
        bias=flat(bias),
        term=flat(table),
        edge_type=flat(edge_type),
        wide_type=edge_type is not None and edge_type.dtype == torch.int64,
        target_weight=flat(weights[0]),
        source_weight=flat(weights[1]),
        out=flat(out),
        winner=flat(winner),
        marks=flat(marks),
        grad=grad_at,
        grad_stride=grad_stride,
        grad_query=flat(grads.query),
        grad_key=flat(grads.key),
        grad_term=flat(grads.table),
        grad_weight=flat(grads.weight),
        grad_bias=flat(grads.bias),
    )
