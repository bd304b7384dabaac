"""Conversions from every graph format that PyG users have to `Neighbors` or to a checked `edge_index`."""

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex, Index
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import add_remaining_self_loops, is_torch_sparse_tensor

from sirgcn.ops import Neighbors
from sirgcn.ops.checks import check_devices
from sirgcn.ops.neighbors import check_edge_index
from sirgcn.ops.parts import is_row_by_row
from sirgcn.ops.split import SplitNeighbors

# Any stands for SparseTensor, which is a class only if torch-sparse is installed.
Graph: TypeAlias = Tensor | Neighbors | Any
"""`[2, E]` (sources, targets), a torch sparse CSR/CSC/COO `adj_t`, PyG's EdgeIndex or SparseTensor, or Neighbors."""

EdgeAttr: TypeAlias = Tensor | tuple[Tensor, Tensor] | None
"""Edge features `[E, D]`, or a pair (table `[K, D]`, type `[E]`) that stands for `table[type]`."""


def as_neighbors(graph: Graph, num_sources: int, num_targets: int) -> Neighbors:
    """The graph with its edges grouped for aggregation.

    Raises an error unless it has `num_sources` and `num_targets` nodes, one per row of the features.

    >>> as_neighbors(torch.tensor([[0, 1], [1, 2]]), 3, 3)
    Neighbors(num_sources=3, num_targets=3, num_edges=2)
    """
    if isinstance(graph, Neighbors):
        neighbors = graph
    elif is_torch_sparse_tensor(graph):
        neighbors = Neighbors.from_sparse(graph)
    elif isinstance(graph, SparseTensor):
        neighbors = Neighbors.from_sparse(graph.to_torch_sparse_csr_tensor())
    elif isinstance(graph, Tensor):
        return Neighbors.from_edge_index(_plain_tensor(graph), (num_sources, num_targets))
    else:
        raise TypeError(
            f"edge_index: expected a tensor [2, edges], a sparse tensor, a SparseTensor or Neighbors, "
            f"got {type(graph).__name__}"
        )
    if (neighbors.num_sources, neighbors.num_targets) != (num_sources, num_targets):
        raise ValueError(
            f"edge_index: expected a graph of {num_sources} source and {num_targets} target nodes, "
            f"one per row of x, got {neighbors}"
        )
    return neighbors


def as_edge_index(graph: Graph, num_sources: int, num_targets: int) -> Tensor:
    """The graph as a checked `[2, E]` tensor of int64, with the edges in the given order.

    The index is int64 because PyG's scatter needs it: torch 2.13's gather, which computes the gradient of a scatter,
    misreads an expanded int32 index.
    """
    if isinstance(graph, Tensor) and not is_torch_sparse_tensor(graph):
        edge_index = _plain_tensor(graph)
        check_edge_index(edge_index, (num_sources, num_targets))
        return edge_index.long()
    return as_neighbors(graph, num_sources, num_targets).edge_index.long()


def with_self_loops(graph: Graph, num_nodes: int) -> Neighbors:
    """The graph with a self-loop at every node; nodes that have one keep it, and repeated ones become one."""
    if isinstance(graph, SplitNeighbors):
        return graph.with_self_loops()
    edge_index, _ = add_remaining_self_loops(as_edge_index(graph, num_nodes, num_nodes), num_nodes=num_nodes)
    return Neighbors.from_edge_index(edge_index, num_nodes)


def count_edges(graph: Graph) -> int | None:
    """|E|; None if the argument is not a graph."""
    if isinstance(graph, Neighbors):
        return graph.num_edges
    if isinstance(graph, SparseTensor):
        return int(graph.nnz())
    if isinstance(graph, Tensor):
        return graph._nnz() if is_torch_sparse_tensor(graph) else graph.size(-1)
    return None


def with_stored_values(
    graph: Graph, edge_attr: EdgeAttr, edge_weight: Tensor | None, edge_dim: int | None
) -> tuple[EdgeAttr, Tensor | None]:
    """The given edge features and weights; the values of a sparse adjacency stand in for missing ones.

    For a layer with `edge_dim` the values are edge features. For a layer without it they are edge weights.
    """
    if edge_dim is not None:
        return (_stored_values(graph) if edge_attr is None else edge_attr), edge_weight
    if edge_weight is None:
        values = _stored_values(graph)
        # torch and PyG store ones where no weights were given. Ones with a gradient are weights.
        if values is not None and (values.requires_grad or not bool((values == 1).all())):
            edge_weight = values
    return edge_attr, edge_weight


def _stored_values(graph: Graph) -> Tensor | None:
    """The values of a sparse adjacency in the order of its edges; None if it stores none."""
    if isinstance(graph, SparseTensor):
        return graph.storage.value()
    if isinstance(graph, Tensor) and is_torch_sparse_tensor(graph):
        if graph.layout != torch.sparse_coo or graph.is_coalesced():
            return graph.values()
        if graph.requires_grad:
            raise ValueError(
                "edge_index: expected a coalesced COO adjacency, because torch computes no gradient of the values of "
                "others, got one that is not coalesced; call adj_t.coalesce()"
            )
        return graph._values()
    return None


def plain_edge_attr(edge_attr: EdgeAttr) -> EdgeAttr:
    """The edge features; of a pair (table, type), the type as a plain tensor if it is PyG's `Index`."""
    if not isinstance(edge_attr, tuple) or not isinstance(edge_attr[1], Tensor):
        return edge_attr
    return edge_attr[0], _plain_tensor(edge_attr[1])


def through_edges(module: nn.Module, edge_attr: EdgeAttr) -> EdgeAttr:
    """The module's output for edge features.

    For a pair (table, type) the output is such a pair, too, if the module is known to act on each row by itself.
    """
    if not isinstance(edge_attr, tuple):
        return module(edge_attr)
    table, edge_type = edge_attr
    if not is_row_by_row(module):
        return module(table.index_select(0, edge_type))
    return module(table), edge_type


def check_same_device(source: Any, target: Any, graph: Graph, edge_attr: EdgeAttr, edge_weight: Any) -> None:
    """Raise a `ValueError` with the name of the first input that is not on the device of the others."""
    named = {"x": source} if source is target else {"x (source)": source, "x (target)": target}
    if isinstance(graph, Tensor | Neighbors):
        named["edge_index"] = graph
    if isinstance(edge_attr, tuple):
        named["edge_attr"], named["edge_attr (type)"] = edge_attr
    else:
        named["edge_attr"] = edge_attr
    named["edge_weight"] = edge_weight
    check_devices(named)


def _plain_tensor(index: Tensor) -> Tensor:
    return index.as_tensor() if isinstance(index, EdgeIndex | Index) else index
