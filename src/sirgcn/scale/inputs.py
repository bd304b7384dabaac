"""What layer-wise inference reads of a graph, in memory or on disk."""

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data import DataError, Graphs
from sirgcn.nn import SIRNet
from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.ops import Neighbors
from sirgcn.ops.sampling import InEdges


class Inputs(Protocol):
    """The inputs of a network for one graph."""

    @property
    def num_nodes(self) -> int:
        """|V|."""

    @property
    def width(self) -> int:
        """The number of features of a node."""

    @property
    def folder(self) -> Path | None:
        """Where what does not fit into memory may be kept; None for a graph in memory."""

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The features of a range of nodes, and their positional encoding."""

    def in_edges(self) -> InEdges:
        """The edges grouped by target."""

    def has_edge_inputs(self) -> bool:
        """Whether edges have features or weights."""

    def edges(self, net: SIRNet, graph: Neighbors, edge: Tensor) -> tuple[EdgeAttr, Tensor | None]:
        """What the blocks of the network read of some edges, and their weights."""


def inputs_of(data: Any, net: nn.Module) -> Inputs:
    """The inputs that a graph gives to a network.

    >>> import torch
    >>> net = SIRNet.of(3, 8, 2, num_layers=1)
    >>> inputs_of(Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0], [1]])), net).num_nodes
    4
    """
    if hasattr(data, "in_edges") and hasattr(data, "read"):
        found: Inputs = data
    elif isinstance(data, Data):
        found = _InMemory(data)
    elif isinstance(data, Graphs):
        if data.num_graphs != 1:
            raise ValueError(f"data: expected one graph, got {data.num_graphs}")
        found = _InMemory(data.batch())
    else:
        raise TypeError(f"data: expected PyG's Data, Graphs or a DiskGraph, got {type(data).__name__}")
    if not isinstance(net, SIRNet):
        raise TypeError(f"net: expected a SIRNet, got {type(net).__name__}")
    if net.edge_dim is not None and net.config.edges.type != "constant" and not found.has_edge_inputs():
        raise ValueError("edge_attr: this network expects edge features, got none")
    return found


class _InMemory:
    """The inputs of a graph in memory."""

    folder = None

    def __init__(self, data: Data) -> None:
        for name in ("x", "edge_index"):
            if not isinstance(data.get(name), Tensor):
                raise DataError(f"expected a tensor, got {type(data.get(name)).__name__}", name, "data")
        self.data, self.num_nodes = data, int(data.x.size(0))
        self.width = int(data.x.size(1)) if data.x.dim() == 2 else 1
        self.kept: InEdges | None = None

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        pe = self.data.get("pe")
        return self.data.x[start:stop], None if pe is None else pe[start:stop]

    def in_edges(self) -> InEdges:
        if self.kept is None:
            self.kept = InEdges.of(self.data.edge_index, (self.num_nodes, self.num_nodes))
        return self.kept

    def has_edge_inputs(self) -> bool:
        return any(self.data.get(name) is not None for name in ("edge_attr", "edge_weight", "edge_pe"))

    def edges(self, net: SIRNet, graph: Neighbors, edge: Tensor) -> tuple[EdgeAttr, Tensor | None]:
        given = {name: self.data.get(name) for name in ("edge_attr", "edge_weight", "edge_pe")}
        found = {name: None if tensor is None else tensor[edge] for name, tensor in given.items()}
        return net._encoded_edges(found["edge_attr"], found["edge_pe"], graph), found["edge_weight"]
