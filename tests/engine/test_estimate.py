"""How long runs take: the median of the cell's own finished runs, and never nothing for what is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import experiment as config
from sirgcn.engine import records
from sirgcn.engine.estimate import expected_seconds
from sirgcn.engine.plan import Settings, plan
from sirgcn.engine.run import PAUSED, execute

TOML = """
data = "hetero_edge_count"
preset = "hetero_edge_count"
columns = [
    { title = "c=2", options = { c = 2, num_graphs = 20 } },
    { title = "c=4", options = { c = 4, num_graphs = 20 } },
    { title = "c=6", options = { c = 6, num_graphs = 20 } },
]
[train]
epochs = 100
batch_size = 8
selection = "last"
[reduced]
epochs = 10
[[models]]
title = "SIR-GCN"
[[models]]
title = "GIN"
conv = "gin"
[[models]]
title = "GCN"
conv = "gcn"
"""


@pytest.fixture
def experiment(tmp_path: Path) -> config.Experiment:
    (tmp_path / "small.toml").write_text(TOML)
    return config.load(tmp_path / "small.toml")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "results", tmp_path / "runs", threads=1)


def keep(settings: Settings, column: str, model: str, seconds: float, **others: Any) -> None:
    """Append the record of a run that stopped after 50 of its 100 epochs."""
    fields = {"seed": 0, "status": "done", "reduced": False, "epochs": 50, "experiment": "small"} | others
    fields |= {"column": column, "model": model, "split": 0, "seconds": seconds}
    records.append(settings.results / f"{fields['experiment']}.jsonl", fields)


def expected(
    experiment: config.Experiment, settings: Settings, reduced: bool = False
) -> dict[tuple[str, str], float | None]:
    runs = plan(experiment, seeds=[9], reduced=reduced)
    return {(run.column, run.model): time for run, time in zip(runs, expected_seconds(runs, settings), strict=True)}


def test_cell_takes_the_median_of_its_finished_runs_as_long_as_they_were(
    experiment: config.Experiment, settings: Settings
) -> None:
    for seed, seconds in enumerate([10.0, 12.0, 90.0]):
        keep(settings, "c=2", "GIN", seconds, seed=seed)
        keep(settings, "c=2", "SIR-GCN", 1e6, seed=seed, status="failed")
    # Not twice as long, though they stopped in the middle.
    assert expected(experiment, settings)["c=2", "GIN"] == 12.0


def test_cell_without_a_finished_run_is_unknown_whatever_others_took(
    experiment: config.Experiment, settings: Settings
) -> None:
    keep(settings, "c=2", "SIR-GCN", 10.0)
    keep(settings, "c=2", "GIN", 5.0, reduced=True)
    keep(settings, "c=2", "GCN", 5.0, status="failed")
    found = expected(experiment, settings)
    assert {cell: time for cell, time in found.items() if time is not None} == {("c=2", "SIR-GCN"): 10.0}
    assert expected(experiment, settings, reduced=True)["c=2", "GIN"] == 5.0


def test_what_is_not_known_is_not_counted_as_nothing(experiment: config.Experiment, settings: Settings) -> None:
    assert set(expected(experiment, settings).values()) == {None}


def test_paused_run_has_the_rest_to_go(experiment: config.Experiment, settings: Settings, tmp_path: Path) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], ["c=2"], [0])
    keep(settings, "c=2", "SIR-GCN", 1000.0, seed=1)
    steps = iter([False] * 8)
    assert execute(run, settings, asked=lambda: next(steps, True)) == PAUSED
    (seconds,) = expected_seconds([run], settings)
    log = settings.work / "small" / run.slug / "log.jsonl"
    behind = json.loads(log.read_text().splitlines()[-1])["seconds"]
    assert seconds is not None
    assert 0 < behind <= 1000.0 - seconds + 1e-3 < 100.0
    # A checkpoint of other settings is not taken up, nor does it count.
    (tmp_path / "small.toml").write_text(TOML.replace("batch_size = 8", "batch_size = 4"))
    (other,) = plan(config.load(tmp_path / "small.toml"), ["SIR-GCN"], ["c=2"], [0])
    assert expected_seconds([other], settings) == [1000.0]
