"""Controls: columns by a plain loop, models as scikit-learn's own, and no label that is not trained on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from torch import Tensor

from sirgcn.data import Graphs, Schema, Split, Task, load
from sirgcn.engine.columns import best_columns, neighbour_columns, own_columns, table_of
from sirgcn.engine.controls import CONTROLS, boosting, find_control, rows_of
from sirgcn.strict import ConfigError

COUNT = 90
SPLIT = Split(torch.arange(0, 45), torch.arange(45, 70), torch.arange(70, 90))


def task_of(y: Tensor, loss: str, metric: str, outputs: int = 1, width: int = 3) -> Task:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(COUNT, width, generator=generator)
    edges = torch.randint(0, COUNT - 1, (2, 200), generator=generator)
    return Task("drawn", Graphs(x, edges, y, "node"), Schema(width, outputs=outputs), (SPLIT,), loss, metric)


def x_of(seed: int = 0) -> Tensor:
    return torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 8), st.integers(0, 20), st.integers(0, 10**6))
@settings(max_examples=25)
def test_columns_of_neighbours_are_those_of_a_plain_loop(nodes: int, edges: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 2, generator=generator)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    y = torch.randn(nodes, generator=generator)
    split = Split(torch.arange(nodes), torch.arange(0), torch.arange(0))
    task = Task("drawn", Graphs(x, edge_index, y, "node"), Schema(2), (split,), "mse", "mse")
    found = neighbour_columns(own_columns(task), task)
    for node in range(nodes):
        own = x[edge_index[0, edge_index[1] == node]]
        if len(own):
            expected = torch.cat([own.mean(0), own.min(0).values, own.max(0).values])
            torch.testing.assert_close(found[node], expected)
        else:
            assert bool(found[node].isnan().all())


def test_own_columns_have_a_column_for_each_category_and_the_encodings() -> None:
    graphs = Graphs(
        torch.tensor([[0, 1], [2, 0]]), torch.zeros(2, 0).long(), torch.zeros(2), "node", pe=torch.ones(2, 1)
    )
    split = Split(torch.arange(2), torch.arange(0), torch.arange(0))
    task = Task("drawn", graphs, Schema(vocabularies=(3, 2), encodings=1), (split,), "mse", "mse")
    assert own_columns(task).tolist() == [[1, 0, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1]]


def test_boosting_of_classes_is_scikit_learns_with_the_best_number_of_trees() -> None:
    y = (x_of()[:, 0] > 0).long() + (x_of()[:, 1] > 1).long()
    task = task_of(y, "cross_entropy", "accuracy", 3)
    fitted = boosting(task, max_iter=12, min_samples_leaf=3, learning_rate=0.2)
    x = task.graphs.x.numpy()
    trees = HistGradientBoostingClassifier(
        max_iter=12, min_samples_leaf=3, learning_rate=0.2, early_stopping=False, random_state=0
    ).fit(x[:45], y[:45].numpy())
    accuracies = [float((stage == y[45:70].numpy()).mean()) for stage in trees.staged_predict(x[45:70])]
    assert fitted.rounds == int(np.argmax(accuracies)) + 1
    stages = list(trees.staged_predict(x))
    assert fitted.outputs.argmax(1).tolist() == stages[fitted.rounds - 1].tolist()
    assert fitted.scores(task)["val"] == pytest.approx(max(accuracies))


@pytest.mark.parametrize(("loss", "metric", "own"), [("l1", "mae", "absolute_error"), ("mse", "mse", "squared_error")])
def test_boosting_of_numbers_has_the_loss_of_the_task(loss: str, metric: str, own: str) -> None:
    y = x_of()[:, 0] * 2 + 0.1 * x_of(1)[:, 0]
    task = task_of(y, loss, metric)
    fitted = boosting(task, max_iter=8, min_samples_leaf=3)
    trees = HistGradientBoostingRegressor(
        loss=own, max_iter=8, min_samples_leaf=3, early_stopping=False, random_state=0
    ).fit(task.graphs.x.numpy()[:45], y[:45].numpy())
    stages = list(trees.staged_predict(task.graphs.x.numpy()))
    np.testing.assert_allclose(fitted.outputs[:, 0].numpy(), stages[fitted.rounds - 1], rtol=1e-6)


def test_boosting_has_a_logit_for_each_target_of_two_classes() -> None:
    y = torch.stack([(x_of()[:, 0] > 0).float(), torch.zeros(COUNT), (x_of()[:, 1] > 0).float()], dim=1)
    y[3, 0] = torch.nan
    task = task_of(y, "binary_cross_entropy", "roc_auc", 3)
    fitted = boosting(task, max_iter=10, min_samples_leaf=3)
    assert fitted.outputs.shape == (COUNT, 3)
    # A target with one class among the training rows is predicted as that class.
    assert bool((fitted.outputs[:, 1] < -10).all())
    assert fitted.scores(task)["train"] > 0.9


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_only_the_labels_of_training_and_validation_are_read(name: str) -> None:
    y = (x_of()[:, 0] > 0).long()
    task = task_of(y, "cross_entropy", "accuracy", 2)
    scrambled = replace(task, graphs=replace(task.graphs, y=torch.cat([y[:70], 1 - y[70:]])))
    options: dict[str, Any] = {"max_iter": 6, "min_samples_leaf": 3}
    one, two = (find_control(name).build(data, **options) for data in (task, scrambled))
    assert torch.equal(one.outputs, two.outputs)
    assert one.rounds == two.rounds
    hidden = find_control(name).build(task.without_test(), **options)
    assert torch.equal(hidden.outputs, one.outputs)
    assert "test" not in hidden.scores(task.without_test())


def test_neighbours_help_where_the_label_is_theirs() -> None:
    task = load("cluster", num_graphs=12)
    own, with_neighbours = (boosting(task, neighbours=which, max_iter=20).scores(task) for which in (False, True))
    assert with_neighbours["train"] > own["train"]


def test_graphs_are_summarised() -> None:
    task = load("hetero_edge_count", c=2, num_graphs=40)
    fitted = boosting(task, max_iter=5, min_samples_leaf=2)
    assert fitted.outputs.shape == (40, 1)


def edge_task(count: int = 120) -> Task:
    """Edges whose class is whether the source has a larger number than the target, or their own number is large."""
    generator = torch.Generator().manual_seed(0)
    x, edges = torch.randn(COUNT, 2, generator=generator), torch.randint(0, COUNT, (2, count), generator=generator)
    own = torch.randn(count, 1, generator=generator)
    y = ((x[edges[0], 0] > x[edges[1], 0]) | (own[:, 0] > 1)).long()
    split = Split(torch.arange(0, 80), torch.arange(80, 100), torch.arange(100, count))
    schema = Schema(2, edge_features=1, outputs=2)
    return Task("pairs", Graphs(x, edges, y, "edge", edge_attr=own), schema, (split,), "cross_entropy", "accuracy")


def test_an_edge_has_its_own_columns_and_those_of_its_ends() -> None:
    task = edge_task()
    table = table_of(task)
    source, target = task.graphs.edge_index
    own = task.graphs.edge_attr
    assert own is not None
    assert torch.equal(table, torch.cat([own, task.graphs.x[source], task.graphs.x[target]], 1))
    with_neighbours = table_of(task, neighbours=True)
    assert with_neighbours.shape == (120, 1 + 2 * 4 * 2)
    found = boosting(task, min_samples_leaf=3, neighbours=True).scores(task)
    assert found["test"] > 0.6


@given(st.integers(3, 30), st.integers(2, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_chosen_columns_are_those_with_the_largest_correlations(rows: int, width: int, most: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table, y = torch.randn(rows, width, generator=generator), torch.randn(rows, generator=generator)
    found = best_columns(table, y, most).tolist()
    squares = [float(np.corrcoef(column, y.numpy())[0, 1] ** 2) for column in table.T.numpy()]
    assert sorted(found) == found
    assert len(found) == min(most, width)
    assert (
        min(squares[place] for place in found)
        >= max([square for place, square in enumerate(squares) if place not in found], default=0) - 1e-9
    )


def test_many_columns_are_left_out_by_the_training_rows_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (COUNT,), generator=generator)
    task = task_of(y, "cross_entropy", "accuracy", 2, width=50)
    x = task.graphs.x.clone()
    x[:, 7] = y.float()
    # A column that tells the label on all other rows only.
    x[45:, 9] = y[45:].float()
    x[:45, 9] = 0
    task = replace(task, graphs=replace(task.graphs, x=x))
    table = table_of(task, most=3, train=rows_of(task, "train"))
    assert table.shape == (COUNT, 3)
    assert any(torch.equal(column, x[:, 7]) for column in table.T)
    assert not any(torch.equal(column, x[:, 9]) for column in table.T)


def test_a_limit_of_time_makes_fewer_trees_and_the_first_are_the_same() -> None:
    y = (x_of()[:, 0] > 0).long() + (x_of()[:, 1] > 1).long()
    task = task_of(y, "cross_entropy", "accuracy", 3)
    few = boosting(task, min_samples_leaf=3, seconds=0.0)
    many = boosting(task, min_samples_leaf=3, seconds=1e9)
    free = boosting(task, min_samples_leaf=3)
    assert few.rounds <= 13
    assert many.rounds == free.rounds
    torch.testing.assert_close(many.outputs, free.outputs)


def test_rows_of_a_part_of_several_graphs_are_their_nodes() -> None:
    task = load("cluster", num_graphs=12)
    assert task.graphs.node_ptr is not None
    first = task.splits[0].val[0]
    rows = rows_of(task, "val")
    assert int(rows[0]) == int(task.graphs.node_ptr[first])
    assert len(rows) == int(task.graphs.node_ptr.diff()[task.splits[0].val].sum())


def test_an_unknown_control_and_option_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"control: expected one of .*did you mean boosting\?"):
        find_control("bosting")
    with pytest.raises(TypeError, match="max_itre"):
        boosting(load("cluster", num_graphs=12), max_itre=3)  # type: ignore[call-arg]
