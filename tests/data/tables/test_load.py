"""A user's tables become the task that they describe, and nothing malformed gets in."""

import itertools
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data.tables import Inputs, Preprocessing, apply_tables, load_tables
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import ConfigError

IDS = [f"n{number}" for number in range(12)]
ALL_TRAIN = {"fractions": (1.0, 0.0, 0.0), "standardise": False}


def nodes(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": IDS, "size": range(12), "label": ["a", "b"] * 6} | columns)


def edges(*pairs: tuple[str, str], **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"source": [u for u, _ in pairs], "target": [v for _, v in pairs]} | columns)


PATH = edges(*itertools.pairwise(IDS))


def load(nodes: Any = None, edges: Any = PATH, **options: Any) -> Task:
    return load_tables(nodes, edges, **{"target": "label"} | options)


def refuse(match: str, *arguments: Any, **options: Any) -> Any:
    with pytest.raises((DataError, ConfigError), match=match) as refusal:
        load(*arguments, **options)
    return refusal.value


def dense(task: Task | Inputs) -> torch.Tensor:
    """Return the number of edges between any two nodes."""
    graphs = task.graphs
    ones = torch.ones(graphs.num_edges, dtype=torch.int64)
    return torch.zeros(graphs.num_nodes, graphs.num_nodes, dtype=torch.int64).index_put(
        tuple(graphs.edge_index), ones, accumulate=True
    )


PAIRS = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=30)


@given(PAIRS, st.permutations(IDS))
def test_directed_edges_are_the_rows_whatever_the_order_of_nodes(
    pairs: list[tuple[str, str]], order: list[str]
) -> None:
    task = load(nodes(id=order), edges(*pairs), directed=True)
    expected = torch.zeros(12, 12, dtype=torch.int64)
    for u, v in pairs:
        expected[order.index(u), order.index(v)] += 1
    assert torch.equal(dense(task), expected)
    assert task.details["self_loops"] == sum(u == v for u, v in pairs)
    assert task.details["repeated_edges"] == len(pairs) - len(set(pairs))


@given(PAIRS)
def test_undirected_edges_are_there_both_ways_and_not_twice(pairs: list[tuple[str, str]]) -> None:
    task = load(nodes(), edges(*pairs, weight=[float(row) for row in range(len(pairs))]), standardise=False)
    expected = torch.zeros(12, 12, dtype=torch.int64)
    for u, v in pairs:
        expected[IDS.index(u), IDS.index(v)] += 1
    found = dense(task)
    assert torch.equal(found, torch.maximum(expected, expected.T))
    # An added edge has the features of its row.
    rows = task.details["edge_rows"] - 1
    if len(pairs):
        kept = torch.tensor(rows, dtype=torch.float32)
        weights = task.graphs.edge_attr
        assert weights is not None
        scale = task.details["preprocessing"].edges[0]
        assert torch.allclose(weights[:, 0] * scale.scale[0] + scale.mean[0], kept)
    for place, row in enumerate(rows):
        u, v = (IDS[int(end)] for end in task.graphs.edge_index[:, place])
        assert pairs[row] == ((v, u) if task.details["added"][place] else (u, v))


def test_ids_are_compared_as_text_and_kept() -> None:
    table = pd.DataFrame({"id": [7, 8, 9], "label": ["a", "b", "a"]})
    task = load(table, pd.DataFrame({"source": ["7"], "target": [9.0]}), directed=True)
    assert task.graphs.edge_index.tolist() == [[0], [2]]
    assert task.details["ids"].tolist() == [7, 8, 9]
    error = refuse("edges: source, row 1: expected the id of a node, got '007'", table, edges(("007", "8")))
    assert (error.field, error.row, error.value) == ("source", 1, "007")


