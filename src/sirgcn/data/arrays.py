"""Graphs that are arrays already, as tables: PyG's `Data`, and `.npz` files of the same or the heterophilous layout."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.archives import load_npz
from sirgcn.data.delimited import MORE
from sirgcn.data.frames import Frame, Kind
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.roles import Roles, Tables
from sirgcn.data.task import Split
from sirgcn.data.validate import DataError, check_shape

NAMES = ("x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr", "train_mask", "val_mask", "test_mask")

LAYOUT = {"node_features": "x", "node_labels": "y", "edges": "edge_index"} | {
    f"{part}_masks": f"{part}_mask" for part in ("train", "val", "test")
}
"""The names of the heterophilous data sets' files, whose edges are `[E, 2]` and masks `[splits, V]`, and PyG's."""


def from_data(graphs: Data | Sequence[Data], level: Level | None) -> Tables:
    """The tables of PyG's graphs; `x` and `edge_attr` that hold whole numbers hold categories, as PyG has it."""
    if not isinstance(graphs, Data) and len(graphs) != 1:
        if not graphs:
            raise DataError("expected at least one graph, got none", "nodes")
        return _of_graphs("data", Graphs.from_data(graphs, level or "graph"), True)
    data = graphs if isinstance(graphs, Data) else graphs[0]
    found = {name: data.get(name) for name in NAMES if data.get(name) is not None}
    if "x" not in found and "edge_index" in found and data.num_nodes is not None:
        found["x"] = torch.ones(data.num_nodes, 1)
    for name, tensor in found.items():
        if not isinstance(tensor, Tensor):
            raise DataError(f"expected a tensor, got {type(tensor).__name__}", name, "data")
    return _of_tensors("data", found, level, True)


def read_npz(path: Path, level: Level | None, limit: int | None = None) -> Tables:
    """A `.npz` file with PyG's names, or with those of the heterophilous data sets; no pickles."""
    source = str(path)
    try:
        with load_npz(path, limit) as file:
            found = {name: file[name] for name in file.files}
    except DataError as error:
        raise replace(error, message=f"{error.message}; {MORE}", source=source) from None
    except _UNREADABLE as error:
        raise DataError(f"expected arrays without pickles, got: {error}", "npz", source) from None
    tensors = {name: _tensor(source, name, array) for name, array in found.items() if name in (*NAMES, *LAYOUT)}
    for name, known in LAYOUT.items():
        if name in tensors:
            # Whole numbers are numbers in this layout.
            tensor = tensors.pop(name)
            tensors[known] = tensor.double() if known == "x" else tensor.T if tensor.dim() == 2 else tensor
    # Its edges are listed once, PyG's as they are meant.
    return _of_tensors(source, tensors, level, "edges" not in found)


