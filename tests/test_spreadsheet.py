"""No spreadsheet reads a cell of our CSV files as a formula."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sirgcn
from sirgcn.data import load_tables
from sirgcn.spreadsheet import as_cell, csv_text

SIGNS = "=+-@\t\r\n＝＋－＠"


@given(st.sampled_from(SIGNS), st.text(max_size=20))
def test_what_begins_like_a_formula_and_is_no_number_gets_an_apostrophe(sign: str, rest: str) -> None:
    found = as_cell(sign + rest)
    try:
        is_number = (sign + rest).isascii() and float(sign + rest) is not None
    except ValueError:
        is_number = False
    assert is_number or found == f"'{sign}{rest}".replace("\r\n", "\n").replace("\r", "\n")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_a_number_stays_that_number(value: float) -> None:
    assert float(as_cell(value)) == float(as_cell(repr(value))) == value


@given(st.lists(st.tuples(st.text("abcß ,\"'\r\n1.5"), st.text("xyz-=")), min_size=1))
def test_rows_are_read_back_with_their_cells(rows: list[tuple[str, str]]) -> None:
    found = list(csv.reader(io.StringIO(csv_text(rows), newline="")))
    assert found == [[as_cell(cell) for cell in row] for row in rows]


@pytest.mark.parametrize("text", ["-inf", "+1-1", "-1+cmd|' /C calc'!A0", "-0.25e", "−1", "--1", "-1\n=2"])
def test_a_number_is_the_whole_cell(text: str) -> None:
    assert as_cell(text) == (text if text == "−1" else f"'{text}")


def test_a_row_that_was_left_out_is_no_formula(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n=1+1,2\n-5,3\n")
    load_tables(
        tmp_path / "nodes.csv", tmp_path / "edges.csv", on_error="skip", dropped=tmp_path / "dropped.csv", level="node"
    )
    with (tmp_path / "dropped.csv").open(newline="") as file:
        assert [row["value"] for row in csv.DictReader(file)] == ["'=1+1", "-5"]


def test_csv_is_written_in_one_place() -> None:
    package = Path(sirgcn.__file__).parent
    writes = re.compile(r"csv\.(?:writer|DictWriter)|\.to_csv\(|write_csv\(")
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if writes.search(path.read_text())}
    # The benchmark writes numbers of its own, to read them back.
    assert found <= {"spreadsheet.py", "bench/tables_load.py"}
