"""A finished run counts only on the data of today; a checkpoint is taken up by its own training alone."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.engine import experiment as config
from sirgcn.engine import records
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.finished import unfinished, why_unfinished
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.plan import Run, Settings, identity_of, plan
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import PAUSED, UNRECORDED, execute
from sirgcn.nn import SIRNet
from sirgcn.report.runs import of_other_data, read_runs
from tests.engine.killed import task

RESULTS = Path(__file__).parents[2] / "results"


class Own:
    """An experiment on tables of one's own, which can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(folder / "results", folder / "runs", threads=1)
        self.write()

    def write(self, labels: str = "ab", parts: str = "", more: str = "", options: str = "") -> None:
        split = [f",{parts[i % len(parts)]}" if parts else "" for i in range(40)]
        names = {"t": "train", "v": "val", "e": "test", "": ""}
        rows = "".join(
            f"{i},{i % 7},{labels[i % 2]}{',' + names[own[1:]] if parts else ''}\n" for i, own in enumerate(split)
        )
        (self.folder / "nodes.csv").write_text(f"id,size,label{',split' * bool(parts)}\n{rows}")
        edges = "".join(f"{i % 40},{(i * 3 + 1) % 40}\n" for i in range(90))
        (self.folder / "edges.csv").write_text(f"source,target\n{edges}")
        column = f'nodes = "nodes.csv", edges = "edges.csv", target = "label", id = "id"{options}'
        (self.folder / "own.toml").write_text(
            f'data = "tables"\n{more}\ncolumns = [{{ title = "own", options = {{ {column} }} }}]\n'
            '[train]\nepochs = 2\nbatch_size = "none"\n[[models]]\ntitle = "SIR-GCN"\n'
        )

    def run(self, seed: int = 0) -> Run:
        (run,) = plan(config.load(self.folder / "own.toml"), seeds=[seed])
        return run

    def record(self) -> dict[str, Any]:
        return records.read(self.settings.file(self.run().experiment))[-1]


@pytest.fixture
def own(tmp_path: Path) -> Own:
    return Own(tmp_path)


def test_run_on_a_table_that_changed_is_made_again(own: Own) -> None:
    assert execute(own.run(), own.settings) == DONE
    assert unfinished([own.run()], own.settings) == []
    before = own.record()
    (own.folder / "nodes.csv").write_text((own.folder / "nodes.csv").read_text().replace("\n0,0,a", "\n0,5,b"))
    assert list(why_unfinished([own.run()], own.settings).values()) == ["the data have changed"]
    assert execute(own.run(), own.settings) == DONE
    assert own.record()["data"]["sha256"] != before["data"]["sha256"]
    assert unfinished([own.run()], own.settings) == []


def test_run_on_a_split_that_changed_is_made_again_though_the_graph_is_the_same(own: Own) -> None:
    given = {"options": ", standardise = false"}
    own.write(parts="tttve", **given)
    assert execute(own.run(), own.settings) == DONE
    before = own.record()["data"]
    own.write(parts="ttvet", **given)
    assert list(why_unfinished([own.run()], own.settings).values()) == ["the data have changed"]
    assert execute(own.run(), own.settings) == DONE
    assert own.record()["data"]["sha256"] == before["sha256"]
    assert own.record()["data"]["splits_sha256"] != before["splits_sha256"]


@pytest.mark.parametrize("seed", [0, 1])
def test_run_is_made_again_after_a_change_of_redraw(own: Own, seed: int) -> None:
    own.write(more="redraw = true")
    assert execute(own.run(seed), own.settings) == DONE
    assert unfinished([own.run(seed)], own.settings) == []
    own.write(more="redraw = false")
    assert list(why_unfinished([own.run(seed)], own.settings).values()) == ["the data have changed"]


def test_file_that_changed_makes_all_redrawn_runs_anew(own: Own) -> None:
    own.write(more="redraw = true")
    assert execute(own.run(1), own.settings) == DONE
    file = own.folder / "nodes.csv"
    file.write_bytes(file.read_bytes() + b"\n")
    assert list(why_unfinished([own.run(1)], own.settings).values()) == ["the data have changed"]


