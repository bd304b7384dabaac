"""From a table's columns to features: fitted on the training rows, kept as JSON, applied to new files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.schema import InputColumn
from sirgcn.data.tables.columns import Frame, Kind, sort_names
from sirgcn.data.tables.text import Bools, Floats, Objects
from sirgcn.data.validate import DataError
from sirgcn.strict import check_fields

Unknown = Literal["raise", "other"]
"""What becomes of a value that training has not seen: a refusal, or the slot of other and missing values."""

MAX_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    r"""One column's way into features.

    Numbers, times and each place of a list become :math:`(x - m) / s` with mean m and deviation s of the training
    rows, 0 where missing; truth stays 0 and 1. A category becomes a one-hot row whose last slot is for other and
    missing values, or its number where all columns of the table are categories.

    Args:
        name: in the table.
        kind: what it holds.
        mean: m, one per number; none for categories.
        scale: s.
        categories: those of the training rows, in their order.
        gaps: whether training had missing values. Other columns than categories then get one more feature, 1 where the
            value is missing.
        rare: whether training had categories beyond the limit: then any that is not among these is read as other.
    """

    name: str
    kind: Kind
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    categories: tuple[str, ...] = ()
    gaps: bool = False
    rare: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.categories) + 1 if self.kind == "categorical" else len(self.mean) + int(self.gaps)

    def features(self, frame: Frame, unknown: Unknown) -> tuple[NDArray[np.float32], int]:
        """The features float32 `[rows, width]`, and how many values training has not seen."""
        if self.kind == "categorical":
            codes, unseen = self.codes(frame, unknown)
            return np.eye(self.width, dtype=np.float32)[codes], unseen
        values, absent = self.values(frame)
        unseen = 0 if self.gaps else self._check_absent(frame, absent, unknown)
        if values.shape[1] != len(self.mean):
            expected = f"expected lists of {len(self.mean)} numbers, got {values.shape[1]}"
            raise frame.error(expected, self.name, 0, values.shape[1])
        with np.errstate(over="ignore"):
            found = ((values - np.array(self.mean)) / np.array(self.scale)).astype(np.float32)
        found[absent] = 0
        if not np.isfinite(found).all():
            place, column = np.argwhere(~np.isfinite(found))[0].tolist()
            value = float(values[place, column])
            expected = f"expected a number near {self.mean[column]:.3g} ± {self.scale[column]:.3g}, got {value}"
            raise frame.error(expected, self.name, place, value)
        return np.column_stack([found, absent.astype(np.float32)]) if self.gaps else found, unseen

    def codes(self, frame: Frame, unknown: Unknown) -> tuple[NDArray[np.int64], int]:
        """The categories' numbers int64 `[rows]`, the last for other and missing values, and how many are not seen."""
        names = ("false", "true") if self.kind == "boolean" else self.categories
        values = frame.categories(self.name) if self.kind == "categorical" else _truth(frame, self.name)
        codes = pd.Index(names, dtype=object).get_indexer(pd.Index(values)).astype(np.int64)
        absent = pd.isna(values)
        other = (codes < 0) & ~absent
        codes[codes < 0] = len(names)
        if unknown == "raise" and other.any() and not self.rare:
            row = int(other.argmax())
            known = ", ".join(map(repr, names)) or "none"
            raise frame.error(
                f"expected a category that training has seen ({known}), got {values[row]!r}; unknown='other' admits it",
                self.name,
                row,
                values[row],
            )
        unseen = 0 if self.rare else int(other.sum())
        return codes, unseen + (0 if self.gaps else self._check_absent(frame, absent, unknown))

    def values(self, frame: Frame) -> tuple[Floats, Bools]:
        """The numbers `[rows, n]`, and where they are missing."""
        values = frame.vectors(self.name) if self.kind == "list" else frame.numbers(self.name, self.kind)[:, None]
        return values, np.asarray(np.isnan(values).any(axis=1))

    def _check_absent(self, frame: Frame, absent: Bools, unknown: Unknown) -> int:
        if unknown == "raise" and absent.any():
            expected = "expected a value as in all training rows, got none; unknown='other' admits it"
            raise frame.error(expected, self.name, int(absent.argmax()))
        return int(absent.sum())


