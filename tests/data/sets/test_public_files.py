"""Readers of published layouts are compared with PyG's own readers on small files of the same layout."""

import gzip
import json
import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.data import Data
from torch_geometric.datasets import (
    ZINC,
    GNNBenchmarkDataset,
    HeterophilousGraphDataset,
    MoleculeNet,
    Planetoid,
    TUDataset,
    WikiCS,
)

from sirgcn.data.sets import benchmarking, public
from sirgcn.data.sets.moleculenet import moleculenet
from sirgcn.data.splits import Split
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError
from sirgcn.strict import ConfigError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRGCN_CACHE", str(tmp_path / "cache"))


def masks(nodes: int, splits: int) -> dict[str, Any]:
    parts = RNG.integers(0, 3, (splits, nodes))
    parts[:, :3] = [0, 1, 2]
    return {f"{name}_masks": parts == part for part, name in enumerate(("train", "val", "test"))}


def npz(folder: Path, name: str, classes: int, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "node_features": RNG.random((40, 5), np.float32),
        "node_labels": np.arange(40) % classes,
        "edges": RNG.integers(0, 40, (90, 2)),
        **masks(40, 10),
        **changes,
    }
    np.savez_compressed(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return folder


def same_edges(task: Task, data: Data) -> None:
    assert set(zip(*task.graphs.edge_index.tolist(), strict=True)) == set(zip(*data.edge_index.tolist(), strict=True))
    assert task.graphs.num_edges == data.num_edges


@pytest.mark.parametrize(("name", "classes"), [("roman_empire", 18), ("amazon_ratings", 5), ("questions", 2)])
def test_heterophilous_graphs_are_those_of_pyg(name: str, classes: int, tmp_path: Path) -> None:
    task = public.heterophilous(npz(tmp_path / name / "raw", name, classes), name)
    data = HeterophilousGraphDataset(str(tmp_path), name)[0]
    same_edges(task, data)
    assert torch.equal(task.graphs.x, data.x)
    assert torch.equal(task.graphs.y.long(), data.y)
    assert len(task.splits) == 10
    for number, split in enumerate(task.splits):
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(split, part), data[f"{part}_mask"][:, number].nonzero().squeeze(1))
    if classes == 2:
        assert (task.loss, task.metric, task.schema.outputs) == ("binary_cross_entropy", "roc_auc", 1)
        assert task.graphs.y.is_floating_point()
    else:
        assert (task.loss, task.metric, task.schema.outputs) == ("cross_entropy", "accuracy", classes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edges": np.array([[0, 40]])}, r"edges, row \[1, 0\]: expected 0 <= entry < 40, got 40"),
        ({"edges": np.array([[0, -1]])}, "expected 0 <= entry < 40, got -1"),
        ({"node_features": np.full((40, 5), np.nan, np.float32)}, "x, row .*expected a finite number, got nan"),
        ({"node_labels": np.zeros(40, int)}, "y: "),
        ({"node_labels": np.arange(39)}, "y: expected shape"),
        ({"train_masks": np.ones((10, 40), bool)}, "every item at most once"),
        ({"val_masks": np.ones((9, 40), bool)}, "cannot be read"),
        ({"edges": None}, "cannot be read: KeyError"),
        ({"edges": np.array([{"a": 1}])}, "cannot be read: ValueError: Object arrays cannot be loaded"),
    ],
)
def test_a_malformed_npz_is_refused_naming_the_file(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    npz(tmp_path, "minesweeper", 2, **changes)
    with pytest.raises(DataError, match=message) as refusal:
        public.heterophilous(tmp_path, "minesweeper")
    assert refusal.value.source == str(tmp_path / "minesweeper.npz")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, "minesweeper", 2) / "minesweeper.npz"
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="cannot be read"):
            public.heterophilous(tmp_path, "minesweeper")


