"""The hot operation: edges that are grouped once, and sums of contextualised messages over them. Needs torch only."""

from sirgcn.ops.activation import ACTIVATIONS, Activation
from sirgcn.ops.aggregate import sir_aggregate
from sirgcn.ops.backend import backends
from sirgcn.ops.neighbors import REDUCTIONS, Grouping, Neighbors, rank_one_weights
from sirgcn.ops.tiled import tiled_aggregate

__all__ = [
    "ACTIVATIONS",
    "REDUCTIONS",
    "Activation",
    "Grouping",
    "Neighbors",
    "backends",
    "rank_one_weights",
    "sir_aggregate",
    "tiled_aggregate",
]
