"""The structure of graphs: ids become places, edges get their reverses, and graphs stand one after the other."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sirgcn.data.molecules import has_rdkit, molecule
from sirgcn.data.tables.columns import Dropped, Frame
from sirgcn.data.tables.roles import Roles, Tables
from sirgcn.data.tables.text import Bools, Ints, Objects, Text, join_text
from sirgcn.data.validate import DataError


@dataclass(frozen=True, eq=False)
class Structure:
    """Graphs without targets.

    Args:
        nodes: the table of nodes in the order of the graphs; None if only the edges name the nodes.
        edges: the rows of edges, without the columns of ids.
        ids: the ids of the nodes.
        edge_index: int64 `[2, E]`.
        rows: the place of each edge's row in `edges`.
        added: which edges are the reverse that was added to their row.
        graph_ids: the ids of the graphs, if there are several.
        node_ptr: where the nodes of each graph start.
        edge_ptr: where the edges of each graph start.
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
    """Return the structure of tables with ids.

    An edge to an unknown node or between two graphs is refused or dropped. Undirected edges run in both directions,
    equally often: a row without a partner in the other direction gets one.
    """
    edges = tables.edges
    assert edges is not None
    # The column of graphs in the table of edges: with it, ids may repeat from graph to graph.
    within = roles.graph if roles.graph in edges.columns else None
    named = _name_nodes(tables, roles, within)
    source, destination, bad = _ends(edges, roles, within, named, dropped)
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


def _ends(
    edges: Frame, roles: Roles, within: str | None, named: "_Named", dropped: Dropped
) -> tuple[Ints, Ints, Bools]:
    """Return the places of the ends of every edge, and which edges cannot be used."""
    assert roles.source is not None
    assert roles.destination is not None
    texts = {column: edges.ids(column)[0] for column in (within, roles.source, roles.destination) if column is not None}
    bad = np.zeros(len(edges), dtype=np.bool_)

    def refuse(column: str, wrong: Bools, expected: str, known: Text | None) -> None:
        if wrong.any():
            hints = {} if known is None else _near_ids(texts[column], known, wrong)
            dropped.note(edges, wrong & ~bad, column, f"expected {expected}", hints)
            np.logical_or(bad, wrong, out=bad)

    graph = None
    if within is not None and named.graphs is not None:
        graph = texts[within].positions(named.graphs)
        refuse(within, graph < 0, "a graph that has nodes", named.graphs)
    source, destination = (named.places(texts[column], graph) for column in (roles.source, roles.destination))
    refuse(roles.source, source < 0, "the id of a node", named.values)
    refuse(roles.destination, destination < 0, "the id of a node", named.values)
    refuse(roles.destination, named.across(source, destination), "a node of the source's graph", None)
    return source, destination, bad


def _spaced(text: Text, known: Text, wrong: Bools) -> dict[int, str]:
    """Return a hint, by place, for the unknown ids that differ from a known one only by white space."""
    places = np.flatnonzero(wrong)
    strange = text.take(places)
    near = (strange.positions(known) < 0) & (strange.stripped().positions(known.stripped()) >= 0)
    hint = "; another id differs from it by white space alone, and ids are compared as they stand"
    return dict.fromkeys(places[near].tolist(), hint)


def _near_ids(text: Text, known: Text, wrong: Bools) -> dict[int, str]:
    """Return a hint, by place, for the unknown ids that are written in another way than a known one."""
    found = _spaced(text, known, wrong)
    places = [place for place in np.flatnonzero(wrong).tolist() if place not in found]
    if not places:
        return found
    plain = {_plain_id(name): name for name in reversed(known.objects().tolist())}
    for place, name in zip(places, text.take(np.array(places)).objects().tolist(), strict=True):
        near = plain.get(_plain_id(name))
        if near is not None:
            how = "letter case" if near.strip().lower() == name.strip().lower() else "the way a number is written"
            found[place] = f"; there is {near!r}, which differs by {how}: write ids alike in both tables"
    return found


