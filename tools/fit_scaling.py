"""What a training step on a partitioned graph costs, and what it would cost on clusters that we do not have.

    python tools/fit_scaling.py measure    # adds the runs of PLAN that are missing to results/scale/scaling.jsonl
    python tools/fit_scaling.py render     # fits, validates, predicts, and writes docs/scaling.md between its markers

A run is a step of a network of `SIRConv` layers, with its backward pass, on a drawn graph that several ranks share. Its
record has for every rank what the rank owns and exchanges, the CPU time of the step with one thread, the bytes that it
holds, and the bytes that it sends. The cost model is fitted on the runs marked `fit`, and compared with those marked
`check`. The machine of the record was shared, so that CPU time stands in for time, and every step is measured beside a
reference step of the same process: what slows down both is left out.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

from sirgcn import SIRNet
from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine.environment import environment
from sirgcn.engine.inference import Inference
from sirgcn.files import write_atomic
from sirgcn.ops import Neighbors
from sirgcn.scale import Partitioned, part_nodes
from sirgcn.scale.launch import launch

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "results" / "scale" / "scaling.jsonl", ROOT / "docs" / "scaling.md"

Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A graph and a network.

    Args:
        nodes: the number of nodes.
        edges: the number of directed edges.
        features: the features of a node.
        channels: the channels of every layer.
        outputs: the outputs of a node.
        layers: the number of layers.
    """

    nodes: int
    edges: int
    features: int
    channels: int
    outputs: int = 16
    layers: int = 3


@dataclass(frozen=True)
class Planned:
    """A run to measure.

    Args:
        use: `fit` or `check`.
        shape: the graph and the network.
        ranks: how many processes share it.
        local: the share of the edges whose ends are near each other, so that they rarely join two ranks.
        memory_bound: whether the halo comes from one rank after another.
        has_time: whether its time counts. Only as many ranks as the machine has cores run at their own speed.
    """

    use: str
    shape: Shape
    ranks: int = 1
    local: float = 0.0
    memory_bound: bool = False
    has_time: bool = True


def _planned(use: str, nodes: int, degree: int, channels: int, *, features: int | None = None, **how: Any) -> Planned:
    return Planned(use, Shape(nodes, nodes * degree, features or channels, channels), **how)


# Tables of at least 25 MB: smaller ones would stay in the cache, as those of large graphs do not.
PLAN = (
    _planned("fit", 100_000, 10, 64),
    _planned("fit", 100_000, 30, 64),
    _planned("fit", 200_000, 20, 32, features=100),
    _planned("fit", 200_000, 5, 32),
    _planned("fit", 60_000, 5, 128),
    _planned("fit", 60_000, 20, 128, features=64),
    _planned("fit", 200_000, 10, 64, local=0.9),
    _planned("fit", 30_000, 10, 256, features=128),
    _planned("fit", 120_000, 10, 64, ranks=2),
    _planned("fit", 120_000, 20, 64, ranks=2, local=0.9),
    _planned("fit", 200_000, 8, 32, ranks=2, local=0.5),
    _planned("fit", 100_000, 12, 64, ranks=2, memory_bound=True),
    _planned("fit", 60_000, 10, 32, ranks=3, has_time=False),
    _planned("fit", 60_000, 10, 32, ranks=3, memory_bound=True, has_time=False),
    _planned("fit", 80_000, 15, 32, ranks=4, local=0.5, has_time=False),
    _planned("fit", 80_000, 15, 32, ranks=4, local=0.5, memory_bound=True, has_time=False),
    _planned("check", 250_000, 8, 64, features=32),
    _planned("check", 150_000, 25, 64),
    _planned("check", 100_000, 15, 128, features=100),
    _planned("check", 50_000, 15, 256, features=100),
    _planned("check", 200_000, 12, 64, ranks=2),
    _planned("check", 100_000, 15, 128, ranks=2, local=0.8),
    _planned("check", 120_000, 16, 64, ranks=2, memory_bound=True),
    _planned("check", 90_000, 12, 64, ranks=3, local=0.3, has_time=False),
    _planned("check", 90_000, 12, 64, ranks=3, memory_bound=True, has_time=False),
    _planned("check", 100_000, 10, 64, ranks=4, has_time=False),
    _planned("check", 100_000, 20, 64, ranks=4, local=0.9, has_time=False),
    _planned("check", 100_000, 10, 64, ranks=4, memory_bound=True, has_time=False),
)


# Measuring.


