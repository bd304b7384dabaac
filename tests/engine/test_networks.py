"""Networks of their own in an experiment: selected by name, prepared once, trained on their own objective, resumed."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine import experiment as config
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import ModelConfig, TrainConfig, TrainingExperiment
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.network import build, mean_log_degree
from sirgcn.engine.plan import Run
from sirgcn.engine.run import header
from sirgcn.nn import NETWORKS, SIRNet, make_network
from sirgcn.report.claims import load_claims
from sirgcn.strict import ConfigError
from tests.engine.standins import stand_in


def node_task(outputs: int = 3) -> Task:
    torch.manual_seed(0)
    y = torch.arange(60) % 3 if outputs > 1 else (torch.arange(60) % 2).float()
    x = torch.randn(60, 4) + y.view(-1, 1)
    graphs = Graphs(x, torch.randint(0, 60, (2, 180)), y, "node")
    order = torch.randperm(60)
    split = Split(order[:30], order[30:45], order[45:])
    loss, metric = ("cross_entropy", "accuracy") if outputs > 1 else ("binary_cross_entropy", "roc_auc")
    return Task("nodes", graphs, Schema(features=4, outputs=outputs), (split,), loss, metric)


def experiment(row: ModelConfig, **settings: Any) -> TrainingExperiment:
    return TrainingExperiment("mine", "nodes", (row,), (config.ColumnConfig("c"),), train=TrainConfig(**settings))


def made(task: Task, name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    row = ModelConfig("row", network=name, options=options)
    return build(experiment(row), row, task, {})


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_network_learns_what_it_is_shown(name: str, outputs: int) -> None:
    task = node_task(outputs)
    model = made(task, name, **({"pretraining": 30} if name == "cpgnn" else {}))
    trainer = Trainer(model, task, TrainConfig(epochs=80, batch_size=None, lr=0.05, selection="last"))
    _, before = trainer.evaluate("train")["train"]
    assert trainer.run().metrics["train"] > max(before, 0.6)


def test_every_printed_figure_of_tables_1_to_5_has_a_row() -> None:
    for table in load_claims():
        for entry in config.of_table(table.number) if table.number and table.number <= 5 else ():
            places = [i for i, c in enumerate(table.columns) if c.name in {column.title for column in entry.columns}]
            printed = {row.model for row in table.rows if any(row.cells[place] for place in places)}
            assert printed <= {row.title for row in entry.models}, entry.name


@pytest.mark.parametrize("name", ["roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions"])
def test_rows_of_table_5_name_the_network_of_their_title(name: str) -> None:
    rows = [row for row in config.load(name).models if row.network is not None]
    assert [NETWORKS[str(row.network)].title for row in rows] == [row.title for row in rows]
    assert {str(row.network) for row in rows} == NETWORKS.keys()
    assert all(row.options.get("hidden_channels", 0) <= 512 for row in rows)


def test_reduced_run_of_cpgnn_is_longer_than_its_pretraining() -> None:
    for entry in config.of_table(5):
        row = entry.model("CPGNN")
        assert isinstance(entry, TrainingExperiment)
        assert entry.train_for(row, is_reduced=True).epochs > row.options["pretraining"]
        assert "epochs = 600" in header(Run(entry, entry.columns[0].title, "CPGNN", 0, reduced=True))["reduced_why"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (ModelConfig("a", network="h2gnc"), "network: expected one of h2gcn, cpgnn, .*jacobiconv, got 'h2gnc'"),
        (
            ModelConfig("a", network="h2gcn", options={"heads": 2}),
            "options of h2gcn: expected one of hidden_channels, num_layers, dropout, got 'heads'",
        ),
        (
            ModelConfig("a", network="jacobiconv", budget=100),
            "mine: a: budget: expected a model with a width, got none",
        ),
    ],
)
def test_wrong_row_is_refused_with_what_is_known(row: ModelConfig, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        build(experiment(row), row, node_task(), {})


def test_row_with_a_convolution_and_a_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'data = "x"\ncolumns = [{ title = "c" }]\n[train]\n[[models]]\ntitle = "a"\nconv = "gcn"\nnetwork = "h2gcn"'
    )
    with pytest.raises(ConfigError, match=r"models\[0\]: a: expected conv or network, got conv gcn and network h2gcn"):
        config.load(path)


@pytest.mark.parametrize("data", ["ZINC", "mnist"])
def test_network_for_other_data_than_one_graph_of_numbers_is_refused(data: str) -> None:
    row = ModelConfig("a", network="h2gcn")
    with pytest.raises(ConfigError, match="mine: a: h2gcn reads the numbers at the nodes of one graph, got the data"):
        build(experiment(row), row, stand_in(data, {}), {})


def test_budget_fills_the_width_of_a_network() -> None:
    row = ModelConfig("a", network="fsgnn", budget=5000)
    count = sum(p.numel() for p in build(experiment(row), row, node_task(), {}).parameters())
    assert 4500 < count <= 5000


def test_budget_fills_the_width_in_steps_of_a_row_s_heads() -> None:
    counts = []
    for heads in (1, 5, 8):
        options = {"num_layers": 2, "conv_options": {"heads": heads, "share_weights": False}}
        row = ModelConfig("a", conv="gatv2", budget=5000, options=options)
        model: Any = build(experiment(row), row, node_task(), {})
        assert model.blocks[0].conv.heads == heads
        assert model.blocks[0].conv.out_channels % heads == 0
        counts.append(sum(p.numel() for p in model.parameters()))
    assert counts[0] >= max(counts[1:])
    assert max(counts) <= 5000


def test_gatv2_of_tables_3_and_4_has_the_heads_and_weights_of_the_published_rows() -> None:
    rows = {entry.name: entry.model("GATv2") for table in (3, 4) for entry in config.of_table(table)}
    assert len(rows) == 8
    for name, row in rows.items():
        assert row.options["conv_options"] == {"heads": 8, "share_weights": False}, name


def test_rows_of_table_4_have_the_self_loops_of_the_published_ones_once() -> None:
    # Those of ogbn-arxiv are in the data.
    for name, loops in (("ogbg_molhiv", True), ("ogbn_arxiv", False)):
        experiment = config.load(name)
        assert {experiment.model(title).options["self_loops"] for title in ("GCN", "GAT", "GATv2")} == {loops}
        assert experiment.columns[0].options.get("self_loops", False) is not loops


def test_graph_transformer_of_table_5_is_attention_and_a_feed_forward_network_in_every_layer() -> None:
    for entry in config.of_table(5):
        row = entry.model("GraphTransformer")
        model: Any = build(entry, row, stand_in(entry.data, {}), {})
        assert not any(hasattr(block, "lin") for block in model.blocks), entry.name
        for block, feed_forward in zip(model.blocks, model.feed_forwards, strict=True):
            assert (block.conv.heads, block.conv.dropout.p, block.dropout.p) == (8, 0.0, 0.2)
            _, inner, _, _, outer, _ = feed_forward.network
            assert inner.weight.shape == outer.weight.shape == (block.conv.out_channels,) * 2
        assert model.self_loops


def test_record_names_the_network_and_leaves_a_convolution_as_it_was() -> None:
    entry = config.load("minesweeper")
    assert Run(entry, "minesweeper", "GCN", 0).config["model"] == {
        "conv": "gcn",
        "options": {"self_loops": True},
        "budget": None,
    }
    found = Run(entry, "minesweeper", "GBK-GNN", 0).config["model"]
    assert (found["network"], "conv" in found) == ("gbkgnn", False)


class Counting(nn.Module):
    """A model with both hooks, which counts their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.calls = nn.Linear(4, 3), {"prepare": 0, "objective": 0}

    def prepare(self, x: Tensor, edge_index: Tensor) -> str:
        self.calls["prepare"] += 1
        return f"{x.size(0)} nodes, {edge_index.size(1)} edges"

    def forward(self, x: Tensor, graph: str, batch: Tensor, batch_size: int) -> Tensor:
        assert graph == "60 nodes, 180 edges"
        return self.lin(x)

    def objective(self, x: Tensor, graph: str, rows: Tensor, target: Tensor, loss: Any) -> Tensor:
        self.calls["objective"] += 1
        assert graph == "60 nodes, 180 edges"
        assert torch.equal(rows, node_task().splits[0].train)
        assert torch.equal(target, node_task().graphs.y[rows])
        # What has no minimum at the labels: only the objective is minimised.
        return loss(self.lin(x)[rows], torch.zeros_like(target))


