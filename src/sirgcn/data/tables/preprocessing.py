"""Preprocessing: fitted on the training rows of a user's tables, stored as JSON, applied to new tables."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args

from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import COLUMN_TYPES, MISSING, ColumnType, Dropped, Frame
from sirgcn.data.tables.features import MAX_CATEGORIES, Column, Unknown, encode, fit_column
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.read import read_frame
from sirgcn.data.tables.roles import Roles
from sirgcn.data.tables.splits import training_rows
from sirgcn.data.tables.text import WHITE, Bools
from sirgcn.data.validate import DataError, check_choice
from sirgcn.strict import check_fields, checked

VERSION = 2
"""The version of the JSON document. Version 1 called the type of a column its kind."""

LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Preprocessing:
    """How a user's tables become graphs.

    It is fitted on the training rows, stored with the model, and applied to new files.

    Args:
        level: what the targets belong to.
        roles: which columns hold ids, ends and graphs.
        nodes: the columns that become node features. If there are none, every node has the feature 1 (or is an atom).
        edges: the columns that become edge features.
        directed: whether edges have one direction.
        missing: texts that stand for a missing value. Blanks always do.
        targets: the columns that hold the targets.
        classes: the names of the classes, in order; empty if targets are numbers.

    >>> from sirgcn.data.tables.roles import Roles
    >>> preprocessing = Preprocessing("node", Roles(id="id"), (Column("size", "numeric", (2.0,), (1.0,)),))
    >>> Preprocessing.from_json(preprocessing.to_json()) == preprocessing
    True
    >>> import pandas as pd
    >>> preprocessing.apply(pd.DataFrame({"size": [1, 4]})).tolist()
    [[-1.0], [2.0]]
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
        """Return the features of a table: float32 `[rows, width]`, or categories int64 `[rows, columns]`.

        Args:
            frame: a path, a pandas frame or anything else that `load_tables` reads as a table.
            of: whether it is a table of nodes or of edges.
            unknown: what happens to categories that are not in the training rows, and to missing values in a column
                where training had none. "raise" refuses them with their name; "other" reads them as other or missing
                values.
        """
        return encode(self.columns(of), read_frame(frame, of, self.missing, Dropped()), unknown)[0]

    def columns(self, of: Literal["nodes", "edges"]) -> tuple[Column, ...]:
        """Return the columns of a table."""
        check_choice("of", of, ("nodes", "edges"))
        return self.nodes if of == "nodes" else self.edges

    def to_json(self) -> str:
        """Return the preprocessing as JSON; `from_json` returns an equal one."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, document: str) -> "Preprocessing":
        """Return the preprocessing of a document from `to_json`; any other document is refused."""
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
    """Reads the fields of a JSON object, each with the type that is asked for."""

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
        check_choice(f"{self.where}{name}", self.found[name], known)
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
        read.one_of("type", COLUMN_TYPES),
        read.numbers("mean"),
        read.numbers("scale"),
        read.strings("categories"),
        read.truth("gaps"),
        read.truth("rare"),
    )
    _check_column(column, read)
    return column


def _check_column(column: Column, read: _Reader) -> None:
    """Raise for fields that do not fit together."""
    size = {"list": len(column.scale), "categorical": 0}.get(column.type, 1)
    if not len(column.mean) == len(column.scale) == size:
        read.fail("mean", f"{size} numbers, and as many as scale")
    if min(column.scale, default=1.0) <= 0:
        read.fail("scale", "numbers above 0")
    if len(set(column.categories)) < len(column.categories) or (column.categories and column.type != "categorical"):
        read.fail("categories", "every category once, of a categorical column")
    if any(not name or name != name.strip(WHITE) for name in column.categories):
        read.fail("categories", "categories without white space around them, as they are read")


@dataclass(frozen=True)
class Fitting:
    """Columns fitted on the training rows, and what a description says about them.

    Args:
        items: the tables.
        labels: the targets.
        split_column: the column of the split, if there is one.
        standardise: whether numbers are scaled to mean 0 and deviation 1.
        missing: the number of missing values, by column.
        trimmed: the number of values with white space around them, by column.
        doubts: what is odd about a column, in words.
        left_out: why a column was left out.
    """

    items: Items
    labels: Labels
    split_columns: frozenset[str]
    standardise: bool
    inductive: bool = False
    missing: dict[str, int] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def fit(
        self, split: Split, roles: Roles, features: Sequence[str] | None, edge_features: Sequence[str] | None
    ) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Return the fitted columns of nodes and of edges; None as names stands for all columns without a role."""
        structure, graphs = self.items.structure, self.items.graphs
        node_rows, edge_rows = training_rows(self.items, self.labels, split, self.inductive)
        used = self._used(roles)
        nodes = self._columns("features", structure.nodes, features, node_rows, used["node"])
        edges = self._columns("edge_features", structure.edges, edge_features, edge_rows, used["edge"])
        if graphs is not None:
            rest = [name for name in graphs.columns if name not in used["graph"]]
            self.left_out.update({f"graph {name}": "features are of nodes and edges" for name in rest})
        return nodes, edges

    def _used(self, roles: Roles) -> dict[str, set[str | None]]:
        """Return the columns of each table that have a role, hold a target or the split, and so are no features."""
        used = {"node": {roles.id, roles.graph}, "edge": set(), "graph": set(vars(roles).values())}
        graphs = self.items.graphs
        for name in self.labels.names:
            level = self.labels.level
            if level == "graph" and (graphs is None or name not in graphs.columns):
                # The target of a graph may stand in the table of nodes.
                level = "node"
            if name in used[level] or name in self.split_columns:
                raise DataError(f"expected a column that is not used already, got {name!r}", "target", value=name)
            used[level].add(name)
        return {level: names | self.split_columns for level, names in used.items()}

    def _columns(
        self, argument: str, frame: Frame | None, names: Sequence[str] | None, rows: Bools, used: set[str | None]
    ) -> tuple[Column, ...]:
        if frame is None:
            if names:
                raise DataError(f"expected none without a table of nodes, got {list(names)}", argument)
            return ()
        is_asked = names is not None
        if names is None:
            names = [name for name in frame.columns if name not in used]
        seen = set(used)
        columns = []
        for name in names:
            if frame.find(argument, name) in seen:
                raise DataError(f"expected a column that is not used already, got {name!r}", argument, value=name)
            seen.add(name)
            label = name if argument == "features" else f"edge {name}"
            column_type = self._usable_type(frame, name, label, is_asked)
            if column_type is not None:
                self._note(frame, name, column_type, label)
                columns.append(fit_column(frame, name, column_type, rows, self.standardise))
        return tuple(columns)

    def _usable_type(self, frame: Frame, name: str, label: str, is_asked: bool) -> ColumnType | None:
        """Return the type of a column; None if the column is left out, for a reason that is noted."""
        column_type = frame.type_of(name)
        if column_type is None:
            self.left_out[label] = "it is empty"
            return None
        if is_asked or column_type != "categorical" or name in frame.types:
            return column_type
        count = len(set(frame.categories(name)) - {None})
        if count <= MAX_CATEGORIES:
            return column_type
        most = f"named as a feature, the {MAX_CATEGORIES} most frequent are used"
        self.left_out[label] = f"{count:,} different texts; {most}"
        return None

    def _note(self, frame: Frame, name: str, column_type: ColumnType, label: str) -> None:
        if gaps := int(frame.absent(name).sum()):
            self.missing[label] = gaps
        if column_type == "categorical" and (trimmed := frame.trimmed(name)):
            self.trimmed[label] = trimmed
        if (doubts := frame.doubts(name)) is not None:
            self.doubts[label] = doubts
