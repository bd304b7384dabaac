"""Targets and splits of a user's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sirgcn.data.frames import Frame
from sirgcn.data.graphs import Level
from sirgcn.data.metrics import METRICS
from sirgcn.data.preprocess import sort_names
from sirgcn.data.roles import known
from sirgcn.data.structure import Structure
from sirgcn.data.task import PARTS, Split
from sirgcn.data.text import Bools, Objects
from sirgcn.data.validate import DataError

TARGET_NAMES = ("y", "label", "target", "class")
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Words of a split column, whatever their case; a row without a word is in no part."""

# Whole numbers of more values than this are counts or amounts, not classes.
MOST_CLASSES = 20

TaskKind = Literal["classification", "regression"]

OF_CLASSES = ("accuracy", "class_accuracy", "f1")
OF_TWO = ("roc_auc", "average_precision")
OF_NUMBERS = ("mae", "mse")


@dataclass(frozen=True, eq=False)
class Items:
    """The tables of a task, one row per node, edge and graph, in the order of the structure.

    Args:
        structure: nodes and edges.
        graphs: the table of graphs, where there is one.
    """

    structure: Structure
    graphs: Frame | None

    def frame(self, level: Level, column: str) -> Frame:
        """The table of a level that holds a column; of graphs, also the nodes' table if all of a graph agree."""
        structure = self.structure
        if level == "edge":
            return structure.edges
        if level == "graph" and self.graphs is not None and column in self.graphs.columns:
            return self.graphs
        nodes = structure.nodes
        if nodes is None:
            raise DataError(f"expected a table of {level}s with the column {column!r}, got none", level + "s")
        return nodes if level == "node" else self._per_graph(nodes, column)

    def _per_graph(self, nodes: Frame, column: str) -> Frame:
        pointer = self.structure.node_ptr
        if pointer is None:
            raise DataError("expected a column with the graph of each node, got none", "graph")
        texts = np.array([value or "" for value in nodes.categories(nodes.find("target", column))], dtype=object)
        other = texts != np.repeat(texts[pointer[:-1]], np.diff(pointer))
        if other.any():
            place = int(other.argmax())
            value = nodes.value(column, place)
            raise nodes.error(f"expected one value in all nodes of a graph, got {value!r}", column, place, value)
        return nodes.take(pointer[:-1])


@dataclass(frozen=True, eq=False)
class Labels:
    """Targets and what follows from them.

    Args:
        level: what they belong to.
        names: their columns.
        y: as `Graphs` has it.
        classes: names of the classes, in order.
        loss: of `LOSSES`.
        metric: of `METRICS`.
        inferred: what was inferred, in words.
        doubts: what is odd about the columns of classes, in words.
        trimmed: how many classes of a column have white space around them, which is not read.
    """

    level: Level
    names: tuple[str, ...]
    y: Tensor
    classes: tuple[str, ...]
    loss: str
    metric: str
    inferred: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """What a model gives per row."""
        return len(self.classes) or len(self.names)

    @property
    def labelled(self) -> Bools:
        """Which rows have a label."""
        missing = torch.isnan(self.y) if self.y.is_floating_point() else self.y < 0
        return ~(missing.all(1) if missing.dim() == 2 else missing).numpy()


def find_labels(
    items: Items, target: Sequence[str], level: Level | None, task: TaskKind | None, metric: str | None
) -> Labels:
    """The targets: their columns, level and kind as the caller says, or as names and values say."""
    tables: dict[Level, Frame | None] = {
        "graph": items.graphs,
        "node": items.structure.nodes,
        "edge": items.structure.edges,
    }
    inferred = {}
    if not target:
        target, level = _usual_target(tables, level)
        inferred["target"] = target[0]
    if level is None:
        holding = [name for name, table in tables.items() if table is not None and set(target) <= set(table.columns)]
        if len(holding) != 1:
            columns = {name: list(table.columns) for name, table in tables.items() if table is not None}
            got = f"{' and '.join(holding)} tables have it: say level=" if holding else f"got {columns}"
            raise DataError(f"expected a column of one table, {got}", "target", value=list(target))
        level = holding[0]
        inferred["level"] = level
    frames = [items.frame(level, name) for name in target]
    for frame, name in zip(frames, target, strict=True):
        frame.find("target", name)
    if len(target) == 1:
        labels = _one_target(frames[0], target[0], level, task, metric)
    else:
        labels = _several_targets(frames, tuple(target), level, task, metric)
    y = labels.y
    if level == "edge":
        y = y[torch.from_numpy(items.structure.rows)]
        # The added way of an edge is no second example.
        y[torch.from_numpy(items.structure.added)] = float("nan") if y.is_floating_point() else -1
    return replace(labels, y=y, inferred={**inferred, **labels.inferred})


