"""The curves of a run: its history, its timing samples and a long traceback, in one `.npz` file beside its record.

A member of the file is one column of the history (`history/val_loss`), one list of samples (`samples/forward`) or the
traceback. An array of 32-bit floats holds numbers of six digits, which 32 bits hold exactly. NaN stands for no value.
Names of samples are percent-encoded, so that `|V|` becomes `%7CV%7C`.
"""

import hashlib
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from sirgcn.files import write_atomic

Rows = Sequence[Mapping[str, Any]]


class CurvesError(ValueError):
    """A file of curves that is missing or is not what was written. The text names the file."""


def write(folder: Path, name: str, fields: Mapping[str, Any]) -> tuple[Path, str]:
    """Write the long fields of a record into a file of a folder. The file is on the disk when this returns.

    The name of the file ends with the beginning of its hash. A later run of the same name has a file of its own, and
    an earlier record keeps its curves.

    Returns:
        The path and the sha256 of the file.
    """
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **_arrays(fields))
    data = stream.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{name}-{digest[:8]}.npz"
    _make(folder)
    write_atomic(path, data)
    return path, digest


def read(path: Path, sha256: str) -> dict[str, Any]:
    """The long fields of a record as they were given to `write`.

    Raises:
        CurvesError: the file is missing, or its hash is another one.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CurvesError(f"{path}: expected the curves of a record, got no file: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CurvesError(f"{path}: expected the curves that were written with the record, got another hash")
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return _fields({name: file[name] for name in file.files})


def _make(folder: Path) -> None:
    """Make a folder and its parent, whose names are then on the disk."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":
        return
    for place in (folder.parent, folder.parent.parent):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _arrays(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a file."""
    found = {f"history/{name}": values for name, values in _columns(fields.get("history") or ()).items()}
    found |= _flat("samples", fields.get("samples") or {})
    if "traceback" in fields:
        found["traceback"] = np.array(fields["traceback"])
    return found


def _columns(rows: Rows) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _array([row.get(name) for row in rows]) for name in names}


def _flat(prefix: str, samples: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables of samples as arrays by path."""
    found: dict[str, Any] = {}
    for name, value in samples.items():
        path = f"{prefix}/{quote(name, safe='')}"
        if isinstance(value, Mapping):
            found |= _flat(path, value)
        elif isinstance(value, list | tuple):
            found[path] = _array(value)
        else:
            found[path] = np.float64(value)
    return found


def _array(values: Sequence[float | None]) -> Any:
    """Numbers in the smallest type that holds them exactly; None becomes NaN."""
    if all(isinstance(value, int) for value in values):
        exact = np.array(values, dtype=np.int64)
        small = exact.astype(np.int32)
        return small if np.array_equal(small, exact) else exact
    exact_floats = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    with np.errstate(over="ignore"):
        floats = exact_floats.astype(np.float32)
    return floats if np.array_equal(_six_digits(floats), exact_floats, equal_nan=True) else exact_floats


def _six_digits(values: Iterable[Any]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]


def _fields(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The long fields that the members of a file hold."""
    found: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    for path, array in arrays.items():
        field, *inside = path.split("/")
        if field == "history":
            columns[inside[0]] = _values(array)
        elif inside:
            *tables, last = map(unquote, inside)
            place = found.setdefault(field, {})
            for table in tables:
                place = place.setdefault(table, {})
            place[last] = _values(array) if array.ndim else array.item()
        else:
            found[field] = array.item()
    if columns:
        found["history"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


def _values(array: Any) -> list[Any]:
    """The numbers of an array as they were given to `_array`."""
    numbers = _six_digits(array) if array.dtype == np.float32 else array.tolist()
    return [None if math.isnan(number) else number for number in numbers]
