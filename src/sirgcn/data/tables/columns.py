"""A table as named columns of numbers, categories, lists or ids; a refusal names the file, column, row and value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import pandas as pd

from sirgcn.data.tables.numerals import NUMBER, Numerals, plainly
from sirgcn.data.tables.text import ArrowText, Bools, Floats, Ints, Objects, PlainText, Text, as_text
from sirgcn.data.tables.typed import check_lengths, days, of_series, texts
from sirgcn.data.validate import DataError
from sirgcn.spreadsheet import csv_text

Kind = Literal["numeric", "boolean", "categorical", "list", "time"]
"""What a column holds."""

KINDS: tuple[Kind, ...] = get_args(Kind)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Texts that stand for a missing value in a text file. An id is read as it stands and cannot be missing."""

BLANK = ("",)
"""What is missing in every source, whatever stands for it besides: no text, or white space alone."""

DATE = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
TRUE = "[Tt]rue|TRUE"
TRUTH = f"{TRUE}|[Ff]alse|FALSE"
LIST = r"\[[^\[\]]*\]"

EXPECTED: dict[Kind, str] = {
    "numeric": "a number",
    "boolean": "true or false",
    "categorical": "text, a number or a truth value",
    "list": "numbers in brackets, parted by commas",
    "time": "a date such as 2024-01-31, with or without a time of day",
}

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table.

    Args:
        source: the name of the file or object.
        columns: `Text` (as it stands in a text file), pandas' columns, or numbers `[rows, width]`.
        rows: each row's number in the source, counted from 1.
        missing: texts that stand for a missing value, in a text file; blanks do in all.
        kinds: what columns hold, where that has been said.
        index: ids of the rows that are no column.
    """

    source: str
    columns: Mapping[str, Any]
    rows: Ints
    missing: tuple[str, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    index: "pd.Index[Any] | None" = None
    _cache: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_pandas(cls, source: str, frame: pd.DataFrame) -> "Frame":
        """From a pandas frame; its index holds the ids where no column does."""
        names = [str(name) for name in frame.columns]
        check_names(source, names)
        columns = {name: frame.iloc[:, place] for place, name in enumerate(names)}
        return cls(source, columns, np.arange(1, len(frame) + 1), index=frame.index)

    def __len__(self) -> int:
        return len(self.rows)

    def error(self, message: str, column: str, place: int | None = None, value: Any = None) -> DataError:
        """A refusal of the value at a place of a column."""
        return DataError(message, column, self.source, None if place is None else int(self.rows[place]), value)

    def find(self, argument: str, name: str) -> str:
        """A column that the caller named."""
        if name not in self.columns:
            known = ", ".join(map(repr, self.columns)) or "none"
            raise DataError(f"expected a column of {self.source} ({known}), got {name!r}", argument, value=name)
        return name

    def take(self, keep: Bools | Ints) -> "Frame":
        """The rows of a mask, or at these places."""
        columns = {
            name: column.iloc[keep]
            if isinstance(column, pd.Series)
            else column.take(keep)
            if _is_text(column)
            else column[keep]
            for name, column in self.columns.items()
        }
        index = None if self.index is None else self.index[keep]
        return replace(self, columns=columns, rows=self.rows[keep], index=index)

    def only(self, names: Iterable[str]) -> "Frame":
        """Some of the columns."""
        return replace(self, columns={name: self.columns[name] for name in names})

    def ids(self, column: str | None) -> tuple[Text, Objects]:
        """A column of ids (None: the index) as text, and as they are.

        Text stays as it stands; a whole number is written without a decimal point, whatever type holds it.
        """
        values = self.index if column is None else self.columns[column]
        label = "id" if column is None else column
        if isinstance(values, np.ndarray):
            raise self.error(f"expected ids, got lists of {values.shape[1]} numbers", label)
        if _is_text(values):
            text = values
        elif values is None:
            raise self.error("expected a column of ids, got none", label)
        else:
            text = as_text(texts(pd.Series(values.array)))
        absent = text.null() | text.isin(BLANK)
        if absent.any():
            raise self.error("expected an id, got none", label, int(absent.argmax()))
        return text, text.objects() if _is_text(values) else np.asarray(values)

    def kind(self, column: str) -> Kind | None:
        """What a column holds: what was said, what its type says, or what all its texts are; None if it is empty."""
        if column in self.kinds:
            return self.kinds[column]
        kind: Kind | None = self._once(column, "kind", lambda: self._find_kind(column))
        return kind

    def _find_kind(self, column: str) -> Kind | None:
        kind, values = self._held(column)
        absent = self.absent(column)
        if absent.all():
            return None
        if not _is_text(values):
            return kind
        kind = kind or _form(values.take(~absent))
        if kind == "categorical":
            self._check_numerals(column)
        return kind

    def doubts(self, column: str) -> str | None:
        """What is odd about a column of categories that nobody said to be one: that half of it looks like numbers."""
        if column in self.kinds or self.kind(column) != "categorical":
            return None
        numerals = self._numerals(column)
        text = numerals.doubtful()
        if text is None:
            return None
        place = int(np.flatnonzero(~self.absent(column))[text])
        shown = f"{self.value(column, place)!r} in row {self.rows[place]}"
        return (
            f"{numerals.count:,} of {len(numerals):,} texts look like numbers, such as {shown}, and are read as "
            f"categories; kinds={{{column!r}: 'categorical'}} says that they are"
        )

    def _check_numerals(self, column: str) -> None:
        values = self.columns[column]
        is_typed = isinstance(values, pd.Series)
        if is_typed and isinstance(values.dtype, pd.CategoricalDtype):
            # Its type says that they are categories.
            return
        numerals = self._numerals(column)
        text = numerals.mistake(is_typed)
        if text is not None:
            place = int(np.flatnonzero(~self.absent(column))[text])
            value = self.value(column, place)
            said = f"if these are categories, say kinds={{{column!r}: 'categorical'}}"
            raise self.error(f"{numerals.complaint(value)}; {said}", column, place, value)

    def _numerals(self, column: str) -> Numerals:
        found: Numerals = self._once(
            column, "numerals", lambda: Numerals.of(self._held(column)[1].take(~self.absent(column)))
        )
        return found

    def absent(self, column: str) -> Bools:
        """Where a column has no value."""
        return self._once(column, "absent", lambda: self._find_absent(column))

    def _find_absent(self, column: str) -> Any:
        _, values = self._held(column)
        if _is_text(values):
            return values.null() | values.isin((*BLANK, *self.missing))
        return np.isnan(values) if values.ndim == 1 else np.isnan(values).all(axis=1)

    def numbers(self, column: str, kind: Kind = "numeric") -> Floats:
        """A column as numbers, NaN where there is none; truth as 0 and 1, times in days since 1970 (UTC)."""
        return self._once(column, kind, lambda: self._find_numbers(column, kind))

    def _find_numbers(self, column: str, kind: Kind) -> Floats:
        held, values = self._held(column)
        if not _is_text(values):
            if values.ndim == 2 or (kind == "time") != (held == "time"):
                raise self._unexpected(column, kind, 0)
            wrong = (values != 0) & (values != 1) & ~np.isnan(values)
            if kind == "boolean" and wrong.any():
                raise self._unexpected(column, kind, int(wrong.argmax()))
            return self._checked(column, values)
        absent = self.absent(column)
        places, here = np.flatnonzero(~absent), values.take(~absent)
        self._require(column, kind, places, here.matches({"boolean": f"{TRUTH}|[01]", "time": DATE}.get(kind, NUMBER)))
        found = np.full(len(values), np.nan)
        if kind == "time":
            times = days(pd.Series(here.objects()))
            self._require(column, kind, places, ~np.isnan(times))
            found[places] = times
        else:
            found[places] = here.matches(f"{TRUE}|1") if kind == "boolean" else here.floats()
        return self._checked(column, found)

    def categories(self, column: str) -> Objects:
        """A column as texts, None where there is none.

        1 and 1.0 are one category, and so are True and true, and x with and without white space around it.
        """
        raw = self.columns[column]
        if not _is_text(raw):
            held = None if column in self.kinds else self._held(column)[0]
            if held in ("list", "time") or isinstance(raw, np.ndarray):
                raise self._unexpected(column, "categorical", 0)
            if held == "numeric":
                self.numbers(column)
            text = as_text(texts(raw))
            found, absent = text.names(), text.isin(BLANK)
        else:
            found, absent = raw.names(), self.absent(column)
        found[absent] = None
        return found

    def trimmed(self, column: str) -> int:
        """How many categories have white space around them, which is not read."""
        values = self._held(column)[1]
        return int((values.spaced() & ~self.absent(column)).sum()) if _is_text(values) else 0

    def vectors(self, column: str) -> Floats:
        """A column of lists of one length as numbers `[rows, length]`, a row of NaN where there is none."""
        _, values = self._held(column)
        absent = self.absent(column)
        if not _is_text(values):
            if values.ndim == 1:
                raise self._unexpected(column, "list", 0)
            return self._checked(column, values, absent)
        places, here = np.flatnonzero(~absent), values.take(~absent)
        self._require(column, "list", places, here.matches(LIST))
        items, lengths = here.items()
        whole = np.ones(len(here), dtype=np.bool_)
        whole[np.repeat(np.arange(len(here)), lengths)[~items.matches(NUMBER)]] = False
        self._require(column, "list", places, whole)
        check_lengths(lengths, places, partial(self._refusal, column))
        found = np.full((len(values), int(lengths[0]) if len(lengths) else 0), np.nan)
        found[places] = items.floats().reshape(len(here), -1)
        return self._checked(column, found, absent)

    def _held(self, column: str) -> tuple[Kind | None, Any]:
        """The kind that a column's type says (None for the text of a file), and its text or numbers."""
        values = self.columns[column]
        if not isinstance(values, pd.Series):
            return None if _is_text(values) else "list", values
        if self.kinds.get(column) == "categorical" and values.dtype.kind in "OmMc":
            # Also values that have no kind together.
            return "categorical", self._once(column, "texts", lambda: as_text(texts(values)))
        return self._once(column, "held", lambda: of_series(values, partial(self._refusal, column)))

    def _once(self, column: str, what: str, find: Callable[[], Any]) -> Any:
        """What is asked for again and again, found once."""
        if (column, what) not in self._cache:
            self._cache[column, what] = find()
        return self._cache[column, what]

    def _refusal(self, column: str, message: str, place: int | None, value: Any) -> DataError:
        return self.error(message, column, place, value)

    def _checked(self, column: str, values: Floats, absent: Bools | None = None) -> Floats:
        """Refuses what is beyond float32, and within lists what is missing."""
        bad = ~np.isnan(values) & ~(np.abs(values) <= LARGEST)
        if absent is not None:
            bad |= np.isnan(values) & ~absent[:, None]
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            value = float(values[place])
            raise self.error(f"expected a number within ±{LARGEST:.3g}, got {value}", column, int(place[0]), value)
        return values

    def _require(self, column: str, kind: Kind, places: Ints, fits: Bools) -> None:
        if not fits.all():
            raise self._unexpected(column, kind, int(places[~fits][0]))

    def _unexpected(self, column: str, kind: Kind, place: int) -> DataError:
        value = self.value(column, place)
        plain = plainly(value) if kind == "numeric" and isinstance(value, str) else None
        advice = "" if plain is None else f": write {plain}"
        return self.error(f"expected {EXPECTED[kind]}, got {value!r}{advice}", column, place, value)

    def value(self, column: str, place: int) -> Any:
        """What stands at a place of a column."""
        values = self.columns[column]
        if isinstance(values, pd.Series):
            return _plain(values.iloc[place])
        return values.take(np.array([place])).objects()[0] if _is_text(values) else values[place].tolist()


