"""Measure the practitioner's road on real data: `SIRGCN_DATA=FOLDER python tools/measure_road.py [NAME ...]`.

Each data set is written out as the files that a user would have, and goes through `sirgcn train` and `sirgcn predict`
with nothing but the target named. The scores of the model and of the simple models beside it, and the times, are added
to results/model/road.json. `--render` writes the table of the README from that record.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sirgcn.data import Task, load
from sirgcn.data.examples import write_example
from sirgcn.data.sets.catalog import find
from sirgcn.engine.environment import commit, environment

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "model" / "road.json"
MARKS = "<!-- road -->", "<!-- /road -->"

CONTROLS = {"gcn": "GCN", "boosting_neighbours": "boosting with neighbours", "boosting": "boosting", "mlp": "MLP"}
"""The simple models of the README's table."""


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
    """The molecules of a data set with their target, as its authors wrote them."""
    raw = next(find(name).raw[0].at(None).rglob("*.csv"))
    with raw.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    # Mirrors of the file name the column after the measurement or after the data set.
    column = next(key for key in ("p_np", name.upper()) if key in read[0])
    rows = [(place, row["smiles"], row[column]) for place, row in enumerate(read)]
    return [write(folder / "molecules.csv", [("id", "smiles", "target"), *rows])]


def shipped(name: str, folder: Path) -> list[Path]:
    """The files of an example that comes with the package."""
    return write_example(name, folder)


DATA: dict[str, tuple[Callable[[str, Path], list[Path]], str, tuple[str, ...]]] = {
    "cora": (shipped, "topic", ()),
    "minesweeper": (node_files, "label", ("--metric", "roc_auc")),
    "tolokers": (node_files, "label", ("--metric", "roc_auc")),
    "esol": (shipped, "solubility", ("--metric", "rmse")),
    "bbbp": (molecule_file, "target", ("--metric", "roc_auc")),
}
"""Each data set: how its files are written, its target, and other options."""


def measured(name: str, preset: str) -> dict[str, Any]:
    """Train and predict on the files of a data set, by the command line."""
    make, target, options = DATA[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = [str(path) for path in make(name, folder)]
        command = ["sirgcn", "train", *files, "--target", target, "--preset", preset, *options]
        started = time.perf_counter()
        said = run([*command, "--out", str(folder / "model"), "--json"])
        seconds = time.perf_counter() - started
        run(["sirgcn", "predict", str(folder / "model"), *files, "--out", str(folder / "predictions.csv")])
        rows = len((folder / "predictions.csv").read_text("utf-8").splitlines()) - 1
        shutil.rmtree(folder / "model")
    return {"seconds": seconds, "rows": rows, "command": [*command[:2], *map(_name, command[2:])], **json.loads(said)}


def _name(argument: str) -> str:
    return Path(argument).name if argument.endswith(".csv") else argument


def run(command: list[str]) -> str:
    """Run a command of the package and return what it prints. What it says meanwhile goes to the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "sirgcn.cli", *command[1:]], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def table(record: dict[str, Any]) -> str:
    """The README's table: the model beside the simple models, with the best of each row in bold."""
    lines = [
        "| data, metric | sirgcn | " + " | ".join(CONTROLS.values()) + " |",
        "|---|" + "---|" * (len(CONTROLS) + 1),
    ]
    for name in DATA:
        if name in record:
            lines.append(_line(name, record[name]))
    return "\n".join(lines)


def _line(name: str, found: dict[str, Any]) -> str:
    metric = found["metric"]
    scores = {"": found["evaluation"]["scores"][metric]["value"]}
    for control in found["controls"]:
        if control["name"] in CONTROLS and metric in control["scores"]:
            scores[control["name"]] = control["scores"][metric]["value"]
    is_error = metric in ("mae", "mse", "rmse")
    best = min(scores.values()) if is_error else max(scores.values())
    cells = [_cell(scores.get(key), best, is_error) for key in ("", *CONTROLS)]
    return f"| {name}, {metric.replace('_', ' ')} | " + " | ".join(cells) + " |"


def _cell(value: float | None, best: float, is_error: bool) -> str:
    if value is None:
        return "-"
    text = f"{value:.3f}" if is_error else f"{100 * value:.1f}"
    return f"**{text}**" if value == best else text


def render() -> None:
    """Write the table into the README."""
    page = ROOT / "README.md"
    before, _, rest = page.read_text("utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    made = table(json.loads(RECORD.read_text("utf-8")))
    page.write_text(f"{before}{MARKS[0]}\n{made}\n{MARKS[1]}{after}", "utf-8")


def main() -> None:
    """Measure, or render."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*DATA, []], default=[], help="data sets; default: all")
    parser.add_argument("--preset", default="good", help="the preset of sirgcn train")
    parser.add_argument("--render", action="store_true", help="write the table of the README and measure nothing")
    arguments = parser.parse_args()
    if arguments.render:
        render()
        return
    for name in arguments.names or DATA:
        record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
        found = measured(name, arguments.preset)
        record[name] = {"commit": commit(), "environment": environment(), **found}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        print(
            name, found["metric"], found["evaluation"]["scores"][found["metric"]], round(found["seconds"]), flush=True
        )


if __name__ == "__main__":
    main()
