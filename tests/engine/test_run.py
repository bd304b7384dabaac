"""Runs: planned, made in processes of their own, skipped when finished, taken up again when not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import experiment as config
from sirgcn.engine import records
from sirgcn.engine.run import DONE, FAILED, PAUSED, Run, Settings, execute, expected_seconds, plan, run_all, unfinished
from sirgcn.engine.tensorboard import TensorBoard

TOML = """
data = "hetero_edge_count"
preset = "hetero_edge_count"
redraw = true
seeds = 2
columns = [{ title = "c=2", options = { c = 2, num_graphs = 20 } }]
[train]
epochs = 3
batch_size = 8
selection = "last"
[reduced]
epochs = 1
[[models]]
title = "SIR-GCN"
[[models]]
title = "GIN"
conv = "gin"
"""


@pytest.fixture
def experiment(tmp_path: Path) -> config.Experiment:
    (tmp_path / "small.toml").write_text(TOML)
    return config.load(tmp_path / "small.toml")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "results", tmp_path / "runs", threads=1)


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in record.items() if not k.startswith(("seconds", "peak", "environment", "history"))}
    return {**kept, "history": [{k: v for k, v in row.items() if k != "seconds"} for row in record["history"]]}


def test_plan_goes_seed_by_seed(experiment: config.Experiment) -> None:
    assert [(run.seed, run.model) for run in plan(experiment)] == [
        (0, "SIR-GCN"),
        (0, "GIN"),
        (1, "SIR-GCN"),
        (1, "GIN"),
    ]
    assert [run.seed for run in plan(experiment, ["gin"], ["c=2"], [5])] == [5]
    with pytest.raises(config.ConfigError, match="model: expected one of SIR-GCN, GIN, got 'GCN'"):
        plan(experiment, ["GCN"])


def test_record_tells_what_was_run(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[1])
    assert execute(run, settings) == DONE
    (record,) = records.read(settings.file(experiment))
    assert records.key_of(record) == run.key
    assert record["config"]["train"]["epochs"] == record["epochs"] == len(record["history"]) == 3
    assert record["data"]["version"] == "generated, seed 1"
    assert {"train", "test", "test_loss"} <= record["metrics"].keys()
    assert record["environment"]["threads"] == 1
    assert record["parameters"] == 2 * 20 + 20 * 20 * 3 + 20 * 2 + 20
    # What is finished leaves nothing behind but its log.
    assert [file.name for file in (settings.work / "small" / run.slug).iterdir()] == ["log.jsonl"]


def test_same_run_twice_gives_the_same_record(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    other = Settings(tmp_path / "again", tmp_path / "runs2", threads=1)
    execute(run, settings)
    execute(run, other)
    first, second = (records.read(place.file(experiment))[0] for place in (settings, other))
    assert without_time(first) == without_time(second)


def test_finished_runs_are_skipped_unless_their_settings_changed(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    runs = plan(experiment, seeds=[0])
    assert unfinished(runs, settings) == runs
    assert execute(runs[0], settings) == DONE
    assert unfinished(runs, settings) == runs[1:]
    (tmp_path / "small.toml").write_text(TOML.replace("epochs = 3", "epochs = 4"))
    assert len(unfinished(plan(config.load(tmp_path / "small.toml"), seeds=[0]), settings)) == 2
    seconds, unknown = expected_seconds(runs, settings)
    assert seconds > 0
    assert unknown == 1


def test_reduced_run_is_recorded_as_one(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0], reduced=True)
    execute(run, settings)
    (record,) = records.read(settings.file(experiment))
    assert (record["reduced"], record["reduced_why"], record["epochs"]) == (True, "epochs = 1", 1)
    assert unfinished(plan(experiment, ["SIR-GCN"], seeds=[0]), settings)


def test_failing_run_is_recorded_and_does_not_stop_the_others(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(TOML.replace('conv = "gin"', 'conv = "gin"\noptions = { layers = 0 }'))
    broken = config.load(tmp_path / "small.toml")
    events: list[tuple[str, str]] = []
    outcome = run_all(
        plan(broken, ["GIN", "SIR-GCN"], seeds=[0]),
        settings,
        jobs=2,
        reports=[lambda run, event, detail: events.append((run.model, event))],
    )
    assert {run.model: status for run, status in outcome.items()} == {"GIN": FAILED, "SIR-GCN": DONE}
    failed = next(r for r in records.read(settings.file(broken)) if r["model"] == "GIN")
    assert failed["status"] == FAILED
    assert "Traceback" in failed["traceback"]
    assert ("SIR-GCN", "done") in events
    assert events.count(("SIR-GCN", "epoch")) == 3
    assert [run.model for run in unfinished(plan(broken, seeds=[0]), settings)] == ["GIN"]


def test_run_that_is_past_the_deadline_is_saved_and_taken_up_again(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    late = Settings(settings.results, settings.work, threads=1, deadline=time.time() - 1)
    assert execute(run, late) == PAUSED
    assert not settings.file(experiment).exists()
    assert run_all([run], late) == {run: PAUSED}
    assert execute(run, settings) == DONE
    whole = Settings(tmp_path / "whole", tmp_path / "runs2", threads=1)
    execute(run, whole)
    found, expected = (records.read(place.file(experiment))[0] for place in (settings, whole))
    assert without_time(found) == without_time(expected)


SCRIPT = """
import sys
from pathlib import Path
from sirgcn.engine import experiment
from sirgcn.engine.run import Settings, plan, run_all
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = experiment.load(folder / "small.toml", ["train.epochs=100000"])
    settings = Settings(folder / "results", folder / "runs", threads=1)
    tell = lambda run, event, detail: print(event, flush=True)
    print(list(run_all(plan(found, ["SIR-GCN"], seeds=[0]), settings, reports=[tell]).values()), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_the_state(experiment: config.Experiment, tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, script, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "epoch\n":
            break
    process.send_signal(number)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert rest.splitlines()[-1] == "['paused']"
    assert list((tmp_path / "runs").rglob("*.safetensors"))


def test_tensorboard_gets_every_epoch_once_though_a_run_is_taken_up_again(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    row = {"lr": 0.5, "step_loss": 2.0, "train_loss": None, "train": None, "val_loss": 3.0, "val": 0.25, "seconds": 1}
    for epochs in (range(3), range(1, 4)):
        with TensorBoard(tmp_path / "board") as board:
            board(run, "start", {})
            for epoch in epochs:
                board(run, "epoch", {**row, "epoch": epoch, "epochs": 4, "step_loss": 2.0 + epoch})
            board(run, "paused", {})
    events = accumulator(str(tmp_path / "board" / "small" / run.slug)).Reload()
    assert set(events.Tags()["scalars"]) == {"lr", "loss/step", "loss/val", "metric/val"}
    assert [(event.step, event.value) for event in events.Scalars("loss/step")] == [(1, 2), (2, 3), (3, 4), (4, 5)]


def test_process_that_is_killed_is_recorded_as_failed(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(
        config.load(Path(settings.results).parent / "small.toml", ["train.epochs=100000"]), ["GIN"], seeds=[0]
    )
    killed: list[int] = []

    def kill(run: Run, event: str, detail: dict[str, Any]) -> None:
        if event == "epoch" and not killed:
            import multiprocessing

            (child,) = (c for c in multiprocessing.active_children() if c.pid is not None)
            killed.append(child.pid or 0)
            child.kill()

    assert run_all([run], settings, reports=[kill]) == {run: FAILED}
    (record,) = records.read(settings.file(run.experiment))
    assert record["error"] == "the process ended with signal 9"


@pytest.mark.parametrize(("target", "level"), [("label", "node"), ("kind", "edge")])
def test_ones_own_tables_are_trained_on(tmp_path: Path, target: str, level: str) -> None:
    nodes = "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    edges = "".join(f"{i % 40},{(i * 3 + 1) % 40},{'xy'[i % 3 == 0]}\n" for i in range(90))
    (tmp_path / "nodes.csv").write_text(f"id,size,label\n{nodes}")
    (tmp_path / "edges.csv").write_text(f"source,target,kind\n{edges}")
    options = f'nodes = "{tmp_path}/nodes.csv", edges = "{tmp_path}/edges.csv", target = "{target}"'
    (tmp_path / "own.toml").write_text(
        f'data = "tables"\ncolumns = [{{ title = "own", options = {{ {options}, level = "{level}" }} }}]\n'
        '[train]\nepochs = 2\nbatch_size = "none"\n[[models]]\ntitle = "SIR-GCN"\n'
    )
    (run,) = plan(config.load(tmp_path / "own.toml"), seeds=[0])
    settings = Settings(tmp_path / "results", tmp_path / "runs", threads=1)
    assert execute(run, settings) == DONE
    (record,) = records.read(settings.file(run.experiment))
    assert record["metric"] == "accuracy"
    assert 0 <= record["metrics"]["test"] <= 1
