"""A search gives every model the same budget, chooses on validation only, and goes on wherever it was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirgcn.data.validate import DataError
from sirgcn.engine import records
from sirgcn.engine.experiment import SearchConfig, TrainingExperiment, load, load_training, read_space
from sirgcn.engine.experiment.space import BUDGET
from sirgcn.engine.plan import Run, Settings
from sirgcn.engine.run import execute
from sirgcn.engine.search import rounds, suggesting, trials
from sirgcn.engine.search.rounds import Search
from sirgcn.engine.search.suggesting import Tried, suggest
from sirgcn.strict import ConfigError
from tests.engine import searched
from tests.engine.searched import TEXT, write

CHANGING = ("environment", "seconds", "seconds_per_epoch", "peak_memory_mb", "threads", "curves")
"""What differs from one run to the same run."""

SPACE = read_space({"layers": [2, 3, 4], "lr": {"low": 1e-3, "high": 1e-1, "log": True}}, "space")


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are made one after another in this process, which is quicker than a process for each."""

    def run_all(runs: Sequence[Run], where: Settings, *how: Any) -> dict[Run, str]:
        del how
        return {run: execute(run, where) for run in runs}

    monkeypatch.setattr(rounds, "run_all", run_all)


def search_in(folder: Path, text: str = TEXT, scrambled: bool = False) -> Search:
    experiment = load_training(write(folder, text, scrambled))
    return Search(experiment, Settings(folder / "results", folder / "runs", threads=1))


def kept_of(file: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key not in CHANGING} for one in records.read(file)]


def trials_in(folder: Path) -> list[dict[str, Any]]:
    return kept_of(folder / "results" / "search" / "mine.jsonl")


# Suggestions


@given(
    st.lists(st.one_of(st.none(), st.floats(-10, 10)), max_size=8),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=15)
def test_a_suggestion_is_a_function_of_what_was_tried_and_lies_in_the_space(
    scores: list[float | None], seed: int, maximise: bool
) -> None:
    tried: list[Tried] = []
    for score in scores:
        found = suggest(SPACE, tried, seed, 3, maximise)
        assert found == suggest(SPACE, tried, seed, 3, maximise)
        assert found["layers"] in (2, 3, 4)
        assert 1e-3 <= found["lr"] <= 1e-1
        assert all(found != one.settings for one in tried)
        tried.append(Tried(found, score))


def test_the_random_suggestions_have_the_same_shared_settings_in_every_space() -> None:
    more = SPACE | read_space({"aggr": ["mean", "sum"]}, "space")
    for number in range(3):
        short, long = ([Tried({}, 0.0)] * 0 for _ in range(2))
        for space, tried in ((SPACE, short), (more, long)):
            for _ in range(number + 1):
                tried.append(Tried(suggest(space, tried, random=5), 0.0))
        assert [{name: one.settings[name] for name in SPACE} for one in long] == [one.settings for one in short]


def mean_distance(random: int) -> float:
    """How far late suggestions are from the best value, in the mean over three searches."""
    space, late = read_space({"x": {"low": 0.0, "high": 1.0}}, "space"), []
    for seed in range(3):
        tried: list[Tried] = []
        for _ in range(30):
            found = suggest(space, tried, seed, random)
            tried.append(Tried(found, -abs(found["x"] - 0.3)))
        late += [abs(one.settings["x"] - 0.3) for one in tried[10:]]
    return sum(late) / len(late)


def test_suggestions_learn_from_what_was_good() -> None:
    assert mean_distance(random=8) < 0.7 * mean_distance(random=30)


def test_a_space_of_few_settings_is_tried_out_before_settings_repeat() -> None:
    space = read_space({"a": [1, 2], "b": [True, False]}, "space")
    tried: list[Tried] = []
    for _ in range(6):
        tried.append(Tried(suggest(space, tried, random=6), 0.5))
    assert len({json.dumps(one.settings) for one in tried[:4]}) == 4


