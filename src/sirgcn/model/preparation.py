"""What a network reads besides the columns of its graphs: walks, rows of sum 1, and whether it reads edges at all."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from sirgcn.data.encodings import edge_random_walk, random_walk
from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.task import Task
from sirgcn.strict import ConfigError, Count, check_fields


@dataclass(frozen=True)
class Preparation:
    r"""The step between graphs and a network. It depends on each graph alone, so that a prediction repeats it.

    Args:
        walks: the steps of the random-walk encoding that nodes get; 0 for none, or to keep the one that graphs have.
        edge_walks: whether edges get that encoding, too.
        normalise: whether every row of node features is divided by the sum of its absolute values. That suits long
            sparse rows such as words.
        edges: whether the network reads the features of edges; otherwise they are left out.

    >>> graphs = Graphs(torch.tensor([[1.0, 1.0], [0.0, 4.0]]), torch.tensor([[0, 1], [1, 0]]), torch.zeros(2), "node")
    >>> prepared = Preparation(walks=2, normalise=True).apply(graphs)
    >>> prepared.x.tolist(), prepared.pe.tolist()
    ([[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]])
    """

    walks: Count = 0
    edge_walks: bool = False
    normalise: bool = False
    edges: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.edge_walks and not (self.walks and self.edges):
            raise ConfigError("edge_walks: expected walks of nodes and features of edges beside them, got none")

    def apply(self, graphs: Graphs) -> Graphs:
        """The graphs as the network reads them."""
        if self == Preparation():
            return graphs
        changes: dict[str, Any] = {}
        if self.walks:
            changes["pe"] = random_walk(graphs, self.walks)
        if self.edge_walks:
            changes["edge_pe"] = edge_random_walk(graphs, self.walks)
        if self.normalise:
            total = graphs.x.abs().sum(1, keepdim=True)
            changes["x"] = graphs.x / torch.where(total > 0, total, torch.ones_like(total))
        if not self.edges:
            changes |= {"edge_attr": None, "edge_pe": None}
        return replace(graphs, **changes)

    def applied(self, task: Task) -> Task:
        """The task as the network reads it.

        >>> from sirgcn.data import load
        >>> Preparation(walks=3).applied(load("hetero_edge_count", c=2, num_graphs=10)).schema.encodings
        3
        """
        if self == Preparation():
            return task
        return replace(task, graphs=self.apply(task.graphs), schema=self.read(task.schema))

    def read(self, schema: Schema) -> Schema:
        """The widths of what the network reads, from those of the graphs."""
        if self.walks:
            schema = replace(schema, encodings=self.walks)
        if self.edge_walks:
            schema = replace(schema, edge_encodings=self.walks)
        if not self.edges:
            schema = replace(schema, edge_features=0, edge_vocabularies=(), edge_encodings=0)
        return schema
