"""A user's own tables as a task: ids mapped, columns encoded, targets, splits; and new tables at prediction."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import MISSING, Dropped, Frame, Kind
from sirgcn.data.tables.features import Unknown, as_categories, encode, input_columns, vocabularies
from sirgcn.data.tables.labels import Items, TaskKind, find_labels
from sirgcn.data.tables.preprocessing import Fitting, Preprocessing
from sirgcn.data.tables.read import read_tables
from sirgcn.data.tables.roles import Roles, Tables, find_roles, known
from sirgcn.data.tables.splits import find_splits
from sirgcn.data.tables.structure import connect, count_repeats, read_molecules
from sirgcn.data.tables.text import Bools, Ints, Objects
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import checked


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
    smiles: str | None = None,
    features: Sequence[str] | None = None,
    edge_features: Sequence[str] | None = None,
    kinds: Mapping[str, Kind] | None = None,
    directed: bool | None = None,
    task: TaskKind | None = None,
    metric: str | None = None,
    seed: int = 0,
    fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
    standardise: bool = True,
    missing: Collection[str] = MISSING,
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
    max_unpacked: int | None = None,
    name: str | None = None,
) -> Task:
    """A task from a user's own tables; `describe` shows all that was inferred.

    A table is a path (.csv, .tsv, also with .gz; .parquet), a pandas frame, or anything with `__arrow_c_stream__` or
    `__dataframe__`. In the place of `nodes` may stand what holds a graph as a whole: a NetworkX graph, a .graphml or
    .npz file, PyG's `Data` or a list of them; or, with `smiles`, a table of molecules.

    Args:
        nodes: one row per node; without it, nodes are what the edges name.
        edges: one row per edge.
        target: the column of the targets, or several; default: y, label, target or class.
        graphs: one row per graph, with a graph's target and part of the split.
        level: what the target belongs to; default: the table that has it. "graph" also takes a column of the nodes
            that is the same in all nodes of a graph.
        id: the nodes' ids; default: id, node_id or node, or a pandas frame's index. Ids are compared as text, exactly
            as they stand: 007 is not 7, and NA is an id. Ids that differ by white space alone are refused.
        source: where an edge starts; default: the usual names (source, src, from, ...).
        destination: where it ends (target, destination, dst, to, ...).
        graph: the graph of a node, and of an edge if the edges have it too (then ids may repeat from graph to graph);
            default: graph_id or graph.
        split: a column with train, val and test; default: split, or else a split that is drawn from `seed`.
        smiles: a column of molecules; default: smiles, where there are no edges. Needs the extra `chem`.
        features: columns of the nodes to use; default: all others.
        edge_features: columns of the edges to use; default: all others.
        kinds: what columns hold, where it is not what their values say: numeric, boolean, categorical, list or time.
            Texts that nearly all look like numbers ("3,14", "$5", "5 kg") are refused unless they are said to be
            categorical.
        directed: whether an edge goes one way only; default: as the source says, else no. Undirected, every edge is
            there both ways, equally often: a row without a partner the other way gets one, with the same features.
        task: default: classification of names, truth values and up to 20 different whole numbers, else regression.
        metric: of `METRICS`; default: accuracy, mae, or roc_auc for several targets of 0 and 1.
        seed: of a split that is drawn.
        fractions: of train, val and test in a split that is drawn.
        standardise: numbers to mean 0 and deviation 1 over the training rows.
        missing: texts that stand for a missing value in a text file; in every source, empty texts and blanks do.
        on_error: "skip" leaves out rows with a wrong number of fields, edges to unknown nodes and molecules that
            cannot be read, counts them and writes them to `dropped` with the reason; all else is refused always.
        dropped: the file for them.
        max_unpacked: bytes that a compressed file (.gz, .npz, Parquet) may take when unpacked; default: 100 times the
            size of a .gz file or 100 MiB, 200 times the size of the others or 1 GiB, whichever is more, and 16 GiB at
            most.
        name: of the task; default: of the file.

    Raises:
        DataError: names the file, column, row and value that cannot be used.
    """
    left_out = _dropped(on_error, dropped)
    given = {"id": id, "source": source, "destination": destination, "graph": graph, "smiles": smiles}
    found = read(nodes, edges, graphs, level, given, directed, tuple(missing), kinds or {}, left_out, max_unpacked)
    labels = find_labels(found.items, [target] if isinstance(target, str) else list(target), level, task, metric)
    if found.splits and split is None:
        splits, split_column, drawn = found.splits, None, "masks of the source"
    else:
        one, split_column, drawn = find_splits(found.items, labels, split, seed, fractions)
        splits = (one,)
    fitting = Fitting(found.items, labels, found.roles, found.directed, found.missing, split_column, standardise)
    preprocessing = fitting.fit(splits[0], features, edge_features)
    x, edge_attr, unseen = found.features(preprocessing, "other")
    if dropped is not None:
        left_out.write(Path(dropped))
    graphs_found = found.graphs(x, edge_attr, labels.y, labels.level)
    loops, repeats = count_repeats(graphs_found.edge_index.numpy(), graphs_found.num_nodes)
    return Task(
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
            "columns": {"node": input_columns(preprocessing.nodes), "edge": input_columns(preprocessing.edges)},
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


@dataclass(frozen=True, eq=False)
class Inputs:
    """New tables as graphs without targets.

    Args:
        graphs: to predict on; all targets are missing.
        ids: of the nodes, in their order.
        graph_ids: of the graphs, where there are several.
        edge_rows: each edge's row in the table of edges, counted from 1.
        added: which edges are the added other way of their row.
        dropped: how many rows were left out.
    """

    graphs: Graphs
    ids: Objects
    graph_ids: Objects | None
    edge_rows: Ints
    added: Bools
    dropped: int = 0


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
) -> Inputs:
    """New tables as graphs, read as those of the training; targets and columns that it did not use may be absent.

    Args:
        preprocessing: of the training, `task.details["preprocessing"]`.
        nodes: as in `load_tables`.
        edges: as in `load_tables`.
        graphs: as in `load_tables`.
        unknown: what becomes of categories that training has not seen, and of gaps where it had none: refused with
            their name ("raise"), or read as other and missing values ("other").
        on_error: as in `load_tables`.
        dropped: as in `load_tables`.
        max_unpacked: as in `load_tables`.
    """
    left_out = _dropped(on_error, dropped)
    level, roles = preprocessing.level, preprocessing.roles
    directed, missing = preprocessing.directed, preprocessing.missing
    found = read(nodes, edges, graphs, level, vars(roles), directed, missing, {}, left_out, max_unpacked, asked=False)
    x, edge_attr, _ = found.features(preprocessing, unknown)
    structure = found.items.structure
    graph_count = 1 if structure.graph_ids is None else len(structure.graph_ids)
    rows = {"node": len(structure.ids), "edge": len(structure.added), "graph": graph_count}[level]
    if preprocessing.classes:
        y = torch.full((rows,), -1)
    else:
        y = torch.full((rows, len(preprocessing.targets)), float("nan")).squeeze(1)
    if dropped is not None:
        left_out.write(Path(dropped))
    return Inputs(found.graphs(x, edge_attr, y, level), **found.details(), dropped=len(left_out.rows))


def _dropped(on_error: str, path: str | os.PathLike[str] | None) -> Dropped:
    if (on_error == "skip") != (path is not None):
        raise DataError("expected a file for the rows that are skipped, with on_error='skip' and only then", "dropped")
    return Dropped(on_error == "skip")


@dataclass(frozen=True, eq=False)
class Read:
    """What was read: tables in order, and atoms and bonds where they are molecules."""

    items: Items
    roles: Roles
    directed: bool
    missing: tuple[str, ...]
    splits: tuple[Split, ...]
    name: str
    atoms: Ints | None = None
    bonds: Ints | None = None

    def details(self) -> dict[str, Any]:
        """Ids and rows, by which results find back to the tables."""
        structure = self.items.structure
        return {
            "ids": structure.ids,
            "graph_ids": structure.graph_ids,
            "edge_rows": structure.edges.rows[structure.rows],
            "added": structure.added,
        }

    def inferred(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """What the caller did not say."""
        return {
            **{role: column for role, column in vars(self.roles).items() if column and given.get(role) is None},
            "directed": "yes" if self.directed else "no",
        }

    def features(self, preprocessing: Preprocessing, unknown: Unknown) -> tuple[Tensor, Tensor | None, dict[str, int]]:
        """Of nodes and edges, and by column how many values training has not seen."""
        if self.atoms is not None and self.bonds is not None:
            return torch.from_numpy(self.atoms), torch.from_numpy(self.bonds), {}
        structure = self.items.structure
        if structure.nodes is None and preprocessing.nodes:
            raise DataError("expected a table of nodes with the columns of training, got none", "nodes")
        frame = structure.nodes
        if frame is None:
            frame = Frame("nodes", {}, np.arange(len(structure.ids)))
        x, unseen = encode(preprocessing.nodes, frame, unknown)
        if not preprocessing.edges:
            return x, None, unseen
        edge_attr, more = encode(preprocessing.edges, structure.edges, unknown)
        unseen |= {f"edge {name}": count for name, count in more.items()}
        return x, edge_attr[torch.from_numpy(structure.rows)], unseen

    def graphs(self, x: Tensor, edge_attr: Tensor | None, y: Tensor, level: Level) -> Graphs:
        """With these features and targets."""
        structure = self.items.structure
        pointers = (structure.node_ptr, structure.edge_ptr)
        node_ptr, edge_ptr = (None if pointer is None else torch.from_numpy(pointer) for pointer in pointers)
        edge_index = torch.from_numpy(structure.edge_index)
        return Graphs(x, edge_index, y, level, edge_attr, node_ptr=node_ptr, edge_ptr=edge_ptr)

    def schema(self, preprocessing: Preprocessing, outputs: int) -> Schema:
        """The widths of the features."""
        if self.atoms is not None:
            return Schema(vocabularies=ATOM_VOCABULARIES, edge_vocabularies=BOND_VOCABULARIES, outputs=outputs)
        nodes, edges = preprocessing.nodes, preprocessing.edges
        return Schema(
            features=0 if as_categories(nodes) else sum(column.width for column in nodes) if nodes else 1,
            vocabularies=vocabularies(nodes) if as_categories(nodes) else (),
            edge_features=0 if as_categories(edges) else sum(column.width for column in edges),
            edge_vocabularies=vocabularies(edges) if as_categories(edges) else (),
            outputs=outputs,
        )


def read(
    nodes: Any,
    edges: Any,
    graphs: Any,
    level: Level | None,
    given: Mapping[str, str | None],
    directed: bool | None,
    missing: tuple[str, ...],
    kinds: Mapping[str, Kind],
    dropped: Dropped,
    limit: int | None,
    asked: bool = True,
) -> Read:
    """The tables of `load_tables`, or, not `asked`, of `apply_tables`; `given` names columns."""
    tables = read_tables(nodes, edges, graphs, level, missing, dropped, limit)
    tables = _with_kinds(tables, kinds)
    frames = [table for table in (tables.nodes, tables.graphs, tables.edges) if table is not None]
    if not frames:
        raise DataError("expected a table of nodes or of edges, got none", "nodes")
    named = next((source for source in (nodes, graphs, edges) if isinstance(source, str | os.PathLike)), None)
    name = "own data" if named is None else Path(named).name.partition(".")[0]
    smiles = given.get("smiles")
    if smiles is not None or tables.edges is None:
        smiles = known(frames[0], ("smiles",)) if smiles is None else frames[0].find("smiles", smiles)
    if smiles is not None:
        if tables.edges is not None or len(frames) > 1:
            raise DataError("expected one table alone beside a column of molecules", "edges")
        for role in ("graph", "source", "destination"):
            if given.get(role) is not None:
                told = f"expected none, for every molecule is a graph (id= names its id), got {given[role]!r}"
                raise DataError(told, role, frames[0].source)
        key = given.get("id")
        key = frames[0].find("id", key) if key is not None else known(frames[0], ("id", "mol_id"))
        structure, kept, atoms, bonds = read_molecules(frames[0], smiles, key, dropped)
        roles = Roles(id=key, smiles=smiles)
        return Read(Items(structure, kept), roles, False, missing, (), name, atoms, bonds)
    roles = find_roles(tables, given, asked)
    directed = directed if directed is not None else bool(tables.directed)
    structure = connect(tables, roles, directed, dropped)
    return Read(Items(structure, tables.graphs), roles, directed, missing, tables.splits, name)


def _with_kinds(tables: Tables, kinds: Mapping[str, Kind]) -> Tables:
    parts = {name: getattr(tables, name) for name in ("nodes", "edges", "graphs")}
    columns = {column for part in parts.values() if part is not None for column in part.columns}
    for column in kinds:
        if column not in columns:
            raise DataError(f"expected columns of {', '.join(map(repr, sorted(columns)))}, got {column!r}", "kinds")
    return replace(
        tables,
        **{
            name: replace(part, kinds={**part.kinds, **{c: k for c, k in kinds.items() if c in part.columns}})
            for name, part in parts.items()
            if part is not None and kinds
        },
    )
