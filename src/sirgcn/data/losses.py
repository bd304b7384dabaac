"""Losses: what a model is trained on.

A row without a label (-1 among classes, NaN among numbers) does not count. If no row of a batch has a label, the loss
and its gradient are 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Targets = Literal["classes", "two classes", "numbers"]
"""What a loss or a metric compares with the outputs of a model: classes, labels of two classes, or any numbers."""


@dataclass(frozen=True)
class Loss:
    """A loss: `loss(output, target)` is a scalar.

    Args:
        name: the key in `LOSSES`.
        targets: what the loss is for. "classes" are int64, -1 without a label. "two classes" are the numbers 0 and 1,
            and "numbers" are any; both are NaN without a label.
        compute: the function from output and target to a scalar.
        per_batch: whether the loss depends on how rows are put into batches. Other losses are means over labels.

    >>> loss = LOSSES["cross_entropy"]
    >>> loss.targets
    'classes'
    >>> output, target = torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.tensor([1, -1])
    >>> round(loss(output, target).item(), 4), loss.count_labels(target)
    (0.6931, 1)
    """

    name: str
    targets: Targets
    compute: Callable[[Tensor, Tensor], Tensor]
    per_batch: bool = False

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of a batch."""
        return self.compute(output, target)

    @property
    def is_for_classes(self) -> bool:
        """Whether targets are int64 classes; otherwise they are floating-point numbers."""
        return self.targets == "classes"

    def count_labels(self, target: Tensor) -> int:
        """Count the labels that the loss of these targets is a mean over."""
        return int((target >= 0 if self.is_for_classes else ~torch.isnan(target)).sum())


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the mean of :math:`-\log \mathrm{softmax}(\hat{y}_i)_{y_i}`, output `[M, C]`, target int64 `[M]`."""
    return _mean(F.cross_entropy(*_labelled(output, target), reduction="none"))


def weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the cross-entropy with the class weights of PATTERN and CLUSTER.

    The weight of a class is :math:`w_c = (N - N_c) / N` where :math:`N_c > 0`:

    .. math:: \sum_i w_{y_i} \ell_i \Big/ \sum_i w_{y_i}

    :math:`N_c` of the :math:`N` labels of the batch are of class c, and :math:`\ell_i` is the cross-entropy of row i.
    If all labels are of one class, all weights are 0, and the plain cross-entropy is returned.
    """
    output, target = _labelled(output, target)
    total = len(target)
    count = torch.bincount(target, minlength=output.size(1))
    if bool((count == total).any()):
        # The mean over weights that are all 0 would be NaN.
        return cross_entropy(output, target)
    # Counts may be too large for half precision; shares are not.
    weight = (total - count).double() / total
    return F.cross_entropy(output, target, weight.to(output.dtype))


def log_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the loss of the ogbn-arxiv models: the mean of :math:`\log(\ell_i + \epsilon) - \log \epsilon`.

    :math:`\ell_i` is the cross-entropy of row i and :math:`\epsilon = 1 - \ln 2`.
    """
    epsilon = 1 - math.log(2)
    each = F.cross_entropy(*_labelled(output, target), reduction="none")
    return _mean(torch.log(each + epsilon) - math.log(epsilon))


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the mean of :math:`-y \log s(\hat{y}) - (1 - y) \log(1 - s(\hat{y}))` over all labels.

    The model has one logit per label, and :math:`s` is the sigmoid.
    """
    return _mean(F.binary_cross_entropy_with_logits(*_known(output, target), reduction="none"))


def l1(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the mean of :math:`|\hat{y} - y|`."""
    return _mean(F.l1_loss(*_known(output, target), reduction="none"))


def mse(output: Tensor, target: Tensor) -> Tensor:
    r"""Return the mean of :math:`(\hat{y} - y)^2`."""
    return _mean(F.mse_loss(*_known(output, target), reduction="none"))


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("cross_entropy", "classes", cross_entropy),
        Loss("weighted_cross_entropy", "classes", weighted_cross_entropy, per_batch=True),
        Loss("log_cross_entropy", "classes", log_cross_entropy),
        Loss("binary_cross_entropy", "two classes", binary_cross_entropy),
        Loss("l1", "numbers", l1),
        Loss("mse", "numbers", mse),
    )
}
"""All losses by name."""


def align(output: Tensor, target: Tensor) -> Tensor:
    """Return the output in the shape of the target: a single output column may be left out of the target's shape."""
    if output.dim() == 2 and target.dim() == 1 and output.size(1) == 1:
        output = output.squeeze(1)
    if output.shape != target.shape:
        raise ValueError(f"output: expected shape {list(target.shape)}, got {list(output.shape)}")
    return output


def _mean(each: Tensor) -> Tensor:
    # The mean over no label would be NaN, and a single batch without labels would end a training run.
    return each.mean() if len(each) else each.sum()


def _labelled(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows that have a class."""
    if output.dim() != 2 or target.shape != output.shape[:1]:
        raise ValueError(f"output: expected shape [{len(target)}, classes], got {list(output.shape)}")
    known = target >= 0
    return (output, target) if bool(known.all()) else (output[known], target[known])


def _known(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entries whose target is a number."""
    output = align(output, target)
    target = target.to(output.dtype)
    known = ~torch.isnan(target)
    return (output, target) if bool(known.all()) else (output[known], target[known])
