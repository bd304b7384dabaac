"""What runs cost: the cell's own time first, then the nearest that is known, and never nothing for what is not."""

import dataclasses
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import costs, records
from sirgcn.engine import experiment as config
from sirgcn.engine.run import PAUSED, Settings, execute, expected_costs, plan

ROOT = Path(__file__).parents[2]

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


def expected(experiment: config.Experiment, settings: Settings, reduced: bool = False) -> dict[tuple[str, str], Any]:
    runs = plan(experiment, seeds=[9], reduced=reduced)
    found = zip(runs, expected_costs(runs, settings), strict=True)
    return {(run.column, run.model): cost and cost.seconds for run, cost in found}


def test_cell_takes_the_median_of_its_finished_runs_as_long_as_they_were(
    experiment: config.Experiment, settings: Settings
) -> None:
    for seed, seconds in enumerate([10.0, 12.0, 90.0]):
        keep(settings, "c=2", "GIN", seconds, seed=seed)
        keep(settings, "c=2", "SIR-GCN", 1e6, seed=seed, status="failed")
    # Not twice as long, though they stopped in the middle.
    assert expected(experiment, settings)["c=2", "GIN"] == 12.0


def test_cell_without_a_record_takes_its_row_s_nearest_column_then_the_other_rows(
    experiment: config.Experiment, settings: Settings
) -> None:
    keep(settings, "c=2", "SIR-GCN", 10.0)
    keep(settings, "c=6", "SIR-GCN", 30.0)
    keep(settings, "c=6", "GIN", 60.0)
    found = expected(experiment, settings)
    # Of two as near, the larger.
    assert found["c=4", "SIR-GCN"] == 30.0
    # SIR-GCN takes a third of c=6 in c=2.
    assert found["c=2", "GIN"] == pytest.approx(20.0)
    assert found["c=4", "GIN"] == 60.0
    assert found["c=2", "GCN"] == 10.0
    assert found["c=6", "GCN"] == 45.0
    # Of no row of its own and a column without any.
    assert found["c=4", "GCN"] is None


