"""Results: append-only records, one line of JSON per run, safe with several processes writing."""

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

FORMAT = 1
"""Of a record; `docs/results.md` says what it holds."""

KEY = ("experiment", "column", "model", "seed", "split", "reduced")
"""What tells runs apart; a later record of the same key replaces an earlier one."""


def key_of(record: dict[str, Any]) -> tuple[Any, ...]:
    """What tells this run from others."""
    return tuple(record[name] for name in KEY)


def seconds_per_epoch(record: Mapping[str, Any]) -> float | None:
    """How long an epoch of a training took: the median one, as epochs take longer while a machine is busy.

    The times of a history stand before an epoch's evaluation, so that an interval has one evaluation. Without an
    interval it is the mean; None of what is no training.
    """
    times = [row["seconds"] for row in record.get("history") or () if row.get("seconds") is not None]
    if len(times) > 1:
        return median(later - earlier for earlier, later in pairwise(times))
    seconds, epochs = record.get("seconds"), record.get("epochs")
    return seconds / epochs if seconds is not None and epochs else None


def append(path: str | Path, record: dict[str, Any]) -> None:
    """Add a record: under a lock, in one write, and on the disk when this returns.

    A torn line that a killed process left at the end is cut off first. NaN and infinities become null, which JSON has.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(_finite(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    with path.open("a+b") as file, _locked(file.fileno()):
        _cut_torn_end(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read(path: str | Path) -> list[dict[str, Any]]:
    """All whole records of a file, the last of each key, in the order in which they came."""
    path = Path(path)
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if torn:
        warnings.warn(f"{path}: the last line is torn, its run was not recorded", stacklevel=2)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            key = key_of(record)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a record ({type(error).__name__}: {error})") from error
        found.pop(key, None)
        found[key] = record
    return list(found.values())


def _cut_torn_end(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    file.truncate(whole)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
        return
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
