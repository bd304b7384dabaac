"""Readers of the files of "Benchmarking Graph Neural Networks": ZINC, PATTERN, CLUSTER, MNIST and CIFAR10."""

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.archives import ARRAYS, check_zip, load_npz
from sirgcn.data.files import digest, reading
from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.sets.pickles import as_array, load_pickle
from sirgcn.data.splits import Split
from sirgcn.data.store import cache_root, cached
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import checked

PARTS = ("train", "val", "test")
ATOMS, BONDS = 28, 4
"""ZINC's vocabularies; bond 0 stands for none and does not occur."""


@checked
def zinc(folder: Path, bonds: bool = True, version: str = "") -> Task:
    """ZINC-12k: atoms and bonds are categories, the target is the penalised logP; L1 loss and MAE.

    Without `bonds` an edge tells only who is joined, as in the paper's runs.

    From train.pickle, val.pickle, test.pickle (the molecules) and train.index and so on (which of them), or from
    zinc12k.npz, a compact copy.
    """
    compact = folder / "zinc12k.npz"
    if compact.exists():
        with reading(compact):
            graphs, sizes = _zinc_compact(compact)
    else:
        files = [folder / f"{part}.{kind}" for part in PARTS for kind in ("pickle", "index")]
        sizes = [len(_index(folder / f"{part}.index")) for part in PARTS]
        key = digest(files)
        # The original pickles hold 250,000 molecules, of which 12,000 are wanted.
        path = cache_root() / "zinc" / f"{key[:16]}.safetensors"
        graphs = cached(path, {"files": key}, lambda: _zinc_pickles(folder))
    return Task(
        name="ZINC",
        graphs=graphs if bonds else replace(graphs, edge_attr=None),
        schema=Schema(vocabularies=(ATOMS,), edge_vocabularies=(BONDS,) if bonds else ()),
        splits=(in_order(sizes),),
        loss="l1",
        metric="mae",
        version=version,
    )


@checked
def sbm_files(folder: Path, name: str, version: str = "") -> Task:
    """PATTERN or CLUSTER from PyG's copy, `name`_v2.pt: node types are categories.

    Class-weighted cross-entropy, and the accuracy averaged over classes, both as the benchmark has them.
    """
    vocabulary, outputs = {"PATTERN": (3, 2), "CLUSTER": (7, 6)}[name]
    path = folder / f"{name}_v2.pt"
    with reading(path):
        parts = _parts(path)
        found = [
            Data(x=_types(graph["x"]), edge_index=graph["edge_index"], y=graph["y"].long().reshape(-1))
            for part in parts
            for graph in part
        ]
        return Task(
            name=name,
            graphs=Graphs.from_data(found, "node"),
            schema=Schema(vocabularies=(vocabulary,), outputs=outputs),
            splits=(in_order([len(part) for part in parts]),),
            loss="weighted_cross_entropy",
            metric="class_accuracy",
            version=version,
        )


@checked
def superpixel_files(folder: Path, name: str, edge_values: bool = False, version: str = "") -> Task:
    """MNIST or CIFAR10 superpixels from PyG's copy, `name`_v2.pt: the features are colour and place.

    With `edge_values` edges have their weights, which the paper's runs did not use.
    """
    path = folder / f"{name}_v2.pt"
    with reading(path):
        parts = _parts(path)
        found = [
            Data(
                x=torch.cat([graph["x"].float(), graph["pos"].float()], dim=1),
                edge_index=graph["edge_index"],
                edge_attr=graph["edge_attr"].float().reshape(-1, 1) if edge_values else None,
                y=graph["y"].long().reshape(1),
            )
            for part in parts
            for graph in part
        ]
        graphs = Graphs.from_data(found, "graph")
        return Task(
            name=name,
            graphs=graphs,
            schema=Schema(features=graphs.x.size(1), edge_features=int(edge_values), outputs=10),
            splits=(in_order([len(part) for part in parts]),),
            loss="cross_entropy",
            metric="accuracy",
            version=version,
        )


def in_order(sizes: Sequence[int]) -> Split:
    """The split of graphs that stand in the order train, val, test."""
    train, val, test = torch.arange(sum(sizes)).split(list(sizes))
    return Split(train, val, test)


def _parts(path: Path) -> list[list[dict[str, Tensor]]]:
    room = ARRAYS.bytes_of(path)
    if zipfile.is_zipfile(path):
        with path.open("rb") as file:
            check_zip(file, room)
    try:
        parts = torch.load(path, weights_only=True)
    except UnpicklingError:
        # PyTorch's own message tells how to load it all the same.
        raise DataError("expected tensors alone, got something that would run code", path.name) from None
    if not isinstance(parts, list | tuple) or len(parts) != 3 or not all(isinstance(part, list) for part in parts):
        raise DataError("expected three lists of graphs", path.name)
    # A tensor may be named any number of times, and each graph gets its own.
    if sum(getattr(value, "nbytes", 0) for part in parts for graph in part for value in graph.values()) > room:
        raise DataError(f"expected graphs of at most {room} bytes, got more", path.name)
    return list(parts)


def _types(x: Tensor) -> Tensor:
    """Categories, from a column of them or one-hot."""
    if x.dim() == 1 or x.size(1) == 1:
        return x.long().reshape(-1, 1)
    if not bool(((x == 0) | (x == 1)).all() and (x.sum(1) == 1).all()):
        raise DataError("expected one-hot node types", "x")
    return x.argmax(1, keepdim=True)


def _index(path: Path) -> list[int]:
    with reading(path):
        return [int(place) for place in path.read_text().strip().strip(",").split(",")]


def _zinc_compact(path: Path) -> tuple[Graphs, list[int]]:
    with load_npz(path) as raw:
        tensors = {
            name: torch.from_numpy(raw[name]) for name in ("x", "edge_index", "edge_attr", "node_ptr", "edge_ptr")
        }
        y, sizes = torch.from_numpy(raw["y"]), raw["split_sizes"].tolist()
    node_ptr, edge_ptr = tensors["node_ptr"].long(), tensors["edge_ptr"].long()
    # Nodes are counted anew in each graph of the file.
    shift = torch.repeat_interleave(node_ptr[:-1], edge_ptr.diff())
    return (
        Graphs(
            x=tensors["x"].long().reshape(-1, 1),
            edge_index=tensors["edge_index"].long() + shift,
            y=y.float(),
            level="graph",
            edge_attr=tensors["edge_attr"].long().reshape(-1, 1),
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
        ),
        sizes,
    )


def _zinc_pickles(folder: Path) -> Graphs:
    graphs: list[Data] = []
    for part in PARTS:
        path = folder / f"{part}.pickle"
        wanted = _index(folder / f"{part}.index")
        with reading(path):
            molecules = load_pickle(path)
            graphs += [_molecule(molecules[place]) for place in wanted]
    return Graphs.from_data(graphs, "graph")


def _molecule(molecule: dict[str, Any]) -> Data:
    atoms, bonds, y = (as_array(molecule[name]) for name in ("atom_type", "bond_type", "logP_SA_cycle_normalized"))
    if bonds.shape != (atoms.size, atoms.size):
        raise DataError(f"expected shape [{atoms.size}, {atoms.size}], got {list(bonds.shape)}", "bond_type")
    source, target = bonds.nonzero()
    return Data(
        x=torch.from_numpy(atoms.astype(np.int64)).reshape(-1, 1),
        edge_index=torch.from_numpy(np.stack([source, target])),
        edge_attr=torch.from_numpy(bonds[source, target].astype(np.int64)).reshape(-1, 1),
        y=torch.from_numpy(y.astype(np.float32)).reshape(1),
    )
