"""Predicts many molecules and is killed again and again: `python -m tests.model.stream --rows 1000000 --kills 10`.

A small model is trained. A file repeats molecules with new ids, with a bad row now and then. The real command predicts
it, is killed by SIGKILL between and inside its pieces, and started again until it ends. The last line is a summary as
JSON. The exit code is 1 where a row is lost, doubled or in another place, or where the memory exceeds the limit.
"""

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from sirgcn.data import load_tables
from sirgcn.model import FitSettings, TrainSettings, load, save, train
from sirgcn.model.predicting import predict

MOLECULES = [
    start + "C" * length + ending
    for length in range(1, 16)
    for start in ("", "O=C1CC1", "c1ccccc1", "N")
    for ending in ("O", "N", "Cl", "")
]
EVERY = 997  # One row in so many is no molecule.
LIMIT = 1.5 * 2**30
TIMEOUT = 3 * 3600.0


def main() -> None:
    """Run the prediction and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.stream")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        summary = run(Path(name), arguments.rows, arguments.kills, arguments.seed)
    print(json.dumps(summary))
    sys.exit(0 if summary["wrong"] == 0 and summary["bytes"] < LIMIT else 1)


def run(folder: Path, rows: int, kills: int, seed: int = 0) -> dict[str, float]:
    """Predict a file of so many rows with so many kills; what was found.

    Args:
        folder: an empty folder.
        rows: the rows of the file.
        kills: how often the command is killed.
        seed: the seed of the moments.
    """
    make_model(folder / "model")
    write(folder / "molecules.csv", rows)
    command = [sys.executable, "-m", "sirgcn.cli", "predict", str(folder / "model"), str(folder / "molecules.csv")]
    command += ["--out", str(folder / "found.csv")]
    draw = random.Random(seed)
    killed = sum(kill_after_pieces(command, folder, draw) for _ in range(kills))
    found = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if found.returncode:
        raise RuntimeError(found.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    wrong = count_wrong(folder, rows)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["found.bad.csv", "found.csv", "model", "molecules.csv"], left
    return {"rows": rows, "killed": killed, "wrong": wrong, "bytes": peak}


def make_model(folder: Path) -> None:
    """Train a small model of molecules."""
    names = [f"T{place}" for place in range(len(MOLECULES))]
    table = pd.DataFrame({"id": names, "smiles": MOLECULES, "y": [len(text) + 0.5 for text in MOLECULES]})
    fit = FitSettings(preset="fast", network={"num_layers": 1, "hidden_channels": 24}, train={"epochs": 3, "warmup": 0})
    save(train(load_tables(table, target="y"), TrainSettings(fit, controls=False)), folder)


def lines(rows: int) -> Iterator[tuple[str, str]]:
    """The ids and molecules of the file."""
    for row in range(rows):
        yield f"M{row}", "no molecule" if row % EVERY == 5 else MOLECULES[row % len(MOLECULES)]


def write(path: Path, rows: int) -> None:
    """Write the file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "smiles"))
        writer.writerows(lines(rows))


def kill_after_pieces(command: list[str], folder: Path, draw: random.Random) -> bool:
    """Start the command, and kill it some pieces later. False if it ended before."""
    work = folder / "found.csv.work"
    more = draw.randint(1, 3)
    before = len(list(work.glob("*.json")))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + TIMEOUT
        while process.poll() is None and time.monotonic() < deadline:
            if len(list(work.glob("*.json"))) >= before + more:
                time.sleep(draw.random() * 0.2)
                process.kill()
                return True
            time.sleep(0.02)
        process.kill()
    return False


def count_wrong(folder: Path, rows: int) -> int:
    """How many rows are lost, doubled, in another place, or other than a prediction of their molecule alone."""
    model = load(folder / "model")
    alone = predict(model, pd.DataFrame({"id": range(len(MOLECULES)), "smiles": MOLECULES}))["prediction"].tolist()
    wrong = bad = 0
    with (folder / "found.csv").open(newline="") as file:
        found = csv.reader(file)
        assert next(found) == ["id", "prediction"]
        for row, (name, text) in enumerate(lines(rows)):
            if text == "no molecule":
                bad += 1
                continue
            line = next(found, ["", "nan"])
            near = abs(float(line[1]) - alone[row % len(MOLECULES)]) < 1e-3
            wrong += not (line[0] == name and near)
        wrong += sum(1 for _ in found)
    with (folder / "found.bad.csv").open(newline="") as file:
        wrong += abs(sum(1 for _ in csv.reader(file)) - 1 - bad)
    return wrong


if __name__ == "__main__":
    main()
