"""Readers of the Open Graph Benchmark's raw csv layout, with its splits: ogbn-arxiv and ogbg-molhiv."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch_geometric.utils import add_remaining_self_loops, coalesce, to_undirected

from sirgcn.data.archives import open_gzip
from sirgcn.data.files import reading
from sirgcn.data.graphs import Graphs
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES
from sirgcn.data.schema import Schema
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_range
from sirgcn.strict import checked


@checked
def arxiv(folder: Path, undirected: bool = True, self_loops: bool = True, version: str = "") -> Task:
    """ogbn-arxiv with the split by year: subject areas of papers, accuracy.

    Args:
        folder: with raw/ and split/time/.
        undirected: add the reverse of every citation and remove repeated edges, as the paper does.
        self_loops: add one to every node that has none, as the paper does.
        version: of the files.
    """
    x = torch.from_numpy(_table(folder / "raw/node-feat.csv.gz", np.float32))
    y = torch.from_numpy(_column(folder / "raw/node-label.csv.gz", np.float64))
    edge_index = torch.from_numpy(_table(folder / "raw/edge.csv.gz", np.int64)).t()
    with reading(folder / "raw/edge.csv.gz"):
        check_range("edge", edge_index, 0, len(x))
    edge_index = (to_undirected if undirected else coalesce)(edge_index, num_nodes=len(x))
    if self_loops:
        edge_index = add_remaining_self_loops(edge_index, num_nodes=len(x))[0]
    classes = torch.where(torch.isnan(y), -1, y).long()
    with reading(folder):
        return Task(
            name="ogbn-arxiv",
            graphs=Graphs(x, edge_index, classes, "node"),
            schema=Schema(features=x.size(1), outputs=int(classes.max()) + 1),
            splits=(_split(folder / "split/time"),),
            loss="log_cross_entropy",
            metric="accuracy",
            version=version,
        )


@checked
def molecules(folder: Path, name: str = "ogbg-molhiv", bonds: bool = True, version: str = "") -> Task:
    """A molecule set of OGB with the scaffold split: binary tasks, ROC-AUC by OGB's rule.

    Every bond stands once in the files; it becomes the edge and its reverse, one after the other, as in OGB's loader.

    Args:
        folder: with raw/ and split/scaffold/.
        name: of the data set.
        bonds: keep the bonds' categories.
        version: of the files.
    """
    raw = folder / "raw"
    nodes, edges = (torch.from_numpy(_column(raw / f"num-{of}-list.csv.gz", np.int64)) for of in ("node", "edge"))
    ends = torch.from_numpy(_table(raw / "edge.csv.gz", np.int64)).t()
    node_ptr, bond_ptr = (torch.nn.functional.pad(count.cumsum(0), (1, 0)) for count in (nodes, edges))
    with reading(raw / "edge.csv.gz"):
        if len(nodes) != len(edges) or int(bond_ptr[-1]) != ends.size(1):
            raise DataError(f"expected {int(bond_ptr[-1])} edges of {len(nodes)} graphs, got {ends.size(1)}", "edge")
        # Nodes are counted anew in each graph of the file.
        check_range("edge", ends, 0, torch.repeat_interleave(nodes, edges).expand(2, -1))
        ends = ends + torch.repeat_interleave(node_ptr[:-1], edges)
    y = torch.from_numpy(_table(raw / "graph-label.csv.gz", np.float32))
    kinds = torch.from_numpy(_table(raw / "edge-feat.csv.gz", np.int64)).repeat_interleave(2, dim=0) if bonds else None
    with reading(folder):
        return Task(
            name=name,
            graphs=Graphs(
                x=torch.from_numpy(_table(raw / "node-feat.csv.gz", np.int64)),
                edge_index=torch.stack([ends, ends.flip(0)], dim=2).reshape(2, -1),
                y=y.squeeze(1) if y.size(1) == 1 else y,
                level="graph",
                edge_attr=kinds,
                node_ptr=node_ptr,
                edge_ptr=2 * bond_ptr,
            ),
            schema=Schema(
                vocabularies=ATOM_VOCABULARIES,
                edge_vocabularies=BOND_VOCABULARIES if bonds else (),
                outputs=y.size(1),
            ),
            splits=(_split(folder / "split/scaffold"),),
            loss="binary_cross_entropy",
            metric="roc_auc",
            version=version,
        )


def _table(path: Path, dtype: Any) -> NDArray[Any]:
    with reading(path), open_gzip(path) as file:
        return pd.read_csv(file, header=None, dtype=dtype).to_numpy(copy=True)


def _column(path: Path, dtype: Any) -> NDArray[Any]:
    table = _table(path, dtype)
    if table.shape[1] != 1:
        raise DataError(f"expected one column, got {table.shape[1]}", path.name, str(path))
    return table[:, 0]


def _split(folder: Path) -> Split:
    parts = (_column(folder / f"{part}.csv.gz", np.int64) for part in ("train", "valid", "test"))
    return Split(*(torch.from_numpy(part) for part in parts))
