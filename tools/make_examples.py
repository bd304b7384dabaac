"""Write the example tables that the package ships: `SIRGCN_DATA=FOLDER python tools/make_examples.py`.

Cora is made from the raw files of the Planetoid benchmark (MIT licence), ESOL from those of MoleculeNet (CC0).
"""

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from sirgcn.data import load
from sirgcn.data.sets.catalog import find

FOLDER = Path(__file__).resolve().parents[1] / "src" / "sirgcn" / "data" / "example_files"

# The topics in the order of the benchmark's labels. Their sizes tell which is which.
TOPICS = {
    "theory": 351,
    "reinforcement learning": 217,
    "genetic algorithms": 418,
    "neural networks": 818,
    "probabilistic methods": 426,
    "case-based": 298,
    "rule learning": 180,
}


def write(name: str, rows: Iterable[Sequence[object]]) -> None:
    """A compressed CSV file with the same bytes every time."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    (FOLDER / name).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def cora() -> None:
    """Papers with their words, topics and the public split, and who cites whom."""
    task = load("cora")
    graphs, split = task.graphs, task.splits[0]
    assert torch.bincount(graphs.y).tolist() == list(TOPICS.values())
    parts = [""] * graphs.num_nodes
    for part in ("train", "val", "test"):
        for item in getattr(split, part).tolist():
            parts[item] = part
    words = [f"word_{place}" for place in range(graphs.x.size(1))]
    titles, labels = list(TOPICS), graphs.y.tolist()
    rows = [
        (f"P{place:04d}", titles[labels[place]], parts[place], *row)
        for place, row in enumerate(graphs.x.int().tolist())
    ]
    write("cora_nodes.csv.gz", [("id", "topic", "split", *words), *rows])
    ends = graphs.edge_index[:, graphs.edge_index[0] < graphs.edge_index[1]]
    pairs = [(f"P{source:04d}", f"P{target:04d}") for source, target in sorted(ends.T.tolist())]
    write("cora_edges.csv.gz", [("source", "target"), *pairs])


def esol() -> None:
    """Molecules with their measured solubility in water."""
    raw = next(find("esol").raw[0].at(None).rglob("*.csv"))
    with raw.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    rows = [
        (f"M{place:04d}", row["smiles"], row["measured log solubility in mols per litre"])
        for place, row in enumerate(read)
    ]
    write("esol_molecules.csv.gz", [("id", "smiles", "solubility"), *rows])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    cora()
    esol()