def test_loop_prepares_once_and_minimises_the_objective() -> None:
    model = Counting()
    Trainer(model, node_task(), TrainConfig(epochs=30, lr=0.3, batch_size=None, selection="last")).run()
    assert model.calls == {"prepare": 1, "objective": 30}
    assert (model.lin(node_task().graphs.x).argmax(1) == 0).float().mean() > 0.9


@pytest.mark.parametrize("stop", [2, 4, 5, 7])
def test_cpgnn_that_is_stopped_in_either_stage_ends_in_the_same_weights(tmp_path: Path, stop: int) -> None:
    task, settings = node_task(), TrainConfig(epochs=10, batch_size=None, lr=0.02, selection="val_metric")

    def trainer(**options: Any) -> tuple[nn.Module, Trainer]:
        model = made(task, "cpgnn", pretraining=4, dropout=0.3)
        return model, Trainer(model, task, settings, **options)

    whole, run = trainer()
    expected = run.run()
    steps = iter(range(1, 99))
    _, run = trainer(checkpoints=Checkpoints(tmp_path), should_stop=lambda: next(steps) == stop)
    with pytest.raises(Interrupted):
        run.run()
    torch.manual_seed(99)
    again, run = trainer(checkpoints=Checkpoints(tmp_path))
    assert run.run().metrics == expected.metrics
    assert weights_sha256(again) == weights_sha256(whole)


