"""Peak memory and time of the tiled layer against the same layer with the message of every edge built at once."""

import multiprocessing
import resource
import sys
import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from sirgcn.nn import SIRConv


@dataclass(frozen=True)
class Case:
    """One forward and backward pass of a SIRConv on a random graph."""

    aggr: str
    tiled: bool
    nodes: int
    edges: int
    channels: int
    threads: int


@dataclass(frozen=True)
class Measurement:
    """What the two forms of a layer took; memory is what the pass added to the peak, time the median of the repeats."""

    aggr: str
    nodes: int
    edges: int
    channels: int
    threads: int
    repeats: int
    tiled_bytes: int
    materialised_bytes: int
    tiled_seconds: list[float]
    materialised_seconds: list[float]

    @property
    def memory_ratio(self) -> float:
        """Materialised over tiled memory."""
        return self.materialised_bytes / self.tiled_bytes

    @property
    def time_ratio(self) -> float:
        """Materialised over tiled time."""
        return median(self.materialised_seconds) / median(self.tiled_seconds)


def measure_memory(nodes: int, edges: int, channels: int, repeats: int = 3) -> list[Measurement]:
    """Measure an MLP as sigma (sum) and max, tiled and materialised, each pass in a process of its own, interleaved."""
    found = []
    for aggr in ("sum", "max"):
        runs: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
        for _ in range(repeats):
            for tiled in (True, False):
                case = Case(aggr, tiled, nodes, edges, channels, torch.get_num_threads())
                runs[tiled].append(_in_own_process(case))
        found.append(
            Measurement(
                aggr,
                nodes,
                edges,
                channels,
                torch.get_num_threads(),
                repeats,
                tiled_bytes=int(median(memory for memory, _ in runs[True])),
                materialised_bytes=int(median(memory for memory, _ in runs[False])),
                tiled_seconds=[seconds for _, seconds in runs[True]],
                materialised_seconds=[seconds for _, seconds in runs[False]],
            )
        )
    return found


def _in_own_process(case: Case) -> tuple[int, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (case,))


def _run(case: Case) -> tuple[int, float]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    width = case.channels
    sigma = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    conv = SIRConv(width, width, aggr=case.aggr, activation=sigma, fused=case.tiled)
    x = torch.randn(case.nodes, width, requires_grad=True)
    edge_index = torch.randint(case.nodes, (2, case.edges))
    # A pass on few edges loads the libraries, so that the peak before the measured pass is that of the inputs.
    conv(x, edge_index[:, :1000]).sum().backward()
    before, start = _peak_bytes(), time.perf_counter()
    conv(x, edge_index).sum().backward()
    return _peak_bytes() - before, time.perf_counter() - start


def _peak_bytes() -> int:
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
