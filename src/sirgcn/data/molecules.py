"""Molecules as graphs: atoms and bonds with the categories of the Open Graph Benchmark (Hu et al., 2020)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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