def fit_column(
    frame: Frame, name: str, kind: Kind, training: Bools, standardise: bool = True, limit: int = MAX_CATEGORIES
) -> Column:
    """A column fitted on its training rows; of its categories the most frequent ones."""
    if kind == "categorical":
        texts = frame.categories(name)[training]
        here = texts[~pd.isna(texts)]
        gone = len(texts) > len(here)
        names, counts = np.unique(here, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:limit]
        return Column(name, kind, categories=tuple(sort_names(names[most])), gaps=gone, rare=len(names) > limit)
    empty = Column(name, kind)
    values, absent = empty.values(frame)
    rows = values[training & ~absent]
    gaps = bool(absent[training].any())
    if kind == "boolean" or not standardise or len(rows) == 0:
        return Column(name, kind, (0.0,) * values.shape[1], (1.0,) * values.shape[1], gaps=gaps)
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    # A constant has no deviation, though the rounding of its mean may give one.
    constant = (rows == rows[0]).all(axis=0)
    mean, scale = np.where(constant, rows[0], mean), np.where(constant | (scale == 0), 1.0, scale)
    return Column(name, kind, tuple(mean.tolist()), tuple(scale.tolist()), gaps=gaps)


def _truth(frame: Frame, name: str) -> Objects:
    numbers = frame.numbers(name, "boolean")
    places = np.where(np.isnan(numbers), 2, numbers).astype(np.int64)
    found: Objects = np.array(["false", "true", None], dtype=object)[places]
    return found


def as_categories(columns: Sequence[Column]) -> bool:
    """Whether a table becomes categories: all of its columns are categories or truth, not all of them truth."""
    kinds = {column.kind for column in columns}
    return "categorical" in kinds and kinds <= {"categorical", "boolean"}


def vocabularies(columns: Sequence[Column]) -> tuple[int, ...]:
    """The number of categories of each column, that of other and missing values among them."""
    return tuple(3 if column.kind == "boolean" else column.width for column in columns)


def encode(columns: Sequence[Column], frame: Frame, unknown: Unknown) -> tuple[Tensor, dict[str, int]]:
    """The features of a table, and by column how many values training has not seen."""
    if unknown not in ("raise", "other"):
        raise DataError(f"expected raise or other, got {unknown!r}", "unknown")
    for column in columns:
        if column.name not in frame.columns:
            known = ", ".join(map(repr, frame.columns))
            raise frame.error(f"expected this column, got {known}", column.name)
    if not columns:
        return torch.ones(len(frame), 1), {}
    parts = [
        column.codes(frame, unknown) if as_categories(columns) else column.features(frame, unknown)
        for column in columns
    ]
    unseen = {column.name: count for column, (_, count) in zip(columns, parts, strict=True) if count}
    return torch.from_numpy(np.column_stack([part for part, _ in parts])), unseen


def input_columns(columns: Sequence[Column]) -> tuple[InputColumn, ...]:
    """Where the columns of a table stand among the inputs of a task."""
    one_hot = not as_categories(columns)
    found, first = [], 0
    for column in columns:
        width = column.width if one_hot else 1
        found.append(InputColumn(column.name, _way(column), first, width, _values(column, one_hot), column.categories))
        first += width
    return tuple(found)


def _values(column: Column, one_hot: bool) -> tuple[str, ...]:
    if column.kind == "list":
        return tuple(f"{column.name!r}[{place}]" for place in range(len(column.mean)))
    return () if one_hot and column.kind == "categorical" else (repr(column.name),)


def _way(column: Column) -> str:
    if column.kind == "categorical":
        most = "most frequent " if column.rare else ""
        return f"categorical, {len(column.categories)} {most}categories and other or missing"
    words = {"time": "time in days", "list": f"list of {len(column.mean)}"}.get(column.kind, column.kind)
    if column.kind in ("numeric", "time"):
        words += f", mean {column.mean[0]:.4g}, deviation {column.scale[0]:.4g}"
    return words + (", with a mark where missing" if column.gaps else "")
