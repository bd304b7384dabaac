"""Memory and time: told before, measured on a few rows, and refused with advice where they do not fit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.model import FitSettings, fit
from sirgcn.model import plan as plan_room
from sirgcn.model.defaults import candidates
from sirgcn.model.plan import in_words
from sirgcn.model.resources import Memory, TooLarge, check_memory, free_memory, memory_of, seconds_per_epoch
from sirgcn.nn import build_net
from tests.model import large
from tests.model.problems import small_task
from tests.model.test_fitting import SHORT, Listening

ROOT = Path(__file__).parents[2]


def graph(nodes: int, degree: int = 4, columns: int = 8) -> Task:
    x, y = torch.randn(nodes, columns), torch.arange(nodes) % 2
    graphs = Graphs(x, torch.randint(nodes, (2, degree * nodes)), y, "node")
    return Task("any", graphs, Schema(columns, outputs=2), (Split.draw(nodes),), "cross_entropy", "accuracy")


def pass_of(task: Task, **network: Any) -> int:
    one = candidates(task)[0].with_changes(network, {})
    return memory_of(build_net(one.config), task, one.training.batch_size).pass_


def test_memory_grows_with_nodes_width_and_layers() -> None:
    whole = pass_of(graph(4_000))
    assert pass_of(graph(16_000)) == pytest.approx(4 * whole, rel=0.1)
    assert pass_of(graph(4_000), hidden_channels=128) == pytest.approx(2 * whole, rel=0.2)
    eight, sixteen = (pass_of(graph(4_000), num_layers=layers) for layers in (8, 16))
    assert sixteen == pytest.approx(2 * eight, rel=0.2)


def test_memory_of_a_pass_is_what_autograd_keeps() -> None:
    task = graph(4_000)
    one = candidates(task)[0]
    network, kept = build_net(one.config), {}
    weights = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(task.graphs.x, task.graphs.edge_index)
    told = memory_of(network, task, None).pass_
    # A backward pass adds to that, by the factor in the module.
    assert sum(kept.values()) < told < 2 * sum(kept.values())


def test_measuring_changes_neither_the_network_nor_the_random_numbers() -> None:
    task = graph(200)
    network = build_net(candidates(task)[0].config)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    torch.manual_seed(3)
    memory_of(network, task, None)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(2))
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_training_that_does_not_fit_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_room, "free_memory", lambda: 1 << 20)
    watcher = Listening()
    with pytest.raises(TooLarge, match=r"needs about 0\.\d GB of memory, and 0\.0 GB are free; take a smaller width"):
        fit(small_task("node", count=40), FitSettings("good", train=SHORT), watcher=watcher)
    assert watcher.rows == []


def test_candidate_that_does_not_fit_is_left_out_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    task = graph(2_000)
    sizes = {}
    for one in candidates(task):
        sizes[one.name] = memory_of(build_net(one.config), task, None).total
    largest = max(sizes, key=lambda name: sizes[name])
    monkeypatch.setattr(plan_room, "free_memory", lambda: sizes[largest] - 1)
    model = fit(task, FitSettings("good", train=SHORT))
    assert largest not in {row["name"] for row in model.about["trials"]}
    assert any(largest in note and "left out" in note for note in model.about["notes"])


def test_unknown_free_memory_refuses_nothing() -> None:
    check_memory(Memory(1 << 60, 0, 0), None)
    free = free_memory()
    assert free is None or free > 1 << 20


def test_epoch_is_timed_with_all_its_batches() -> None:
    task = small_task("graph", count=60)
    one = candidates(task)[0]
    prepared = one.preparation.applied(task)
    short, long = (seconds_per_epoch(build_net(one.config), prepared, TrainConfig(batch_size=size)) for size in (36, 1))
    assert long > 2 * short > 0


def test_times_are_told_in_words() -> None:
    assert [in_words(seconds) for seconds in (0.1, 59.6, 100, 5900, 7200)] == [
        "1 seconds",
        "60 seconds",
        "2 minutes",
        "98 minutes",
        "2.0 hours",
    ]


def test_hundredth_of_a_large_training_says_at_once_what_it_does_and_takes_the_memory_that_it_told() -> None:
    # The long form, with its limits, is a check of tools/soak.py. In a process of its own, because what a process
    # starts inherits its largest memory, and that of the tests is large.
    sizes = ("--nodes", "2000", "--edges", "20000", "--epochs", "2", "--no-controls")
    command = [sys.executable, "-m", "tests.model.large", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    # CPU time, which a busy machine stretches; torch alone takes longer.
    assert found["first_line_cpu_seconds"] < 2 * large.FIRST
    assert found["lines"] > 3
    assert found["bytes"] < 2 * found["bytes_told"]
