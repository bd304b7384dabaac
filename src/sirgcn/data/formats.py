"""Whatever holds a user's graphs, read into tables: text files, Parquet, data frames, GraphML, NetworkX, PyG, npz.

Nothing that is read can run code: no pickles, no XML entities.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from torch_geometric.data import Data

from sirgcn.data import text
from sirgcn.data.archives import ARRAYS
from sirgcn.data.arrays import from_data, read_npz
from sirgcn.data.delimited import MORE, read_bytes, read_delimited
from sirgcn.data.frames import Dropped, Frame, Kind, check_names
from sirgcn.data.graphs import Level
from sirgcn.data.roles import Roles, Tables
from sirgcn.data.text import as_text
from sirgcn.data.validate import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")

# Rows of a Parquet file that are read at once.
PIECE = 1 << 14

ENDS = Roles(source="source", destination="target")
"""Where the ends of edges stand in the tables of a whole graph, whose nodes have their ids in the index."""


def read_tables(
    nodes: Any,
    edges: Any,
    graphs: Any,
    level: Level | None,
    missing: tuple[str, ...],
    dropped: Dropped,
    limit: int | None = None,
) -> Tables:
    """The tables of any source. What holds a graph as a whole stands in the place of the nodes."""
    suffix = _suffix(nodes) if isinstance(nodes, str | os.PathLike) else None
    if suffix == ".graphml":
        whole = read_graphml(Path(nodes), limit)
    elif suffix == ".npz":
        whole = read_npz(Path(nodes), level, limit)
    elif isinstance(nodes, Data) or (isinstance(nodes, list | tuple) and all(isinstance(g, Data) for g in nodes)):
        whole = from_data(nodes, level)
    elif all(hasattr(nodes, name) for name in ("nodes", "edges", "is_directed")):
        whole = from_networkx(nodes)
    else:
        parts = (("nodes", nodes), ("edges", edges), ("graphs", graphs))
        found = [None if part is None else read_frame(part, name, missing, dropped, limit) for name, part in parts]
        return Tables(found[0], found[1], found[2])
    for name, part in (("edges", edges), ("graphs", graphs)):
        if part is not None:
            raise DataError("expected none beside a source that holds the whole graph, got one", name)
    return whole


def read_frame(source: Any, name: str, missing: tuple[str, ...], dropped: Dropped, limit: int | None = None) -> Frame:
    """A table of any source; `name` is how a refusal calls what has no file name."""
    if isinstance(source, Frame):
        return source
    if isinstance(source, pd.DataFrame):
        return Frame.from_pandas(name, source)
    if isinstance(source, str | os.PathLike):
        suffix = _suffix(source)
        if suffix in DELIMITERS:
            return read_delimited(Path(source), DELIMITERS[suffix], missing, dropped, limit)
        if suffix in PARQUET:
            return read_parquet(Path(source), limit)
        known = ", ".join([*DELIMITERS, *PARQUET])
        raise DataError(f"expected a file that ends in one of {known} (text also with .gz)", name, str(source))
    if hasattr(source, "__arrow_c_stream__"):
        return _of_arrow(name, _pyarrow(name).table(source))
    if hasattr(source, "__dataframe__"):
        _pyarrow(name)
        from pyarrow.interchange import from_dataframe

        return _of_arrow(name, from_dataframe(source))
    raise TypeError(f"{name}: expected a path, a data frame or a graph, got {type(source).__name__}")


def read_parquet(path: Path, limit: int | None = None) -> Frame:
    """A Parquet file, unless it takes more than `limit` bytes when unpacked; default: as `ARRAYS` has it."""
    _pyarrow(str(path))
    from pyarrow import parquet

    room = ARRAYS.bytes_of(path) if limit is None else limit
    try:
        table = _in_pieces(parquet.ParquetFile(io.BytesIO(read_bytes(path, limit))), room)
    except DataError as error:
        raise replace(error, source=str(path)) from None
    except (ValueError, OSError, NotImplementedError) as error:  # pyarrow's errors are among them
        raise DataError(f"expected a Parquet file, got: {error}", "columns", str(path)) from None
    return _of_arrow(str(path), table)


def _in_pieces(file: Any, room: int) -> Any:
    """The table of a Parquet file, in which a value that repeats takes no room: its size is known only on the way."""
    pieces, size = [], 0
    for piece in file.iter_batches(PIECE):
        pieces.append(piece)
        size += piece.nbytes
        if size > room:
            raise DataError(f"expected at most {room} bytes in it when unpacked, got more; {MORE}", "size", value=size)
    return text.pa.Table.from_batches(pieces, file.schema_arrow)


def _of_arrow(source: str, table: Any) -> Frame:
    check_names(source, table.column_names)
    # Nullable types: otherwise whole numbers with a gap would become floats, and large ids others.
    widths = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    nullable = {getattr(text.pa, width.lower())(): getattr(pd, f"{width}Dtype")() for width in widths}
    nullable[text.pa.bool_()] = pd.BooleanDtype()
    try:
        frame = table.to_pandas(types_mapper=nullable.get, ignore_metadata=True)
    except (ValueError, NotImplementedError) as error:
        raise DataError(f"expected columns that pandas can hold, got: {error}", "columns", source) from None
    return Frame.from_pandas(source, frame)


def _pyarrow(source: str) -> Any:
    if text.pa is None:
        raise DataError("needs pyarrow: pip install 'sirgcn[data]'", "columns", source)
    return text.pa


def _suffix(path: str | os.PathLike[str]) -> str:
    return Path(path).with_suffix("").suffix.lower() if Path(path).suffix == ".gz" else Path(path).suffix.lower()


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
