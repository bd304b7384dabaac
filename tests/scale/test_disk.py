import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from typer.testing import CliRunner

from sirgcn import SIRNet, cli
from sirgcn.data import DataError
from sirgcn.ops.sampling import InEdges
from sirgcn.scale import DiskGraph, Ends, NeighborSampler, Nodes, convert, layerwise
from sirgcn.scale import convert as convert_function
from tests.scale.drawn import drawn_data

pytest.importorskip("pyarrow", reason="graphs on disk are read with pyarrow")

NODES, EDGES = 500, 6000


@pytest.fixture
def data() -> Data:
    return drawn_data(NODES, EDGES)


def write_edges(path: Path, data: Data, names: tuple[str, str] = ("source", "target")) -> Path:
    frame = pd.DataFrame(dict(zip(names, data.edge_index.numpy(), strict=True)))
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


def write_nodes(path: Path, data: Data, shuffled: bool = False) -> Path:
    frame = pd.DataFrame(data.x.numpy(), columns=list("abcd"))
    frame["label"], frame["number"] = data.y.numpy(), np.arange(len(frame))
    frame = frame.sample(frac=1, random_state=0) if shuffled else frame
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


def converted(folder: Path, data: Data, **options: Any) -> DiskGraph:
    nodes = Nodes(write_nodes(folder / "nodes.parquet", data), id="number", label="label")
    return convert(folder / "graph", write_edges(folder / "edges.parquet", data), nodes, **options)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("memory", ["20KB", "1GB"])
def test_a_graph_on_disk_is_that_of_the_tables(tmp_path: Path, data: Data, ending: str, memory: str) -> None:
    edges = write_edges(tmp_path / f"edges{ending}", data, ("from", "to"))
    nodes = Nodes(write_nodes(tmp_path / f"nodes{ending}", data, shuffled=True), id="number", label="label")
    graph = convert(tmp_path / "graph", edges, nodes, Ends("from", "to"), memory=memory)
    wanted, found = InEdges.of(data.edge_index, (NODES, NODES)), DiskGraph(tmp_path / "graph").in_edges()
    # Neighbours keep the order of the tables, so that sums over them round as in memory.
    assert torch.equal(found.node, wanted.node)
    assert torch.equal(found.ptr, wanted.ptr.long())
    torch.testing.assert_close(graph.x, data.x)
    assert torch.equal(graph.data().y, data.y)


def test_edges_may_lie_in_several_files(tmp_path: Path, data: Data) -> None:
    folder = tmp_path / "edges"
    folder.mkdir()
    for number, part in enumerate(data.edge_index.split(2500, dim=1)):
        write_edges(folder / f"part-{number}.parquet", Data(edge_index=part))
    graph = convert(tmp_path / "graph", folder, num_nodes=NODES)
    assert torch.equal(graph.in_edges().node, InEdges.of(data.edge_index, (NODES, NODES)).node)


@pytest.mark.parametrize("options", [{}, {"aggr": "sym"}, {"aggr": "max"}, {"conv": "gcn"}], ids=str)
def test_predictions_on_disk_are_those_in_memory(tmp_path: Path, data: Data, options: dict[str, Any]) -> None:
    graph = converted(tmp_path, data)
    torch.manual_seed(0)
    net = SIRNet.of(4, 16, 3, num_layers=3, **options).eval()
    found = layerwise(net, graph, memory="60KB", out=tmp_path / "out.npy")
    with torch.no_grad():
        torch.testing.assert_close(found, net(data.x, data.edge_index), rtol=1e-5, atol=1e-5)
    assert (
        sorted(path.name for path in (tmp_path / "graph").iterdir())
        == [
            "features.bin",
            "labels.bin",
            "lock",
            "manifest.json",
            "pointers.bin",
            "source.json",
            "sources.bin",
        ]
        or not (tmp_path / "graph" / "lock").exists()
    )


def test_batches_from_disk_are_those_from_memory(tmp_path: Path, data: Data) -> None:
    graph = converted(tmp_path, data)
    ours = NodeLoader(graph.data(), NeighborSampler(graph, [5, 3]), batch_size=50)
    plain = NodeLoader(data, NeighborSampler(data, [5, 3]), batch_size=50)
    for batch, wanted in zip(ours, plain, strict=True):
        assert torch.equal(batch.n_id, wanted.n_id)
        assert torch.equal(batch.edge_index, wanted.edge_index)
        torch.testing.assert_close(batch.x, wanted.x)
        assert torch.equal(batch.y, wanted.y)


