"""Controls: models without a network, which show what the network and the graph add.

A control is a pure function from a task and a split to outputs for all rows of the task.
"""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from sirgcn.data.splits import Part
from sirgcn.data.task import Task
from sirgcn.engine.columns import table_of
from sirgcn.strict import Count, Probability, Size, check_name, checked

_FIRST_ROUNDS = 13  # with a limit of time; 26, 52, 104 and 208 trees follow

Matrix = np.ndarray[Any, Any]

# Shares of classes stay away from 0 and 1, whose logits are infinite.
_SMALLEST = 1e-7


@dataclass(frozen=True)
class Fitted:
    """What a control makes of a task.

    Args:
        outputs: an output for every row of the task, as a network gives them: logits, or numbers `[rows, outputs]`.
        rounds: how many trees of each target are used.

    >>> Fitted(torch.zeros(4, 1), rounds=10).rounds
    10
    """

    outputs: Tensor
    rounds: int

    def scores(self, task: Task, split: int = 0) -> dict[str, float]:
        """The loss and the metric of every part that is not empty, by the names that records have.

        A metric that is a mean over batches sees each part as one batch.
        """
        found: dict[str, float] = {}
        parts: tuple[Part, ...] = ("train", "val", "test")
        for part in parts:
            rows = rows_of(task, part, split)
            if len(rows):
                output, target = self.outputs[rows], task.graphs.y[rows]
                found[f"{part}_loss"] = float(task.loss_function(output, target))
                found[part] = task.metric_function([output], [target])
        return found


