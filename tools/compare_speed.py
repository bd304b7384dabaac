"""Time of this checkout beside that of another one: `python tools/compare_speed.py OTHER [--out FILE]`.

Both checkouts do the same work in turn, on one thread:

- calls: layers, networks and batches of training in one long-lived process per checkout, about 20 ms at a time;
- epochs: whole epochs of `sirgcn reproduce` in a fresh process each time, for HeteroEdgeCount, DictionaryLookup and,
  where `SIRGCN_DATA` names the data folder, ZINC.

A row gives the median of the ratios of neighbouring samples (the time of this checkout by that of the other one) with
its quartiles: 1.00 is no change. `--out` appends the ratios to a file of records, one line per row.

OTHER is a folder with another checkout, whose C code is built: `git worktree add OTHER REVISION`, then
`python setup.py build_ext --inplace` there, or a copy of the extension where the C code is the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from checkouts import ROOT, Network, ask, build, commit_of, environment, random_batch, start, trainer

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}

EPOCHS = {
    "epoch of HeteroEdgeCount(10)": ("hetero_edge_count", "c=10"),
    "epoch of DictionaryLookup(30)": ("dictionary_lookup", "n=30"),
    "epoch of ZINC": ("zinc", "ZINC"),
}
"""The experiment and the column whose epochs are timed, by the titles of the rows."""

EPOCHS_PER_RUN = 4
"""Epochs of one process. The median of their times stands for the process, so that the first one does not count."""


def main() -> None:
    """Measure, or, as a child process, time a call whenever its name comes in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--samples", type=int, default=60, help="of each call and checkout; default: 60, 0 for none")
    parser.add_argument(
        "--epochs", type=int, default=5, help="processes of each epoch and checkout; default: 5, 0 for none"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only the rows whose titles contain this text")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="cpu", help="of the calls; epochs have the wall's; default: cpu"
    )
    parser.add_argument("--out", type=Path, help="append the ratios to this file of records")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        answer(CLOCKS[arguments.clock])
        return
    if arguments.other is None:
        parser.error("name the folder of the other checkout")
    rows = {}
    for title, ratios in measured(arguments):
        rows[title] = ratios
        low, middle, high = quartiles(ratios)
        print(f"{title:44} {middle:5.3f}  ({low:.3f} to {high:.3f}, {len(ratios)})", flush=True)
    if arguments.out is not None:
        write(arguments.out, rows, arguments)


def measured(arguments: argparse.Namespace) -> Iterator[tuple[str, list[float]]]:
    """The rows that are asked for: the title and the ratio of every pair of samples."""
    if arguments.samples:
        yield from measured_calls(arguments)
    if arguments.epochs:
        for title in timed_epochs(arguments.only):
            yield title, epoch_ratios(title, arguments.other, arguments.epochs)


def measured_calls(arguments: argparse.Namespace) -> Iterator[tuple[str, list[float]]]:
    """The rows of the calls, which one process of each checkout times in turn."""
    ours, theirs = (
        start(checkout, "compare_speed.py", "--child", "--clock", arguments.clock)
        for checkout in (ROOT, arguments.other)
    )
    for title in json.loads(ask(ours, "names")):
        if arguments.only in title:
            yield title, call_ratios(title, ours, theirs, arguments.samples)
    for process in (ours, theirs):
        process.communicate()


def timed_epochs(only: str) -> list[str]:
    """The titles of the epochs that contain a text. ZINC needs the data folder."""
    titles = [title for title in EPOCHS if only in title]
    return titles if os.environ.get("SIRGCN_DATA") else [title for title in titles if title != "epoch of ZINC"]


def call_ratios(
    title: str, ours: "subprocess.Popen[str]", theirs: "subprocess.Popen[str]", samples: int
) -> list[float]:
    """The ratios of a call, whose samples the two processes take in turn."""
    for process in (ours, theirs):
        ask(process, title)  # a warm-up
    return [float(ask(ours, title)) / float(ask(theirs, title)) for _ in range(samples)]


def epoch_ratios(title: str, other: Path, rounds: int) -> list[float]:
    """The ratios of an epoch, for which the two checkouts start a process in turn; the order alternates."""
    found = []
    for number in range(rounds):
        order = (ROOT, other) if number % 2 == 0 else (other, ROOT)
        seconds = {checkout: epoch_seconds(checkout, *EPOCHS[title]) for checkout in order}
        found.append(seconds[ROOT] / seconds[other])
    return found


