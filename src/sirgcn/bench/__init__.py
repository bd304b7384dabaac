"""Time and memory against peers, as ratios in one run: what `make bench` runs.

`python -m sirgcn.bench --help` lists the options; `sirgcn.bench.records` describes the records.
"""

from sirgcn.bench.graphs import SHAPES, Graph, LeftOut, Shape
from sirgcn.bench.memory import Case, measure_memory
from sirgcn.bench.peers import PEERS, SUITES, Peer, Problem
from sirgcn.bench.records import Results, Session, read_results
from sirgcn.bench.targets import TARGETS, Target
from sirgcn.engine.timing import Effort, interleave

__all__ = [
    "PEERS",
    "SHAPES",
    "SUITES",
    "TARGETS",
    "Case",
    "Effort",
    "Graph",
    "LeftOut",
    "Peer",
    "Problem",
    "Results",
    "Session",
    "Shape",
    "Target",
    "interleave",
    "measure_memory",
    "read_results",
]
