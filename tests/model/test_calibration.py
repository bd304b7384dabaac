"""Calibration: sets and intervals cover, temperature does no harm, carving is fair, and no broken document is read."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.data import METRICS, Graphs, Schema, Split, Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.calibration import FEWEST, Calibration, calibrate_outputs, carve
from sirgcn.model.conformal import KEPT, Scores
from sirgcn.model.temperature import fit_temperature, log_losses
from sirgcn.model.thresholds import DECISIONS, fit_threshold
from sirgcn.strict import ConfigError

RECORD = Path(__file__).parent.parent.parent / "results" / "model" / "calibration.json"
seeds = st.integers(0, 2**31)


def drawn(rows: int, seed: int, classes: int = 3, sure: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logits, and classes drawn from their probabilities; `sure` times too large."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    return logits * sure, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def task_of(y: Tensor, val: int, outputs: int = 1) -> Task:
    """Nodes without edges, whose last rows are the validation part."""
    count = len(y)
    graphs = Graphs(torch.zeros(count, 1), torch.zeros(2, 0, dtype=torch.int64), y, "node")
    split = Split(torch.arange(count - val), torch.arange(count - val, count), torch.arange(0))
    of_classes = not y.is_floating_point()
    names = ("cross_entropy", "accuracy") if of_classes else ("mse", "mse")
    return Task("drawn", graphs, Schema(1, outputs=outputs), (split,), *names)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_limit_is_the_score_of_the_finite_sample_rank(scores: list[float], level: float) -> None:
    rank = math.ceil(round((len(scores) + 1) * level, 9))
    expected = sorted(scores)[rank - 1] if rank <= len(scores) else math.inf
    assert Scores.of(torch.tensor(scores, dtype=torch.float64)).limit(level) == expected


@given(st.integers(KEPT, 5000), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]))
@settings(max_examples=20)
def test_scores_kept_compactly_never_cover_less_and_hardly_more(count: int, level: float) -> None:
    ranks = torch.arange(1.0, count + 1, dtype=torch.float64)
    found = Scores.of(ranks)
    assert len(found.values) == KEPT
    exact = math.ceil(round((count + 1) * level, 9))
    assert exact <= found.limit(level) <= exact + count / KEPT + 1


@pytest.mark.parametrize("sort", ["classes", "labels", "numbers"])
def test_sets_and_intervals_of_exchangeable_rows_cover_their_level(sort: Any) -> None:
    held = []
    for seed in range(60):
        logits, target = drawn(400, seed, sure=3.0)
        if sort == "numbers":
            logits, target = logits[:, :1], (logits[:, 0] + torch.randn(400)).float()
        if sort == "labels":
            logits, target = (logits[:, 1:2] - logits[:, :1]), (target == 1).float()
        calibration = calibrate_outputs(sort, logits[:100], target[:100])
        test, truth = logits[100:].double(), target[100:]
        if sort == "numbers":
            low, high = calibration.interval(test)
            held.append(float(((low[:, 0] <= truth) & (truth <= high[:, 0])).double().mean()))
            continue
        sets = calibration.sets(calibration.probabilities(test))
        sets = sets[:, 0] if sort == "labels" else sets
        held.append(float(sets.gather(1, truth.long().unsqueeze(1)).double().mean()))
    # 91 of 101 is 0.901; a draw of 100 rows has a deviation of 0.034, and the mean of 60 one of 0.0045.
    assert abs(sum(held) / len(held) - 0.901) < 0.015


@given(seeds, st.integers(2, 60), st.sampled_from([0.3, 1.0, 4.0]))
def test_temperature_is_never_worse_than_1_on_its_own_rows(seed: int, rows: int, sure: float) -> None:
    logits, target = drawn(rows, seed, sure=sure)
    found = fit_temperature(logits, target)
    before, after = (float(log_losses(logits.double() / t, target).mean()) for t in (1.0, found))
    assert after <= before + 1e-12


def test_temperature_finds_how_much_too_sure_logits_are() -> None:
    for sure in (0.5, 1.0, 3.0):
        assert fit_temperature(*drawn(5000, 0, sure=sure)) == pytest.approx(sure, rel=0.1)


def test_temperature_of_few_rows_stays_near_1_and_does_no_harm_on_others() -> None:
    harm = []
    for seed in range(50):
        logits, target = drawn(2040, seed)
        found = fit_temperature(logits[:40], target[:40])
        rest = logits[40:].double()
        harm.append(float((log_losses(rest / found, target[40:]) - log_losses(rest, target[40:])).mean()))
    assert sum(harm) / len(harm) < 0.01


@given(seeds, st.integers(2, 40), st.sampled_from(DECISIONS))
def test_no_other_threshold_is_better_on_its_own_rows(seed: int, rows: int, metric: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(rows, generator=generator).double()
    target = torch.randint(0, 2, (rows,), generator=generator)

    def value(limit: float) -> float:
        predicted = (share > limit).long()
        true = int(((predicted == 1) & (target == 1)).sum())
        if metric == "f1":
            return 2 * true / max(1, int(predicted.sum() + target.sum()))
        hits = [float((predicted[target == c] == c).double().mean()) for c in target.unique().tolist()]
        return sum(hits) / len(hits) if metric == "balanced_accuracy" else float((predicted == target).double().mean())

    found = fit_threshold(share, target, metric)
    if len(target.unique()) == 2:
        assert value(found) >= max(value(limit / 50) for limit in range(51)) - 1e-9


@given(seeds, st.integers(40, 200), st.integers(2, 5))
def test_carving_takes_half_of_every_class_of_the_validation_part_only(seed: int, val: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (val + 50,), generator=generator)
    y[:classes] = torch.arange(classes)
    task = task_of(y, val, classes)
    left, rows = carve(task, seed % 100)
    kept = left.splits[0].val
    assert len(rows) == val // 2
    assert sorted([*rows.tolist(), *kept.tolist()]) == task.splits[0].val.tolist()
    assert torch.equal(left.splits[0].train, task.splits[0].train)
    for label in range(classes):
        taken, all_of_it = int((y[rows] == label).sum()), int((y[task.splits[0].val] == label).sum())
        assert abs(taken - all_of_it / 2) <= 1


def test_carving_numbers_takes_small_and_large_ones_alike() -> None:
    y = torch.arange(300.0)
    _, rows = carve(task_of(y, 200))
    assert len(rows) == 100
    assert abs(float(y[rows].mean()) - float(y[100:].mean())) < 2


def test_nothing_is_carved_from_a_small_validation_part() -> None:
    y = torch.arange(100) % 2
    assert len(carve(task_of(y, 2 * FEWEST - 1, 2))[1]) == 0
    assert len(carve(task_of(y, 2 * FEWEST, 2))[1]) == FEWEST


def test_whole_graphs_are_carved_where_graphs_have_several_rows() -> None:
    count = 60
    y = torch.arange(2 * count) % 2
    pointer = torch.arange(0, 2 * count + 1, 2)
    graphs = Graphs(
        torch.zeros(2 * count, 1),
        torch.zeros(2, 0, dtype=torch.int64),
        y,
        "node",
        node_ptr=pointer,
        edge_ptr=torch.zeros(count + 1, dtype=torch.int64),
    )
    split = Split(torch.arange(10), torch.arange(10, 60), torch.arange(0))
    task = Task("many", graphs, Schema(1, outputs=2), (split,), "cross_entropy", "accuracy")
    left, rows = carve(task)
    assert len(left.splits[0].val) == 25
    assert len(rows) == 50
    assert set((rows // 2).tolist()).isdisjoint(left.splits[0].val.tolist())
    assert set(rows_of(left, "val").tolist()).isdisjoint(rows.tolist())


def test_a_calibration_without_rows_changes_nothing_and_refuses_sets() -> None:
    calibration = Calibration("classes", 3, temperatures=(1.0,))
    logits = torch.randn(4, 3)
    assert torch.equal(calibration.probabilities(logits), logits.softmax(1))
    assert torch.equal(calibration.decide(logits.softmax(1)), logits.argmax(1))
    with pytest.raises(ValueError, match="expected a model with calibration rows, got one without"):
        calibration.sets(logits.softmax(1))


def test_too_few_rows_for_a_level_give_everything() -> None:
    calibration = calibrate_outputs("numbers", torch.zeros(5, 1), torch.arange(5.0))
    low, high = calibration.interval(torch.zeros(2, 1), 0.9)
    assert torch.isinf(low).all()
    assert torch.isinf(high).all()
    logits, target = drawn(5, 0)
    assert calibrate_outputs("classes", logits, target).sets(logits.double().softmax(1), 0.99).all()


def test_labels_that_are_missing_do_not_count() -> None:
    logits = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    target = (torch.rand(40, 2, generator=torch.Generator().manual_seed(1)) > 0.5).float()
    target[20:, 1] = torch.nan
    found = calibrate_outputs("labels", logits, target)
    alone = calibrate_outputs("labels", logits[:20, 1:], target[:20, 1:])
    assert found.scores[1] == alone.scores[0]
    assert found.temperatures[1] == alone.temperatures[0]


def whole() -> dict[str, Any]:
    return calibrate_outputs("classes", *drawn(50, 0, classes=2)).to_dict()


@given(st.sampled_from(["classes", "labels", "numbers"]), seeds)
def test_a_calibration_survives_json(sort: Any, seed: int) -> None:
    logits, target = drawn(30, seed, classes=2)
    y = target if sort == "classes" else torch.stack([target, 1 - target], 1).float()
    found = calibrate_outputs(sort, logits, y)
    assert Calibration.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperatures": [0.0]}, "temperatures: expected finite numbers above 0"),
        ({"temperatures": [1.0, 1.0]}, "temperatures: expected 1, got 2"),
        ({"temperature": [1.0]}, "unknown key 'temperature'"),
        ({"sort": "clases"}, "did you mean classes"),
        ({"scores": [{"count": 2, "values": [2.0, 1.0]}]}, "expected finite numbers from small to large"),
        ({"scores": [{"count": 3, "values": [1.0]}]}, "expected 3 values, got 1"),
        ({"scores": [{"count": 1, "values": [float("nan")]}]}, "expected finite numbers"),
        ({"thresholds": {"f1": [2.0]}}, "f1: expected 1 numbers from 0 to 1"),
        ({"thresholds": {"f2": [0.5]}}, "thresholds: expected one of accuracy"),
        ({"thresholds": None, "decision": "f1"}, "decision: expected a metric with a threshold"),
        ({"rows": -1}, "rows: expected at least 0"),
    ],
)
def test_a_document_that_is_no_calibration_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Calibration.from_dict({**whole(), **change})


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_a_level_that_is_no_share_is_refused(level: float) -> None:
    with pytest.raises(ConfigError, match="level: expected a number between 0 and 1"):
        calibrate_outputs("classes", *drawn(50, 0)).sets(torch.full((1, 3), 1 / 3), level)


def test_decisions_follow_the_metric_that_is_chosen() -> None:
    logits, target = drawn(400, 3, classes=2)
    logits[:, 0] += 3
    calibration = calibrate_outputs("classes", logits, target)
    probabilities = calibration.probabilities(logits)

    def value(calibration: Calibration) -> float:
        decided = torch.nn.functional.one_hot(calibration.decide(probabilities), 2).double()
        return METRICS["balanced_accuracy"]([decided], [target])

    assert value(calibration.deciding_for("balanced_accuracy")) > value(calibration) + 0.05


def test_on_real_data_sets_hold_their_level_and_temperature_does_no_harm() -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    data = record["data"]
    assert record["level"] == 0.9
    assert len(data) >= 6
    assert all(len(found["draws"]) >= 10 for found in data.values())
    held = [sum(draw["held"] for draw in found["draws"]) / len(found["draws"]) for found in data.values()]
    assert 0.88 <= sum(held) / len(held) <= 0.92
    losses = [found["draws"] for found in data.values() if "log_loss" in found]
    assert len(losses) >= 6
    for draws in losses:
        assert all(draw["log_loss"] <= draw["log_loss_without"] + 0.01 for draw in draws)
