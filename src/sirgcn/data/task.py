"""A task: graphs, splits, loss and metric. The training engine sees nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.losses import LOSSES, OF_CLASSES, Loss
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.validate import DataError, check_range, check_shape

Part = Literal["train", "val", "test"]
"""A part of a split."""

PARTS: tuple[Part, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Schema:
    """What goes into a model and comes out of it.

    Args:
        features: the width of float node features; 0 where nodes carry categories.
        vocabularies: the number of categories of each column of the nodes; empty where they carry features.
        edge_features: the width of float edge features; 0 where there are none.
        edge_vocabularies: the number of categories of each column of the edges.
        encodings: the width of the positional or structural encodings.
        outputs: what a model gives per row: classes, tasks, or 1.
    """

    features: int = 0
    vocabularies: tuple[int, ...] = ()
    edge_features: int = 0
    edge_vocabularies: tuple[int, ...] = ()
    encodings: int = 0
    outputs: int = 1


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test items: int64 indices of graphs, or of one graph's nodes or edges."""

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> "Split":
        """From bool masks over the items."""
        return cls(*(mask.nonzero().squeeze(1) for mask in (train, val, test)))

    @classmethod
    def draw(
        cls,
        count: int,
        seed: int = 0,
        fractions: tuple[float, float, float] = (0.6, 0.2, 0.2),
        strata: Tensor | None = None,
    ) -> "Split":
        """A random split of `count` items; with `strata` (int64 `[count]`) each class is split alike, -1 is left out.

        Every part gets at least one item of a class that has three or more.
        """
        if count < 1:
            raise DataError(f"expected at least one item, got {count}", "count")
        if min(fractions) < 0 or fractions[0] == 0 or abs(sum(fractions) - 1) > 1e-9:
            raise DataError(f"expected fractions above 0 that sum to 1, got {fractions}", "fractions")
        rng = np.random.default_rng(seed)
        group = np.zeros(count, np.int64) if strata is None else strata.numpy()
        parts: list[list[np.ndarray[Any, Any]]] = [[], [], []]
        for label in np.unique(group[group >= 0]):
            items = rng.permutation(np.flatnonzero(group == label))
            val, test = (round(fraction * len(items)) for fraction in fractions[1:])
            if len(items) >= 3:
                val, test = max(val, int(fractions[1] > 0)), max(test, int(fractions[2] > 0))
            # A rare class goes to training first.
            val, test = min(val, len(items) - 1), min(test, len(items) - 1 - min(val, len(items) - 1))
            ends = (len(items) - val - test, len(items) - test)
            for part, rows in zip(parts, np.split(items, ends), strict=True):
                part.append(rows)
        return cls(*(torch.from_numpy(np.sort(np.concatenate(part))) for part in parts))


