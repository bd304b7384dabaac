import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    r2_score,
    roc_auc_score,
)
from torch import Tensor

from sirgcn.data import LOSSES, METRICS, Metric
from sirgcn.data.metrics import metrics_for
from sirgcn.report.claims import METRICS as TITLES

seeds = st.integers(0, 2**31)


def scores(seed: int, rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Scores with ties, and classes of which a few are unknown."""
    generator = torch.Generator().manual_seed(seed)
    output = torch.randint(-3, 4, (rows, classes), generator=generator).double()
    target = torch.randint(-1, classes, (rows,), generator=generator)
    target[0] = 0
    return output, target


def benchmark_accuracy(output: Tensor, target: Tensor) -> float:
    """The rule of Benchmarking GNNs: recalls from the confusion matrix, whose size is the number of classes met."""
    truth, predicted = target.numpy(), output.argmax(1).numpy()
    matrix = confusion_matrix(truth, predicted)
    recalls = np.zeros(len(matrix))
    for r in range(len(matrix)):
        members = np.flatnonzero(truth == r)
        if len(members):
            recalls[r] = matrix[r, r] / len(members)
    return float(recalls.sum() / len(matrix))


def ogb_mean(score: Callable[..., Any], output: Tensor, target: Tensor) -> float:
    """OGB's evaluator: tasks with a positive and a negative label, labelled rows only."""
    found = []
    for i in range(target.size(1)):
        column = target[:, i].numpy()
        if np.sum(column == 1) > 0 and np.sum(column == 0) > 0:
            labelled = column == column
            found.append(score(column[labelled], output[:, i].numpy()[labelled]))
    return float(sum(found) / len(found))


@given(seeds, st.integers(1, 20), st.integers(2, 5))
def test_accuracy_and_f1_are_scikit_learn_s_on_labelled_rows(seed: int, rows: int, classes: int) -> None:
    output, target = scores(seed, rows, classes)
    known = target >= 0
    truth, predicted = target[known], output.argmax(1)[known]
    assert METRICS["accuracy"]([output], [target]) == pytest.approx(accuracy_score(truth, predicted))
    expected = f1_score(truth, predicted, average="macro", zero_division=0)
    assert METRICS["f1"]([output], [target]) == pytest.approx(expected)


@given(seeds, st.integers(1, 20), st.integers(2, 5))
def test_balanced_accuracy_is_scikit_learn_s_and_does_not_depend_on_batches(seed: int, rows: int, classes: int) -> None:
    output, target = scores(seed, rows, classes)
    known = target >= 0
    # scikit-learn warns of a class that is predicted and is no label, and leaves it out as we do.
    with warnings.catch_warnings(action="ignore"):
        expected = balanced_accuracy_score(target[known], output.argmax(1)[known])
    assert METRICS["balanced_accuracy"]([output], [target]) == pytest.approx(expected)
    assert METRICS["balanced_accuracy"]([output[:1], output[1:]], [target[:1], target[1:]]) == pytest.approx(expected)


@given(seeds, st.integers(1, 20))
def test_one_logit_predicts_its_sign(seed: int, rows: int) -> None:
    output, target = scores(seed, rows, 2)
    logit = output[:, 1] - output[:, 0]
    for name in ("accuracy", "class_accuracy", "balanced_accuracy", "f1"):
        expected = METRICS[name].compute(output, target)
        assert METRICS[name].compute(logit, target) == expected
        assert METRICS[name].compute(logit.unsqueeze(1), target.double()) == expected


@given(seeds, st.integers(2, 4))
def test_class_accuracy_is_the_benchmark_s(seed: int, classes: int) -> None:
    # The benchmark's rule takes a row of its matrix for a class, which holds where no class is missed.
    output, target = scores(seed, 20, classes)
    target = torch.cat([target[target >= 0], torch.arange(classes)])
    output = torch.cat([output, torch.zeros(classes, classes).double()])[-len(target) :]
    assert METRICS["class_accuracy"]([output], [target]) == pytest.approx(benchmark_accuracy(output, target))


def test_a_class_that_is_predicted_but_absent_scores_0() -> None:
    output = torch.eye(3)[torch.tensor([0, 0, 2, 1])]
    assert METRICS["class_accuracy"]([output], [torch.tensor([0, 0, 1, 1])]) == pytest.approx((1 + 0.5 + 0) / 3)


def test_class_accuracy_is_averaged_over_batches() -> None:
    metric = METRICS["class_accuracy"]
    output = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    targets = [torch.tensor([0, 1]), torch.tensor([0, 1])]
    assert metric([output[:2], output[2:]], targets) == pytest.approx((1 + 0.5) / 2)
    assert METRICS["accuracy"]([output[:2], output[2:]], targets) == 0.75


def test_a_batch_without_labels_has_no_part_in_the_average() -> None:
    output = torch.eye(2)
    metric = METRICS["class_accuracy"]
    assert metric([output, output], [torch.tensor([0, 1]), torch.tensor([-1, -1])]) == 1


@given(seeds, st.integers(2, 20), st.integers(1, 4))
def test_areas_follow_ogb_s_rule_over_tasks(seed: int, rows: int, tasks: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randint(-3, 4, (rows, tasks), generator=generator).double()
    target = torch.randint(0, 2, (rows, tasks), generator=generator).double()
    target[torch.rand(rows, tasks, generator=generator) < 0.3] = float("nan")
    target[:2, 0] = torch.tensor([0.0, 1.0])
    for name, score in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        expected = ogb_mean(score, output, target)
        assert METRICS[name]([output], [target]) == pytest.approx(expected)
        assert METRICS[name]([output[:1], output[1:]], [target[:1], target[1:]]) == pytest.approx(expected)


def test_a_task_with_one_class_alone_is_left_out() -> None:
    target = torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, float("nan")]])
    output = torch.tensor([[0.1, 0.9], [0.7, 0.2], [0.3, 0.5]])
    assert METRICS["roc_auc"]([output], [target]) == 1
    with pytest.raises(ValueError, match="a positive and a negative label, got none"):
        METRICS["roc_auc"]([output[:, 1:]], [target[:, 1:]])