def _plain_id(name: str) -> str:
    """Return an id in lower case, without zeros that say nothing about a number."""
    bare = name.strip().lower()
    return re.sub(r"^0+(?=[0-9])", "", re.sub(r"^([0-9]+)\.0*$", r"\1", bare))


def _grouped(one: Structure, graph: Ints, graph_ids: Objects) -> Structure:
    """Return the structure in the order of the graphs; nodes and edges of a graph keep the order of their tables."""
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
    """Return which edges have no partner in the other direction: of n edges uv and m edges vu, the last n - m."""
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
    """Nodes by their names.

    Args:
        ids: the ids of the nodes, as they were given.
        values: the different ids as text.
        keys: the number of each node's id among `values`; if ids may repeat from graph to graph, combined with the
            number of the graph.
        graph: the number of each node's graph.
        graphs: the ids of the graphs as text.
        graph_ids: the ids of the graphs, as they were given.
    """

    ids: Objects
    values: Text
    keys: "pd.Index[int]"
    graph: Ints | None
    graphs: Text | None
    graph_ids: Objects | None

    def places(self, text: Text, graph: Ints | None) -> Ints:
        """Return the places of the nodes with these ids, -1 for an unknown id."""
        code = text.positions(self.values)
        key = code if graph is None else np.where((code < 0) | (graph < 0), -1, graph * len(self.values) + code)
        return self.keys.get_indexer(pd.Index(key)).astype(np.int64)

    def across(self, source: Ints, destination: Ints) -> Bools:
        """Return which edges join two graphs."""
        if self.graph is None:
            return np.zeros(len(source), dtype=np.bool_)
        return (source >= 0) & (destination >= 0) & (self.graph[source] != self.graph[destination])


@dataclass(frozen=True, eq=False)
class _Ids:
    """The ids of nodes, and of their graphs, as the rows of a table name them.

    Args:
        frame: the table.
        columns: its columns of ids, one below the other in `text`.
        text: the ids as text.
        ids: the ids as they were given.
        graph_text: the ids of the graphs as text.
        graph_ids: the ids of the graphs, as they were given.
    """

    frame: Frame
    columns: Sequence[str | None]
    text: Text
    ids: Objects
    graph_text: Text | None = None
    graph_ids: Objects | None = None


def _ids_of_nodes(nodes: Frame, roles: Roles) -> _Ids:
    text, ids = nodes.ids(roles.id)
    graphs = (None, None) if roles.graph is None else nodes.ids(roles.graph)
    return _Ids(nodes, [roles.id], text, ids, *graphs)


def _ids_of_ends(edges: Frame, roles: Roles) -> _Ids:
    """Return the ids of all ends of edges: without a table of nodes, the ends of edges are the nodes."""
    columns = [roles.source, roles.destination]
    text = join_text([edges.ids(column)[0] for column in columns])
    if roles.graph is None:
        return _Ids(edges, columns, text, text.objects())
    graph_text, graph_ids = edges.ids(roles.graph)
    return _Ids(edges, columns, text, text.objects(), join_text([graph_text] * 2), graph_ids)


def _name_nodes(tables: Tables, roles: Roles, within: str | None) -> _Named:
    assert tables.edges is not None
    given = _ids_of_ends(tables.edges, roles) if tables.nodes is None else _ids_of_nodes(tables.nodes, roles)
    if len(given.ids) == 0:
        raise DataError("expected at least one node, got none", "nodes", given.frame.source)
    graph, known_graphs, graph_ids = _graphs(given, tables.graphs, roles)
    _refuse_twins(given.frame, given.columns, given.text, None if within is None else graph)
    key, values = given.text.codes()
    if graph is not None and within is not None:
        key = graph * len(values) + key
    ids = given.ids
    if tables.nodes is None:
        # In the order in which the edges first name them.
        first = np.sort(np.unique(key, return_index=True)[1])
        key, ids, graph = key[first], ids[first], None if graph is None else graph[first]
    else:
        # Ids may repeat from graph to graph only if edges say which graph they belong to.
        is_common = graph is not None and within is None
        scope = f" in all graphs (the edges have no {roles.graph!r})" if is_common else ""
        _check_once(given, key, scope)
    return _Named(ids, values, pd.Index(key), graph, known_graphs, graph_ids)


