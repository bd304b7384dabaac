"""Graphs and tasks: what a model is trained and measured on."""

from sirgcn.data.graphs import Graphs
from sirgcn.data.losses import LOSSES
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.synthetic import dictionary_lookup, hetero_edge_count
from sirgcn.data.task import Schema, Split, Task
from sirgcn.data.validate import DataError

__all__ = [
    "LOSSES",
    "METRICS",
    "DataError",
    "Graphs",
    "Metric",
    "Schema",
    "Split",
    "Task",
    "dictionary_lookup",
    "hetero_edge_count",
]
