"""The records of `results/model` as tables: the trials that chose the defaults, and what the defaults reach."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sirgcn.report.sheets import NOTHING, Sheet

FOLDER = "model"
"""The folder of these records, in the folder of the results."""

_TITLES = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "mse": "MSE"}


def texts(results: str | Path) -> dict[str, str]:
    """The text of the markers `defaults: trials`, `defaults: reached` and `defaults: chemprop`.

    >>> import tempfile
    >>> sorted(texts(tempfile.mkdtemp()))
    ['defaults: chemprop', 'defaults: reached', 'defaults: trials']
    """
    folder = Path(results) / FOLDER
    made: dict[str, Callable[[Any], Sheet | None]] = {"trials": trials, "reached": reached, "chemprop": chemprop}
    found = {}
    for name, table in made.items():
        path = folder / {"reached": "defaults.json"}.get(name, f"{name}.json")
        sheet = table(json.loads(path.read_text("utf-8"))) if path.exists() else None
        found[f"defaults: {name}"] = NOTHING if sheet is None else sheet.markdown()
    return found


def trials(record: list[dict[str, Any]]) -> Sheet:
    """The settings that were tried while the rule was chosen, each with its validation metric."""
    rows = []
    for row in record:
        network = ", ".join(f"{name} {value}" for name, value in row["network"].items() if name not in _EVERYWHERE)
        inputs = ", ".join(f"{name} {value}" for name, value in row["inputs"].items())
        settings = f"{network}; {inputs}" if inputs else network
        rows.append([row["data"], settings, str(row["epochs"]), f"{row['val']:.4g}", f"{row['cpu_seconds']:.0f}"])
    return Sheet("", ["Data", "Settings", "Epochs", "Validation", "CPU seconds"], rows, left=2)


_EVERYWHERE = ("act", "encoder", "head_norm", "readout_layers", "feed_forward_norm", "conv_norm", "in_channels")


def reached(record: dict[str, Any]) -> Sheet:
    """What the presets reach on real data: validation and test metric, and the time."""
    rows = []
    for data, presets in record.items():
        for preset, seeds in presets.items():
            for found in seeds.values():
                best = next(row for row in found["trials"] if row["chosen"])
                scores = [f"{best['val']:.4f}", f"{found['test']:.4f}", f"{found['cpu_seconds']:.0f}"]
                rows.append([data, preset, _TITLES.get(found["metric"], found["metric"]), best["name"], *scores])
    return Sheet("", ["Data", "Preset", "Metric", "Chosen", "Validation", "Test", "CPU seconds"], rows, left=4)


def chemprop(record: dict[str, Any]) -> Sheet:
    """Our preset `good` and chemprop on the same splits: the score on the test part, and the time."""
    rows = []
    for data, splits in record["runs"].items():
        for split, found in splits.items():
            cells = [found.get(who) for who in ("ours", "theirs")]
            scores = ["not run" if cell is None else f"{cell['score']:.4f}" for cell in cells]
            seconds = ["not run" if cell is None else f"{cell['seconds']:.0f}" for cell in cells]
            rows.append([data, split, *scores, *seconds])
    names = ["Data", "Split", "Ours", "chemprop", "CPU seconds, ours", "CPU seconds, chemprop"]
    return Sheet("", names, rows, left=2)
