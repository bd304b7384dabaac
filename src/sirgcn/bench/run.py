"""A run: every suite on every shape and number of threads, one cell after the other, each kept once it is done."""

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from sirgcn.bench import memory, scaling, tables_load, training
from sirgcn.bench.graphs import Graph, LeftOut, Shape
from sirgcn.bench.memory import check_fit, give_back, measure_memory
from sirgcn.bench.peers import AGGREGATION, OURS, PEERS, SUITES, Peer, Problem
from sirgcn.bench.record import Record
from sirgcn.engine.timing import Effort, calls_per_sample, interleave, ratios, summary

MEMORY, SCALING, TABLES, TRAINING = "memory", "scaling", "tables", "training"
PARTS = (*SUITES, MEMORY, SCALING, TABLES, TRAINING)
"""What a run consists of: the suites of peers, memory, the scaling curve, a user's tables, epochs of training."""

# In the quick form: what takes more at once takes too long.
QUICK_BYTES = 8e9
QUICK_BYTES_ON_ONE_THREAD = 2e8

Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure. `families` limits the peers beside ours; None takes all."""

    full: bool
    shapes: tuple[Shape, ...]
    parts: tuple[str, ...]
    threads: tuple[int, ...]
    effort: Effort
    families: tuple[str, ...] | None = None

    def suites(self) -> tuple[str, ...]:
        """The suites of peers among the parts."""
        return tuple(part for part in self.parts if part in SUITES)

    def peers(self, suite: str, threads: int) -> Iterator[Peer]:
        """The peers of a suite that are wanted, ours first."""
        for peer in PEERS:
            wanted = self.families is None or peer.label in (OURS, *self.families)
            if peer.suite == suite and peer.min_threads <= threads and wanted:
                yield peer

    def covers(self, suite: str, edge_bytes: int, threads: int) -> bool:
        """Whether a cell is measured: the quick form takes fewer threads only for the aggregation on small graphs."""
        small = suite == AGGREGATION and edge_bytes < QUICK_BYTES_ON_ONE_THREAD
        return self.full or threads == max(self.threads) or small


def steps(plan: Plan, record: Record, report: Report) -> list[tuple[str, Callable[[], None]]]:
    """The steps of a run by their titles; each adds to the record what it found."""
    found: list[tuple[str, Callable[[], None]]] = []
    if plan.suites():
        found += [(shape.name, functools.partial(_shape, plan, record, report, shape)) for shape in plan.shapes]
    if SCALING in plan.parts:
        found += [
            (
                f"{edges:,} edges, {channels} channels",
                functools.partial(_point, plan, record, report, edges, channels, threads),
            )
            for edges, channels in dict.fromkeys(scaling.points(plan.full))
            for threads in plan.threads
        ]
    if MEMORY in plan.parts:
        found += [
            (f"memory of {case.suite}: {case.peer}, {case.shape.name}", functools.partial(_memory, record, case))
            for case in memory.cases(plan.full, plan.shapes, max(plan.threads))
        ]
    if TABLES in plan.parts:
        files = tables_load.LARGE
        title = f"tables of {files.nodes:,} nodes and {files.edges:,} edges"
        found.append((title, functools.partial(_tables, record, files, max(plan.threads))))
    if TRAINING in plan.parts:
        found += [
            (f"an epoch of {epoch.name}", functools.partial(_epoch, plan, record, report, epoch))
            for epoch in training.EPOCHS
        ]
    return found


def _shape(plan: Plan, record: Record, report: Report, shape: Shape) -> None:
    try:
        graph = shape.build()
    except LeftOut as reason:
        record.data["left_out"].append({"shape": shape.name, "reason": str(reason)})
        return
    record.data["shapes"][shape.name] = {
        "what": shape.what,
        "nodes": graph.num_nodes,
        "edges": graph.edge_index.size(1),
        "channels": shape.channels,
    }
    for threads in plan.threads:
        for suite in plan.suites():
            if not plan.covers(suite, 4 * graph.edge_index.size(1) * shape.channels, threads):
                continue
            rows, left_out = measure_cell(plan, shape, graph, suite, threads, report)
            record.data["times"] += rows
            record.data["left_out"] += left_out
            record.write()


def measure_cell(
    plan: Plan, shape: Shape, graph: Graph, suite: str, threads: int, report: Report = lambda name: None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The peers of a suite on one graph, interleaved: one row per peer and mode, and what was left out and why."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.compiler.reset()
    problem = Problem(graph, shape.channels, threads)
    where = {"suite": suite, "shape": shape.name, "threads": threads}
    title = f"{shape.name}, {suite}, {_threads(threads)}"
    runs: dict[str, dict[str, tuple[Callable[[], None], int]]] = {}
    families: dict[str, str] = {}
    left_out = []
    for peer in plan.peers(suite, threads):
        try:
            _check_effort(plan, shape, problem, peer)
            report(f"{title}: {peer.name}, warm-up")
            work = peer.make(problem)
            for mode in peer.modes:
                run = functools.partial(work.run, mode, lambda out: problem.upstream)
                runs.setdefault(mode, {})[peer.name] = run, calls_per_sample(run, plan.effort)
            families[peer.name] = peer.label
        except Exception as error:
            # One peer that fails must not cost the others' figures; without ours there are none.
            if peer.name == OURS and not isinstance(error, LeftOut):
                raise
            reason = str(error) if isinstance(error, LeftOut) else f"{type(error).__name__}: {error}"[:300]
            left_out.append(where | {"peer": peer.name, "reason": reason})
    rows: list[dict[str, Any]] = []
    if {OURS} < families.keys():
        for mode, candidates in runs.items():
            ready = {name: run for name, run in candidates.items() if name in families}
            samples = interleave(ready, plan.effort, lambda name, mode=mode: report(f"{title}, {mode}: {name}"))  # type: ignore[misc]
            rows += [
                where
                | {
                    "mode": mode,
                    "peer": name,
                    "family": families[name],
                    "seconds": summary(found),
                    "ratio": ratios(found, samples[OURS]),
                    "calls_per_sample": ready[name][1],
                    "samples": found,
                }
                for name, found in samples.items()
            ]
    # What the peers hold must be free before the next cell asks what is available.
    del problem, runs
    gc.collect()
    give_back()
    return rows, left_out


def _check_effort(plan: Plan, shape: Shape, problem: Problem, peer: Peer) -> None:
    needed = check_fit(peer, problem)
    if not plan.full and (needed > QUICK_BYTES or (peer.quick is not None and shape.name not in peer.quick)):
        raise LeftOut("measured by --full")


def _point(plan: Plan, record: Record, report: Report, edges: int, channels: int, threads: int) -> None:
    torch.set_num_threads(threads)
    title = f"{edges:,} edges, {channels} channels, {_threads(threads)}"
    record.data["scaling"] += scaling.measure_point(
        edges, channels, threads, plan.effort, lambda name: report(f"{title}: {name}")
    )
    give_back()
    record.write()


def _memory(record: Record, case: memory.Case) -> None:
    where = {"suite": case.suite, "shape": case.shape.name, "mode": case.mode, "peer": case.peer}
    where |= {"family": case.find().label}
    try:
        record.data["memory"].append(where | {"threads": case.threads, **measure_memory(case)})
    except LeftOut as error:
        record.data["left_out"].append({**where, "suite": f"memory, {case.suite}", "reason": str(error)})
    record.write()


def _tables(record: Record, files: tables_load.Files, threads: int) -> None:
    try:
        record.data["tables"].append(tables_load.measure_tables(files, threads))
    except LeftOut as error:
        record.data["left_out"].append({"suite": TABLES, "shape": "files", "peer": OURS, "reason": str(error)})
    record.write()


def _epoch(plan: Plan, record: Record, report: Report, epoch: training.Epoch) -> None:
    torch.set_num_threads(max(plan.threads))
    try:
        runs = training.runs(epoch)
    except LeftOut as reason:
        record.data["left_out"].append({"shape": epoch.name, "reason": str(reason)})
        return
    # An epoch is long: a few of each are enough, and the first warms up.
    for run in runs.values():
        run()
    effort = replace(plan.effort, run_seconds=max(plan.effort.run_seconds, 10.0))
    samples = interleave({name: (run, 1) for name, run in runs.items()}, effort, report)
    record.data["training"] += [
        {
            "task": epoch.name,
            "threads": max(plan.threads),
            "peer": name,
            "seconds": summary(found),
            "ratio": ratios(found, samples[OURS]),
            "samples": found,
        }
        for name, found in samples.items()
    ]
    give_back()
    record.write()


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"
