"""Neighbours drawn at random: in C, or in plain torch where the C code is missing, with equal results.

Every draw is a hash of the seed, the target, the root of its tree if it has one, and the number of the draw.
So it does not depend on the batch, on threads, or on processes.
"""

from typing import NamedTuple, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.door import is_open, opened
from sirgcn.ops.native import sampling as in_c
from sirgcn.ops.neighbors import check_edge_index

_GOLDEN = -0x61C8864680B583EB
_FIRST, _SECOND = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_BITS = 2**64


class InEdges(NamedTuple):
    """The edges of a graph grouped by target, without their transpose: what a sampler reads.

    Args:
        ptr: where the group of each target begins, `[targets + 1]`.
        node: the source of every edge.
        edge: the number of every edge in the input; None where edges are numbered by their places here.
        num_sources: the number of nodes from which edges come.

    >>> edges = InEdges.of(torch.tensor([[2, 0, 1], [1, 0, 1]]), (3, 3))
    >>> edges.ptr.tolist(), edges.node.tolist(), edges.in_degree().tolist()
    ([0, 1, 3, 3], [0, 2, 1], [1, 2, 0])
    """

    ptr: Int[Tensor, " targets_plus_1"]
    node: Int[Tensor, " edges"]
    edge: Int[Tensor, " edges"] | None
    num_sources: int

    @classmethod
    def of(cls, edge_index: Int[Tensor, "2 edges"], size: tuple[int, int]) -> "InEdges":
        """Group the edges of `edge_index` (row 0: sources, row 1: targets) of a graph of (sources, targets) nodes."""
        check_edge_index(edge_index)
        edge_index = opened(edge_index)
        fits = max(edge_index.size(1), *size) <= torch.iinfo(torch.int32).max
        dtype = torch.int32 if fits else torch.int64
        if native.UNAVAILABLE is None and is_open(edge_index) and min(size) >= 0:
            source, target = (row.contiguous() for row in edge_index)
            bad, groups = in_c.group_targets(source, target, size, dtype, with_edges=True)
            if bad == (-1, -1):
                return cls(*groups, size[0])
        check_edge_index(edge_index, size)
        order = torch.sort(edge_index[1], stable=True).indices
        ptr = torch.cat([edge_index.new_zeros(1), edge_index[1].bincount(minlength=size[1]).cumsum(0)])
        return cls(ptr.to(dtype), edge_index[0][order].to(dtype), order.to(dtype), size[0])

    @property
    def num_targets(self) -> int:
        """The number of nodes in which edges end."""
        return self.ptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.node.numel()

    def in_degree(self) -> Int[Tensor, " targets"]:
        """The number of neighbours of every target."""
        return self.ptr.diff()

    def out_degree(self) -> Int[Tensor, " sources"]:
        """The number of edges that leave every source, counted in pieces of bounded memory."""
        total = torch.zeros(self.num_sources, dtype=torch.int64)
        for piece in self.node.split(2**24):
            total += torch.bincount(piece, minlength=self.num_sources)
        return total


class Draw(NamedTuple):
    """How neighbours are drawn.

    Args:
        fanout: how many of each target, -1 for all.
        seed: the seed of this hop.
        replace: whether an edge may be drawn twice.

    >>> Draw(5, seed=0).replace
    False
    """

    fanout: int
    seed: int
    replace: bool = False


