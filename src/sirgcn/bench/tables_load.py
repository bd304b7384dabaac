"""Seconds and peak memory of `load_tables` on generated text files, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sirgcn.bench.graphs import LeftOut
from sirgcn.bench.memory import peak_bytes
from sirgcn.data.tables import load_tables


@dataclass(frozen=True)
class Files:
    """The size of the text files.

    A node has an id, ten numbers, a category of 30, a truth value and one of five classes.

    >>> Files(nodes=60, edges=200)
    Files(nodes=60, edges=200)
    """

    nodes: int
    edges: int


LARGE = Files(200_000, 2_000_000)
"""The files for which `sirgcn.bench.targets` has limits."""


def write_files(files: Files, folder: Path, seed: int = 0) -> None:
    """Write `nodes.csv` and `edges.csv` into a folder."""
    rng = np.random.default_rng(seed)
    count = files.nodes
    ids = np.array([f"node{number}" for number in rng.permutation(count)])
    nodes = pd.DataFrame({"id": ids} | {f"x{place}": rng.normal(size=count).round(5) for place in range(10)})
    nodes["category"] = rng.choice([f"category {number}" for number in range(30)], count)
    nodes["truth"] = rng.random(count) < 0.3
    nodes["label"] = rng.choice(list("abcde"), count)
    nodes.loc[rng.random(count) < 0.01, "x3"] = np.nan
    ends = rng.integers(0, count, (2, files.edges))
    edges = pd.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]], "weight": rng.random(files.edges).round(4)})
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)


def measure_tables(files: Files, threads: int) -> dict[str, Any]:
    """Measure the way from the files to a task.

    Returns:
        `seconds`, `peak_bytes` of the process with all libraries, and the `edges` of the task.

    Raises:
        LeftOut: the process failed.
    """
    # Users run the default allocator.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    with tempfile.TemporaryDirectory() as folder:
        write_files(files, Path(folder))
        command = [sys.executable, "-m", "sirgcn.bench.tables_load", folder, str(threads)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise LeftOut(done.stderr.strip().rpartition("\n")[2] or f"the process ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(folder: str, threads: str) -> None:
    """Load the tables in this process and print what was measured as JSON."""
    torch.set_num_threads(int(threads))
    start = time.perf_counter()
    task = load_tables(Path(folder, "nodes.csv"), Path(folder, "edges.csv"), target="label")
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes(), "edges": task.graphs.num_edges}))


if __name__ == "__main__":
    main(*sys.argv[1:])
