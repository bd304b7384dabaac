"""Any source as tables in the order of its graphs, before and after their columns become features."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES, MoleculeFeatures, molecule_features_of
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.tables.columns import ColumnType, Dropped, Frame, listed
from sirgcn.data.tables.features import Unknown, encode, vocabularies, width_of
from sirgcn.data.tables.guess import find_smiles
from sirgcn.data.tables.labels import Items
from sirgcn.data.tables.preprocessing import Preprocessing
from sirgcn.data.tables.read import Source, read_tables
from sirgcn.data.tables.roles import Roles, Tables, find_roles, known
from sirgcn.data.tables.structure import connect, read_molecules
from sirgcn.data.tables.text import Ints
from sirgcn.data.validate import DataError


@dataclass(frozen=True, eq=False)
class Features:
    """The features of nodes, edges and graphs.

    Args:
        x: those of the nodes.
        edge_attr: those of the edges, if there are any.
        graph_attr: those of the graphs, if there are any.
        unseen: for each column, the number of values that training does not know.
    """

    x: Tensor
    edge_attr: Tensor | None = None
    graph_attr: Tensor | None = None
    unseen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Read:
    """The tables of a source in the order of its graphs.

    Args:
        items: the structure, and the tables of nodes, edges and graphs.
        roles: which column holds what.
        directed: whether edges have one direction.
        splits: the splits of the source, if it has masks.
        name: the name of the source.
        atoms: the categories of atoms, if the source holds molecules.
        bonds: the categories of bonds, if the source holds molecules.
        notes: for each file, what its reader did that the caller should know of.
    """

    items: Items
    roles: Roles
    directed: bool
    splits: tuple[Split, ...]
    name: str
    atoms: Ints | None = None
    bonds: Ints | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    def details(self) -> dict[str, Any]:
        """Return the ids and rows that lead from a result back to the tables."""
        structure = self.items.structure
        return {
            "ids": structure.ids,
            "graph_ids": structure.graph_ids,
            "edge_rows": structure.edges.rows[structure.rows],
            "added": structure.added,
        }

    def smiles(self) -> list[str] | None:
        """Return the text of each molecule, in the order of the graphs; None if the source holds none."""
        graphs, column = self.items.graphs, self.roles.smiles
        return None if column is None or graphs is None else [str(text) for text in graphs.categories(column)]

    def inferred(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Return the roles and the direction that the caller did not give."""
        return {
            **{role: column for role, column in vars(self.roles).items() if column and given.get(role) is None},
            "directed": "yes" if self.directed else "no",
            **{Path(source).name: said for source, said in self.notes.items()},
        }

    def features(self, preprocessing: Preprocessing, unknown: Unknown) -> Features:
        """Return the features of nodes, edges and graphs."""
        found = self._of_nodes_and_edges(preprocessing, unknown)
        if not preprocessing.graphs:
            return found
        frame = self.items.graphs
        if frame is None:
            raise DataError("expected a table of graphs with the columns of training, got none", "graphs")
        graph_attr, more = encode(preprocessing.graphs, frame, unknown, one_hot=True)
        unseen = found.unseen | {f"graph {name}": count for name, count in more.items()}
        return replace(found, graph_attr=graph_attr, unseen=unseen)

    def _of_nodes_and_edges(self, preprocessing: Preprocessing, unknown: Unknown) -> Features:
        if self.atoms is not None and self.bonds is not None:
            return Features(torch.from_numpy(self.atoms), torch.from_numpy(self.bonds))
        structure = self.items.structure
        frame = structure.nodes
        if frame is None:
            if preprocessing.nodes:
                raise DataError("expected a table of nodes with the columns of training, got none", "nodes")
            frame = Frame("nodes", {}, np.arange(len(structure.ids)))
        x, unseen = encode(preprocessing.nodes, frame, unknown)
        if not preprocessing.edges:
            return Features(x, unseen=unseen)
        edge_attr, more = encode(preprocessing.edges, structure.edges, unknown)
        unseen |= {f"edge {name}": count for name, count in more.items()}
        return Features(x, edge_attr[torch.from_numpy(structure.rows)], unseen=unseen)

    def graphs(self, features: Features, y: Tensor, level: Level) -> Graphs:
        """Return the graphs with these features and targets."""
        structure = self.items.structure
        pointers = (structure.node_ptr, structure.edge_ptr)
        node_ptr, edge_ptr = (None if pointer is None else torch.from_numpy(pointer) for pointer in pointers)
        edge_index = torch.from_numpy(structure.edge_index)
        return Graphs(
            features.x,
            edge_index,
            y,
            level,
            features.edge_attr,
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            graph_attr=features.graph_attr,
        )

    def schema(self, preprocessing: Preprocessing, outputs: int) -> Schema:
        """Return the widths of the features."""
        width = sum(column.width for column in preprocessing.graphs)
        if self.atoms is not None:
            return Schema(
                vocabularies=ATOM_VOCABULARIES,
                edge_vocabularies=BOND_VOCABULARIES,
                outputs=outputs,
                graph_features=width,
            )
        nodes, edges = preprocessing.nodes, preprocessing.edges
        return Schema(
            # Nodes without any column have the feature 1.
            features=width_of(nodes) if nodes else 1,
            vocabularies=vocabularies(nodes),
            edge_features=width_of(edges),
            edge_vocabularies=vocabularies(edges),
            outputs=outputs,
            graph_features=width,
        )


