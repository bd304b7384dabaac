"""A graph on disk: features and edges in files that are mapped into memory, behind a manifest with a hash per block."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data import DataError
from sirgcn.nn import SIRNet
from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.ops import Neighbors
from sirgcn.ops.sampling import InEdges
from sirgcn.scale.manifest import Manifest
from sirgcn.scale.rows import FileTable, map_file

POINTERS, SOURCES, FEATURES, LABELS = "pointers.bin", "sources.bin", "features.bin", "labels.bin"


class DiskGraph:
    """A graph in a folder that `convert` has written. Only the pointers, 8 bytes per node, are held in memory.

    `NeighborSampler` draws from it, `layerwise` predicts on it, and `data` gives its features to PyG's loaders. All
    processes of a machine share its pages.

    Args:
        folder: the folder.
        verify: compare every block with its hash. The sizes of the files are compared in any case.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.scale import convert
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "edges.csv").write_text("source,target\\n0,1\\n2,1\\n1,0\\n")
    ...     graph = convert(Path(folder, "graph"), Path(folder, "edges.csv"))
    ...     graph, graph.in_edges().node.tolist()
    (DiskGraph(num_nodes=3, num_edges=3, width=0), [1, 0, 2])
    """

    def __init__(self, folder: str | Path, verify: bool = True) -> None:
        self.folder = Path(folder)
        self.manifest = Manifest.read(self.folder)
        self.manifest.check_sizes(self.folder)
        if verify:
            self.manifest.check_content(self.folder)

    @property
    def num_nodes(self) -> int:
        """The number of nodes, `|V|`."""
        return self.manifest.num_nodes

    @property
    def num_edges(self) -> int:
        """The number of edges, `|E|`."""
        return self.manifest.num_edges

    @property
    def width(self) -> int:
        """The number of features of a node."""
        return self.manifest.width

    @functools.cached_property
    def _pointers(self) -> Tensor:
        ptr = FileTable(self.folder / POINTERS, (self.num_nodes + 1, 1), torch.int64).read(0, self.num_nodes + 1)
        ptr = ptr.flatten()
        if int(ptr[0]) or int(ptr[-1]) != self.num_edges or bool((ptr.diff() < 0).any()):
            raise DataError(f"expected numbers that rise from 0 to {self.num_edges}", "pointers", str(self.folder))
        return ptr

    def in_edges(self) -> InEdges:
        """The edges grouped by target. An edge is numbered by its place among them."""
        dtype = torch.int64 if self.manifest.wide else torch.int32
        node = map_file(self.folder / SOURCES, self.num_edges, dtype)
        return InEdges(self._pointers, node, None, self.num_nodes)

    @property
    def x(self) -> Tensor:
        """The features of all nodes, `[V, F]`; their pages are read as they are needed."""
        return self._features().whole()

    def data(self) -> Data:
        """Features and labels as PyG's `Data`, for `NodeLoader`; it has no `edge_index`, which batches get."""
        found = Data(x=self.x, num_nodes=self.num_nodes, edge_index=torch.empty(2, 0, dtype=torch.int64))
        if self.manifest.label:
            dtype = torch.int64 if self.manifest.label == "class" else torch.float32
            found.y = map_file(self.folder / LABELS, self.num_nodes, dtype)
        return found

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        """The features of a range of nodes, and None for their encoding."""
        return self._features().read(start, stop), None

    def _features(self) -> FileTable:
        if not self.width:
            raise DataError(
                "expected node features, got a graph that was converted without nodes", "x", str(self.folder)
            )
        return FileTable(self.folder / FEATURES, (self.num_nodes, self.width), torch.float32)

    def has_edge_inputs(self) -> bool:
        """False: edges on disk have neither features nor weights."""
        return False

    def edges(self, net: SIRNet, graph: Neighbors, edge: Tensor) -> tuple[EdgeAttr, Tensor | None]:
        """What the blocks of a network read of edges: nothing, or a learned row that all edges share."""
        return net._encoded_edges(None, None, graph), None

    def __getstate__(self) -> dict[str, Any]:
        """Without the maps: another process opens the files itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_pointers"}

    def __repr__(self) -> str:
        return f"DiskGraph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, width={self.width})"
