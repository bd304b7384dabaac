"""Time and memory against peers, as ratios in one run: what `make bench` runs."""

from sirgcn.bench.memory import Measurement, measure_memory

__all__ = ["Measurement", "measure_memory"]
