"""What a model predicts: its targets, the loss and the metric, and what it reads."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sirgcn.data.graphs import Level
from sirgcn.data.losses import LOSSES, Loss
from sirgcn.data.metrics import METRICS, Metric
from sirgcn.data.schema import Schema
from sirgcn.data.task import Task
from sirgcn.strict import check_fields, check_name, from_dict

Sort = Literal["classes", "labels", "numbers"]
"""What a target is: one of several classes, several labels of 0 and 1, or one or more numbers."""


@dataclass(frozen=True)
class Problem:
    """What a model predicts, and what it reads. It is everything of a `Task` but the data.

    Args:
        name: the name of the data that the model was trained on.
        level: what a prediction belongs to: a node, an edge or a graph.
        sort: whether targets are classes, labels or numbers.
        targets: the names of the columns of the targets.
        classes: the names of the classes, in the order of the outputs; empty if the targets are no classes.
        loss: a name of `LOSSES`.
        metric: a name of `METRICS`.
        schema: the widths of the inputs and outputs.

    >>> from sirgcn.data import load
    >>> problem = Problem.of(load("hetero_edge_count", c=2, num_graphs=10))
    >>> problem.level, problem.sort, problem.targets
    ('graph', 'numbers', ('y',))
    >>> Problem.from_dict(problem.to_dict()) == problem
    True
    """

    name: str
    level: Level
    sort: Sort
    targets: tuple[str, ...]
    classes: tuple[str, ...]
    loss: str
    metric: str
    schema: Schema

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("loss", self.loss, LOSSES, exact=True)
        check_name("metric", self.metric, METRICS, exact=True)

    @classmethod
    def of(cls, task: Task) -> "Problem":
        """What a model of this task predicts."""
        preprocessing = task.details.get("preprocessing")
        outputs = task.schema.outputs
        sort: Sort = "numbers"
        if not task.graphs.y.is_floating_point():
            sort = "classes"
        elif task.loss_function.targets != "numbers":
            sort = "labels"
        classes = task.classes
        if sort == "classes" and not classes:
            classes = tuple(map(str, range(outputs)))
        if preprocessing is not None:
            targets = preprocessing.targets
        else:
            several = sort != "classes" and outputs > 1
            targets = tuple(f"y{place}" for place in range(outputs)) if several else ("y",)
        return cls(task.name, task.level, sort, targets, classes, task.loss, task.metric, task.schema)

    @property
    def loss_function(self) -> Loss:
        """The loss of this name."""
        return LOSSES[self.loss]

    @property
    def metric_function(self) -> Metric:
        """The metric of this name."""
        return METRICS[self.metric]

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "problem") -> "Problem":
        """A problem from what `to_dict` gave; unknown keys and wrong types are refused by name."""
        found: Problem = from_dict(cls, data, where)
        return found
