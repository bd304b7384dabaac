"""Evaluation: metrics of the rows alone, where a model errs, and plain values."""

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.data import METRICS, Graphs, Schema, Split, Task, load_tables
from sirgcn.model import Problem
from sirgcn.model.calibration import calibrate_outputs
from sirgcn.model.evaluation import Evaluation, evaluate_outputs, metric_names
from sirgcn.model.slices import distances, slices_of

COUNT = 120


def task_of(y: Tensor, loss: str, metric: str, outputs: int = 1) -> Task:
    """Nodes on a ring with chords, the last forty of which are tested."""
    count = len(y)
    around = torch.stack([torch.arange(count), (torch.arange(count) + 1) % count])
    chords = torch.randint(0, count, (2, 60), generator=torch.Generator().manual_seed(0))
    edges = torch.cat([around, around.flip(0), chords], dim=1)
    graphs = Graphs(torch.randn(count, 3, generator=torch.Generator().manual_seed(1)), edges, y, "node")
    split = Split(torch.arange(40), torch.arange(40, 80), torch.arange(80, count))
    return Task("drawn", graphs, Schema(3, outputs=outputs), (split,), loss, metric)


def of_sort(sort: str) -> tuple[Task, Tensor]:
    """A task and outputs for its test rows."""
    generator = torch.Generator().manual_seed(2)
    if sort == "classes":
        y = torch.randint(0, 3, (COUNT,), generator=generator)
        outputs = torch.randn(40, 3, generator=generator) + 2 * torch.nn.functional.one_hot(y[80:], 3)
        return task_of(y, "cross_entropy", "accuracy", 3), outputs
    if sort == "labels":
        y = torch.randint(0, 2, (COUNT, 2), generator=generator).float()
        y[85:90, 1] = torch.nan
        return task_of(y, "binary_cross_entropy", "roc_auc", 2), torch.randn(40, 2, generator=generator)
    y = torch.randn(COUNT, generator=generator)
    return task_of(y, "mse", "mae"), y[80:].unsqueeze(1) + 0.5 * torch.randn(40, 1, generator=generator)


ROWS = torch.arange(80, COUNT)


@pytest.mark.parametrize("sort", ["classes", "labels", "numbers"])
def test_an_evaluation_is_the_metrics_on_these_rows_and_plain_values(sort: str) -> None:
    task, outputs = of_sort(sort)
    found = evaluate_outputs(Problem.of(task), outputs, task, ROWS)
    assert list(found.scores) == list(metric_names(Problem.of(task)))
    assert next(iter(found.scores)) == task.metric
    for name, score in found.scores.items():
        assert score.value == pytest.approx(METRICS[name]([outputs.double()], [task.graphs.y[ROWS]]))
        assert score.low <= score.value <= score.high
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


def test_a_metric_that_the_rows_leave_undefined_is_left_out() -> None:
    task, outputs = of_sort("classes")
    y = task.graphs.y.clone()
    y[80:] = 1
    changed = replace(task, graphs=replace(task.graphs, y=y))
    found = evaluate_outputs(Problem.of(changed), outputs, changed, ROWS)
    assert "roc_auc" not in found.scores
    assert "accuracy" in found.scores


def test_rows_are_needed() -> None:
    task, outputs = of_sort("classes")
    with pytest.raises(ValueError, match="expected at least one labelled row to evaluate, got none"):
        evaluate_outputs(Problem.of(task), outputs[:0], task, ROWS[:0])


def test_the_confusion_matrix_counts_every_row_once() -> None:
    task, outputs = of_sort("classes")
    (matrix,) = evaluate_outputs(Problem.of(task), outputs, task, ROWS).confusion
    counts = torch.tensor(matrix["counts"])
    y, predicted = task.graphs.y[ROWS], outputs.argmax(1)
    for true in range(3):
        for other in range(3):
            assert counts[true, other] == ((y == true) & (predicted == other)).sum()
    labels, logits = of_sort("labels")
    several = evaluate_outputs(Problem.of(labels), logits, labels, ROWS).confusion
    assert [matrix["target"] for matrix in several] == ["y0", "y1"]
    assert torch.tensor(several[1]["counts"]).sum() == 35


def test_reliability_counts_every_row_and_says_how_often_it_was_right() -> None:
    task, outputs = of_sort("classes")
    bins = evaluate_outputs(Problem.of(task), outputs, task, ROWS).reliability
    assert sum(one["rows"] for one in bins) == 40
    right = sum(one["rows"] * one["right"] for one in bins) / 40
    assert right == pytest.approx(METRICS["accuracy"]([outputs], [task.graphs.y[ROWS]]))
    assert all(one["from"] <= one["probability"] <= one["to"] for one in bins)


