"""Messages between nodes of few kinds: one for every pair of kinds in place of one for every edge."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.ops.aggregate import sir_aggregate
from sirgcn.ops.checks import check_devices
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.tiled import tiled_aggregate

# At most: a few rows per node are memory that the layer needs anyway. A batch of DictionaryLookup(50) has 2.4.
_PAIRS_PER_NODE = 4


@dataclass(frozen=True, eq=False)
class KindPairs:
    r"""A graph whose nodes are of few kinds, so that edges between the same two kinds carry the same message.

    .. math:: \sum_{v \in N(u)} w_{uv} \, g(Q_{i_u}, K_{j_v}) = \sum_{v \in N(u)} w_{uv} \, M_{i_u j_v}, \qquad
        M_{ij} = g(Q_i, K_j)

    with i_u and j_v the kinds of a target and of a source. The network g costs as much as there are pairs of kinds;
    what is left per edge is to add a row. Build it with `of`.

    Args:
        target_kinds: the kinds i of targets with a neighbour, `[I]`.
        source_kinds: the kinds j of sources with a neighbour, `[J]`.
        original: the graph.
        messages: the graph with the pair (i, j) of an edge, number i * J + j, in place of its source.
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
        """The pairs of a graph's kinds; None where they are too many to gain time, or to keep memory linear in nodes.

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
        """`tiled_aggregate` with a row of query and key per kind, in float32 and float64, without max."""
        check_devices({"neighbors": self.original, "query": query, "key": key, "edge_weight": edge_weight})
        # Expanded at both ends: torch sums the gradients in a fixed order, as it does not where rows are selected.
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
