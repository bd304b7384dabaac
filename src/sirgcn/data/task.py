"""A task: graphs, splits, a loss and a metric. The training engine needs nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.describe import Description, describe, in_short
from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.losses import LOSSES, Loss
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.schema import Schema
from sirgcn.data.splits import PARTS, Part, Split
from sirgcn.data.validate import DataError, check_at_least, check_choice, check_range, check_shape
from sirgcn.strict import Count, check_fields, checked


@dataclass(frozen=True, eq=False)
class Task:
    """Graphs to learn from, with splits, a loss and a metric. The constructor checks that they fit together.

    Args:
        name: the name of the data set.
        graphs: all graphs, with their targets.
        schema: the widths of the inputs and outputs.
        splits: one split, or the several that were published.
        loss: a name of `LOSSES`.
        metric: a name of `METRICS`.
        version: which data these are exactly ("rebuilt ZINC-12k", "generated, seed 0").
        classes: the names of the classes, in the order of the outputs, if they have names.
        details: what a source adds, such as the preprocessing and ids of a user's tables.
        unseen: for an inductive task one entry per split, the nodes (int64) that training does not see, see
            `as_inductive`; empty if training sees the whole graph.

    >>> from sirgcn.data import hetero_edge_count_task
    >>> task = hetero_edge_count_task(c=2, num_graphs=10)
    >>> task.level, task.over, task.num_batches("train", batch_size=4)
    ('graph', 'graphs', 2)
    >>> [batch.num_graphs for batch in task.batches("train", batch_size=4)]
    [4, 4]
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
    unseen: tuple[Tensor, ...] = ()
    _seen: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        _check(self)

    def __repr__(self) -> str:
        """Return the task in a few lines; `describe` says more."""
        return in_short(self) if self.splits else f"Task({self.name!r})"

    @property
    def level(self) -> Level:
        """What a target belongs to."""
        return self.graphs.level

    @property
    def over(self) -> Literal["graphs", "nodes", "edges"]:
        """What a split divides: the graphs if there are several, otherwise the nodes or edges of the one graph."""
        if self.graphs.num_graphs > 1 or self.level == "graph":
            return "graphs"
        return "nodes" if self.level == "node" else "edges"

    @property
    def loss_function(self) -> Loss:
        """The loss of this name."""
        return LOSSES[self.loss]

    @property
    def metric_function(self) -> Metric:
        """The metric of this name."""
        return METRICS[self.metric]

    @checked
    def num_batches(self, part: Part, batch_size: int | None = None, split: int = 0) -> int:
        """Return the number of batches that `batches` yields."""
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
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[Data]:
        """Yield the batches of a part, each a `Data` with `y` and the fields of `Graphs.batch`.

        If only some rows of the model have targets, `index` (int64) holds these rows, and `y` has as many entries. They
        are the nodes of the part in a single graph, or the labelled nodes of several graphs. Otherwise
        `batch.get("index")` is None. The edges of an edge task are in `edge_label_index` `[2, rows]`,
        and their features, if they have any, in `edge_label_attr`.

        Args:
            part: train, val or test.
            batch_size: the number of graphs in a batch; None puts all graphs into one batch. A single graph is always
                one batch. An empty part has no batches.
            split: the number of the split.
            generator: draws a new order of the graphs; without it, they keep the order of the split.
            start: the number of the first batch. The batches before it are not built.
            share: (r, n) for the r-th of n shares of every batch of graphs, which may have no graph. The shares of a
                batch, one after the other, are the batch.
        """
        check_at_least(0, start=start)
        items = self._items(part, batch_size, split)
        if generator is not None and self.over == "graphs":
            # Drawn even if no batch is left, so that the next order does not depend on where this one started.
            items = items[torch.randperm(len(items), generator=generator)]
        if start >= self.num_batches(part, batch_size, split):
            return
        if self.over != "graphs":
            graphs, place = self.seen(split) if part == "train" else (self.graphs, None)
            yield self._labelled(graphs.batch(), items if place is None else place[items])
            return
        for chunk in items.split(batch_size or len(items))[start:]:
            yield self._labelled(self.graphs.batch(chunk.tensor_split(share[1])[share[0]]), None)

    def seen(self, split: int = 0) -> tuple[Graphs, Tensor | None]:
        """Return the graph that training sees, and the place in it of every node of `graphs`, -1 for unseen nodes.

        The places are None if training sees the whole graph.
        """
        if not self.unseen:
            return self.graphs, None
        if split not in self._seen:
            self._seen[split] = without_nodes(self.graphs, self.unseen[split])
        found: tuple[Graphs, Tensor] = self._seen[split]
        return found

    def as_inductive(self) -> "Task":
        """Return the task in its inductive form: training sees neither the nodes of val and test nor their edges.

        Validation and test use the whole graph, as predictions for new nodes do.

        >>> from sirgcn.data import Graphs, Schema, Split
        >>> path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> graphs = Graphs(torch.eye(4), path, torch.tensor([0, 1, 0, 1]), "node")
        >>> split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
        >>> task = Task("path", graphs, Schema(4, outputs=2), (split,), "cross_entropy", "accuracy").as_inductive()
        >>> [next(task.batches(part)).num_edges for part in ("train", "test")]
        [1, 4]
        """
        if self.over != "nodes":
            said = "training sees no other graph anyway" if self.over == "graphs" else "its targets are of edges"
            raise DataError(
                f"expected one graph with targets of nodes to hide nodes from training; {said}", "inductive"
            )
        return replace(self, unseen=tuple(torch.cat([split.val, split.test]) for split in self.splits))

    def _items(self, part: Part, batch_size: int | None, split: int) -> Tensor:
        check_choice("part", part, PARTS)
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
            if batch.get("edge_attr") is not None:
                batch.edge_label_attr = batch.edge_attr[rows]
        elif not torch.equal(rows, torch.arange(len(batch.y))):
            batch.index = rows
        batch.y = batch.y[rows]
        return batch

    @checked
    def without_test(self, split: Count = 0) -> "Task":
        """Return the task as a search for settings may see it: one split without its test part, and no other label.

        All splits of the result are that split. A label that is neither in its training part nor in its validation part
        is missing.

        >>> from sirgcn.data import hetero_edge_count_task
        >>> task = hetero_edge_count_task(c=2, num_graphs=10).without_test()
        >>> task.num_batches("test"), int(task.graphs.y.isnan().sum())
        (0, 2)
        """
        train, val = self._items("train", None, split), self._items("val", None, split)
        is_seen = torch.zeros(_count(self), dtype=torch.bool)
        is_seen[torch.cat([train, val])] = True
        rows = _rows_of(self, is_seen)
        missing = torch.nan if self.graphs.y.is_floating_point() else -1
        y = self.graphs.y.masked_fill(~rows.view(-1, *[1] * (self.graphs.y.dim() - 1)), missing)
        kept = Split(train, val, train.new_empty(0))
        # In an inductive task, the test nodes stay unseen.
        unseen = (self.unseen[split],) * len(self.splits) if self.unseen else ()
        return replace(self, graphs=replace(self.graphs, y=y), splits=(kept,) * len(self.splits), unseen=unseen)

    def describe(self) -> Description:
        """Return sizes, degrees, labels, homophily, missing values and warnings."""
        return describe(self)


