"""`Rows`: node features as a table of rows, of which several nodes may share one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.ops.lookup import look_up
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
