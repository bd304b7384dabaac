"""Our side of the differences that docs/experiments.md lists between our protocol and the authors' runs."""

import math
from pathlib import Path
from statistics import pstdev, stdev

import pytest
import torch

from sirgcn.data.metrics import METRICS
from sirgcn.engine.experiment import TrainingExperiment, load
from sirgcn.engine.plan import plan
from sirgcn.report import compare
from tests.report.fake import run

PAGE = (Path(__file__).parent.parent / "docs" / "experiments.md").read_text("utf-8")
LISTED = PAGE.partition("### Where it differs from the authors' runs")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["roman_empire", "amazon_ratings", "minesweeper", "tolokers", "questions"])
def test_a_run_of_a_heterophilous_data_set_has_the_seed_of_its_split(name: str) -> None:
    assert [(made.seed, made.split) for made in plan(load(name), ["SIR-GCN"])] == [(seed, seed) for seed in range(10)]
    assert "all ten splits with seed 0" in LISTED
    experiment = load(name)
    assert isinstance(experiment, TrainingExperiment)
    assert experiment.train.precision == "float32"


def test_zinc_s_error_is_the_mean_over_graphs_and_the_sbms_accuracy_that_over_batches() -> None:
    outputs, targets = [torch.tensor([1.0, 1.0, 1.0]), torch.tensor([5.0])], [torch.zeros(3), torch.zeros(1)]
    assert METRICS["mae"](outputs, targets) == 2.0
    assert not METRICS["mae"].per_batch
    assert METRICS["class_accuracy"].per_batch
    for what in ("ZINC's error", "accuracy of PATTERN and CLUSTER", "loss of PATTERN and CLUSTER"):
        assert what in LISTED


def test_the_standard_deviation_is_the_sample_s() -> None:
    values = [0.5, 0.6, 0.9]
    (cell,) = (
        cell for cell in compare([run(seed=seed, test=test) for seed, test in enumerate(values)])[0].cells if cell.runs
    )
    assert cell.std == pytest.approx(stdev(values)) == pytest.approx(pstdev(values) * math.sqrt(3 / 2))
    assert "`ddof=0`" in LISTED