_UNREADABLE = (ValueError, OSError, EOFError, KeyError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What a damaged archive, a pickle or an array that is larger than its file may raise."""


def _tensor(source: str, name: str, array: Any) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise DataError(f"expected an array, got {type(array).__name__}", name, source)
    wanted = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    if wanted is None:
        raise DataError(f"expected numbers, got dtype {array.dtype}", name, source)
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError("expected whole numbers of 63 bits", name, source, value=int(array.max()))
    return torch.from_numpy(np.array(array, dtype=wanted))


def _of_tensors(source: str, found: Mapping[str, Tensor], level: Level | None, directed: bool) -> Tables:
    for name in ("x", "edge_index"):
        if name not in found:
            known = ", ".join(found) or "none"
            raise DataError(f"expected it, got {known}", name, source)
    for name, tensor in found.items():
        if tensor.dim() == 0:
            raise DataError("expected an array, got a number", name, source, value=tensor.item())
    ready = {name: _wide(tensor) for name, tensor in found.items() if "mask" not in name and name != "y"}
    for name in ("x", "edge_attr"):
        if name in ready and ready[name].dim() == 1:
            ready[name] = ready[name].unsqueeze(1)
    graphs = len(ready["node_ptr"]) - 1 if "node_ptr" in ready else 1
    rows: dict[Level, int] = {"node": len(ready["x"]), "graph": graphs, "edge": ready["edge_index"].size(-1)}
    # Without targets, none of the nodes has a label.
    y = _targets(found["y"]) if "y" in found else torch.full((rows["node"],), -1)
    fitting = [name for name, count in rows.items() if len(y) == count]
    own: Level = level if level is not None and "y" in found else fitting[0] if fitting else "node"
    try:
        made = Graphs(y=y, level=own, **ready)
    except DataError as error:
        raise DataError(error.message, error.field, source, error.row, error.value) from None
    tables = _of_graphs(source, made, "y" in found)
    return replace(tables, directed=directed, splits=_splits(source, found, rows[own]))


def _wide(tensor: Tensor) -> Tensor:
    """In the nearest dtype of graphs."""
    if tensor.dtype == torch.bool or tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def _targets(y: Tensor) -> Tensor:
    y = _wide(y.long() if y.dtype == torch.bool else y)
    return y.squeeze(1) if y.dim() == 2 and y.size(1) == 1 else y.float() if y.dim() == 2 else y


def _splits(source: str, found: Mapping[str, Tensor], count: int) -> tuple[Split, ...]:
    masks = {name: mask for name, mask in found.items() if "mask" in name}
    if not masks:
        return ()
    columns = {}
    for name, mask in masks.items():
        check_shape(name, mask, (count, None) if mask.dim() == 2 else (count,), (torch.bool,))
        columns[name] = mask.reshape(count, -1)
    widths = {mask.size(1) for mask in columns.values()}
    if len(widths) > 1:
        raise DataError(f"expected as many splits in every mask, got {sorted(widths)}", "train_mask", source)
    none = torch.zeros(count, widths.pop(), dtype=torch.bool)
    parts = [columns.get(f"{part}_mask", none) for part in ("train", "val", "test")]
    return tuple(Split.from_masks(*(part[:, place] for part in parts)) for place in range(none.size(1)))


def _of_graphs(source: str, graphs: Graphs, labelled: bool) -> Tables:
    tables: dict[str, dict[str, Any]] = {"node": {}, "edge": {}, "graph": {}}
    kinds: dict[str, Kind] = {}
    tables["edge"] |= {
        name: pd.Series(end.numpy()) for name, end in zip(("source", "target"), graphs.edge_index, strict=True)
    }
    if graphs.node_ptr is not None:
        tables["node"]["graph_id"] = pd.Series(torch.repeat_interleave(graphs.node_ptr.diff()).numpy())
    for level, name in (("node", "x"), ("edge", "edge_attr")):
        values = getattr(graphs, name)
        if values is not None and values.is_floating_point():
            tables[level][name] = values.double().numpy()
        elif values is not None:
            columns = {f"{name}_{place}": pd.Series(column.numpy()) for place, column in enumerate(values.T)}
            tables[level] |= columns
            kinds |= dict.fromkeys(columns, "categorical")
    if labelled:
        targets = [graphs.y] if graphs.y.dim() == 1 else list(graphs.y.T)
        names = ["y"] if graphs.y.dim() == 1 else [f"y_{place}" for place in range(len(targets))]
        for name, target in zip(names, targets, strict=True):
            column = pd.Series(target.numpy())
            if not target.is_floating_point():
                column, kinds[name] = column.astype("Int64").mask(column == -1), "categorical"
            tables[graphs.level][name] = column
    rows = {"node": graphs.num_nodes, "edge": graphs.num_edges, "graph": graphs.num_graphs}
    frames = {
        level: Frame(
            f"{source}, {level}s", columns, np.arange(1, rows[level] + 1), kinds=kinds, index=pd.RangeIndex(rows[level])
        )
        for level, columns in tables.items()
    }
    roles = Roles(source="source", destination="target", graph="graph_id" if "graph_id" in tables["node"] else None)
    many = graphs.node_ptr is not None
    return Tables(frames["node"], frames["edge"], frames["graph"] if many else None, directed=True, roles=roles)