@pytest.mark.parametrize(
    "names",
    [("source", "target"), ("src", "dst"), ("From", "To"), ("u", "v"), ("source_id", "target_id"), ("left", "right")],
)
def test_usual_names_are_found_whatever_their_case(names: tuple[str, str]) -> None:
    renamed = nodes().rename(columns={"id": "Node_ID"})
    task = load(renamed, PATH.set_axis(names, axis=1))
    assert task.graphs.num_edges == 22
    assert task.details["inferred"]["id"] == "Node_ID"
    assert task.details["inferred"]["source"] == names[0]


def test_arguments_name_any_columns() -> None:
    task = load(
        nodes(extra=1.0, who=IDS[::-1]),
        PATH.set_axis(["a", "b"], axis=1).assign(c=1.0),
        id="who",
        source="b",
        destination="a",
        features=["size"],
        edge_features=[],
        directed=True,
        **ALL_TRAIN,
    )
    assert task.graphs.edge_index[:, 0].tolist() == [10, 11]
    assert task.graphs.x[:, 0].tolist() == list(range(12))
    assert task.graphs.edge_attr is None


def test_a_frame_without_a_column_of_ids_has_its_index() -> None:
    task = load(nodes().set_index("id"))
    assert task.details["ids"].tolist() == IDS


def test_nodes_may_be_what_the_edges_name() -> None:
    task = load(None, edges(("b", "a"), ("a", "c"), label=[0, 1]), directed=True, **ALL_TRAIN)
    assert task.level == "edge"
    assert list(task.details["ids"]) == ["b", "a", "c"]
    assert task.graphs.edge_index.tolist() == [[0, 1], [1, 2]]
    assert task.graphs.x.tolist() == [[1.0]] * 3


