"""The last step of the pipeline: tables to a task for training, and new tables to graphs for predictions."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import MISSING, ColumnType, Dropped, Frame
from sirgcn.data.tables.draws import Draw, Drawing
from sirgcn.data.tables.features import Unknown, encode, input_columns, vocabularies, width_of
from sirgcn.data.tables.labels import Items, Labels, TaskType, find_labels, read_labels
from sirgcn.data.tables.preprocessing import Fitting, Preprocessing
from sirgcn.data.tables.read import Source, read_tables
from sirgcn.data.tables.roles import Roles, Tables, find_roles, known
from sirgcn.data.tables.splits import find_splits
from sirgcn.data.tables.structure import connect, count_repeats, read_molecules
from sirgcn.data.tables.text import Bools, Ints, Objects
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import Count, checked


@checked
def load_tables(
    nodes: Any = None,
    edges: Any = None,
    *,
    target: str | Sequence[str] = (),
    graphs: Any = None,
    level: Level | None = None,
    id: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    graph: str | None = None,
    split: str | None = None,
    draw: Draw | None = None,
    smiles: str | None = None,
    features: Sequence[str] | None = None,
    edge_features: Sequence[str] | None = None,
    types: Mapping[str, ColumnType] | None = None,
    directed: bool | None = None,
    task: TaskType | None = None,
    metric: str | None = None,
    seed: int = 0,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    folds: Count = 0,
    fold: Count = 0,
    standardise: bool = True,
    missing: Collection[str] = MISSING,
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
    max_unpacked: int | None = None,
    name: str | None = None,
) -> Task:
    """Return a task from a user's own tables. `task.describe()` shows everything that was inferred.

    A table is a path (.csv, .tsv, also with .gz; .parquet), a pandas frame, or any object with `__arrow_c_stream__` or
    `__dataframe__`. The argument `nodes` may also be a whole graph: a NetworkX graph, a .graphml or .npz file, or PyG's
    `Data` or a list of them. With `smiles` it is a table of molecules.

    Args:
        nodes: one row per node. Without this table, the nodes are the ends of edges.
        edges: one row per edge.
        target: the column of the targets, or several columns; default: y, label, target or class.
        graphs: one row per graph, with its target and its part of the split.
        level: what the target belongs to; default: the level of the table that has it. With "graph", the target may
            also be a column of the nodes that has one value in all nodes of a graph.
        id: the column of the nodes' ids; default: id, node_id or node, or the index of a pandas frame. Ids are compared
            as text, exactly as they stand: 007 is not 7, and NA is an id. Ids that differ only by white space are
            refused.
        source: the column where an edge starts; default: the usual names (source, src, from, ...).
        destination: the column where an edge ends; default: the usual names (target, destination, dst, to, ...).
        graph: the column with the graph of a node; default: graph_id or graph. If the table of edges has this column,
            too, ids may repeat from graph to graph.
        split: a column with train, val and test; default: split. Without it, the split is drawn from `seed`.
        draw: how the split is drawn, in place of a column or masks of the source: "random" (each class alike),
            {"group": column} (all rows of a group in one part), {"time": column} (the oldest rows train, the newest
            test), "scaffold" (molecules; the largest scaffolds train). "inductive" hides the nodes of val and test, and
            their edges, from training; it also applies to a split of the source. The column of a group or time is no
            feature.
        smiles: a column of molecules; default: smiles, if there are no edges. It needs the extra `chem`.
        features: the columns of the nodes to use; default: all others.
        edge_features: the columns of the edges to use; default: all others.
        types: the types of columns whose values suggest another one: numeric, boolean, categorical, list or time. Texts
            that nearly all look like numbers ("3,14", "$5", "5 kg") are refused unless their type is categorical.
        directed: whether an edge has one direction only; default: what the source says, otherwise no. Undirected edges
            run in both directions, equally often: a row without a partner in the other direction gets one, with the
            same features.
        task: classification or regression; default: classification for names, truth values and up to 20 different
            whole numbers, otherwise regression.
        metric: a name of `METRICS`; default: accuracy, mae, or roc_auc for several targets of 0 and 1.
        seed: the seed of a split that is drawn.
        fractions: the fractions of train, val and test in a split that is drawn.
        folds: a number of folds of a cross-validation, at least 3, in the place of `fractions`; 0 for none.
        fold: the fold that is the test part, counted from 0. The next fold validates, and the others train.
        standardise: whether numbers are scaled to mean 0 and deviation 1 over the training rows.
        missing: texts that stand for a missing value in a text file. Empty texts and blanks do so in every source.
        on_error: "skip" leaves out rows with a wrong number of fields, edges to unknown nodes and unreadable molecules.
            They are counted, and written to `dropped` with the reason. Other errors are always raised.
        dropped: the file for the rows that are left out.
        max_unpacked: the number of bytes to which a compressed file (.gz, .npz, Parquet) may be unpacked; default: 100
            times the size of a .gz file or 100 MiB, 200 times the size of other files or 1 GiB, whichever is more, and
            at most 16 GiB.
        name: the name of the task; default: the name of the file.

    Raises:
        DataError: if data cannot be used; the error names the file, column, row and value.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": list("abcdef"), "size": [1, 2, 3, 4, 5, 6], "label": ["x", "y"] * 3})
    >>> edges = pd.DataFrame({"source": list("abcde"), "target": list("bcdef")})
    >>> task = load_tables(nodes, edges)
    >>> task.classes, task.metric, task.graphs.num_edges
    (('x', 'y'), 'accuracy', 10)
    """
    left_out = _dropped(on_error, dropped)
    given = {"id": id, "source": source, "destination": destination, "graph": graph, "smiles": smiles}
    tables = Source(nodes, edges, graphs, tuple(missing), max_unpacked)
    found = read(tables, level, given, directed, types or {}, left_out)
    labels = find_labels(found.items, [target] if isinstance(target, str) else list(target), level, task, metric)
    drawing = Drawing(draw, seed, fractions, folds, fold)
    splits, split_columns, drawn = _splits(found, labels, split, drawing)
    fitting = Fitting(found.items, labels, split_columns, standardise, draw == "inductive")
    node_columns, edge_columns = fitting.fit(splits[0], found.roles, features, edge_features)
    preprocessing = Preprocessing(
        labels.level,
        found.roles,
        node_columns,
        edge_columns,
        found.directed,
        tuple(missing),
        labels.names,
        labels.classes,
    )
    x, edge_attr, unseen = found.features(preprocessing, "other")
    if dropped is not None:
        left_out.write(Path(dropped))
    graphs_found = found.graphs(x, edge_attr, labels.y, labels.level)
    loops, repeats = count_repeats(graphs_found.edge_index.numpy(), graphs_found.num_nodes)
    made = Task(
        name or found.name,
        graphs_found,
        found.schema(preprocessing, labels.outputs),
        splits,
        labels.loss,
        labels.metric,
        version="own data",
        classes=labels.classes,
        details={
            "preprocessing": preprocessing,
            "columns": {"node": input_columns(node_columns), "edge": input_columns(edge_columns)},
            **found.details(),
            "inferred": {**found.inferred(given), **labels.inferred, "split": drawn},
            "missing": fitting.missing,
            "trimmed": labels.trimmed | fitting.trimmed,
            "doubts": labels.doubts | fitting.doubts,
            "left_out": fitting.left_out,
            "unseen": unseen,
            "self_loops": loops,
            "repeated_edges": repeats,
            "dropped": len(left_out.rows),
        },
    )
    return made.as_inductive() if draw == "inductive" else made


def _splits(
    found: "Read", labels: Labels, split: str | None, drawing: Drawing
) -> tuple[tuple[Split, ...], frozenset[str], str]:
    """Return the splits, the columns that they come from, and what was done in words."""
    more = ", training sees neither the nodes of val and test nor their edges" if drawing.draw == "inductive" else ""
    if found.splits and split is None and not drawing.is_asked:
        return found.splits, frozenset(), "masks of the source" + more
    one = find_splits(found.items, labels, split, drawing, found.roles.smiles)
    return (one.split,), one.columns, one.words + more


@dataclass(frozen=True, eq=False)
class Inputs:
    """New tables as graphs without targets, from `apply_tables`.

    Args:
        graphs: the graphs to predict on; all targets are missing.
        ids: the ids of the nodes, in their order.
        graph_ids: the ids of the graphs, if there are several.
        edge_rows: the row of each edge in the table of edges, counted from 1.
        added: which edges are the reverse that was added to their row.
        dropped: the number of rows that were left out.
        node_rows: the row of each node in the table of nodes, counted from 1; None without such a table.
        unseen: for each column, the number of values that are not in the training rows.

    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"id": list("abcd"), "label": [0, 1, 0, 1]})
    >>> edges = pd.DataFrame({"source": list("abc"), "target": list("bcd")})
    >>> preprocessing = load_tables(nodes, edges).details["preprocessing"]
    >>> inputs = apply_tables(preprocessing, pd.DataFrame({"id": ["u", "v"]}), edges[:0])
    >>> inputs.ids.tolist(), inputs.graphs.num_edges
    (['u', 'v'], 0)
    """

    graphs: Graphs
    ids: Objects
    graph_ids: Objects | None
    edge_rows: Ints
    added: Bools
    dropped: int = 0
    node_rows: Ints | None = None
    unseen: Mapping[str, int] = field(default_factory=dict)


@checked
def apply_tables(
    preprocessing: Preprocessing,
    nodes: Any = None,
    edges: Any = None,
    *,
    graphs: Any = None,
    unknown: Unknown = "raise",
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
    max_unpacked: int | None = None,
    targets: bool = False,
) -> Inputs:
    """Return new tables as graphs, read in the same way as the tables of training.

    Targets, and columns that training did not use, may be absent.

    Args:
        preprocessing: the preprocessing of training, `task.details["preprocessing"]`.
        nodes: as in `load_tables`.
        edges: as in `load_tables`.
        graphs: as in `load_tables`.
        unknown: what happens to categories that are not in the training rows, and to missing values in a column where
            training had none. "raise" refuses them with their name; "other" reads them as other or missing values.
        on_error: as in `load_tables`.
        dropped: as in `load_tables`.
        max_unpacked: as in `load_tables`.
        targets: whether the targets are read, to evaluate predictions with them. Otherwise all of them are missing.

    >>> import pandas as pd
    >>> edges = pd.DataFrame({"source": list("abc"), "target": list("bcd")})
    >>> nodes = pd.DataFrame({"id": list("abcd"), "size": [1, 2, 3, 4], "label": [0, 1, 0, 1]})
    >>> task = load_tables(nodes, edges, fractions=(1, 0, 0))
    >>> inputs = apply_tables(task.details["preprocessing"], nodes.drop(columns="label"), edges)
    >>> torch.equal(inputs.graphs.x, task.graphs.x), inputs.graphs.y.tolist()
    (True, [-1, -1, -1, -1])
    """
    left_out = _dropped(on_error, dropped)
    source = Source(nodes, edges, graphs, preprocessing.missing, max_unpacked)
    level = preprocessing.level
    found = read(source, level, vars(preprocessing.roles), preprocessing.directed, {}, left_out, asked=False)
    x, edge_attr, unseen = found.features(preprocessing, unknown)
    structure = found.items.structure
    graph_count = 1 if structure.graph_ids is None else len(structure.graph_ids)
    rows = {"node": len(structure.ids), "edge": len(structure.added), "graph": graph_count}[level]
    if targets:
        y = read_labels(found.items, level, preprocessing.targets, preprocessing.classes)
    elif preprocessing.classes:
        y = torch.full((rows,), -1)
    else:
        y = torch.full((rows, len(preprocessing.targets)), float("nan")).squeeze(1)
    if dropped is not None:
        left_out.write(Path(dropped))
    node_rows = None if structure.nodes is None else structure.nodes.rows
    return Inputs(
        found.graphs(x, edge_attr, y, level),
        **found.details(),
        dropped=len(left_out.rows),
        node_rows=node_rows,
        unseen=unseen,
    )


def _dropped(on_error: str, path: str | os.PathLike[str] | None) -> Dropped:
    if (on_error == "skip") != (path is not None):
        raise DataError("expected a file for the rows that are skipped, with on_error='skip' and only then", "dropped")
    return Dropped(on_error == "skip")


@dataclass(frozen=True, eq=False)
class Read:
    """The tables of a source in the order of its graphs.

    Args:
        items: the structure, and the tables of nodes, edges and graphs.
        roles: which column holds what.
        directed: whether edges have one direction.
        splits: the splits of the source, if it has masks.
        name: the name of the source.
        atoms: the categories of atoms, if the source holds molecules.
        bonds: the categories of bonds, if the source holds molecules.
    """

    items: Items
    roles: Roles
    directed: bool
    splits: tuple[Split, ...]
    name: str
    atoms: Ints | None = None
    bonds: Ints | None = None

    def details(self) -> dict[str, Any]:
        """Return the ids and rows that lead from a result back to the tables."""
        structure = self.items.structure
        return {
            "ids": structure.ids,
            "graph_ids": structure.graph_ids,
            "edge_rows": structure.edges.rows[structure.rows],
            "added": structure.added,
        }

    def inferred(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Return the roles and the direction that the caller did not give."""
        return {
            **{role: column for role, column in vars(self.roles).items() if column and given.get(role) is None},
            "directed": "yes" if self.directed else "no",
        }

    def features(self, preprocessing: Preprocessing, unknown: Unknown) -> tuple[Tensor, Tensor | None, dict[str, int]]:
        """Return the features of nodes and edges, and for each column the number of values unknown from training."""
        if self.atoms is not None and self.bonds is not None:
            return torch.from_numpy(self.atoms), torch.from_numpy(self.bonds), {}
        structure = self.items.structure
        frame = structure.nodes
        if frame is None:
            if preprocessing.nodes:
                raise DataError("expected a table of nodes with the columns of training, got none", "nodes")
            frame = Frame("nodes", {}, np.arange(len(structure.ids)))
        x, unseen = encode(preprocessing.nodes, frame, unknown)
        if not preprocessing.edges:
            return x, None, unseen
        edge_attr, more = encode(preprocessing.edges, structure.edges, unknown)
        unseen |= {f"edge {name}": count for name, count in more.items()}
        return x, edge_attr[torch.from_numpy(structure.rows)], unseen

    def graphs(self, x: Tensor, edge_attr: Tensor | None, y: Tensor, level: Level) -> Graphs:
        """Return the graphs with these features and targets."""
        structure = self.items.structure
        pointers = (structure.node_ptr, structure.edge_ptr)
        node_ptr, edge_ptr = (None if pointer is None else torch.from_numpy(pointer) for pointer in pointers)
        edge_index = torch.from_numpy(structure.edge_index)
        return Graphs(x, edge_index, y, level, edge_attr, node_ptr=node_ptr, edge_ptr=edge_ptr)

    def schema(self, preprocessing: Preprocessing, outputs: int) -> Schema:
        """Return the widths of the features."""
        if self.atoms is not None:
            return Schema(vocabularies=ATOM_VOCABULARIES, edge_vocabularies=BOND_VOCABULARIES, outputs=outputs)
        nodes, edges = preprocessing.nodes, preprocessing.edges
        return Schema(
            # Nodes without any column have the feature 1.
            features=width_of(nodes) if nodes else 1,
            vocabularies=vocabularies(nodes),
            edge_features=width_of(edges),
            edge_vocabularies=vocabularies(edges),
            outputs=outputs,
        )


