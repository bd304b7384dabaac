"""Sources that hold a whole graph, read into tables: PyG's `Data`, `.npz` files, NetworkX graphs and GraphML files.

Reading a file never runs code: pickles and XML entities are refused.
"""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from sirgcn.data.splits import PARTS, Split
from sirgcn.data.tables.columns import ColumnType, Frame, check_names
from sirgcn.data.tables.delimited import MORE, read_bytes
from sirgcn.data.tables.roles import Roles, Tables
from sirgcn.data.tables.text import as_text
from sirgcn.data.validate import DataError, check_shape

MASKS = tuple(f"{part}_mask" for part in PARTS)

NAMES = ("x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr", *MASKS)

LAYOUT = {"node_features": "x", "node_labels": "y", "edges": "edge_index"} | {
    f"{part}_masks": f"{part}_mask" for part in PARTS
}
"""The names in the files of the heterophilous data sets, and PyG's names for the same arrays.

Edges are `[E, 2]` in these files, and masks are `[splits, V]`.
"""

ENDS = Roles(source="source", destination="target")
"""The columns of an edge's ends in the tables of a whole graph. The ids of its nodes are in the index."""


def from_data(graphs: Data | Sequence[Data], level: Level | None) -> Tables:
    """Return the tables of PyG's graphs. Whole numbers in `x` and `edge_attr` are categories, as in PyG."""
    many = [graphs] if isinstance(graphs, Data) else graphs
    if not many:
        raise DataError("expected at least one graph, got none", "nodes")
    if len(many) > 1:
        return _tables_of("data", Graphs.from_data(many, level or "graph"), True)
    (data,) = many
    found = {name: value for name in NAMES if (value := data.get(name)) is not None}
    if "x" not in found and "edge_index" in found and data.num_nodes is not None:
        found["x"] = torch.ones(data.num_nodes, 1)
    for name, tensor in found.items():
        if not isinstance(tensor, Tensor):
            raise DataError(f"expected a tensor, got {type(tensor).__name__}", name, "data")
    return _from_tensors("data", found, level, True)


def read_npz(path: Path, level: Level | None, limit: int | None = None) -> Tables:
    """Return the tables of a `.npz` file with PyG's names or those of the heterophilous data sets, without pickles."""
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
            tensors[known] = _transposed(known, tensors.pop(name))
    # This layout lists each edge once; PyG's lists each direction.
    return _from_tensors(source, tensors, level, "edges" not in found)


def _transposed(name: str, tensor: Tensor) -> Tensor:
    """Return an array of the heterophilous layout in PyG's."""
    if name == "x":
        # Whole numbers are numbers in this layout, not categories.
        return tensor.double()
    return tensor.T if tensor.dim() == 2 else tensor