def test_columns_of_every_kind_become_features(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    table = nodes(
        size=[1, None, *range(10)],
        city=["Rome", "Oslo", None] * 4,
        paid=["true", "false"] * 6,
        vector=["[1, 2.5]"] * 12,
        since=["1970-01-02"] * 12,
        empty=[None] * 12,
        name=[f"name {row}" for row in range(12)],
    )
    table.to_csv(path, index=False)
    task = load(path, **ALL_TRAIN)
    columns = task.details["preprocessing"].nodes
    assert [column.type for column in columns] == ["numeric", "categorical", "boolean", "list", "time", "categorical"]
    assert task.details["missing"] == {"size": 1, "city": 4}
    assert task.details["left_out"] == {"empty": "it is empty"}
    assert task.graphs.x[1, :9].tolist() == [0, 1, 1, 0, 0, 0, 1, 2.5, 1]
    assert task.schema.features == 9 + 13
    assert load(path, features=["city"]).schema.vocabularies == (3,)


def test_texts_of_too_many_values_are_left_out_unless_named() -> None:
    many = pd.DataFrame({"id": range(300), "name": [f"n{row}" for row in range(300)], "label": ["a", "b"] * 150})
    ends = pd.DataFrame({"source": [0], "target": [1]})
    task = load(many, ends)
    assert "300 different texts" in task.details["left_out"]["name"]
    assert task.graphs.x.tolist() == [[1.0]] * 300
    assert load(many, ends, features=["name"]).schema.vocabularies == (101,)


def test_kinds_say_what_a_column_holds() -> None:
    task = load(nodes(size=[10, 20] * 6), types={"size": "categorical"})
    assert task.schema.vocabularies == (3,)
    assert task.details["preprocessing"].nodes[0].categories == ("10", "20")
    refuse("types: expected columns of .*, got 'sise'", nodes(), types={"sise": "numeric"})
    refuse(r"types\['size'\]: expected one of numeric", nodes(), types={"size": "number"})


@pytest.mark.parametrize(
    ("values", "options", "classes", "loss", "metric"),
    [
        (["a", "b"] * 6, {}, ("a", "b"), "cross_entropy", "accuracy"),
        ([True, False] * 6, {}, ("false", "true"), "cross_entropy", "accuracy"),
        ([10, 9, None] * 4, {}, ("9", "10"), "cross_entropy", "accuracy"),
        ([10, 9] * 6, {"metric": "roc_auc"}, ("9", "10"), "cross_entropy", "roc_auc"),
        ([10, 9] * 6, {"task": "regression"}, (), "l1", "mae"),
        ([0.5, 9] * 6, {"metric": "mse"}, (), "mse", "mse"),
        ([0.5, 9] * 6, {"task": "classification"}, ("0.5", "9"), "cross_entropy", "accuracy"),
        (list(range(12)), {}, tuple(map(str, range(12))), "cross_entropy", "accuracy"),
    ],
)
def test_the_target_says_what_the_task_is(
    values: list[Any], options: dict[str, Any], classes: tuple[str, ...], loss: str, metric: str
) -> None:
    task = load(nodes(label=values), **options)
    assert (task.classes, task.loss, task.metric) == (classes, loss, metric)
    for row, value in enumerate(values):
        if value is None:
            assert task.graphs.y[row] == -1
        elif classes:
            assert classes[int(task.graphs.y[row])] == str(value).lower()
        else:
            assert task.graphs.y[row] == value


def test_many_whole_numbers_are_numbers() -> None:
    table = pd.DataFrame({"id": range(30), "label": range(30)})
    task = load(table, pd.DataFrame({"source": [0], "target": [1]}))
    assert task.loss == "l1"
    assert "30 different numbers" in task.details["inferred"]["task"]


def test_several_targets_are_several_outputs() -> None:
    table = nodes(p=[0, 1, None] * 4, q=[1, 1, 0] * 4)
    task = load(table, target=["p", "q"])
    assert (task.loss, task.metric, task.schema.outputs) == ("binary_cross_entropy", "roc_auc", 2)
    assert torch.isnan(task.graphs.y[2, 0])
    assert load(table, target=["size", "q"]).loss == "l1"
    refuse("size, row 3: expected 0 or 1", table, target=["size", "q"], task="classification")


def test_rows_without_a_label_stay_nodes_and_are_in_no_part() -> None:
    task = load(nodes(label=["a", None, "b"] * 4))
    assert task.graphs.num_nodes == 12
    parts = torch.cat([task.splits[0].train, task.splits[0].val, task.splits[0].test])
    assert sorted(parts.tolist()) == [row for row in range(12) if row % 3 != 1]


def test_a_column_gives_the_split_in_any_spelling() -> None:
    words = ["train", "Training", "val", "VALID", "validation", "dev", "test", " testing", None, "train", "test", "val"]
    for options in ({"split": "part"}, {}):
        name = options.get("split", "Split")
        split = load(nodes(**{name: words}), **options).splits[0]
        assert split.train.tolist() == [0, 1, 9]
        assert split.val.tolist() == [2, 3, 4, 5, 11]
        assert split.test.tolist() == [6, 7, 10]
        assert load(nodes(**{name: words}), **options).schema.features == 1


def test_a_drawn_split_repeats_from_its_seed_and_keeps_the_shares_of_classes() -> None:
    table = pd.DataFrame({"id": range(100), "label": ["a"] * 80 + ["b"] * 20})
    ends = pd.DataFrame({"source": [0], "target": [1]})
    first, again, other = (load(table, ends, seed=seed).splits[0] for seed in (0, 0, 1))
    assert torch.equal(first.train, again.train)
    assert not torch.equal(first.train, other.train)
    assert [int((part >= 80).sum()) for part in (first.train, first.val, first.test)] == [12, 4, 4]


def test_preprocessing_sees_training_rows_alone() -> None:
    split = ["train"] * 6 + ["val"] * 3 + ["test"] * 3
    first, second = (
        load(nodes(split=split, size=[*range(6), *others], city=[*"ababab", *cities]))
        for others, cities in (([0.0] * 6, "aaaaaa"), ([1e6] * 6, "zzzzzz"))
    )
    assert first.details["preprocessing"] == second.details["preprocessing"]
    assert second.details["unseen"] == {"city": 6}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None, None), {}, "nodes: expected a table of nodes or of edges"),
        ((nodes(), None), {}, "edges: expected a table of edges"),
        ((nodes()[:0],), {}, "nodes: expected at least one node"),
        ((nodes(id=[*IDS[:11], "n0"]),), {}, "nodes: id, row 12: expected every id once, got 'n0' in row 1 too"),
        ((nodes(id=[*IDS[:11], None]),), {}, "nodes: id, row 12: expected an id, got none"),
        ((nodes(), edges(("n0", "x"))), {}, "edges: target, row 1: expected the id of a node, got 'x'"),
        ((nodes(), edges(("n0", None))), {}, "edges: target, row 1: expected an id"),  # type: ignore[arg-type]
        ((nodes(), nodes()), {}, "edges: source: expected columns source, target; .* got id, size, label"),
        ((nodes(label="a"),), {}, "nodes: label: expected at least two classes, got a"),
        ((nodes(label=None),), {}, "nodes: label: expected labels, got none"),
        ((nodes(size=[np.inf] * 12),), {}, "nodes: size, row 1: expected a number within"),
        ((nodes(label=[np.inf, *[0.5] * 11]),), {}, "nodes: label, row 1: expected a number within"),
        ((nodes(),), {"target": "lable"}, r"target: expected a column of one table, got"),
        ((nodes(),), {"target": []}, None),
        ((nodes(),), {"id": "key"}, r"id: expected a column of nodes \('id', 'size', 'label'\), got 'key'"),
        ((nodes(),), {"features": ["siz"]}, "features: expected a column of nodes"),
        ((nodes(),), {"features": ["label"]}, "features: expected a column that is not used already, got 'label'"),
        (
            (nodes(),),
            {"features": ["size", "size"]},
            "features: expected a column that is not used already, got 'size'",
        ),
        ((nodes(),), {"target": "id"}, "target: expected a column that is not used already, got 'id'"),
        ((nodes(part=["train", "val"] * 6),), {"target": "part", "split": "part"}, "target: .*not used already"),
        ((nodes(y=[0, 1] * 6),), {"target": ["y", "y"]}, "target: .*not used already, got 'y'"),
        ((nodes(),), {"on_error": "skip", "dropped": "/no/such/folder/d.csv"}, "dropped: expected a file that can be"),
        ((nodes(),), {"edge_features": ["w"]}, "edge_features: expected a column of edges"),
        ((nodes(),), {"split": "part"}, r"split: expected a column of the nodes \(id, size, label\), got 'part'"),
        ((nodes(split=["tset"] * 12),), {}, "nodes: split, row 1: expected one of train, .*got 'tset'"),
        ((nodes(split=["test"] * 12),), {}, "nodes: split: expected labelled rows of train, got none"),
        (
            (nodes(split=["train"] * 11 + ["val"], label=["a", "b"] * 5 + ["a", None]),),
            {},
            "nodes: split: expected labelled rows of val, got none",
        ),
        ((nodes(),), {"level": "nodes"}, "level: expected one of node, edge, graph"),
        ((nodes(),), {"level": "graph"}, "graph: expected a column with the graph of each node"),
        ((nodes(),), {"task": "ranking"}, "task: expected one of classification, regression"),
        ((nodes(),), {"metric": "mae"}, "metric: expected a metric for these targets .*got 'mae'"),
        ((nodes(),), {"metric": "auc"}, "metric: expected one of accuracy, .*mse, .*got"),
        ((nodes(label=list("abcdef") * 2),), {"metric": "roc_auc"}, "metric: expected a metric for these targets"),
        ((nodes(),), {"fractions": (0.5, 0.5, 0.5)}, "fractions"),
        ((nodes(),), {"on_error": "ignore"}, "on_error: expected one of raise, skip"),
        ((nodes(),), {"on_error": "skip"}, "dropped: expected a file"),
        ((nodes(),), {"dropped": "rows.csv"}, "dropped: expected a file"),
        ((nodes(),), {"graphs": pd.DataFrame({"graph_id": [1]})}, "graph: expected the column of nodes"),
        ((nodes(label=[[1, 2]] * 12),), {}, "nodes: label: expected one number or class in a row, got lists"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str | None
) -> None:
    if message is None:
        # The usual names of a target are found.
        assert load(*arguments, **options).graphs.num_nodes == 12
    else:
        refuse(message, *arguments, **options)