def test_wikics_is_that_of_pyg_with_stopping_nodes_in_validation(tmp_path: Path) -> None:
    nodes, parts = 30, RNG.integers(0, 4, (20, 30))
    parts[:, :4] = [0, 1, 2, 3]
    # The test nodes are the same in every split.
    parts[:, 4:] = np.where(np.arange(26) % 3 == 0, 3, parts[:, 4:] % 3)
    content = {
        "features": RNG.random((nodes, 4)).tolist(),
        "labels": (np.arange(nodes) % 10).tolist(),
        "links": [RNG.integers(0, nodes, RNG.integers(0, 5)).tolist() for _ in range(nodes)],
        "train_masks": (parts == 0).tolist(),
        "val_masks": (parts == 1).tolist(),
        "stopping_masks": (parts == 2).tolist(),
        "test_mask": (parts[0] == 3).tolist(),
    }
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "data.json").write_text(json.dumps(content))
    for undirected in (True, False):
        task = public.wikics(tmp_path / "raw", undirected)
        data = WikiCS(str(tmp_path), is_undirected=undirected)[0]
        if undirected:
            same_edges(task, data)
        else:
            assert set(zip(*task.graphs.edge_index.tolist(), strict=True)) == set(
                zip(*data.edge_index.tolist(), strict=True)
            )
        assert torch.equal(task.graphs.x, data.x)
        assert torch.equal(task.graphs.y, data.y)
    assert len(task.splits) == 20
    for number, split in enumerate(task.splits):
        val = data.val_mask[:, number] | data.stopping_mask[:, number]
        assert torch.equal(split.val, val.nonzero().squeeze(1))
        assert torch.equal(split.train, data.train_mask[:, number].nonzero().squeeze(1))
        assert torch.equal(split.test, data.test_mask.nonzero().squeeze(1))
    (tmp_path / "raw" / "data.json").write_text('{"features": ')
    with pytest.raises(DataError, match=r"data\.json: cannot be read: JSONDecodeError"):
        public.wikics(tmp_path / "raw")


def planetoid_files(folder: Path, name: str, nodes: int, absent: int) -> None:
    """`absent` of the last nodes are named by no test row, as in CiteSeer."""
    folder.mkdir(parents=True)
    rest, classes, width = 640, 3, 7
    x = sparse.random(nodes, width, 0.3, "csr", np.float32, rng=0)
    y = np.eye(classes, dtype=np.int32)[np.arange(nodes) % classes]
    test = RNG.permutation(np.arange(rest, nodes))
    # The last node stays: the largest index tells the number of nodes.
    test = np.array([node for node in test if node not in set(range(rest + 1, rest + 1 + absent))])
    graph: dict[int, list[int]] = defaultdict(list)
    for a, b in RNG.integers(0, nodes, (900, 2)).tolist():
        graph[a].append(b)
        graph[b].append(a)
    rows = {
        "x": x[:60],
        "tx": x[np.sort(test)],
        "allx": x[:rest],
        "y": y[:60],
        "ty": y[np.sort(test)],
        "ally": y[:rest],
    }
    for part, content in {**rows, "graph": graph}.items():
        (folder / f"ind.{name.lower()}.{part}").write_bytes(pickle.dumps(content, 2))
    (folder / f"ind.{name.lower()}.test.index").write_text("".join(f"{node}\n" for node in test))


@pytest.mark.parametrize(("name", "absent"), [("CiteSeer", 15), ("PubMed", 0)])
def test_planetoid_is_that_of_pyg(name: str, absent: int, tmp_path: Path) -> None:
    planetoid_files(tmp_path / name / "raw", name, 740, absent)
    task = public.planetoid(tmp_path / name / "raw", name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Planetoid(str(tmp_path), name)[0]
    same_edges(task, data)
    assert torch.equal(task.graphs.x, data.x)
    known = task.graphs.y >= 0
    assert int((~known).sum()) == absent
    assert torch.equal(task.graphs.y[known], data.y[known])
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(task.splits[0], part).sort().values, data[f"{part}_mask"].nonzero().squeeze(1))


def test_a_planetoid_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    planetoid_files(tmp_path / "raw", "PubMed", 740, 0)
    for part, content, message in [
        ("graph", [1, 2], "expected a dict of lists"),
        ("graph", {0: [740]}, "expected 0 <= entry < 740"),
        ("tx", {"a": 1}, "expected an array, got dict"),
        ("y", np.zeros(3), r"expected a matrix, got shape \[3\]"),
        ("ty", Path("/"), "got the name pathlib"),
    ]:
        path = tmp_path / "raw" / f"ind.pubmed.{part}"
        before = path.read_bytes()
        path.write_bytes(pickle.dumps(content, 2))
        with pytest.raises(DataError, match=message):
            public.planetoid(tmp_path / "raw", "PubMed")
        path.write_bytes(before)
    (tmp_path / "raw" / "ind.pubmed.test.index").write_text("12\n")
    with pytest.raises(DataError, match=r"test\.index"):
        public.planetoid(tmp_path / "raw", "PubMed")


TU = {
    "A": "2, 1\n1, 2\n3, 3\n1, 2\n6, 5\n5, 6\n",
    "graph_indicator": "1\n1\n1\n2\n3\n3\n",
    "graph_labels": "-1\n1\n-1\n",
    "node_labels": "3\n4\n3\n7\n3\n3\n",
    "edge_labels": "0\n1\n1\n1\n2\n0\n",
    "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n5, 6.5\n",
}