def test_row_without_a_record_takes_its_time_in_another_experiment_of_the_table(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_shipped", lambda name: {})
    for name, column, rows in (
        ("minesweeper", "minesweeper", {"SIR-GCN": 100.0, "GCN": 60.0, "H2GCN": 5.0}),
        ("questions", "questions", {"SIR-GCN": 400.0, "GCN": 180.0}),
    ):
        for model, seconds in rows.items():
            keep(settings, column, model, seconds, experiment=name)
    # The other rows take 4 and 3 times as long as in minesweeper.
    assert expected(config.load("questions"), settings)["questions", "H2GCN"] == pytest.approx(17.5)
    # Nothing is known here by which to compare, nor of a table that the package does not have.
    assert expected(config.load("roman_empire"), settings)["roman-empire", "H2GCN"] is None
    own = dataclasses.replace(config.load("questions"), name="own", table=9)
    assert expected(own, settings)["questions", "H2GCN"] is None


def test_row_that_was_never_run_takes_as_long_as_those_of_its_kind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_shipped", lambda name: {})
    for model, seconds in {"SIR-GCN": 100.0, "GCN": 60.0, "H2GCN": 5.0, "FSGNN": 1.0, "CPGNN": 2.0}.items():
        keep(settings, "minesweeper", model, seconds, experiment="minesweeper")
    found = expected(config.load("minesweeper"), settings)
    assert found["minesweeper", "GatedGCN"] == 80.0
    assert found["minesweeper", "FAGCN"] == 2.0


def test_row_that_was_never_run_takes_as_long_as_its_training_step_tells(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_shipped", lambda name: {})
    for model, seconds, step in (
        ("SIR-GCN", 100.0, 1.0),
        ("GCN", 60.0, 0.5),
        ("GatedGCN", None, 10.0),
        ("CPGNN", None, 0.1),
    ):
        timed = {"experiment": "tolokers_step", "metric": "step_seconds", "metrics": {"test": step}, "epochs": None}
        keep(settings, "tolokers", model, 1.0, **timed)
        if seconds is not None:
            keep(settings, "tolokers", model, seconds, experiment="tolokers", epochs=1000)
    keep(settings, "minesweeper", "GatedGCN", 5.0, experiment="minesweeper")
    found = expected(config.load("tolokers"), settings)
    assert found["tolokers", "GatedGCN"] == pytest.approx(1100.0)
    # In the reduced form it has 600 epochs, and the others 200.
    assert expected(config.load("tolokers"), settings, reduced=True)["tolokers", "CPGNN"] == pytest.approx(6.6)
    # Of a row whose step was not timed nothing but the others is known.
    assert found["tolokers", "GAT"] == 80.0


def test_epochs_of_the_other_form_tell_of_a_cell_that_was_run_in_it_alone(
    experiment: config.Experiment, settings: Settings
) -> None:
    keep(settings, "c=2", "SIR-GCN", 5.0, reduced=True, epochs=10)
    keep(settings, "c=2", "GIN", 20.0)
    assert expected(experiment, settings)["c=2", "SIR-GCN"] == 50.0
    assert expected(experiment, settings, reduced=True)["c=2", "GIN"] == 4.0
    assert expected(experiment, settings, reduced=True)["c=2", "SIR-GCN"] == 5.0


def test_changed_experiment_takes_as_long_as_the_epochs_of_the_one_that_it_was(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    changed = config.load(tmp_path / "small.toml", ["train.lr=0.1", "train.epochs=200"])
    keep(settings, "c=2", "SIR-GCN", 10.0)
    keep(settings, "c=2", "GIN", 20.0)
    keep(settings, "c=2", "GIN", 7.0, experiment=changed.name)
    found = expected(changed, settings)
    assert found["c=2", "SIR-GCN"] == 40.0
    # Its own runs go before.
    assert found["c=2", "GIN"] == 7.0


def test_what_is_not_known_is_not_counted_as_nothing(experiment: config.Experiment, settings: Settings) -> None:
    assert set(expected(experiment, settings).values()) == {None}


def test_paused_run_has_the_rest_to_go(experiment: config.Experiment, settings: Settings, tmp_path: Path) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], ["c=2"], [0])
    keep(settings, "c=2", "SIR-GCN", 1000.0, seed=1)
    steps = iter([False] * 8)
    assert execute(run, settings, asked=lambda: next(steps, True)) == PAUSED
    (cost,) = expected_costs([run], settings)
    log = settings.work / "small" / run.slug / "log.jsonl"
    behind = json.loads(log.read_text().splitlines()[-1])["seconds"]
    assert cost is not None
    assert 0 < behind <= 1000.0 - cost.seconds + 1e-3 < 100.0
    # A checkpoint of other settings is not taken up, nor does it count.
    (tmp_path / "small.toml").write_text(TOML.replace("batch_size = 8", "batch_size = 4"))
    (other,) = plan(config.load(tmp_path / "small.toml"), ["SIR-GCN"], ["c=2"], [0])
    assert [cost and cost.seconds for cost in expected_costs([other], settings)] == [1000.0]


def test_folder_without_records_takes_the_package_s_times_and_its_own_go_before_them(settings: Settings) -> None:
    zinc = config.load("zinc")
    (cost,) = expected_costs(plan(zinc, ["SIR-GCN"], seeds=[1]), settings)
    shipped = json.loads((files("sirgcn") / "experiments" / "costs.json").read_text())
    assert cost is not None
    assert cost.is_shipped
    assert cost.seconds == shipped["costs"]["zinc"]["ZINC"]["SIR-GCN"]["full"]["seconds"]
    keep(settings, "ZINC", "SIR-GCN", 7.0, experiment="zinc")
    assert expected_costs(plan(zinc, ["SIR-GCN"], seeds=[1]), settings) == [costs.Cost(7.0, 50)]


def test_package_s_times_and_the_records_agree() -> None:
    path = ROOT / "src" / "sirgcn" / "experiments" / "costs.json"
    found = costs.measured(ROOT / "results")
    assert json.loads(path.read_text("utf-8")) == found, (
        f"write it anew: sirgcn report --costs {path.relative_to(ROOT)}"
    )


def test_file_of_costs_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    assert costs.write_costs(ROOT / "results", path) == [path]
    assert costs.write_costs(ROOT / "results", path) == []
    assert json.loads(path.read_text())["machines"] == costs.machines()
