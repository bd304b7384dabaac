"""Rows of a table, one for each place of an index."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import is_open


def look_up(table: Float[Tensor, "rows d"], index: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
    """`table[index]`, with gradients that are summed in the order of the index, as those of `index_select` are not."""
    check_devices({"table": table, "index": index})
    if not is_plain_call() or not native.takes_rows(table) or not is_open(index):
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
        if torch.is_grad_enabled() or not is_plain_call() or not native.takes_rows(grad):
            return total.index_add(0, index, grad), None
        native.add_rows(total, index, grad)
        return total, None
