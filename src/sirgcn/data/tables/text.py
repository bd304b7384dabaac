"""Columns of text: by pyarrow where it is installed, else by plain Python, with the same answers."""

import re
from collections.abc import Sequence
from operator import methodcaller
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:  # the extra `data` has it
        return None
    return pyarrow


pa = _pyarrow()

WHITE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u200b\u200e\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
)
"""White space, by which no value differs from another.

All that Python strips, non-breaking spaces among it, and what nobody sees: spaces of no width and marks of direction.
By name, because pyarrow and Python differ in what they strip.
"""

_SPACES = f"[{WHITE}]*"

NAMES = ((r"(-?[1-9][0-9]*|0)\.0+", r"\1"), ("True|TRUE|true", "true"), ("False|FALSE|false", "false"))
"""How a category is named that can be written in several ways."""

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Objects = NDArray[np.object_]


class Text(Protocol):
    """Strings, some of which may be missing (null)."""

    def __len__(self) -> int: ...

    def take(self, keep: Bools | Ints) -> "Text":
        """The rows of a mask, or at these places."""
        ...

    def null(self) -> Bools:
        """Where there is none."""
        ...

    def isin(self, words: Sequence[str]) -> Bools:
        """Where it is one of these, white space around it apart."""
        ...

    def matches(self, pattern: str) -> Bools:
        """Where the whole of it, white space around it apart, has this form."""
        ...

    def names(self) -> Objects:
        """As names of categories: whole numbers without `.0`, truth in lower case, no white space around any."""
        ...

    def stripped(self) -> "Text":
        """Without the white space around it."""
        ...

    def spaced(self) -> Bools:
        """Where there is white space around it, or nothing else."""
        ...

    def floats(self) -> Floats:
        """As numbers; every one must have the form of a number."""
        ...

    def items(self) -> tuple["Text", Ints]:
        """What stands between the commas of lists in brackets, and how many there are in each."""
        ...

    def positions(self, among: "Text") -> Ints:
        """Where each stands among others, its first place; -1 where it does not."""
        ...

    def codes(self) -> tuple[Ints, "Text"]:
        """Each as the number of its value, and the values in the order in which they come."""
        ...

    def objects(self) -> Objects:
        """As Python's strings, None where there is none."""
        ...


def as_text(values: Any) -> Text:
    """A column from a sequence of strings and None, an array of whole numbers, or pyarrow's."""
    numbers = isinstance(values, np.ndarray) and values.dtype.kind in "iu"
    if pa is None:
        return PlainText(np.array([*(map(str, values.tolist()) if numbers else values), None], dtype=object)[:-1])
    if isinstance(values, pa.Array):
        return ArrowText(values)
    return ArrowText(pa.array(values).cast(pa.large_string()) if numbers else pa.array(values, pa.large_string()))


def join_text(parts: Sequence[Text]) -> Text:
    """Several columns, one below the other."""
    if pa is not None:
        return ArrowText(pa.concat_arrays([part.values for part in parts]))  # type: ignore[attr-defined]
    return PlainText(np.concatenate([part.objects() for part in parts]))


