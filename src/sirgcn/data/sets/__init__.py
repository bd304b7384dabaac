"""Data sets by name: published ones that are read from their files, and ones that are drawn from a seed."""

from sirgcn.data.sets.catalog import DATASETS, Dataset, fetch, find, load, verify
from sirgcn.data.sets.sbm import cluster_task, pattern_task
from sirgcn.data.sets.superpixels import superpixel_task
from sirgcn.data.sets.synthetic import (
    dictionary_lookup,
    dictionary_lookup_task,
    hetero_edge_count,
    hetero_edge_count_task,
    unique_signature,
    unique_signature_task,
)

__all__ = [
    "DATASETS",
    "Dataset",
    "cluster_task",
    "dictionary_lookup",
    "dictionary_lookup_task",
    "fetch",
    "find",
    "hetero_edge_count",
    "hetero_edge_count_task",
    "load",
    "pattern_task",
    "superpixel_task",
    "unique_signature",
    "unique_signature_task",
    "verify",
]
