"""The training loop: the protocol's rules, one by one, on small tasks."""

import contextlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sirgcn.data import Graphs, Schema, Split, Task, hetero_edge_count
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Interrupted, NotFinite, Outcome, Trainer
from sirgcn.nn import SIRNet


def graph_task(count: int = 30) -> Task:
    graphs = Graphs.from_data(hetero_edge_count(3, count, seed=0, max_nodes=6), "graph")
    return Task("tiny", graphs, Schema(vocabularies=(3,)), (Split.draw(count), Split.draw(count, 1)), "mse", "mse")


def node_task() -> Task:
    torch.manual_seed(0)
    x, y = torch.randn(40, 4), torch.randint(0, 3, (40,))
    y[::7] = -1
    graphs = Graphs(x, torch.randint(0, 40, (2, 120)), y, "node")
    labelled = (y >= 0).nonzero().squeeze(1)
    split = Split(labelled[:18], labelled[18:26], labelled[26:])
    return Task("nodes", graphs, Schema(features=4, outputs=3), (split,), "cross_entropy", "accuracy")


def network(task: Task, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    given: dict[str, Any] = {"dropout": 0.2, "num_layers": 2, "norm": "batch"}
    if task.level == "graph":
        return SIRNet.of(3, 8, 1, encoder="embedding", pool="sum", **given | changes)
    return SIRNet.of(4, 8, 3, encoder="linear", **given | changes)


def train(task: Task, **settings: Any) -> tuple[Outcome, nn.Module, Trainer]:
    options = {key: settings.pop(key) for key in ("split", "seed", "checkpoints", "every") if key in settings}
    model = network(task, norm=settings.pop("norm", "batch"))
    trainer = Trainer(model, task, TrainConfig(**{"epochs": 3, "batch_size": 8, **settings}), **options)
    return trainer.run(), model, trainer


@pytest.mark.parametrize("make", [graph_task, node_task])
def test_same_seed_gives_the_same_bits(make: Any) -> None:
    outcomes = []
    for _ in range(2):
        outcome, model, _ = train(make(), schedule="plateau")
        history = [{k: v for k, v in row.items() if k != "seconds"} for row in outcome.history]
        outcomes.append((history, outcome.metrics, weights_sha256(model)))
    assert outcomes[0] == outcomes[1]


def test_another_seed_draws_another_order() -> None:
    assert weights_sha256(train(graph_task())[1]) != weights_sha256(train(graph_task(), seed=1)[1])


def test_metrics_are_those_of_the_returned_weights() -> None:
    task = graph_task()
    outcome, model, trainer = train(task, epochs=5, lr=0.1)
    model.eval()
    with torch.no_grad():
        for part in ("train", "val", "test"):
            errors = []
            for i in getattr(task.splits[0], part).tolist():
                graph = task.graphs[i]
                errors.append((model(graph.x, graph.edge_index) - graph.y).square().item())
            assert outcome.metrics[part] == pytest.approx(sum(errors) / len(errors), rel=1e-4)
            assert outcome.metrics[f"{part}_loss"] == pytest.approx(outcome.metrics[part], rel=1e-4)
    assert trainer.evaluate("val")["val"][0] == min(row["val_loss"] for row in outcome.history)
    assert outcome.best_epoch == min(outcome.history, key=lambda row: row["val_loss"])["epoch"]


def test_last_epoch_is_tested_where_nothing_is_selected() -> None:
    outcome, _, trainer = train(graph_task(), selection="last", lr=0.1)
    assert outcome.best_epoch == 2
    assert trainer.evaluate("val")["val"][0] == outcome.history[-1]["val_loss"]


@pytest.mark.parametrize("settings", [{"selection": "val_loss"}, {"selection": "last", "early_stop": 3}])
def test_validation_data_that_are_not_there_are_not_selected_or_stopped_by(settings: dict[str, Any]) -> None:
    task = graph_task()
    split = replace(task.splits[0], val=task.splits[0].val[:0])
    with pytest.raises(ValueError, match="the task has no validation data, got val"):
        train(replace(task, splits=(split,)), early_on="val", **settings)
    train(replace(task, splits=(split,)), selection="last", early_stop=3, early_on="train")


def test_best_metric_can_select() -> None:
    outcome, _, _ = train(node_task(), selection="val_metric", epochs=6, lr=0.05)
    assert outcome.metrics["val"] == max(row["val"] for row in outcome.history)


def test_test_part_is_not_read_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Task.batches

    def batches(self: Task, part: Any, *args: Any, **options: Any) -> Any:
        read.append(part)
        return real(self, part, *args, **options)

    monkeypatch.setattr(Task, "batches", batches)
    outcome, _, _ = train(graph_task(), schedule="plateau")
    assert read.count("test") == 1
    assert read[-1] == "test"
    assert not any("test" in key for row in outcome.history for key in row)


def test_unlabelled_nodes_and_other_parts_do_not_teach() -> None:
    task = node_task()
    y = task.graphs.y.clone()
    y[task.splits[0].test] = (y[task.splits[0].test] + 1) % 3
    other = Task(
        "nodes",
        Graphs(task.graphs.x, task.graphs.edge_index, y, "node"),
        task.schema,
        task.splits,
        task.loss,
        task.metric,
    )
    assert weights_sha256(train(task)[1]) == weights_sha256(train(other)[1])


def test_held_out_nodes_of_an_inductive_task_do_not_teach_and_are_tested_with_all_their_edges() -> None:
    task = node_task().as_inductive()
    x = task.graphs.x.clone()
    x[task.unseen[0]] += 1
    other = replace(task, graphs=replace(task.graphs, x=x))
    (outcome, model, trainer), (changed, moved, _) = train(task, selection="last"), train(other, selection="last")
    assert weights_sha256(model) == weights_sha256(moved) != weights_sha256(train(node_task(), selection="last")[1])
    assert outcome.metrics["train_loss"] == changed.metrics["train_loss"]
    assert outcome.metrics["test_loss"] != changed.metrics["test_loss"]
    model.eval()
    with torch.no_grad():
        for part, graphs in (("train", task.seen()[0]), ("test", task.graphs)):
            rows = getattr(task.splits[0], part)
            (batch,) = task.batches(part)  # type: ignore[arg-type]
            output = model(graphs.x, graphs.edge_index)
            kept = output[batch.index] if "index" in batch else output
            loss = float(task.loss_function(kept, task.graphs.y[rows]))
            assert trainer.evaluate(part)[part][0] == loss == outcome.metrics[f"{part}_loss"]  # type: ignore[index,arg-type]


def test_learning_rate_warms_up_and_falls_on_a_plateau() -> None:
    # So small a rate changes the loss by less than torch's threshold of 1e-4; running statistics would change it more.
    settings: dict[str, Any] = {"schedule": "plateau", "patience": 1, "factor": 0.5, "norm": None}
    outcome, _, _ = train(graph_task(), epochs=9, lr=1e-7, warmup=4, **settings)
    rates = [row["lr"] * 1e7 for row in outcome.history]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    # The third epoch counts as bad too, but its halving is overtaken by the warm-up.
    assert rates[4:] == pytest.approx([1.0, 0.5, 0.5, 0.25, 0.25])


def test_cosine_falls_to_nothing() -> None:
    outcome, _, _ = train(graph_task(), epochs=4, lr=1.0, warmup=0, schedule="cosine", clip=1e-9)
    assert [row["lr"] for row in outcome.history] == pytest.approx(
        [0.5 * (1 + math.cos(math.pi * i / 4)) for i in range(4)]
    )


def test_penalties_are_those_of_the_summed_loss() -> None:
    task, model = graph_task(), network(graph_task())
    trainer = Trainer(model, task, TrainConfig(epochs=1, l1=0.3, l2=0.7))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    trainer._penalise()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    penalty = sum(0.3 * p.abs().sum() + 0.7 * p.square().sum() for p in model.parameters())
    assert isinstance(penalty, Tensor)
    penalty.backward()
    for p, grad in zip(model.parameters(), found, strict=True):
        torch.testing.assert_close(grad, p.grad)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"early_stop": 2, "early_on": "val", "lr": 1e-12}, "the val loss had not fallen for 2 epochs"),
        ({"early_stop": 2, "early_on": "train", "lr": 1e-12}, "the train loss had not fallen for 2 epochs"),
        ({"stop_loss": 1e9}, "the training loss fell below 1e+09"),
        ({"stop_lr": 1e-3, "lr": 1e-3, "schedule": "plateau", "patience": 0}, "the learning rate fell below 0.001"),
    ],
)
def test_training_stops_by_its_rule_and_says_which(settings: dict[str, Any], why: str) -> None:
    outcome, _, _ = train(graph_task(), epochs=60, **settings)
    assert outcome.stopped == why
    assert len(outcome.history) < 60


