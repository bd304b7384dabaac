"""Controls: fitted without the test part, compared row by row, and a sentence that claims what intervals support."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn.data import METRICS, Graphs, Schema, Split, Task, load
from sirgcn.data.molecules import has_rdkit
from sirgcn.engine.controls import rows_of
from sirgcn.model.bootstrap import Score
from sirgcn.model.controls import CONTROLS, ControlResult, ControlSettings, Difference, difference, run_controls
from sirgcn.model.evaluation import Evaluation
from sirgcn.model.plain_models import linear, majority, network
from sirgcn.model.verdict import best_of, embedding_map, first_sentence
from sirgcn.strict import ConfigError

COUNT = 300
QUICK = ControlSettings(seconds=2.0)


def task_of(sort: str = "classes", level: str = "node") -> Task:
    """Rows whose target follows from one of their columns."""
    generator = torch.Generator().manual_seed(0)
    x, edges = torch.randn(COUNT, 4, generator=generator), torch.randint(0, COUNT, (2, COUNT), generator=generator)
    signal = x[:, 0] if level == "node" else x[edges[0], 0]
    loss, metric, outputs = {
        "classes": ("cross_entropy", "accuracy", 3),
        "labels": ("binary_cross_entropy", "roc_auc", 2),
        "numbers": ("mse", "mae", 1),
    }[sort]
    y = signal * 3 + 20
    if sort == "classes":
        y = (signal > -0.5).long() + (signal > 0.5).long()
    if sort == "labels":
        y = torch.stack([signal > 0, signal > 1], 1).float()
        y[::7, 1] = torch.nan
    split = Split(torch.arange(150), torch.arange(150, 220), torch.arange(220, COUNT))
    graphs = Graphs(x, edges, y, level)  # type: ignore[arg-type]
    return Task("drawn", graphs, Schema(4, outputs=outputs), (split,), loss, metric)


def blind(task: Task) -> Tensor:
    """The outputs of a model that knows nothing, for the test rows."""
    return torch.zeros(len(rows_of(task, "test")), task.schema.outputs)


@pytest.mark.parametrize(("sort", "level"), [("classes", "node"), ("labels", "node"), ("numbers", "edge")])
def test_every_control_is_made_and_what_sees_the_columns_finds_the_signal(sort: str, level: str) -> None:
    task = task_of(sort, level)
    found = run_controls(task, blind(task), rows_of(task, "test"), QUICK)
    assert [one.name for one in found] == [name for name in CONTROLS if name != "fingerprints"]
    # A note may say that a control was stopped by its time; one without scores could not be made.
    assert all(one.scores for one in found)
    first, better = found[0].scores[task.metric].value, METRICS[task.metric].better
    for one in found:
        if one.name in ("linear", "boosting", "boosting_neighbours", "mlp"):
            assert better(one.scores[task.metric].value, first)
            assert one.differences[task.metric].gain < 0


def test_graphs_have_controls_too() -> None:
    task = load("hetero_edge_count", c=2, num_graphs=100)
    rows = rows_of(task, "test")
    found = run_controls(task, blind(task), rows, QUICK)
    assert all(one.scores for one in found)
    assert found[0].title == "Mean"


def test_no_label_of_the_test_part_matters_to_a_control() -> None:
    task = task_of()
    rows = rows_of(task, "test")
    y = task.graphs.y.clone()
    y[rows] = (y[rows] + 1) % 3
    other = replace(task, graphs=replace(task.graphs, y=y))
    for name in ("majority", "linear", "boosting_neighbours"):
        settings = ControlSettings((name,), seconds=100.0)
        values = [run_controls(one, blind(one), rows, settings)[0].validation for one in (task, other)]
        assert values[0] == values[1]


def test_a_graph_without_edges_has_no_controls_that_see_them() -> None:
    task = task_of()
    bare = replace(task, graphs=replace(task.graphs, edge_index=torch.zeros(2, 0, dtype=torch.int64)))
    names = {one.name for one in run_controls(bare, blind(bare), rows_of(bare, "test"), QUICK)}
    assert names == {"majority", "linear", "boosting", "mlp"}


def test_a_control_that_fails_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(asked: Any) -> Tensor:
        raise ValueError("this table is odd")

    monkeypatch.setitem(CONTROLS, "linear", replace(CONTROLS["linear"], fit=fail))
    task = task_of()
    found = run_controls(task, blind(task), rows_of(task, "test"), ControlSettings(("linear", "majority")))
    assert [one.note for one in found] == ["this table is odd", ""]
    assert found[0].to_dict()["scores"] == {}


def test_an_unknown_control_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean gcn"):
        ControlSettings(("gcm",))


@pytest.mark.skipif(not has_rdkit(), reason="RDKit is not installed")
def test_fingerprints_of_molecules_are_a_control() -> None:
    smiles = ["CCO", "CCN", "CCC", "CC(=O)O", "c1ccccc1", "c1ccccc1O"] * 20
    count = len(smiles)
    graphs = Graphs(
        torch.ones(count, 1),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.tensor([float("O" in text) for text in smiles]),
        "graph",
        node_ptr=torch.arange(count + 1),
        edge_ptr=torch.zeros(count + 1, dtype=torch.int64),
    )
    split = Split(torch.arange(60), torch.arange(60, 80), torch.arange(80, count))
    task = Task("alcohols", graphs, Schema(1), (split,), "binary_cross_entropy", "roc_auc")
    settings = ControlSettings(("majority", "fingerprints"), seconds=1.0)
    found = run_controls(task, blind(task), rows_of(task, "test"), settings, smiles=smiles)
    assert found[1].scores["roc_auc"].value > 0.95
    assert len(run_controls(task, blind(task), rows_of(task, "test"), settings)) == 1


def test_the_majority_is_the_shares_of_the_training_rows() -> None:
    task = task_of()
    shares = torch.bincount(task.graphs.y[:150], minlength=3) / 150
    torch.testing.assert_close(majority(task)[0].exp(), shares)
    numbers = task_of("numbers")
    torch.testing.assert_close(majority(numbers)[0, 0], numbers.graphs.y[:150].median())


def test_linear_regression_gives_back_a_linear_target() -> None:
    task = task_of("numbers")
    torch.testing.assert_close(linear(task)[:, 0], task.graphs.y, atol=0.1, rtol=0)


def test_a_network_without_time_still_answers() -> None:
    notes: list[str] = []
    assert network(task_of(), "gcn", seconds=0.0, notes=notes).shape == (COUNT, 3)
    # A reader learns that the score could be better.
    assert notes == ["stopped by its time after 1 and 1 epochs"]


@given(st.integers(0, 2**31), st.sampled_from(["accuracy", "log_loss", "roc_auc", "f1"]))
def test_a_model_does_not_differ_from_itself_and_differences_change_sign(seed: int, metric: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 2, (40,), generator=generator)
    target[:2] = torch.tensor([0, 1])
    one, other = torch.randn(2, 40, 2, generator=generator).double()
    same = difference(metric, one, one, target)
    assert (same.gain, same.low, same.high) == (0.0, 0.0, 0.0)
    forth, back = difference(metric, one, other, target), difference(metric, other, one, target)
    assert forth.gain == pytest.approx(-back.gain)
    assert forth.low == pytest.approx(-back.high)


def result(name: str, sees: Any, gain: float, half: float, validation: float | None = 0.5) -> ControlResult:
    """A control that the model beats by `gain`, give or take `half`."""
    differences = {"accuracy": Difference(gain, gain - half, gain + half)}
    scores = {"accuracy": Score("accuracy", 0.7 - gain, 0.6 - gain, 0.8 - gain, True)}
    return ControlResult(name, name.title(), sees, 1.0, validation, scores, differences)


def evaluation(rows: int = 500) -> Evaluation:
    return Evaluation(rows, "accuracy", {"accuracy": Score("accuracy", 0.7, 0.6, 0.8, True)})


@given(st.floats(-0.3, 0.3), st.floats(0.001, 0.3), st.floats(-0.3, 0.3), st.floats(0.001, 0.3))
def test_the_sentence_claims_nothing_that_an_interval_does_not_support(a: float, b: float, c: float, d: float) -> None:
    own, seeing = result("boosting", "columns", a, b), result("gcn", "graph", c, d)
    text = first_sentence(evaluation(), [own, seeing])
    assert ("The graph adds" in text) == (own.differences["accuracy"].low > 0)
    assert ("A model without the graph is better" in text) == (own.differences["accuracy"].high < 0)
    assert ("It is better than the best simple model" in text) == (seeing.differences["accuracy"].low > 0)
    assert ("A simple model with the graph is better" in text) == (seeing.differences["accuracy"].high < 0)


def test_the_best_control_is_chosen_by_validation_and_a_better_one_is_named() -> None:
    chosen, lucky = result("linear", "columns", 0.1, 0.02, 0.6), result("mlp", "columns", -0.1, 0.02, 0.5)
    best = best_of([chosen, lucky], "accuracy")
    assert best is not None
    assert best.name == "linear"
    text = first_sentence(evaluation(), [chosen, lucky])
    assert text.startswith(
        "The graph adds 10.0 [8.0, 12.0] points of accuracy over the best model without it (Linear)."
    )
    assert text.endswith(
        "Validation chose Linear; on the test part Mlp did best of these, "
        "and better than this model by 10.0 [8.0, 12.0]."
    )
    text = first_sentence(evaluation(), [chosen, result("mlp", "columns", 0.05, 0.02, 0.5)])
    assert text.endswith("on the test part Mlp did best of these, this model is better by 5.0 [3.0, 7.0].")
    assert "Validation" not in first_sentence(evaluation(), [chosen, result("mlp", "columns", 0.2, 0.02, 0.5)])


def test_few_rows_and_no_controls_claim_nothing() -> None:
    assert "too few to say" in first_sentence(evaluation(10), [result("mlp", "columns", 0.5, 0.1)])
    assert first_sentence(evaluation(), []).startswith("No control was fitted")


def test_errors_are_less_and_in_their_own_units() -> None:
    differences = {"rmse": Difference(1.5, 1.0, 2.0)}
    scores = {"rmse": Score("root mean squared error", 2.0, 1.0, 3.0, False)}
    control = ControlResult("boosting", "Boosting", "columns", 1.0, 3.0, scores, differences)
    text = first_sentence(Evaluation(100, "rmse", scores), [control])
    expected = (
        "The graph lowers the root mean squared error by 1.5 [1, 2] against the best model without it (Boosting)."
    )
    assert text == expected


def test_the_map_keeps_the_two_directions_of_most_variance() -> None:
    task = task_of()
    vectors = torch.zeros(COUNT, 5)
    vectors[:, 3], vectors[:, 1] = torch.linspace(-3, 3, COUNT), torch.linspace(-1, 1, COUNT).square()
    found = embedding_map(vectors, task, torch.arange(COUNT), most=50)
    assert len(found["points"]) == 50
    assert sum(found["shares"]) == pytest.approx(1.0)
    assert max(abs(point["x"]) for point in found["points"]) > 2