def draw_neighbors(
    edges: InEdges,
    frontier: Int[Tensor, " n"],
    how: Draw,
    root: Int[Tensor, " trees"] | None = None,
    backend: str | None = None,
) -> tuple[Int[Tensor, " drawn"], Int[Tensor, " drawn"], Int[Tensor, " drawn"]]:
    """Neighbours of the targets in the frontier, drawn uniformly.

    Args:
        edges: the graph.
        frontier: the targets, int64. With trees, target u in tree t has the key t * targets + u.
        how: how many are drawn.
        root: the node at the root of each tree; None where there are no trees.
        backend: `"native"` or `"torch"`; None chooses the native code where there is one.

    Returns:
        The sources (with trees their keys t * sources + v), the places of their targets in the frontier, and the
        numbers of the edges. The edges of a target stand in the order of the graph.

    >>> star = InEdges.of(torch.tensor([[1, 2, 3], [0, 0, 0]]), (4, 4))
    >>> found, owner, edge = draw_neighbors(star, torch.tensor([0]), Draw(2, seed=1))
    >>> len(found), owner.tolist(), bool((found == edge + 1).all())
    (2, [0, 0], True)
    """
    if uses_c(backend):
        groups, sizes = (edges.ptr, edges.node, edges.edge), (edges.num_sources, edges.num_targets)
        return in_c.draw(groups, sizes, frontier.contiguous(), how.fanout, how.seed, root, how.replace)
    node = frontier if root is None else frontier % edges.num_targets
    ptr = edges.ptr
    first, degree = ptr[node].long(), (ptr[node + 1] - ptr[node]).long()
    stream = mixed(how.seed + (node + 1) * _GOLDEN)
    if root is not None:
        stream = mixed(stream + (root[frontier // edges.num_targets] + 1) * _GOLDEN)
    place, owner = _draw_places(degree, stream, how)
    at = first[owner] + place
    found = edges.node[at].long()
    if root is not None:
        found = found + (frontier // edges.num_targets)[owner] * edges.num_sources
    return found, owner, at if edges.edge is None else edges.edge[at].long()


def _draw_places(degree: Tensor, stream: Tensor, how: Draw) -> tuple[Tensor, Tensor]:
    """Places in the groups of targets, and the place of each target: all of small groups, some of large ones."""
    is_drawn = degree > 0 if how.replace else degree > how.fanout
    is_drawn &= how.fanout >= 0
    taken = degree.masked_fill(is_drawn, 0)
    owner = torch.repeat_interleave(taken)
    place = torch.arange(len(owner)) - (taken.cumsum(0) - taken)[owner]
    if not bool(is_drawn.any()):
        return place, owner
    drawn = _with_replacement if how.replace else _floyd
    some = drawn(degree[is_drawn], stream[is_drawn], how.fanout).sort(1).values
    targets = is_drawn.nonzero().expand(-1, how.fanout)
    place, owner = torch.cat([place, some.flatten()]), torch.cat([owner, targets.flatten()])
    order = torch.sort(owner, stable=True).indices
    return place[order], owner[order]


def _with_replacement(degree: Tensor, stream: Tensor, count: int) -> Tensor:
    places = [_below(stream, i, degree) for i in range(count)]
    return torch.stack(places, 1) if places else degree.new_empty(len(degree), 0)


def _floyd(degree: Tensor, stream: Tensor, count: int) -> Tensor:
    """`count` different places below every degree, by Floyd's algorithm (https://doi.org/10.1145/30401.315746)."""
    drawn = degree.new_empty(len(degree), count)
    for i in range(count):
        last = degree - count + i
        place = _below(stream, i, last + 1)
        is_taken = (drawn[:, :i] == place.unsqueeze(1)).any(1)
        drawn[:, i] = torch.where(is_taken, last, place)
    return drawn


def _below(stream: Tensor, number: int, n: Tensor) -> Tensor:
    """The number of a draw, at least 0 and below n."""
    step = torch.tensor(number + 1) * _GOLDEN
    bits = (mixed(stream + step) >> 11) & (2**53 - 1)
    return torch.minimum((bits.double() * 2.0**-53 * n.double()).long(), n - 1)


def mixed(x: Tensor) -> Tensor:
    """The last step of SplitMix64, a hash of 64 bits, of every entry of an int64 tensor.

    >>> mixed(torch.tensor([0, 1])).tolist()
    [0, 6238072747940578789]
    """
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _FIRST
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _SECOND
    return x ^ ((x >> 31) & (2**33 - 1))


def seed_of(*parts: int) -> int:
    """One seed of 64 bits from several whole numbers; their order counts.

    >>> seed_of(0, 1) != seed_of(1, 0)
    True
    """
    state = torch.zeros((), dtype=torch.int64)
    for part in parts:
        wrapped = (int(part) + _BITS // 2) % _BITS - _BITS // 2
        state = mixed(state + _GOLDEN + mixed(torch.tensor(wrapped) + _GOLDEN))
    return int(state)


class Numbering(Protocol):
    """Keys and their numbers, in the order in which the keys were first seen."""

    @property
    def keys(self) -> Tensor:
        """The key of every number."""

    def add(self, found: Tensor, keeps_repeats: bool = False) -> Tensor:
        """The numbers of keys; unknown keys get the next ones. A kept repeat gets a number of its own."""

    def find(self, keys: Tensor) -> Tensor:
        """The numbers of keys, -1 for unknown ones."""


class TorchNumbers:
    """`Numbering` in plain torch.

    >>> numbers = TorchNumbers()
    >>> numbers.add(torch.tensor([7, 3, 7])).tolist(), numbers.find(torch.tensor([3, 4])).tolist()
    ([0, 1, 0], [1, -1])
    """

    def __init__(self) -> None:
        self.keys = torch.empty(0, dtype=torch.int64)

    def add(self, found: Tensor, keeps_repeats: bool = False) -> Tensor:
        known = len(self.keys)
        if keeps_repeats:
            self.keys = torch.cat([self.keys, found])
            return torch.arange(known, known + len(found))
        number = self.find(found)
        fresh, place = torch.unique(found[number < 0], return_inverse=True)
        first = torch.full_like(fresh, len(found)).scatter_reduce(0, place, torch.arange(len(place)), "amin")
        rank = torch.empty_like(first)
        rank[first.argsort()] = torch.arange(known, known + len(fresh))
        number[number < 0] = rank[place]
        self.keys = torch.cat([self.keys, fresh[first.argsort()]])
        return number

    def find(self, keys: Tensor) -> Tensor:
        if not len(self.keys):
            return torch.full_like(keys, -1)
        # Stable, so that a key that repeats stands for its first number.
        ordered, number = self.keys.sort(stable=True)
        at = torch.searchsorted(ordered, keys).clamp(max=len(ordered) - 1)
        return torch.where(ordered[at] == keys, number[at], -1)


def new_numbers(backend: str | None = None) -> Numbering:
    """An empty numbering, of the backend of `draw_neighbors`.

    >>> new_numbers().add(torch.tensor([9, 9, 5])).tolist()
    [0, 0, 1]
    """
    return in_c.Numbers() if uses_c(backend) else TorchNumbers()


def uses_c(backend: str | None) -> bool:
    """Whether the native code draws; a backend that was asked for and is missing raises.

    >>> uses_c("torch")
    False
    """
    if backend not in (None, "native", "torch"):
        raise ValueError(f"backend: expected native, torch or None, got {backend!r}")
    if backend == "native" and native.UNAVAILABLE is not None:
        raise RuntimeError(f"backend: native is not available: {native.UNAVAILABLE}")
    return backend != "torch" and native.UNAVAILABLE is None