def test_whole_ranges_give_whole_numbers_and_lists_may_hold_lists() -> None:
    space = read_space({"n": {"low": 2, "high": 5}, "head": [[8], [8, 4]]}, "space")
    found = suggest(space, [Tried({"n": 2, "head": [8, 4]}, 0.1)])
    assert isinstance(found["n"], int)
    assert found["head"] in ([8], [8, 4])


def test_a_search_without_optuna_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"a search needs Optuna: pip install 'sirgcn\[tune\]'"):
        suggesting.check_optuna()


# The budget and what is chosen


def test_all_models_get_the_same_trials_and_the_same_budget(tmp_path: Path) -> None:
    outcome = search_in(tmp_path).run()
    assert set(outcome.values()) == {"done"}
    found = trials_in(tmp_path)
    assert sorted((one["row"], one["trial"]) for one in found) == [
        (row, number) for row in ("Boosting with neighbours", "SIR-GCN") for number in range(3)
    ]
    budgets = [{name: one["config"]["train"][name] for name in BUDGET} for one in found if "train" in one["config"]]
    assert len(budgets) == 3
    assert all(budget == budgets[0] for budget in budgets)
    assert budgets[0]["epochs"] == 12
    assert {one["epochs"] for one in found if "epochs" in one} == {12}


def test_rounds_keep_the_models_level_at_any_time(tmp_path: Path) -> None:
    search, seen = search_in(tmp_path), []
    while runs := search.next_trials():
        execute(runs[0], trials.of_trials(search.settings))
        seen.append([len(study.kept) for study in search.studies()])
    assert all(max(counts) - min(counts) <= 1 for counts in seen)
    assert seen[-1] == [3, 3]


def test_labels_of_the_test_part_change_nothing_in_what_is_chosen(tmp_path: Path) -> None:
    plain, scrambled = search_in(tmp_path / "a"), search_in(tmp_path / "b", scrambled=True)
    plain.run()
    scrambled.run()
    whole, other = (trials_in(tmp_path / name) for name in "ab")
    for one, two in zip(whole, other, strict=True):
        # The graphs have other labels, so that their hash differs; all else is equal, the weights too.
        assert one.pop("data")["sha256"] != two.pop("data")["sha256"]
        assert one == two
    finals = [kept_of(tmp_path / name / "results" / "mine.jsonl") for name in "ab"]
    assert [one["config"] for one in finals[0]] == [one["config"] for one in finals[1]]
    assert [one["metrics"]["test"] for one in finals[0]] != [one["metrics"]["test"] for one in finals[1]]


def test_the_record_of_a_trial_has_no_score_of_the_test_part(tmp_path: Path) -> None:
    search_in(tmp_path).run()
    for one in records.read(tmp_path / "results" / "search" / "mine.jsonl"):
        assert set(one["metrics"]) == {"train", "train_loss", "val", "val_loss"}
        whole = records.with_curves(tmp_path / "results" / "search" / "mine.jsonl", one)
        assert "test" not in json.dumps([whole.get("history"), one["metrics"]])


def test_winners_are_run_with_the_settings_of_their_best_trial(tmp_path: Path) -> None:
    search = search_in(tmp_path)
    search.run()
    finals = kept_of(tmp_path / "results" / "mine.jsonl")
    assert sorted((one["model"], one["seed"]) for one in finals) == [
        ("Boosting with neighbours", 0),
        ("SIR-GCN", 0),
        ("SIR-GCN", 1),
    ]
    study = next(study for study in search.studies() if study.row == "SIR-GCN")
    best = max(study.kept, key=lambda one: one["metrics"]["val"])
    assert study.winner == next(one for one in study.kept if one["metrics"]["val"] == best["metrics"]["val"])
    for one in finals:
        if one["model"] == "SIR-GCN":
            assert one["config"]["model"]["options"] == study.winner["config"]["model"]["options"]
            assert one["config"]["train"]["lr"] == study.winner["settings"]["train.lr"]
            assert one["config"]["train"]["epochs"] == one["epochs"] == 8
            assert one["search"]["settings"] == study.winner["settings"]


def scored(value: float | None, number: int, higher: bool = True) -> dict[str, Any]:
    return {"status": "done", "metrics": {"val": value}, "higher_is_better": higher, "trial": number}


