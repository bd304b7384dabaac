"""Results: append-only records, one line of JSON per run, safe with several processes writing."""

import json
import math
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from sirgcn.engine.locks import opened

FORMAT = 1
"""Of a record; `docs/results.md` says what it holds."""

DONE, FAILED = "done", "failed"
"""The status of a record: the run was finished, or ended with an error."""

LONG = ("history", "samples")
"""The fields of a run that are long."""

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


def was_redrawn(record: Mapping[str, Any]) -> bool | None:
    """Whether the data of a run were drawn by its own seed; None where its record is too old to tell.

    Records say so since they have `data.redraw`. Before, the version of generated data names the seed that drew them.
    """
    data = record.get("data") or {}
    if "redraw" in data:
        return bool(data["redraw"])
    drawn = re.search(r"\bseed (\d+)", str(data.get("version", "")))
    if drawn is None or int(drawn[1]) != record["seed"]:
        return False
    # With and without it, seed 0 has the same drawing.
    return True if record["seed"] else None


def is_on(record: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether a run was made on these data, which are described as in its record, as far as that tells."""
    if was_redrawn(record) not in (None, data["redraw"]):
        return False
    # Other bytes of files may mean the same data, except that nobody can tell for the seeds that were not drawn.
    names = ("sha256", "splits_sha256", *["files_sha256"] * bool(data["redraw"]))
    return all(record["data"].get(name, data.get(name)) == data.get(name) for name in names)


def append(path: str | Path, record: dict[str, Any]) -> None:
    """Add a record: under a lock, in one write, and on the disk when this returns.

    A torn line that a killed process left at the end is cut off first. NaN and infinities become null, which JSON has.

    Raises:
        OSError: it cannot be written, as on a full disk; names the file, which is as it was before.
    """
    path = Path(path)
    line = json.dumps(_finite(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    # Without a buffer: what could not be written is not tried again as the file is closed.
    with opened(path) as descriptor, open(descriptor, "r+b", buffering=0, closefd=False) as file:
        _cut_torn_end(file)
        size = file.seek(0, os.SEEK_END)
        try:
            _write(file, line)
        except OSError as error:
            with suppress(OSError):
                file.truncate(size)
                # Nobody else has written to a file that is empty, and who waits for its lock looks at the name again.
                if size == 0:
                    path.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from error


def _write(file: Any, line: bytes) -> None:
    """Write and synchronise; a disk that becomes full takes a part first, and refuses what is left."""
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]
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


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
