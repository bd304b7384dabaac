"""Batches of clusters: the graph is divided once, and a batch is the graph between the nodes of a few parts."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_data

from sirgcn.data import DataError
from sirgcn.ops.checks import check_range
from sirgcn.ops.sampling import Draw, InEdges, draw_neighbors, new_numbers
from sirgcn.scale.partition import part_nodes


class ClusterLoader(DataLoader[int]):
    """Batches of Cluster-GCN (Chiang et al., KDD 2019): all nodes of a few parts, and all edges between them.

    Few edges join different parts, so that a batch loses little of its neighbourhoods, and every node of a batch is
    trained on. PyG's `ClusterData` needs a compiled extension; this loader needs none.

    Args:
        data: PyG's `Data`.
        parts: the part of every node, int64 `[V]`, as `part_nodes` gives it; or the number of parts.
        kwargs: the options of torch's `DataLoader`; `batch_size` is the number of parts in a batch.

    A batch has the tensors of `data` for its nodes and edges, their numbers in it (`n_id`, `e_id`), and `part`, the
    part of every node.

    >>> ring = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    >>> loader = ClusterLoader(ring, torch.tensor([0, 0, 1, 1]))
    >>> [(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader]
    [([0, 1], [0]), ([2, 3], [2])]
    """

    def __init__(self, data: Data, parts: Tensor | int, **kwargs: Any) -> None:
        nodes = int(data.num_nodes or 0)
        if not isinstance(data.get("edge_index"), Tensor):
            raise DataError(f"expected a tensor, got {type(data.get('edge_index')).__name__}", "edge_index", "data")
        if isinstance(parts, int):
            parts = part_nodes(data.edge_index, nodes, parts)
        if parts.shape != (nodes,) or parts.dtype != torch.int64:
            raise DataError(f"expected int64 [{nodes}], got {parts.dtype} {list(parts.shape)}", "parts")
        count = int(parts.max()) + 1 if nodes else 0
        check_range(parts, count, "parts[{}]", "the number of parts")
        self.data, self.part = data, parts
        self.edges = InEdges.of(data.edge_index, (nodes, nodes))
        self.order = torch.sort(parts, stable=True).indices
        self.starts = torch.cat([parts.new_zeros(1), torch.bincount(parts, minlength=count).cumsum(0)])
        kwargs.pop("collate_fn", None)
        kwargs.pop("dataset", None)
        super().__init__(range(count), collate_fn=self.between, **kwargs)  # type: ignore[arg-type]

    def between(self, parts: Sequence[int]) -> Data:
        """The nodes of some parts, and the edges between them."""
        nodes = torch.cat([self.order[self.starts[part] : self.starts[part + 1]] for part in parts])
        numbers = new_numbers()
        numbers.add(nodes)
        found, col, edge = draw_neighbors(self.edges, nodes, Draw(-1, 0))
        row = numbers.find(found)
        inside = row >= 0
        batch = filter_data(self.data, nodes, row[inside], col[inside], edge[inside])
        batch.n_id, batch.e_id, batch.part = nodes, edge[inside], self.part[nodes]
        return batch
