"""Checks of the arguments of the aggregations: node terms, edge terms, edge weights. Errors name the argument."""

import math
from typing import Any

import torch
from torch import Tensor

from sirgcn.ops.calls import is_compiling
from sirgcn.ops.checks import check_devices, check_range
from sirgcn.ops.door import opened
from sirgcn.ops.neighbors import Neighbors


def check_nodes(
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    max_dim: float = math.inf,
    value: Tensor | None = None,
    start: Tensor | None = None,
) -> None:
    """Refuse node terms that are not floating-point tensors with one row per node of the graph."""
    if not isinstance(neighbors, Neighbors):
        raise TypeError(f"neighbors: expected Neighbors, got {type(neighbors).__name__}")
    targets, sources = neighbors.num_targets, neighbors.num_sources
    terms = [("query", query, targets), ("key", key, sources)]
    terms += [] if value is None else [("value", value, sources)]
    terms += [] if start is None else [("start", start, targets)]
    for name, tensor, rows in terms:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: expected a floating-point dtype, got {tensor.dtype}")
        if not 2 <= tensor.dim() <= max_dim:
            raise ValueError(f"{name}: expected shape [nodes, d] or [batch, nodes, d], got {list(tensor.shape)}")
        if tensor.size(-2) != rows:
            raise ValueError(f"{name}: expected {rows} rows, one per node of {neighbors}, got {tensor.size(-2)}")
    check_devices({**{name: tensor for name, tensor, _ in terms}, "neighbors": neighbors})


def check_width(query: Tensor, other: Tensor, name: str = "key") -> None:
    """Refuse a node term that does not fit the channels and the batch of the query."""
    if query.size(-1) != other.size(-1) or query.shape[:-2] != other.shape[:-2]:
        raise ValueError(
            f"{name}: expected the channels and batch of query, {list(query.shape)}, got {list(other.shape)}"
        )


def check_edge(
    edge: Any, edge_weight: Any, graph: Neighbors | int, width: int | None, name: str = "edge"
) -> tuple[Tensor | None, Tensor | None]:
    """The edge term as (rows, type). A term that does not fit the graph or the width raises.

    Args:
        edge: the term, a pair (table, type), or None.
        edge_weight: one scalar per edge, or None.
        graph: the graph, or its number of edges where it has no device yet.
        width: the channels of the term; None stands for any width.
        name: the name of the argument in the error.
    """
    if edge is None and edge_weight is None:
        return None, None
    num_edges = graph if isinstance(graph, int | torch.SymInt) else graph.num_edges
    table, edge_type = _checked_term(edge, num_edges, width, name)
    if edge_weight is not None:
        _check_edge_weight(edge_weight, num_edges)
    first = {"neighbors": graph} if isinstance(graph, Neighbors) else {}
    check_devices({**first, name: table, "edge type": edge_type, "edge_weight": edge_weight})
    if table is not None and edge_type is not None:
        edge_type = types_in_range(edge_type, table.size(0))
    return table, edge_type


def _checked_term(edge: Any, num_edges: int, width: int | None, name: str) -> tuple[Tensor | None, Tensor | None]:
    """The edge term as (rows, type), with shapes and dtypes checked."""
    if edge is None:
        return None, None
    is_pair = isinstance(edge, tuple) and len(edge) == 2
    table, edge_type = edge if is_pair else (edge, None)
    if not isinstance(table, Tensor):
        raise TypeError(f"{name}: expected a tensor or a pair (table, type) of tensors, got {type(edge).__name__}")
    _check_edge_rows(table, None if is_pair else num_edges, width, name)
    if is_pair:
        check_edge_type(edge_type, num_edges)
    return table, edge_type


def _check_edge_rows(table: Tensor, num_edges: int | None, width: int | None, name: str) -> None:
    """Refuse an edge term that is not a floating-point matrix of this width and, unless None, of this many rows."""
    if not table.is_floating_point():
        raise ValueError(f"{name}: expected a floating-point dtype, got {table.dtype}")
    if table.dim() != 2 or (width is not None and table.size(1) != width):
        raise ValueError(f"{name}: expected shape [*, {'d' if width is None else width}], got {list(table.shape)}")
    if num_edges is not None and table.size(0) != num_edges:
        raise ValueError(f"{name}: expected {num_edges} rows, one per edge, got {table.size(0)}")


def _check_edge_weight(edge_weight: Any, num_edges: int) -> None:
    if not isinstance(edge_weight, Tensor):
        raise TypeError(f"edge_weight: expected a tensor, got {type(edge_weight).__name__}")
    if edge_weight.is_complex():
        raise ValueError(f"edge_weight: expected a real dtype, got {edge_weight.dtype}")
    if edge_weight.shape != (num_edges,):
        raise ValueError(
            f"edge_weight: expected shape [{num_edges}], one scalar per edge, got {list(edge_weight.shape)}"
        )


def check_edge_type(edge_type: Any, num_edges: int) -> None:
    """Refuse types that are not one whole number per edge."""
    if not isinstance(edge_type, Tensor):
        raise TypeError(f"edge type: expected a tensor, got {type(edge_type).__name__}")
    if edge_type.dtype not in (torch.int32, torch.int64) or edge_type.dim() != 1:
        raise ValueError(
            f"edge type: expected int32 or int64 of shape [{num_edges}], "
            f"got {edge_type.dtype} of shape {list(edge_type.shape)}"
        )
    if edge_type.size(0) != num_edges:
        raise ValueError(f"edge type: expected {num_edges} entries, one per edge, got {edge_type.size(0)}")


def types_in_range(edge_type: Tensor, num_types: int) -> Tensor:
    """The types of edges as a plain tensor; every one of them is checked in this call."""
    if not is_compiling():
        edge_type = opened(edge_type)
    check_range(edge_type, num_types, "edge type[{}]", "the rows of the table", "type")
    return edge_type
