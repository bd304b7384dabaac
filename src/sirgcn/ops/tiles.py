"""Tiles of edges: what a message network reads and computes for them, and how their messages are reduced."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sirgcn.ops import native
from sirgcn.ops.calls import is_compiling
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.reference import accumulation_dtype

COMBINE: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "add": lambda query, key, edge: query + key if edge is None else query + key + edge,
    "cat": lambda query, key, edge: torch.cat(
        [query, key] if edge is None else [query, edge.expand(*query.shape[:-1], edge.size(-1)), key], dim=-1
    ),
}
"""How the ends of an edge are put together for the message network: q_u + e_uv + k_v, or [h_u || h_uv || h_v]."""


class Inputs(NamedTuple):
    """The tensors that may get a gradient."""

    query: Tensor
    key: Tensor
    table: Tensor | None
    edge_weight: Tensor | None

    def named(self) -> dict[str, Tensor | None]:
        """The tensors by the names that the caller knows them by."""
        return {"query": self.query, "key": self.key, "edge": self.table, "edge_weight": self.edge_weight}


class Tile(NamedTuple):
    """A range of the edges in target-grouped order.

    Args:
        start: the place of the first edge in that order.
        target, source: the ends of the edges.
        edge: the places of the edges in the input.
        row: the rows of the edges in the table of edge terms.
    """

    start: int
    target: Tensor
    source: Tensor
    edge: Tensor
    row: Tensor


@dataclass(frozen=True, eq=False)
class Plan:
    """What is computed, apart from the tensors that get a gradient."""

    network: nn.Module
    neighbors: Neighbors
    edge_type: Tensor | None
    reduce: str
    combine: str
    tile: int

    def weights(self) -> tuple[Tensor | None, Tensor | None]:
        """The factors a_u and b_v in float64, which is exact enough for any message dtype.

        The graph keeps them for the backward pass. They are cast where they are applied.
        """
        return (None, None) if self.reduce == "max" else self.neighbors.weights(self.reduce, torch.float64)

    def tiles(self, size: int) -> Iterator[Tile]:
        """Tiles of `size` edges, in target-grouped order.

        There is at least one tile, so that an empty graph has an output width.
        """
        self.neighbors.check_frozen()
        grouping = self.neighbors.by_target
        target = self.neighbors.edge_index[1].to(grouping.node.dtype)
        for start in range(0, max(1, self.neighbors.num_edges), size):
            edge = grouping.edge[start : start + size]
            source = grouping.node[start : start + size]
            row = edge if self.edge_type is None else self.edge_type.index_select(0, edge)
            yield Tile(start, target.index_select(0, edge), source, edge, row)

    def ends(self, tile: Tile, inputs: Inputs) -> Tensor:
        """The input of the network for the edges of a tile, `[*batch, tile, d_in]`."""
        query, key, table, _ = inputs
        given = [tensor for tensor in (query, key, table) if tensor is not None]
        if self.combine == "add" and not _needs_torch(given) and native.can_run_rows(*given):
            return native.gather_add(query, key, table, tile.target, tile.source, tile.row)
        return COMBINE[self.combine](
            query.index_select(-2, tile.target),
            key.index_select(-2, tile.source),
            None if table is None else table.index_select(-2, tile.row),
        )

    def split(self, grad_ends: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of a gradient of `ends` that belong to query, key and table."""
        if self.combine == "add":
            return grad_ends, grad_ends, grad_ends
        width = 0 if inputs.table is None else inputs.table.size(-1)
        query, table, key = grad_ends.split([inputs.query.size(-1), width, inputs.key.size(-1)], dim=-1)
        return query, key, table

    def message(
        self,
        tile: Tile,
        ends: Tensor,
        edge_weight: Tensor | None,
        network: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """w_uv * b_v * g(ends) for the tile's edges, `[*batch, tile, d_out]`; a_u is applied once per node."""
        message: Tensor = (self.network if network is None else network)(ends)
        if message.shape[:-1] != ends.shape[:-1]:
            raise ValueError(
                f"network: expected one message per row of its input, shape "
                f"{[*ends.shape[:-1], 'd_out']}, got {list(message.shape)}"
            )
        if edge_weight is not None:
            message = message * edge_weight.to(message.dtype).unsqueeze(-1)
        source_weight = self.weights()[1]
        if source_weight is not None:
            factor = source_weight.index_select(0, tile.source)
            message = message * factor.to(message.dtype).unsqueeze(-1)
        return message

    def scale_targets(self, rows: Tensor) -> Tensor:
        """a_u times the row of every target u."""
        target_weight = self.weights()[0]
        if target_weight is None:
            return rows
        return rows * target_weight.to(rows.dtype).unsqueeze(-1)


def _needs_torch(tensors: list[Tensor]) -> bool:
    """Whether torch compiles, or has to differentiate, what is computed from these tensors."""
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return needs_grad or is_compiling()


def weights_of(tile: Tile, inputs: Inputs) -> Tensor | None:
    """The weights w_uv of the edges of a tile."""
    return None if inputs.edge_weight is None else inputs.edge_weight.index_select(0, tile.edge)


def add_rows_into(total: Tensor, index: Tensor, rows: Tensor) -> None:
    """total[index[i]] += rows[i]. If the total has no batch dimension, the rows are first summed over theirs."""
    if rows.dim() > total.dim():
        rows = rows.flatten(0, -total.dim() - 1).sum(0)
    rows = rows.to(total.dtype)
    if native.can_run_rows(total, rows):
        native.add_rows(total, index, rows)
    else:
        total.index_add_(-2, index, rows)


def untiled(plan: Plan, inputs: Inputs) -> Tensor:
    """The definition: one tile of all edges, which torch differentiates."""
    (tile,) = plan.tiles(max(1, plan.neighbors.num_edges))
    message = plan.message(tile, plan.ends(tile, inputs), weights_of(tile, inputs))
    shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
    if plan.reduce != "max":
        total = message.new_zeros(shape, dtype=accumulation_dtype(message.dtype))
        total = total.index_add(-2, tile.target, message.to(total.dtype))
        return plan.scale_targets(total).to(message.dtype)
    if is_compiling() or plan.neighbors.num_edges == 0:
        # A target without neighbours selects the row of zeros that is appended here.
        message = torch.cat([message, message.new_zeros([*message.shape[:-2], 1, message.size(-1)])], -2)
        first = _first_max(message[..., :-1, :].detach(), tile.target, plan.neighbors.num_targets)
        isolated = (plan.neighbors.in_degree() == 0).unsqueeze(-1)
        return message.gather(-2, torch.where(isolated, message.size(-2) - 1, first))
    winner = message.new_full(shape, -1, dtype=torch.int64)
    _raise_max(message.new_zeros(shape), winner, tile, message.detach())
    return torch.where(winner < 0, 0, message.gather(-2, winner.clamp(min=0)))


def _first_max(message: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """The first row of every segment that holds its channel's maximum, `[*batch, segments, d]`; NaN is the largest."""
    index = segment.to(torch.int64).unsqueeze(-1).expand_as(message)
    shape = [*message.shape[:-2], num_segments, message.size(-1)]
    top = message.new_full(shape, -torch.inf)
    top = top.scatter_reduce(-2, index, message, "amax", include_self=False)
    nearest = top.index_select(-2, segment)
    is_top = (message == nearest) | (message.isnan() & nearest.isnan())
    place = torch.arange(message.size(-2), device=message.device).unsqueeze(-1)
    place = torch.where(is_top, place, message.size(-2))
    first = place.new_full(shape, message.size(-2))
    return first.scatter_reduce(-2, index, place, "amin")


def _raise_max(top: Tensor, winner: Tensor, tile: Tile, message: Tensor) -> None:
    """Update the maxima with the messages of a tile, and the places of the edges that hold the maxima."""
    if native.can_run_rows(message):
        native.max_rows(top, winner, tile.target, message, tile.start)
        return
    # Only the targets of this tile are read and written, however many other nodes there are.
    targets, segment = torch.unique_consecutive(tile.target, return_inverse=True)
    place = _first_max(message, segment, targets.numel())
    best = message.gather(-2, place)
    before, held = top.index_select(-2, targets), winner.index_select(-2, targets)
    better = (held < 0) | (best > before) | (best.isnan() & ~before.isnan())
    top.index_copy_(-2, targets.long(), torch.where(better, best, before))
    winner.index_copy_(-2, targets.long(), torch.where(better, place + tile.start, held))


def forward_sum(plan: Plan, inputs: Inputs) -> tuple[Tensor, None]:
    """The weighted sum of all messages, tile by tile."""
    total: Tensor | None = None
    for tile in plan.tiles(plan.tile):
        message = plan.message(tile, plan.ends(tile, inputs), weights_of(tile, inputs))
        if total is None:
            shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
            total = message.new_zeros(shape, dtype=accumulation_dtype(message.dtype))
        add_rows_into(total, tile.target, message)
    assert total is not None
    return plan.scale_targets(total).to(message.dtype), None


def forward_max(plan: Plan, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The maximum, tile by tile, and the place of the edge that holds each entry (-1 without neighbours)."""
    out: Tensor | None = None
    for tile in plan.tiles(plan.tile):
        message = plan.message(tile, plan.ends(tile, inputs), weights_of(tile, inputs))
        if out is None:
            shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
            out = message.new_zeros(shape)
            winner = torch.full(shape, -1, device=message.device)
        _raise_max(out, winner, tile, message)
    assert out is not None
    return out, winner
