"""`SIRConv`: the paper's layer as a `MessagePassing` module of PyG."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.typing import OptTensor

from sirgcn.nn.adjacency import (
    EdgeAttr,
    Graph,
    as_edge_index,
    as_neighbors,
    check_same_device,
    count_edges,
    plain_edge_attr,
    through_edges,
    with_stored_values,
)
from sirgcn.nn.dropout import dropout
from sirgcn.nn.gates import check_gate, check_gated, key_and_value
from sirgcn.nn.inputs import both_ends, check_features, check_message_network, checked_channels, in_width, pair
from sirgcn.nn.linear import Linear, side_by_side
from sirgcn.nn.neighbourhood import CONTEXTS, in_context
from sirgcn.nn.propagate import degree_weights, needs_propagate
from sirgcn.nn.slopes import PReLU, is_fused, learned_slopes, make_sigma, summed
from sirgcn.ops import Activation, Neighbors, sir_aggregate
from sirgcn.ops.activation import Sigma
from sirgcn.ops.arguments import check_edge
from sirgcn.ops.backend import choose_backend
from sirgcn.ops.calls import is_exporting
from sirgcn.ops.rows import Rows
from sirgcn.ops.sharing import aggregate_network
from sirgcn.ops.tiles import COMBINE
from sirgcn.strict import Probability, Size, check_name, checked

AGGREGATORS = ("sum", "mean", "sym", "sym_in", "max")
"""The aggregators of `SIRConv`; PyG's `add` is taken for `sum`."""

VARIANTS = ("corrected", "published")


