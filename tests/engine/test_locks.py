"""One process makes a run: the second is told who does, and a process that dies holds nothing."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.engine import experiment as config
from sirgcn.engine import records
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.locks import Busy, held
from sirgcn.engine.loop import Trainer
from sirgcn.engine.plan import Settings, plan
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import DONE
from sirgcn.engine.run import BUSY, execute
from sirgcn.nn import SIRNet
from tests.engine.killed import task
from tests.engine.test_settings import TOML

HOLDING = """
import sys, time
from pathlib import Path
from sirgcn.engine.locks import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""

SAVING = """
import sys, torch
from sirgcn.engine.checkpoint import Checkpoints
for number in range(int(sys.argv[2])):
    Checkpoints(sys.argv[1]).save({"weights": torch.arange(1000.0), "number": number})
"""


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def holding(path: Path) -> subprocess.Popen[str]:
    process = started(HOLDING, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_lock_goes_with_its_block_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    for _ in range(2):
        with held(path):
            assert path.exists()
        assert not path.exists()


def test_second_process_is_told_who_holds_the_lock_and_since_when(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holding(path)
    try:
        who = rf"{path}: held by process {process.pid} on {socket.gethostname()} since 20\d\d-\d\d-\d\d "
        with pytest.raises(Busy, match=who), held(path, patience=0.1):
            pass
    finally:
        ended(process)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_lock_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holding(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert path.exists()
    with held(path):
        assert str(os.getpid()) in path.read_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_of_a_process_that_dies_does_not_hold_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = HOLDING.replace(
        "    time.sleep(600)", "    import os\n    if os.fork() == 0: time.sleep(5)\n    os._exit(0)"
    )
    process = started(code, path)
    process.wait()  # not for its fork, which has the other end of the pipes and lets go as it starts
    with held(path, patience=2):
        pass
    process.communicate()


def test_two_processes_that_save_into_one_folder_delete_nothing_of_each_other(tmp_path: Path) -> None:
    processes = [started(SAVING, tmp_path, 150) for _ in range(2)]
    for process in processes:
        _, error = process.communicate()
        assert (process.returncode, error) == (0, "")
    assert len(list(tmp_path.iterdir())) == 4
    found = Checkpoints(tmp_path).load()
    assert found is not None
    assert torch.equal(found["weights"], torch.arange(1000.0))


def test_training_in_a_folder_that_another_process_trains_in_is_refused(tmp_path: Path) -> None:
    model = SIRNet.of(3, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    trainer = Trainer(model, task(), TrainConfig(epochs=1, batch_size=8), checkpoints=Checkpoints(tmp_path), every=0)
    with Checkpoints(tmp_path).held(), pytest.raises(Busy, match=f"held by process {os.getpid()} on "):
        trainer.run()
    assert len(trainer.run().history) == 1


@pytest.fixture
def experiment(tmp_path: Path) -> config.Experiment:
    (tmp_path / "small.toml").write_text(TOML)
    return config.load(tmp_path / "small.toml")


def test_run_that_another_process_is_making_is_left_to_it(experiment: config.Experiment, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "results", tmp_path / "runs", threads=1)
    (run,) = plan(experiment, seeds=[0])
    told: list[tuple[str, dict[str, Any]]] = []
    process = holding(tmp_path / "runs" / "small" / run.slug / "lock")
    try:
        assert execute(run, settings, lambda event, detail: told.append((event, detail))) == BUSY
        assert run_all([run], settings, listeners=[lambda run, event, detail: told.append((event, detail))]) == {
            run: BUSY
        }
        said = [detail["error"] for event, detail in told if event == BUSY]
        assert len(said) == 2
        assert all(f"held by process {process.pid} on {socket.gethostname()} since" in line for line in said)
        assert records.read(settings.file(experiment)) == []
    finally:
        ended(process)
    assert execute(run, settings) == DONE


def test_command_that_finds_its_run_being_made_says_by_whom_in_a_line_and_fails(
    experiment: config.Experiment, tmp_path: Path
) -> None:
    (run,) = plan(experiment, seeds=[0])
    places: list[str | Path] = ["--results", tmp_path / "results", "--work", tmp_path / "runs", "--threads", "1"]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "sirgcn.cli",
        "reproduce",
        tmp_path / "small.toml",
        "-s",
        "0",
        *places,
    ]
    process = holding(tmp_path / "runs" / "small" / run.slug / "lock")
    try:
        for more in ([], ["--json"]):
            found = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
            assert found.returncode == 3
            assert "Traceback" not in found.stderr
            last = found.stderr.splitlines()[-1]
            assert last.startswith("busy: small c=2, SIR-GCN, seed 0: another process is making it")
            assert f"held by process {process.pid} on" in last
    finally:
        ended(process)


def test_wait_for_a_lock_ends_as_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = started(HOLDING.replace("600", "1"), path)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    before = time.monotonic()
    with held(path, patience=60):
        assert time.monotonic() - before < 30
    process.communicate()
