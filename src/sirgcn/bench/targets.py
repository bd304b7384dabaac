"""The targets as data, and whether the figures of a run reach them.

The targets of times are ratios, the time of the peer divided by ours, so they read "at least". The targets of memory
read "at most".
"""

from dataclasses import dataclass

from sirgcn.bench import tables_load
from sirgcn.bench.graphs import DRAWN, SHAPES
from sirgcn.bench.memory import LARGE, SCRATCH
from sirgcn.bench.peers import (
    AGGREGATION,
    BOTH,
    BUILD,
    EDGES,
    FORWARD,
    GATED,
    GATED_GCN,
    LAYER,
    LINEAR,
    MAX,
    MLP,
    OURS,
    RES_GATED,
)
from sirgcn.bench.records import Results, Row
from sirgcn.bench.training import EPOCHS, PEER


@dataclass(frozen=True)
class Target:
    """A limit of a ratio in time: `family` of `suite` divided by ours, on each of the shapes.

    >>> Target("layer against GCNConv", "layer", "GCNConv", "forward", at_least=1.5, shapes=("molecules",)).threads
    2
    """

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
    *(
        Target(f"{suite} against {peer}", suite, peer, BOTH, least, (shape,))
        for suite, peer in ((GATED_GCN, "plain"), (GATED_GCN, "materialised"), (RES_GATED, "PyG"))
        for shape, least in {"molecules": 1.5, "tolokers": 4.0, "large": 4.0}.items()
    ),
    Target("construction against our layer's forward", BUILD, "our layer's forward", FORWARD, 1.0, ("arxiv",)),
)
"""The ratios that must be reached."""

LARGE_BYTES = 1.2e9
"""The bytes that forward+backward of the aggregation may add at 16M edges x 64 channels."""

TABLES_SECONDS, TABLES_BYTES = 15.0, 2e9
"""The seconds and the bytes that reading 200,000 nodes and 2 million edges from text files may take, on two threads."""

SCRATCH_GROWTH = 1.1
"""The factor by which four times the edges may raise the memory of `max`, an MLP sigma and gated messages. It allows
for the noise of a measured peak; the memory itself must not grow."""


def check(results: Results) -> list[Row]:
    """Compare the figures of a run with the limits.

    Returns:
        One row per target and shape: the limit, the measured value, and whether the limit holds. `measured` and `holds`
        are None where nothing was measured. `is_asked` says whether the run measured this part and graph at all.

    >>> {row["holds"] for row in check(Results())}
    {None}
    """
    rows = [
        _check_time(results, target, shape)
        for target in TARGETS
        for shape in target.shapes
        # Real graphs need data, and a run without these data has no such row.
        if shape in DRAWN or shape in results.shapes
    ]
    rows += [row | {"is_asked": bool(results.training)} for row in _check_training(results)]
    rows += [row | {"is_asked": bool(results.memory)} for row in _check_memory(results)]
    return rows + [row | {"is_asked": bool(results.tables)} for row in _check_tables(results)]


def _check_time(results: Results, target: Target, shape: str) -> Row:
    found = best(results, target.suite, shape, target.threads, target.mode, target.family)
    row = {"measure": target.measure, "mode": target.mode, "shape": shape, "threads": target.threads}
    row |= _at_least(target.at_least, found)
    is_asked = shape in results.shapes and any(row["suite"] == target.suite for row in results.times)
    return row | {"ceiling": _ceiling(results, target, shape, found), "is_asked": is_asked}


def _ceiling(results: Results, target: Target, shape: str, found: Row | None) -> float | None:
    """The ratio of a layer whose edges cost nothing: only its linear layers would be left."""
    alone = best(results, target.suite, shape, target.threads, target.mode, LINEAR)
    if found is None or alone is None:
        return None
    ceiling: float = found["seconds"]["median"] / alone["seconds"]["median"]
    return ceiling


def best(results: Results, suite: str, shape: str, threads: int, mode: str, family: str) -> Row | None:
    """The fastest setting of a family in one cell, or None where the family was not measured there.

    >>> best(Results(), "layer", "molecules", 1, "forward", "GCNConv") is None
    True
    """
    wanted = {"suite": suite, "shape": shape, "threads": threads, "mode": mode, "family": family}
    found = [row for row in results.times if wanted.items() <= row.items()]
    return min(found, key=lambda row: row["seconds"]["median"], default=None)


def added_bytes(results: Results, suite: str, shape: str, peer: str = OURS) -> int | None:
    """The bytes that forward+backward of a peer adds to the memory, or None where this was not measured.

    >>> added_bytes(Results(), "layer", "molecules") is None
    True
    """
    wanted = {"suite": suite, "shape": shape, "peer": peer, "mode": BOTH}
    return next((row["added_bytes"] for row in results.memory if wanted.items() <= row.items()), None)


def _check_training(results: Results) -> list[Row]:
    rows = []
    for epoch in EPOCHS:
        found = next((row for row in results.training if (row["task"], row["peer"]) == (epoch.name, PEER)), None)
        threads = 2 if found is None else found["threads"]
        row = {"measure": f"training against {PEER}", "mode": "epoch", "shape": epoch.name, "threads": threads}
        rows.append(row | _at_least(epoch.at_least, found))
    return rows


def _check_memory(results: Results) -> list[Row]:
    added = added_bytes(results, AGGREGATION, LARGE.name)
    rows = [_at_most("aggregation, GB of memory added", LARGE.name, LARGE_BYTES / 1e9, added, 1e9)]
    for suite in (MAX, MLP, GATED):
        few, many = (added_bytes(results, suite, shape.name) for shape in SCRATCH)
        growth = None if few is None or many is None else many / few
        rows.append(_at_most(f"{suite}, memory at 4x the edges / memory", SCRATCH[1].name, SCRATCH_GROWTH, growth))
    return rows


def _check_tables(results: Results) -> list[Row]:
    found = next((row for row in results.tables if row["rows"] == tables_load.LARGE.edges), None)
    seconds, peak = (None, None) if found is None else (found["seconds"], found["peak_bytes"])
    rows = [
        _at_most("tables to a task, seconds", "files", TABLES_SECONDS, seconds),
        _at_most("tables to a task, GB of memory", "files", TABLES_BYTES / 1e9, peak, 1e9),
    ]
    return [row | {"mode": "load"} for row in rows]


def _at_least(limit: float, found: Row | None) -> Row:
    if found is None:
        return {"at_least": limit, "measured": None, "holds": None, "setting": None}
    measured = found["ratio"]["median"]
    return {"at_least": limit, "measured": measured, "holds": measured >= limit, "setting": found["peer"]}


def _at_most(measure: str, shape: str, limit: float, found: float | None, unit: float = 1) -> Row:
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