def test_early_stop_may_watch_the_metric() -> None:
    settings = TrainConfig(epochs=500, batch_size=None, lr=0.02, early_stop=5, early_on="val_metric")
    outcome = Trainer(made(node_task(), "gprgnn"), node_task(), settings).run()
    best = max(row["val"] for row in outcome.history)
    place = next(row["epoch"] for row in outcome.history if row["val"] == best)
    assert outcome.stopped == "the val metric had not got better for 5 epochs"
    assert len(outcome.history) == place + 6 < 500


def test_delta_of_pna_is_that_of_the_training_graphs() -> None:
    task = stand_in("ZINC", {})
    degrees = []
    for graph in task.splits[0].train.tolist():
        data = task.graphs.batch(torch.tensor([graph]))
        degrees += [int((data.edge_index[1] == u).sum()) for u in range(data.num_nodes)]
    expected = sum(math.log(degree + 1) for degree in degrees) / len(degrees)
    assert mean_log_degree(task) == pytest.approx(expected, rel=1e-12)

    entry = config.load("zinc")
    network: Any = build(entry, entry.model("PNA"), task, {})
    assert {block.conv.delta for block in network.blocks} == {mean_log_degree(task)}
    options = {**entry.model("PNA").options["conv_options"], "delta": 2.0}
    given = ModelConfig("PNA", "pna", options={"conv_options": options})
    network = build(entry, given, task, {})
    assert {block.conv.delta for block in network.blocks} == {2.0}
    # Without a scaler that reads it, nothing is asked of the data.
    lookup = config.load("dictionary_lookup")
    network = build(lookup, lookup.model("PNA"), stand_in("dictionary_lookup", {"n": 3}), {"n": 3})
    assert {block.conv.delta for block in network.blocks} == {1.0}


def test_networks_of_a_row_are_those_of_the_table() -> None:
    task = node_task()
    assert isinstance(made(task, "fagcn"), SIRNet)
    assert type(made(task, "h2gcn")) is type(make_network("h2gcn", 4, 3, 60))
