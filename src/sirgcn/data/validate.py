"""Checks of graphs and arguments, in one place for every source of graphs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sirgcn.strict import expected_one_of, read


# No `eq`: it would remove the hash, and tools that keep exceptions in sets would break.
@dataclass(eq=False)
class DataError(ValueError):
    """Data that cannot be used. The error says what is wrong and where.

    Args:
        message: what was expected and what was found.
        field: the argument, tensor or column that is wrong.
        source: the file, or the name of the object, that holds the field.
        row: the place in the field: a row of a table (counted from 1, without the header) or an index of a tensor.
        value: the value that was refused.

    >>> raise DataError("expected a number, got 'x'", "size", "nodes.csv", row=3, value="x")
    Traceback (most recent call last):
    sirgcn.data.validate.DataError: nodes.csv: size, row 3: expected a number, got 'x'
    """

    message: str
    field: str
    source: str | None = None
    row: Any = None
    value: Any = None

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        place = [] if self.source is None else [self.source]
        place.append(self.field if self.row is None else f"{self.field}, row {self.row}")
        return f"{': '.join(place)}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, (self.message, self.field, self.source, self.row, self.value)


def check_at_least(minimum: int, **arguments: object) -> None:
    """Raise for an argument that is not a whole number or is below the minimum."""
    for name, value in arguments.items():
        if read(int, value, name) < minimum:
            raise DataError(f"expected a whole number >= {minimum}, got {value!r}", name, value=value)


def check_choice(field: str, name: object, known: Iterable[str]) -> None:
    """Raise for a name that is not in the list; the error names the most similar one.

    >>> check_choice("metric", "maee", ["mae", "mse"])
    Traceback (most recent call last):
    sirgcn.data.validate.DataError: metric: expected one of mae, mse, got 'maee'; did you mean mae?
    """
    names = tuple(known)
    if name not in names:
        raise DataError(expected_one_of(name, names), field, value=name)


def check_shape(
    field: str,
    tensor: Any,
    shape: tuple[int | None, ...],
    dtypes: tuple[torch.dtype, ...],
    source: str | None = None,
) -> None:
    """Raise for anything but a dense CPU tensor of this shape (None: any size) and one of these dtypes."""
    if not isinstance(tensor, Tensor):
        raise DataError(f"expected a tensor, got {type(tensor).__name__}", field, source)
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise DataError(f"expected a dense tensor on the CPU, got {tensor.layout} on {tensor.device}", field, source)
    if tensor.dtype not in dtypes:
        known = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise DataError(f"expected dtype {known}, got {str(tensor.dtype).removeprefix('torch.')}", field, source)
    if not _has_shape(tensor, shape):
        known = ", ".join("any" if size is None else str(size) for size in shape)
        raise DataError(f"expected shape [{known}], got {list(tensor.shape)}", field, source)


def _has_shape(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:
    if tensor.dim() != len(shape):
        return False
    return all(want is None or want == size for want, size in zip(shape, tensor.shape, strict=True))


def check_range(field: str, tensor: Tensor, low: int | Tensor, high: int | Tensor, source: str | None = None) -> None:
    """Raise for the first entry outside `low <= entry < high`. The bounds are numbers, or tensors that broadcast."""
    if tensor.numel() == 0:
        return
    if isinstance(low, int) and isinstance(high, int):
        # The minimum and the maximum need no temporary array of the tensor's size.
        least, most = tensor.aminmax()
        if low <= int(least) and int(most) < high:
            return
    outside = (tensor < low) | (tensor >= high)
    if bool(outside.any()):
        place = tuple(outside.nonzero()[0].tolist())
        bounds = [int(torch.as_tensor(bound).expand_as(tensor)[place]) for bound in (low, high)]
        value = int(tensor[place])
        raise DataError(f"expected {bounds[0]} <= entry < {bounds[1]}, got {value}", field, source, _row(place), value)


def check_finite(field: str, tensor: Tensor, allow_missing: bool = False) -> None:
    """Raise for the first entry that is infinite, or NaN unless `allow_missing` is set."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return
    bad = torch.isinf(tensor) if allow_missing else ~torch.isfinite(tensor)
    if bool(bad.any()):
        place = tuple(bad.nonzero()[0].tolist())
        value = float(tensor[place])
        raise DataError(f"expected a finite number, got {value}", field, row=_row(place), value=value)


def check_pointer(field: str, pointer: Tensor, total: int, of: str) -> None:
    """Raise for a pointer that does not start at 0, decreases, or does not end at `total`."""
    check_shape(field, pointer, (None,), (torch.int64,))
    if len(pointer) < 2:
        raise DataError(f"expected at least 2 entries (one graph), got {len(pointer)}", field)
    if int(pointer[0]) != 0:
        raise DataError(f"expected to start at 0, got {int(pointer[0])}", field, row=0, value=int(pointer[0]))
    falls = (pointer[1:] < pointer[:-1]).nonzero()
    if len(falls):
        row = int(falls[0]) + 1
        raise DataError(
            f"expected entries that never decrease, got {int(pointer[row])} after {int(pointer[row - 1])}",
            field,
            row=row,
            value=int(pointer[row]),
        )
    if int(pointer[-1]) != total:
        raise DataError(
            f"expected to end at {total}, the number of {of}, got {int(pointer[-1])}",
            field,
            row=len(pointer) - 1,
            value=int(pointer[-1]),
        )


def _row(place: tuple[int, ...]) -> Any:
    return place[0] if len(place) == 1 else list(place)
