"""`fit`: from a task to a trained model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.loop import Trainer, Watcher
from sirgcn.model.defaults import Candidate, candidates
from sirgcn.model.fitted import Member, Model
from sirgcn.model.problem import Problem
from sirgcn.model.scaling import Scaling
from sirgcn.nn import build_net
from sirgcn.strict import Count, check_fields


@dataclass(frozen=True)
class FitSettings:
    """How a model is fitted.

    Args:
        preset: `"fast"` trains the most promising settings once; `"good"` tries a few on the validation part; `"best"`
            averages several networks.
        seed: the seed of weights and batches.

    >>> FitSettings(preset="fast").seed
    0
    """

    preset: Literal["fast", "good", "best"] = "good"
    seed: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)


def fit(
    task: Task, settings: FitSettings | None = None, work: Path | None = None, watcher: Watcher | None = None
) -> Model:
    """Train a model on the first split of a task. The test part is not used.

    Args:
        task: the data.
        settings: how; default: the preset `good`.
        work: a folder for checkpoints, from which the same call goes on after a kill; None keeps none.
        watcher: called after every epoch.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> model = fit(load_tables(nodes, edges), FitSettings("fast"))
    >>> model.problem.classes
    ('x', 'y')
    """
    settings = settings or FitSettings()
    scaling = Scaling.of(task)
    scaled = task if scaling is None else scaling.apply(task)
    member = _train(scaled, candidates(task)[0], settings.seed, work, watcher)
    return Model(Problem.of(task), (member,), scaling, task.details.get("preprocessing"))


def _train(task: Task, candidate: Candidate, seed: int, work: Path | None, watcher: Watcher | None) -> Member:
    torch.manual_seed(seed)
    network = build_net(candidate.config)
    checkpoints = None if work is None else Checkpoints(work / candidate.name / str(seed))
    Trainer(network, task, candidate.training, seed=seed, checkpoints=checkpoints, watcher=watcher).run()
    return Member(candidate.config, network.eval())
