"""OGB's raw csv layout, read as OGB's own loader reads it, and its evaluators' rules."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from sirgcn.data import METRICS, DataError
from sirgcn.data.molecules import ATOM_VOCABULARIES, BOND_VOCABULARIES
from sirgcn.data.sets import ogb

RNG = np.random.default_rng(0)


def write(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (",".join(map(str, np.atleast_1d(row))) for row in rows)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), 1))


def molecule_files(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    graphs = 12
    found: list[Any] = []
    for number in range(graphs):
        # One molecule is a single atom.
        nodes = 1 if number == 3 else int(RNG.integers(2, 6))
        edges = 0 if number == 3 else int(RNG.integers(1, 5))
        found.append(
            {
                "x": RNG.integers(0, ATOM_VOCABULARIES, (nodes, 9)),
                "edge": RNG.integers(0, nodes, (edges, 2)),
                "kind": RNG.integers(0, BOND_VOCABULARIES, (edges, 3)),
                "y": [number % 2],
            }
        )
    parts = np.array_split(RNG.permutation(graphs), [graphs - 4, graphs - 2])
    files = {
        "raw/num-node-list": [len(graph["x"]) for graph in found],
        "raw/num-edge-list": [len(graph["edge"]) for graph in found],
        "raw/node-feat": np.concatenate([graph["x"] for graph in found]),
        "raw/edge": np.concatenate([graph["edge"] for graph in found]),
        "raw/edge-feat": np.concatenate([graph["kind"] for graph in found]),
        "raw/graph-label": [graph["y"] for graph in found],
        **{f"split/scaffold/{name}": part for name, part in zip(("train", "valid", "test"), parts, strict=True)},
    }
    for name, rows in {**files, **changes}.items():
        write(folder / f"{name}.csv.gz", rows)
    return found


def test_every_bond_becomes_two_edges_as_in_ogbs_loader(tmp_path: Path) -> None:
    molecules = molecule_files(tmp_path)
    task = ogb.molecules(tmp_path)
    assert task.graphs.num_graphs == 12
    assert (task.loss, task.metric, task.schema.outputs) == ("binary_cross_entropy", "roc_auc", 1)
    for ours, raw in zip(task.graphs, molecules, strict=True):
        # OGB: every column twice, then the second of each pair turned round.
        edges = np.repeat(raw["edge"].T, 2, axis=1)
        edges[0, 1::2], edges[1, 1::2] = edges[1, 0::2].copy(), edges[0, 0::2].copy()
        assert ours.edge_index.tolist() == edges.tolist()
        assert ours.edge_attr.tolist() == np.repeat(raw["kind"], 2, axis=0).tolist()
        assert ours.x.tolist() == raw["x"].tolist()
        assert ours.y.tolist() == raw["y"]
    assert ogb.molecules(tmp_path, bonds=False).graphs.edge_attr is None


def test_the_split_is_that_of_the_files(tmp_path: Path) -> None:
    molecule_files(
        tmp_path,
        **{
            f"split/scaffold/{part}": rows for part, rows in (("train", [5, 0, 2]), ("valid", [1, 4]), ("test", [3, 6]))
        },
    )
    split = ogb.molecules(tmp_path).splits[0]
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[5, 0, 2], [1, 4], [3, 6]]


def test_several_tasks_keep_their_missing_labels(tmp_path: Path) -> None:
    labels = [[0, 1, ""], [1, "", 0], *[[number % 2, 1, 0] for number in range(10)]]
    molecule_files(tmp_path, **{"raw/graph-label": labels})
    task = ogb.molecules(tmp_path, "ogbg-moltiny")
    assert task.schema.outputs == 3
    assert torch.isnan(task.graphs.y).sum(0).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("raw/edge", [[0, 1]], "expected .* edges of 12 graphs, got 1"),
        ("raw/node-feat", [[0] * 9], "node_ptr|x"),
        ("raw/node-feat", [[0, 0]], "x|node_ptr"),
        ("raw/num-node-list", [[1, 2]] * 12, "num-node-list.csv.gz: expected one column, got 2"),
        ("raw/edge-feat", [["a", "b", "c"]], "edge-feat.csv.gz: cannot be read"),
        ("raw/edge-feat", [[0.5, 1, 1]], "edge-feat.csv.gz: cannot be read"),
        ("raw/graph-label", [[7]] * 12, "y"),
        ("split/scaffold/train", [12], "expected 0 <= entry < 12, got 12"),
        ("split/scaffold/train", list(range(12)), "every item at most once"),
    ],
)
def test_malformed_files_are_refused(file: str, rows: Any, message: str, tmp_path: Path) -> None:
    molecule_files(tmp_path, **{file: rows})
    with pytest.raises(DataError, match=message):
        ogb.molecules(tmp_path)


def test_an_edge_into_another_molecule_is_refused(tmp_path: Path) -> None:
    found = molecule_files(tmp_path)
    edges = np.concatenate([graph["edge"] for graph in found])
    edges[0, 1] = len(found[0]["x"])
    write(tmp_path / "raw/edge.csv.gz", edges)
    with pytest.raises(DataError, match=r"edge, row \[1, 0\]: expected 0 <= entry < ") as refusal:
        ogb.molecules(tmp_path)
    assert refusal.value.source == str(tmp_path / "raw/edge.csv.gz")


def test_a_missing_or_cut_file_is_named(tmp_path: Path) -> None:
    molecule_files(tmp_path)
    path = tmp_path / "raw" / "node-feat.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"node-feat\.csv\.gz: cannot be read"):
        ogb.molecules(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"node-feat\.csv\.gz: cannot be read: FileNotFoundError"):
        ogb.molecules(tmp_path)


def arxiv_files(folder: Path, labels: Any, edges: Any, parts: dict[str, Any], width: int = 3) -> None:
    write(folder / "raw/node-label.csv.gz", labels)
    write(folder / "raw/node-feat.csv.gz", RNG.random((len(labels), width)).round(3))
    write(folder / "raw/edge.csv.gz", edges)
    for part, rows in parts.items():
        write(folder / f"split/time/{part}.csv.gz", rows)


def test_arxiv_gets_reverse_edges_and_self_loops_once(tmp_path: Path) -> None:
    edges = [[0, 1], [1, 0], [1, 2], [2, 2], [1, 2], [3, 0]]
    arxiv_files(tmp_path, [0, 1, 2, 1, 0], edges, {"train": [0, 1], "valid": [2, 3], "test": [4]})
    task = ogb.arxiv(tmp_path)
    both = {(0, 1), (1, 0), (1, 2), (2, 1), (3, 0), (0, 3)}
    found = [tuple(edge) for edge in task.graphs.edge_index.T.tolist()]
    assert len(found) == len(set(found))
    assert set(found) == both | {(node, node) for node in range(5)}
    assert (task.loss, task.metric, task.schema.outputs) == ("log_cross_entropy", "accuracy", 3)
    directed = ogb.arxiv(tmp_path, undirected=False, self_loops=False).graphs.edge_index.T.tolist()
    assert {tuple(edge) for edge in directed} == {tuple(edge) for edge in edges}
    write(tmp_path / "raw/edge.csv.gz", [[0, 5]])
    with pytest.raises(DataError, match="expected 0 <= entry < 5, got 5"):
        ogb.arxiv(tmp_path)


@pytest.mark.skipif("SIRGCN_DATA" not in os.environ, reason="SIRGCN_DATA is not set: no real labels of ogbn-arxiv")
def test_arxiv_with_its_real_labels_has_the_published_split(tmp_path: Path) -> None:
    real = Path(os.environ["SIRGCN_DATA"]) / "ogbn-arxiv-partial" / "raw"
    if not real.exists():
        pytest.skip(f"{real} is not there")
    years, labels = (np.loadtxt(real / f"{name}.csv.gz", dtype=np.int64) for name in ("node_year", "node-label"))
    parts = {"train": years <= 2017, "valid": years == 2018, "test": years >= 2019}
    arxiv_files(tmp_path, labels, [[0, 1]], {part: mask.nonzero()[0] for part, mask in parts.items()}, width=1)
    task = ogb.arxiv(tmp_path)
    assert task.graphs.num_nodes == 169_343
    assert task.schema.outputs == 40
    assert tuple(len(getattr(task.splits[0], part)) for part in ("train", "val", "test")) == (90_941, 29_799, 48_603)


def test_roc_auc_is_ogbs_rule() -> None:
    labels = RNG.integers(0, 2, (60, 4)).astype(float)
    labels[RNG.random((60, 4)) < 0.3] = np.nan
    labels[:, 2] = 1
    scores = RNG.random((60, 4)).round(1)
    # OGB's evaluator: the mean over tasks that have both classes, over rows that are labelled.
    found: list[Any] = []
    for task in range(4):
        if (labels[:, task] == 1).any() and (labels[:, task] == 0).any():
            known = labels[:, task] == labels[:, task]
            found.append(roc_auc_score(labels[known, task], scores[known, task]))
    assert len(found) == 3
    ours = METRICS["roc_auc"]([torch.from_numpy(scores)], [torch.from_numpy(labels)])
    assert ours == pytest.approx(sum(found) / len(found), abs=1e-12)


def test_accuracy_is_ogbs_rule() -> None:
    scores, labels = torch.randn(50, 5, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 5
    assert METRICS["accuracy"]([scores], [labels]) == float((scores.argmax(1) == labels).double().mean())
