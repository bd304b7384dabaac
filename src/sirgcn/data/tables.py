"""A user's own tables as a task: ids mapped, columns encoded, targets, splits; and new tables at prediction."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from sirgcn.data.frames import MISSING, Dropped, Frame, Kind
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.labels import TaskKind, find_labels, find_splits, training_rows
from sirgcn.data.preprocess import (
    MAX_CATEGORIES,
    Column,
    Preprocessing,
    Unknown,
    fit_column,
)
from sirgcn.data.structure import count_repeats
from sirgcn.data.task import Task
from sirgcn.data.text import Bools, Ints, Objects
from sirgcn.data.validate import DataError


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
    missing: Sequence[str] = MISSING,
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
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
            as they stand: 007 is not 7, and NA is an id.
        source: where an edge starts; default: the usual names (source, src, from, ...).
        destination: where it ends (target, destination, dst, to, ...).
        graph: the graph of a node, and of an edge if the edges have it too (then ids may repeat from graph to graph);
            default: graph_id or graph.
        split: a column with train, val and test; default: split, or else a split that is drawn from `seed`.
        smiles: a column of molecules; default: smiles, where there are no edges. Needs the extra `chem`.
        features: columns of the nodes to use; default: all others.
        edge_features: columns of the edges to use; default: all others.
        kinds: what columns hold, where it is not what their values say: numeric, boolean, categorical, list or time.
        directed: whether an edge goes one way only; default: as the source says, else no. Undirected, a row whose
            reverse is not a row gets it.
        task: default: classification of names, truth values and up to 20 different whole numbers, else regression.
        metric: of `METRICS`; default: accuracy, mae, or roc_auc for several targets of 0 and 1.
        seed: of a split that is drawn.
        fractions: of train, val and test in a split that is drawn.
        standardise: numbers to mean 0 and deviation 1 over the training rows.
        missing: texts that stand for a missing value in a text file.
        on_error: "skip" leaves out rows with a wrong number of fields, edges to unknown nodes and molecules that
            cannot be read, counts them and writes them to `dropped` with the reason; all else is refused always.
        dropped: the file for them.
        name: of the task; default: of the file.

    Raises:
        DataError: names the file, column, row and value that cannot be used.
    """
    check_choice("level", level, get_args(Level))
    check_choice("task", task, get_args(TaskKind))
    left_out = _dropped(on_error, dropped)
    given = {"id": id, "source": source, "destination": destination, "graph": graph, "smiles": smiles}
    found = read(nodes, edges, graphs, level, given, directed, tuple(missing), kinds or {}, left_out)
    items = found.items
    labels = find_labels(items, [target] if isinstance(target, str) else list(target), level, task, metric)
    if found.splits and split is None:
        splits, column, drawn = found.splits, None, "masks of the source"
    else:
        one, column, drawn = find_splits(items, labels, split, seed, fractions)
        splits = (one,)
    fitting = _Fitting(standardise)
    node_rows, edge_rows = training_rows(items, labels, splits[0])
    own, roles = set(labels.names), found.roles
    in_graphs = items.graphs is not None and own <= set(items.graphs.columns) and labels.level == "graph"
    used = {
        "node": {roles.id, roles.graph, column} | (own if labels.level != "edge" and not in_graphs else set()),
        "edge": {column} | (own if labels.level == "edge" else set()),
        "graph": {roles.id, roles.key, roles.smiles, column} | own,
    }
    node_columns = fitting.columns("features", items.structure.nodes, features, node_rows, used["node"])
    edge_columns = fitting.columns("edge_features", items.structure.edges, edge_features, edge_rows, used["edge"])
    fitting.leave_out(items.graphs, used["graph"])
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
    if left_out.lenient:
        left_out.write(Path(dropped))  # type: ignore[arg-type]
    loops, repeats = count_repeats(items.structure.edge_index, len(items.structure.ids))
    details = {
        "preprocessing": preprocessing,
        **found.details(),
        "inferred": {**found.inferred(given), **labels.inferred, "split": drawn},
        "missing": fitting.missing,
        "left_out": fitting.left_out,
        "unseen": unseen,
        "targets": labels.names,
        "self_loops": loops,
        "repeated_edges": repeats,
        "dropped": len(left_out.rows),
    }
    return Task(
        name or found.name,
        found.graphs(x, edge_attr, labels.y, labels.level),
        found.schema(preprocessing, labels.outputs),
        splits,
        labels.loss,
        labels.metric,
        version="own data",
        classes=labels.classes,
        details=details,
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


def apply_tables(
    preprocessing: Preprocessing,
    nodes: Any = None,
    edges: Any = None,
    *,
    graphs: Any = None,
    unknown: Unknown = "raise",
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
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
    """
    left_out = _dropped(on_error, dropped)
    level, roles = preprocessing.level, preprocessing.roles
    found = read(nodes, edges, graphs, level, vars(roles), preprocessing.directed, preprocessing.missing, {}, left_out)
    x, edge_attr, _ = found.features(preprocessing, unknown)
    structure = found.items.structure
    graph_count = 1 if structure.graph_ids is None else len(structure.graph_ids)
    rows = {"node": len(structure.ids), "edge": len(structure.added), "graph": graph_count}[level]
    if preprocessing.classes:
        y = torch.full((rows,), -1)
    else:
        y = torch.full((rows, len(preprocessing.targets)), float("nan")).squeeze(1)
    if left_out.lenient:
        left_out.write(Path(dropped))  # type: ignore[arg-type]
    return Inputs(found.graphs(x, edge_attr, y, level), **found.details(), dropped=len(left_out.rows))


@dataclass(frozen=True)
class _Fitting:
    """Columns fitted on training rows; what was missing in them, and which were left out and why."""

    standardise: bool
    missing: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def columns(
        self, argument: str, frame: Frame | None, names: Sequence[str] | None, rows: Bools, used: set[str | None]
    ) -> tuple[Column, ...]:
        if frame is None:
            if names:
                raise DataError(f"expected none without a table of nodes, got {list(names)}", argument)
            return ()
        label = "" if argument == "features" else "edge "
        chosen = [name for name in frame.columns if name not in used] if names is None else list(names)
        found = []
        for name in chosen:
            if frame.find(argument, name) in used:
                raise DataError(f"expected a column that is not used already, got {name!r}", argument, value=name)
            kind = frame.kind(name)
            if kind is None:
                self.left_out[label + name] = "it is empty"
                continue
            if kind == "categorical" and names is None and name not in frame.kinds:
                distinct = len(set(frame.categories(name)) - {None})
                if distinct > MAX_CATEGORIES:
                    named = f"named in {argument}, the {MAX_CATEGORIES} most frequent are used"
                    self.left_out[label + name] = f"{distinct:,} different texts; {named}"
                    continue
            gaps = int(frame.absent(name).sum())
            if gaps:
                self.missing[label + name] = gaps
            found.append(fit_column(frame, name, kind, rows, self.standardise))
        return tuple(found)

    def leave_out(self, graphs: Frame | None, used: set[str | None]) -> None:
        """Columns of graphs, of which only nodes and edges have features."""
        for name in () if graphs is None else graphs.columns:
            if name not in used:
                self.left_out[f"graph {name}"] = "features are of nodes and edges"


def _dropped(on_error: str, path: str | os.PathLike[str] | None) -> Dropped:
    check_choice("on_error", on_error, ("raise", "skip"))
    if (on_error == "skip") != (path is not None):
        raise DataError("expected a file for the rows that are skipped, with on_error='skip' and only then", "dropped")
    return Dropped(on_error == "skip")
