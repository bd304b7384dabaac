"""Graphs as tables: a line of columns for every row of a task, for models that read tables."""

import torch
from torch import Tensor

from sirgcn.data.task import Task
from sirgcn.strict import Count, Size, checked

CELLS = 60_000_000
"""The most numbers in one table of chosen columns, about 240 MB."""

_JUDGED = 20_000  # training rows that judge the columns


def own_columns(task: Task) -> Tensor:
    """The columns of every node: its features and encodings as numbers, with a column of 0 and 1 for each category."""
    graphs = task.graphs
    columns = [_as_numbers(graphs.x, task.schema.vocabularies)]
    if graphs.pe is not None:
        columns.append(graphs.pe.float())
    return torch.cat(columns, dim=1)


def edge_columns(task: Task) -> Tensor:
    """The columns of every edge, as `own_columns` has those of nodes; no column where edges have no features."""
    graphs = task.graphs
    columns = [torch.zeros(graphs.num_edges, 0)]
    if graphs.edge_attr is not None:
        columns.append(_as_numbers(graphs.edge_attr, task.schema.edge_vocabularies))
    if graphs.edge_pe is not None:
        columns.append(graphs.edge_pe.float())
    return torch.cat(columns, dim=1)


def _as_numbers(values: Tensor, vocabularies: tuple[int, ...]) -> Tensor:
    if not vocabularies:
        return values.float()
    one_hot = torch.nn.functional.one_hot
    return torch.cat([one_hot(values[:, place], size).float() for place, size in enumerate(vocabularies)], dim=1)


def neighbour_columns(columns: Tensor, task: Task, split: int = 0) -> Tensor:
    """The mean, minimum and maximum of columns over the in-neighbours of every node; NaN for a node without any.

    In an inductive task, the nodes that training sees have no neighbours that it does not see.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> neighbour_columns(own_columns(task), task).shape[1]
    6
    """
    source, target = task.graphs.edge_index
    if task.unseen:
        is_unseen = torch.zeros(task.graphs.num_nodes, dtype=torch.bool)
        is_unseen[task.unseen[split]] = True
        kept = ~is_unseen[source] | is_unseen[target]
        source, target = source[kept], target[kept]
    return over_groups(columns[source], target, task.graphs.num_nodes)


def over_groups(values: Tensor, group: Tensor, count: int) -> Tensor:
    """The mean, minimum and maximum of the rows of each group, side by side; NaN for an empty group."""
    index = group.unsqueeze(1).expand_as(values)
    found = [
        torch.full((count, values.size(1)), torch.nan).scatter_reduce(0, index, values, how, include_self=False)
        for how in ("mean", "amin", "amax")
    ]
    return torch.cat(found, dim=1)


@checked
def table_of(
    task: Task,
    neighbours: bool = False,
    split: Count = 0,
    most: Size | None = None,
    train: Tensor | None = None,
) -> Tensor:
    """A line of columns for every row of the task.

    - A node has its own columns, and with `neighbours` their mean, minimum and maximum over its neighbours.
    - An edge has its own columns and those of its source and its target.
    - A graph has the mean, minimum and maximum over its nodes, their number, that of its edges, and its own columns.

    Args:
        task: the data.
        neighbours: whether nodes have columns of their neighbours.
        split: the number of the task's split, which matters to an inductive task.
        most: the most columns of a node, and of a graph; None takes all of them.
        train: the training rows, which judge the columns where there are too many.

    >>> from sirgcn.data import load
    >>> table_of(load("hetero_edge_count", c=2, num_graphs=20)).shape
    torch.Size([20, 8])
    """
    own = own_columns(task)
    if most is not None:
        own = _chosen(own, task, train, _affordable(task, neighbours, most))
    nodes = torch.cat([own, neighbour_columns(own, task, split)], dim=1) if neighbours else own
    if task.level == "node":
        return nodes
    if task.level == "edge":
        source, target = task.graphs.edge_index
        return torch.cat([edge_columns(task), nodes[source], nodes[target]], dim=1)
    table = _graph_table(task, nodes)
    if most is not None and train is not None and table.size(1) > most:
        table = table[:, best_columns(table[train], task.graphs.y[train], most)]
    return table


def _graph_table(task: Task, nodes: Tensor) -> Tensor:
    graphs = task.graphs
    counts = torch.stack([pointer.diff() for pointer in graphs.pointers()], dim=1)
    group = torch.arange(len(counts)).repeat_interleave(counts[:, 0])
    columns = [over_groups(nodes.nan_to_num(), group, len(counts)), counts.float()]
    of_graphs: Tensor | None = getattr(graphs, "graph_attr", None)
    if of_graphs is not None:
        columns.append(of_graphs.float())
    return torch.cat(columns, dim=1)


def _affordable(task: Task, neighbours: bool, most: int) -> int:
    """How many columns of nodes are taken, so that no table of them has more than `CELLS` numbers."""
    graphs = task.graphs
    copies = 4 if neighbours else 1
    rows = max(graphs.num_nodes, graphs.num_edges if neighbours else 0)
    if task.level == "edge":
        rows, copies = max(rows, graphs.num_edges), 2 * copies
    return max(1, min(most, CELLS // (rows * copies)))


def _chosen(own: Tensor, task: Task, train: Tensor | None, most: int) -> Tensor:
    """The columns of nodes that tell most about the targets of the training rows, if there are too many."""
    if own.size(1) <= most:
        return own
    if train is None or task.level == "graph":
        # Nodes of graphs have no target of their own: the columns that vary most.
        return own[:, own.var(0).topk(most).indices.sort().values]
    train = train[:: max(1, len(train) // _JUDGED)]
    if task.level == "node":
        return own[:, best_columns(own[train], task.graphs.y[train], most)]
    ends, y = task.graphs.edge_index[:, train], task.graphs.y[train]
    return own[:, best_columns(torch.cat([own[ends[0]], own[ends[1]]]), torch.cat([y, y]), most)]


@checked
def best_columns(table: Tensor, y: Tensor, most: Size) -> Tensor:
    r"""The columns that tell most about the targets by themselves, in their order.

    They are judged by the share :math:`R^2` of their variance between the classes, or by their squared correlation with
    a number; with several targets, by the sum.

    Args:
        table: `[rows, columns]`; NaN counts as the mean of the column.
        y: classes int64 `[rows]`, or numbers `[rows]` or `[rows, targets]`.
        most: how many columns are taken.

    >>> table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    >>> best_columns(table, torch.tensor([1, 0, 1, 0]), 1).tolist()
    [0]
    """
    centred = (table - table.nanmean(0)).nan_to_num(0.0).double()
    if y.is_floating_point():
        columns = y.double().unsqueeze(1) if y.dim() == 1 else y.double()
    else:
        columns = torch.nn.functional.one_hot(y.clamp_min(0)).double()
    columns = (columns - columns.nanmean(0)).nan_to_num(0.0)
    size = (columns / columns.norm(dim=0).clamp_min(1e-12)).T @ (centred / centred.norm(dim=0).clamp_min(1e-12))
    return size.square().sum(0).topk(min(most, table.size(1))).indices.sort().values
