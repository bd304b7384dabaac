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
