"""CSV and TSV files, with every value unchanged. The reader is pyarrow if it is installed, otherwise Python's csv.

The reader of pandas is not used, because it fills short rows silently.
"""

import csv
import io
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sirgcn.data.archives import open_gzip
from sirgcn.data.tables import text
from sirgcn.data.tables.columns import MOST_DROPPED, Dropped, Frame, check_names
from sirgcn.data.tables.decode import as_utf8, check_utf8
from sirgcn.data.tables.numerals import NUMBER
from sirgcn.data.tables.text import Ints, Text, as_text
from sirgcn.data.validate import DataError

# pyarrow reads a file in blocks, and a row must fit into one block.
BLOCK = 1 << 26

Ragged = list[tuple[int, int, str]]
"""Rows with a wrong number of fields: the number of the row, the number of its fields, and its text."""


MORE = "max_unpacked= of load_tables and apply_tables allows more"
"""The advice for a file that is refused because of its size."""


def read_delimited(
    path: Path, delimiter: str, missing: tuple[str, ...], dropped: Dropped, limit: int | None = None
) -> Frame:
    """Return the table of a text file with a header, in UTF-8 with or without a byte order mark; quotes as in RFC 4180.

    Rows are counted from 1 after the header, without blank lines. A .gz file may unpack to `limit` bytes.
    """
    source = str(path)
    data, notes = as_utf8(source, read_bytes(path, limit))
    check_utf8(source, data)
    delimiter, said = find_separator(data, delimiter)
    _check_quotes(source, data, delimiter)
    header = next(filter(None, _records(data, delimiter)), None)
    if header is None:
        raise DataError("expected a header, got an empty file", "header", source)
    names = [name.strip() for name in header]
    is_indexed = _has_index(names, data, delimiter)
    if is_indexed:
        names[0] = UNNAMED
    check_names(source, names)
    if as_text(names).matches(NUMBER).all():
        raise DataError(f"expected a header with the names of the columns, got {names}", "header", source)
    try:
        reader = _by_python if text.pa is None else _by_arrow
        columns, rows, ragged = reader(data, delimiter, len(names), MOST_DROPPED + 1 if dropped.lenient else 1)
    except (csv.Error, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"expected rows of {len(names)} fields, got: {error}", "columns", source) from None
    for row, count, line in ragged:
        dropped.refuse(DataError(f"expected {len(names)} fields, got {count}", "columns", source, row, line))
    if said:
        columns, more = with_points(names, columns, missing)
        notes = (*notes, *said, *more)
    return Frame(source, dict(zip(names, columns, strict=True)), rows, missing, notes=notes)


UNNAMED = "Unnamed: 0"
"""The name that pandas gives to a first column without a name, which is an index that it wrote."""

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}

# A number with a decimal comma, or a whole number. In a file that commas separate, such a text would be in quotes.
_WITH_COMMA = r"[+-]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][+-]?[0-9]+)?"


def find_separator(data: bytes, delimiter: str) -> tuple[str, tuple[str, ...]]:
    """Return what separates the fields of the header, with a note if that is not what the file's name says."""
    first = next(filter(bytes.strip, data.splitlines()), b"").decode("utf-8", "replace")
    for other, words in _SEPARATORS.items():
        if delimiter not in first and other in first:
            return other, (f"fields separated by {words}",)
    return delimiter, ()


def _has_index(names: list[str], data: bytes, delimiter: str) -> bool:
    """Return whether the first column has no name and counts the rows from 0, as an index of pandas does."""
    if len(names) < 2 or names[0] or UNNAMED in names:
        return False
    rows = (record for record in _records(data, delimiter) if record)
    next(rows)
    return all(record[0] == str(number) for number, record in enumerate(rows))


def with_points(names: list[str], columns: list[Text], missing: tuple[str, ...]) -> tuple[list[Text], list[str]]:
    """Return the columns with decimal points where all numbers of a column have decimal commas, and notes on them."""
    found, notes = list(columns), []
    for place, (name, column) in enumerate(zip(names, columns, strict=True)):
        here = ~column.isin(("", *missing))
        if column.matches(f"{_WITH_COMMA}")[here].all() and column.matches(r".*,.*")[here].any():
            found[place] = as_text([text.replace(",", ".") for text in column.objects()])
            notes.append(f"decimal commas in {name!r}")
    return found, notes


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in .gz: at most `limit`, by default those of `Limits`."""
    try:
        with open_gzip(path, limit) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except DataError as error:
        raise replace(error, message=f"{error.message}; {MORE}", source=str(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"expected a file that can be read, got: {error}", "path", str(path)) from None


def _by_arrow(data: bytes, delimiter: str, width: int, most: int) -> tuple[list[Text], Ints, Ragged]:
    """Return the columns, the numbers of their rows, and at most `most` rows with a wrong number of fields."""
    from pyarrow import csv as arrow_csv

    ragged: Ragged = []

    def note(row: Any) -> str:
        # The header is row 1 of the reader. Further rows do not matter, because the last one that is kept is refused.
        if len(ragged) < most:
            ragged.append((row.number - 1, row.actual_columns, row.text))
        return "skip"

    table = arrow_csv.read_csv(
        io.BytesIO(data if data.endswith((b"\n", b"\r")) else data + b"\n"),
        # Row numbers are known only with a single thread.
        arrow_csv.ReadOptions(
            use_threads=False, block_size=min(max(len(data) + 1, 1 << 16), BLOCK), autogenerate_column_names=True
        ),
        arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note),
        arrow_csv.ConvertOptions(
            column_types={f"f{place}": text.pa.large_string() for place in range(width)}, strings_can_be_null=False
        ),
    ).slice(1)
    last = max([len(table) + len(ragged), *(row for row, _, _ in ragged)])
    rows = np.delete(np.arange(1, last + 1), [row - 1 for row, _, _ in ragged])
    return [as_text(column.combine_chunks()) for column in table.columns], rows, ragged


def _by_python(data: bytes, delimiter: str, width: int, most: int) -> tuple[list[Text], Ints, Ragged]:
    records = [record for record in _records(data, delimiter) if record][1:]
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    whole = lengths == width
    places = np.flatnonzero(~whole)[:most].tolist()
    ragged = [(at + 1, int(lengths[at]), delimiter.join(records[at])) for at in places]
    kept = [record for record, fits in zip(records, whole.tolist(), strict=True) if fits]
    columns = [as_text(column) for column in zip(*kept, strict=True)] if kept else [as_text([])] * width
    return columns, np.flatnonzero(whole) + 1, ragged


def _records(data: bytes, delimiter: str) -> Iterator[list[str]]:
    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _check_quotes(source: str, data: bytes, delimiter: str) -> None:
    """Raise for quotes inside a field, whose meaning readers would guess."""

    def refusal(message: str, place: int) -> DataError:
        # The header has no row number.
        return DataError(message, "columns", source, data.count(b"\n", 0, place) or None)

    characters = np.frombuffer(b"\n" + data + b"\n", np.uint8)
    quotes = np.flatnonzero(characters == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    border = np.array([ord(delimiter), *b'\r\n"'], np.uint8)
    for ends, beside in ((opening, -1), (closing, 1)):
        inside = ends[~np.isin(characters[ends + beside], border)]
        if len(inside):
            raise refusal("expected quotes around a whole field, got one inside a field", int(inside[0]) - 1)
    if len(opening) != len(closing):
        raise refusal("expected a closing quote, got the end of the file", int(opening[-1]) - 1)
