"""Which column holds what: as the caller says, as the source says, or by the usual names of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import Frame, listed
from sirgcn.data.validate import DataError
from sirgcn.strict import check_arguments

# The last one is an index that pandas has written, and holds the ids if no other column does.
ID_NAMES = ("id", "node_id", "node", "nodeid", "unnamed: 0")
GRAPH_NAMES = ("graph_id", "graph")
END_NAMES = (
    ("source", "target"),
    ("source", "destination"),
    ("src", "dst"),
    ("from", "to"),
    ("u", "v"),
    ("head", "tail"),
    ("sender", "receiver"),
    ("source_id", "target_id"),
    ("src_id", "dst_id"),
    ("from_id", "to_id"),
    ("node1", "node2"),
    ("id1", "id2"),
)
"""The usual names of columns. Letter case makes no difference."""


@dataclass(frozen=True)
class Roles:
    """Which column holds what; None if no column does.

    Args:
        id: the ids of the nodes, in the table of nodes; None: its index.
        source: where an edge starts, in the table of edges.
        destination: where an edge ends.
        graph: the graph of a node, and of an edge if the table of edges has the column, too.
        key: the ids of the graphs, in a table of graphs; None: its index.
        smiles: the molecules, in the table of graphs.
    """

    id: str | None = None
    source: str | None = None
    destination: str | None = None
    graph: str | None = None
    key: str | None = None
    smiles: str | None = None

    def __post_init__(self) -> None:
        # Read as arguments and not as fields of a file: a column may be called "none".
        check_arguments(Roles, vars(self))


@dataclass(frozen=True)
class Tables:
    """The tables of a user's graphs.

    Args:
        nodes: one row per node; None if only the edges name the nodes.
        edges: one row per edge.
        graphs: one row per graph, if graphs have a table.
        directed: whether the source says that edges have a direction; None if it does not say.
        splits: the splits of the source, from its masks.
        roles: which column holds what, if the source says so.
    """

    nodes: Frame | None
    edges: Frame | None
    graphs: Frame | None = None
    directed: bool | None = None
    splits: tuple[Split, ...] = ()
    roles: Roles | None = None


def find_roles(tables: Tables, given: Mapping[str, str | None], asked: bool = True) -> Roles:
    """Return which column holds what: as the source says, as the caller says, or by the usual names.

    If `asked` is not set, the given names are those of training. A source that names its columns itself needs none of
    them.
    """
    if tables.roles is not None:
        if asked:
            _refuse_names(tables.roles, given)
        return tables.roles
    nodes, edges, graphs = tables.nodes, tables.edges, tables.graphs
    if edges is None:
        said = "a table of molecules needs none: smiles= names their column"
        raise DataError(f"expected a table of edges, got none; {said}", "edges")
    source, destination = _ends(edges, given.get("source"), given.get("destination"))
    first = nodes if nodes is not None else edges
    graph = _named_or_known(first, "graph", given, GRAPH_NAMES)
    key = None if graphs is None else _key(graphs, graph, first)
    identity = given.get("id") if nodes is None else _named_or_known(nodes, "id", given, ID_NAMES)
    _check_ids("id", identity, nodes, ID_NAMES)
    _check_ids("graph", key, graphs, GRAPH_NAMES)
    return Roles(identity, source, destination, graph, key)


def _refuse_names(roles: Roles, given: Mapping[str, str | None]) -> None:
    for name, column in given.items():
        if column not in (None, getattr(roles, name)):
            raise DataError(f"expected no name, because the source names its columns itself, got {column!r}", name)


def _named_or_known(frame: Frame, argument: str, given: Mapping[str, str | None], names: Sequence[str]) -> str | None:
    """Return the column that the caller names, or the one with a usual name."""
    name = given.get(argument)
    return known(frame, names) if name is None else frame.find(argument, name)


def _key(graphs: Frame, graph: str | None, first: Frame) -> str | None:
    """Return the column of ids in a table of graphs; None stands for its index."""
    if graph is None:
        raise DataError(f"expected the column of {first.source} that holds a node's graph, got none", "graph")
    return graph if graph in graphs.columns else known(graphs, (*GRAPH_NAMES, "id"))


def _check_ids(argument: str, column: str | None, frame: Frame | None, names: Sequence[str]) -> None:
    """Raise for a table that has ids neither in a column nor in its index."""
    if frame is not None and column is None and frame.index is None:
        expected = f"expected a column {', '.join(names[:4])}, or its name as {argument}=, got {listed(frame.columns)}"
        raise DataError(expected, argument, frame.source)


def known(frame: Frame, names: Sequence[str]) -> str | None:
    """Return the column with the first of these names; letter case and white space around it make no difference."""
    lower = {name.strip().lower(): name for name in reversed(list(frame.columns))}
    return next((lower[name] for name in names if name in lower), None)


def _ends(edges: Frame, source: str | None, destination: str | None) -> tuple[str, str]:
    """Return the columns of an edge's ends."""
    pair = (source, destination)
    if source is None or destination is None:
        pair = _usual_ends(edges, source, destination)
    if pair[0] is None or pair[1] is None:
        pairs = "; ".join(", ".join(pair) for pair in END_NAMES)
        expected = f"expected columns {pairs}, or their names as source= and destination=, got {listed(edges.columns)}"
        raise DataError(expected, "source" if source is None else "destination", edges.source)
    return edges.find("source", pair[0]), edges.find("destination", pair[1])


def _usual_ends(edges: Frame, source: str | None, destination: str | None) -> tuple[str | None, str | None]:
    """Return the first pair of usual names; where one end is named, the other one has its usual name."""
    for names in END_NAMES:
        first, second = source or known(edges, names[:1]), destination or known(edges, names[1:])
        if first is not None and second is not None and first != second:
            return first, second
    if source is None and destination is None and len(edges.columns) == 2:
        first, second = edges.columns
        return first, second
    return None, None
