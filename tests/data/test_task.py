from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from sirgcn.data import DataError, Graphs, Schema, Split, Task, load
from sirgcn.data.splits import PARTS

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])


def graph(seed: int, level: str) -> Data:
    generator = torch.Generator().manual_seed(seed)
    rows = {"node": 3, "edge": 4, "graph": 1}[level]
    y = torch.randint(0, 3, (rows,), generator=generator)
    return Data(x=torch.randn(3, 2, generator=generator), edge_index=EDGES, y=y)


def task(level: Any = "graph", count: int = 6, **changes: Any) -> Task:
    """Graphs of three nodes and four edges, or one; three classes."""
    graphs = Graphs.from_data([graph(seed, level) for seed in range(count)], level)
    items = count if count > 1 else len(graphs.y)
    arguments: dict[str, Any] = {
        "name": "test",
        "graphs": graphs,
        "schema": Schema(features=2, outputs=3),
        "splits": (Split(*torch.arange(items).tensor_split([items - 2, items - 1])),),
        "loss": "cross_entropy",
        "metric": "accuracy",
    }
    return Task(**arguments | changes)


def numbers(y: list[float] | list[list[float]], **changes: Any) -> Task:
    """The graphs of `task` with numbers as targets."""
    targets = torch.tensor(y)
    arguments: dict[str, Any] = {
        "graphs": replace(task().graphs, y=targets),
        "schema": Schema(features=2, outputs=targets.size(1) if targets.dim() == 2 else 1),
        "loss": "l1",
        "metric": "mae",
    }
    return task(**arguments | changes)


@given(
    st.sampled_from(["node", "edge", "graph"]),
    st.integers(3, 7),
    st.integers(1, 8),
    st.sampled_from(PARTS),
    st.booleans(),
)
def test_batches_hold_every_graph_of_the_part_once(level: Any, count: int, size: int, part: Any, shuffle: bool) -> None:
    made = task(level, count)
    generator = torch.Generator().manual_seed(0) if shuffle else None
    batches = list(made.batches(part, size, generator=generator))
    assert len(batches) == made.num_batches(part, size)
    assert all(batch.num_graphs <= size for batch in batches)
    items = getattr(made.splits[0], part)
    expected = [made.graphs[i].x.tolist() for i in items.tolist()]
    found = [rows.tolist() for batch in batches for rows in batch.x.split(3)]
    assert (sorted(found) == sorted(expected)) if shuffle else (found == expected)


def test_order_is_drawn_anew_by_the_generator() -> None:
    made = task(count=40)
    generator = torch.Generator().manual_seed(0)
    first, second = ([batch.y.tolist() for batch in made.batches("train", 7, generator=generator)] for _ in range(2))
    again = [batch.y.tolist() for batch in made.batches("train", 7, generator=torch.Generator().manual_seed(0))]
    assert first == again
    assert first != second
    assert sorted(y for batch in first for y in batch) == sorted(y for batch in second for y in batch)


@pytest.mark.parametrize("level", ["node", "edge"])
def test_one_graph_is_one_batch_with_the_part_s_rows(level: Any) -> None:
    made = task(level, 1)
    assert made.over == f"{level}s"
    for part in PARTS:
        items = getattr(made.splits[0], part)
        (batch,) = made.batches(part, batch_size=2)
        assert made.num_batches(part, 2) == 1
        assert torch.equal(batch.x, made.graphs.x)
        assert torch.equal(batch.y, made.graphs.y[items])
        if level == "node":
            assert torch.equal(batch.index, items)
        else:
            assert batch.get("index") is None
            assert torch.equal(batch.edge_label_index, EDGES[:, items])


def test_unlabelled_nodes_of_many_graphs_are_no_targets() -> None:
    made = task("node")
    y = made.graphs.y.clone()
    y[::3] = -1
    made = replace(made, graphs=replace(made.graphs, y=y))
    for batch in made.batches("train", 2):
        assert batch.index.tolist() == [1, 2, 4, 5]
        assert bool((batch.y >= 0).all())
        assert len(batch.y) == len(batch.index)
    (batch,) = task("node").batches("val")
    assert batch.get("index") is None


def test_an_empty_part_has_no_batches() -> None:
    none = torch.empty(0, dtype=torch.int64)
    for level, count in (("graph", 6), ("node", 1)):
        made = task(level, count, splits=(Split(torch.arange(3), none, none),))
        for size in (None, 2):
            assert list(made.batches("val", size)) == []
            assert made.num_batches("val", size) == 0