_UNREADABLE = (ValueError, OSError, EOFError, KeyError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""The errors for a damaged archive, for a pickle, and for an array that is larger than its file."""


def _tensor(source: str, name: str, array: Any) -> Tensor:
    if not isinstance(array, np.ndarray):
        raise DataError(f"expected an array, got {type(array).__name__}", name, source)
    wanted = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    if wanted is None:
        raise DataError(f"expected numbers, got dtype {array.dtype}", name, source)
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError("expected whole numbers of 63 bits", name, source, value=int(array.max()))
    return torch.from_numpy(np.array(array, dtype=wanted))


def _from_tensors(source: str, found: Mapping[str, Tensor], level: Level | None, directed: bool) -> Tables:
    """Return the tables of a graph in PyG's tensors, by name."""
    _check_tensors(source, found)
    inputs = {name: _wide(tensor) for name, tensor in found.items() if name != "y" and name not in MASKS}
    for name in ("x", "edge_attr"):
        if name in inputs and inputs[name].dim() == 1:
            inputs[name] = inputs[name].unsqueeze(1)
    graphs = len(inputs["node_ptr"]) - 1 if "node_ptr" in inputs else 1
    rows: dict[Level, int] = {"node": len(inputs["x"]), "graph": graphs, "edge": inputs["edge_index"].size(-1)}
    has_targets = "y" in found
    if has_targets:
        y = _targets(found["y"])
        own = level or _level_of(y, rows)
    else:
        # No node has a label.
        y, own = torch.full((rows["node"],), -1), "node"
    try:
        made = Graphs(y=y, level=own, **inputs)
    except DataError as error:
        raise replace(error, source=source) from None
    tables = _tables_of(source, made, has_targets)
    return replace(tables, directed=directed, splits=_splits(source, found, rows[own]))


def _check_tensors(source: str, found: Mapping[str, Tensor]) -> None:
    for name in ("x", "edge_index"):
        if name not in found:
            known = ", ".join(found) or "none"
            raise DataError(f"expected this array, got {known}", name, source)
    for name, tensor in found.items():
        if tensor.dim() == 0:
            raise DataError("expected an array, got a number", name, source, value=tensor.item())


def _level_of(y: Tensor, rows: Mapping[Level, int]) -> Level:
    """Return the first level that has as many rows as there are targets; "node" if none has."""
    return next((level for level, count in rows.items() if len(y) == count), "node")


def _wide(tensor: Tensor) -> Tensor:
    """Return the tensor in the nearest dtype that graphs may have."""
    if tensor.dtype == torch.bool or tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def _targets(y: Tensor) -> Tensor:
    y = _wide(y.long() if y.dtype == torch.bool else y)
    if y.dim() != 2:
        return y
    return y.squeeze(1) if y.size(1) == 1 else y.float()


def _splits(source: str, found: Mapping[str, Tensor], count: int) -> tuple[Split, ...]:
    """Return the splits of the masks; one per column of a mask."""
    columns = {}
    for name in MASKS:
        if name in found:
            mask = found[name]
            check_shape(name, mask, (count, None) if mask.dim() == 2 else (count,), (torch.bool,))
            columns[name] = mask.reshape(count, -1)
    if not columns:
        return ()
    widths = {mask.size(1) for mask in columns.values()}
    if len(widths) > 1:
        raise DataError(f"expected as many splits in every mask, got {sorted(widths)}", "train_mask", source)
    none = torch.zeros(count, widths.pop(), dtype=torch.bool)
    parts = [columns.get(name, none) for name in MASKS]
    return tuple(Split.from_masks(*(part[:, place] for part in parts)) for place in range(none.size(1)))


def _tables_of(source: str, graphs: Graphs, has_targets: bool) -> Tables:
    """Return the tables of nodes, edges and, for several graphs, of graphs."""
    ends = zip(("source", "target"), graphs.edge_index, strict=True)
    columns: dict[Level, dict[str, Any]] = {
        "node": _input_columns("x", graphs.x),
        "edge": {name: pd.Series(end.numpy()) for name, end in ends} | _input_columns("edge_attr", graphs.edge_attr),
        "graph": _input_columns("graph_attr", graphs.graph_attr),
    }
    has_graphs = graphs.node_ptr is not None
    if graphs.node_ptr is not None:
        graph_id = pd.Series(torch.repeat_interleave(graphs.node_ptr.diff()).numpy())
        columns["node"] = {"graph_id": graph_id} | columns["node"]
    types = _categorical(graphs)
    if has_targets:
        columns[graphs.level] |= _target_columns(graphs.y)
    rows: dict[Level, int] = {"node": graphs.num_nodes, "edge": graphs.num_edges, "graph": graphs.num_graphs}

    def frame(level: Level) -> Frame:
        count = rows[level]
        numbers = np.arange(1, count + 1)
        return Frame(f"{source}, {level}s", columns[level], numbers, types=types, index=pd.RangeIndex(count))

    roles = replace(ENDS, graph="graph_id" if has_graphs else None)
    return Tables(frame("node"), frame("edge"), frame("graph") if has_graphs else None, directed=True, roles=roles)


def _input_columns(name: str, values: Tensor | None) -> dict[str, Any]:
    """Return one column of lists for float features, and one column per category."""
    if values is None:
        return {}
    if values.is_floating_point():
        return {name: values.double().numpy()}
    return {f"{name}_{place}": pd.Series(column.numpy()) for place, column in enumerate(values.T)}


def _target_columns(y: Tensor) -> dict[str, Any]:
    if not y.is_floating_point():
        column = pd.Series(y.numpy())
        return {"y": column.astype("Int64").mask(column == -1)}
    if y.dim() == 1:
        return {"y": pd.Series(y.numpy())}
    return {f"y_{place}": pd.Series(target.numpy()) for place, target in enumerate(y.T)}


def _categorical(graphs: Graphs) -> dict[str, ColumnType]:
    """Return the type of every column that holds categories or classes."""
    names = ["y"] if not graphs.y.is_floating_point() else []
    for name, values in (("x", graphs.x), ("edge_attr", graphs.edge_attr)):
        if values is not None and not values.is_floating_point():
            names += [f"{name}_{place}" for place in range(values.size(1))]
    return dict.fromkeys(names, "categorical")


def from_networkx(graph: Any) -> Tables:
    """Return the tables of a NetworkX graph. Its attributes are columns."""
    nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    index = pd.Index([node for node, _ in nodes], dtype=object, tupleize_cols=False)
    ends = {
        name: pd.Series([edge[place] for edge in edges], dtype=object)
        for place, name in enumerate(("source", "target"))
    }
    return Tables(
        _from_attributes("nodes", [attributes for _, attributes in nodes], {}, index),
        _from_attributes("edges", [attributes for _, _, attributes in edges], ends, None),
        directed=bool(graph.is_directed()),
        roles=ENDS,
    )


def _from_attributes(
    source: str, rows: Sequence[Mapping[Any, Any]], first: Mapping[str, Any], index: "pd.Index[Any] | None"
) -> Frame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    check_names(source, [*first, *map(str, names)])
    columns = {str(name): pd.Series([row.get(name) for row in rows]) for name in names}
    return Frame(source, {**first, **columns}, np.arange(1, len(rows) + 1), index=index)


class _NoDoctype(ElementTree.TreeBuilder):
    """A builder that refuses a document type, and with it the entities that a document type may declare."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise DataError("expected no document type, got one", "DOCTYPE")


def read_graphml(path: Path, limit: int | None = None) -> Tables:
    """Return the tables of a GraphML file with one graph. Its keys are columns of the types that they declare."""
    source = str(path)
    root = _parse(path, limit)
    graph = _only_graph(source, root)
    keys = {key.get("id", ""): key for key in root.findall("key")}
    nodes, edges = graph.findall("node"), graph.findall("edge")
    directed = _is_directed(source, graph, edges)
    return Tables(
        _Elements(source, "node", nodes, keys).frame(()),
        _Elements(source, "edge", edges, keys).frame(("source", "target")),
        directed=directed,
        roles=ENDS,
    )


def _parse(path: Path, limit: int | None) -> Any:
    try:
        root = ElementTree.XML(read_bytes(path, limit), ElementTree.XMLParser(target=_NoDoctype()))
    except DataError as error:
        raise replace(error, source=str(path)) from None
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"expected GraphML, got: {error}", "graphml", str(path)) from None
    for element in root.iter():
        # Some programs leave the namespace out.
        element.tag = element.tag.rpartition("}")[2]
    return root


def _only_graph(source: str, root: Any) -> Any:
    graphs = root.findall("graph")
    if root.tag != "graphml" or len(graphs) != 1:
        raise DataError(f"expected one graph in <graphml>, got {len(graphs)} in <{root.tag}>", "graph", source)
    (graph,) = graphs
    for tag in ("graph", "hyperedge"):
        if graph.find(f".//{tag}") is not None:
            raise DataError("expected only nodes and edges, got one", tag, source)
    return graph


def _is_directed(source: str, graph: Any, edges: Sequence[Any]) -> bool:
    default = graph.get("edgedefault")
    if default not in ("directed", "undirected"):
        raise DataError(f"expected directed or undirected, got {default!r}", "edgedefault", source, value=default)
    is_directed: bool = default == "directed"
    for row, edge in enumerate(edges, start=1):
        own = edge.get("directed")
        if own is not None and (own == "true") != is_directed:
            raise DataError("expected the direction of edgedefault in all edges", "directed", source, row, own)
    return is_directed


_GRAPHML_TYPES: dict[str, ColumnType | None] = {
    **dict.fromkeys(("int", "long", "float", "double"), "numeric"),
    "boolean": "boolean",
    "string": None,
}


@dataclass(frozen=True, eq=False)
class _Elements:
    """The nodes or the edges of a GraphML file, and the keys of their columns.

    Args:
        source: the name of the file.
        tag: "node" or "edge".
        elements: the elements of this tag.
        keys: all declared keys, by their id.
        names: the name of each key that is a column.
        types: the types of the columns that hold numbers or truth values.
        columns: the values of each column, None without a value.
    """

    source: str
    tag: str
    elements: Sequence[Any]
    keys: Mapping[str, Any]
    names: dict[str, str] = field(default_factory=dict)
    types: dict[str, ColumnType] = field(default_factory=dict)
    columns: dict[str, list[str | None]] = field(default_factory=dict)

    def frame(self, attributes: Sequence[str]) -> Frame:
        """Return the table: the attributes of the elements, then the keys. The ids are the index."""
        self.columns.update({name: [element.get(name) for element in self.elements] for name in attributes})
        for key, element in self.keys.items():
            # A key without a name belongs to the program that drew the graph.
            if element.get("for", "all") in (self.tag, "all") and element.get("attr.name") is not None:
                self._declare(key, element)
        for row, element in enumerate(self.elements):
            self._read(row, element)
        # Strings are typed text, as in a data frame. Numbers and truth values are read from text.
        columns = {
            name: as_text(values) if name in self.types or name in attributes else pd.Series(values, dtype=object)
            for name, values in self.columns.items()
        }
        index = pd.Index(np.array([element.get("id") for element in self.elements], dtype=object))
        rows = np.arange(1, len(self.elements) + 1)
        return Frame(f"{self.source}, {self.tag}", columns, rows, ("",), self.types, index)

    def _declare(self, key: str, element: Any) -> None:
        """Add the column of a key, with the default of its values."""
        name = element.get("attr.name")
        check_names(self.source, [*self.columns, name])
        declared = element.get("attr.type", "string")
        if declared not in _GRAPHML_TYPES:
            known = ", ".join(_GRAPHML_TYPES)
            raise DataError(f"expected a type of {known}, got {declared!r}", name, self.source, value=declared)
        column_type = _GRAPHML_TYPES[declared]
        if column_type is not None:
            self.types[name] = column_type
        default = element.find("default")
        self.columns[name] = [None if default is None else default.text] * len(self.elements)
        self.names[key] = name

    def _read(self, row: int, element: Any) -> None:
        """Read the values of one element."""
        seen = set()
        for data in element.findall("data"):
            key = data.get("key", "")
            if key not in self.keys or key in seen:
                expected = "expected a declared key, and each once"
                raise DataError(f"{expected}, got {key!r}", "key", f"{self.source}, {self.tag}", row + 1, key)
            seen.add(key)
            if key in self.names:
                self._set(row, self.names[key], data)

    def _set(self, row: int, name: str, data: Any) -> None:
        if len(data):
            inside = f"expected a value, got <{data[0].tag}>"
            raise DataError(inside, name, f"{self.source}, {self.tag}", row + 1, data[0].tag)
        self.columns[name][row] = data.text or ""
