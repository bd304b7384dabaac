"""Results: append-only files of records, one short line of JSON per run, safe with several processes writing.

The long fields of a run, such as its history, are in a file of curves beside the records, which the record names.
"""

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

from sirgcn.engine.locks import opened

FORMAT = 2
"""The format of new records. `docs/results.md` says what a record holds."""

FORMATS = (1, 2)
"""The formats that can be read. Records of format 1 have the long fields in the line."""

DONE, FAILED = "done", "failed"
"""The status of a record: the run was finished, or ended with an error."""

LONG = ("history", "samples")
"""The fields of a run that are kept in the file of curves."""

KEY = ("experiment", "column", "model", "seed", "split", "reduced")
"""The fields that tell runs apart. A later record of the same key replaces an earlier one."""

# Characters of an error and of a traceback that a record keeps. The whole traceback is in the file of curves.
_LONGEST_ERROR, _LONGEST_TRACEBACK = 400, 800

# Longer names of files are cut, because some systems allow no more than 255 bytes.
_LONGEST_SLUG = 150


def key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a record."""
    return tuple(record[name] for name in KEY)


def slug_of(key: Sequence[Any]) -> str:
    """The key of a run as a name that every file system accepts.

    >>> slug_of(("zinc", "ZINC", "SIR-GCN", 3, 3, False))
    'ZINC-SIR-GCN-3'
    """
    _, column, model, seed, _, is_reduced = key
    text = f"{column}-{model}-{seed}{'-reduced' if is_reduced else ''}"
    plain = re.sub(r"[^A-Za-z0-9.=+-]+", "_", text).lstrip(".")[:_LONGEST_SLUG]
    # Without a hyphen in the column, the text shows where the column ends.
    if plain == text and "-" not in column:
        return text
    return f"{plain}-{hashlib.sha256(repr(tuple(key)).encode()).hexdigest()[:8]}"


def seconds_per_epoch(record: Mapping[str, Any]) -> float | None:
    """How long an epoch of a training took, by the history of a record.

    This is the median interval, because epochs take longer while a machine is busy. The times of a history are noted
    before an epoch's evaluation, so that an interval includes one evaluation. Without an interval it is the mean, and
    None for what is not a training.

    >>> seconds_per_epoch({"history": [{"seconds": 1.0}, {"seconds": 3.0}, {"seconds": 5.0}]})
    2.0
    """
    times = [row["seconds"] for row in record.get("history") or () if row.get("seconds") is not None]
    if len(times) > 1:
        return median(later - earlier for earlier, later in pairwise(times))
    seconds, epochs = record.get("seconds"), record.get("epochs")
    return seconds / epochs if seconds is not None and epochs else None


def was_redrawn(record: Mapping[str, Any]) -> bool | None:
    """Whether the data of a run were drawn with its own seed; None where its record is too old to tell.

    Newer records say so in `data.redraw`. In older ones, the version of generated data names the seed that drew them.
    """
    data = record.get("data") or {}
    if "redraw" in data:
        return bool(data["redraw"])
    drawn = re.search(r"\bseed (\d+)", str(data.get("version", "")))
    if drawn is None or int(drawn[1]) != record["seed"]:
        return False
    # Seed 0 draws the same data with and without `redraw`.
    return True if record["seed"] else None


def is_on(record: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether a run was made on the described data, as far as its record tells."""
    if was_redrawn(record) not in (None, data["redraw"]):
        return False
    # Other bytes in a file may mean the same data. For redrawn data, that is unknown for the other seeds.
    names = ("sha256", "splits_sha256", "loss", "metric", *["files_sha256"] * bool(data["redraw"]))
    return all(record["data"].get(name, data.get(name)) == data.get(name) for name in names)