def _usual_target(tables: Mapping[Level, Frame | None], level: Level | None) -> tuple[list[str], Level]:
    # The target of a graph may stand in the table of nodes.
    levels: list[Level] = list(tables) if level is None else ["graph", "node"] if level == "graph" else [level]
    found = [(name, known(table, TARGET_NAMES)) for name in levels if (table := tables[name]) is not None]
    names = [(name, column) for name, column in found if column is not None]
    if not names or (level is None and len(names) > 1):
        usual = ", ".join(TARGET_NAMES)
        raise DataError(f"expected the target's column, or one of {usual}, got {len(names)} of them", "target")
    ((where, column), *_) = names
    return [column], level or where


def _one_target(frame: Frame, name: str, level: Level, task: TaskKind | None, metric: str | None) -> Labels:
    kind = frame.kind(name)
    if kind is None:
        raise frame.error("expected labels, got none", name)
    if kind == "list":
        raise frame.error("expected one number or class in a row, got lists; several targets are several columns", name)
    inferred = {}
    if task is None:
        task, inferred["task"] = _infer_task(frame, name, kind)
    if task == "regression":
        numbers = frame.numbers(name, kind if kind in ("boolean", "time") else "numeric")
        y = torch.tensor(numbers, dtype=torch.float32)
        metric = _metric(metric, OF_NUMBERS)
        return Labels(level, (name,), y, (), "mse" if metric == "mse" else "l1", metric, inferred)
    texts = frame.categories(name)
    classes = sort_names({text for text in texts if text is not None})
    if len(classes) < 2:
        raise frame.error(f"expected at least two classes, got {', '.join(classes) or 'none'}", name)
    y = torch.from_numpy(codes_of(texts, classes))
    metric = _metric(metric, OF_CLASSES + OF_TWO if len(classes) == 2 else OF_CLASSES)
    doubts, trimmed = frame.doubts(name), frame.trimmed(name)
    return Labels(
        level,
        (name,),
        y,
        tuple(classes),
        "cross_entropy",
        metric,
        inferred,
        {} if doubts is None else {name: doubts},
        {name: trimmed} if trimmed else {},
    )


def _infer_task(frame: Frame, name: str, kind: str) -> tuple[TaskKind, str]:
    if kind in ("categorical", "boolean"):
        return "classification", f"classification: {name!r} holds {'truth values' if kind == 'boolean' else 'names'}"
    numbers = np.unique(frame.numbers(name, "time" if kind == "time" else "numeric"))
    numbers = numbers[~np.isnan(numbers)]
    if kind == "numeric" and len(numbers) <= MOST_CLASSES and (numbers == np.floor(numbers)).all():
        return "classification", f"classification: {name!r} holds {len(numbers)} different whole numbers"
    return "regression", f"regression: {name!r} holds {len(numbers):,} different numbers"


def _several_targets(
    frames: Sequence[Frame], names: tuple[str, ...], level: Level, task: TaskKind | None, metric: str | None
) -> Labels:
    numbers = np.column_stack([frame.numbers(name) for frame, name in zip(frames, names, strict=True)])
    if np.isnan(numbers).all():
        raise frames[0].error("expected labels, got none", names[0])
    inferred = {}
    outside = ~np.isnan(numbers) & (numbers != 0) & (numbers != 1)
    if task is None:
        task = "regression" if outside.any() else "classification"
        inferred["task"] = f"{task}: {len(names)} columns of {'numbers' if outside.any() else '0 and 1'}"
    y = torch.from_numpy(numbers).float()
    if task == "regression":
        metric = _metric(metric, OF_NUMBERS)
        return Labels(level, names, y, (), "mse" if metric == "mse" else "l1", metric, inferred)
    if outside.any():
        row, column = np.argwhere(outside)[0].tolist()
        value = float(numbers[row, column])
        raise frames[column].error(f"expected 0 or 1 in several targets, got {value}", names[column], row, value)
    return Labels(level, names, y, (), "binary_cross_entropy", _metric(metric, OF_TWO), inferred)


def _metric(metric: str | None, fitting: tuple[str, ...]) -> str:
    if metric is not None and metric not in fitting:
        hint = "" if metric in METRICS else f"; all are {', '.join(METRICS)}"
        raise DataError(f"expected a metric for these targets ({', '.join(fitting)}), got {metric!r}{hint}", "metric")
    return metric or fitting[0]


