"""Rows that repeat: kinds of nodes, pairs of kinds, and batch norm of rows that stand for several nodes.

Nodes with equal features and equal surroundings have equal rows after every layer. The classes of this module find such
nodes, and compute once per kind of nodes, or once per pair of kinds, what would otherwise be computed once per node or
per edge.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.ops import native
from sirgcn.ops.aggregate import sir_aggregate
from sirgcn.ops.arguments import check_edge
from sirgcn.ops.backend import choose_backend
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import flat, is_open
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Grouping, Neighbors
from sirgcn.ops.parts import acts_alike
from sirgcn.ops.rows import Rows
from sirgcn.ops.tiled import tiled_aggregate

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

# The most kinds per node: with more kinds there is next to nothing to save.
_MOST_KINDS = 0.9
# The most edges per node: nodes with more neighbours hardly ever agree in all of them, and comparing all neighbours
# would cost as much as a layer.
_MOST_EDGES = 8
# The most pairs of kinds per node: the layer needs a few rows of memory per node anyway. A batch of
# DictionaryLookup(50) has 2.4 pairs per node.
_PAIRS_PER_NODE = 4


@dataclass(frozen=True, eq=False, repr=False)
class KindEdges(Neighbors):
    """The edges that lead to one node of each finer kind. Their sources are the kinds of the round before.

    A layer needs no other edges. A reduction weighs each of them as it weighs that edge in the whole graph.

    Args:
        original: the whole graph.
        first_source: one node of each coarser kind; these kinds are the sources.
        first_target: one node of each finer kind; these kinds are the targets.
    """

    original: Neighbors
    first_source: Int[Tensor, " sources"]
    first_target: Int[Tensor, " targets"]

    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The rank-one weights (a_u, b_v) of the nodes in the whole graph."""
        target, source = self.original.weights(reduce, dtype)
        return (
            None if target is None else target.index_select(0, self.first_target),
            None if source is None else source.index_select(0, self.first_source),
        )

    def to(self, *args: Any, **kwargs: Any) -> "KindEdges":
        """A copy on another device or with another index dtype, as `Neighbors.to`."""
        plain, original = super().to(*args, **kwargs), self.original.to(*args, **kwargs)
        groupings = plain.edge_index, plain.by_target, plain.by_source, plain.num_sources, plain.num_targets
        first = (tensor.to(*args, **kwargs) for tensor in (self.first_source, self.first_target))
        return KindEdges(*groupings, original, *first, is_checked=True)


@dataclass(frozen=True, eq=False)
class Kinds:
    r"""The nodes of a graph in kinds, by rounds of colour refinement (1-WL). Begin with `Kinds.of`.

    .. math:: k^{(l+1)}_u = k^{(l+1)}_{u'} \iff k^{(l)}_u = k^{(l)}_{u'} \text{ and }
        \{\!\{(k^{(l)}_v, e_{uv})\}\!\}_{v \in N(u)} = \{\!\{(k^{(l)}_v, e_{u'v})\}\!\}_{v \in N(u')}

    Nodes of one kind have equal rows after l layers of message passing, whatever the weights of the layers are, if all
    of these hold:

    - nodes of one kind of the first round have equal features
    - edges of one kind e have equal features
    - nothing is random

    Args:
        graph: the graph, with one set of nodes.
        kind: the kind of every node, int64 `[|V|]`.
        first: one node of each kind, `[K]`.
        count: how many nodes each kind has, `[K]`.

    >>> ring = Neighbors.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), 4)
    >>> kinds = Kinds.of(torch.tensor([0, 1, 0, 1]), ring)
    >>> kinds.kind.tolist(), kinds.count.tolist()
    ([0, 1, 0, 1], [2, 2])
    """

    graph: Neighbors
    kind: Int[Tensor, " nodes"]
    first: Int[Tensor, " kinds"]
    count: Int[Tensor, " kinds"]

    @classmethod
    def of(cls, label: Int[Tensor, " nodes"], graph: Neighbors) -> "Kinds | None":
        """The kinds of nodes with equal labels and equal degrees; the degrees count because they weigh messages.

        The result is None where kinds cannot save time, for example on a graph with many edges per node, and where the
        C code is missing.

        Args:
            label: a label of every node, at least 0.
            graph: the graph.
        """
        if not (_can_refine(graph) and is_plain_call() and is_open(label)):
            return None
        graph.check_frozen()
        joint = _joint_label(label.to(torch.int64), graph)
        if joint is None:
            return None
        alone = Grouping(*(graph.by_target.ptr.new_zeros(size) for size in (graph.num_targets + 1, 0, 0)))
        found = native.refine(joint, alone, None, 1, int(_MOST_KINDS * graph.num_targets))
        return None if found is None else cls(graph, *found[:3])

    def refine(
        self, edge_kind: Int[Tensor, " edges"] | None = None, num_edge_kinds: int = 1
    ) -> "tuple[Kinds, KindEdges, Tensor] | None":
        """One round: the finer kinds, the edges that lead to them, and the kinds of these edges.

        The result is None where too few nodes agree to save time.

        Args:
            edge_kind: the kind of every edge, below `num_edge_kinds`; None where edges have no features.
            num_edge_kinds: how many kinds of edges there are.
        """
        # Edge kinds that do not fit the graph are left to the layer, which refuses them by name.
        if not is_plain_call() or not (edge_kind is None or _fits(edge_kind, self.graph.num_edges, num_edge_kinds)):
            return None
        self.graph.check_frozen()
        most = int(_MOST_KINDS * self.graph.num_targets)
        found = native.refine(self.kind, self.graph.by_target, edge_kind, num_edge_kinds, most)
        if found is None:
            return None
        kind, first, count, edge_index, edge_type = found
        sizes = len(self.first), len(first)
        grouped = Neighbors.from_edge_index(edge_index, sizes)
        groupings = grouped.edge_index, grouped.by_target, grouped.by_source
        edges = KindEdges(*groupings, *sizes, self.graph, self.first, first, is_checked=True)
        return Kinds(self.graph, kind, first, count), edges, edge_type


