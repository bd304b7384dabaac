"""Features: how the columns of a table become the inputs of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.schema import InputColumn
from sirgcn.data.tables.columns import ColumnType, Frame, sort_names
from sirgcn.data.tables.scaling import Scaling, fit_scaling
from sirgcn.data.tables.text import Bools, Floats, Objects
from sirgcn.data.validate import check_choice
from sirgcn.strict import check_fields

Unknown = Literal["raise", "other"]
"""What happens to a value that is not in the training rows: an error, or the input for other and missing values."""

MAX_CATEGORIES = 100
"""The largest number of categories of a column; rarer ones are read as other."""


@dataclass(frozen=True)
class Column:
    r"""How one column of a table becomes features.

    - Numbers, times and each place of a list become :math:`(z - m) / s`, and 0 if they are missing. In general z is the
      number x itself, and m and s are mean and deviation of the training rows.
    - Numbers that are only 0 and 1 in the training rows, and truth values, stay as they are. Numbers of which nine in
      ten are 0 are divided by the largest absolute value.
    - Numbers have a heavy tail if the farthest one is more than thirty times as far from the median as half of them
      are. Then :math:`z = \operatorname{asinh}((x - c) / q)` with median c and median distance q from it.
    - A category becomes a one-hot row, whose last entry is for other and missing values. If all columns of the table
      are categories, it becomes a number instead.

    Args:
        name: the name of the column in the table.
        type: what the column holds: numeric, boolean, categorical, list or time.
        mean: m, one per number; empty for categories.
        scale: s, one per number.
        categories: the categories of the training rows, in order.
        gaps: whether training had missing values. Columns other than categories then get one more feature, which is 1
            if the value is missing.
        rare: whether training had more categories than the limit. Then any other category is read as other.
        centre: c, one per number; empty if none has a heavy tail.
        spread: q, one per number, 0 for those without a heavy tail; empty if none has one.

    >>> Column("size", "numeric", mean=(3.0,), scale=(2.0,)).width
    1
    >>> Column("city", "categorical", categories=("Oslo", "Rome")).width
    3
    """

    name: str
    type: ColumnType
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()
    gaps: bool = False
    rare: bool = False
    centre: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scaling(self) -> Scaling:
        """How the numbers of the column are scaled."""
        return Scaling(*(np.array(part) for part in (self.mean, self.scale, self.centre, self.spread)))

    @property
    def width(self) -> int:
        """The number of features of the column."""
        return len(self.categories) + 1 if self.type == "categorical" else len(self.mean) + int(self.gaps)

    def features(self, frame: Frame, unknown: Unknown) -> tuple[NDArray[np.float32], int]:
        """Return the features, float32 `[rows, width]`, and the number of values that are not in the training rows."""
        if self.type == "categorical":
            codes, unseen = self.codes(frame, unknown)
            return np.eye(self.width, dtype=np.float32)[codes], unseen
        values, absent = _values_of(frame, self.name, self.type)
        unseen = 0 if self.gaps else self._check_absent(frame, absent, unknown)
        found = self._scaled(frame, values, absent)
        return np.column_stack([found, absent.astype(np.float32)]) if self.gaps else found, unseen

    def _scaled(self, frame: Frame, values: Floats, absent: Bools) -> NDArray[np.float32]:
        if values.shape[1] != len(self.mean):
            expected = f"expected lists of {len(self.mean)} numbers, got {values.shape[1]}"
            raise frame.error(expected, self.name, 0, values.shape[1])
        with np.errstate(over="ignore"):
            found = self.scaling.of(values).astype(np.float32)
        found[absent] = 0
        if not np.isfinite(found).all():
            place, column = np.argwhere(~np.isfinite(found))[0].tolist()
            value = float(values[place, column])
            expected = f"expected a number near {self.mean[column]:.3g} ± {self.scale[column]:.3g}, got {value}"
            raise frame.error(expected, self.name, place, value)
        return found

    def codes(self, frame: Frame, unknown: Unknown) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of the categories, int64 `[rows]`, and how many are not in the training rows.

        The last number is for other and missing values.
        """
        names = ("false", "true") if self.type == "boolean" else self.categories
        values = frame.categories(self.name) if self.type == "categorical" else _truth(frame, self.name)
        codes = pd.Index(names, dtype=object).get_indexer(pd.Index(values)).astype(np.int64)
        absent = pd.isna(values)
        other = (codes < 0) & ~absent
        codes[codes < 0] = len(names)
        if unknown == "raise" and other.any() and not self.rare:
            row = int(other.argmax())
            known = ", ".join(map(repr, names)) or "none"
            expected = f"expected a category that training has seen ({known}), got {values[row]!r}"
            raise frame.error(f"{expected}; unknown='other' accepts it", self.name, row, values[row])
        unseen = 0 if self.rare else int(other.sum())
        return codes, unseen + (0 if self.gaps else self._check_absent(frame, absent, unknown))

    def _check_absent(self, frame: Frame, absent: Bools, unknown: Unknown) -> int:
        if unknown == "raise" and absent.any():
            expected = "expected a value as in all training rows, got none; unknown='other' accepts it"
            raise frame.error(expected, self.name, int(absent.argmax()))
        return int(absent.sum())


