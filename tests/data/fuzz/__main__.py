"""`python -m tests.data.fuzz`: every case is refused where the oracle refuses it, and read as the oracle reads it.

Prints a JSON object: how many cases of each kind were accepted, refused and left open, and the first failures.
"""

import argparse
import json
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import ConfigError
from tests.data.fuzz import oracle
from tests.data.fuzz.draw import Case, draw_cases

ARGUMENTS = {"nodes", "edges", "target", "graph", "id", "source", "destination", "header", "columns", "path"}
ARGUMENTS |= {
    "npz",
    "graphml",
    "DOCTYPE",
    "key",
    "hyperedge",
    "directed",
    "label",
    "num",
    "cat",
    "split",
    "weight",
    "flag",
}
ARGUMENTS |= {"x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr", "edgedefault", "data"}


class Failure(Exception):
    """The reader and the oracle disagree."""


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.data.fuzz")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one kind of case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    counts: dict[str, Counter[str]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(draw_cases(args.cases, args.seed)):
            if args.only not in (None, case.kind):
                continue
            counts.setdefault(case.kind, Counter())[outcome(case, number, Path(folder), failures)] += 1
    json.dump(
        {"cases": sum(map(Counter.total, counts.values())), "counts": counts, "failures": failures[:20]}, sys.stdout
    )
    sys.exit(1 if failures else 0)


def outcome(case: Case, number: int, folder: Path, failures: list[str]) -> str:
    """What became of a case; what should not have is noted."""
    try:
        return {"graphs": run_graphs, "task": run_task, "npz": run_npz}.get(case.kind, run_tables)(case, folder)
    except Failure as failure:
        failures.append(f"case {number}, {case.kind}, {case.broken}: {failure}")
    except Exception:
        failures.append(f"case {number}, {case.kind}, {case.broken}: {traceback.format_exc(limit=-4)}")
    return "failed"


def refused(error: DataError, bad: set[str]) -> str:
    """A refusal must name one of the fields that are wrong."""
    if error.field not in bad:
        raise Failure(f"expected one of {sorted(bad)} to be refused, got {error}")
    return "refused"


def agree(what: str, found: Any, expected: Any) -> None:
    """Two arrays must be equal."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if found.shape != expected.shape or not np.array_equal(found, expected, equal_nan=True):
        raise Failure(f"{what}: expected {expected.tolist()}, got {found.tolist()}")


def dense(edge_index: torch.Tensor, nodes: int) -> Any:
    """How often each edge is there."""
    found = np.zeros((nodes, nodes))
    for u, v in edge_index.T.tolist():
        found[u, v] += 1
    return found


def run_graphs(case: Case, folder: Path) -> str:
    """`Graphs`, and the graphs that it gives back one by one and in another order."""
    bad = oracle.graph_problems(case.given)
    try:
        graphs = Graphs(**case.given)
    except DataError as error:
        return refused(error, bad)
    if bad:
        raise Failure(f"expected {sorted(bad)} to be refused")
    whole = dense(graphs.edge_index, graphs.num_nodes)
    first = [0, graphs.num_nodes] if graphs.node_ptr is None else graphs.node_ptr.tolist()
    order = list(range(len(graphs)))[::-1]
    chosen = graphs.select(torch.tensor(order)) if len(graphs) > 1 else graphs
    for place, graph in enumerate(order):
        a, b = first[graph], first[graph + 1]
        for one in (graphs[graph], chosen[place]):
            agree("edges", dense(one.edge_index, b - a), whole[a:b, a:b])
            agree("x", one.x, graphs.x[a:b])
    return "accepted"


def run_task(case: Case, folder: Path) -> str:
    """`Task`, and the rows of its batches."""
    given = dict(case.given)
    bad = oracle.task_problems(given)
    schema, splits, loss, metric = (given.pop(name) for name in ("schema", "splits", "loss", "metric"))
    graphs = Graphs(**given)
    try:
        task = Task("drawn", graphs, Schema(**schema), tuple(Split(*split) for split in splits), loss, metric)
    except DataError as error:
        return refused(error, bad)
    except ConfigError as error:
        return refused(DataError(str(error), str(error).partition(":")[0]), bad)
    if bad:
        raise Failure(f"expected {sorted(bad)} to be refused")
    if task.over != "graphs":
        (batch,) = task.batches("train")
        agree("y", batch.y, graphs.y[task.splits[0].train])
    return "accepted"


def run_tables(case: Case, folder: Path) -> str:
    """`load_tables` of text files, frames or GraphML."""
    options: dict[str, Any] = {"target": "label", "task": "classification", "standardise": False, **case.options}
    expected: Any = None
    verdict = "accepted"
    try:
        expected = oracle.read_tables(*tables_of(case))
    except (oracle.Refused, oracle.Unsure) as answer:
        verdict = type(answer).__name__
    if case.kind in ("text", "graphml"):
        for name, data in case.given.items():
            (folder / name).write_bytes(data)
        given: dict[str, Any] = {"nodes": folder / next(iter(case.given))}
        given |= {"edges": folder / "edges.csv"} if case.kind == "text" else {}
    else:
        given = case.given
    try:
        task = load_tables(**given, **options)
    except DataError as error:
        if verdict == "accepted":
            raise Failure(f"refused for nothing: {error}") from None
        if error.field not in ARGUMENTS | {name for table in given.values() for name in getattr(table, "columns", ())}:
            head = (
                case.given.get("nodes.csv", b"") + case.given.get("edges.csv", b"") + case.given.get("g.graphml", b"")
            )
            if error.field.encode() not in head:
                raise Failure(f"an unknown field: {error}") from None
        return "refused"
    if verdict == "Refused":
        raise Failure(f"should have been refused: {case.given}")
    if verdict == "Unsure":
        return "open"
    compare(task, *expected)
    return "accepted"


def tables_of(case: Case) -> tuple[oracle.Table, oracle.Table, oracle.Table | None, bool]:
    """The case as the oracle has it."""
    if case.kind == "graphml":
        nodes, edges, directed = oracle.read_graphml(case.given["g.graphml"])
        return nodes, edges, None, directed
    if case.kind == "text":
        nodes, edges = (oracle.read_text(case.given[f"{name}.csv"]) for name in ("nodes", "edges"))
        return nodes, edges, None, case.options["directed"]
    frames = {name: oracle.Table({c: f[c].tolist() for c in f}, len(f), False) for name, f in case.given.items()}
    return frames["nodes"], frames["edges"], frames.get("graphs"), case.options["directed"]


def compare(task: Task, expected: oracle.Expected, of_edges: Any) -> None:
    """Every figure of the task against the oracle's."""
    graphs, split = task.graphs, task.splits[0]
    agree("edges", dense(graphs.edge_index, graphs.num_nodes), expected.adjacency)
    if [oracle.as_id(value) for value in task.details["ids"]] != expected.ids:
        raise Failure(f"ids: expected {expected.ids}, got {task.details['ids']}")
    labels = [None if code < 0 else task.classes[code] for code in graphs.y.tolist()]
    if labels != expected.labels:
        raise Failure(f"labels: expected {expected.labels}, got {labels}")
    parts = {part: getattr(split, part).tolist() for part in ("train", "val", "test")}
    known = [row for row, label in enumerate(expected.labels) if label is not None]
    chosen = known if expected.splits is None else [row for row in known if expected.splits[row]]
    if sorted(row for rows in parts.values() for row in rows) != chosen:
        raise Failure(f"splits: got {parts}, labels {expected.labels}")
    if expected.splits is not None and any(
        expected.splits[row] != part for part, rows in parts.items() for row in rows
    ):
        raise Failure(f"splits: expected {expected.splits}, got {parts}")
    owner = list(range(len(expected.ids))) if expected.graphs is None else expected.graphs
    training = [graph in parts["train"] for graph in owner]
    agree("x", graphs.x, np.array(oracle.features(expected.columns, training), dtype=np.float32))
    columns, pairs = of_edges
    if columns:
        touched = [training[u] or training[v] for u, v in pairs]
        rows = oracle.features(columns, touched)
        order = task.details["edge_rows"] - 1
        assert graphs.edge_attr is not None
        width = graphs.edge_attr.size(1)
        wanted = np.array([rows[row] for row in order], dtype=np.float32).reshape(len(order), width)
        agree("edge_attr", graphs.edge_attr, wanted)
        for place, row in enumerate(order):
            ends = tuple(graphs.edge_index[:, place].tolist())
            if ends != (pairs[row][::-1] if task.details["added"][place] else pairs[row]):
                raise Failure(f"edge {place}: expected row {pairs[row]}, got {ends}")
    elif graphs.edge_attr is not None:
        raise Failure("edge_attr: expected none")


