"""Partitions: which rank owns which node, so that few edges join nodes of different ranks."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sirgcn.strict import Count, Size, check_name, checked

METHODS = ("auto", "metis", "labels", "blocks")
"""The methods of `part_nodes`."""

# A part may be larger than the mean by this share, so that nodes can move.
_SLACK = 0.05


@checked
def part_nodes(
    edge_index: Tensor,
    num_nodes: Count,
    parts: Size,
    method: Literal["auto", "metis", "labels", "blocks"] = "auto",
    seed: Count = 0,
) -> Tensor:
    """The part of each node, int64 `[num_nodes]`. The same arguments give the same parts.

    Args:
        edge_index: the edges; their direction does not matter.
        num_nodes: the number of nodes.
        parts: the number of parts. A part is empty where there are fewer nodes than parts.
        method: how the nodes are divided:

            - `"metis"`: METIS, which needs pymetis (`pip install sirgcn[scale]`)
            - `"labels"`: balanced label propagation. It starts with blocks, and in every round the nodes move to the
              part that most of their neighbours have, as long as it has room.
            - `"blocks"`: ranges of nodes of the same length
            - `"auto"`: METIS if it is installed, otherwise label propagation
        seed: the seed of METIS and of the order in which nodes move.

    >>> two_triangles = torch.tensor([[0, 2, 4, 1, 3, 5, 0], [2, 4, 0, 3, 5, 1, 1]])
    >>> part = part_nodes(two_triangles, 6, parts=2, method="labels")
    >>> bool((part[[0, 2, 4]] == part[0]).all()), bool((part[[1, 3, 5]] == part[1]).all())
    (True, True)
    """
    check_name("method", method, METHODS, exact=True)
    if method in ("auto", "metis") and parts > 1 and num_nodes > parts:
        found = _metis(edge_index, num_nodes, parts, seed, is_needed=method == "metis")
        if found is not None:
            return found
    blocks = torch.arange(num_nodes) * parts // max(1, num_nodes)
    return blocks if method == "blocks" or parts == 1 else _propagated(edge_index, blocks, parts, seed)


def _metis(edge_index: Tensor, num_nodes: int, parts: int, seed: int, is_needed: bool) -> Tensor | None:
    """The partition of METIS; None where it is neither installed nor needed."""
    try:
        import pymetis
    except ImportError:
        if is_needed:
            raise ImportError("method: metis needs pymetis, `pip install sirgcn[scale]`; or use labels") from None
        return None
    source, target = _undirected(edge_index, num_nodes)
    order = torch.argsort(target, stable=True)
    pointer = torch.searchsorted(target[order].contiguous(), torch.arange(num_nodes + 1))
    options = pymetis.Options(seed=seed)
    adjacency = pymetis.CSRAdjacency(pointer.numpy(), source[order].numpy())
    _, found = pymetis.part_graph(parts, adjacency=adjacency, options=options)
    return torch.as_tensor(found, dtype=torch.int64)


def _undirected(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Each pair of different nodes that an edge joins, in both directions and once in each."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    code = torch.cat([source * num_nodes + target, target * num_nodes + source]).unique()
    return code // num_nodes, code % num_nodes


def _propagated(edge_index: Tensor, part: Tensor, parts: int, seed: int, rounds: int = 30) -> Tensor:
    """Balanced label propagation from a partition."""
    num_nodes, part = len(part), part.clone()
    if num_nodes == 0:
        return part
    source, target = _undirected(edge_index, num_nodes)
    capacity = -(-num_nodes // parts) + int(_SLACK * num_nodes / parts)
    generator = torch.Generator().manual_seed(seed)
    best, fewest = part.clone(), _cut(part, source, target)
    for _ in range(rounds):
        votes = torch.zeros(num_nodes, parts).view(-1)
        votes.index_add_(0, target * parts + part[source], torch.ones(len(source)))
        votes = votes.view(num_nodes, parts)
        # Half of the nodes at a time: otherwise neighbours would change places forever.
        votes[torch.rand(num_nodes, generator=generator) < 0.5] = 0
        gain, wish = (votes - votes.gather(1, part[:, None])).max(1)
        if not _move(part, gain, wish, parts, capacity, generator):
            continue
        cut = _cut(part, source, target)
        if cut < fewest:
            best, fewest = part.clone(), cut
    return best


def _move(part: Tensor, gain: Tensor, wish: Tensor, parts: int, capacity: int, generator: torch.Generator) -> bool:
    """Move the nodes that gain to the parts that they wish for; whether any has moved.

    A node moves if its part-to-be has room, or if another node moves the other way. Those that gain most come first.
    """
    movers = (gain > 0).nonzero().squeeze(1)
    # Equal gains in a drawn order.
    movers = movers[torch.randperm(len(movers), generator=generator)]
    movers = movers[torch.sort(gain[movers], descending=True, stable=True).indices]
    pair = part[movers] * parts + wish[movers]
    queues = [movers[pair == number] for number in range(parts * parts)]
    size, moved = torch.bincount(part, minlength=parts).tolist(), False
    for a in range(parts):
        for b in range(a + 1, parts):
            there, back = queues[a * parts + b], queues[b * parts + a]
            swaps = min(len(there), len(back))
            more = min(len(there) - swaps, max(0, capacity - size[b]))
            less = min(len(back) - swaps, max(0, capacity - size[a]))
            part[there[: swaps + more]] = b
            part[back[: swaps + less]] = a
            size[a], size[b] = size[a] - more + less, size[b] + more - less
            moved = moved or swaps + more + less > 0
    return moved


def _cut(part: Tensor, source: Tensor, target: Tensor) -> int:
    return int((part[source] != part[target]).sum())


@dataclass(frozen=True)
class PartSizes:
    """What each part owns, receives and sends; a list has one entry per part.

    Args:
        nodes: the nodes that it owns.
        edges: the edges that end in them.
        halo: the nodes of other parts from which these edges come.
        sent: the rows that it sends, one for each part that a node is in the halo of.
        largest: the nodes of its halo that one other part has, at most.

    >>> sizes_of(torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 0, 1]), 2).halo
    [1, 1]
    """

    nodes: list[int]
    edges: list[int]
    halo: list[int]
    sent: list[int]
    largest: list[int]

    def table(self, channels: int, dtype: torch.dtype = torch.float32, memory_bound: bool = False) -> str:
        """A text with a line for each part: its nodes, edges and halo, and the bytes of rows of this many channels."""
        row = channels * dtype.itemsize
        held = self.largest if memory_bound else self.halo
        lines = [f"{'rank':>4} {'nodes':>12} {'edges':>12} {'halo':>12} {'own rows':>12} {'held':>12} {'sent':>12}"]
        for rank, nodes in enumerate(self.nodes):
            counts = f"{nodes:>12,} {self.edges[rank]:>12,} {self.halo[rank]:>12,}"
            memory = " ".join(f"{_bytes(rows * row):>12}" for rows in (nodes, held[rank], self.sent[rank]))
            lines.append(f"{rank:>4} {counts} {memory}")
        way = "one rank after another" if memory_bound else "all at once"
        return "\n".join([*lines, f"A layer of {channels} channels fetches the rows of the halo {way}."])


def sizes_of(edge_index: Tensor, part: Tensor, parts: int) -> PartSizes:
    """What each part of a graph owns, receives and sends.

    >>> print(sizes_of(torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 0, 1]), 2).table(64))
    rank        nodes        edges         halo     own rows         held         sent
       0            2            2            1        512 B        256 B        256 B
       1            1            1            1        256 B        256 B        256 B
    A layer of 64 channels fetches the rows of the halo all at once.
    """
    owner, home = part[edge_index[0]], part[edge_index[1]]
    crossing = owner != home
    pairs = (home[crossing] * len(part) + edge_index[0, crossing]).unique()
    receiver, sender = pairs // max(1, len(part)), part[pairs % max(1, len(part))]
    between = torch.bincount(receiver * parts + sender, minlength=parts * parts).view(parts, parts)
    return PartSizes(
        torch.bincount(part, minlength=parts).tolist(),
        torch.bincount(home, minlength=parts).tolist(),
        between.sum(1).tolist(),
        between.sum(0).tolist(),
        between.max(1).values.tolist(),
    )


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError
