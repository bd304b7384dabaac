"""The cost per edge of our aggregation as the graph and the width grow."""

import functools
from collections.abc import Callable
from typing import Any

from sirgcn.bench.graphs import evenly
from sirgcn.bench.peers import AGGREGATION, OURS, PEERS, Problem
from sirgcn.engine.timing import Effort, calls_per_sample, interleave, summary

DEGREE = 16

# (edges, channels): one of the two grows while the other stays the same.
FULL = (
    *((edges, 64) for edges in (10_000, 40_000, 160_000, 640_000, 2_500_000, 16_000_000)),
    *((1_000_000, channels) for channels in (16, 32, 64, 128, 256, 512)),
)
QUICK = (
    *((edges, 64) for edges in (10_000, 400_000, 16_000_000)),
    *((400_000, channels) for channels in (16, 128, 512)),
)


def points(full: bool) -> tuple[tuple[int, int], ...]:
    """The pairs (edges, channels) of a form.

    >>> points(full=False)[0]
    (10000, 64)
    """
    return FULL if full else QUICK


def measure_point(
    edges: int, channels: int, threads: int, effort: Effort, on_step: Callable[[str], None] = lambda name: None
) -> list[tuple[str, str, dict[str, Any]]]:
    """Measure ours, and MKL SpMM forward beside it, on a random graph of 16 edges per node.

    Returns:
        The peer, the mode, and the figures: the nodes, the seconds, and the nanoseconds per edge.
    """
    problem = Problem(evenly(max(2, edges // DEGREE), edges), channels, threads)
    runs = {}
    for peer in PEERS:
        if peer.suite == AGGREGATION and peer.name in (OURS, "MKL SpMM, int32"):
            work = peer.make(problem)
            for mode in peer.modes:
                run = functools.partial(work.run, mode, lambda out: problem.upstream)
                runs[peer.name, mode] = run, calls_per_sample(run, effort)
    samples = interleave({f"{name}, {mode}": run for (name, mode), run in runs.items()}, effort, on_step)
    return [(name, mode, _figures(problem, found)) for (name, mode), found in zip(runs, samples.values(), strict=True)]


def _figures(problem: Problem, samples: list[float]) -> dict[str, Any]:
    per_edge = [1e9 * seconds / problem.num_edges for seconds in samples]
    return {"nodes": problem.num_nodes, "seconds": summary(samples), "nanoseconds_per_edge": summary(per_edge)}
