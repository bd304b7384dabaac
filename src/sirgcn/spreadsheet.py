"""CSV files that are safe to open in a spreadsheet: a cell that looks like a formula stays text."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

# From OWASP's list for CSV injection. Some spreadsheets read the full-width forms of the signs as the signs.
_FORMULA = re.compile(r"[=+\-@\t\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""The rows as the text of a CSV file. `as_cell` writes every cell.

    >>> csv_text([("model", "loss"), ("=1+1", -0.25)])
    "model,loss\n'=1+1,-0.25\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([as_cell(entry) for entry in row] for row in rows)
    return text.getvalue()


def as_cell(entry: object) -> str:
    """A value as text. If a spreadsheet would read it as a formula, it begins with an apostrophe.

    Numbers stay numbers, including negative ones. Every line break becomes one line feed: Python's writer does not
    quote a lone carriage return, and a spreadsheet would begin a new row there.

    >>> as_cell("@SUM(A1)"), as_cell(-0.25), as_cell("-0.25"), as_cell("GIN")
    ("'@SUM(A1)", '-0.25', '-0.25', 'GIN')
    """
    text = str(entry).replace("\r\n", "\n").replace("\r", "\n")
    is_formula = _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None
    return f"'{text}" if is_formula else text
