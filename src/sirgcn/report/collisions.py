"""Which dictionaries the models of Table 1 confuse: `sirgcn collisions`, its record, and what the docs say of it.

torch is loaded by `look_at` alone.
"""

import json
from pathlib import Path
from typing import Any

from sirgcn.engine.experiment import TrainingExperiment
from sirgcn.strict import ConfigError

FORMAT = 1
FILE = Path("theory") / "collisions.json"
"""Where the record is in the folder of results."""

# What the rows of a record share.
_HEAD = ("experiment", "column", "seed", "reduced")


def look_at(
    experiment: TrainingExperiment, model: str, column: str = "n=10", seed: int = 0, reduced: bool = False
) -> tuple[dict[str, Any], Any]:
    """Train a model of Table 1 and look for collisions of its one layer among the test graphs.

    The metric is the task's own: the value that is stored under the queried attribute.

    Args:
        experiment: Table 1, or another form of DictionaryLookup.
        model: the title of a row.
        column: the title of a column.
        seed: of data, weights and batches.
        reduced: whether to take the shorter form of the experiment.

    Returns:
        The row for `add_to_record`, and the `Collisions`.
    """
    import torch

    from sirgcn.data import catalog
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
    """Keep a row in a folder of results, in place of the model's former one; rows of another column or seed go."""
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
    """The rows that a folder of results holds."""
    file = results / FILE
    if not file.exists():
        return []
    record = json.loads(file.read_text("utf-8"))
    if record.get("format") != FORMAT:
        raise ConfigError(f"{file}: expected format {FORMAT}, got {record.get('format')!r}")
    rows: list[dict[str, Any]] = record["models"]
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """The rows of a record as a Markdown table with a sentence above it."""
    if not rows:
        return "Nothing was run yet."
    first = rows[0]
    short = ", reduced training" * first["reduced"]
    lines = [
        f"DictionaryLookup, {first['column']}, seed {first['seed']}{short}: {first['compared']:,} pairs of "
        f"dictionaries under equal queries, of which {first['separated']:,} store different values under the queried "
        "attribute.",
        "",
        "| Model | test accuracy | pairs confused | share | threshold | closest separated pair | farthest equal pair |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["thresholds"]
        lines.append(
            f"| {row['model']} | {row['accuracy']:.2f} | {row['found']:,} | {row['found'] / row['separated']:.1%} "
            f"| {low:.2f} – {high:.2f} | {row['closest_separated']:.2f} | {row['farthest_equivalent']:.2f} |"
        )
    return "\n".join(lines)
