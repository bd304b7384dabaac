"""The backend `native` of `sir_aggregate`: the edge loop in C."""

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.door import flat, in_one_piece, opened, rows
from sirgcn.ops.native import ACTIVATION_NUMBERS, DTYPES, UNAVAILABLE, threads_for
from sirgcn.ops.neighbors import Grouping, Neighbors
from sirgcn.ops.reference import EdgeTerms, Needs, accumulation_dtype, cast

if UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels


def forward(
    query: Tensor, key: Tensor, neighbors: Neighbors, terms: EdgeTerms, activation: Activation, save: bool
) -> tuple[Tensor, Tensor | None]:
    """The output and, with `save`, the slopes a_u * sum of w * b_v * sigma'(z), both `[targets, d]`."""
    neighbors.check_frozen()
    dtype = query.dtype
    query, key = _rows(query), _rows(key)
    out = query.new_empty(query.shape, dtype=accumulation_dtype(dtype))
    slopes = torch.empty_like(out) if save else None
    _run(0, neighbors.by_target, query, key, None, terms, activation, out, slopes, None, None)
    return cast(out, dtype), slopes


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    terms: EdgeTerms,
    activation: Activation,
    needs: Needs,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients, in one pass over the edges grouped by source. One thread writes each row of the key's gradient."""
    neighbors.check_frozen()
    dtype = accumulation_dtype(query.dtype)
    query, key, grad = _rows(query), _rows(key), _rows(cast(opened(grad), query.dtype))
    grad_key = key.new_empty(key.shape, dtype=dtype)
    grad_edge = grad_weight = None
    if terms.edge is not None and needs.edge:
        # With edges, the kernel writes every row. Without edges, it would leave the rows of a table unset.
        make = key.new_empty if neighbors.num_edges else key.new_zeros
        grad_edge = make(terms.edge.shape, dtype=dtype)
    if terms.edge_weight is not None and needs.edge_weight:
        grad_weight = key.new_zeros(terms.edge_weight.shape, dtype=dtype)
    swapped = terms._replace(target_weight=terms.source_weight, source_weight=terms.target_weight)
    _run(1, neighbors.by_source, key, query, grad, swapped, activation, grad_key, None, grad_edge, grad_weight)
    return grad_key, grad_edge, grad_weight


def _run(
    is_backward: int,
    grouping: Grouping,
    self: Tensor,
    other: Tensor,
    grad: Tensor | None,
    terms: EdgeTerms,
    activation: Activation,
    out: Tensor,
    slopes: Tensor | None,
    grad_edge: Tensor | None,
    grad_weight: Tensor | None,
) -> None:
    groups, width = self.shape
    edges = grouping.node.numel()
    edge = None if terms.edge is None else cast(terms.edge, self.dtype).contiguous()
    edge_type = None if terms.edge_type is None else terms.edge_type.contiguous()
    edge_weight = None if terms.edge_weight is None else terms.edge_weight.contiguous()
    (self_at, self_stride), (other_at, other_stride), (out_at, out_stride) = rows(self), rows(other), rows(out)
    grad_at, grad_stride = rows(grad)
    _kernels.aggregate(
        backward=is_backward,
        dtype=DTYPES[self.dtype],
        activation=ACTIVATION_NUMBERS[activation.name],
        slope=activation.slope,
        threads=threads_for((edges + groups) * width),
        width=width,
        groups=groups,
        edges=edges,
        wide_index=grouping.node.dtype == torch.int64,
        ptr=flat(grouping.ptr),
        node=flat(grouping.node),
        edge=flat(grouping.edge),
        self=self_at,
        self_stride=self_stride,
        other=other_at,
        other_stride=other_stride,
        out=out_at,
        out_stride=out_stride,
        grad=grad_at,
        grad_stride=grad_stride,
        term=flat(edge),
        types=0 if edge is None else edge.size(0),
        edge_type=flat(edge_type),
        wide_type=edge_type is not None and edge_type.dtype == torch.int64,
        edge_weight=flat(edge_weight),
        self_weight=flat(terms.target_weight),
        other_weight=flat(terms.source_weight),
        slope_sum=flat(slopes),
        grad_term=flat(grad_edge),
        grad_weight=flat(grad_weight),
    )


def _rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows, in a dtype that the kernels know."""
    if tensor.dtype not in DTYPES:
        tensor = tensor.to(accumulation_dtype(tensor.dtype))
    return in_one_piece(tensor)
