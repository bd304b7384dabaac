"""Fitting: every kind of task trains, limits hold, a killed fit ends as an uninterrupted one, ensembles are means."""

import json
import math
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from sirgcn.data import Graphs, Schema, Split, Task, load, load_tables
from sirgcn.engine.locks import Busy, held
from sirgcn.engine.loop import Trainer
from sirgcn.model import FitSettings, Model, fit
from sirgcn.model import trials as trials_room
from sirgcn.model.fitting import NotFitted, chosen_candidates
from sirgcn.model.seen import see
from sirgcn.model.trials import read_records
from sirgcn.strict import ConfigError
from tests.model.problems import nothing_learned, small_task

SHORT = {"epochs": 4, "warmup": 0}


class Listening:
    """A watcher that keeps what it is told, and that can end the process at some epoch."""

    def __init__(self, killed_at: int | None = None) -> None:
        self.said: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.killed_at = killed_at

    def say(self, text: str) -> None:
        self.said.append(text)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        self.rows.append(row | {"epochs": epochs})
        if len(self.rows) == self.killed_at:
            raise KeyboardInterrupt


def weights(model: Model) -> list[torch.Tensor]:
    return [tensor for member in model.members for tensor in member.network.state_dict().values()]


def equal(first: Model, second: Model) -> bool:
    one, other = weights(first), weights(second)
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("level", ["node", "edge", "graph"])
@pytest.mark.parametrize("sort", ["classes", "labels", "numbers"])
def test_every_kind_of_task_trains_and_beats_nothing_learned(level: Any, sort: Any) -> None:
    task = small_task(level, sort, count=60 if level == "graph" else 90)
    model = fit(task, FitSettings("fast", seeds=1, train={"epochs": 30, "lr": 0.01}))
    best = model.about["trials"][0]["val"]
    assert task.metric_function.better(best, nothing_learned(task) if sort != "labels" else 0.6)
    outputs = model.outputs(task.graphs)
    assert outputs.shape == (len(task.graphs.y), task.schema.outputs)
    assert bool(torch.isfinite(outputs).all())


@pytest.mark.parametrize("level", ["node", "edge", "graph"])
@pytest.mark.parametrize(("edge_columns", "categories"), [(True, False), (False, True), (True, True)])
def test_columns_of_edges_and_categories_are_read_by_every_candidate(
    level: Any, edge_columns: bool, categories: bool
) -> None:
    task = small_task(level, edge_columns=edge_columns, categories=categories, count=30)
    model = fit(task, FitSettings("good", train=SHORT))
    assert {row["status"] for row in model.about["trials"]} == {"done"}
    assert len(model.about["trials"]) >= 2


