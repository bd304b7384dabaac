"""Convolutions that multiply each message by a gate, which both ends of the edge compute."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sirgcn.nn.adjacency import EdgeAttr, through_edges
from sirgcn.nn.baselines.baseline import Baseline, check_edge_given
from sirgcn.nn.baselines.messages import edge_scores, gated_sum, gated_sums
from sirgcn.nn.linear import Linear, side_by_side
from sirgcn.ops import Activation, Grouping, Neighbors, tiled_aggregate
from sirgcn.ops.calls import has_hooks, is_exporting, is_touched
from sirgcn.ops.columns import split_columns
from sirgcn.ops.reductions import weighted_sum
from sirgcn.ops.rows import Rows, look_up
from sirgcn.strict import Probability, Size, checked


class GatedGCN(Baseline):
    """A h_u + b_A + sum(eta * (B h_v + b_B)) / (sum(eta) + 1e-6), eta = sigmoid(z), z = D h_u + b_D + E h_v + C h_uv.

    This is the layer of Benchmarking GNNs. With `passes_edges=True` it also returns z, a row of every edge, from which
    a block of `SIRNet` makes the edge features of the next layer. E and C then have a bias too, as published.

    >>> GatedGCN(3, 2, edge_dim=5)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 5)).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        edge_dim: int | None = None,
        passes_edges: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        if passes_edges and edge_dim is None:
            raise ValueError(
                "passes_edges: expected False for a layer without edge features, got True; a network with "
                "edge_encoder='constant' gives all edges the same ones"
            )
        self.passes_edges = passes_edges
        self.lin_self, self.lin_value, self.lin_query = (Linear(in_channels, out_channels) for _ in range(3))
        self.lin_key = Linear(in_channels, out_channels, bias=passes_edges)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, out_channels, bias=passes_edges)
        self.gate = _Gate(out_channels)

    @property
    def can_take_rows(self) -> bool:
        """Whether rows that several nodes share save work here. They do not where every edge has a row of its own."""
        return super().can_take_rows and not self.passes_edges

    def convolve(self, rows: Rows, graph: Neighbors, edge: EdgeAttr = None) -> Any:
        """The output; with `passes_edges` a pair of the output and z."""
        edge = _projected_edge(self.lin_edge, edge)
        linears = [self.lin_self, self.lin_query, self.lin_key, self.lin_value]
        stacked = side_by_side(linears, rows).expand()
        if not self.passes_edges and self._has_plain_gate():
            return gated_sums(stacked, graph, edge=edge, reduce="gates")
        own, query, key, value = split_columns(stacked, len(linears))
        if not self.passes_edges:
            return self._plain_sums(own, query, key, value, graph, edge)
        z = _before_gate(query, key, graph, edge)
        # Everything is in the edge term now.
        nothing = z.new_zeros(z.size(1)).expand_as(own)
        return self._sums(own, nothing, nothing, value, graph, z), z

    def _sums(self, own: Tensor, query: Tensor, key: Tensor, value: Tensor, graph: Neighbors, edge: EdgeAttr) -> Tensor:
        """own_u + sum(eta * value) / (sum(eta) + 1e-6)."""
        if self._has_plain_gate():
            return gated_sum(query, key, value, graph, edge, reduce="gates", start=own)
        return self._plain_sums(own, query, key, value, graph, edge)

    def _has_plain_gate(self) -> bool:
        """Whether nobody sees the gates of the edges, or computes other ones."""
        # torch.export calls a subclass of every module.
        is_ours = isinstance(self.gate, _Gate) if is_exporting() else type(self.gate) is _Gate
        return is_ours and not is_touched(self.gate)

    def _plain_sums(
        self, own: Tensor, query: Tensor, key: Tensor, value: Tensor, graph: Neighbors, edge: EdgeAttr
    ) -> Tensor:
        """The same through the module `gate`, in tiles of edges."""
        # A hook on the gate sees all edges at once.
        tile = max(1, graph.num_edges) if any(map(has_hooks, self.gate.modules())) else None
        ends = torch.cat([key, value], dim=-1)
        found = tiled_aggregate(self.gate, query, ends, graph, edge, combine="cat", tile=tile)
        value, gates = found.chunk(2, dim=-1)
        return own + value / (gates + 1e-6)