def test_nan_stops_with_the_step_and_the_parameter_named() -> None:
    task, model = graph_task(), network(graph_task())
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if name.endswith("lin_key.weight"))[0, 0] = math.nan
    with pytest.raises(
        NotFinite, match=r"epoch 1, step 1: the loss is nan.*not finite: blocks\.0\.conv\.lin_key\.weight"
    ):
        Trainer(model, task, TrainConfig(epochs=1)).run()


@pytest.mark.parametrize("clip", [None, 1.0])
def test_gradient_that_is_not_finite_is_told_of_before_it_reaches_a_weight(clip: float | None) -> None:
    task, model = graph_task(), network(graph_task())
    name, weight = next((name, p) for name, p in model.named_parameters() if name.endswith("lin_key.weight"))
    weight.register_hook(lambda grad: grad * math.inf)
    with pytest.raises(NotFinite, match=rf"epoch 1, step 1: the norm of the gradient is \w+; [\w ]+: {name}$"):
        Trainer(model, task, TrainConfig(epochs=1, clip=clip)).run()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_weight_that_is_not_finite_after_the_last_step_is_named() -> None:
    task, model = graph_task(), network(graph_task())
    name, weight = next(iter(model.named_parameters()))
    trainer = Trainer(model, task, TrainConfig(epochs=1, batch_size=None))

    def spoil(*_: object) -> None:
        nn.init.constant_(weight, math.inf)

    trainer.optimizer.register_step_post_hook(spoil)
    with pytest.raises(NotFinite, match=rf"epoch 1, after step 1: a weight is not finite; not finite: {name}$"):
        trainer.run()


