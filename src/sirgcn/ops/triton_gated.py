"""The backend `triton` of messages with a value. Sums of gates, which divide, take a second pass of the same kernel."""

import torch
from torch import Tensor

from sirgcn.ops import triton_backend
from sirgcn.ops.door import opened
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.reference import (
    EdgeTerms,
    Ends,
    Gate,
    GatedSums,
    GradEnds,
    Needs,
    accumulation_dtype,
    cast,
    finish_sums,
    write_target_grads,
)


def forward(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, save: bool) -> GatedSums:
    """The output and, with `save`, what the backward pass reads."""
    query, key, value = _wide(ends)
    sigma = gate.activation
    of_values = triton_backend.forward(query, key, neighbors, terms, sigma, save, value)
    of_gates = triton_backend.forward(query, key, neighbors, terms, sigma, save) if gate.is_normalized else None
    return finish_sums(ends, of_values, of_gates)


def backward(
    grad: Tensor,
    ends: Ends,
    sums: GatedSums,
    neighbors: Neighbors,
    terms: EdgeTerms,
    gate: Gate,
    needs: Needs,
    into: GradEnds,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients, in one pass over the edges grouped by source, and a second one for a table."""
    query, key, value = _wide(ends)
    grad, divisor_grad = cast(opened(grad), query.dtype), None
    write_target_grads(grad, sums, into)
    if sums.share is not None and sums.mean is not None:
        grad = grad * sums.share
        divisor_grad = -grad * sums.mean
    grad_value = torch.zeros_like(value)
    sent = triton_backend.Sent(value, divisor_grad, grad_value)
    grad_key, *of_edges = triton_backend.backward(grad, query, key, neighbors, terms, gate.activation, needs, sent)
    into.key.copy_(grad_key)
    into.value.copy_(grad_value)
    grad_edge, grad_weight = of_edges
    return grad_edge, grad_weight


def _wide(ends: Ends) -> list[Tensor]:
    """Query, key and value in the dtype of the sums."""
    return [cast(tensor, accumulation_dtype(tensor.dtype)) for tensor in ends[:3]]