def test_several_splits_are_told_apart() -> None:
    splits = tuple(Split(*torch.arange(6).roll(shift).tensor_split([4, 5])) for shift in range(3))
    made = task(splits=splits)
    for number, split in enumerate(splits):
        (batch,) = made.batches("test", split=number)
        assert torch.equal(batch.x, made.graphs[int(split.test[0])].x)


@given(st.integers(1, 200), st.integers(0, 5), st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(0, 4)))
def test_a_drawn_split_has_every_item_once(count: int, seed: int, shares: tuple[int, int, int]) -> None:
    first, second, third = (share / sum(shares) for share in shares)
    split = Split.draw(count, seed, (first, second, third))
    assert torch.cat([split.train, split.val, split.test]).sort().values.tolist() == list(range(count))
    assert len(split.train) > 0
    for part, share in ((split.val, second), (split.test, third)):
        assert (len(part) == 0) if share == 0 else (abs(len(part) - share * count) <= 1)
    assert torch.equal(split.train, Split.draw(count, seed, (first, second, third)).train)


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=80), st.integers(0, 5))
def test_strata_are_split_alike(labels: list[int], seed: int) -> None:
    strata = torch.tensor(labels)
    if not bool((strata >= 0).any()):
        with pytest.raises(DataError, match=r"^strata: expected at least one class"):
            Split.draw(len(labels), seed, strata=strata)
        return
    split = Split.draw(len(labels), seed, strata=strata)
    assert torch.cat([split.train, split.val, split.test]).sort().values.tolist() == [
        i for i, label in enumerate(labels) if label >= 0
    ]
    for label in set(labels) - {-1}:
        count = labels.count(label)
        parts = [int((strata[getattr(split, part)] == label).sum()) for part in PARTS]
        assert parts[0] >= 1
        if count >= 3:
            assert min(parts) >= 1
            assert all(abs(found - 0.2 * count) <= 1 for found in parts[1:])


def test_a_drawn_split_is_the_recorded_one() -> None:
    split = Split.draw(12, seed=3, strata=torch.arange(12) % 3)
    parts = [part.tolist() for part in (split.train, split.val, split.test)]
    assert parts == [[4, 5, 6, 9, 10, 11], [1, 2, 3], [0, 7, 8]]


