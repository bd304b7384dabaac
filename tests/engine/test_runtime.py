"""Times as experiments: what is measured, recorded, interrupted and resumed."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sirgcn.cli import app
from sirgcn.engine import experiment as config
from sirgcn.engine import runtime
from sirgcn.engine.estimate import expected_seconds
from sirgcn.engine.finished import unfinished
from sirgcn.engine.loop import Trainer
from sirgcn.engine.plan import Settings, plan
from sirgcn.engine.pool import run_all
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import PAUSED, execute_together
from sirgcn.engine.runtime import slope
from sirgcn.engine.timing import interleave
from sirgcn.report import compare
from sirgcn.report.claims import exponents, load_claims
from sirgcn.report.runs import read_runs
from sirgcn.strict import ConfigError
from tests.engine.standins import read_whole, stand_in
from tests.report import fake

TIMED = [name for name in config.names() if config.load(name).sort in ("inference", "growth")]
STEPS = [name for name in config.names() if config.load(name).sort == "step"]

RUNTIME = """
sort = "inference"
variant = "published"
data = "dictionary_lookup"
preset = "dictionary_lookup"
seeds = 1
columns = [
    { title = "n=10", options = { n = 3, num_graphs = 20 } },
    { title = "n=20", options = { n = 4, num_graphs = 20 } },
]
[timing]
repeats = 4
batch_size = 3
[reduced]
repeats = 2
[[models]]
title = "GCN"
conv = "gcn"
[[models]]
title = "SIR-GCN"
[[models]]
title = "GIN"
conv = "gin"
"""
GROWTH = """
sort = "growth"
data = "random"
seeds = 1
columns = [{ title = "Complexity" }]
axes = [{ title = "|V|", nodes = [2, 4, 8], edges = [4], width = [2] }]
[timing]
repeats = 3
[[models]]
title = "SIR-GCN"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "results", tmp_path / "runs", threads=1)


def load(folder: Path, text: str = RUNTIME) -> config.Experiment:
    (folder / "timed.toml").write_text(text)
    return config.load(folder / "timed.toml")


def tiny(name: str) -> config.Experiment:
    """An experiment of the package with all its models, two columns and two repetitions, on little data."""
    changes = ["timing.repeats=2", "timing.sample_seconds=0"]
    if name == "complexity":
        changes.append('axes=[{ title = "|E|", nodes = [4], edges = [2, 4, 8], width = [3] }]')
    made = config.load(name, changes)
    options = {} if name == "complexity" else {"num_graphs": 10}
    columns = [config.ColumnConfig(column.title, {**column.options, **options}) for column in made.columns[:2]]
    return replace(made, columns=tuple(columns))


@pytest.mark.parametrize("name", TIMED)
def test_experiment_of_the_package_times_every_model(name: str, settings: Settings) -> None:
    experiment = tiny(name)
    for column in experiment.columns:
        runs = plan(experiment, columns=[column.title])
        for group in [runs] if experiment.sort == "inference" else [[run] for run in runs]:
            assert execute_together(group, settings, lambda run, event, detail: None) == DONE
    found = read_whole(settings.file(experiment))
    assert len(found) == len(plan(experiment)) == 6 * len(experiment.columns)
    assert not unfinished(plan(experiment), settings)
    for record in found:
        assert record["repeats"] == 2
        assert record["environment"]["threads"] == record["config"]["timing"]["threads"] == 1
    read_runs(settings.results)


def test_every_timed_table_of_the_paper_has_its_experiment() -> None:
    assert {config.load(name).table for name in TIMED} == {6, 7, 8}
    for name in TIMED:
        experiment = config.load(name)
        (table,) = (table for table in load_claims() if table.key == experiment.table)
        assert table.sort == experiment.sort
        assert {column.title for column in experiment.columns} == {column.name for column in table.columns}
        assert {row.title for row in experiment.models} == {row.model for row in table.rows}


