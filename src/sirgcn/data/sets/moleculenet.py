"""Readers of MoleculeNet's tables of SMILES (extra `chem`)."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.archives import open_gzip
from sirgcn.data.files import digest, reading
from sirgcn.data.graphs import Graphs
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES, molecule
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import checked

Choice = Literal["random", "scaffold"]
Array = NDArray[Any]

# Raised when molecules become other graphs: a cache of another rule is made anew.
_RULE = 1


@dataclass(frozen=True)
class Table:
    """Where a table has what, and its usual split.

    Args:
        smiles: the column of the molecules.
        targets: the columns of the targets.
        split: MoleculeNet's recommendation.
        numbers: whether the targets are quantities; else they are 0 and 1.
    """

    smiles: int
    targets: slice
    split: Choice
    numbers: bool = False


TABLES = {
    "delaney-processed": Table(-1, slice(-2, -1), "random", numbers=True),
    "SAMPL": Table(1, slice(2, 3), "random", numbers=True),
    "Lipophilicity": Table(2, slice(1, 2), "random", numbers=True),
    "bace": Table(0, slice(2, 3), "scaffold"),
    "BBBP": Table(-1, slice(-2, -1), "scaffold"),
    "tox21": Table(-1, slice(0, 12), "random"),
    "sider": Table(0, slice(1, 28), "random"),
    "clintox": Table(0, slice(1, 3), "random"),
}
"""By the names of the files."""


@checked
def moleculenet(
    folder: Path, file: str, name: str = "", seed: int = 0, split: Choice | None = None, version: str = ""
) -> Task:
    """Molecules from `file`.csv or `file`.csv.gz: quantities (loss and metric MSE) or binary tasks (ROC-AUC).

    Atoms and bonds have OGB's categories. A row whose SMILES cannot be read is left out with a warning;
    `details["skipped"]` lists these rows, counted from 1.

    Args:
        folder: of the table.
        file: its name without the ending, one of `TABLES`.
        name: of the data set.
        seed: of a random split.
        split: "random", or "scaffold": 80/10/10, no scaffold in two parts and the rarest in test; the default is the
            recommended one.
        version: of the file.
    """
    table = TABLES[file]
    path = next((found for ending in (".csv", ".csv.gz") if (found := folder / f"{file}{ending}").exists()), None)
    if path is None:
        raise DataError("is not there", f"{file}.csv", str(folder))
    with reading(path), open_gzip(path) if path.suffix == ".gz" else path.open("rb") as content:
        frame = pd.read_csv(content)
        smiles = frame.iloc[:, table.smiles].astype(str).tolist()
        y = torch.from_numpy(frame.iloc[:, table.targets].to_numpy(np.float32, copy=True))
        header: dict[str, Any] = {"file": digest([path]), "rule": _RULE}
        kept = cache_root() / "moleculenet" / f"{header['file'][:16]}.safetensors"
        made = cached(kept, header, lambda: _graphs(path.name, smiles))
    rows = made.pop("rows")
    scaffold = made.pop("scaffold")
    skipped = sorted(set(range(1, len(smiles) + 1)) - set((rows + 1).tolist()))
    if skipped:
        warnings.warn(
            f"{path}: {len(skipped)} of {len(smiles)} molecules cannot be read and are left out: rows "
            f"{', '.join(map(str, skipped[:10]))}{', ...' if len(skipped) > 10 else ''}",
            stacklevel=2,
        )
    y = y[rows]
    with reading(path):
        return Task(
            name=name or file,
            graphs=Graphs(y=y.squeeze(1) if y.size(1) == 1 else y, level="graph", **made),
            schema=Schema(vocabularies=ATOM_VOCABULARIES, edge_vocabularies=BOND_VOCABULARIES, outputs=y.size(1)),
            splits=(_split(split or table.split, scaffold, seed),),
            loss="mse" if table.numbers else "binary_cross_entropy",
            metric="mse" if table.numbers else "roc_auc",
            version=version,
            details={"skipped": skipped},
        )


def scaffold_split(scaffold: Tensor, fractions: tuple[float, float] = (0.8, 0.9)) -> Split:
    """Whole groups of molecules, the largest first, into train until it is full, then val, then test.

    Args:
        scaffold: the group of each molecule, int64 `[G]`.
        fractions: of all molecules, the ends of train and val.
    """
    groups = np.split(np.argsort(scaffold.numpy(), kind="stable"), np.cumsum(np.bincount(scaffold.numpy()))[:-1])
    parts: tuple[list[int], ...] = ([], [], [])
    ends = [fraction * len(scaffold) for fraction in fractions]
    for group in sorted(groups, key=lambda group: (len(group), group[0]), reverse=True):
        if len(parts[0]) + len(group) <= ends[0]:
            part = 0
        else:
            part = 1 if len(parts[0]) + len(parts[1]) + len(group) <= ends[1] else 2
        parts[part].extend(group.tolist())
    return Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in parts))


def _split(kind: str, scaffold: Tensor, seed: int) -> Split:
    if kind == "scaffold":
        return scaffold_split(scaffold)
    if kind == "random":
        return Split.draw(len(scaffold), seed, (0.8, 0.1, 0.1))
    raise DataError(f"expected random or scaffold, got {kind!r}", "split")


def _graphs(source: str, smiles: list[str]) -> dict[str, Tensor]:
    """The graphs' tensors, the rows they come from, and the number of each one's scaffold."""
    try:
        from rdkit import rdBase
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
    except ImportError as error:
        raise ImportError("molecules need RDKit: pip install 'sirgcn[chem]'") from error
    found: dict[int, tuple[Array, Array, Array]] = {}
    scaffolds: dict[str, int] = {}
    groups: list[int] = []
    with rdBase.BlockLogs():
        for row, text in enumerate(progress(smiles, source, len(smiles))):
            made = molecule(text)
            if made is not None:
                found[row] = made
                scaffold = MurckoScaffoldSmiles(text)  # type: ignore[no-untyped-call]
                groups.append(scaffolds.setdefault(scaffold, len(scaffolds)))
    if len(found) < 0.9 * len(smiles):
        raise DataError(f"expected SMILES, {len(smiles) - len(found)} of {len(smiles)} are not", "smiles", source)
    atoms, ends, bonds = zip(*found.values(), strict=True)
    nodes, edges = (torch.tensor([len(part) for part in parts]) for parts in (atoms, bonds))
    node_ptr, edge_ptr = (torch.nn.functional.pad(count.cumsum(0), (1, 0)) for count in (nodes, edges))
    return {
        "x": torch.from_numpy(np.concatenate(atoms)),
        "edge_index": torch.from_numpy(np.concatenate(ends, axis=1)) + torch.repeat_interleave(node_ptr[:-1], edges),
        "edge_attr": torch.from_numpy(np.concatenate(bonds)),
        "node_ptr": node_ptr,
        "edge_ptr": edge_ptr,
        "rows": torch.tensor(list(found)),
        "scaffold": torch.tensor(groups),
    }