def test_masks_are_indices() -> None:
    train = torch.tensor([True, False, True, False])
    split = Split.from_masks(train, ~train, torch.zeros(4, dtype=torch.bool))
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0, 2], [1, 3], [])


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("count", {"count": 0}),
        ("seed", {"count": 5, "seed": -1}),
        ("fractions", {"count": 5, "fractions": (0.5, 0.2, 0.2)}),
        ("fractions", {"count": 5, "fractions": (0.0, 0.5, 0.5)}),
        ("fractions", {"count": 5, "fractions": (1.2, -0.2, 0.0)}),
        ("fractions", {"count": 5, "fractions": (float("nan"), 0.5, 0.5)}),
        ("strata", {"count": 5, "strata": torch.zeros(4, dtype=torch.int64)}),
        ("strata", {"count": 5, "strata": torch.zeros(5)}),
    ],
)
def test_a_split_that_cannot_be_drawn_is_refused(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        Split.draw(**arguments)
    assert refused.value.field == field


def split(train: list[int], val: list[int], test: list[int]) -> tuple[Split]:
    return (Split(*(torch.tensor(part, dtype=torch.int64) for part in (train, val, test))),)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("loss", {"loss": "cross-entropy"}),
        ("loss", {"loss": "l1"}),
        ("metric", {"metric": "acc"}),
        ("metric", {"metric": "mae"}),
        ("metric", {"metric": "roc_auc"}),
        ("x", {"schema": Schema(features=3, outputs=3)}),
        ("x", {"schema": Schema(vocabularies=(4, 4), outputs=3)}),
        ("edge_attr", {"schema": Schema(features=2, edge_features=1, outputs=3)}),
        ("pe", {"schema": Schema(features=2, encodings=1, outputs=3)}),
        ("y", {"schema": Schema(features=2, outputs=2)}),
        ("splits", {"splits": ()}),
        ("splits[0].train", {"splits": split([], [0], [1])}),
        ("splits[0].test", {"splits": split([0], [1], [6])}),
        ("splits[0].val", {"splits": split([0], [-1], [2])}),
        ("splits[0]", {"splits": split([0, 1], [2], [1])}),
        ("splits[0]", {"splits": split([0] * 257, [], [])}),
        ("splits[0].train", {"splits": (Split(torch.tensor([True] * 6), torch.arange(1), torch.arange(1)),)}),
        ("splits[1].val", {"splits": (*split([0], [1], [2]), *split([0], [9], []))}),
    ],
)
def test_a_task_that_does_not_fit_together_is_refused(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        task(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "y", "changes"),
    [
        ("loss", [0.0] * 6, {"loss": "cross_entropy"}),
        ("y", [0.0] * 6, {"schema": Schema(features=2, outputs=2)}),
        ("y", [0.0, 1.0, 2.0, 0.0, 1.0, 0.0], {"loss": "binary_cross_entropy", "metric": "roc_auc"}),
        ("y", [1.0] * 6, {"loss": "binary_cross_entropy", "metric": "roc_auc"}),
        ("splits[0].test", [0.0, 1.0, 0.0, 1.0, 1.0, float("nan")], {}),
    ],
)
def test_numbers_that_do_not_fit_are_refused(field: str, y: list[float], changes: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        numbers(y, **changes)
    assert refused.value.field == field


def test_several_tasks_may_miss_labels() -> None:
    nan = float("nan")
    made = numbers(
        [[0.0, nan], [1.0, nan], [nan, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, nan]],
        loss="binary_cross_entropy",
        metric="roc_auc",
    )
    (batch,) = made.batches("train")
    assert batch.y.shape == (4, 2)


def test_a_category_outside_its_vocabulary_is_refused() -> None:
    graphs = replace(task().graphs, x=torch.arange(18).view(-1, 1) % 4)
    task(graphs=graphs, schema=Schema(vocabularies=(4,), outputs=3))
    with pytest.raises(DataError, match=r"^x, row \[3, 0\]: expected 0 <= entry < 3, got 3"):
        task(graphs=graphs, schema=Schema(vocabularies=(3,), outputs=3))


def test_labels_of_one_class_are_refused() -> None:
    made = task()
    with pytest.raises(DataError, match=r"^y: expected labels of at least two classes, got only 1"):
        task(graphs=replace(made.graphs, y=torch.ones(6, dtype=torch.int64)))


def test_a_part_without_labels_is_refused() -> None:
    made = task("node")
    y = made.graphs.y.clone()
    y[-3:] = -1
    with pytest.raises(DataError, match=r"^splits\[0\].test: expected labelled items, got none"):
        replace(made, graphs=replace(made.graphs, y=y))


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("batch_size", {"part": "val", "batch_size": 0}),
        ("split", {"part": "val", "split": 1}),
        ("split", {"part": "val", "split": -1}),
    ],
)
def test_batches_that_are_not_there_are_refused(field: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        list(task().batches(**arguments))
    assert refused.value.field == field
    with pytest.raises(DataError):
        task().num_batches(**arguments)


def test_loss_and_metric_are_those_named() -> None:
    made = task()
    assert made.metric_function.name == "accuracy"
    output = torch.eye(3)[made.graphs.y] * 50
    assert made.loss_function(output, made.graphs.y).item() == pytest.approx(0)
    assert made.level == "graph"


@pytest.mark.parametrize(
    ("name", "options"), [("hetero_edge_count", {"c": 2, "num_graphs": 20}), ("cluster", {"num_graphs": 12})]
)
def test_without_its_test_part_a_task_has_no_label_that_is_not_trained_on_or_chosen_by(
    name: str, options: dict[str, Any]
) -> None:
    whole = load(name, **options)
    hidden = whole.without_test()
    assert hidden.num_batches("test") == 0
    for part in ("train", "val"):
        for mine, theirs in zip(hidden.batches(part), whole.batches(part), strict=True):
            assert torch.equal(mine.y, theirs.y)
            assert torch.equal(mine.x, theirs.x)
    (batch,) = whole.batches("test")
    y = hidden.graphs.y
    missing = int((y.isnan() if y.is_floating_point() else y < 0).sum())
    assert missing == len(batch.y) > 0
    assert torch.equal(hidden.graphs.edge_index, whole.graphs.edge_index)


def test_without_its_test_part_a_task_of_one_graph_keeps_one_split() -> None:
    graphs = Graphs(torch.randn(8, 2), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1] * 4), "node")
    one = Split(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4, 5]))
    two = Split(torch.tensor([6, 7]), torch.tensor([4, 5]), torch.tensor([0, 1]))
    whole = Task("drawn", graphs, Schema(2, outputs=2), (one, two), "cross_entropy", "accuracy")
    hidden = whole.without_test(1)
    assert hidden.graphs.y.tolist() == [-1, -1, -1, -1, 0, 1, 0, 1]
    assert all(split.train.tolist() == [6, 7] and len(split.test) == 0 for split in hidden.splits)
    assert len(hidden.splits) == 2
    with pytest.raises(DataError, match="expected 0 <= split < 2, got 2"):
        whole.without_test(2)
