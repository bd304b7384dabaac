"""What the presets reach on real data, with the settings that the rule chooses: `results/model/defaults.json`.

    python tools/measure_defaults.py --data Cora minesweeper tolokers --preset good

The first published split is used. The rule was chosen by the validation metrics of this record. The test metrics stand
beside them, and were read at the end.
"""

import argparse
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

import torch

from sirgcn.data import load
from sirgcn.engine.controls import rows_of
from sirgcn.files import write_atomic
from sirgcn.model import FitSettings, fit
from sirgcn.model.facts import Facts

RECORD = Path(__file__).parents[1] / "results" / "model" / "defaults.json"


def measured(name: str, preset: Any, seed: int) -> dict[str, Any]:
    """The trials of a fit with their validation metrics, and the test metric of the model."""
    task = load(name)
    started = process_time()
    model = fit(task, FitSettings(preset, seed=seed), watcher=_Told())
    seconds = process_time() - started
    rows = rows_of(task, "test")
    test = task.metric_function([model.outputs(task.graphs)[rows]], [task.graphs.y[rows]])
    kept = ("name", "seed", "val", "epochs", "best_epoch", "seconds", "parameters", "chosen")
    facts = {key: None if str(value) == "nan" else value for key, value in asdict(Facts.of(task)).items()}
    return {
        "metric": task.metric,
        "facts": facts,
        "trials": [{key: row.get(key) for key in kept} for row in model.about["trials"]],
        "test": test,
        "cpu_seconds": seconds,
    }


class _Told:
    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        if row["epoch"] % 25 == 0:
            print(row["trial"], row["epoch"], row["val"], file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--preset", default="good", choices=("fast", "good", "best"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.data:
        found = measured(name, options.preset, options.seed)
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        known.setdefault(name, {}).setdefault(options.preset, {})[str(options.seed)] = found
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(RECORD, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())


if __name__ == "__main__":
    main()