def test_a_target_in_two_tables_needs_a_level() -> None:
    both = PATH.assign(label=[0, 1] * 5 + [0])
    refuse("target: expected a column of one table, node and edge tables have it: say level=", nodes(), both)
    task = load(nodes(), both, level="edge")
    assert task.level == "edge"
    assert task.details["preprocessing"].nodes[1].name == "label"
    assert load(nodes(), both, level="node").graphs.edge_attr is not None


def test_an_edge_task_labels_rows_and_not_their_reverses() -> None:
    task = load(nodes().drop(columns="label"), PATH.assign(label=pd.Series([0, 1] * 5 + [np.nan])))
    assert task.graphs.num_edges == 22
    assert task.graphs.y.tolist() == [0, 1] * 5 + [-1] * 12
    parts = torch.cat([task.splits[0].train, task.splits[0].val, task.splits[0].test])
    assert sorted(parts.tolist()) == list(range(10))
    (batch,) = task.batches("train")
    assert torch.equal(batch.edge_label_index, task.graphs.edge_index[:, task.splits[0].train])


def test_skipping_drops_rows_that_can_be_dropped_and_writes_them(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label\na,x\nb,y\nc,x,extra\nd,y\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\na,c\nz,q\nd,b\n")
    arguments = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    refuse("expected 2 fields, got 3", *arguments)
    task = load(*arguments, on_error="skip", dropped=tmp_path / "dropped.csv", directed=True)
    assert task.graphs.edge_index.tolist() == [[0, 2], [1, 1]]
    assert task.details["edge_rows"].tolist() == [1, 4]
    assert task.details["dropped"] == 3
    written = pd.read_csv(tmp_path / "dropped.csv")
    assert written.columns.tolist() == ["table", "row", "column", "value", "reason"]
    assert written[["row", "column", "value"]].to_numpy().tolist() == [
        [3, "columns", "c,x,extra"],
        [3, "source", "z"],
        [2, "target", "c"],
    ]
    # What would change other rows is refused all the same.
    (tmp_path / "nodes.csv").write_text("id,label\na,x\na,y\n")
    refuse("expected every id once", *arguments, on_error="skip", dropped=tmp_path / "dropped.csv")


GRAPH_NODES = pd.DataFrame(
    {
        "graph": ["q", "p", "q", "p", "r", "r", "r"],
        "id": [0, 0, 1, 1, 0, 1, 2],
        "size": range(7),
        "kind": ["x", "y", "x", "y", "x", "x", "x"],
    }
)
GRAPH_EDGES = pd.DataFrame({"graph": ["r", "p", "q", "r"], "source": [0, 0, 1, 1], "target": [2, 1, 0, 1]})
GRAPHS = pd.DataFrame({"graph_id": ["p", "q", "r"], "label": [0.5, 1.5, None], "split": ["train", "test", None]})


def test_many_graphs_are_grouped_and_ids_may_repeat() -> None:
    task = load(GRAPH_NODES, GRAPH_EDGES, graphs=GRAPHS, directed=True, standardise=False, features=["size"])
    graphs = task.graphs
    assert task.level == "graph"
    assert task.details["graph_ids"].tolist() == ["p", "q", "r"]
    assert graphs.node_ptr is not None
    assert graphs.node_ptr.tolist() == [0, 2, 4, 7]
    assert graphs.x[:, 0].tolist() == [1, 3, 0, 2, 4, 5, 6]
    assert graphs.edge_index.tolist() == [[0, 3, 4, 5], [1, 2, 6, 5]]
    assert graphs.y[:2].tolist() == [0.5, 1.5]
    assert torch.isnan(graphs.y[2])
    assert (task.splits[0].train.tolist(), task.splits[0].test.tolist()) == ([0], [1])


def test_a_column_of_the_nodes_may_hold_the_target_of_a_graph() -> None:
    task = load(GRAPH_NODES, GRAPH_EDGES, target="kind", level="graph")
    assert task.details["graph_ids"].tolist() == ["q", "p", "r"]
    assert task.graphs.y.tolist() == [0, 1, 0]
    refuse(
        "nodes: size, row 3: expected one value in all nodes of a graph, got",
        GRAPH_NODES,
        GRAPH_EDGES,
        target="size",
        level="graph",
    )


def test_nodes_of_many_graphs_are_split_by_graph() -> None:
    task = load(GRAPH_NODES, GRAPH_EDGES, target="kind", graphs=GRAPHS.drop(columns="label"))
    assert (task.level, task.over) == ("node", "graphs")
    assert task.splits[0].train.tolist() == [0]
    (batch,) = task.batches("train")
    assert batch.y.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": GRAPH_NODES.assign(graph="zz")}, "nodes: graph, row 1: expected a graph of graphs, got 'zz'"),
        ({"graphs": GRAPHS[:2]}, "nodes: graph, row 5: expected a graph of graphs, got 'r'"),
        ({"graphs": pd.concat([GRAPHS, GRAPHS])}, "graphs: graph_id, row 4: expected every id once, got 'p' again"),
        (
            {"graphs": pd.concat([GRAPHS, GRAPHS.assign(graph_id=["s", "t", "u"])])},
            "graphs: graph_id, row 4: expected a graph with nodes, got none for 's'",
        ),
        ({"edges": GRAPH_EDGES.assign(graph="p")}, "edges: source, row 3|edges: target, row 1"),
        ({"edges": GRAPH_EDGES.assign(graph="zz")}, "edges: graph, row 1: expected a graph that has nodes, got 'zz'"),
        ({"edges": GRAPH_EDGES.drop(columns="graph")}, "expected every id once in all graphs"),
        (
            {
                "nodes": GRAPH_NODES.assign(id=range(7)),
                "edges": pd.DataFrame({"source": [0], "target": [1]}),
            },
            "edges: target, row 1: expected a node of the source's graph, got 1",
        ),
        ({"nodes": GRAPH_NODES.assign(id=0)}, "nodes: id, row 3: expected every id once, got '0' in row 1 too"),
    ],
)
def test_broken_graphs_are_refused_with_their_place(change: dict[str, Any], message: str) -> None:
    tables: dict[str, Any] = {"nodes": GRAPH_NODES, "edges": GRAPH_EDGES, "graphs": GRAPHS} | change
    refuse(message, tables["nodes"], tables["edges"], graphs=tables["graphs"])


