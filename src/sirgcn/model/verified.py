"""The files of a model's folder, read once and checked before anything is made of them. Nothing in them is run."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

FORMAT = 1
"""The version of the format. A newer one is refused; older ones are read."""

MANIFEST = "manifest.json"
REQUIRED = ("model.safetensors", "config.json", "splits.json", "history.jsonl", "training.json")
OPTIONAL = ("preprocess.json", "calibration.json", "evaluation.json", "predictions.csv", "README.md", "report.html")
"""The names that a folder may have. Any other is refused, so a manifest cannot name a file elsewhere."""

# A manifest has a line for each file.
_LARGEST_MANIFEST = 1 << 16
# A header has about a hundred bytes for each tensor.
_LARGEST_HEADER = 1 << 26

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


class FolderError(ValueError):
    """A folder that is no whole model. The message names the folder, the file and what is wrong.

    >>> issubclass(FolderError, ValueError)
    True
    """


def as_json(value: Any) -> bytes:
    """A value as the bytes of a JSON file."""
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def manifest_of(files: Mapping[str, bytes]) -> bytes:
    """The manifest of files: the format, and the hash of each."""
    hashes = {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}
    return as_json({"format": FORMAT, "sha256": hashes})


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their names, if they are those of its manifest and have the hashes in it.

    Raises:
        FolderError: a file is missing, too many, changed or a link, or the format is newer.
    """
    if not folder.is_dir():
        raise FolderError(f"{folder}: expected the folder of a model, got {'a file' if folder.exists() else 'none'}")
    if not os.path.lexists(folder / MANIFEST):
        raise FolderError(f"{folder}: expected the folder of a model, got one without {MANIFEST}")
    hashes = _read_manifest(folder)
    _check_names(folder, set(hashes))
    files = {name: _read(folder / name) for name in hashes}
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != hashes[name]:
            raise FolderError(f"{folder / name}: expected the content that was written, got another hash")
    return files


def _read_manifest(folder: Path) -> dict[str, str]:
    path = folder / MANIFEST
    data = _read(path, _LARGEST_MANIFEST)
    found = parse(path, data)
    if not isinstance(found, dict) or set(found) != {"format", "sha256"}:
        raise FolderError(f"{path}: expected the keys format and sha256")
    number, hashes = found["format"], found["sha256"]
    if type(number) is not int or not 1 <= number <= FORMAT:
        newer = "; a newer sirgcn reads it" if type(number) is int and number > FORMAT else ""
        raise FolderError(f"{path}: expected format {FORMAT}, got {number!r:.40}{newer}")
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise FolderError(f"{path}: expected a hash for each file")
    # Bytes that JSON reads alike would hide a change.
    if data != as_json(found):
        raise FolderError(f"{path}: expected the content that was written, got another layout")
    return hashes


def _check_names(folder: Path, names: set[str]) -> None:
    known = {*REQUIRED, *OPTIONAL}
    for name in sorted(names - known):
        raise FolderError(f"{folder / MANIFEST}: expected names among {', '.join(sorted(known))}, got {name!r:.80}")
    for name in REQUIRED:
        if name not in names:
            raise FolderError(f"{folder / MANIFEST}: expected the file {name}, got none")
    present = {path.name for path in folder.iterdir()}
    for name in sorted(names - present):
        raise FolderError(f"{folder / name}: expected the file, got none")
    for name in sorted(present - names - {MANIFEST}):
        raise FolderError(f"{folder / name}: expected only the files of {MANIFEST}, got one more")


def _read(path: Path, largest: int | None = None) -> bytes:
    """The bytes of a plain file. A link, a pipe or a device is refused before it is opened."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise FolderError(f"{path}: expected a plain file, got a link, a folder or a device")
        if largest is not None and path.stat().st_size > largest:
            raise FolderError(f"{path}: expected at most {largest:,} bytes, got {path.stat().st_size:,}")
        return path.read_bytes()
    except OSError as error:
        raise FolderError(f"{path}: expected a file that can be read, got: {error.strerror}") from None


def parse(path: Path, data: bytes) -> Any:
    """The value of a JSON file. NaN and infinities, which JSON lacks, are refused."""
    with complaining(path):
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)


def parse_lines(path: Path, data: bytes) -> list[Any]:
    """The values of a file with one JSON value in each line."""
    with complaining(path):
        return [json.loads(line, parse_constant=_refuse) for line in data.decode("utf-8").splitlines()]


def _refuse(text: str) -> Any:
    raise ValueError(f"expected a number, got {text}")


@contextmanager
def complaining(path: Path) -> Iterator[None]:
    """Turn what readers raise for a wrong file into a `FolderError` of one line."""
    try:
        yield
    except FolderError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise FolderError(f"{path}: expected what a model's folder holds, got: {text:.300}") from None


Shape = tuple[str, tuple[int, ...]]
"""The type of a tensor, by its name in the file, and its shape."""


def tensor_shapes(path: Path, data: bytes) -> dict[str, Shape]:
    """The types and shapes of the tensors in the bytes of a safetensors file, which must fill the file exactly."""
    with complaining(path):
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > min(_LARGEST_HEADER, len(data) - 8):
            raise FolderError(f"{path}: expected a safetensors file, got another beginning")
        header = parse(path, data[8 : 8 + size])
        header.pop("__metadata__", None)
        found = {name: _shape(path, name, entry) for name, entry in header.items()}
        total = sum(_BYTES[dtype] * prod(shape) for dtype, shape in found.values())
        if total != len(data) - 8 - size:
            raise FolderError(f"{path}: expected {total:,} bytes of tensors, got {len(data) - 8 - size:,}")
        return found


def _shape(path: Path, name: str, entry: Any) -> Shape:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in _BYTES or not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise FolderError(f"{path}: expected the type and shape of a tensor in {name!r:.80}")
    return dtype, tuple(shape)


def check_numbers(path: Path, config: Any, most: int, layers: int) -> None:
    """Raise for a whole number in a network's configuration that its file of weights has no room for.

    A network is made before its weights are read, so a width must be no larger than the file, and no network has more
    layers than tensors.

    Args:
        path: the file, for errors.
        config: the configuration as JSON values.
        most: the bytes of the weights.
        layers: the number of tensors.
    """
    for key, value in _numbers(config):
        limit = layers if key == "layers" else most
        if key != "random_seed" and not -1 <= value <= limit:
            raise FolderError(f"{path}: expected {key} of at most {limit:,}, as the weights have, got {value!r:.40}")


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of JSON values, with the key that it stands below."""
    if type(value) is int:
        yield key, value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _numbers(entry, name)
    elif isinstance(value, list):
        for entry in value:
            yield from _numbers(entry, key)
