"""A run of the benchmark: steps that measure one thing each and append what they found to the records.

A step that a continued run has measured before is skipped.
"""

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from sirgcn.bench import memory, records, scaling, tables_load, training
from sirgcn.bench.graphs import Graph, LeftOut, Shape
from sirgcn.bench.memory import check_fit, give_back, measure_memory
from sirgcn.bench.peers import AGGREGATION, OURS, PEERS, SUITES, Peer, Problem
from sirgcn.bench.records import Results, Row, Session, threads_text
from sirgcn.engine.timing import Effort, calls_per_sample, interleave, ratios, summary

MEMORY, SCALING, TABLES, TRAINING = "memory", "scaling", "tables", "training"
PARTS = (*SUITES, MEMORY, SCALING, TABLES, TRAINING)
"""What a run consists of: the suites of peers, memory, the scaling curve, a user's tables, epochs of training."""

# The quick form leaves out what needs more memory at once, because it takes too long.
QUICK_BYTES = 8.6e9
QUICK_BYTES_ON_ONE_THREAD = 2e8

Report = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure. `families` limits the peers beside ours; None takes all of them."""

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
            is_wanted = self.families is None or peer.label in (OURS, *self.families)
            if peer.suite == suite and peer.min_threads <= threads and is_wanted:
                yield peer

    def covers(self, suite: str, edge_bytes: int, threads: int) -> bool:
        """Whether a cell is measured. The quick form takes fewer threads only for the aggregation on small graphs."""
        is_small = suite == AGGREGATION and edge_bytes < QUICK_BYTES_ON_ONE_THREAD
        return self.full or threads == max(self.threads) or is_small

    def cells(self, shape: Shape, num_edges: int) -> list[tuple[str, int]]:
        """The suites that are measured on a graph with so many edges, each with a number of threads."""
        edge_bytes = 4 * num_edges * shape.channels
        return [
            (suite, threads)
            for threads in self.threads
            for suite in self.suites()
            if self.covers(suite, edge_bytes, threads)
        ]


@dataclass(frozen=True)
class Step:
    """One step of a run: `measure` appends what it found, `is_done` says whether that has been measured before."""

    title: str
    measure: Callable[[], None]
    is_done: bool


def steps(plan: Plan, session: Session, report: Report) -> list[Step]:
    """The steps of a run in their order. `report` gets a line about what is being measured."""
    results = session.results
    makers = {
        SCALING: _scaling_steps,
        MEMORY: _memory_steps,
        TABLES: _tables_steps,
        TRAINING: _training_steps,
    }
    found = []
    if plan.suites():
        for shape in plan.shapes:
            measure = functools.partial(_measure_shape, plan, session, report, shape)
            found.append(Step(shape.name, measure, _is_shape_done(plan, results, shape)))
    for part, make in makers.items():
        if part in plan.parts:
            found += make(plan, session, report, results)
    return found


def _is_shape_done(plan: Plan, results: Results, shape: Shape) -> bool:
    known = results.shapes.get(shape.name)
    if known is None:
        return False
    return all(is_cell_done(plan, results, shape, *cell) for cell in plan.cells(shape, known["edges"]))


def is_cell_done(plan: Plan, results: Results, shape: Shape, suite: str, threads: int) -> bool:
    """Whether every wanted peer of a cell was measured or left out; a cell is measured as a whole."""
    where: Row = {"suite": suite, "shape": shape.name, "threads": threads}
    measured = {(row["peer"], row["mode"]) for row in results.times if where.items() <= row.items()}
    where["part"] = records.TIMES
    left_out = {row["peer"] for row in results.left_out if where.items() <= row.items()}
    wanted = [peer for peer in plan.peers(suite, threads) if peer.name not in left_out]
    # Ours alone is not measured: there is nothing to compare it with.
    is_alone = [peer.name for peer in wanted] == [OURS] and bool(left_out)
    return is_alone or all((peer.name, mode) in measured for peer in wanted for mode in peer.modes)


def _measure_shape(plan: Plan, session: Session, report: Report, shape: Shape) -> None:
    try:
        graph = shape.build()
    except LeftOut as reason:
        session.leave_out(records.GRAPHS, {"shape": shape.name}, OURS, str(reason))
        return
    results = session.results
    data = {"what": shape.what, "nodes": graph.num_nodes, "edges": graph.edge_index.size(1), "channels": shape.channels}
    for suite, threads in plan.cells(shape, graph.edge_index.size(1)):
        if is_cell_done(plan, results, shape, suite, threads):
            continue
        cell = measure_cell(plan, shape, graph, suite, threads, report)
        for row in cell.rows:
            session.add(records.TIMES, row.config, row.peer, row.metrics, row.samples, data)
        for config, peer, why in cell.left_out:
            session.leave_out(records.TIMES, config, peer, why)


@dataclass(frozen=True)
class Timing:
    """What was measured of one peer in one mode."""

    config: Row
    peer: str
    metrics: Row
    samples: list[float]


@dataclass
class Cell:
    """What was measured of a suite on one graph, and what was left out: the configuration, the peer, the reason."""

    rows: list[Timing] = field(default_factory=list)
    left_out: list[tuple[Row, str, str]] = field(default_factory=list)


Runs = dict[str, dict[str, tuple[Callable[[], None], int]]]
"""The runs of a cell by mode and by the peer's name, each with its calls per sample."""