def _can_refine(graph: Neighbors) -> bool:
    """Whether the C code can look for kinds in this graph, and kinds can save time there."""
    return (
        native.UNAVAILABLE is None
        and graph.device.type == "cpu"
        and graph.num_sources == graph.num_targets > 0
        # Nodes of a sample may differ in the degrees that they have in the whole graph.
        and graph.whole_degrees is None
        and graph.num_edges <= _MOST_EDGES * graph.num_targets
    )


def _joint_label(label: Tensor, graph: Neighbors) -> Tensor | None:
    """Label, in-degree and out-degree of every node in one number; None where that number could overflow."""
    combinations = int(label.max()) + 1
    for degree in (graph.in_degree(), graph.out_degree()):
        size = int(degree.max()) + 1
        label, combinations = label * size + degree, combinations * size
    return None if combinations > torch.iinfo(torch.int64).max else label


def _fits(edge_kind: Tensor, num_edges: int, num_kinds: int) -> bool:
    """Whether there is one kind per edge, and each lies in range."""
    if edge_kind.dtype not in (torch.int32, torch.int64) or edge_kind.shape != (num_edges,) or not is_open(edge_kind):
        return False
    if num_edges == 0:
        return True
    low, high = torch.aminmax(edge_kind)
    return int(low) >= 0 and int(high) < num_kinds


