"""The message network act2(W act1(q_u + k_v + e) + b) in C: one call per pass, scratch that no edge adds to."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sirgcn.ops.activation import ACTIVATIONS, Activation
from sirgcn.ops.door import flat, in_one_piece, opened, rows
from sirgcn.ops.native import DTYPES, UNAVAILABLE, threads_for
from sirgcn.ops.neighbors import Neighbors

if UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

_ACTIVATIONS = {name: place for place, name in enumerate(ACTIVATIONS)}
# An edge's place within its group, as wide as the numbers beside it.
_PLACES = {torch.float32: torch.int32, torch.float64: torch.int64}


@dataclass(frozen=True, eq=False)
class Messages:
    """What is computed, apart from the tensors that get a gradient: the activations, the graph, the reduction."""

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

    With max, the place of every winner within its target's edges, as large as the output; with `save` and a ReLU as
    act2, one bit per message and channel that says whether it was above 0, as long as these take at most half of that.
    """
    query, weight = inputs.query, inputs.weight
    assert query is not None
    assert weight is not None
    out = query.new_zeros(query.size(0), weight.size(0))
    winner = torch.empty_like(out, dtype=_PLACES[out.dtype]) if messages.reduce == "max" else None
    size = 0
    if save:
        second, edges = _ACTIVATIONS[messages.second.name], messages.neighbors.num_edges
        size = _kernels.marks_size(DTYPES[out.dtype], second, out.size(0), edges, weight.size(1), weight.size(0))
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
    _kernels.network(
        is_backward,
        DTYPES[query.dtype],
        threads_for(edges * max(d_in, d_out)),
        is_max,
        _ACTIVATIONS[first.name],
        first.slope,
        _ACTIVATIONS[second.name],
        second.slope,
        query.size(0),
        edges,
        d_in,
        d_out,
        grouping.node.dtype == torch.int64,
        flat(grouping.ptr),
        flat(grouping.node),
        flat(grouping.edge),
        *rows(query),
        *rows(key),
        flat(table),
        flat(edge_type),
        edge_type is not None and edge_type.dtype == torch.int64,
        flat(weight),
        flat(bias),
        *map(flat, weights),
        flat(out),
        flat(winner),
        flat(marks),
        *rows(grad),
        *map(flat, grads),
    )
