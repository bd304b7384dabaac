"""Real data have their published statistics. Needs SIRGCN_DATA, the folder of the raw files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

from sirgcn.data import METRICS
from sirgcn.data.molecules import molecule
from sirgcn.data.sets import benchmarking
from sirgcn.data.sets.catalog import DATASETS, find, load, verify
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError

pytestmark = pytest.mark.skipif("SIRGCN_DATA" not in os.environ, reason="SIRGCN_DATA is not set: no real data")


@pytest.fixture(scope="module", autouse=True)
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is written beside the raw files."""
    root = Path(os.environ["SIRGCN_DATA"])
    before = sorted(root.rglob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIRGCN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    assert sorted(root.rglob("*")) == before


def real(name: str, **options: object) -> Task:
    try:
        return load(name, download=False, **options)  # type: ignore[arg-type]
    except DataError as error:
        if "is not there" in str(error):
            pytest.skip(str(error))
        raise


def sizes(task: Task) -> tuple[int, ...]:
    return tuple(len(getattr(task.splits[0], part)) for part in ("train", "val", "test"))


def check_size(task: Task) -> None:
    graphs, nodes, edges = find(task.name).size
    count = task.graphs.num_graphs
    assert count == graphs
    assert task.graphs.num_nodes / count == pytest.approx(nodes, abs=0.005)
    assert task.graphs.num_edges / count == pytest.approx(edges, abs=0.005)
    assert (task.level, task.metric) == (find(task.name).level, find(task.name).metric)


@pytest.mark.parametrize(
    ("name", "features", "classes", "split"),
    [
        ("minesweeper", 7, 2, (5_000, 2_500, 2_500)),
        ("tolokers", 10, 2, (5_879, 2_939, 2_940)),
        ("actor", 932, 5, (3_648, 2_432, 1_520)),
        ("squirrel-filtered", 2_089, 5, (1_053, 718, 452)),
        ("texas", 1_703, 5, (87, 59, 37)),
        ("wisconsin", 1_703, 5, (120, 80, 51)),
        ("cornell", 1_703, 5, (87, 59, 37)),
    ],
)
def test_heterophilous_graphs(name: str, features: int, classes: int, split: tuple[int, ...]) -> None:
    task = real(name)
    check_size(task)
    assert task.version == "as published"
    assert task.schema.features == features
    assert task.schema.outputs == (1 if classes == 2 else classes)
    assert len(task.splits) == 10
    assert sizes(task) == split
    assert task.graphs.y.is_floating_point() == (classes == 2)


def test_minesweeper_has_a_fifth_of_mines_and_a_metric_to_find_them() -> None:
    task = real("minesweeper")
    assert float(task.graphs.y.mean()) == pytest.approx(0.2, abs=1e-6)
    (batch,) = task.batches("test")
    assert METRICS["roc_auc"]([batch.y], [batch.y]) == 1.0
    assert METRICS["roc_auc"]([torch.zeros(len(batch.y))], [batch.y]) == 0.5


def test_zinc_is_the_rebuilt_one_in_both_of_its_forms() -> None:
    task = real("ZINC")
    check_size(task)
    assert task.version == "rebuilt ZINC-12k"
    assert sizes(task) == (10_000, 1_000, 1_000)
    assert task.graphs.edge_attr is not None
    assert set(task.graphs.edge_attr.unique().tolist()) == {1, 2, 3}
    compact = find("ZINC").raw[1]
    if compact.missing(None):
        pytest.skip("the compact copy is not there")
    copy = benchmarking.zinc(compact.at(None), version=compact.version(compact.at(None)))
    assert copy.version == "rebuilt ZINC-12k"
    assert copy.graphs.sha256() == task.graphs.sha256()


def test_molhiv() -> None:
    task = real("ogbg-molhiv")
    check_size(task)
    assert task.version == "rebuilt ogbg-molhiv"
    assert sizes(task) == (32_901, 4_113, 4_113)
    split = task.splits[0]
    assert [int(task.graphs.y[part].sum()) for part in (split.train, split.val, split.test)] == [1_232, 81, 130]
    assert task.schema.vocabularies == (119, 5, 12, 12, 10, 6, 6, 2, 2)


def test_molecules_of_molhiv_made_anew_are_those_of_its_files() -> None:
    pytest.importorskip("rdkit")
    task = real("ogbg-molhiv")
    path = find("ogbg-molhiv").raw[0].at(None) / "mapping" / "mol.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    smiles = pd.read_csv(path)["smiles"]
    differ = 0
    for place in range(0, len(smiles), 200):
        graph, made = task.graphs[place], molecule(smiles[place])
        assert made is not None
        assert graph.edge_index.tolist() == made[1].tolist()
        differ += int((graph.x.numpy() != made[0]).sum() + (graph.edge_attr.numpy() != made[2]).sum())
    # Of 86,865 entries; a few depend on RDKit's version.
    assert differ <= 20


def test_cora() -> None:
    task = real("Cora")
    check_size(task)
    assert task.version == "as published"
    assert sizes(task) == (140, 500, 1_000)
    assert (task.schema.features, task.schema.outputs) == (1_433, 7)
    assert task.graphs.y.bincount().tolist() == [351, 217, 418, 818, 426, 298, 180]
    # Twenty of each class train.
    assert task.graphs.y[task.splits[0].train].bincount().tolist() == [20] * 7


def test_mutag() -> None:
    task = real("MUTAG")
    check_size(task)
    assert task.version == "as published"
    assert task.graphs.y.bincount().tolist() == [63, 125]
    assert (task.schema.vocabularies, task.schema.edge_vocabularies) == ((7,), (4,))
    assert sizes(task) == (152, 18, 18)
    assert not torch.equal(task.splits[0].train, real("MUTAG", seed=1).splits[0].train)


def test_esol() -> None:
    pytest.importorskip("rdkit")
    task = real("ESOL")
    check_size(task)
    assert task.version == "as published"
    assert sizes(task) == (902, 113, 113)
    assert float(task.graphs.y.mean()) == pytest.approx(-3.050102, abs=1e-5)


@pytest.mark.filterwarnings("ignore:.*11 of 2050 molecules cannot be read:UserWarning")
def test_bbbp() -> None:
    pytest.importorskip("rdkit")
    task = real("BBBP")
    check_size(task)
    assert task.version == "the copy of AttentiveFP"
    assert len(task.details["skipped"]) == 11
    assert int(task.graphs.y.sum()) == 1_560
    assert sizes(task) == (1_631, 204, 204)


def test_every_file_that_is_there_has_its_published_hash_or_is_known() -> None:
    states = [state for name in DATASETS for state in verify(name).values()]
    assert [state for state in states if state.startswith("expected")] == []
    assert "as published" in states


def test_mnist() -> None:
    pytest.importorskip("skimage")
    task = real("mnist", limit=14)
    assert set(verify("mnist").values()) == {"as published, repacked"}
    assert sizes(task) == (11, 1, 2)
    assert (task.schema.features, task.schema.outputs, task.metric) == (3, 10, "accuracy")


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_superpixel_graphs_have_the_sizes_of_the_catalogue(name: str) -> None:
    pytest.importorskip("skimage")
    graphs = real(name, limit=300, workers=1).graphs
    found = (graphs.num_nodes / len(graphs), graphs.num_edges / len(graphs))
    # The catalogue's are means over all images; those of 300 differ by less than one in a hundred.
    assert found == pytest.approx(DATASETS[name].size[1:], rel=0.01)
