"""Graphs and tasks: what a model is trained and measured on."""

from sirgcn.data.catalog import DATASETS, Dataset, fetch, load, verify
from sirgcn.data.describe import Description
from sirgcn.data.encodings import ENCODINGS, with_encodings
from sirgcn.data.graphs import Graphs
from sirgcn.data.losses import LOSSES
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.preprocess import Preprocessing
from sirgcn.data.sbm import cluster_task, pattern_task
from sirgcn.data.superpixels import superpixel_task
from sirgcn.data.synthetic import (
    dictionary_lookup,
    dictionary_lookup_task,
    hetero_edge_count,
    hetero_edge_count_task,
)
from sirgcn.data.tables import Inputs, apply_tables, load_tables
from sirgcn.data.task import Schema, Split, Task
from sirgcn.data.validate import DataError

__all__ = [
    "DATASETS",
    "ENCODINGS",
    "LOSSES",
    "METRICS",
    "DataError",
    "Dataset",
    "Description",
    "Graphs",
    "Inputs",
    "Metric",
    "Preprocessing",
    "Schema",
    "Split",
    "Task",
    "apply_tables",
    "cluster_task",
    "dictionary_lookup",
    "dictionary_lookup_task",
    "fetch",
    "hetero_edge_count",
    "hetero_edge_count_task",
    "load",
    "load_tables",
    "pattern_task",
    "superpixel_task",
    "verify",
    "with_encodings",
]
