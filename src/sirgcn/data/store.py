"""The folders of raw and computed data, and a cache of computed data: safe files with a hash, complete or absent."""

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
"""The name of the format in the header of a file."""

VERSION = 1
"""The version of the layout. Files of other versions are not read."""

Content = TypeVar("Content", Graphs, dict[str, Tensor])
Item = TypeVar("Item")

# A header takes a few hundred bytes. A larger one comes from another program and is not parsed.
_LARGEST_HEADER = 1 << 20
_INTEGERS = (torch.uint8, torch.int16, torch.int32, torch.int64)
_FIELDS = ("x", "edge_index", "y", "edge_attr", "pe", "edge_pe", "node_ptr", "edge_ptr", "graph_attr")
# The number of graphs whose edges are shifted at once, which bounds the memory beyond the edges themselves.
_AT_ONCE = 512


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of raw files: the argument, or `SIRGCN_DATA`, or the user's cache folder.

    The folder may be read-only, because only downloads write to it.
    """
    return _folder(root, "SIRGCN_DATA")


def cache_root(root: str | Path | None = None) -> Path:
    """Return the folder of computed data: the argument, or `SIRGCN_CACHE`, or the user's cache folder.

    The folder can be removed at any time, because its files are computed again.
    """
    return _folder(root, "SIRGCN_CACHE")


def _folder(root: str | Path | None, variable: str) -> Path:
    given = root if root is not None else os.environ.get(variable)
    return Path(given).expanduser() if given else _user_cache() / "sirgcn"


def _user_cache() -> Path:
    # An empty variable counts as unset, and a relative path is ignored (XDG Base Directory Specification).
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    given = os.environ.get(variable, "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"


def save(path: str | Path, content: Graphs | dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write graphs, or tensors by name (float or int64), with a header of JSON values.

    The format is safetensors with a hash of the content. Integers have the smallest type that holds them, and nodes are
    numbered from 0 in each graph, so PATTERN takes an eighth of its size in memory. The file is complete or absent,
    even if writing is interrupted.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "rows.safetensors"
    >>> save(path, {"rows": torch.arange(3)}, {"seed": 0})
    >>> load(path)
    ({'rows': tensor([0, 1, 2])}, {'seed': 0})
    """
    path = Path(path)
    level = content.level if isinstance(content, Graphs) else None
    tensors = _packed(content) if isinstance(content, Graphs) else {n: _narrow(n, t) for n, t in content.items()}
    about = json.dumps({"version": VERSION, "level": level, "header": header}, sort_keys=True)
    metadata = {"format": FORMAT, "about": about, "sha256": sha256_of(about, tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, dump_safetensors(tensors, metadata))


def load(path: str | Path) -> tuple[Graphs | dict[str, Tensor], dict[str, Any]]:
    """Return what `save` wrote: the graphs or tensors, and the header. A damaged or foreign file is refused.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "broken.safetensors"
    >>> _ = path.write_bytes(b"not a cache file")
    >>> load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    sirgcn.data.validate.DataError: ...: expected a cache file, got something else
    """
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
    """Return the content of the file if it has this header; otherwise build the content and write the file.

    A warning reports a file that is damaged or has another header; it is built again. A warning also reports a file
    that cannot be written; the content is returned all the same.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "rows.safetensors"
    >>> cached(path, {"seed": 0}, lambda: {"rows": torch.arange(3)})
    {'rows': tensor([0, 1, 2])}
    >>> cached(path, {"seed": 0}, lambda: {"rows": torch.zeros(3)})
    {'rows': tensor([0, 1, 2])}
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
        warnings.warn(f"{path} is built again: {reason}", stacklevel=2)
    made = build()
    try:
        save(path, made, header)
    except OSError as error:
        warnings.warn(f"{path} cannot be written: {error}", stacklevel=2)
    return made


def _metadata(path: Path) -> tuple[str, str]:
    """Return the description in the file and its hash, without reading the tensors."""
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        # The layout of safetensors: eight bytes with a length, then as many bytes of JSON.
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
        dtype = _smallest(0, most)
        tensors["edge_index"] = _shifted(graphs.edge_index, -graphs.node_ptr, graphs.edge_ptr, dtype)
    return {name: _narrow(name, tensor) for name, tensor in tensors.items()}


def _unpacked(tensors: dict[str, Tensor], level: Any) -> Graphs:
    unknown = set(tensors) - set(_FIELDS)
    if unknown or not {"x", "edge_index", "y"} <= set(tensors):
        raise DataError(f"expected x, edge_index and y of graphs, got {', '.join(tensors)}", "tensors")
    edge_index = tensors["edge_index"]
    # The largest tensor is widened only when its nodes are renumbered, so that it is not held twice.
    fields = _wide({name: tensor for name, tensor in tensors.items() if name != "edge_index"})
    if {"node_ptr", "edge_ptr"} <= set(fields):
        check_shape("edge_index", edge_index, (2, None), _INTEGERS)
        check_pointer("edge_ptr", fields["edge_ptr"], edge_index.size(1), "edges")
        check_shape("node_ptr", fields["node_ptr"], (len(fields["edge_ptr"]),), (torch.int64,))
        edge_index = _shifted(edge_index, fields["node_ptr"], fields["edge_ptr"], torch.int64)
    return Graphs(level=level, **fields, **_wide({"edge_index": edge_index}))


def _shifted(edge_index: Tensor, offset: Tensor, edge_ptr: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the edges of each graph g with offset_g added."""
    out = torch.empty(edge_index.shape, dtype=dtype)
    for first in range(0, len(edge_ptr) - 1, _AT_ONCE):
        pointer = edge_ptr[first : first + _AT_ONCE + 1]
        columns = slice(int(pointer[0]), int(pointer[-1]))
        added = torch.repeat_interleave(offset[first : first + len(pointer) - 1], pointer.diff())
        out[:, columns] = edge_index[:, columns] + added
    return out


def _smallest(least: int, most: int) -> torch.dtype:
    """Return the smallest integer type that holds both numbers."""
    return next(dtype for dtype in _INTEGERS if torch.iinfo(dtype).min <= least and most <= torch.iinfo(dtype).max)


def _narrow(name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.int64:
        least, most = (int(end) for end in tensor.aminmax()) if tensor.numel() else (0, 0)
        tensor = tensor.to(_smallest(least, most))
    elif tensor.dtype not in (*FLOATS, *_INTEGERS):
        raise DataError(f"expected int64 or float, got {tensor.dtype}", name)
    return tensor.detach().contiguous()


def _wide(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    for name, tensor in tensors.items():
        if tensor.dtype not in (*FLOATS, *_INTEGERS):
            raise DataError(f"expected integers or floats, got {tensor.dtype}", name)
    return {name: tensor if tensor.dtype in FLOATS else tensor.long() for name, tensor in tensors.items()}


def progress(items: Iterable[Item], about: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, and show a progress bar on the error stream if it is a terminal."""
    console = Console(stderr=True)
    yield from track(items, about, total, console=console, transient=True, disable=not console.is_terminal)
