"""Node features of which many rows are equal: what acts on a row acts on each different one once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.ops import Neighbors
from sirgcn.ops.parts import acts_alike
from sirgcn.ops.reference import accumulation_dtype, cast
from sirgcn.ops.rows import look_up
from sirgcn.ops.sharing import KindEdges, Kinds, weighted_batch_norm


@dataclass(frozen=True, eq=False)
class Repeated:
    r"""Node features `(|V|, channels)` of which many rows are equal, as a table of the rows that differ.

    .. math:: h_v = T_{k_v}, \qquad W h_v = (T W^\top)_{k_v}

    A matrix product with them is one with the table, however many nodes there are. `SIRConv` takes it as `x`, and so
    do the other convolutions that say `can_take_rows`.

    Args:
        table: the rows that differ, `[K, channels]`.
        kind: the row of every node, int64 `[|V|]`.
        kinds: what is known of the kinds beyond that; None for nothing. Its kind is this one.
    """

    table: Tensor
    kind: Tensor
    kinds: Kinds | None = None

    def through(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The rows `(|V|, F)` of a function that acts on each row by itself.

        A module of which that is not known, say because a user put a batch norm into it, is given all rows.
        """
        if isinstance(function, nn.Module) and not is_row_by_row(function):
            return function(rows_of(self))
        rows = function(self.table)
        # Its backward sums over all nodes of a kind: in half precision such a sum stops growing.
        found = look_up(cast(rows, accumulation_dtype(rows.dtype)), self.kind)
        return cast(found, rows.dtype)

    def finer(self, graph: Neighbors, edge: EdgeAttr) -> "Refined | None":
        """What a layer needs to compute its output once for each kind that it can tell apart; None if it cannot pay.

        Args:
            graph: the edges.
            edge: their features; only a pair (table, kind) can be equal for many.
        """
        # Sums over kinds in half precision would not be those over nodes.
        if isinstance(edge, Tensor) or self.dtype not in (torch.float32, torch.float64):
            return None
        before = Kinds.of(self.kind, graph) if self.kinds is None else self.kinds
        if before is None:
            return None
        found = before.refine() if edge is None else before.refine(edge[1], edge[0].size(0))
        if found is None:
            return None
        kinds, kind_edges, edge_kind = found
        # The first kinds are those of the table, told apart by degrees.
        table = look_up(self.table, self.kind.index_select(0, before.first)) if self.kinds is None else self.table
        x = table, Repeated(table, before.kind.index_select(0, kinds.first))
        return Refined(x, kinds, kind_edges, None if edge is None else (edge[0], edge_kind))

    @property
    def shape(self) -> torch.Size:
        """Of the features that it stands for."""
        return torch.Size((len(self.kind), self.table.size(-1)))

    @property
    def dtype(self) -> torch.dtype:
        """Of the features."""
        return self.table.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.table.device

    def size(self, dim: int) -> int:
        """As `Tensor.size`."""
        return self.shape[dim]

    def dim(self) -> int:
        """As `Tensor.dim`."""
        return 2

    def is_floating_point(self) -> bool:
        """As `Tensor.is_floating_point`."""
        return self.table.is_floating_point()


class Refined(NamedTuple):
    """The arguments of a convolution whose output has one row for each kind of nodes.

    Args:
        x: the rows of the kinds before, which are the sources, and those among them of the targets.
        kinds: the targets.
        graph: the edges from the one to the other.
        edge: of these edges.
    """

    x: tuple[Tensor, Repeated]
    kinds: Kinds
    graph: KindEdges
    edge: EdgeAttr


def is_row_by_row(module: nn.Module) -> bool:
    """Whether a module is known to act on each row by itself, alike on equal ones, and not to write into its input."""
    return acts_alike(module) and not any(writes_into_input(part) for part in module.modules())


def writes_into_input(module: nn.Module) -> bool:
    """Whether an activation or a dropout works in place: whoever reads its input afterwards reads its output."""
    return bool(module.__dict__.get("inplace"))


def through(function: Callable[[Tensor], Tensor], x: Tensor | Repeated) -> Tensor:
    """`function(x)` for a function that acts on each row by itself: once per row that differs."""
    return x.through(function) if isinstance(x, Repeated) else function(x)


def rows_of(x: Tensor | Repeated) -> Tensor:
    """A row for every node."""
    return through(lambda rows: rows, x)


def takes_kinds(norm: nn.Module) -> bool:
    """Whether `normalised` knows the norm."""
    if type(norm) is nn.BatchNorm1d:
        return norm.affine and norm.track_running_stats and norm.momentum is not None
    return type(norm) in (nn.LayerNorm, nn.Identity)


def normalised(norm: nn.Module, table: Tensor, kinds: Kinds | None) -> Tensor:
    r"""`norm(table)`; with kinds, as if every row of the table stood there once for each node of its kind.

    A batch norm in training then has weighted moments, n_k of the n nodes being of kind k:

    .. math:: \mu = \sum_k \tfrac{n_k}{n} T_k, \qquad \sigma^2 = \sum_k \tfrac{n_k}{n} (T_k - \mu)^2
    """
    if kinds is None or not isinstance(norm, nn.BatchNorm1d) or not norm.training:
        return norm(table)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    nodes = len(kinds.kind)
    share = kinds.count.to(table.dtype) / nodes
    out, mean, variance = weighted_batch_norm(table, share, norm.weight, norm.bias, norm.eps)
    with torch.no_grad():
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (nodes / (nodes - 1)), norm.momentum)
    return out