def codes_of(texts: Objects, classes: Sequence[str]) -> Any:
    """Each text's number among the classes, -1 for none."""
    return pd.Index(np.array(classes, dtype=object)).get_indexer(pd.Index(texts)).astype(np.int64)


def find_splits(
    items: Items, labels: Labels, split: str | None, seed: int, fractions: tuple[float, float, float]
) -> tuple[Split, str | None, str]:
    """The split of the column that the caller names, of a column `split`, or drawn: each class alike.

    With the column, and in words what was done.
    """
    over = _over(items, labels)
    labelled = _labelled(items, labels, over)
    if not labelled.any():
        raise DataError("expected labels, got none", labels.names[0])
    frame = _split_frame(items, over, split)
    if frame is None:
        strata = torch.from_numpy(labelled.astype(np.int64) - 1)
        if len(labelled) == len(labels.y) and labels.classes:
            strata = labels.y
        stratified = "each class alike" if strata is labels.y else "at random"
        shares = " / ".join(f"{part:g}" for part in fractions)
        return Split.draw(len(labelled), seed, fractions, strata), None, f"drawn {stratified}, seed {seed}, {shares}"
    name = split or known(frame, ("split",))
    assert name is not None
    words = np.array([(word or "").lower() for word in frame.categories(name)], dtype=object)
    parts = np.array([SPLIT_NAMES.get(word, word) for word in words], dtype=object)
    strange = (parts != "") & ~np.isin(parts, PARTS)
    if strange.any():
        place = int(strange.argmax())
        value = frame.value(name, place)
        known_words = ", ".join(SPLIT_NAMES)
        raise frame.error(f"expected one of {known_words}, or none, got {value!r}", name, place, value)
    if over == "edge":
        parts = parts[items.structure.rows]
        parts[items.structure.added] = ""
    masks = [(parts == part) & labelled for part in PARTS]
    for part, mask in zip(PARTS, masks, strict=True):
        if not mask.any() and (part == "train" or (parts == part).any()):
            raise frame.error(f"expected labelled rows of {part}, got none", name, value=part)
    found = Split.from_masks(*(torch.from_numpy(mask) for mask in masks))
    return found, name, f"column {name!r}"


def _over(items: Items, labels: Labels) -> Level:
    """What a split divides, as `Task.over` has it."""
    ids = items.structure.graph_ids
    return "graph" if labels.level == "graph" or (ids is not None and len(ids) > 1) else labels.level


def _labelled(items: Items, labels: Labels, over: Level) -> Bools:
    if over == labels.level:
        return labels.labelled
    pointer = items.structure.node_ptr if labels.level == "node" else items.structure.edge_ptr
    assert pointer is not None
    total = np.append(0, labels.labelled.cumsum())
    found: Bools = total[pointer[1:]] > total[pointer[:-1]]
    return found


def _split_frame(items: Items, over: Level, split: str | None) -> Frame | None:
    structure = items.structure
    if over == "edge":
        tables = [structure.edges]
    elif over == "node":
        tables = [] if structure.nodes is None else [structure.nodes]
    else:
        tables = [table for table in (items.graphs, structure.nodes) if table is not None]
    for table in tables:
        name = known(table, ("split",)) if split is None else split if split in table.columns else None
        if name is not None:
            return items.frame(over, name)
    if split is not None:
        columns = ", ".join(name for table in tables for name in table.columns)
        raise DataError(f"expected a column of the {over}s ({columns}), got {split!r}", "split", value=split)
    return None


def training_rows(items: Items, labels: Labels, split: Split) -> tuple[Bools, Bools]:
    """Which rows of nodes and of edges belong to training, or touch what does: what preprocessing may learn from."""
    structure, over = items.structure, _over(items, labels)
    train = split.train.numpy()
    nodes = np.zeros(len(structure.ids), dtype=np.bool_)
    if over == "graph":
        assert structure.graph_ids is not None
        assert structure.node_ptr is not None
        graphs = np.isin(np.arange(len(structure.graph_ids)), train)
        nodes = np.repeat(graphs, np.diff(structure.node_ptr))
    elif over == "node":
        nodes[train] = True
    rows = np.zeros(len(structure.edges), dtype=np.bool_)
    if over == "edge":
        nodes[structure.edge_index[:, train]] = True
        rows[structure.rows[train]] = True
    else:
        rows[structure.rows[nodes[structure.edge_index].any(axis=0)]] = True
    return nodes, rows