def epoch_seconds(checkout: Path, experiment: str, column: str) -> float:
    """The seconds of one epoch of an experiment's SIR-GCN as a checkout trains it in a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    from sirgcn.engine.records import read, seconds_per_epoch, with_curves

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "sirgcn.cli", "reproduce", experiment, "--models", "SIR-GCN"]
        command += ["--columns", column, "--seeds", "0", "--threads", "1", "--set", f"train.epochs={EPOCHS_PER_RUN}"]
        command += ["--results", f"{folder}/results", "--work", f"{folder}/runs"]
        done = subprocess.run(command, env=environment(checkout), cwd=folder, capture_output=True, text=True)
        files = list(Path(folder).glob("results/*.jsonl"))
        if done.returncode or len(files) != 1:
            raise RuntimeError(f"{checkout}: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        (record,) = read(files[0])
        seconds = seconds_per_epoch(with_curves(files[0], record))
    assert seconds is not None
    return seconds


def quartiles(ratios: list[float]) -> list[float]:
    """The quartiles; one ratio alone stands for all three."""
    return statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3


def write(path: Path, rows: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    """Append a record of the machine and the commits, and one per row; `python -m sirgcn.bench --render` reads them."""
    from sirgcn.bench.records import RATIOS, Session
    from sirgcn.engine.timing import summary

    commits = {"after": commit_of(ROOT), "before": commit_of(arguments.other)}
    session = Session(path, {"form": "two checkouts", **commits, "clock": arguments.clock})
    for title, ratios in rows.items():
        session.add(RATIOS, {"call": title, "threads": 1}, "after / before", {"ratio": summary(ratios)}, ratios)


def answer(clock: Callable[[], float]) -> None:
    """For every name that comes in, print the seconds of its call, taken in a sample of about 20 ms."""
    found, times = calls(), dict[str, int]()
    for line in sys.stdin:
        name = line.strip()
        if name == "names":
            print(json.dumps(list(found)), flush=True)
            continue
        if name not in times:
            found[name]()
            times[name] = max(1, int(0.02 / sample(found[name], 1, clock)))
        print(sample(found[name], times[name], clock), flush=True)


def sample(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    """The seconds of one call, as the mean of several."""
    started = clock()
    for _ in range(times):
        call()
    return (clock() - started) / times


def calls() -> dict[str, Callable[[], object]]:
    """What is timed, by its title: small sizes, at which checks would show, and larger ones."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return {**layer_calls("small", 100, 400, 16), **layer_calls("medium", 5000, 50_000, 64), **training_calls()}


def layer_calls(size: str, nodes: int, edges: int, width: int) -> dict[str, Callable[[], object]]:
    """Grouping of edges, and forward and backward passes of layers and of a network of categories."""
    import torch

    from sirgcn import Neighbors, SIRConv

    edge_index = torch.randint(nodes, (2, edges))
    x = torch.randn(nodes, width)
    graph = Neighbors.from_edge_index(edge_index, nodes)
    sigma = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU())
    categories = Network("pattern", (3,), 2, changes={"hidden_channels": width})
    passes: dict[str, tuple[Any, ...]]
    passes = {f"SIRConv, {aggr}": (SIRConv(width, width, aggr=aggr), x, graph) for aggr in ("sum", "sym", "max")}
    passes |= {
        "SIRConv, edge_index": (SIRConv(width, width), x, edge_index),
        "SIRConv, plain route": (SIRConv(width, width, fused=False), x, edge_index),
        "SIRConv, network": (SIRConv(width, width, activation=sigma), x, graph),
        "SIRNet of categories": (build(categories), torch.randint(3, (nodes,)), edge_index),
    }
    found: dict[str, Callable[[], object]] = {
        "grouping of edges": partial(Neighbors.from_edge_index, edge_index, nodes)
    }
    found |= {name: partial(one_pass, *call) for name, call in passes.items()}
    return {f"{size}: {name}": call for name, call in found.items()}


def one_pass(module: Any, *inputs: object) -> None:
    """Forward and backward."""
    module(*inputs).sum().backward()


def training_calls() -> dict[str, Callable[[], object]]:
    """A few batches of the engine's training, and steps of ZINC's network on random molecules.

    The synthetic data are generated. The batches of ZINC need the data folder.
    """
    lookup = Network("dictionary_lookup", (31, 31), 30, changes={"n": 30})
    count = Network("hetero_edge_count", (10,), 1, graphs=256, changes={"c": 10})
    zinc = Network("zinc", (28,), 1, graphs=128)
    found: dict[str, Callable[[], object]] = {
        "training: HeteroEdgeCount(10), 4 batches": batches_call(
            count, "hetero_edge_count", {"c": 10, "num_graphs": 2000}, 256
        ),
        "training: DictionaryLookup(30), 4 batches": batches_call(
            lookup, "dictionary_lookup", {"n": 30, "num_graphs": 2000}, 256
        ),
        "training: zinc, 128 random molecules": step_call(zinc),
    }
    if os.environ.get("SIRGCN_DATA"):
        found["training: ZINC, 4 batches"] = batches_call(zinc, "ZINC", {"bonds": False, "download": False}, 128)
    return found


def batches_call(network: Network, data: str, options: dict[str, Any], batch_size: int) -> Callable[[], None]:
    """Four batches of training, from the slicing of the batch to the step of the optimiser."""
    engine = trainer(network, data, options, batch_size)

    def run() -> None:
        for batch in islice(engine.task.batches("train", batch_size, generator=engine.generator), 4):
            engine.step(batch)

    return run


def step_call(network: Network) -> Callable[[], None]:
    """A step of AdamW on one batch of random graphs of 23 nodes."""
    import torch

    model = build(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batch = random_batch(network, nodes=23 * network.graphs, edges=50 * network.graphs, seed=0)

    def run() -> None:
        optimizer.zero_grad()
        model(**batch).abs().mean().backward()
        optimizer.step()

    return run


if __name__ == "__main__":
    main()
