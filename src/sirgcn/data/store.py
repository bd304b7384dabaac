"""What was drawn or computed, kept on disk: a safe format, an own hash, written whole or not at all."""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import track
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import Tensor

from sirgcn.data.graphs import FLOATS, Graphs, sha256_of
from sirgcn.data.validate import DataError, check_pointer, check_shape
from sirgcn.files import write_atomic

FORMAT = "sirgcn"
"""What the files of this module call themselves."""

VERSION = 1
"""Of the layout. A file of another version is not read."""

Content = TypeVar("Content", Graphs, dict[str, Tensor])
Item = TypeVar("Item")

# A header of ours takes a few hundred bytes; a parser need not meet what a stranger writes into a hundred megabytes.
_LARGEST_HEADER = 1 << 20
_INTEGERS = (torch.uint8, torch.int16, torch.int32, torch.int64)
_FIELDS = ("x", "edge_index", "y", "edge_attr", "pe", "node_ptr", "edge_ptr")
# Graphs whose edges are counted anew at once: a bound on the memory beyond the edges themselves.
_AT_ONCE = 512


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the raw files: the argument, then `SIRGCN_DATA`, then the user's cache folder.

    It may be read-only: nothing but a download writes into it.
    """
    return _folder(root, "SIRGCN_DATA")


def cache_root(root: str | Path | None = None) -> Path:
    """The folder of what was computed or drawn: the argument, then `SIRGCN_CACHE`, then the user's cache folder.

    It can be removed at any time: everything in it is computed again.
    """
    return _folder(root, "SIRGCN_CACHE")


def _folder(root: str | Path | None, variable: str) -> Path:
    given = root if root is not None else os.environ.get(variable)
    return Path(given).expanduser() if given else _user_cache() / "sirgcn"


def _user_cache() -> Path:
    # An empty variable counts as none, and a relative XDG path is to be ignored (XDG Base Directory Specification).
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    given = os.environ.get(variable, "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"


def save(path: str | Path, content: Graphs | dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write graphs, or tensors by name (float, or int64), and a header of JSON values.

    The file is safetensors with a hash of everything in it. Integers are kept in the smallest type that holds them, and
    the nodes of an edge are counted from 0 in each graph: PATTERN takes an eighth of its size in memory. The file is
    complete or absent, whatever interrupts the writing.
    """
    path = Path(path)
    level = content.level if isinstance(content, Graphs) else None
    tensors = _packed(content) if isinstance(content, Graphs) else {n: _narrow(n, t) for n, t in content.items()}
    about = json.dumps({"version": VERSION, "level": level, "header": header}, sort_keys=True)
    metadata = {"format": FORMAT, "about": about, "sha256": sha256_of(about, tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, dump_safetensors(tensors, metadata))


def load(path: str | Path) -> tuple[Graphs | dict[str, Tensor], dict[str, Any]]:
    """What `save` wrote: the graphs or tensors, and the header. A file that is not whole, or not ours, is refused."""
    path = Path(path)
    try:
        about, digest = _metadata(path)
        found = json.loads(about)
        if found["version"] != VERSION:
            raise DataError(f"expected a cache file of version {VERSION}, got {found['version']!r}", "header")
        level, header = found["level"], dict(found["header"])
        tensors = load_safetensors(path.read_bytes())
        if sha256_of(about, tensors) != digest:
            raise DataError("expected the content that was written, got another hash", "sha256")
        return (_wide(tensors) if level is None else _unpacked(tensors, level)), header
    except DataError as error:
        raise replace(error, source=str(path)) from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"expected a cache file, got {type(error).__name__}: {error}", "header", str(path)) from error


def cached(path: str | Path, header: dict[str, Any], build: Callable[[], Content]) -> Content:
    """What `build` gives, from the file if there is one of this header, else built and written.

    A file that is broken or has another header is reported by a warning and made anew; one that cannot be written is
    reported too, and what was built is given all the same.
    """
    path = Path(path)
    header = json.loads(json.dumps(header))
    if path.exists():
        try:
            content, found = load(path)
            if found == header:
                return content  # type: ignore[return-value]
            reason = "it holds other data"
        except (DataError, OSError) as error:
            reason = str(error)
        warnings.warn(f"{path} is made anew: {reason}", stacklevel=2)
    made = build()
    try:
        save(path, made, header)
    except OSError as error:
        warnings.warn(f"{path} cannot be kept: {error}", stacklevel=2)
    return made


