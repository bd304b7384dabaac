"""A description's figures equal the plain definitions, and its warnings find columns that reveal the target."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.data import Graphs, Schema, Split, Task, load
from sirgcn.data.describe import describe
from sirgcn.data.homophily import homophily
from sirgcn.data.tables import load_tables

DATA = os.environ.get("SIRGCN_DATA")


def split_of(rows: int) -> Split:
    return Split(*(torch.arange(rows)[part::3] for part in range(3)))


def node_task(x: Any, edge_index: Any, y: Any, **options: Any) -> Task:
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    graphs = Graphs(x, torch.as_tensor(edge_index, dtype=torch.int64).reshape(2, -1), y, "node")
    classes = not y.is_floating_point()
    settings: dict[str, Any] = {
        "schema": Schema(features=x.size(1), outputs=int(y.max()) + 1 if classes else 1),
        "splits": (split_of(len(x)),),
        "loss": "cross_entropy" if classes else "l1",
        "metric": "accuracy" if classes else "mae",
    }
    return Task("drawn", graphs, **settings | options)


@st.composite
def labelled_graphs(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    nodes = draw(st.integers(1, 8))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=20))
    y = draw(st.lists(st.integers(-1, 3), min_size=nodes, max_size=nodes))
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T, torch.tensor(y)


@given(labelled_graphs())
def test_homophily_is_its_definition_over_all_pairs_of_ends(graph: tuple[torch.Tensor, torch.Tensor]) -> None:
    edge_index, y = graph
    pairs = []
    for u, v in edge_index.T.tolist():
        if u != v and y[u] >= 0 and y[v] >= 0:
            pairs += [(int(y[u]), int(y[v])), (int(y[v]), int(y[u]))]
    found = homophily(edge_index, y)
    if not pairs:
        assert found is None
        return
    assert found is not None
    classes = sorted({c for pair in pairs for c in pair})
    p = {(c, d): pairs.count((c, d)) / len(pairs) for c in classes for d in classes}
    share = {c: sum(p[c, d] for d in classes) for c in classes}
    edge = sum(p[c, c] for c in classes)
    assert found.edge == pytest.approx(edge)
    if len(classes) == 1:
        assert math.isnan(found.adjusted)
        assert math.isnan(found.informativeness)
        return
    chance = sum(share[c] ** 2 for c in classes)
    assert found.adjusted == pytest.approx((edge - chance) / (1 - chance))
    information = sum(q * math.log(q / (share[c] * share[d])) for (c, d), q in p.items() if q)
    entropy = -sum(share[c] * math.log(share[c]) for c in classes)
    assert found.informativeness == pytest.approx(information / entropy, abs=1e-12)


# Table 1 of Platonov et al. (NeurIPS 2023).
@pytest.mark.skipif(DATA is None, reason="SIRGCN_DATA is not set")
@pytest.mark.parametrize(
    ("name", "edges", "edge", "adjusted", "informativeness"),
    [("minesweeper", 39_402, 0.68, 0.01, 0.00), ("tolokers", 519_000, 0.59, 0.09, 0.01)],
)
def test_published_measures_of_real_graphs(
    name: str, edges: int, edge: float, adjusted: float, informativeness: float
) -> None:
    assert DATA is not None
    task = load_tables(Path(DATA) / "heterophilous" / name / "raw" / f"{name}.npz")
    found = describe(task)
    assert found.sizes["edges"] == 2 * edges
    assert len(task.splits) == 10
    assert found.edges["both ways"]
    assert found.homophily is not None
    assert round(found.homophily.edge, 2) == edge
    assert round(found.homophily.adjusted, 2) == adjusted
    assert round(found.homophily.informativeness, 2) == informativeness


@pytest.mark.skipif(DATA is None, reason="SIRGCN_DATA is not set")
def test_published_measures_of_cora() -> None:
    found = describe(load("Cora")).homophily
    assert found is not None
    assert [round(value, 2) for value in (found.edge, found.adjusted, found.informativeness)] == [0.81, 0.77, 0.59]


@given(labelled_graphs())
def test_degrees_loops_and_repeats_are_counted(graph: tuple[torch.Tensor, torch.Tensor]) -> None:
    edge_index, y = graph
    task = node_task(torch.ones(len(y), 1), edge_index, y.double())
    found = describe(task)
    dense = torch.zeros(len(y), len(y))
    for u, v in edge_index.T.tolist():
        dense[u, v] += 1
    degree = dense.sum(0)
    assert found.degrees["min"] == degree.min()
    assert found.degrees["max"] == degree.max()
    assert found.degrees["median"] == np.median(degree.numpy())
    assert found.degrees["isolated"] == int(((dense.sum(0) == 0) & (dense.sum(1) == 0)).sum())
    assert found.edges["self-loops"] == dense.diagonal().sum()
    assert found.edges["repeated"] == (dense - 1).clamp(min=0).sum()
    assert found.edges["both ways"] == torch.equal(dense, dense.T)


def drawn(rows: int = 60, **columns: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(
        {
            "id": [f"n{row}" for row in range(rows)],
            "noise": rng.normal(size=rows),
            "label": rng.choice(["a", "b", "c"], rows),
        }
    )
    edges = pd.DataFrame({"source": rng.choice(nodes["id"], 3 * rows), "target": rng.choice(nodes["id"], 3 * rows)})
    return nodes.assign(**columns), edges


def warnings(nodes: pd.DataFrame, edges: pd.DataFrame, **options: Any) -> list[str]:
    return list(describe(load_tables(nodes, edges, **{"target": "label"} | options)).warnings)


def test_sound_tables_have_no_warnings() -> None:
    assert warnings(*drawn()) == []


def test_a_column_that_determines_the_target_is_found() -> None:
    nodes, edges = drawn()
    code = nodes["label"].map({"a": 2, "b": 0, "c": 1})
    rng = np.random.default_rng(1)
    for leak in (
        code,
        code + rng.uniform(0, 0.5, len(code)),
        nodes["label"].map({"a": "x", "b": "y", "c": "z"}),
        nodes["label"].map({"a": "x", "b": "y", "c": "z"}) + rng.choice(["1", "2"], len(code)),
    ):
        found = warnings(nodes.assign(leak=leak), edges)
        assert found == ["column 'leak' determines the target: is it known before the target is?"]
        alone = warnings(nodes.assign(leak=leak).drop(columns="noise"), edges)
        assert alone == found
    numbers = nodes.assign(label=rng.normal(size=len(nodes)))
    assert warnings(numbers.assign(leak=3 * numbers["label"] + 1), edges) == found
    assert warnings(numbers, edges) == []


def test_a_leak_into_lists_edges_and_graphs_is_found() -> None:
    nodes, edges = drawn()
    code = nodes["label"].map({"a": 2.0, "b": 0.0, "c": 1.0})
    assert "column 'v'[1] determines" in warnings(nodes.assign(v=pd.Series([[0.5, value] for value in code])), edges)[0]
    labels = np.arange(len(edges)) % 2
    ends = edges.assign(label=labels, leak=labels * 2.0)
    found = warnings(nodes.drop(columns="label"), ends)
    assert any("column 'leak' determines the target" in text for text in found)
    graph = np.repeat(np.arange(30), 2)
    rng = np.random.default_rng(2)
    target = rng.normal(size=30)
    many = pd.DataFrame({"id": range(60), "graph": graph, "leak": target[graph], "label": target[graph]})
    ring = pd.DataFrame({"source": range(0, 60, 2), "target": range(1, 60, 2)})
    assert "column 'leak' determines" in warnings(many, ring, level="graph")[0]


def test_an_id_among_the_features_is_found() -> None:
    nodes, edges = drawn()
    order = np.random.default_rng(3).permutation(len(nodes)) + 1000
    assert warnings(nodes.assign(number=order), edges) == [
        "column 'number' counts the rows: an id is no feature, name the others"
    ]


def test_the_same_node_in_two_parts_is_found() -> None:
    nodes = pd.DataFrame(
        {
            "id": ["hub", "other", "first", "twin", "near"],
            "size": [1, 2, 3, 3, 3],
            "label": ["a", "b", "a", "b", "a"],
            "split": ["train", "train", "train", "test", "test"],
        }
    )
    edges = pd.DataFrame({"source": ["hub", "hub", "hub", "other"], "target": ["first", "twin", "near", "near"]})
    assert warnings(nodes, edges) == ["1 nodes of test have the features and the neighbours of a training node"]


def test_the_same_edge_in_two_parts_is_found() -> None:
    edges = pd.DataFrame(
        {
            "source": ["a", "b", "c"],
            "target": ["b", "a", "a"],
            "label": [0, 1, 1],
            "split": ["train", "val", "train"],
        }
    )
    found = list(describe(load_tables(None, edges, target="label")).warnings)
    assert found == ["1 edges of val join the nodes of a training edge"]


def test_the_same_graph_in_two_parts_is_found_however_its_nodes_are_ordered() -> None:
    # Three rings of the same nodes: the second turned, the third the other way round.
    x = torch.tensor([[1.0, 2, 3], [3, 1, 2], [3, 2, 1]]).reshape(9, 1)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    pointer = torch.tensor([0, 3, 6, 9])
    edge_index = torch.cat([ring, ring + 3, ring + 6], dim=1)
    graphs = Graphs(x, edge_index, torch.zeros(3), "graph", node_ptr=pointer, edge_ptr=pointer)
    splits = (Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([2])),)
    task = Task("three", graphs, Schema(features=1), splits, "l1", "mae")
    assert [text for text in describe(task).warnings if "graphs" in text] == [
        "1 graphs of val look like a training graph (same features, same neighbourhoods)"
    ]


def test_classes_that_are_rare_or_absent_are_named() -> None:
    nodes, edges = drawn(100)
    rare = ["a"] * 98 + ["b", "c"]
    parts = ["train", "val", "test", "train"] * 24 + ["train", "val", "train", "test"]
    found = warnings(nodes.assign(label=rare, split=parts), edges)
    assert "98.0% of the labels are 'a': accuracy says little, roc_auc or f1 say more" in found
    assert "training has no 'c'" in found


def test_a_graph_without_edges_is_named() -> None:
    nodes, edges = drawn()
    assert "there is no edge" in warnings(nodes, edges[:0])
    assert any("nodes have no edge" in text for text in warnings(nodes, edges[:5]))


@pytest.mark.parametrize("y", [torch.tensor([0, 1, -1] * 4), torch.tensor([0.0, 1.0, torch.nan] * 4)])
def test_any_task_is_described_as_text_and_as_json(y: torch.Tensor) -> None:
    x = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"splits": (Split(*(torch.tensor([3 * i, 3 * i + 1]) for i in range(3))),)}
    if y.is_floating_point():
        options |= {"loss": "binary_cross_entropy", "metric": "roc_auc"}
    found = describe(node_task(x, [[0, 0, 3], [3, 1, 4]], y, **options))
    assert found.labels == {"0": 4, "1": 4, "no label": 4}
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["sizes"] == {"graphs": 1, "nodes": 12, "edges": 3}
    assert again["homophily"]["edge"] == pytest.approx(1 / 3)
    assert "sizes: graphs: 1, nodes: 12, edges: 3" in str(found)
    assert str(found).startswith("drawn\n")


def test_a_description_shows_what_was_inferred() -> None:
    nodes, edges = drawn()
    text = str(describe(load_tables(nodes.assign(empty=None, city=pd.Series(["x", None] * 30)), edges, target="label")))
    for line in (
        "  source: source",
        "  directed: no",
        "  task: classification: 'label' holds names",
        "  split: drawn each class alike, seed 0, 0.6 / 0.2 / 0.2",
        "  node 'city': categorical, 1 categories and other or missing",
        "  empty: it is empty",
        "missing: city: 30",
    ):
        assert line in text


def test_what_is_suspicious_in_a_user_s_tables_is_named_with_what_to_do() -> None:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(
        {
            "id": range(60),
            "size": rng.normal(size=60),
            "same": 1.0,
            "land": "Norway",
            "number": rng.permutation(60) + 100.0,
            "label": ["a", "b"] * 28 + ["rare"] * 4,
        }
    )
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2], "weight": [2.0, 2.0]})
    warnings = "\n".join(load_tables(nodes, edges, target="label").describe().warnings)
    for expected in (
        "57 of 60 nodes have no edge: are ids written alike in both tables?",
        "of the nodes, 'same', 'land' has one value in all rows and says nothing: leave it out",
        "of the edges, 'weight' has one value in all rows",
        "classes with fewer than 5 rows cannot be learned and tested: 'rare' (4); join them or leave them out",
        "column 'number' counts the rows: an id is no feature, name the others",
    ):
        assert expected in warnings
    clean = load_tables(nodes[["id", "size", "label"]][:56], edges[["source", "target"]], target="label").describe()
    assert not [text for text in clean.warnings if "one value" in text or "fewer than" in text]
