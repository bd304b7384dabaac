"""CSV and TSV files, every value as it stands: by pyarrow where it is installed, else by Python's csv module.

pandas' reader is no third: it fills short rows without a word.
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
from sirgcn.data.tables.numerals import NUMBER
from sirgcn.data.tables.text import Ints, Text, as_text
from sirgcn.data.validate import DataError

# pyarrow reads a file in pieces, and a row must fit into one.
BLOCK = 1 << 26

Ragged = list[tuple[int, int, str]]
"""Rows with a wrong number of fields: their number, how many they have, what stands there."""


MORE = "max_unpacked= of load_tables and apply_tables admits more"
"""What to do about a file that is refused for its size."""


def read_delimited(
    path: Path, delimiter: str, missing: tuple[str, ...], dropped: Dropped, limit: int | None = None
) -> Frame:
    """A text file with a header: UTF-8, with or without a byte order mark; quotes as in RFC 4180.

    Rows are counted from 1 after the header, without blank lines. A .gz file may hold `limit` bytes.
    """
    source = str(path)
    data = read_bytes(path, limit).removeprefix(b"\xef\xbb\xbf")
    _check_bytes(source, data, delimiter)
    header = next(filter(None, _records(data, delimiter)), None)
    if header is None:
        raise DataError("expected a header, got an empty file", "header", source)
    names = [name.strip() for name in header]
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
    return Frame(source, dict(zip(names, columns, strict=True)), rows, missing)


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """A file as a whole, unpacked if its name ends in .gz: to `limit` bytes at most, default as `Limits` has it."""
    try:
        with open_gzip(path, limit) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read()
    except DataError as error:
        raise replace(error, message=f"{error.message}; {MORE}", source=str(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"expected a file that can be read, got: {error}", "path", str(path)) from None


def _by_arrow(data: bytes, delimiter: str, width: int, most: int) -> tuple[list[Text], Ints, Ragged]:
    """The columns, the numbers of their rows, and the ragged rows: of these so many at most, then one is refused."""
    from pyarrow import csv as arrow_csv

    ragged: Ragged = []

    def note(row: Any) -> str:
        # The header is row 1 of the reader. What comes after the last that is kept does not count: that one is refused.
        if len(ragged) < most:
            ragged.append((row.number - 1, row.actual_columns, row.text))
        return "skip"

    table = arrow_csv.read_csv(
        io.BytesIO(data if data.endswith((b"\n", b"\r")) else data + b"\n"),
        # Row numbers are known to one thread alone.
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


def _check_bytes(source: str, data: bytes, delimiter: str) -> None:
    """Refuse what is no UTF-8, and quotes that do not enclose a field: readers would guess what they mean."""

    def refusal(message: str, place: int) -> DataError:
        # In the header there is no row.
        return DataError(message, "columns", source, data.count(b"\n", 0, place) or None)

    if (place := data.find(b"\0")) >= 0:
        raise refusal("expected text in UTF-8, got a zero byte", place)
    try:
        data.isascii() or data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "a frame of pandas.read_csv(encoding=...) will do"
        raise refusal(f"expected text in UTF-8, got byte {data[error.start]:#04x}; {hint}", error.start) from None
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
