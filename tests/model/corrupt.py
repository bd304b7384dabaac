"""Damages the folder of a model and loads it: `python -m tests.model.corrupt --flips 500 --truncations 100 --seed 1`.

Every case flips a bit of one file or cuts its end off at a random place, for every file in turn, and loads the folder.
A case is *silent* where the damaged folder is loaded without a `FolderError` of one line. The last line is a summary as
JSON, and the exit code is 1 where a case was silent.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import pandas as pd

from sirgcn.data import load_tables
from sirgcn.model import FitSettings, FolderError, TrainSettings, load
from sirgcn.model.training import train_into


def main() -> None:
    """Run the cases and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.corrupt")
    parser.add_argument("--flips", type=int, default=500)
    parser.add_argument("--truncations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        make(folder)
        summary = damage_all(folder, arguments.flips, arguments.truncations, arguments.seed)
    print(json.dumps(summary))
    sys.exit(1 if summary["silent"] else 0)


def make(folder: Path) -> None:
    """Train a small model, with all files that a folder may have."""
    nodes = pd.DataFrame({"id": range(200), "size": [1.0, 2.0] * 100, "label": ["x", "y"] * 100})
    edges = pd.DataFrame({"source": range(198), "target": range(2, 200)})
    fit = FitSettings(preset="fast", network={"num_layers": 1, "hidden_channels": 8}, train={"epochs": 2, "warmup": 0})
    train_into(load_tables(nodes, edges), folder, TrainSettings(fit, controls=False))


def damage_all(folder: Path, flips: int, truncations: int, seed: int) -> dict[str, int]:
    """Damage every file in turn; the numbers of cases, and of those that were loaded silently."""
    draw = random.Random(seed)
    files = sorted(folder.iterdir())
    silent = 0
    for case in range(flips + truncations):
        path = files[case % len(files)]
        data = path.read_bytes()
        path.write_bytes(flipped(data, draw) if case < flips else data[: draw.randrange(len(data))])
        silent += not is_refused(folder)
        path.write_bytes(data)
    load(folder)
    return {"files": len(files), "flips": flips, "truncations": truncations, "silent": silent}


def flipped(data: bytes, draw: random.Random) -> bytes:
    """The bytes with one bit changed."""
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :]


def is_refused(folder: Path) -> bool:
    """Whether loading raises the error that it documents, in one line."""
    try:
        load(folder)
    except FolderError as error:
        return "\n" not in str(error)
    return False


if __name__ == "__main__":
    main()
