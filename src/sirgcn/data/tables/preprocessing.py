"""Preprocessing: fitted on the training rows of a user's tables, stored as JSON, applied to new tables."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.molecules import MOLECULE_FEATURES, MoleculeFeatures
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import COLUMN_TYPES, MISSING, ColumnType, Dropped, Frame
from sirgcn.data.tables.features import MAX_CATEGORIES, Column, Unknown, encode, fit_column
from sirgcn.data.tables.labels import Items, Labels
from sirgcn.data.tables.read import read_frame
from sirgcn.data.tables.roles import ID_NAMES, Roles
from sirgcn.data.tables.splits import training_rows
from sirgcn.data.tables.text import WHITE, Bools
from sirgcn.data.validate import DataError, check_choice
from sirgcn.strict import check_fields, checked

VERSION = 3
"""The version of the JSON document. Version 2, without columns of graphs and heavy tails, is read, too."""

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
        graphs: the columns that become features of whole graphs.
        molecules: the features that RDKit computes for each molecule; each is a column of `graphs`, too.

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
    graphs: tuple[Column, ...] = ()
    molecules: tuple[MoleculeFeatures, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)

    @checked
    def apply(
        self, frame: Any, of: Literal["nodes", "edges", "graphs"] = "nodes", unknown: Unknown = "raise"
    ) -> Tensor:
        """Return the features of a table: float32 `[rows, width]`, or categories int64 `[rows, columns]`.

        Args:
            frame: a path, a pandas frame or anything else that `load_tables` reads as a table.
            of: whether it is a table of nodes, of edges or of graphs.
            unknown: what happens to categories that are not in the training rows, and to missing values in a column
                where training had none. "raise" refuses them with their name; "other" reads them as other or missing
                values.
        """
        found = read_frame(frame, of, self.missing, Dropped())
        return encode(self.columns(of), found, unknown, one_hot=of == "graphs")[0]

    def columns(self, of: Literal["nodes", "edges", "graphs"]) -> tuple[Column, ...]:
        """Return the columns of a table."""
        check_choice("of", of, ("nodes", "edges", "graphs"))
        found: tuple[Column, ...] = getattr(self, of)
        return found

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
        found = _upgraded(found)
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
            graphs=tuple(_read_column(column) for column in read.objects("graphs")),
            molecules=tuple(_read_molecule_features(name) for name in read.strings("molecules")),
        )


def _upgraded(found: Any) -> dict[str, Any]:
    """Return a document as one of the present version."""
    version = found.get("version") if isinstance(found, dict) else None
    if version == VERSION:
        return dict(found)
    if version == 2:
        upgraded = {**found, "version": VERSION, "graphs": [], "molecules": []}
        for table in ("nodes", "edges"):
            columns = found.get(table) if isinstance(found.get(table), list) else []
            new = [{**one, "centre": [], "spread": []} if isinstance(one, dict) else one for one in columns or ()]
            upgraded[table] = new
        return upgraded
    raise DataError(f"expected a preprocessing of version 2 or {VERSION}", "version", value=version)


def _read_molecule_features(name: Any) -> Any:
    check_choice("molecules", name, MOLECULE_FEATURES)
    return name


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
        read.numbers("centre"),
        read.numbers("spread"),
    )
    _check_column(column, read)
    return column


def _check_column(column: Column, read: _Reader) -> None:
    """Raise for fields that do not fit together."""
    size = {"list": len(column.scale), "categorical": 0}.get(column.type, 1)
    if not len(column.mean) == len(column.scale) == size:
        read.fail("mean", f"{size} numbers, and as many as scale")
    _check_tails(column, read, size)
    if min(column.scale, default=1.0) <= 0:
        read.fail("scale", "numbers above 0")
    if len(set(column.categories)) < len(column.categories) or (column.categories and column.type != "categorical"):
        read.fail("categories", "every category once, of a categorical column")
    if any(not name or name != name.strip(WHITE) for name in column.categories):
        read.fail("categories", "categories without white space around them, as they are read")


_TABLES = {"features": ("nodes", ""), "edge_features": ("edges", "edge "), "graph_features": ("graphs", "graph ")}
"""For each argument that names columns: the table, and what its columns are called by in a description."""

# A column of fewer whole numbers in a row may be a measurement.
FEWEST_COUNTED = 20


def _counts_rows(frame: Frame, name: str) -> bool:
    """Return whether a column holds the whole numbers from 0 or 1 upwards in the order of the rows, without a gap."""
    if len(frame) < FEWEST_COUNTED or frame.type_of(name) != "numeric":
        return False
    steps = np.diff(frame.numbers(name))
    return bool((steps == 1).all()) and frame.numbers(name)[0] in (0, 1)


def _check_tails(column: Column, read: _Reader, size: int) -> None:
    if len(column.centre) != len(column.spread) or len(column.spread) not in (0, size):
        read.fail("spread", f"no numbers, or {size}, and as many as centre")
    if min(column.spread, default=0.0) < 0:
        read.fail("spread", "numbers from 0")


@dataclass(frozen=True)
class Fitting:
    """Columns fitted on the training rows, and what a description says about them.

    Args:
        items: the tables.
        labels: the targets.
        split_columns: the columns of the split, which are no features.
        standardise: whether numbers are scaled to mean 0 and deviation 1.
        inductive: whether training sees no held-out node.
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
        self, split: Split, roles: Roles, asked: Mapping[str, Sequence[str] | None], molecules: Sequence[str] = ()
    ) -> dict[Level, tuple[Column, ...]]:
        """Return the fitted columns of each level's table.

        `asked` has the names of columns by the argument that names them; None stands for all columns without a role.
        Features of molecules are used in any case.
        """
        structure = self.items.structure
        node_rows, edge_rows = training_rows(self.items, self.labels, split, self.inductive)
        used = self._used(roles)
        return {
            "node": self._columns("features", structure.nodes, asked["features"], node_rows, used["node"]),
            "edge": self._columns("edge_features", structure.edges, asked["edge_features"], edge_rows, used["edge"]),
            "graph": self._of_graphs(split, asked["graph_features"], used["graph"], molecules),
        }

    def _of_graphs(
        self, split: Split, names: Sequence[str] | None, used: set[str | None], molecules: Sequence[str]
    ) -> tuple[Column, ...]:
        frame = self.items.graphs
        if self.labels.level != "graph":
            self._refuse_graph_features(frame, names, used, molecules)
            return ()
        if frame is None:
            return self._columns("graph_features", None, names, np.empty(0, np.bool_), used)
        rows = np.zeros(len(frame), dtype=np.bool_)
        rows[split.train.numpy()] = True
        if names is not None:
            names = [*names, *(name for name in molecules if name not in names)]
            return self._columns("graph_features", frame, names, rows, used)
        counts = {name for name in frame.columns if name not in used and _counts_rows(frame, name)}
        self.left_out.update({f"graph {name}": "it counts the rows, and so is an id" for name in counts})
        return self._columns("graph_features", frame, None, rows, used | counts)

    def _refuse_graph_features(
        self, frame: Frame | None, names: Sequence[str] | None, used: set[str | None], molecules: Sequence[str]
    ) -> None:
        """Raise if features of graphs are asked for, and note that columns of graphs are left out."""
        if names or molecules:
            argument = "graph_features" if names else "molecule_features"
            raise DataError(f"expected none, because the target is of {self.labels.level}s", argument)
        rest = [] if frame is None else [name for name in frame.columns if name not in used]
        self.left_out.update({f"graph {name}": "the target is not of graphs" for name in rest})

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
        self,
        argument: str,
        frame: Frame | None,
        names: Sequence[str] | None,
        rows: Bools,
        used: set[str | None],
    ) -> tuple[Column, ...]:
        table, prefix = _TABLES[argument]
        if frame is None:
            if names:
                raise DataError(f"expected none without a table of {table}, got {list(names)}", argument)
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
            label = prefix + name
            column_type = self._usable_type(frame, name, label, is_asked)
            if column_type is not None:
                self._note(frame, name, column_type, label)
                columns.append(fit_column(frame, name, column_type, rows, self.standardise))
        return tuple(columns)

    def _usable_type(self, frame: Frame, name: str, label: str, is_asked: bool) -> ColumnType | None:
        """Return the type of a column; None if the column is left out, for a reason that is noted."""
        if name.lower() == ID_NAMES[-1] and not is_asked:
            self.left_out[label] = "it is an index that pandas has written"
            return None
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
