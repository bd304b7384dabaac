"""What an estimator accepts as graphs, turned into the tables that `load_tables` and `apply_tables` read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import issparse
from torch_geometric.data import Data

from sirgcn.data.graphs import Level
from sirgcn.data.tables.labels import TARGET_NAMES
from sirgcn.data.tables.roles import ID_NAMES
from sirgcn.strict import ConfigError

LABEL = "y"
"""The column that holds the labels of `fit(X, y)`."""

_EDGES = pd.DataFrame({"source": pd.Series(dtype=object), "target": pd.Series(dtype=object)})
_MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False)
class Accepted:
    """Graphs as tables.

    Args:
        tables: the arguments nodes, edges and graphs of `load_tables`.
        rows: the number of rows that a label belongs to; None if only the tables know.
    """

    tables: dict[str, Any]
    rows: int | None = None


def is_array(found: Any) -> bool:
    """Whether this is a plain table of numbers: samples by features, without a graph.

    >>> is_array([[1.0, 2.0]]), is_array(["CCO"])
    (True, False)
    """
    # One of SciPy's sparse formats is a mapping. The check of rows of numbers refuses all of them.
    if issparse(found):
        return True
    if isinstance(found, Data | pd.DataFrame | pd.Series | str | os.PathLike | tuple | Mapping):
        return False
    if isinstance(found, list) and found and isinstance(found[0], str | Data):
        return False
    if isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "OU":
        return not all(isinstance(entry, str) for entry in found)
    return not _is_networkx(found)


def accept(found: Any) -> Accepted:
    """Tables from whatever an estimator is given.

    These are PyG's `Data` or a list of them, a pair (nodes, edges) of frames or paths, a mapping with nodes, edges and
    graphs, a NetworkX graph, a path or frame of molecules, a list or column of SMILES, and rows of numbers, which are
    nodes without edges.

    >>> sorted(accept(["CCO", "CC"]).tables), accept(["CCO", "CC"]).rows
    (['nodes'], 2)
    """
    if isinstance(found, tuple | Mapping):
        return _of_tables(found)
    if isinstance(found, Data):
        return Accepted({"nodes": found}, found.num_nodes)
    if isinstance(found, str | os.PathLike) or _is_networkx(found):
        return Accepted({"nodes": found})
    if isinstance(found, pd.DataFrame):
        return _of_frame(found)
    if is_array(found):
        return _of_array(np.asarray(found))
    items = list(found)
    is_of_graphs = bool(items) and isinstance(items[0], Data)
    return Accepted({"nodes": items if is_of_graphs else pd.DataFrame({"smiles": items})}, len(items))


def _of_tables(found: Any) -> Accepted:
    """Tables by their names, or in the order nodes, edges, graphs."""
    if isinstance(found, Mapping):
        return Accepted(dict(found))
    if len(found) not in (2, 3):
        raise ConfigError(f"X: expected (nodes, edges) or (nodes, edges, graphs), got {len(found)} of them")
    tables = dict(zip(("nodes", "edges", "graphs"), found, strict=False))
    return Accepted(tables, len(found[0]) if isinstance(found[0], pd.DataFrame) else None)


def _of_frame(frame: pd.DataFrame) -> Accepted:
    if any(str(name).strip().lower() == "smiles" for name in frame.columns):
        return Accepted({"nodes": frame}, len(frame))
    return Accepted({"nodes": _with_names(frame), "edges": _EDGES}, len(frame))


def _of_array(array: Any) -> Accepted:
    names = [f"x{place}" for place in range(array.shape[1])]
    return Accepted({"nodes": pd.DataFrame(array, columns=names), "edges": _EDGES}, len(array))


def _with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with text as names of columns, and with its rows numbered."""
    return frame.set_axis(list(map(str, frame.columns)), axis=1).reset_index(drop=True)


def _is_networkx(found: Any) -> bool:
    return all(hasattr(found, name) for name in ("nodes", "edges", "is_directed"))


def labelled(accepted: Accepted, values: Any, graph_level: bool = False) -> dict[str, Any]:
    """The tables with labels beside their rows, in the column `y`.

    Args:
        accepted: the tables.
        values: one row of labels for each row.
        graph_level: whether the labels belong to the graphs of a list.
    """
    array = np.asarray(values, dtype=object) if not isinstance(values, np.ndarray) else values
    if accepted.rows is None:
        raise ConfigError(
            "y: expected none beside paths and graphs that hold their targets; name their column: target="
        )
    if len(array) != accepted.rows:
        raise ConfigError(f"y: expected {accepted.rows} labels, one for each row, got {len(array)}")
    nodes = accepted.tables["nodes"]
    if isinstance(nodes, list):
        return accepted.tables | {"nodes": [_with_y(data, array[place]) for place, data in enumerate(nodes)]}
    if isinstance(nodes, Data):
        return accepted.tables | {"nodes": _with_y(nodes, array)}
    return accepted.tables | {"nodes": with_columns(nodes, array)}


