"""Graphs that are hard to partition, for the tests of ranks."""

import torch

from sirgcn.data import Graphs, Schema, Split, Task

GRAPHS = ("random", "empty rank", "no halo", "isolated nodes", "no edges", "one way")


def graph(name: str, ranks: int, nodes: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """The edges of a graph, and the rank that owns each node."""
    draw = torch.Generator().manual_seed(7)
    edge_index = torch.randint(0, nodes, (2, 5 * nodes), generator=draw)
    part = torch.randint(0, ranks, (nodes,), generator=draw)
    if name == "empty rank":
        part[part == ranks - 1] = 0
    elif name == "no halo":
        edge_index = edge_index[:, part[edge_index[0]] == part[edge_index[1]]]
    elif name == "isolated nodes":
        edge_index = edge_index[:, (edge_index < nodes // 2).all(0)]
    elif name == "no edges":
        edge_index = edge_index[:, :0]
    elif name == "one way":
        # The last rank only sends, and the first only receives.
        edge_index = edge_index[:, part[edge_index[0]] > part[edge_index[1]]]
    return edge_index, part


def task_on(
    name: str, ranks: int, dtype: torch.dtype, edge_features: int = 0, nodes: int = 60
) -> tuple[Task, torch.Tensor]:
    """A task on the nodes of such a graph, and the rank that owns each node."""
    draw = torch.Generator().manual_seed(8)
    edge_index, part = graph(name, ranks, nodes)
    edge_attr = None
    if edge_features:
        edge_attr = torch.randn(edge_index.size(1), edge_features, generator=draw, dtype=dtype)
    x = torch.randn(nodes, 5, generator=draw, dtype=dtype)
    y = torch.arange(nodes) % 3
    graphs = Graphs(x, edge_index, y, "node", edge_attr=edge_attr)
    schema = Schema(features=5, edge_features=edge_features, outputs=3)
    return Task(name, graphs, schema, (Split.draw(nodes),), "cross_entropy", "accuracy"), part