def append(path: str | Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Add a record to a file. The record is on the disk when this returns.

    The long fields are written first, into a file of curves of their own. The line is written under a lock and in one
    piece. A torn line that a killed process left at the end of the file is cut off first. NaN and infinities become
    null, because JSON has no word for them.

    Returns:
        The record as it is stored, without its long fields.

    Raises:
        OSError: a file cannot be written, as on a full disk. The error names it, and the records are as before.

    >>> from tempfile import TemporaryDirectory
    >>> key = dict(zip(KEY, ("mine", "n=3", "SIR-GCN", 0, 0, False)))
    >>> with TemporaryDirectory() as folder:
    ...     stored = append(f"{folder}/mine.jsonl", {**key, "status": DONE, "history": [{"epoch": 0, "val": 0.5}]})
    >>> stored["status"], "history" in stored
    ('done', False)
    """
    path = Path(path)
    short = separate(path, record)
    line = json.dumps(short, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    try:
        _append(path, line)
    except OSError:
        _remove_curves(path, short)
        raise
    return short


def separate(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write the long fields of a record into a file of curves beside the records, and return the rest of the record.

    The record names its curves relative to the folder of the records: `curves/EXPERIMENT/RUN-HASH.npz`.
    """
    short = {name: _finite(value) for name, value in record.items() if name not in LONG}
    long = {name: _finite(record[name]) for name in LONG if record.get(name)}
    if len(str(record.get("error", ""))) > _LONGEST_ERROR:
        short["error"] = f"{record['error'][:_LONGEST_ERROR]}..."
    if len(record.get("traceback") or "") > _LONGEST_TRACEBACK:
        long["traceback"] = record["traceback"]
        short["traceback"] = f"...{record['traceback'][-_LONGEST_TRACEBACK:]}"
    if long:
        # Not at the top of the module: a report on records without curves never loads NumPy.
        from sirgcn.engine import curves

        folder = path.parent / "curves" / path.stem
        try:
            file, digest = curves.write(folder, slug_of(key_of(record)), long)
        except OSError:
            _remove_empty(folder)
            raise
        short["curves"] = {"file": file.relative_to(path.parent).as_posix(), "sha256": digest}
    return short


def with_curves(path: str | Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a file, with its long fields.

    Raises:
        CurvesError: the file of curves is missing or damaged. The error names it.

    >>> from tempfile import TemporaryDirectory
    >>> key = dict(zip(KEY, ("mine", "n=3", "SIR-GCN", 0, 0, False)))
    >>> with TemporaryDirectory() as folder:
    ...     stored = append(f"{folder}/mine.jsonl", {**key, "history": [{"epoch": 0, "val": 0.5}]})
    ...     with_curves(f"{folder}/mine.jsonl", stored)["history"]
    [{'epoch': 0, 'val': 0.5}]
    """
    named = record.get("curves")
    if named is None:
        return dict(record)
    from sirgcn.engine import curves

    if not isinstance(named, Mapping) or not all(isinstance(named.get(key), str) for key in ("file", "sha256")):
        raise curves.CurvesError(f"{path}: curves: expected a file and its sha256, got {named!r}")
    place = PurePosixPath(named["file"])
    if place.is_absolute() or ".." in place.parts:
        raise curves.CurvesError(f"{path}: curves: expected a file below the folder of the records, got {place}")
    return {**record, **curves.read(Path(path).parent / place, named["sha256"])}


def _remove_curves(path: Path, short: Mapping[str, Any]) -> None:
    """Remove the curves of a record that could not be written, unless a record that was written names them too."""
    named = short.get("curves")
    with suppress(OSError, ValueError):
        if named is not None and named not in [record.get("curves") for record in read(path)]:
            (path.parent / named["file"]).unlink()
            _remove_empty((path.parent / named["file"]).parent)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def _append(path: Path, line: bytes) -> None:
    # Without a buffer: a write that failed is not tried again when the file is closed.
    with opened(path) as descriptor, open(descriptor, "r+b", buffering=0, closefd=False) as file:
        _cut_torn_end(file)
        size = file.seek(0, os.SEEK_END)
        try:
            _write(file, line)
        except OSError as error:
            with suppress(OSError):
                file.truncate(size)
                # No other process has written to an empty file. One that waits for its lock looks the name up again.
                if size == 0:
                    path.unlink()
            raise OSError(error.errno, error.strerror, str(path)) from error


def _write(file: Any, line: bytes) -> None:
    """Write and synchronise. A disk that becomes full accepts a part first and refuses the rest."""
    left = memoryview(line)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def read(path: str | Path) -> list[dict[str, Any]]:
    """All whole records of a file, the last of each key, in the order in which they were added.

    The records are without their long fields; see `with_curves`. A file that does not exist has no records.

    >>> from tempfile import TemporaryDirectory
    >>> key = dict(zip(KEY, ("mine", "n=3", "SIR-GCN", 0, 0, False)))
    >>> with TemporaryDirectory() as folder:
    ...     for status in (FAILED, DONE):
    ...         _ = append(f"{folder}/mine.jsonl", {**key, "status": status})
    ...     [record["status"] for record in read(f"{folder}/mine.jsonl")]
    ['done']
    """
    path = Path(path)
    if not path.exists():
        return []
    *lines, torn = path.read_bytes().split(b"\n")
    if torn:
        warnings.warn(f"{path}: the last line is torn; its run was not recorded", stacklevel=2)
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
