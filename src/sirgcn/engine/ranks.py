"""What a training asks of the processes that share it. `Ranks` is the answer of one process that trains alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.splits import Part
from sirgcn.data.task import Task


class Ranks:
    """One process, which trains alone: nothing is shared, and no number changes.

    The room `sirgcn.scale` has the ranks of several processes. A rank is one of these processes.

    Args:
        rank: the number of this process. Only rank 0 writes files.
        world: the number of processes.

    >>> alone = Ranks()
    >>> alone.rank, alone.world, alone.gathered(torch.ones(2))
    (0, 1, (tensor([1., 1.]),))
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world

    def joined(self, model: nn.Module, task: Task, identity: Callable[[], Any]) -> AbstractContextManager[None]:
        """A context around a training: it refuses ranks that do not train the same, and prepares the model.

        Args:
            model: the model.
            task: its data.
            identity: gives everything that decides the result of the training, as JSON values.
        """
        return nullcontext()

    def batches(
        self,
        task: Task,
        part: Part,
        batch_size: int | None,
        split: int,
        generator: torch.Generator | None = None,
        start: int = 0,
    ) -> Iterator[Data]:
        """What this rank computes of every batch of a part, see `Task.batches`."""
        return map(self.own, task.batches(part, batch_size, split, generator, start, self.share))

    def whole(self, task: Task) -> Data:
        """What this rank computes of a single graph."""
        return self.own(task.graphs.batch())

    @property
    def share(self) -> tuple[int, int]:
        """The share of this rank of the graphs of a batch, see `Task.batches`."""
        return 0, 1

    def own(self, batch: Data) -> Data:
        """What this rank computes of its share of a batch."""
        return batch

    def places(self, items: Tensor) -> Tensor:
        """The rows of `whole` that are among these items of a split."""
        return items

    def gathered(self, *rows: Tensor) -> tuple[Tensor, ...]:
        """The rows of all ranks, in the order of the ranks. Only a rank's own rows carry a gradient."""
        return rows

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace the gradient of every parameter by its sum over the ranks."""

    def seed_step(self, seed: int, epoch: int, step: int) -> None:
        """Give the random numbers of a step a stream of this rank. A process that trains alone goes on with its own."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return flag

    def agreed(self, numbers: dict[Part, tuple[float, float]]) -> dict[Part, tuple[float, float]]:
        """The numbers of rank 0, so that every rank decides the same."""
        return numbers

    def state_of_first(self, state: dict[str, Any] | None) -> dict[str, Any] | None:
        """The state that rank 0 has read from a checkpoint."""
        return state


ALONE = Ranks()
"""The ranks of a process that trains alone."""
