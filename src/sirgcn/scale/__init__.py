"""Beyond memory and beyond one process: sampled batches, graphs on disk, partitions, and several ranks."""

from sirgcn.scale.clusters import ClusterLoader
from sirgcn.scale.convert import Ends, convert
from sirgcn.scale.disk import DiskGraph
from sirgcn.scale.halo import HaloGraph
from sirgcn.scale.layerwise import layerwise
from sirgcn.scale.nodefiles import Nodes
from sirgcn.scale.partition import part_nodes, sizes_of
from sirgcn.scale.partitioned import Partitioned
from sirgcn.scale.ranks import DataParallel, DifferentRanks
from sirgcn.scale.sampled import SampledTask, WholeGraph
from sirgcn.scale.sampler import NeighborSampler
from sirgcn.scale.training import Trained, Workers, ranks_for, train

__all__ = [
    "ClusterLoader",
    "DataParallel",
    "DifferentRanks",
    "DiskGraph",
    "Ends",
    "HaloGraph",
    "NeighborSampler",
    "Nodes",
    "Partitioned",
    "SampledTask",
    "Trained",
    "WholeGraph",
    "Workers",
    "convert",
    "layerwise",
    "part_nodes",
    "ranks_for",
    "sizes_of",
    "train",
]
