"""Columns that have a type, as pandas holds them: numbers, texts, times and lists."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from sirgcn.data.tables.text import WHITE, Bools, Floats, Ints, Text, as_text
from sirgcn.data.validate import DataError

Refuse = Callable[[str, int | None, Any], DataError]
"""A refusal from a message, a place in the column, and the value that stands there."""

# Whole numbers below are exact in float64.
EXACT = 2**53


def of_series(series: "pd.Series[Any]", refuse: Refuse) -> tuple[str, Text | Floats]:
    """The kind of a column by its type, and its text, or its numbers `[rows]` or `[rows, length]`; NaN: missing."""
    dtype: Any = series.dtype
    if types.is_bool_dtype(dtype) or (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)):
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return "boolean" if types.is_bool_dtype(dtype) else "numeric", numbers
    if types.is_datetime64_any_dtype(dtype):
        return "time", days(series)
    if isinstance(dtype, pd.CategoricalDtype) or (types.is_string_dtype(dtype) and not types.is_object_dtype(dtype)):
        return "categorical", as_text(texts(series))
    if not types.is_object_dtype(dtype):
        raise refuse(f"expected numbers, truth values, text, dates or lists, got {dtype}", None, None)
    return _of_objects(series, refuse)


def _of_objects(series: "pd.Series[Any]", refuse: Refuse) -> tuple[str, Text | Floats]:
    blank = np.array([isinstance(value, str) and not value.strip(WHITE) for value in series], dtype=np.bool_)
    absent = series.isna().to_numpy() | blank
    here = series[~absent]
    found = types.infer_dtype(here, skipna=True)
    if found == "string":
        return "categorical", as_text(texts(series))
    places = np.flatnonzero(~absent)
    if found in ("datetime", "datetime64", "date"):
        times = days(series)
        for place in places[np.isnan(times[places])][:1].tolist():
            raise refuse("expected a time that pandas can hold", place, series.iloc[place])
        return "time", times
    if found in ("empty", "boolean", "integer", "floating", "mixed-integer-float", "decimal"):
        numbers = np.full(len(series), np.nan)
        try:
            numbers[places] = here.to_numpy(dtype=np.float64)
        except OverflowError:
            values: list[Any] = here.tolist()
            large = next(place for place, value in enumerate(values) if abs(value) > sys.float_info.max)
            raise refuse("expected a number of float64", int(places[large]), values[large]) from None
        return "boolean" if found == "boolean" else "numeric", numbers
    return "list", _of_lists(list(here), places, absent, refuse)


def _of_lists(values: list[Any], places: Ints, absent: Bools, refuse: Refuse) -> Floats:
    fits = [isinstance(value, list | tuple | np.ndarray) and _is_row(np.asarray(value)) for value in values]
    if not all(fits):
        kinds = [type(value).__name__ for value in values]
        other = next((place for place, kind in enumerate(kinds) if kind != kinds[0]), fits.index(False))
        got = f"{kinds[other]} {values[other]!r} where the first is {kinds[0]} {values[0]!r}"
        raise refuse(f"expected values of one type, or lists of numbers, got {got}", int(places[other]), values[other])
    lengths = np.array([len(value) for value in values])
    check_lengths(lengths, places, refuse)
    found = np.full((len(absent), int(lengths[0])), np.nan)
    found[places] = np.stack(values)
    return found


def _is_row(array: Any) -> bool:
    return array.ndim == 1 and (array.dtype.kind in "biuf" or array.size == 0)


def check_lengths(lengths: Ints, places: Ints, refuse: Refuse) -> None:
    """Refuse the first list that is not as long as the first of all."""
    other = np.flatnonzero(lengths != lengths[0]) if len(lengths) else lengths
    if len(other):
        length = int(lengths[other[0]])
        raise refuse(f"expected {lengths[0]} numbers as in the first list, got {length}", int(places[other[0]]), length)


def texts(series: "pd.Series[Any]") -> Any:
    """Each value as text, None where there is none; whole numbers without a decimal point, whatever type holds them."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu":
        return as_text(series.to_numpy()).objects()
    pairs = zip(series.tolist(), series.isna().tolist(), strict=True)
    return [None if absent else _text(value) for value, absent in pairs]


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < EXACT:
        return str(int(value))
    return str(value)


def days(times: "pd.Series[Any]") -> Floats:
    """Days since 1970 (UTC), NaN for what is no time."""
    found = pd.to_datetime(times, utc=True, errors="coerce", format="ISO8601")
    since: pd.Series[Any] = (found - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return since.to_numpy(dtype=np.float64, na_value=np.nan)
