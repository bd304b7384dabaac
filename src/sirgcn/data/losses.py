"""Losses: what a task is trained on; rows without a label (-1 among classes, NaN among numbers) do not count."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
"""From output and target to a scalar."""


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`-\log \mathrm{softmax}(\hat{y}_i)_{y_i}`, output `[M, C]`, target int64 `[M]`."""
    return F.cross_entropy(output, target, ignore_index=-1)


def weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""Cross-entropy with the weights of PATTERN and CLUSTER, :math:`w_c = (N - N_c) / N` where :math:`N_c > 0`.

    :math:`N_c` of the :math:`N` labels of the batch are of class c.
    """
    count = torch.bincount(target[target >= 0], minlength=output.size(1))
    total = count.sum()
    weight = torch.where(count > 0, (total - count) / total, 0.0).to(output.dtype)
    if bool((weight == 0).all()):
        # One class alone has weight 0, and a mean over no weight is NaN.
        return cross_entropy(output, target)
    return F.cross_entropy(output, target, weight, ignore_index=-1)


def log_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The loss of the ogbn-arxiv models: the mean of :math:`\log(\ell_i + \epsilon) - \log \epsilon`.

    :math:`\ell_i` is the cross-entropy of row i and :math:`\epsilon = 1 - \ln 2`.
    """
    epsilon = 1 - math.log(2)
    known = target >= 0
    each = F.cross_entropy(output[known], target[known], reduction="none")
    return (torch.log(each + epsilon) - math.log(epsilon)).mean()


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`-y \log s(\hat{y}) - (1 - y) \log(1 - s(\hat{y}))` over all labels, one logit per label."""
    output, target = _aligned(output, target)
    return F.binary_cross_entropy_with_logits(output, target)


def l1(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`|\hat{y} - y|`."""
    return F.l1_loss(*_aligned(output, target))


def mse(output: Tensor, target: Tensor) -> Tensor:
    r"""The mean of :math:`(\hat{y} - y)^2`."""
    return F.mse_loss(*_aligned(output, target))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "weighted_cross_entropy": weighted_cross_entropy,
    "log_cross_entropy": log_cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "l1": l1,
    "mse": mse,
}
"""All losses by name."""

OF_CLASSES = ("cross_entropy", "weighted_cross_entropy", "log_cross_entropy")
"""The losses whose targets are classes; those of the others are numbers."""


def _aligned(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if output.dim() == 2 and target.dim() == 1 and output.size(1) == 1:
        output = output.squeeze(1)
    if output.shape != target.shape:
        raise ValueError(f"output: expected shape {list(target.shape)}, got {list(output.shape)}")
    target = target.to(output.dtype)
    known = ~torch.isnan(target)
    return (output, target) if bool(known.all()) else (output[known], target[known])
