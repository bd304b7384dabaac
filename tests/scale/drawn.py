"""Graphs that the tests of this room draw."""

import torch
from torch_geometric.data import Data, HeteroData

from sirgcn.data import Graphs, Schema, Split, Task


def drawn_data(nodes: int = 100, edges: int = 600, seed: int = 0) -> Data:
    """A graph whose features, labels and edge features tell its nodes and edges apart."""
    random = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(nodes, 4, generator=random),
        edge_index=torch.randint(nodes, (2, edges), generator=random),
        edge_attr=torch.arange(edges, dtype=torch.float32).unsqueeze(1),
        y=torch.arange(nodes) % 3,
    )


def drawn_types(seed: int = 0) -> HeteroData:
    """Papers and authors; two types of edges join them, and one joins papers."""
    random = torch.Generator().manual_seed(seed)
    data = HeteroData()
    sizes = {"paper": 100, "author": 200}
    for name, size in sizes.items():
        data[name].x = torch.randn(size, 4, generator=random)
    for source, target, edges in (("paper", "paper", 500), ("paper", "author", 1000), ("author", "paper", 1000)):
        ends = [torch.randint(sizes[name], (edges,), generator=random) for name in (source, target)]
        data[source, "to", target].edge_index = torch.stack(ends)
        data[source, "to", target].edge_attr = torch.arange(edges)
    return data


def drawn_task(nodes: int = 300, seed: int = 0) -> Task:
    """Labels that a node can only read off its neighbours."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 4, generator=random)
    edge_index = torch.randint(nodes, (2, 10 * nodes), generator=random)
    total = torch.zeros(nodes).index_add(0, edge_index[1], x[edge_index[0], 0])
    parts = torch.randperm(nodes, generator=random).split([nodes // 2, nodes // 4, nodes - nodes // 2 - nodes // 4])
    graphs = Graphs(x, edge_index, (total > 0).long(), "node")
    return Task("drawn", graphs, Schema(features=4, outputs=2), (Split(*parts),), "cross_entropy", "accuracy")
