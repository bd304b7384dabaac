import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sirgcn import SIRNet
from sirgcn.data import Graphs, Schema, Split, Task, hetero_edge_count_task
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.nn import EdgeNet
from sirgcn.scale import SampledTask, WholeGraph
from tests.scale.drawn import drawn_task


def drawn_net(seed: int = 0, channels: int = 16) -> SIRNet:
    torch.manual_seed(seed)
    return SIRNet.of(4, channels, 2, num_layers=1, activation="identity", residual=True)


CONFIG = TrainConfig(epochs=4, batch_size=40, lr=1e-2, selection="last")


def test_an_epoch_has_every_seed_once() -> None:
    task = drawn_task()
    sampled = SampledTask.of(task, [3, 2])
    batches = list(sampled.batches("train", 40, generator=torch.Generator().manual_seed(0)))
    assert len(batches) == sampled.num_batches("train", 40) == 4
    seeds = torch.cat([batch.n_id[batch.index] for batch in batches])
    assert seeds.sort().values.tolist() == task.splits[0].train.sort().values.tolist()
    for batch in batches:
        assert torch.equal(batch.x, task.graphs.x[batch.n_id])
        assert torch.equal(batch.y, task.graphs.y[batch.n_id[batch.index]])


def test_other_parts_stay_whole() -> None:
    task = drawn_task()
    sampled = SampledTask.of(task, [3])
    (batch,) = sampled.batches("val", 40)
    assert batch.num_nodes == 300
    assert sampled.num_batches("val", 40) == 1


def test_shares_of_a_batch_are_the_batch() -> None:
    sampled = SampledTask.of(drawn_task(), [3])
    (whole,) = sampled.batches("train", 150)
    parts = [next(iter(sampled.batches("train", 150, share=(place, 2)))) for place in range(2)]
    seeds = torch.cat([part.n_id[part.index] for part in parts])
    assert torch.equal(seeds, whole.n_id[whole.index])


def test_a_sample_of_all_neighbours_trains_as_the_whole_graph() -> None:
    """One batch of all seeds with all neighbours has the gradients of the whole graph."""
    task, grads = drawn_task(), []
    for one in (task, SampledTask.of(task, [-1])):
        trainer = Trainer(drawn_net(), one, TrainConfig(epochs=1, batch_size=None, selection="last"))
        (batch,) = one.batches("train", None)
        # Batch norm would see the other nodes of the whole graph, which are no seeds.
        trainer.model.eval()
        one.loss_function(*trainer.predict(batch)).backward()
        grads.append([p.grad for p in trainer.model.parameters()])
    for ours, whole in zip(*grads, strict=True):
        torch.testing.assert_close(ours, whole)


def test_sampled_training_learns_what_only_neighbours_tell() -> None:
    task = SampledTask.of(drawn_task(600), [8])
    outcome = Trainer(drawn_net(), task, replace(CONFIG, epochs=25)).run()
    assert outcome.metrics["test"] > 0.85


def test_scores_by_layers_are_those_of_one_pass() -> None:
    task, scores = drawn_task(), []
    for whole in (None, WholeGraph("20KB")):
        outcome = Trainer(drawn_net(), SampledTask.of(task, [3]), CONFIG, whole=whole).run()
        scores.append(outcome.metrics)
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_a_training_repeats_and_another_seed_differs() -> None:
    task, found = drawn_task(), []
    for seed in (0, 0, 1):
        net = drawn_net()
        Trainer(net, SampledTask.of(task, [3], seed=seed), CONFIG).run()
        found.append(weights_sha256(net))
    assert found[0] == found[1] != found[2]


