"""The column of molecules, if it has another name than `smiles`."""

import re

import numpy as np
import pandas as pd

from sirgcn.data.molecules import has_rdkit, is_molecule
from sirgcn.data.tables.columns import Frame
from sirgcn.data.validate import DataError

# Enough rows to tell SMILES from other texts.
SAMPLE = 50

# At least this share of the sample must be molecules; a table may have broken rows.
MOSTLY = 0.8

_SMILES = re.compile(r"[A-Za-z0-9@+\-\[\]()=#$:/\\.%*~]+")
_ATOMS = re.compile(r"Cl|Br|[BCNOPSFIbcnops]")
_BONDS = re.compile(r"[=#()\[\]]|[a-zA-Z]\d")


def find_smiles(frame: Frame) -> str | None:
    """Return the one column whose texts are molecules; None if no column looks like one.

    A text looks like SMILES if it has no other letters than SMILES has and RDKit reads it. Words such as CO or NO are
    molecules by chance, so most texts must have brackets, bonds or rings, or several atoms.
    """
    if not has_rdkit():
        return None
    found = [name for name in frame.columns if _looks_like_smiles(frame, name)]
    if len(found) > 1:
        raise DataError(f"expected one column of molecules, got {', '.join(found)}: name one of them", "smiles")
    return found[0] if found else None


def _looks_like_smiles(frame: Frame, name: str) -> bool:
    sample = _sample(frame, name)
    fitting = [text for text in sample if _SMILES.fullmatch(text) and _ATOMS.search(text)]
    if len(fitting) < MOSTLY * max(1, len(sample)):
        return False
    telling = [text for text in fitting if _BONDS.search(text) or len(_ATOMS.findall(text)) > 2]
    return len(telling) >= len(fitting) / 2 and sum(map(is_molecule, fitting)) >= MOSTLY * len(sample)


def _sample(frame: Frame, name: str) -> list[str]:
    """Return the first texts of a column; none if it holds no texts."""
    values = frame.columns[name]
    if isinstance(values, np.ndarray) or (isinstance(values, pd.Series) and values.dtype.kind in "biufM"):
        return []
    first = frame.take(np.arange(min(len(frame), SAMPLE))).only([name]).with_types({name: "categorical"})
    return [text for text in first.categories(name) if text is not None]
