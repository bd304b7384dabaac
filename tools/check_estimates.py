"""What a training was said to take, and what it took: `python tools/check_estimates.py [--only NAME ...]`.

Graphs are drawn that no rule was tuned for, of several sizes and kinds. Each is trained in a process of its own. The
record, `results/model/estimates.json`, holds three figures of each:

- the memory that was told before the training, beside the most that the process took;
- the time that was told before the training, by timing a few steps, beside the time that it took;
- the time that was told to be left after the third epoch, beside the time that was left.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine.environment import environment, peak_memory_mb
from sirgcn.files import write_atomic
from sirgcn.model import FitSettings, fit

RECORD = Path(__file__).parents[1] / "results" / "model" / "estimates.json"


def one_graph(nodes: int, degree: int, columns: int) -> Task:
    """One graph with uniform edges, whose labels are the signs of a sum over neighbours."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, columns, generator=draw)
    edge_index = torch.randint(nodes, (2, nodes * degree), generator=draw)
    sums = torch.zeros(nodes).index_add_(0, edge_index[1], x[edge_index[0], 0])
    graphs = Graphs(x, edge_index, (sums > 0).long(), "node")
    return Task("drawn", graphs, Schema(columns, outputs=2), (Split.draw(nodes),), "cross_entropy", "accuracy")


def many_graphs(count: int, nodes: int, degree: int, columns: int) -> Task:
    """Graphs of equal size with uniform edges, whose target is a number."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(count * nodes, columns, generator=draw)
    first = torch.arange(count).repeat_interleave(nodes * degree) * nodes
    edge_index = torch.randint(nodes, (2, len(first)), generator=draw) + first
    sums = torch.zeros(count * nodes).index_add_(0, edge_index[1], x[edge_index[0], 0]).relu()
    y = sums.view(count, nodes).mean(1)
    graphs = Graphs(
        x,
        edge_index,
        y,
        "graph",
        node_ptr=torch.arange(count + 1) * nodes,
        edge_ptr=torch.arange(count + 1) * nodes * degree,
    )
    return Task("drawn", graphs, Schema(columns, outputs=1), (Split.draw(count),), "mse", "rmse")


DRAWN: dict[str, tuple[str, Callable[[], Task]]] = {
    "sparse": ("20,000 nodes with 3 edges and 16 columns", lambda: one_graph(20_000, 3, 16)),
    "dense": ("10,000 nodes with 60 edges and 16 columns", lambda: one_graph(10_000, 60, 16)),
    "wide": ("10,000 nodes with 10 edges and 300 columns", lambda: one_graph(10_000, 10, 300)),
    "graphs": ("1,500 graphs with 25 nodes, 3 edges each, and 10 columns", lambda: many_graphs(1_500, 25, 3, 10)),
}


class Told:
    """Keeps when each epoch ended and what was said to be left."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float | None]] = []

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Called after every epoch."""
        self.rows.append((time.perf_counter(), row["seconds_left"]))


def measured(name: str, epochs: int) -> dict[str, Any]:
    """Train on a drawn task; what was told and what was found."""
    what, make = DRAWN[name]
    torch.set_num_threads(1)
    watcher = Told()
    model = fit(make(), FitSettings("fast", train={"epochs": epochs, "warmup": 2}), watcher=watcher)
    plan, end = model.about["plan"], watcher.rows[-1][0]
    then, left = watcher.rows[2]
    trial = model.about["trials"][0]
    peak = peak_memory_mb()
    assert peak is not None, "this system does not say how much memory a process had"
    assert trial["epochs"] == epochs, f"it stopped after {trial['epochs']} epochs; take fewer"
    return {
        "what": what,
        "epochs": epochs,
        "bytes_told": plan["bytes"],
        "bytes": round(peak * 2**20),
        "seconds_told": plan["seconds"],
        "seconds": trial["seconds"],
        "left_told": left,
        "left": end - then,
    }


def main() -> None:
    """Measure each task in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(DRAWN), choices=list(DRAWN))
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--one", choices=list(DRAWN), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.epochs)))
        return
    for name in options.only:
        command = [sys.executable, __file__, "--one", name, "--epochs", str(options.epochs)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(name, found, flush=True)
        known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
        known[name] = {**found, "environment": environment()}
        write_atomic(RECORD, (json.dumps(known, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