@dataclass(frozen=True, eq=False)
class KindPairs:
    r"""A graph whose nodes are of few kinds, so that all edges between two kinds carry the same message.

    .. math:: \sum_{v \in N(u)} w_{uv} \, g(Q_{i_u}, K_{j_v}) = \sum_{v \in N(u)} w_{uv} \, M_{i_u j_v}, \qquad
        M_{ij} = g(Q_i, K_j)

    Here i_u is the kind of a target and j_v the kind of a source. The network g runs once per pair of kinds. For each
    edge, only one row is added. Begin with `KindPairs.of`.

    Args:
        target_kinds: the kinds i of targets that have a neighbour, `[I]`.
        source_kinds: the kinds j of sources that have a neighbour, `[J]`.
        original: the graph.
        messages: the graph in which the source of each edge is the edge's pair (i, j), with the number i * J + j.
    """

    target_kinds: Int[Tensor, " I"]
    source_kinds: Int[Tensor, " J"]
    original: Neighbors
    messages: Neighbors

    @classmethod
    def of(
        cls,
        target_kind: Int[Tensor, " targets"],
        source_kind: Int[Tensor, " sources"],
        num_kinds: tuple[int, int],
        neighbors: Neighbors,
    ) -> "KindPairs | None":
        """The pairs of a graph's kinds; None where there are too many to save time or to keep memory linear in nodes.

        Args:
            target_kind, source_kind: the kind of every node.
            num_kinds: how many kinds of targets and of sources there are.
            neighbors: the graph.
        """
        check_devices({"neighbors": neighbors, "target_kind": target_kind, "source_kind": source_kind})
        neighbors.check_frozen()
        target_kinds, target_place = _distinct(target_kind, num_kinds[0], neighbors.in_degree() > 0)
        source_kinds, source_place = _distinct(source_kind, num_kinds[1], neighbors.out_degree() > 0)
        pairs = target_kinds.numel() * source_kinds.numel()
        most = min(neighbors.num_edges // 2, _PAIRS_PER_NODE * (neighbors.num_sources + neighbors.num_targets))
        if not 0 < pairs <= most:
            return None
        source, target = neighbors.edge_index
        pair = (target_place * source_kinds.numel()).index_select(0, target) + source_place.index_select(0, source)
        edge_index = torch.stack([pair.to(target.dtype), target])
        messages = Neighbors.from_edge_index(edge_index, (pairs, neighbors.num_targets))
        return cls(target_kinds, source_kinds, neighbors, messages)

    def aggregate(
        self,
        network: nn.Module,
        query: Float[Tensor, "kinds d_query"],
        key: Float[Tensor, "kinds d_key"],
        edge_weight: Float[Tensor, " edges"] | None = None,
        reduce: str = "sum",
        combine: str = "add",
        backend: str | None = None,
    ) -> Float[Tensor, "targets d_out"]:
        """`tiled_aggregate` of one query and one key per kind, in float32 or float64, with any reduction but max."""
        check_devices({"neighbors": self.original, "query": query, "key": key})
        check_edge(None, edge_weight, self.original, None)
        # Both are expanded because torch then sums the gradients in a fixed order. For selected rows it does not.
        shape = (self.target_kinds.numel(), self.source_kinds.numel(), -1)
        query = query.index_select(0, self.target_kinds).unsqueeze(1).expand(shape).flatten(0, 1)
        key = key.index_select(0, self.source_kinds).unsqueeze(0).expand(shape).flatten(0, 1)
        pair = torch.arange(query.size(0), device=query.device)
        each = Neighbors.from_edge_index(pair.expand(2, -1), query.size(0))
        message = tiled_aggregate(network, query, key, each, combine=combine, backend=backend)
        target_weight, source_weight = self.original.weights(reduce, message.dtype)
        if source_weight is not None:
            factor = source_weight.index_select(0, self.original.edge_index[0])
            edge_weight = factor if edge_weight is None else edge_weight * factor
        nothing = message.new_zeros(1, message.size(-1)).expand(self.messages.num_targets, -1)
        out = sir_aggregate(nothing, message, self.messages, None, edge_weight, "identity", backend=backend)
        return out if target_weight is None else out * target_weight.unsqueeze(-1)


def _distinct(kind: Tensor, num_kinds: int, present: Tensor) -> tuple[Tensor, Tensor]:
    """The kinds of the nodes that are present, and for every such node the place of its kind among them."""
    seen = kind.new_zeros(num_kinds, dtype=torch.int64)
    seen = seen.scatter_reduce(0, kind.to(torch.int64), present.to(torch.int64), "amax")
    return seen.nonzero().flatten(), (seen.cumsum(0) - 1).index_select(0, kind)


def aggregate_network(
    network: nn.Module,
    query: Rows,
    key: Rows,
    neighbors: Neighbors,
    edge: Float[Tensor, "edges d_edge"] | tuple[Float[Tensor, "types d_edge"], Int[Tensor, " edges"]] | None = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
    reduce: str = "sum",
    combine: str = "add",
    backend: str | None = None,
) -> Float[Tensor, "*batch targets d_out"]:
    """`tiled_aggregate` of rows that may repeat.

    The network runs once per pair of kinds where all of these hold, and otherwise once per edge:

    - several nodes share a row, both in query and in key
    - there are few pairs of kinds for the size of the graph
    - the network consists of linear layers and activations only, so that equal inputs have equal messages
    - there is no edge term, and the reduction is not max
    - rows are float32 or float64, the call is a plain eager one, and the backend is not the reference

    Args:
        network: g, as in `tiled_aggregate`.
        query, key: what the target and the source of an edge contribute.
        neighbors, edge, edge_weight, reduce, combine, backend: as in `tiled_aggregate`.

    >>> ring = Neighbors.from_edge_index(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), 4)
    >>> rows = Rows(torch.tensor([[-1.0], [2.0]]), torch.tensor([0, 0, 1, 1]))
    >>> aggregate_network(nn.ReLU(), rows, rows, ring).flatten().tolist()
    [1.0, 0.0, 1.0, 4.0]
    """
    if edge is None and reduce != "max" and _can_share_pairs(network, query, key, backend):
        pairs = _pairs(query, key, neighbors)
        if pairs is not None:
            return pairs.aggregate(network, query.table, key.table, edge_weight, reduce, combine, backend)
    return tiled_aggregate(
        network, query.expand(), key.expand(), neighbors, edge, edge_weight, reduce, combine, backend=backend
    )


def _can_share_pairs(network: nn.Module, query: Rows, key: Rows, backend: str | None) -> bool:
    """Whether a network's messages may be computed once per pair of kinds."""
    return (
        query.index is not None
        and key.index is not None
        and query.dtype == key.dtype
        and query.dtype in (torch.float32, torch.float64)
        and is_plain_call(query.device.type)
        and isinstance(network, nn.Module)  # type: ignore[redundant-expr]
        and acts_alike(network)
        and choose_backend(backend, query.device) != "reference"
    )


def _pairs(query: Rows, key: Rows, neighbors: Neighbors) -> KindPairs | None:
    """The pairs of the rows of query and key; None where there are too many, or where the rows do not fit the graph."""
    assert query.index is not None
    assert key.index is not None
    if (len(query.index), len(key.index)) != (neighbors.num_targets, neighbors.num_sources):
        return None
    return KindPairs.of(query.index, key.index, (query.table.size(0), key.table.size(0)), neighbors)


def weighted_batch_norm(
    table: Float[Tensor, "rows d"],
    share: Float[Tensor, " rows"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "rows d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    r"""Batch norm in training, of rows that stand for different numbers of nodes.

    .. math:: Y_k = \gamma \frac{T_k - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta, \qquad
        \mu = \sum_k s_k T_k, \qquad \sigma^2 = \sum_k s_k (T_k - \mu)^2

    Args:
        table: T, float32 or float64.
        share: s, the share of the nodes that have each row; the shares sum to 1 and get no gradient.
        weight: gamma.
        bias: beta.
        eps: epsilon.

    Returns:
        Y, the mean and the variance. The two moments have no gradient.

    >>> table, share, one = torch.tensor([[0.0], [4.0]]), torch.tensor([0.75, 0.25]), torch.ones(1)
    >>> _, mean, variance = weighted_batch_norm(table, share, one, one)
    >>> mean.item(), variance.item()
    (1.0, 3.0)
    """
    if table.dim() != 2 or not weight.shape == bias.shape == table.shape[1:] or share.shape != table.shape[:1]:
        shapes = [list(tensor.shape) for tensor in (table, share, weight, bias)]
        raise ValueError(f"weighted_batch_norm: expected shapes [K, d], [K], [d] and [d], got {shapes}")
    check_devices({"table": table, "share": share, "weight": weight, "bias": bias})
    found: tuple[Tensor, Tensor, Tensor] = _BatchNorm.apply(table, share, weight, bias, eps)  # type: ignore[no-untyped-call]
    return found


def _can_run_norm(*tensors: Tensor) -> bool:
    """Whether C can compute the norm: a plain call on CPU tensors of one dtype, float32 or float64."""
    first = tensors[0]
    return (
        native.can_run_rows(first) and all(t.dtype == first.dtype and is_open(t) for t in tensors) and is_plain_call()
    )


def _run_norm(table: Tensor, eps: float = 0.0, **others: Tensor) -> None:
    """Run the C kernel on contiguous tensors, given by their names there: backward if one of them is a gradient."""
    rows, width = table.shape
    _kernels.norm(
        dtype=native.DTYPES[table.dtype],
        threads=native.threads_for(table.numel()),
        rows=rows,
        width=width,
        table=flat(table),
        **{name: flat(tensor) for name, tensor in others.items()},
        eps=eps,
    )


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, share: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        table, share, weight, bias = (tensor.contiguous() for tensor in (table, share, weight, bias))
        if _can_run_norm(table, share, weight, bias):
            out, (mean, variance, scale) = torch.empty_like(table), table.new_empty(3, table.size(1))
            moments = {"mean": mean, "variance": variance, "scale": scale}
            _run_norm(table, eps, share=share, weight=weight, bias=bias, **moments, out=out)
        else:
            mean = share @ table
            variance = share @ (table - mean).square()
            scale = torch.rsqrt(variance + eps)
            out = (table - mean) * (scale * weight) + bias
        ctx.save_for_backward(table, share, weight, bias, mean, scale)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        # Read only once, because a checkpoint computes the saved tensors again at every access.
        saved = table, share, weight, _, mean, scale = ctx.saved_tensors
        if _can_run_norm(grad, table, share, weight):
            grad = grad.contiguous()
            out, (grad_weight, grad_bias) = torch.empty_like(table), table.new_empty(2, table.size(1))
            grads = {"grad": grad, "grad_weight": grad_weight, "grad_bias": grad_bias}
            _run_norm(table, share=share, weight=weight, mean=mean, scale=scale, **grads, out=out)
        else:
            unit = (table - mean) * scale
            grad_weight, grad_bias = (grad * unit).sum(0), grad.sum(0)
            out = scale * weight * (grad - share.unsqueeze(1) * (grad_bias + unit * grad_weight))
        return once_differentiable((out, None, grad_weight, grad_bias, None), saved, "weighted_batch_norm")