def drawn_task(shape: Shape, local: float) -> Task:
    """A graph with random edges, some of which join near nodes."""
    draw = torch.Generator().manual_seed(0)
    target = torch.randint(shape.nodes, (shape.edges,), generator=draw)
    near = (target + torch.randint(1, 50, (shape.edges,), generator=draw)) % shape.nodes
    far = torch.randint(shape.nodes, (shape.edges,), generator=draw)
    source = torch.where(torch.rand(shape.edges, generator=draw) < local, near, far)
    x, y = torch.randn(shape.nodes, shape.features, generator=draw), torch.arange(shape.nodes) % shape.outputs
    graphs = Graphs(x, torch.stack([source, target]), y, "node")
    schema = Schema(features=shape.features, outputs=shape.outputs)
    return Task("drawn", graphs, schema, (Split.draw(shape.nodes),), "cross_entropy", "accuracy")


def on_rank(shape: Shape, local: float, memory_bound: bool, steps: int) -> Row:
    """What this rank owns, and what a step costs it."""
    torch.set_num_threads(1)
    task = drawn_task(shape, local)
    part = part_nodes(task.graphs.edge_index, shape.nodes, dist.get_world_size(), method="blocks")
    ranks = Partitioned(task, part, memory_bound)
    torch.manual_seed(0)
    model = SIRNet.of(shape.features, shape.channels, shape.outputs, num_layers=shape.layers, aggr="mean")
    inference, parameters = Inference(model, task, 0, torch.device("cpu"), ranks=ranks), list(model.parameters())
    seconds, sent = [], _Sent()
    with ranks.joined(model, task, dict):
        batch = next(ranks.batches(task, "train", None, 0))

        def step() -> None:
            inference.training_loss(batch)[0].backward()
            ranks.sum_gradients(parameters)

        step()  # what is kept for the next step is made in the first
        reference = _reference_step() if steps else step
        for _ in range(steps):
            seconds.append((_cpu_seconds(step), _cpu_seconds(reference)))
        with sent:
            peak = _peak_bytes(step)
    sizes = ranks.graph.sizes
    largest = max(ranks.graph.received, default=0)
    return {
        **sizes._asdict(),
        "largest": largest,
        "seconds": seconds,
        "bytes": _held_bytes(ranks) + peak,
        "sent_bytes": sent.bytes,
    }


def _cpu_seconds(step: Callable[[], None]) -> float:
    dist.barrier()
    begun = time.process_time()
    step()
    return time.process_time() - begun


def _reference_step() -> Callable[[], None]:
    """A step of one layer on a graph of this rank alone, the same in all runs."""
    nodes, channels = 100_000, 64
    draw = torch.Generator().manual_seed(1)
    graph = Neighbors.from_edge_index(torch.randint(nodes, (2, 5 * nodes), generator=draw), nodes)
    x, net = torch.randn(nodes, channels, generator=draw), SIRNet.of(channels, channels, 1, num_layers=1, aggr="mean")

    def step() -> None:
        net(x, graph).sum().backward()

    step()
    return step


class _Sent:
    """Counts the bytes that leave this rank in exchanges of rows."""

    def __init__(self) -> None:
        self.bytes, self.plain = 0, dist.all_to_all_single

    def __enter__(self) -> None:
        setattr(dist, "all_to_all_single", self._count)  # noqa: B010 - its annotation is of one signature

    def __exit__(self, *error: object) -> None:
        setattr(dist, "all_to_all_single", self.plain)  # noqa: B010

    def _count(self, output: torch.Tensor, rows: torch.Tensor, *args: Any, **options: Any) -> Any:
        self.bytes += rows.nbytes
        return self.plain(output, rows, *args, **options)


