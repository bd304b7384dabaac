"""Text by pyarrow and text by plain Python give the same answers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.tables import text
from sirgcn.data.tables.columns import DATE, LIST, TRUTH
from sirgcn.data.tables.numerals import NUMBER
from sirgcn.data.tables.text import ArrowText, PlainText

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.sampled_from(["+1", "-.5", "5.", "007", "1e400", "1e-400", " 2 ", "\t3\n"]),
)
VALUES = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=6),
        NUMBERS,
        st.sampled_from(["", "NA", " NA ", "true", "2024-01-31", "[1, 2]", "١"]),
    ),
    max_size=12,
)


def both(values: list[str | None]) -> tuple[ArrowText, PlainText]:
    pa = pytest.importorskip("pyarrow")
    held = np.array([*values, None], dtype=object)[:-1]
    return ArrowText(pa.array(values, pa.large_string())), PlainText(held)


def same(first: Any, second: Any) -> None:
    assert list(first) == list(second)


@given(VALUES)
def test_both_texts_agree_on_any_column(values: list[str | None]) -> None:
    arrow, plain = both(values)
    same(arrow.null(), plain.null())
    same(arrow.isin(["", "NA"]), plain.isin(["", "NA"]))
    for pattern in (NUMBER, TRUTH, DATE, LIST):
        same(arrow.matches(pattern), plain.matches(pattern))
    same(arrow.objects(), plain.objects())
    same(arrow.names(), plain.names())
    keep = ~plain.null()
    same(arrow.take(keep).objects(), plain.take(keep).objects())
    same(arrow.codes()[0], plain.codes()[0])
    same(arrow.codes()[1].objects(), plain.codes()[1].objects())


@given(VALUES, VALUES)
def test_positions_are_the_first_places_in_both(values: list[str | None], among: list[str | None]) -> None:
    (arrow, plain), (arrow_among, plain_among) = both(values), both(among)
    expected = [-1 if value is None or value not in among else among.index(value) for value in values]
    assert arrow.positions(arrow_among).tolist() == expected
    assert plain.positions(plain_among).tolist() == expected


@given(st.lists(NUMBERS, max_size=8))
def test_numbers_are_exactly_pythons(values: list[str]) -> None:
    expected = [float(value) for value in values]
    for column in both(list(values)):
        assert column.matches(NUMBER).all()
        assert column.floats().tolist() == expected


@given(st.lists(st.lists(NUMBERS.map(str.strip), min_size=1, max_size=4), max_size=5))
def test_items_of_lists_are_what_stands_between_commas(lists: list[list[str]]) -> None:
    for column in both([f" [{', '.join(items)}] " for items in lists]):
        items, lengths = column.items()
        assert lengths.tolist() == [len(part) for part in lists]
        assert items.floats().tolist() == [float(item) for part in lists for item in part]


def test_numbers_of_any_script_or_spelling_are_no_numbers() -> None:
    for column in both(["1_000", "0x1F", "١٢", "inf", "nan", "1,5", "1 2", "", "--1", "1e", ".", "1\x00"]):
        assert not column.matches(NUMBER).any()


def test_without_pyarrow_text_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(text.as_text(["a", None]), ArrowText)
    assert text.as_text(np.array([7, -1])).objects().tolist() == ["7", "-1"]
    monkeypatch.setattr(text, "pa", None)
    column = text.as_text(np.array([7, -1]))
    assert isinstance(column, PlainText)
    assert text.join_text([column, text.as_text(["b"])]).objects().tolist() == ["7", "-1", "b"]
