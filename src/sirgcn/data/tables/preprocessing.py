"""Preprocessing: fitted on the training rows of a user's tables, kept as JSON, applied to new tables."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args

from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import KINDS, MISSING, Dropped, Frame, Kind
from sirgcn.data.tables.features import MAX_CATEGORIES, Column, Unknown, encode, fit_column
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.read import read_frame
from sirgcn.data.tables.roles import Roles
from sirgcn.data.tables.splits import training_rows
from sirgcn.data.tables.text import WHITE, Bools
from sirgcn.data.validate import DataError
from sirgcn.strict import check_fields, checked

VERSION = 1

LEVELS: tuple[Level, ...] = get_args(Level)


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


@dataclass(frozen=True)
class Fitting:
    """Preprocessing fitted on the training rows; and what there is to say of the columns.

    That is, by column: how many values are missing, how many have white space around them, what is odd about it, and
    why it was left out.
    """

    items: Items
    labels: Labels
    roles: Roles
    directed: bool
    missing_texts: tuple[str, ...]
    split_column: str | None
    standardise: bool
    missing: dict[str, int] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def fit(self, split: Split, features: Sequence[str] | None, edge_features: Sequence[str] | None) -> Preprocessing:
        items, labels = self.items, self.labels
        structure, graphs = items.structure, items.graphs
        node_rows, edge_rows = training_rows(items, labels, split)
        # What has a part of its own in a task is no feature.
        used = {"node": {self.roles.id, self.roles.graph}, "edge": set(), "graph": set(vars(self.roles).values())}
        for name in labels.names:
            # The target of a graph may stand in the table of nodes.
            in_nodes = labels.level == "graph" and (graphs is None or name not in graphs.columns)
            table = used["node" if in_nodes else labels.level]
            if name in table or name == self.split_column:
                raise DataError(f"expected a column that is not used already, got {name!r}", "target", value=name)
            table.add(name)
        nodes = self._columns("features", structure.nodes, features, node_rows, used["node"])
        edges = self._columns("edge_features", structure.edges, edge_features, edge_rows, used["edge"])
        for name in () if graphs is None else graphs.columns:
            if name not in used["graph"] and name != self.split_column:
                self.left_out[f"graph {name}"] = "features are of nodes and edges"
        return Preprocessing(
            labels.level,
            self.roles,
            nodes,
            edges,
            self.directed,
            self.missing_texts,
            labels.names,
            labels.classes,
        )

    def _columns(
        self, argument: str, frame: Frame | None, names: Sequence[str] | None, rows: Bools, used: set[str | None]
    ) -> tuple[Column, ...]:
        if frame is None:
            if names:
                raise DataError(f"expected none without a table of nodes, got {list(names)}", argument)
            return ()
        used = used | {self.split_column}
        columns: list[Column] = []
        for name in [name for name in frame.columns if name not in used] if names is None else names:
            if frame.find(argument, name) in used or name in (column.name for column in columns):
                raise DataError(f"expected a column that is not used already, got {name!r}", argument, value=name)
            label = name if argument == "features" else f"edge {name}"
            kind = frame.kind(name)
            reason = "it is empty" if kind is None else self._too_many(frame, name, kind) if names is None else None
            if kind is None or reason is not None:
                self.left_out[label] = str(reason)
                continue
            self._note(frame, name, kind, label)
            columns.append(fit_column(frame, name, kind, rows, self.standardise))
        return tuple(columns)

    def _note(self, frame: Frame, name: str, kind: Kind, label: str) -> None:
        if gaps := int(frame.absent(name).sum()):
            self.missing[label] = gaps
        if kind == "categorical" and (trimmed := frame.trimmed(name)):
            self.trimmed[label] = trimmed
        if (doubts := frame.doubts(name)) is not None:
            self.doubts[label] = doubts

    def _too_many(self, frame: Frame, name: str, kind: Kind) -> str | None:
        """Why a column of texts that nobody asked for is left out."""
        if kind != "categorical" or name in frame.kinds:
            return None
        count = len(set(frame.categories(name)) - {None})
        if count <= MAX_CATEGORIES:
            return None
        return f"{count:,} different texts; named as a feature, the {MAX_CATEGORIES} most frequent are used"
