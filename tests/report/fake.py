"""Made-up records for the tests of the report: the shapes of real ones, figures of no meaning."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sirgcn.report.runs import Run, as_run


def record(**changes: Any) -> dict[str, Any]:
    """A finished run of Table 1 with some fields changed; `test` sets the test metric."""
    test = changes.pop("test", 1.0)
    made = {
        "format": 1,
        "experiment": "dictionary_lookup",
        "table": 1,
        "variant": "published",
        "column": "n=10",
        "model": "SIR-GCN",
        "conv": "sir",
        "seed": 0,
        "split": 0,
        "status": "done",
        "reduced": False,
        "reduced_why": "",
        "config": {"train": {"epochs": 40}},
        "metrics": {"train_loss": 0.01, "train": test, "test_loss": 0.02, "test": test},
        "metric": "accuracy",
        "higher_is_better": True,
        "scale": 1.0,
        "epochs": 40,
        "best_epoch": 39,
        "stopped": "epochs",
        "seconds": 8.0,
        "seconds_per_epoch": 0.2,
        "peak_memory_mb": 512.5,
        "parameters": 4321,
        "data": {"name": "made up", "version": "0", "sha256": "00" * 32},
        "environment": {
            "torch": "2.9.0",
            "torch_geometric": "2.7.0",
            "sirgcn": "0.1.0",
            "python": "3.11.2",
            "platform": "Linux",
            "cpu": "A made-up processor",
            "torch_cpu_capability": "AVX2",
            "device": "cpu",
            "threads": 1,
            "git": "0123456789abcdef",
            "date": "2026-01-02T03:04:05+00:00",
        },
        "history": [_epoch(epoch, test, changes.get("seed", 0)) for epoch in range(40)],
        "traceback": None,
    }
    return {**made, **changes}


def _epoch(epoch: int, test: float, seed: int) -> dict[str, Any]:
    loss = math.exp(-epoch / 8) + 0.01 * (1 + math.sin(epoch + seed))
    return {
        "epoch": epoch,
        "lr": 1e-3,
        "train_loss": loss,
        "val_loss": None,
        "train": test * (1 - loss / 2),
        "val": None,
    }


def timed(model: str, forward: list[float], reference: list[float], batches: list[float], **changes: Any) -> Run:
    """A timing of Table 6."""
    samples = {"forward": forward, "reference": reference, "batches": batches}
    made = {"experiment": "lookup_runtime", "table": 6, "metric": "seconds", "higher_is_better": False, "history": []}
    config = {"timing": {"threads": 1, "clock": "cpu", "batch_size": 256}}
    return run(**{**made, "model": model, "samples": samples, "config": config, **changes})


def run(**changes: Any) -> Run:
    """The same as a run."""
    return as_run(record(**changes), "made up")


def write(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """A file of records, one line each."""
    path.write_text("".join(json.dumps(entry) + "\n" for entry in records))
    return path


def folder(root: Path) -> Path:
    """A results folder with every state of a cell: full, reduced, both, failed, outside, another variant, our own."""
    root.mkdir(exist_ok=True)
    lookup = [record(seed=seed, test=1.0 - 0.001 * seed) for seed in range(3)]
    lookup += [record(column="n=20", seed=seed, test=0.999) for seed in range(2)]
    lookup += [record(model="GCN", conv="gcn", seed=seed, test=0.1 + 0.001 * seed) for seed in range(3)]
    lookup += [record(model="GIN", conv="gin", test=0.4), record(model="GIN", conv="gin", column="n=20", test=0.5)]
    short = {"reduced": True, "reduced_why": "epochs = 5", "config": {"train": {"epochs": 5}}, "epochs": 5}
    lookup += [record(model="GATv2", conv="gatv2", test=0.7, **short), record(model="GCN", test=0.3, **short)]
    broken = {"status": "failed", "metrics": {}, "history": [], "traceback": "Traceback:\n  made up\nValueError: no"}
    lookup.append(record(model="PNA", conv="pna", **broken))
    write(root / "dictionary_lookup.jsonl", lookup)
    count = {"experiment": "hetero_edge_count", "table": 2, "metric": "mse", "higher_is_better": False, "column": "c=2"}
    squares = [record(**count, seed=seed, test=0.0008 * 10**seed) for seed in range(3)]
    squares += [record(**count, model="GCN", test=22801.3), record(**count, model="GIN", test=41.0)]
    write(root / "hetero_edge_count.jsonl", squares)
    sweep = {"experiment": "minesweeper", "table": 5, "metric": "roc_auc", "column": "minesweeper", "scale": 100.0}
    splits = [record(**sweep, seed=split, split=split, test=0.94 + 0.001 * split) for split in range(4)]
    splits.append(record(**{**sweep, "experiment": "minesweeper_corrected"}, variant="corrected", test=0.95))
    splits.append(record(**sweep, model="MLP", test=0.5))
    write(root / "minesweeper.jsonl", splits)
    time = {"experiment": "lookup_runtime", "table": 6, "metric": "seconds", "higher_is_better": False, "history": []}
    times = [record(**time, seed=seed, test=0.02 + 0.001 * seed) for seed in range(3)]
    times += [record(**time, model="GCN", seed=seed, test=0.01) for seed in range(3)]
    write(root / "lookup_runtime.jsonl", times)
    growth = {"experiment": "growth", "table": 8, "column": "Complexity", "history": []}
    slopes, spread = {"|V|": 1.02, "|E|": 0.97, "d": 1.5}, {"|V|": {"slope": 1.02, "error": 0.012}}
    write(root / "growth.jsonl", [record(**growth, metrics=slopes, samples=spread)])
    own = {"experiment": "zinc+train.lr=1e-2", "table": None, "metric": "mae", "higher_is_better": False}
    write(root / "own.jsonl", [record(**own, column="ZINC", test=0.3)])
    return root