@dataclass(frozen=True)
class Control:
    """An entry of `CONTROLS`.

    Args:
        name: its name in experiment files.
        title: its name for a reader.
        build: the function that fits it, called as `build(task, split=, seed=, **options)`.

    >>> CONTROLS["boosting"].title
    'Boosting'
    """

    name: str
    title: str
    build: Callable[..., Fitted]

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options of `build`."""
        known = ("task", "split", "seed", "neighbours")
        return tuple(name for name in inspect.signature(self.build).parameters if name not in known)


def find_control(name: str) -> Control:
    """The entry of `CONTROLS` with this name; raises a `ConfigError` with the known names if there is none."""
    return CONTROLS[check_name("control", name, CONTROLS, exact=True)]


def rows_of(task: Task, part: Part, split: int = 0) -> Tensor:
    """The labelled rows of a part, as indices into the targets of the task.

    >>> from sirgcn.data import load
    >>> len(rows_of(load("hetero_edge_count", c=2, num_graphs=20), "train"))
    16
    """
    items: Tensor = getattr(task.splits[split], part)
    if task.over == "graphs" and task.level != "graph":
        pointer = task.graphs.node_ptr if task.level == "node" else task.graphs.edge_ptr
        assert pointer is not None
        is_in = torch.zeros(len(pointer) - 1, dtype=torch.bool)
        is_in[items] = True
        items = is_in.repeat_interleave(pointer.diff()).nonzero().squeeze(1)
    y = task.graphs.y[items]
    known = ~torch.isnan(y) if y.is_floating_point() else y >= 0
    return items[known if known.dim() == 1 else known.any(1)]


@checked
def boosting(
    task: Task,
    split: Count = 0,
    seed: Count = 0,
    neighbours: bool = False,
    learning_rate: float = 0.1,
    max_iter: Size = 200,
    max_leaf_nodes: Size = 31,
    max_depth: Size | None = None,
    min_samples_leaf: Size = 20,
    l2_regularization: float = 0.0,
    max_features: Probability = 1.0,
    max_columns: Size | None = None,
    seconds: float | None = None,
) -> Fitted:
    """Gradient boosting on the columns of each row, by scikit-learn's histogram trees.

    All trees are fitted on the training part. As many of them are used as have the best validation metric. The labels
    of the test part are not read.

    Args:
        task: the data.
        split: the number of the task's split.
        seed: the seed of the trees.
        neighbours: whether the columns also have the mean, minimum and maximum over the neighbours of a node, in the
            graphs that the task has. No label enters the columns.
        learning_rate: what the values of a tree are multiplied by.
        max_iter: the largest number of trees.
        max_leaf_nodes: the largest number of leaves of a tree.
        max_depth: the largest depth of a tree; None for any.
        min_samples_leaf: the smallest number of rows in a leaf.
        l2_regularization: the L2 penalty on the values of leaves.
        max_features: the share of the columns that each split of a node chooses from.
        max_columns: the most columns of a row, before those of neighbours; the training rows choose them. None: all.
        seconds: about how long the trees may take, so that a slower machine makes fewer of them; None: no limit.

    >>> from sirgcn.data import load
    >>> fitted = boosting(load("hetero_edge_count", c=2, num_graphs=40), max_iter=5, min_samples_leaf=2)
    >>> fitted.outputs.shape, fitted.rounds <= 5
    (torch.Size([40, 1]), True)
    """
    options = {
        "learning_rate": learning_rate,
        "max_iter": max_iter,
        "max_leaf_nodes": max_leaf_nodes,
        "max_depth": max_depth,
        "min_samples_leaf": min_samples_leaf,
        "l2_regularization": l2_regularization,
        "max_features": max_features,
        "early_stopping": False,
        "random_state": seed,
    }
    table = table_of(task, neighbours, split, max_columns, rows_of(task, "train", split))
    return boosting_on(task, table, split, options, seconds)


def boosting_on(
    task: Task, columns: Tensor, split: int, options: dict[str, Any], seconds: float | None = None
) -> Fitted:
    """Gradient boosting on any table of columns, one line for each row of the task; see `boosting`.

    Args:
        task: the data.
        columns: float `[rows, columns]`; NaN is a missing value.
        split: the number of the task's split.
        options: those of scikit-learn's histogram trees.
        seconds: about how long the trees may take; None: no limit.

    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=40)
    >>> boosting_on(task, torch.rand(40, 2), 0, {"max_iter": 3}).rounds
    3
    """
    table, y = columns.numpy(), task.graphs.y
    train, val = rows_of(task, "train", split), rows_of(task, "val", split)
    targets = (y.unsqueeze(1) if y.dim() == 1 else y).T
    limit = None if seconds is None else seconds / len(targets)
    models = [_Boosted(task, table, target, train, options, limit) for target in targets]
    rounds = min(model.rounds for model in models)
    if len(val):
        staged = [islice(model.staged(table[val.numpy()]), rounds) for model in models]
        rounds = _best_round(task, staged, y[val])
    outputs = torch.cat([next(islice(model.staged(table), rounds - 1, None)) for model in models], dim=1)
    return Fitted(outputs, rounds)


CONTROLS: dict[str, Control] = {
    control.name: control
    for control in (
        Control("boosting", "Boosting", boosting),
        Control("boosting_neighbours", "Boosting with neighbours", partial(boosting, neighbours=True)),
    )
}
"""Every control by its name in experiment files."""


class _Boosted:
    """Trees for the classes of a task, or for one of its targets."""

    def __init__(
        self, task: Task, table: Matrix, target: Tensor, train: Tensor, options: dict[str, Any], seconds: float | None
    ) -> None:
        self.task, self.rounds = task, options["max_iter"]
        known = train[~torch.isnan(target[train])] if target.is_floating_point() else train
        y = target[known].numpy()
        self.is_of_classes = task.loss_function.targets != "numbers"
        # A target without a second class among the training rows has nothing to separate.
        self.only = y[:1] if self.is_of_classes and len(np.unique(y)) < 2 else None
        if self.only is None:
            self.trees = self._new_trees(options)
            self._grow(table[known.numpy()], y, seconds)

    def _grow(self, table: Matrix, y: Matrix, seconds: float | None) -> None:
        """Fit all trees, or with a limit ever more of them, until twice as many would take too long."""
        if seconds is None:
            self.trees.fit(table, y)
            return
        most, started = self.rounds, time.thread_time()
        self.rounds = min(_FIRST_ROUNDS, most)
        while True:
            self.trees.set_params(max_iter=self.rounds, warm_start=True).fit(table, y)
            taken = time.thread_time() - started
            if self.rounds == most or 3 * taken > seconds:
                return
            self.rounds = min(2 * self.rounds, most)

    def _new_trees(self, options: dict[str, Any]) -> Any:
        if not self.is_of_classes:
            loss = "absolute_error" if self.task.loss == "l1" else "squared_error"
            return HistGradientBoostingRegressor(loss=loss, **options)
        weight = "balanced" if self.task.loss == "weighted_cross_entropy" else None
        return HistGradientBoostingClassifier(class_weight=weight, **options)

    def staged(self, table: Matrix) -> Iterator[Tensor]:
        """The outputs of rows after the first tree, after the second, and so on."""
        if self.only is not None:
            yield from (self._logits(np.ones((len(table), 1)), self.only) for _ in range(self.rounds))
        elif self.is_of_classes:
            for shares in self.trees.staged_predict_proba(table):
                yield self._logits(shares, self.trees.classes_)
        else:
            for numbers in self.trees.staged_predict(table):
                yield torch.from_numpy(numbers).float().unsqueeze(1)

    def _logits(self, shares: Matrix, classes: Matrix) -> Tensor:
        """The shares of classes as logits: one per class, or one for a target of 0 and 1."""
        is_one_logit = not self.task.loss_function.is_for_classes
        found = torch.zeros(len(shares), 2 if is_one_logit else self.task.schema.outputs, dtype=torch.float64)
        found[:, torch.from_numpy(classes).long()] = torch.from_numpy(shares).double()
        logits = found.clamp(_SMALLEST, 1 - _SMALLEST).log().float()
        return logits[:, 1:] - logits[:, :1] if is_one_logit else logits


def _best_round(task: Task, staged: Sequence[Iterator[Tensor]], target: Tensor) -> int:
    """The number of trees with the best validation metric; the smallest of those that are level."""
    best, found = math.nan, 0
    for place, outputs in enumerate(zip(*staged, strict=True), start=1):
        value = task.metric_function([torch.cat(outputs, dim=1)], [target])
        if not found or task.metric_function.better(value, best):
            best, found = value, place
    return found
