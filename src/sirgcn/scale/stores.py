"""What a sampler reads of a graph: the edges of every type grouped by target, and the number of nodes of every type."""

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData, remote_backend_utils

from sirgcn.data import DataError
from sirgcn.ops import Neighbors
from sirgcn.ops.sampling import InEdges

EdgeType: TypeAlias = tuple[str, str, str]
"""(source type, relation, target type), as in PyG; all three are empty where a graph has one type of nodes."""

ONE: EdgeType = ("", "", "")
"""The type of all edges of a graph that has one type of nodes."""


@runtime_checkable
class HasInEdges(Protocol):
    """A graph that can say which edges end in each node, such as a `DiskGraph`."""

    def in_edges(self) -> InEdges:
        """The edges grouped by target."""


class Stores(NamedTuple):
    """The edges of every type and the number of nodes of every type."""

    edges: dict[EdgeType, InEdges]
    num_nodes: dict[str, int]

    @property
    def is_hetero(self) -> bool:
        """Whether there are types."""
        return "" not in self.num_nodes


def stores_of(data: Any) -> Stores:
    """The edges and node counts of a graph in any form that a sampler accepts.

    >>> import torch
    >>> stores = stores_of(Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3))
    >>> stores.num_nodes, stores.edges[ONE].in_degree().tolist()
    ({'': 3}, [0, 1, 1])
    """
    if isinstance(data, HasInEdges):
        return _of_one(data.in_edges())
    if isinstance(data, InEdges):
        return _of_one(data)
    if isinstance(data, Neighbors):
        ptr, node, edge = data.by_target
        return _of_one(InEdges(ptr, node, edge, data.num_sources))
    if isinstance(data, Data):
        nodes = int(data.num_nodes or 0)
        return _of_one(InEdges.of(_edge_index(data, "data"), (nodes, nodes)))
    if isinstance(data, HeteroData):
        return _of_types(data)
    if isinstance(data, tuple) and len(data) == 2:
        return _of_stores(*data)
    raise TypeError(
        "data: expected PyG's Data or HeteroData, a pair of a feature store and a graph store, Neighbors or a "
        f"DiskGraph, got {type(data).__name__}"
    )


def _of_one(edges: InEdges) -> Stores:
    if edges.num_sources != edges.num_targets:
        raise ValueError(
            f"data: expected one set of nodes, got {edges.num_sources} sources and {edges.num_targets} targets"
        )
    return Stores({ONE: edges}, {"": edges.num_targets})


def _of_types(data: HeteroData) -> Stores:
    nodes = {name: int(data[name].num_nodes or 0) for name in data.node_types}
    edges = {
        kind: InEdges.of(_edge_index(data[kind], str(kind)), (nodes[kind[0]], nodes[kind[2]]))
        for kind in data.edge_types
    }
    return Stores(edges, nodes)


def _of_stores(features: FeatureStore, graph: GraphStore) -> Stores:
    """A graph that PyG reads from stores of its own, in which edges may lie in any layout."""
    kinds = [attr.edge_type for attr in graph.get_all_edge_attrs()]
    names = {name for kind in kinds for name in (kind[0], kind[2])}
    names |= {attr.group_name for attr in features.get_all_tensor_attrs() if isinstance(attr.group_name, str)}
    nodes = {name: int(remote_backend_utils.size(features, graph, name)) for name in sorted(names)}
    source, ptr, place = graph.csc()
    edges = {}
    for kind in kinds:
        edge = place.get(kind)
        edges[kind] = _checked(InEdges(ptr[kind], source[kind], edge, nodes[kind[0]]), nodes[kind[2]], str(kind))
    return Stores(edges, nodes)


def _checked(edges: InEdges, targets: int, name: str) -> InEdges:
    """Refuse groups that C must not follow. Sources are checked where they are read."""
    ptr = edges.ptr
    if len(ptr) != targets + 1 or int(ptr[0]) or int(ptr[-1]) != edges.num_edges or bool((ptr.diff() < 0).any()):
        raise DataError(f"expected {targets + 1} entries that rise from 0 to {edges.num_edges}", "colptr", name)
    whole = None if edges.edge is None else edges.edge.long().contiguous()
    return edges._replace(ptr=ptr.long().contiguous(), node=edges.node.long().contiguous(), edge=whole)


def _edge_index(store: Any, name: str) -> Tensor:
    found = store.get("edge_index")
    if not isinstance(found, Tensor):
        raise DataError(f"expected a tensor [2, edges], got {type(found).__name__}", "edge_index", name)
    return found
