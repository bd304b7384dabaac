"""Rows of numbers in memory or in a file, read and written in ranges, so that a working set stays bounded."""

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Table(Protocol):
    """A matrix of which ranges of rows are read and written."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""

    def read(self, start: int, stop: int) -> Tensor:
        """The rows of a range."""

    def write(self, start: int, rows: Tensor) -> None:
        """Replace rows from a place on."""

    def take(self, index: Tensor) -> Tensor:
        """The rows of an index."""

    def whole(self) -> Tensor:
        """All rows as one tensor; of a file, its pages are read as they are needed."""


class MemoryTable:
    """A `Table` over a tensor.

    >>> table = MemoryTable(torch.zeros(3, 1))
    >>> table.write(1, torch.ones(2, 1))
    >>> table.read(0, 2).flatten().tolist()
    [0.0, 1.0]
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.size(0), self.tensor.size(1)

    def read(self, start: int, stop: int) -> Tensor:
        return self.tensor[start:stop]

    def write(self, start: int, rows: Tensor) -> None:
        self.tensor[start : start + len(rows)] = rows

    def take(self, index: Tensor) -> Tensor:
        return self.tensor.index_select(0, index)

    def whole(self) -> Tensor:
        return self.tensor


class FileTable:
    """A `Table` in a file without a header; ranges pass through small buffers, not through a map of the file.

    Args:
        path: the file.
        shape: the numbers of rows and of columns.
        dtype: the dtype of an entry.
        begin: where in the file the rows begin, in bytes.
        create: make a file of this size, in place of reading one.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = FileTable(Path(folder) / "rows", (3, 2), torch.float32, create=True)
    ...     table.write(1, torch.ones(1, 2))
    ...     table.read(0, 2).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: torch.dtype, begin: int = 0, create: bool = False
    ) -> None:
        self.path, self._shape, self.dtype, self.begin = path, shape, dtype, begin
        self.row_bytes = shape[1] * dtype.itemsize
        if create:
            with path.open("wb") as file:
                file.truncate(begin + shape[0] * self.row_bytes)

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def read(self, start: int, stop: int) -> Tensor:
        rows = torch.empty(max(0, stop - start), self.shape[1], dtype=self.dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.begin + start * self.row_bytes)
            _read_all(file.readinto, rows, self.path)
        return rows

    def write(self, start: int, rows: Tensor) -> None:
        with self.path.open("r+b") as file:
            file.seek(self.begin + start * self.row_bytes)
            file.write(bytes_of(rows.detach().to(self.dtype).contiguous().numpy()))

    def take(self, index: Tensor) -> Tensor:
        return self.whole().index_select(0, index)

    def whole(self) -> Tensor:
        return map_file(self.path, self.shape[0] * self.shape[1], self.dtype, self.begin).view(self.shape)


def _read_all(readinto: Callable[[memoryview], int | None], rows: Tensor, path: Path) -> None:
    """Fill a tensor from a file; one call of the system may return less than all of it."""
    view = bytes_of(rows.numpy())
    while len(view):
        count = readinto(view)
        if not count:
            raise OSError(f"{path}: expected {len(view)} bytes more, got the end of the file")
        view = view[count:]


def map_file(path: Path, entries: int, dtype: torch.dtype, begin: int = 0) -> Tensor:
    """The entries of a file as a tensor whose pages are read as they are needed, and dropped with the tensor.

    Changes of the tensor do not reach the file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers"
    ...     _ = path.write_bytes(np.arange(3, dtype=np.int32).tobytes())
    ...     map_file(path, 3, torch.int32).tolist()
    [0, 1, 2]
    """
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    if not entries:
        return torch.empty(0, dtype=dtype)
    mapped = np.memmap(path, dtype=numpy_dtype, mode="c", offset=begin, shape=(entries,))
    _advise_random(mapped)
    return torch.from_numpy(mapped)


def bytes_of(array: npt.NDArray[Any]) -> memoryview:
    r"""The memory of a contiguous array.

    >>> bytes(bytes_of(np.array([1, 2], np.int8)))
    b'\x01\x02'
    """
    return memoryview(array.reshape(-1).view(np.uint8).data) if array.size else memoryview(b"")


def _advise_random(mapped: npt.NDArray[Any]) -> None:
    """Ask the system not to read ahead of random accesses, which would fill memory with pages that nobody needs."""
    pages = getattr(mapped, "_mmap", None)
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_RANDOM"):
        pages.madvise(mmap.MADV_RANDOM)


def new_table(folder: Path | None, name: str, shape: tuple[int, int], dtype: torch.dtype) -> Table:
    """An empty table, in a file of the folder if there is one.

    >>> new_table(None, "h", (2, 3), torch.float32).shape
    (2, 3)
    """
    if folder is None:
        return MemoryTable(torch.empty(shape, dtype=dtype))
    return FileTable(folder / name, shape, dtype, create=True)


def drop(table: Table) -> None:
    """Remove the file of a table that nobody reads any more.

    >>> drop(MemoryTable(torch.zeros(1, 1)))
    """
    if isinstance(table, FileTable):
        table.path.unlink()
