"""A model on a task: outputs and targets of a batch, the loss that is trained on, and the scores of the parts."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.graphs import Level
from sirgcn.data.splits import Part
from sirgcn.data.task import Task
from sirgcn.engine.ranks import ALONE, Ranks


def call(model: nn.Module, batch: Data, level: Level, graph: Any = None) -> Tensor:
    """The outputs of a model for a batch of `Graphs.batch`, one row for each node, edge or graph.

    Args:
        model: see `Trainer`.
        batch: the batch, on the device of the model.
        level: what an output belongs to.
        graph: what the model reads in place of the edges; None for the edges themselves.

    >>> from sirgcn import SIRNet
    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=4)
    >>> model = SIRNet.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> call(model, task.graphs.batch(), "graph").shape
    torch.Size([4, 1])
    """
    inputs = {name: batch[name] for name in ("edge_attr", "pe", "edge_pe", "graph_attr") if batch.get(name) is not None}
    if level == "edge":
        is_whole = batch.get("edge_label_index") is None
        inputs["edge_label_index"] = batch.edge_index if is_whole else batch.edge_label_index
        features = batch.get("edge_attr" if is_whole else "edge_label_attr")
        if features is not None:
            inputs["edge_label_attr"] = features
    edges = batch.edge_index if graph is None else graph
    output: Tensor = model(batch.x, edges, batch=batch.batch, batch_size=batch.num_graphs, **inputs)
    return output


class Inference:
    """Calls a model on batches of a task.

    Args:
        model: see `Trainer`.
        task: the data, the loss and the metric.
        split: the number of the task's split.
        device: the device of the model.
        precision: `"bfloat16"` runs the model under autocast.
        whole: gives the outputs of all rows of a single graph in an evaluation; None is one pass over the graph.
        ranks: the processes that share the work.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        split: int,
        device: torch.device,
        precision: Literal["float32", "bfloat16"] = "float32",
        ranks: Ranks = ALONE,
        whole: Callable[[nn.Module, Task], Tensor] | None = None,
    ) -> None:
        self.model, self.task, self.split, self.device, self.precision = model, task, split, device, precision
        self.ranks, self.whole = ranks, whole
        self._prepared: dict[int, Any] = {}

    def predict(self, batch: Data) -> tuple[Tensor, Tensor]:
        """The model's output for the labelled rows of a batch, and their targets."""
        batch = batch.to(self.device)
        with self._autocast():
            output = call(self.model, batch, self.task.level, self._graph(batch))
        index = batch.get("index")
        return (output if index is None else output[index]), batch.y

    def training_loss(self, batch: Data) -> tuple[Tensor, int]:
        """The loss of a batch that the model is trained on, its own objective or that of the task; and the rows in it.

        The loss is that of the rows of all ranks.
        """
        objective, loss = getattr(self.model, "objective", None), self.task.loss_function
        if objective is None:
            output, target = self.ranks.gathered(*self.predict(batch))
            return loss(output, target), len(target)
        batch = batch.to(self.device)
        rows = batch.get("index")
        if rows is None:
            rows = torch.arange(len(batch.y), device=self.device)
        with self._autocast():
            found: Tensor = objective(batch.x, self._graph(batch), rows, batch.y, loss)
        return found, len(batch.y)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")

    def _graph(self, batch: Data) -> Any:
        """The edges of a batch, or what the model has prepared from those of a single graph."""
        prepare: Callable[..., Any] | None = getattr(self.model, "prepare", None)
        if self.task.over == "graphs" or prepare is None:
            return batch.edge_index
        if batch.get("n_id") is not None:
            raise ValueError(
                f"model: {type(self.model).__name__} prepares the whole graph once, "
                "and cannot be trained on sampled batches"
            )
        # By the number of nodes: training may see fewer of them than validation and test do.
        if len(batch.x) not in self._prepared:
            self._prepared[len(batch.x)] = prepare(batch.x, batch.edge_index)
        return self._prepared[len(batch.x)]

    @torch.no_grad()
    def evaluate(self, parts: tuple[Part, ...], batch_size: int | None) -> dict[Part, tuple[float, float]]:
        """The mean loss and the metric of each part that is not empty, in eval mode."""
        self.model.eval()
        parts = tuple(part for part in parts if self.task.num_batches(part, split=self.split))
        if self.task.over != "graphs":
            return self._evaluate_rows(parts)
        return {part: self._evaluate_batches(part, batch_size) for part in parts}

    def _evaluate_batches(self, part: Part, batch_size: int | None) -> tuple[float, float]:
        outputs, targets, total, labels = [], [], 0.0, 0
        for batch in self.ranks.batches(self.task, part, batch_size, self.split):
            output, target = self.ranks.gathered(*self.predict(batch))
            count = self.task.loss_function.count_labels(target)
            total += float(self.task.loss_function(output, target)) * count
            labels += count
            outputs.append(output.float().cpu())
            targets.append(target.cpu())
        return total / max(1, labels), self.task.metric_function(outputs, targets)

    def _evaluate_rows(self, parts: tuple[Part, ...]) -> dict[Part, tuple[float, float]]:
        """The parts of a single graph, which share one forward pass where they see the same nodes."""
        split = self.task.splits[self.split]
        if self.whole is not None:
            return self._evaluate_whole(parts)
        whole = tuple(part for part in parts if part != "train" or not self.task.unseen)
        found: dict[Part, tuple[float, float]] = {}
        if whole:
            output, target = self.predict(self.ranks.whole(self.task))
        for part in parts:
            if part in whole:
                rows = self.ranks.places(getattr(split, part)).to(self.device)
                found[part] = self._scores(output[rows], target[rows])
            else:
                batch = next(self.ranks.batches(self.task, part, None, self.split))
                found[part] = self._scores(*self.predict(batch))
        return found

    def _scores(self, output: Tensor, target: Tensor) -> tuple[float, float]:
        """The loss and the metric of the rows of all ranks."""
        output, target = self.ranks.gathered(output, target)
        loss = float(self.task.loss_function(output, target))
        return loss, self.task.metric_function([output.float().cpu()], [target.cpu()])

    def _evaluate_whole(self, parts: tuple[Part, ...]) -> dict[Part, tuple[float, float]]:
        """The parts of a single graph, from outputs that every rank has for all rows."""
        assert self.whole is not None
        split = self.task.splits[self.split]
        found: dict[Part, tuple[float, float]] = {}
        with self._autocast():
            outputs = self.whole(self.model, self.task).to(self.device)
        for part in parts:
            if part == "train" and self.task.unseen:
                found[part] = self._scores(*self.predict(next(self.ranks.batches(self.task, part, None, self.split))))
                continue
            rows = getattr(split, part)
            output, target = outputs[rows.to(self.device)], self.task.graphs.y[rows].to(self.device)
            loss = float(self.task.loss_function(output, target))
            found[part] = loss, self.task.metric_function([output.float().cpu()], [target.cpu()])
        return found
