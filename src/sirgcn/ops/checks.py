"""What every operation asks of its arguments: one device, whole numbers, indices in range."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sirgcn.ops.calls import is_compiling, is_exporting


def whole_number(value: Any, name: str, expected: str) -> int:
    """The value as an int, whatever type `operator.index` takes it from; a symbolic size of torch stays one."""
    if type(value) is int or isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected {expected}, got {value!r}") from None


def check_devices(tensors: Mapping[str, Any]) -> None:
    """Refuse tensors, or other things with a device, that are not where the first of them is; None is passed over."""
    first = device = None
    for name, tensor in tensors.items():
        # What is no tensor is refused elsewhere, for that.
        own = getattr(tensor, "device", None)
        if own is None:
            continue
        if device is None:
            first, device = name, own
        elif own != device:
            raise ValueError(f"{name}: expected the device of {first}, {device}, got {own}")


def check_range(index: Tensor, size: int, place: str, expected: str, entry: str = "index") -> None:
    """Refuse an index with an entry below 0, or not below `size`, by its first such entry.

    Under `torch.compile` the check becomes part of the compiled code, which knows no values to name. An exported
    program has no such check: the operators of torch that it calls make their own.

    Args:
        index: one dimension.
        size: the first number that is too large.
        place: how an entry is called, with {} for its place: `"edge_index[0, {}]"`.
        expected: what `size` is: `"the number of source nodes"`.
        entry: what an entry is.
    """
    if is_compiling():
        if not is_exporting():
            is_inside = ((index >= 0) & (index < size)).all()
            torch._assert_async(is_inside, f"{place.format('...')}: expected 0 <= {entry} < {expected}")
        return
    if index.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(index))
    if low >= 0 and high < size:
        return
    first = int(((index < 0) | (index >= size)).nonzero()[0])
    raise IndexError(f"{place.format(first)} = {int(index[first])}: expected 0 <= {entry} < {size}, {expected}")
