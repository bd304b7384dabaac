"""Predictions of files that are larger than memory: pieces, kills, bad rows, many graphs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from sirgcn.data import DataError, load_tables
from sirgcn.data.molecules import has_rdkit
from sirgcn.model import FitSettings, Model, fit
from sirgcn.model.predicting import predict
from sirgcn.model.streaming import Pieces, predict_files
from tests.model import stream

ROOT = Path(__file__).parents[2]
needs_rdkit = pytest.mark.skipif(not has_rdkit(), reason="needs RDKit")


@needs_rdkit
def test_a_killed_prediction_goes_on_without_a_lost_or_doubled_row() -> None:
    # A process of its own: what a process starts inherits its largest memory, and that of the tests is large.
    command = [sys.executable, "-m", "tests.model.stream", "--rows", "10000", "--kills", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == 0
    assert found["killed"] == 1
    assert found["bytes"] < stream.LIMIT


def graphs(count: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Paths of several lengths; nodes and edges of a graph stand together."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, count)
    graph = np.repeat([f"g{number}" for number in range(count)], sizes)
    place = np.concatenate([np.arange(size) for size in sizes])
    nodes = pd.DataFrame({"graph": graph, "id": place, "size": rng.normal(size=len(graph)).round(3)})
    nodes["y"] = np.repeat(rng.normal(size=count).round(3), sizes)
    inner = nodes[nodes["id"] > 0]
    edges = pd.DataFrame({"graph": inner["graph"], "source": inner["id"] - 1, "target": inner["id"]})
    return nodes, edges


def small(nodes: pd.DataFrame, edges: pd.DataFrame, level: Literal["node", "graph"]) -> Model:
    task = load_tables(nodes, edges, target="y", level=level, task="regression")
    changes = {"num_layers": 1, "hidden_channels": 24}
    return fit(task, FitSettings(preset="fast", network=changes, train={"epochs": 2, "warmup": 0}))


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_many_graphs_in_pieces_give_what_they_give_at_once(
    tmp_path: Path, level: Literal["node", "graph"], ending: str
) -> None:
    model = small(*graphs(40, 0), level)
    nodes, edges = graphs(30, 1)
    nodes = nodes.drop(columns="y")
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    tables = {"nodes": tmp_path / "nodes.csv", "edges": tmp_path / "edges.csv"}
    out = tmp_path / f"found.{ending}"
    written = predict_files(model, tables, out, pieces=Pieces(7, 0))
    found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    expected = predict(model, nodes, edges)
    assert written.rows == len(found) == len(expected)
    assert list(found.columns) == list(expected.columns)
    assert found["id"].map(str).tolist() == expected["id"].map(str).tolist()
    # Products of batches of other sizes round differently.
    assert found["prediction"].to_numpy() == pytest.approx(expected["prediction"].to_numpy(), abs=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.csv", "edges.csv", out.name}


@needs_rdkit
def test_pieces_of_another_prediction_are_not_taken(tmp_path: Path) -> None:
    stream.make_model(tmp_path / "model")
    from sirgcn.model import load

    model = load(tmp_path / "model")
    stream.write(tmp_path / "molecules.csv", 300)
    out, tables = tmp_path / "found.csv", {"nodes": tmp_path / "molecules.csv"}

    def stop(text: str) -> None:
        raise KeyboardInterrupt

    with (tmp_path / "molecules.csv").open("a") as file:
        file.write('M300,C\n"M301,C\n')
    with pytest.raises(DataError):
        predict_files(model, tables, out, pieces=Pieces(50))
    assert not out.exists()
    # The file is another one now.
    stream.write(tmp_path / "molecules.csv", 300)
    assert predict_files(model, tables, out, pieces=Pieces(50)).rows == 299
    assert predict_files(model, tables, out, pieces=Pieces(64)).rows == 299


@needs_rdkit
def test_strict_stops_at_the_first_bad_row_and_writes_nothing(tmp_path: Path) -> None:
    stream.make_model(tmp_path / "model")
    from sirgcn.model import load

    model = load(tmp_path / "model")
    stream.write(tmp_path / "molecules.csv", 100)
    with pytest.raises(DataError, match=r"smiles, row 6: expected a molecule as SMILES"):
        predict_files(model, {"nodes": tmp_path / "molecules.csv"}, tmp_path / "found.csv", strict=True)
    assert not (tmp_path / "found.csv").exists()
