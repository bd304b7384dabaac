"""`SIRConv`: the paper's layer as a `MessagePassing` module of PyG."""

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr.basic import MaxAggregation, SumAggregation
from torch_geometric.nn.inits import reset
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

from sirgcn.nn.adjacency import (
    EdgeAttr,
    Graph,
    as_edge_index,
    as_neighbors,
    check_same_device,
    count_edges,
    plain_edge_attr,
    with_stored_values,
)
from sirgcn.nn.dropout import dropout
from sirgcn.nn.linear import Linear
from sirgcn.nn.repeated import Repeated, is_row_by_row, through, through_edges
from sirgcn.ops import Activation, Neighbors, rank_one_weights, sir_aggregate, tiled_aggregate
from sirgcn.ops.activation import Sigma
from sirgcn.ops.arguments import check_edge
from sirgcn.ops.backend import choose_backend
from sirgcn.ops.calls import has_hooks, is_compiling, is_exporting, is_touched, is_transformed
from sirgcn.ops.checks import whole_number
from sirgcn.ops.reference import accumulation_dtype
from sirgcn.ops.sharing import KindEdges, KindPairs
from sirgcn.ops.tiles import COMBINE
from sirgcn.strict import Probability, Size, checked

AGGREGATORS = ("sum", "mean", "sym", "sym_in", "max")
"""The aggregators of `SIRConv`; PyG's `add` is taken for `sum`."""

VARIANTS = ("corrected", "published")