def test_axes_of_table_8_are_those_that_its_formulas_have_powers_of() -> None:
    experiment = config.load("complexity")
    assert isinstance(experiment, config.GrowthExperiment)
    titles = {axis.title for axis in experiment.axes}
    assert all(exponents(row.cells[0]).keys() == titles for row in load_claims()[7].rows)


def test_models_of_a_column_are_timed_in_turn_on_the_test_part(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []
    seen: list[int] = []

    def noting(runs: Any, effort: Any, on_step: Any, is_enough: Any) -> Any:
        return interleave(runs, effort, turns.append, is_enough)

    def counting(trainer: Trainer, batch: Any) -> Any:
        seen.append(batch.num_graphs)
        assert not trainer.model.training
        return predict(trainer, batch)

    predict = Trainer.predict
    monkeypatch.setattr(runtime, "interleave", noting)
    monkeypatch.setattr(Trainer, "predict", counting)
    experiment = load(tmp_path)
    runs = plan(experiment, columns=["n=10"])
    assert execute_together(runs, settings, lambda run, event, detail: None) == DONE
    names = ["SIR-GCN", "GCN", "GIN", ""]
    assert turns == [name for first in range(4) for name in (names * 2)[first : first + 4]]
    # Two passes to warm up and four that count, over four graphs in batches of three, of three models.
    assert seen == [3, 1] * 6 * 3
    found = {record["model"]: record for record in read_whole(settings.file(experiment))}
    samples = {model: record["samples"] for model, record in found.items()}
    assert samples["GCN"]["reference"] == samples["SIR-GCN"]["forward"] == samples["SIR-GCN"]["reference"]
    assert samples["GCN"]["batches"] == samples["GIN"]["batches"]
    assert {len(times) for entry in samples.values() for times in entry.values()} == {4}
    assert found["GCN"]["metrics"]["test"] == pytest.approx(np.mean(samples["GCN"]["forward"]), rel=1e-5)


STEP = """
like = "timed.toml"
sort = "step"
seeds = 1
[timing]
repeats = 4
[train]
batch_size = 3
l2 = 0.1
[[models]]
title = "GIN"
train = { lr = 0.5 }
"""


def test_training_steps_are_those_of_the_protocol_and_times_are_of_one(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, float, float]] = []

    def counting(trainer: Trainer, batch: Any) -> None:
        seen.append((batch.num_graphs, trainer.config.lr, trainer.config.l2))
        before = [p.detach().clone() for p in trainer.parameters]
        step(trainer, batch)
        assert trainer.model.training
        assert any(not p.equal(old) for p, old in zip(trainer.parameters, before, strict=True))

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", counting)
    load(tmp_path)
    (tmp_path / "steps.toml").write_text(STEP)
    experiment = config.load(tmp_path / "steps.toml")
    assert execute_together(plan(experiment, ["GIN"], ["n=10"]), settings, lambda *_: None) == DONE
    # Two passes to warm up and four that count, over the first four batches of three graphs, of SIR-GCN and GIN.
    assert sorted(seen) == [(3, 1e-3, 0.1)] * 24 + [(3, 0.5, 0.1)] * 24
    (run,) = read_runs(settings.results)
    assert (run.metric, len(run.ratios()), run.config["train"]["lr"], run.is_step) == ("step_seconds", 4, 0.5, True)
    assert run.value == pytest.approx(np.mean(run.times("forward")), rel=1e-5)


