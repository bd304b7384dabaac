"""Convolutions that multiply each message by a gate, which both ends of the edge compute: GatedGCN and FAGCN."""

import math

import torch
from torch import Tensor, nn

from sirgcn.nn.adjacency import EdgeAttr, through_edges
from sirgcn.nn.baselines.baseline import Baseline
from sirgcn.nn.baselines.messages import edge_scores
from sirgcn.nn.linear import Linear
from sirgcn.ops import Neighbors, tiled_aggregate
from sirgcn.ops.calls import has_hooks
from sirgcn.ops.reductions import weighted_sum
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, checked


class GatedGCN(Baseline):
    """A h_u + b_A + sum(eta * (B h_v + b_B)) / (sum(eta) + 1e-6), eta = sigmoid(D h_u + b_D + E h_v + C h_uv).

    This is the layer of Benchmarking GNNs, except that a layer does not pass its gates to the next layer.

    >>> GatedGCN(3, 2, edge_dim=5)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 5)).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(
        self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, edge_dim: int | None = None
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.lin_self, self.lin_value, self.lin_query = (Linear(in_channels, out_channels) for _ in range(3))
        self.lin_key = Linear(in_channels, out_channels, bias=False)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, out_channels, bias=False)
        self.gate = _Gate(out_channels)

    def convolve(self, rows: Rows, graph: Neighbors, edge: EdgeAttr = None) -> Tensor:
        if (edge is None) != (self.lin_edge is None):
            wanted, got = ("none", "some") if self.lin_edge is None else ("edge features", "None")
            raise ValueError(f"edge_attr: expected {wanted}, got {got}")
        if self.lin_edge is not None:
            edge = through_edges(self.lin_edge, edge)
        ends = torch.cat([rows.map(self.lin_key).expand(), rows.map(self.lin_value).expand()], dim=-1)
        # A hook on the gate sees all edges at once.
        tile = max(1, graph.num_edges) if any(map(has_hooks, self.gate.modules())) else None
        query = rows.map(self.lin_query).expand()
        found = tiled_aggregate(self.gate, query, ends, graph, edge, combine="cat", tile=tile)
        value, gates = found.chunk(2, dim=-1)
        return rows.map(self.lin_self).expand() + value / (gates + 1e-6)


class _Gate(nn.Module):
    """[eta * value || eta] from [query || edge || key || value], where eta = sigmoid(query + edge + key)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, ends: Tensor) -> Tensor:
        *terms, value = ends.split(self.channels, dim=-1)
        eta = sum(terms[1:], start=terms[0]).sigmoid()
        return torch.cat([eta * value, eta], dim=-1)


class FAGCN(Baseline):
    """eps * h_u^(0) + the sum of tanh(g [h_u || h_v] + b) * h_v / sqrt(in_degree(u) * in_degree(v)).

    h^(0) is the input of the first layer. The output is as wide as the input. The authors' network is `fagcn` of
    `NETWORKS`.

    >>> FAGCN(4, 4)(torch.randn(5, 4), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    projects_first = False

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, eps: float = 0.3) -> None:
        super().__init__(in_channels, out_channels, dropout)
        if in_channels != out_channels:
            raise ValueError(f"in_channels: expected {out_channels}, because fagcn keeps the width, got {in_channels}")
        self.eps = eps
        self.gate_target, self.gate_source = Linear(in_channels, 1), Linear(in_channels, 1, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw g as the authors do: both halves as one weight, from Glorot's normal distribution with a gain."""
        super().reset_parameters()
        for gate in (self.gate_target, self.gate_source):
            nn.init.normal_(gate.weight, std=math.sqrt(2) * math.sqrt(2 / (2 * gate.in_channels + 1)))

    def convolve(self, rows: Rows, graph: Neighbors, first: Tensor | None = None) -> Tensor:
        h = rows.expand()
        gates = edge_scores(lambda t, s: (t + s).tanh(), self.gate_target(h), self.gate_source(h), graph)
        return self.eps * (h if first is None else first) + weighted_sum(h, graph, "sym_in", gates.squeeze(-1))
