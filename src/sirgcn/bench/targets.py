"""What must be reached, as data, and whether a record reaches it.

A ratio is the peer's time over ours, so that every target reads `at least`; memory reads `at most`.
"""

from dataclasses import dataclass
from typing import Any

from sirgcn.bench import tables_load
from sirgcn.bench.graphs import DRAWN, SHAPES
from sirgcn.bench.memory import LARGE, SCRATCH
from sirgcn.bench.peers import AGGREGATION, BOTH, BUILD, EDGES, FORWARD, LAYER, LINEAR, MAX, MLP, OURS
from sirgcn.bench.training import EPOCHS, PEER


@dataclass(frozen=True)
class Target:
    """A ratio in time: `family` of `suite` over ours, on each of the shapes."""

    measure: str
    suite: str
    family: str
    mode: str
    at_least: float
    shapes: tuple[str, ...] = DRAWN
    threads: int = 2


_ALL = tuple(SHAPES)

TARGETS: tuple[Target, ...] = (
    Target("aggregation against MKL SpMM", AGGREGATION, "MKL SpMM", FORWARD, 1.0),
    *(
        Target("aggregation against eager", AGGREGATION, "eager", BOTH, least, (shape,))
        for shape, least in {"molecules": 5, "bipartite": 20, "roman_empire": 6, "arxiv": 8, "tolokers": 14}.items()
    ),
    Target("aggregation against torch.compile", AGGREGATION, "torch.compile", BOTH, 1.5, threads=1),
    Target("aggregation against torch.compile", AGGREGATION, "torch.compile", BOTH, 3.0, threads=2),
    *(
        Target("layer against GCNConv", LAYER, "GCNConv", BOTH, least, (shape,))
        for shape, least in {"molecules": 1.2, "bipartite": 2.8, "arxiv": 2.4, "tolokers": 5.0}.items()
    ),
    Target("layer against GCNConv on CSR", LAYER, "GCNConv, CSR", BOTH, 1.0, ("arxiv", "tolokers")),
    Target("layer against GATv2Conv", LAYER, "GATv2Conv", BOTH, 2.0, _ALL),
    Target("layer against PNAConv", LAYER, "PNAConv", BOTH, 10.0, _ALL),
    Target("edge features against eager", EDGES, "eager", BOTH, 3.0, _ALL),
    Target("max against materialised", MAX, "materialised", BOTH, 1.5, _ALL),
    Target("MLP sigma against materialised", MLP, "materialised", BOTH, 1.5, _ALL),
    Target("construction against our layer's forward", BUILD, "our layer's forward", FORWARD, 1.0, ("arxiv",)),
)
"""The ratios that must be reached."""

LARGE_BYTES = 1.2e9
"""What forward+backward of the aggregation may add at 16M edges x 64 channels."""

TABLES_SECONDS, TABLES_BYTES = 15.0, 2e9
"""What reading 200,000 nodes and 2 million edges from text files may take, on two threads."""

SCRATCH_GROWTH = 1.1
"""The factor by which four times the edges may raise the memory of `max` and an MLP sigma: the noise of a peak."""


def check(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target and shape: limit, measured value, and whether it holds; None where it was not measured."""
    rows = []
    for target in TARGETS:
        for shape in target.shapes:
            if shape in DRAWN or shape in record["shapes"]:
                found = best(record, target.suite, shape, target.threads, target.mode, target.family)
                measured = None if found is None else found["ratio"]["median"]
                rows.append(
                    {
                        "measure": target.measure,
                        "mode": target.mode,
                        "shape": shape,
                        "threads": target.threads,
                        "at_least": target.at_least,
                        "measured": measured,
                        "holds": None if measured is None else measured >= target.at_least,
                        "setting": None if found is None else found["peer"],
                        "ceiling": _ceiling(record, target, shape, found),
                    }
                )
    return rows + _check_training(record) + _check_memory(record) + _check_tables(record)


def _ceiling(record: dict[str, Any], target: Target, shape: str, found: dict[str, Any] | None) -> float | None:
    """The ratio that a layer would reach whose edges cost nothing: its linear layers would be left."""
    alone = best(record, target.suite, shape, target.threads, target.mode, LINEAR)
    if found is None or alone is None:
        return None
    ceiling: float = found["seconds"]["median"] / alone["seconds"]["median"]
    return ceiling


def best(record: dict[str, Any], suite: str, shape: str, threads: int, mode: str, family: str) -> dict[str, Any] | None:
    """The fastest setting of a family in one cell of a record."""
    wanted = {"suite": suite, "shape": shape, "threads": threads, "mode": mode, "family": family}
    found = [row for row in record["times"] if all(row[key] == value for key, value in wanted.items())]
    return min(found, key=lambda row: row["seconds"]["median"], default=None)


def added_bytes(record: dict[str, Any], suite: str, shape: str, peer: str = OURS) -> int | None:
    """What forward+backward of a peer adds to the memory, if it was measured."""
    for row in record["memory"]:
        if (row["suite"], row["shape"], row["peer"], row["mode"]) == (suite, shape, peer, BOTH):
            found: int = row["added_bytes"]
            return found
    return None


def _check_training(record: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for epoch in EPOCHS:
        found = next((r for r in record.get("training", []) if (r["task"], r["peer"]) == (epoch.name, PEER)), None)
        measured = None if found is None else found["ratio"]["median"]
        rows.append(
            {
                "measure": f"training against {PEER}",
                "mode": "epoch",
                "shape": epoch.name,
                "threads": 2 if found is None else found["threads"],
                "at_least": epoch.at_least,
                "measured": measured,
                "holds": None if measured is None else measured >= epoch.at_least,
                "setting": PEER,
            }
        )
    return rows


def _check_memory(record: dict[str, Any]) -> list[dict[str, Any]]:
    added = added_bytes(record, AGGREGATION, LARGE.name)
    rows = [_at_most("aggregation, GB of memory added", LARGE.name, LARGE_BYTES / 1e9, added, 1e9)]
    for suite in (MAX, MLP):
        few, many = (added_bytes(record, suite, shape.name) for shape in SCRATCH)
        growth = None if few is None or many is None else many / few
        rows.append(_at_most(f"{suite}, memory at 4x the edges / memory", SCRATCH[1].name, SCRATCH_GROWTH, growth))
    return rows


def _check_tables(record: dict[str, Any]) -> list[dict[str, Any]]:
    found = next((row for row in record.get("tables", []) if row["rows"] == tables_load.LARGE.edges), None)
    seconds, peak = (None, None) if found is None else (found["seconds"], found["peak_bytes"])
    rows = [
        _at_most("tables to a task, seconds", "files", TABLES_SECONDS, seconds),
        _at_most("tables to a task, GB of memory", "files", TABLES_BYTES / 1e9, peak, 1e9),
    ]
    return [row | {"mode": "load"} for row in rows]


def _at_most(measure: str, shape: str, limit: float, found: float | None, unit: float = 1) -> dict[str, Any]:
    measured = None if found is None else found / unit
    holds = None if measured is None else measured <= limit
    return {
        "measure": measure,
        "mode": BOTH,
        "shape": shape,
        "threads": None,
        "at_most": limit,
        "measured": measured,
        "holds": holds,
        "setting": None,
    }
