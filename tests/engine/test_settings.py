"""Settings are checked where they enter, in Python as in a file; names never lead out of their folder."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sirgcn.engine import experiment as config
from sirgcn.engine.experiment import (
    AxisConfig,
    ColumnConfig,
    ModelConfig,
    TimingConfig,
    TrainConfig,
    TrainingExperiment,
)
from sirgcn.engine.plan import Run, Settings, plan
from sirgcn.engine.timing import Effort
from sirgcn.strict import ConfigError

TOML = """
data = "hetero_edge_count"
preset = "hetero_edge_count"
columns = [{ title = "c=2", options = { c = 2, num_graphs = 20 } }]
[train]
epochs = 1
selection = "last"
[[models]]
title = "SIR-GCN"
"""


def experiment(**changes: Any) -> TrainingExperiment:
    rows = {"models": (ModelConfig("SIR-GCN"),), "columns": (ColumnConfig("c"),)}
    return TrainingExperiment(**{"name": "x", "data": "d", **rows, **changes})


@pytest.mark.parametrize(
    ("cls", "settings", "error"),
    [
        (TrainConfig, {"schedule": "cos"}, "schedule: expected one of none, plateau, cosine, got 'cos'"),
        (TrainConfig, {"selection": "best"}, "selection: expected one of last, val_loss, val_metric, got 'best'"),
        (TrainConfig, {"precision": "float16"}, "precision: expected one of float32, bfloat16, got 'float16'"),
        (TrainConfig, {"early_on": "loss"}, "early_on: expected one of train, val, val_metric, got 'loss'"),
        (TrainConfig, {"epochs": 2.0}, r"epochs: expected a whole number, got 2\.0"),
        (TrainConfig, {"epochs": True}, "epochs: expected a whole number, got True"),
        (TrainConfig, {"lr": "0.1"}, "lr: expected a number, got '0.1'"),
        (TrainConfig, {"lr": math.nan}, "lr: expected more than 0, got nan"),
        (TrainConfig, {"l1": math.inf}, "l1: expected at least 0, got inf"),
        (TrainConfig, {"weight_decay": math.nan}, "weight_decay: expected at least 0, got nan"),
        (ModelConfig, {"title": 3}, "title: expected text, got 3"),
        (ModelConfig, {"title": " "}, "title: expected a text, got ' '"),
        (ModelConfig, {"title": "a", "budget": 0}, "budget: expected at least 1, got 0"),
        (ModelConfig, {"title": "a", "options": "x"}, "options: expected a table, got 'x'"),
        (ColumnConfig, {"title": ""}, "title: expected a text, got ''"),
        (TimingConfig, {"clock": "sun"}, "clock: expected one of wall, cpu, got 'sun'"),
        (TimingConfig, {"seconds": math.nan}, "seconds: expected at least 0, got nan"),
        (AxisConfig, {"title": "a", "nodes": "123", "edges": (1,), "width": (1,)}, "nodes: expected a list, got '123'"),
        (Effort, {"repeats": 1.5, "sample_seconds": 0, "run_seconds": 1}, "repeats: expected a whole number, got 1.5"),
        (experiment, {"redraw": "no"}, "redraw: expected true or false, got 'no'"),
        (experiment, {"seeds": 0}, "seeds: expected at least 1, got 0"),
        (experiment, {"splits": 0}, "splits: expected at least 1, got 0"),
        (experiment, {"scale": math.nan}, "scale: expected a finite number, got nan"),
        (experiment, {"sort": "train"}, "sort: expected one of training, got 'train'"),
        (experiment, {"variant": "paper"}, "variant: expected one of corrected, published, got 'paper'"),
        (Settings, {"threads": 0}, "threads: expected at least 1, got 0"),
        (Settings, {"every": -1.0}, "every: expected at least 0, got -1.0"),
        (Settings, {"every": math.nan}, "every: expected at least 0, got nan"),
        (Settings, {"results": 3}, "results: expected a path, got 3"),
        (Settings, {"deadline": "soon"}, "deadline: expected a number, got 'soon'"),
    ],
)
def test_wrong_setting_in_python_is_refused_by_name(cls: Any, settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        cls(**settings)


def test_number_is_whatever_index_takes() -> None:
    found = TrainConfig(epochs=np.int64(3), lr=np.float32(0.5), batch_size=np.int32(2))  # type: ignore[arg-type]
    assert (found.epochs, found.lr, found.batch_size) == (3, 0.5, 2)
    assert [type(value) for value in (found.epochs, found.lr, found.batch_size)] == [int, float, int]


def test_path_may_be_a_text() -> None:
    found = Settings(results="a", work="b", data="c")  # type: ignore[arg-type]
    assert (found.results, found.work, found.data) == (Path("a"), Path("b"), Path("c"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"reduced": "no"}, "reduced: expected true or false, got 'no'"),
        ({"seeds": ["0"]}, "seed: expected a whole number, got '0'"),
        ({"seeds": [-1]}, "seed: expected at least 0, got -1"),
        ({"seeds": [0.5]}, "seed: expected a whole number, got 0.5"),
        ({"models": "SIR-GCN"}, "models: expected a list, got 'SIR-GCN'"),
        ({"columns": "c"}, "columns: expected a list, got 'c'"),
    ],
)
def test_wrong_choice_of_runs_is_refused(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        plan(experiment(), **arguments)


def test_seed_is_whatever_index_takes() -> None:
    (run,) = plan(experiment(), seeds=np.arange(1))  # type: ignore[arg-type]
    assert type(run.seed) is int
    assert run.key == plan(experiment(), seeds=range(1))[0].key


def test_override_that_is_no_list_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"overrides: expected a list, got 'train\.lr=1'"):
        config.load("zinc", "train.lr=1")


EVIL = ["../../escaped/evil", "/tmp/evil", "a/b", "a\\b", "..", ".", "", ".hidden", "a\x00b", "a\nb", "c:evil"]
EVIL += ["a?", "a*", "nul", "COM1.txt", " a", "a.", "x" * 201]


@pytest.mark.parametrize("name", EVIL)
def test_name_that_is_no_plain_name_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name: expected"):
        experiment(name=name)


@pytest.mark.parametrize("name", ["zinc", "my experiment", "größer", "zinc+train.lr=1e-3", "a.b", "console"])
def test_plain_name_is_kept(name: str) -> None:
    assert experiment(name=name).name == name


def test_name_in_a_file_is_refused_by_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(f'name = "../../escaped/evil"\n{TOML}')
    with pytest.raises(ConfigError, match=r"small\.toml: name: expected a plain name of a file.*'\.\./\.\./escaped"):
        config.load(file)


def test_name_that_is_set_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    name = config.load(tmp_path / "small.toml", ["name=../../escaped/evil"]).name
    assert Path(name).name == name


TITLES = ["a", "A b", "a_b", "a/b", "a-b", "../..", "..", "a\nb", "ä", "x" * 300, "x" * 301, "a:b"]


def test_folders_of_different_runs_differ_and_are_plain_names() -> None:
    found = experiment(
        models=tuple(map(ModelConfig, TITLES)),
        columns=tuple(map(ColumnConfig, [*TITLES, "a-a"])),
        reduced={"epochs": 1},
    )
    runs = [run for reduced in (False, True) for run in plan(found, seeds=[0, 1, 10], reduced=reduced)]
    slugs = [run.slug for run in runs]
    # Some systems make no difference of letter case.
    assert len({slug.lower() for slug in slugs}) == len(runs)
    for slug in slugs:
        assert Path(slug).name == slug
        assert not slug.startswith(".")
        assert len(slug.encode()) <= 200


def test_folder_of_plain_titles_can_be_read() -> None:
    rows = {"models": (ModelConfig("SIR-GCN"),), "columns": (ColumnConfig("c=2"),)}
    assert Run(experiment(**rows), "c=2", "SIR-GCN", 3).slug == "c=2-SIR-GCN-3"
