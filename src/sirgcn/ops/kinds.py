"""Nodes that message passing cannot tell apart: one row of work for each kind of them in place of one for each node."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.door import is_open
from sirgcn.ops.neighbors import Grouping, Neighbors

# Kinds per node at most: with more there is next to nothing to save. Edges per node at most: nodes with more neighbours
# hardly ever agree in all of them, and looking for it would cost as much as a layer.
_MOST_KINDS = 0.9
_MOST_EDGES = 8


@dataclass(frozen=True, eq=False, repr=False)
class KindEdges(Neighbors):
    """The edges that lead to one node of each finer kind, from the kinds before: what a layer needs to know.

    A reduction weighs them as it weighs the edges of the graph itself.

    Args:
        original: the graph.
        first_source: a node of each kind before, which are the sources.
        first_target: a node of each finer kind, which are the targets.
    """

    original: Neighbors
    first_source: Int[Tensor, " sources"]
    first_target: Int[Tensor, " targets"]

    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The rank-one weights (a_u, b_v) that the graph's nodes have."""
        target, source = self.original.weights(reduce, dtype)
        return (
            None if target is None else target.index_select(0, self.first_target),
            None if source is None else source.index_select(0, self.first_source),
        )

    def to(self, *args: Any, **kwargs: Any) -> "KindEdges":
        """As `Neighbors.to`."""
        plain, original = super().to(*args, **kwargs), self.original.to(*args, **kwargs)
        groupings = plain.edge_index, plain.by_target, plain.by_source, plain.num_sources, plain.num_targets
        first = (tensor.to(*args, **kwargs) for tensor in (self.first_source, self.first_target))
        return KindEdges(*groupings, original, *first, is_checked=True)


@dataclass(frozen=True, eq=False)
class Kinds:
    r"""The nodes of a graph in kinds, by rounds of colour refinement (1-WL).

    .. math:: k^{(l+1)}_u = k^{(l+1)}_{u'} \iff k^{(l)}_u = k^{(l)}_{u'} \text{ and }
        \{\!\{(k^{(l)}_v, e_{uv})\}\!\}_{v \in N(u)} = \{\!\{(k^{(l)}_v, e_{u'v})\}\!\}_{v \in N(u')}

    Nodes of one kind have equal rows after l layers of message passing, whatever the weights are, as long as the kinds
    that the rounds began with had equal rows, edges of a kind e equal features, and nothing is random. Begin with `of`.

    Args:
        graph: the graph, with one set of nodes.
        kind: of every node, int64 `[|V|]`.
        first: a node of each kind, `[K]`.
        count: the nodes of each kind, `[K]`.
    """

    graph: Neighbors
    kind: Int[Tensor, " nodes"]
    first: Int[Tensor, " kinds"]
    count: Int[Tensor, " kinds"]

    @classmethod
    def of(cls, label: Int[Tensor, " nodes"], graph: Neighbors) -> "Kinds | None":
        """Kinds by a label, at least 0, and by the degrees, which weigh messages; None where they cannot pay.

        They do not on a graph with many edges per node, nor without the C code.
        """
        if (
            native.UNAVAILABLE is not None
            or not is_plain_call()
            or graph.device.type != "cpu"
            or not is_open(label)
            or graph.num_sources != graph.num_targets
            or graph.num_targets == 0
            or graph.num_edges > _MOST_EDGES * graph.num_targets
        ):
            return None
        graph.check_frozen()
        # In one number, unless that could overflow.
        joint, combinations = label.to(torch.int64), int(label.max()) + 1
        for degree in (graph.in_degree(), graph.out_degree()):
            size = int(degree.max()) + 1
            joint, combinations = joint * size + degree, combinations * size
        if combinations > torch.iinfo(torch.int64).max:
            return None
        alone = Grouping(*(graph.by_target.ptr.new_zeros(size) for size in (graph.num_targets + 1, 0, 0)))
        found = native.refine(joint, alone, None, 1, int(_MOST_KINDS * graph.num_targets))
        return None if found is None else cls(graph, *found[:3])

    def refine(
        self, edge_kind: Int[Tensor, " edges"] | None = None, num_edge_kinds: int = 1
    ) -> "tuple[Kinds, KindEdges, Tensor] | None":
        """A round: the finer kinds, the edges that lead to them and their kinds; None where too few nodes agree.

        Args:
            edge_kind: of every edge, below `num_edge_kinds`; None where edges carry nothing.
        """
        # What does not fit is refused, by name, where every edge is looked at.
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


def _fits(edge_kind: Tensor, num_edges: int, num_kinds: int) -> bool:
    if edge_kind.dtype not in (torch.int32, torch.int64) or edge_kind.shape != (num_edges,) or not is_open(edge_kind):
        return False
    low, high = (int(bound) for bound in torch.aminmax(edge_kind)) if num_edges else (0, 0)
    return low >= 0 and high < num_kinds
