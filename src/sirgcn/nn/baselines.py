r"""The other convolutions of the paper's tables, on the same fused aggregation as `SIRConv`.

None adds self-loops by itself, and none holds an edges-by-channels tensor that its formula does not ask for. Where the
paper ran DGL's layer (Tables 1 and 2), this is DGL's function, which PyG's layer of the same name need not be.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot, reset, zeros

from sirgcn.nn.adjacency import EdgeAttr, Graph, as_neighbors, check_same_device
from sirgcn.nn.dropout import Dropout, can_drop
from sirgcn.nn.linear import Linear
from sirgcn.nn.messages import attend, deviation, dot_scores, edge_scores, head_scores, maximum, weighted_sum
from sirgcn.nn.repeated import Repeated, rows_of, through, through_edges
from sirgcn.ops import Neighbors, tiled_aggregate
from sirgcn.ops.calls import has_hooks, is_transformed
from sirgcn.ops.linear import linear
from sirgcn.ops.parts import known_parts
from sirgcn.strict import Probability, Size, checked

Rows = Tensor | Repeated


class Baseline(nn.Module):
    """A convolution that is called as `SIRConv` is: `conv(h, graph, edge, edge_weight)`.

    Args:
        in_channels: width of h.
        out_channels: width of the output.
        dropout: on h, before everything else.
    """

    # The formula of a layer: convolve(h, graph, ...) with what it takes beside these.
    convolve: Callable[..., Tensor]
    # Whether it begins with products of h, which are cheaper with the table of `Repeated` rows.
    projects_first = True

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected 0 <= p < 1, got {dropout}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.dropout: nn.Module = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.children():
            reset(module)

    @property
    def takes_repeated(self) -> bool:
        """Whether h may be `Repeated` rows of a table, with a gain: dropout makes equal rows differ."""
        return self.projects_first and not can_drop(self.dropout)

    def forward(
        self, h: Rows, graph: Graph, edge: EdgeAttr = None, edge_weight: Tensor | None = None, **context: Tensor
    ) -> Tensor:
        """Node features `(|V|, out_channels)`; `context` is what a layer needs beside the graph, see `Conv.takes`."""
        if is_transformed():
            raise RuntimeError(
                f"{type(self).__name__}: torch.func transforms and forward-mode derivatives are not supported"
            )
        if not h.is_floating_point():
            raise ValueError(f"x: expected a floating-point dtype, got {h.dtype}")
        if h.dim() != 2 or h.size(1) != self.in_channels:
            raise ValueError(f"x: expected {self.in_channels} features per node, got shape {list(h.shape)}")
        check_same_device(h, h, graph, edge, edge_weight)
        given = {"edge": edge, "edge_weight": edge_weight}
        given = {name: value for name, value in given.items() if value is not None}
        neighbors = as_neighbors(graph, h.size(0), h.size(0))
        if not (isinstance(h, Repeated) and self.takes_repeated):
            h = self.dropout(rows_of(h))
        return self.convolve(h, neighbors, **given, **context)


class MLP(Baseline):
    """W h_u + b: with it a network is an MLP that does not see the graph."""

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.lin = Linear(in_channels, out_channels)

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        return through(self.lin, h)


class GCN(Baseline):
    """DGL's GraphConv: the sum of W h_v / sqrt(in_degree(u) * out_degree(v)), plus b; times edge weights if given."""

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        zeros(self.bias)

    def convolve(self, h: Rows, graph: Neighbors, edge_weight: Tensor | None = None) -> Tensor:
        return weighted_sum(through(self.lin, h), graph, "sym", edge_weight) + self.bias


