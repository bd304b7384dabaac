"""Convolutions that weigh the neighbours by attention: GAT, GATv2 and the graph transformer."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot, zeros

from sirgcn.nn.baselines.baseline import Baseline, checked_heads
from sirgcn.nn.baselines.messages import attend, dot_scores, edge_scores, head_scores
from sirgcn.nn.linear import Linear
from sirgcn.ops import Neighbors
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, checked


class GAT(Baseline):
    """Per head, the sum of alpha_uv W h_v, alpha = softmax(leaky_relu(a_T W h_u + a_S W h_v)) over N(u); plus b.

    >>> GAT(3, 8, heads=2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 8])
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, heads: Size = 8) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads = checked_heads(heads, out_channels)
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.score_target = nn.Parameter(torch.empty(1, heads, out_channels // heads))
        self.score_source = nn.Parameter(torch.empty(1, heads, out_channels // heads))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        glorot(self.score_target)
        glorot(self.score_source)
        zeros(self.bias)

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        value = rows.map(self.lin).expand().unflatten(1, (self.heads, -1))
        target, source = ((value * weight).sum(-1) for weight in (self.score_target, self.score_source))
        scores = edge_scores(lambda t, s: F.leaky_relu(t + s, 0.2), target, source, graph)
        return attend(scores, value, graph) + self.bias


class GATv2(Baseline):
    """Per head, the sum of alpha_uv W h_v, alpha = softmax(a leaky_relu(W h_u + W h_v)); W has a bias, as in DGL.

    With `share_weights=False` the targets have a second W. The shared form is that of Tables 1 and 2, and its weights
    are drawn as DGL draws them. The weights of the other form are drawn as PyG draws them, with a W that is smaller by
    sqrt(2).

    >>> GATv2(3, 8, heads=2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 8])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        heads: Size = 1,
        share_weights: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads = checked_heads(heads, out_channels)
        lin = partial(Linear, in_channels, out_channels, weight_initializer="glorot", bias_initializer="zeros")
        self.lin_key = lin()
        self.lin_query = None if share_weights else lin()
        self.score = nn.Parameter(torch.empty(1, heads, out_channels // heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.lin_query is None:
            for weight in (self.lin_key.weight, self.score):
                nn.init.xavier_normal_(weight, gain=math.sqrt(2))
        else:
            glorot(self.score)

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        key = rows.map(self.lin_key).expand().unflatten(1, (self.heads, -1))
        query = key if self.lin_query is None else rows.map(self.lin_query).expand().unflatten(1, (self.heads, -1))
        scores = head_scores(query, key, self.score.squeeze(0), graph, "leaky_relu(0.2)")
        return attend(scores, key, graph)


class Transformer(Baseline):
    """W_O times the heads' sums of alpha_uv W_V h_v, alpha = softmax(W_Q h_u . W_K h_v / sqrt(d_head)).

    >>> Transformer(3, 8)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 8])
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, heads: Size = 8) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads = checked_heads(heads, out_channels)
        self.lin_query, self.lin_key, self.lin_value = (Linear(in_channels, out_channels) for _ in range(3))
        self.lin_out = Linear(out_channels, out_channels)

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        lins = (self.lin_query, self.lin_key, self.lin_value)
        query, key, value = (rows.map(lin).expand().unflatten(1, (self.heads, -1)) for lin in lins)
        scores = dot_scores(query / math.sqrt(query.size(-1)), key, graph)
        return self.lin_out(attend(scores, value, graph))
