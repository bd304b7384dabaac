"""Beyond one process: a training that several ranks share."""

from sirgcn.scale.halo import HaloGraph
from sirgcn.scale.partition import part_nodes, sizes_of
from sirgcn.scale.partitioned import Partitioned
from sirgcn.scale.ranks import DataParallel, DifferentRanks
from sirgcn.scale.training import Trained, Workers, ranks_for, train

__all__ = [
    "DataParallel",
    "DifferentRanks",
    "HaloGraph",
    "Partitioned",
    "Trained",
    "Workers",
    "part_nodes",
    "ranks_for",
    "sizes_of",
    "train",
]
