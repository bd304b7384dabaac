"""Features and labels of nodes, from tables into files of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from sirgcn.data import DataError
from sirgcn.scale.disk import FEATURES, LABELS
from sirgcn.scale.edgefiles import column_names, pieces, table_files, whole_numbers
from sirgcn.scale.manifest import FileBlock, blocks_of
from sirgcn.scale.rows import FileTable


class Advances(Protocol):
    """A bar of progress."""

    def advance(self) -> None:
        """One more piece is done."""


@dataclass(frozen=True)
class Nodes:
    """The table of nodes of a conversion, and the roles of its columns.

    Args:
        path: a file, a folder of files or a list of files with a row per node.
        id: the column with the number of the node; None where the rows stand in the order of the nodes.
        label: the column with the label: whole numbers are classes (-1: none), others are numbers (NaN: none).
        features: the columns with features; None takes all others.

    >>> Nodes("nodes.parquet", label="price").label
    'price'
    """

    path: str | Path | Sequence[str | Path]
    id: str | None = None
    label: str | None = None
    features: tuple[str, ...] | None = None

    def files(self) -> list[Path]:
        """The files of the table."""
        return table_files(self.path, "nodes")

    def feature_names(self) -> list[str]:
        """The columns with features; pandas' index is none of them."""
        if self.features is not None:
            return list(self.features)
        known = column_names(self.files()[0])
        return [name for name in known if name not in (self.id, self.label) and not name.startswith("__index_level_")]

    def write(self, folder: Path, bar: Advances) -> tuple[int, int, str, list[FileBlock]]:
        """Write features and labels; returns the number of nodes and of features, the kind of labels, the blocks."""
        files = self.files()
        special = [name for name in (self.id, self.label) if name is not None]
        names = self.feature_names()
        count = sum(len(next(iter(columns.values()))) for _, _, columns in pieces(files, (special or names)[:1]))
        if not count:
            raise DataError("expected at least one node, got none", "nodes", str(files[0]))
        table, labels = (
            FileTable(folder / FEATURES, (count, len(names)), torch.float32, create=True),
            _Labels(folder, count),
        )
        seen, first = np.zeros(count, bool), 0
        for file, row, columns in pieces(files, [*names, *special]):
            rows = np.stack([columns[name].astype(np.float32) for name in names], 1) if names else np.zeros((0, 0))
            _check_finite(rows, names, file, row)
            place = self._places(columns, first, count, (file, row))
            _mark(seen, place, (file, self.id or "row", row))
            _put(table, place, torch.from_numpy(rows))
            if self.label is not None:
                labels.put(place, columns[self.label])
            first += len(place)
            bar.advance()
        blocks = blocks_of(table.path) if names else []
        return count, len(names), labels.kind, blocks + labels.blocks()

    def _places(
        self, columns: dict[str, npt.NDArray[Any]], first: int, count: int, where: tuple[Path, int]
    ) -> npt.NDArray[np.int64]:
        if self.id is None:
            return np.arange(first, first + len(next(iter(columns.values()))))
        return whole_numbers(columns[self.id], count, (where[0], self.id, where[1]))


class _Labels:
    """The labels, whose dtype the first piece decides."""

    def __init__(self, folder: Path, count: int) -> None:
        self.path, self.count, self.table = folder / LABELS, count, None

    @property
    def kind(self) -> str:
        """`"class"`, `"number"`, or nothing."""
        if self.table is None:
            return ""
        return "class" if self.table.dtype == torch.int64 else "number"

    table: FileTable | None

    def put(self, place: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
        if self.table is None:
            dtype = torch.float32 if values.dtype.kind == "f" else torch.int64
            self.table = FileTable(self.path, (self.count, 1), dtype, create=True)
        rows = torch.from_numpy(values.reshape(-1, 1).copy()).to(self.table.dtype)
        _put(self.table, place, rows)

    def blocks(self) -> list[FileBlock]:
        return [] if self.table is None else blocks_of(self.path)


def _put(table: FileTable, place: npt.NDArray[np.int64], rows: torch.Tensor) -> None:
    """Write rows to their places."""
    if not rows.numel():
        return
    if (np.diff(place) == 1).all():
        table.write(int(place[0]), rows)
        return
    # A map for this piece only, so that its pages leave memory with it.
    mapped = np.memmap(table.path, rows.numpy().dtype, "r+", shape=table.shape)
    order = np.argsort(place)
    mapped[place[order]] = rows.numpy()[order]
    mapped.flush()


def _mark(seen: npt.NDArray[np.bool_], place: npt.NDArray[np.int64], where: tuple[Path, str, int]) -> None:
    twice = seen[place].copy()
    first = np.unique(place, return_index=True)[1]
    is_first = np.zeros(len(place), bool)
    is_first[first] = True
    twice |= ~is_first
    if twice.any():
        at = int(twice.argmax())
        file, name, row = where
        raise DataError(f"expected every node once, got node {place[at]} twice", name, str(file), row=row + at + 1)
    seen[place] = True


def _check_finite(rows: npt.NDArray[Any], names: Sequence[str], file: Path, row: int) -> None:
    bad = ~np.isfinite(rows)
    if bad.any():
        at, column = (int(place[0]) for place in np.nonzero(bad))
        raise DataError(f"expected a finite number, got {rows[at, column]}", names[column], str(file), row=row + at + 1)