def tu_files(folder: Path, parts: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in parts.items():
        (folder / f"TINY_{part}.txt").write_text(content)
    return folder


def test_tu_collections_are_those_of_pyg(tmp_path: Path) -> None:
    folder = tu_files(tmp_path / "TINY" / "raw", TU)
    task = public.tu(folder, "TINY")
    assert task.schema.vocabularies == (5,)
    assert task.schema.edge_vocabularies == (3,)
    assert task.classes == ("-1", "1")
    oracle = TUDataset(str(tmp_path), "TINY")
    for ours, theirs in zip(task.graphs, oracle, strict=True):
        assert torch.equal(ours.edge_index, theirs.edge_index)
        assert ours.x.squeeze(1).tolist() == theirs.x.argmax(1).tolist()
        assert ours.y.tolist() == theirs.y.tolist()
    # The first of two equal edges stays; PyG adds their one-hot labels up.
    assert task.graphs[0].edge_attr.squeeze(1).tolist() == [1, 0]
    attributes = public.tu(folder, "TINY", attributes=True)
    assert attributes.schema.features == 7
    assert torch.equal(attributes.graphs[0].x, TUDataset(str(tmp_path), "TINY", use_node_attr=True)[0].x)
    assert torch.equal(
        public.tu(folder, "TINY", seed=3).splits[0].train, public.tu(folder, "TINY", seed=3).splits[0].train
    )


def test_a_tu_collection_without_labels_has_the_feature_one(tmp_path: Path) -> None:
    task = public.tu(tu_files(tmp_path, {part: TU[part] for part in ("A", "graph_indicator", "graph_labels")}), "TINY")
    assert task.graphs.x.tolist() == [[1.0]] * 6
    assert task.graphs.edge_attr is None


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("A", "1, 7\n", "expected 0 <= entry < 6, got 6"),
        ("A", "0, 1\n", "expected 0 <= entry < 6, got -1"),
        ("A", "1, x\n", "cannot be read"),
        ("A", "1, 4\n", "edge_index"),
        ("A", "", "cannot be read: EmptyDataError"),
        ("graph_indicator", "1\n2\n1\n2\n3\n3\n", "expected graphs 1 to 3 in order"),
        ("graph_indicator", "1\n1\n1\n2\n3\n4\n", "expected graphs 1 to 3 in order"),
        ("node_labels", "1\n", "cannot be read"),
    ],
)
def test_a_malformed_tu_collection_is_refused(part: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        public.tu(tu_files(tmp_path, {**TU, part: content}), "TINY")


def zinc_files(folder: Path, as_list: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(("train", "val", "test")):
        molecules = []
        for _ in range(6):
            size = int(RNG.integers(1, 7))
            bonds = np.triu(RNG.integers(0, 4, (size, size)) * (RNG.random((size, size)) < 0.6), 1)
            molecules.append(
                {
                    "num_atom": size,
                    "atom_type": torch.from_numpy(RNG.integers(0, 28, size)),
                    "bond_type": torch.from_numpy(bonds + bonds.T),
                    "logP_SA_cycle_normalized": torch.tensor([RNG.normal()]),
                }
            )
        content: Any = molecules if as_list else dict(enumerate(molecules))
        (folder / f"{part}.pickle").write_bytes(pickle.dumps(content, 4 - number))
        (folder / f"{part}.index").write_text(",".join(map(str, RNG.permutation(6)[:4])) + "\n")


@pytest.mark.parametrize("as_list", [True, False])
def test_zinc_is_that_of_pyg(as_list: bool, tmp_path: Path) -> None:
    zinc_files(tmp_path / "raw", as_list)
    tasks = [benchmarking.zinc(tmp_path / "raw") for _ in range(2)]
    # The second one comes from the cache.
    assert len(list((tmp_path / "cache" / "zinc").iterdir())) == 1
    assert tasks[0].graphs.sha256() == tasks[1].graphs.sha256()
    task = tasks[0]
    assert (task.schema.vocabularies, task.schema.edge_vocabularies) == ((28,), (4,))
    for part in ("train", "val", "test"):
        for place, theirs in zip(getattr(task.splits[0], part), ZINC(str(tmp_path), True, part), strict=True):
            ours = task.graphs[int(place)]
            assert torch.equal(ours.x, theirs.x)
            assert torch.equal(ours.edge_index, theirs.edge_index)
            assert torch.equal(ours.edge_attr.squeeze(1), theirs.edge_attr)
            assert torch.equal(ours.y, theirs.y)
    plain = benchmarking.zinc(tmp_path / "raw", bonds=False)
    assert plain.graphs.edge_attr is None
    assert plain.schema.edge_vocabularies == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bond_type": torch.zeros(3, 2)}, "expected shape"),
        ({"bond_type": "text"}, "expected an array, got str"),
        ({"atom_type": torch.tensor([28])}, "x, row .*: expected 0 <= entry < 28, got 28"),
    ],
)
def test_a_malformed_molecule_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    zinc_files(tmp_path, True)
    molecule = {
        "atom_type": torch.tensor([1]),
        "bond_type": torch.zeros(1, 1),
        "logP_SA_cycle_normalized": torch.ones(1),
    }
    (tmp_path / "val.pickle").write_bytes(pickle.dumps([{**molecule, **change}] * 6, 4))
    with pytest.raises(DataError, match=message):
        benchmarking.zinc(tmp_path)


