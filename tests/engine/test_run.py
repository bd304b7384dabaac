"""Runs: planned, made in processes of their own, skipped when finished, taken up again when not."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sirgcn.engine import experiment as config
from sirgcn.engine import pool, records
from sirgcn.engine.environment import ALLOCATOR, find_device
from sirgcn.engine.finished import unfinished
from sirgcn.engine.plan import Run, Settings, plan, seed_by_seed
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import PAUSED, execute
from sirgcn.engine.tensorboard import TensorBoard
from sirgcn.engine.workers import End, Processes
from sirgcn.strict import ConfigError
from tests.engine.standins import read_whole

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
    # The hash of the curves depends on their times.
    timed = ("seconds", "peak", "environment", "history", "curves")
    kept = {k: v for k, v in record.items() if not k.startswith(timed)}
    return {**kept, "history": [{k: v for k, v in row.items() if k != "seconds"} for row in record["history"]]}


def test_plan_goes_seed_by_seed(experiment: config.Experiment) -> None:
    assert [(run.seed, run.model) for run in plan(experiment)] == [
        (0, "SIR-GCN"),
        (0, "GIN"),
        (1, "SIR-GCN"),
        (1, "GIN"),
    ]
    assert [run.seed for run in plan(experiment, ["gin"], ["c=2"], [5])] == [5]
    with pytest.raises(ConfigError, match="model: expected one of SIR-GCN, GIN, got 'GCN'"):
        plan(experiment, ["GCN"])


def test_several_experiments_go_seed_by_seed_and_a_timed_one_stays_together(
    experiment: config.Experiment, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text(TOML.replace("seeds = 2", "seeds = 3"))
    timed = TOML.replace("[train]\nepochs = 3\n", "[timing]\n").replace("[reduced]\nepochs = 1\n", "")
    timed = 'sort = "inference"\n' + timed.replace('selection = "last"\n', "")
    (tmp_path / "timed.toml").write_text(timed)
    several = [experiment, *(config.load(tmp_path / f"{name}.toml") for name in ("timed", "other"))]
    runs = seed_by_seed([run for each in several for run in plan(each, ["GIN"])])
    assert [(run.experiment.name, run.seed) for run in runs] == [
        ("small", 0),
        ("timed", 0),
        ("timed", 1),
        ("other", 0),
        ("small", 1),
        ("other", 1),
        ("other", 2),
    ]


def test_record_tells_what_was_run(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[1])
    assert execute(run, settings) == DONE
    (record,) = read_whole(settings.file(experiment))
    assert records.key_of(record) == run.key
    assert record["config"]["train"]["epochs"] == record["epochs"] == len(record["history"]) == 3
    assert record["data"]["version"] == "generated, seed 1"
    assert {"train", "test", "test_loss"} <= record["metrics"].keys()
    assert record["environment"]["threads"] == 1
    assert record["environment"]["backend"] in record["environment"]["backends"]
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
    first, second = (read_whole(place.file(experiment))[0] for place in (settings, other))
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


def test_model_is_trained_on_the_device_that_was_asked_for(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    # torch's device without data: the first number that is read off it stops the training.
    assert execute(run, replace(settings, device="meta")) == FAILED
    (record,) = read_whole(settings.file(experiment))
    assert "meta" in record["error"]


def test_reduced_run_is_recorded_as_one(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0], reduced=True)
    execute(run, settings)
    (record,) = read_whole(settings.file(experiment))
    assert (record["reduced"], record["reduced_why"], record["epochs"]) == (True, "epochs = 1", 1)
    assert unfinished(plan(experiment, ["SIR-GCN"], seeds=[0]), settings)


def test_failing_run_is_recorded_and_does_not_stop_the_others(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(
        TOML.replace('conv = "gin"', 'conv = "gin"\noptions = { encoder = "none", block = "skip" }')
    )
    broken = config.load(tmp_path / "small.toml")
    events: list[tuple[str, str]] = []
    outcome = run_all(
        plan(broken, ["GIN", "SIR-GCN"], seeds=[0]),
        settings,
        jobs=2,
        listeners=[lambda run, event, detail: events.append((run.model, event))],
    )
    assert {run.model: status for run, status in outcome.items()} == {"GIN": FAILED, "SIR-GCN": DONE}
    failed = next(r for r in read_whole(settings.file(broken)) if r["model"] == "GIN")
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
    found, expected = (read_whole(place.file(experiment))[0] for place in (settings, whole))
    assert without_time(found) == without_time(expected)


SCRIPT = """
import sys
from pathlib import Path
from sirgcn.engine import experiment
from sirgcn.engine.pool import run_all
from sirgcn.engine.plan import Settings, plan
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = experiment.load(folder / "small.toml", ["train.epochs=100000"])
    settings = Settings(folder / "results", folder / "runs", threads=1)
    tell = lambda run, event, detail: print(event, flush=True)
    print("ready", flush=True)
    print(list(run_all(plan(found, ["SIR-GCN"], seeds=[0]), settings, listeners=[tell]).values()), flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="a server that forks")