def fit_column(
    frame: Frame,
    name: str,
    column_type: ColumnType,
    training: Bools,
    standardise: bool = True,
    limit: int = MAX_CATEGORIES,
) -> Column:
    """Return a column fitted on its training rows. Of its categories, the `limit` most frequent are kept."""
    if column_type == "categorical":
        texts = frame.categories(name)[training]
        here = texts[~pd.isna(texts)]
        gone = len(texts) > len(here)
        names, counts = np.unique(here, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:limit]
        return Column(name, column_type, categories=tuple(sort_names(names[most])), gaps=gone, rare=len(names) > limit)
    values, absent = _values_of(frame, name, column_type)
    rows = values[training & ~absent]
    gaps = bool(absent[training].any())
    if column_type == "boolean" or not standardise or len(rows) == 0:
        return Column(name, column_type, (0.0,) * values.shape[1], (1.0,) * values.shape[1], gaps=gaps)
    fitted = fit_scaling(rows)
    mean, scale, centre, spread = (tuple(part.tolist()) for part in vars(fitted).values())
    return Column(name, column_type, mean, scale, gaps=gaps, centre=centre, spread=spread)


def _values_of(frame: Frame, name: str, column_type: ColumnType) -> tuple[Floats, Bools]:
    """Return the numbers of a column `[rows, n]`, and where they are missing."""
    values = frame.vectors(name) if column_type == "list" else frame.numbers(name, column_type)[:, None]
    return values, np.asarray(np.isnan(values).any(axis=1))


def _truth(frame: Frame, name: str) -> Objects:
    numbers = frame.numbers(name, "boolean")
    places = np.where(np.isnan(numbers), 2, numbers).astype(np.int64)
    found: Objects = np.array(["false", "true", None], dtype=object)[places]
    return found


def as_categories(columns: Sequence[Column]) -> bool:
    """Return whether a table becomes categories: all columns are categories or truth values, not all truth values."""
    types = {column.type for column in columns}
    return "categorical" in types and types <= {"categorical", "boolean"}


def vocabularies(columns: Sequence[Column]) -> tuple[int, ...]:
    """Return the number of categories of each column, including the one for other and missing values.

    The result is empty if the table becomes numbers.
    """
    if not as_categories(columns):
        return ()
    return tuple(3 if column.type == "boolean" else column.width for column in columns)


def width_of(columns: Sequence[Column]) -> int:
    """Return the number of features of a table; 0 if it becomes categories."""
    return 0 if as_categories(columns) else sum(column.width for column in columns)


def encode(
    columns: Sequence[Column], frame: Frame, unknown: Unknown, one_hot: bool = False
) -> tuple[Tensor, dict[str, int]]:
    """Return the features of a table, and for each column the number of values that are not in the training rows.

    With `one_hot`, a table of categories becomes numbers, too.
    """
    check_choice("unknown", unknown, get_args(Unknown))
    for column in columns:
        if column.name not in frame.columns:
            known = ", ".join(map(repr, frame.columns))
            raise frame.error(f"expected this column, got {known}", column.name)
    if not columns:
        return torch.ones(len(frame), 1), {}
    are_codes = as_categories(columns) and not one_hot
    parts = [column.codes(frame, unknown) if are_codes else column.features(frame, unknown) for column in columns]
    unseen = {column.name: count for column, (_, count) in zip(columns, parts, strict=True) if count}
    return torch.from_numpy(np.column_stack([part for part, _ in parts])), unseen


def input_columns(columns: Sequence[Column], one_hot: bool = False) -> tuple[InputColumn, ...]:
    """Return where the columns of a table stand among the inputs of a task."""
    one_hot = one_hot or not as_categories(columns)
    found, first = [], 0
    for column in columns:
        width = column.width if one_hot else 1
        found.append(InputColumn(column.name, _way(column), first, width, _values(column, one_hot), column.categories))
        first += width
    return tuple(found)


def _values(column: Column, one_hot: bool) -> tuple[str, ...]:
    if column.type == "list":
        return tuple(f"{column.name!r}[{place}]" for place in range(len(column.mean)))
    return () if one_hot and column.type == "categorical" else (repr(column.name),)


def _scale_words(column: Column) -> str:
    mean, scale = column.mean[0], column.scale[0]
    if column.spread and column.spread[0] > 0:
        return f", heavy tail, asinh((x - {column.centre[0]:.4g}) / {column.spread[0]:.4g})"
    if mean == 0:
        return ", as it is" if scale == 1 else f", divided by {scale:.4g}"
    return f", mean {mean:.4g}, deviation {scale:.4g}"


def _way(column: Column) -> str:
    if column.type == "categorical":
        most = "most frequent " if column.rare else ""
        return f"categorical, {len(column.categories)} {most}categories and other or missing"
    words = {"time": "time in days", "list": f"list of {len(column.mean)}"}.get(column.type, column.type)
    if column.type in ("numeric", "time"):
        words += _scale_words(column)
    return words + (", with a mark where missing" if column.gaps else "")