def _with_y(data: Data, label: Any) -> Data:
    made = data.clone()
    made.y = torch.as_tensor(np.asarray([label] if np.ndim(label) == 0 else label))
    return without(made, _MASKS)


def with_any_labels(tables: dict[str, Any], level: Level) -> dict[str, Any]:
    """The tables of a prediction: PyG's graphs in a list need a target, which is not read.

    Args:
        tables: the tables.
        level: what a target belongs to.
    """
    graphs = tables.get("nodes")
    if not isinstance(graphs, list):
        return tables
    made = []
    for data in graphs:
        rows = {"node": data.num_nodes, "edge": data.num_edges, "graph": 1}[level]
        made.append(data.clone().update({"y": torch.zeros(rows)}))
    return tables | {"nodes": made}


def without(data: Data, names: tuple[str, ...]) -> Data:
    """A copy of PyG's graph without these fields."""
    made = data.clone()
    for name in names:
        if name in made:
            del made[name]
    return made


def with_columns(nodes: pd.DataFrame, labels: Any) -> pd.DataFrame:
    """A frame with labels in the column `y`, or `y_0`, `y_1` and so on for several."""
    columns = {LABEL: labels} if labels.ndim == 1 else {f"{LABEL}_{place}": row for place, row in enumerate(labels.T)}
    for name in columns:
        if name in nodes.columns:
            raise ConfigError(f"X: expected no column {name!r} beside the labels in y, got one")
    return nodes.assign(**columns)


def in_graph(graph: Any, ids: Any, values: Any, target: str | None) -> dict[str, Any]:
    """The tables of a known graph in which only some nodes have a label, in the column `y`.

    Args:
        graph: as in `accept`: one graph with its nodes.
        ids: the ids of the nodes with a label; for PyG's `Data` their numbers.
        values: their labels.
        target: the column of the graph's own labels, which is left out.
    """
    accepted = accept(graph)
    nodes = accepted.tables["nodes"]
    if isinstance(nodes, Data):
        return {"nodes": _labels_in_data(nodes, ids, values)}
    if not isinstance(nodes, pd.DataFrame):
        raise ConfigError("graph: expected PyG's Data or (nodes, edges) with a frame of nodes")
    return accepted.tables | {"nodes": _labels_in_frame(nodes, ids, values, target)}


def without_target(graph: Any, target: str | None) -> dict[str, Any]:
    """The tables of a known graph without its own labels."""
    accepted = accept(graph)
    nodes = accepted.tables["nodes"]
    if isinstance(nodes, Data):
        return {"nodes": without(nodes, ("y", *_MASKS))}
    return accepted.tables | {"nodes": nodes.drop(columns=[target]) if target else nodes}


def _labels_in_data(data: Data, ids: Any, values: Any) -> Data:
    made = without(data, ("y", *_MASKS))
    places = torch.as_tensor(np.asarray(ids, dtype=np.int64))
    given = np.asarray(values)
    is_float = given.dtype.kind == "f"
    y = torch.full((int(data.num_nodes or 0), *given.shape[1:]), float("nan")) if is_float else None
    if y is None:
        y = torch.full((int(data.num_nodes or 0),), -1)
    y[places] = torch.as_tensor(given).to(y.dtype)
    made.y = y
    return made


def _labels_in_frame(nodes: pd.DataFrame, ids: Any, values: Any, target: str | None) -> pd.DataFrame:
    if target is None:
        leaking = [name for name in nodes.columns if str(name).lower() in TARGET_NAMES]
        if leaking:
            raise ConfigError(
                f"graph: expected no column that looks like a target, got {leaking[0]!r}; "
                f"target={leaking[0]!r} leaves it out of what the network reads"
            )
    kept = nodes.drop(columns=[target]) if target else nodes
    names = ids_of(kept)
    place = {str(name): number for number, name in enumerate(names)}
    unknown = [name for name in np.asarray(ids).tolist() if str(name) not in place]
    if unknown:
        raise ConfigError(
            f"X: expected ids of nodes of the graph, got {unknown[0]!r} and {len(unknown) - 1} more unknown"
        )
    column = np.full(len(kept), None, dtype=object)
    column[[place[str(name)] for name in np.asarray(ids).tolist()]] = np.asarray(values, dtype=object)
    return kept.assign(**{LABEL: column})


def ids_of(nodes: pd.DataFrame) -> list[Any]:
    """The ids of a frame of nodes: of its column with a usual name, or its index."""
    lower = {str(name).strip().lower(): name for name in reversed(list(nodes.columns))}
    column = next((lower[name] for name in ID_NAMES if name in lower), None)
    return (nodes.index if column is None else nodes[column]).tolist()