@pytest.mark.parametrize("users", [{}, {"MALLOC_ARENA_MAX": "1"}])
def test_runs_keep_freed_memory_unless_the_user_sets_the_allocator(
    experiment: config.Experiment, tmp_path: Path, users: dict[str, str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("100000", "1") + "    import os; print(sorted(os.environ))\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | users
    run = subprocess.run([sys.executable, script, tmp_path], env=variables, capture_output=True, text=True, check=True)
    assert all((name in users) == (f"'{name}'" in run.stdout) for name in (*ALLOCATOR, "MALLOC_ARENA_MAX"))
    (record,) = read_whole(next((tmp_path / "results").glob("*.jsonl")))
    found = record["environment"]["variables"].items()
    assert {name: value for name, value in found if name.startswith("MALLOC_")} == (users or ALLOCATOR)


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


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_as_the_processes_start_pauses_the_runs_without_a_traceback(
    experiment: config.Experiment, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # the server loads torch now
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "['paused']"
    assert not (tmp_path / "results" / "small.jsonl").exists()


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

    assert run_all([run], settings, listeners=[kill]) == {run: FAILED}
    (record,) = read_whole(settings.file(run.experiment))
    assert record["error"] == "the process ended with signal 9"


def test_checkpoint_of_other_settings_is_not_taken_up(
    experiment: config.Experiment, settings: Settings, tmp_path: Path
) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    assert execute(run, Settings(settings.results, settings.work, threads=1, deadline=0.0)) == PAUSED
    (tmp_path / "small.toml").write_text(TOML.replace("epochs = 3", "epochs = 3\nlr = 0.5"))
    (other,) = plan(config.load(tmp_path / "small.toml"), ["SIR-GCN"], seeds=[0])
    whole = Settings(tmp_path / "whole", tmp_path / "runs2", threads=1)
    with pytest.warns(UserWarning, match="of other settings or data; it is not used"):
        assert execute(other, settings) == DONE
    assert execute(other, whole) == DONE
    found, expected = (read_whole(place.file(experiment))[0] for place in (settings, whole))
    assert found["weights_sha256"] == expected["weights_sha256"]


def test_log_has_a_line_per_epoch_after_a_kill(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["SIR-GCN"], seeds=[0])
    steps = iter([False] * 4)
    assert execute(run, settings, asked=lambda: next(steps, True)) == PAUSED
    log = settings.work / "small" / run.slug / "log.jsonl"
    # As left by a process killed in the middle of an epoch that no checkpoint has seen.
    log.write_text(log.read_text() + '{"epoch": 1, "lr": 1}\n{"epoch": 2, ')
    assert execute(run, settings) == DONE
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [0, 1, 2]


def test_device_is_one_that_is_there() -> None:
    assert find_device("cpu") == "cpu"
    for name in ("tpu", "cuda:99"):
        with pytest.raises(ValueError, match=rf"device: expected one of cpu.*, got '{name}'"):
            find_device(name)


def test_what_is_asked_for_twice_is_made_once_and_nothing_is_not_all(experiment: config.Experiment) -> None:
    assert len(plan(experiment, ["GIN", "gin"], ["c=2", "c=2"], [0, 0])) == 1
    assert plan(experiment, []) == []


def test_reduced_form_that_the_experiment_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML.replace("[reduced]\nepochs = 1\n", ""))
    with pytest.raises(ConfigError, match=r"small: reduced: expected a section \[reduced\]"):
        plan(config.load(tmp_path / "small.toml"), reduced=True)


def test_process_that_is_killed_behind_its_record_is_done(
    experiment: config.Experiment, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = plan(experiment, ["GIN"], seeds=[0])
    assert execute(run, settings) == DONE
    made = pool._Pool([run], settings, [], lambda: False, Processes())
    assert list(made._finish([run], End(None, "the process ended with signal 9"))) == [(run, DONE, {})]
    (record,) = read_whole(settings.file(experiment))
    assert record["status"] == DONE


def test_process_that_ends_of_the_signal_to_stop_is_paused(experiment: config.Experiment, settings: Settings) -> None:
    (run,) = plan(experiment, ["GIN"], seeds=[0])
    worker = Processes().start(pool._Making([run], settings))
    worker.process.kill()
    worker.process.join()
    worker.process = SimpleNamespace(is_alive=lambda: False, join=lambda: None, exitcode=-signal.SIGTERM)
    end = worker.end()
    assert end == End(None, "the process ended with signal 15", is_stopped=True)
    stopping, going = (pool._Pool([run], settings, [], asked, Processes()) for asked in (lambda: True, lambda: False))
    assert list(stopping._finish([run], end)) == [(run, PAUSED, {})]
    assert not settings.file(experiment).exists()
    ((_, status, told),) = going._finish([run], end)
    assert status == FAILED
    assert told is not None
    assert told["error"] == "the process ended with signal 15"


def test_folder_that_cannot_be_is_refused_before_anything_is_run(experiment: config.Experiment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        run_all(plan(experiment), Settings(tmp_path / "file", tmp_path / "runs"))


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
    (record,) = read_whole(settings.file(run.experiment))
    assert record["metric"] == "accuracy"
    assert 0 <= record["metrics"]["test"] <= 1
