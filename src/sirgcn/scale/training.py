"""Train a network on several ranks: of this machine, or those that torchrun has started."""

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import nn

from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Outcome, Trainer
from sirgcn.files import write_atomic
from sirgcn.nn import NetConfig, build_net
from sirgcn.scale.launch import is_under_torchrun, joined, launch
from sirgcn.scale.partitioned import Partitioned
from sirgcn.scale.ranks import DataParallel
from sirgcn.strict import Count, Size, check_fields


@dataclass(frozen=True)
class Workers:
    """How a training is shared.

    Args:
        number: the ranks on this machine. Under torchrun, its own numbers count.
        memory_bound: on a partitioned graph, whether the halo comes from one rank after another, see `HaloGraph`.
        restarts: how often killed ranks are started again. Under torchrun, `--max-restarts` says that.
        seconds: the time limit of the training; None for none.

    >>> Workers(4).restarts
    3
    """

    number: Size = 2
    memory_bound: bool = False
    restarts: Count = 3
    seconds: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass
class Trained:
    """A network after its training, with the selected weights, and the course of the training.

    >>> Trained(nn.Linear(1, 1), Outcome([], 0, "epochs", {"test": 0.5}, 1.0, [1])).outcome.metrics
    {'test': 0.5}
    """

    model: nn.Module
    outcome: Outcome


def ranks_for(task: Task, memory_bound: bool = False) -> DataParallel:
    """The ranks of this process group for a task: they share the graphs of a batch, or own the nodes of one graph.

    >>> ranks_for(None)
    Traceback (most recent call last):
    TypeError: task: expected a Task, got NoneType
    """
    if not isinstance(task, Task):
        raise TypeError(f"task: expected a Task, got {type(task).__name__}")
    return DataParallel() if task.over == "graphs" else Partitioned(task, memory_bound=memory_bound)


def train(
    config: NetConfig,
    task: Task,
    training: TrainConfig,
    workers: Workers = Workers(),  # noqa: B008 - frozen
    split: int = 0,
    seed: int = 0,
    folder: str | Path | None = None,
    every: float = 60.0,
) -> Trained:
    """Train a network on several ranks, as a `Trainer` does in one process.

    The ranks share the graphs of every batch, see `DataParallel`. If there is only one graph, they own parts of its
    nodes, see `Partitioned`; what each rank owns and exchanges is printed before. The same call works in a script that
    torchrun starts: then all of its processes are the ranks.

    Args:
        config: the network.
        task: the data, loss and metric.
        training: the protocol.
        workers: how many ranks there are, and how they share the work.
        split: the number of the task's split.
        seed: the seed of the weights and of the order of batches.
        folder: where checkpoints are kept. A later call with the same arguments, or with another number of ranks, goes
            on from there. None keeps them only as long as the call lasts. Under torchrun, a folder is needed for
            restarts.
        every: seconds between checkpoints.

    >>> from sirgcn.data import load
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> training = TrainConfig(epochs=1, batch_size=8, selection="last")
    >>> found = train(config, load("hetero_edge_count", c=2, num_graphs=20), training, Workers(2, seconds=300))
    >>> len(found.outcome.history)
    1
    """
    given = config, task, training, workers.memory_bound, split, seed, every
    if is_under_torchrun():
        with joined():
            return _trained(config, _on_rank(None if folder is None else Path(folder), *given))
    kept = tempfile.TemporaryDirectory(prefix="sirgcn-train-") if folder is None else nullcontext(str(folder))
    with kept as place:
        arguments = (Path(place), *given)
        first, *_ = launch(_on_rank_of_launch, workers.number, arguments, workers.restarts, workers.seconds)
        weights = load_safetensors((Path(place) / _WEIGHTS).read_bytes())
        return _trained(config, (first, weights))


_WEIGHTS = "weights.safetensors"


def _on_rank_of_launch(folder: Path, *given: Any) -> dict[str, Any]:
    """What a rank of `launch` does. Its weights are in a file, its course is what it returns."""
    outcome, weights = _on_rank(folder, *given)
    if dist.get_rank() == 0:
        write_atomic(folder / _WEIGHTS, dump_safetensors({name: tensor.clone() for name, tensor in weights.items()}))
    return outcome


def _on_rank(
    folder: Path | None,
    config: NetConfig,
    task: Task,
    training: TrainConfig,
    memory_bound: bool,
    split: int,
    seed: int,
    every: float,
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The course of the training and the weights at its end."""
    torch.manual_seed(seed)
    model, ranks = build_net(config), ranks_for(task, memory_bound)
    if ranks.rank == 0 and isinstance(ranks, Partitioned):
        print(ranks.report(config.block.channels), flush=True)
    checkpoints = None if folder is None else Checkpoints(folder / "checkpoints")
    outcome = Trainer(model, task, training, split, seed, checkpoints, every, ranks=ranks).run()
    return vars(outcome), model.state_dict()


def _trained(config: NetConfig, found: tuple[dict[str, Any], dict[str, torch.Tensor]]) -> Trained:
    outcome, weights = found
    model = build_net(config)
    model.load_state_dict(weights)
    return Trained(model.eval(), Outcome(**outcome))