def read(
    source: Source,
    level: Level | None,
    given: Mapping[str, str | None],
    directed: bool | None,
    types: Mapping[str, ColumnType],
    dropped: Dropped,
    asked: bool = True,
    molecule_features: Sequence[MoleculeFeatures] = (),
) -> Read:
    """Return the tables of a source; `given` names columns, by the caller if `asked` is set, otherwise by training.

    The table of molecules gets a column for each of `molecule_features`.
    """
    tables = _with_types(read_tables(source, level, dropped), types)
    frames = [table for table in (tables.nodes, tables.graphs, tables.edges) if table is not None]
    if not frames:
        raise DataError("expected a table of nodes or of edges, got none", "nodes")
    first, smiles = frames[0], _smiles_column(frames[0], tables.edges, given.get("smiles"))
    notes = {frame.source: "; ".join(frame.notes) for frame in frames if frame.notes}
    if smiles is not None:
        if tables.edges is not None or len(frames) > 1:
            raise DataError("expected only one table with a column of molecules", "edges")
        if not asked and given.get("id") not in first.columns:
            # New molecules need no ids: their rows name them.
            given = {**given, "id": None}
        found = _read_molecules(first, smiles, given, dropped, _name(source))
        return replace(found, notes=notes, items=_with_molecule_features(found.items, smiles, molecule_features))
    if molecule_features:
        raise DataError("expected none without a column of molecules", "molecule_features")
    roles = find_roles(tables, given, asked)
    if directed is None:
        directed = bool(tables.directed)
    structure = connect(tables, roles, directed, dropped)
    return Read(Items(structure, tables.graphs), roles, directed, tables.splits, _name(source), notes=notes)


def _smiles_column(frame: Frame, edges: Frame | None, given: str | None) -> str | None:
    """Return the column of molecules: the one that the caller names, the usual one, or one that looks like it."""
    if given is not None:
        return frame.find("smiles", given)
    return None if edges is not None else known(frame, ("smiles",)) or find_smiles(frame)


def _name(source: Source) -> str:
    """Return the name of the first file, without its endings."""
    for table in (source.nodes, source.graphs, source.edges):
        if isinstance(table, str | os.PathLike):
            return Path(table).name.partition(".")[0]
    return "own data"


def _read_molecules(frame: Frame, smiles: str, given: Mapping[str, str | None], dropped: Dropped, name: str) -> Read:
    for role in ("graph", "source", "destination"):
        if given.get(role) is not None:
            expected = f"expected no column, because every molecule is a graph (id= names its id), got {given[role]!r}"
            raise DataError(expected, role, frame.source)
    key = given.get("id")
    key = frame.find("id", key) if key is not None else known(frame, ("id", "mol_id"))
    structure, kept, atoms, bonds = read_molecules(frame, smiles, key, dropped)
    return Read(Items(structure, kept), Roles(id=key, smiles=smiles), False, (), name, atoms, bonds)


def _with_molecule_features(items: Items, smiles: str, names: Sequence[MoleculeFeatures]) -> Items:
    frame = items.graphs
    if frame is None or not names:
        return items
    texts = [str(text) for text in frame.categories(smiles)]
    columns = dict(frame.columns)
    for name in names:
        if name in columns:
            raise DataError(f"expected no column of this name in the table, got {name!r}", "molecule_features")
        columns[name] = molecule_features_of(texts, name)
    return replace(items, graphs=replace(frame, columns=columns))


def _with_types(tables: Tables, types: Mapping[str, ColumnType]) -> Tables:
    """Return the tables with the types that the caller gives."""
    if not types:
        return tables
    parts = {name: part for name in ("nodes", "edges", "graphs") if (part := getattr(tables, name)) is not None}
    columns = {column for part in parts.values() for column in part.columns}
    for column in types:
        if column not in columns:
            raise DataError(f"expected columns of {listed(map(repr, sorted(columns)))}, got {column!r}", "types")
    return replace(tables, **{name: part.with_types(types) for name, part in parts.items()})
