"""Every setting of a public function is read by its annotation: a text is no truth value, no number and no list."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn import data
from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.data.download import download
from sirgcn.data.sets import benchmarking, catalog, ogb, public
from sirgcn.data.sets.moleculenet import moleculenet
from sirgcn.data.tables import Column, Preprocessing, apply_tables, load_tables
from sirgcn.data.tables.roles import Roles
from sirgcn.strict import ConfigError

EDGES = torch.tensor([[0, 1], [1, 0]])
SPLIT = Split(torch.tensor([0]), torch.tensor([], dtype=torch.int64), torch.tensor([1]))


def task() -> Task:
    graphs = Graphs(torch.ones(2, 1), EDGES, torch.tensor([0, 1]), "node")
    return Task("drawn", graphs, Schema(features=1, outputs=2), (SPLIT,), "cross_entropy", "accuracy")


# All that needs more than its settings: what to call it with.
GIVEN: dict[Any, dict[str, Any]] = {
    load_tables: {},
    apply_tables: {"preprocessing": Preprocessing("node", Roles())},
    data.load: {"name": "WikiCS"},
    data.fetch: {"name": "WikiCS"},
    data.verify: {"name": "WikiCS"},
    data.pattern_task: {},
    data.cluster_task: {},
    data.superpixel_task: {"name": "MNIST"},
    data.dictionary_lookup: {"n": 3},
    data.dictionary_lookup_task: {"n": 3},
    data.hetero_edge_count: {"c": 3},
    data.hetero_edge_count_task: {"c": 3},
    data.unique_signature: {"p": 0.5, "r": 3},
    data.unique_signature_task: {"p": 0.5, "r": 3},
    data.split_to_ids: {"task": task()},
    data.split_from_ids: {"task": task(), "found": data.split_to_ids(task())},
    data.stream_tables: {"preprocessing": Preprocessing("node", Roles()), "nodes": pd.DataFrame({"id": [0]})},
    data.with_encodings: {"task": task(), "encoding": "degree", "size": 2},
    download: {"url": "http://localhost/x", "path": Path("x")},
    Split.draw: {"count": 5},
    task().batches: {"part": "train"},
    task().num_batches: {"part": "train"},
    public.heterophilous: {"folder": Path(), "name": "x"},
    public.planetoid: {"folder": Path(), "name": "x"},
    public.tu: {"folder": Path(), "name": "x"},
    public.wikics: {"folder": Path()},
    benchmarking.zinc: {"folder": Path()},
    benchmarking.sbm_files: {"folder": Path(), "name": "PATTERN"},
    benchmarking.superpixel_files: {"folder": Path(), "name": "MNIST"},
    ogb.arxiv: {"folder": Path()},
    ogb.molecules: {"folder": Path()},
    moleculenet: {"folder": Path(), "file": "BBBP"},
    Schema: {},
    Column: {"name": "x", "type": "numeric"},
    Preprocessing: {"level": "node", "roles": Roles()},
    Task: {field.name: getattr(task(), field.name) for field in fields(Task) if field.init},
}
# What no text, and what no truth value, can be.
WRONG: dict[Any, Any] = {bool: "no", int: "3", float: "0.5", str: 5}
CASES = [
    (function, name, value)
    for function in GIVEN
    for name, hint in get_type_hints(function.__init__ if inspect.isclass(function) else function).items()
    for wrong, value in WRONG.items()
    if name != "return" and (hint is wrong or (wrong in get_args(hint) and str not in get_args(hint)))
]


@pytest.mark.parametrize(("function", "name", "value"), CASES, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_value_of_another_type_is_refused_by_its_name(function: Any, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected .*, got {value!r}"):
        function(**{**GIVEN[function], name: value})


def test_every_public_function_with_settings_is_among_them() -> None:
    for name in data.__all__:
        function = getattr(data, name)
        if inspect.isfunction(function):
            assert function in GIVEN, name


@pytest.mark.parametrize("name", ["features", "edge_features", "missing"])
def test_a_text_is_no_list_of_texts(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: expected a list, got 'NA'"):
        load_tables(**{name: "NA"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": ["a", 3]}, r"target\[1\]: expected text, got 3"),
        ({"features": {"a", "b"}}, "features: expected a list, got a set, which has no order"),
        ({"types": ["a"]}, r"types: expected a table, got \['a'\]"),
        ({"types": {"a": "categories"}}, r"types\['a'\]: expected one of numeric, .*got 'categories'; did you mean"),
        ({"fractions": (0.5, 0.5)}, r"fractions: expected a list of 3, got \(0.5, 0.5\)"),
        ({"fractions": "0.6"}, "fractions: expected a list, got '0.6'"),
        ({"level": "nodes"}, "level: expected one of node, edge, graph, got 'nodes'; did you mean node?"),
        ({"dropped": 3}, "dropped: expected text or a path, got 3"),
        ({"directed": "none"}, "directed: expected true or false, got 'none'"),
    ],
)
def test_what_is_inside_a_setting_is_read_too(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        load_tables(**settings)


def test_options_of_a_data_set_are_read_before_anything_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^WikiCS: undirected: expected true or false, got 'no'"):
        catalog.load("WikiCS", tmp_path, undirected="no")
    with pytest.raises(ConfigError, match=r"^Tox21: split: expected one of random, scaffold, got 'rndom'; did you"):
        catalog.load("Tox21", tmp_path, split="rndom")
    with pytest.raises(ConfigError, match=r"^dictionary_lookup: n: expected a whole number, got True"):
        catalog.load("dictionary_lookup", tmp_path, n=True)
    assert list(tmp_path.iterdir()) == []


def test_a_column_may_be_called_none() -> None:
    nodes = pd.DataFrame({"none": ["a", "b"] * 3, "id": list("abcdef"), "label": ["x", "y"] * 3})
    nodes["none"] = list("uvwxyz")
    edges = pd.DataFrame({"source": ["u"], "target": ["v"]})
    assert load_tables(nodes, edges, target="label", id="none").details["ids"].tolist() == list("uvwxyz")


def test_lists_of_names_may_come_from_pandas_and_numpy() -> None:
    nodes = pd.DataFrame({"id": range(6), "a": range(6), "b": range(6), "label": ["x", "y"] * 3})
    edges = pd.DataFrame({"source": [0], "target": [1]})
    for names in (nodes.columns[1:3], np.array(["a", "b"]), {"a": 1, "b": 2}.keys(), ("a", "b")):
        assert load_tables(nodes, edges, target="label", features=names).schema.features == 2  # type: ignore[arg-type]
    assert load_tables(nodes, edges, target="label", missing={"", "-"}).schema.features == 2


@pytest.mark.parametrize("number", [np.int64, np.uint8, torch.tensor])
def test_a_whole_number_of_any_kind_is_one(number: Any, tmp_path: Path) -> None:
    tables = [data.dictionary_lookup_task(number(3), number(1), number(4)), data.dictionary_lookup_task(3, 1, 4)]
    assert tables[0].graphs.sha256() == tables[1].graphs.sha256()
    assert tables[0].version == tables[1].version
    drawn = [Split.draw(number(10), number(1)), Split.draw(10, 1)]
    assert torch.equal(drawn[0].train, drawn[1].train)
    (batch,) = tables[0].batches("test", number(5), number(0))
    assert batch.num_graphs == 1
    assert torch.equal(tables[0].graphs[number(1)].x, tables[1].graphs[1].x)
    encoded = data.with_encodings(task(), "degree", number(2), tmp_path)
    assert encoded.details["encodings"] == {"encoding": "degree", "size": 2}
    assert type(Schema(features=number(3)).features) is int
    drawn_task = data.cluster_task(number(0), number(3), tmp_path)
    assert drawn_task.version == "generated, seed 0, 3 graphs"


def test_a_truth_value_is_no_number() -> None:
    with pytest.raises(ConfigError, match="graph: expected a whole number, got True"):
        task().graphs[True]
    with pytest.raises(ConfigError, match="split: expected a whole number, got False"):
        task().num_batches("train", split=False)


def test_a_batch_before_the_first_is_refused() -> None:
    with pytest.raises(data.DataError, match="start: expected a whole number >= 0, got -1"):
        list(task().batches("train", start=-1))
