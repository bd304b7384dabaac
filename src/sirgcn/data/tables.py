"""A user's own tables as a task: ids mapped, columns encoded, targets, splits; and new tables at prediction."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from sirgcn.data.frames import MISSING, Dropped, Frame, Kind
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.labels import Labels, TaskKind, find_labels, find_splits, training_rows
from sirgcn.data.preprocess import (
    MAX_CATEGORIES,
    Column,
    Preprocessing,
    Unknown,
    fit_column,
)
from sirgcn.data.reading import Read, read
from sirgcn.data.structure import count_repeats
from sirgcn.data.task import Split, Task
from sirgcn.data.text import Bools, Ints, Objects
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
    fitting = _Fitting(found, labels, split_column, standardise)
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


@dataclass(frozen=True)
class _Fitting:
    """Preprocessing fitted on the training rows; and what there is to say of the columns.

    That is, by column: how many values are missing, how many have white space around them, what is odd about it, and
    why it was left out.
    """

    found: Read
    labels: Labels
    split_column: str | None
    standardise: bool
    missing: dict[str, int] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def fit(self, split: Split, features: Sequence[str] | None, edge_features: Sequence[str] | None) -> Preprocessing:
        found, labels = self.found, self.labels
        structure, graphs = found.items.structure, found.items.graphs
        node_rows, edge_rows = training_rows(found.items, labels, split)
        # What has a part of its own in a task is no feature.
        used = {"node": {found.roles.id, found.roles.graph}, "edge": set(), "graph": set(vars(found.roles).values())}
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
            found.roles,
            nodes,
            edges,
            found.directed,
            found.missing,
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


def _dropped(on_error: str, path: str | os.PathLike[str] | None) -> Dropped:
    if (on_error == "skip") != (path is not None):
        raise DataError("expected a file for the rows that are skipped, with on_error='skip' and only then", "dropped")
    return Dropped(on_error == "skip")
