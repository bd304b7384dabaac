"""Settings that a user need not choose: networks and trainings that fit the data, the most promising first."""

from dataclasses import dataclass

from sirgcn.data.task import Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.network import default_config
from sirgcn.nn import NetConfig


@dataclass(frozen=True)
class Candidate:
    """A network and how it is trained.

    Args:
        name: a short name for a reader.
        config: the network.
        training: how it is trained.
    """

    name: str
    config: NetConfig
    training: TrainConfig


def candidates(task: Task) -> tuple[Candidate, ...]:
    """The settings to try for a task, the most promising first.

    >>> from sirgcn.data import load
    >>> [candidate.name for candidate in candidates(load("hetero_edge_count", c=2, num_graphs=10))]
    ['default']
    """
    batch_size = 64 if task.over == "graphs" else None
    training = TrainConfig(epochs=300, batch_size=batch_size, lr=3e-3, selection="val_metric", early_stop=50)
    return (Candidate("default", default_config(task), training),)
