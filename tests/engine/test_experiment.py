"""Experiments: read strictly, and each of the package's can be built and trained."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.data.sets.catalog import DATASETS
from sirgcn.data.tables import load_tables
from sirgcn.data.task import Task
from sirgcn.engine import experiment as config
from sirgcn.engine.controls import find_control
from sirgcn.engine.experiment import ColumnConfig, Experiment, ModelConfig, TrainConfig, TrainingExperiment
from sirgcn.engine.experiment.space import with_settings
from sirgcn.engine.loop import Trainer
from sirgcn.engine.network import build
from sirgcn.engine.plan import plan
from sirgcn.engine.run import header
from sirgcn.engine.search.spaces import space_of
from sirgcn.engine.search.suggesting import Tried, suggest
from sirgcn.report.claims import load_claims
from sirgcn.strict import ConfigError
from tests.engine.standins import stand_in

# Reported by the authors; `protocols.md` checked them by hand.
PARAMETERS = {
    "wikics": 102_850,
    "pattern": 104_722,
    "cluster": 105_366,
    "mnist": 99_610,
    "cifar10": 100_090,
    "zinc": 99_676,
    "ogbn_arxiv": 98_745,
    "ogbg_molhiv": 96_521,
    "roman_empire": 5_422_610,
    "amazon_ratings": 869_893,
    "minesweeper": 1_321_217,
    "tolokers": 1_321_985,
    "questions": 3_311_105,
    "sinc_wikics": 101_510,
    "sinc_pattern": 99_752,
    "sinc_cluster": 100_316,
    "sinc_mnist": 104_560,
    "sinc_cifar10": 105_160,
    "sinc_zinc": 106_401,
    "sinc_arxiv": 103_915,
    "sinc_molhiv": 107_875,
}
CONTROLS = {"MLP", "GatedGCN"}
SINC = {
    "sinc_scores": [
        "sinc_arxiv",
        "sinc_cifar10",
        "sinc_cluster",
        "sinc_mnist",
        "sinc_molhiv",
        "sinc_pattern",
        "sinc_wikics",
        "sinc_zinc",
    ],
    "sinc_unique_signature": ["unique_signature"],
}
LOST = ModelConfig("PNA", conv="pna", columns=("n=4",))


TRAININGS = [name for name in config.names() if config.load(name).sort == "training"]


def suggested(experiment: TrainingExperiment, row: ModelConfig) -> list[ModelConfig]:
    """The row with the settings of its first trials, if the experiment has a search."""
    if experiment.search is None:
        return []
    space, tried = space_of(experiment.search, row), list[Tried]()
    for _ in range(2):
        tried.append(Tried(suggest(space, tried), 0.0))
    return [with_settings(row, one.settings) for one in tried]


@pytest.mark.parametrize("name", TRAININGS)
def test_experiment_builds_every_model_and_takes_two_steps(name: str) -> None:
    experiment = config.load_training(name)
    # The columns of one experiment differ in size alone.
    task = stand_in(experiment.data, experiment.columns[0].options)
    for row in [form for model in experiment.models for form in (model, *suggested(experiment, model))]:
        if row.control is not None:
            fitted = find_control(row.control).build(task, **row.options | {"max_iter": 2})
            assert "test" in fitted.scores(task)
        else:
            check_network(experiment, row, task)


def check_network(experiment: TrainingExperiment, row: ModelConfig, task: Task) -> None:
    torch.manual_seed(0)
    model = build(experiment, row, task, experiment.columns[0].options)
    count = sum(p.numel() for p in model.parameters())
    if row.architecture == {"conv": "sir"} and row.budget is None and experiment.name in PARAMETERS:
        assert count == PARAMETERS[experiment.name]
    if row.budget is not None:
        assert 0.85 * row.budget < count <= row.budget  # heads make the steps of a width coarse
    settings = dataclasses.replace(experiment.train_for(row), epochs=2, batch_size=2)
    outcome = Trainer(model, task, settings).run()
    assert len(outcome.history) == 2
    assert "test" in outcome.metrics


@pytest.mark.parametrize("name", [name for name in config.names() if config.load(name).table is not None])
def test_experiment_fills_cells_of_its_table(name: str) -> None:
    experiment = config.load(name)
    (table,) = (table for table in load_claims() if table.key == experiment.table)
    assert {column.title for column in experiment.columns} <= {column.name for column in table.columns}
    more = {3: CONTROLS, 4: CONTROLS, 5: CONTROLS, "sinc_unique_signature": {"SIR-GCN (sum)", "GIN"}}
    assert {row.title for row in experiment.models} - {row.model for row in table.rows} == more.get(table.key, set())
    assert experiment.variant == table.variant


def test_controls_have_the_rules_of_the_other_convolutions() -> None:
    for entry in (entry for table in (3, 4, 5) for entry in config.of_table(table)):
        gcn = entry.model("GCN")
        found = [(row.conv, row.budget, row.train, row.options) for row in map(entry.model, ("MLP", "GatedGCN"))]
        # Beside a residual that is a linear map an MLP would have every weight twice.
        alone = {"residual": False} if entry.table == 3 else {}
        expected = [("mlp", gcn.budget, gcn.train, alone), ("gated_gcn", gcn.budget, gcn.train, {})]
        assert found == expected, entry.name


def test_egc_m_has_the_aggregators_of_its_authors() -> None:
    chosen = {name: config.load(name).model("EGC-M").options for name in ("cifar10", "ogbg_molhiv", "ogbn_arxiv")}
    assert {name: options["conv_options"]["aggregators"] for name, options in chosen.items()} == {
        "cifar10": ["sym_in", "std", "max"],
        "ogbg_molhiv": ["sum", "mean", "max"],
        "ogbn_arxiv": ["sym_in", "max", "mean"],
    }


def test_tables_have_their_experiments() -> None:
    found = {table: len(config.of_table(table)) for table in range(1, 9)}
    assert found == {1: 1, 2: 1, 3: 6, 4: 2, 5: 5, 6: 1, 7: 1, 8: 1}
    assert {table: [entry.name for entry in config.of_table(table)] for table in SINC} == SINC
    with pytest.raises(ConfigError, match=r"table: expected one of 1, 2, .*, 8, sinc_scores, .*, got 9"):
        config.of_table(9)


def test_sir_gcn_has_the_protocol_of_sinc_gcn_and_as_many_parameters() -> None:
    for name in SINC["sinc_scores"]:
        experiment = config.load_training(name)
        with_context, without = experiment.models
        assert (with_context.title, without.title) == ("SINC-GCN", "SIR-GCN")
        assert experiment.train_for(with_context) == experiment.train_for(without)
        assert (without.budget, without.options) == (PARAMETERS[name], {"context": "none"})


def test_unique_signature_has_the_parameters_of_the_sheet() -> None:
    experiment = config.load_training("unique_signature")
    task = stand_in("unique_signature", experiment.columns[0].options)
    found = {row.title: build(experiment, row, task, {}).parameters() for row in experiment.models}
    assert {title: sum(p.numel() for p in parameters) for title, parameters in found.items()} == {
        "SINC-GCN": 352,
        "SIR-GCN (sum)": 336,
        "SIR-GCN": 336,
        "PNA": 403,
        "GIN": 320,
        "EGC-M": 120,
        "EGC-S": 104,
    }


def test_a_row_has_its_own_columns_unless_columns_are_asked_for() -> None:
    experiment = config.load_training("unique_signature")
    cells = experiment.cells()
    of = {title: [cell[:2] for cell in cells if cell[2] == title] for title in ("SINC-GCN", "PNA")}
    assert len(of["SINC-GCN"]) == 27
    assert of["PNA"] == [(0, f"p=0.5 r={r}") for r in (3, 5, 7)]
    assert experiment.cells(["PNA"], ["p=0.3 r=3"]) == [(0, "p=0.3 r=3", "PNA")]
    with pytest.raises(ConfigError, match=r"mine: PNA: columns: expected one of n=3, got 'n=4'"):
        dataclasses.replace(experiment, name="mine", columns=(ColumnConfig("n=3", {"r": 3}),), models=(LOST,))


def test_a_newer_setting_of_the_training_leaves_older_records_current() -> None:
    old = {name for name in dataclasses.asdict(TrainConfig()) if name != "plateau_on"}
    assert TrainConfig().recorded().keys() == old
    assert TrainConfig(plateau_on="val").recorded()["plateau_on"] == "val"


SMALL = """
data = "dictionary_lookup"
columns = [{ title = "n=3", options = { n = 3 } }]
[train]
epochs = 2
[[models]]
title = "SIR-GCN"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_file_of_ones_own_is_read(tmp_path: Path) -> None:
    found = config.load_training(written(tmp_path, SMALL))
    assert (found.name, found.train.epochs, found.models[0].conv) == ("mine", 2, "sir")


