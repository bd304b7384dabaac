"""The example tables are the data that they say they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sirgcn.data import load, load_tables
from sirgcn.data.examples import EXAMPLES, write_example


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_writes_its_files_and_its_target_is_found(name: str, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    files = write_example(name, tmp_path / "new" / "folder")
    assert [file.name for file in files] == list(EXAMPLES[name].files)
    task = load_tables(*files, target=EXAMPLES[name].target)
    assert task.graphs.num_nodes > 2000


@pytest.mark.skipif("SIRGCN_DATA" not in os.environ, reason="needs the original files: SIRGCN_DATA is not set")
def test_the_example_cora_is_the_benchmark(tmp_path: Path) -> None:
    task, original = load_tables(*write_example("cora", tmp_path), target="topic"), load("cora")
    assert [len(getattr(task.splits[0], part)) for part in ("train", "val", "test")] == [140, 500, 1000]
    for part in ("train", "val", "test"):
        assert torch.equal(getattr(task.splits[0], part), getattr(original.splits[0], part).sort().values)
    edges, known = ({tuple(edge) for edge in one.graphs.edge_index.T.tolist()} for one in (task, original))
    assert edges == known
    sizes = torch.bincount(task.graphs.y).sort().values
    assert torch.equal(sizes, torch.bincount(original.graphs.y).sort().values)


def test_the_command_writes_and_lists_examples(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sirgcn.cli", "data", "example"]
    run = subprocess.run([*command, "cora", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == {"files": ["cora/nodes.csv", "cora/edges.csv"], "target": "topic"}
    listed = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    assert [row["name"] for row in json.loads(listed.stdout)] == list(EXAMPLES)
    wrong = subprocess.run([*command, "core"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "did you mean cora?" in wrong.stderr
