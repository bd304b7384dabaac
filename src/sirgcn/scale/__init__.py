"""Beyond memory and beyond one machine: sampled batches, partitions, exact inference in blocks, graphs on disk."""

from sirgcn.scale.sampler import NeighborSampler

__all__ = ["NeighborSampler"]
