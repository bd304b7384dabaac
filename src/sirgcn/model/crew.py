"""The ranks of one fit: rank 0 leads and writes, and the others train what it says."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from sirgcn.data.task import Task
from sirgcn.engine.ranks import Ranks
from sirgcn.scale import DataParallel, Partitioned, SampledTask, part_nodes


class Crew:
    """The ranks that share the trainings of a fit. All of them are in the process group of torch.distributed.

    Args:
        memory_bound: on a partitioned graph, whether the halo comes from one rank after another, see `HaloGraph`.
        group: all ranks; None asks torch.distributed.

    >>> Crew(group=DataParallel(rank=1, world=2)).leads
    False
    """

    def __init__(self, memory_bound: bool = False, group: DataParallel | None = None) -> None:
        self.memory_bound = memory_bound
        self.group = DataParallel() if group is None else group
        self._parts: dict[int, Tensor] = {}
        self._told: set[int] = set()

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.group.rank == 0

    def tell(self, what: dict[str, Any] | None) -> None:
        """Called by rank 0: tell the others what is trained next; None ends their work."""
        self.group.state_of_first(what)

    def heard(self) -> dict[str, Any] | None:
        """Called by the others: what rank 0 tells."""
        return self.group.state_of_first(None)

    def ranks_for(self, task: Task, channels: int, say: Callable[[str], None]) -> Ranks:
        """The ranks for a training: they share the graphs or seeds of a batch, or own the nodes of one graph.

        Args:
            task: its data.
            channels: the width of a layer, to tell what each rank holds and sends.
            say: called with what each rank owns.
        """
        if task.over == "graphs" or isinstance(task, SampledTask):
            return self.group
        graphs = task.graphs
        key = id(graphs.edge_index)
        if key not in self._parts and task.over == "nodes":
            self._parts[key] = part_nodes(graphs.edge_index, graphs.num_nodes, self.group.world)
        ranks = Partitioned(task, self._parts.get(key), self.memory_bound, self.group.rank, self.group.world)
        if channels not in self._told:
            self._told.add(channels)
            say(ranks.report(channels))
        return ranks