def test_file_is_like_another_but_for_its_own_keys(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'like = "minesweeper"\ncolumns = [{ title = "x" }]\n[train]\nlr = 1e-2\n[[models]]\ntitle = "GCN"\n'
        'options = { num_layers = 2 }\n[[models]]\ntitle = "GIN"\nconv = "gin"\n'
    )
    (tmp_path / "other.toml").write_text('like = "mine.toml"\nseeds = 2\n')
    base = config.load_training("minesweeper")
    for name, seeds in (("mine", 10), ("other", 2)):
        found = config.load_training(tmp_path / f"{name}.toml")
        assert (found.name, found.table, found.seeds, found.data) == (name, None, seeds, "minesweeper")
        assert found.train == dataclasses.replace(base.train, lr=1e-2)
        assert [row.title for row in found.models] == [*(row.title for row in base.models), "GIN"]
        assert found.model("GCN").options == {"self_loops": True, "num_layers": 2}
        assert found.model("SIR-GCN") == base.model("SIR-GCN")
        assert [column.title for column in found.columns] == ["x"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('like = "mine.toml"', r"mine.toml: like: expected another experiment, got 'mine.toml'"),
        ("like = 3", r"mine.toml: like: expected another experiment, got 3"),
        ('like = "zink"', r"experiment: expected .*got 'zink'; did you mean zinc"),
        ('like = "none.toml"', r"none.toml: there is no such file"),
        ('like = "zinc"\nmodels = 3', r"mine.toml: models: expected a list, got 3"),
        ('like = "zinc"\n[[models]]\nconv = "gin"', r"mine.toml: models\[0\]: title is not set"),
        ('like = "bad.toml"', r"mine.toml: models: expected a list, got 3"),
        ('like = "bad.toml"\nsort = "inference"\n[timing]', r"mine.toml: models: expected a list, got 3"),
        ('like = "zinc"\nsort = "growth"\ndata = "random"', r"mine.toml: timing is not set"),
    ],
)
def test_what_cannot_be_like_another_is_refused(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "bad.toml").write_text('models = 3\ndata = "zinc"\ncolumns = []\n[train]\n')
    with pytest.raises(ConfigError, match=error):
        config.load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("epochs = 2", "epoch = 2"), r"mine.toml: train: unknown key 'epoch'; known are epochs, batch_size"),
        (("epochs = 2", 'epochs = "2"'), r"mine.toml: train: epochs: expected a whole number, got '2'"),
        (("epochs = 2", "epochs = 2.5"), r"mine.toml: train: epochs: expected a whole number, got 2.5"),
        (("epochs = 2", "epochs = true"), r"mine.toml: train: epochs: expected a whole number, got True"),
        (("epochs = 2", "epochs = 0"), r"mine.toml: train: epochs: expected at least 1, got 0"),
        (("epochs = 2", 'schedule = "step"'), r"train: schedule: expected one of none, plateau, cosine, got 'step'"),
        (("epochs = 2", "lr = 0"), r"train: lr: expected more than 0, got 0"),
        (("epochs = 2", "factor = 1"), r"train: factor: expected 0 < factor < 1, got 1"),
        (('data = "dictionary_lookup"', ""), r"mine.toml: data is not set"),
        (('title = "SIR-GCN"', "titel = 3"), r"mine.toml: models\[0\]: unknown key 'titel'; known are title, conv"),
        (('title = "SIR-GCN"', "title = 3"), r"mine.toml: models\[0\]: title: expected text, got 3"),
        (("[train]", "train = 3\n[other]"), r"mine.toml: .*train: expected a table, got 3|unknown key 'other'"),
        (("columns = [{", "columns = {"), r"mine.toml: not TOML: .*line 3"),
        (("_lookup", "_lokup"), r"mine.toml: data: expected one of .*ZINC.*got 'dictionary_lokup'.*did you mean dict"),
        (("{ n = 3 }", "{ m = 3 }"), r"mine.toml: columns\[0\]: options: expected one of n, .*got 'm'"),
        (("[train]", 'preset = "zink"\n[train]'), r"mine.toml: preset: expected one of schema, .*zinc.*got 'zink'"),
        (
            ("[train]", 'preset = "hetero_edge_count"\n[train]'),
            r"columns\[0\]: options: expected c, from which the preset",
        ),
        (('"SIR-GCN"', '"x"\nconv = "gni"'), r"mine.toml: models\[0\]: conv: expected one of sir, .*got 'gni'"),
        (('"SIR-GCN"', '"x"\nnetwork = "h3"'), r"mine.toml: models\[0\]: network: expected one of .*h2gcn.*got 'h3'"),
        (('"SIR-GCN"', '"x"\noptions = { act2 = 1 }'), r"mine.toml: models\[0\]: options: expected one of .*'act2'"),
        (('"SIR-GCN"', '"x"\ntrain = { epoch = 1 }'), r"mine.toml: x: train: unknown key 'epoch'; known are epochs"),
        (("[train]", "[reduced]\nepoch = 1\n[train]"), r"mine.toml: .*unknown key 'epoch'; known are epochs"),
        (('"SIR-GCN"', '"x"\nreduced = { epoch = 1 }'), r"mine.toml: x: reduced: unknown key 'epoch'"),
    ],
)
def test_wrong_setting_is_refused_by_file_key_and_what_is_allowed(
    tmp_path: Path, change: tuple[str, str], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        config.load(written(tmp_path, SMALL.replace(*change)))


def test_unknown_experiment_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="got 'zink'; did you mean zinc"):
        config.load("zink")
    with pytest.raises(ConfigError, match=r"nowhere\.toml: there is no such file"):
        config.load("nowhere.toml")


