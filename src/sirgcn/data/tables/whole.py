"""Graphs that are arrays already, as tables: PyG's `Data`, and `.npz` files of the same or the heterophilous layout."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.archives import load_npz
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import Frame, Kind, check_names
from sirgcn.data.tables.delimited import MORE, read_bytes
from sirgcn.data.tables.roles import Roles, Tables
from sirgcn.data.tables.text import as_text
from sirgcn.data.validate import DataError, check_shape

NAMES = ("x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr", "train_mask", "val_mask", "test_mask")

LAYOUT = {"node_features": "x", "node_labels": "y", "edges": "edge_index"} | {
    f"{part}_masks": f"{part}_mask" for part in ("train", "val", "test")
}
"""The names of the heterophilous data sets' files, whose edges are `[E, 2]` and masks `[splits, V]`, and PyG's."""


ENDS = Roles(source="source", destination="target")
"""Where the ends of edges stand in the tables of a whole graph, whose nodes have their ids in the index."""


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


def from_networkx(graph: Any) -> Tables:
    """The tables of a NetworkX graph: attributes are columns."""
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    index = pd.Index([node for node, _ in nodes], dtype=object, tupleize_cols=False)
    ends = {
        name: pd.Series([edge[place] for edge in edges], dtype=object)
        for place, name in enumerate(("source", "target"))
    }
    return Tables(
        _of_attributes("nodes", [attributes for _, attributes in nodes], {}, index),
        _of_attributes("edges", [attributes for _, _, attributes in edges], ends, None),
        directed=bool(graph.is_directed()),
        roles=ENDS,
    )


def _of_attributes(
    source: str, rows: Sequence[Mapping[Any, Any]], first: Mapping[str, Any], index: "pd.Index[Any] | None"
) -> Frame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    check_names(source, [*first, *map(str, names)])
    columns = {str(name): pd.Series([row.get(name) for row in rows]) for name in names}
    return Frame(source, {**first, **columns}, np.arange(1, len(rows) + 1), index=index)


class _NoDoctype(ElementTree.TreeBuilder):
    """Refuses a document type, and with it the entities that it could declare."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise DataError("expected no document type, got one", "DOCTYPE")


def read_graphml(path: Path, limit: int | None = None) -> Tables:
    """A GraphML file with one graph: its keys are columns, of the types that they declare."""
    source = str(path)
    try:
        root = ElementTree.XML(read_bytes(path, limit), ElementTree.XMLParser(target=_NoDoctype()))
    except DataError as error:
        raise DataError(error.message, error.field, source) from None
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"expected GraphML, got: {error}", "graphml", source) from None
    for element in root.iter():
        # Some writers leave the namespace out.
        element.tag = element.tag.rpartition("}")[2]
    graphs = root.findall("graph")
    if root.tag != "graphml" or len(graphs) != 1:
        raise DataError(f"expected one graph in <graphml>, got {len(graphs)} in <{root.tag}>", "graph", source)
    (graph,) = graphs
    for tag in ("graph", "hyperedge"):
        if graph.find(f".//{tag}") is not None:
            raise DataError("expected nodes and edges alone, got one", tag, source)
    keys = {key.get("id", ""): key for key in root.findall("key")}
    default = graph.get("edgedefault")
    if default not in ("directed", "undirected"):
        raise DataError(f"expected directed or undirected, got {default!r}", "edgedefault", source, value=default)
    directed = default == "directed"
    edges = graph.findall("edge")
    for row, edge in enumerate(edges, start=1):
        own = edge.get("directed")
        if own is not None and (own == "true") != directed:
            raise DataError("expected all edges as edgedefault has them", "directed", source, row, own)
    return Tables(
        _of_elements(source, "node", graph.findall("node"), (), keys),
        _of_elements(source, "edge", edges, ("source", "target"), keys),
        directed=directed,
        roles=ENDS,
    )


_GRAPHML_KINDS: dict[str, Kind | None] = {
    **dict.fromkeys(("int", "long", "float", "double"), "numeric"),
    "boolean": "boolean",
    "string": None,
}


def _of_elements(
    source: str, tag: str, elements: Sequence[Any], attributes: Sequence[str], keys: Mapping[str, Any]
) -> Frame:
    found: dict[str, list[str | None]] = {name: [element.get(name) for element in elements] for name in attributes}
    kinds: dict[str, Kind] = {}
    named = {}
    for key, element in keys.items():
        # A key without a name belongs to the program that drew the graph.
        if element.get("for", "all") in (tag, "all") and (name := element.get("attr.name")) is not None:
            check_names(source, [*found, name])
            default = element.find("default")
            found[name] = [None if default is None else default.text] * len(elements)
            named[key] = name
            kind = element.get("attr.type", "string")
            if kind not in _GRAPHML_KINDS:
                known = ", ".join(_GRAPHML_KINDS)
                raise DataError(f"expected a type of {known}, got {kind!r}", name, source, value=kind)
            if (said := _GRAPHML_KINDS[kind]) is not None:
                kinds[name] = said
    for row, element in enumerate(elements):
        read = set()
        for data in element.findall("data"):
            key = data.get("key", "")
            if key not in keys or key in read:
                known = "expected a declared key, and each once"
                raise DataError(f"{known}, got {key!r}", "key", f"{source}, {tag}", row + 1, key)
            read.add(key)
            if key in named:
                if len(data):
                    inside = f"expected a value, got <{data[0].tag}>"
                    raise DataError(inside, named[key], f"{source}, {tag}", row + 1, data[0].tag)
                found[named[key]][row] = data.text or ""
    rows = np.arange(1, len(elements) + 1)
    # Strings have the type of text, as in a data frame; numbers and truth are read from text.
    columns = {
        name: as_text(values) if name in kinds or name in attributes else pd.Series(values, dtype=object)
        for name, values in found.items()
    }
    index = pd.Index(np.array([element.get("id") for element in elements], dtype=object))
    return Frame(f"{source}, {tag}", columns, rows, ("",), kinds, index)