def _metadata(path: Path) -> tuple[str, str]:
    """What the file says of itself, and its hash; nothing else of it is read yet."""
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        # Eight bytes of length, then as many of JSON: the layout of safetensors.
        if len(start) < 8 or length > min(_LARGEST_HEADER, path.stat().st_size - 8):
            raise DataError("expected a cache file, got something else", "header")
        metadata = json.loads(file.read(length))["__metadata__"]
    if metadata["format"] != FORMAT:
        raise DataError(f"expected a cache file, got the format {metadata['format']!r}", "header")
    return metadata["about"], metadata["sha256"]


def _packed(graphs: Graphs) -> dict[str, Tensor]:
    tensors = graphs.tensors()
    if graphs.node_ptr is not None and graphs.edge_ptr is not None:
        most = int(graphs.node_ptr.diff().max())
        dtype = next(kind for kind in _INTEGERS if most <= torch.iinfo(kind).max)
        tensors["edge_index"] = _shifted(graphs.edge_index, -graphs.node_ptr, graphs.edge_ptr, dtype)
    return {name: _narrow(name, tensor) for name, tensor in tensors.items()}


def _unpacked(tensors: dict[str, Tensor], level: Any) -> Graphs:
    unknown = set(tensors) - set(_FIELDS)
    if unknown or not {"x", "edge_index", "y"} <= set(tensors):
        raise DataError(f"expected x, edge_index and y of graphs, got {', '.join(tensors)}", "tensors")
    edge_index = tensors["edge_index"]
    # Wide only once it is counted through all graphs: it is the largest, and would be there twice.
    fields = _wide({name: tensor for name, tensor in tensors.items() if name != "edge_index"})
    if {"node_ptr", "edge_ptr"} <= set(fields):
        check_shape("edge_index", edge_index, (2, None), _INTEGERS)
        check_pointer("edge_ptr", fields["edge_ptr"], edge_index.size(1), "edges")
        check_shape("node_ptr", fields["node_ptr"], (len(fields["edge_ptr"]),), (torch.int64,))
        edge_index = _shifted(edge_index, fields["node_ptr"], fields["edge_ptr"], torch.int64)
    return Graphs(level=level, **fields, **_wide({"edge_index": edge_index}))


def _shifted(edge_index: Tensor, offset: Tensor, edge_ptr: Tensor, dtype: torch.dtype) -> Tensor:
    """The edges of graph g with offset_g added."""
    out = torch.empty(edge_index.shape, dtype=dtype)
    for first in range(0, len(edge_ptr) - 1, _AT_ONCE):
        pointer = edge_ptr[first : first + _AT_ONCE + 1]
        columns = slice(int(pointer[0]), int(pointer[-1]))
        added = torch.repeat_interleave(offset[first : first + len(pointer) - 1], pointer.diff())
        out[:, columns] = edge_index[:, columns] + added
    return out


def _narrow(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.int64:
        least, most = (int(end) for end in tensor.aminmax()) if tensor.numel() else (0, 0)
        kinds = (kind for kind in _INTEGERS if torch.iinfo(kind).min <= least and most <= torch.iinfo(kind).max)
        tensor = tensor.to(next(kinds))
    elif tensor.dtype not in (*FLOATS, *_INTEGERS):
        raise DataError(f"expected int64 or float, got {tensor.dtype}", name)
    return tensor.detach().contiguous()


def _wide(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for name, tensor in tensors.items():
        if tensor.dtype not in (*FLOATS, *_INTEGERS):
            raise DataError(f"expected integers or floats, got {tensor.dtype}", name)
    return {name: tensor if tensor.dtype in FLOATS else tensor.long() for name, tensor in tensors.items()}


def progress(items: Iterable[Item], about: str, total: int | None = None) -> Iterator[Item]:
    """The items, with a bar on the terminal's error stream while they are taken; without a terminal none."""
    console = Console(stderr=True)
    yield from track(items, about, total, console=console, transient=True, disable=not console.is_terminal)