class SAGE(Baseline):
    """W h_u + b + W_N mean(h_v), or with `aggr="pool"` W_N max(relu(W_P h_v + b_P)).

    The weights of `"pool"`, the form of Tables 1 and 2, are drawn as DGL draws them, 2.4 times as large as torch does:
    with torch's, runs on HeteroEdgeCount end in worse minima.
    """

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, aggr: str = "mean") -> None:
        super().__init__(in_channels, out_channels, dropout)
        if aggr not in ("mean", "pool"):
            raise ValueError(f"aggr: expected one of mean, pool, got {aggr!r}")
        self.lin_pool = Linear(in_channels, in_channels) if aggr == "pool" else None
        self.lin_neighbors = Linear(in_channels, out_channels, bias=False)
        self.lin_self = Linear(in_channels, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.lin_pool is not None:
            for lin in (self.lin_pool, self.lin_neighbors, self.lin_self):
                nn.init.xavier_uniform_(lin.weight, gain=math.sqrt(2))

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        if self.lin_pool is None:
            neighbors = weighted_sum(through(self.lin_neighbors, h), graph, "mean")
        else:
            neighbors = self.lin_neighbors(maximum(through(self.lin_pool, h).relu(), graph))
        return through(self.lin_self, h) + neighbors


class GIN(Baseline):
    """MLP(h_u + sum(h_v)): eps is 0, and a ReLU follows every layer of the MLP, the last one too."""

    projects_first = False

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, mlp_layers: Size = 2) -> None:
        super().__init__(in_channels, out_channels, dropout)
        if mlp_layers < 1:
            raise ValueError(f"mlp_layers: expected at least 1, got {mlp_layers}")
        widths = [in_channels, *[out_channels] * (mlp_layers - 1)]
        self.mlp = nn.Sequential(*(m for width in widths for m in (Linear(width, out_channels), nn.ReLU())))

    def convolve(self, h: Tensor, graph: Neighbors) -> Tensor:
        return self.mlp(h + weighted_sum(h, graph))


class GAT(Baseline):
    """Per head the sum of alpha_uv W h_v, alpha = softmax(leaky_relu(a_T W h_u + a_S W h_v)) over N(u); plus b."""

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, heads: Size = 8) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads = _checked_heads(heads, out_channels)
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

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        value = through(self.lin, h).unflatten(1, (self.heads, -1))
        target, source = ((value * weight).sum(-1) for weight in (self.score_target, self.score_source))
        scores = edge_scores(lambda t, s: F.leaky_relu(t + s, 0.2), target, source, graph)
        return attend(scores, value, graph) + self.bias


class GATv2(Baseline):
    """Per head the sum of alpha_uv W h_v, alpha = softmax(a leaky_relu(W h_u + W h_v)); W with a bias, as in DGL.

    With `share_weights=False` the target has a W of its own. The weights of the shared form, that of Tables 1 and 2,
    are drawn as DGL draws them; those of the other as PyG does, with a W that is smaller by sqrt(2).
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
        self.heads = _checked_heads(heads, out_channels)
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

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        key = through(self.lin_key, h).unflatten(1, (self.heads, -1))
        query = key if self.lin_query is None else through(self.lin_query, h).unflatten(1, (self.heads, -1))
        scores = head_scores(query, key, self.score.squeeze(0), graph, "leaky_relu(0.2)")
        return attend(scores, key, graph)


class Transformer(Baseline):
    """W_O applied to the heads' sums of alpha_uv W_V h_v, alpha = softmax(W_Q h_u . W_K h_v / sqrt(d_head))."""

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, heads: Size = 8) -> None:
        super().__init__(in_channels, out_channels, dropout)
        self.heads = _checked_heads(heads, out_channels)
        self.lin_query, self.lin_key, self.lin_value = (Linear(in_channels, out_channels) for _ in range(3))
        self.lin_out = Linear(out_channels, out_channels)

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        lins = (self.lin_query, self.lin_key, self.lin_value)
        query, key, value = (through(lin, h).unflatten(1, (self.heads, -1)) for lin in lins)
        scores = dot_scores(query / math.sqrt(query.size(-1)), key, graph)
        return self.lin_out(attend(scores, value, graph))


