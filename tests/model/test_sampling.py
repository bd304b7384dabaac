"""Graphs whose passes do not fit into the memory: trained on samples, evaluated and predicted layer by layer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from sirgcn import cli
from sirgcn.data.tables import apply_tables
from sirgcn.model import FitSettings, fit, load
from sirgcn.model import plan as plan_room
from sirgcn.model.defaults import candidates
from sirgcn.model.plan import Limits, make_plan
from sirgcn.model.resources import BASE, TooLarge
from sirgcn.model.sampling import bounded, why_not
from sirgcn.model.seen import see
from sirgcn.model.trials import Workshop
from sirgcn.strict import ConfigError
from tests.model.problems import small_task
from tests.model.test_fitting import SHORT
from tests.model.test_resources import graph

# More than the base of a process, and less than passes over the graphs of these tests need besides.
SMALL = BASE + 25_600_000


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    return found.exit_code, found.output


def test_command_trains_on_samples_says_so_and_predicts_exactly(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    size = rng.normal(size=2_500)
    nodes = pd.DataFrame({"id": range(2_500), "size": size, "label": np.where(size > 0, "yes", "no")})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges = pd.DataFrame(rng.integers(2_500, size=(10_000, 2)), columns=["source", "target"])
    edges.to_csv(tmp_path / "edges.csv", index=False)
    (tmp_path / "config.toml").write_text(
        '[data]\nnodes = "nodes.csv"\nedges = "edges.csv"\ntarget = "label"\n[train]\npreset = "fast"\n'
        f'memory = "{SMALL / 1e6}MB"\ntrain = {{ epochs = 2, warmup = 0, batch_size = 750 }}\n'
    )
    code, told = run("train", tmp_path / "config.toml", "-o", tmp_path / "model", "--no-controls")
    assert code == 0
    assert "passes over the whole graph need about" in told
    assert "trained on samples of 10, 5, 5 neighbours per hop, 750 nodes at a time" in told
    assert not (tmp_path / "model.work").exists()
    model = load(tmp_path / "model")
    assert model.about["plan"]["working_set"] > 0
    assert model.about["evaluation"]["scores"]["accuracy"]["value"] > 0.7
    files = (tmp_path / "nodes.csv", tmp_path / "edges.csv")
    code, _ = run(
        "predict", tmp_path / "model", *files, "-o", tmp_path / "found.parquet", "--memory", f"{BASE / 1e6 + 80}MB"
    )
    assert code == 0
    assert model.preprocessing is not None
    whole = model.outputs(apply_tables(model.preprocessing, *files).graphs)
    assert model.calibration is not None
    expected = model.calibration.probabilities(whole)[:, 1].numpy()
    assert pd.read_parquet(tmp_path / "found.parquet")["probability_yes"].to_numpy() == pytest.approx(
        expected, abs=1e-5
    )
    # What lay between two layers is gone.
    names = {"nodes.csv", "edges.csv", "config.toml", "model", "found.parquet"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_what_cannot_be_sampled_is_refused_with_the_reason_and_advice() -> None:
    task = small_task("graph", count=40)
    with pytest.raises(TooLarge, match=r"0\.1 GB are given; take a smaller width.*labels of many graphs"):
        fit(task, FitSettings("fast", train=SHORT, memory="100MB"))
    with pytest.raises(TooLarge, match="labels of edges"):
        fit(small_task("edge"), FitSettings("fast", train=SHORT, memory="100MB"))
    one = candidates(graph(40))[0]
    reason = why_not(one.with_changes({"virtual_node": True}, {}), graph(40))
    assert reason is not None
    assert "virtual node" in reason
    with pytest.raises(ConfigError, match="memory: expected a text such as '4GB'"):
        FitSettings(memory="much")


def test_only_the_nodes_of_one_graph_are_predicted_within_a_memory(tmp_path: Path) -> None:
    task = small_task("graph", count=40)
    model = fit(task, FitSettings("fast", train=SHORT))
    with pytest.raises(ConfigError, match="memory: expected a model for the nodes of one graph"):
        bounded(model, task.graphs, "1GB", tmp_path)
    nodes = graph(60)
    found = fit(nodes, FitSettings("fast", train=SHORT))
    with pytest.raises(TooLarge, match=r"0\.6 GB are given"):
        bounded(found, nodes.graphs, BASE + 1_000_000, tmp_path)
    within = bounded(found, nodes.graphs, "1GB", tmp_path)
    assert torch.allclose(within.outputs(nodes.graphs), found.outputs(nodes.graphs), atol=1e-5)


def test_resumed_fit_stays_on_samples_when_more_memory_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = graph(2_500)
    one = replace(candidates(task)[0], name="one")
    plans = []
    for free in (SMALL, 64 << 30):
        monkeypatch.setattr(plan_room, "free_memory", lambda free=free: free)
        plans.append(make_plan(Workshop(see(task), tmp_path), [one], Limits()))
    assert plans[0].candidates == plans[1].candidates
    assert plans[0].candidates[0].fanouts == (10, 5, 5)