def test_time_of_a_step_is_that_of_a_pass_over_the_number_of_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_interleaved", lambda runs, *_: {name: [12.0, 24.0] for name in runs})
    load(tmp_path)
    (tmp_path / "steps.toml").write_text(STEP)
    experiment = config.load(tmp_path / "steps.toml")
    assert isinstance(experiment, config.TimingExperiment)
    task = stand_in("dictionary_lookup", {"n": 3})
    found = runtime.time_passes(
        experiment, experiment.columns[0], experiment.models, task, runtime.Stopwatch(experiment.timing)
    )
    # Eight training graphs in batches of three.
    assert {tuple(fields["samples"]["forward"]) for fields in found} == {(4.0, 8.0)}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_every_model_of_an_experiment_are_timed(name: str) -> None:
    experiment, base = config.load(name), config.load_training(name.removesuffix("_step"))
    assert isinstance(experiment, config.TimingExperiment)
    assert (experiment.train, experiment.data, experiment.table) == (base.train, base.data, None)
    # CPGNN begins with its prior alone, of which a step would say little.
    past = {row.title: {"pretraining": 0} for row in base.models if row.network == "cpgnn"}
    expected = [replace(row, reduced={}, options=row.options | past.get(row.title, {})) for row in base.models]
    assert expected == list(experiment.models)
    column = experiment.columns[0]
    timing = replace(experiment.timing, repeats=1, least=1)
    task = stand_in(experiment.data, column.options)
    found = runtime.time_passes(experiment, column, experiment.models, task, runtime.Stopwatch(timing))
    assert len(found) == len(base.models)
    assert all(fields["metrics"]["test"] > 0 for fields in found)


def test_steps_of_the_package_s_experiments_are_one_table() -> None:
    timed: dict[str, Any] = {"table": None, "metric": "step_seconds", "higher_is_better": False, "history": []}
    timed |= {"config": {"train": {}, "timing": {}}}
    runs = [
        fake.run(**timed, experiment=name, column=title, model=model)
        for name, title in (("zinc_step", "ZINC"), ("tolokers_step", "tolokers"), ("mine_step", "mine"))
        for model in ("SIR-GCN", "GCN")
    ]
    *_, steps, own = compare(runs)
    assert (steps.table.title, [column.heading for column in steps.columns]) == (
        "Training steps",
        ["ZINC ↓", "tolokers ↓"],
    )
    assert [cell.command for cell in steps.cells if cell.model == "GCN"] == [
        "sirgcn reproduce zinc_step --models GCN --columns ZINC",
        "sirgcn reproduce tolokers_step --models GCN --columns tolokers",
    ]
    assert own.table.title == "mine_step"
    assert {comparison.table.sort for comparison in (steps, own)} == {"step"}


def test_one_model_alone_is_timed_beside_the_reference(tmp_path: Path, settings: Settings) -> None:
    experiment = load(tmp_path)
    assert execute_together(plan(experiment, ["GIN"], ["n=10"]), settings, lambda *_: None) == DONE
    (record,) = read_whole(settings.file(experiment))
    assert record["model"] == "GIN"
    assert record["samples"]["reference"] != record["samples"]["forward"]
    (run,) = read_runs(settings.results)
    assert len(run.ratios()) == 4