class ArrowText:
    """Text in pyarrow's memory: no Python object per value."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def take(self, keep: Bools | Ints) -> "ArrowText":
        rows = pa.array(keep)
        return ArrowText(self.values.filter(rows) if keep.dtype == np.bool_ else self.values.take(rows))

    def null(self) -> Bools:
        return _array(self.values.is_null())

    def isin(self, words: Sequence[str]) -> Bools:
        words_set = pa.array(words, pa.large_string())
        return _array(pa.compute.is_in(self.stripped().values, value_set=words_set, skip_nulls=True))

    def matches(self, pattern: str) -> Bools:
        found = pa.compute.match_substring_regex(self.values, rf"\A{_SPACES}(?:{pattern}){_SPACES}\z")
        return _array(pa.compute.fill_null(found, False))

    def names(self) -> Objects:
        found = self.stripped().values
        for pattern, name in NAMES:
            found = pa.compute.replace_substring_regex(found, rf"\A(?:{pattern})\z", name)
        return _array(found)

    def stripped(self) -> "ArrowText":
        return ArrowText(pa.compute.utf8_trim(self.values, WHITE))

    def spaced(self) -> Bools:
        return _array(pa.compute.fill_null(pa.compute.not_equal(self.values, self.stripped().values), False))

    def floats(self) -> Floats:
        return _array(pa.compute.cast(self.stripped().values, pa.float64()))

    def items(self) -> tuple["ArrowText", Ints]:
        inside = pa.compute.ascii_trim(self.stripped().values, "[]")
        parts = pa.compute.split_pattern(inside, ",")
        return ArrowText(parts.flatten()), _array(pa.compute.list_value_length(parts)).astype(np.int64)

    def positions(self, among: Text) -> Ints:
        found = pa.compute.index_in(self.values, value_set=among.values, skip_nulls=True)  # type: ignore[attr-defined]
        return _array(pa.compute.fill_null(found, -1)).astype(np.int64)

    def codes(self) -> tuple[Ints, "ArrowText"]:
        found = self.values.dictionary_encode()
        return _array(pa.compute.fill_null(found.indices, -1)).astype(np.int64), ArrowText(found.dictionary)

    def objects(self) -> Objects:
        return _array(self.values)


class PlainText:
    """Text as an array of Python's strings."""

    def __init__(self, values: Objects) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def take(self, keep: Bools | Ints) -> "PlainText":
        return PlainText(self.values[keep])

    def null(self) -> Bools:
        return np.asarray(pd.isna(self.values))

    def isin(self, words: Sequence[str]) -> Bools:
        found = map(set(words).__contains__, map(_strip, self._filled()))
        return np.fromiter(found, np.bool_, len(self))

    def matches(self, pattern: str) -> Bools:
        fits = re.compile(rf"{_SPACES}(?:{pattern}){_SPACES}").fullmatch
        return np.fromiter(map(bool, map(fits, self._filled())), np.bool_, len(self))

    def names(self) -> Objects:
        found = self.stripped().values
        for pattern, name in NAMES:
            places = np.flatnonzero(self.matches(pattern))
            found[places] = [re.sub(pattern, name, value) for value in found[places]]
        return found

    def stripped(self) -> "PlainText":
        found = self.values.copy()
        here = ~self.null()
        found[here] = list(map(_strip, found[here]))
        return PlainText(found)

    def spaced(self) -> Bools:
        found: Bools = (self.values != self.stripped().values) & ~self.null()
        return found

    def floats(self) -> Floats:
        return np.fromiter(map(float, map(_strip, self.values)), np.float64, len(self))

    def _filled(self) -> Objects:
        """With a word that nothing looks for in the place of none."""
        null = self.null()
        return np.where(null, "\x01", self.values) if null.any() else self.values

    def items(self) -> tuple["PlainText", Ints]:
        parts = [_strip(value).strip("[]").split(",") for value in self.values]
        flat = np.array([item for part in parts for item in part], dtype=object)
        return PlainText(flat), np.fromiter(map(len, parts), np.int64, len(parts))

    def positions(self, among: Text) -> Ints:
        codes, values = among.codes()
        # A value's number is not its place: its first place is.
        first = np.full(len(values), -1, np.int64)
        places = np.flatnonzero(codes >= 0)[::-1]
        first[codes[places]] = places
        found = pd.Index(values.objects(), dtype=object).get_indexer(pd.Index(self.values, dtype=object))
        return np.where(found < 0, -1, first[found] if len(first) else -1).astype(np.int64)

    def codes(self) -> tuple[Ints, "PlainText"]:
        codes, values = pd.factorize(self.values)
        return codes.astype(np.int64), PlainText(np.asarray(values, dtype=object))

    def objects(self) -> Objects:
        return self.values


_strip = methodcaller("strip", WHITE)


def _array(values: Any) -> Any:
    return values.to_numpy(zero_copy_only=False)
