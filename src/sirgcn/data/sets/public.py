"""Readers of published graphs: from raw files to a `Task`, without running or writing anything.

PyG's own readers unpickle some of these files and write next to all of them. The readers here do neither, and return
the same graphs.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from sirgcn.data.archives import load_npz
from sirgcn.data.files import reading
from sirgcn.data.graphs import Graphs
from sirgcn.data.schema import Schema
from sirgcn.data.sets.pickles import as_array, load_pickle
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_range
from sirgcn.strict import checked

Array = NDArray[Any]


@checked
def heterophilous(folder: Path, name: str, version: str = "") -> Task:
    """Return a graph of "A Critical Look at the Evaluation of GNNs under Heterophily", from `name`.npz.

    Edges are made undirected, and the splits are the published ones. Two classes have one logit, binary cross-entropy
    and ROC-AUC; more classes have cross-entropy and accuracy.
    """
    path = folder / f"{name}.npz"
    with reading(path), load_npz(path) as raw:
        x = torch.from_numpy(raw["node_features"]).float()
        y = torch.from_numpy(raw["node_labels"]).long()
        edge_index = _edges(torch.from_numpy(raw["edges"]).long().t(), x.size(0), undirected=True)
        masks = [torch.from_numpy(raw[f"{part}_masks"].astype(bool)) for part in ("train", "val", "test")]
        splits = tuple(Split.from_masks(*parts) for parts in zip(*masks, strict=True))
        return _node_task(name.replace("_", "-"), version, x, edge_index, y, splits)


@checked
def wikics(folder: Path, undirected: bool = True, version: str = "") -> Task:
    """Return WikiCS from data.json, with 20 splits. The nodes that the authors call stopping nodes validate, too.

    With `undirected`, every edge gets its reverse, and repeated edges are removed.
    """
    path = folder / "data.json"
    with reading(path):
        raw = json.loads(path.read_bytes())
        x = torch.tensor(raw["features"], dtype=torch.float32)
        y = torch.tensor(raw["labels"], dtype=torch.int64)
        count = torch.tensor([len(targets) for targets in raw["links"]])
        targets = torch.tensor([target for targets in raw["links"] for target in targets], dtype=torch.int64)
        edge_index = _edges(torch.stack([torch.repeat_interleave(count), targets]), x.size(0), undirected)
        train, val, stop = (torch.tensor(raw[f"{part}_masks"]).bool() for part in ("train", "val", "stopping"))
        test = torch.tensor(raw["test_mask"]).bool()
        splits = tuple(Split.from_masks(train[i], val[i] | stop[i], test) for i in range(len(train)))
        return _node_task("WikiCS", version, x, edge_index, y, splits)


@checked
def planetoid(folder: Path, name: str, version: str = "") -> Task:
    """Return Cora, CiteSeer or PubMed with the public split: the first nodes train, the next 500 validate, 1,000 test.

    Self-loops and repeated edges are removed, as in PyG. The test nodes of CiteSeer without a row have features 0, no
    label, and are in no part of the split.
    """
    path = folder / f"ind.{name.lower()}"
    with reading(path):
        tables = {part: _planetoid(path, part) for part in ("x", "tx", "allx", "y", "ty", "ally")}
        test = np.loadtxt(f"{path}.test.index", dtype=np.int64, ndmin=1)
        first = len(tables["allx"])
        check_range("test.index", torch.from_numpy(test), first, first + 100_000)
        nodes = int(test.max()) + 1
        if len(tables["tx"]) != len(test) or len(np.unique(test)) != len(test):
            raise DataError(f"expected {len(tables['tx'])} different nodes, got {len(test)}", "test.index")
        x = np.zeros((nodes, tables["allx"].shape[1]), np.float32)
        x[:first], x[np.sort(test)] = tables["allx"], tables["tx"]
        y = np.full(nodes, -1)
        y[:first], y[np.sort(test)] = tables["ally"].argmax(1), tables["ty"].argmax(1)
        # The rows of tx and ty have the order of the sorted file, nodes that of the file itself.
        x[test], y[test] = x[np.sort(test)], y[np.sort(test)]
        train = len(tables["y"])
        split = Split(*(torch.as_tensor(part) for part in (np.arange(train), np.arange(train, train + 500), test)))
        edge_index = _edges(_planetoid_edges(Path(f"{path}.graph")), nodes, loops=False)
        return _node_task(name, version, torch.from_numpy(x), edge_index, torch.from_numpy(y), (split,))


@checked
def tu(folder: Path, name: str, seed: int = 0, attributes: bool = False, version: str = "") -> Task:
    """Return a graph classification set of the TU collection, from `name`_A.txt and so on; the metric is accuracy.

    No split was published, so 80/10/10 of each class are drawn from the seed. Node and edge labels are categories. With
    `attributes`, the numbers that some sets have are the features, followed by the labels as one-hot rows. Without
    labels and attributes, a node has the feature 1. Self-loops and repeated edges are removed, as in PyG.
    """
    path = folder / f"{name}_A.txt"
    with reading(path):
        tables = {part: _tu(folder, name, part) for part in ("A", "graph_indicator", "graph_labels")}
        graph_of = tables["graph_indicator"][:, 0] - 1
        graphs = len(tables["graph_labels"])
        if (np.diff(graph_of, prepend=0) < 0).any() or not 0 <= graph_of[0] <= graph_of[-1] < graphs:
            raise DataError(f"expected graphs 1 to {graphs} in order", f"{name}_graph_indicator.txt")
        ends = torch.from_numpy(tables["A"].T - 1)
        check_range(f"{name}_A.txt", ends, 0, len(graph_of))
        # Sorted by source, and so by graph; the first of repeated edges is kept.
        keys, kept = np.unique(ends[0].numpy() * len(graph_of) + ends[1].numpy(), return_index=True)
        kept = kept[keys // len(graph_of) != keys % len(graph_of)]
        x, vocabularies = _tu_columns(folder, name, "node", attributes, np.arange(len(graph_of)))
        edge_attr, edge_vocabularies = _tu_columns(folder, name, "edge", attributes, kept)
        classes, y = np.unique(tables["graph_labels"][:, 0], return_inverse=True)
        x = torch.ones(len(graph_of), 1) if x is None else x
        node_ptr, edge_ptr = (_pointer(of, graphs) for of in (graph_of, graph_of[ends[0, kept].numpy()]))
        split = Split.draw(graphs, seed, (0.8, 0.1, 0.1), strata=torch.from_numpy(y))
        return Task(
            name=name,
            graphs=Graphs(
                x, ends[:, kept], torch.from_numpy(y), "graph", edge_attr, node_ptr=node_ptr, edge_ptr=edge_ptr
            ),
            schema=_schema(x, vocabularies, edge_attr, edge_vocabularies, len(classes)),
            splits=(split,),
            loss="cross_entropy",
            metric="accuracy",
            version=version,
            classes=tuple(str(label) for label in classes.tolist()),
        )


def _edges(edge_index: Tensor, nodes: int, undirected: bool = False, loops: bool = True) -> Tensor:
    """Return the edges sorted and each once; with reverses if `undirected`, and without self-loops unless `loops`."""
    check_range("edges", edge_index, 0, nodes)
    if not loops:
        edge_index = remove_self_loops(edge_index)[0]
    return to_undirected(edge_index, num_nodes=nodes) if undirected else coalesce(edge_index, num_nodes=nodes)


def _node_task(name: str, version: str, x: Tensor, edge_index: Tensor, y: Tensor, splits: tuple[Split, ...]) -> Task:
    classes = int(y.max()) + 1
    binary = classes == 2
    return Task(
        name=name,
        graphs=Graphs(x, edge_index, y.float() if binary else y, "node"),
        schema=Schema(features=x.size(1), outputs=1 if binary else classes),
        splits=splits,
        loss="binary_cross_entropy" if binary else "cross_entropy",
        metric="roc_auc" if binary else "accuracy",
        version=version,
    )


def _planetoid(path: Path, part: str) -> Array:
    file = Path(f"{path}.{part}")
    with reading(file):
        table = as_array(load_pickle(file))
        if table.ndim != 2:
            raise DataError(f"expected a matrix, got shape {list(table.shape)}", part)
        return table


def _planetoid_edges(path: Path) -> Tensor:
    with reading(path):
        neighbors = load_pickle(path)
        if not isinstance(neighbors, dict) or not all(isinstance(found, list) for found in neighbors.values()):
            raise DataError("expected a dict of lists", "graph")
        count = torch.tensor([len(found) for found in neighbors.values()])
        # A pickle may name a list any number of times; a neighbour in a list of its own takes at least two bytes.
        if int(count.sum()) > path.stat().st_size:
            raise DataError(f"expected a list for each node, got {int(count.sum())} neighbours", "graph")
        source = torch.tensor(list(neighbors), dtype=torch.int64).repeat_interleave(count)
        return torch.stack([source, torch.tensor([node for found in neighbors.values() for node in found])])


def _tu(folder: Path, name: str, part: str, dtype: Any = np.int64) -> Array:
    path = folder / f"{name}_{part}.txt"
    with reading(path):
        return pd.read_csv(path, header=None, skipinitialspace=True, dtype=dtype).to_numpy(copy=True)


def _tu_columns(
    folder: Path, name: str, of: str, attributes: bool, rows: Array
) -> tuple[Tensor | None, tuple[int, ...]]:
    """Return the features or categories of nodes or edges, and the numbers of categories."""
    labels: Tensor | None = None
    vocabularies: tuple[int, ...] = ()
    if (folder / f"{name}_{of}_labels.txt").exists():
        table = _tu(folder, name, f"{of}_labels")
        table = table - table.min(0)
        labels, vocabularies = torch.from_numpy(table[rows]), tuple(int(most) + 1 for most in table.max(0))
    if not attributes or not (folder / f"{name}_{of}_attributes.txt").exists():
        return labels, vocabularies
    columns = [torch.from_numpy(_tu(folder, name, f"{of}_attributes", np.float32)[rows])]
    if labels is not None:
        ranges = zip(labels.T, vocabularies, strict=True)
        columns += [torch.nn.functional.one_hot(column, size).float() for column, size in ranges]
    return torch.cat(columns, dim=1), ()


def _schema(
    x: Tensor, vocabularies: tuple[int, ...], edge_attr: Tensor | None, edge_vocabularies: tuple[int, ...], outputs: int
) -> Schema:
    return Schema(
        features=0 if vocabularies else x.size(1),
        vocabularies=vocabularies,
        edge_features=0 if edge_attr is None or edge_vocabularies else edge_attr.size(1),
        edge_vocabularies=edge_vocabularies,
        outputs=outputs,
    )


def _pointer(of: Array, count: int) -> Tensor:
    """Return where each group starts, and where the last one ends, for items that are sorted by group."""
    return torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(of, minlength=count))]))
