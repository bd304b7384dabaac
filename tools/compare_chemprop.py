"""Our preset `good` and chemprop with its defaults, on the same random splits of ESOL and BBBP.

chemprop lives in an environment of its own and is no dependency:

    python -m venv chemprop_env && chemprop_env/bin/pip install chemprop==2.3.1
    python tools/compare_chemprop.py --chemprop chemprop_env/bin/chemprop --data ESOL BBBP --splits 0 1 2

Both get the same rows for training, validation and test, and one thread. Their time is that of the CPU, in which
reading the molecules is included, and controls and reports are not. The record is `results/model/chemprop.json`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import pandas as pd
import torch

from sirgcn.data import load_tables
from sirgcn.data.metrics import METRICS
from sirgcn.data.molecules import molecule
from sirgcn.data.splits import PARTS, Split
from sirgcn.data.store import data_root
from sirgcn.files import write_atomic
from sirgcn.model import FitSettings, fit

RECORD = Path(__file__).parents[1] / "results" / "model" / "chemprop.json"

EPOCHS = 50

# The file, the columns of the molecules and of the target, and the metric.
DATA = {
    "ESOL": ("moleculenet/esol/raw/delaney-processed.csv", -1, -2, "mse"),
    "BBBP": ("moleculenet/bbbp/raw/BBBP.csv", -1, -2, "roc_auc"),
}


def table(name: str, split: int) -> pd.DataFrame:
    """The molecules that can be read, with the target and the part of a random split 80/10/10."""
    file, smiles, target, _ = DATA[name]
    frame = pd.read_csv(data_root() / file)
    found = pd.DataFrame({"smiles": frame.iloc[:, smiles].astype(str), "y": frame.iloc[:, target]})
    found = found[[molecule(text) is not None for text in found["smiles"]]].reset_index(drop=True)
    parts = Split.draw(len(found), split, (0.8, 0.1, 0.1))
    for part in PARTS:
        found.loc[getattr(parts, part).numpy(), "split"] = part
    return found


def ours(name: str, frame: pd.DataFrame, split: int) -> dict[str, Any]:
    """The score of our preset `good` on the test part, and its time."""
    started = process_time()
    task = load_tables(frame, smiles="smiles", target="y", metric=DATA[name][3], task=_task(name), name=name)
    model = fit(task, FitSettings("good", seed=split))
    seconds = process_time() - started
    test = task.splits[0].test
    output, target = model.outputs(task.graphs.select(test)), task.graphs.y[test]
    trials = {row["name"]: row["val"] for row in model.about["trials"]}
    return {"score": _score(name, output, target), "seconds": seconds, "trials": trials}


def theirs(name: str, frame: pd.DataFrame, chemprop: str, split: int) -> dict[str, Any]:
    """The score of chemprop on the test part, and its time."""
    kind = "regression" if name == "ESOL" else "classification"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "data.csv"
        frame.to_csv(file, index=False)
        command = [chemprop, "train", "-i", str(file), "-o", f"{folder}/out", "-t", kind, "--epochs", str(EPOCHS)]
        command += ["--smiles-columns", "smiles", "--target-columns", "y", "--splits-column", "split"]
        command += ["--num-workers", "0", "--accelerator", "cpu", "--pytorch-seed", str(split)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = pd.read_csv(next(Path(folder).rglob("test_predictions.csv")))
    test = frame[frame["split"] == "test"]
    joined = test.merge(found, on="smiles", suffixes=("", "_predicted")).drop_duplicates("smiles")
    output = torch.from_numpy(joined["y_predicted"].to_numpy()).float().unsqueeze(1)
    target = torch.from_numpy(joined["y"].to_numpy()).float()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"score": _score(name, output, target), "seconds": seconds}


def _task(name: str) -> Any:
    return "regression" if name == "ESOL" else "classification"


def _score(name: str, output: torch.Tensor, target: torch.Tensor) -> float:
    """The RMSE, or the ROC-AUC."""
    value = METRICS[DATA[name][3]]([output], [target])
    return value**0.5 if name == "ESOL" else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chemprop", help="the command chemprop of its own environment; without it only ours runs")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--only", choices=("ours", "theirs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for name in options.data:
        for split in options.splits:
            frame = table(name, split)
            found: dict[str, Any] = {}
            if options.only != "theirs":
                found["ours"] = ours(name, frame, split)
            if options.only != "ours" and options.chemprop:
                found["theirs"] = theirs(name, frame, options.chemprop, split)
            print(name, split, json.dumps(found), file=sys.stderr, flush=True)
            _record(name, split, found)


def _record(name: str, split: int, found: dict[str, Any]) -> None:
    known: dict[str, Any] = {"epochs": EPOCHS, "runs": {}}
    if RECORD.exists():
        known = json.loads(RECORD.read_text())
    known["runs"].setdefault(name, {}).setdefault(str(split), {}).update(found)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(RECORD, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())


if __name__ == "__main__":
    main()