def _check(task: Task) -> None:
    check_choice("loss", task.loss, LOSSES)
    check_choice("metric", task.metric, METRICS)
    graphs, schema = task.graphs, task.schema
    for field_name, tensor, width, vocabularies in (
        ("x", graphs.x, schema.features, schema.vocabularies),
        ("edge_attr", graphs.edge_attr, schema.edge_features, schema.edge_vocabularies),
    ):
        _check_inputs(field_name, tensor, width, vocabularies)
    _check_inputs("pe", graphs.pe, schema.encodings, ())
    _check_inputs("edge_pe", graphs.edge_pe, schema.edge_encodings, ())
    _check_inputs("graph_attr", graphs.graph_attr, schema.graph_features, ())
    _check_targets(task)
    if not task.splits:
        raise DataError("expected at least one split, got none", "splits")
    for number, split in enumerate(task.splits):
        _check_split(f"splits[{number}]", split, _count(task), task)
    _check_unseen(task)


def _count(task: Task) -> int:
    """Return the number of items that a split divides."""
    graphs = task.graphs
    return {"graphs": graphs.num_graphs, "nodes": graphs.num_nodes, "edges": graphs.num_edges}[task.over]


def _rows_of(task: Task, items: Tensor) -> Tensor:
    """Return a mask over the targets from a mask over the items of a split."""
    if task.over != "graphs" or task.level == "graph":
        return items
    pointer = task.graphs.node_ptr if task.level == "node" else task.graphs.edge_ptr
    assert pointer is not None
    return items.repeat_interleave(pointer.diff())


