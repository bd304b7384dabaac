"""Error slices: how well a model does on parts of the rows, so that a weakness shows that the mean hides."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.bootstrap import draw_weights, interval
from sirgcn.model.problem import Problem

FEWEST = 5
"""A part of fewer rows is not shown: its value would say nothing."""

_DRAWS = 200
_MOST_CLASSES = 30
_FARTHEST = 4  # edges to the nearest known label; farther rows are one slice
_UNREACHED = 1 << 30

Slice = tuple[str, str, Tensor]
"""What rows are cut by, the name of a slice, and which rows are in it, bool `[rows]`."""


def slices_of(
    problem: Problem, outputs: Tensor, task: Task, rows: Tensor, *, split: int = 0, seed: int = 0
) -> list[dict[str, Any]]:
    """The share of right rows, or the mean absolute error, on slices of the rows, with bootstrap intervals.

    Slices are by class, by degree (the size, of graphs), by the share of neighbours of the same class, by the distance
    to the nearest training label, and by missing values: each where the task has it.

    Args:
        problem: what is predicted.
        outputs: logits or numbers `[rows, outputs]`.
        task: the data.
        rows: the places of the rows in the targets.
        split: the split whose training labels are the known ones.
        seed: the seed of the bootstrap.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=40)
    >>> found = slices_of(Problem.of(task), torch.zeros(40, 1), task, torch.arange(40))
    >>> found[0]["by"], found[0]["value_is"]
    ('nodes of the graph', 'mean absolute error')
    """
    value, title = _value_of(problem, outputs, task.graphs.y[rows])
    found = []
    for by, name, inside in _slices(problem, task, rows, split):
        own = value[inside & ~torch.isnan(value)]
        if len(own) < FEWEST:
            continue
        means = [weights @ own / len(own) for weights in draw_weights(len(own), _DRAWS, seed)]
        low, high = interval(torch.cat(means))
        found.append(
            {
                "by": by,
                "name": name,
                "rows": len(own),
                "value": float(own.mean()),
                "low": low,
                "high": high,
                "value_is": title,
            }
        )
    return found


def _value_of(problem: Problem, outputs: Tensor, target: Tensor) -> tuple[Tensor, str]:
    """A value for every row whose mean is shown, and its title."""
    if problem.sort == "classes":
        return (outputs.argmax(1) == target).double(), "accuracy"
    y = target.double().reshape(len(target), -1)
    if problem.sort == "labels":
        right = ((outputs > 0) == (y == 1)).double().masked_fill(torch.isnan(y), torch.nan)
        return right.nanmean(1), "accuracy"
    return (outputs.double() - y).abs().nanmean(1), "mean absolute error"


def _slices(problem: Problem, task: Task, rows: Tensor, split: int) -> list[Slice]:
    cuts: list[Callable[[], Sequence[Slice]]] = [
        lambda: _by_class(problem, task, rows),
        lambda: _by_size(task, rows),
        lambda: _by_neighbours(problem, task, rows),
        lambda: _by_distance(task, rows, split),
        lambda: _by_missing(task, rows),
    ]
    return [found for cut in cuts for found in cut()]


def _by_class(problem: Problem, task: Task, rows: Tensor) -> list[Slice]:
    y = task.graphs.y[rows]
    if problem.sort == "numbers" or y.dim() == 2 or len(problem.classes) > _MOST_CLASSES:
        return []
    names = problem.classes or ("0", "1")
    return [("class", name, y == place) for place, name in enumerate(names)]


def _by_size(task: Task, rows: Tensor) -> list[Slice]:
    graphs = task.graphs
    if task.level == "graph":
        return _by_quantiles("nodes of the graph", graphs.pointers()[0].diff()[rows])
    degree = torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes)
    if task.level == "node":
        return _by_quantiles("neighbours of the node", degree[rows])
    ends = degree[graphs.edge_index[:, rows]]
    return _by_quantiles("neighbours of the end with fewer", ends.min(0).values)


def _by_quantiles(by: str, values: Tensor) -> list[Slice]:
    """Four slices of about as many rows each, fewer where values repeat."""
    edges = torch.quantile(values[:1_000_000].double(), torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).floor()
    ends = [*edges.unique().long().tolist(), int(values.max())]
    found, low = [], int(values.min())
    for high in sorted(set(ends)):
        if high >= low:
            name = str(low) if low == high else f"{low:,} to {high:,}"
            found.append((by, name, (values >= low) & (values <= high)))
            low = high + 1
    return found if len(found) > 1 else []


def _by_neighbours(problem: Problem, task: Task, rows: Tensor) -> list[Slice]:
    """By the share of neighbours whose class is the row's own, among those with a class."""
    y = task.graphs.y
    if task.level != "node" or problem.sort == "numbers" or y.dim() == 2:
        return []
    classes = y if not y.is_floating_point() else y.nan_to_num(-1.0).long()
    source, target = task.graphs.edge_index
    counts = (classes[source] >= 0) & (source != target)
    same = (counts & (classes[source] == classes[target])).double()
    size = len(classes)
    total = torch.bincount(target, counts.double(), minlength=size)[rows]
    share = torch.bincount(target, same, minlength=size)[rows] / total
    by = "neighbours of the same class"
    return [
        (by, "none", share == 0),
        (by, "up to half", (share > 0) & (share <= 0.5)),
        (by, "more than half", (share > 0.5) & (share < 1)),
        (by, "all", share == 1),
        (by, "no neighbour with a class", torch.isnan(share)),
    ]


