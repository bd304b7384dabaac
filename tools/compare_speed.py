"""Compare the speed of this checkout with that of another one: `python tools/compare_speed.py OTHER [--out FILE]`.

Each checkout has its own process. Both processes take turns to time the same call of the public interface, about 20 ms
a sample. A row shows the median and the quartiles of the ratios of neighbouring samples: the time of this checkout,
divided by the time of the other one. 1.00 means no change.

OTHER is the folder of another checkout. Create it with `git worktree add OTHER REVISION`. Build its C code there with
`python setup.py build_ext --inplace`, or copy the extension if the C code is the same.
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
    """Compare both checkouts; or, in a child process, time the calls whose names arrive on standard input."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", nargs="?", type=Path, help="the folder of the other checkout")
    parser.add_argument("--samples", type=int, default=60, help="of each call and checkout")
    parser.add_argument("--out", type=Path, help="write the record here, as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        answer()
        return
    if arguments.other is None:
        parser.error("name the folder of the other checkout")
    ours, theirs = child(ROOT), child(arguments.other)
    rows = {}
    for name in json.loads(ask(ours, "names")):
        ask(ours, name), ask(theirs, name)  # the first ones warm up
        rows[name] = [float(ask(ours, name)) / float(ask(theirs, name)) for _ in range(arguments.samples)]
        low, middle, high = statistics.quantiles(rows[name], n=4)
        print(f"{name:36} {middle:5.3f}  ({low:.3f} to {high:.3f})", flush=True)
    for process in (ours, theirs):
        process.communicate()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(record(rows, arguments.other), indent=1) + "\n")


def record(rows: dict[str, list[float]], other: Path) -> dict[str, Any]:
    """The ratios of all rounds, together with the machine and the two commits."""
    from sirgcn.engine.environment import environment

    commits = [
        subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        for folder in (ROOT, other)
    ]
    return {
        "what": "time of `after` by that of `before`, a ratio for each pair of samples, in turn, one thread",
        "after": commits[0].stdout.strip(),
        "before": commits[1].stdout.strip(),
        "environment": environment(),
        "ratios": {name: [round(ratio, 4) for ratio in ratios] for name, ratios in rows.items()},
    }


def child(checkout: Path) -> "subprocess.Popen[str]":
    """Start a process that imports the package of a checkout."""
    # The number of page faults for new memory varies from run to run. The allocator therefore keeps freed memory.
    kept = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000"}
    env = {**os.environ, **kept, "PYTHONPATH": str(checkout.resolve() / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    return subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(process: "subprocess.Popen[str]", name: str) -> str:
    """Send a line to a child process and return the line that it answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    return process.stdout.readline()


def answer() -> None:
    """Read names from standard input and print the seconds of each call, from a sample of about 20 ms."""
    found, times = calls(), dict[str, int]()
    for line in sys.stdin:
        name = line.strip()
        if name == "names":
            print(json.dumps(list(found)), flush=True)
            continue
        if name not in times:
            found[name]()
            started = time.perf_counter()
            found[name]()
            times[name] = max(1, int(0.02 / (time.perf_counter() - started)))
        started = time.perf_counter()
        for _ in range(times[name]):
            found[name]()
        print((time.perf_counter() - started) / times[name], flush=True)


def calls() -> dict[str, Callable[[], object]]:
    """The calls to time: forward and backward passes of layers and networks.

    Some are so small that the time of checks shows, others are large.
    """
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