@pytest.mark.parametrize(("higher", "best"), [(True, 1), (False, 2)])
def test_the_winner_is_the_best_and_the_earliest_of_those_that_are_level(higher: bool, best: int) -> None:
    found = [scored(value, number, higher) for number, value in enumerate((0.5, 0.9, 0.1, 0.9, 0.1, None))]
    winner = trials.winner_of([*found, {"status": "failed", "trial": 6}])
    assert winner is not None
    assert winner["trial"] == best
    assert trials.winner_of([{"status": "failed"}, scored(None, 1)]) is None


def test_a_trial_that_fails_is_recorded_and_counts(tmp_path: Path) -> None:
    text = TEXT.replace("train.lr = { low = 1e-3, high = 1e-1, log = true }", "train.lr = [1e36, 1e-2]")
    search = search_in(tmp_path, text.replace("trials = 3", "trials = 4").replace("random = 1", "random = 4"))
    search.run()
    study = next(study for study in search.studies() if study.row == "SIR-GCN")
    failed = [one for one in study.kept if one["status"] == "failed"]
    assert len(study.kept) == 4
    assert failed
    assert all(one["settings"]["train.lr"] == 1e36 and "finite" in one["error"] for one in failed)
    assert study.winner is not None
    assert study.winner["settings"]["train.lr"] == 1e-2


def test_a_model_whose_trials_all_fail_has_no_winner_and_the_others_go_on(tmp_path: Path) -> None:
    text = TEXT.replace("train.lr = { low = 1e-3, high = 1e-1, log = true }", "train.lr = [1e36, 1e37]")
    search = search_in(tmp_path, text)
    search.run()
    winners = {study.row: study.winner for study in search.studies()}
    assert winners["SIR-GCN"] is None
    assert winners["Boosting with neighbours"] is not None
    assert {one["model"] for one in kept_of(tmp_path / "results" / "mine.jsonl")} == {"Boosting with neighbours"}


# Going on


def test_more_trials_go_on_and_another_space_begins_anew(tmp_path: Path) -> None:
    search_in(tmp_path).run()
    more = search_in(tmp_path, TEXT.replace("trials = 3", "trials = 4"))
    assert [len(study.kept) for study in more.studies()] == [3, 3]
    other = search_in(tmp_path, TEXT.replace("high = 0.5 }", "high = 0.6 }"))
    assert [len(study.kept) for study in other.studies()] == [0, 0]
    longer = search_in(tmp_path, TEXT.replace("{ epochs = 12 }", "{ epochs = 13 }"))
    assert [len(study.kept) for study in longer.studies()] == [0, 0]


def test_other_data_begin_a_search_anew(tmp_path: Path) -> None:
    search_in(tmp_path).run()
    again = search_in(tmp_path, scrambled=True)
    assert [len(study.kept) for study in again.studies()] == [0, 0]


def test_a_trial_whose_process_was_killed_is_made_again(tmp_path: Path) -> None:
    search = search_in(tmp_path)
    first, _ = search.next_trials()
    where = trials.of_trials(search.settings)
    execute(first, where)
    file = where.file_of("mine")
    assert len(search.studies()[0].kept) == 1
    records.append(file, records.read(file)[0] | {"status": "failed", "killed": True})
    assert len(search.studies()[0].kept) == 0
    assert search.next_trials()[0].config == first.config


def started(file: Path, folder: Path) -> subprocess.Popen[bytes]:
    script = Path(searched.__file__)
    variables = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # A session of its own, so that a kill reaches the processes of the runs too.
    return subprocess.Popen([sys.executable, script, file, folder], env=variables, start_new_session=True)


def killed_when(file: Path, folder: Path, is_there: Callable[[], bool]) -> None:
    process = started(file, folder)
    until = time.monotonic() + 300
    while not is_there() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.005)
    assert process.poll() is None, "the search ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed together, and this system cannot")
