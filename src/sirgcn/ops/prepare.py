"""What both forms of the aggregation do before a backend: checks, one dtype, a batch as channels, the weights."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.arguments import check_edge, check_nodes, check_width
from sirgcn.ops.backend import choose_backend
from sirgcn.ops.calls import is_transformed
from sirgcn.ops.checks import check_known
from sirgcn.ops.neighbors import REDUCTIONS, Neighbors
from sirgcn.ops.reference import EdgeTerms, accumulation_dtype, cast

GATES = "gates"
"""The reduction that divides a sum of gated values by the sum of their gates."""


class Prepared(NamedTuple):
    """What a backend gets: node terms as matrices of one dtype, edge terms with weights, sigma, the backend's name.

    `shape` is the shape of the output.
    """

    nodes: tuple[Tensor, ...]
    terms: EdgeTerms
    activation: Activation
    backend: str
    shape: torch.Size

    def restored(self, out: Tensor) -> Tensor:
        """The output in the shape of the query: the batch that became channels is a dimension again."""
        *batch, _, width = self.shape
        return out.unflatten(1, (*batch, width)).movedim(0, -2) if batch else out


def prepare(
    nodes: Sequence[Tensor],
    neighbors: Neighbors,
    edge: Any,
    edge_weight: Tensor | None,
    activation: str | Activation,
    reduce: str,
    backend: str | None,
) -> Prepared:
    """The arguments of an aggregation, checked and as a backend reads them.

    Args:
        nodes: query and key; with gated messages also the value and, if there is one, the start.
        neighbors, edge, edge_weight, activation, reduce, backend: as in `sir_aggregate`.
    """
    if is_transformed():
        raise RuntimeError(
            "sir_aggregate: torch.func transforms and forward-mode derivatives are not supported; "
            "SIRConv takes the plain PyG route under them"
        )
    sigma = Activation.parse(activation)
    query, key, *more = nodes
    check_nodes(query, key, neighbors, 3, *more)
    named = dict(zip(("query", "key", "value", "start"), nodes, strict=False))
    for name, tensor in named.items():
        check_width(query, tensor, name)
    table, edge_type = check_edge(edge, edge_weight, neighbors, query.size(-1))
    chosen = choose_backend(backend, query.device, {**named, "edge": table, "edge_weight": edge_weight}, bool(more))
    dtype = _promoted(*nodes, table)
    weight_dtype, batch = accumulation_dtype(dtype), query.shape[:-2]
    matrices = [cast(tensor, dtype) for tensor in nodes]
    table = None if table is None else cast(table, dtype)
    if batch:
        # sigma acts on each channel by itself, so B signals of d channels are one signal of B * d channels.
        matrices = [x.movedim(-2, 0).flatten(1) for x in matrices]
        table = None if table is None else table.repeat(1, batch.numel())
    weight = None if edge_weight is None else cast(edge_weight, weight_dtype)
    terms = EdgeTerms(table, edge_type, weight, *_rank_one(neighbors, reduce, weight_dtype, bool(more)))
    return Prepared(tuple(matrices), terms, sigma, chosen, query.shape)


def _promoted(*tensors: Tensor | None) -> torch.dtype:
    """The one dtype to which tensors of different dtypes are promoted."""
    first, *others = [tensor.dtype for tensor in tensors if tensor is not None]
    for other in others:
        first = torch.promote_types(first, other)
    return first


def _rank_one(
    neighbors: Neighbors, reduce: str, dtype: torch.dtype, is_gated: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The weights a_u and b_v; none where the gates divide."""
    if not is_gated:
        return neighbors.weights(reduce, dtype)
    check_known("reduce", reduce, (*REDUCTIONS, GATES))
    return (None, None) if reduce == GATES else neighbors.weights(reduce, dtype)
