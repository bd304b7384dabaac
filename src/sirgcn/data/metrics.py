"""Metrics: what a task is measured by, each with its direction and the exact rule of its benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from torch import Tensor

from sirgcn.data.losses import LOSSES, Targets, align


@dataclass(frozen=True)
class Metric:
    """A metric: `metric(outputs, targets)` is its value over the batches of an evaluation.

    Args:
        name: the key in `METRICS`.
        title: the name that a reader sees.
        targets: what the metric is for. Metrics for "classes" and "two classes" also accept the numbers 0 and 1.
        maximise: whether a larger value is better.
        compute: the function from output `[rows, outputs]` (or `[rows]`) and target to a number.
        per_batch: whether the value is the mean over batches, as PATTERN and CLUSTER define it. Otherwise the value is
            computed once from all rows.
        loss: the name of the loss that is smallest where the metric is best, if there is one.
        has_majority_bias: whether a model that always predicts the most frequent class scores well.

    >>> metric = METRICS["accuracy"]
    >>> metric.title, metric.targets, metric.maximise
    ('accuracy', 'classes', True)
    >>> metric([torch.tensor([[2.0, 1.0], [0.0, 3.0]])], [torch.tensor([0, 0])])
    0.5
    """

    name: str
    title: str
    targets: Targets
    maximise: bool
    compute: Callable[[Tensor, Tensor], float]
    per_batch: bool = False
    loss: str | None = None
    has_majority_bias: bool = False

    def __call__(self, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> float:
        """Compute the value; rows without a label (-1 among classes, NaN among numbers) do not count."""
        if not outputs or len(outputs) != len(targets):
            raise ValueError(f"outputs: expected as many batches as targets, got {len(outputs)} and {len(targets)}")
        if self.per_batch:
            pairs = list(zip(outputs, targets, strict=True))
            labelled = [pair for pair in pairs if bool(_is_class(pair[1]).any())]
            return float(np.mean([self.compute(*pair) for pair in labelled or pairs]))
        return self.compute(torch.cat(list(outputs)), torch.cat(list(targets)))

    def better(self, value: float, than: float) -> bool:
        """Return whether one value of the metric is better than another."""
        return value > than if self.maximise else value < than

    def can_measure(self, targets: Targets) -> bool:
        """Return whether the metric is defined for such targets: what is for classes is for two classes, too."""
        return targets == self.targets or (targets == "two classes" and self.targets == "classes")


def accuracy(output: Tensor, target: Tensor) -> float:
    r"""Return the share of rows whose class is predicted, :math:`\frac{1}{M} \sum_i [\hat{y}_i = y_i]`.

    The predicted class is the one with the largest of `[M, C]` scores. With one logit per label, class 1 is predicted
    where the logit is above 0.
    """
    predicted, known = _classes(output, target)
    return float((predicted == known).double().mean())


def class_accuracy(output: Tensor, target: Tensor) -> float:
    r"""Return the class-averaged accuracy as PATTERN and CLUSTER define it: the mean over classes of the recall.

    .. math:: \frac{1}{|\mathcal{C}|} \sum_{c \in \mathcal{C}} \frac{|\{i: \hat{y}_i = y_i = c\}|}{|\{i: y_i = c\}|}

    :math:`\mathcal{C}` holds every class that is a label or a prediction. A class that is predicted but is no label
    scores 0.
    """
    predicted, known = _classes(output, target)
    classes = torch.cat([predicted, known]).unique()
    recalls = [(predicted[known == c] == c).double().mean() for c in known.unique()]
    return float(sum(recalls) / len(classes))


def balanced_accuracy(output: Tensor, target: Tensor) -> float:
    r"""Return the mean over the classes that occur among the labels of the share of their rows that is predicted.

    .. math:: \frac{1}{|\mathcal{C}|} \sum_{c \in \mathcal{C}} \frac{|\{i: \hat{y}_i = y_i = c\}|}{|\{i: y_i = c\}|}

    It is that of scikit-learn, over all rows at once. With one logit per label, class 1 is predicted where the logit is
    above 0.
    """
    predicted, known = _classes(output, target)
    return float(np.mean([float((predicted[known == c] == c).double().mean()) for c in known.unique()]))


def f1(output: Tensor, target: Tensor) -> float:
    """Return the mean over classes of the harmonic mean of precision and recall (macro F1)."""
    predicted, known = _classes(output, target)
    return float(f1_score(known.numpy(), predicted.numpy(), average="macro", zero_division=0))


def roc_auc(output: Tensor, target: Tensor) -> float:
    """Return the area under the ROC curve of one score per task, by OGB's rule the mean over tasks.

    A task counts if it has a positive and a negative label. Labels that are NaN do not count. Scores `[M, 2]` of two
    classes are reduced to their difference. The logits `[M, C]` of more classes become probabilities, and each class
    against the rest is a task.
    """
    return _over_tasks(roc_auc_score, output, target)


def average_precision(output: Tensor, target: Tensor) -> float:
    """Return the area under the precision-recall curve by steps, averaged over tasks as `roc_auc` is."""
    return _over_tasks(average_precision_score, output, target)


def mae(output: Tensor, target: Tensor) -> float:
    r"""Return the mean absolute error :math:`\frac{1}{M} \sum_i |\hat{y}_i - y_i|`."""
    return float(_errors(output, target).abs().mean())


def mse(output: Tensor, target: Tensor) -> float:
    r"""Return the mean squared error :math:`\frac{1}{M} \sum_i (\hat{y}_i - y_i)^2`."""
    return float(_errors(output, target).square().mean())


def rmse(output: Tensor, target: Tensor) -> float:
    r"""Return the root of the mean squared error."""
    return mse(output, target) ** 0.5


def r2(output: Tensor, target: Tensor) -> float:
    r"""Return the share of the variance that is explained.

    .. math:: 1 - \sum_i (\hat{y}_i - y_i)^2 \Big/ \sum_i (y_i - \bar{y})^2

    It is the mean over targets. A target without any variance does not count; if no target has any, the result is NaN.
    """
    output, target = output.detach().cpu().double(), target.detach().cpu().double()
    output = align(output, target)
    if target.dim() == 1:
        output, target = output.unsqueeze(1), target.unsqueeze(1)
    known = ~torch.isnan(target)
    if not bool(known.any()):
        raise ValueError("target: expected at least one label, got none")
    error = (output - target).square().nansum(0)
    spread = (target - target.nanmean(0)).square().nansum(0)
    return float((1 - error / spread)[spread > 0].mean())


def log_loss(output: Tensor, target: Tensor) -> float:
    r"""Return the mean of :math:`-\log p_i`, with :math:`p_i` the predicted probability of the label.

    Outputs are logits: `[M, C]` for classes, one logit per label otherwise.
    """
    output, target = output.detach().cpu().double(), target.detach().cpu()
    loss = LOSSES["binary_cross_entropy" if target.is_floating_point() else "cross_entropy"]
    if not loss.count_labels(target):
        raise ValueError("target: expected at least one label, got none")
    return float(loss(output, target))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", "classes", True, accuracy, has_majority_bias=True),
        Metric("class_accuracy", "class-averaged accuracy", "classes", True, class_accuracy, per_batch=True),
        Metric("balanced_accuracy", "balanced accuracy", "classes", True, balanced_accuracy),
        Metric("f1", "macro F1", "classes", True, f1),
        Metric("roc_auc", "ROC-AUC", "two classes", True, roc_auc),
        Metric("average_precision", "average precision", "two classes", True, average_precision),
        Metric("log_loss", "log-loss", "classes", False, log_loss),
        Metric("mae", "mean absolute error", "numbers", False, mae, loss="l1"),
        Metric("mse", "mean squared error", "numbers", False, mse, loss="mse"),
        Metric("rmse", "root mean squared error", "numbers", False, rmse, loss="mse"),
        Metric("r2", "R²", "numbers", True, r2, loss="mse"),
    )
}
"""All metrics by name."""


def metrics_for(targets: Targets) -> list[str]:
    """Return the names of the metrics for such targets, the default first.

    >>> metrics_for("numbers")[0]
    'mae'
    """
    return [metric.name for metric in METRICS.values() if metric.can_measure(targets)]


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
        output, target = _tasks_of(output, target)
    output = align(output, target)
    found = []
    for scores, labels in zip(output.T, target.T, strict=True):
        known = _is_class(labels)
        if bool((labels == 0).any()) and bool((labels == 1).any()):
            found.append(score(labels[known].numpy(), scores[known].numpy()))
    if not found:
        raise ValueError("target: expected a task with a positive and a negative label, got none")
    return float(np.mean(found))


def _tasks_of(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores and the labels of one task, or of each class against the rest if there are more than two."""
    if output.dim() == 1 or output.size(1) == 1:
        return output.reshape(-1, 1), target.unsqueeze(1)
    if output.size(1) == 2:
        return output[:, 1:] - output[:, :1], target.unsqueeze(1)
    is_class = (target.unsqueeze(1) == torch.arange(output.size(1))).double()
    is_class[~_is_class(target)] = torch.nan
    return output.softmax(1), is_class


def _errors(output: Tensor, target: Tensor) -> Tensor:
    output, target = output.detach().cpu().double(), target.detach().cpu().double()
    output = align(output, target)
    known = ~torch.isnan(target)
    if not bool(known.any()):
        raise ValueError("target: expected at least one label, got none")
    return output[known] - target[known]
