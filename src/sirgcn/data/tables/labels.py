"""The targets of a user's tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sirgcn.data.graphs import Level
from sirgcn.data.losses import Targets
from sirgcn.data.metrics import METRICS, metrics_for
from sirgcn.data.tables.columns import ColumnType, Frame, listed, sort_names
from sirgcn.data.tables.roles import known
from sirgcn.data.tables.structure import Structure
from sirgcn.data.tables.text import Bools, Objects
from sirgcn.data.validate import DataError, check_choice
from sirgcn.strict import expected_one_of, nearest

TARGET_NAMES = ("y", "label", "target", "class")
# If there are more different whole numbers than this, they are counts or amounts and not classes.
MOST_CLASSES = 20
# With more classes than that and fewer rows of each on average, nothing can be learned and tested.
FEWEST_ROWS = 2

TaskType = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class Items:
    """The tables of a task in the order of the structure: one row per node, one per edge and one per graph.

    Args:
        structure: the nodes and edges.
        graphs: the table of graphs, if there is one.
    """

    structure: Structure
    graphs: Frame | None

    def frame(self, level: Level, column: str) -> Frame:
        """Return the table of a level that holds a column.

        A column of graphs may also stand in the table of nodes, with the same value in all nodes of a graph.
        """
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
    """The targets, with the loss and the metric for them.

    Args:
        level: what the targets belong to.
        names: the names of their columns.
        y: the targets as in `Graphs`.
        classes: the names of the classes, in order.
        loss: a name of `LOSSES`.
        metric: a name of `METRICS`.
        inferred: what was inferred, in words.
        doubts: what is odd about the columns of classes, in words.
        trimmed: for each column, how many classes have white space around them, which is removed.
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
        """The number of a model's outputs per row."""
        return len(self.classes) or len(self.names)

    @property
    def labelled(self) -> Bools:
        """A mask of the rows that have a label."""
        missing = torch.isnan(self.y) if self.y.is_floating_point() else self.y < 0
        return ~(missing.all(1) if missing.dim() == 2 else missing).numpy()


def find_labels(
    items: Items, target: Sequence[str], level: Level | None, task: TaskType | None, metric: str | None
) -> Labels:
    """Return the targets. Their columns, level and type are what the caller says, or what names and values say."""
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
        level = inferred["level"] = _level_of(target, tables)
    frames = [items.frame(level, name) for name in target]
    for frame, name in zip(frames, target, strict=True):
        frame.find("target", name)
    if len(target) == 1:
        labels = _one_target(frames[0], target[0], level, task, metric)
    else:
        labels = _several_targets(frames, tuple(target), level, task, metric)
    y = _per_edge(labels.y, items.structure) if level == "edge" else labels.y
    return replace(labels, y=y, inferred={**inferred, **labels.inferred})


