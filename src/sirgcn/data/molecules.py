"""Molecules as graphs: atoms and bonds with the categories of the Open Graph Benchmark (Hu et al., 2020)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sirgcn.data.frames import Dropped, Frame
from sirgcn.data.structure import Structure
from sirgcn.data.text import Ints
from sirgcn.data.validate import DataError

_MISC: Any = object()

_ATOM: tuple[tuple[Callable[[Any], Any], tuple[Any, ...]], ...] = (
    (lambda atom: atom.GetAtomicNum(), (*range(1, 119), _MISC)),
    (
        lambda atom: str(atom.GetChiralTag()),
        ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", _MISC),
    ),
    (lambda atom: atom.GetTotalDegree(), (*range(11), _MISC)),
    (lambda atom: atom.GetFormalCharge(), (*range(-5, 6), _MISC)),
    (lambda atom: atom.GetTotalNumHs(), (*range(9), _MISC)),
    (lambda atom: atom.GetNumRadicalElectrons(), (*range(5), _MISC)),
    (lambda atom: str(atom.GetHybridization()), ("SP", "SP2", "SP3", "SP3D", "SP3D2", _MISC)),
    (lambda atom: atom.GetIsAromatic(), (False, True)),
    (lambda atom: atom.IsInRing(), (False, True)),
)
_BOND: tuple[tuple[Callable[[Any], Any], tuple[Any, ...]], ...] = (
    (lambda bond: str(bond.GetBondType()), ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", _MISC)),
    (
        lambda bond: str(bond.GetStereo()),
        ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    ),
    (lambda bond: bond.GetIsConjugated(), (False, True)),
)

ATOM_VOCABULARIES = tuple(len(values) for _, values in _ATOM)
"""Sizes of the nine atom vocabularies."""

BOND_VOCABULARIES = tuple(len(values) for _, values in _BOND)
"""Sizes of the three bond vocabularies."""

# A value outside a vocabulary is its last entry.
_PLACES = {
    rules: [({value: place for place, value in enumerate(values)}, len(values) - 1) for _, values in rules]
    for rules in (_ATOM, _BOND)
}


def _categories(rules: Any, item: Any) -> list[int]:
    return [places.get(read(item), last) for (read, _), (places, last) in zip(rules, _PLACES[rules], strict=True)]


def molecule(smiles: str) -> tuple[Ints, Ints, Ints] | None:
    """Atoms int64 `[V, 9]`, edge_index `[2, E]` with both ways of a bond one after the other, bonds `[E, 3]`.

    None for what RDKit does not read as a molecule with an atom.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        found: Any = Chem.MolFromSmiles(smiles)
    if found is None or found.GetNumAtoms() == 0:
        return None
    atoms = np.array([_categories(_ATOM, atom) for atom in found.GetAtoms()], dtype=np.int64)
    bonds = list(found.GetBonds())
    ends = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds], dtype=np.int64).reshape(-1, 2)
    kinds = np.array([_categories(_BOND, bond) for bond in bonds], dtype=np.int64).reshape(-1, len(_BOND))
    both = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2).T
    return atoms, both, kinds.repeat(2, axis=0)


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