class SIRConv(MessagePassing):
    r"""The soft-isomorphic relational graph convolution of `"Contextualized Messages Boost Graph Representations"
    <https://openreview.net/forum?id=sXr1fRjs1N>`_ (Eq. 11, with the residual of Section 4.3 and
    the edge features of Appendix E).

    .. math::
        h_u^* = \mathrm{MLP}_{Res}(h_u) + \bigoplus_{v \in N(u)} W_R \, \sigma(W_Q h_u + W_E h_{u,v} + W_K h_v)

    The matrix products are per node; an edge costs only sigma, except for `max`, where W_R acts on every edge, and for
    a sigma or message network that is a module of its own: these work through tiles of edges, or, where x is `Repeated`
    rows of few kinds, through the pairs of kinds.

    Parameters, also those of the modules given, are drawn anew when the layer is built, as PyG's layers do.

    Args:
        in_channels: width of h, -1 to read it off the first input, or (source, target) for bipartite graphs: the key
            takes the source, the query the target.
        out_channels: width of the output.
        hidden_channels: width inside sigma; None means `out_channels`.
        aggr: `"sum"` (or `"add"`), `"mean"`, `"sym"` (1 / sqrt(in-degree of u * out-degree of v)), `"sym_in"`
            (in-degrees at both ends, as PyG's GCN) or `"max"`.
            An isolated node gets W_R's bias, with `max` 0 (plus its residual).
        activation: sigma, a name such as `"relu"` or `"leaky_relu(0.2)"`, or any module, of which the layer owns a
            copy. A module that the table knows (`nn.GELU()`) runs as fast as its name.
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
        fused: False always takes PyG's plain `propagate`, as explainers, hooks and exporters do by themselves.
        backend: the backend of `sir_aggregate`; None takes the best one.
        flow: `"target_to_source"` reverses the edges of an `edge_index` tensor.

    Shapes:
        - **input:** node features `(|V|, F_in)`, also as `Repeated` rows of a table, `(B, |V|, F_in)` for B signals on
          one graph, or a pair `((|V_s|, F_s), (|V_t|, F_t))`; the graph as `edge_index` `(2, |E|)`, torch sparse
          `adj_t`, PyG `EdgeIndex` or `SparseTensor`, or `Neighbors`; edge features `(|E|, D)` or a pair (table
          `(K, D)`, type `(|E|)`); edge weights `(|E|)`
        - **output:** node features `(|V_t|, F_out)` or `(B, |V|, F_out)`
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
    ) -> None:
        aggr = "sum" if aggr == "add" else aggr
        if aggr not in AGGREGATORS:
            raise ValueError(f"aggr: expected one of {', '.join(AGGREGATORS)} (or add for sum), got {aggr!r}")
        if variant not in VARIANTS:
            raise ValueError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected 0 <= p < 1, got {dropout}")
        if message_network is not None and (hidden_channels is not None or dropout):
            raise ValueError(
                "message_network: replaces the factorised form, so that hidden_channels and dropout "
                "have nothing to act on; put them into the network"
            )
        if message_network is not None and not isinstance(message_network, nn.Module):
            raise TypeError(f"message_network: expected a module, got {type(message_network).__name__}")
        source, target = _checked_channels(in_channels)
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
        self._cached_neighbors: Neighbors | None = None

        self.message_network = copy.deepcopy(message_network)
        self.lin_query: nn.Module = nn.Identity()
        self.lin_key: nn.Module = nn.Identity()
        self.lin_edge: nn.Module | None = None if edge_dim is None else nn.Identity()
        self.lin_relation: nn.Module = nn.Identity()
        if message_network is None:
            key_bias = inner_bias and variant == "published"
            self.activation = _owned(activation)
            self.lin_query = Linear(target, self.hidden_channels, bias=inner_bias)
            self.lin_key = Linear(source, self.hidden_channels, bias=key_bias)
            if edge_dim is not None:
                self.lin_edge = Linear(edge_dim, self.hidden_channels, bias=key_bias)
            self.lin_relation = Linear(self.hidden_channels, out_channels, bias=bias)
        self.lin_residual: nn.Module | None = None
        if isinstance(residual, nn.Module):
            self.lin_residual = copy.deepcopy(residual)
        elif residual not in (None, False, True):
            raise ValueError(f"residual: expected None, True or a module, got {residual!r}")
        elif residual:
            self.lin_residual = Linear(target, out_channels, bias=bias)
        self.reset_parameters()

    @property
    def takes_repeated(self) -> bool:
        """Whether x may be `Repeated` rows of a table: not where the plain `propagate` runs."""
        return not self._takes_plain_route()

    @property
    def takes_kinds(self) -> bool:
        """Whether it may be computed once per kind of nodes, with `KindEdges` for the graph."""
        return (
            self.aggr != "max"
            and self.message_network is None
            and type(self.activation) is Sigma
            and self.lin_residual is None
            and all(is_row_by_row(lin) for lin in (self.lin_query, self.lin_key, self.lin_relation))
            and (self.lin_edge is None or is_row_by_row(self.lin_edge))
            and not (self.training and self.dropout)
            and not (self.cached or self.flow == "target_to_source" or self._takes_plain_route())
        )

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as torch draws those of `nn.Linear`, and forget a cached graph."""
        super().reset_parameters()
        for module in self.children():
            reset(module)
        self._cached_neighbors = None

    def forward(
        self,
        x: Tensor | Repeated | tuple[Tensor, Tensor | Repeated],
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        edge_weight: OptTensor = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """One convolution: the shapes are those of the class."""
        source, target = _both_ends(x)
        self._check_nodes(source, target, edge_index, size)
        edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, self.edge_dim)
        edge_attr = self._checked_edge_attr(edge_attr)
        check_same_device(source, target, edge_index, edge_attr, edge_weight)
        num_edges = count_edges(edge_index if self._cached_neighbors is None else self._cached_neighbors)
        if num_edges is not None and not (edge_attr is None and edge_weight is None):
            check_edge(edge_attr, edge_weight, num_edges, None, "edge_attr")
        if edge_weight is not None and self.aggr == "max":
            raise ValueError("edge_weight: the max aggregator takes no edge weights")

        out = self._aggregate_messages(source, target, edge_index, edge_attr, edge_weight)
        if self.message_network is not None and out.size(-1) != self.out_channels:
            raise ValueError(
                f"message_network: expected messages of width {self.out_channels} (out_channels), got {out.size(-1)}"
            )
        if self.lin_residual is not None:
            own = through(self.lin_residual, target)
            # A width of 1 on either side would be broadcast.
            if own.size(-1) != self.out_channels:
                raise ValueError(
                    f"residual: expected a module with output width {self.out_channels} (out_channels), "
                    f"got {own.size(-1)}"
                )
            out = out + own
        return out

    def _aggregate_messages(
        self,
        source: Tensor | Repeated,
        target: Tensor | Repeated,
        graph: Graph,
        edge_attr: EdgeAttr,
        edge_weight: Tensor | None,
    ) -> Tensor:
        neighbors = None if self._takes_plain_route() else self._neighbors(graph, source, target)
        out = None if neighbors is None else self._by_pairs(source, target, neighbors, edge_weight)
        if out is None:
            query, key = self._drop(through(self.lin_query, target)), self._drop(through(self.lin_key, source))
            edge = self._projected_edge(edge_attr)
            if neighbors is None:
                out = self._propagate(query, key, graph, edge, edge_weight)
            else:
                out = self._fused(query, key, neighbors, edge, edge_weight)
        # W_R after the sum, once per node; with max it acted on every edge.
        return out if self.aggr == "max" else self.lin_relation(out)

    def _projected_edge(self, edge_attr: EdgeAttr) -> EdgeAttr:
        """The edge term: of a pair (table, type) the table is projected, unless W_E was replaced by what mixes rows."""
        if self.lin_edge is None:
            return None
        edge = through_edges(self.lin_edge, edge_attr)
        return (self._drop(edge[0]), edge[1]) if isinstance(edge, tuple) else self._drop(cast(Tensor, edge))

    def _by_pairs(
        self, source: Tensor | Repeated, target: Tensor | Repeated, neighbors: Neighbors, edge_weight: Tensor | None
    ) -> Tensor | None:
        """A network's messages once per pair of kinds; None where rows are not known to repeat or it does not pay."""
        if not isinstance(source, Repeated) or not isinstance(target, Repeated) or self.aggr == "max":
            return None
        network, combine = self._network()
        if (
            type(network) is Sigma
            or self.edge_dim is not None
            or (self.training and self.dropout)
            or is_compiling()
            or torch.is_autocast_enabled(source.device.type)
            or source.dtype not in (torch.float32, torch.float64)
            or choose_backend(self.backend, source.device) == "reference"
            or not all(is_row_by_row(module) for module in (network, self.lin_query, self.lin_key))
        ):
            return None
        num_kinds = target.table.size(0), source.table.size(0)
        pairs = KindPairs.of(target.kind, source.kind, num_kinds, neighbors)
        if pairs is None:
            return None
        query, key = self.lin_query(target.table), self.lin_key(source.table)
        return pairs.aggregate(network, query, key, edge_weight, self.reduction, combine, self.backend)

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        neighbors: Neighbors,
        edge: EdgeAttr,
        edge_weight: Tensor | None,
    ) -> Tensor:
        network, combine = self._network()
        if type(network) is Sigma:
            sigma = network.activation
            return sir_aggregate(query, key, neighbors, edge, edge_weight, sigma, self.reduction, self.backend)
        return tiled_aggregate(
            network, query, key, neighbors, edge, edge_weight, self.reduction, combine, backend=self.backend
        )

    def _network(self) -> tuple[nn.Module, str]:
        """What acts on an edge, and how the edge's ends enter it."""
        if self.message_network is not None:
            return self.message_network, "cat"
        if self.aggr == "max":
            return nn.Sequential(self.activation, self.lin_relation), "add"
        return self.activation, "add"

    def _edge_networks(self) -> tuple[nn.Module, ...]:
        """The parts of what acts on an edge."""
        if self.message_network is not None:
            return (self.message_network,)
        return (self.activation, self.lin_relation) if self.aggr == "max" else (self.activation,)

    def _propagate(
        self,
        query: Tensor,
        key: Tensor,
        graph: Graph,
        edge: EdgeAttr,
        edge_weight: Tensor | None,
    ) -> Tensor:
        """PyG's own route, which builds the message of every edge: for explainers, hooks and exporters."""
        num_sources, num_targets = key.size(-2), query.size(-2)
        if self.cached and not is_exporting():
            graph = self._neighbors(graph, key, query).edge_index
            graph = graph if self.flow == "source_to_target" else graph.flip(0)
        edge_index = as_edge_index(graph, num_sources, num_targets)
        if isinstance(edge, tuple):
            edge = edge[0].index_select(0, edge[1])
        target_weight, weight = None, edge_weight
        if self.reduction == "sym_in" and num_sources != num_targets:
            raise ValueError(
                f"reduce: sym_in weighs by in-degrees at both ends and needs one set of nodes, "
                f"got {num_sources} sources and {num_targets} targets"
            )
        if self.reduction in ("mean", "sym", "sym_in"):
            source, target = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            ones = torch.ones_like(target)
            in_degree = scatter(ones, target, dim_size=num_targets)
            source_degree = scatter(ones, source, dim_size=num_sources) if self.reduction == "sym" else in_degree
            # A degree above 65,504 is infinite in float16.
            dtype = accumulation_dtype(query.dtype)
            target_weight, source_weight = rank_one_weights(self.reduction, in_degree, source_degree, dtype)
            if source_weight is not None:
                factor = source_weight.index_select(0, source)
                weight = factor if weight is None else weight * factor
        # propagate_type: (query: Tensor, key: Tensor, edge: OptTensor, weight: OptTensor)
        out: Tensor = self.propagate(
            edge_index,
            query=query,
            key=key,
            edge=edge,
            weight=weight,
            size=(num_sources, num_targets),
        )
        return out if target_weight is None else (out * target_weight.unsqueeze(-1)).to(out.dtype)

    def message(  # type: ignore[override]
        self, query_i: Tensor, key_j: Tensor, edge: OptTensor, weight: OptTensor
    ) -> Tensor:
        """The message of every edge, before a_u and, unless aggr is max, before W_R."""
        network, combine = self._network()
        message: Tensor = network(COMBINE[combine](query_i, key_j, edge))
        return message if weight is None else message * weight.to(message.dtype).unsqueeze(-1)

    def _takes_plain_route(self) -> bool:
        """Whether PyG's `propagate` runs: asked for, or wanted by torch, an explainer, a hook or an override."""
        return (
            not self.fused
            or bool(self.explain)
            or is_exporting()
            or is_transformed()
            or self._has_message_hooks()
            or self._has_own_steps()
        )

    def _has_message_hooks(self) -> bool:
        """Whether someone looks on at a step of `propagate`, or at a module that the fused route does not call."""
        return bool(
            self._propagate_forward_pre_hooks
            or self._propagate_forward_hooks
            or self._message_forward_pre_hooks
            or self._message_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._aggregate_forward_hooks
            or is_touched(self.aggr_module)
            or any(_is_watched(network) for network in self._edge_networks())
        )

    def _has_own_steps(self) -> bool:
        """Whether a subclass or this instance replaces a step of `propagate`."""
        own, cls = self.__dict__, type(self)
        return (
            any(getattr(cls, name) is not step or name in own for name, step in _STEPS.items())
            or not _is_generated(cls.propagate, cls)
            # PyG itself puts one onto the instance when an explanation ends.
            or ("propagate" in own and not _is_generated(getattr(own["propagate"], "__func__", None), cls))
            or type(self.aggr_module) is not _AGGREGATIONS["max" if self.aggr == "max" else "sum"]
        )

    def _neighbors(self, graph: Graph, source: Tensor | Repeated, target: Tensor | Repeated) -> Neighbors:
        num_sources, num_targets = source.size(-2), target.size(-2)
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

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def _check_nodes(
        self, source: Tensor | Repeated, target: Tensor | Repeated, graph: Graph, size: tuple[int, int] | None
    ) -> None:
        if source is None:
            raise ValueError("x: expected features of the source nodes, got (None, x)")
        if target is None:
            raise ValueError(
                "x: expected features of the target nodes too, which the query W_Q h_u reads, got (x, None)"
            )
        # Kinds of nodes before and after a layer, one a refinement of the other, are one set of nodes.
        if source is not target and not isinstance(graph, KindEdges):
            if self.variant == "published":
                raise ValueError("x: variant='published' takes one set of nodes, got a bipartite (source, target) pair")
            if self.flow == "target_to_source":
                raise ValueError("flow: target_to_source is not supported for a (source, target) pair; flip the edges")
        if self.flow == "target_to_source" and (not isinstance(graph, Tensor) or graph.layout != torch.strided):
            raise ValueError("flow: target_to_source needs an edge_index tensor; transpose a sparse adjacency instead")
        ends = zip((source, target), ("source", "target"), (self.lin_key, self.lin_query), strict=True)
        for (tensor, end, lin), declared in zip(ends, _pair(self.in_channels), strict=True):
            width = _in_width(lin, declared)
            if not tensor.is_floating_point():
                raise ValueError(f"x: expected a floating-point dtype, got {tensor.dtype}")
            if tensor.dim() not in (2, 3):
                raise ValueError(
                    f"x: expected shape [nodes, features] or [batch, nodes, features], got {list(tensor.shape)}"
                )
            if width >= 0 and tensor.size(-1) != width:
                raise ValueError(f"x: expected {width} features per {end} node, got {tensor.size(-1)}")
        nodes = (source.size(-2), target.size(-2))
        if size is not None and tuple(size) != nodes:
            raise ValueError(f"size: expected {nodes}, the rows of the features, got {tuple(size)}")

    def _checked_edge_attr(self, edge_attr: EdgeAttr) -> EdgeAttr:
        if edge_attr is None:
            if self.edge_dim is not None:
                raise ValueError(
                    f"edge_attr: this layer has edge_dim={self.edge_dim} and expects edge features, got None"
                )
            return None
        table = edge_attr[0] if isinstance(edge_attr, tuple) else edge_attr
        if not isinstance(table, Tensor):
            raise TypeError(
                f"edge_attr: expected a tensor or a pair (table, type) of tensors, got {edge_attr!r:.60}; "
                f"give edge_weight and size by their names"
            )
        if self.edge_dim is None:
            raise ValueError(
                f"edge_attr: this layer has no edge_dim and expects none, got shape {list(table.shape)}; "
                f"scalar weights go by name, edge_weight="
            )
        if table.dim() == 1 and self.edge_dim == 1:
            table = table.unsqueeze(-1)
        width = _in_width(self.lin_edge, self.edge_dim)
        if table.dim() != 2 or (width >= 0 and table.size(-1) != width):
            raise ValueError(f"edge_attr: expected {width} features per edge (edge_dim), got shape {list(table.shape)}")
        return plain_edge_attr((table, edge_attr[1]) if isinstance(edge_attr, tuple) else table)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr})"


