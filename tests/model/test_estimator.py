"""Estimators: scikit-learn's own checks, every source of graphs, cross-validation over nodes, folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch_geometric.data import Data

import sirgcn
from sirgcn.data.molecules import has_rdkit
from sirgcn.model import FolderError
from sirgcn.model.estimator import SIRClassifier, SIRRegressor
from sirgcn.strict import ConfigError

SMALL = {"num_layers": 1, "hidden_channels": 8}
# Networks on many graphs add encodings of walks to the first layer.
WIDER = {"num_layers": 1, "hidden_channels": 24}
SHORT: dict[str, Any] = {"epochs": 3, "warmup": 0}
LONG: dict[str, Any] = {"epochs": 40, "warmup": 0, "lr": 0.02}

# These need a model that has learned something.
LEARNED = ("check_classifiers_train", "check_regressors_train", "check_classifiers_classes")


def quick(cls: Any, training: dict[str, Any] = SHORT, **options: Any) -> Any:
    return cls(preset="fast", network=SMALL, training=training, **options)


def checks() -> list[Any]:
    found: list[Any] = []
    for cls in (SIRClassifier, SIRRegressor):
        for _, check in estimator_checks_generator(quick(cls)):
            name = check.func.__name__
            found.append(pytest.param(cls, check, id=f"{cls.__name__}-{name}-{len(found)}"))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("cls", "check"), checks())
def test_a_check_of_scikit_learn_passes(cls: Any, check: Callable[[Any], None]) -> None:
    name = check.func.__name__  # type: ignore[attr-defined]
    if name == "check_array_api_input":
        pytest.skip("SciPy's array API is off")
    check(quick(cls, LONG if name in LEARNED else SHORT))


def tables(count: int = 80) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    """Nodes whose label depends on their size, edges between neighbours, and the labels."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=count)
    nodes = pd.DataFrame({"id": [f"n{place}" for place in range(count)], "size": size})
    edges = pd.DataFrame({"source": nodes["id"][:-1].to_numpy(), "target": nodes["id"][1:].to_numpy()})
    return nodes, edges, np.where(size > 0, "large", "small")


def as_data(nodes: pd.DataFrame, edges: pd.DataFrame) -> Data:
    place = {name: number for number, name in enumerate(nodes["id"])}
    ends = torch.tensor([[place[name] for name in edges[end]] for end in ("source", "target")])
    both = torch.cat([ends, ends.flip(0)], dim=1)
    return Data(x=torch.tensor(nodes[["size"]].to_numpy(), dtype=torch.float32), edge_index=both)


def test_tables_arrays_and_pyg_graphs_are_accepted_with_labels_beside_them() -> None:
    nodes, edges, labels = tables()
    data = as_data(nodes, edges)
    for found in ((nodes, edges), data, nodes[["size"]].to_numpy(), nodes[["size"]]):
        model = quick(SIRClassifier, LONG).fit(found, labels)
        assert model.classes_.tolist() == ["large", "small"]
        assert model.score(found, labels) > 0.8
        assert model.predict_proba(found).sum(1) == pytest.approx(1, abs=1e-5)
        assert model.transform(found).shape[0] == len(nodes)


def test_graphs_that_hold_their_targets_need_no_labels(tmp_path: Path) -> None:
    nodes, edges, labels = tables()
    nodes = nodes.assign(label=labels)
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    graph = nx.Graph()
    graph.add_nodes_from((row.id, {"size": row.size, "label": row.label}) for row in nodes.itertuples(index=False))
    graph.add_edges_from(edges.itertuples(index=False))
    data = as_data(nodes, edges)
    data.y = torch.from_numpy((labels == "small").astype(int))
    for found in ((nodes, edges), (tmp_path / "nodes.csv", str(tmp_path / "edges.csv")), graph, data):
        model = quick(SIRClassifier, LONG).fit(found)
        assert model.score(found) > 0.8
    assert model.classes_.tolist() == [0, 1]


def test_many_graphs_of_pyg_have_a_prediction_each() -> None:
    rng = np.random.default_rng(0)
    nodes, edges, _ = tables(6)
    graphs, numbers = [], rng.normal(size=60)
    for number in numbers:
        data = as_data(nodes, edges)
        data.x = torch.full((6, 1), float(number))
        graphs.append(data)
    model = quick(SIRRegressor, LONG).set_params(network=WIDER).fit(graphs, numbers)
    assert model.predict(graphs[:5]).shape == (5,)
    assert model.score(graphs, numbers) > 0.5


@pytest.mark.skipif(not has_rdkit(), reason="needs RDKit")
def test_a_column_of_smiles_is_accepted() -> None:
    molecules = ["C" * length + ending for length in range(1, 21) for ending in ("O", "N", "")]
    masses = np.array([float(len(text)) + 0.5 for text in molecules])
    model = quick(SIRRegressor, LONG).set_params(network=WIDER).fit(molecules, masses)
    assert model.predict(pd.Series(molecules[:3])).shape == (3,)
    assert model.transform(molecules[:3]).shape[0] == 3


