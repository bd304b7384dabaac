"""The last step of the pipeline: tables to a task for training."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sirgcn.data.graphs import Level
from sirgcn.data.molecules import MoleculeFeatures
from sirgcn.data.splits import Split
from sirgcn.data.tables.assemble import Read, read
from sirgcn.data.tables.columns import MISSING, ColumnType, Dropped
from sirgcn.data.tables.draws import Draw, Drawing
from sirgcn.data.tables.features import input_columns
from sirgcn.data.tables.labels import Labels, TaskType, find_labels
from sirgcn.data.tables.preprocessing import Fitting, Preprocessing
from sirgcn.data.tables.read import Source
from sirgcn.data.tables.splits import Found, find_splits
from sirgcn.data.tables.structure import count_repeats
from sirgcn.data.task import Task
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
    graph_features: Sequence[str] | None = None,
    molecule_features: Sequence[MoleculeFeatures] = (),
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
        graph_features: the columns of the graphs (or of the molecules) to use where the target is of graphs; default:
            all others but those that count the rows. They enter the readout.
        molecule_features: features that RDKit computes for each molecule, which enter the readout, too: "morgan" (2048
            bits of the Morgan fingerprint of radius 2) and "descriptors" (all descriptors of RDKit).
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
    left_out = Dropped.of(on_error, dropped)
    given = {"id": id, "source": source, "destination": destination, "graph": graph, "smiles": smiles}
    tables = Source(nodes, edges, graphs, tuple(missing), max_unpacked)
    found = read(tables, level, given, directed, types or {}, left_out, True, molecule_features)
    labels = find_labels(found.items, [target] if isinstance(target, str) else list(target), level, task, metric)
    drawing = Drawing(draw, seed, fractions, folds, fold)
    splits, drawn = _splits(found, labels, split, drawing)
    fitting = Fitting(found.items, labels, drawn.columns, standardise, draw == "inductive")
    asked = {"features": features, "edge_features": edge_features, "graph_features": graph_features}
    columns = fitting.fit(splits[0], found.roles, asked, molecule_features)
    preprocessing = Preprocessing(
        labels.level,
        found.roles,
        columns["node"],
        columns["edge"],
        found.directed,
        tuple(missing),
        labels.names,
        labels.classes,
        columns["graph"],
        tuple(molecule_features),
    )
    made_of = found.features(preprocessing, "other")
    if dropped is not None:
        left_out.write(Path(dropped))
    graphs_found = found.graphs(made_of, labels.y, labels.level)
    loops, repeats = count_repeats(graphs_found.edge_index.numpy(), graphs_found.num_nodes)
    loaded = Task(
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
            "columns": {table: input_columns(fitted, table == "graph") for table, fitted in columns.items()},
            **found.details(),
            "smiles": found.smiles(),
            "inferred": {**found.inferred(given), **labels.inferred, "split": drawn.words},
            "missing": fitting.missing,
            "trimmed": labels.trimmed | fitting.trimmed,
            "doubts": labels.doubts | fitting.doubts | dict(drawn.doubts),
            "left_out": fitting.left_out,
            "unseen": made_of.unseen,
            "self_loops": loops,
            "repeated_edges": repeats,
            "dropped": len(left_out.rows),
        },
    )
    return loaded.as_inductive() if draw == "inductive" else loaded


def _splits(found: Read, labels: Labels, split: str | None, drawing: Drawing) -> tuple[tuple[Split, ...], Found]:
    """Return the splits, and where the first of them comes from."""
    more = ", training sees neither the nodes of val and test nor their edges" if drawing.draw == "inductive" else ""
    if found.splits and split is None and not drawing.is_asked:
        return found.splits, Found(found.splits[0], frozenset(), "masks of the source" + more)
    one = find_splits(found.items, labels, split, drawing, found.roles.smiles)
    return (one.split,), replace(one, words=one.words + more)