def test_override_changes_a_setting_and_keeps_the_results_apart() -> None:
    found = config.load_training("zinc", ["train.lr=1e-4", "train.schedule=cosine", "seeds=3"])
    assert (found.train.lr, found.train.schedule, found.seeds, found.table) == (1e-4, "cosine", 3, None)
    assert found.name == "zinc+train.lr=1e-4+train.schedule=cosine+seeds=3"


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("train.lr", "--set: expected KEY=VALUE"),
        ("train.rate=1", "unknown key 'rate'"),
        ("data.name=x", "--set data.name=x: data is not a table"),
        ("train.lr=fast", "lr: expected a number, got 'fast'"),
    ],
)
def test_wrong_override_is_refused(override: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        config.load("zinc", [override])


def test_override_holds_for_rows_and_the_reduced_form_too(tmp_path: Path) -> None:
    text = SMALL.replace("[[models]]", "[reduced]\nepochs = 1\n[[models]]") + "train = { lr = 0.5, l1 = 0.1 }\n"
    text += "reduced = { epochs = 2 }\n"
    found = config.load_training(written(tmp_path, text), ["train.lr=0.25", "train.epochs=7"])
    row = found.models[0]
    assert (found.train_for(row).lr, found.train_for(row).l1) == (0.25, 0.1)
    assert found.train_for(row, is_reduced=True).epochs == 7


def test_override_of_a_table_changes_all_its_experiments() -> None:
    found = config.of_table(4, ["train.lr=0.25"])
    assert [entry.train.lr for entry in found if isinstance(entry, TrainingExperiment)] == [0.25, 0.25]


def test_rows_may_differ_from_the_protocol_and_be_reduced() -> None:
    row = config.ModelConfig("a", train={"lr": 0.5})
    experiment = TrainingExperiment(
        "x", "d", (row,), (config.ColumnConfig("c"),), train=TrainConfig(epochs=9), reduced={"epochs": 2}
    )
    assert (experiment.train_for(row).lr, experiment.train_for(row).epochs) == (0.5, 9)
    assert experiment.train_for(row, is_reduced=True).epochs == 2
    longer = dataclasses.replace(row, reduced={"epochs": 3})
    assert experiment.train_for(longer).epochs == 9
    assert experiment.train_for(longer, is_reduced=True) == TrainConfig(epochs=3, lr=0.5)
    with pytest.raises(ConfigError, match="model: expected one of a, got 'b'"):
        experiment.model("b")


def test_titles_that_repeat_are_refused() -> None:
    row: Any = config.ModelConfig("a")
    with pytest.raises(ConfigError, match="different titles"):
        TrainingExperiment("x", "d", (row, row), (config.ColumnConfig("c"),))


OWN = """
data = "tables"
columns = [{ title = "a", options = { nodes = "%s", edges = "%s" } }]
[train]
[[models]]
title = "SIR-GCN"
"""


def paths(experiment: Experiment) -> list[str]:
    options = experiment.options_of("a")
    return [options["nodes"], options["edges"]]


def test_relative_path_starts_at_its_file_wherever_the_command_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.toml").write_text(OWN % ("nodes.csv", "../edges.csv"))
    wanted = [tmp_path / "deep" / "nodes.csv", tmp_path / "edges.csv"]
    for place, name in ((tmp_path, "deep/own.toml"), (tmp_path / "deep", "own.toml"), (Path("/"), "own.toml")):
        monkeypatch.chdir(place)
        experiment = config.load(tmp_path / "deep" / "own.toml" if place == Path("/") else name)
        assert [Path(path).resolve() for path in paths(experiment)] == wanted
        # As written, so that a record is the same wherever the command was typed.
        assert experiment.columns[0].options == {"nodes": "nodes.csv", "edges": "../edges.csv"}


def test_absolute_path_and_home_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "own.toml").write_text(OWN % (tmp_path / "n.csv", "~/e.csv"))
    assert paths(config.load(tmp_path / "own.toml")) == [f"{tmp_path}/n.csv", f"{tmp_path}/home/e.csv"]
    (tmp_path / "own.toml").write_text(OWN % ("~nobody-of-this-name/n.csv", "e.csv"))
    assert paths(config.load(tmp_path / "own.toml"))[0] == f"{tmp_path}/~nobody-of-this-name/n.csv"


