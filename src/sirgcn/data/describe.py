"""What a task's data are: sizes, degrees, labels, homophily, missing values, splits, and warnings of leaks."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.homophily import Homophily, homophily
from sirgcn.data.leaks import find_leaks
from sirgcn.data.schema import InputColumn, TaskLike
from sirgcn.data.splits import PARTS

# A class with so large a share makes the accuracy of always naming it hard to beat.
UNBALANCED = 0.9

# A description names so many columns or classes, and counts the others.
MOST_SHOWN = 20


@dataclass(frozen=True)
class Description:
    """What `describe` finds; `str` gives it as text, `to_dict` as JSON has it.

    Args:
        name: of the task.
        version: exactly which data these are.
        task: level, loss, metric.
        schema: the inputs' and outputs' widths.
        columns: what a user's columns became.
        inferred: what a loader inferred, in words.
        left_out: columns that are not used, and why.
        sizes: graphs, nodes, edges; nodes of a graph where there are several.
        degrees: of the edges into a node: min, median, mean, max; and how many nodes have no edge at all.
        edges: self-loops, repeated edges, whether all are there both ways and equally often, rows that were dropped.
        labels: rows of each class, or min, mean, deviation and max of numbers; rows without a label.
        homophily: label agreement along edges, of classes of nodes.
        missing: missing values by column.
        trimmed: values by column with white space around them, which is not part of a category.
        splits: rows of each part.
        warnings: what to look at.
    """

    name: str
    version: str
    task: dict[str, str]
    schema: dict[str, Any]
    columns: dict[str, str]
    inferred: dict[str, str]
    left_out: dict[str, str]
    sizes: dict[str, int | float]
    degrees: dict[str, float]
    edges: dict[str, int | bool]
    labels: dict[str, Any]
    homophily: Homophily | None
    missing: dict[str, int]
    trimmed: dict[str, int]
    splits: tuple[dict[str, int], ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain Python values, None for what is not a number."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        blocks: list[tuple[str, Mapping[str, Any]]] = [
            ("task", self.task),
            ("inferred", self.inferred),
            ("sizes", self.sizes),
            ("degrees", self.degrees),
            ("edges", self.edges),
            ("labels", self.labels),
            ("homophily", {} if self.homophily is None else asdict(self.homophily)),
            ("columns", self.columns),
            ("left out", self.left_out),
            ("missing", self.missing),
            ("white space left out", self.trimmed),
            ("schema", {name: value for name, value in self.schema.items() if value}),
        ]
        lines = [f"{self.name} ({self.version})" if self.version else self.name]
        lines += [line for title, block in blocks for line in _lines(title, block)]
        more = f" (the first of {len(self.splits)})" if len(self.splits) > 1 else ""
        lines += _lines(f"split{more}", self.splits[0])
        lines += [f"WARNING: {text}" for text in self.warnings]
        return "\n".join(lines)


def describe(task: TaskLike) -> Description:
    """Sizes, degrees, labels, homophily, missing values, splits and warnings of any task."""
    graphs, details = task.graphs, task.details
    classes = _classes(task)
    edges = _edges(task)
    degrees = _degrees(task)
    labels = _labels(task, classes)
    return Description(
        name=task.name,
        version=task.version,
        task={"level": task.level, "loss": task.loss, "metric": task.metric},
        schema=asdict(task.schema),
        columns=_columns(task),
        inferred=dict(details.get("inferred", {})),
        left_out=dict(details.get("left_out", {})),
        sizes=_sizes(task),
        degrees=degrees,
        edges=edges,
        labels=labels,
        homophily=homophily(graphs.edge_index, classes) if task.level == "node" and classes is not None else None,
        missing=dict(details.get("missing", {})),
        trimmed=dict(details.get("trimmed", {})),
        splits=tuple({part: len(getattr(split, part)) for part in PARTS} for split in task.splits),
        warnings=tuple(_warnings(task, classes, labels, edges, degrees)),
    )


def _classes(task: TaskLike) -> Tensor | None:
    """The targets as classes, -1 where there is none; None where they are numbers or several."""
    y = task.graphs.y
    if not y.is_floating_point():
        return y
    if task.loss == "binary_cross_entropy" and y.dim() == 1:
        return torch.where(torch.isnan(y), -1.0, y).long()
    return None


def _sizes(task: TaskLike) -> dict[str, int | float]:
    graphs = task.graphs
    sizes: dict[str, int | float] = {"graphs": len(graphs), "nodes": graphs.num_nodes, "edges": graphs.num_edges}
    if graphs.node_ptr is not None and len(graphs) > 1:
        size = graphs.node_ptr.diff().numpy()
        sizes |= {f"nodes per graph, {name}": value for name, value in _spread(size).items()}
    return sizes


def _degrees(task: TaskLike) -> dict[str, float]:
    graphs = task.graphs
    source, target = graphs.edge_index
    into = torch.bincount(target, minlength=graphs.num_nodes)
    out = torch.bincount(source, minlength=graphs.num_nodes)
    return {**_spread(into.numpy()), "isolated": int((into + out == 0).sum())}


def _spread(values: Any) -> dict[str, float]:
    found = {"min": values.min(), "median": np.median(values), "mean": values.mean(), "max": values.max()}
    return {name: float(value) for name, value in found.items()}


def _edges(task: TaskLike) -> dict[str, int | bool]:
    graphs = task.graphs
    source, target = graphs.edge_index.numpy()
    forth, back = (np.sort(a * graphs.num_nodes + b) for a, b in ((source, target), (target, source)))
    return {
        "self-loops": int((source == target).sum()),
        "repeated": int((forth[1:] == forth[:-1]).sum()),
        "both ways": bool((forth == back).all()),
        "dropped rows": int(task.details.get("dropped", 0)),
    }


def _labels(task: TaskLike, classes: Tensor | None) -> dict[str, Any]:
    y = task.graphs.y
    if classes is not None:
        count = max(task.schema.outputs, 2)
        names = task.classes or tuple(map(str, range(count)))
        counts = torch.bincount(classes[classes >= 0], minlength=count).tolist()
        return {**dict(zip(names, counts, strict=False)), "no label": int((classes < 0).sum())}
    missing = torch.isnan(y)
    known = y[~missing].double().numpy()
    rows = missing if y.dim() == 1 else missing.all(1)
    found = {"min": known.min(), "mean": known.mean(), "deviation": known.std(), "max": known.max()}
    return {**{name: float(value) for name, value in found.items()}, "no label": int(rows.sum())}


def _columns(task: TaskLike) -> dict[str, str]:
    tables: Mapping[str, Sequence[InputColumn]] = task.details.get("columns", {})
    return {f"{table} {column.name!r}": column.summary for table, columns in tables.items() for column in columns}


def _warnings(
    task: TaskLike,
    classes: Tensor | None,
    labels: Mapping[str, Any],
    edges: Mapping[str, int | bool],
    degrees: Mapping[str, float],
) -> list[str]:
    graphs, details = task.graphs, task.details
    found = []
    if graphs.num_edges == 0:
        found.append("there is no edge")
    elif degrees["isolated"] > graphs.num_nodes / 2:
        found.append(f"{degrees['isolated']:,.0f} of {graphs.num_nodes:,} nodes have no edge")
    if edges["dropped rows"]:
        found.append(f"{edges['dropped rows']:,} rows were dropped")
    for column, count in details.get("unseen", {}).items():
        found.append(f"column {column!r} has {count:,} values outside training that training does not have")
    found += [f"column {column!r}: {doubts}" for column, doubts in details.get("doubts", {}).items()]
    found += _look_alikes(task)
    if classes is not None:
        found += _class_warnings(task, classes, labels)
    return found + find_leaks(task, classes)


def _look_alikes(task: TaskLike) -> list[str]:
    """Categories that a reader would take for one: they differ by white space, or by how Unicode writes a letter."""
    columns = {"the target": task.classes}
    for table, found_columns in task.details.get("columns", {}).items():
        of = "edge " if table == "edge" else ""
        columns |= {f"column {of + column.name!r}": column.categories for column in found_columns}
    found = []
    for column, names in columns.items():
        shown: dict[str, str] = {}
        for name in names:
            other = shown.setdefault(" ".join(unicodedata.normalize("NFC", name).split()), name)
            if other != name:
                found.append(f"{column} has categories that look alike: {other!a} and {name!a}")
    return found


def _class_warnings(task: TaskLike, classes: Tensor, labels: Mapping[str, Any]) -> list[str]:
    found = []
    counts = {name: count for name, count in labels.items() if name != "no label"}
    total = sum(counts.values())
    largest = max(counts, key=lambda name: counts[name])
    if total and counts[largest] >= UNBALANCED * total and task.metric == "accuracy":
        share = counts[largest] / total
        found.append(f"{share:.1%} of the labels are {largest!r}: accuracy says little, roc_auc or f1 say more")
    if task.over == "graphs" and task.level != "graph":
        return found
    names = list(counts)
    for number, split in enumerate(task.splits):
        there = set(classes[split.train].tolist())
        absent = [names[c] for c in sorted(set(classes.tolist()) - there) if c >= 0]
        if absent:
            where = f" of split {number}" if len(task.splits) > 1 else ""
            found.append(f"training{where} has no {', '.join(map(repr, absent[:MOST_SHOWN]))}")
    return found


def _lines(title: str, block: Mapping[str, Any]) -> list[str]:
    if not block:
        return []
    shown = list(block.items())
    more = [f"{len(shown) - MOST_SHOWN:,} more"] if len(shown) > MOST_SHOWN else []
    parts = [f"{name}: {_show(value)}" for name, value in shown[:MOST_SHOWN]] + more
    # Long texts each on a line of their own.
    if title in ("inferred", "columns", "left out"):
        return [f"{title}:", *(f"  {part}" for part in parts)]
    return [f"{title}: {', '.join(parts)}"]


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
