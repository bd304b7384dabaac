"""Losses: what a task is trained on; rows without a label (-1 among classes, NaN among numbers) do not count.

Where no row has a label the loss is 0, and so is its gradient.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""From output and target to a scalar."""


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`-\log \mathrm{softmax}(\hat{y}_i)_{y_i}`, output `[M, C]`, target int64 `[M]`."""
    return _mean(F.cross_entropy(*_labelled(output, target), reduction="none"))


def weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Cross-entropy with the weights of PATTERN and CLUSTER, :math:`w_c = (N - N_c) / N` where :math:`N_c > 0`.

    .. math:: \sum_i w_{y_i} \ell_i \Big/ \sum_i w_{y_i}

    :math:`N_c` of the :math:`N` labels of the batch are of class c, :math:`\ell_i` is the cross-entropy of row i.
    Labels of one class alone, which have no weight, count equally.
    """
    output, target = _labelled(output, target)
    total = len(target)
    count = torch.bincount(target, minlength=output.size(1))
    if bool((count == total).any()):
        # The mean over no weight would be NaN.
        return cross_entropy(output, target)
    # Counts may be too large for half precision, their shares are not.
    weight = (total - count).double() / total
    return F.cross_entropy(output, target, weight.to(output.dtype))


def log_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The loss of the ogbn-arxiv models: the mean of :math:`\log(\ell_i + \epsilon) - \log \epsilon`.

    :math:`\ell_i` is the cross-entropy of row i and :math:`\epsilon = 1 - \ln 2`.
    """
    epsilon = 1 - math.log(2)
    each = F.cross_entropy(*_labelled(output, target), reduction="none")
    return _mean(torch.log(each + epsilon) - math.log(epsilon))


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`-y \log s(\hat{y}) - (1 - y) \log(1 - s(\hat{y}))` over all labels, one logit per label."""
    return _mean(F.binary_cross_entropy_with_logits(*_aligned(output, target), reduction="none"))


def l1(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`|\hat{y} - y|`."""
    return _mean(F.l1_loss(*_aligned(output, target), reduction="none"))


def mse(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`(\hat{y} - y)^2`."""
    return _mean(F.mse_loss(*_aligned(output, target), reduction="none"))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "weighted_cross_entropy": weighted_cross_entropy,
    "log_cross_entropy": log_cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "l1": l1,
    "mse": mse,
}
"""All losses by name."""

LOSSES_OF_CLASSES = ("cross_entropy", "weighted_cross_entropy", "log_cross_entropy")
"""The losses whose targets are classes; those of the others are numbers."""


LOSSES_OF_BATCHES = ("weighted_cross_entropy",)
"""The losses that are no mean over labels: they depend on how rows are put into batches."""


def count_labels(loss: str, target: Tensor) -> int:
    """How many labels the loss of that name is a mean over."""
    return int((target >= 0 if loss in LOSSES_OF_CLASSES else ~torch.isnan(target)).sum())


def _mean(each: Tensor) -> Tensor:
    # The mean over no label would be NaN, and end a training run for one batch without labels.
    return each.mean() if len(each) else each.sum()


def _labelled(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if output.dim() != 2 or target.shape != output.shape[:1]:
        raise ValueError(f"output: expected shape [{len(target)}, classes], got {list(output.shape)}")
    known = target >= 0
    return (output, target) if bool(known.all()) else (output[known], target[known])


def _aligned(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if output.dim() == 2 and target.dim() == 1 and output.size(1) == 1:
        output = output.squeeze(1)
    if output.shape != target.shape:
        raise ValueError(f"output: expected shape {list(target.shape)}, got {list(output.shape)}")
    target = target.to(output.dtype)
    known = ~torch.isnan(target)
    return (output, target) if bool(known.all()) else (output[known], target[known])
