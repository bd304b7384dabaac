"""Convolutions that sum, average or compare the neighbours' rows: MLP, GCN, GraphSAGE, GIN, PNA and EGC."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import zeros

from sirgcn.nn.adjacency import EdgeAttr, through_edges
from sirgcn.nn.baselines.baseline import Baseline, check_edge_given, check_names, checked_heads
from sirgcn.nn.baselines.messages import deviation, edge_sum
from sirgcn.nn.linear import Linear
from sirgcn.ops import Neighbors
from sirgcn.ops.linear import linear
from sirgcn.ops.parts import known_parts
from sirgcn.ops.reductions import maximum, weighted_sum
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, check_name, checked


class MLP(Baseline):
    """W h_u + b. A network with this layer is an MLP that does not use the graph.

    >>> MLP(3, 2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.lin = Linear(in_channels, out_channels)

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        return rows.map(self.lin).expand()


class GCN(Baseline):
    """DGL's GraphConv: the sum of W h_v / sqrt(in_degree(u) * out_degree(v)), plus b.

    Edge weights multiply the terms of the sum.

    >>> GCN(3, 2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        zeros(self.bias)

    def convolve(self, rows: Rows, graph: Neighbors, edge_weight: Tensor | None = None) -> Tensor:
        return weighted_sum(rows.map(self.lin).expand(), graph, "sym", edge_weight) + self.bias


class SAGE(Baseline):
    """W h_u + b + W_N mean(h_v); with `aggr="pool"` the last term is W_N max(relu(W_P h_v + b_P)).

    The weights of `"pool"`, the form of Tables 1 and 2, are drawn as DGL draws them, 2.4 times as large as torch's.
    With torch's weights, runs on HeteroEdgeCount end in worse minima.

    >>> SAGE(3, 2, aggr="pool")(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, aggr: str = "mean") -> None:
        super().__init__(in_channels, out_channels, dropout)
        check_name("aggr", aggr, ("mean", "pool"), exact=True)
        self.lin_pool = Linear(in_channels, in_channels) if aggr == "pool" else None
        self.lin_neighbors = Linear(in_channels, out_channels, bias=False)
        self.lin_self = Linear(in_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.lin_pool is not None:
            for lin in (self.lin_pool, self.lin_neighbors, self.lin_self):
                nn.init.xavier_uniform_(lin.weight, gain=math.sqrt(2))

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        if self.lin_pool is None:
            neighbors = weighted_sum(rows.map(self.lin_neighbors).expand(), graph, "mean")
        else:
            neighbors = self.lin_neighbors(maximum(rows.map(self.lin_pool).expand().relu(), graph))
        return rows.map(self.lin_self).expand() + neighbors


class GIN(Baseline):
    """MLP(h_u + sum(h_v)): eps is 0, and a ReLU follows every layer of the MLP, including the last one.

    With edge features this is GINE, MLP(h_u + sum(relu(h_v + e_uv))), where a linear layer brings edge features of
    another width to that of h.

    >>> GIN(3, 2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    >>> GIN(3, 2, edge_dim=5)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 5)).shape
    torch.Size([4, 2])
    """

    projects_first = False

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        mlp_layers: Size = 2,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.edge_dim = edge_dim
        if mlp_layers < 1:
            raise ValueError(f"mlp_layers: expected at least 1, got {mlp_layers}")
        widths = [in_channels, *[out_channels] * (mlp_layers - 1)]
        self.mlp = nn.Sequential(*(m for width in widths for m in (Linear(width, out_channels), nn.ReLU())))
        self.lin_edge = None if edge_dim in (None, in_channels) else Linear(edge_dim, in_channels)

    def convolve(self, rows: Rows, graph: Neighbors, edge: EdgeAttr = None) -> Tensor:
        check_edge_given(edge, self.edge_dim is not None)
        h = rows.expand()
        if edge is None:
            return self.mlp(h + weighted_sum(h, graph))
        if self.lin_edge is not None:
            edge = through_edges(self.lin_edge, edge)
        return self.mlp(h + edge_sum(h, graph, edge))


class PNA(Baseline):
    r"""DGL's PNAConv with one tower and no residual.

    The output is leaky_relu(W_X norm((W_U [h_u || a_u] + b_U) / sqrt(n)) + b_X), where

    - a_u has the results of all aggregators, each multiplied by every scaler, side by side
    - the aggregators read the messages W_M [h_v || h_u] + b_M
    - n is the number of nodes of u's graph
    - norm is a batch norm

    W_M is linear, so its products are computed per node, and only the aggregators pass over the edges.

    Args:
        aggregators: names out of `sum`, `mean`, `max`, `min` and `std`; each is 0 for a node without neighbours.
        scalers: names out of `identity`, `amplification` (log(D + 1) / delta, where D is the in-degree) and
            `attenuation` (the inverse of `amplification`).
        delta: the mean of log(D + 1) over the training nodes.

    >>> PNA(3, 2, aggregators=["mean", "std"])(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 2])
    """

    AGGREGATORS = ("sum", "mean", "max", "min", "std")
    SCALERS = ("identity", "amplification", "attenuation")

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        aggregators: Sequence[str] = ("sum", "max", "std"),
        scalers: Sequence[str] = ("identity",),
        delta: float = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        check_names("aggregators", aggregators, self.AGGREGATORS)
        check_names("scalers", scalers, self.SCALERS)
        self.aggregators, self.scalers, self.delta = tuple(aggregators), tuple(scalers), delta
        self.lin_message = Linear(2 * in_channels, in_channels)
        self.lin_update = Linear((len(aggregators) * len(scalers) + 1) * in_channels, out_channels)
        self.norm = nn.BatchNorm1d(out_channels)
        self.lin_mix = Linear(out_channels, out_channels)

    def convolve(self, rows: Rows, graph: Neighbors, batch: Tensor | None = None) -> Tensor:
        query, key, graph = self._messages(rows, graph)
        degree = graph.in_degree().to(rows.dtype).unsqueeze(-1)
        found = torch.cat([self._aggregated(name, query, key, graph, degree) for name in self.aggregators], dim=-1)
        scale = degree.clamp(min=1).log1p() / self.delta
        factor = {"amplification": scale, "attenuation": scale.reciprocal()}
        scaled = (found * factor[name] if name in factor else found for name in self.scalers)
        updated = self.lin_update(torch.cat([rows.expand(), *scaled], dim=-1))
        return F.leaky_relu(self.lin_mix(self.norm(updated * _nodes_of_graph(updated, batch).rsqrt())))

    def _messages(self, rows: Rows, graph: Neighbors) -> tuple[Tensor, Tensor, Neighbors]:
        """Query, key and graph such that q_u + k_v is the message from v to u.

        If W_M was replaced by another module or has hooks, it is called with all edges. Then the keys are its messages,
        and the graph has one source per edge.
        """
        if known_parts(self.lin_message) != [self.lin_message]:
            source, target = graph.edge_index
            h = rows.expand()
            key = self.lin_message(torch.cat([h.index_select(0, source), h.index_select(0, target)], dim=-1))
            edge = torch.arange(graph.num_edges, dtype=target.dtype, device=target.device)
            messages = Neighbors.from_edge_index(torch.stack([edge, target]), (graph.num_edges, graph.num_targets))
            return torch.zeros_like(h), key, messages
        of_source, of_target = self.lin_message.weight.split(self.in_channels, dim=1)
        query = rows.map(lambda h: linear(h, of_target, self.lin_message.bias)).expand()
        return query, rows.map(lambda h: linear(h, of_source)).expand(), graph

    @staticmethod
    def _aggregated(name: str, query: Tensor, key: Tensor, graph: Neighbors, degree: Tensor) -> Tensor:
        """The aggregate of q_u + k_v over N(u), computed from the aggregate of k_v."""
        if name == "sum":
            return degree * query + weighted_sum(key, graph)
        if name == "std":
            # With DGL's 1e-30 the gradient of equal messages would depend on their rounding errors.
            return (degree > 0) * deviation(key, graph, 1e-10)
        if name == "mean":
            of_keys = weighted_sum(key, graph, "mean")
        else:
            of_keys = maximum(key, graph) if name == "max" else -maximum(-key, graph)
        return (degree > 0) * query + of_keys


class EGC(Baseline):
    """Per head h, the sum over aggregators and bases of w_{u,h,+,b} * aggregated(W_b h_v), w = W_W h_u + b_W; plus b.

    Args:
        heads: H; a basis has the width `out_channels` / H.
        bases: B.
        aggregators: names out of `sum`, `mean`, `sym_in` (1 / sqrt of the in-degrees of both ends), `max` and `std`.
            EGC-S has `sym_in`. EGC-M has the aggregators that its authors used for ZINC; for CIFAR10 they used
            `sym_in` in place of `sum`.

    >>> EGC(3, 8, heads=2)(torch.randn(4, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([4, 8])
    """

    AGGREGATORS = ("sum", "mean", "sym_in", "max", "std")

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        dropout: Probability = 0.0,
        heads: Size = 8,
        bases: Size = 4,
        aggregators: Sequence[str] = ("sym_in",),
    ) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads, self.bases = checked_heads(heads, out_channels), bases
        check_names("aggregators", aggregators, self.AGGREGATORS)
        self.aggregators = tuple(aggregators)
        self.lin_bases = Linear(in_channels, bases * out_channels // heads, bias=False, weight_initializer="glorot")
        self.lin_weights = Linear(in_channels, heads * bases * len(aggregators))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        zeros(self.bias)

    def convolve(self, rows: Rows, graph: Neighbors) -> Tensor:
        bases = rows.map(self.lin_bases).expand()
        found = torch.stack([self._aggregated(name, bases, graph) for name in self.aggregators], dim=1)
        terms = len(self.aggregators) * self.bases
        weights = rows.map(self.lin_weights).expand().view(-1, self.heads, terms)
        out = weights @ found.view(-1, terms, self.out_channels // self.heads)
        return out.flatten(1) + self.bias

    @staticmethod
    def _aggregated(name: str, rows: Tensor, graph: Neighbors) -> Tensor:
        if name == "max":
            return maximum(rows, graph)
        return deviation(rows, graph, 1e-5) if name == "std" else weighted_sum(rows, graph, name)


def _nodes_of_graph(h: Tensor, batch: Tensor | None) -> Tensor:
    """The number of nodes in the graph of each node, `(|V|, 1)`. Without `batch` there is one graph."""
    if batch is None:
        return h.new_full((h.size(0), 1), h.size(0))
    return batch.bincount().index_select(0, batch).to(h.dtype).unsqueeze(-1)