def test_a_search_that_is_killed_anywhere_ends_as_one_that_was_not(tmp_path: Path) -> None:
    file = write(tmp_path / "files")
    whole = Search(load_training(file), Settings(tmp_path / "whole", tmp_path / "whole", threads=1))
    whole.run()
    folder = tmp_path / "killed"
    trial_records = folder / "search" / "mine.jsonl"

    def has_epochs(name: str, count: int) -> bool:
        logs = list(folder.glob(f"{name}/log.jsonl"))
        return bool(logs) and logs[0].read_bytes().count(b"\n") >= count

    def has_trials(count: int) -> bool:
        return trial_records.exists() and trial_records.read_bytes().count(b"\n") >= count

    points: list[Callable[[], bool]] = [
        lambda: has_epochs("search/mine/*trial_1*", 4),  # within the first trial
        lambda: has_trials(3),  # between two trials
        lambda: has_epochs("mine/*", 3),  # within the run of a winner
    ]
    for place, point in enumerate(points):
        killed_when(file, folder, point)
        if place == 0:
            assert list(folder.glob("search/mine/*/checkpoints/*.json")), "nothing to go on from"
    assert started(file, folder).wait() == 0
    assert kept_of(trial_records) == kept_of(tmp_path / "whole" / "search" / "mine.jsonl")
    finals = [kept_of(place / "mine.jsonl") for place in (folder, tmp_path / "whole")]
    assert finals[0] == finals[1]


# What is refused


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("dropout = {", "droput = {", r"search.space: expected one of .*, got 'droput'; did you mean dropout\?"),
        ("train.lr", "train.lrr", r"search.space: expected one of .*, got 'train.lrr'; did you mean train.lr\?"),
        ("aggr = [", "agr = [", r"models\[0\]: space: expected one of .*, got 'agr'; did you mean aggr\?"),
        ("min_samples_leaf", "min_sample_leaf", r"models\[1\]: space: .*did you mean min_samples_leaf\?"),
        ("boosting_neighbours", "bosting", r"models\[1\]: control: .*did you mean boosting\?"),
        ("trials = 3", "trails = 3", "search: unknown key 'trails'.*did you mean trials"),
        ("trials = 3", "trials = 0", "search: trials: expected at least 1, got 0"),
        ("random = 1", "split = 2", "search: split: expected less than splits = 1, got 2"),
        ("{ epochs = 12 }", "{ epoch = 12 }", r"search: train: unknown key 'epoch'.*did you mean epochs\?"),
        ("high = 0.5 }", "high = 1.5 }", "search.space: dropout: expected a number from 0 to 1, got 1.5"),
        ("high = 0.5 }", "hihg = 0.5 }", r"space: dropout: unknown key 'hihg'.*did you mean high\?"),
        ("low = 0.0, high = 0.5", "low = 0.5, high = 0.5", "space: dropout: expected low < high"),
        ("low = 1e-3", "low = 0.0", "train.lr: low: expected more than 0 on a log scale"),
        ("[8, 16]", "[8, 8]", "space: hidden_channels: expected a list of different values"),
        ("[8, 16]", "[]", "space: hidden_channels: expected a list of different values"),
        ("[8, 16]", "8", "space: hidden_channels: expected a list of choices or low and high, got 8"),
        ('["mean", "sum"]', "[1, 2]", r"models\[0\]: space: aggr: expected text, got 1"),
        (
            '"sum"]',
            '"smu"]',
            r"models\[0\]: space: aggr: expected one of .*, got 'smu'",
        ),
        ('["relu", "gelu"]', '["relu", "geluu"]', r"models\[0\]: space: activation: .*did you mean gelu\?"),
        ('aggr = ["mean"', 'context = ["mena"', r"models\[0\]: space: context: .*did you mean mean\?"),
        (
            '"sum"] }',
            '"max"], gated = [true] }',
            "space: aggr = max with gated = True: gated: expected False",
        ),
        ("num_layers = 1 }", 'num_layers = 1, context = "mena" }', r"models\[0\]: options: context: .*mean mean\?"),
        ("train.lr = {", "train.epochs = {", "space: train.epochs: expected a setting that leaves the budget"),
        ("num_layers = 1", "dropout = 0.1", "SIR-GCN: dropout: expected it in the space or in the row, got it in both"),
        ("num_layers = 1 }", "num_layers = 1 }\ntrain = { epochs = 99 }", "SIR-GCN: train: expected the budget"),
        ("num_layers = 1 }", "num_layers = 1 }\nreduced = { epochs = 9 }", "SIR-GCN: reduced: expected the budget"),
        ("num_layers = 1 }", "num_layers = 1 }\ntrain = { lr = 0.1 }", "train.lr: expected it in the space or in the"),
        ("seeds = 1\noptions", "train = { lr = 0.1 }\noptions", "train: expected none beside the control"),
        ("seeds = 1\noptions", 'conv = "gin"\noptions', "expected conv or control, got conv gin"),
        ("seeds = 1\noptions", "seeds = 0\noptions", "seeds: expected at least 1, got 0"),
        ("max_iter = 10", "max_iter = 0", r"models\[1\]: options: max_iter: expected at least 1, got 0"),
    ],
)
def test_a_wrong_search_is_refused_by_name(tmp_path: Path, old: str, new: str, error: str) -> None:
    assert old in TEXT
    with pytest.raises(ConfigError, match=error):
        load(write(tmp_path, TEXT.replace(old, new)))