# What a subclass or a user may replace, and the fused route does not call.
_STEPS = {
    name: getattr(SIRConv, name) for name in ("message", "message_and_aggregate", "aggregate", "update", "edge_update")
}
_AGGREGATIONS = {"max": MaxAggregation, "sum": SumAggregation}


def _is_generated(propagate: object, cls: type) -> bool:
    """Whether a `propagate` is PyG's: that of `MessagePassing`, or written by PyG from a template for this class.

    PyG keeps one that a subclass brings under the name of the one that it would have written.
    """
    if propagate is MessagePassing.propagate:
        return True
    module = getattr(propagate, "__module__", None)
    return any(module == f"{base.__module__}_{base.__name__}_propagate" for base in cls.__mro__)


def _is_watched(network: nn.Module) -> bool:
    """Whether someone looks on at a message network, or gave a sigma, which is computed by its name, a `forward`."""
    if type(network) is Sigma:
        return is_touched(network)
    # Tiles are differentiated one by one: the hook of a weight would be shown the gradient of each.
    return any(map(has_hooks, network.modules())) or any(weight._backward_hooks for weight in network.parameters())


def _owned(activation: str | Activation | nn.Module) -> nn.Module:
    """The table's entry where it has one, else a copy of the module."""
    if not isinstance(activation, nn.Module):
        return Sigma(activation)
    known = activation.activation if isinstance(activation, Sigma) else Activation.of_module(activation)
    return copy.deepcopy(activation) if known is None else Sigma(known)


