"""Beyond memory and beyond one machine: sampled batches, partitions, exact inference in blocks, graphs on disk."""

from sirgcn.scale.convert import Ends, convert
from sirgcn.scale.disk import DiskGraph
from sirgcn.scale.layerwise import layerwise
from sirgcn.scale.nodefiles import Nodes
from sirgcn.scale.sampled import SampledTask, WholeGraph
from sirgcn.scale.sampler import NeighborSampler

__all__ = ["DiskGraph", "Ends", "NeighborSampler", "Nodes", "SampledTask", "WholeGraph", "convert", "layerwise"]
