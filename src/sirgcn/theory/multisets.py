r"""Corollary 1: the kernel distance D between multisets of equal size, and the hash G whose distances it is.

A multiset is a tensor of rows `[*, n, F]`; leading dimensions are batches. On a graph it is the neighbourhood
:math:`H_u = \{\{h_v : v \in N(u)\}\}` of a node. There are two ways to compute D:

- If d has known features g, D is the distance between sums of g. This takes time linear in n and is exact to the last
  digits.
- Otherwise D is the double sum of Eq. 6, computed in blocks. Its rounding error is that of squares.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sirgcn.nn.adjacency import Graph, as_neighbors
from sirgcn.ops import Neighbors, sir_aggregate, tiled_aggregate
from sirgcn.ops.neighbors import check_reduce
from sirgcn.theory.pseudometrics import Features, Pseudometric, floating, row_distances

# The number of distances or features in a block: 32 MB in float64.
_BLOCK = 2**22
# The rounding error of D^2, relative to the sums of squares that cancel in it.
_CANCELLED = 1e-12


def kernel_distance(d: Pseudometric, first: Tensor, second: Tensor, query: Tensor | None = None) -> Tensor:
    r"""D between multisets of equal size (Corollary 1, Eq. 6), `[*]`; with a query, the contextual D (Eq. 9).

    .. math::
        D^2(H_1, H_2) = \sum_{h \in H_1, h' \in H_2} d^2(h, h')
        - \tfrac12 \sum_{h, h' \in H_1} d^2(h, h') - \tfrac12 \sum_{h, h' \in H_2} d^2(h, h')

    Args:
        d: a pseudometric that satisfies Assumption 1. A negative D^2 shows that it does not, and raises a ValueError.
        first, second: multisets `[*, n, F]` of one size n, at least 1.
        query: h_u `[*, Q]`, for a contextual d.

    >>> from sirgcn.theory import euclidean
    >>> first, second = torch.tensor([[0.0], [1.0]]), torch.tensor([[2.0], [3.0]])
    >>> kernel_distance(euclidean(), first, second).item()
    4.0
    """
    _check_multisets(first, second)
    d.check_query(query)
    if d.features is not None:
        g = d.features
        return floating(hash_multiset(g, first, query) - hash_multiset(g, second, query)).norm(dim=-1)
    cross, own, other = (_sum_of_squares(d, *pair, query) for pair in ((first, second), (first, first), (second,) * 2))
    return _root(cross, own, other, first.size(-2))


def hash_multiset(g: Features, rows: Tensor, query: Tensor | None = None, reduce: str = "sum") -> Tensor:
    r"""The hash :math:`G(H) = \sum_{h \in H} g(h)` (Eq. 8), `[*, S]`; contextual: :math:`\sum g(h; h_u)` (Eq. 10).

    With `reduce="mean"` the distances between hashes are D / n: the statement up to a constant scale (Section 4.1).

    Args:
        g: the features of a pseudometric, `d.features`, or any function of (x, query).
        rows: multisets `[*, n, F]`.
        query: h_u `[*, Q]`, if g reads it.
        reduce: sum or mean.

    >>> hash_multiset(lambda x, query: x.square(), torch.tensor([[1.0], [3.0]])).tolist()
    [10.0]
    """
    check_reduce(reduce, ("sum", "mean"))
    _check_multisets(rows, rows)
    total = g(rows, query).sum(-2)
    return total / rows.size(-2) if reduce == "mean" else total


def neighborhood_hash(
    d: Pseudometric, x: Tensor, graph: Graph, query: Tensor | None = None, reduce: str = "sum"
) -> Tensor:
    """G(H_u; h_u) of the neighbourhood of every node u (Eq. 10), `[targets, S]`; 0 for a node without neighbours.

    Args:
        d: a pseudometric with known features.
        x: the features of the source nodes, `[sources, F]`.
        graph: `edge_index` or `Neighbors`, as for `SIRConv`.
        query: h_u of every target, `[targets, Q]`, for a contextual d; None means x.
        reduce: sum or mean.

    >>> from sirgcn.theory import squared_score
    >>> x, edge_index = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0, 1], [2, 2]])
    >>> neighborhood_hash(squared_score(), x, edge_index).tolist()
    [[0.0], [0.0], [5.0]]
    """
    if d.features is None:
        raise ValueError(f"d: expected a pseudometric with known features, got {d!r}; feature_map finds them")
    check_reduce(reduce, ("sum", "mean"))
    neighbors, query = _neighborhoods(d, x, graph, query)
    with torch.no_grad():
        if query is None:
            g = d.features(x, None)
            own = g.new_zeros(neighbors.num_targets, g.size(-1))
            return sir_aggregate(own, g, neighbors, activation="identity", reduce=reduce)
        network = _EdgeFeatures(d.features, query.size(-1))
        return tiled_aggregate(network, query, x, neighbors, reduce=reduce, combine="cat")


class _EdgeFeatures(nn.Module):
    """Computes g(h_v; h_u) from the two ends [h_u || h_v] of an edge."""

    def __init__(self, g: Features, width: int) -> None:
        super().__init__()
        self.g, self.width = g, width

    def forward(self, ends: Tensor) -> Tensor:
        query, key = ends[..., : self.width], ends[..., self.width :]
        return self.g(key.unsqueeze(-2), query).squeeze(-2)


def neighborhood_distance(
    d: Pseudometric, x: Tensor, graph: Graph, pairs: Tensor, query: Tensor | None = None
) -> Tensor:
    """D(H_u, H_u'; h_u) for pairs of nodes, `[P]`. The nodes of a pair have equal degrees.

    Args:
        d: any pseudometric. If it is contextual, the nodes of a pair also have equal queries.
        x: the features of the source nodes, `[sources, F]`.
        graph: `edge_index` or `Neighbors`, as for `SIRConv`.
        pairs: nodes `[2, P]`, u in row 0 and u' in row 1.
        query: h_u of every target, `[targets, Q]`, for a contextual d; None means x.

    >>> from sirgcn.theory import euclidean
    >>> x, edge_index = torch.tensor([[1.0], [4.0], [0.0], [0.0]]), torch.tensor([[0, 1], [2, 3]])
    >>> neighborhood_distance(euclidean(), x, edge_index, torch.tensor([[2], [3]])).tolist()
    [3.0]
    """
    neighbors, query = _neighborhoods(d, x, graph, query)
    if pairs.dim() != 2 or len(pairs) != 2:
        raise ValueError(f"pairs: expected shape [2, pairs], got {list(pairs.shape)}")
    degree = _common_degrees(neighbors, pairs)
    if query is not None and not torch.equal(query[pairs[0]], query[pairs[1]]):
        raise ValueError(f"pairs: {d!r} is contextual and expects pairs of nodes with equal queries")
    # Two empty neighbourhoods are equal: their distance stays 0.
    out = floating(x).new_zeros(pairs.size(1))
    for size in degree[degree > 0].unique().tolist():
        here = (degree == size).nonzero().squeeze(-1)
        for part in here.split(max(1, _BLOCK // (size * size * max(1, x.size(1))))):
            first, second = (x[members(neighbors, pairs[side, part])] for side in (0, 1))
            context = None if query is None else query[pairs[0, part]]
            out[part] = kernel_distance(d, first, second, context).to(out.dtype)
    return out


def _common_degrees(neighbors: Neighbors, pairs: Tensor) -> Tensor:
    """The degree of both nodes of every pair, `[P]`; a pair with two degrees raises a ValueError."""
    degree = neighbors.in_degree()[pairs]
    unequal = (degree[0] != degree[1]).nonzero()
    if len(unequal):
        at = int(unequal[0])
        raise ValueError(
            f"pairs: expected neighbourhoods of equal size, got {degree[:, at].tolist()} neighbours "
            f"at nodes {pairs[:, at].tolist()}"
        )
    return degree[0]


def members(neighbors: Neighbors, nodes: Tensor) -> Tensor:
    """The neighbours of nodes `[B]` that all have one degree n, `[B, n]`."""
    ptr, node, _ = neighbors.by_target
    size = int(neighbors.in_degree()[nodes[0]]) if len(nodes) else 0
    places = ptr[nodes].long().unsqueeze(1) + torch.arange(size, device=ptr.device)
    return node[places].long()


def distance_matrix(d: Pseudometric, rows: Tensor, query: Tensor | None = None) -> Tensor:
    """D between every two of B multisets `[B, n, F]` under one query `[Q]`, `[B, B]`.

    >>> from sirgcn.theory import euclidean
    >>> distance_matrix(euclidean(), torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]])).tolist()
    [[0.0, 4.0], [4.0, 0.0]]
    """
    _check_multisets(rows, rows)
    if rows.dim() != 3:
        raise ValueError(f"rows: expected multisets [B, n, channels], got shape {list(rows.shape)}")
    places = torch.arange(rows.size(0) * rows.size(1), device=rows.device).view(rows.shape[:2])
    return MultisetDistances(d, rows.flatten(0, 1), places, query).block(slice(None), slice(None))


class MultisetDistances:
    """D between every two of B multisets of one size n under one query, block by block.

    Args:
        d: the pseudometric.
        x: features `[N, F]`.
        members: the rows of x that make up each multiset, `[B, n]`. Only one block of their features exists at a time.
        query: h_u `[Q]`, for a contextual d.
    """

    def __init__(self, d: Pseudometric, x: Tensor, members: Tensor, query: Tensor | None = None) -> None:
        d.check_query(query)
        self.d, self.x, self.members, self.query = d, x, members, query
        g, size = d.features, members.size(1)
        if g is not None:
            parts = members.split(max(1, _BLOCK // (size * max(1, x.size(1)))))
            self.hashes = torch.cat([hash_multiset(g, x[part], query) for part in parts])
        else:
            parts = members.split(max(1, _BLOCK // size**2))
            self.own = torch.cat([_sum_of_squares(d, x[part], x[part], query) for part in parts])

    def block(self, these: slice, those: slice) -> Tensor:
        """D between the multisets of two ranges."""
        if self.d.features is not None:
            return row_distances(self.hashes[these], self.hashes[those])
        rows, columns = self.members[these], self.members[those]
        cross = torch.cat([self._cross(rows, part) for part in columns.split(self._fitting(1))], dim=1)
        found = _root(cross, self.own[these].unsqueeze(1), self.own[those].unsqueeze(0), self.members.size(1))
        # The sums for one multiset with itself have two orders, and do not cancel to the last digit.
        places = torch.arange(len(self.members), device=found.device)
        return found.masked_fill(places[these].unsqueeze(1) == places[those], 0)

    def _cross(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Sums of d^2 across the multisets, `[rows, columns]`."""
        size, other = columns.size(1), self.x[columns.flatten()]
        sums = []
        for part in rows.split(self._fitting(len(columns))):
            squares = self.d.squares(self.x[part.flatten()], other, self.query)
            sums.append(squares.view(len(part), size, len(columns), size).sum((1, 3)))
        return torch.cat(sums)

    def _fitting(self, columns: int) -> int:
        return max(1, _BLOCK // (columns * self.members.size(1) ** 2))


@dataclass(frozen=True)
class Estimate:
    """An estimate of D^2. `fourier_distance` returns it.

    Attributes:
        squared: the estimate, without bias.
        error: its standard error, from the spread over the frequencies.
        bound: `|squared - D^2|` exceeds it with a probability of at most `risk` (Hoeffding).
        risk: of the bound.

    >>> Estimate(torch.tensor(4.0), torch.tensor(0.1), bound=0.5, risk=1e-6).distance.item()
    2.0
    """

    squared: Tensor
    error: Tensor
    bound: float
    risk: float

    @property
    def distance(self) -> Tensor:
        """The root of `squared`."""
        return self.squared.sqrt()


def fourier_distance(
    first: Tensor,
    second: Tensor,
    scale: float = 1.0,
    num_features: int = 1024,
    generator: torch.Generator | None = None,
    risk: float = 1e-6,
) -> Estimate:
    r"""D of `gaussian(scale=scale)`, estimated by random Fourier features (Rahimi and Recht 2007) in time linear in n.

    .. math::
        D^2 = \mathbb{E}_\omega \Bigl| \sum_{h \in H_1} e^{i \omega^\top h} - \sum_{h \in H_2} e^{i \omega^\top h}
        \Bigr|^2, \qquad \omega \sim \mathcal{N}(0, s^{-2} I)

    The exact D needs n^2 distances. Every draw lies between 0 and 4 n^2, from which the bound follows.

    Args:
        first, second: multisets `[*, n, F]`.
        scale: s.
        num_features: how many frequencies are drawn.
        generator: of the frequencies; None means torch's global one.
        risk: of the bound.

    >>> rows, generator = torch.zeros(3, 2), torch.Generator().manual_seed(0)
    >>> fourier_distance(rows, rows, generator=generator).distance.item()
    0.0
    """
    _check_multisets(first, second)
    if not scale > 0 or num_features < 2 or not 0 < risk < 1:
        raise ValueError(
            f"expected scale > 0, num_features >= 2 and 0 < risk < 1, got {scale}, {num_features} and {risk}"
        )
    first, second = floating(first), floating(second)
    frequencies = torch.randn(first.size(-1), num_features, generator=generator, dtype=torch.float64) / scale
    frequencies = frequencies.to(first)
    sums = [_waves(rows, frequencies) for rows in (first, second)]
    draws = (sums[0] - sums[1]).square().sum(-2)
    bound = 4 * first.size(-2) ** 2 * math.sqrt(math.log(2 / risk) / (2 * num_features))
    return Estimate(draws.mean(-1), draws.std(-1) / math.sqrt(num_features), bound, risk)


def _waves(rows: Tensor, frequencies: Tensor) -> Tensor:
    """The sums of cosines and of sines over the rows, `[*, 2, R]`, computed block by block."""
    per_row = frequencies.size(-1) * max(1, rows.numel() // max(1, rows.size(-1) * rows.size(-2)))
    total = rows.new_zeros(*rows.shape[:-2], 2, frequencies.size(-1))
    for part in rows.split(max(1, _BLOCK // per_row), dim=-2):
        phase = part @ frequencies
        total += torch.stack([phase.cos().sum(-2), phase.sin().sum(-2)], dim=-2)
    return total


def _sum_of_squares(d: Pseudometric, first: Tensor, second: Tensor, query: Tensor | None) -> Tensor:
    """The sum of d^2 over all pairs, `[*]`, computed in blocks of the first multiset."""
    batch = max(1, first.numel() // max(1, first.size(-1) * first.size(-2)))
    parts = first.split(max(1, _BLOCK // (batch * second.size(-2))), dim=-2)
    return torch.stack([d.squares(part, second, query).sum((-2, -1)) for part in parts]).sum(0)


def _root(cross: Tensor, own: Tensor, other: Tensor, size: int) -> Tensor:
    """D from its three sums. D^2 below 0 by rounding becomes 0; below that, d violates Assumption 1 and is refused."""
    squared = cross - own / 2 - other / 2
    allowed = _CANCELLED * size * (cross + own + other)
    if bool((squared < -allowed).any()):
        raise ValueError(
            f"d: expected a pseudometric that satisfies Assumption 1, got D^2 = {float(squared.min()):.3g} < 0"
        )
    return squared.clamp(min=0).sqrt()


def _neighborhoods(d: Pseudometric, x: Tensor, graph: Graph, query: Tensor | None) -> tuple[Neighbors, Tensor | None]:
    targets = len(x) if query is None else len(query)
    if isinstance(graph, Neighbors):
        targets = graph.num_targets
    neighbors = as_neighbors(graph, len(x), targets)
    if not d.contextual:
        return neighbors, None
    own = x if query is None else query
    if len(own) != neighbors.num_targets:
        raise ValueError(f"query: expected a row for each of the {neighbors.num_targets} targets, got {len(own)}")
    return neighbors, own


def _check_multisets(first: Tensor, second: Tensor) -> None:
    for name, rows in (("first", first), ("second", second)):
        if rows.dim() < 2:
            raise ValueError(f"{name}: expected rows of features [*, n, channels], got shape {list(rows.shape)}")
        if rows.size(-2) == 0:
            raise ValueError(f"{name}: expected a multiset of at least one element, got an empty one")
    if first.size(-2) != second.size(-2):
        raise ValueError(
            f"second: expected a multiset of {first.size(-2)} elements as the first has, got {second.size(-2)}: "
            "D is defined between multisets of equal size"
        )
    if first.size(-1) != second.size(-1):
        raise ValueError(f"second: expected {first.size(-1)} channels as the first has, got {second.size(-1)}")
