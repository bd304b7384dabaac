"""The backend `reference`: the definition of the aggregation in plain PyTorch, which every other backend must equal."""

from typing import NamedTuple

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.neighbors import Neighbors


class EdgeTerms(NamedTuple):
    """The edge term, `edge` `[E, d]` or `edge` `[K, d]` with `edge_type` `[E]`, and the weights w_uv, a_u and b_v."""

    edge: Tensor | None
    edge_type: Tensor | None
    edge_weight: Tensor | None
    target_weight: Tensor | None
    source_weight: Tensor | None


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums: float32 for half-precision messages, otherwise the dtype of the messages."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, without the microseconds that torch spends where there is nothing to do."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


class Needs(NamedTuple):
    """Which gradients a backward pass computes besides that of the key."""

    edge: bool
    edge_weight: bool


class Ends(NamedTuple):
    """What a gated message reads of its two nodes. `start`, one row per target, is what the output begins with."""

    query: Tensor
    key: Tensor
    value: Tensor
    start: Tensor | None = None


class Gate(NamedTuple):
    """The gate sigma(z) of a message, and whether the sum of messages is divided by the sum of their gates."""

    activation: Activation
    is_normalized: bool


GATE_EPSILON = 1e-6
"""What is added to a sum of gates before it divides, as GatedGCN does."""


class GatedSums(NamedTuple):
    """What the forward pass of gated messages returns. All but the output is for the backward pass.

    The gradient of the query is grad_u * slopes_u. With a normalised gate, `mean` is the output without its start, and
    `share` is 1 / (the sum of gates + `GATE_EPSILON`). The last three are in the accumulation dtype.
    """

    out: Tensor
    slopes: Tensor | None = None
    mean: Tensor | None = None
    share: Tensor | None = None


class GradEnds(NamedTuple):
    """The matrices that the backward pass of gated messages writes, in the accumulation dtype.

    None stands for a gradient that is not asked for; those of key and value always are.
    """

    query: Tensor | None
    key: Tensor
    value: Tensor
    start: Tensor | None = None