def test_a_finished_conversion_is_not_repeated_and_other_tables_are_refused(tmp_path: Path, data: Data) -> None:
    converted(tmp_path, data)
    before = (tmp_path / "graph" / "sources.bin").stat().st_mtime_ns
    nodes = Nodes(tmp_path / "nodes.parquet", id="number", label="label")
    convert(tmp_path / "graph", tmp_path / "edges.parquet", nodes)
    assert (tmp_path / "graph" / "sources.bin").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="expected a new folder, got one with a graph of other tables"):
        convert(tmp_path / "graph", tmp_path / "edges.parquet")


STEPS = ["_count", "_buckets", "_sort", "_sort_bucket", "_save"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [0, 2])
def test_an_interrupted_conversion_continues(
    tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    import sirgcn.scale.edgefiles as edgefiles
    from sirgcn.scale.convert import _Conversion

    monkeypatch.setattr(edgefiles, "PIECE", 2000)
    wanted = converted(tmp_path, data, memory="200KB")
    whole = {path.name: path.read_bytes() for path in wanted.folder.glob("*.bin")}
    shutil.rmtree(wanted.folder)
    own, calls = getattr(_Conversion, step), iter(range(10**6))

    def interrupted(self: Any, *args: Any) -> Any:
        if next(calls) == after:
            raise KeyboardInterrupt
        return own(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(_Conversion, step, interrupted)
        try:
            converted(tmp_path, data, memory="200KB")
        except KeyboardInterrupt:
            assert not (tmp_path / "graph" / "manifest.json").exists()
            with pytest.raises(DataError, match="got a folder without a manifest"):
                DiskGraph(tmp_path / "graph")
    # The rewritten tables are new files; the conversion that continues is that of the same ones.
    nodes = Nodes(tmp_path / "nodes.parquet", id="number", label="label")
    convert_function(tmp_path / "graph", tmp_path / "edges.parquet", nodes, memory="200KB")
    assert {path.name: path.read_bytes() for path in (tmp_path / "graph").glob("*.bin")} == whole
    DiskGraph(tmp_path / "graph")


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", ["features.bin", "sources.bin", "pointers.bin", "labels.bin"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_changed_file_is_refused_with_its_name(tmp_path: Path, data: Data, name: str, place: str) -> None:
    folder = converted(tmp_path, data).folder
    flip(folder / name, 0 if place == "first" else -1)
    with pytest.raises(DataError, match=rf"{name}: sha256: block \d+ .*: expected the content that was written"):
        DiskGraph(folder)


@pytest.mark.parametrize("name", ["features.bin", "sources.bin", "pointers.bin"])
def test_a_truncated_file_is_refused_without_reading_it(tmp_path: Path, data: Data, name: str) -> None:
    path = converted(tmp_path, data).folder / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=rf"{name}: size: expected \d+ bytes, got \d+; block \d+ is truncated"):
        DiskGraph(tmp_path / "graph", verify=False)


def test_a_changed_or_missing_manifest_is_refused(tmp_path: Path, data: Data) -> None:
    folder = converted(tmp_path, data).folder
    path = folder / "manifest.json"
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps({**body, "num_nodes": 7}))
    with pytest.raises(DataError, match="got another hash"):
        DiskGraph(folder)
    path.write_text(json.dumps({**body, "format": 99}))
    with pytest.raises(DataError, match="format: expected 1, got 99"):
        DiskGraph(folder)
    path.write_text("[1")
    with pytest.raises(DataError, match="expected a manifest"):
        DiskGraph(folder)
    path.unlink()
    with pytest.raises(DataError, match="got a folder without a manifest"):
        DiskGraph(folder)


def edges_csv(folder: Path, text: str) -> Path:
    path = folder / "edges.csv"
    path.write_text("source,target\n" + text)
    return path