def _by_distance(task: Task, rows: Tensor, split: int) -> list[Slice]:
    """By the number of edges to the nearest training row, against no direction."""
    if task.level != "node" or task.over != "nodes":
        return []
    distance = distances(task.graphs.edge_index, rows_of(task, "train", split), task.graphs.num_nodes)[rows]
    by = "edges to the nearest training label"
    found = [(by, str(far), distance == far) for far in range(1, _FARTHEST)]
    found.append((by, f"{_FARTHEST} or more", (distance >= _FARTHEST) & (distance < _UNREACHED)))
    found.append((by, "not connected", distance == _UNREACHED))
    return found


def distances(edge_index: Tensor, start: Tensor, nodes: int) -> Tensor:
    """The number of edges from each node to the nearest of some nodes, up to 4; a large number where there is no way.

    Edges count in both directions.

    >>> distances(torch.tensor([[0, 1], [1, 2]]), torch.tensor([0]), 4).tolist()[:3]
    [0, 1, 2]
    """
    source, target = edge_index
    links = coo_array((np.ones(edge_index.size(1), dtype=np.int8), edge_index.numpy()), shape=(nodes, nodes))
    component = torch.from_numpy(connected_components(links, directed=False)[1].astype(np.int64))
    has_way = torch.isin(component, component[start].unique())
    found = torch.where(has_way, _FARTHEST, _UNREACHED)
    reached = torch.zeros(nodes, dtype=torch.bool)
    reached[start] = True
    found[start] = 0
    for step in range(1, _FARTHEST):
        new = reached.clone()
        new[target[reached[source]]] = True
        new[source[reached[target]]] = True
        found[new & ~reached] = step
        reached = new
    return found


def _by_missing(task: Task, rows: Tensor) -> list[Slice]:
    """By the number of values that a node of a user's table lacks, where training had gaps."""
    # The last input of a column with gaps says that its value is missing; of categories, that it is other or missing.
    marks = [
        column.first + column.width - 1
        for column in task.details.get("columns", {}).get("node", ())
        if column.width == len(column.values) + 1 or (column.categories and not column.values)
    ]
    if task.level != "node" or not marks or not task.graphs.x.is_floating_point():
        return []
    absent = (task.graphs.x[rows][:, marks] > 0).sum(1)
    by = "missing values of the row"
    most = int(absent.max())
    found = [(by, "none", absent == 0), (by, "1", absent == 1)]
    return [*found, (by, "2 or more", absent >= 2)] if most >= 2 else found
