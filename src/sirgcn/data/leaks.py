"""Signs that a task is easier than it should be: a column that reveals the target, or the same item in two parts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import InputColumn, TaskLike

Floats = NDArray[np.float64]

# With fewer labels, a column may fit them by chance.
FEWEST = 20

# A column is tested on this many rows first.
SAMPLE = 20_000

# Values that repeat this often on average are categories rather than measurements.
REPEATED = 4

# A column rises or falls with a target if at least this share of the values of both are different.
MOSTLY = 0.9

# A column with a larger correlation to the target reveals it.
SAME = 0.9999


def find_leaks(task: TaskLike, labels: Tensor | None) -> list[str]:
    """Return warnings in words. `labels` are the classes (int64, -1: no label), or None if targets are numbers."""
    found = []
    rows, y = _labelled(task, labels)
    if len(rows) >= FEWEST:
        for name, values in _columns(task):
            if _gives_away(values, rows, y, labels is not None):
                found.append(f"column {name} determines the target: is it known before the target is?")
            if task.level != "graph" and _counts_up(values):
                found.append(f"column {name} counts the rows: an id is no feature, name the others")
    return found + _twins(task)


def _labelled(task: TaskLike, labels: Tensor | None) -> tuple[Any, Any]:
    y = task.graphs.y if labels is None else labels
    if y.dim() == 2:
        return np.empty(0, np.int64), y.numpy()
    known = ~torch.isnan(y) if labels is None else y >= 0
    return known.nonzero().squeeze(1).numpy(), y.double().numpy()


def _columns(task: TaskLike) -> Iterator[tuple[str, Floats]]:
    """Yield the inputs at the level of the targets, by name.

    Categories are given by their numbers. The input of a graph is the mean over its nodes.
    """
    if task.graphs.graph_attr is not None:
        of_graphs = task.details.get("columns", {}).get("graph", ())
        yield from _named(of_graphs, task.graphs.graph_attr, "graph_attr")
    inputs = _inputs(task)
    if inputs is None:
        return
    table = "edge" if task.level == "edge" else "node"
    columns: Sequence[InputColumn] = task.details.get("columns", {}).get(table, ())
    yield from _named(columns, inputs, "edge_attr" if task.level == "edge" else "x")


def _named(columns: Sequence[InputColumn], inputs: Tensor, label: str) -> Iterator[tuple[str, Floats]]:
    if columns:
        yield from _table_columns(columns, inputs)
        return
    for place in range(inputs.size(1)):
        yield f"{label}[:, {place}]", inputs[:, place].double().numpy()


def _inputs(task: TaskLike) -> Tensor | None:
    """Return the inputs of the items with targets; None if there are none, or if nodes of graphs have categories."""
    graphs = task.graphs
    if task.level == "edge":
        return graphs.edge_attr
    if task.level == "node":
        return graphs.x
    return _means(graphs, graphs.x) if graphs.x.is_floating_point() else None


def _table_columns(columns: Sequence[InputColumn], inputs: Tensor) -> Iterator[tuple[str, Floats]]:
    for column in columns:
        part = inputs[:, column.first : column.first + column.width].double()
        if not column.values:
            yield repr(column.name), part.argmax(1).double().numpy()
        for place, name in enumerate(column.values):
            yield name, part[:, place].numpy()


def _means(graphs: Graphs, x: Tensor) -> Tensor:
    if graphs.node_ptr is None:
        return x.mean(0, keepdim=True)
    size = graphs.node_ptr.diff()
    total = torch.cat([x.new_zeros(1, x.size(1)), x.double().cumsum(0)])
    return (total[graphs.node_ptr[1:]] - total[graphs.node_ptr[:-1]]) / size.clamp(min=1)[:, None]


def _gives_away(values: Floats, rows: Any, y: Any, classes: bool) -> bool:
    sample = rows[:: max(1, len(rows) // SAMPLE)]
    test = _separates if classes else _follows
    return test(values[sample], y[sample]) and test(values[rows], y[rows])


def _separates(values: Floats, y: Any) -> bool:
    """Return whether a column separates the classes.

    That is: equal values have equal classes, and either values repeat, or each class is an interval of values.
    """
    order = np.argsort(values, kind="stable")
    values, y = values[order], y[order]
    changes = y[1:] != y[:-1]
    same = values[1:] == values[:-1]
    count = len(np.unique(y))
    if count < 2 or bool((changes & same).any()):
        return False
    return int((~same).sum()) + 1 <= len(values) / REPEATED or int(changes.sum()) + 1 == count


def _follows(values: Floats, y: Any) -> bool:
    """Return whether a column is a linear function of the target, or rises or falls with it."""
    if _is_linear(values, y):
        return True
    different = min(len(np.unique(values)), len(np.unique(y)))
    # Few different values rise with a target by chance.
    if different < MOSTLY * len(values):
        return False
    one, other = (np.asarray(pd.Series(numbers).rank(), dtype=np.float64) for numbers in (values, y))
    return _is_linear(one, other)


def _is_linear(values: Floats, y: Any) -> bool:
    spread = values.std() * y.std()
    if spread == 0:
        return False
    return bool(abs(((values - values.mean()) * (y - y.mean())).mean() / spread) > SAME)


def _counts_up(values: Floats) -> bool:
    """Return whether the sorted values are all different and evenly spaced."""
    if len(values) < FEWEST:
        return False
    ordered = np.sort(values)
    even = np.linspace(ordered[0], ordered[-1], len(ordered))
    reach = ordered[-1] - ordered[0]
    return bool(reach > 0 and np.abs(ordered - even).max() < 0.1 * reach / len(ordered))


def _twins(task: TaskLike) -> list[str]:
    """Warn of validation and test items that equal a training item."""
    marks, what = _marks(task)
    found = []
    for number, split in enumerate(task.splits):
        where = f" of split {number}" if len(task.splits) > 1 else ""
        for part, items in (("val", split.val), ("test", split.test)):
            count = int(torch.isin(marks[items], marks[split.train]).sum())
            if count:
                found.append(f"{count:,} {task.over} of {part}{where} {what}")
    return found


def _marks(task: TaskLike) -> tuple[Tensor, str]:
    """Return a number for each item of a split, and in words what items with equal numbers have in common."""
    if task.over == "graphs":
        return _graph_marks(task.graphs), "look like a training graph (same features, same neighbourhoods)"
    if task.over == "nodes":
        return _node_marks(task.graphs), "have the features and the neighbours of a training node"
    source, target = task.graphs.edge_index
    low, high = torch.minimum(source, target), torch.maximum(source, target)
    return low * task.graphs.num_nodes + high, "join the nodes of a training edge"


def _node_marks(graphs: Graphs) -> Tensor:
    """Return a number for each node. Nodes with equal features, equal sources and equal targets have equal numbers."""
    mark = _row_marks(graphs.x)
    own = _mix(torch.arange(graphs.num_nodes))
    source, target = graphs.edge_index
    heard = torch.zeros_like(own).index_add_(0, target, own[source])
    told = torch.zeros_like(own).index_add_(0, source, own[target])
    return _mix(_mix(_mix(mark) + heard) + told)


def _graph_marks(graphs: Graphs) -> Tensor:
    """Return a number for each graph, equal for graphs that two rounds of 1-WL with all features do not tell apart."""
    mark = _row_marks(graphs.x)
    source, target = graphs.edge_index
    edge = torch.zeros(graphs.num_edges, dtype=torch.int64)
    if graphs.edge_attr is not None:
        edge = _row_marks(graphs.edge_attr)
    for _ in range(2):
        heard = torch.zeros_like(mark).index_add_(0, target, _mix(mark[source] + edge))
        # The factor 3 tells a node's own number from those of its neighbours.
        mark = _mix(3 * _mix(mark) + heard)
    if graphs.node_ptr is None:
        return mark.sum().reshape(1)
    total = torch.cat([mark.new_zeros(1), mark.cumsum(0)])
    found = _mix(total[graphs.node_ptr[1:]] - total[graphs.node_ptr[:-1]])
    return found if graphs.graph_attr is None else _mix(found + _row_marks(graphs.graph_attr))


def _row_marks(x: Tensor) -> Tensor:
    """Return a number for each row: a random linear form of its bits, modulo 2^64."""
    if x.is_floating_point():
        # 0 and -0 are equal but have different bits.
        x = (x + 0.0).contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int64)
    weights = _mix(torch.arange(1, x.size(1) + 1)) | 1
    mark = torch.zeros(len(x), dtype=torch.int64)
    for place, weight in enumerate(weights):
        mark += x[:, place].long() * weight
    return _mix(mark)


def _mix(mark: Tensor) -> Tensor:
    """Return the finaliser of SplitMix64, which maps near numbers to distant ones."""
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        mark = (mark ^ ((mark >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return mark ^ ((mark >> 31) & ((1 << 33) - 1))
