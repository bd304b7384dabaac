"""The names of nodes, rows and columns, as a user's tables have them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

import torch
from torch import Tensor

from sirgcn.data.graphs import Graphs
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES
from sirgcn.data.tables import Column, Inputs, Preprocessing
from sirgcn.data.tables.features import input_columns
from sirgcn.data.task import Task

# The columns of OGB's atoms and bonds, in order.
_ATOMS = (
    *("element", "chirality", "degree", "charge", "hydrogens", "radical electrons"),
    *("hybridisation", "aromatic", "in a ring"),
)
_BONDS = ("bond type", "stereo", "conjugated")
_BOND_TYPES = ("single", "double", "triple", "aromatic", "other")

_ELEMENTS = [
    "H",
    "He",
    "Li",
    "Be",
    "B",
    "C",
    "N",
    "O",
    "F",
    "Ne",
    "Na",
    "Mg",
    "Al",
    "Si",
    "P",
    "S",
    "Cl",
    "Ar",
    "K",
    "Ca",
    "Sc",
    "Ti",
    "V",
    "Cr",
    "Mn",
    "Fe",
    "Co",
    "Ni",
    "Cu",
    "Zn",
    "Ga",
    "Ge",
    "As",
    "Se",
    "Br",
    "Kr",
    "Rb",
    "Sr",
    "Y",
    "Zr",
    "Nb",
    "Mo",
    "Tc",
    "Ru",
    "Rh",
    "Pd",
    "Ag",
    "Cd",
    "In",
    "Sn",
    "Sb",
    "Te",
    "I",
    "Xe",
    "Cs",
    "Ba",
    "La",
    "Ce",
    "Pr",
    "Nd",
    "Pm",
    "Sm",
    "Eu",
    "Gd",
    "Tb",
    "Dy",
    "Ho",
    "Er",
    "Tm",
    "Yb",
    "Lu",
    "Hf",
    "Ta",
    "W",
    "Re",
    "Os",
    "Ir",
    "Pt",
    "Au",
    "Hg",
    "Tl",
    "Pb",
    "Bi",
    "Po",
    "At",
    "Rn",
    "Fr",
    "Ra",
    "Ac",
    "Th",
    "Pa",
    "U",
    "Np",
    "Pu",
    "Am",
    "Cm",
    "Bk",
    "Cf",
    "Es",
    "Fm",
    "Md",
    "No",
    "Lr",
    "Rf",
    "Db",
    "Sg",
    "Bh",
    "Hs",
    "Mt",
    "Ds",
    "Rg",
    "Cn",
    "Nh",
    "Fl",
    "Mc",
    "Lv",
    "Ts",
    "Og",
]


@dataclass(frozen=True)
class NamedColumn:
    """A column of a table, and where its inputs stand.

    Args:
        name: its name.
        first: the place of its first input.
        width: the number of its inputs.
        column: how it was preprocessed; None where nothing is known of it.
        values: the names of its categories, where they are known otherwise.
    """

    name: str
    first: int
    width: int = 1
    column: Column | None = None
    values: tuple[str, ...] = ()

    def value(self, row: Tensor) -> str:
        """The value of the column in a row of inputs, as the table had it, but for rounding."""
        inputs = row[self.first : self.first + self.width]
        if self.values:
            return self.values[int(inputs[0])]
        if self.column is None:
            return f"{inputs[0].item():.4g}"
        return _of_column(self.column, inputs)


def _of_column(column: Column, inputs: Tensor) -> str:
    if column.type == "categorical":
        place = int(inputs[0]) if len(inputs) == 1 else int(inputs.argmax())
        return column.categories[place] if place < len(column.categories) else "other or missing"
    if not inputs.is_floating_point():
        return ("false", "true", "other or missing")[int(inputs[0])]
    if column.gaps and bool(inputs[-1]):
        return "missing"
    numbers = [float(number) for number in column.scaling.back(inputs.double().numpy()[: len(column.mean)])]
    if column.type == "boolean":
        return "true" if numbers[0] > 0.5 else "false"
    return ", ".join(f"{number:.4g}" for number in numbers)


@dataclass(frozen=True, eq=False)
class Names:
    """What stands in an explanation for the numbers of nodes, rows and columns.

    Args:
        nodes: the ids of the nodes; empty where nodes have numbers only.
        graphs: the ids of the graphs; empty where there is one, or where they have numbers only.
        columns: the columns of the nodes.
        edge_columns: the columns of the edges.
        graph_columns: the columns of the graphs.
        directed: whether the two directions of an edge are two edges.
        atoms: whether the nodes are atoms.
    """

    nodes: Sequence[Any] = ()
    graphs: Sequence[Any] = ()
    columns: tuple[NamedColumn, ...] = ()
    edge_columns: tuple[NamedColumn, ...] = ()
    graph_columns: tuple[NamedColumn, ...] = ()
    directed: bool = True
    atoms: bool = False
    rows: dict[str, list[int]] = field(default_factory=dict)

    def of(self) -> dict[Literal["nodes", "edges", "graph"], tuple[NamedColumn, ...]]:
        """The columns of nodes, edges and graphs."""
        return {"nodes": self.columns, "edges": self.edge_columns, "graph": self.graph_columns}

    def node(self, graphs: Graphs, node: int, first: int = 0) -> str:
        """The name of a node; of an atom its element and its number in the molecule, counted from 1."""
        if self.atoms:
            element = int(graphs.x[node, 0])
            symbol = _ELEMENTS[element] if element < len(_ELEMENTS) else "?"
            return f"{symbol}{node - first + 1}"
        return str(self.nodes[node]) if len(self.nodes) else str(node - first)

    def title(self, graphs: Graphs, row: int) -> str:
        """The name of a row of predictions."""
        if graphs.level == "node":
            return self.node(graphs, row)
        if graphs.level == "edge":
            source, target = graphs.edge_index[:, row].tolist()
            return f"{self.node(graphs, source)}->{self.node(graphs, target)}"
        return str(self.graphs[row]) if len(self.graphs) else str(row)

    def find(self, level: str, row: str | int, count: int) -> int:
        """The number of the row of this id. An id that is unknown is refused with the nearest ones.

        Args:
            level: what rows are.
            row: an id, or the number of a row.
            count: how many rows there are.
        """
        found = self.rows.get(str(row))
        if found is not None:
            if len(found) > 1:
                numbers = ", ".join(map(str, found[:5]))
                raise ValueError(f"row: {len(found)} rows are named {row!r}; give a number of a row: {numbers}")
            return found[0]
        if not self.rows and (isinstance(row, int) or str(row).isdigit()):
            if 0 <= int(row) < count:
                return int(row)
            raise ValueError(f"row: expected a number of a row from 0 to {count - 1}, got {row}")
        known = list(self.rows)
        begins = [name for name in known if name.lower().startswith(str(row).lower())]
        near = begins[:3] or get_close_matches(str(row), known, n=3, cutoff=0.5) or known[:3]
        hint = f"; the nearest ids are {', '.join(near)}" if near else f"; rows have the numbers 0 to {count - 1}"
        raise ValueError(f"row: expected the id of a {level}, got {str(row)!r}{hint}")


def names_of(source: Inputs | Task | Graphs, preprocessing: Preprocessing | None = None) -> tuple[Graphs, Names]:
    """The graphs of a source, and the names of what is in them.

    Args:
        source: inputs from `apply_tables`, a task, or graphs.
        preprocessing: what made the inputs from tables.
    """
    graphs, details = _parts(source)
    nodes, graph_ids = (_given(details.get(name)) for name in ("ids", "graph_ids"))
    if preprocessing is None:
        preprocessing = details.get("preprocessing")
    is_molecule = _is_molecule(graphs, preprocessing)
    columns = _columns(graphs.x, () if preprocessing is None else preprocessing.nodes, is_molecule, False)
    edge_columns: tuple[NamedColumn, ...] = ()
    if graphs.edge_attr is not None:
        known = () if preprocessing is None else preprocessing.edges
        edge_columns = _columns(graphs.edge_attr, known, is_molecule, True)
    directed = preprocessing.directed if preprocessing is not None else not _is_symmetric(graphs.edge_index)
    graph_columns: tuple[NamedColumn, ...] = ()
    if graphs.graph_attr is not None:
        known = () if preprocessing is None else preprocessing.graphs
        graph_columns = _columns(graphs.graph_attr, known, False, True, "graph")
    rows = _rows(graphs, nodes, graph_ids)
    names = Names(nodes, graph_ids, columns, edge_columns, graph_columns, directed, is_molecule, rows)
    return graphs, names


def _given(ids: Any) -> Sequence[Any]:
    """The ids, or none of them."""
    found: Sequence[Any] = () if ids is None else ids
    return found


def _parts(source: Inputs | Task | Graphs) -> tuple[Graphs, dict[str, Any]]:
    if isinstance(source, Graphs):
        return source, {}
    if isinstance(source, Task):
        return source.graphs, dict(source.details)
    return source.graphs, {"ids": source.ids, "graph_ids": source.graph_ids}


def _rows(graphs: Graphs, nodes: Sequence[Any], graph_ids: Sequence[Any]) -> dict[str, list[int]]:
    """The numbers of the rows of predictions by their names."""
    names: list[str]
    if graphs.level == "edge":
        ends = graphs.edge_index.T.tolist()
        names = [f"{nodes[v]}->{nodes[u]}" if len(nodes) else f"{v}->{u}" for v, u in ends]
    else:
        names = list(map(str, nodes if graphs.level == "node" else graph_ids))
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(name, []).append(place)
    return found


def _is_molecule(graphs: Graphs, preprocessing: Preprocessing | None) -> bool:
    """Whether nodes and edges are OGB's atoms and bonds."""
    if preprocessing is not None and preprocessing.roles.smiles is None:
        return False
    is_atom = not graphs.x.is_floating_point() and graphs.x.size(1) == len(ATOM_VOCABULARIES)
    bonds = graphs.edge_attr
    return is_atom and bonds is not None and not bonds.is_floating_point() and bonds.size(1) == len(BOND_VOCABULARIES)


