"""A fit on several ranks: the numbers of one process, one writer, and resumption with another number of ranks."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sirgcn import cli
from sirgcn.model import FitSettings, Model, load
from sirgcn.model.crew import Crew
from sirgcn.model.training import TrainSettings, train, train_as_rank, train_into
from sirgcn.scale import DataParallel, Partitioned
from sirgcn.scale.launch import RankError, launch
from tests.model.onranks import killed_on_ranks
from tests.model.problems import small_task

# Every launch ends by itself; a busy machine needs far less than this.
LIMIT = 300.0

# Nothing is drawn, and no bias stands before a norm over nodes, where its gradient is rounding that Adam enlarges.
NETWORK = {"dropout": 0.0, "norm": "layer", "num_layers": 2, "hidden_channels": 16}
SETTINGS = TrainSettings(FitSettings("fast", network=NETWORK, train={"epochs": 4, "warmup": 0}), controls=False)


def numbers(model: Model) -> list[tuple[float, float]]:
    return [(row["step_loss"], row["val_loss"]) for row in model.about["history"]]


def equal(found: Model, expected: Model) -> bool:
    return numbers(found) == [pytest.approx(row, rel=1e-4) for row in numbers(expected)]


def test_command_with_two_workers_trains_what_one_process_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=200)
    nodes = pd.DataFrame({"id": range(200), "size": size, "label": np.where(size > 0, "yes", "no")})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    pd.DataFrame(rng.integers(200, size=(600, 2)), columns=["source", "target"]).to_csv(
        tmp_path / "edges.csv", index=False
    )
    fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in NETWORK.items())
    (tmp_path / "config.toml").write_text(
        '[data]\nnodes = "nodes.csv"\nedges = "edges.csv"\ntarget = "label"\n[train]\npreset = "fast"\n'
        f"controls = false\nnetwork = {{ {fields} }}\ntrain = {{ epochs = 4, warmup = 0 }}\n"
    )
    for name, options in (("one", []), ("two", ["--workers", "2", "--memory-bound"])):
        given = ["train", str(tmp_path / "config.toml"), "-o", str(tmp_path / name), *options]
        # A process of its own, whose ranks write to its standard error.
        command = [sys.executable, "-m", "sirgcn.cli", *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr
    told = done.stderr
    assert told.count("A layer of 16 channels fetches the rows of the halo one rank after another.") == 1
    assert told.count("evaluating the test part") == 1
    assert equal(load(tmp_path / "two"), load(tmp_path / "one"))
    one, two = (pd.read_csv(tmp_path / name / "predictions.csv") for name in ("one", "two"))
    assert two["probability_yes"].to_numpy() == pytest.approx(one["probability_yes"].to_numpy(), abs=1e-4)
    assert not list(tmp_path.glob("*.work"))


def test_ranks_share_the_graphs_of_a_batch(tmp_path: Path) -> None:
    task, network = small_task("graph", count=60), {"dropout": 0.0, "norm": "layer", "num_layers": 2}
    settings = replace(SETTINGS, fit=replace(SETTINGS.fit, network=network))
    launch(train_as_rank, 2, (task, tmp_path / "model", settings), seconds=LIMIT)
    assert equal(load(tmp_path / "model"), train(task, settings))


# A rank has one thread here, and this process may have more.
@pytest.mark.filterwarnings("ignore:the training continues with")
def test_killed_fit_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    task, folder = small_task("node", count=90), tmp_path / "model"
    with pytest.raises(RankError, match="rank 0 was killed by SIGKILL"):
        launch(killed_on_ranks, 2, (task, folder, SETTINGS, 2), restarts=0, seconds=LIMIT)
    assert list((tmp_path / "model.work" / "checkpoints").rglob("*.safetensors"))
    assert not folder.exists()
    watched = Watched()
    found = train_into(task, folder, TrainSettings(SETTINGS.fit, controls=False, watcher=watched))
    # The epochs before the kill are not trained again.
    assert watched.epochs == [2, 3]
    assert equal(found, train(task, SETTINGS))


class Watched:
    """Notes the epochs that are trained."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        self.epochs.append(row["epoch"])


def test_what_ranks_cannot_share_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = Crew(group=DataParallel(rank=0, world=2))
    with pytest.raises(ValueError, match="expected one graph with labels on its nodes, got a task over edges"):
        crew.ranks_for(small_task("edge"), 8, print)
    assert isinstance(crew.ranks_for(small_task("node"), 8, lambda text: None), Partitioned)
    (tmp_path / "nodes.csv").write_text("id,label\n1,a\n")
    given = ["train", str(tmp_path / "nodes.csv"), "-t", "label", "-o", str(tmp_path / "model")]
    with pytest.raises(ValueError, match=r"--memory-bound: expected several processes.*--workers 2"):
        CliRunner().invoke(cli.app, [*given, "--memory-bound"], catch_exceptions=False)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(ValueError, match="--workers: expected none under torchrun"):
        CliRunner().invoke(cli.app, [*given, "--workers", "2"], catch_exceptions=False)
    assert not (tmp_path / "model").exists()
