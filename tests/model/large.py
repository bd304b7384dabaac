"""Trains on a large graph from its files: `python -m tests.model.large --nodes 200000 --edges 2000000 --epochs 3`.

The real command reads the tables of a drawn graph and trains 3 layers of 64 channels, with the controls beside it. The
last line is a summary as JSON. The exit code is 1 where the memory exceeds the limit, or where nothing is said within
the first second of work.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

LIMIT = 6 * 2**30
FIRST = 1.0  # second of the command's own work, in which it says what it does
LAYERS, CHANNELS, COLUMNS = 3, 64, 16


def main() -> None:
    """Run the training and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.large")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-controls", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = run(Path(name), given.nodes, given.edges, given.epochs, not given.no_controls)
    print(json.dumps(found))
    sys.exit(0 if found["bytes"] < LIMIT and found["first_line_cpu_seconds"] < FIRST else 1)


def run(folder: Path, nodes: int, edges: int, epochs: int, controls: bool = True) -> dict[str, Any]:
    """Train on a graph of this size; the memory, the times, and what was said first.

    Args:
        folder: an empty folder.
        nodes: the number of nodes.
        edges: the number of edges in the file, each of which is read in both directions.
        epochs: the number of epochs.
        controls: whether controls are fitted beside it.
    """
    write(folder, nodes, edges, epochs)
    command = [sys.executable, "-m", "sirgcn.cli", "train", str(folder / "config.toml"), "--out", str(folder / "model")]
    command += [] if controls else ["--no-controls"]
    started, said = time.perf_counter(), []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said.append(process.stderr.readline())
        first, first_cpu = time.perf_counter() - started, cpu_seconds(process.pid)
        said += process.stderr.readlines()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("".join(said[-5:]))
    plan = json.loads((folder / "model" / "training.json").read_text("utf-8"))["plan"]
    return {
        "nodes": nodes,
        "edges": edges,
        "layers": LAYERS,
        "channels": CHANNELS,
        "epochs": epochs,
        "bytes": used.ru_maxrss * 1024,
        "bytes_told": plan["bytes"],
        "first_line": said[0].strip(),
        "first_line_seconds": round(first, 2),
        "first_line_cpu_seconds": round(first_cpu, 2),
        "lines": len(said),
        "cpu_seconds": round(used.ru_utime + used.ru_stime),
    }


def cpu_seconds(process: int) -> float:
    """The time that a running process has had on the CPU."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write(folder: Path, nodes: int, edges: int, epochs: int) -> None:
    """Write a graph whose labels are the signs of a sum over neighbours, and what is to be trained."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(nodes, COLUMNS)).round(3)
    source, target = draw.integers(nodes, size=(2, edges))
    sums = np.bincount(target, x[source, 0], nodes) + np.bincount(source, x[target, 0], nodes) + x[:, 1]
    table = pd.DataFrame(x, columns=[f"column_{place}" for place in range(COLUMNS)])
    table.insert(0, "id", np.arange(nodes))
    table["label"] = np.where(sums > 0, "more", "less")
    table.to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame({"source": source, "target": target}).to_csv(folder / "edges.csv", index=False)
    (folder / "config.toml").write_text(
        f"""[data]
nodes = "nodes.csv"
edges = "edges.csv"
target = "label"

[train]
preset = "fast"
network = {{ num_layers = {LAYERS}, hidden_channels = {CHANNELS} }}
train = {{ epochs = {epochs}, warmup = 0 }}
"""
    )


if __name__ == "__main__":
    main()
