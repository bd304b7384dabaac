"""Graphs and tasks: what a model is trained and measured on."""

from sirgcn.data.describe import Description
from sirgcn.data.encodings import ENCODINGS, with_encodings
from sirgcn.data.graphs import Graphs
from sirgcn.data.losses import LOSSES, Loss
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.named import split_from_ids, split_to_ids
from sirgcn.data.schema import Schema
from sirgcn.data.sets import (
    DATASETS,
    Dataset,
    cluster_task,
    dictionary_lookup,
    dictionary_lookup_task,
    fetch,
    hetero_edge_count,
    hetero_edge_count_task,
    load,
    pattern_task,
    superpixel_task,
    unique_signature,
    unique_signature_task,
    verify,
)
from sirgcn.data.splits import Split
from sirgcn.data.tables import Chunk, Inputs, Preprocessing, apply_tables, load_tables, stream_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError

__all__ = [
    "DATASETS",
    "ENCODINGS",
    "LOSSES",
    "METRICS",
    "Chunk",
    "DataError",
    "Dataset",
    "Description",
    "Graphs",
    "Inputs",
    "Loss",
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
    "split_from_ids",
    "split_to_ids",
    "stream_tables",
    "superpixel_task",
    "unique_signature",
    "unique_signature_task",
    "verify",
    "with_encodings",
]
