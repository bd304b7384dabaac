"""Checks of single arguments: known names, whole numbers, one device, indices in range. Errors name the argument."""

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from sirgcn.ops.calls import is_compiling, is_exporting
from sirgcn.strict import check_name


def check_known(what: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is not known, and list those that are.

    >>> check_known("reduce", "avg", ("sum", "mean"))
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: reduce: expected one of sum, mean, got 'avg'
    """
    if name in known:
        return
    # Names of the operation are in lower case, which `check_name` does not ask for.
    check_name(what, str(name), known)
    raise ValueError(f"{what}: expected one of {', '.join(known)}, got {name!r}")


def whole_number(value: Any, name: str, expected: str) -> int:
    """The value as an int; a symbolic size of torch stays symbolic.

    Args:
        value: an int, or anything else that `operator.index` accepts, but no bool.
        name: the name of the argument in the error.
        expected: what the error says was expected.
    """
    if type(value) is int or isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: expected {expected}, got {value!r}") from None


def check_devices(tensors: Mapping[str, Any]) -> None:
    """Refuse tensors, or other objects with a device, that are not on the device of the first; None is skipped."""
    first = device = None
    for name, tensor in tensors.items():
        # Another check refuses what is not a tensor.
        own = getattr(tensor, "device", None)
        if own is None:
            continue
        if device is None:
            first, device = name, own
        elif own != device:
            raise ValueError(f"{name}: expected the device of {first}, {device}, got {own}")


def check_range(index: Tensor, size: int, place: str, expected: str, entry: str = "index") -> None:
    """Refuse an index with an entry below 0 or not below `size`, and name the first such entry.

    Under `torch.compile` the check becomes an assertion in the compiled code, which cannot name values. An exported
    program has no such check: the operators of torch that it calls check their own indices.

    Args:
        index: a tensor of one dimension.
        size: the first number that is too large.
        place: the name of an entry in the error, with {} for its place: `"edge_index[0, {}]"`.
        expected: the meaning of `size`: `"the number of source nodes"`.
        entry: the meaning of an entry.
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