def _in_width(lin: nn.Module | None, declared: int) -> int:
    """The input width of a linear layer, which a lazy one knows after its first call."""
    return lin.in_channels if isinstance(lin, PyGLinear) else declared


def _pair(channels: int | tuple[int, int]) -> tuple[int, int]:
    return channels if isinstance(channels, tuple) else (channels, channels)


def _checked_channels(channels: object) -> tuple[int, int]:
    ends = tuple(channels) if isinstance(channels, (tuple, list)) else (channels, channels)
    expected = "a width, -1 or a pair (source, target) of these"
    widths = [whole_number(width, "in_channels", expected) for width in ends]
    if len(widths) != 2 or min(widths) < -1:
        raise ValueError(f"in_channels: expected {expected}, got {channels!r}")
    source, target = widths
    return source, target


def _both_ends(
    x: Tensor | Repeated | tuple[Tensor, Tensor | Repeated],
) -> tuple[Tensor | Repeated, Tensor | Repeated]:
    if isinstance(x, (Tensor, Repeated)):
        return x, x
    if not isinstance(x, (tuple, list)) or len(x) != 2:  # type: ignore[redundant-expr]
        given = f"{len(x)} of them" if isinstance(x, (tuple, list)) else type(x).__name__
        raise ValueError(f"x: expected a tensor of node features or a pair (source, target), got {given}")
    source, target = x
    return source, target