def read(
    source: Source,
    level: Level | None,
    given: Mapping[str, str | None],
    directed: bool | None,
    types: Mapping[str, ColumnType],
    dropped: Dropped,
    asked: bool = True,
) -> Read:
    """Return the tables of a source; `given` names columns, by the caller if `asked` is set, otherwise by training."""
    tables = _with_types(read_tables(source, level, dropped), types)
    frames = [table for table in (tables.nodes, tables.graphs, tables.edges) if table is not None]
    if not frames:
        raise DataError("expected a table of nodes or of edges, got none", "nodes")
    first, smiles = frames[0], given.get("smiles")
    if smiles is not None:
        smiles = first.find("smiles", smiles)
    elif tables.edges is None:
        smiles = known(first, ("smiles",))
    if smiles is not None:
        if tables.edges is not None or len(frames) > 1:
            raise DataError("expected only one table with a column of molecules", "edges")
        return _read_molecules(first, smiles, given, dropped, _name(source))
    roles = find_roles(tables, given, asked)
    if directed is None:
        directed = bool(tables.directed)
    structure = connect(tables, roles, directed, dropped)
    return Read(Items(structure, tables.graphs), roles, directed, tables.splits, _name(source))


def _name(source: Source) -> str:
    """Return the name of the first file, without its endings."""
    for table in (source.nodes, source.graphs, source.edges):
        if isinstance(table, str | os.PathLike):
            return Path(table).name.partition(".")[0]
    return "own data"


def _read_molecules(frame: Frame, smiles: str, given: Mapping[str, str | None], dropped: Dropped, name: str) -> Read:
    for role in ("graph", "source", "destination"):
        if given.get(role) is not None:
            expected = f"expected no column, because every molecule is a graph (id= names its id), got {given[role]!r}"
            raise DataError(expected, role, frame.source)
    key = given.get("id")
    key = frame.find("id", key) if key is not None else known(frame, ("id", "mol_id"))
    structure, kept, atoms, bonds = read_molecules(frame, smiles, key, dropped)
    return Read(Items(structure, kept), Roles(id=key, smiles=smiles), False, (), name, atoms, bonds)


def _with_types(tables: Tables, types: Mapping[str, ColumnType]) -> Tables:
    """Return the tables with the types that the caller gives."""
    if not types:
        return tables
    parts = {name: part for name in ("nodes", "edges", "graphs") if (part := getattr(tables, name)) is not None}
    columns = {column for part in parts.values() for column in part.columns}
    for column in types:
        if column not in columns:
            raise DataError(f"expected columns of {', '.join(map(repr, sorted(columns)))}, got {column!r}", "types")
    return replace(tables, **{name: part.with_types(types) for name, part in parts.items()})
