"""The peak memory of one pass, measured in a process of its own.

The graph, its grouping, the inputs and the parameters are there before the pass. What counts is the memory that the
pass adds: the output, the incoming gradient, all gradients, and what the implementation keeps in between.
"""

import ctypes
import functools
import multiprocessing
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from sirgcn.bench.graphs import LeftOut, Shape, evenly
from sirgcn.bench.peers import AGGREGATION, BOTH, COMPILED, GATED, LAYER, MAX, MLP, OURS, PEERS, Peer, Problem

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
"""Settings of glibc under which a large block goes back to the system as soon as it is freed. The peak of the process
is then that of the memory in use."""

LARGE = Shape(
    "sixteen_million", 64, "1M nodes, 16M edges", functools.partial(evenly, nodes=1_000_000, edges=16_000_000)
)
"""The graph on which an edges-by-channels tensor takes 4.1 GB."""

SCRATCH = tuple(
    Shape(f"{name}_edges", 128, f"20,000 nodes, {edges:,} edges", functools.partial(evenly, 20_000, edges))
    for name, edges in (("few", 250_000), ("many", 1_000_000))
)
"""Two graphs with the same nodes, one of them with four times the edges: both must need the same scratch memory."""


@dataclass(frozen=True)
class Case:
    """A pass whose memory is measured.

    >>> Case("layer", "GCNConv", LARGE, "forward", threads=1).find().label
    'GCNConv'
    """

    suite: str
    peer: str
    shape: Shape
    mode: str
    threads: int

    def find(self) -> Peer:
        """The peer of this case in the table of peers."""
        return next(peer for peer in PEERS if (peer.suite, peer.name) == (self.suite, self.peer))


def cases(full: bool, shapes: tuple[Shape, ...], threads: int) -> list[Case]:
    """The cases of a form of the benchmark: the large graph, and the scratch memory of the tiled layers.

    The full form also has every peer of the aggregation and of the layer on every shape.

    >>> len(cases(full=False, shapes=(), threads=1))
    8
    """
    found = [Case(AGGREGATION, OURS, LARGE, BOTH, threads), Case(LAYER, OURS, LARGE, BOTH, threads)]
    if full:
        found.append(Case(AGGREGATION, "eager, propagate", LARGE, BOTH, threads))
        found.append(Case(AGGREGATION, "eager, index_add", LARGE, BOTH, threads))
    for suite, peer in ((MAX, "materialised"), (MLP, "materialised"), (GATED, "eager")):
        found += [Case(suite, OURS, shape, BOTH, threads) for shape in SCRATCH]
        if full:
            found += [Case(suite, peer, shape, BOTH, threads) for shape in SCRATCH]
    if full:
        found += [
            Case(peer.suite, peer.name, shape, mode, threads)
            for shape in shapes
            for peer in PEERS
            if peer.suite in (AGGREGATION, LAYER)
            for mode in peer.modes
        ]
    return found


def measure_memory(case: Case) -> dict[str, int]:
    """Measure the memory of a pass in a new process.

    Returns:
        The bytes that the pass adds to the peak (`added_bytes`), and the peak with all inputs (`peak_bytes`).

    Raises:
        LeftOut: the peer does not fit into the memory, or it failed.

    >>> from sirgcn.bench import SHAPES
    >>> sorted(measure_memory(Case("layer", "ours", SHAPES["molecules"], "forward", threads=1)))
    ['added_bytes', 'peak_bytes']
    """
    context = multiprocessing.get_context("forkserver")
    # The server imports torch and PyG once. A process that it forks has them from the start, and no threads.
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    with _allocator():
        process = context.Process(target=_run, args=(case, sender))
        process.start()
    sender.close()
    try:
        answer: dict[str, int] | str = receiver.recv()
    except EOFError:
        answer = "the process was killed, most likely because the memory was full"
    process.join()
    if isinstance(answer, str):
        raise LeftOut(answer)
    return answer


@contextmanager
def _allocator() -> Iterator[None]:
    before = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
    for name in before:
        del os.environ[name]
    os.environ.update(ALLOCATOR)
    try:
        yield
    finally:
        for name in ALLOCATOR:
            del os.environ[name]
        os.environ.update(before)


def _run(case: Case, sender: Connection) -> None:
    try:
        sender.send(_measure(case))
    except Exception as error:
        sender.send(str(error) if isinstance(error, LeftOut) else f"{type(error).__name__}: {error}")


def _measure(case: Case) -> dict[str, int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    peer = case.find()
    # The same pass on a tiny graph makes the process load every library that it needs.
    tiny = Problem(evenly(64, 512), case.shape.channels, case.threads)
    peer.make(tiny).run(case.mode, torch.ones_like)
    problem = Problem(case.shape.build(), case.shape.channels, case.threads)
    check_fit(peer, problem)
    work = peer.make(problem)
    if peer.family == COMPILED:
        # The memory of the compiler does not count.
        work.run(case.mode, torch.ones_like)
    give_back()
    before = _reset_peak()
    work.run(case.mode, torch.ones_like)
    peak = peak_bytes()
    return {"added_bytes": peak - before, "peak_bytes": peak}


def give_back() -> None:
    """Return free memory to the system, where the C library can do that."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def check_fit(peer: Peer, problem: Problem) -> float:
    """Estimate the bytes that a peer needs at once.

    Raises:
        LeftOut: the machine does not have that much free memory.
    """
    needed = peer.copies * problem.edge_bytes
    available = _kibibytes("/proc/meminfo", "MemAvailable")
    if available is not None and needed > 0.85 * available:
        raise LeftOut(f"needs about {needed / 1e9:.0f} GB of memory, {available / 1e9:.0f} GB are free")
    return needed


def _reset_peak() -> int:
    """Reset the peak of this process where the system allows it, and return the memory that it uses now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return peak_bytes()
    return _kibibytes("/proc/self/status", "VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The peak of the memory of this process since its start, or since the peak was reset."""
    # A process inherits ru_maxrss from the process that started it, so this is only for systems without /proc.
    peak = _kibibytes("/proc/self/status", "VmHWM")
    if peak is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak


def _kibibytes(file: str, field: str) -> int | None:
    path = Path(file)
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None
