"""Metrics: what a task is measured by, each with its direction and the exact rule of its benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """A metric: `metric(outputs, targets)` over the batches of an evaluation.

    Args:
        name: as in the table of metrics.
        maximise: whether more is better.
        compute: from output `[rows, outputs]` (or `[rows]`) and target, to a number.
        per_batch: the mean over batches of the batch's value, as PATTERN and CLUSTER have it, instead of one value of
            all rows.
    """

    name: str
    maximise: bool
    compute: Callable[[Tensor, Tensor], float]
    per_batch: bool = False

    def __call__(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> float:
        """Its value; rows without a label (-1 among classes, NaN among numbers) do not count."""
        if not outputs or len(outputs) != len(targets):
            raise ValueError(f"outputs: expected as many batches as targets, got {len(outputs)} and {len(targets)}")
        if self.per_batch:
            pairs = list(zip(outputs, targets, strict=True))
            labelled = [pair for pair in pairs if bool(_is_class(pair[1]).any())]
            return float(np.mean([self.compute(*pair) for pair in labelled or pairs]))
        return self.compute(torch.cat(list(outputs)), torch.cat(list(targets)))

    def better(self, value: float, than: float) -> bool:
        """Whether one value of it is better than another."""
        return value > than if self.maximise else value < than


def accuracy(output: Tensor, target: Tensor) -> float:
    r"""The share of rows whose class is predicted, :math:`\frac{1}{M} \sum_i [\hat{y}_i = y_i]`.

    The prediction is the largest of `[M, C]` scores, or of one logit per label whether it is above 0.
    """
    predicted, known = _classes(output, target)
    return float((predicted == known).double().mean())


def class_accuracy(output: Tensor, target: Tensor) -> float:
    r"""Class-averaged accuracy as PATTERN and CLUSTER use it: the mean over classes of the recall.

    .. math:: \frac{1}{|\mathcal{C}|} \sum_{c \in \mathcal{C}} \frac{|\{i: \hat{y}_i = y_i = c\}|}{|\{i: y_i = c\}|}

    :math:`\mathcal{C}` holds every class that is a label or a prediction; one that is predicted but absent scores 0.
    """
    predicted, known = _classes(output, target)
    classes = torch.cat([predicted, known]).unique()
    recall = [(predicted[known == c] == c).double().mean() if bool((known == c).any()) else 0.0 for c in classes]
    return float(sum(recall) / len(recall))


def f1(output: Tensor, target: Tensor) -> float:
    """The mean over classes of the harmonic mean of precision and recall (macro F1)."""
    predicted, known = _classes(output, target)
    return float(f1_score(known.numpy(), predicted.numpy(), average="macro", zero_division=0))


def roc_auc(output: Tensor, target: Tensor) -> float:
    """The area under the ROC curve of one score per task, OGB's rule over several tasks.

    A task counts if it has a positive and a negative label; labels that are NaN do not count; the value is the mean
    over tasks. Scores `[M, 2]` of two classes are read as their difference.
    """
    return _over_tasks(roc_auc_score, output, target)


def average_precision(output: Tensor, target: Tensor) -> float:
    """The area under the precision-recall curve by steps, averaged over tasks as `roc_auc` is."""
    return _over_tasks(average_precision_score, output, target)


def mae(output: Tensor, target: Tensor) -> float:
    r"""The mean absolute error :math:`\frac{1}{M} \sum_i |\hat{y}_i - y_i|`."""
    return float(_errors(output, target).abs().mean())


def mse(output: Tensor, target: Tensor) -> float:
    r"""The mean squared error :math:`\frac{1}{M} \sum_i (\hat{y}_i - y_i)^2`."""
    return float(_errors(output, target).square().mean())


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", True, accuracy),
        Metric("class_accuracy", True, class_accuracy, per_batch=True),
        Metric("f1", True, f1),
        Metric("roc_auc", True, roc_auc),
        Metric("average_precision", True, average_precision),
        Metric("mae", False, mae),
        Metric("mse", False, mse),
    )
}
"""All metrics by name."""

METRICS_OF_CLASSES = ("accuracy", "class_accuracy", "f1", "roc_auc", "average_precision")
"""The metrics whose targets are classes or 0 and 1; those of the others are any numbers."""


def _classes(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    output, target = output.detach().cpu(), target.detach().cpu()
    if output.dim() == 2 and target.dim() == 1 and output.size(1) == 1:
        output = output.squeeze(1)
    predicted = (output > 0).long() if output.dim() == target.dim() else output.argmax(-1)
    if predicted.shape != target.shape:
        raise ValueError(f"output: expected scores for targets {list(target.shape)}, got shape {list(output.shape)}")
    known = _is_class(target)
    if not bool(known.any()):
        raise ValueError("target: expected at least one label, got none")
    return predicted[known], target[known].long()


def _is_class(target: Tensor) -> Tensor:
    return torch.isfinite(target) & (target >= 0)


def _over_tasks(score: Callable[..., float], output: Tensor, target: Tensor) -> float:
    output, target = output.detach().cpu().double(), target.detach().cpu().double()
    if target.dim() == 1:
        if output.dim() == 2 and output.size(1) == 2:
            output = output[:, 1] - output[:, 0]
        output, target = output.reshape(-1, 1), target.unsqueeze(1)
    if output.shape != target.shape:
        raise ValueError(f"output: expected shape {list(target.shape)}, got {list(output.shape)}")
    found = []
    for scores, labels in zip(output.T, target.T, strict=True):
        known = _is_class(labels)
        if bool((labels == 0).any()) and bool((labels == 1).any()):
            found.append(score(labels[known].numpy(), scores[known].numpy()))
    if not found:
        raise ValueError("target: expected a task with a positive and a negative label, got none")
    return float(np.mean(found))


def _errors(output: Tensor, target: Tensor) -> Tensor:
    output, target = output.detach().cpu().double(), target.detach().cpu().double()
    if output.dim() == 2 and target.dim() == 1 and output.size(1) == 1:
        output = output.squeeze(1)
    if output.shape != target.shape:
        raise ValueError(f"output: expected shape {list(target.shape)}, got {list(output.shape)}")
    known = ~torch.isnan(target)
    if not bool(known.any()):
        raise ValueError("target: expected at least one label, got none")
    return output[known] - target[known]