def test_path_of_a_file_that_another_is_like_starts_at_its_own_file(tmp_path: Path) -> None:
    for name in ("base", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "base.toml").write_text(OWN % ("nodes.csv", "/e.csv"))
    (tmp_path / "own" / "own.toml").write_text('like = "../base/base.toml"\n[train]\nepochs = 3\n')
    nodes, edges = paths(config.load(tmp_path / "own" / "own.toml"))
    assert Path(nodes).resolve() == tmp_path / "base" / "nodes.csv"
    assert edges == "/e.csv"


def test_path_that_is_set_on_the_command_line_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own.toml").write_text(OWN % ("nodes.csv", "edges.csv"))
    monkeypatch.chdir(tmp_path)
    changed = 'columns=[{title="a", options={nodes="n.csv", edges="/e.csv"}}]'
    assert paths(config.load("deep/own.toml", [changed])) == [f"{tmp_path}/n.csv", "/e.csv"]
    kept = config.load("deep/own.toml", ["train.lr=0.1"])
    assert paths(kept) == ["deep/nodes.csv", "deep/edges.csv"]


def test_paths_are_the_options_of_own_tables_that_take_one() -> None:
    parameters = inspect.signature(load_tables).parameters
    taking = [name for name, entry in parameters.items() if entry.annotation is Any or "PathLike" in str(entry)]
    assert sorted(taking) == sorted(config.PATHS)
    # The data sets of the catalogue are below the data root.
    assert not {option for entry in DATASETS.values() for option in entry.options} & set(config.PATHS)


