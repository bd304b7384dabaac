"""From any source to graphs without targets: tables read, ids mapped, columns as features, molecules as atoms."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sirgcn.data.formats import read_tables
from sirgcn.data.frames import Dropped, Frame, Kind
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.labels import Items
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES, read_molecules
from sirgcn.data.preprocess import Preprocessing, Unknown, as_categories, encode, vocabularies
from sirgcn.data.roles import Roles, Tables, find_roles, known
from sirgcn.data.structure import connect
from sirgcn.data.task import Schema, Split
from sirgcn.data.text import Ints
from sirgcn.data.validate import DataError


@dataclass(frozen=True, eq=False)
class Read:
    """What was read: tables in order, and atoms and bonds where they are molecules."""

    items: Items
    roles: Roles
    directed: bool
    missing: tuple[str, ...]
    splits: tuple[Split, ...]
    name: str
    atoms: Ints | None = None
    bonds: Ints | None = None

    def details(self) -> dict[str, Any]:
        """Ids and rows, by which results find back to the tables."""
        structure = self.items.structure
        return {
            "ids": structure.ids,
            "graph_ids": structure.graph_ids,
            "edge_rows": structure.edges.rows[structure.rows],
            "added": structure.added,
        }

    def inferred(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """What the caller did not say."""
        return {
            **{role: column for role, column in vars(self.roles).items() if column and given.get(role) is None},
            "directed": "yes" if self.directed else "no",
        }

    def features(self, preprocessing: Preprocessing, unknown: Unknown) -> tuple[Tensor, Tensor | None, dict[str, int]]:
        """Of nodes and edges, and by column how many values training has not seen."""
        if self.atoms is not None and self.bonds is not None:
            return torch.from_numpy(self.atoms), torch.from_numpy(self.bonds), {}
        structure = self.items.structure
        if structure.nodes is None and preprocessing.nodes:
            raise DataError("expected a table of nodes with the columns of training, got none", "nodes")
        frame = structure.nodes
        if frame is None:
            frame = Frame("nodes", {}, np.arange(len(structure.ids)))
        x, unseen = encode(preprocessing.nodes, frame, unknown)
        if not preprocessing.edges:
            return x, None, unseen
        edge_attr, more = encode(preprocessing.edges, structure.edges, unknown)
        unseen |= {f"edge {name}": count for name, count in more.items()}
        return x, edge_attr[torch.from_numpy(structure.rows)], unseen

    def graphs(self, x: Tensor, edge_attr: Tensor | None, y: Tensor, level: Level) -> Graphs:
        """With these features and targets."""
        structure = self.items.structure
        pointers = (structure.node_ptr, structure.edge_ptr)
        node_ptr, edge_ptr = (None if pointer is None else torch.from_numpy(pointer) for pointer in pointers)
        edge_index = torch.from_numpy(structure.edge_index)
        return Graphs(x, edge_index, y, level, edge_attr, node_ptr=node_ptr, edge_ptr=edge_ptr)

    def schema(self, preprocessing: Preprocessing, outputs: int) -> Schema:
        """The widths of the features."""
        if self.atoms is not None:
            return Schema(vocabularies=ATOM_VOCABULARIES, edge_vocabularies=BOND_VOCABULARIES, outputs=outputs)
        nodes, edges = preprocessing.nodes, preprocessing.edges
        return Schema(
            features=0 if as_categories(nodes) else sum(column.width for column in nodes) if nodes else 1,
            vocabularies=vocabularies(nodes) if as_categories(nodes) else (),
            edge_features=0 if as_categories(edges) else sum(column.width for column in edges),
            edge_vocabularies=vocabularies(edges) if as_categories(edges) else (),
            outputs=outputs,
        )


def read(
    nodes: Any,
    edges: Any,
    graphs: Any,
    level: Level | None,
    given: Mapping[str, str | None],
    directed: bool | None,
    missing: tuple[str, ...],
    kinds: Mapping[str, Kind],
    dropped: Dropped,
    limit: int | None,
    asked: bool = True,
) -> Read:
    """The tables of `load_tables`, or, not `asked`, of `apply_tables`; `given` names columns."""
    tables = read_tables(nodes, edges, graphs, level, missing, dropped, limit)
    tables = _with_kinds(tables, kinds)
    frames = [table for table in (tables.nodes, tables.graphs, tables.edges) if table is not None]
    if not frames:
        raise DataError("expected a table of nodes or of edges, got none", "nodes")
    named = next((source for source in (nodes, graphs, edges) if isinstance(source, str | os.PathLike)), None)
    name = "own data" if named is None else Path(named).name.partition(".")[0]
    smiles = given.get("smiles")
    if smiles is not None or tables.edges is None:
        smiles = known(frames[0], ("smiles",)) if smiles is None else frames[0].find("smiles", smiles)
    if smiles is not None:
        if tables.edges is not None or len(frames) > 1:
            raise DataError("expected one table alone beside a column of molecules", "edges")
        for role in ("graph", "source", "destination"):
            if given.get(role) is not None:
                told = f"expected none, for every molecule is a graph (id= names its id), got {given[role]!r}"
                raise DataError(told, role, frames[0].source)
        key = given.get("id")
        key = frames[0].find("id", key) if key is not None else known(frames[0], ("id", "mol_id"))
        structure, kept, atoms, bonds = read_molecules(frames[0], smiles, key, dropped)
        roles = Roles(id=key, smiles=smiles)
        return Read(Items(structure, kept), roles, False, missing, (), name, atoms, bonds)
    roles = find_roles(tables, given, asked)
    directed = directed if directed is not None else bool(tables.directed)
    structure = connect(tables, roles, directed, dropped)
    return Read(Items(structure, tables.graphs), roles, directed, missing, tables.splits, name)


def _with_kinds(tables: Tables, kinds: Mapping[str, Kind]) -> Tables:
    parts = {name: getattr(tables, name) for name in ("nodes", "edges", "graphs")}
    columns = {column for part in parts.values() if part is not None for column in part.columns}
    for column in kinds:
        if column not in columns:
            raise DataError(f"expected columns of {', '.join(map(repr, sorted(columns)))}, got {column!r}", "kinds")
    return replace(
        tables,
        **{
            name: replace(part, kinds={**part.kinds, **{c: k for c, k in kinds.items() if c in part.columns}})
            for name, part in parts.items()
            if part is not None and kinds
        },
    )