def test_a_space_without_a_search_and_a_search_without_a_section_are_refused(tmp_path: Path) -> None:
    text = TEXT[: TEXT.index("[search]")] + TEXT[TEXT.index("[[models]]") :]
    with pytest.raises(ConfigError, match=r"SIR-GCN: space: expected a section \[search\] in the file, got none"):
        load(write(tmp_path, text))
    with pytest.raises(ConfigError, match=r"zinc: search: expected a section \[search\], got none.*sirgcn reproduce"):
        Search(load_training("zinc"), Settings(tmp_path))


def test_data_without_a_validation_part_are_refused(tmp_path: Path) -> None:
    column = 'columns = [{ title = "c=2", options = { c = 2, num_graphs = 20 } }]'
    text = TEXT.replace('data = "tables"', 'data = "hetero_edge_count"').replace(TEXT.splitlines()[3], column)
    with pytest.raises(DataError, match="mine: search: expected data with a validation part"):
        search_in(tmp_path, text).run()


def test_a_network_of_its_own_takes_what_it_has_of_the_shared_space() -> None:
    from sirgcn.engine.experiment import ModelConfig
    from sirgcn.engine.search.spaces import space_of

    search = SearchConfig(space={"dropout": [0.1], "norm": ["batch"], "train": {"lr": [0.1]}})
    assert list(space_of(search, ModelConfig("H2GCN", network="h2gcn"))) == ["dropout", "train.lr"]
    assert list(space_of(search, ModelConfig("GCN", conv="gcn"))) == ["dropout", "norm", "train.lr"]


def test_seeds_of_a_row_are_its_own_unless_they_are_asked_for(tmp_path: Path) -> None:
    experiment: TrainingExperiment = load_training(write(tmp_path))
    count = {
        title: sum(cell[2] == title for cell in experiment.cells()) for title in ("SIR-GCN", "Boosting with neighbours")
    }
    assert count == {"SIR-GCN": 2, "Boosting with neighbours": 1}
    assert len(experiment.cells(seeds=[0, 1])) == 4


def test_a_row_is_searched_in_its_own_columns_only(tmp_path: Path) -> None:
    column = TEXT.splitlines()[3].removeprefix("columns = [").removesuffix("]")
    both = f"columns = [{column}, {column.replace('mine', 'other', 1)}]"
    text = TEXT.replace(TEXT.splitlines()[3], both).replace("trials = 3", "trials = 1")
    search = search_in(tmp_path, text.replace("seeds = 1", 'seeds = 1\ncolumns = ["other"]'))
    assert set(search.run().values()) == {"done"}
    made = [(one["column"], one["row"]) for one in trials_in(tmp_path)]
    assert sorted(made) == [("mine", "SIR-GCN"), ("other", "Boosting with neighbours"), ("other", "SIR-GCN")]
    finals = {(one["column"], one["model"]) for one in kept_of(tmp_path / "results" / "mine.jsonl")}
    assert finals == set(made)
