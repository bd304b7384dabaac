"""Any source of a user's graphs, read into tables: text files, Parquet files, data frames, or a whole graph.

Reading a file never runs code: pickles and XML entities are refused.
"""

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from torch_geometric.data import Data

from sirgcn.data.archives import ARRAYS
from sirgcn.data.graphs import Level
from sirgcn.data.tables import text
from sirgcn.data.tables.columns import Dropped, Frame, check_names
from sirgcn.data.tables.delimited import MORE, read_bytes, read_delimited
from sirgcn.data.tables.roles import Tables
from sirgcn.data.tables.whole import from_data, from_networkx, read_graphml, read_npz
from sirgcn.data.validate import DataError

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")

# The number of rows of a Parquet file that are read at once.
PIECE = 1 << 14


@dataclass(frozen=True, eq=False)
class Source:
    """What a user gives: tables, or one object or file that holds a whole graph in the place of the nodes.

    Args:
        nodes: the table of nodes, or the whole graph.
        edges: the table of edges.
        graphs: the table of graphs.
        missing: texts that stand for a missing value in a text file.
        limit: the number of bytes to which a compressed file may be unpacked; None for the default.
    """

    nodes: Any
    edges: Any
    graphs: Any
    missing: tuple[str, ...]
    limit: int | None = None


def read_tables(source: Source, level: Level | None, dropped: Dropped) -> Tables:
    """Return the tables of any source."""
    whole = _read_whole(source.nodes, level, source.limit)
    parts = {"nodes": source.nodes, "edges": source.edges, "graphs": source.graphs}
    if whole is None:
        frames = {
            name: read_frame(part, name, source.missing, dropped, source.limit)
            for name, part in parts.items()
            if part is not None
        }
        return Tables(frames.get("nodes"), frames.get("edges"), frames.get("graphs"))
    for name in ("edges", "graphs"):
        if parts[name] is not None:
            raise DataError("expected no table beside a source that holds the whole graph, got one", name)
    return whole


def _read_whole(nodes: Any, level: Level | None, limit: int | None) -> Tables | None:
    """Return the tables of an object or file that holds a whole graph; None for other sources."""
    suffix = suffix_of(nodes) if isinstance(nodes, str | os.PathLike) else None
    if suffix == ".graphml":
        return read_graphml(Path(nodes), limit)
    if suffix == ".npz":
        return read_npz(Path(nodes), level, limit)
    if isinstance(nodes, Data) or (isinstance(nodes, list | tuple) and all(isinstance(g, Data) for g in nodes)):
        return from_data(nodes, level)
    if all(hasattr(nodes, name) for name in ("nodes", "edges", "is_directed")):
        return from_networkx(nodes)
    return None


def read_frame(source: Any, name: str, missing: tuple[str, ...], dropped: Dropped, limit: int | None = None) -> Frame:
    """Return the table of any source. Errors use `name` for a source that has no file name."""
    if isinstance(source, Frame):
        return source
    if isinstance(source, pd.DataFrame):
        return Frame.from_pandas(name, source)
    if isinstance(source, str | os.PathLike):
        return _read_file(Path(source), name, missing, dropped, limit)
    if hasattr(source, "__arrow_c_stream__"):
        return from_arrow(name, _pyarrow(name).table(source))
    if hasattr(source, "__dataframe__"):
        _pyarrow(name)
        from pyarrow.interchange import from_dataframe

        return from_arrow(name, from_dataframe(source))
    raise TypeError(f"{name}: expected a path, a data frame or a graph, got {type(source).__name__}")


def _read_file(path: Path, name: str, missing: tuple[str, ...], dropped: Dropped, limit: int | None) -> Frame:
    suffix = suffix_of(path)
    if suffix in DELIMITERS:
        return read_delimited(path, DELIMITERS[suffix], missing, dropped, limit)
    if suffix in PARQUET:
        return read_parquet(path, limit)
    known = ", ".join([*DELIMITERS, *PARQUET])
    raise DataError(f"expected a file that ends in one of {known} (text also with .gz)", name, str(path))


def read_parquet(path: Path, limit: int | None = None) -> Frame:
    """Return the table of a Parquet file that unpacks to at most `limit` bytes; the default is that of `ARRAYS`."""
    _pyarrow(str(path))
    from pyarrow import parquet

    room = ARRAYS.bytes_of(path) if limit is None else limit
    try:
        table = _in_pieces(parquet.ParquetFile(io.BytesIO(read_bytes(path, limit))), room)
    except DataError as error:
        raise replace(error, source=str(path)) from None
    except (ValueError, OSError, NotImplementedError) as error:  # pyarrow's errors are among them
        raise DataError(f"expected a Parquet file, got: {error}", "columns", str(path)) from None
    return from_arrow(str(path), table)


def _in_pieces(file: Any, room: int) -> Any:
    """Return the table of a Parquet file.

    A value that repeats takes no space in the file, so the size of the table is known only while reading.
    """
    pieces, size = [], 0
    for piece in file.iter_batches(PIECE):
        pieces.append(piece)
        size += piece.nbytes
        if size > room:
            raise DataError(f"expected at most {room} bytes in it when unpacked, got more; {MORE}", "size", value=size)
    return text.pa.Table.from_batches(pieces, file.schema_arrow)


def from_arrow(source: str, table: Any) -> Frame:
    check_names(source, table.column_names)
    # Nullable types. Otherwise whole numbers with a gap would become floats, and large ids would change.
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


def suffix_of(path: str | os.PathLike[str]) -> str:
    return Path(path).with_suffix("").suffix.lower() if Path(path).suffix == ".gz" else Path(path).suffix.lower()