def benchmark_graph(name: str) -> dict[str, torch.Tensor]:
    nodes = int(RNG.integers(3, 9))
    edge_index = torch.from_numpy(RNG.integers(0, nodes, (2, 12)))
    if name in ("PATTERN", "CLUSTER"):
        types, classes = (3, 2) if name == "PATTERN" else (7, 6)
        y = torch.from_numpy(RNG.integers(0, classes, nodes))
        y[:2] = torch.tensor([0, 1])
        return {"x": torch.eye(types)[RNG.integers(0, types, nodes)], "edge_index": edge_index, "y": y}
    return {
        "x": torch.rand(nodes, 1 if name == "MNIST" else 3),
        "pos": torch.rand(nodes, 2),
        "edge_index": edge_index,
        "edge_attr": torch.rand(12),
        "y": torch.tensor([int(RNG.integers(0, 10))]),
    }


@pytest.mark.parametrize("name", ["PATTERN", "CLUSTER", "MNIST", "CIFAR10"])
def test_benchmark_files_are_those_of_pyg(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name / "raw"
    folder.mkdir(parents=True)
    sizes = (20, 10, 10)
    torch.save([[benchmark_graph(name) for _ in range(size)] for size in sizes], folder / f"{name}_v2.pt")
    if name in ("PATTERN", "CLUSTER"):
        task = benchmarking.sbm_files(folder, name)
        assert (task.level, task.loss, task.metric) == ("node", "weighted_cross_entropy", "class_accuracy")
    else:
        task = benchmarking.superpixel_files(folder, name, edge_values=True)
        assert (task.level, task.loss, task.metric) == ("graph", "cross_entropy", "accuracy")
        assert task.schema.features == (3 if name == "MNIST" else 5)
        assert benchmarking.superpixel_files(folder, name).graphs.edge_attr is None
    assert tuple(len(getattr(task.splits[0], part)) for part in ("train", "val", "test")) == sizes
    for part in ("train", "val", "test"):
        oracle = GNNBenchmarkDataset(str(tmp_path), name, part)
        for place, theirs in zip(getattr(task.splits[0], part), oracle, strict=True):
            ours = task.graphs[int(place)]
            assert torch.equal(ours.edge_index, theirs.edge_index)
            assert torch.equal(ours.y, theirs.y)
            if task.level == "node":
                assert torch.equal(torch.eye(theirs.x.size(1))[ours.x.squeeze(1)], theirs.x)
            else:
                assert torch.equal(ours.x, torch.cat([theirs.x, theirs.pos], 1))
                assert torch.equal(ours.edge_attr.squeeze(1), theirs.edge_attr)


def test_a_benchmark_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save(Path("/"), tmp_path / "PATTERN_v2.pt")
    with pytest.raises(DataError, match=r"PATTERN_v2\.pt: expected only tensors, got something that would run code"):
        benchmarking.sbm_files(tmp_path, "PATTERN")
    torch.save(
        [[{"x": torch.rand(2, 3), "edge_index": torch.zeros(2, 0).long(), "y": torch.zeros(2)}]] * 3,
        tmp_path / "PATTERN_v2.pt",
    )
    with pytest.raises(DataError, match="expected one-hot node types"):
        benchmarking.sbm_files(tmp_path, "PATTERN")


SMILES = ["CCO", "c1ccccc1O", "C", "CC(=O)[O-].[Na+]", "C/C=C/C", "c1ccccc1N", "N#N", "c1ccncc1", "c1ccncc1C", "O"]


def table(folder: Path, name: str, rows: list[str], pack: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = "\n".join(rows) + "\n"
    if pack:
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(content.encode()))
    else:
        (folder / f"{name}.csv").write_text(content)
    return folder


def test_moleculenet_has_the_graphs_of_pyg(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f'"a, {number}",-{number}.5,{text}' for number, text in enumerate(SMILES)]
    folder = table(tmp_path / "esol" / "raw", "delaney-processed", ["id,measured log solubility,smiles", *rows])
    task = moleculenet(folder, "delaney-processed")
    oracle = MoleculeNet(str(tmp_path), "ESOL")
    assert (task.loss, task.metric) == ("mse", "mse")
    for ours, theirs in zip(task.graphs, oracle, strict=True):
        # OGB counts elements from 0, PyG from 1; the categories of the other columns differ.
        assert torch.equal(ours.x[:, 0] + 1, theirs.x[:, 0])
        assert sorted(ours.edge_index.T.tolist()) == sorted(theirs.edge_index.T.tolist())
        assert torch.equal(ours.y, theirs.y.reshape(-1))
    again = moleculenet(folder, "delaney-processed", seed=1)
    assert again.graphs.sha256() == task.graphs.sha256()


def test_several_tasks_keep_their_missing_labels(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{text},{number % 2},{'' if number % 3 else 1 - number % 2}" for number, text in enumerate(SMILES)]
    for pack in (True, False):
        folder = table(tmp_path / str(pack), "clintox", ["smiles,FDA_APPROVED,CT_TOX", *rows], pack)
        task = moleculenet(folder, "clintox", "ClinTox")
        assert (task.name, task.loss, task.metric, task.schema.outputs) == (
            "ClinTox",
            "binary_cross_entropy",
            "roc_auc",
            2,
        )
        assert torch.isnan(task.graphs.y[:, 1]).tolist() == [number % 3 > 0 for number in range(10)]


def test_unreadable_molecules_are_counted_and_named(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    rows = [f"{number % 2},{text}" for number, text in enumerate(["C", *SMILES, "C(C", *SMILES])]
    folder = table(tmp_path, "BBBP", ["p_np,smiles", *rows])
    with pytest.warns(UserWarning, match="1 of 22 molecules cannot be read and are left out: rows 12"):
        task = moleculenet(folder, "BBBP")
    assert task.details["skipped"] == [12]
    assert task.graphs.num_graphs == 21
    assert task.graphs.y.tolist() == [number % 2 for number in range(22) if number != 11]
    table(tmp_path / "bad", "BBBP", ["p_np,smiles", *["1,nonsense"] * 5, *rows])
    with pytest.raises(DataError, match="expected SMILES, 6 of 27 are not"):
        moleculenet(tmp_path / "bad", "BBBP")


def test_a_scaffold_is_in_one_part_only_and_the_rare_ones_test() -> None:
    scaffold = torch.from_numpy(RNG.integers(0, 12, 100) ** 2 // 12)
    scaffold = scaffold.unique(return_inverse=True)[1]
    split = Split.largest_first(scaffold)
    parts = [set(scaffold[getattr(split, part)].tolist()) for part in ("train", "val", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == int(scaffold.max()) + 1
    everything = torch.cat([split.train, split.val, split.test]).sort().values
    assert torch.equal(everything, torch.arange(100))
    assert len(split.train) <= 80
    count = scaffold.bincount()
    assert count[list(parts[0])].max() == count.max()


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    folder = table(tmp_path, "BBBP", ["p_np,smiles", *[f"{n % 2},{text}" for n, text in enumerate(SMILES)]])
    with pytest.raises(ConfigError, match="split: expected one of random, scaffold, got 'stratified'"):
        moleculenet(folder, "BBBP", split="stratified")  # type: ignore[arg-type]


READERS: list[tuple[str, Callable[[Path], Task]]] = [
    ("minesweeper.npz", lambda folder: public.heterophilous(folder, "minesweeper")),
    ("data.json", public.wikics),
    ("ind.cora.x", lambda folder: public.planetoid(folder, "Cora")),
    ("MUTAG_A.txt", lambda folder: public.tu(folder, "MUTAG")),
    ("train.index", benchmarking.zinc),
    ("PATTERN_v2.pt", lambda folder: benchmarking.sbm_files(folder, "PATTERN")),
    ("BBBP.csv", lambda folder: moleculenet(folder, "BBBP")),
]


@pytest.mark.parametrize(("name", "reader"), READERS, ids=[name for name, _ in READERS])
def test_a_reader_without_its_file_refuses_naming_it(name: str, reader: Callable[[Path], Task], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(name)):
        reader(tmp_path)