def _check_once(given: _Ids, key: Ints, scope: str) -> None:
    """Raise for the second row of an id."""
    again = pd.Series(key).duplicated().to_numpy()
    if again.any():
        place = int(again.argmax())
        value = given.text.take(np.array([place])).objects()[0]
        row = int(given.frame.rows[np.argmax(key == key[place])])
        message = f"expected every id once{scope}, got {value!r} in row {row} too; keep one of these rows"
        raise given.frame.error(message, given.columns[0] or "id", place, value)


def _refuse_twins(frame: Frame, columns: Sequence[str | None], text: Text, graph: Ints | None = None) -> None:
    """Raise for two ids of a graph that differ only by white space: one is a mistake, and would be a separate node.

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


def _graphs(given: _Ids, graphs: Frame | None, roles: Roles) -> tuple[Ints | None, Text | None, Objects | None]:
    """Return the number of each row's graph, and the ids of the graphs as text and as they were given."""
    text, ids = given.graph_text, given.graph_ids
    if text is None or ids is None or roles.graph is None:
        return None, None, None
    if graphs is None:
        _refuse_twins(given.frame, [roles.graph, roles.graph], text)
        graph, values = text.codes()
        return graph, values, ids[np.unique(graph, return_index=True)[1]]
    label = roles.key or "graph"
    values, ids = graphs.ids(roles.key)
    _refuse_twins(graphs, [label], values)
    again = values.positions(values) != np.arange(len(values))
    _refuse_first(graphs, label, values, again, "expected every id once, got {} again")
    graph = text.positions(values)
    _check_graphs_known(given.frame, roles.graph, text, values, graph, graphs.source)
    empty = np.bincount(graph, minlength=len(values)) == 0
    _refuse_first(graphs, label, values, empty, "expected a graph with nodes, got none for {}")
    return graph, values, ids


def _check_graphs_known(frame: Frame, column: str, text: Text, values: Text, graph: Ints, source: str) -> None:
    """Raise for the first row whose graph is not in the table of graphs."""
    if (graph < 0).any():
        place = int((graph < 0).argmax())
        value = frame.value(column, place % len(frame))
        hint = _spaced(text, values, graph < 0).get(place, "")
        message = f"expected a graph of {source}, got {value!r}{hint}"
        raise frame.error(message, column, place % len(frame), value)


def _refuse_first(frame: Frame, column: str, values: Text, bad: Bools, message: str) -> None:
    if bad.any():
        place = int(bad.argmax())
        value = values.take(np.array([place])).objects()[0]
        raise frame.error(message.format(repr(value)), column, place, value)


def count_repeats(edge_index: Ints, count: int) -> tuple[int, int]:
    """Return how many edges are self-loops, and how many repeat an earlier edge."""
    source, destination = edge_index
    keys = np.sort(source * count + destination)
    return int((source == destination).sum()), int((keys[1:] == keys[:-1]).sum())


def read_molecules(frame: Frame, smiles: str, key: str | None, dropped: Dropped) -> tuple[Structure, Frame, Ints, Ints]:
    """Return the structure of a table's molecules, the table without unreadable rows, the atoms and the bonds."""
    if not has_rdkit():
        raise DataError("needs RDKit: pip install 'sirgcn[chem]'", smiles, frame.source)
    found = [None if text is None else molecule(text) for text in frame.categories(smiles)]
    bad = np.array([graph is None for graph in found], dtype=np.bool_)
    dropped.note(frame, bad, smiles, "expected a molecule as SMILES")
    graphs = [graph for graph in found if graph is not None]
    if not graphs:
        raise frame.error("expected at least one molecule, got none", smiles)
    kept = frame.take(~bad)
    atoms, ends, bonds = (tuple(part) for part in zip(*graphs, strict=True))
    node_ptr, edge_ptr = _pointer(atoms), _pointer(bonds)
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


def _pointer(parts: Sequence[Ints]) -> Ints:
    return np.append(0, np.cumsum([len(part) for part in parts])).astype(np.int64)
