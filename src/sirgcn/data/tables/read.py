"""Whatever holds a user's graphs, read into tables: text files, Parquet, data frames, GraphML, NetworkX, PyG, npz.

Nothing that is read can run code: no pickles, no XML entities.
"""

import io
import os
from dataclasses import replace
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

# Rows of a Parquet file that are read at once.
PIECE = 1 << 14


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
