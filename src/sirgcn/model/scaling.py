"""Targets that are numbers are scaled for the training, and predictions are scaled back."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.strict import ConfigError, check_fields


@dataclass(frozen=True)
class Scaling:
    r"""The mean and the deviation of each target over the training rows: a network learns :math:`(y - \mu) / s`.

    Args:
        mean: :math:`\mu`, one number for each target.
        scale: :math:`s`, above 0.

    >>> scaling = Scaling((10.0,), (2.0,))
    >>> scaling.back(torch.tensor([[0.0], [1.0]])).tolist()
    [[10.0], [12.0]]
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.mean) != len(self.scale) or min(self.scale, default=1.0) <= 0:
            raise ConfigError("scaling: expected as many scales as means, all above 0")

    @classmethod
    def of(cls, task: Task, split: int = 0) -> "Scaling | None":
        """The scaling of a task with numbers as targets, from its training rows; None for other targets.

        >>> from sirgcn.data import load
        >>> Scaling.of(load("hetero_edge_count", c=2, num_graphs=10)).scale[0] > 0
        True
        """
        y = task.graphs.y
        if task.loss_function.targets != "numbers" or not y.is_floating_point():
            return None
        known = y[rows_of(task, "train", split)].double()
        columns = known.unsqueeze(1) if known.dim() == 1 else known
        mean = columns.nanmean(0)
        scale = (columns - mean).square().nanmean(0).sqrt()
        # A target that does not vary is only moved.
        scale = torch.where(scale > 0, scale, torch.ones_like(scale)).nan_to_num(1.0)
        return cls(tuple(mean.nan_to_num(0.0).tolist()), tuple(scale.tolist()))

    def apply(self, task: Task) -> Task:
        """The task with scaled targets."""
        y = task.graphs.y
        mean, scale = torch.tensor(self.mean), torch.tensor(self.scale)
        scaled = (y - mean[0]) / scale[0] if y.dim() == 1 else (y - mean) / scale
        return replace(task, graphs=replace(task.graphs, y=scaled.to(y.dtype)))

    def back(self, outputs: Tensor) -> Tensor:
        """Outputs `[rows, targets]` of a network in the units of the targets."""
        return outputs * outputs.new_tensor(self.scale) + outputs.new_tensor(self.mean)

    def loss_factor(self, loss: str) -> float:
        """What a loss of scaled targets is multiplied by, to be in the units of the targets.

        It is s for the absolute and s^2 for the squared error. Of several targets it is the mean, which is exact where
        all errors are alike.

        >>> Scaling((10.0,), (3.0,)).loss_factor("mse")
        9.0
        """
        power = 2 if loss == "mse" else 1
        return float(sum(scale**power for scale in self.scale) / len(self.scale))
