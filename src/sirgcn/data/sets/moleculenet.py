"""Readers of the tables of SMILES in MoleculeNet (they need the extra `chem`)."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from sirgcn.data.archives import open_gzip
from sirgcn.data.files import digest, reading
from sirgcn.data.graphs import Graphs
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES, molecule, murcko_scaffold
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_choice
from sirgcn.strict import checked

Choice = Literal["random", "scaffold"]
Array = NDArray[Any]

# Increased when molecules become other graphs, so that files in the cache are computed again.
_RULE = 1


@dataclass(frozen=True)
class Table:
    """The columns of a table, and its usual split.

    Args:
        smiles: the column of the molecules.
        targets: the columns of the targets.
        split: the split that MoleculeNet recommends.
        numbers: whether the targets are quantities; otherwise they are 0 and 1.
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
"""The tables, by the names of their files."""


@checked
def moleculenet(
    folder: Path, file: str, name: str = "", seed: int = 0, split: Choice | None = None, version: str = ""
) -> Task:
    """Return molecules from `file`.csv or `file`.csv.gz, with quantities (MSE) or binary tasks (ROC-AUC) as targets.

    Atoms and bonds have OGB's categories. A row whose SMILES cannot be read is left out with a warning, and
    `details["skipped"]` lists these rows, counted from 1.

    Args:
        folder: the folder of the table.
        file: the name of the table without its ending, one of `TABLES`.
        name: the name of the data set.
        seed: the seed of a random split.
        split: "random", or "scaffold" (80/10/10, no scaffold in two parts, the rarest in the test part); the default is
            the one that MoleculeNet recommends.
        version: the version of the file.
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


def _split(choice: Choice, scaffold: Tensor, seed: int) -> Split:
    check_choice("split", choice, get_args(Choice))
    return Split.largest_first(scaffold) if choice == "scaffold" else Split.draw(len(scaffold), seed, (0.8, 0.1, 0.1))


def _graphs(source: str, smiles: list[str]) -> dict[str, Tensor]:
    """Return the tensors of the graphs, the rows they come from, and the number of each molecule's scaffold."""
    try:
        from rdkit import rdBase
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
                groups.append(scaffolds.setdefault(murcko_scaffold(text), len(scaffolds)))
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
