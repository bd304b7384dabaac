"""A table in pieces of bounded memory: a text file, a Parquet file or a frame, some thousand rows at a time."""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from sirgcn.data.tables import text
from sirgcn.data.tables.columns import Dropped, Frame, check_names
from sirgcn.data.tables.decode import as_utf8
from sirgcn.data.tables.delimited import UNNAMED, find_separator, with_points
from sirgcn.data.tables.read import DELIMITERS, PARQUET, from_arrow, read_frame, suffix_of
from sirgcn.data.tables.text import as_text
from sirgcn.data.validate import DataError

# Enough bytes for a byte order mark and a header.
_BEGINNING = 1 << 20

# The characters of a line. A field has at most 131,072 of them.
_LONGEST = 1 << 20


Piece = tuple[Frame, int]
"""Some rows of a table, and the number of the last row that was read, which may have been left out."""


def pieces_of(source: Any, name: str, missing: tuple[str, ...], size: int, start: int, bad: Dropped) -> Iterator[Piece]:
    """Yield the rows of a table after the first `start` ones, at most `size` at a time.

    Rows keep their numbers. Rows of a text file with a wrong number of fields, or that are no UTF-8, are noted in `bad`
    and left out; they count as rows.
    """
    suffix = suffix_of(source) if isinstance(source, str | os.PathLike) else None
    if suffix in DELIMITERS:
        yield from _text_pieces(Path(source), DELIMITERS[suffix], missing, size, start, bad)
    elif suffix in PARQUET:
        yield from _parquet_pieces(Path(source), size, start)
    else:
        whole = read_frame(source, name, missing, bad)
        for first in range(start, len(whole), size):
            last = min(first + size, len(whole))
            yield whole.take(np.arange(first, last)), last


def _parquet_pieces(path: Path, size: int, start: int) -> Iterator[Piece]:
    if text.pa is None:
        raise DataError("needs pyarrow: pip install 'sirgcn[data]'", "columns", str(path))
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            first = 0
            for batch in file.iter_batches(size):
                if first + len(batch) > start:
                    skipped = max(0, start - first)
                    frame = from_arrow(str(path), text.pa.Table.from_batches([batch.slice(skipped)]))
                    yield replace(frame, rows=frame.rows + first + skipped), first + len(batch)
                first += len(batch)
    except (ValueError, OSError, NotImplementedError) as error:  # pyarrow's errors are among them
        if isinstance(error, DataError):
            raise
        raise DataError(f"expected a Parquet file, got: {error}", "columns", str(path)) from None


def _open(path: Path) -> IO[bytes]:
    try:
        return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise DataError(f"expected a file that can be read, got: {error}", "path", str(path)) from None


def _text_pieces(
    path: Path, delimiter: str, missing: tuple[str, ...], size: int, start: int, bad: Dropped
) -> Iterator[Piece]:
    source = str(path)
    with _open(path) as file:
        beginning = file.read(_BEGINNING)
    # The mark of a wide encoding is read; an Excel file under the name of a CSV is refused.
    _, notes = as_utf8(source, beginning)
    encoding = notes[0].removeprefix("read as ").lower() if notes else "utf-8-sig"
    first_lines = beginning.decode(encoding, "replace").encode("utf-8", "replace")
    delimiter, said = find_separator(first_lines, delimiter)
    with _open(path) as file, io.TextIOWrapper(file, encoding, "surrogateescape", newline="") as lines:
        records = _records(source, lines, delimiter)
        names = _header(source, records)
        row = start
        next(islice(records, start, start), None)
        while found := list(islice(records, size)):
            numbers = np.arange(row + 1, row + len(found) + 1)
            row += len(found)
            kept = [
                place for place, record in enumerate(found) if _is_whole(record, names, bad, source, numbers[place])
            ]
            fields = zip(*(found[place] for place in kept), strict=True) if kept else ([] for _ in names)
            columns = [as_text(list(column)) for column in fields]
            if said:
                columns, _ = with_points(names, columns, missing)
            yield Frame(source, dict(zip(names, columns, strict=True)), numbers[kept], missing), row


def _header(source: str, records: Iterator[list[str]]) -> list[str]:
    header = next(records, None)
    if header is None:
        raise DataError("expected a header, got an empty file", "header", source)
    names = [name.strip() for name in header]
    if len(names) > 1 and not names[0]:
        names[0] = UNNAMED
    check_names(source, names)
    return names


def _records(source: str, lines: Any, delimiter: str) -> Iterator[list[str]]:
    # A line that never ends is cut, and then is a bad row.
    reader = csv.reader(iter(partial(lines.readline, _LONGEST), ""), delimiter=delimiter, strict=True)
    row = 0
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except (csv.Error, OSError, EOFError, zlib.error) as error:
            raise DataError(f"expected rows of text, got: {error}", "columns", source, row) from None
        if record:
            yield record
            row += 1


def _is_whole(record: list[str], names: list[str], bad: Dropped, source: str, row: int) -> bool:
    """Return whether a record can be used; note it otherwise."""
    line = ",".join(record)
    reason = ""
    if len(record) != len(names):
        reason = f"expected {len(names)} fields, got {len(record)}"
    elif not line.isascii() and _plain(line) != line:
        reason = "expected text in UTF-8, got other bytes"
    elif "\0" in line:
        reason = "expected text, got a zero byte"
    if reason:
        bad.refuse(DataError(reason, "columns", source, int(row), _plain(line)))
    return not reason


def _plain(line: str) -> str:
    """Return a line with question marks for what is no UTF-8."""
    return line.encode("utf-8", "replace").decode("utf-8")
