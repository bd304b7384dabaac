"""The rule of defaults: it knows a task by its facts, never by its name, and every candidate that it names trains."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine.inference import call
from sirgcn.model.defaults import candidates, networks
from sirgcn.model.facts import Facts
from sirgcn.nn import build_net
from tests.model.problems import small_task

RECORDS = Path(__file__).parents[2] / "results" / "model"


def words(labels: int = 60, homophilous: bool = True) -> Task:
    """A graph of long rows of words, whose neighbours agree in their labels or differ in them."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(300, 400, generator=generator) < 0.02).float()
    y = torch.arange(300) % 2
    shift = torch.arange(1, 4) * 2 - (0 if homophilous else 1)
    source = torch.arange(300).repeat(3)
    edge_index = torch.stack([source, (source + shift.repeat_interleave(300)) % 300])
    order = torch.arange(300)
    split = Split(order[:labels], order[labels : labels + 60], order[labels + 60 :])
    return Task(
        "words", Graphs(x, edge_index, y, "node"), Schema(400, outputs=2), (split,), "cross_entropy", "accuracy"
    )


@pytest.mark.parametrize("level", ["node", "edge", "graph"])
@pytest.mark.parametrize("edge_columns", [False, True])
@pytest.mark.parametrize("categories", [False, True])
def test_every_candidate_reads_the_task_and_gives_a_row_for_every_target(
    level: Any, edge_columns: bool, categories: bool
) -> None:
    task = small_task(level, edge_columns=edge_columns, categories=categories, count=20)
    found = candidates(task)
    assert len({one.name for one in found}) == len(found) >= 3
    for one in found:
        prepared = one.preparation.applied(task)
        output = call(build_net(one.config).eval(), prepared.graphs.batch(), task.level)
        assert output.shape == (len(task.graphs.y), task.schema.outputs)


def test_rule_does_not_read_the_name_or_the_labels_that_are_not_of_training() -> None:
    task = words()
    y = task.graphs.y.clone()
    y[60:] = 1 - y[60:]
    other = replace(task, name="Cora", graphs=replace(task.graphs, y=y))
    assert [one.to_dict() for one in candidates(other)] == [one.to_dict() for one in candidates(task)]
    assert Facts.of(other) == Facts.of(task)


def test_few_labels_of_long_sparse_rows_get_rows_of_sum_1_and_strong_dropout() -> None:
    for one in candidates(words()):
        assert one.preparation.normalise
        assert one.config.block.dropout >= 0.5
        assert one.config.block.layers == 2
    assert networks(words()) == 3
    assert not any(one.preparation.normalise for one in candidates(words(labels=200)))


def test_own_columns_come_first_where_neighbours_differ() -> None:
    assert Facts.of(words()).homophily > 0.5
    assert Facts.of(words(homophilous=False)).homophily < 0
    assert candidates(words())[0].name == "linear messages"
    assert candidates(words(homophilous=False))[0].name == "own columns first"


def test_molecules_get_random_walks_unless_the_caller_has_encodings() -> None:
    task = small_task("graph", count=20)
    assert {one.preparation.walks for one in candidates(task)} == {16}
    own = replace(
        task,
        graphs=replace(task.graphs, pe=torch.rand(task.graphs.num_nodes, 4)),
        schema=replace(task.schema, encodings=4),
    )
    found = candidates(own)
    assert {one.preparation.walks for one in found} == {0}
    assert {one.config.context.pe_dim for one in found} == {4}


def test_columns_of_whole_graphs_enter_every_candidate() -> None:
    task = small_task("graph", count=20)
    own = replace(
        task,
        graphs=replace(task.graphs, graph_attr=torch.rand(20, 3)),
        schema=replace(task.schema, graph_features=3),
    )
    for one in candidates(own):
        assert one.config.readout.graph_channels == 3
        batch = one.preparation.applied(own).graphs.batch()
        assert call(build_net(one.config).eval(), batch, "graph").shape == (20, 2)


def test_larger_data_get_fewer_epochs_and_candidates_of_a_task_equal_budgets() -> None:
    def task(nodes: int) -> Task:
        x, y = torch.randn(nodes, 8), torch.arange(nodes) % 2
        graphs = Graphs(x, torch.randint(nodes, (2, 4 * nodes)), y, "node")
        return Task("any", graphs, Schema(8, outputs=2), (Split.draw(nodes),), "cross_entropy", "accuracy")

    small, large = candidates(task(1_000)), candidates(task(400_000))
    assert small[0].training.epochs > large[0].training.epochs
    for found in (small, large):
        assert len({one.training.epochs for one in found}) == 1


def test_sigma_of_the_linear_candidate_is_the_identity() -> None:
    task = small_task("node", count=400)
    linear = next(one for one in candidates(task) if one.name == "linear messages")
    assert linear.config.conv.options["activation"] == "identity"


def test_records_say_what_was_tried_on_validation() -> None:
    found = json.loads((RECORDS / "defaults.json").read_text())
    for presets in found.values():
        for seeds in presets.values():
            for record in seeds.values():
                assert record["trials"]
                assert all(row["val"] is not None for row in record["trials"])
                assert record["test"] >= 0
