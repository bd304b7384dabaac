"""The description of a task: sizes, degrees, labels, homophily, missing values, splits, and warnings of leaks."""

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.homophily import Homophily, homophily
from sirgcn.data.leaks import find_leaks
from sirgcn.data.losses import LOSSES
from sirgcn.data.metrics import METRICS
from sirgcn.data.schema import InputColumn, TaskLike
from sirgcn.data.splits import PARTS

# If one class has at least this share, a model that always predicts it has an accuracy that is hard to beat.
UNBALANCED = 0.9

# A class needs at least this many rows to be in all three parts.
FEWEST = 5

# With fewer labels than this, all classes are small, and the user knows.
MOST_TOY = 50

# A description lists this many columns or classes, and counts the others.
MOST_SHOWN = 20


@dataclass(frozen=True)
class Description:
    """The description of a task. `str` returns it as text, `to_dict` as values for JSON.

    Args:
        name: the name of the task.
        version: which data these are exactly.
        task: the level, the loss and the metric.
        schema: the widths of the inputs and outputs.
        columns: what each column of a user's tables became.
        inferred: what a loader inferred, in words.
        left_out: the columns that are not used, with the reason.
        sizes: the numbers of graphs, nodes and edges; for several graphs also the nodes per graph.
        degrees: the minimum, median, mean and maximum of the edges into a node, and the nodes without any edge.
        edges: self-loops, repeated edges, whether every edge has its reverse, and rows that were dropped.
        labels: the rows of each class, or minimum, mean, deviation and maximum of numbers; and rows without a label.
        homophily: how far labels agree along edges, if nodes have classes.
        missing: the number of missing values of each column.
        trimmed: for each column, the number of values with white space around them, which is removed.
        splits: the rows of each part.
        warnings: what the user should check.

    >>> from sirgcn.data import hetero_edge_count_task
    >>> print(str(hetero_edge_count_task(c=2, num_graphs=10).describe()).splitlines()[0])
    HeteroEdgeCount(2) (generated, seed 0)
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
        """Return the description in plain Python values, with None for NaN and infinities."""
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
    """Return sizes, degrees, labels, homophily, missing values, splits and warnings of any task."""
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


def in_short(task: TaskLike) -> str:
    """Return what a task is in four lines."""
    graphs, schema, split = task.graphs, task.schema, task.splits[0]
    many = f"{graphs.num_graphs:,} graphs, " if graphs.num_graphs > 1 else ""
    what = "numbers" if graphs.y.is_floating_point() else f"{schema.outputs} classes"
    widths = {
        "features of nodes": schema.features,
        "columns of categories of nodes": len(schema.vocabularies),
        "features of edges": schema.edge_features,
        "columns of categories of edges": len(schema.edge_vocabularies),
        "features of graphs": schema.graph_features,
    }
    inputs = ", ".join(f"{width:,} {name}" for name, width in widths.items() if width)
    parts = " / ".join(f"{len(getattr(split, part)):,}" for part in PARTS)
    more = f" (the first of {len(task.splits)} splits)" if len(task.splits) > 1 else ""
    return (
        f"Task({task.name!r}: {many}{graphs.num_nodes:,} nodes, {graphs.num_edges:,} edges,\n"
        f"     {what} of {task.level}s, {task.loss}, {task.metric},\n"
        f"     {inputs},\n"
        f"     train / val / test: {parts} {task.over}{more})"
    )


def _classes(task: TaskLike) -> Tensor | None:
    """Return the targets as classes, -1 without a label; None if targets are numbers, or if a row has several."""
    y = task.graphs.y
    if not y.is_floating_point():
        return y
    if LOSSES[task.loss].targets == "two classes" and y.dim() == 1:
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
        remedy = "are ids written alike in both tables?"
        found.append(f"{degrees['isolated']:,.0f} of {graphs.num_nodes:,} nodes have no edge: {remedy}")
    if edges["dropped rows"]:
        found.append(f"{edges['dropped rows']:,} rows were dropped")
    for column, count in details.get("unseen", {}).items():
        found.append(f"column {column!r} has {count:,} values outside training that training does not have")
    found += [f"column {column!r}: {doubts}" for column, doubts in details.get("doubts", {}).items()]
    found += _look_alikes(task)
    found += _constants(task)
    if classes is not None:
        found += _class_warnings(task, classes, labels)
    return found + find_leaks(task, classes)


def _look_alikes(task: TaskLike) -> list[str]:
    """Warn of categories that look the same: they differ by white space, or by how Unicode writes a letter."""
    columns = {"the target": task.classes}
    for table, found in task.details.get("columns", {}).items():
        of = "edge " if table == "edge" else ""
        columns |= {f"column {of + column.name!r}": column.categories for column in found}
    return [
        f"{column} has categories that look alike: {one!a} and {other!a}"
        for column, names in columns.items()
        for one, other in _same_looks(names)
    ]


def _same_looks(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    shown: dict[str, str] = {}
    for name in names:
        first = shown.setdefault(" ".join(unicodedata.normalize("NFC", name).split()), name)
        if first != name:
            yield first, name


def _class_warnings(task: TaskLike, classes: Tensor, labels: Mapping[str, Any]) -> list[str]:
    counts = {name: count for name, count in labels.items() if name != "no label"}
    found = _majority_warning(task, counts)
    if task.over == "graphs" and task.level != "graph":
        return found
    found += _tiny_classes(counts)
    names = list(counts)
    labelled = set(classes[classes >= 0].tolist())
    for number, split in enumerate(task.splits):
        absent = [names[c] for c in sorted(labelled - set(classes[split.train].tolist()))]
        if absent:
            where = f" of split {number}" if len(task.splits) > 1 else ""
            found.append(f"training{where} has no {', '.join(map(repr, absent[:MOST_SHOWN]))}")
    return found


def _constants(task: TaskLike) -> list[str]:
    """Warn of columns of a user's tables that have the same value in all rows."""
    tables = {"node": task.graphs.x, "edge": task.graphs.edge_attr, "graph": task.graphs.graph_attr}
    found = []
    for table, columns in task.details.get("columns", {}).items():
        inputs = tables[table]
        if inputs is None or len(inputs) < 2:
            continue
        is_same = (inputs == inputs[:1]).all(0)
        same = [column.name for column in columns if bool(is_same[column.first : column.first + column.width].all())]
        if same:
            names = ", ".join(map(repr, same[:MOST_SHOWN])) + (", ..." if len(same) > MOST_SHOWN else "")
            found.append(f"of the {table}s, {names} has one value in all rows and says nothing: leave it out")
    return found


