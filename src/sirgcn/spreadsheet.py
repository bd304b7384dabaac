"""CSV as the product writes it: what a spreadsheet would run as a formula stays text."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

# By OWASP's list for CSV injection; some spreadsheets take the wide forms of the signs for the signs themselves.
_FORMULA = re.compile(r"[=+\-@\t\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""Rows as the text of a CSV file, every cell by `as_cell`.

    >>> csv_text([("model", "loss"), ("=1+1", -0.25)])
    "model,loss\n'=1+1,-0.25\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([as_cell(entry) for entry in row] for row in rows)
    return text.getvalue()


def as_cell(entry: object) -> str:
    """A value as text; an apostrophe stands before what a spreadsheet would take for a formula.

    A number stays a number, also a negative one. Line breaks are written as one line feed: Python's writer leaves a
    lone carriage return without quotes, and a spreadsheet begins a new row there.

    >>> as_cell("@SUM(A1)"), as_cell(-0.25), as_cell("-0.25"), as_cell("GIN")
    ("'@SUM(A1)", '-0.25', '-0.25', 'GIN')
    """
    text = str(entry).replace("\r\n", "\n").replace("\r", "\n")
    is_formula = _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None
    return f"'{text}" if is_formula else text
