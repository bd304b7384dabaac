"""Graphs for the 1-WL test: any small labelled graph, and well-known pairs."""

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected


@st.composite
def labelled_graphs(draw: st.DrawFn, isolated: bool = True, undirected: bool = False) -> Data:
    """Labels 0, 1, 2, self-loops and repeated edges occur. With `isolated=False` every node has an in-neighbour."""
    num_nodes = draw(st.integers(1, 7))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=12))
    if not isolated:
        edges += [(draw(node), u) for u in range(num_nodes)]
    if undirected:
        edges += [(u, v) for v, u in edges if u != v]
    labels = draw(st.lists(st.integers(0, 2), min_size=num_nodes, max_size=num_nodes))
    return Data(x=torch.tensor(labels), edge_index=torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous())


def permuted(data: Data, seed: int) -> Data:
    """The same graph with its nodes in another order."""
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(seed))
    place = order.argsort()
    x = None if data.x is None else data.x[order]
    return Data(x=x, edge_index=place[data.edge_index], num_nodes=data.num_nodes)


def tree(nodes: int, seed: int) -> Data:
    """A random tree: every node except the first is joined to an earlier one."""
    generator = torch.Generator().manual_seed(seed)
    parents = [int(torch.randint(child, (1,), generator=generator)) for child in range(1, nodes)]
    edges = torch.tensor([parents, list(range(1, nodes))], dtype=torch.int64)
    return Data(edge_index=to_undirected(edges), num_nodes=nodes)


def same_classes(one: Tensor, other: Tensor) -> bool:
    """Whether two colourings have the same classes, even if the numbers of the colours differ."""
    return bool(torch.equal(one[:, None] == one, other[:, None] == other))
