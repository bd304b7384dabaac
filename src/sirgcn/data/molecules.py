"""Molecules as graphs. Atoms and bonds have the categories of the Open Graph Benchmark (Hu et al., 2020)."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


_MISC: Any = object()

_ATOM: tuple[tuple[Callable[[Any], Any], tuple[Any, ...]], ...] = (
    (lambda atom: atom.GetAtomicNum(), (*range(1, 119), _MISC)),
    (
        lambda atom: atom.GetChiralTag(),
        ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", _MISC),
    ),
    (lambda atom: atom.GetTotalDegree(), (*range(11), _MISC)),
    (lambda atom: atom.GetFormalCharge(), (*range(-5, 6), _MISC)),
    (lambda atom: atom.GetTotalNumHs(), (*range(9), _MISC)),
    (lambda atom: atom.GetNumRadicalElectrons(), (*range(5), _MISC)),
    (lambda atom: atom.GetHybridization(), ("SP", "SP2", "SP3", "SP3D", "SP3D2", _MISC)),
    (lambda atom: atom.GetIsAromatic(), (False, True)),
    (lambda atom: atom.IsInRing(), (False, True)),
)
_BOND: tuple[tuple[Callable[[Any], Any], tuple[Any, ...]], ...] = (
    (lambda bond: bond.GetBondType(), ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", _MISC)),
    (
        lambda bond: bond.GetStereo(),
        ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    ),
    (lambda bond: bond.GetIsConjugated(), (False, True)),
)

ATOM_VOCABULARIES = tuple(len(values) for _, values in _ATOM)
"""The sizes of the nine vocabularies of atoms."""

BOND_VOCABULARIES = tuple(len(values) for _, values in _BOND)
"""The sizes of the three vocabularies of bonds."""


class _Places(dict[Any, int]):
    """The place of each value in a vocabulary. A value outside it counts as its last entry.

    An enumeration of RDKit is found by its name once and then by its value, because the text of one takes longer than
    reading all else of an atom.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__()
        self.known = {value: place for place, value in enumerate(values)}
        self.last = len(values) - 1
        self.are_names = isinstance(values[0], str)

    def __missing__(self, value: Any) -> int:
        found = self.known.get(str(value) if self.are_names else value, self.last)
        self[value] = found
        return found


_PLACES = {rules: [(read, _Places(values)) for read, values in rules] for rules in (_ATOM, _BOND)}


def _categories(rules: Any, items: Any) -> Ints:
    """Return the categories of atoms or of bonds, int64 `[items, rules]`."""
    columns = [[places[read(item)] for item in items] for read, places in _PLACES[rules]]
    return np.array(columns, dtype=np.int64).T


def has_rdkit() -> bool:
    """Return whether RDKit is installed (extra `chem`)."""
    return find_spec("rdkit") is not None


def molecule(smiles: str) -> tuple[Ints, Ints, Ints] | None:
    """Return atoms int64 `[V, 9]`, edge_index `[2, E]` and bonds `[E, 3]`; the two edges of a bond follow each other.

    If RDKit cannot read the text, or the molecule has no atom, the result is None.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        found: Any = Chem.MolFromSmiles(smiles)
    if found is None or found.GetNumAtoms() == 0:
        return None
    atoms = np.ascontiguousarray(_categories(_ATOM, list(found.GetAtoms())))
    bonds = list(found.GetBonds())
    ends = np.array([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds], dtype=np.int64).reshape(-1, 2)
    both = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2).T
    return atoms, both, _categories(_BOND, bonds).repeat(2, axis=0)


def is_molecule(smiles: str) -> bool:
    """Return whether RDKit reads a text as a molecule with an atom."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        found: Any = Chem.MolFromSmiles(smiles)
    return found is not None and found.GetNumAtoms() > 0


def murcko_scaffold(smiles: str) -> str:
    """Return the Bemis-Murcko scaffold of a readable molecule as SMILES: its rings and what joins them.

    It is an empty text for a molecule without rings.
    """
    from rdkit import rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    with rdBase.BlockLogs():
        return str(MurckoScaffoldSmiles(smiles))  # type: ignore[no-untyped-call]


MoleculeFeatures = Literal["morgan", "descriptors"]
"""Features of whole molecules that RDKit computes: Morgan fingerprints, or its descriptors."""

MOLECULE_FEATURES: tuple[MoleculeFeatures, ...] = get_args(MoleculeFeatures)

MORGAN_BITS = 2048


def molecule_features_of(smiles: Sequence[str], name: MoleculeFeatures) -> NDArray[np.float32]:
    """Return features of readable molecules, float32 `[molecules, width]`.

    - `"morgan"`: 2048 bits of the Morgan fingerprint of radius 2, which mark circles of up to two bonds around atoms.
    - `"descriptors"`: every descriptor in RDKit's list, 0 where it is not defined for a molecule.
    """
    from rdkit import Chem, rdBase
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    read: Any = Chem.MolFromSmiles
    with rdBase.BlockLogs():
        if name == "morgan":
            generator: Any = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=MORGAN_BITS)
            rows = [generator.GetFingerprintAsNumPy(read(text)) for text in smiles]
        else:
            functions: Any = Descriptors.descList
            rows = [np.array([function(found) for _, function in functions]) for found in map(read, smiles)]
    found = np.stack(rows).astype(np.float64)
    largest = float(np.finfo(np.float32).max)
    return np.nan_to_num(found, posinf=largest, neginf=-largest).clip(-largest, largest).astype(np.float32)
