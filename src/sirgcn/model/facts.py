"""The facts of a task by which its settings are chosen. They come from its inputs and its training labels alone."""

import math
from dataclasses import dataclass

import torch

from sirgcn.data.graphs import Level
from sirgcn.data.homophily import homophily
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of

_WIDE = 200
_FILLED = 0.2
# A share of zeros says nothing new after so many rows.
_LOOKED_AT = 2_000


@dataclass(frozen=True)
class Facts:
    """What is known of a task before its settings are chosen.

    Args:
        level: what a target belongs to.
        is_many: whether there are several graphs; otherwise all nodes are in one.
        nodes: the number of nodes of all graphs.
        edges: the number of directed edges of all graphs.
        items: the number of graphs, or 1.
        labels: the number of training rows with a label.
        outputs: the number of outputs of a network.
        columns: the width of the node features, or the number of categorical columns.
        is_sparse: whether node features are long rows of which most entries are 0, such as words.
        has_edge_features: whether edges have features.
        homophily: the adjusted homophily of the training labels; NaN where it has no meaning.

    >>> from sirgcn.data import load
    >>> facts = Facts.of(load("hetero_edge_count", c=2, num_graphs=10))
    >>> facts.level, facts.is_many, facts.labels, facts.is_sparse
    ('graph', True, 8, False)
    """

    level: Level
    is_many: bool
    nodes: int
    edges: int
    items: int
    labels: int
    outputs: int
    columns: int
    is_sparse: bool
    has_edge_features: bool
    homophily: float

    @property
    def degree(self) -> float:
        """The mean number of edges that end in a node."""
        return self.edges / self.nodes

    @property
    def labels_per_output(self) -> float:
        """How many training rows there are for each class or target."""
        return self.labels / self.outputs

    @classmethod
    def of(cls, task: Task) -> "Facts":
        """The facts of the first split of a task."""
        graphs, schema = task.graphs, task.schema
        train = rows_of(task, "train")
        return cls(
            level=task.level,
            is_many=task.over == "graphs",
            nodes=graphs.num_nodes,
            edges=graphs.num_edges,
            items=len(graphs),
            labels=len(train),
            outputs=schema.outputs,
            columns=schema.features or len(schema.vocabularies),
            is_sparse=_is_sparse(graphs.x),
            has_edge_features=bool(schema.edge_features or schema.edge_vocabularies),
            homophily=_homophily(task, train),
        )


def _is_sparse(x: torch.Tensor) -> bool:
    if not x.is_floating_point() or x.size(1) < _WIDE:
        return False
    some = x[:_LOOKED_AT]
    return bool((some >= 0).all()) and float((some != 0).double().mean()) < _FILLED


def _homophily(task: Task, train: torch.Tensor) -> float:
    """That of the edges both of whose ends are training nodes of a single graph."""
    y = task.graphs.y
    if task.level != "node" or y.is_floating_point():
        return math.nan
    known = torch.full_like(y, -1)
    known[train] = y[train]
    found = homophily(task.graphs.edge_index, known)
    return math.nan if found is None else found.adjusted