def test_a_threshold_moves_decisions_and_no_ranking() -> None:
    task = task_of((torch.arange(COUNT) % 4 == 0).long(), "cross_entropy", "accuracy", 2)
    problem, y = Problem.of(task), task.graphs.y
    outputs = torch.randn(40, 2, generator=torch.Generator().manual_seed(3))
    outputs[:, 0] += 2
    calibration = calibrate_outputs("classes", outputs, y[ROWS])
    plain = evaluate_outputs(problem, outputs, task, ROWS, calibration)
    moved = evaluate_outputs(problem, outputs, task, ROWS, calibration.deciding_for("f1"))
    assert moved.scores["roc_auc"] == plain.scores["roc_auc"]
    assert moved.scores["log_loss"] == plain.scores["log_loss"]
    decided = calibration.deciding_for("f1").decide(calibration.probabilities(outputs.double()))
    assert moved.scores["accuracy"].value == pytest.approx(float((decided == y[ROWS]).double().mean()))
    assert torch.tensor(moved.confusion[0]["counts"])[:, 1].sum() == int(decided.sum())


@pytest.mark.parametrize("sort", ["classes", "labels", "numbers"])
def test_coverage_is_the_share_of_rows_that_the_sets_hold(sort: Any) -> None:
    task, outputs = of_sort(sort)
    y = task.graphs.y[ROWS]
    calibration = calibrate_outputs(sort, outputs, y)
    found = evaluate_outputs(Problem.of(task), outputs, task, ROWS, calibration).coverage
    # The rows that it was calibrated on: exactly the rank of the level, at least.
    assert 0.9 <= found["held"] <= 0.95
    assert found["size"] > 0


def test_the_worst_mistakes_come_first_and_are_mistakes() -> None:
    task, outputs = of_sort("classes")
    found = evaluate_outputs(Problem.of(task), outputs, task, ROWS).mistakes
    assert all(one["true"] != one["predicted"] for one in found)
    shares = [one["probability_of_true"] for one in found]
    assert shares == sorted(shares)
    task, outputs = of_sort("numbers")
    worst = evaluate_outputs(Problem.of(task), outputs, task, ROWS).mistakes[0]
    errors = (outputs[:, 0] - task.graphs.y[ROWS]).abs()
    assert worst["row"] == 80 + int(errors.argmax())


def test_a_perfect_model_has_no_mistakes() -> None:
    task, _ = of_sort("numbers")
    y = task.graphs.y[ROWS].unsqueeze(1)
    assert not evaluate_outputs(Problem.of(task), y, task, ROWS).mistakes
    labels, _ = of_sort("labels")
    sure = (labels.graphs.y[ROWS].nan_to_num() - 0.5) * 20
    assert not evaluate_outputs(Problem.of(labels), sure, labels, ROWS).mistakes


@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 10**6))
def test_distances_are_those_of_a_plain_search(nodes: int, edges: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    start = torch.randint(0, nodes, (2,), generator=generator).unique()
    found = distances(index, start, nodes).tolist()
    reached = dict.fromkeys(start.tolist(), 0)
    for step in range(1, nodes + 1):
        for a, b in index.T.tolist():
            for one, other in ((a, b), (b, a)):
                if reached.get(one) == step - 1 and other not in reached:
                    reached[other] = step
    for node in range(nodes):
        if node in reached:
            assert found[node] == min(reached[node], 4)
        else:
            assert found[node] > 4


def test_slices_of_one_kind_hold_every_row_once() -> None:
    task, outputs = of_sort("classes")
    found = slices_of(Problem.of(task), outputs, task, ROWS)
    kinds = {one["by"] for one in found}
    assert kinds >= {"class", "neighbours of the node", "neighbours of the same class"}
    right = float((outputs.argmax(1) == task.graphs.y[ROWS]).double().mean())
    for kind in ("class", "neighbours of the node"):
        own = [one for one in found if one["by"] == kind]
        assert sum(one["rows"] for one in own) == 40
        assert sum(one["rows"] * one["value"] for one in own) / 40 == pytest.approx(right)


def test_rows_with_missing_values_are_a_slice() -> None:
    count = 100
    nodes = pd.DataFrame({"id": range(count), "size": [float(i) for i in range(count)], "label": ["x", "y"] * 50})
    nodes.loc[::4, "size"] = None
    edges = pd.DataFrame({"source": range(count - 1), "target": range(1, count)})
    task = load_tables(nodes, edges)
    rows = torch.arange(count)
    found = slices_of(Problem.of(task), torch.zeros(count, 2), task, rows)
    by = {one["name"]: one["rows"] for one in found if one["by"] == "missing values of the row"}
    assert by == {"none": 75, "1": 25}


def test_an_id_names_a_mistake() -> None:
    nodes = pd.DataFrame({"id": [f"A{i}" for i in range(60)], "size": range(60), "label": ["x", "y"] * 30})
    edges = pd.DataFrame({"source": [f"A{i}" for i in range(59)], "target": [f"A{i}" for i in range(1, 60)]})
    task = load_tables(nodes, edges)
    outputs = torch.tensor([[5.0, 0.0]]).expand(60, 2)
    found = evaluate_outputs(Problem.of(task), outputs, task, torch.arange(60)).mistakes
    assert found[0]["id"] == f"A{found[0]['row']}"
    assert found[0]["true"] == "y"


def test_values_that_are_not_finite_are_null() -> None:
    task, outputs = of_sort("numbers")
    found = evaluate_outputs(Problem.of(task), outputs, task, ROWS)
    odd = Evaluation(found.rows, found.metric, found.scores, coverage={"size": float("inf")})
    assert odd.to_dict()["coverage"] == {"size": None}
