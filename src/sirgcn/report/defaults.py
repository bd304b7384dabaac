"""The records of `results/model` as tables: the trials that chose the defaults, and what the defaults reach."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sirgcn.report.sheets import NOTHING, Entry, Sheet, Styled

FOLDER = "model"
"""The folder of these records, in the folder of the results."""

_TITLES = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "mse": "MSE", "rmse": "RMSE"}

_SMALLER_IS_BETTER = ("mae", "mse", "rmse", "log_loss")

_DATA = {"cora": "Cora", "tolokers": "tolokers", "minesweeper": "minesweeper"}
_DATA |= {"esol": "ESOL", "bbbp": "BBBP", "mutag": "MUTAG"}
_CONTROLS = {
    "gcn": "GCN",
    "boosting_neighbours": "boosting, neighbours",
    "boosting": "boosting",
    "fingerprints": "boosting, fingerprints",
    "mlp": "MLP",
    "linear": "linear",
}


def texts(results: str | Path) -> dict[str, str]:
    """The text of the markers `defaults: road`, `trials`, `reached`, `chemprop` and so on, by their whole names.

    >>> import tempfile
    >>> "defaults: road" in texts(tempfile.mkdtemp())
    True
    """
    folder = Path(results) / FOLDER
    made: dict[str, Callable[[Any], Sheet]] = {
        "trials": trials,
        "reached": reached,
        "chemprop": chemprop,
        "road": road,
        "costs": costs,
        "judged": road,
        "estimates": estimates,
    }
    found = {}
    for name, table in made.items():
        path = folder / {"reached": "defaults.json", "costs": "road.json"}.get(name, f"{name}.json")
        sheet = table(json.loads(path.read_text("utf-8"))) if path.exists() else None
        found[f"defaults: {name}"] = NOTHING if sheet is None else sheet.markdown()
    calibrated = folder / "calibration.json"
    held = calibration(json.loads(calibrated.read_text("utf-8"))).markdown() if calibrated.exists() else NOTHING
    return found | {"defaults: large": large(Path(results)), "calibration": held}


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
    for data in ("ESOL", "BBBP"):
        for split in ("0", "1", "2"):
            found = record["runs"].get(data, {}).get(split, {})
            cells = [found.get(who) for who in ("ours", "theirs")]
            scores = ["not run" if cell is None else f"{cell['score']:.4f}" for cell in cells]
            seconds = ["not run" if cell is None else f"{cell['seconds']:.0f}" for cell in cells]
            rows.append([data, split, *scores, *seconds])
    names = ["Data", "Split", "Ours", "chemprop", "CPU seconds, ours", "CPU seconds, chemprop"]
    return Sheet("", names, rows, left=2)


def road(record: dict[str, Any]) -> Sheet:
    """What `sirgcn train` reaches on the test part beside simple models, the best of each row in bold."""
    rows = []
    for name, found in _in_order(record):
        scores = {"": found["test"]["value"]} | {key: one.get("value") for key, one in found["controls"].items()}
        known = [scores[key] for key in ("", *_CONTROLS) if scores.get(key) is not None]
        best = min(known) if found["metric"] in _SMALLER_IS_BETTER else max(known)
        cells = [_score(found["metric"], scores.get(key), best) for key in ("", *_CONTROLS)]
        rows.append([f"{_DATA.get(name, name)}, {_TITLES.get(found['metric'], found['metric'])}", *cells])
    return Sheet("", ["Data, metric", "sirgcn", *_CONTROLS.values()], rows)


def _in_order(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    known = list(_DATA)
    return sorted(record.items(), key=lambda entry: known.index(entry[0]) if entry[0] in known else len(known))


def _score(metric: str, value: float | None, best: float) -> Entry:
    """Errors with three digits, shares in percent. What is printed like the best is bold."""
    if value is None:
        return "-"
    digits = "{:.3f}".format if metric in _SMALLER_IS_BETTER else lambda share: f"{100 * share:.1f}"
    return Styled(digits(value), is_bold=digits(value) == digits(best))


def costs(record: dict[str, Any]) -> Sheet:
    """The same trainings with the interval of their score, the rows of the test part, and their time."""
    rows = []
    for name, found in _in_order(record):
        score = found["test"]
        ends = [f"{score[end]:.4f}" if score[end] is not None else "-" for end in ("value", "low", "high")]
        about = [f"{found['test_rows']:,}", str(found["networks"]), f"{found['cpu_seconds'] / 60:.1f}"]
        rows.append([_DATA.get(name, name), _TITLES.get(found["metric"], found["metric"]), *ends, *about])
    columns = ["Data", "Metric", "Test", "from", "to", "Test rows", "Networks", "CPU minutes"]
    return Sheet("", columns, rows, left=2)


def calibration(record: dict[str, Any]) -> Sheet:
    """What sets and intervals hold on real data, and the log-loss with and without a temperature, as means of draws."""
    rows = []
    for data, found in record["data"].items():
        losses = [f"{found[name]:.3f}" if name in found else "" for name in _OF_CLASSES]
        sizes = [str(found["calibration_rows"]), str(found["test_rows"])]
        rows.append([data, *sizes, f"{100 * found['held']:.1f} %", f"{found['size']:.2f}", *losses])
    every = [found["held"] for found in record["data"].values()]
    rows.append(["mean", "", "", f"{100 * sum(every) / len(every):.1f} %", *[""] * 4])
    columns = ["Data", "Calibration rows", "Test rows", "Held", "Size", "T", "Log-loss", "without T"]
    return Sheet("", columns, rows, rules=(len(every),))


_OF_CLASSES = ("temperature", "log_loss", "log_loss_without")


def estimates(record: dict[str, Any]) -> Sheet:
    """What trainings were said to take, beside what they took."""
    rows = []
    for found in record.values():
        sizes = [f"{found[name] / 2**30:.2f}" for name in ("bytes_told", "bytes")]
        times = [f"{found[name]:.1f}" for name in ("seconds_told", "seconds", "left_told", "left")]
        rows.append([found["what"], *sizes, *times])
    columns = ["Drawn data", "GB, told", "GB", "Seconds, told", "Seconds", "Left after 3 epochs, told", "Left"]
    return Sheet("", columns, rows)


def large(results: Path) -> str:
    """The training of a large graph, from the record of the long tests."""
    path = results / "soak.json"
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if "large" not in record:
        return NOTHING
    found = record["large"]["summary"]
    facts = {
        "Nodes": f"{found['nodes']:,}",
        "Edges in the file": f"{found['edges']:,}",
        "Layers and channels": f"{found['layers']}, {found['channels']}",
        "Epochs": str(found["epochs"]),
        "Largest memory of the command": f"{found['bytes'] / 2**30:.1f} GB",
        "Memory that was told before": f"{found['bytes_told'] / 2**30:.1f} GB",
        "CPU seconds before the first line of progress": f"{found['first_line_cpu_seconds']:.1f}",
        "CPU minutes of the command, controls included": f"{found['cpu_seconds'] / 60:.1f}",
    }
    return Sheet("", ["What", "Value"], [[name, value] for name, value in facts.items()]).markdown()
