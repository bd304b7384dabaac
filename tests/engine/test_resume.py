"""A training that was killed ends as if it had not been; a checkpoint that was damaged is never loaded."""

import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.engine import checkpoint
from sirgcn.engine.checkpoint import CheckpointError, Checkpoints

STATE: dict[str, Any] = {
    "weights": torch.arange(60, dtype=torch.float32).view(3, 20),
    "counts": {0: torch.tensor(3), 1: (1, [2.5, None, "x"])},
    "epoch": 7,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed, and this system has no fork")
def test_training_that_is_killed_anywhere_ends_in_the_weights_of_the_uninterrupted_run(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed.py")
    run = subprocess.run(
        [sys.executable, script, tmp_path, "50", "15", "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)["found"]
    assert len(found) == 50
    assert all(point["same"] for point in found)
    assert sum(point["inside"] for point in found) == 15


def states(folder: Path) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for epoch in (1, 2, 3):
        checkpoints.save({**STATE, "epoch": epoch})
    return checkpoints


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    checkpoints.save(STATE)
    found = checkpoints.load()
    assert found is not None
    assert torch.equal(found.pop("weights"), STATE["weights"])
    assert found["counts"][0] == 3
    assert found["counts"][1] == (1, [2.5, None, "x"])
    assert found["epoch"] == 7


def test_the_checkpoint_before_the_last_is_kept_and_no_other(tmp_path: Path) -> None:
    checkpoints = states(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"{number:08d}.{kind}" for number in (2, 3) for kind in ("json", "safetensors")
    ]
    found = checkpoints.load()
    assert found is not None
    assert found["epoch"] == 3
    checkpoints.clear()
    assert not tmp_path.exists()


def damaged(data: bytes, rng: random.Random, is_flip: bool) -> bytes:
    if not is_flip:
        return data[: rng.randrange(len(data))]
    place = rng.randrange(8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


@pytest.mark.parametrize(("kind", "times"), [("flip", 1000), ("truncation", 200)])
def test_damaged_checkpoint_is_told_of_and_the_one_before_it_used(tmp_path: Path, kind: str, times: int) -> None:
    rng, checkpoints = random.Random(0), states(tmp_path)
    files = [tmp_path / f"00000003.{suffix}" for suffix in ("json", "safetensors")]
    whole = {file: file.read_bytes() for file in files}
    for i in range(times):
        file = files[i % 2]
        file.write_bytes(damaged(whole[file], rng, kind == "flip"))
        with pytest.warns(UserWarning, match="00000003"):
            found = checkpoints.load()
        assert found is not None
        assert found["epoch"] == 2
        file.write_bytes(whole[file])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = checkpoints.load()
    assert found is not None
    assert found["epoch"] == 3


def test_checkpoint_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Checkpoints(tmp_path).save(STATE)
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(CheckpointError, match="expected format 2, got 1"):
        checkpoint.read(path)


def test_state_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected JSON values and tensors, got object"):
        Checkpoints(tmp_path).save({"a": object()})
