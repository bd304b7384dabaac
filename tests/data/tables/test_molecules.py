"""Molecules are the graphs that OGB makes of them."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.datasets import MoleculeNet

from sirgcn.data import DataError
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES, molecule
from sirgcn.data.sets.catalog import DATASETS
from sirgcn.data.tables import apply_tables, load_tables
from sirgcn.nn.encoder import OGB_ATOM, OGB_BOND

pytest.importorskip("rdkit")

DATA = os.environ.get("SIRGCN_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="SIRGCN_DATA is not set")


def test_vocabularies_are_those_of_the_encoder() -> None:
    assert ATOM_VOCABULARIES == OGB_ATOM
    assert BOND_VOCABULARIES == OGB_BOND


def test_a_molecule_has_ogbs_categories() -> None:
    found = molecule("C/C=C/[O-]")
    assert found is not None
    atoms, ends, bonds = found
    # Atomic number - 1, chirality, degree, charge + 5, hydrogens, radicals, hybridisation, aromatic, in a ring.
    assert atoms.tolist() == [
        [5, 0, 4, 5, 3, 0, 2, 0, 0],
        [5, 0, 3, 5, 1, 0, 1, 0, 0],
        [5, 0, 3, 5, 1, 0, 1, 0, 0],
        [7, 0, 1, 4, 0, 0, 1, 0, 0],
    ]
    assert ends.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    # Kind, stereo, conjugated.
    assert bonds.tolist() == [[0, 0, 0]] * 2 + [[1, 2, 1]] * 2 + [[0, 0, 1]] * 2


@needs_data
def test_molecules_of_molhiv_are_those_of_its_files() -> None:
    assert DATA is not None
    folder = Path(DATA) / "ogbg-molhiv" / "ogbg_molhiv"
    count = 2_000

    def lines(name: str, rows: int) -> Any:
        with gzip.open(folder / "raw" / f"{name}.csv.gz") as file:
            return np.loadtxt(file, delimiter=",", dtype=np.int64, max_rows=rows, ndmin=2)

    nodes, edges = (lines(f"num-{name}-list", count).ravel() for name in ("node", "edge"))
    atoms = lines("node-feat", nodes.sum())
    ends, bonds = (lines(name, edges.sum()) for name in ("edge", "edge-feat"))
    smiles = pd.read_csv(folder / "mapping" / "mol.csv.gz", nrows=count)["smiles"]
    graphs = [molecule(text) for text in smiles]
    # Of all 41,127 a current RDKit refuses seven, two of them here.
    readable = np.array([graph is not None for graph in graphs])
    assert readable.sum() >= count - 2
    atoms = atoms[readable.repeat(nodes)]
    ends, bonds = (part[readable.repeat(edges)] for part in (ends, bonds))
    found = [graph for graph in graphs if graph is not None]
    np.testing.assert_array_equal(np.concatenate([both.T[::2] for _, both, _ in found]), ends)
    np.testing.assert_array_equal(np.concatenate([both.T[1::2] for _, both, _ in found]), ends[:, ::-1])
    # Radicals, hybridisation and conjugation differ a little from one version of RDKit to the next.
    assert (np.concatenate([each for each, _, _ in found]) != atoms).mean() < 2e-4
    assert (np.concatenate([each[::2] for _, _, each in found]) != bonds).mean() < 2e-4


@needs_data
def test_esol_is_a_task_from_its_file_alone() -> None:
    assert DATA is not None
    path = Path(DATA) / "moleculenet" / "esol" / "raw" / "delaney-processed.csv"
    target = "measured log solubility in mols per litre"
    task = load_tables(path, target=target)
    assert len(task.graphs) == 1_128
    assert (task.level, task.loss, task.metric) == ("graph", "l1", "mae")
    assert task.schema.vocabularies == OGB_ATOM
    assert task.schema.edge_vocabularies == OGB_BOND
    expected = pd.read_csv(path)[target].to_numpy()
    np.testing.assert_allclose(task.graphs.y.numpy(), expected, rtol=1e-6)


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {"mol_id": ["m1", "m2", "m3"], "smiles": ["CCO", "c1ccccc1", "[Na+].[Cl-]"], "label": [1, 0, 1]}
    )


def test_a_table_of_smiles_is_a_graph_task() -> None:
    task = load_tables(table(), target="label")
    assert task.graphs.node_ptr is not None
    assert task.graphs.node_ptr.tolist() == [0, 3, 9, 11]
    assert task.details["graph_ids"].tolist() == ["m1", "m2", "m3"]
    assert task.graphs.y.tolist() == [1, 0, 1]
    assert task.graphs.num_edges == 4 + 12
    inputs = apply_tables(task.details["preprocessing"], table().drop(columns="label"))
    assert torch.equal(inputs.graphs.x, task.graphs.x)
    assert inputs.graphs.y.tolist() == [-1] * 3


def test_what_is_no_molecule_is_refused_or_dropped_with_its_row(tmp_path: Path) -> None:
    for text in ("C1CC", "hello", "C(C)(C)(C)(C)C", " "):
        bad = table().assign(smiles=["CCO", text, "CC"])
        with pytest.raises(DataError, match="smiles, row 2: expected a molecule as SMILES"):
            load_tables(bad, target="label")
    task = load_tables(bad, target="label", task="regression", on_error="skip", dropped=tmp_path / "dropped.csv")
    assert task.details["graph_ids"].tolist() == ["m1", "m3"]
    assert task.graphs.y.tolist() == [1, 1]
    with pytest.raises(DataError, match="smiles, row 2: expected a molecule as SMILES"):
        load_tables(table().assign(smiles=pd.Series(["CCO", None, "CC"])), target="label")
    with pytest.raises(DataError, match="edges: expected one table alone"):
        load_tables(table(), pd.DataFrame({"source": [1], "target": [2]}), target="label", smiles="smiles")


@pytest.mark.parametrize("role", ["graph", "source", "destination"])
def test_roles_that_a_table_of_molecules_does_not_have_are_refused(role: str) -> None:
    frame = pd.DataFrame({"smiles": ["C", "CC", "CCC", "CO"], "toxic": [0, 1, 0, 1], "u": [1, 1, 2, 2]})
    for column in ("u", "nope"):
        named: dict[str, Any] = {role: column}
        with pytest.raises(DataError, match=f"{role}: expected none, for every molecule is a graph.*{column}"):
            load_tables(frame, target="toxic", **named)


def test_folders_are_those_of_pyg() -> None:
    theirs = {names[0]: folder for folder, names in MoleculeNet.names.items()}
    ours = {
        name: entry.raw[0].at(Path()).parts[1]
        for name, entry in DATASETS.items()
        if entry.raw and entry.raw[0].at(Path()).parts[0] == "moleculenet"
    }
    assert len(ours) == 8
    assert ours == {name: theirs[name] for name in ours}