def test_new_tables_become_the_same_features_without_targets(tmp_path: Path) -> None:
    task = load(nodes(city=["Rome", "Oslo"] * 6), PATH.assign(weight=np.arange(11.0)))
    preprocessing = Preprocessing.from_json(task.details["preprocessing"].to_json())
    new = nodes(city=["Rome", "Oslo"] * 6).drop(columns="label")
    new.to_csv(tmp_path / "new.csv", index=False)
    inputs = apply_tables(preprocessing, tmp_path / "new.csv", PATH.assign(weight=np.arange(11.0)))
    assert torch.equal(inputs.graphs.x, task.graphs.x)
    assert torch.equal(inputs.graphs.edge_index, task.graphs.edge_index)
    assert torch.equal(inputs.graphs.edge_attr, task.graphs.edge_attr)  # type: ignore[arg-type]
    assert inputs.ids.tolist() == IDS
    assert inputs.graphs.y.tolist() == [-1] * 12


def test_new_tables_are_checked_as_the_old_were(tmp_path: Path) -> None:
    preprocessing = load(nodes(city=["Rome", "Oslo"] * 6)).details["preprocessing"]
    new = nodes(city=["Rome", "Paris"] * 6)
    with pytest.raises(DataError, match=r"nodes: city, row 2: .*got 'Paris'"):
        apply_tables(preprocessing, new, PATH)
    assert apply_tables(preprocessing, new, PATH, unknown="other").graphs.num_nodes == 12
    with pytest.raises(DataError, match="nodes: city: expected this column"):
        apply_tables(preprocessing, nodes(), PATH)
    with pytest.raises(DataError, match="nodes: expected a table of nodes"):
        apply_tables(preprocessing, None, PATH)
    with pytest.raises(DataError, match="edges: source, row 2: expected the id of a node, got 'x'"):
        apply_tables(preprocessing, new, edges(("n0", "n1"), ("x", "n1")), unknown="other")
    inputs = apply_tables(
        preprocessing,
        new,
        edges(("n0", "n1"), ("x", "n1")),
        unknown="other",
        on_error="skip",
        dropped=tmp_path / "dropped.csv",
    )
    assert (inputs.graphs.num_edges, inputs.dropped) == (2, 1)