def _tiny_classes(counts: Mapping[str, int]) -> list[str]:
    """Warn of classes with too few rows for a training, a validation and a test part."""
    tiny = [f"{name!r} ({count:,})" for name, count in counts.items() if 0 < count < FEWEST]
    if sum(counts.values()) < MOST_TOY:
        return []
    shown = ", ".join(tiny[:MOST_SHOWN]) + (", ..." if len(tiny) > MOST_SHOWN else "")
    return (
        []
        if not tiny
        else [
            f"classes with fewer than {FEWEST} rows cannot be learned and tested: {shown}; join them or leave them out"
        ]
    )


def _majority_warning(task: TaskLike, counts: Mapping[str, int]) -> list[str]:
    metric, total = METRICS[task.metric], sum(counts.values())
    largest = max(counts, key=lambda name: counts[name])
    if not metric.has_majority_bias or not total or counts[largest] < UNBALANCED * total:
        return []
    share = counts[largest] / total
    return [f"{share:.1%} of the labels are {largest!r}: {metric.title} says little, roc_auc or f1 say more"]


def _lines(title: str, block: Mapping[str, Any]) -> list[str]:
    if not block:
        return []
    shown = list(block.items())
    more = [f"{len(shown) - MOST_SHOWN:,} more"] if len(shown) > MOST_SHOWN else []
    parts = [f"{name}: {_show(value)}" for name, value in shown[:MOST_SHOWN]] + more
    # Each long text gets a line of its own.
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
