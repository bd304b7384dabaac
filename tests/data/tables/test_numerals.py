"""Numbers are found however they are written, and said as they should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.tables import text
from sirgcn.data.tables.numerals import NUMBER, find_numerals, plainly
from sirgcn.data.tables.text import WHITE, ArrowText, PlainText, as_text

SEPARATORS = {"comma": (",", "."), "point": (".", ","), "space": (" ", ","), "hard space": ("\u00a0", ".")}
SEPARATORS |= {"apostrophe": ("'", "."), "none": ("", ",")}
AROUND = ("{}", "${}", "{} €", "EUR {}", "{}%", "{} kg", " {}\u00a0", "US$ {}", "{}£")

# Nine digits in three groups may be a telephone number.
AMOUNTS = st.integers(-(10**8) + 1, 10**8 - 1).map(lambda cents: cents / 100)


def written(amount: float, thousands: str, point: str) -> str:
    return f"{amount:,.2f}".translate({ord(","): thousands, ord("."): point})


@given(AMOUNTS, st.sampled_from(sorted(SEPARATORS)), st.sampled_from(AROUND))
def test_an_amount_is_found_in_any_form_and_said_plainly(amount: float, name: str, around: str) -> None:
    value = around.format(written(amount, *SEPARATORS[name]))
    if as_text([value]).matches(NUMBER).all():
        return
    assert find_numerals(as_text([value])).all()
    found = plainly(value)
    assert found is not None
    assert as_text([found]).matches(NUMBER).all()
    assert float(found) == amount


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1,234", "1234 or 1.234"),
        ("-1,234", "-1234 or -1.234"),
        ("(1,234.5)", "-1234.5"),
        ("1,23,456", "123456"),
        (",5", ".5"),
        ("5,5e3", "5.5e3"),
        ("1 234,567", "1234.567"),
        ("−5", "-5"),
        ("5 m2", "5"),
        ("$5M", None),
        ("A1", None),
        ("12:30", None),
        ("five", None),
        ("", None),
    ],
)
def test_a_number_is_said_plainly(value: str, expected: str | None) -> None:
    assert plainly(value) == expected


LETTERS = st.text("0123456789.,'-+ ()%$€kgExA:/\u00a0\u2212\u200b", max_size=8)


@given(st.lists(LETTERS, min_size=1, max_size=6))
def test_both_texts_find_the_same_numerals(values: list[str]) -> None:
    pa = pytest.importorskip("pyarrow")
    plain = find_numerals(PlainText(np.array([*values, None], dtype=object)[:-1]))
    assert find_numerals(ArrowText(pa.array(values, pa.large_string()))).tolist() == plain.tolist()
    for value, odd in zip(values, plain.tolist(), strict=True):
        assert not odd or plainly(value) is not None or any(letter in value for letter in "kMB")


@given(st.lists(LETTERS, min_size=1, max_size=6))
def test_what_is_a_number_is_no_other_numeral(values: list[str]) -> None:
    numbers = as_text(values).matches(NUMBER)
    assert not find_numerals(as_text(values))[numbers].any()


def test_white_space_is_all_that_python_strips_and_all_that_nobody_sees() -> None:
    spaces = {letter for letter in map(chr, range(0x110000)) if letter.isspace()}
    assert set(WHITE) == spaces | set("\u200b\u200e\u200f\u2060\ufeff")
    for letter in WHITE:
        for pa in (text.pa, None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(text, "pa", pa)
                column = as_text([f"{letter}x{letter}", letter, "x", None])
                assert column.names().tolist() == ["x", "", "x", None]
                assert column.spaced().tolist() == [True, True, False, False]
                assert column.isin(["x", ""]).tolist() == [True, True, True, False]
                assert as_text([f"{letter}1.5{letter}"]).floats().tolist() == [1.5]