@given(seeds, st.integers(2, 20))
def test_two_classes_are_ranked_by_their_difference(seed: int, rows: int) -> None:
    output, target = scores(seed, rows, 2)
    target[:2] = torch.tensor([0, 1])
    known = target >= 0
    expected = roc_auc_score(target[known], output.softmax(1)[known, 1])
    assert METRICS["roc_auc"]([output], [target]) == pytest.approx(expected)
    assert METRICS["roc_auc"]([output[:, 1] - output[:, 0]], [target.double()]) == pytest.approx(expected)


@given(seeds, st.integers(1, 20), st.integers(1, 3))
def test_errors_are_means_over_all_labels(seed: int, rows: int, tasks: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    output, target = (torch.randn(rows, tasks, generator=generator) for _ in range(2))
    target[torch.rand(rows, tasks, generator=generator) < 0.3] = float("nan")
    target[0, 0] = 1.5
    errors = [
        a - b
        for a, b in zip(output.double().view(-1).tolist(), target.double().view(-1).tolist(), strict=True)
        if b == b
    ]
    assert METRICS["mae"]([output], [target]) == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert METRICS["mse"]([output], [target]) == pytest.approx(sum(e * e for e in errors) / len(errors))


def test_one_column_of_outputs_meets_flat_targets() -> None:
    for name in ("mae", "mse"):
        assert METRICS[name]([torch.zeros(3, 1)], [torch.tensor([2.0, 2.0, 2.0])]) == (2 if name == "mae" else 4)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_direction_says_what_is_better(metric: Metric) -> None:
    assert metric.better(0.9, 0.1) == metric.maximise
    assert not metric.better(0.5, 0.5)
    assert metric.maximise == (metric.name not in ("log_loss", "mae", "mse", "rmse"))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_nothing_to_measure_is_refused(metric: Metric) -> None:
    with pytest.raises(ValueError, match="expected"):
        metric([torch.zeros(2, 1)], [torch.full((2,), float("nan"))])
    with pytest.raises(ValueError, match="expected as many batches as targets, got 0 and 0"):
        metric([], [])


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_rows_that_do_not_fit_are_refused(metric: Metric) -> None:
    with pytest.raises(ValueError, match=r"^output: expected"):
        metric([torch.zeros(3, 1)], [torch.tensor([0.0, 1.0])])


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_half_precision_and_gradients_do_not_matter(metric: Metric) -> None:
    output = torch.tensor([1.5, -2.0, 0.5, -0.25], dtype=torch.bfloat16, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 0.0, 1.0])
    assert metric([output], [target]) == metric([output.detach().double()], [target])