@dataclass(frozen=True, eq=False)
class Task:
    """Graphs to learn from, and how; checked when made.

    Args:
        name: of the data set.
        graphs: all of them, with their targets.
        schema: the inputs' and outputs' widths.
        splits: one, or the several that were published.
        loss: a name of `LOSSES`.
        metric: a name of `METRICS`.
        version: exactly which data these are ("rebuilt ZINC-12k", "generated, seed 0").
        classes: the names of the classes, in the order of the outputs, where they have names.
        details: what a source adds, such as the preprocessing and ids of a user's tables.
    """

    name: str
    graphs: Graphs
    schema: Schema
    splits: tuple[Split, ...]
    loss: str
    metric: str
    version: str = ""
    classes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def level(self) -> Level:
        """What a target belongs to."""
        return self.graphs.level

    @property
    def over(self) -> Literal["graphs", "nodes", "edges"]:
        """What a split divides: graphs where there are several, else the nodes or edges of the one."""
        if self.graphs.num_graphs > 1 or self.level == "graph":
            return "graphs"
        return "nodes" if self.level == "node" else "edges"

    @property
    def loss_function(self) -> Loss:
        """The loss."""
        return LOSSES[self.loss]

    @property
    def metric_function(self) -> Metric:
        """The metric."""
        return METRICS[self.metric]

    def num_batches(self, part: Part, batch_size: int | None = None, split: int = 0) -> int:
        """How many batches `batches` gives."""
        items = len(getattr(self.splits[split], part))
        return 1 if batch_size is None or self.over != "graphs" else -(-items // batch_size)

    def batches(
        self,
        part: Part,
        batch_size: int | None = None,
        split: int = 0,
        generator: torch.Generator | None = None,
    ) -> Iterator[Data]:
        """The part's batches, each PyG's `Data` with `y` and what `Graphs.batch` gives.

        Where targets are a selection of the model's rows, `index` (int64) holds those rows and `y` has as many: the
        part's nodes of a single graph, the labelled nodes of many. Otherwise `index` is None. The edges of an edge
        task stand in `edge_label_index` `[2, rows]`.

        Args:
            part: train, val or test.
            batch_size: graphs in a batch; None takes all. One graph is always one batch.
            split: which of the splits.
            generator: draws the order anew; without it the order is the split's.
        """
        items: Tensor = getattr(self.splits[split], part)
        if self.over != "graphs":
            yield self._labelled(self.graphs.batch(), items)
            return
        if generator is not None:
            items = items[torch.randperm(len(items), generator=generator)]
        for chunk in items.split(batch_size or max(len(items), 1)):
            yield self._labelled(self.graphs.batch(chunk), None)

    def _labelled(self, batch: Data, rows: Tensor | None) -> Data:
        batch.index = None
        if self.level == "graph":
            return batch
        if rows is None:
            known = batch.y >= 0 if not batch.y.is_floating_point() else ~torch.isnan(batch.y)
            rows = (known if known.dim() == 1 else known.any(1)).nonzero().squeeze(1)
        if self.level == "edge":
            batch.edge_label_index = batch.edge_index[:, rows]
        elif len(rows) < len(batch.y):
            batch.index = rows
        batch.y = batch.y[rows]
        return batch

    def describe(self) -> Any:
        """What the data are: sizes, degrees, labels, homophily, missing values, warnings."""
        from sirgcn.data.describe import describe

        return describe(self)


def _check(task: Task) -> None:
    for argument, table in (("loss", LOSSES), ("metric", METRICS)):
        if getattr(task, argument) not in table:
            raise DataError(f"expected one of {', '.join(table)}, got {getattr(task, argument)!r}", argument)
    graphs, schema = task.graphs, task.schema
    for field_name, tensor, width, vocabularies in (
        ("x", graphs.x, schema.features, schema.vocabularies),
        ("edge_attr", graphs.edge_attr, schema.edge_features, schema.edge_vocabularies),
    ):
        _check_inputs(field_name, tensor, width, vocabularies)
    _check_inputs("pe", graphs.pe, schema.encodings, ())
    classes = not graphs.y.is_floating_point()
    if classes:
        check_range("y", graphs.y, -1, schema.outputs)
    elif schema.outputs != (graphs.y.size(1) if graphs.y.dim() == 2 else 1):
        raise DataError(f"expected {schema.outputs} targets, got shape {list(graphs.y.shape)}", "y")
    if classes != (task.loss in OF_CLASSES):
        kind = ", ".join(name for name in LOSSES if classes == (name in OF_CLASSES))
        raise DataError(
            f"the targets are {'classes' if classes else 'numbers'}: expected {kind}, got {task.loss!r}", "loss"
        )
    if not task.splits:
        raise DataError("expected at least one split, got none", "splits")
    count = {"graphs": graphs.num_graphs, "nodes": graphs.num_nodes, "edges": graphs.num_edges}[task.over]
    for number, split in enumerate(task.splits):
        _check_split(f"splits[{number}]", split, count, task)


def _check_inputs(name: str, tensor: Tensor | None, width: int, vocabularies: tuple[int, ...]) -> None:
    if tensor is None:
        if width or vocabularies:
            raise DataError("the schema expects it, got none", name)
    elif tensor.is_floating_point():
        check_shape(name, tensor, (None, width), (tensor.dtype,))
        if vocabularies:
            raise DataError("the schema expects categories, got numbers", name)
    else:
        check_shape(name, tensor, (None, len(vocabularies)), (torch.int64,))
        check_range(name, tensor, 0, torch.tensor(vocabularies))


def _check_split(name: str, split: Split, count: int, task: Task) -> None:
    seen = torch.zeros(count, dtype=torch.int8)
    for part in PARTS:
        items = getattr(split, part)
        check_shape(f"{name}.{part}", items, (None,), (torch.int64,))
        check_range(f"{name}.{part}", items, 0, count)
        seen.scatter_add_(0, items, torch.ones_like(items, dtype=torch.int8))
    twice = (seen > 1).nonzero()
    if len(twice):
        item = int(twice[0])
        raise DataError(f"expected every item at most once, got item {item} twice", name, value=item)
    for part in PARTS:
        items = getattr(split, part)
        if part == "train" and len(items) == 0:
            raise DataError("expected at least one item, got none", f"{name}.train")
        if len(items) and not _any_label(task, items):
            raise DataError("expected labelled items, got none", f"{name}.{part}")


def _any_label(task: Task, items: Tensor) -> bool:
    y = task.graphs.y
    known = ~torch.isnan(y) if y.is_floating_point() else y >= 0
    if known.dim() == 2:
        known = known.any(1)
    if task.over == "graphs" and task.level != "graph":
        pointer = task.graphs.node_ptr if task.level == "node" else task.graphs.edge_ptr
        assert pointer is not None
        total = torch.cat([torch.zeros(1, dtype=torch.int64), known.long().cumsum(0)])
        known = total[pointer[1:]] > total[pointer[:-1]]
    return bool(known[items].any())
