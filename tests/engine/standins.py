"""Small tasks with the schema of the real ones."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from sirgcn.data import Graphs, Schema, Split, Task, load, with_encodings
from sirgcn.data.sets.catalog import WALK_OPTIONS, find
from sirgcn.engine import records
from sirgcn.nn.encoder import OGB_ATOM, OGB_BOND

FEATURES = {
    "WikiCS": (300, 10),
    "mnist": (3, 10),
    "cifar10": (5, 10),
    "ogbn-arxiv": (128, 40),
    "roman-empire": (300, 18),
    "amazon-ratings": (300, 5),
    "minesweeper": (7, 1),
    "tolokers": (10, 1),
    "questions": (301, 1),
    "actor": (932, 5),
    "squirrel-filtered": (2089, 5),
}
"""Width of the node features, and outputs, of the data sets with a preset."""


def stand_in(name: str, options: dict[str, Any]) -> Task:
    """A small task like the data set of that name, with edge features and walks where the options ask for them."""
    plain = {option: value for option, value in options.items() if option not in WALK_OPTIONS}
    task = _stand_in(name, plain)
    widths = {"ZINC": (4,) * options.get("bonds", False), "ogbg-molhiv": OGB_BOND * options.get("bonds", False)}
    task = _with_edges(task, widths.get(name, ()), options.get("edge_values", False))
    if not options.get("random_walk"):
        return task
    with TemporaryDirectory() as folder:
        return with_encodings(task, "random_walk", options["random_walk"], folder, options.get("edge_walks", False))


def _with_edges(task: Task, vocabularies: tuple[int, ...], has_values: bool) -> Task:
    if not vocabularies and not has_values:
        return task
    edges = task.graphs.num_edges
    columns = [torch.randint(0, size, (edges,)) for size in vocabularies]
    edge_attr = torch.rand(edges, 1) if has_values else torch.stack(columns, dim=1)
    schema = replace(task.schema, edge_vocabularies=vocabularies, edge_features=int(has_values))
    return replace(task, graphs=replace(task.graphs, edge_attr=edge_attr), schema=schema)


def _stand_in(name: str, options: dict[str, Any]) -> Task:
    if name in ("pattern", "cluster"):
        whole = load(name, num_graphs=140 if name == "pattern" else 12)
        six = Split(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4, 5]))
        return Task(name, whole.graphs.select(torch.arange(6)), whole.schema, (six,), whole.loss, whole.metric)
    entry = find(name)
    if "num_graphs" in entry.options:
        return load(name, num_graphs=10, **options)
    torch.manual_seed(0)
    graphs, size = (6, 8) if entry.level == "graph" else (1, 80)
    if name == "ZINC":
        x, schema = torch.randint(0, 21, (graphs * size, 1)), Schema(vocabularies=(28,))
        return _task(name, x, torch.randn(graphs), schema, "l1", "mae", graphs)
    if name == "ogbg-molhiv":
        x = torch.stack([torch.randint(0, limit, (graphs * size,)) for limit in OGB_ATOM], dim=1)
        y = torch.tensor([0.0, 1.0]).repeat(graphs // 2)
        return _task(name, x, y, Schema(vocabularies=OGB_ATOM), "binary_cross_entropy", "roc_auc", graphs)
    # The width and the outputs of a data set without a preset are whatever its files have.
    width, outputs = FEATURES.get(name, (5, 1 if entry.metric == "roc_auc" else 4))
    rows = graphs if graphs > 1 else size
    x, schema = torch.randn(graphs * size, width), Schema(features=width, outputs=outputs)
    if outputs == 1:
        y = torch.tensor([0.0, 1.0]).repeat(rows // 2)
        return _task(name, x, y, schema, "binary_cross_entropy", "roc_auc", graphs)
    return _task(name, x, torch.arange(rows) % outputs, schema, "cross_entropy", "accuracy", graphs)


def _task(name: str, x: Tensor, y: Tensor, schema: Schema, loss: str, metric: str, graphs: int) -> Task:
    size = len(x) // graphs
    edge_index = torch.randint(0, size, (2, 20 * graphs))
    if graphs == 1:
        found = Graphs(x, edge_index, y, "node")
        half = len(y) // 2
        order = torch.arange(len(y))
        split = Split(order[:half], order[half : half + half // 2], order[half + half // 2 :])
    else:
        shift = torch.arange(graphs).repeat_interleave(20) * size
        pointers = {"node_ptr": torch.arange(graphs + 1) * size, "edge_ptr": torch.arange(graphs + 1) * 20}
        found = Graphs(x, edge_index + shift, y, "graph", **pointers)
        split = Split(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4, 5]))
    return Task(name, found, schema, (split,), loss, metric)


def read_whole(file: Path) -> list[dict[str, Any]]:
    """The records of a file, each with its curves."""
    return [records.with_curves(file, record) for record in records.read(file)]