def test_new_graphs_and_new_edges_become_inputs() -> None:
    task = load(GRAPH_NODES, GRAPH_EDGES, graphs=GRAPHS, features=["size"])
    inputs = apply_tables(task.details["preprocessing"], GRAPH_NODES, GRAPH_EDGES)
    assert inputs.graph_ids is not None
    assert inputs.graph_ids.tolist() == ["q", "p", "r"]
    assert torch.isnan(inputs.graphs.y).tolist() == [True] * 3
    several = load(nodes(), PATH.assign(a=0.5, b=np.arange(11)), target=["a", "b"])
    inputs = apply_tables(several.details["preprocessing"], nodes(), PATH)
    assert inputs.graphs.y.shape == (22, 2)
    assert inputs.edge_rows[~inputs.added].tolist() == list(range(1, 12))


def test_new_graphs_may_come_from_another_format() -> None:
    task = load(nodes())
    graph = nx.Graph(list(itertools.pairwise(IDS)))
    nx.set_node_attributes(graph, {name: size for size, name in enumerate(IDS)}, "size")
    inputs = apply_tables(task.details["preprocessing"], graph)
    assert torch.equal(inputs.graphs.x, task.graphs.x)
    assert torch.equal(dense(inputs), dense(task))
    with pytest.raises(DataError, match="id: expected no name, because the source names"):
        load(graph, None, id="size")


