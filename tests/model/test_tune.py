"""Tuning: a study goes on after a kill, prunes, chooses on validation alone, and its best settings can be used."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sirgcn.cli import app
from sirgcn.engine.experiment.space import read_space
from sirgcn.engine.records import FAILED
from sirgcn.engine.run import PAUSED
from sirgcn.engine.search.study import Study
from sirgcn.engine.workers import Asked, Processes, Tell
from sirgcn.model import FitSettings, fit
from sirgcn.model.tune import TuneSettings, read_tuned, tune
from sirgcn.model.tuning import Trials
from sirgcn.strict import ConfigError
from tests.model.problems import small_task
from tests.model.test_fitting import Listening


class Dying:
    """Work whose process is killed."""

    def __call__(self, tell: Tell, asked: Asked) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return FAILED


class Raising:
    """Work with an error in it."""

    def __call__(self, tell: Tell, asked: Asked) -> str:
        raise RuntimeError("an error")


class Paused:
    """Work that was asked to stop."""

    def __call__(self, tell: Tell, asked: Asked) -> str:
        return PAUSED


SPACE = read_space({"x": {"low": 0.0, "high": 1.0}, "kind": ["a", "b"]}, "space")
SHORT = TuneSettings(trials=3, epochs=3)


def parabola(settings: Any, report: Any) -> float:
    return float(-((settings["x"] - 0.3) ** 2)) - (settings["kind"] == "b")


def test_study_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = Study(tmp_path / "whole.db", SPACE, "same", random=3)
    whole.run(6, parabola)
    for trials in (2, 4, 6):
        Study(tmp_path / "parts.db", SPACE, "same", random=3).run(trials, parabola)
    parts = Study(tmp_path / "parts.db", SPACE, "same", random=3)
    assert parts.trials == whole.trials
    assert parts.best == max(whole.trials, key=lambda made: made.score or -9.0)


def test_trial_that_was_killed_is_made_again_with_its_settings(tmp_path: Path) -> None:
    seen = []

    def killed(settings: Any, report: Any) -> float:
        seen.append(dict(settings))
        if len(seen) == 2:
            raise KeyboardInterrupt
        return parabola(settings, report)

    with pytest.raises(KeyboardInterrupt):
        Study(tmp_path / "study.db", SPACE, "same").run(3, killed)
    study = Study(tmp_path / "study.db", SPACE, "same")
    assert len(study.trials) == 1
    study.run(3, parabola)
    assert study.trials[1].settings == seen[1]
    assert len(study.trials) == 3


def test_trial_behind_the_median_is_pruned_and_never_the_best(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.db", SPACE, "same", random=20)
    epochs: list[int] = []

    def score(settings: Any, report: Any) -> float:
        value = 1.0 if len(epochs) < 5 else 0.0
        for epoch in range(20):
            if report(epoch, value):
                break
        epochs.append(epoch)
        return value

    study.run(7, score)
    assert [made.state for made in study.trials] == ["done"] * 5 + ["pruned"] * 2
    assert epochs[-1] < 19
    assert study.best is not None
    assert study.best.score == 1.0


def test_study_of_another_basis_or_space_is_refused(tmp_path: Path) -> None:
    Study(tmp_path / "study.db", SPACE, "one").run(1, parabola)
    with pytest.raises(ConfigError, match="choose another folder"):
        Study(tmp_path / "study.db", SPACE, "other")


def test_failed_trials_count_and_do_not_win(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.db", SPACE, "same")
    study.run(2, lambda settings, report: None)
    assert [made.state for made in study.trials] == ["failed"] * 2
    assert study.best is None


def test_tuning_that_is_killed_ends_with_the_same_trials(tmp_path: Path) -> None:
    task = small_task("node", count=60)
    whole = tune(task, tmp_path / "whole", SHORT)
    with pytest.raises(KeyboardInterrupt):
        tune(task, tmp_path / "parts", SHORT, Listening(killed_at=5))
    assert tune(task, tmp_path / "parts", SHORT) == whole
    assert read_tuned(tmp_path / "parts") == read_tuned(tmp_path / "whole")
    assert len(whole) == 3


def test_best_settings_are_those_that_a_fit_then_trains(tmp_path: Path) -> None:
    task = small_task("graph", "numbers", count=40)
    tune(task, tmp_path, SHORT)
    best = read_tuned(tmp_path)
    model = fit(task, replace(best.settings(), preset="fast", train={**best.train, "epochs": 3}))
    assert model.about["trials"][0]["val"] == pytest.approx(best.score)
    fixed = best.settings(FitSettings(network={"hidden_channels": 16}))
    assert fixed.network["hidden_channels"] == 16


def test_test_labels_change_no_trial(tmp_path: Path) -> None:
    task = small_task("node", count=60)
    y = task.graphs.y.clone()
    y[task.splits[0].test] = 1 - y[task.splits[0].test]
    other = replace(task, graphs=replace(task.graphs, y=y))
    assert tune(task, tmp_path / "a", SHORT) == tune(other, tmp_path / "b", SHORT)


def test_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is none"):
        read_tuned(tmp_path)
    (tmp_path / "best.json").write_text("[1]")
    with pytest.raises(ConfigError, match="expected an object"):
        read_tuned(tmp_path)
    (tmp_path / "best.json").write_text("{")
    with pytest.raises(ConfigError, match="expected JSON"):
        read_tuned(tmp_path)


def test_task_without_rows_to_choose_by_is_refused(tmp_path: Path) -> None:
    task = small_task("node", count=20)
    split = task.splits[0]
    with pytest.raises(ValueError, match="more labelled rows"):
        tune(replace(task, splits=(replace(split, val=split.val[:0]),)), tmp_path, SHORT)


def test_command_tunes_and_its_config_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    size = rng.standard_normal(60)
    nodes = pd.DataFrame({"id": range(60), "size": size, "label": np.where(size > 0, "x", "y")})
    edges = pd.DataFrame({"source": rng.integers(60, size=90), "target": rng.integers(60, size=90)})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    files, study = [str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv")], tmp_path / "study"
    command = ["tune", *files, "--target", "label", "--trials", "2", "--out", str(study)]
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0, found.output
    assert "sirgcn train" in found.output
    from sirgcn.cli.configured import from_toml

    asked = from_toml(study / "config.toml")
    assert FitSettings(**asked.fit).candidate == read_tuned(study).candidate
    again = CliRunner().invoke(app, [*command, "--json"])
    assert again.exit_code == 0
    assert '"trials"' in again.output


def test_trials_in_processes_are_those_of_this_process_and_go_on_after_a_kill(tmp_path: Path) -> None:
    task = small_task("node", count=60)
    alone = tune(task, tmp_path / "alone", SHORT)
    # With one job, each trial knows of all those before it, as in this process.
    with Processes() as engine:
        one = tune(task, tmp_path / "one", replace(SHORT, trials=1), engine=engine)
        made = tune(task, tmp_path / "one", SHORT, engine=engine)
    assert one == alone[:1]
    assert made == alone
    assert read_tuned(tmp_path / "one") == read_tuned(tmp_path / "alone")


def test_several_trials_at_a_time_try_different_settings(tmp_path: Path) -> None:
    watcher = Listening()
    made = tune(small_task("node", count=60), tmp_path, replace(SHORT, trials=2), watcher, jobs=2)
    assert [one.state for one in made] == ["done", "done"]
    assert made[0].settings != made[1].settings
    assert {row["number"] for row in watcher.rows} == {1, 2}


def test_worker_that_is_killed_is_a_failed_trial_and_one_that_is_stopped_is_left(tmp_path: Path) -> None:
    study = Study(tmp_path / "study.db", SPACE, "same")
    trials = Trials(study, Processes(), lambda number, settings: Raising() if number else Dying())
    trials.run(2, 2, lambda: False)
    assert [one.state for one in study.trials] == ["failed", "failed"]
    paused = Trials(study, Processes(), lambda number, settings: Paused())
    overs = iter([False, True])
    paused.run(3, 1, lambda: next(overs, True))
    assert len(study.trials) == 2
    again = study.begin(3)
    assert again is not None
    assert again.number == 2