def _check_targets(task: Task) -> None:
    y, outputs = task.graphs.y, task.schema.outputs
    is_of_classes = not y.is_floating_point()
    _check_loss(task, is_of_classes)
    if is_of_classes:
        check_range("y", y, -1, outputs)
    elif outputs != (y.size(1) if y.dim() == 2 else 1):
        raise DataError(f"expected {outputs} targets, got shape {list(y.shape)}", "y")
    if task.metric_function.targets == "numbers":
        if is_of_classes:
            names = ", ".join(name for name, metric in METRICS.items() if metric.targets != "numbers")
            raise DataError(f"the targets are classes: expected {names}, got {task.metric!r}", "metric")
        return
    if is_of_classes:
        _check_classes(task)
    else:
        _check_binary(task)
    known = y[y >= 0] if is_of_classes else y[~torch.isnan(y)]
    if len(known) and bool((known == known[0]).all()):
        value = known[0].item()
        raise DataError(f"expected labels of at least two classes, got only {value}", "y", value=value)


def _check_loss(task: Task, is_of_classes: bool) -> None:
    if task.loss_function.is_for_classes != is_of_classes:
        names = ", ".join(name for name, loss in LOSSES.items() if loss.is_for_classes == is_of_classes)
        targets = "classes" if is_of_classes else "numbers"
        raise DataError(f"the targets are {targets}: expected {names}, got {task.loss!r}", "loss")


def _check_classes(task: Task) -> None:
    outputs = task.schema.outputs
    if task.metric_function.targets == "two classes" and outputs != 2:
        raise DataError(f"{task.metric} expects two classes, got {outputs}", "metric")


def _check_binary(task: Task) -> None:
    """Raise for the first number that is neither 0 nor 1."""
    y = task.graphs.y
    other = ((y != 0) & (y != 1) & ~torch.isnan(y)).nonzero()
    if len(other):
        place = tuple(other[0].tolist())
        value = float(y[place])
        raise DataError(f"{task.metric} expects 0, 1 or no label, got {value}", "y", row=list(place), value=value)


def _check_inputs(name: str, tensor: Tensor | None, width: int, vocabularies: tuple[int, ...]) -> None:
    if tensor is None:
        if width or vocabularies:
            raise DataError("the schema expects this tensor, got none", name)
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
    parts = {f"{name}.{part}": getattr(split, part) for part in PARTS}
    for part, items in parts.items():
        check_shape(part, items, (None,), (torch.int64,))
        check_range(part, items, 0, count)
    twice = (torch.bincount(torch.cat([split.train, split.val, split.test])) > 1).nonzero()
    if len(twice):
        item = int(twice[0])
        raise DataError(f"expected every item at most once, got item {item} twice", name, value=item)
    if len(split.train) == 0:
        raise DataError("expected at least one item, got none", f"{name}.train")
    for part, items in parts.items():
        if len(items) and not _any_label(task, items):
            raise DataError("expected labelled items, got none", part)


def _check_unseen(task: Task) -> None:
    if not task.unseen:
        return
    if task.over != "nodes" or len(task.unseen) != len(task.splits):
        raise DataError(f"expected nodes of one graph for each of {len(task.splits)} splits", "unseen")
    for number, (nodes, split) in enumerate(zip(task.unseen, task.splits, strict=True)):
        name = f"unseen[{number}]"
        check_shape(name, nodes, (None,), (torch.int64,))
        check_range(name, nodes, 0, task.graphs.num_nodes)
        both = split.train[torch.isin(split.train, nodes)]
        if len(both):
            raise DataError(f"expected no training node, got {int(both[0])}", name, value=int(both[0]))


def without_nodes(graphs: Graphs, unseen: Tensor) -> tuple[Graphs, Tensor]:
    """Return one graph without some nodes and their edges, and the new place of every node, -1 for those left out."""
    keep = torch.ones(graphs.num_nodes, dtype=torch.bool)
    keep[unseen] = False
    place = torch.where(keep, keep.cumsum(0) - 1, -1)
    edges = keep[graphs.edge_index].all(0)
    of_nodes = {name: value[keep] for name in ("x", "y", "pe") if (value := getattr(graphs, name)) is not None}
    of_edges = {name: value[edges] for name in ("edge_attr", "edge_pe") if (value := getattr(graphs, name)) is not None}
    return replace(graphs, edge_index=place[graphs.edge_index[:, edges]], **of_nodes, **of_edges), place


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
