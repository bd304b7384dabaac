"""A task: graphs, splits, loss and metric. The training engine sees nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.describe import Description, describe
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.losses import LOSSES, LOSSES_OF_CLASSES, Loss
from sirgcn.data.metrics import METRICS, METRICS_OF_CLASSES, Metric
from sirgcn.data.schema import Schema
from sirgcn.data.splits import PARTS, Part, Split
from sirgcn.data.validate import DataError, check_at_least, check_range, check_shape
from sirgcn.strict import check_fields, checked


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
        check_fields(self)
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

    @checked
    def num_batches(self, part: Part, batch_size: int | None = None, split: int = 0) -> int:
        """How many batches `batches` gives."""
        items = len(self._items(part, batch_size, split))
        return min(items, 1) if batch_size is None or self.over != "graphs" else -(-items // batch_size)

    @checked
    def batches(
        self,
        part: Part,
        batch_size: int | None = None,
        split: int = 0,
        generator: torch.Generator | None = None,
        start: int = 0,
    ) -> Iterator[Data]:
        """The part's batches, each PyG's `Data` with `y` and what `Graphs.batch` gives.

        Where targets are a selection of the model's rows, `index` (int64) holds those rows and `y` has as many: the
        part's nodes of a single graph, the labelled nodes of many. Otherwise there is none, and
        `batch.get("index")` is None. The edges of an edge task stand in `edge_label_index` `[2, rows]`.

        Args:
            part: train, val or test.
            batch_size: graphs in a batch; None takes all. One graph is always one batch; an empty part has none.
            split: which of the splits.
            generator: draws the order anew; without it the order is the split's.
            start: the batch to begin with: those before it are not put together.
        """
        check_at_least(0, start=start)
        items = self._items(part, batch_size, split)
        if generator is not None and self.over == "graphs":
            # Drawn even if nothing is left of it, so that the next order does not depend on where this one began.
            items = items[torch.randperm(len(items), generator=generator)]
        if start >= self.num_batches(part, batch_size, split):
            return
        if self.over != "graphs":
            yield self._labelled(self.graphs.batch(), items)
            return
        for chunk in items.split(batch_size or len(items))[start:]:
            yield self._labelled(self.graphs.batch(chunk), None)

    def _items(self, part: Part, batch_size: int | None, split: int) -> Tensor:
        if part not in PARTS:
            raise DataError(f"expected one of {', '.join(PARTS)}, got {part!r}", "part")
        if batch_size is not None:
            check_at_least(1, batch_size=batch_size)
        if not 0 <= split < len(self.splits):
            raise DataError(f"expected 0 <= split < {len(self.splits)}, got {split}", "split")
        items: Tensor = getattr(self.splits[split], part)
        return items

    def _labelled(self, batch: Data, rows: Tensor | None) -> Data:
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

    def describe(self) -> Description:
        """What the data are: sizes, degrees, labels, homophily, missing values, warnings."""
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
    _check_targets(task)
    if not task.splits:
        raise DataError("expected at least one split, got none", "splits")
    count = {"graphs": graphs.num_graphs, "nodes": graphs.num_nodes, "edges": graphs.num_edges}[task.over]
    for number, split in enumerate(task.splits):
        _check_split(f"splits[{number}]", split, count, task)


def _check_targets(task: Task) -> None:
    y, outputs = task.graphs.y, task.schema.outputs
    classes = not y.is_floating_point()
    if classes != (task.loss in LOSSES_OF_CLASSES):
        kind = ", ".join(name for name in LOSSES if classes == (name in LOSSES_OF_CLASSES))
        raise DataError(
            f"the targets are {'classes' if classes else 'numbers'}: expected {kind}, got {task.loss!r}", "loss"
        )
    if classes:
        check_range("y", y, -1, outputs)
    elif outputs != (y.size(1) if y.dim() == 2 else 1):
        raise DataError(f"expected {outputs} targets, got shape {list(y.shape)}", "y")
    known = y[y >= 0] if classes else y[~torch.isnan(y)]
    if task.metric not in METRICS_OF_CLASSES:
        if classes:
            names = ", ".join(METRICS_OF_CLASSES)
            raise DataError(f"the targets are classes: expected {names}, got {task.metric!r}", "metric")
        return
    if not classes:
        other = ((y != 0) & (y != 1) & ~torch.isnan(y)).nonzero()
        if len(other):
            place = tuple(other[0].tolist())
            value = float(y[place])
            raise DataError(f"{task.metric} expects 0, 1 or no label, got {value}", "y", row=list(place), value=value)
    elif outputs != 2 and task.metric in ("roc_auc", "average_precision"):
        raise DataError(f"{task.metric} expects two classes, got {outputs}", "metric")
    if len(known) and bool((known == known[0]).all()):
        raise DataError(
            f"expected labels of at least two classes, got {known[0].item()} alone", "y", value=known[0].item()
        )


def _check_inputs(name: str, tensor: Tensor | None, width: int, vocabularies: tuple[int, ...]) -> None:
    if tensor is None:
        if width or vocabularies:
            raise DataError("the schema expects it, got none", name)
    elif tensor.is_floating_point():
        check_shape(name, tensor, (None, width), (tensor.dtype,))
        if vocabularies:
            raise DataError("the schema expects categories, got numbers", name)
    else:
        if width:
            raise DataError("the schema expects numbers, got categories", name)
        check_shape(name, tensor, (None, len(vocabularies)), (torch.int64,))
        check_range(name, tensor, 0, torch.tensor(vocabularies))


def _check_split(name: str, split: Split, count: int, task: Task) -> None:
    for part in PARTS:
        items = getattr(split, part)
        check_shape(f"{name}.{part}", items, (None,), (torch.int64,))
        check_range(f"{name}.{part}", items, 0, count)
    twice = (torch.bincount(torch.cat([split.train, split.val, split.test])) > 1).nonzero()
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
