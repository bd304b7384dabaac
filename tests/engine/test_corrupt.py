"""Twelve hundred damaged files of a training, in a process of their own: none is read silently."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.engine import checkpoint
from sirgcn.engine.checkpoint import CheckpointError, Checkpoints

ROOT = Path(__file__).parents[2]


def test_a_changed_byte_that_json_reads_alike_is_refused(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save({"lr": 1e-05, "losses": [1e300, float("nan")]})
    checkpoint.read(path)
    whole = path.read_bytes()
    for changed in (whole.replace(b"1e-05", b"1E-05"), whole.replace(b": ", b":\t"), whole + b"\n"):
        assert changed != whole
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match="expected the content that was written"):
            checkpoint.read(path)


def test_no_damaged_file_of_a_training_is_read_silently() -> None:
    command = [sys.executable, "-m", "tests.engine.corrupt", "--cases", "1200", "--seed", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)
    assert found.stdout, found.stderr[-3000:]
    summary = json.loads(found.stdout.splitlines()[-1])
    assert summary["silent"] == []
    assert summary["refused without damage"] == []
    assert sum(summary["counts"].values()) == 1200
    assert {name.partition(",")[0] for name in summary["counts"]} == {".json", ".safetensors", ".npz"}
    assert found.returncode == 0