def measure_cell(
    plan: Plan, shape: Shape, graph: Graph, suite: str, threads: int, report: Report = lambda text: None
) -> Cell:
    """Measure the peers of a suite on one graph, interleaved."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.compiler.reset()
    problem = Problem(graph, shape.channels, threads)
    title = f"{shape.name}, {suite}, {threads_text(threads)}"
    where = {"suite": suite, "shape": shape.name, "threads": threads}
    cell, runs, peers = Cell(), dict[str, Any](), dict[str, Peer]()
    for peer in plan.peers(suite, threads):
        report(f"{title}: {peer.name}, warm-up")
        try:
            _warm_up(plan, shape, problem, peer, runs)
            peers[peer.name] = peer
        except Exception as error:
            # One peer that fails must not cost the others their figures; without ours there are none.
            if peer.name == OURS and not isinstance(error, LeftOut):
                raise
            cell.left_out.append((where | _facts(peer), peer.name, _reason(error)))
    if {OURS} < peers.keys():
        cell.rows += _timings(runs, peers, where, plan.effort, lambda text: report(f"{title}, {text}"))
    # What the peers hold must be free before the next cell asks how much memory is available.
    del problem, runs
    gc.collect()
    give_back()
    return cell


def _warm_up(plan: Plan, shape: Shape, problem: Problem, peer: Peer, runs: Runs) -> None:
    """Build the work of a peer, call it, and add its runs to those of the cell."""
    needed = check_fit(peer, problem)
    is_for_full = needed > QUICK_BYTES or (peer.quick is not None and shape.name not in peer.quick)
    if not plan.full and is_for_full:
        raise LeftOut("measured by --full")
    work = peer.make(problem)
    for mode in peer.modes:
        run = functools.partial(work.run, mode, lambda out: problem.upstream)
        runs.setdefault(mode, {})[peer.name] = run, calls_per_sample(run, plan.effort)


def _timings(runs: Runs, peers: dict[str, Peer], where: Row, effort: Effort, report: Report) -> Iterator[Timing]:
    for mode, candidates in runs.items():
        # A peer that failed in its second mode has left a run in its first.
        ready = {name: run for name, run in candidates.items() if name in peers}
        samples = interleave(ready, effort, lambda name, mode=mode: report(f"{mode}: {name}"))  # type: ignore[misc]
        for name, found in samples.items():
            metrics = {
                "seconds": summary(found),
                "ratio": ratios(found, samples[OURS]),
                "calls_per_sample": ready[name][1],
            }
            yield Timing({**where, "mode": mode, **_facts(peers[name])}, name, metrics, found)


def _facts(peer: Peer) -> Row:
    return {"family": peer.label, "what": peer.what}


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, LeftOut) else f"{type(error).__name__}: {error}"[:300]


def _scaling_steps(plan: Plan, session: Session, report: Report, results: Results) -> Iterator[Step]:
    for edges, channels in dict.fromkeys(scaling.points(plan.full)):
        for threads in plan.threads:
            config = {"edges": edges, "channels": channels, "threads": threads}
            title = f"{edges:,} edges, {channels} channels, {threads_text(threads)}"
            measure = functools.partial(_measure_point, plan, session, report, title, config)
            yield Step(title, measure, any(config.items() <= row.items() for row in results.scaling))


def _measure_point(plan: Plan, session: Session, report: Report, title: str, config: Row) -> None:
    torch.set_num_threads(config["threads"])
    rows = scaling.measure_point(**config, effort=plan.effort, on_step=lambda name: report(f"{title}: {name}"))
    for peer, mode, metrics in rows:
        session.add(records.SCALING, {**config, "mode": mode}, peer, metrics)
    give_back()


def _memory_steps(plan: Plan, session: Session, report: Report, results: Results) -> Iterator[Step]:
    known = [*results.memory, *(row for row in results.left_out if row["part"] == records.MEMORY)]
    for case in memory.cases(plan.full, plan.shapes, max(plan.threads)):
        config = {"suite": case.suite, "shape": case.shape.name, "mode": case.mode, "threads": case.threads}
        is_done = any({**config, "peer": case.peer}.items() <= row.items() for row in known)
        title = f"memory of {case.suite}: {case.peer}, {case.shape.name}"
        yield Step(title, functools.partial(_measure_case, session, case, config), is_done)


def _measure_case(session: Session, case: memory.Case, config: Row) -> None:
    config = {**config, "family": case.find().label}
    try:
        session.add(records.MEMORY, config, case.peer, measure_memory(case))
    except LeftOut as error:
        session.leave_out(records.MEMORY, config, case.peer, str(error))


def _tables_steps(plan: Plan, session: Session, report: Report, results: Results) -> Iterator[Step]:
    files = tables_load.LARGE
    config = {"nodes": files.nodes, "rows": files.edges, "threads": max(plan.threads)}
    is_done = any(config.items() <= row.items() for row in results.tables)
    title = f"tables of {files.nodes:,} nodes and {files.edges:,} edges"
    yield Step(title, functools.partial(_measure_tables, session, files, config), is_done)


def _measure_tables(session: Session, files: tables_load.Files, config: Row) -> None:
    try:
        session.add(records.TABLES, config, OURS, tables_load.measure_tables(files, config["threads"]))
    except LeftOut as error:
        session.leave_out(records.TABLES, {**config, "shape": "files"}, OURS, str(error))


def _training_steps(plan: Plan, session: Session, report: Report, results: Results) -> Iterator[Step]:
    for epoch in training.EPOCHS:
        config = {"task": epoch.name, "threads": max(plan.threads)}
        measured = {row["peer"] for row in results.training if config.items() <= row.items()}
        measure = functools.partial(measure_epoch, plan, session, report, epoch)
        yield Step(f"an epoch of {epoch.name}", measure, measured >= set(training.PEERS))


def measure_epoch(plan: Plan, session: Session, report: Report, epoch: training.Epoch) -> None:
    """Measure an epoch of training of ours and of the peers, interleaved."""
    config = {"task": epoch.name, "threads": max(plan.threads)}
    torch.set_num_threads(max(plan.threads))
    try:
        runs = training.runs(epoch)
    except LeftOut as reason:
        session.leave_out(records.TRAINING, {"shape": epoch.name}, OURS, str(reason))
        return
    # An epoch is long: a few of each are enough, and the first one is a warm-up.
    for run in runs.values():
        run()
    effort = replace(plan.effort, run_seconds=max(plan.effort.run_seconds, 10.0))
    samples = interleave({name: (run, 1) for name, run in runs.items()}, effort, report)
    for name, found in samples.items():
        metrics = {"seconds": summary(found), "ratio": ratios(found, samples[OURS])}
        session.add(records.TRAINING, config, name, metrics, found)
    give_back()
