"""How often random features tell graphs apart that are equal for 1-WL: the record and what the docs say of it.

torch is loaded by `measure` alone.
"""

import json
from pathlib import Path
from typing import Any

from sirgcn.strict import ConfigError

FORMAT = 1
FILE = Path("theory") / "separation.json"
"""Where the record is in the folder of results."""

LAYERS = (1, 2, 3, 4)
COPY_LAYERS = 3
"""Of the network that compares a graph with its copy."""


def measure(weights: int = 100, draws: int = 1000, level: float = 1e-3, only: str | None = None) -> dict[str, Any]:
    """Count, for each pair of `equal_for_wl`, the draws of weights whose network tells the graphs apart.

    Args:
        weights: how many networks, with the seeds 0, 1, ...
        draws: of the random features, for each of them.
        level: of each test.
        only: the name of one pair; None takes all.
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
    """Keep a record in a folder of results, in place of the former one."""
    from sirgcn.files import write_atomic

    file = results / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, (json.dumps(record, indent=1) + "\n").encode())
    return file


def read_record(results: Path) -> dict[str, Any] | None:
    """The record that a folder of results holds, None without one."""
    file = results / FILE
    if not file.exists():
        return None
    record: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if record.get("format") != FORMAT:
        raise ConfigError(f"{file}: expected format {FORMAT}, got {record.get('format')!r}")
    return record


def markdown(record: dict[str, Any] | None) -> str:
    """The record as a Markdown table with a paragraph above it."""
    if record is None:
        return "Nothing was run yet."
    nodes = record["nodes"]
    heads = [f"{layers} layer{'s' * (layers > 1)}" for layers in LAYERS]
    lines = [
        f"In {nodes['hits']:,} of {nodes['trials']:,} draws of the features all 41 nodes of CSL(41, 2), equal without "
        f"them, got different outputs (`distinct_nodes`). Of {record['weights']:,} draws of the weights, the share "
        f"that tells two graphs apart at the level {record['level']:g}, with its 95% interval; for each, "
        f"{record['draws']:,} draws of the features:",
        "",
        f"| graphs, equal for 1-WL | {' | '.join(heads)} | a graph and its copy, {COPY_LAYERS} layers |",
        "|---|" + "---|" * (len(heads) + 1),
    ]
    for row in record["pairs"]:
        cells = [_share(cell) for cell in (*row["layers"], row["copy"])]
        lines.append(f"| {' | '.join([row['graphs'], *cells])} |")
    return "\n".join(lines)


def _share(cell: dict[str, Any]) -> str:
    low, high = cell["interval"]
    return f"{cell['hits'] / cell['trials']:.2f} ({low:.2f} to {high:.2f})"
