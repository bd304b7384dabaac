"""Measure the practitioner's road on real data: `SIRGCN_DATA=FOLDER python tools/measure_road.py [NAME ...]`.

Each data set is written out as the files that a user would have, and goes through `sirgcn train` and `sirgcn predict`
with nothing but the target named. The scores of the model and of the simple models beside it, and the times, are added
to results/model/road.json, or to judged.json for the data sets that judge the defaults. `make results` writes the table
of the README from it. Without names, the data sets that have no record yet are measured.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sirgcn.data import Task, load
from sirgcn.data.examples import write_example
from sirgcn.data.store import data_root
from sirgcn.engine.environment import commit, environment
from sirgcn.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "model"
JUDGED = ("texas", "wisconsin", "cornell")
"""Data sets that were kept aside while the defaults were chosen; their record is judged.json."""


def write(path: Path, rows: Iterable[Sequence[object]]) -> Path:
    """Write a CSV file and return it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def node_files(name: str, folder: Path) -> list[Path]:
    """A data set with one graph as two files: nodes with their columns, label and part, and edges."""
    task: Task = load(name)
    graphs, split = task.graphs, task.splits[0]
    parts = [""] * graphs.num_nodes
    for part in ("train", "val", "test"):
        for item in getattr(split, part).tolist():
            parts[item] = part
    labels = [str(int(label)) for label in graphs.y.view(len(parts)).tolist()]
    columns = [f"column_{place}" for place in range(graphs.x.size(1))]
    rows = [(place, labels[place], parts[place], *row) for place, row in enumerate(graphs.x.tolist())]
    nodes = write(folder / "nodes.csv", [("id", "label", "split", *columns), *rows])
    ends = graphs.edge_index[:, graphs.edge_index[0] < graphs.edge_index[1]].T.tolist()
    return [nodes, write(folder / "edges.csv", [("source", "target"), *ends])]


def molecule_file(name: str, folder: Path) -> list[Path]:
    """The molecules of a data set with their target, the last two columns of its file in all its versions."""
    raw = data_root() / {"bbbp": "moleculenet/bbbp/raw/BBBP.csv"}[name]
    with raw.open(newline="", encoding="utf-8") as file:
        read = list(csv.reader(file))[1:]
    rows = [(place, *row[:-3:-1]) for place, row in enumerate(read)]
    return [write(folder / "molecules.csv", [("id", "smiles", "target"), *rows])]


def graph_files(name: str, folder: Path) -> list[Path]:
    """A data set of graphs with types of nodes and edges as three files: nodes, edges and graphs."""
    graphs = load(name).graphs
    assert graphs.edge_attr is not None
    owner = graphs.batch().batch.tolist()
    nodes = [
        (f"n{place}", f"g{graph}", f"t{int(kind)}")
        for place, (graph, kind) in enumerate(zip(owner, graphs.x, strict=True))
    ]
    ends, kinds = graphs.edge_index.T.tolist(), graphs.edge_attr.flatten().tolist()
    edges = [
        (f"n{one}", f"n{other}", f"t{kind}") for (one, other), kind in zip(ends, kinds, strict=True) if one < other
    ]
    labels = [(f"g{place}", int(label)) for place, label in enumerate(graphs.y.view(-1))]
    return [
        write(folder / "nodes.csv", [("id", "graph", "atom"), *nodes]),
        write(folder / "edges.csv", [("source", "target", "bond"), *edges]),
        write(folder / "graphs.csv", [("graph", "label"), *labels]),
    ]


def shipped(name: str, folder: Path) -> list[Path]:
    """The files of an example that comes with the package."""
    return write_example(name, folder)


DATA: dict[str, tuple[Callable[[str, Path], list[Path]], str, tuple[str, ...]]] = {
    "cora": (shipped, "topic", ()),
    "minesweeper": (node_files, "label", ("--metric", "roc_auc")),
    "tolokers": (node_files, "label", ("--metric", "roc_auc")),
    "esol": (shipped, "solubility", ("--metric", "rmse")),
    "bbbp": (molecule_file, "target", ("--metric", "roc_auc")),
    **dict.fromkeys(JUDGED, (node_files, "label", ())),
    "mutag": (graph_files, "label", ("--metric", "accuracy")),
}
"""Each data set: how its files are written, its target, and other options."""


def measured(name: str, preset: str) -> dict[str, Any]:
    """Train and predict on the files of a data set, by the command line."""
    make, target, options = DATA[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = [str(path) for path in make(name, folder)]
        # A third file is the table of graphs.
        tables = [*files[:2], *(part for path in files[2:] for part in ("--graphs", path))]
        command = ["sirgcn", "train", *tables, "--target", target, "--preset", preset, *options]
        before, started = _cpu_seconds(), time.perf_counter()
        said = json.loads(run([*command, "--out", str(folder / "model"), "--json"]))
        seconds, wall = _cpu_seconds() - before, time.perf_counter() - started
        run(["sirgcn", "predict", str(folder / "model"), *tables, "--out", str(folder / "predictions.csv")])
        with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
            rows = sum(1 for _ in csv.reader(file)) - 1
        trials = json.loads((folder / "model" / "training.json").read_text("utf-8"))["trials"]
    return {
        "command": [*command[:2], *map(_name, command[2:])],
        "metric": said["metric"],
        "test": kept(said["scores"][said["metric"]]),
        "test_rows": said["rows"],
        "controls": {control["name"]: _of_control(control, said["metric"]) for control in said["controls"]},
        "sentence": said["sentence"],
        "networks": said["networks"],
        "trials": [{key: row.get(key) for key in ("name", "seed", "val", "epochs", "chosen")} for row in trials],
        "predicted_rows": rows,
        "cpu_seconds": round(seconds, 1),
        "seconds": round(wall, 1),
    }


def kept(score: dict[str, Any]) -> dict[str, Any]:
    """A score with the ends of its interval."""
    return {name: score[name] for name in ("value", "low", "high")}


def _of_control(control: dict[str, Any], metric: str) -> dict[str, Any]:
    score = control["scores"].get(metric)
    about = {name: control[name] for name in ("title", "sees", "seconds", "note")}
    return about | ({} if score is None else kept(score))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _name(argument: str) -> str:
    return Path(argument).name if argument.endswith(".csv") else argument


def run(command: list[str]) -> str:
    """Run a command of the package and return what it prints. What it says meanwhile goes to the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "sirgcn.cli", *command[1:]], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def record_of(name: str) -> Path:
    """The file with the record of a data set."""
    return FOLDER / ("judged.json" if name in JUDGED else "road.json")


def read(name: str) -> dict[str, Any]:
    """The record that holds a data set, and others."""
    path = record_of(name)
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def main() -> None:
    """Measure, and write the record after every data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*DATA, []], default=[], help="data sets; default: those left")
    parser.add_argument("--preset", default="good", help="the preset of sirgcn train")
    arguments = parser.parse_args()
    for name in arguments.names or [name for name in DATA if name not in read(name)]:
        found = measured(name, arguments.preset)
        # Read now: another process may have written meanwhile.
        record = read(name)
        record[name] = {**found, "preset": arguments.preset, "commit": commit(), "environment": environment()}
        write_atomic(record_of(name), (json.dumps(record, indent=1) + "\n").encode())
        print(name, found["metric"], found["test"], found["cpu_seconds"], flush=True)


if __name__ == "__main__":
    main()
