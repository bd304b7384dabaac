"""Plain forms of fast layers, for tests and for benchmarks: the same parameters, and no fast route."""

import torch
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

    def _has_plain_gate(self) -> bool:
        return False


class MaterialisedGatedGCN(PlainGatedGCN):
    """`GatedGCN` as most code of others computes it: a tensor with a row of every edge for each step. No edge features.

    >>> MaterialisedGatedGCN(3, 2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    def _plain_sums(
        self, own: Tensor, query: Tensor, key: Tensor, value: Tensor, graph: Neighbors, edge: EdgeAttr
    ) -> Tensor:
        source, target = graph.edge_index
        gates = torch.sigmoid(query.index_select(0, target) + key.index_select(0, source))
        nothing = torch.zeros_like(own)
        total = nothing.index_add(0, target, gates * value.index_select(0, source))
        return own + total / (nothing.index_add(0, target, gates) + 1e-6)
