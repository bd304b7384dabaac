"""How often random features tell apart graphs that are equal for 1-WL: the record, and its table in the documentation.

Only `measure` loads torch.
"""

import json
from pathlib import Path
from typing import Any

from sirgcn.report.sheets import NOTHING, Fact, Sheet
from sirgcn.strict import ConfigError

FORMAT = 1
FILE = Path("theory") / "separation.json"
"""The path of the record in the folder of results."""

LAYERS = (1, 2, 3, 4)
"""The depths of the networks that compare two graphs."""

COPY_LAYERS = 3
"""The depth of the network that compares a graph with its copy."""


def measure(weights: int = 100, draws: int = 1000, level: float = 1e-3, only: str | None = None) -> dict[str, Any]:
    """Count for every pair of graphs of `equal_for_wl` the draws of weights whose network tells the graphs apart.

    Args:
        weights: the number of networks. Their seeds are 0, 1, ...
        draws: the number of draws of the random features for each network.
        level: the level of each test.
        only: the name of one pair of graphs; None measures all pairs.
    """
    from sirgcn.engine.environment import commit, environment
    from sirgcn.theory import Frequency, circulant, distinct_nodes, equal_for_wl, separation_frequency

    def count(found: Frequency) -> dict[str, Any]:
        return {"hits": found.hits, "trials": found.trials, "interval": list(found.interval)}

    rows = []
    for name, (one, other) in equal_for_wl().items():
        if only in (None, name):
            cells = [separation_frequency(one, other, weights, level, layers, draws) for layers in LAYERS]
            copy = separation_frequency(one, one, weights, level, COPY_LAYERS, draws)
            rows.append({"graphs": name, "layers": [count(cell) for cell in cells], "copy": count(copy)})
    nodes = distinct_nodes(circulant(41, (1, 2)), range(41), draws)
    return {
        "format": FORMAT,
        "weights": weights,
        "draws": draws,
        "level": level,
        "nodes": count(nodes),
        "pairs": rows,
        "environment": environment() | {"git": commit()},
    }


def write_record(record: dict[str, Any], results: Path) -> Path:
    """Write a record into a folder of results, in place of an earlier one, and return its path."""
    from sirgcn.files import write_atomic

    file = results / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(record, indent=1) + "\n").encode())
    return file


def read_record(results: Path) -> dict[str, Any] | None:
    """The record in a folder of results; None without one."""
    file = results / FILE
    if not file.exists():
        return None
    record: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if record.get("format") != FORMAT:
        raise ConfigError(f"{file}: expected format {FORMAT}, got {record.get('format')!r}")
    return record


def markdown(record: dict[str, Any] | None) -> str:
    """The record as a Markdown table, with how it was measured below it."""
    if record is None:
        return NOTHING
    nodes = record["nodes"]
    heads = [f"{layers} layer{'s' * (layers > 1)}" for layers in LAYERS]
    columns = ["Graphs that are equal for 1-WL", *heads, f"A graph and its copy, {COPY_LAYERS} layers"]
    rows = [[row["graphs"], *map(_share, (*row["layers"], row["copy"]))] for row in record["pairs"]]
    notes = [
        Fact("Figures", "the share of the draws of weights that tell two graphs apart (95% interval)"),
        Fact("Level of each test", f"{record['level']:g}"),
        Fact("Draws of the weights", f"{record['weights']:,}"),
        Fact("Draws of the features, for each draw of the weights", f"{record['draws']:,}"),
        Fact(
            "Draws of the features that give all 41 nodes of CSL(41, 2) different outputs",
            f"{nodes['hits']:,} of {nodes['trials']:,}",
        ),
    ]
    return Sheet("", columns, rows, notes, left=len(columns)).markdown()


def _share(cell: dict[str, Any]) -> str:
    low, high = cell["interval"]
    return f"{cell['hits'] / cell['trials']:.2f} ({low:.2f} to {high:.2f})"