@pytest.mark.parametrize("name", METRICS)
def test_the_report_calls_a_metric_by_its_title(name: str) -> None:
    # The report reads records without torch, so it cannot import the metrics themselves.
    assert TITLES[name] == METRICS[name].title


def test_a_metric_for_classes_measures_two_classes_too_but_no_numbers() -> None:
    of_classes = ["accuracy", "class_accuracy", "balanced_accuracy", "f1"]
    assert metrics_for("classes") == [*of_classes, "log_loss"]
    assert metrics_for("two classes") == [*of_classes, "roc_auc", "average_precision", "log_loss"]
    assert metrics_for("numbers") == ["mae", "mse", "rmse", "r2"]


@pytest.mark.parametrize("name", ["mae", "mse"])
def test_the_loss_of_a_metric_equals_it(name: str) -> None:
    output, target = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 4.0, float("nan")])
    loss = METRICS[name].loss
    assert loss is not None
    assert LOSSES[loss](output, target).item() == pytest.approx(METRICS[name]([output], [target]))


@pytest.mark.parametrize("name", metrics_for("numbers"))
@given(seeds)
def test_of_two_constants_the_loss_of_a_metric_and_the_metric_prefer_the_same(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target, (one, other) = torch.randn(9, generator=generator), torch.randn(2, generator=generator).tolist()
    loss, metric = LOSSES[METRICS[name].loss or ""], METRICS[name]
    first, second = torch.full((9,), one), torch.full((9,), other)
    prefers_first = bool(loss(first.double(), target.double()) < loss(second.double(), target.double()))
    assert metric.better(metric([first], [target]), metric([second], [target])) == prefers_first


@given(seeds, st.integers(3, 20))
def test_r2_is_the_mean_of_scikit_learn_s_over_targets(seed: int, rows: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    output, target = torch.randn(rows, 2, generator=generator), torch.randn(rows, 2, generator=generator)
    target[0, 0] = torch.nan
    expected = (r2_score(target[1:, 0], output[1:, 0]) + r2_score(target[:, 1], output[:, 1])) / 2
    assert METRICS["r2"]([output], [target]) == pytest.approx(expected)


@given(seeds, st.integers(6, 20))
def test_several_classes_are_ranked_one_against_the_rest(seed: int, rows: int) -> None:
    output, target = scores(seed, rows, 3)
    target[:3] = torch.arange(3)
    known = target >= 0
    share = output.softmax(1)[known].numpy()
    expected = roc_auc_score(target[known], share, multi_class="ovr", average="macro")
    assert METRICS["roc_auc"]([output], [target]) == pytest.approx(expected)


@given(seeds, st.integers(1, 20), st.integers(2, 5))
def test_log_loss_is_scikit_learn_s(seed: int, rows: int, classes: int) -> None:
    output, target = scores(seed, rows, classes)
    known = target >= 0
    expected = log_loss(target[known], output.softmax(1)[known].numpy(), labels=range(classes))
    assert METRICS["log_loss"]([output], [target]) == pytest.approx(expected)