def read_labels(items: Items, level: Level, names: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Return the targets of new tables, as those of training were read: by the same columns and the same classes."""
    frames = [items.frame(level, name) for name in names]
    for frame, name in zip(frames, names, strict=True):
        frame.find("target", name)
    if classes:
        texts = frames[0].categories(names[0])
        found = codes_of(texts, classes)
        strange = np.array([text is not None for text in texts], dtype=np.bool_) & (found < 0)
        if strange.any():
            place = int(strange.argmax())
            raise frames[0].error(expected_one_of(texts[place], classes), names[0], place, texts[place])
        y = torch.from_numpy(found)
    else:
        y = torch.from_numpy(np.column_stack([_as_numbers(*pair) for pair in zip(frames, names, strict=True)])).float()
        y = y.squeeze(1) if len(names) == 1 else y
    return _per_edge(y, items.structure) if level == "edge" else y


def _as_numbers(frame: Frame, name: str) -> Any:
    column_type = frame.type_of(name)
    return frame.numbers(name, column_type if column_type in ("boolean", "time") else "numeric")


def _level_of(target: Sequence[str], tables: Mapping[Level, Frame | None]) -> Level:
    """Return the level of the one table that has all target columns."""
    columns = {level: list(table.columns) for level, table in tables.items() if table is not None}
    holding = [level for level, names in columns.items() if set(target) <= set(names)]
    if len(holding) != 1:
        raise DataError(_why_no_level(target, columns, holding), "target", value=list(target))
    return holding[0]


def _why_no_level(target: Sequence[str], columns: Mapping[Level, list[str]], holding: Sequence[Level]) -> str:
    if holding:
        return f"expected a column of one table, {' and '.join(holding)} tables have it: say level="
    known = [f"{listed(names)} (of the {level} table)" for level, names in columns.items() if names]
    names = [name for found in columns.values() for name in found]
    hint = nearest(target[0], names) if target else ""
    return f"expected a column of one table, got {', '.join(map(repr, target))}; there are {'; '.join(known)}{hint}"


def _per_edge(y: Tensor, structure: Structure) -> Tensor:
    """Return the targets of edges, from those of the rows of their table."""
    y = y[torch.from_numpy(structure.rows)]
    # The reverse that was added to an edge is not a second example.
    y[torch.from_numpy(structure.added)] = float("nan") if y.is_floating_point() else -1
    return y


def _usual_target(tables: Mapping[Level, Frame | None], level: Level | None) -> tuple[list[str], Level]:
    """Return the column that has one of the usual names of a target, and its level."""
    found = []
    for name in _levels_to_search(tables, level):
        table = tables[name]
        column = None if table is None else known(table, TARGET_NAMES)
        if column is not None:
            found.append((name, column))
    if not found or (level is None and len(found) > 1):
        usual = ", ".join(TARGET_NAMES)
        columns = listed(name for table in tables.values() if table is not None for name in table.columns)
        remedy = f"; name it: target= with one of {columns}"
        raise DataError(f"expected the target's column, or one of {usual}, got {len(found)} of them{remedy}", "target")
    where, column = found[0]
    return [column], level or where


def _levels_to_search(tables: Mapping[Level, Frame | None], level: Level | None) -> list[Level]:
    if level is None:
        return list(tables)
    # The target of a graph may stand in the table of nodes.
    return ["graph", "node"] if level == "graph" else [level]


def _one_target(frame: Frame, name: str, level: Level, task: TaskType | None, metric: str | None) -> Labels:
    column_type = frame.type_of(name)
    if column_type is None:
        raise frame.error("expected labels, got none; fill in the rows to learn from, or name another column", name)
    if column_type == "list":
        raise frame.error("expected one number or class in a row, got lists; several targets are several columns", name)
    inferred = {}
    if task is None:
        task, inferred["task"] = _infer_task(frame, name, column_type)
    if task == "classification":
        return _classes(frame, name, level, metric, inferred)
    return _numbers(torch.tensor(_as_numbers(frame, name), dtype=torch.float32), (name,), level, metric, inferred)


def _infer_task(frame: Frame, name: str, column_type: ColumnType) -> tuple[TaskType, str]:
    """Return the type of the task that a target's values suggest, and the reason in words."""
    if column_type == "boolean":
        return "classification", f"classification: {name!r} holds truth values"
    if column_type == "categorical":
        return "classification", f"classification: {name!r} holds names"
    numbers = np.unique(frame.numbers(name, column_type))
    numbers = numbers[~np.isnan(numbers)]
    if column_type == "numeric" and len(numbers) <= MOST_CLASSES and (numbers == np.floor(numbers)).all():
        return "classification", f"classification: {name!r} holds {len(numbers)} different whole numbers"
    return "regression", f"regression: {name!r} holds {len(numbers):,} different numbers"


def _classes(frame: Frame, name: str, level: Level, metric: str | None, inferred: dict[str, str]) -> Labels:
    texts = frame.categories(name)
    classes = sort_names({text for text in texts if text is not None})
    if len(classes) < 2:
        remedy = "a model needs rows of another class to learn from" if classes else "fill in the rows to learn from"
        raise frame.error(f"expected at least two classes, got {', '.join(classes) or 'none'}; {remedy}", name)
    _check_classes(frame, name, classes, int((texts != None).sum()))  # noqa: E711
    doubts, trimmed = frame.doubts(name), frame.trimmed(name)
    return Labels(
        level,
        (name,),
        torch.from_numpy(codes_of(texts, classes)),
        tuple(classes),
        "cross_entropy",
        _metric(metric, "two classes" if len(classes) == 2 else "classes"),
        inferred,
        {} if doubts is None else {name: doubts},
        {name: trimmed} if trimmed else {},
    )


def _check_classes(frame: Frame, name: str, classes: Sequence[str], rows: int) -> None:
    """Raise if there are more classes than the rows can teach."""
    if len(classes) > MOST_CLASSES and rows < FEWEST_ROWS * len(classes):
        got = f"got {len(classes):,} classes in {rows:,} rows"
        remedy = "is this an id or a text? name another target, or say task='regression' for numbers"
        raise frame.error(f"expected at least {FEWEST_ROWS} rows of a class on average, {got}; {remedy}", name)


def _numbers(y: Tensor, names: tuple[str, ...], level: Level, metric: str | None, inferred: dict[str, str]) -> Labels:
    metric = _metric(metric, "numbers")
    return Labels(level, names, y, (), METRICS[metric].loss or "l1", metric, inferred)


def _several_targets(
    frames: Sequence[Frame], names: tuple[str, ...], level: Level, task: TaskType | None, metric: str | None
) -> Labels:
    numbers = np.column_stack([frame.numbers(name) for frame, name in zip(frames, names, strict=True)])
    if np.isnan(numbers).all():
        raise frames[0].error("expected labels, got none", names[0])
    inferred = {}
    outside = ~np.isnan(numbers) & (numbers != 0) & (numbers != 1)
    if task is None:
        task, held = ("regression", "numbers") if outside.any() else ("classification", "0 and 1")
        inferred["task"] = f"{task}: {len(names)} columns of {held}"
    y = torch.from_numpy(numbers).float()
    if task == "regression":
        return _numbers(y, names, level, metric, inferred)
    if outside.any():
        row, column = np.argwhere(outside)[0].tolist()
        value = float(numbers[row, column])
        raise frames[column].error(f"expected 0 or 1 in several targets, got {value}", names[column], row, value)
    # Each target is a task with two classes of its own, so an accuracy over all of them would say little.
    fitting = [name for name in METRICS if METRICS[name].targets == "two classes"]
    return Labels(level, names, y, (), "binary_cross_entropy", _choose(metric, fitting), inferred)


def _metric(metric: str | None, targets: Targets) -> str:
    """Return the metric that the caller names, or the default one for such targets."""
    return _choose(metric, metrics_for(targets))


def _choose(metric: str | None, fitting: Sequence[str]) -> str:
    if metric is None:
        return fitting[0]
    check_choice("metric", metric, METRICS)
    if metric not in fitting:
        raise DataError(f"expected a metric for these targets ({', '.join(fitting)}), got {metric!r}", "metric")
    return metric


def codes_of(texts: Objects, classes: Sequence[str]) -> Any:
    """Return the index of each text among the classes, -1 for texts that are no class."""
    return pd.Index(np.array(classes, dtype=object)).get_indexer(pd.Index(texts)).astype(np.int64)
