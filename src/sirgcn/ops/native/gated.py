"""The backend `native` of messages with a value: the edge loops in C."""

import torch
from torch import Tensor

from sirgcn.ops.door import flat, in_one_piece, opened, rows
from sirgcn.ops.native import ACTIVATION_NUMBERS, DTYPES, UNAVAILABLE, threads_for
from sirgcn.ops.neighbors import Grouping, Neighbors
from sirgcn.ops.reference import (
    GATE_EPSILON,
    EdgeTerms,
    Ends,
    Gate,
    GatedSums,
    GradEnds,
    Needs,
    accumulation_dtype,
    cast,
)

if UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels


def forward(ends: Ends, neighbors: Neighbors, terms: EdgeTerms, gate: Gate, save: bool) -> GatedSums:
    """The output and, with `save`, what the backward pass reads."""
    neighbors.check_frozen()
    query, key, value = (_rows(tensor) for tensor in ends[:3])
    start = None if ends.start is None else _rows(ends.start)
    out = query.new_empty(query.shape)
    slopes = torch.empty_like(out) if save else None
    is_divided = save and gate.is_normalized
    mean, share = (torch.empty_like(out) if is_divided else None for _ in range(2))
    start_at, start_stride = rows(start)
    of_pass = {
        "start": start_at,
        "start_stride": start_stride,
        "slope_sum": flat(slopes),
    }
    _run(0, neighbors.by_target, (query, key, value), (out, mean, share), terms, gate, of_pass)
    return GatedSums(cast(out, ends.query.dtype), slopes, mean, share)


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
    """The gradients, in one pass over the edges grouped by source. One thread writes each row of key and value."""
    neighbors.check_frozen()
    query, key, value = (_rows(tensor) for tensor in ends[:3])
    grad = _rows(cast(opened(grad), ends.query.dtype))
    grad_edge = grad_weight = None
    if terms.edge is not None and needs.edge:
        # With edges, the kernel writes every row. Without edges, it would leave the rows of a table unset.
        make = key.new_empty if neighbors.num_edges else key.new_zeros
        grad_edge = make(terms.edge.shape)
    if terms.edge_weight is not None and needs.edge_weight:
        grad_weight = key.new_zeros(terms.edge_weight.shape)
    swapped = terms._replace(target_weight=terms.source_weight, source_weight=terms.target_weight)
    (grad_at, grad_stride), (value_at, value_stride) = rows(grad), rows(into.value)
    (query_at, query_stride), (start_at, start_stride) = rows(into.query), rows(into.start)
    of_pass = {
        "grad": grad_at,
        "grad_stride": grad_stride,
        "slope_sum": 0 if into.query is None else flat(sums.slopes),
        "grad_query": query_at,
        "grad_query_stride": query_stride,
        "grad_start": start_at,
        "grad_start_stride": start_stride,
        "grad_value": value_at,
        "grad_value_stride": value_stride,
        "grad_term": flat(grad_edge),
        "grad_weight": flat(grad_weight),
    }
    _run(1, neighbors.by_source, (key, query, value), (into.key, sums.mean, sums.share), swapped, gate, of_pass)
    return grad_edge, grad_weight


def _run(
    is_backward: int,
    grouping: Grouping,
    nodes: tuple[Tensor, Tensor, Tensor],
    sums: tuple[Tensor, Tensor | None, Tensor | None],
    terms: EdgeTerms,
    gate: Gate,
    of_pass: dict[str, int],
) -> None:
    """One pass.

    `nodes` are the rows by which the edges are grouped, the rows at their other ends, and the values; `sums` are the
    result, the means and the shares.
    """
    self, other, value = nodes
    out, mean, share = sums
    groups, width = self.shape
    edges = grouping.node.numel()
    edge = None if terms.edge is None else cast(terms.edge, self.dtype).contiguous()
    edge_type = None if terms.edge_type is None else terms.edge_type.contiguous()
    edge_weight = None if terms.edge_weight is None else terms.edge_weight.contiguous()
    (self_at, self_stride), (other_at, other_stride) = rows(self), rows(other)
    (value_at, value_stride), (out_at, out_stride) = rows(value), rows(out)
    _kernels.gated(
        backward=is_backward,
        dtype=DTYPES[self.dtype],
        threads=threads_for((edges + groups) * width),
        sigma=ACTIVATION_NUMBERS[gate.activation.name],
        slope=gate.activation.slope,
        normalized=gate.is_normalized,
        epsilon=GATE_EPSILON,
        width=width,
        groups=groups,
        edges=edges,
        wide_index=grouping.node.dtype == torch.int64,
        ptr=flat(grouping.ptr),
        node=flat(grouping.node),
        edge=flat(grouping.edge),
        term=flat(edge),
        types=0 if edge is None else edge.size(0),
        edge_type=flat(edge_type),
        wide_type=edge_type is not None and edge_type.dtype == torch.int64,
        edge_weight=flat(edge_weight),
        self_weight=flat(terms.target_weight),
        other_weight=flat(terms.source_weight),
        self=self_at,
        self_stride=self_stride,
        other=other_at,
        other_stride=other_stride,
        others=other.size(0),
        value=value_at,
        value_stride=value_stride,
        out=out_at,
        out_stride=out_stride,
        mean=flat(mean),
        share=flat(share),
        **of_pass,
    )


def _rows(tensor: Tensor) -> Tensor:
    """The tensor with contiguous rows, in the dtype of the sums: half precision is widened once for each node."""
    return in_one_piece(cast(tensor, accumulation_dtype(tensor.dtype)))