def test_interrupted_table_keeps_its_finished_columns_and_goes_on(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(tmp_path)
    first, second = (plan(experiment, columns=[title]) for title in ("n=10", "n=20"))
    assert execute_together(first, settings, lambda *_: None) == DONE
    asked = iter([False] * 6 + [True] * 100)
    assert execute_together(second, settings, lambda *_: None, lambda: next(asked)) == PAUSED
    assert next(asked) is True
    assert [run.column for run in unfinished(plan(experiment), settings)] == ["n=20"] * 3
    late = Settings(settings.results, settings.work, threads=1, deadline=time.time() - 1)
    left = unfinished(plan(experiment), settings)
    assert set(run_all(left, late).values()) == {PAUSED}
    events: list[tuple[str, str]] = []
    outcome = run_all(left, settings, listeners=[lambda run, event, detail: events.append((run.model, event))])
    assert outcome == dict.fromkeys(left, DONE)
    assert sorted(events) == sorted((run.model, event) for run in left for event in ("start", "done"))
    assert not unfinished(plan(experiment), settings)
    assert expected_seconds(plan(experiment), settings) == [
        record["seconds"] for record in read_whole(settings.file(experiment))
    ]


def test_failure_is_recorded_for_every_model_of_the_column(tmp_path: Path, settings: Settings) -> None:
    experiment = load(
        tmp_path, RUNTIME.replace('conv = "gin"', 'conv = "gin"\noptions = { encoder = "none", block = "skip" }')
    )
    assert execute_together(plan(experiment, columns=["n=10"]), settings, lambda *_: None) == FAILED
    found = read_whole(settings.file(experiment))
    assert [record["status"] for record in found] == [FAILED] * 3
    assert "encoder: " in found[0]["error"]


def test_timed_runs_are_not_made_two_at_a_time(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(ValueError, match="jobs: expected 1 for timed, whose runs are timed, got 2"):
        run_all(plan(load(tmp_path)), settings, jobs=2)


def test_reduced_timing_is_recorded_as_one(tmp_path: Path, settings: Settings) -> None:
    experiment = load(tmp_path)
    assert execute_together(plan(experiment, columns=["n=10"], reduced=True), settings, lambda *_: None) == DONE
    found = read_whole(settings.file(experiment))
    assert {(record["reduced"], record["repeats"]) for record in found} == {(True, 2)}
    assert len(unfinished(plan(experiment, columns=["n=10"]), settings)) == 3


def test_measuring_ends_after_its_seconds_but_not_before_the_least_repetitions() -> None:
    calls: list[int] = []
    timing = config.TimingConfig(repeats=50, least=3, seconds=0.0)
    samples = runtime._interleaved({"a": lambda: calls.append(1), "b": lambda: None}, timing, lambda: False)
    assert {name: len(found) for name, found in samples.items()} == {"a": 3, "b": 3}
    assert len(calls) == 2 + 3


def test_cpu_clock_leaves_out_what_is_not_computed() -> None:
    runs = {"sleeps": lambda: time.sleep(0.02)}
    wall, cpu = (
        runtime._interleaved(runs, config.TimingConfig(repeats=3, clock=clock), lambda: False)["sleeps"]
        for clock in ("wall", "cpu")
    )
    assert min(wall) >= 0.02
    assert max(cpu) < 0.01


@given(
    exponent=st.floats(-1, 3),
    factor=st.floats(1e-9, 1e3),
    start=st.integers(1, 100),
    count=st.integers(3, 8),
)
def test_slope_of_a_power_law_is_its_exponent(exponent: float, factor: float, start: int, count: int) -> None:
    sizes = [start * 2**place for place in range(count)]
    found, error = slope(sizes, [factor * size**exponent for size in sizes])
    assert found == pytest.approx(exponent, abs=1e-6)
    assert error < 1e-6


def test_slope_of_noisy_times_lies_within_its_spread() -> None:
    rng = np.random.default_rng(0)
    sizes = 2.0 ** np.arange(10)
    within = 0
    for _ in range(200):
        found, error = slope(list(sizes), list(sizes**1.5 * np.exp(0.1 * rng.standard_normal(10))))
        within += abs(found - 1.5) < 2 * error
    # Student's t with 8 degrees of freedom: 92 per cent lie within two standard errors.
    assert 0.86 * 200 < within < 0.98 * 200


def test_slope_that_bends_has_a_wide_spread() -> None:
    sizes = [1.0, 10.0, 100.0, 1000.0]
    found, error = slope(sizes, [size + size**2 / 10 for size in sizes])
    assert 1 < found < 2
    assert error > 0.05


@pytest.mark.parametrize("sizes", [[1.0, 2.0], [1.0, 1.0, 1.0], [1.0, 2.0, 2.0]])
def test_slope_needs_three_sizes(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="three sizes or more"):
        slope(sizes, sizes)


def test_growth_is_fitted_to_the_median_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = [3.0, 1.0, 2.0]

    def known(runs: Any, timing: Any, should_stop: Any) -> dict[str, list[float]]:
        return {name: [nodes * extra for extra in made] for name, nodes in zip(runs, (2, 4, 8), strict=True)}

    monkeypatch.setattr(runtime, "_interleaved", known)
    experiment = load(tmp_path, GROWTH)
    assert isinstance(experiment, config.GrowthExperiment)
    found = runtime.time_growth(experiment, experiment.models[0], runtime.Stopwatch(experiment.timing))
    assert found["samples"]["|V|"]["seconds"] == [4.0, 8.0, 16.0]
    assert found["metrics"]["|V|"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "change", "error"),
    [
        (RUNTIME, ("[timing]", "[train]"), r"timed.toml: train: an experiment of the sort inference has none"),
        (RUNTIME, ("[timing]\nrepeats = 4\nbatch_size = 3\n", ""), r"timed.toml: timing is not set"),
        (RUNTIME, ('sort = "inference"', ""), r"timed.toml: train is not set"),
        (RUNTIME, ('conv = "gin"', 'conv = "gin"\nreduced = { epochs = 2 }'), r"GIN: reduced: expected none"),
        (RUNTIME, ('sort = "inference"', 'sort = "run"'), r"sort: expected one of training, inference, step, growth"),
        (RUNTIME, ('sort = "inference"', 'sort = "step"'), r"timed.toml: train is not set"),
        (RUNTIME, ("repeats = 4", "repeats = 0"), r"timing: repeats: expected at least 1, got 0"),
        (RUNTIME, ("repeats = 4", 'clock = "cpu"\nthreads = 2'), r'clock: expected "wall" for 2 threads'),
        (RUNTIME, ("repeats = 4", 'reference = "MLP"'), r"model: expected one of GCN, SIR-GCN, GIN, got 'MLP'"),
        (RUNTIME, ('data = "dictionary_lookup"', 'data = "random"'), r'data: expected "random" for the sort growth'),
        (GROWTH, ("nodes = [2, 4, 8]", "nodes = [2, 4]"), r"\|V\|: expected one of nodes, edges, width with three"),
        (GROWTH, ("edges = [4]", "edges = [4, 5]"), r"\|V\|: expected one of nodes, edges, width with three sizes"),
        (GROWTH, ("edges = [4]", "edges = [0]"), r"\|V\|: expected one of nodes, edges, width with three sizes"),
        (GROWTH, ('sort = "growth"', 'sort = "inference"'), r"axes: an experiment of the sort inference has none"),
    ],
)
def test_wrong_setting_of_a_timing_is_refused(tmp_path: Path, text: str, change: tuple[str, str], error: str) -> None:
    assert change[0] in text
    with pytest.raises(ConfigError, match=error):
        load(tmp_path, text.replace(*change))


def test_cells_of_what_was_timed_are_the_means_and_the_ratios_of_its_samples(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "results", tmp_path / "runs", threads=1)
    experiment = load(tmp_path, RUNTIME.replace('sort = "inference"', 'sort = "inference"\ntable = 6'))
    execute_together(plan(experiment, columns=["n=10"]), settings, lambda *_: None)
    samples = {record["model"]: record["samples"] for record in read_whole(settings.file(experiment))}
    comparison = compare(read_runs(settings.results))[5]
    cell = next(cell for cell in comparison.cells if (cell.model, cell.column.name) == ("GIN", "n=10"))
    forward, reference = (np.array(samples["GIN"][what]) for what in ("forward", "reference"))
    assert cell.mean == pytest.approx(forward.mean())
    assert cell.std == pytest.approx(forward.std(ddof=1))
    assert cell.ratios[1] == pytest.approx(np.median(forward / reference))


def test_command_line_times_a_column_as_json_and_refuses_other_threads(tmp_path: Path) -> None:
    load(tmp_path)
    places = ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "runs")]
    command = ["reproduce", str(tmp_path / "timed.toml"), "--columns", "n=20", "--json", *places]
    outcome = CliRunner().invoke(app, command, catch_exceptions=False)
    assert outcome.exit_code == 0
    found = json.loads(outcome.stdout)
    assert [(record["model"], record["column"]) for record in found] == [
        (model, "n=20") for model in ("GCN", "SIR-GCN", "GIN")
    ]
    with pytest.raises(ValueError, match=r"--threads: timed is timed on 1; --set timing.threads=2 and timing"):
        CliRunner().invoke(app, [*command, "--threads", "2"], catch_exceptions=False)
    with pytest.raises(ValueError, match="--jobs: expected 1 for timed, whose runs are timed, got 2"):
        CliRunner().invoke(app, [*command, "--jobs", "2", "--dry-run"], catch_exceptions=False)