def test_run_whose_data_are_gone_is_not_finished_and_says_why(own: Own) -> None:
    assert execute(own.run(), own.settings) == DONE
    (own.folder / "nodes.csv").unlink()
    ((_, why),) = why_unfinished([own.run()], own.settings).items()
    assert why.startswith("the data cannot be compared: ")
    assert "nodes.csv" in why


def test_looking_at_the_data_writes_nothing(own: Own) -> None:
    own.write(options=', on_error = "skip", dropped = "dropped.csv"')
    assert execute(own.run(), own.settings) == DONE
    (own.folder / "dropped.csv").unlink()
    assert unfinished([own.run()], own.settings) == []
    assert not (own.folder / "dropped.csv").exists()


def typed(own: Own, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command that trains, as it is typed."""
    places = ["--results", own.settings.results, "--work", own.settings.work, "--threads", "1"]
    command = [sys.executable, "-m", "sirgcn.cli", "reproduce", own.folder / "own.toml", *places, *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["loss", "metric", "sha256", "splits_sha256"])
def test_run_of_another_loss_metric_or_hash_of_the_data_is_made_again(own: Own, name: str) -> None:
    assert execute(own.run(), own.settings) == DONE
    file, record = own.settings.file(own.run().experiment), own.record()
    record["data"][name] = "another"
    file.write_text(json.dumps(record) + "\n")
    assert list(why_unfinished([own.run()], own.settings).values()) == ["the data have changed"]


def test_identity_of_a_run_has_its_settings_its_seed_and_the_hash_of_its_data(own: Own) -> None:
    data = {"sha256": "a"}
    identity = identity_of(own.run(), data)
    assert identity == identity_of(own.run(), data)
    assert identity != identity_of(own.run(1), data)
    assert identity != identity_of(own.run(), {"sha256": "b"})
    changed = config.load(own.folder / "own.toml", ['models=[{title="SIR-GCN", options={dropout=0.5}}]'])
    assert identity != identity_of(plan(changed, seeds=[0])[0], data)


def test_command_on_a_table_that_changed_shows_no_old_score(own: Own) -> None:
    assert typed(own, "-s", "0-1").returncode == 0
    own.write(labels="ba")
    nodes = own.folder / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("\n0,0,b", "\n0,5,b"))
    # While the new run is not made, there is no score to show.
    paused = typed(own, "-s", "0-1", "--budget", "0s")
    assert paused.returncode == 3
    assert "not shown, 2 runs finished before: the data have changed" in paused.stderr
    assert "SIR-GCN  " not in paused.stdout
    found = typed(own, "-s", "0")
    assert found.returncode == 0
    assert "1 run, 0 finished before; 1 to go" in found.stdout
    assert "1 run of these finished before and will be made again: the data have changed" in found.stderr
    assert "Left out, another version of the data: 1" in " ".join(found.stdout.split())
    told = {record["seed"]: record.get("outdated") for record in json.loads(typed(own, "-s", "0", "--json").stdout)}
    assert told == {0: None, 1: "of another version of the data than the newest run"}


def test_failed_run_says_on_which_data_it_failed(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    assert execute(own.run(1), own.settings) == DONE
    own.write(labels="ba")
    nodes = own.folder / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("\n0,0,b", "\n0,5,b"))
    monkeypatch.setattr(Trainer, "step", lambda self, batch: 1 / 0)
    assert execute(own.run(0), own.settings) == FAILED
    runs = read_runs(own.settings.file(own.run().experiment))
    assert {run.seed for run in runs if id(run) in of_other_data(runs)} == {1}


def test_record_without_the_newer_fields_still_counts(own: Own) -> None:
    assert execute(own.run(), own.settings) == DONE
    file, record = own.settings.file(own.run().experiment), own.record()
    record["data"] = {name: record["data"][name] for name in ("name", "version", "sha256")}
    file.write_text(json.dumps(record) + "\n")
    assert unfinished([own.run()], own.settings) == []
    own.write(more="redraw = true")
    assert unfinished([own.run()], own.settings)


def test_committed_records_count_and_say_whether_their_data_were_redrawn() -> None:
    runs = plan(config.load("dictionary_lookup"), ["SIR-GCN"], ["n=10"], [0, 1])
    assert unfinished(runs, Settings(RESULTS)) == []
    for file in RESULTS.glob("*.jsonl"):
        name, overrides = config.split_name(file.stem)
        redraw = config.load(name, overrides).redraw
        assert all(records.was_redrawn(record) in (None, redraw) for record in records.read(file))


def trainer(
    folder: Path, seed: int = 0, width: int = 8, dropout: float = 0.0, weights: int = 0, **settings: Any
) -> Trainer:
    """Of a few steps, after which it stops."""
    torch.manual_seed(weights)
    model = SIRNet.of(3, width, 1, num_layers=1, encoder="embedding", pool="sum", dropout=dropout)
    train = TrainConfig(**{"epochs": 2, "batch_size": 8, "selection": "last", **settings})
    return Trainer(model, task(), train, seed=seed, checkpoints=Checkpoints(folder), should_stop=lambda: True)


@pytest.mark.parametrize(
    "change", [{"lr": 0.5}, {"seed": 1}, {"width": 6}, {"dropout": 0.5}, {"epochs": 3}, {"weights": 1}]
)
def test_training_takes_up_no_checkpoint_of_another_one(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(Interrupted):
        trainer(tmp_path).run()
    again = trainer(tmp_path)
    with pytest.raises(Interrupted):
        again.run()
    assert again.state.step == 2
    other = trainer(tmp_path, **change)
    with pytest.warns(UserWarning, match="of other settings or data; it is not used"), pytest.raises(Interrupted):
        other.run()
    assert other.state.step == 1


def test_one_object_of_checkpoints_may_serve_two_trainings(tmp_path: Path) -> None:
    shared = Checkpoints(tmp_path)
    for seed in (0, 1):
        one = trainer(tmp_path, seed=seed)
        one.checkpoints = shared
        expectation = pytest.warns(UserWarning, match="it is not used") if seed else nullcontext()
        with expectation, pytest.raises(Interrupted):
            one.run()
        assert one.state.step == 1
    assert shared.of is None


def test_folder_in_which_no_run_can_begin_is_told_in_a_line(own: Own) -> None:
    own.settings.work.write_text("a file where the folder should be")
    told: list[dict[str, Any]] = []
    assert execute(own.run(), own.settings, lambda event, detail: told.append(detail)) == UNRECORDED
    assert str(own.settings.work) in told[0]["error"]
    assert "the run cannot begin: " in told[0]["error"]


def test_checkpoints_without_settings_are_not_those_of_a_training(tmp_path: Path) -> None:
    Checkpoints(tmp_path, of={"lr": 1}).save({"epoch": 1})
    with pytest.warns(UserWarning, match="of other settings or data"):
        assert Checkpoints(tmp_path).load() is None
    Checkpoints(tmp_path).save({"epoch": 2})
    with pytest.warns(UserWarning, match="of other settings or data"):
        assert Checkpoints(tmp_path, of={"lr": 1}).load() == {"epoch": 1}


def test_another_number_of_threads_is_told_and_recorded(own: Own) -> None:
    run = own.run()
    one, two = (Settings(own.settings.results, own.settings.work, threads=threads) for threads in (1, 2))
    threads = torch.get_num_threads()
    try:
        assert execute(run, one, asked=lambda: True) == PAUSED
        with pytest.warns(UserWarning, match="continues with 2 threads, and its checkpoint was written with 1 thread"):
            assert execute(run, two) == DONE
        assert own.record()["threads"] == [1, 2]
        # As many as before are not worth a word: a warning would be an error here.
        assert execute(run, one, asked=lambda: True) == PAUSED
        assert execute(run, one) == DONE
        assert own.record()["threads"] == [1]
    finally:
        torch.set_num_threads(threads)