class _Gate(nn.Module):
    """[eta * value || eta] from [query || edge || key || value], where eta = sigmoid(query + edge + key)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, ends: Tensor) -> Tensor:
        *terms, value = ends.split(self.channels, dim=-1)
        eta = sum(terms[1:], start=terms[0]).sigmoid()
        return torch.cat([eta * value, eta], dim=-1)


class ResGatedGCN(Baseline):
    """A h_u + b_A + sum(sigma(D h_u + b_D + E h_v + C h_uv) * (B h_v + F h_uv + b_B)), sigma the sigmoid.

    This is the layer of PyG's `ResGatedGraphConv`, whose weights `from_res_gated` takes over. Without edge features it
    is `SIRConv(gated=True)` with W_R = I.

    >>> ResGatedGCN(3, 2, edge_dim=5)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 5)).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        edge_dim: int | None = None,
        activation: str | Activation = "sigmoid",
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.activation = Activation.parse(activation)
        self.lin_self, self.lin_query, self.lin_value = (Linear(in_channels, out_channels) for _ in range(3))
        self.lin_key = Linear(in_channels, out_channels, bias=False)
        # C and F: the gate's part and the value's.
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, 2 * out_channels, bias=False)

    def convolve(self, rows: Rows, graph: Neighbors, edge: EdgeAttr = None) -> Tensor:
        edge = _projected_edge(self.lin_edge, edge)
        of_target, of_source = [self.lin_self, self.lin_query], [self.lin_key, self.lin_value]
        if edge is None:
            return gated_sums(side_by_side([*of_target, *of_source], rows).expand(), graph, self.activation)
        own, query = split_columns(side_by_side(of_target, rows).expand(), 2)
        ends = look_up(side_by_side(of_source, rows).expand(), graph.edge_index[0]) + _row_of_every_edge(edge)
        key, value = split_columns(ends, 2)
        graph = _with_edges_as_sources(graph)
        return gated_sum(query, key, value, graph, activation=self.activation, start=own)


def _projected_edge(lin_edge: nn.Module | None, edge: EdgeAttr) -> EdgeAttr:
    """The edge term; edge features that a layer misses, or has no use for, are refused."""
    check_edge_given(edge, lin_edge is not None)
    return None if lin_edge is None else through_edges(lin_edge, edge)


def _before_gate(query: Tensor, key: Tensor, graph: Neighbors, edge: EdgeAttr) -> Tensor:
    """query_u + key_v + edge_uv of every edge, `(|E|, d)`."""
    source, target = graph.edge_index
    return look_up(query, target) + look_up(key, source) + _row_of_every_edge(edge)


def _row_of_every_edge(edge: EdgeAttr) -> Tensor:
    """Edge features with a row for every edge."""
    if isinstance(edge, tuple):
        return look_up(*edge)
    assert edge is not None
    return edge


def _with_edges_as_sources(graph: Neighbors) -> Neighbors:
    """The same edges, each with a source of its own: source i is the start of edge i of the input."""
    ptr, _, edge = graph.by_target
    each = torch.arange(graph.num_edges, dtype=edge.dtype, device=edge.device)
    ends = torch.arange(graph.num_edges + 1, dtype=edge.dtype, device=edge.device)
    target = graph.edge_index[1].to(edge.dtype)
    by_source = Grouping(ends, target, each)
    return Neighbors(
        torch.stack([each, target]),
        Grouping(ptr, edge, edge),
        by_source,
        graph.num_edges,
        graph.num_targets,
        is_checked=True,
    )


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