def test_an_interrupted_training_ends_in_the_same_weights(tmp_path: Path) -> None:
    task, net = SampledTask.of(drawn_task(), [3]), drawn_net()
    Trainer(net, task, CONFIG).run()
    again, steps = drawn_net(), iter(range(100))
    with pytest.raises(Interrupted):
        Trainer(again, task, CONFIG, checkpoints=Checkpoints(tmp_path), should_stop=lambda: next(steps) == 6).run()
    again = drawn_net()
    Trainer(again, task, CONFIG, checkpoints=Checkpoints(tmp_path)).run()
    assert weights_sha256(again) == weights_sha256(net)


def test_checkpoints_of_other_fanouts_are_not_used(tmp_path: Path) -> None:
    task = drawn_task()
    Trainer(drawn_net(), SampledTask.of(task, [3]), CONFIG, checkpoints=Checkpoints(tmp_path), every=0).run()
    with pytest.warns(UserWarning, match="of other settings or data"):
        Trainer(drawn_net(), SampledTask.of(task, [4]), CONFIG, checkpoints=Checkpoints(tmp_path)).run()


def test_seed_edges_are_scored_from_their_ends() -> None:
    random = torch.Generator().manual_seed(0)
    edge_index = torch.randint(50, (2, 200), generator=random)
    x = torch.randn(50, 4, generator=random)
    parts = torch.randperm(200, generator=random).split([120, 40, 40])
    y = (x[edge_index[0], 0] > x[edge_index[1], 0]).long()
    graphs = Graphs(x, edge_index, y, "edge", edge_attr=torch.randn(200, 3, generator=random))
    schema = Schema(features=4, edge_features=3, outputs=2)
    task = SampledTask.of(Task("pairs", graphs, schema, (Split(*parts),), "cross_entropy", "accuracy"), [4])
    for batch in task.batches("train", 30):
        assert batch.edge_label_index.shape == (2, 30)
        assert batch.edge_attr.size(0) == batch.edge_index.num_edges
    torch.manual_seed(0)
    net = EdgeNet(SIRNet.of(4, 16, 16, num_layers=1, edge_channels=3, residual=True), 16, 2)
    outcome = Trainer(net, task, replace(CONFIG, epochs=30)).run()
    assert outcome.metrics["test"] > 0.8


def test_other_convolutions_weigh_the_sample_by_itself() -> None:
    """A plain edge_index and a graph with degrees of the whole give the same to layers of other papers."""
    torch.manual_seed(0)
    net = SIRNet.of(4, 8, 2, num_layers=1, conv="gcn").eval()
    (batch,) = SampledTask.of(drawn_task(), [3]).batches("train", None)
    torch.testing.assert_close(net(batch.x, batch.edge_index), net(batch.x, batch.edge_index.edge_index))


def test_tasks_of_many_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="task: expected one graph"):
        SampledTask.of(hetero_edge_count_task(c=2, num_graphs=10), [3])
    with pytest.raises(ValueError, match=re.escape("num_neighbors[0]: expected -1")):
        next(iter(SampledTask.of(drawn_task(), [-3]).batches("train")))


def test_the_task_behind_a_sampled_one_is_whole_again() -> None:
    task = replace(drawn_task(), version="v1")
    assert SampledTask.of(task, [3]).whole().version == "v1"


def test_training_on_an_inductive_task_sees_no_hidden_node() -> None:
    task = drawn_task()
    hidden = torch.cat([task.splits[0].val, task.splits[0].test])
    sampled = SampledTask.of(task.as_inductive(), [5, 5])
    place = sampled.seen()[1]
    assert place is not None
    names = torch.empty(len(task.splits[0].train), dtype=torch.int64)
    names[place[place >= 0]] = (place >= 0).nonzero().flatten()
    for batch in sampled.batches("train", 40):
        assert not bool(torch.isin(names[batch.n_id], hidden).any())
        assert torch.equal(batch.x, task.graphs.x[names[batch.n_id]])
    outcome = Trainer(drawn_net(), sampled, CONFIG, whole=WholeGraph("50KB")).run()
    assert set(outcome.metrics) == {"train", "val", "test", "train_loss", "val_loss", "test_loss"}
