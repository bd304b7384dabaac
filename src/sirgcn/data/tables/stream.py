"""New tables larger than memory, in chunks: molecules, or many graphs. One bad row does not stop the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from sirgcn.data.tables.apply import Inputs, read_inputs
from sirgcn.data.tables.columns import Dropped, Frame, joined
from sirgcn.data.tables.features import Unknown
from sirgcn.data.tables.pieces import pieces_of
from sirgcn.data.tables.preprocessing import Preprocessing
from sirgcn.data.tables.read import Source, read_frame
from sirgcn.data.tables.roles import Roles
from sirgcn.data.tables.text import Ints
from sirgcn.data.validate import DataError
from sirgcn.strict import Count, Size, checked

BadRow = tuple[str, int, str, str, str]
"""A row that was left out: its table, its number from 1, the column, the value, and the reason."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some graphs of a stream.

    Args:
        inputs: the graphs, as from `apply_tables`; None if no row of the chunk could be used.
        rows: for each graph, the row of its molecule, or its number in the order of the graphs, counted from 1.
        bad: the rows that were left out, with the reason.
        start: how many rows (or graphs) come before the chunk.
        end: how many rows (or graphs) the stream has passed after the chunk: `start=` of a stream that goes on here.

    >>> import numpy as np
    >>> Chunk(None, np.array([], dtype=np.int64), (), 0, 10).end
    10
    """

    inputs: Inputs | None
    rows: Ints
    bad: tuple[BadRow, ...]
    start: int
    end: int

    @property
    def unseen(self) -> dict[str, int]:
        """For each column, the number of values that training does not know, which are read as other or missing."""
        return {} if self.inputs is None else self.inputs.unseen


@checked
def stream_tables(
    preprocessing: Preprocessing,
    nodes: Any,
    edges: Any = None,
    *,
    graphs: Any = None,
    size: Size = 1024,
    start: Count = 0,
    unknown: Unknown = "other",
) -> Iterator[Chunk]:
    """Yield new molecules, or new graphs, in chunks of bounded memory, read in the same way as those of training.

    Text files and Parquet files are read piece by piece, so that only a chunk is in memory. The rows of a graph must
    stand together in the table of nodes, and its edges in that of edges, in the same order of graphs. A table of graphs
    is read whole.

    Args:
        preprocessing: the preprocessing of training, `task.details["preprocessing"]`, of a task on graphs or of many
            graphs.
        nodes: the table of molecules, or of nodes.
        edges: the table of edges, unless there are molecules.
        graphs: the table of graphs, if training had one.
        size: the number of molecules in a chunk, or about the number of rows of nodes.
        start: how many molecules (or graphs) to pass over; `Chunk.end` of the last chunk that was done goes on there.
        unknown: as in `apply_tables`.

    Raises:
        DataError: for what is wrong with a whole table, such as a column that is not there. What is wrong with single
            rows is listed in `Chunk.bad`.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"graph": [0, 0, 1, 1, 2, 2], "id": [0, 1] * 3, "size": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> edges = pd.DataFrame({"graph": [0, 1, 2], "source": [0, 0, 0], "target": [1, 1, 1]})
    >>> y = pd.DataFrame({"graph": [0, 1, 2], "y": [0.5, 1.5, 2.5]})
    >>> preprocessing = load_tables(nodes, edges, graphs=y, task="regression").details["preprocessing"]
    >>> [(chunk.end, chunk.inputs.graphs.num_graphs) for chunk in stream_tables(preprocessing, nodes, edges, size=3)]
    [(1, 1), (2, 1), (3, 1)]
    """
    if preprocessing.roles.smiles is not None:
        if edges is not None or graphs is not None:
            raise DataError("expected only one table with a column of molecules", "edges")
        return _molecules(preprocessing, nodes, size, start, unknown)
    if preprocessing.roles.graph is None or edges is None:
        expected = "expected tables of many graphs, with the column of a node's graph, or a table of molecules"
        raise DataError(f"{expected}; apply_tables reads one graph", "nodes")
    return _graphs(preprocessing, (nodes, edges, graphs), size, start, unknown)


def _molecules(preprocessing: Preprocessing, source: Any, size: int, start: int, unknown: Unknown) -> Iterator[Chunk]:
    bad, done = Dropped(lenient=True), start
    for frame, end in pieces_of(source, "molecules", preprocessing.missing, size, start, bad):
        read = _Reading(preprocessing, unknown, partial(_taken, frame))
        inputs, kept = read.units(np.arange(len(frame))) if len(frame) else (None, np.arange(0))
        found = sorted([*bad.rows, *read.bad], key=lambda row: row[1])
        named = {row for _, row, *_ in read.bad}
        rows = np.array([row for row in frame.rows[kept].tolist() if row not in named], dtype=np.int64)
        yield Chunk(inputs, rows, tuple(found), done, end)
        bad.rows.clear()
        done = end


def _taken(frame: Frame, kept: Ints) -> Source:
    return Source(frame.take(kept), None, None, ())


def _graphs(
    preprocessing: Preprocessing, tables: tuple[Any, Any, Any], size: int, start: int, unknown: Unknown
) -> Iterator[Chunk]:
    roles, missing = preprocessing.roles, preprocessing.missing
    bad, done = Dropped(lenient=True), 0
    nodes, of_edges = (
        (frame for frame, _ in pieces_of(table, name, missing, size, 0, bad) if len(frame))
        for table, name in zip(tables, ("nodes", "edges"), strict=False)
    )
    edges = _Edges(of_edges, roles)
    graphs = None if tables[2] is None else read_frame(tables[2], "graphs", missing, bad)
    for frame in _whole_graphs(nodes, str(roles.graph)):
        part = _Part(roles, frame, edges.of(frame), graphs)
        first, before, done = max(0, start - done), done, done + len(part.ids)
        if first < len(part.ids):
            read = _Reading(preprocessing, unknown, part.source)
            inputs, kept = read.units(np.arange(first, len(part.ids)))
            yield Chunk(inputs, kept + before + 1, (*bad.rows, *read.bad), before + first, done)
            bad.rows.clear()
    edges.check_done()


class _Reading:
    """Reads as many of some units (molecules or graphs) as can be read, and notes the others."""

    def __init__(self, preprocessing: Preprocessing, unknown: Unknown, source: Callable[[Ints], Source]) -> None:
        self.preprocessing, self.unknown, self.source = preprocessing, unknown, source
        self.bad: list[BadRow] = []

    def units(self, places: Ints) -> tuple[Inputs | None, Ints]:
        """Return the units at these places as inputs, and the places of those that could be read."""
        left_out = Dropped(lenient=True)
        try:
            inputs = read_inputs(self.preprocessing, self.source(places), self.unknown, left_out)
        except DataError as error:
            if error.row is None and not left_out.rows:
                # What is wrong with the whole table is wrong with every unit.
                raise
            return self._without_bad(places, error, left_out)
        self.bad += left_out.rows
        return inputs, places

    def _without_bad(self, places: Ints, error: DataError, left_out: Dropped) -> tuple[Inputs | None, Ints]:
        none = places[:0]
        if error.row is None:
            self.bad += left_out.rows
            return None, none
        if len(places) == 1:
            self.bad.append((error.source or "", error.row, error.field, str(error.value), error.message))
            return None, none
        kept = np.concatenate([self.units(half)[1] for half in np.array_split(places, 2)])
        if not len(kept):
            return None, none
        # The rows that are left out now are those that the halves have noted.
        again = read_inputs(self.preprocessing, self.source(kept), self.unknown, Dropped(lenient=True))
        return again, kept


def _whole_graphs(pieces: Iterator[Frame], column: str) -> Iterator[Frame]:
    """Yield the rows of nodes again, cut where a graph ends."""
    rest: Frame | None = None
    seen: set[int] = set()
    for piece in pieces:
        frame = piece if rest is None else joined([rest, piece])
        ids = frame.ids(column)[0].objects()
        last = int(np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))[-1])
        if last:
            yield _checked_graphs(frame.take(np.arange(last)), column, seen)
        rest = frame.take(np.arange(last, len(frame)))
    if rest is not None:
        yield _checked_graphs(rest, column, seen)


def _checked_graphs(frame: Frame, column: str, seen: set[int]) -> Frame:
    """Raise for a graph whose rows do not stand together."""
    ids = frame.ids(column)[0].objects()
    for place in np.flatnonzero(np.append(True, ids[1:] != ids[:-1])).tolist():
        # The hash of an id takes less memory than the id.
        if hash(ids[place]) in seen:
            expected = f"expected the rows of a graph together, got {ids[place]!r} again; sort the table by this column"
            raise frame.error(expected, column, place, ids[place])
        seen.add(hash(ids[place]))
    return frame


class _Edges:
    """The table of edges, read as far as the graphs of the nodes go."""

    def __init__(self, pieces: Iterator[Frame], roles: Roles) -> None:
        self.pieces, self.roles = pieces, roles
        self.rest: Frame | None = next(pieces, None)

    def of(self, nodes: Frame) -> Frame | None:
        """Return the next edges, as long as they belong to graphs of these nodes."""
        parts: list[Frame] = []
        while self.rest is not None:
            owner = owner_of(self.rest, self.roles)
            known = set(nodes.ids(owner[1])[0].objects().tolist())
            inside = np.array([name in known for name in self.rest.ids(owner[0])[0].objects()], dtype=np.bool_)
            count = len(inside) if inside.all() else int(inside.argmin())
            parts.append(self.rest.take(np.arange(count)))
            if count < len(inside):
                self.rest = self.rest.take(np.arange(count, len(inside)))
                break
            self.rest = next(self.pieces, None)
        return joined(parts) if parts else None

    def check_done(self) -> None:
        """Raise for edges that belong to no graph that has been read."""
        if self.rest is not None and len(self.rest):
            column = owner_of(self.rest, self.roles)[0]
            value = self.rest.value(str(column), 0)
            expected = "expected edges of the graphs of the nodes, in the same order of graphs"
            raise self.rest.error(f"{expected}, got {value!r}; sort both tables alike", str(column), 0, value)


def owner_of(edges: Frame, roles: Roles) -> tuple[str | None, str | None]:
    """Return the columns of edges and of nodes that tell which graph an edge belongs to."""
    return (roles.graph, roles.graph) if roles.graph in edges.columns else (roles.source, roles.id)


class _Part:
    """Some whole graphs: their nodes, their edges, and their rows of the table of graphs."""

    def __init__(self, roles: Roles, nodes: Frame, edges: Frame | None, graphs: Frame | None) -> None:
        self.roles, self.nodes, self.edges, self.graphs = roles, nodes, edges, graphs
        self.code, values = nodes.ids(roles.graph)[0].codes()
        self.ids = values.objects()

    def source(self, kept: Ints) -> Source:
        """Return the tables of some of the graphs."""
        nodes, wanted = self.nodes.take(np.isin(self.code, kept)), set(self.ids[kept].tolist())
        edges = Frame("edges", {str(end): pd.Series([], dtype=str) for end in self._ends()}, np.arange(0))
        if self.edges is not None:
            of_edges, of_nodes = owner_of(self.edges, self.roles)
            edges = _rows_among(self.edges, of_edges, set(nodes.ids(of_nodes)[0].objects().tolist()))
        graphs = None if self.graphs is None else _rows_among(self.graphs, self.roles.key, wanted)
        return Source(nodes, edges, graphs, ())

    def _ends(self) -> tuple[str | None, ...]:
        return (self.roles.source, self.roles.destination)


def _rows_among(frame: Frame, column: str | None, wanted: set[str]) -> Frame:
    ids = frame.ids(column)[0].objects()
    return frame.take(np.array([name in wanted for name in ids], dtype=np.bool_))