def test_folder_is_no_key_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('folder = "x"\n' + OWN % ("n.csv", "e.csv"))
    with pytest.raises(ConfigError, match="folder"):
        config.load(tmp_path / "own.toml")


@pytest.mark.parametrize(("value", "new"), [("runtime", "inference"), ("complexity", "growth"), ("step", "step")])
def test_former_key_of_the_sort_is_refused_with_the_new_one(tmp_path: Path, value: str, new: str) -> None:
    with pytest.raises(ConfigError, match=rf'mine.toml: kind: expected .* sort: write sort = "{new}"'):
        config.load(written(tmp_path, f'kind = "{value}"\n{SMALL}'))
    (tmp_path / "base.toml").write_text(f'kind = "{value}"\n{SMALL}')
    with pytest.raises(ConfigError, match=r"base.toml: kind: expected"):
        config.load(written(tmp_path, 'like = "base.toml"'))
    with pytest.raises(ConfigError, match=rf'zinc.toml: kind: .*sort = "{new}"'):
        config.load("zinc", [f"kind={value}"])


def test_experiment_without_a_sort_cannot_be_made_and_one_of_another_sort_is_no_training() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Experiment("x", "d", (config.ModelConfig("a"),), (config.ColumnConfig("c"),))
    with pytest.raises(ConfigError, match="zinc_step: sort: expected training, got step"):
        config.load_training("zinc_step")


def test_experiment_with_a_long_override_has_a_short_name_of_its_own() -> None:
    title = "x" * 300
    long, again, other = (
        config.load("zinc", [f'columns=[{{ title = "{name}" }}]', "train.lr=0.1"]) for name in (title, title, title[1:])
    )
    assert re.fullmatch(r"zinc\+set-[0-9a-f]{16}", long.name)
    assert long.name == again.name != other.name
    assert config.split_name(long.name) == ("zinc", [])
    (run, *_) = plan(long)
    assert header(run)["overrides"] == list(long.overrides) == [f'columns=[{{ title = "{title}" }}]', "train.lr=0.1"]


@pytest.mark.parametrize("key", ["folder", "overrides"])
def test_what_a_file_does_not_set_is_no_key_of_it(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=f"mine.toml: unknown key '{key}'"):
        config.load(written(tmp_path, f'{key} = ["x"]\n{SMALL}'))
