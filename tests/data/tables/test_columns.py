"""Text files and data frames become columns: values are unchanged, and every error names its place."""

import csv
import gzip
import io
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.tables import text
from sirgcn.data.tables.columns import MISSING, Dropped, Frame
from sirgcn.data.tables.delimited import read_delimited
from sirgcn.data.validate import DataError

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@pytest.fixture(params=["pyarrow", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both readers of text files."""
    if request.param == "python":
        monkeypatch.setattr(text, "pa", None)
    return str(request.param)


def read(path: Path, data: bytes | str, dropped: Dropped | None = None, name: str = "t.csv") -> Frame:
    file = path / name
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_delimited(file, "\t" if ".tsv" in name else ",", MISSING, dropped or Dropped())


def rows(frame: Frame) -> list[list[str]]:
    return [list(row) for row in zip(*(column.objects() for column in frame.columns.values()), strict=True)]


def frame(**columns: Any) -> Frame:
    return Frame.from_pandas("frame", pd.DataFrame(columns))


def column(values: Any) -> Frame:
    return Frame.from_pandas("frame", pd.DataFrame({"a": values}))


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=6))
def test_a_file_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]]) -> None:
    # A lone carriage return ends a line for one reader and none for the other, unless it is quoted.
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b"], *cells])
    folder = tmp_path_factory.mktemp("csv")
    for pa in (text.pa, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "pa", pa)
            found = read(folder, out.getvalue())
            assert rows(found) == cells
            assert found.rows.tolist() == list(range(1, len(cells) + 1))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a,b\n007,NA\n", [["007", "NA"]]),
        ("a,b\r\n1,2\r\n\r\n3,4", [["1", "2"], ["3", "4"]]),
        ("\ufeffa,b\n1,2\n", [["1", "2"]]),
        ("\n\na, b \n1, 2\n", [["1", " 2"]]),
        ('"a","b"\n"x, ""y""\nz",\n', [['x, "y"\nz', ""]]),
        ("a,b\n", []),
        ("a,b", []),
        ("a,b\nä,\U0001f600\n", [["ä", "\U0001f600"]]),
    ],
)
def test_odd_but_sound_files_are_read(tmp_path: Path, reader: str, data: str, expected: list[list[str]]) -> None:
    found = read(tmp_path, data)
    assert list(found.columns) == ["a", "b"]
    assert rows(found) == expected


def test_gzip_and_tabs_are_read(tmp_path: Path, reader: str) -> None:
    found = read(tmp_path, gzip.compress(b"a\tb\n1\tx,y\n"), name="t.tsv.gz")
    assert rows(found) == [["1", "x,y"]]


@pytest.mark.parametrize(
    ("data", "field", "row", "message"),
    [
        ("", "header", None, "got an empty file"),
        ("\n\n", "header", None, "got an empty file"),
        ("a,a\n1,2\n", "header", None, "'a' twice"),
        ("a,\n1,2\n", "header", None, "a name for column 2"),
        ("0,1\n1,2\n", "header", None, "names of the columns"),
        ("a,b\n1,2\n3\n", "columns", 2, "expected 2 fields, got 1"),
        ("a,b\n1,2,3\n", "columns", 1, "expected 2 fields, got 3"),
        ('a,b\n1,2\n3,"x\n4,5\n', "columns", 2, "closing quote"),
        ('a,b\n"x"y,2\n', "columns", 1, "inside a field"),
        ('a,b\n5" disk,2\n', "columns", 1, "inside a field"),
        ('a,b\n1,"x\n2,"y"\n', "columns", 2, "inside a field"),
        (b"a,b\n1,2\n\xff,4\n", "columns", 2, "UTF-8, got byte 0xff"),
        ("a,b\n1,2\n".encode("utf-16-le"), "columns", None, "zero byte"),
        (b"a,b\n1,\0\n", "columns", 1, "zero byte"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(
    tmp_path: Path, reader: str, data: bytes | str, field: str, row: int | None, message: str
) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        read(tmp_path, data)
    assert (refusal.value.field, refusal.value.row) == (field, row)
    assert str(tmp_path / "t.csv") in str(refusal.value)


def test_rows_of_a_wrong_length_can_be_dropped_and_are_noted(tmp_path: Path, reader: str) -> None:
    dropped = Dropped(lenient=True)
    found = read(tmp_path, "a,b\n1,2\n3\n\n4,5,6\n7,8\n", dropped)
    assert rows(found) == [["1", "2"], ["7", "8"]]
    assert found.rows.tolist() == [1, 4]
    assert [(row, value) for _, row, _, value, _ in dropped.rows] == [(2, "3"), (3, "4,5,6")]
    dropped.write(tmp_path / "dropped.csv")
    assert (
        (tmp_path / "dropped.csv").read_text().splitlines()[1].endswith('t.csv,2,columns,3,"expected 2 fields, got 1"')
    )


def test_a_file_that_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    for name, data in (("t.csv.gz", b"plain"), ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99)[:-20])):
        with pytest.raises(DataError, match="can be read"):
            read(tmp_path, data, name=name)
    with pytest.raises(DataError, match="No such file"):
        read_delimited(tmp_path / "none.csv", ",", MISSING, Dropped())


@pytest.mark.parametrize(
    ("cells", "column_type"),
    [
        (["1", " 2.5", "-3e2", ""], "numeric"),
        (["true", "False", "NA"], "boolean"),
        (["[1, 2]", "[]"], "list"),
        (["2024-01-31", "2024-01-31T12:00", "2024-01-31 12:00:01.5Z"], "time"),
        (["red", "1", "2"], "categorical"),
        (["NA", "", "null"], None),
    ],
)
def test_the_kind_of_a_text_column_is_what_all_its_values_are(
    tmp_path: Path, reader: str, cells: list[str], column_type: str | None
) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["a"], *([cell] for cell in cells)])
    assert read(tmp_path, out.getvalue()).type_of("a") == column_type


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        ([1, 2], "numeric"),
        (pd.array([1, None], "Int64"), "numeric"),
        ([True, False], "boolean"),
        (pd.Series([True, None], dtype=object), "boolean"),
        (["1", "2"], "categorical"),
        (pd.Categorical([3, 4]), "categorical"),
        ([[1.0, 2.0], np.array([3, 4])], "list"),
        ([datetime(2024, 1, 1), None], "time"),
        (pd.Series([date(2024, 1, 1)], dtype=object), "time"),
        (pd.Series([Decimal("1.5"), Decimal("2")], dtype=object), "numeric"),
        (pd.Series([None, None], dtype=object), None),
        ([float("nan")], None),
    ],
)
def test_the_kind_of_a_typed_column_is_its_type(values: Any, column_type: str | None) -> None:
    assert column(values).type_of("a") == column_type


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pd.Series(["a", 1], dtype=object), "int 1 where the first is str 'a'"),
        ([1j, 2j], "got complex128"),
        (pd.to_timedelta(["1 day"]), "got timedelta64"),
        ([[1, 2], [3]], "expected 2 numbers as in the first list, got 1"),
        (pd.Series([{"b": 1}], dtype=object), "got dict"),
        ([["x"]], "lists of numbers"),
    ],
)
def test_a_typed_column_of_no_kind_is_refused(values: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        column(values).type_of("a")
    assert refusal.value.field == "a"


def test_a_stray_word_among_numbers_is_refused_with_its_row(tmp_path: Path, reader: str) -> None:
    found = read(tmp_path, "a\n" + "1\n" * 20 + "twelve\n")
    with pytest.raises(DataError, match="number as in 20 other rows, got 'twelve'") as refusal:
        found.type_of("a")
    assert (refusal.value.row, refusal.value.value) == (21, "twelve")


def test_numbers_truth_and_times_are_read_exactly(tmp_path: Path, reader: str) -> None:
    found = read(
        tmp_path,
        "n,b,t\n0.1,true,1970-01-02\nNA,0,\n-1e-3, FALSE ,1970-01-01T12:00:00+06:00\n",
    )
    np.testing.assert_array_equal(found.numbers("n"), [0.1, np.nan, -0.001])
    np.testing.assert_array_equal(found.numbers("b", "boolean"), [1, 0, 0])
    np.testing.assert_array_equal(found.numbers("t", "time"), [1, np.nan, 0.25])
    typed = frame(t=pd.Series([datetime(1970, 1, 2), pd.NaT]), b=pd.array([True, None], "boolean"))
    np.testing.assert_array_equal(typed.numbers("t", "time"), [1, np.nan])
    np.testing.assert_array_equal(typed.numbers("b", "boolean"), [1, np.nan])


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "+INF"])
def test_numbers_and_infinities_are_no_categories(tmp_path: Path, reader: str, cell: str) -> None:
    with pytest.raises(DataError, match="expected a number as in 1 other rows") as refusal:
        read(tmp_path, f"a\n1.5\n{cell}\n{cell}\n").type_of("a")
    assert (refusal.value.row, refusal.value.value) == (2, cell)
    assert read(tmp_path, f"a\nword\n1.5\n{cell}\n").type_of("a") == "categorical"


@pytest.mark.parametrize(
    ("read_as", "cell", "message"),
    [
        ("numeric", "abc", "expected a number, got 'abc'"),
        ("numeric", "inf", "expected a number, got 'inf'"),
        ("numeric", "1e39", "within ±3.4e\\+38, got 1e\\+39"),
        ("numeric", "1e400", "got inf"),
        ("boolean", "2", "expected true or false, got '2'"),
        ("time", "2024-13-01", "expected a date"),
        ("time", "1", "expected a date"),
    ],
)
def test_a_value_of_another_kind_is_refused(tmp_path: Path, reader: str, read_as: Any, cell: str, message: str) -> None:
    found = read(tmp_path, f"a\nNA\n{cell}\n")
    with pytest.raises(DataError, match=message) as refusal:
        found.numbers("a", read_as)
    assert (refusal.value.field, refusal.value.row) == ("a", 2)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: column([1.0, np.inf]).numbers("a"),
        lambda: column(pd.Series([1, 10**400], dtype=object)).numbers("a"),
        lambda: column([1, 2]).numbers("a", "boolean"),
        lambda: column([1, 2]).numbers("a", "time"),
        lambda: column([[1], [2]]).numbers("a"),
        lambda: column([1, 2]).vectors("a"),
        lambda: column([[1], [2]]).categories("a"),
        lambda: column([np.inf, 1.0]).categories("a"),
        lambda: column([[1.0], [np.nan, 2.0]]).vectors("a"),
        lambda: column([[1.0, np.nan], [1.0, 2.0]]).vectors("a"),
    ],
)
def test_typed_values_of_another_kind_are_refused(refused: Callable[[], Any]) -> None:
    with pytest.raises(DataError) as refusal:
        refused()
    assert refusal.value.field == "a"
    assert refusal.value.row is not None


def test_categories_are_texts_and_numbers_by_value(tmp_path: Path, reader: str) -> None:
    found = read(tmp_path, "a,b,c,d\n1,TRUE, x,007\n1.0,false,NA,-7.00\n,,y,7.5\n")
    assert found.categories("a").tolist() == ["1", "1", None]
    assert found.categories("b").tolist() == ["true", "false", None]
    assert found.categories("c").tolist() == ["x", None, "y"]
    assert found.categories("d").tolist() == ["007", "-7", "7.5"]
    typed = frame(a=[1.0, 2.5, np.nan], b=[True, False, True], c=["NA", None, "y"], d=[2**62 + 1, 2**62, 1])
    assert typed.categories("a").tolist() == ["1", "2.5", None]
    assert typed.categories("b").tolist() == ["true", "false", "true"]
    assert typed.categories("c").tolist() == ["NA", None, "y"]
    assert typed.categories("d").tolist() == [str(2**62 + 1), str(2**62), "1"]


def test_lists_are_numbers_of_one_length(tmp_path: Path, reader: str) -> None:
    found = read(tmp_path, 'a,b,c\n"[1, -2.5]","[1]","[1, x]"\n,"[1, 2]",\n" [3,4e1] ","[3]","[]"\n')
    np.testing.assert_array_equal(found.vectors("a"), [[1, -2.5], [np.nan, np.nan], [3, 40]])
    with pytest.raises(DataError, match="b, row 2: expected 1 numbers as in the first list, got 2"):
        found.vectors("b")
    with pytest.raises(DataError, match="c, row 1: expected numbers in brackets"):
        found.vectors("c")
    # Joined, these would be two lists again.
    nested = read(tmp_path, 'a\n"[1],[2"\n"3]"\n')
    with pytest.raises(DataError, match="a, row 1"):
        nested.vectors("a")


def test_ids_are_text_as_it_stands_and_whole_numbers_of_any_type(tmp_path: Path, reader: str) -> None:
    found = read(tmp_path, "id\n007\n7\nNA\n 7\n")
    assert found.ids("id")[0].objects().tolist() == ["007", "7", "NA", " 7"]
    for values in ([7, 8], [7.0, 8.0], pd.array([7, 8], "Int64"), ["7", "8"], np.array([7, 8], np.uint8)):
        assert column(values).ids("a")[0].objects().tolist() == ["7", "8"]
    large = column(np.array([2**63, 2**63 + 1], np.uint64))
    assert large.ids("a")[0].objects().tolist() == [str(2**63), str(2**63 + 1)]
    named = Frame.from_pandas("frame", pd.DataFrame({"a": [1, 2]}, index=["x", "y"]))
    assert named.ids(None)[0].objects().tolist() == ["x", "y"]


def test_an_absent_id_is_refused(tmp_path: Path, reader: str) -> None:
    with pytest.raises(DataError, match="id, row 2: expected an id, got none"):
        read(tmp_path, "id,b\n1,2\n,3\n").ids("id")
    with pytest.raises(DataError, match="a, row 2: expected an id, got none"):
        column([1.0, np.nan]).ids("a")
    with pytest.raises(DataError, match="expected ids, got lists of 2 numbers"):
        Frame("frame", {"a": np.ones((1, 2))}, np.array([1])).ids("a")


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="header: expected every name once, got '1' twice"):
        Frame.from_pandas("frame", pd.DataFrame([[1, 2]], columns=pd.Index([1, "1"], dtype=object)))


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"target: expected a column of frame \('a'\), got 'b'"):
        column([1]).find("target", "b")