@pytest.mark.parametrize("rows", [6, 10])
def test_ten_rows_are_enough_to_train(rows: int) -> None:
    nodes = pd.DataFrame({"id": range(rows), "size": [1.0, 2.0] * (rows // 2), "label": ["x", "y"] * (rows // 2)})
    edges = pd.DataFrame({"source": range(rows - 1), "target": range(1, rows)})
    model = fit(load_tables(nodes, edges), FitSettings("good", train={"epochs": 30}))
    assert all(math.isfinite(value) for value in model.outputs(load_tables(nodes, edges).graphs).flatten().tolist())


@pytest.mark.parametrize("columns", [[], ["size"]])
@pytest.mark.parametrize("edges", [0, 30])
def test_no_columns_and_no_edges_are_no_error(columns: list[str], edges: int) -> None:
    nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})[
        ["id", "label", *columns]
    ]
    table = pd.DataFrame({"source": range(edges), "target": range(1, edges + 1)})
    task = load_tables(nodes, table)
    model = fit(task, FitSettings("good", train=SHORT))
    assert model.outputs(task.graphs).shape == (40, 2)


def test_targets_of_any_size_are_learned_and_told_in_their_units() -> None:
    task = small_task("node", "numbers", count=200)
    watcher = Listening()
    model = fit(task, FitSettings("fast", train={"epochs": 60}), watcher=watcher)
    first, best = watcher.rows[0]["val"], model.about["trials"][0]["val"]
    # The deviation of the target is 50, and its mean 1000.
    assert 10 < first < 200
    assert best < nothing_learned(task) / 2
    val = task.splits[0].val
    own = task.metric_function([model.outputs(task.graphs)[val]], [task.graphs.y[val]])
    assert own == pytest.approx(best, rel=1e-4)
    assert model.about["history"][0]["val_loss"] == pytest.approx(first, rel=1e-3)


def test_equal_seeds_give_equal_models_and_other_seeds_do_not() -> None:
    task = small_task("node", count=40)
    settings = FitSettings("fast", train=SHORT)
    assert equal(fit(task, settings), fit(task, settings))
    assert not equal(fit(task, settings), fit(task, replace(settings, seed=1)))


@pytest.mark.parametrize("killed_at", [1, 3, 6, 11])
def test_killed_fit_goes_on_and_ends_as_an_uninterrupted_one(
    tmp_path: Path, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A checkpoint after every step in place of one after half a minute.
    monkeypatch.setattr("sirgcn.model.trials._EVERY", 0.0)
    task = small_task("graph", "numbers", count=40)
    settings = FitSettings("good", train=SHORT)
    whole = fit(task, settings)
    with pytest.raises(KeyboardInterrupt):
        fit(task, settings, tmp_path, Listening(killed_at))
    resumed = Listening()
    found = fit(task, settings, tmp_path, resumed)
    assert equal(found, whole)
    assert [row["val"] for row in found.about["trials"]] == [row["val"] for row in whole.about["trials"]]
    # Only what was missing is trained again.
    assert len(resumed.rows) == 4 * len(whole.about["trials"]) - (killed_at - 1)
    again = Listening()
    assert equal(fit(task, settings, tmp_path, again), whole)
    assert again.rows == []


def test_work_of_other_data_or_settings_is_not_used(tmp_path: Path) -> None:
    settings = FitSettings("fast", train=SHORT)
    fit(small_task("node", count=40), settings, tmp_path)
    for task, changed in (
        (small_task("node", count=40, seed=1), settings),
        (small_task("node", count=40), replace(settings, network={"hidden_channels": 8})),
    ):
        watcher = Listening()
        fit(task, changed, tmp_path, watcher)
        assert watcher.rows


def test_torn_record_is_made_again(tmp_path: Path) -> None:
    task, settings = small_task("node", count=40), FitSettings("fast", train=SHORT)
    whole = fit(task, settings, tmp_path)
    file = tmp_path / "trials.jsonl"
    file.write_text(file.read_text()[:-40])
    assert equal(fit(task, settings, tmp_path), whole)
    assert len(read_records(file)) == 1


def test_work_of_another_process_is_refused(tmp_path: Path) -> None:
    with held(tmp_path / "lock"), pytest.raises(Busy):
        fit(small_task("node", count=40), FitSettings("fast", train=SHORT), tmp_path)


def test_time_limit_is_kept_and_shared_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every step takes a tenth of a second, however fast the machine is.
    step = Trainer.step

    def slow(trainer: Trainer, batch: Any) -> None:
        time.sleep(0.1)
        step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", slow)
    task = small_task("node", count=40)
    started = time.monotonic()
    watcher = Listening()
    model = fit(task, FitSettings("good", time_limit=3.0), watcher=watcher)
    # The steps that measured the speed come on top.
    assert time.monotonic() - started < 3.0 + 3.0
    planned = {row["trial"]: row["epochs"] for row in watcher.rows}
    assert len(planned) == len(model.about["trials"]) == 3
    assert all(2 <= epochs <= 11 for epochs in planned.values())


def test_time_that_is_left_is_told_from_the_second_epoch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock by which every epoch takes two seconds.
    seconds = count(step=2)
    monkeypatch.setattr(trials_room, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    watcher = Listening()
    fit(small_task("node", count=40), FitSettings("fast", train=SHORT), watcher=watcher)
    assert [row["seconds_left"] for row in watcher.rows] == [None, 4.0, 2.0, 0.0]


def test_training_that_is_slower_than_planned_ends_with_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task("node", count=40)
    calls = []
    step = Trainer.step

    def slower(trainer: Trainer, batch: Any) -> None:
        calls.append(1)
        time.sleep(0.3 if len(calls) > 10 else 0.0)
        step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", slower)
    model = fit(task, FitSettings("fast", time_limit=1.5))
    row = model.about["trials"][0]
    assert row["stopped"] == "its time was over"
    assert row["seconds"] < 2.5
    assert row["val"] == max(found["val"] for found in model.about["history"])


def test_time_is_told_before_and_within_thirty_per_cent(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer.step

    def slow(trainer: Trainer, batch: Any) -> None:
        # So long that what a busy machine adds is little.
        time.sleep(0.4)
        step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", slow)
    model = fit(small_task("node", count=40), FitSettings("fast", train={"epochs": 5, "warmup": 0}))
    assert model.about["trials"][0]["seconds"] == pytest.approx(model.about["plan"]["seconds"], rel=0.3)


def test_good_keeps_the_best_of_what_it_tried_on_validation() -> None:
    model = fit(small_task("node", count=60), FitSettings("good", train={"epochs": 10}))
    rows = model.about["trials"]
    assert sum(row["chosen"] for row in rows) == len(model.members) == 1
    assert next(row for row in rows if row["chosen"])["val"] == max(row["val"] for row in rows)
    assert len({row["candidate"]["training"]["epochs"] for row in rows}) == 1


def test_best_averages_networks_of_several_seeds_and_settings() -> None:
    task = small_task("node", count=60)
    model = fit(task, FitSettings("best", seeds=2, train=SHORT))
    assert len(model.members) == 4
    alone = [replace(model, members=(member,)).outputs(task.graphs).softmax(1) for member in model.members]
    assert torch.allclose(model.outputs(task.graphs).softmax(1), torch.stack(alone).mean(0), atol=1e-6)
    assert {row["member"] for row in model.about["history"]} == {0, 1, 2, 3}


def test_ensemble_of_numbers_is_their_mean() -> None:
    task = small_task("graph", "numbers", count=40)
    model = fit(task, FitSettings("fast", seeds=2, train=SHORT))
    alone = [replace(model, members=(member,)).outputs(task.graphs) for member in model.members]
    assert len(alone) == 2
    assert torch.allclose(model.outputs(task.graphs), torch.stack(alone).mean(0), rtol=1e-5)


def test_labels_of_the_test_part_change_nothing() -> None:
    task = small_task("node", count=60)
    y = task.graphs.y.clone()
    y[task.splits[0].test] = 1 - y[task.splits[0].test]
    other = replace(task, graphs=replace(task.graphs, y=y))
    settings = FitSettings("good", train=SHORT)
    assert equal(fit(task, settings), fit(other, settings))


@pytest.mark.parametrize("count", [30, 200])
def test_without_validation_rows_some_are_set_aside_or_the_epochs_are_fixed(count: int) -> None:
    task = small_task("node", count=count)
    split = task.splits[0]
    without = replace(task, splits=(Split(torch.cat([split.train, split.val]), split.val[:0], split.test),))
    watcher = Listening()
    model = fit(without, FitSettings("good", train=SHORT), watcher=watcher)
    said = watcher.said[0]
    assert "no validation part" in said
    assert model.about["notes"][0] == said
    is_carved = count == 200
    assert ("set some aside" not in said) == is_carved
    assert (model.about["trials"][0]["val"] is not None) == is_carved


def test_validation_rows_of_one_class_choose_by_their_loss() -> None:
    graphs = Graphs(torch.randn(60, 3), torch.randint(60, (2, 120)), torch.arange(60) % 2, "node")
    even = torch.arange(0, 60, 2)
    split = Split(torch.arange(40), even[even >= 40], torch.arange(41, 60, 2))
    task = Task("one class", graphs, Schema(3, outputs=2), (split,), "cross_entropy", "roc_auc")
    assert not see(task).can_measure()
    model = fit(task, FitSettings("good", train=SHORT))
    rows = model.about["trials"]
    assert {row["val"] for row in rows} == {None}
    assert next(row for row in rows if row["chosen"])["val_loss"] == min(row["val_loss"] for row in rows)
    json.dumps(model.about, allow_nan=False)


def test_training_that_fails_is_left_out_and_all_that_fail_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task("node", count=40)
    first, *_ = chosen_candidates(see(task), FitSettings())
    step = Trainer.step

    def fails(trainer: Trainer, batch: Any) -> None:
        if trainer.watcher is not None and trainer.watcher.trial.candidate.name == first.name:  # type: ignore[attr-defined]
            trainer._refuse("the loss is nan")
        step(trainer, batch)

    monkeypatch.setattr(Trainer, "step", fails)
    model = fit(task, FitSettings("good", train=SHORT))
    assert next(row["status"] for row in model.about["trials"]) == "failed"
    assert len(model.members) == 1
    with pytest.raises(NotFitted, match="smaller learning rate"):
        fit(task, FitSettings("fast", train=SHORT))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"network": {"num_layer": 3}}, "did you mean num_layers"),
        ({"train": {"epoch": 3}}, "did you mean epochs"),
        ({"candidate": "messages by men"}, "did you mean messages by mean"),
    ],
)
def test_unknown_settings_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fit(small_task("node", count=40), FitSettings(**settings))


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"preset": "quick"}, {"time_limit": -1.0}, {"seeds": 0}, {"seed": -1}):
        with pytest.raises(ConfigError):
            FitSettings(**wrong)


def test_inductive_task_is_fitted_without_its_unseen_nodes() -> None:
    task = small_task("node", count=60).as_inductive()
    hidden = task.unseen[0]
    x = task.graphs.x.clone()
    x[task.splits[0].test] += 100.0
    other = replace(task, graphs=replace(task.graphs, x=x))
    assert set(task.splits[0].val.tolist()) <= set(hidden.tolist())
    settings = FitSettings("fast", train={**SHORT, "selection": "last"})
    # The columns of a test node reach the weights only if training sees the node.
    assert equal(fit(task, settings), fit(other, settings))


def test_history_and_trials_are_json_values() -> None:
    task = load("hetero_edge_count", c=2, num_graphs=60)
    model = fit(task, FitSettings("good", seeds=2, train=SHORT))
    assert json.loads(json.dumps(model.about, allow_nan=False)) == model.about
    assert len(model.members) == 2