def run_npz(case: Case, folder: Path) -> str:
    """A `.npz` file; what is accepted must hold the arrays that were saved."""
    arrays = case.given["arrays"]
    (folder / "g.npz").write_bytes(case.given["g.npz"])
    wanted: dict[str, Any] = {"level": "node"}
    for name, array in arrays.items():
        kind = array.dtype.kind
        as_float = kind == "f" or (kind == "b" and name != "y")
        wanted[name] = torch.from_numpy(
            array.astype(np.complex64 if kind == "c" else np.float64 if as_float else np.int64)
        )
        if name in ("x", "edge_attr") and array.ndim == 1:
            wanted[name] = wanted[name][:, None]
    sure = arrays["y"].ndim == 1 and arrays["x"].ndim and len(arrays["y"]) == len(arrays["x"])
    bad = oracle.graph_problems(wanted)
    y = wanted["y"]
    if not bad and len({value for value in y.tolist() if value == value and value != -1}) < 2:
        bad = {"y"}
    if not bad and any(float(wanted[n].abs().max()) > oracle.LARGEST for n in ("x",) if wanted[n].numel()):
        bad = {"x"}
    try:
        task = load_tables(folder / "g.npz", task="classification", standardise=False)
    except DataError as error:
        if not bad and sure and "bytes" not in case.broken:
            raise Failure(f"refused for nothing: {error}") from None
        if error.field not in ARGUMENTS and not error.field.startswith(("x", "edge_attr", "splits", "y")):
            raise Failure(f"an unknown field: {error}") from None
        return "refused"
    if not sure:
        return "open"
    if bad:
        raise Failure(f"expected {sorted(bad)} to be refused")
    agree("edges", dense(task.graphs.edge_index, task.graphs.num_nodes), dense(wanted["edge_index"], len(wanted["x"])))
    names = [np.nan if code < 0 else float(task.classes[code]) for code in task.graphs.y.tolist()]
    agree("y", names, [np.nan if value == -1 else value for value in y.tolist()])
    if wanted["x"].is_floating_point():
        agree("x", task.graphs.x, wanted["x"].numpy().astype(np.float32))
    return "accepted"


if __name__ == "__main__":
    main()
