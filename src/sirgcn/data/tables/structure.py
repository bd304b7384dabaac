"""From tables to the graphs' structure: ids to places, edges both ways, graphs one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sirgcn.data.molecules import molecule
from sirgcn.data.tables.columns import Dropped, Frame
from sirgcn.data.tables.roles import Roles, Tables
from sirgcn.data.tables.text import Bools, Ints, Objects, Text, join_text
from sirgcn.data.validate import DataError


@dataclass(frozen=True, eq=False)
class Structure:
    """Graphs without targets.

    Args:
        nodes: the table of nodes in their order, grouped by graph; None where the edges alone name them.
        edges: the rows of edges, without the columns of ids.
        ids: of the nodes.
        edge_index: int64 `[2, E]`.
        rows: the place of each edge's row in `edges`.
        added: which edges are the other way of their row.
        graph_ids: where there are graphs.
        node_ptr: where each graph's nodes start.
        edge_ptr: where each graph's edges start.
    """

    nodes: Frame | None
    edges: Frame
    ids: Objects
    edge_index: Ints
    rows: Ints
    added: Bools
    graph_ids: Objects | None = None
    node_ptr: Ints | None = None
    edge_ptr: Ints | None = None


def connect(tables: Tables, roles: Roles, directed: bool, dropped: Dropped) -> Structure:
    """Ids to places. An edge to an unknown node, or between graphs, is refused or dropped.

    Undirected, an edge is there both ways, equally often: a row without a partner the other way gets one.
    """
    edges = tables.edges
    assert edges is not None
    assert roles.source is not None
    assert roles.destination is not None
    within = roles.graph if roles.graph in edges.columns else None
    named = _name(tables, roles, within)
    graph = None if within is None or named.graphs is None else edges.ids(within)[0].positions(named.graphs)
    source, destination = (named.places(edges.ids(column)[0], graph) for column in (roles.source, roles.destination))
    bad = np.zeros(len(edges), dtype=np.bool_)
    for column, wrong, known, expected in (
        (within, None if graph is None else graph < 0, named.graphs, "a graph that has nodes"),
        (roles.source, source < 0, named.values, "the id of a node"),
        (roles.destination, destination < 0, named.values, "the id of a node"),
        (roles.destination, named.across(source, destination), None, "a node of the source's graph"),
    ):
        if column is not None and wrong is not None and wrong.any():
            hints = {} if known is None else _spaced(edges.ids(column)[0], known, wrong)
            dropped.note(edges, wrong & ~bad, column, f"expected {expected}", hints)
            bad |= wrong
    rest = edges.only(name for name in edges.columns if name not in (roles.source, roles.destination, within))
    if bad.any():
        rest, source, destination = rest.take(~bad), source[~bad], destination[~bad]
    rows, added = np.arange(len(source)), np.zeros(len(source), dtype=np.bool_)
    if not directed:
        alone = _alone(source, destination, len(named.ids))
        source, destination = np.append(source, destination[alone]), np.append(destination, source[alone])
        rows, added = np.append(rows, rows[alone]), np.append(added, alone[alone])
    structure = Structure(tables.nodes, rest, named.ids, np.stack([source, destination]), rows, added)
    if named.graph is None or named.graph_ids is None:
        return structure
    return _grouped(structure, named.graph, named.graph_ids)


def _spaced(text: Text, known: Text, wrong: Bools) -> dict[int, str]:
    """What to say of ids that are not known, by place, where white space is the cause."""
    places = np.flatnonzero(wrong)
    strange = text.take(places)
    near = (strange.positions(known) < 0) & (strange.stripped().positions(known.stripped()) >= 0)
    hint = "; another id differs from it by white space alone, and ids are compared as they stand"
    return dict.fromkeys(places[near].tolist(), hint)


def _grouped(one: Structure, graph: Ints, graph_ids: Objects) -> Structure:
    """The nodes and edges of one graph after those of another; within a graph they keep the order of their tables."""
    of_edges = graph[one.edge_index[0]]
    order, edge_order = (np.argsort(codes, kind="stable") for codes in (graph, of_edges))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    node_ptr, edge_ptr = (
        np.append(0, np.bincount(codes, minlength=len(graph_ids)).cumsum()) for codes in (graph, of_edges)
    )
    return Structure(
        None if one.nodes is None else one.nodes.take(order),
        one.edges,
        one.ids[order],
        rank[one.edge_index[:, edge_order]],
        one.rows[edge_order],
        one.added[edge_order],
        graph_ids,
        node_ptr,
        edge_ptr,
    )


def _alone(source: Ints, destination: Ints, count: int) -> Bools:
    """Which edges have no partner the other way: of n edges u to v and m edges v to u, the last n - m."""
    key, reverse = source * count + destination, destination * count + source
    order = np.argsort(key, kind="stable")
    keys, first, counts = np.unique(key[order], return_index=True, return_counts=True)
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - np.repeat(first, counts)
    found = pd.Index(keys).get_indexer(pd.Index(reverse))
    partners = np.append(counts, 0)[found]
    return (place >= partners) & (source != destination)


@dataclass(frozen=True, eq=False)
class _Named:
    """Nodes by what names them: the number of their id among `values`, and their graph where ids may repeat."""

    ids: Objects
    values: Text
    keys: "pd.Index[int]"
    graph: Ints | None
    graphs: Text | None
    graph_ids: Objects | None

    def places(self, text: Text, graph: Ints | None) -> Ints:
        """The places of the nodes with these ids, -1 where there is none."""
        code = text.positions(self.values)
        key = code if graph is None else np.where((code < 0) | (graph < 0), -1, graph * len(self.values) + code)
        return self.keys.get_indexer(pd.Index(key)).astype(np.int64)

    def across(self, source: Ints, destination: Ints) -> Bools | None:
        """Which edges join two graphs."""
        if self.graph is None:
            return None
        return (source >= 0) & (destination >= 0) & (self.graph[source] != self.graph[destination])


def _name(tables: Tables, roles: Roles, within: str | None) -> _Named:
    nodes, edges, graphs = tables.nodes, tables.edges, tables.graphs
    assert edges is not None
    if nodes is not None:
        frame, text, ids = nodes, *nodes.ids(roles.id)
        graph_text, graph_ids = (None, None) if roles.graph is None else nodes.ids(roles.graph)
    else:
        # Without a table of nodes, a node is what an edge names, in the order in which they come.
        frame = edges
        text = join_text([edges.ids(end)[0] for end in (roles.source, roles.destination)])
        ids = text.objects()
        graph_text, graph_ids = (None, None) if roles.graph is None else edges.ids(roles.graph)
        graph_text = None if graph_text is None else join_text([graph_text] * 2)
    if len(ids) == 0:
        raise DataError("expected at least one node, got none", "nodes", frame.source)
    graph, known_graphs, graph_ids = _graphs(frame, graph_text, graph_ids, graphs, roles)
    columns = [roles.source, roles.destination] if nodes is None else [roles.id]
    _refuse_twins(frame, columns, text, None if within is None else graph)
    code, values = text.codes()
    key = code if graph is None or within is None else graph * len(values) + code
    if nodes is None:
        first = np.sort(np.unique(key, return_index=True)[1])
        key, ids, graph = key[first], ids[first], None if graph is None else graph[first]
    again = pd.Series(key).duplicated().to_numpy()
    if again.any():
        place = int(again.argmax())
        value = text.take(np.array([place])).objects()[0]
        row = int(frame.rows[np.argmax(key == key[place])])
        scope = "" if graph is None or within is not None else f" in all graphs (the edges have no {roles.graph!r})"
        message = f"expected every id once{scope}, got {value!r} in row {row} too"
        raise frame.error(message, roles.id or "id", place, value)
    return _Named(ids, values, pd.Index(key), graph, known_graphs, graph_ids)


def _refuse_twins(frame: Frame, columns: Sequence[str | None], text: Text, graph: Ints | None = None) -> None:
    """Refuse two ids of a graph that differ by white space alone: one is a slip, and would be a node of its own.

    The text is that of the columns, one below the other.
    """
    if not text.spaced().any():
        return
    of = np.zeros(len(text), np.int64) if graph is None else graph
    keys = pd.DataFrame({"graph": of, "code": text.codes()[0], "bare": text.stripped().codes()[0]})
    first = keys.reset_index().groupby(["graph", "bare"])["index"].transform("first").to_numpy()
    twin = keys["code"].to_numpy() != keys["code"].to_numpy()[first]
    if twin.any():
        place = int(twin.argmax())
        value, other = text.take(np.array([place, first[place]])).objects()
        got = f"{value!r} and, in row {frame.rows[first[place] % len(frame)]}, {other!r}"
        column = columns[place // len(frame)] or "id"
        message = f"expected ids that differ by more than white space, got {got}"
        raise frame.error(message, column, place % len(frame), value)


def _graphs(
    frame: Frame, text: Text | None, ids: Objects | None, graphs: Frame | None, roles: Roles
) -> tuple[Ints | None, Text | None, Objects | None]:
    """The graph of each row as a number, and the graphs' ids as text and as they are."""
    if text is None or ids is None or roles.graph is None:
        return None, None, None
    if graphs is None:
        _refuse_twins(frame, [roles.graph, roles.graph], text)
        graph, values = text.codes()
        return graph, values, ids[np.unique(graph, return_index=True)[1]]
    label = roles.key or "graph"
    values, ids = graphs.ids(roles.key)
    _refuse_twins(graphs, [label], values)
    again = values.positions(values) != np.arange(len(values))
    if again.any():
        place = int(again.argmax())
        value = values.take(np.array([place])).objects()[0]
        raise graphs.error(f"expected every id once, got {value!r} again", label, place, value)
    graph = text.positions(values)
    if (graph < 0).any():
        place = int((graph < 0).argmax())
        value = frame.value(roles.graph, place % len(frame))
        hint = _spaced(text, values, graph < 0).get(place, "")
        message = f"expected a graph of {graphs.source}, got {value!r}{hint}"
        raise frame.error(message, roles.graph, place % len(frame), value)
    empty = np.bincount(graph, minlength=len(values)) == 0
    if empty.any():
        place = int(empty.argmax())
        value = values.take(np.array([place])).objects()[0]
        raise graphs.error(f"expected a graph with nodes, got none for {value!r}", label, place, value)
    return graph, values, ids


