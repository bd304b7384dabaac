"""Which dictionaries the models of Table 1 confuse: the command `sirgcn collisions`, its record and its table.

Only `look_at` loads torch.
"""

import json
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment import TrainingExperiment
from sirgcn.report.sheets import NOTHING, Fact, Sheet
from sirgcn.strict import ConfigError

FORMAT = 1
FILE = Path("theory") / "collisions.json"
"""The path of the record in the folder of results."""

# The fields that all rows of a record share.
_HEAD = ("experiment", "column", "seed", "reduced")


def look_at(
    experiment: TrainingExperiment, model: str, column: str = "n=10", seed: int = 0, reduced: bool = False
) -> tuple[dict[str, Any], Any]:
    """Train a model of Table 1 and look for collisions of its one layer among the test graphs.

    Two dictionaries differ if they store different values under the queried attribute. This is the task's own metric.

    Args:
        experiment: Table 1, or another form of DictionaryLookup.
        model: the title of a row.
        column: the title of a column.
        seed: the seed of the data, the weights and the batches.
        reduced: whether to run the reduced form of the experiment.

    Returns:
        The row for `add_to_record`, and the `Collisions`.
    """
    import torch

    from sirgcn.data.sets import catalog
    from sirgcn.engine.environment import commit, environment
    from sirgcn.engine.loop import Trainer
    from sirgcn.engine.network import build
    from sirgcn.theory import collisions, lookup_distance, outputs_of

    entry, cell = experiment.model(model), experiment.column(column)
    task = catalog.load(experiment.data, None, seed=seed, **cell.options)
    torch.manual_seed(seed)
    network = build(experiment, entry, task, cell.options)
    outcome = Trainer(network, task, experiment.train_for(entry, reduced), seed=seed).run()
    batch = next(task.batches("test"))
    layer = outputs_of(network, "blocks.0.conv", batch=batch.batch, batch_size=batch.num_graphs)
    found = collisions(layer, batch.x, batch.edge_index, lookup_distance(cell.options["n"]))
    row = {
        **dict(zip(_HEAD, (experiment.name, cell.title, seed, reduced), strict=True)),
        "model": entry.title,
        "accuracy": outcome.metrics["test"],
        "epochs": len(outcome.history),
        "stopped": outcome.stopped,
        **found.to_dict(),
        "environment": environment() | {"git": commit()},
    }
    return row, found


def add_to_record(row: dict[str, Any], results: Path) -> Path:
    """Write a row into the record of a folder of results and return the path of the record.

    The row replaces an earlier row of the same model. Rows of another experiment, column, seed or form are removed.
    """
    from sirgcn.files import write_atomic

    kept = read_record(results)
    rows = [old for old in kept if [old[name] for name in _HEAD] == [row[name] for name in _HEAD]]
    rows = [old for old in rows if old["model"] != row["model"]]
    file = results / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    record = {"format": FORMAT, "models": sorted([*rows, row], key=lambda entry: str(entry["model"]))}
    write_atomic(file, (json.dumps(record, indent=1) + "\n").encode())
    return file


def read_record(results: Path) -> list[dict[str, Any]]:
    """The rows of the record in a folder of results; empty without a record."""
    file = results / FILE
    if not file.exists():
        return []
    record = json.loads(file.read_text("utf-8"))
    if record.get("format") != FORMAT:
        raise ConfigError(f"{file}: expected format {FORMAT}, got {record.get('format')!r}")
    rows: list[dict[str, Any]] = record["models"]
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows of a record as a Markdown table, with what the rows share below it."""
    if not rows:
        return NOTHING
    first = rows[0]
    notes = [
        Fact("Data", f"DictionaryLookup, {first['column']}, seed {first['seed']}"),
        Fact("Training", "reduced" if first["reduced"] else "full"),
        Fact("Pairs of dictionaries under equal queries", f"{first['compared']:,}"),
        Fact("Pairs that store different values under the queried attribute", f"{first['separated']:,}"),
    ]
    columns = [
        "Model",
        "Test accuracy",
        "Pairs confused",
        "Share",
        "Threshold, least",
        "Threshold, largest",
        "Closest separated pair",
        "Farthest equal pair",
    ]
    return Sheet("", columns, [_cells(row) for row in rows], notes).markdown()


def _cells(row: dict[str, Any]) -> list[str]:
    distances = (*row["thresholds"], row["closest_separated"], row["farthest_equivalent"])
    share = f"{row['found'] / row['separated']:.1%}"
    return [
        row["model"],
        f"{row['accuracy']:.2f}",
        f"{row['found']:,}",
        share,
        *(f"{value:.2f}" for value in distances),
    ]
