"""Columns of graphs and of molecules become features of whole graphs, from the table to the readout."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sirgcn.data import Preprocessing, Task, apply_tables, load_tables
from sirgcn.data.store import load as load_file
from sirgcn.data.store import save as save_file
from sirgcn.data.validate import DataError
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.engine.network import default_config
from sirgcn.nn import NetConfig, SIRNet, build_net
from sirgcn.strict import ConfigError

COUNT = 30


def tables(**columns: Any) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    nodes = pd.DataFrame(
        {"graph": np.repeat(np.arange(COUNT), 2), "id": [0, 1] * COUNT, "atom": rng.normal(size=2 * COUNT)}
    )
    edges = pd.DataFrame({"graph": np.arange(COUNT), "source": 0, "target": 1})
    dose = rng.normal(5, 2, COUNT)
    graphs = pd.DataFrame(
        {"graph": np.arange(COUNT), "dose": dose, "city": ["Rome", "Oslo", None] * (COUNT // 3), "energy": 3 * dose}
        | columns
    )
    return nodes, edges, graphs


def load(columns: dict[str, Any] | None = None, **options: Any) -> Task:
    nodes, edges, graphs = tables(**columns or {})
    return load_tables(nodes, edges, graphs=graphs, **{"target": "energy", "task": "regression"} | options)


def test_columns_of_graphs_are_standardised_by_training_graphs_and_stand_in_every_batch() -> None:
    task = load()
    dose = torch.tensor(tables()[2]["dose"].to_numpy(), dtype=torch.float32)
    train = dose[task.splits[0].train]
    assert task.graphs.graph_attr is not None
    assert task.graphs.graph_attr.shape == (COUNT, task.schema.graph_features) == (COUNT, 4)
    expected = (dose - train.mean()) / train.std(correction=0)
    assert torch.allclose(task.graphs.graph_attr[:, 0], expected, atol=1e-5)
    assert task.graphs.graph_attr[:3, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    index = torch.tensor([4, 2, 9])
    assert torch.equal(task.graphs.batch(index).graph_attr, task.graphs.graph_attr[index])
    assert torch.equal(task.graphs.select(index).graph_attr, task.graphs.graph_attr[index])  # type: ignore[arg-type]
    assert [column.name for column in task.details["columns"]["graph"]] == ["dose", "city"]
    assert "graph 'dose'" in str(task.describe())


def test_the_network_learns_from_a_column_of_graphs_alone() -> None:
    task = load()
    scores = {}
    for width in (4, 0):
        torch.manual_seed(0)
        shown = task if width else load(graph_features=[])
        config = default_config(shown).with_options(hidden_channels=16, num_layers=1, norm="layer", dropout=0.0)
        assert config.readout.graph_channels == width
        train = TrainConfig(epochs=60, lr=0.02, batch_size=10)
        scores[width] = Trainer(build_net(config), shown, train).run().metrics["test"]
    # The energy is three doses: with the dose it is learned, without it the graphs say nothing.
    assert scores[4] < scores[0] / 2


def test_new_tables_get_the_same_features_and_unknown_categories_are_counted() -> None:
    task = load(fractions=(1, 0, 0))
    nodes, edges, graphs = tables()
    preprocessing = Preprocessing.from_json(task.details["preprocessing"].to_json())
    assert preprocessing == task.details["preprocessing"]
    same = apply_tables(preprocessing, nodes, edges, graphs=graphs.drop(columns="energy"))
    assert torch.equal(same.graphs.graph_attr, task.graphs.graph_attr)  # type: ignore[arg-type]
    assert same.unseen == {}
    other = graphs.assign(city="Bern")
    with pytest.raises(DataError, match="city, row 1: expected a category that training has seen"):
        apply_tables(preprocessing, nodes, edges, graphs=other)
    assert apply_tables(preprocessing, nodes, edges, graphs=other, unknown="other").unseen == {"graph city": COUNT}
    with pytest.raises(DataError, match="graphs: dose: expected this column"):
        apply_tables(preprocessing, nodes, edges, graphs=graphs[["graph"]])
    assert preprocessing.apply(graphs, of="graphs").shape == (COUNT, 4)


def test_a_document_of_the_version_before_is_read() -> None:
    nodes, edges, _ = tables()
    found = json.loads(load(graph_features=[]).details["preprocessing"].to_json())
    assert found.pop("graphs") == found.pop("molecules") == []
    old = Preprocessing.from_json(json.dumps(found | {"version": 2}))
    assert old == load(graph_features=[]).details["preprocessing"]
    assert apply_tables(old, nodes, edges).graphs.graph_attr is None
    with pytest.raises(DataError, match="version: expected a preprocessing of version 2 or 3"):
        Preprocessing.from_json(json.dumps(found | {"version": 4}))


def test_a_column_that_counts_the_rows_is_used_only_if_it_is_named() -> None:
    counting = {"number": range(1, COUNT + 1)}
    task = load(counting)
    assert task.details["left_out"] == {"graph number": "it counts the rows, and so is an id"}
    assert load(counting, graph_features=["number"]).schema.graph_features == 1


def test_tasks_on_nodes_and_edges_leave_columns_of_graphs_out() -> None:
    task = load(level="node", target="atom")
    assert task.graphs.graph_attr is None
    assert "graph dose" in task.details["left_out"]
    with pytest.raises(DataError, match="graph_features: expected none, because the target is of nodes"):
        load(level="node", target="atom", graph_features=["dose"])
    with pytest.raises(DataError, match="molecule_features: expected none without a column of molecules"):
        load(molecule_features=["morgan"])


def test_data_without_features_of_graphs_have_the_hash_of_before_and_the_others_survive_a_file(tmp_path: Any) -> None:
    task, plain = load(), load(graph_features=[])
    assert task.graphs.sha256() != plain.graphs.sha256()
    assert "graph_attr" not in plain.graphs.tensors()
    assert "graph_features" not in str(task.schema)
    save_file(tmp_path / "graphs", task.graphs, {})
    found, _ = load_file(tmp_path / "graphs")
    assert found.sha256() == task.graphs.sha256()  # type: ignore[union-attr]


def test_a_list_of_pyg_graphs_keeps_its_features_of_graphs() -> None:
    task = load()
    data = [task.graphs[place] for place in range(COUNT)]
    again = load_tables(data, target="y", task="regression", standardise=False)
    assert torch.equal(again.graphs.graph_attr, task.graphs.graph_attr)  # type: ignore[arg-type]


SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CCN", "c1ccncc1", "CCCC", "C1CC1", "CCCl", "OCC", "CC#N"]


def test_fingerprints_and_descriptors_stand_beside_a_molecule_s_columns() -> None:
    rdkit = pytest.importorskip("rdkit.Chem.Descriptors")
    frame = pd.DataFrame({"smiles": SMILES, "dose": np.linspace(0, 1, 10), "y": [0, 1] * 5})
    task = load_tables(frame, target="y", molecule_features=["morgan", "descriptors"], fractions=(1, 0, 0))
    assert task.schema.graph_features == 1 + 2048 + len(rdkit.descList)
    found = task.graphs.graph_attr
    assert found is not None
    # CCO and OCC are one molecule.
    assert torch.equal(found[0, 1:], found[8, 1:])
    assert not torch.equal(found[0, 1:2049], found[1, 1:2049])
    new = apply_tables(task.details["preprocessing"], frame[["smiles", "dose"]])
    assert torch.equal(new.graphs.graph_attr, found)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="molecule_features: expected no column of this name"):
        load_tables(frame.assign(morgan=1.0), target="y", molecule_features=["morgan"])


def test_features_of_graphs_are_refused_where_the_network_does_not_read_them_or_gets_others() -> None:
    x, edges, batch = torch.rand(4, 3), torch.tensor([[0, 2], [1, 3]]), torch.tensor([0, 0, 1, 1])
    plain = SIRNet.of(3, 8, 2, num_layers=1, pool="sum")
    net = SIRNet.of(3, 8, 2, num_layers=1, pool="sum", graph_channels=5)
    assert net(x, edges, batch=batch, graph_attr=torch.rand(2, 5)).shape == (2, 2)
    for model, graph_attr, message in (
        (plain, torch.rand(2, 5), "reads no features of graphs"),
        (net, None, "expects 5 features per graph, got None"),
        (net, torch.rand(2, 4), r"expected shape \[graphs, 5\], got \[2, 4\]"),
        (net, torch.rand(3, 5), "expected 2 rows, one per graph, got 3"),
    ):
        with pytest.raises(ValueError, match=f"graph_attr: .*{message}"):
            model(x, edges, batch=batch, graph_attr=graph_attr)
    with pytest.raises(ConfigError, match="graph_channels: expected 0 with pool=None"):
        NetConfig.of(3, 8, 2, num_layers=1, graph_channels=5)


def test_a_network_with_features_of_graphs_exports_with_dynamic_sizes() -> None:
    net = SIRNet.of(3, 8, 2, num_layers=1, pool="sum", graph_channels=5).eval()

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, edge_index: Any, batch: Any, graph_attr: Any) -> Any:
            return self.net(x, edge_index, batch=batch, batch_size=graph_attr.size(0), graph_attr=graph_attr)

    def inputs(nodes: int, edges: int, graphs: int) -> tuple[torch.Tensor, ...]:
        batch = torch.arange(nodes) * graphs // nodes
        return torch.rand(nodes, 3), torch.randint(0, nodes, (2, edges)), batch, torch.rand(graphs, 5)

    dim = torch.export.Dim.DYNAMIC
    exported = torch.export.export(Called(), inputs(8, 12, 3), dynamic_shapes=({0: dim}, {1: dim}, {0: dim}, {0: dim}))
    other = inputs(14, 30, 5)
    assert torch.allclose(exported.module()(*other), Called()(*other), atol=1e-6)