class PNA(Baseline):
    r"""DGL's PNAConv with one tower and no residual.

    With messages m = W_M [h_v || h_u] + b_M, the aggregators' results times every scaler side by side as a_u, and n the
    nodes of u's graph: leaky_relu(W_X norm((W_U [h_u || a_u] + b_U) / sqrt(n)) + b_X), where norm is a batch norm.
    W_M is linear, so that its products are per node and only the aggregators pass over edges.

    Args:
        aggregators: of `sum`, `mean`, `max`, `min`, `std`; a node without neighbours gets 0.
        scalers: of `identity`, `amplification` (log(D + 1) / delta, D the in-degree), `attenuation` (its inverse).
        delta: the mean of log(D + 1) over the training nodes.
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
        _check_names("aggregators", aggregators, self.AGGREGATORS)
        _check_names("scalers", scalers, self.SCALERS)
        self.aggregators, self.scalers, self.delta = tuple(aggregators), tuple(scalers), delta
        self.lin_message = Linear(2 * in_channels, in_channels)
        self.lin_update = Linear((len(aggregators) * len(scalers) + 1) * in_channels, out_channels)
        self.norm = nn.BatchNorm1d(out_channels)
        self.lin_mix = Linear(out_channels, out_channels)

    def convolve(self, h: Rows, graph: Neighbors, batch: Tensor | None = None) -> Tensor:
        query, key, graph = self._messages(h, graph)
        degree = graph.in_degree().to(h.dtype).unsqueeze(-1)
        found = torch.cat([self._aggregated(name, query, key, graph, degree) for name in self.aggregators], dim=-1)
        scale = degree.clamp(min=1).log1p() / self.delta
        factor = {"amplification": scale, "attenuation": scale.reciprocal()}
        scaled = (found * factor[name] if name in factor else found for name in self.scalers)
        updated = self.lin_update(torch.cat([through(nn.Identity(), h), *scaled], dim=-1))
        return F.leaky_relu(self.lin_mix(self.norm(updated * _nodes_of_graph(updated, batch).rsqrt())))

    def _messages(self, h: Rows, graph: Neighbors) -> tuple[Tensor, Tensor, Neighbors]:
        """Query, key and graph with q_u + k_v for the message from v to u.

        Where somebody put another module in the place of W_M, or looks on at it, it is called with all edges, and the
        keys are their messages.
        """
        if known_parts(self.lin_message) != [self.lin_message]:
            source, target = graph.edge_index
            rows = rows_of(h)
            key = self.lin_message(torch.cat([rows.index_select(0, source), rows.index_select(0, target)], dim=-1))
            edge = torch.arange(graph.num_edges, dtype=target.dtype, device=target.device)
            messages = Neighbors.from_edge_index(torch.stack([edge, target]), (graph.num_edges, graph.num_targets))
            return torch.zeros_like(rows), key, messages
        of_source, of_target = self.lin_message.weight.split(self.in_channels, dim=1)
        query = through(lambda rows: linear(rows, of_target, self.lin_message.bias), h)
        return query, through(lambda rows: linear(rows, of_source), h), graph

    @staticmethod
    def _aggregated(name: str, query: Tensor, key: Tensor, graph: Neighbors, degree: Tensor) -> Tensor:
        """The aggregator of q_u + k_v over N(u), from that of k_v alone."""
        if name == "sum":
            return degree * query + weighted_sum(key, graph)
        if name == "std":
            # DGL adds 1e-30, with which the gradient of equal messages would be that of their rounding.
            return (degree > 0) * deviation(key, graph, 1e-10)
        if name == "mean":
            of_keys = weighted_sum(key, graph, "mean")
        else:
            of_keys = maximum(key, graph) if name == "max" else -maximum(-key, graph)
        return (degree > 0) * query + of_keys


class EGC(Baseline):
    """Per head h the sum over aggregators and bases of w_{u,h,+,b} * aggregated(W_b h_v), w = W_W h_u + b_W; plus b.

    Args:
        heads: H, by which the width of a basis is smaller than `out_channels`.
        bases: B.
        aggregators: of `sum`, `mean`, `sym_in` (1 / sqrt of the in-degrees of both ends), `max`, `std`. EGC-S has
            `sym_in`; EGC-M is what its authors took for ZINC, with `sym_in` for `sum` that of CIFAR10.
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
        self.heads, self.bases = _checked_heads(heads, out_channels), bases
        _check_names("aggregators", aggregators, self.AGGREGATORS)
        self.aggregators = tuple(aggregators)
        self.lin_bases = Linear(in_channels, bases * out_channels // heads, bias=False, weight_initializer="glorot")
        self.lin_weights = Linear(in_channels, heads * bases * len(aggregators))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        zeros(self.bias)

    def convolve(self, h: Rows, graph: Neighbors) -> Tensor:
        rows = through(self.lin_bases, h)
        found = torch.stack([self._aggregated(name, rows, graph) for name in self.aggregators], dim=1)
        terms = len(self.aggregators) * self.bases
        weights = through(self.lin_weights, h).view(-1, self.heads, terms)
        out = weights @ found.view(-1, terms, self.out_channels // self.heads)
        return out.flatten(1) + self.bias

    @staticmethod
    def _aggregated(name: str, rows: Tensor, graph: Neighbors) -> Tensor:
        if name == "max":
            return maximum(rows, graph)
        return deviation(rows, graph, 1e-5) if name == "std" else weighted_sum(rows, graph, name)


class GatedGCN(Baseline):
    """A h_u + b_A + sum(eta * (B h_v + b_B)) / (sum(eta) + 1e-6), eta = sigmoid(D h_u + b_D + E h_v + C h_uv).

    That of Benchmarking GNNs, except that the gates are not handed on from layer to layer.
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

    def convolve(self, h: Rows, graph: Neighbors, edge: EdgeAttr = None) -> Tensor:
        if (edge is None) != (self.lin_edge is None):
            wanted, got = ("none", "some") if self.lin_edge is None else ("edge features", "None")
            raise ValueError(f"edge_attr: expected {wanted}, got {got}")
        if self.lin_edge is not None:
            edge = through_edges(self.lin_edge, edge)
        ends = torch.cat([through(self.lin_key, h), through(self.lin_value, h)], dim=-1)
        # Who looks on at the gate is shown all edges.
        tile = max(1, graph.num_edges) if any(map(has_hooks, self.gate.modules())) else None
        found = tiled_aggregate(self.gate, through(self.lin_query, h), ends, graph, edge, combine="cat", tile=tile)
        value, gates = found.chunk(2, dim=-1)
        return through(self.lin_self, h) + value / (gates + 1e-6)


class _Gate(nn.Module):
    """[eta * value || eta] from [query || edge || key || value], eta the sigmoid of the sum of the first ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, ends: Tensor) -> Tensor:
        *terms, value = ends.split(self.channels, dim=-1)
        eta = sum(terms[1:], start=terms[0]).sigmoid()
        return torch.cat([eta * value, eta], dim=-1)


class FAGCN(Baseline):
    """eps * h_u^(0) + the sum of tanh(g [h_u || h_v] + b) * h_v / sqrt(in_degree(u) * in_degree(v)).

    h^(0) is what the first layer read. The width stays as it is. The network of its authors is
    `SIRNet(encoder="linear", encoder_act="relu", conv="fagcn", residual=False, norm=None, act=None)`.
    """

    projects_first = False

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0, eps: float = 0.3) -> None:
        super().__init__(in_channels, out_channels, dropout)
        if in_channels != out_channels:
            raise ValueError(f"in_channels: fagcn keeps the width, expected {out_channels}, got {in_channels}")
        self.eps = eps
        self.gate_target, self.gate_source = Linear(in_channels, 1), Linear(in_channels, 1, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw g as the authors do: one weight of both halves, by Glorot's normal distribution with a gain."""
        super().reset_parameters()
        for gate in (self.gate_target, self.gate_source):
            nn.init.normal_(gate.weight, std=math.sqrt(2) * math.sqrt(2 / (2 * gate.in_channels + 1)))

    def convolve(self, h: Tensor, graph: Neighbors, first: Tensor | None = None) -> Tensor:
        gates = edge_scores(lambda t, s: (t + s).tanh(), self.gate_target(h), self.gate_source(h), graph)
        return self.eps * (h if first is None else first) + weighted_sum(h, graph, "sym_in", gates.squeeze(-1))


def _nodes_of_graph(h: Tensor, batch: Tensor | None) -> Tensor:
    """The number of nodes of every node's graph, `(|V|, 1)`; one graph without `batch`."""
    if batch is None:
        return h.new_full((h.size(0), 1), h.size(0))
    return batch.bincount().index_select(0, batch).to(h.dtype).unsqueeze(-1)


def _checked_heads(heads: int, channels: int) -> int:
    if heads < 1 or channels % heads:
        raise ValueError(f"out_channels: expected a multiple of the {heads} heads, got {channels}")
    return heads


def _check_names(argument: str, names: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"{argument}: expected some of {', '.join(known)}, got {list(names)}")