def test_what_a_column_of_edges_holds_does_not_depend_on_their_reverses(tmp_path: Path) -> None:
    # Both ways nine of ten values would be numbers, of the rows six of seven are.
    path = tmp_path / "edges.csv"
    rows = edges(*itertools.pairwise(IDS[:7]), ("n0", "n0"), weight=["1"] * 6 + ["heavy"])
    rows.to_csv(path, index=False)
    task = load(nodes(), path)
    assert task.graphs.num_edges == 13
    assert task.details["preprocessing"].edges[0].type == "categorical"
    gap = load(nodes(), rows.assign(weight=[1, np.nan, 1, 1, 1, 1, 1]))
    assert gap.details["missing"] == {"edge weight": 1}


def test_the_usual_target_of_graphs_may_stand_in_the_nodes() -> None:
    labelled = GRAPH_NODES.rename(columns={"kind": "label"})
    assert load(labelled, GRAPH_EDGES, target=(), level="graph").graphs.y.tolist() == [0, 1, 0]
    refuse(
        "target: expected the target's column, or one of y, label, target, class, got 0",
        GRAPH_NODES,
        GRAPH_EDGES,
        target=(),
    )


def test_the_same_tables_give_the_same_task() -> None:
    assert load(nodes()).graphs.sha256() == load(nodes()).graphs.sha256()
