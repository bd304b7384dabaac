"""Targets and splits of a user's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.metrics import METRICS
from sirgcn.data.tables.columns import Frame, sort_names
from sirgcn.data.tables.roles import known
from sirgcn.data.tables.structure import Structure
from sirgcn.data.tables.text import Bools, Objects
from sirgcn.data.validate import DataError

TARGET_NAMES = ("y", "label", "target", "class")
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
