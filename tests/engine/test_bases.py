"""An experiment whose rows change the winner of a search reads that winner from the records."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.engine import records
from sirgcn.engine.experiment import BaseConfig, TrainingExperiment, load, load_training
from sirgcn.engine.plan import Run, Settings, plan
from sirgcn.engine.run import execute, header
from sirgcn.engine.search import trials
from sirgcn.engine.search.bases import BasedExperiment, NoWinnerError, based
from sirgcn.engine.search.spaces import space_of
from sirgcn.engine.search.suggesting import Tried, suggest
from sirgcn.strict import ConfigError
from tests.engine.searched import TEXT, write

ROWS = """
[[models]]
title = "the winner"

[[models]]
title = "sigma: relu"
options = { activation = "relu" }

[[models]]
title = "sigma: gelu"
options = { activation = "gelu" }

[[models]]
title = "sigma: gelu, again"
options = { activation = "gelu" }

[[models]]
title = "context: none"
options = { context = "none" }

[[models]]
title = "norm: none, slower"
options = { norm = "none" }
train = { lr = 1e-4 }
"""


def searched_in(folder: Path) -> TrainingExperiment:
    """A search in a folder, of which nothing was made yet."""
    return load_training(write(folder / "search"))


def changing(folder: Path, base: str = 'search = "search/mine.toml"', rows: str = ROWS) -> TrainingExperiment:
    """An experiment that starts from a winner of the search in a folder."""
    head, _, _ = TEXT.partition("[search]")
    head = head.replace('"nodes.csv"', '"search/nodes.csv"').replace('"edges.csv"', '"search/edges.csv"')
    file = folder / "changing.toml"
    file.write_text(f"{head}\n[base]\n{base}\n{rows}")
    return load_training(file)


def record_trials(folder: Path, experiment: TrainingExperiment, vals: list[float]) -> list[dict[str, object]]:
    """Record trials of the first row with these validation metrics."""
    assert experiment.search is not None
    row, tried, made = experiment.models[0], list[Tried](), []
    for number, val in enumerate(vals):
        chosen = suggest(space_of(experiment.search, row), tried)
        tried.append(Tried(chosen, val))
        run = trials.trial(experiment, "mine", row, number, chosen)
        found = header(run) | {"metrics": {"val": val}, "metric": "accuracy", "higher_is_better": True, "seconds": 1.0}
        made.append(records.append(trials.of_trials(Settings(folder)).file_of("mine"), found))
    return made


def test_rows_have_the_settings_of_the_winner_and_their_own_change(tmp_path: Path) -> None:
    searched = searched_in(tmp_path)
    made = record_trials(tmp_path, searched, [0.6, 0.9, 0.7])
    found = based(changing(tmp_path), tmp_path)
    assert isinstance(found, BasedExperiment)
    winner = made[1]["settings"]
    assert isinstance(winner, dict)
    base = found.model("the winner")
    assert base.options["conv_options"] == {name: winner[name] for name in ("activation", "aggr")}
    assert base.options["dropout"] == winner["dropout"]
    assert base.train == {"lr": winner["train.lr"]}
    assert found.train_for(base).epochs == 8
    # The row with the winner's own sigma, the second row of one setting and the default context change nothing.
    other = {"relu": "gelu", "gelu": "relu"}[winner["activation"]]
    assert [row.title for row in found.models] == ["the winner", f"sigma: {other}", "norm: none, slower"]
    changed = found.model(f"sigma: {other}")
    run = Run(found, "mine", changed.title, 0)
    assert run.config["train"]["lr"] == winner["train.lr"]
    slower = found.model("norm: none, slower")
    assert (slower.train, slower.options["norm"]) == ({"lr": 1e-4}, "none")
    assert found.marks("the winner") == {
        "base": {"search": "mine", "model": "SIR-GCN", "trial": 1, "settings": winner},
    }


def test_the_completed_rows_are_run_and_say_where_they_come_from(tmp_path: Path) -> None:
    record_trials(tmp_path, searched_in(tmp_path), [0.6, 0.9, 0.7])
    found = based(changing(tmp_path), tmp_path)
    settings = Settings(tmp_path, tmp_path / "runs", threads=1)
    runs = plan(found, seeds=[0])
    assert {execute(run, settings) for run in runs} == {"done"}
    kept = records.read(settings.file(found))
    assert [record["config"] for record in kept] == [run.config for run in runs]
    assert {record["base"]["model"] for record in kept} == {"SIR-GCN"}
    assert all("test" in record["metrics"] for record in kept)


def test_without_a_winner_it_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    searched = searched_in(tmp_path)
    message = r"changing: base: expected a winner, but SIR-GCN has 0 of 3 trials; type: sirgcn search mine"
    with pytest.raises(NoWinnerError, match=message):
        based(changing(tmp_path), tmp_path)
    record_trials(tmp_path, searched, [0.6, 0.9])
    with pytest.raises(NoWinnerError, match="SIR-GCN has 2 of 3 trials"):
        based(changing(tmp_path), tmp_path)
    # Its rows alone are no experiment: nothing is trained with settings that nobody chose.
    run = plan(changing(tmp_path), seeds=[0])[0]
    assert execute(run, Settings(tmp_path, tmp_path / "runs", threads=1)) == "failed"
    assert "expected the settings of its winner" in records.read(tmp_path / "changing.jsonl")[0]["error"]


def test_the_best_form_by_validation_is_the_base_unless_one_is_named(tmp_path: Path) -> None:
    experiment = load_training("ablation_minesweeper")
    searched = load_training("tuned_minesweeper")
    forms = [row for row in searched.models if row.conv == "sir" and row.control is None]
    assert searched.search is not None
    for row, val in zip(forms, (0.95, 0.97, 0.96), strict=True):
        names = list(space_of(searched.search, row))
        chosen = {name: space_of(searched.search, row)[name].ends[0] for name in names}
        for number in range(searched.search.trials):
            run = trials.trial(searched, "minesweeper", row, number, chosen)
            found = header(run) | {"metrics": {"val": val - 0.001 * number}, "higher_is_better": True, "seconds": 1.0}
            records.append(tmp_path / "search" / "tuned_minesweeper.jsonl", found | {"metric": "roc_auc"})
    best = based(experiment, tmp_path)
    assert isinstance(best, BasedExperiment)
    assert best.chosen["model"] == "SINC-GCN"
    assert "context: none" in {row.title for row in best.models}
    named = dataclasses.replace(experiment, base=BaseConfig("tuned_minesweeper", "SIR-GCN (gated)"))
    gated = based(named, tmp_path)
    assert isinstance(gated, BasedExperiment)
    # The row's own options, beside those that were searched.
    assert gated.models[0].options["gated"] is True
    assert {"gate: no, a relu", "sigma: identity"} <= {row.title for row in gated.models}
    assert "gate: yes, a sigmoid" not in {row.title for row in gated.models}


@pytest.mark.parametrize(
    ("base", "error"),
    [
        ('search = "tuned_minesweepr"', "experiment: expected a .toml file or one of .*did you mean tuned_minesweeper"),
        ('search = "zinc"', r"zinc: search: expected a section \[search\], got none"),
        ('search = "tuned_minesweeper"', "changing: data: expected that of tuned_minesweeper, 'minesweeper', got"),
        ('search = "search/mine.toml"\nmodel = "SIR"', "changing: base: model: expected one of SIR-GCN, .*got 'SIR'"),
    ],
)
def test_a_wrong_base_is_refused_by_name(tmp_path: Path, base: str, error: str) -> None:
    searched_in(tmp_path)
    with pytest.raises(ConfigError, match=error):
        based(changing(tmp_path, base), tmp_path)


def test_a_wrong_section_is_refused_by_name(tmp_path: Path) -> None:
    searched_in(tmp_path)
    with pytest.raises(ConfigError, match=r"base: unknown key 'serch'; .*did you mean search"):
        changing(tmp_path, 'serch = "tuned_minesweeper"')
    text = f'{TEXT}\n[base]\nsearch = "tuned_minesweeper"\n'
    file = write(tmp_path / "both", text)
    with pytest.raises(ConfigError, match=r"base: expected none beside a section \[search\]"):
        load(file)


def test_other_experiments_are_returned_as_they_are(tmp_path: Path) -> None:
    zinc = load("zinc")
    assert based(zinc, tmp_path) is zinc


def test_the_command_line_starts_from_the_records(tmp_path: Path) -> None:
    record_trials(tmp_path, searched_in(tmp_path), [0.6, 0.9, 0.7])
    changing(tmp_path)
    command = [sys.executable, "-m", "sirgcn.cli", "reproduce", str(tmp_path / "changing.toml"), "--seeds", "0"]
    command += ["--results", str(tmp_path), "--work", str(tmp_path / "runs"), "--threads", "1", "-m", "the winner"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert records.read(tmp_path / "changing.jsonl")[0]["base"]["trial"] == 1
