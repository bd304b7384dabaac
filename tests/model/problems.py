"""Small tasks of every kind, with a signal that a network can find: it stands in the columns of the rows."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from sirgcn.data import Task, load_tables

Sort = Literal["classes", "labels", "numbers"]


def small_task(
    level: Literal["node", "edge", "graph"],
    sort: Sort = "classes",
    edge_columns: bool = False,
    categories: bool = False,
    count: int = 90,
    seed: int = 0,
) -> Task:
    """A task whose target follows from a column of the row itself, or of the nodes of the graph."""
    rng = np.random.default_rng(seed)
    graphs = count if level == "graph" else 1
    nodes = count if level == "node" else 4 * graphs if level == "graph" else max(5, count // 3)
    signal = rng.standard_normal(nodes)
    frame: dict[str, Any] = {"id": range(nodes), "noise": rng.standard_normal(nodes), "signal": signal}
    if categories:
        frame = {
            "id": range(nodes),
            "sign": np.where(signal > 0, "plus", "minus"),
            "other": rng.choice(["a", "b"], nodes),
        }
    if level == "graph":
        frame["graph_id"] = np.repeat(range(graphs), 4)
    table, edges = pd.DataFrame(frame), _edges(rng, level, nodes, count)
    value = signal
    if level == "edge":
        edges["weight"] = value = rng.standard_normal(len(edges))
    elif edge_columns:
        edges["weight"] = rng.standard_normal(len(edges))
    owner = {"node": table, "edge": edges, "graph": None}[level]
    if level == "graph":
        value = np.repeat(signal.reshape(-1, 4).mean(1), 4)
        owner = table
    assert owner is not None
    targets = _targets(owner, value, sort)
    found = load_tables(table, edges, target=targets, level=level, fractions=(0.6, 0.2, 0.2), directed=True)
    return replace(found, name=f"{level} {sort}")


def _edges(rng: np.random.Generator, level: str, nodes: int, count: int) -> pd.DataFrame:
    if level == "graph":
        first = np.repeat(4 * np.arange(count), 4)
        inside = np.tile([0, 1, 2, 3], count)
        return pd.DataFrame({"source": first + inside, "target": first + (inside + 1) % 4})
    many = count if level == "edge" else 3 * nodes
    return pd.DataFrame({"source": rng.integers(nodes, size=many), "target": rng.integers(nodes, size=many)})


def _targets(owner: pd.DataFrame, value: Any, sort: Sort) -> list[str]:
    if sort == "numbers":
        owner["y"] = 1000.0 + 50.0 * value
        return ["y"]
    if sort == "labels":
        owner["first"], owner["second"] = (value > 0).astype(int), (value < 0.5).astype(int)
        return ["first", "second"]
    owner["y"] = np.where(value > 0, "high", "low")
    return ["y"]


def nothing_learned(task: Task) -> float:
    """The validation metric of the majority or of the mean of the training rows."""
    split, y = task.splits[0], task.graphs.y
    if not y.is_floating_point():
        guess = torch.nn.functional.one_hot(y[split.train].mode().values, task.schema.outputs).float()
    else:
        guess = y[split.train].double().mean(0).float().reshape(1, -1).squeeze(0)
    rows = split.val
    return task.metric_function([guess.expand(len(rows), -1)], [y[rows]])