REFUSED: list[tuple[str, Callable[[Path], object], str]] = [
    ("0,1\n2,-3\n", lambda f: convert(f / "g", f / "edges.csv"), "target, row 2: expected a node number, at least 0"),
    ("0,1\n2,9\n", lambda f: convert(f / "g", f / "edges.csv", num_nodes=5), "target, row 2: expected a node number"),
    ("0,1\n0.5,2\n", lambda f: convert(f / "g", f / "edges.csv"), "source, row 1: expected whole numbers"),
    ("0,1\nb,2\n", lambda f: convert(f / "g", f / "edges.csv"), "source, row 1: expected numbers, got string"),
    ("0,1\n,2\n", lambda f: convert(f / "g", f / "edges.csv"), "source, row 2: expected a number, got nothing"),
    ("0,1\n", lambda f: convert(f / "g", f / "edges.csv", ends=Ends("from", "target")), "column: expected one of"),
    ("0,1\n", lambda f: convert(f / "g", f / "edges.txt"), "expected a .csv or .parquet file, got .txt"),
    ("0,1\n", lambda f: convert(f / "g", f / "edge.csv"), "edges: expected a file, got none of this name"),
    ("0,1\n", lambda f: convert(f / "g", f / "edges.csv", f / "edges.csv", num_nodes=3), "nodes: expected 3 rows"),
    (
        "0,1\n0,2\n",
        lambda f: convert(f / "g", f / "edges.csv", Nodes(f / "edges.csv", id="source")),
        "got node 0 twice",
    ),
    ("", lambda f: convert(f / "g", f / "edges.csv"), "expected at least one node, got none"),
    ("0,1\n", lambda f: convert(f / "g", f / "edges.csv", memory="1 cup"), "memory: expected a text"),
    ("0,1\n", lambda f: convert(f / "g", f / "edges.csv").x, "expected node features, got a graph that was converted"),
]


@pytest.mark.parametrize(("text", "call", "message"), REFUSED)
def test_bad_tables_are_refused_and_nothing_is_written(
    tmp_path: Path, text: str, call: Callable[[Path], object], message: str
) -> None:
    edges_csv(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(message)):
        call(tmp_path)
    if "node features" not in message:
        assert not (tmp_path / "g" / "manifest.json").exists()


def test_the_page_has_the_figures_of_the_record() -> None:
    root = Path(__file__).parent.parent.parent
    records = (root / "results/scale/disk.jsonl").read_text().splitlines()
    found, again = (json.loads(line)["metrics"] for line in records)
    page = (root / "docs/disk.md").read_text("utf-8")
    for stage in ("write", "convert", "verify", "predict", "memory"):
        assert f"| {found[stage]['seconds']:.0f} | {found[stage]['peak_mb']:.0f} |" in page
    assert f"| {again['convert']['seconds']:.0f} | {again['convert']['peak_mb']:.0f} |" in page
    assert f"is {found['memory']['largest_difference']:.1e}." in page


def test_command_converts_the_tables_and_refuses_bad_ones(tmp_path: Path, data: Data) -> None:
    edges = write_edges(tmp_path / "edges.csv", data, ("from", "to"))
    nodes = write_nodes(tmp_path / "nodes.csv", data, shuffled=True)
    columns = ["--id", "number", "--label", "label", "--ends", "from,to"]
    given = ["data", "convert", str(edges), str(nodes), *columns, "--memory", "20KB"]
    found = CliRunner().invoke(cli.app, [*given, "-o", str(tmp_path / "graph"), "--json"], catch_exceptions=False)
    assert json.loads(found.stdout) == {
        "folder": str(tmp_path / "graph"),
        "nodes": NODES,
        "edges": EDGES,
        "features": 4,
    }
    graph = DiskGraph(tmp_path / "graph")
    assert torch.equal(graph.x, data.x)
    assert torch.equal(graph.in_edges().node, InEdges.of(data.edge_index, (NODES, NODES)).node)
    edges.write_text(edges.read_text() + "0,-3\n")
    with pytest.raises(DataError, match=rf"edges\.csv.*row {EDGES + 1}"):
        CliRunner().invoke(cli.app, [*given, "-o", str(tmp_path / "other")], catch_exceptions=False)
    assert not (tmp_path / "other" / "manifest.json").exists()
    alone = ["data", "convert", str(edges), "--label", "label"]
    with pytest.raises(ValueError, match="--id, --label: expected a table of nodes"):
        CliRunner().invoke(cli.app, alone, catch_exceptions=False)
