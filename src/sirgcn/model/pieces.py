"""A table of molecules, read piece by piece: no more of it than one piece is in memory."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sirgcn.data.archives import open_gzip
from sirgcn.data.tables import Preprocessing
from sirgcn.data.tables.columns import Frame, check_names
from sirgcn.data.tables.read import DELIMITERS, PARQUET
from sirgcn.data.tables.text import as_text
from sirgcn.data.validate import DataError

BadRow = tuple[str, int, str, str, str]
"""A row that cannot be used: its table, row, column and value, and the reason."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a table.

    Args:
        frame: the rows that have as many fields as the header.
        bad: the others, with the reason.
    """

    frame: Frame
    bad: list[BadRow]


def has_pieces(preprocessing: Preprocessing, tables: Mapping[str, Any]) -> bool:
    """Whether tables can be read piece by piece: one file of molecules.

    >>> from sirgcn.data.tables.roles import Roles
    >>> has_pieces(Preprocessing("graph", Roles(smiles="smiles")), {"nodes": Path("molecules.csv")})
    True
    """
    given = [name for name, table in tables.items() if table is not None]
    is_file = isinstance(tables.get("nodes"), str | Path)
    return preprocessing.roles.smiles is not None and given == ["nodes"] and is_file


def read_pieces(path: Path, missing: tuple[str, ...], size: int) -> Iterator[Piece]:
    """The pieces of a text or Parquet file, `size` rows each, in its order.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "molecules.csv"
    ...     _ = path.write_text("smiles\\nC\\nCC\\nCCC\\n")
    ...     [piece.frame.rows.tolist() for piece in read_pieces(path, (), 2)]
    [[1, 2], [3]]
    """
    packed = path.suffix == ".gz"
    suffix = (Path(path.stem) if packed else path).suffix.lower()
    if suffix in PARQUET:
        return _from_parquet(path, size)
    if suffix not in DELIMITERS:
        known = ", ".join([*DELIMITERS, *PARQUET])
        raise DataError(f"expected a file that ends in one of {known} (text also with .gz)", "nodes", str(path))
    return _from_text(path, DELIMITERS[suffix], missing, size)


def _from_parquet(path: Path, size: int) -> Iterator[Piece]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError("needs pyarrow: pip install 'sirgcn[data]'", "columns", str(path)) from None
    start = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(size):
                frame = Frame.from_pandas(str(path), batch.to_pandas())
                yield Piece(replace(frame, rows=frame.rows + start, index=None), [])
                start += len(frame)
    except (ArrowException, OSError) as error:
        raise DataError(f"expected a Parquet file, got: {error}", "columns", str(path)) from None


def _from_text(path: Path, delimiter: str, missing: tuple[str, ...], size: int) -> Iterator[Piece]:
    source = str(path)
    try:
        with open_gzip(path, None) if path.suffix == ".gz" else path.open("rb") as raw:
            lines = io.TextIOWrapper(raw, "utf-8-sig", newline="")
            records = filter(None, csv.reader(lines, delimiter=delimiter, strict=True))
            header = next(records, None)
            if header is None:
                raise DataError("expected a header, got an empty file", "header", source)
            names = [name.strip() for name in header]
            check_names(source, names)
            row = 0
            while some := list(islice(records, size)):
                yield _piece(source, names, missing, some, row)
                row += len(some)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"expected text in UTF-8 with {len(header or ())} fields, got: {error}", "columns", source
        ) from None


def _piece(source: str, names: list[str], missing: tuple[str, ...], records: list[list[str]], start: int) -> Piece:
    rows = np.arange(start + 1, start + len(records) + 1)
    whole = np.array([len(record) == len(names) for record in records])
    bad: list[BadRow] = [
        (source, int(row), "columns", ",".join(record), f"expected {len(names)} fields, got {len(record)}")
        for row, record in zip(rows, records, strict=True)
        if len(record) != len(names)
    ]
    kept = [record for record in records if len(record) == len(names)]
    columns = zip(*kept, strict=True) if kept else [[] for _ in names]
    made = {name: as_text(list(column)) for name, column in zip(names, columns, strict=True)}
    return Piece(Frame(source, made, rows[whole], missing), bad)