def test_grid_search_over_nodes_keeps_the_others_in_the_graph_without_labels() -> None:
    nodes, edges, labels = tables()
    ids = nodes["id"].to_numpy()
    for graph, names in (((nodes, edges), ids), (as_data(nodes, edges), np.arange(len(nodes)))):
        search = GridSearchCV(quick(SIRClassifier, LONG, graph=graph), {"random_state": [0, 1]}, cv=2)
        search.fit(names, labels)
        assert search.best_score_ > 0.7
        fold = search.best_estimator_
        assert fold.predict(names[:3]).tolist() == fold.predict(names)[:3].tolist()
    fitted = quick(SIRClassifier, graph=(nodes, edges)).fit(ids[:40], labels[:40])
    known = fitted.task_.graphs.y >= 0
    assert known[:40].all()
    assert not known[40:].any()
    assert fitted.task_.graphs.num_nodes == len(nodes)


def test_a_graph_with_labels_of_its_own_is_refused_unless_their_column_is_named() -> None:
    nodes, edges, labels = tables()
    nodes = nodes.assign(label=labels)
    with pytest.raises(ConfigError, match="no column that looks like a target, got 'label'; target='label'"):
        quick(SIRClassifier, graph=(nodes, edges)).fit(nodes["id"], labels)
    model = quick(SIRClassifier, graph=(nodes, edges), target="label").fit(nodes["id"], labels)
    assert [column.name for column in model.model_.preprocessing.nodes] == ["size"]
    with pytest.raises(ConfigError, match="expected ids of nodes of the graph, got 'unknown'"):
        model.predict(["unknown"])


@pytest.mark.parametrize("labels", [["yes", "no"], [3, 7], [1.0, 2.0], [True, False]])
def test_classes_of_every_type_come_back_from_a_folder(tmp_path: Path, labels: list[Any]) -> None:
    nodes, edges, named = tables()
    y = np.where(named == "large", *labels)
    model = quick(SIRClassifier).fit((nodes, edges), y)
    model.save(tmp_path / "model")
    again = sirgcn.load(tmp_path / "model")
    assert isinstance(again, SIRClassifier)
    assert again.get_params(deep=False) == model.get_params(deep=False)
    assert np.array_equal(again.predict((nodes, edges)), model.predict((nodes, edges)))
    assert np.array_equal(again.predict_proba((nodes, edges)), model.predict_proba((nodes, edges)))
    assert again.classes_.dtype == model.classes_.dtype
    with pytest.raises(FolderError, match="expected a model for SIRRegressor, got one for SIRClassifier"):
        SIRRegressor.load(tmp_path / "model")


def test_intervals_and_sets_cover_what_they_promise() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 1))
    y = 3 * x[:, 0] + rng.normal(size=600)
    model = quick(SIRRegressor, LONG).fit(x[:400], y[:400])
    interval = model.predict_interval(x[400:], level=0.8)
    covered = ((interval[:, 0] <= y[400:]) & (y[400:] <= interval[:, 1])).mean()
    # 40 rows calibrate and 200 rows measure: both shares vary by several hundredths.
    assert 0.65 < covered < 0.95
    classes = np.where(y > 0, "up", "down")
    chosen = quick(SIRClassifier, LONG).fit(x[:400], classes[:400])
    sets = chosen.predict_set(x[400:], level=0.8)
    place = np.searchsorted(chosen.classes_, classes[400:])
    assert 0.65 < sets[np.arange(200), place].mean() < 0.95


def test_rows_without_a_class_are_refused_with_the_remedy() -> None:
    nodes, edges, labels = tables()
    missing = [None, *labels[1:]]
    with pytest.raises(ConfigError, match=r"y: expected a class for each row, got none for row 0; .*graph="):
        quick(SIRClassifier).fit((nodes, edges), missing)


def test_a_level_without_rows_for_the_calibration_is_refused() -> None:
    x = np.arange(20.0).reshape(-1, 1)
    model = quick(SIRRegressor).fit(x, x[:, 0])
    with pytest.raises(ConfigError, match="level: expected a model with rows for its calibration"):
        model.predict_interval(x)


def test_several_targets_have_a_column_each() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = quick(SIRRegressor).fit(x, x * 2)
    assert model.predict(x).shape == (100, 2)
    assert model.predict_interval(x, 0.5).shape == (100, 2, 2) if model.model_.calibration.has_sets else True


@pytest.mark.parametrize(("cls", "column"), [(SIRClassifier, "kind"), (SIRRegressor, "size")])
def test_a_name_in_place_of_targets_is_that_of_their_column(cls: Any, column: str) -> None:
    nodes = pd.DataFrame({"id": range(60), "size": np.arange(60) % 3 + 1.0, "kind": ["a", "b", "c"] * 20})
    edges = pd.DataFrame({"source": range(57), "target": range(3, 60)})
    named, given = quick(cls).fit((nodes, edges), column), quick(cls, target=column).fit((nodes, edges))
    assert (named.predict((nodes, edges)) == given.predict((nodes, edges))).all()
    with pytest.raises(ValueError, match="requires y"):
        quick(cls).fit(np.ones((20, 2)), column)