def _columns(
    inputs: Tensor, columns: tuple[Column, ...], is_molecule: bool, of_edges: bool, name: str = "x"
) -> tuple[NamedColumn, ...]:
    if is_molecule:
        return _of_bonds() if of_edges else _of_atoms()
    if columns:
        by_name = {column.name: column for column in columns}
        entries = input_columns(columns, one_hot=inputs.is_floating_point())
        return tuple(NamedColumn(entry.name, entry.first, entry.width, by_name[entry.name]) for entry in entries)
    if _is_constant(inputs):
        return ()
    return tuple(NamedColumn(f"{name}[{place}]", place) for place in range(inputs.size(1)))


def _of_atoms() -> tuple[NamedColumn, ...]:
    elements = (*_ELEMENTS, "?")
    return tuple(NamedColumn(name, place, values=() if place else elements) for place, name in enumerate(_ATOMS))


def _of_bonds() -> tuple[NamedColumn, ...]:
    return tuple(NamedColumn(name, place, values=() if place else _BOND_TYPES) for place, name in enumerate(_BONDS))


def _is_constant(inputs: Tensor) -> bool:
    """Whether nodes have no columns, and so a 1 as their only feature."""
    return inputs.is_floating_point() and inputs.size(1) == 1 and bool((inputs == inputs[:1]).all())


def _is_symmetric(edge_index: Tensor) -> bool:
    """Whether every edge has a partner in the other direction."""
    source, target = edge_index
    nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    return torch.equal((source * nodes + target).unique(), (target * nodes + source).unique())


def reference_of(inputs: Tensor) -> Tensor:
    """The row that stands for no knowledge: the mean of numbers, the most frequent of categories.

    >>> reference_of(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).tolist()
    [2.0, 0.0]
    >>> reference_of(torch.tensor([[1], [2], [2]])).tolist()
    [2]
    """
    return inputs.mean(0) if inputs.is_floating_point() else inputs.mode(0).values


def references_of(graphs: Graphs) -> dict[Literal["nodes", "edges", "graph"], Tensor | None]:
    """The rows that stand for no knowledge of nodes, edges and graphs."""
    given: dict[Literal["nodes", "edges", "graph"], Tensor | None] = {
        "nodes": graphs.x,
        "edges": graphs.edge_attr,
        "graph": graphs.graph_attr,
    }
    return {of: None if inputs is None or not len(inputs) else reference_of(inputs) for of, inputs in given.items()}