def _peak_bytes(step: Any) -> int:
    """The most bytes of tensors that a step holds over what there is before it, by torch's record of allocations."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _held_bytes(ranks: Partitioned) -> int:
    """The bytes of the rows and grouped edges of a rank. The whole task, which a machine holds once, is not in them."""
    graph, own = ranks.graph, ranks.rows
    parts = [tensor for part in (graph.local, *graph.remote.values()) for tensor in (*part.tensors(), *part.degrees)]
    kept = own.x, own.batch, graph.nodes, graph.edges, *graph.sent, *parts
    return sum(tensor.nbytes for tensor in kept)


def measure(planned: Planned, steps: int = 5) -> Row:
    """The record of a run. The steps of each rank have their own CPU seconds and those of the reference step."""
    given = planned.shape, planned.local, planned.memory_bound, steps if planned.has_time else 0
    found = launch(on_rank, planned.ranks, given, restarts=0, seconds=900)
    return asdict(planned) | {"found": found, "environment": environment()}


def missing(record: Path) -> list[Planned]:
    """The runs of the plan that the record lacks."""
    known = [{key: row[key] for key in asdict(PLAN[0])} for row in read(record)]
    return [planned for planned in PLAN if asdict(planned) not in known]


def read(record: Path) -> list[Row]:
    """The runs of a record. The seconds of a rank are its quickest step, in terms of its quickest reference step."""
    rows = [json.loads(line) for line in record.read_text("utf-8").splitlines()] if record.exists() else []
    ranks = [rank for row in rows for rank in row["found"]]
    quickest = min((reference for rank in ranks for _, reference in rank["seconds"]), default=0.0)
    for rank in ranks:
        own, references = zip(*rank["seconds"], strict=True) if rank["seconds"] else ((), ())
        rank["seconds"] = quickest * min(own) / min(references) if own else None
    return rows


# The model.

SECONDS = {
    "multiplication of linear layers": "per node, see the text",
    "node, channel and layer": "norm, activation, residual",
    "edge, channel and layer": "a message",
    "edge and layer": "finding the message",
    "halo row, channel and layer": "sending and receiving",
    "node, channel and layer of large tables": "fresh memory, see the text",
}
BYTES = {
    "node and feature": "the rows that the rank holds",
    "node, channel and layer": "what the backward pass needs",
    "node and channel": "what lives for one layer",
    "edge": "the grouped edges",
    "halo row, channel and layer": "halo all at once",
    "largest halo row and channel": "halo from one rank after another",
    "sent row and channel": "rows on their way out",
}
SENT = {"halo row, channel and layer": "4 bytes each way"}


FRESH = 32 * 2**20
"""The bytes from which on glibc gives a table fresh memory every time, and its pages are made anew when written."""


def products_of(shape: Shape) -> int:
    """The multiplications of a node in one forward pass: query, key, W_R and residual of each layer, and the readout.

    >>> products_of(Shape(nodes=1, edges=1, features=2, channels=3, outputs=5, layers=2))
    78
    """
    widths = [shape.features] + [shape.channels] * (shape.layers - 1)
    layers = sum(3 * width * shape.channels + shape.channels**2 for width in widths)
    return layers + shape.channels * shape.outputs


def terms_of(shape: Shape, rank: Row, memory_bound: bool) -> dict[str, list[float]]:
    """How often a rank meets each entry of `SECONDS`, `BYTES` and `SENT` in a step."""
    nodes, edges, channels, layers = rank["nodes"], rank["edges"], shape.channels, shape.layers
    # Rows go out and come in, and their gradients the other way; one rank after another, the rows come twice.
    sent, halo = rank["sent"] * (1 + memory_bound), rank["halo"]
    wide = channels * layers
    at_once = 0 if memory_bound else halo
    largest = rank["largest"] if memory_bound else 0
    fresh = nodes * wide * (4 * nodes * channels > FRESH)
    return {
        "seconds": [
            nodes * products_of(shape),
            nodes * wide,
            edges * wide,
            edges * layers,
            (sent + halo) * wide,
            fresh,
        ],
        "bytes": [
            nodes * shape.features,
            nodes * wide,
            nodes * channels,
            edges,
            at_once * wide,
            largest * channels,
            rank["sent"] * channels,
        ],
        "sent_bytes": [(sent + halo) * wide],
    }


def samples_of(rows: list[Row], what: str) -> tuple[np.ndarray, np.ndarray]:
    """The terms and the measured values of the ranks of some runs."""
    kept = [row for row in rows if what != "seconds" or row["has_time"]]
    kept = [row for row in kept if what != "sent_bytes" or row["ranks"] > 1]
    pairs = [
        (terms_of(Shape(**row["shape"]), rank, row["memory_bound"])[what], rank[what])
        for row in kept
        for rank in row["found"]
    ]
    return np.array([terms for terms, _ in pairs], float), np.array([value for _, value in pairs], float)


def fit(rows: list[Row], what: str) -> np.ndarray:
    """The cost of each term, none below 0, with the smallest relative errors on these runs."""
    terms, values = samples_of(rows, what)
    scale = terms.max(axis=0)
    scale[scale == 0] = 1
    found, _ = nnls(terms / values[:, None] / scale, np.ones(len(values)))
    return found / scale


def errors(rows: list[Row], what: str, costs: np.ndarray) -> np.ndarray:
    """The relative error of the model on each rank of some runs."""
    terms, values = samples_of(rows, what)
    return terms @ costs / values - 1


@dataclass(frozen=True)
class Cluster:
    """Machines that we do not have. One rank runs on each of them, on all of its cores.

    Args:
        name: what they are.
        machines: how many there are.
        cores: the cores of one.
        gbits: what its network carries in one direction, in Gbit/s.
        memory: the memory of one, in GB.
    """

    name: str
    machines: int
    cores: int
    gbits: float
    memory: float


PUBLISHED = ("ogbn-papers100M", "SAR, GraphSAGE, as published: 128 × SAR's machines", "METIS", "", "", "3.8", "")
"""What the README of SAR says of its epoch, in the columns of the predictions."""

THREADS = 0.5
"""The share of its ideal speed that a rank has on all cores of a machine: assumed, not measured."""

GRAPHS = {
    "ogbn-products": Shape(2_449_029, 123_718_280, 100, 256, 47),
    "ogbn-papers100M": Shape(111_059_956, 3_228_124_712, 128, 256, 172),
}
CLUSTERS = {
    "ogbn-products": (
        Cluster("c7i.16xlarge", 1, 32, 25, 137),
        Cluster("c7i.16xlarge", 4, 32, 25, 137),
        Cluster("c7i.16xlarge", 16, 32, 25, 137),
    ),
    "ogbn-papers100M": (
        Cluster("r7i.16xlarge", 16, 32, 25, 550),
        Cluster("r7i.16xlarge", 64, 32, 25, 550),
        Cluster("SAR's machines", 128, 72, 200, 256),
    ),
}


def rank_of(shape: Shape, machines: int, halo_share: float | None) -> Row:
    """What a rank owns and exchanges, if all ranks own the same.

    Args:
        shape: the graph.
        machines: the number of ranks.
        halo_share: the rows of the halo in those that a rank owns; None for nodes that are divided at random.
    """
    nodes, edges = shape.nodes / machines, shape.edges / machines
    if halo_share is None:
        away = shape.nodes - nodes
        halo = away * -np.expm1(edges * np.log1p(-1 / shape.nodes))
    else:
        halo = halo_share * nodes if machines > 1 else 0.0
    largest = halo / max(1, machines - 1)
    return {"nodes": nodes, "edges": edges, "halo": halo, "sent": halo, "largest": largest}


def predict(shape: Shape, cluster: Cluster, halo_share: float | None, costs: dict[str, np.ndarray]) -> Row:
    """Seconds of a step and bytes of a machine. The sequential exchange is taken where nodes are divided at random."""
    memory_bound = halo_share is None and cluster.machines > 1
    terms = terms_of(shape, rank_of(shape, cluster.machines, halo_share), memory_bound)
    work, held, sent = (float(np.dot(terms[what], costs[what])) for what in ("seconds", "bytes", "sent_bytes"))
    whole = 4 * shape.nodes * shape.features + 16 * shape.edges
    wire = sent * 8 / (cluster.gbits * 1e9)
    return {"work": work / (cluster.cores * THREADS), "wire": wire, "rank": held, "whole": whole}


# The page.


def tables(rows: list[Row]) -> dict[str, str]:
    """The text behind each marker of the page."""
    fitted, checked = ([row for row in rows if row["use"] == use] for use in ("fit", "check"))
    costs = {what: fit(fitted, what) for what in ("seconds", "bytes", "sent_bytes")}
    return {
        "costs": _cost_table(costs),
        "errors": _error_table(fitted, checked, costs),
        "runs": _run_table(checked, costs),
        "predictions": _prediction_table(costs),
        "machine": _machine(rows),
    }


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def _cost_table(costs: dict[str, np.ndarray]) -> str:
    lines = [_cost_line(entry, f"{1e9 * cost:.3g} ns", "") for entry, cost in _named(SECONDS, costs["seconds"])]
    lines += [_cost_line(entry, "", f"{cost:.3g} B held") for entry, cost in _named(BYTES, costs["bytes"])]
    lines += [_cost_line(entry, "", f"{cost:.3g} B sent") for entry, cost in _named(SENT, costs["sent_bytes"])]
    return _table(["for each", "what it is", "time of one core", "memory or network"], lines)


def _cost_line(entry: tuple[str, str], seconds: str, size: str) -> list[str]:
    return [*entry, seconds, size]


def _named(names: dict[str, str], costs: np.ndarray) -> Any:
    return zip(names.items(), costs, strict=True)


def _error_table(fitted: list[Row], checked: list[Row], costs: dict[str, np.ndarray]) -> str:
    titles = {"seconds": "CPU time, 1 and 2 ranks", "bytes": "memory, 1 to 4 ranks", "sent_bytes": "bytes sent, 2 to 4"}
    lines = []
    for what, title in titles.items():
        on_fit, on_check = (np.abs(errors(rows, what, costs[what])) for rows in (fitted, checked))
        figures = [f"{100 * value:.1f} %" for value in (on_fit.max(), np.median(on_check), on_check.max())]
        lines.append([title, str(len(on_check)), *figures])
    head = ["figure of a rank", "ranks checked", "largest error, fitted", "median error, not fitted"]
    return _table([*head, "largest error, not fitted"], lines)


def _run_table(checked: list[Row], costs: dict[str, np.ndarray]) -> str:
    lines = []
    for row in checked:
        shape, rank = Shape(**row["shape"]), row["found"][0]
        terms = terms_of(shape, rank, row["memory_bound"])
        guess = {what: float(np.dot(terms[what], costs[what])) for what in terms}
        exchange = "one after another" if row["memory_bound"] else "all at once"
        size = [f"{shape.nodes:,}", f"{shape.edges:,}", str(shape.channels), str(row["ranks"])]
        times = [f"{rank['seconds']:.2f}", f"{guess['seconds']:.2f}"] if row["has_time"] else ["", ""]
        megabytes = [f"{value / 1e6:.0f}" for value in (rank["bytes"], guess["bytes"])]
        lines.append([*size, exchange if row["ranks"] > 1 else "", f"{rank['halo']:,}", *times, *megabytes])
    head = ["nodes", "edges", "channels", "ranks", "exchange", "halo rows", "CPU s", "model", "MB", "model"]
    return _table(head, lines)


def _prediction_table(costs: dict[str, np.ndarray]) -> str:
    lines = []
    for graph, clusters in CLUSTERS.items():
        for cluster in clusters:
            for share, title in ((0.5, "0.5 × own, at once"), (None, "random, sequential")):
                if cluster.machines == 1 and share is None:
                    continue
                found = predict(GRAPHS[graph], cluster, share, costs)
                total = (found["rank"] + found["whole"]) / 1e9
                fits = "" if total <= cluster.memory else ", too large"
                where = f"{cluster.machines} × {cluster.name}: {cluster.cores} cores, {cluster.gbits:g} Gbit/s"
                halo = "none" if cluster.machines == 1 else title
                seconds = found["work"] + found["wire"]
                figures = [f"{found['work']:.2g}", f"{found['wire']:.2g}", f"{seconds:.2g}"]
                memory = f"{found['rank'] / 1e9:.3g} + {found['whole'] / 1e9:.3g} of {cluster.memory:g}{fits}"
                lines.append([graph, where, halo, *figures, memory])
    lines.append(list(PUBLISHED))
    head = ["graph", "machines", "halo", "s of work", "s of network", "s of a step", "GB of a machine: rank + task"]
    return _table(head, lines)


def _machine(rows: list[Row]) -> str:
    loads = [row["environment"]["load_at_start"] for row in rows]
    where = rows[0]["environment"]
    return (
        f"{len(rows)} runs on {where['cpu']}, {where['cores']} cores, torch {where['torch']}, one thread per rank. "
        f"The machine was shared: its load was {min(loads):.1f} to {max(loads):.1f}."
    )


def rendered(page: str, texts: dict[str, str]) -> str:
    """A page with the text between its markers written anew.

    >>> rendered("<!-- bench: scaling a -->old<!-- /bench -->", {"a": "new"}).split()
    ['<!--', 'bench:', 'scaling', 'a', '-->', 'new', '<!--', '/bench', '-->']
    """

    def write(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{texts[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- bench: scaling (\w+) -->).*?(<!-- /bench -->)", write, page, flags=re.DOTALL)


def main() -> None:
    """Measure what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "render"))
    if parser.parse_args().what == "render":
        write_atomic(PAGE, rendered(PAGE.read_text("utf-8"), tables(read(RECORD))).encode())
        return
    for planned in missing(RECORD):
        row = measure(planned)
        with RECORD.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(planned, [rank["seconds"] for rank in row["found"]], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
