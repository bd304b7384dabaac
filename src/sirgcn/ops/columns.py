"""Columns of one matrix: a stacked product is split without copying, and the gradients of its parts lie side by side.

One product gives query, key and value at once, each as some columns of a matrix. An edge then reads its key and its
value from one place. Where the backward pass writes the gradients into columns of one matrix as well, that matrix is
the gradient of the product, and nothing needs to be joined.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops.calls import is_plain_call


def split_columns(stacked: Float[Tensor, "rows columns"], parts: int) -> tuple[Float[Tensor, "rows d"], ...]:
    """The columns in equal parts, as views. The gradient is not copied where its parts lie side by side already.

    >>> [part.tolist() for part in split_columns(torch.tensor([[1.0, 2.0]]), 2)]
    [[[1.0]], [[2.0]]]
    """
    if stacked.size(-1) % parts:
        raise ValueError(f"parts: expected a divisor of the {stacked.size(-1)} columns, got {parts}")
    is_kept = torch.is_grad_enabled() and stacked.requires_grad
    if stacked.dim() != 2 or not is_kept or not is_plain_call():
        return stacked.chunk(parts, dim=-1)
    found: tuple[Tensor, ...] = _Split.apply(stacked, parts)  # type: ignore[no-untyped-call]
    return found


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stacked: Tensor, parts: int) -> tuple[Tensor, ...]:
        return stacked.chunk(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return join_columns(grads), None


def join_columns(parts: Sequence[Tensor]) -> Tensor:
    """The matrix of which the parts are columns, without copying where they are the columns of one matrix already."""
    first, columns = parts[0], sum(part.size(1) for part in parts)
    place, storage = first.storage_offset(), first.untyped_storage().data_ptr()
    for part in parts:
        is_next = part.stride() == (columns, 1) and part.storage_offset() == place
        if torch.is_grad_enabled() or not is_next or part.untyped_storage().data_ptr() != storage:
            return torch.cat(list(parts), dim=1)
        place += part.size(1)
    return first.as_strided((first.size(0), columns), (columns, 1))


def empty_like_columns(matrices: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """An empty matrix like each one. Those that together are the columns of one matrix lie side by side again."""
    owners: dict[object, list[Tensor]] = {}
    for matrix in matrices:
        owners.setdefault(_owner(matrix), []).append(matrix)
    whole = {
        owner: columns[0].new_empty((columns[0].size(0), columns[0].stride(0)), dtype=dtype)
        for owner, columns in owners.items()
        if owner is not None and _fill_a_row(columns)
    }
    found = []
    for matrix in matrices:
        buffer = whole.get(_owner(matrix))
        if buffer is None:
            found.append(matrix.new_empty(matrix.shape, dtype=dtype))
        else:
            found.append(buffer.narrow(1, matrix.storage_offset() % buffer.size(1), matrix.size(1)))
    return found


def _owner(matrix: Tensor) -> object:
    """The matrix of which a matrix is some columns, as something that can be compared; None for a whole matrix."""
    stride, step = matrix.stride()
    if step != 1 or stride <= matrix.size(1):
        return None
    return matrix.untyped_storage().data_ptr(), stride, matrix.size(0), matrix.storage_offset() // stride


def _fill_a_row(columns: Sequence[Tensor]) -> bool:
    """Whether the columns of one matrix are all of its columns, each of them once."""
    stride, end = columns[0].stride(0), 0
    for place, width in sorted((part.storage_offset() % stride, part.size(1)) for part in columns):
        if place != end:
            return False
        end += width
    return end == stride