def count_repeats(edge_index: Ints, count: int) -> tuple[int, int]:
    """How many edges are self-loops, and how many repeat an edge before them."""
    source, destination = edge_index
    keys = np.sort(source * count + destination)
    return int((source == destination).sum()), int((keys[1:] == keys[:-1]).sum())


def read_molecules(frame: Frame, smiles: str, key: str | None, dropped: Dropped) -> tuple[Structure, Frame, Ints, Ints]:
    """The molecules of a table: their structure, the table without those that RDKit cannot read, atoms and bonds."""
    try:
        import rdkit  # noqa: F401
    except ImportError:
        raise DataError("needs RDKit: pip install 'sirgcn[chem]'", smiles, frame.source) from None
    found = [None if text is None else molecule(text) for text in frame.categories(smiles)]
    bad = np.array([graph is None for graph in found], dtype=np.bool_)
    dropped.note(frame, bad, smiles, "expected a molecule as SMILES")
    graphs = [graph for graph in found if graph is not None]
    if not graphs:
        raise frame.error("expected at least one molecule, got none", smiles)
    kept = frame.take(~bad)
    atoms, ends, bonds = (tuple(part) for part in zip(*graphs, strict=True))
    node_ptr, edge_ptr = (_pointer([len(part) for part in parts]) for parts in (atoms, bonds))
    shift = np.repeat(node_ptr[:-1], np.diff(edge_ptr))
    structure = Structure(
        nodes=None,
        edges=Frame(frame.source, {}, np.repeat(kept.rows, np.diff(edge_ptr))),
        ids=np.concatenate([np.arange(len(part)) for part in atoms]).astype(object),
        edge_index=np.concatenate(ends, axis=1) + shift,
        rows=np.arange(len(shift)),
        added=np.zeros(len(shift), dtype=np.bool_),
        graph_ids=kept.rows.astype(object) if key is None else kept.ids(key)[1],
        node_ptr=node_ptr,
        edge_ptr=edge_ptr,
    )
    return structure, kept, np.concatenate(atoms), np.concatenate(bonds)


def _pointer(sizes: Sequence[int]) -> Ints:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)
