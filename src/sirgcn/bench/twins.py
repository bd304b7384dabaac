"""Plain forms of fast layers, for tests and for benchmarks: the same parameters, and no fast route."""

from torch import Tensor

from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.nn.baselines import GatedGCN
from sirgcn.ops import Neighbors


class PlainGatedGCN(GatedGCN):
    """`GatedGCN` by a network on every edge, in tiles of edges.

    >>> import torch
    >>> PlainGatedGCN(3, 2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    def _sums(self, own: Tensor, query: Tensor, key: Tensor, value: Tensor, graph: Neighbors, edge: EdgeAttr) -> Tensor:
        return self._plain_sums(own, query, key, value, graph, edge)