@pytest.mark.parametrize(
    ("settings", "metric", "wanted"),
    [
        ({"batch_size": 8}, "mae", 32),
        ({"batch_size": 8, "eval_batch_size": 5}, "mae", 5),
        ({"batch_size": None}, "mae", None),
        # These depend on the batches, which stay as they are.
        ({"batch_size": 8}, "class_accuracy", 8),
        ({"batch_size": 8}, "weighted_cross_entropy", 8),
    ],
)
def test_batches_of_evaluation(settings: dict[str, Any], metric: str, wanted: int | None) -> None:
    task = graph_task()
    if metric != "mae":
        changes: dict[str, Any] = {"metric" if metric == "class_accuracy" else "loss": metric}
        task = replace(node_task(), **changes)
    trainer = Trainer(network(task), task, TrainConfig(epochs=1, **settings))
    assert trainer._eval_batch_size() == wanted


@pytest.mark.parametrize("missing", [False, True])
def test_loss_and_metric_do_not_depend_on_the_batches_of_evaluation(missing: bool) -> None:
    task = graph_task()
    if missing:
        task.graphs.y[1:9] = math.nan
    found = []
    for size in (3, 8, None):
        trainer = Trainer(network(task).double(), task, TrainConfig(epochs=1, batch_size=4, eval_batch_size=size))
        found.append(trainer.evaluate("train")["train"])
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert found[0] == pytest.approx(found[2], rel=1e-9)


def test_clipping_is_torch_s() -> None:
    model = network(graph_task())
    trainer = Trainer(model, graph_task(), TrainConfig(epochs=1, clip=0.5))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    trainer._check_and_clip()
    found = [p.grad for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    assert all(torch.equal(one, p.grad) for one, p in zip(found, model.parameters(), strict=True))  # type: ignore[arg-type]


def test_interrupted_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    task = graph_task()
    expected, whole, _ = train(task, epochs=4)
    checkpoints, steps = Checkpoints(tmp_path), 0

    def stop() -> bool:
        nonlocal steps
        steps += 1
        return steps % 3 == 0

    for _ in range(20):
        model = network(task)
        trainer = Trainer(
            model, task, TrainConfig(epochs=4, batch_size=8), checkpoints=checkpoints, every=1e9, should_stop=stop
        )
        with contextlib.suppress(Interrupted):
            outcome = trainer.run()
            break
    assert outcome.metrics == expected.metrics
    assert weights_sha256(model) == weights_sha256(whole)


def test_bfloat16_trains() -> None:
    outcome, _, _ = train(node_task(), precision="bfloat16")
    assert math.isfinite(outcome.metrics["test_loss"])
