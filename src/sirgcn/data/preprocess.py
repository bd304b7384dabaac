"""From a table's columns to features: fitted on the training rows, kept as JSON, applied to new files."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.formats import read_frame
from sirgcn.data.frames import KINDS, MISSING, Dropped, Frame, Kind
from sirgcn.data.graphs import Level
from sirgcn.data.roles import Roles
from sirgcn.data.text import WHITE, Bools, Floats, Objects
from sirgcn.data.validate import DataError
from sirgcn.strict import check_fields, checked

VERSION = 1

Unknown = Literal["raise", "other"]
"""What becomes of a value that training has not seen: a refusal, or the slot of other and missing values."""

MAX_CATEGORIES = 100

LEVELS: tuple[Level, ...] = get_args(Level)


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


def sort_names(names: Iterable[str]) -> list[str]:
    """Names in order: by value where all are numbers."""
    found = list(names)
    try:
        return sorted(found, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(found)


def _truth(frame: Frame, name: str) -> Objects:
    numbers = frame.numbers(name, "boolean")
    places = np.where(np.isnan(numbers), 2, numbers).astype(np.int64)
    found: Objects = np.array(["false", "true", None], dtype=object)[places]
    return found


@dataclass(frozen=True)
class Preprocessing:
    """How a user's tables become graphs: fitted on the training split, kept with the model, applied to new files.

    Args:
        level: what the targets belong to.
        roles: which columns hold ids, ends and graphs.
        nodes: the columns that become node features; none: every node gets the feature 1 (or is an atom).
        edges: the columns that become edge features.
        directed: whether edges go one way.
        missing: texts that stand for a missing value, as blanks do always.
        targets: the columns that hold the targets.
        classes: the names of the classes, in order; none where targets are numbers.
    """

    level: Level
    roles: Roles
    nodes: tuple[Column, ...] = ()
    edges: tuple[Column, ...] = ()
    directed: bool = False
    missing: tuple[str, ...] = MISSING
    targets: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)

    @checked
    def apply(self, frame: Any, of: Literal["nodes", "edges"] = "nodes", unknown: Unknown = "raise") -> Tensor:
        """The features of a table of nodes or edges: float32 `[rows, width]`, or categories int64 `[rows, columns]`.

        Args:
            frame: a path, a pandas frame or anything else that `load_tables` reads as a table.
            of: which table it is.
            unknown: what becomes of categories that training has not seen, and of gaps where it had none: refused
                with their name ("raise"), or read as other and missing values ("other").
        """
        return encode(self.columns(of), read_frame(frame, of, self.missing, Dropped()), unknown)[0]

    def columns(self, of: Literal["nodes", "edges"]) -> tuple[Column, ...]:
        """The columns of a table."""
        if of not in ("nodes", "edges"):
            raise DataError(f"expected nodes or edges, got {of!r}", "of")
        return self.nodes if of == "nodes" else self.edges

    def to_json(self) -> str:
        """As JSON; `from_json` gives back exactly this."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, document: str) -> "Preprocessing":
        """From `to_json`; anything else is refused."""
        try:
            found = json.loads(document, parse_constant=float)
        except (ValueError, RecursionError) as error:
            raise DataError(f"expected JSON, got: {error}", "preprocessing") from None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise DataError(f"expected a preprocessing of version {VERSION}", "version")
        names = [field.name for field in fields(cls)]
        _Reader(found, "preprocessing").keys(["version", *names])
        read = _Reader(found, "")
        return cls(
            level=read.one_of("level", LEVELS),
            roles=_read_roles(read.object("roles")),
            nodes=tuple(_read_column(column) for column in read.objects("nodes")),
            edges=tuple(_read_column(column) for column in read.objects("edges")),
            directed=read.truth("directed"),
            missing=read.strings("missing"),
            targets=read.strings("targets"),
            classes=read.strings("classes"),
        )


class _Reader:
    """The fields of a JSON object, each of the type that is asked for."""

    def __init__(self, found: Any, where: str) -> None:
        self.found, self.where = found, where

    def keys(self, names: Sequence[str]) -> None:
        if not isinstance(self.found, dict) or set(self.found) != set(names):
            got = ", ".join(self.found) if isinstance(self.found, dict) else type(self.found).__name__
            raise DataError(f"expected the keys {', '.join(names)}, got {got}", self.where.rstrip("."))

    def fail(self, name: str, expected: str) -> NoReturn:
        value = self.found[name]
        raise DataError(f"expected {expected}, got {value!r}", f"{self.where}{name}", value=value)

    def one_of(self, name: str, known: Sequence[Any]) -> Any:
        if self.found[name] not in known:
            self.fail(name, f"one of {', '.join(known)}")
        return self.found[name]

    def truth(self, name: str) -> bool:
        return self.found[name] if isinstance(self.found[name], bool) else self.fail(name, "true or false")

    def string(self, name: str, optional: bool = False) -> Any:
        value = self.found[name]
        return value if isinstance(value, str) or (optional and value is None) else self.fail(name, "a string")

    def strings(self, name: str) -> tuple[str, ...]:
        value = self.found[name]
        fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return tuple(value) if fits else self.fail(name, "a list of strings")

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self.found[name]
        fits = isinstance(value, list) and all(type(item) in (int, float) for item in value)
        if not fits or not all(abs(item) <= sys.float_info.max for item in value):
            self.fail(name, "a list of finite numbers")
        return tuple(map(float, value))

    def object(self, name: str) -> "_Reader":
        return _Reader(self.found[name], f"{self.where}{name}.")

    def objects(self, name: str) -> "list[_Reader]":
        value = self.found[name]
        if not isinstance(value, list):
            self.fail(name, "a list")
        return [_Reader(item, f"{self.where}{name}[{place}].") for place, item in enumerate(value)]


def _read_roles(read: _Reader) -> Roles:
    names = [field.name for field in fields(Roles)]
    read.keys(names)
    return Roles(**{name: read.string(name, optional=True) for name in names})


def _read_column(read: _Reader) -> Column:
    read.keys([field.name for field in fields(Column)])
    column = Column(
        read.string("name"),
        read.one_of("kind", KINDS),
        read.numbers("mean"),
        read.numbers("scale"),
        read.strings("categories"),
        read.truth("gaps"),
        read.truth("rare"),
    )
    size = {"list": len(column.scale), "categorical": 0}.get(column.kind, 1)
    if not len(column.mean) == len(column.scale) == size:
        read.fail("mean", f"{size} numbers, and as many as scale")
    if min(column.scale, default=1.0) <= 0:
        read.fail("scale", "numbers above 0")
    if len(set(column.categories)) < len(column.categories) or (column.categories and column.kind != "categorical"):
        read.fail("categories", "every category once, of a categorical column")
    if any(not name or name != name.strip(WHITE) for name in column.categories):
        read.fail("categories", "categories without white space around them, as they are read")
    return column


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
