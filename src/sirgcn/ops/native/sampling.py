"""The calls of the C code that draws neighbours and numbers the nodes that were found."""

import torch
from torch import Tensor

from sirgcn.ops.door import flat
from sirgcn.ops.native import UNAVAILABLE

if UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

# With fewer targets, waking a thread costs more time than it saves.
_ONE_THREAD = 512
_FEWEST_SLOTS = 1024
_MOST_AT_ONCE = 2**18
# The table holds numbers of 32 bits, and is never more than half full.
_MOST_KEYS = 2**30


def group_targets(
    source: Tensor, target: Tensor, sizes: tuple[int, int], dtype: torch.dtype, with_edges: bool
) -> tuple[tuple[int, int], tuple[Tensor, Tensor, Tensor | None]]:
    """The edges grouped by target only: ptr, node and, where wanted, edge; before them the places of bad ends."""
    edges = source.numel()
    ptr, node = source.new_empty(sizes[1] + 1, dtype=dtype), source.new_empty(edges, dtype=dtype)
    edge = source.new_empty(edges, dtype=dtype) if with_edges else None
    bad: tuple[int, int] = _kernels.group_targets(
        source=flat(source),
        target=flat(target),
        wide_in=source.dtype == torch.int64,
        wide_out=dtype == torch.int64,
        edges=edges,
        num_sources=sizes[0],
        num_targets=sizes[1],
        ptr=flat(ptr),
        node=flat(node),
        edge=flat(edge),
    )
    return bad, (ptr, node, edge)


def draw(
    groups: tuple[Tensor, Tensor, Tensor | None],
    sizes: tuple[int, int],
    frontier: Tensor,
    fanout: int,
    seed: int,
    root: Tensor | None,
    replace: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours of the frontier: their keys, the place of their targets in the frontier, and the edges."""
    ptr, node, edge = groups
    count = frontier.numel()
    offset = frontier.new_empty(count + 1)
    call = {
        "ptr": flat(ptr),
        "node": flat(node),
        "edge": flat(edge),
        "wide_ptr": ptr.dtype == torch.int64,
        "wide": node.dtype == torch.int64,
        "sources": sizes[0],
        "targets": sizes[1],
        "frontier": flat(frontier),
        "count": count,
        "root": flat(root),
        "fanout": fanout,
        "replace": replace,
        "seed": seed,
        "offset": flat(offset),
        "threads": 1 if count < _ONE_THREAD else torch.get_num_threads(),
    }
    total = _kernels.count_drawn(**call)
    found, owner, place = (frontier.new_empty(total) for _ in range(3))
    _kernels.draw(**call, found=flat(found), owner=flat(owner), place=flat(place))
    return found, owner, place


class Numbers:
    """Keys and their numbers, in the order in which the keys were first seen."""

    def __init__(self) -> None:
        self.table = torch.zeros(_FEWEST_SLOTS, dtype=torch.int32)
        self.room = torch.empty(_FEWEST_SLOTS, dtype=torch.int64)
        self.known = 0

    @property
    def keys(self) -> Tensor:
        """The key of every number."""
        return self.room[: self.known]

    def add(self, found: Tensor, keeps_repeats: bool = False) -> Tensor:
        """The numbers of keys; unknown keys get the next ones. A kept repeat gets a number of its own."""
        self._make_room(found.numel())
        # Room for as many new keys as are likely, without a table that is far larger than the nodes that are found.
        self._widen(4 * min(self.known + found.numel(), _MOST_AT_ONCE))
        number, mode = torch.empty_like(found), 2 if keeps_repeats else 1
        done = self._number(found, number, mode)
        while done < found.numel():
            self._widen(4 * self.table.numel())
            done += self._number(found[done:], number[done:], mode)
        return number

    def find(self, keys: Tensor) -> Tensor:
        """The numbers of keys, -1 for unknown ones."""
        number = torch.empty_like(keys)
        self._number(keys, number, 0)
        return number

    def _number(self, found: Tensor, number: Tensor, mode: int) -> int:
        done, self.known = _kernels.number(
            table=flat(self.table),
            slots=self.table.numel(),
            key=flat(self.room),
            known=self.known,
            found=flat(found),
            count=found.numel(),
            number=flat(number),
            mode=mode,
        )
        return done

    def _make_room(self, more: int) -> None:
        if self.known + more > self.room.numel():
            wider = self.room.new_empty(2 * (self.known + more))
            wider[: self.known] = self.keys
            self.room = wider

    def _widen(self, slots: int) -> None:
        """Make the table at least this large, and put all keys that are known into it."""
        if slots <= self.table.numel():
            return
        if self.known >= _MOST_KEYS:
            raise MemoryError(f"sampler: expected fewer than {_MOST_KEYS} nodes in a batch")
        keys, self.table = self.keys.clone(), self.table.new_zeros(1 << (slots - 1).bit_length())
        self.known = 0
        self._number(keys, torch.empty_like(keys), 2)
