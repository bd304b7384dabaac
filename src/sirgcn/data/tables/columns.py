"""A table with named columns of numbers, categories, lists or ids. Errors name the file, column, row and value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import pandas as pd

from sirgcn.data.tables.numerals import NUMBER, Numerals, plainly
from sirgcn.data.tables.text import ArrowText, Bools, Floats, Ints, Objects, PlainText, Text, as_text, join_text
from sirgcn.data.tables.typed import check_lengths, days, of_series, texts
from sirgcn.data.validate import DataError
from sirgcn.spreadsheet import csv_text
from sirgcn.strict import nearest

ColumnType = Literal["numeric", "boolean", "categorical", "list", "time"]
"""What a column holds."""

COLUMN_TYPES: tuple[ColumnType, ...] = get_args(ColumnType)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
"""Texts that stand for a missing value in a text file. This does not apply to ids, which cannot be missing."""

BLANK = ("",)
"""What is missing in every source: an empty text, or white space alone."""

DATE = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
TRUE = "[Tt]rue|TRUE"
TRUTH = f"{TRUE}|[Ff]alse|FALSE"
LIST = r"\[[^\[\]]*\]"

EXPECTED: dict[ColumnType, str] = {
    "numeric": "a number",
    "boolean": "true or false",
    "categorical": "text, a number or a truth value",
    "list": "numbers in brackets, separated by commas",
    "time": "a date such as 2024-01-31, with or without a time of day",
}

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table.

    Args:
        source: the name of the file or object.
        columns: columns by name: `Text` from a text file, columns of pandas, or numbers `[rows, width]`.
        rows: the number of each row in the source, counted from 1.
        missing: texts that stand for a missing value in a text file. Blanks do in every source.
        types: the types of columns, if the source or the caller gives them.
        index: the ids of the rows, if they are not in a column.
        notes: what a reader did that the caller should know of, in words.
    """

    source: str
    columns: Mapping[str, Any]
    rows: Ints
    missing: tuple[str, ...] = ()
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    index: "pd.Index[Any] | None" = None
    notes: tuple[str, ...] = ()
    _cache: dict[tuple[str, str], Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_pandas(cls, source: str, frame: pd.DataFrame) -> "Frame":
        """Return the table of a pandas frame; its index has the ids if no column has them."""
        names = [str(name) for name in frame.columns]
        check_names(source, names)
        columns = {name: frame.iloc[:, place] for place, name in enumerate(names)}
        return cls(source, columns, np.arange(1, len(frame) + 1), index=frame.index)

    def __len__(self) -> int:
        return len(self.rows)

    def error(self, message: str, column: str, place: int | None = None, value: Any = None) -> DataError:
        """Return the error for a value of a column."""
        return DataError(message, column, self.source, None if place is None else int(self.rows[place]), value)

    def find(self, argument: str, name: str) -> str:
        """Return a column name of the caller, or raise if there is no such column."""
        if name not in self.columns:
            known = listed(map(repr, self.columns)) or "none"
            hint = nearest(name, self.columns)
            raise DataError(f"expected a column of {self.source} ({known}), got {name!r}{hint}", argument, value=name)
        return name

    def take(self, keep: Bools | Ints) -> "Frame":
        """Return the rows of a mask, or at these places."""
        columns = {name: _rows_of(column, keep) for name, column in self.columns.items()}
        index = None if self.index is None else self.index[keep]
        return replace(self, columns=columns, rows=self.rows[keep], index=index)

    def with_types(self, types: Mapping[str, ColumnType]) -> "Frame":
        """Return the table with the types of some columns given; other columns are ignored."""
        own = {name: column_type for name, column_type in types.items() if name in self.columns}
        return replace(self, types={**self.types, **own})

    def only(self, names: Iterable[str]) -> "Frame":
        """Return the table with only these columns."""
        return replace(self, columns={name: self.columns[name] for name in names})

    def ids(self, column: str | None) -> tuple[Text, Objects]:
        """Return a column of ids (None: the index) as text, and as they were given.

        Text is unchanged. A whole number is written without a decimal point, whatever its type.
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

    def type_of(self, column: str) -> ColumnType | None:
        """Return the type of a column: as given, or as its pandas type or all texts suggest; None if it is empty."""
        if column in self.types:
            return self.types[column]
        column_type: ColumnType | None = self._once(column, "column_type", lambda: self._find_type(column))
        return column_type

    def _find_type(self, column: str) -> ColumnType | None:
        column_type, values = self._held(column)
        absent = self.absent(column)
        if absent.all():
            return None
        if not _is_text(values):
            return column_type
        column_type = column_type or _form(values.take(~absent))
        if column_type == "categorical":
            self._check_numerals(column)
        return column_type

    def doubts(self, column: str) -> str | None:
        """Return a doubt in words if half of a column of categories looks like numbers and its type was not given."""
        if column in self.types or self.type_of(column) != "categorical":
            return None
        numerals = self._numerals(column)
        text = numerals.doubtful()
        if text is None:
            return None
        place = int(np.flatnonzero(~self.absent(column))[text])
        shown = f"{self.value(column, place)!r} in row {self.rows[place]}"
        return (
            f"{numerals.count:,} of {len(numerals):,} texts look like numbers, such as {shown}, and are read as "
            f"categories; types={{{column!r}: 'categorical'}} confirms it"
        )

    def _check_numerals(self, column: str) -> None:
        values = self.columns[column]
        is_typed = isinstance(values, pd.Series)
        if is_typed and isinstance(values.dtype, pd.CategoricalDtype):
            # Its pandas type says that the column holds categories.
            return
        numerals = self._numerals(column)
        text = numerals.mistake(is_typed)
        if text is not None:
            place = int(np.flatnonzero(~self.absent(column))[text])
            value = self.value(column, place)
            said = f"if these are categories, say types={{{column!r}: 'categorical'}}"
            raise self.error(f"{numerals.complaint(value)}; {said}", column, place, value)

    def _numerals(self, column: str) -> Numerals:
        found: Numerals = self._once(
            column, "numerals", lambda: Numerals.of(self._held(column)[1].take(~self.absent(column)))
        )
        return found

    def absent(self, column: str) -> Bools:
        """Return where a column has no value."""
        return self._once(column, "absent", lambda: self._find_absent(column))

    def _find_absent(self, column: str) -> Any:
        _, values = self._held(column)
        if _is_text(values):
            return values.null() | values.isin((*BLANK, *self.missing))
        return np.isnan(values) if values.ndim == 1 else np.isnan(values).all(axis=1)

    def numbers(self, column: str, column_type: ColumnType = "numeric") -> Floats:
        """Return a column as numbers, NaN if missing; truth values are 0 and 1, times are days since 1970 (UTC)."""
        return self._once(column, column_type, lambda: self._find_numbers(column, column_type))

    def _find_numbers(self, column: str, column_type: ColumnType) -> Floats:
        held, values = self._held(column)
        if _is_text(values):
            return self._checked(column, self._parse_numbers(column, values, column_type))
        if values.ndim == 2 or (column_type == "time") != (held == "time"):
            raise self._unexpected(column, column_type, 0)
        wrong = (values != 0) & (values != 1) & ~np.isnan(values)
        if column_type == "boolean" and wrong.any():
            raise self._unexpected(column, column_type, int(wrong.argmax()))
        return self._checked(column, values)

    def _parse_numbers(self, column: str, values: Text, column_type: ColumnType) -> Floats:
        """Return the numbers that texts stand for, NaN if missing."""
        absent = self.absent(column)
        places, here = np.flatnonzero(~absent), values.take(~absent)
        form = {"boolean": f"{TRUTH}|[01]", "time": DATE}.get(column_type, NUMBER)
        self._require(column, column_type, places, here.matches(form))
        found = np.full(len(values), np.nan)
        if column_type == "time":
            times = days(pd.Series(here.objects()))
            self._require(column, column_type, places, ~np.isnan(times))
            found[places] = times
        else:
            found[places] = here.matches(f"{TRUE}|1") if column_type == "boolean" else here.floats()
        return found

    def categories(self, column: str) -> Objects:
        """Return a column as texts, None if missing.

        These are the same category: 1 and 1.0, True and true, and a text with and without white space around it.
        """
        raw = self.columns[column]
        if not _is_text(raw):
            held = None if column in self.types else self._held(column)[0]
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
        """Return how many categories have white space around them, which is removed."""
        values = self._held(column)[1]
        return int((values.spaced() & ~self.absent(column)).sum()) if _is_text(values) else 0

    def vectors(self, column: str) -> Floats:
        """Return a column of lists of one length as numbers `[rows, length]`, with a row of NaN for a missing list."""
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

    def _held(self, column: str) -> tuple[ColumnType | None, Any]:
        """Return the type that the pandas type suggests (None for the text of a file), and the text or numbers."""
        values = self.columns[column]
        if not isinstance(values, pd.Series):
            return None if _is_text(values) else "list", values
        if self.types.get(column) == "categorical" and values.dtype.kind in "OmMc":
            # This also covers columns whose values have no common type.
            return "categorical", self._once(column, "texts", lambda: as_text(texts(values)))
        return self._once(column, "held", lambda: of_series(values, partial(self._refusal, column)))

    def _once(self, column: str, what: str, find: Callable[[], Any]) -> Any:
        """Return a result that is computed once and then cached."""
        if (column, what) not in self._cache:
            self._cache[column, what] = find()
        return self._cache[column, what]

    def _refusal(self, column: str, message: str, place: int | None, value: Any) -> DataError:
        return self.error(message, column, place, value)

    def _checked(self, column: str, values: Floats, absent: Bools | None = None) -> Floats:
        """Return the numbers, or raise for one outside the range of float32 or one that is missing inside a list."""
        bad = ~np.isnan(values) & ~(np.abs(values) <= LARGEST)
        if absent is not None:
            bad |= np.isnan(values) & ~absent[:, None]
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            value = float(values[place])
            raise self.error(f"expected a number within ±{LARGEST:.3g}, got {value}", column, int(place[0]), value)
        return values

    def _require(self, column: str, column_type: ColumnType, places: Ints, fits: Bools) -> None:
        if not fits.all():
            raise self._unexpected(column, column_type, int(places[~fits][0]))

    def _unexpected(self, column: str, column_type: ColumnType, place: int) -> DataError:
        value = self.value(column, place)
        plain = plainly(value) if column_type == "numeric" and isinstance(value, str) else None
        advice = "" if plain is None else f": write {plain}"
        return self.error(f"expected {EXPECTED[column_type]}, got {value!r}{advice}", column, place, value)

    def value(self, column: str, place: int) -> Any:
        """Return the value at a place of a column."""
        values = self.columns[column]
        if isinstance(values, pd.Series):
            return _plain(values.iloc[place])
        return values.take(np.array([place])).objects()[0] if _is_text(values) else values[place].tolist()


MOST_DROPPED = 1_000_000
"""The largest number of rows that may be left out. If more rows are wrong, this is probably the wrong file."""


LENIENT = "on_error='skip' with dropped=FILE leaves such rows out"
"""The advice for a row that cannot be used."""


@dataclass
class Dropped:
    """Rows that cannot be used. They are refused or, if `lenient` is set, left out and listed here with the reason."""

    lenient: bool = False
    rows: list[tuple[str, int, str, str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, on_error: str, path: Any) -> "Dropped":
        """Return an empty list for what the caller wants of bad rows; only "skip" has a file for them."""
        if (on_error == "skip") != (path is not None):
            expected = "expected a file for the rows that are skipped, with on_error='skip' and only then"
            raise DataError(expected, "dropped")
        return cls(on_error == "skip")

    def refuse(self, error: DataError) -> None:
        """Raise the error, or note its row."""
        if not self.lenient:
            raise replace(error, message=f"{error.message}; {LENIENT}")
        if len(self.rows) >= MOST_DROPPED:
            raise replace(error, message=f"expected at most {MOST_DROPPED:,} rows to leave out; {error.message}")
        self.rows.append((error.source or "", error.row, error.field, str(error.value), error.message))

    def note(
        self, frame: Frame, bad: Bools, column: str, reason: str, hints: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        """Raise for the first bad row, or note all of them; `hints` adds advice for some places."""
        for place in np.flatnonzero(bad)[: None if self.lenient else 1].tolist():
            value = frame.value(column, place)
            self.refuse(frame.error(f"{reason}, got {value!r}{hints.get(place, '')}", column, place, value))

    def write(self, path: Path) -> None:
        """Write the rows as CSV: table, row, column, value, reason. Values that look like formulas are escaped."""
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                file.write(csv_text([("table", "row", "column", "value", "reason"), *self.rows]))
        except OSError as error:
            raise DataError(f"expected a file that can be written, got: {error}", "dropped", str(path)) from error


def check_names(source: str, names: Sequence[str]) -> None:
    """Raise for a column without a name, or with the name of another column."""
    seen = set()
    for place, name in enumerate(names, start=1):
        if not name:
            said = "; if it holds ids, call it id" if place == 1 else ""
            raise DataError(f"expected a name for column {place}, got none{said}", "header", source, value=name)
        if name in seen:
            raise DataError(f"expected every name once, got {name!r} twice", "header", source, value=name)
        seen.add(name)


def joined(frames: Sequence[Frame]) -> Frame:
    """Return several pieces of one table, one below the other."""
    first = frames[0]
    if len(frames) == 1:
        return first
    columns = {name: _join_columns([frame.columns[name] for frame in frames]) for name in first.columns}
    index = None if first.index is None else first.index.append([frame.index for frame in frames[1:]])  # type: ignore[misc]
    return replace(first, columns=columns, rows=np.concatenate([frame.rows for frame in frames]), index=index)


def _join_columns(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], pd.Series):
        return pd.concat(parts, ignore_index=True)
    return join_text(parts) if _is_text(parts[0]) else np.concatenate(parts)


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names in a row; those beyond a number are counted.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    found = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def sort_names(names: Iterable[str]) -> list[str]:
    """Return the names in order: by value if all are numbers, otherwise as text."""
    found = list(names)
    try:
        return sorted(found, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(found)


def _rows_of(column: Any, keep: Bools | Ints) -> Any:
    if isinstance(column, pd.Series):
        return column.iloc[keep]
    return column.take(keep) if _is_text(column) else column[keep]


def _form(here: Text) -> ColumnType:
    """Return the type that fits all texts of a column."""
    forms: dict[ColumnType, str] = {"numeric": NUMBER, "boolean": TRUTH, "list": r"\[(?s:.*)", "time": DATE}
    return next((column_type for column_type, form in forms.items() if here.matches(form).all()), "categorical")


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python number, whose repr has no type in it."""
    return value.item() if isinstance(value, np.generic) else value


def _is_text(values: Any) -> TypeGuard[Text]:
    return isinstance(values, ArrowText | PlainText)