class SIRConv(MessagePassing):
    r"""The soft-isomorphic relational graph convolution of `"Contextualized Messages Boost Graph Representations"
    <https://openreview.net/forum?id=sXr1fRjs1N>`_ (Eq. 11, with the residual of Section 4.3 and
    the edge features of Appendix E).

    .. math::
        h_u^* = \mathrm{MLP}_{Res}(h_u) + \bigoplus_{v \in N(u)} W_R \, \sigma(W_Q h_u + W_E h_{u,v} + W_K h_v)

    With `gated=True`, sigma is a gate in front of a value: the message is :math:`\sigma(\dots) \odot W_V h_v`.

    The matrix products are per node, and an edge costs only sigma. Two cases work through tiles of edges instead: with
    `max`, W_R acts on every edge; and a sigma or message network may be a module of its own.

    When the layer is built, it draws all parameters, also those of the modules that it is given, as PyG's layers do.

    Args:
        in_channels: width of h, -1 to read it off the first input, or (source, target) for bipartite graphs: the key
            reads the source, the query the target.
        out_channels: width of the output.
        hidden_channels: width inside sigma; None means `out_channels`.
        aggr: `"sum"` (or `"add"`), `"mean"`, `"sym"` (1 / sqrt(in-degree of u * out-degree of v)), `"sym_in"`
            (in-degrees at both ends, as PyG's GCN) or `"max"`.
            An isolated node gets W_R's bias, with `max` 0 (plus its residual).
        activation: sigma, a name such as `"relu"` or `"leaky_relu(0.2)"`, or any module, of which the layer owns a
            copy. A module that the table knows (`nn.GELU()`) runs as fast as its name. `"prelu"` learns a slope per
            hidden channel, which begins at 1.
        edge_dim: width of the edge features; None for none.
        residual: None, True for a linear layer, or a module (MLP_Res), of which the layer owns a copy.
        dropout: applied to the projected query, key and edge terms, before they are added; of edge features given as a
            pair (table, type), to the rows of the table, so that all edges of a type share one mask.
        inner_bias: whether W_Q carries a bias.
        bias: whether W_R (and a linear residual) carries a bias.
        variant: `"corrected"`, or `"published"` for the layer behind the paper's figures: a bias on W_K and W_E too,
            `sym` with in-degrees at both ends, no bipartite input.
        cached: keep the grouped edges of the first call and use them ever after; for a graph that never changes.
        message_network: g, a module that maps `[h_u || h_{u,v} || h_v]` (width 2 * in + edge_dim) to the message of
            width `out_channels`, in place of the factorised form, so that `activation` and `inner_bias` have no part in
            it. The layer owns a copy.
        fused: False always runs PyG's plain `propagate`, which explainers, hooks and exporters get by themselves.
        backend: the backend of `sir_aggregate`; None chooses the best one.
        flow: `"target_to_source"` reverses the edges of an `edge_index` tensor.
        context: the neighbourhood context of SINC-GCN, which adds W_N c_u to the query, where c_u is the `"sum"`,
            `"mean"`, `"sym"` or `"max"` of h_v over N(u), without edge weights; None for none. Dropout acts on this
            term too.
        gated: multiply sigma of every edge by the value W_V h_v of its source. Dropout acts on the value too, and
            `inner_bias` gives W_V a bias, so that the layer without gates is the case W_V = 0 with a bias of 1. Not
            with max or a message network; a sigma that the table of activations does not know needs `fused=False`.

    Shapes:
        - **input:** node features `(|V|, F_in)`, also as `Rows` that several nodes share, `(B, |V|, F_in)` for B
          signals on one graph, or a pair `((|V_s|, F_s), (|V_t|, F_t))`; the graph as `edge_index` `(2, |E|)`, torch
          sparse `adj_t`, PyG `EdgeIndex` or `SparseTensor`, or `Neighbors`; edge features `(|E|, D)` or a pair (table
          `(K, D)`, type `(|E|)`); edge weights `(|E|)`
        - **output:** node features `(|V_t|, F_out)` or `(B, |V|, F_out)`

    >>> conv = SIRConv(3, 8, aggr="mean")
    >>> conv(torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
    torch.Size([4, 8])
    """

    @checked
    def __init__(
        self,
        in_channels: int | tuple[int, int] | list[int],
        out_channels: Size,
        hidden_channels: Size | None = None,
        aggr: str = "sum",
        activation: str | Activation | nn.Module = "relu",
        edge_dim: int | None = None,
        residual: bool | nn.Module | None = None,
        dropout: Probability = 0.0,
        inner_bias: bool = True,
        bias: bool = True,
        variant: str = "corrected",
        cached: bool = False,
        message_network: nn.Module | None = None,
        fused: bool = True,
        backend: str | None = None,
        flow: str = "source_to_target",
        context: str | None = None,
        gated: bool = False,
    ) -> None:
        aggr = "sum" if aggr == "add" else aggr
        check_name("aggr", aggr, AGGREGATORS, exact=True)
        check_name("variant", variant, VARIANTS, exact=True)
        check_name("context", context, (*CONTEXTS, None), exact=True)
        if dropout == 1:
            raise ValueError(f"dropout: expected 0 <= p < 1, got {dropout}")
        check_message_network(message_network, hidden_channels, dropout, context)
        check_gated(gated, aggr, message_network)
        source, target = checked_channels(in_channels)
        if backend is not None:
            choose_backend(backend)
        super().__init__(aggr="max" if aggr == "max" else "sum", flow=flow)
        self.aggr = aggr
        # What is computed: PyG's name of the aggregator does not tell the published variant from the corrected one.
        self.reduction = "sym_in" if (aggr, variant) == ("sym", "published") else aggr
        self.in_channels = in_channels if isinstance(in_channels, int) else (source, target)
        self.out_channels = out_channels
        self.hidden_channels = out_channels if hidden_channels is None else hidden_channels
        self.edge_dim = edge_dim
        self.dropout = dropout
        self.variant = variant
        self.cached = cached
        self.fused = fused
        self.backend = backend
        self.context = context
        self._cached_neighbors: Neighbors | None = None

        self.message_network = copy.deepcopy(message_network)
        self.lin_query: nn.Module = nn.Identity()
        self.lin_key: nn.Module = nn.Identity()
        self.lin_edge: nn.Module | None = None if edge_dim is None else nn.Identity()
        self.lin_context: nn.Module | None = None
        self.lin_value: nn.Module | None = None
        self.lin_relation: nn.Module = nn.Identity()
        if message_network is None:
            self.activation = _owned(activation, self.hidden_channels)
            self._add_projections(source, target, inner_bias)
            if gated:
                check_gate(self.activation, fused)
                self.lin_value = Linear(source, self.hidden_channels, bias=inner_bias)
            self.lin_relation = Linear(self.hidden_channels, out_channels, bias=bias)
        self.lin_residual = _make_residual(residual, target, out_channels, bias)
        self.reset_parameters()

    def _add_projections(self, source: int, target: int, inner_bias: bool) -> None:
        """W_Q, W_K and, with edge features, W_E and, with a neighbourhood context, W_N."""
        key_bias = inner_bias and self.variant == "published"
        self.lin_query = Linear(target, self.hidden_channels, bias=inner_bias)
        self.lin_key = Linear(source, self.hidden_channels, bias=key_bias)
        if self.edge_dim is not None:
            self.lin_edge = Linear(self.edge_dim, self.hidden_channels, bias=key_bias)
        if self.context is not None:
            # The bias of W_Q is enough.
            self.lin_context = Linear(source, self.hidden_channels, bias=False)

    @property
    def can_take_rows(self) -> bool:
        """Whether x may be given as `Rows` with a gain: not where PyG's `propagate` runs."""
        return not needs_propagate(self, SIRConv)

    def reset_parameters(self) -> None:
        """Draw all parameters again, as torch draws those of `nn.Linear`, and forget a cached graph."""
        super().reset_parameters()
        for module in self.children():
            reset(module)
        self._cached_neighbors = None

    def forward(
        self,
        x: Tensor | Rows | tuple[Tensor, Tensor] | tuple[Rows, Rows],
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        edge_weight: OptTensor = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """One convolution; the shapes are those of the class."""
        source, target = both_ends(x)
        self._check_graph(x, edge_index)
        self._check_nodes(source, target, size)
        edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, self.edge_dim)
        edge_attr = self._checked_edge_attr(edge_attr)
        check_same_device(source, target, edge_index, edge_attr, edge_weight)
        self._check_edges(edge_index, edge_attr, edge_weight)

        out = self._aggregate_messages(source, target, edge_index, edge_attr, edge_weight)
        self._check_width("message_network: expected messages of width", out)
        if self.lin_residual is None:
            return out
        own = target.map(self.lin_residual).expand()
        # A width of 1 on either side would be broadcast.
        self._check_width("residual: expected a module with output width", own)
        return out + own

    def _aggregate_messages(
        self, source: Rows, target: Rows, graph: Graph, edge_attr: EdgeAttr, edge_weight: Tensor | None
    ) -> Tensor:
        of_source = [self.lin_key] if self.lin_value is None else [self.lin_key, self.lin_value]
        query, key = self._projected([self.lin_query], target), self._projected(of_source, source)
        edge = self._projected_edge(edge_attr)
        if needs_propagate(self, SIRConv):
            edge_index = self._plain_edges(graph, key, query)
            query = in_context(self, query, source, edge_index)
            out = self._propagate(query.expand(), key.expand(), edge_index, edge, edge_weight, graph)
        else:
            neighbors = self._neighbors(graph, key, query)
            out = self._fused(in_context(self, query, source, neighbors), key, neighbors, edge, edge_weight)
        # W_R acts once per node, after the sum; with max it acted on every edge.
        return out if self.aggr == "max" else self.lin_relation(out)

    def _projected(self, lins: list[nn.Module], rows: Rows) -> Rows:
        """The query, or the key with its value; dropout makes the rows of different nodes differ."""
        rows = side_by_side(lins, rows)
        if not (self.training and self.dropout):
            return rows
        return Rows(dropout(rows.expand(), self.dropout))

    def _projected_edge(self, edge_attr: EdgeAttr) -> EdgeAttr:
        """The edge term: of a pair (table, type) the table is projected, unless W_E was replaced by what mixes rows."""
        if self.lin_edge is None:
            return None
        edge = through_edges(self.lin_edge, edge_attr)
        if isinstance(edge, tuple):
            return dropout(edge[0], self.dropout, self.training), edge[1]
        return dropout(cast(Tensor, edge), self.dropout, self.training)

    def _fused(
        self, query: Rows, key: Rows, neighbors: Neighbors, edge: EdgeAttr, edge_weight: Tensor | None
    ) -> Tensor:
        network, combine = self._network()
        if is_fused(network):
            source, value = key_and_value(key.expand(), self.lin_value)
            graph = query.expand(), source, neighbors, edge, edge_weight
            return summed(
                cast(Sigma | PReLU, network),
                lambda sigma: sir_aggregate(*graph, sigma, self.reduction, self.backend, value),
            )
        return aggregate_network(
            network, query, key, neighbors, edge, edge_weight, self.reduction, combine, self.backend
        )

    def _network(self) -> tuple[nn.Module, str]:
        """What acts on an edge, and how the edge's ends enter it."""
        if self.message_network is not None:
            return self.message_network, "cat"
        if self.aggr == "max":
            return nn.Sequential(self.activation, self.lin_relation), "add"
        return self.activation, "add"

    def edge_modules(self) -> tuple[nn.Module, ...]:
        """The modules that act on every edge."""
        if self.message_network is not None:
            return (self.message_network,)
        return (self.activation, self.lin_relation) if self.aggr == "max" else (self.activation,)

    def _plain_edges(self, graph: Graph, key: Rows, query: Rows) -> Tensor:
        """The edges as `propagate` reads them: `[2, E]` in the direction of `flow`."""
        if self.context is not None and isinstance(graph, Neighbors) and graph.whole_degrees is not None:
            raise ValueError("context: PyG's propagate does not know the degrees of the whole graph; use graph.alone()")
        if self.cached and not is_exporting():
            graph = self._neighbors(graph, key, query).edge_index
            graph = graph if self.flow == "source_to_target" else graph.flip(0)
        return as_edge_index(graph, key.shape[-2], query.shape[-2])

    def _propagate(
        self,
        query: Tensor,
        key: Tensor,
        edge_index: Tensor,
        edge: EdgeAttr,
        edge_weight: Tensor | None,
        graph: Graph = None,
    ) -> Tensor:
        """PyG's own route, which builds the message of every edge: for explainers, hooks and exporters."""
        sizes = key.size(-2), query.size(-2)
        if isinstance(edge, tuple):
            edge = edge[0].index_select(0, edge[1])
        ends = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        target_weight, source_weight = degree_weights(self.reduction, ends, sizes, query.dtype, graph)
        weight = edge_weight
        if source_weight is not None:
            weight = source_weight if weight is None else weight * source_weight
        # propagate_type: (query: Tensor, key: Tensor, edge: OptTensor, weight: OptTensor)
        out: Tensor = self.propagate(
            edge_index,
            query=query,
            key=key,
            edge=edge,
            weight=weight,
            size=sizes,
        )
        return out if target_weight is None else (out * target_weight.unsqueeze(-1)).to(out.dtype)

    def message(  # type: ignore[override]
        self, query_i: Tensor, key_j: Tensor, edge: OptTensor, weight: OptTensor
    ) -> Tensor:
        """The message of every edge, before a_u and, unless aggr is max, before W_R.

        With gates, key_j is the key and the value side by side.
        """
        network, combine = self._network()
        key_j, value = key_and_value(key_j, self.lin_value)
        message: Tensor = network(COMBINE[combine](query_i, key_j, edge))
        message = message if value is None else message * value
        return message if weight is None else message * weight.to(message.dtype).unsqueeze(-1)

    def _neighbors(self, graph: Graph, source: Rows, target: Rows) -> Neighbors:
        num_sources, num_targets = source.shape[-2], target.shape[-2]
        kept = self._cached_neighbors
        if kept is not None and kept.device == source.device:
            if (kept.num_sources, kept.num_targets) != (num_sources, num_targets):
                raise ValueError(
                    f"cached: this layer keeps the graph of its first call, {kept}, "
                    f"got x with {num_sources} source and {num_targets} target nodes"
                )
            return kept
        if self.flow == "target_to_source":
            assert isinstance(graph, Tensor)
            graph = graph.flip(0)
        neighbors = as_neighbors(graph, num_sources, num_targets)
        if self.cached:
            self._cached_neighbors = neighbors
        return neighbors

    def _check_graph(self, x: object, graph: Graph) -> None:
        """Refuse a pair of node sets, or a form of the graph, that this layer does not support."""
        # Rows that stand for the same nodes twice are one set of nodes.
        is_bipartite = isinstance(x, (tuple, list)) and x[0] is not x[1] and isinstance(x[0], Tensor)
        if is_bipartite and self.variant == "published":
            raise ValueError("x: variant='published' needs one set of nodes, got a bipartite (source, target) pair")
        if self.flow != "target_to_source":
            return
        if is_bipartite:
            raise ValueError("flow: target_to_source is not supported for a (source, target) pair; flip the edges")
        if not isinstance(graph, Tensor) or graph.layout != torch.strided:
            raise ValueError("flow: target_to_source needs an edge_index tensor; transpose a sparse adjacency instead")

    def _check_nodes(self, source: Rows, target: Rows, size: tuple[int, int] | None) -> None:
        of_source, of_target = pair(self.in_channels)
        check_features("source", source, in_width(self.lin_key, of_source))
        check_features("target", target, in_width(self.lin_query, of_target))
        nodes = (source.shape[-2], target.shape[-2])
        if size is not None and tuple(size) != nodes:
            raise ValueError(f"size: expected {nodes}, the rows of the features, got {tuple(size)}")

    def _check_edges(self, graph: Graph, edge_attr: EdgeAttr, edge_weight: Tensor | None) -> None:
        """Refuse edge features and weights that do not fit the number of edges, or the aggregator."""
        if edge_weight is not None and self.aggr == "max":
            raise ValueError("edge_weight: the max aggregator has no use for edge weights, expected None")
        if edge_attr is None and edge_weight is None:
            return
        num_edges = count_edges(graph if self._cached_neighbors is None else self._cached_neighbors)
        if num_edges is not None:
            check_edge(edge_attr, edge_weight, num_edges, None, "edge_attr")

    def _check_width(self, expected: str, out: Tensor) -> None:
        if out.size(-1) != self.out_channels:
            raise ValueError(f"{expected} {self.out_channels} (out_channels), got {out.size(-1)}")

    def _checked_edge_attr(self, edge_attr: EdgeAttr) -> EdgeAttr:
        """The edge features, refused where the layer has no use for them, misses them, or expects another width."""
        if edge_attr is None:
            if self.edge_dim is not None:
                raise ValueError(
                    f"edge_attr: this layer has edge_dim={self.edge_dim} and expects edge features, got None"
                )
            return None
        is_pair = isinstance(edge_attr, tuple)
        table = edge_attr[0] if is_pair else edge_attr
        if not isinstance(table, Tensor):
            raise TypeError(
                f"edge_attr: expected a tensor or a pair (table, type) of tensors, got {edge_attr!r:.60}; "
                f"give edge_weight and size by their names"
            )
        table = self._checked_edge_rows(table)
        return plain_edge_attr((table, edge_attr[1]) if is_pair else table)

    def _checked_edge_rows(self, table: Tensor) -> Tensor:
        """The rows of edge features, as a matrix of the width that W_E expects."""
        if self.edge_dim is None:
            raise ValueError(
                f"edge_attr: this layer has no edge_dim and expects none, got shape {list(table.shape)}; "
                f"scalar weights go by name, edge_weight="
            )
        if table.dim() == 1 and self.edge_dim == 1:
            table = table.unsqueeze(-1)
        width = in_width(self.lin_edge, self.edge_dim)
        if table.dim() != 2 or (width >= 0 and table.size(-1) != width):
            raise ValueError(f"edge_attr: expected {width} features per edge (edge_dim), got shape {list(table.shape)}")
        return table

    def __repr__(self) -> str:
        gated = "" if self.lin_value is None else ", gated=True"
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr}{gated})"


def _make_residual(
    residual: bool | nn.Module | None, in_channels: int, out_channels: int, bias: bool
) -> nn.Module | None:
    if isinstance(residual, nn.Module):
        return copy.deepcopy(residual)
    return Linear(in_channels, out_channels, bias=bias) if residual else None


def _owned(activation: str | Activation | nn.Module, channels: int) -> nn.Module:
    """The table's entry where it has one, slopes that are learned, else a copy of the module."""
    if not isinstance(activation, nn.Module):
        return make_sigma(activation, channels)
    slopes = learned_slopes(activation, channels)
    if slopes is not None:
        return slopes
    known = activation.activation if isinstance(activation, Sigma) else Activation.of_module(activation)
    return copy.deepcopy(activation) if known is None else Sigma(known)