def forward(
    query: Tensor, key: Tensor, neighbors: Neighbors, terms: EdgeTerms, activation: Activation, save: bool
) -> tuple[Tensor, Tensor | None]:
    """The output and, with `save`, the slopes, both `[targets, d]`.

    out_u = a_u * sum over v in N(u) of w_uv * b_v * sigma(q_u + k_v + e_uv), and slopes_u is the same sum with sigma'.
    The gradient of the query is grad_u * slopes_u. The slopes are in the accumulation dtype.
    """
    neighbors.check_frozen()
    target = neighbors.edge_index[1]
    z, weight = _before_activation(query, key, neighbors, terms), _weight(neighbors, terms)
    out = _sum_into(target, activation(z) * weight, query.size(0)).to(query.dtype)
    return out, _sum_into(target, activation.derivative(z) * weight, query.size(0)) if save else None


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    terms: EdgeTerms,
    activation: Activation,
    needs: Needs,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of key, edge (or its table) and edge_weight, from the gradient of the output.

    They are in the accumulation dtype.
    """
    neighbors.check_frozen()
    source, target = neighbors.edge_index
    z = _before_activation(query, key, neighbors, terms)
    incoming = grad.to(z.dtype).index_select(0, target)
    grad_z = incoming * _weight(neighbors, terms) * activation.derivative(z)
    grad_edge = grad_weight = None
    if terms.edge is not None and needs.edge:
        grad_edge = grad_z if terms.edge_type is None else _sum_into(terms.edge_type, grad_z, terms.edge.size(0))
    if needs.edge_weight:
        rank_one = _weight(neighbors, terms._replace(edge_weight=None))
        grad_weight = (incoming * rank_one * activation(z)).sum(1)
    return _sum_into(source, grad_z, key.size(0)), grad_edge, grad_weight


def gated_forward(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, save: bool) -> GatedSums:
    """out_u = start_u + a_u * sum over v in N(u) of w_uv * b_v * sigma(q_u + k_v + e_uv) * v_v, channel by channel.

    With a normalised gate, a_u is 1 / (`GATE_EPSILON` + the sum of w_uv * b_v * sigma(q_u + k_v + e_uv)).
    """
    neighbors.check_frozen()
    source, target = neighbors.edge_index
    rows, sigma = ends.query.size(0), gate.activation
    z, weight = _before_activation(ends.query, ends.key, neighbors, terms), _weight(neighbors, terms)
    value = ends.value.to(z.dtype).index_select(0, source)
    gates, slope = sigma(z) * weight, sigma.derivative(z) * weight
    of_values = _sum_into(target, gates * value, rows), _sum_into(target, slope * value, rows) if save else None
    if not gate.is_normalized:
        return finish_sums(ends, of_values, None)
    of_gates = _sum_into(target, gates, rows), _sum_into(target, slope, rows) if save else None
    return finish_sums(ends, of_values, of_gates)


def finish_sums(
    ends: Ends, of_values: tuple[Tensor, Tensor | None], of_gates: tuple[Tensor, Tensor | None] | None
) -> GatedSums:
    """The result of a forward pass, from the sums of gated values and their slopes.

    With a normalised gate, the sums of gates and their slopes divide. Without slopes, nothing is kept.
    """
    out, slopes = of_values
    mean = share = None
    if of_gates is not None:
        share = 1 / (of_gates[0] + GATE_EPSILON)
        out = mean = out * share
        slopes = None if slopes is None or of_gates[1] is None else (slopes - mean * of_gates[1]) * share
    if ends.start is not None:
        out = out + ends.start.to(out.dtype)
    if slopes is None:
        mean = share = None
    # An in-place change of the output must not reach what is kept.
    out = out.clone() if out is mean else out
    return GatedSums(cast(out, ends.query.dtype), slopes, mean, share)


def gated_backward(
    grad: Tensor,
    ends: Ends,
    sums: GatedSums,
    neighbors: Neighbors,
    terms: EdgeTerms,
    gate: Gate,
    needs: Needs,
    into: GradEnds,
) -> tuple[Tensor | None, Tensor | None]:
    """Write the gradients of the node terms, and return those of edge (or its table) and edge_weight.

    All of them are in the accumulation dtype.
    """
    neighbors.check_frozen()
    write_target_grads(grad, sums, into)
    source, target = neighbors.edge_index
    z = _before_activation(ends.query, ends.key, neighbors, terms)
    grad, weight = grad.to(z.dtype), _weight(neighbors, terms)
    if sums.share is not None:
        grad = grad * sums.share
    incoming = grad.index_select(0, target)
    grad_gate = incoming * ends.value.to(z.dtype).index_select(0, source)
    if sums.mean is not None:
        grad_gate = grad_gate - (grad * sums.mean).index_select(0, target)
    gates = gate.activation(z)
    grad_z = grad_gate * weight * gate.activation.derivative(z)
    into.key.copy_(_sum_into(source, grad_z, ends.key.size(0)))
    into.value.copy_(_sum_into(source, incoming * weight * gates, ends.value.size(0)))
    grad_edge = grad_weight = None
    if terms.edge is not None and needs.edge:
        grad_edge = grad_z if terms.edge_type is None else _sum_into(terms.edge_type, grad_z, terms.edge.size(0))
    if needs.edge_weight:
        rank_one = _weight(neighbors, terms._replace(edge_weight=None))
        grad_weight = (grad_gate * rank_one * gates).sum(1)
    return grad_edge, grad_weight


def write_target_grads(grad: Tensor, sums: GatedSums, into: GradEnds) -> None:
    """Write the gradients of query and start, which no edge takes part in."""
    if into.query is not None:
        assert sums.slopes is not None
        torch.mul(sums.slopes, grad, out=into.query)
    if into.start is not None:
        into.start.copy_(grad)


def _before_activation(query: Tensor, key: Tensor, neighbors: Neighbors, terms: EdgeTerms) -> Tensor:
    source, target = neighbors.edge_index
    dtype = accumulation_dtype(query.dtype)
    z = query.to(dtype).index_select(0, target) + key.to(dtype).index_select(0, source)
    if terms.edge is None:
        return z
    edge = terms.edge.to(dtype)
    return z + (edge if terms.edge_type is None else edge.index_select(0, terms.edge_type))


def _weight(neighbors: Neighbors, terms: EdgeTerms) -> Tensor | float:
    source, target = neighbors.edge_index
    factors = [] if terms.edge_weight is None else [terms.edge_weight]
    if terms.target_weight is not None:
        factors.append(terms.target_weight.index_select(0, target))
    if terms.source_weight is not None:
        factors.append(terms.source_weight.index_select(0, source))
    weight: Tensor | float = 1.0
    for factor in factors:
        weight = weight * factor.unsqueeze(1)
    return weight


def _sum_into(index: Tensor, rows: Tensor, size: int) -> Tensor:
    return rows.new_zeros(size, rows.size(1)).index_add_(0, index, rows)
