"""The bytes of a text file as UTF-8, and what a file is that is no such text."""

import codecs

from sirgcn.data.validate import DataError

_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_BEGINNINGS = (
    (b"PK\x03\x04", "an Excel file or another archive: save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file: save the sheet as CSV"),
    (b"PAR1", "a Parquet file: let its name end in .parquet"),
    (b"\x1f\x8b", "packed by gzip: let its name end in .csv.gz"),
    (b"SQLite format 3", "a database: write its table as CSV"),
    (b"%PDF", "a PDF: write its table as CSV"),
)
"""How files begin that are taken for text files, and what to do with them."""


def as_utf8(source: str, data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return the text of a file in UTF-8 without a byte order mark, and notes on what was done.

    Text in UTF-16 or UTF-32 is read if it begins with its byte order mark, as spreadsheets write it.
    """
    for start, said in _BEGINNINGS:
        if data.startswith(start):
            raise DataError(f"expected text in UTF-8, got {said}", "columns", source)
    for mark, encoding in _WIDE:
        if data.startswith(mark):
            try:
                return data.decode(encoding).encode("utf-8"), (f"read as {encoding.upper()}",)
            except UnicodeError as error:
                raise DataError(f"expected text in {encoding.upper()}, got: {error}", "columns", source) from None
    return data.removeprefix(codecs.BOM_UTF8), ()


def check_utf8(source: str, data: bytes) -> None:
    """Raise for bytes that are no UTF-8."""
    if (place := data.find(b"\0")) >= 0:
        wide = len(data) > 1 and data[: 2 * (len(data) // 2)].count(b"\0") > len(data) // 3
        said = "this looks like UTF-16: save the file as UTF-8" if wide else "this is no text file: save it as CSV"
        raise DataError(f"expected text in UTF-8, got a zero byte; {said}", "columns", source, _row(data, place))
    try:
        data.isascii() or data.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "save the file as UTF-8; a frame of pandas.read_csv(encoding=...) will do, too"
        got = f"got byte {data[error.start]:#04x}; {hint}"
        raise DataError(f"expected text in UTF-8, {got}", "columns", source, _row(data, error.start)) from None


def _row(data: bytes, place: int) -> int | None:
    # The header has no row number.
    return data.count(b"\n", 0, place) or None
