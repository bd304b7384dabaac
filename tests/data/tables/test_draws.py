"""A split of a user's tables is drawn as the caller says, and training sees nothing of what it must not see."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn.data import Split, Task, load_tables, split_from_ids, split_to_ids
from sirgcn.data.splits import PARTS
from sirgcn.data.validate import DataError
from sirgcn.strict import ConfigError

COUNT = 60


def tables(**columns: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(
        {
            "id": [f"n{place}" for place in range(COUNT)],
            "size": rng.normal(size=COUNT),
            "label": ["a", "b"] * (COUNT // 2),
            "who": [f"c{place // 4}" for place in range(COUNT)],
            "when": pd.date_range("2024-01-01", periods=COUNT)[::-1].astype(str),
        }
        | columns
    )
    ends = rng.integers(0, COUNT, (2, 150))
    edges = pd.DataFrame({"source": nodes["id"][ends[0]].to_numpy(), "target": nodes["id"][ends[1]].to_numpy()})
    return nodes, edges.assign(amount=rng.normal(size=150))


def load(draw: Any = None, nodes: dict[str, Any] | None = None, **options: Any) -> Task:
    return load_tables(*tables(**nodes or {}), target="label", draw=draw, **options)


def column(task: Task, part: str, values: Any) -> set[Any]:
    return set(np.asarray(values)[getattr(task.splits[0], part).numpy()])


def features(task: Task) -> list[str]:
    return [found.name for found in task.details["columns"]["node"]]


def test_all_rows_of_a_group_are_in_one_part_and_the_group_is_no_feature() -> None:
    task = load({"group": "who"})
    who = tables()[0]["who"]
    groups = [column(task, part, who) for part in PARTS]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 15
    assert features(task) == ["size", "when"]
    assert "by the groups of column 'who'" in task.details["inferred"]["split"]


@pytest.mark.parametrize("typed", [list, pd.to_datetime, lambda when: pd.DatetimeIndex(when).day_of_year])
def test_the_oldest_rows_train_whatever_holds_the_time(typed: Any) -> None:
    when = tables()[0]["when"]
    task = load({"time": "when"}, {"when": typed(when)})
    train, val, test = (column(task, part, when) for part in PARTS)
    assert max(train) < min(val) <= max(val) < min(test)
    assert features(task) == ["size", "who"]


def test_a_row_without_a_time_or_group_is_refused_unless_it_has_no_target() -> None:
    gaps = tables()[0]["when"].where(lambda when: when.index != 7, None)
    with pytest.raises(DataError, match=r"nodes: when, row 8: expected a value in all rows with a target, got none"):
        load({"time": "when"}, {"when": gaps})
    label = pd.Series(["a", "b"] * (COUNT // 2)).where(lambda label: label.index != 7, None)
    task = load({"time": "when"}, {"when": gaps, "label": label})
    assert 7 not in torch.cat([getattr(task.splits[0], part) for part in PARTS]).tolist()


def test_a_draw_takes_the_place_of_a_split_column_which_stays_no_feature() -> None:
    words = {"split": ["train"] * 40 + ["val"] * 10 + ["test"] * 10}
    assert load(None, words).splits[0].train.tolist() == list(range(40))
    drawn = load("random", words)
    assert len(drawn.splits[0].train) == 36
    assert "split" not in features(drawn)
    with pytest.raises(DataError, match="draw: expected none beside split="):
        load("random", words, split="split")


def test_inductive_training_sees_no_held_out_node_and_no_edge_of_one() -> None:
    whole, task = load("random"), load("inductive")
    for part in PARTS:
        assert torch.equal(getattr(task.splits[0], part), getattr(whole.splits[0], part))
    (train,) = task.batches("train")
    (test,) = task.batches("test")
    held = torch.cat([task.splits[0].val, task.splits[0].test])
    seen = torch.ones(COUNT, dtype=torch.bool)
    seen[held] = False
    nodes = seen.nonzero().squeeze(1)
    assert torch.equal(train.x, task.graphs.x[nodes])
    assert torch.equal(train.y, task.graphs.y[task.splits[0].train])
    among = seen[task.graphs.edge_index].all(0)
    assert torch.equal(nodes[train.edge_index], task.graphs.edge_index[:, among])
    assert torch.equal(train.edge_attr, task.graphs.edge_attr[among])  # type: ignore[index]
    assert test.num_edges == task.graphs.num_edges


def test_inductive_preprocessing_learns_from_no_edge_of_a_held_out_node() -> None:
    nodes, edges = tables()
    task = load("inductive")
    ids = nodes["id"].to_numpy()[task.splits[0].train.numpy()]
    among = edges["source"].isin(ids) & edges["target"].isin(ids)
    (amount,) = task.details["preprocessing"].edges
    assert amount.mean == pytest.approx((edges["amount"][among].mean(),))


def test_inductive_also_applies_to_the_split_of_a_column_and_keeps_test_nodes_unseen_in_a_search() -> None:
    words = {"split": ["train"] * 40 + ["val"] * 10 + ["test"] * 10}
    task = load("inductive", words)
    assert next(task.batches("train")).num_nodes == 40
    assert next(task.without_test().batches("train")).num_nodes == 40
    assert next(replace(task, unseen=()).batches("train")).num_nodes == COUNT


def test_only_nodes_of_one_graph_can_be_hidden() -> None:
    nodes, edges = tables()
    with pytest.raises(DataError, match="inductive: expected one graph with targets of nodes"):
        load_tables(nodes, edges, target="amount", level="edge", draw="inductive")
    task = load()
    with pytest.raises(DataError, match=r"unseen\[0\]: expected no training node"):
        replace(task, unseen=(task.splits[0].train,))


def test_the_folds_of_one_seed_test_every_row_once() -> None:
    tests = [load(folds=4, fold=fold, seed=3).splits[0].test for fold in range(4)]
    assert sorted(torch.cat(tests).tolist()) == list(range(COUNT))
    grouped = [column(load({"group": "who"}, folds=3, fold=fold), "test", tables()[0]["who"]) for fold in range(3)]
    assert sum(map(len, grouped)) == len(set.union(*grouped)) == 15
    with pytest.raises(DataError, match="fold: expected 0 <= fold < 4, got 4"):
        load(folds=4, fold=4)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        ({"group": "whom"}, "draw: expected a column of nodes .*, got 'whom'"),
        ({"time": "label"}, "label, row 1: expected a date such as"),
        ({}, "draw: expected one of group and time"),
        ({"group": "who", "time": "when"}, "draw: expected one of group and time"),
        ({"groups": "who"}, "draw: expected .*group"),
        ("by group", "draw: expected one of random, scaffold, inductive"),
        ("scaffold", "draw: expected a table of molecules to draw by scaffold"),
    ],
)
def test_a_draw_that_cannot_be_made_is_refused(draw: Any, message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        load(draw)


def test_molecules_of_one_scaffold_stay_together_and_the_largest_train() -> None:
    pytest.importorskip("rdkit")
    rings = ["c1ccccc1", "C1CCCCC1", "c1ccncc1", "C1CC1"]
    smiles = [ring + "C" * length for ring, count in zip(rings, (6, 2, 1, 1), strict=True) for length in range(count)]
    frame = pd.DataFrame({"smiles": smiles, "y": [0, 1] * 5})
    task = load_tables(frame, target="y", draw="scaffold")
    assert task.splits[0].train.tolist() == list(range(6))
    folds = [load_tables(frame, target="y", draw="scaffold", folds=3, fold=fold).splits[0].test for fold in range(3)]
    assert sorted(torch.cat(folds).tolist()) == list(range(10))
    assert sum(set(range(6)) <= set(fold.tolist()) for fold in folds) == 1


def test_a_split_comes_back_from_its_ids_although_the_rows_have_moved() -> None:
    task = load({"group": "who"})
    found = json.loads(json.dumps(split_to_ids(task)))
    assert (found["of"], found["by"], found["inductive"]) == ("nodes", "ids", False)
    nodes, edges = tables()
    moved = load_tables(nodes.sample(frac=1, random_state=1), edges, target="label")
    split = split_from_ids(moved, found)
    for part in PARTS:
        ids = moved.details["ids"][getattr(split, part).numpy()]
        assert ids.tolist() == found[part]
    with pytest.raises(DataError, match="train: expected ids of the nodes, got 2 unknown ones such as 'x'"):
        split_from_ids(task, {**found, "train": ["n0", "x", ["n1"]]})
    with pytest.raises(DataError, match="test: expected of, by, train"):
        split_from_ids(task, {name: value for name, value in found.items() if name != "test"})


def test_edges_are_named_by_rows_and_graphs_without_ids_by_places() -> None:
    nodes, edges = tables()
    task = load_tables(nodes, edges, target="amount", level="edge")
    found = split_to_ids(task)
    assert (found["of"], found["by"]) == ("edges", "rows")
    assert torch.equal(split_from_ids(task, found).test, task.splits[0].test)
    plain = replace(task, details={})
    assert split_to_ids(plain)["by"] == "places"
    assert isinstance(split_from_ids(plain, split_to_ids(plain)), Split)
