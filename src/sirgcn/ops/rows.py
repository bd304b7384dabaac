"""`Rows`: node features as a table of rows, of which several nodes may share one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import is_open
from sirgcn.ops.parts import is_row_by_row
from sirgcn.ops.reference import accumulation_dtype, cast


@dataclass(frozen=True, eq=False)
class Rows:
    r"""Node features `(|V|, channels)` as a table, with an index where several nodes share a row.

    .. math:: h_v = T_{i_v}, \qquad W h_v = (T W^\top)_{i_v}

    A function of each row is computed once per row of the table, however many nodes share that row. The plain case has
    no index: then the table has one row per node, and nothing is saved or lost.

    Args:
        table: the rows, `[K, channels]`.
        index: the row of each node, int64 `[|V|]`; None where node v has row v.

    >>> rows = Rows(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1, 0]))
    >>> rows.map(lambda table: 10 * table).expand().flatten().tolist()
    [10.0, 20.0, 10.0]
    """

    table: Float[Tensor, "*batch rows channels"]
    index: Int[Tensor, " nodes"] | None = None

    @classmethod
    def of(cls, x: "Tensor | Rows") -> "Rows":
        """Features as rows; what is given as `Rows` stays as it is."""
        return x if isinstance(x, Rows) else cls(x)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        """The rows of a function that acts on each row by itself.

        A module that is not known to act row by row, for example one into which a user put a batch norm, gets one row
        per node.
        """
        if self.index is not None and isinstance(function, nn.Module) and not is_row_by_row(function):
            return Rows(function(self.expand()))
        return Rows(function(self.table), self.index)

    def expand(self) -> Float[Tensor, "*batch nodes channels"]:
        """One row per node, as a tensor."""
        if self.index is None:
            return self.table
        # The backward pass sums over all nodes that share a row: in half precision such a sum would stop growing.
        wide = cast(self.table, accumulation_dtype(self.table.dtype))
        return cast(look_up(wide, self.index), self.table.dtype)

    @property
    def shape(self) -> torch.Size:
        """The shape of the features that these rows stand for."""
        if self.index is None:
            return self.table.shape
        return torch.Size((len(self.index), self.table.size(-1)))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the features."""
        return self.table.dtype

    @property
    def device(self) -> torch.device:
        """The device of the features."""
        return self.table.device


def look_up(table: Float[Tensor, "rows d"], index: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
    """`table[index]`. The gradient of the table is summed in the order of the index, so that it repeats bit for bit.

    The gradient of `index_select` does not repeat with several threads.

    >>> look_up(torch.tensor([[1.0], [2.0]]), torch.tensor([1, 0, 1])).flatten().tolist()
    [2.0, 1.0, 2.0]
    """
    check_devices({"table": table, "index": index})
    if not is_plain_call() or not native.can_run_rows(table) or not is_open(index):
        return F.embedding(index, table)
    if not (torch.is_grad_enabled() and table.requires_grad):
        return table.index_select(0, index)
    found: Tensor = _LookUp.apply(table, index)  # type: ignore[no-untyped-call]
    return found


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = table.size(0)
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        total = grad.new_zeros(ctx.rows, grad.size(1))
        if torch.is_grad_enabled() or not is_plain_call() or not native.can_run_rows(grad):
            return total.index_add(0, index, grad), None
        native.add_rows(total, index, grad)
        return total, None