MOST_DROPPED = 1_000_000
"""Rows that may be left out of a task's tables: a file in which more are wrong is another file than was meant."""


@dataclass
class Dropped:
    """Rows that cannot be used: refused, or, if `lenient`, left out and kept here with the reason each."""

    lenient: bool = False
    rows: list[tuple[str, int, str, str, str]] = field(default_factory=list)

    def refuse(self, error: DataError) -> None:
        """Raise the refusal, or note its row."""
        if not self.lenient:
            raise error
        if len(self.rows) >= MOST_DROPPED:
            raise replace(error, message=f"expected at most {MOST_DROPPED:,} rows to leave out; {error.message}")
        self.rows.append((error.source or "", error.row, error.field, str(error.value), error.message))

    def note(
        self, frame: Frame, bad: Bools, column: str, reason: str, hints: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        """Refuse the first bad row, or note them all; `hints` by place say more."""
        for place in np.flatnonzero(bad)[: None if self.lenient else 1].tolist():
            value = frame.value(column, place)
            self.refuse(frame.error(f"{reason}, got {value!r}{hints.get(place, '')}", column, place, value))

    def write(self, path: Path) -> None:
        """The rows as CSV: table, row, column, value, reason; a value that is a formula to a spreadsheet is text."""
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                file.write(csv_text([("table", "row", "column", "value", "reason"), *self.rows]))
        except OSError as error:
            raise DataError(f"expected a file that can be written, got: {error}", "dropped", str(path)) from error


def check_names(source: str, names: Sequence[str]) -> None:
    """Refuse columns without a name, or with the name of another."""
    seen = set()
    for place, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"expected a name for column {place}, got none", "header", source, value=name)
        if name in seen:
            raise DataError(f"expected every name once, got {name!r} twice", "header", source, value=name)
        seen.add(name)


def sort_names(names: Iterable[str]) -> list[str]:
    """Names in order: by value where all are numbers."""
    found = list(names)
    try:
        return sorted(found, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(found)


def _form(here: Text) -> Kind:
    """What all texts of a column are."""
    forms: dict[Kind, str] = {"numeric": NUMBER, "boolean": TRUTH, "list": r"\[(?s:.*)", "time": DATE}
    return next((kind for kind, form in forms.items() if here.matches(form).all()), "categorical")


def _plain(value: Any) -> Any:
    """Of NumPy's numbers Python's, which are shown without their type."""
    return value.item() if isinstance(value, np.generic) else value


def _is_text(values: Any) -> TypeGuard[Text]:
    return isinstance(values, ArrowText | PlainText)
