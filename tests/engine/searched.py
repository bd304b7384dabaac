"""A small search on tables of one's own, run by `test_search.py` in a process that can be killed.

python searched.py FILE.toml FOLDER
"""

import sys
from pathlib import Path

import numpy as np

from sirgcn.engine.experiment import load_training
from sirgcn.engine.plan import Settings
from sirgcn.engine.search.rounds import Search

TEXT = """
data = "tables"
seeds = 2
columns = [{ title = "mine", options = { nodes = "nodes.csv", edges = "edges.csv", target = "label" } }]

[train]
epochs = 8
selection = "val_metric"

[search]
trials = 3
random = 1
train = { epochs = 12 }

[search.space]
dropout = { low = 0.0, high = 0.5 }
hidden_channels = [8, 16]
train.lr = { low = 1e-3, high = 1e-1, log = true }

[[models]]
title = "SIR-GCN"
options = { num_layers = 1 }
space = { activation = ["relu", "gelu"], aggr = ["mean", "sum"] }

[[models]]
title = "Boosting with neighbours"
control = "boosting_neighbours"
seeds = 1
options = { max_iter = 10 }
space = { learning_rate = { low = 0.01, high = 0.3, log = true }, min_samples_leaf = [2, 5] }
"""


def write(folder: Path, text: str = TEXT, scrambled: bool = False) -> Path:
    """A file of an experiment with its tables, in which the labels of the test part may be scrambled."""
    rng = np.random.default_rng(0)
    count = 60
    x = rng.normal(size=(count, 3))
    labels = np.where(x[:, 0] + 0.5 * rng.normal(size=count) > 0, "yes", "no")
    parts = np.array(["train", "val", "test"])[np.arange(count) % 3]
    ends = rng.integers(0, count, (150, 2))
    if scrambled:
        is_test = parts == "test"
        labels[is_test] = np.where(labels[is_test] == "yes", "no", "yes")
    rows = [f"n{i},{a:.4f},{b:.4f},{c:.4f},{labels[i]},{parts[i]}" for i, (a, b, c) in enumerate(x)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.csv").write_text("\n".join(["id,a,b,c,label,split", *rows]) + "\n")
    (folder / "edges.csv").write_text("\n".join(["source,target", *(f"n{a},n{b}" for a, b in ends)]) + "\n")
    file = folder / "mine.toml"
    file.write_text(text)
    return file


if __name__ == "__main__":
    place = Path(sys.argv[2])
    outcome = Search(load_training(sys.argv[1]), Settings(place, place, threads=1, every=0)).run()
    sys.exit(0 if set(outcome.values()) <= {"done"} else 1)
