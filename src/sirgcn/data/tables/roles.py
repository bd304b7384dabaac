"""Which table and which column holds what: as the caller says, as the source says, or by the usual names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import Frame
from sirgcn.data.validate import DataError
from sirgcn.strict import check_arguments

ID_NAMES = ("id", "node_id", "node", "nodeid")
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
"""Names by which columns are known, whatever their case."""


@dataclass(frozen=True)
class Roles:
    """Which column holds what; None where no column does.

    Args:
        id: the nodes' ids, in the table of nodes; None: its index.
        source: where an edge starts, in the table of edges.
        destination: where it ends.
        graph: the graph of a node, and of an edge if the edges have the column too.
        key: the graphs' ids, in a table of graphs; None: its index.
        smiles: molecules, in the table of graphs.
    """

    id: str | None = None
    source: str | None = None
    destination: str | None = None
    graph: str | None = None
    key: str | None = None
    smiles: str | None = None

    def __post_init__(self) -> None:
        # As arguments and not as fields of a file: a column may be called "none".
        check_arguments(Roles, vars(self))


@dataclass(frozen=True)
class Tables:
    """A user's graphs: nodes, edges, and graphs where they have a table of their own.

    Args:
        nodes: one row per node; None where the edges alone name them.
        edges: one row per edge.
        graphs: one row per graph.
        directed: whether the source says that an edge has a direction; None if it does not say.
        splits: of the source, from its masks.
        roles: which column is what, where the source says so.
    """

    nodes: Frame | None
    edges: Frame | None
    graphs: Frame | None = None
    directed: bool | None = None
    splits: tuple[Split, ...] = ()
    roles: Roles | None = None


def find_roles(tables: Tables, given: Mapping[str, str | None], asked: bool = True) -> Roles:
    """The columns that the caller named, the others by their usual names; or those that the source itself has.

    Unless `asked`, the names are those of training, and a source that has its own needs none of them.
    """
    if tables.roles is not None:
        for name, column in given.items():
            if asked and column not in (None, getattr(tables.roles, name)):
                raise DataError(f"expected none, for the source says which column it is, got {column!r}", name)
        return tables.roles
    nodes, edges, graphs = tables.nodes, tables.edges, tables.graphs
    if edges is None:
        raise DataError("expected a table of edges, got none", "edges")
    source, destination = _ends(edges, given.get("source"), given.get("destination"))
    first = nodes if nodes is not None else edges
    graph = given.get("graph")
    graph = known(first, GRAPH_NAMES) if graph is None else first.find("graph", graph)
    key = None
    if graphs is not None:
        if graph is None:
            raise DataError(f"expected the column of {first.source} that holds a node's graph, got none", "graph")
        key = graph if graph in graphs.columns else known(graphs, (*GRAPH_NAMES, "id"))
    identity = given.get("id")
    if nodes is not None:
        identity = nodes.find("id", identity) if identity is not None else known(nodes, ID_NAMES)
    for name, column, frame in (("id", identity, nodes), ("graph", key, graphs)):
        if frame is not None and column is None and frame.index is None:
            names = ", ".join(ID_NAMES if name == "id" else GRAPH_NAMES)
            raise DataError(f"expected a column {names}, or its name as an argument, got none", name, frame.source)
    return Roles(identity, source, destination, graph, key)


def known(frame: Frame, names: Sequence[str]) -> str | None:
    """The column that has the first of these names, whatever its case and the white space around it."""
    lower = {name.strip().lower(): name for name in reversed(list(frame.columns))}
    return next((lower[name] for name in names if name in lower), None)


def _ends(edges: Frame, source: str | None, destination: str | None) -> tuple[str, str]:
    if source is not None and destination is not None:
        return edges.find("source", source), edges.find("destination", destination)
    for pair in END_NAMES:
        first, second = (known(edges, (name,)) for name in pair)
        first, second = source or first, destination or second
        if first is not None and second is not None and first != second:
            return edges.find("source", first), edges.find("destination", second)
    if source is None and destination is None and len(edges.columns) == 2:
        first, second = edges.columns
        return first, second
    pairs = "; ".join(", ".join(pair) for pair in END_NAMES)
    columns = ", ".join(edges.columns)
    raise DataError(
        f"expected columns {pairs}, or their names as arguments, got {columns}",
        "destination" if destination is None and source is not None else "source",
        edges.source,
    )
