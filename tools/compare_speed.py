"""Time of this checkout's layers beside those of another one: `python tools/compare_speed.py OTHER [--out FILE]`.

Both are run in turn, each time in a new process, on the same calls of the public interface. A row gives the median of
the rounds' ratios (this checkout's time by the other's) with its quartiles: 1.00 is no change, and a spread that
contains 1 is none that was measured.

OTHER is a folder with another checkout, whose C code is built: `git worktree add OTHER REVISION`, then
`python tools/build_kernels.py` there, or a copy of the extension where the C code is the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Measure, or, as a child process, time the calls once and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", nargs="?", help="the other checkout")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(timed()))
        return
    if arguments.other is None:
        parser.error("name the folder of the other checkout")
    rounds = []
    for number in range(arguments.rounds):
        # Neither is always the first.
        order = [Path(arguments.other), ROOT][:: -1 if number % 2 else 1]
        found = {checkout: run(checkout) for checkout in order}
        rounds.append({name: found[ROOT][name] / found[Path(arguments.other)][name] for name in found[ROOT]})
    rows = {name: [found[name] for found in rounds] for name in rounds[0]}
    for name, ratios in rows.items():
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:36} {middle:5.3f}  ({low:.3f} to {high:.3f})")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record(rows, Path(arguments.other)), indent=1) + "\n")


def record(rows: dict[str, list[float]], other: Path) -> dict[str, Any]:
    """The ratios of all rounds, with the machine and the two commits."""
    from sirgcn.engine.environment import environment

    commits = [
        subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        for folder in (ROOT, other)
    ]
    return {
        "what": "time of `after` by that of `before`, one ratio a round, in turn, one thread",
        "after": commits[0].stdout.strip(),
        "before": commits[1].stdout.strip(),
        "environment": environment(),
        "ratios": {name: [round(ratio, 4) for ratio in ratios] for name, ratios in rows.items()},
    }


def run(checkout: Path) -> dict[str, float]:
    """The times of a checkout, from a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(found.stdout)
    return times


def timed() -> dict[str, float]:
    """Seconds of each call: the median of samples of at least 20 ms."""
    found = {}
    for name, call in calls().items():
        call()
        started = time.perf_counter()
        call()
        times = max(1, int(0.02 / (time.perf_counter() - started)))
        samples = []
        for _ in range(7):
            started = time.perf_counter()
            for _ in range(times):
                call()
            samples.append((time.perf_counter() - started) / times)
        found[name] = statistics.median(samples)
    return found


def calls() -> dict[str, Callable[[], object]]:
    """What is timed: forward and backward of layers and networks, small enough for checks to show and large."""
    import torch

    from sirgcn import Neighbors, SIRConv, SIRNet

    torch.manual_seed(0)
    found: dict[str, Callable[[], object]] = {}

    def steps(name: str, module: torch.nn.Module, *inputs: object) -> None:
        def step() -> None:
            module(*inputs).sum().backward()

        found[name] = step

    for size, nodes, edges, width in (("small", 100, 400, 16), ("medium", 5000, 50_000, 64)):
        edge_index = torch.randint(nodes, (2, edges))
        x = torch.randn(nodes, width)
        graph = Neighbors.from_edge_index(edge_index, nodes)
        found[f"{size}: grouping of edges"] = partial(Neighbors.from_edge_index, edge_index, nodes)
        for aggr in ("sum", "sym", "max"):
            steps(f"{size}: SIRConv, {aggr}", SIRConv(width, width, aggr=aggr), x, graph)
        steps(f"{size}: SIRConv, edge_index", SIRConv(width, width), x, edge_index)
        steps(f"{size}: SIRConv, plain route", SIRConv(width, width, fused=False), x, edge_index)
        sigma = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU())
        steps(f"{size}: SIRConv, network", SIRConv(width, width, activation=sigma), x, graph)
        net = SIRNet(4, width, 1, num_layers=3, encoder="embedding")
        steps(f"{size}: SIRNet of categories", net, torch.randint(4, (nodes,)), edge_index)
    return found


if __name__ == "__main__":
    main()
