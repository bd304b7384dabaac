"""Training on one graph whose nodes are owned by several ranks."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.graphs import sha256_of
from sirgcn.data.task import Task
from sirgcn.nn import PositionalEncoder, RandomFeatures, VirtualNode
from sirgcn.scale.halo import HaloGraph
from sirgcn.scale.partition import part_nodes, sizes_of
from sirgcn.scale.ranks import DataParallel, refuse_objective


class Partitioned(DataParallel):
    """The ranks of a training on one graph: each owns a part of the nodes, and computes their rows.

    A step is one pass over the whole graph, and its gradient is exact: that of one process, up to rounding. Every layer
    exchanges the key rows of the halo, see `HaloGraph`. Give the ranks to a `Trainer`, with the whole task.

    Args:
        task: a task on the nodes of one graph. All ranks have the same.
        part: the rank that owns each node, int64 `[nodes]`, as `part_nodes` gives it; None calls that function. A rank
            may own no node.
        memory_bound: whether a layer fetches the rows of one rank after another, twice, in place of all at once.
        rank: the number of this process; None reads it from torch.distributed, which must have been initialised.
        world: the number of processes.

    >>> from sirgcn.data import Graphs, Schema, Split
    >>> graph = Graphs(torch.rand(4, 2), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.tensor([0, 1, 0, 1]), "node")
    >>> task = Task("ring", graph, Schema(features=2, outputs=2), (Split.draw(4),), "cross_entropy", "accuracy")
    >>> ranks = Partitioned(task, torch.tensor([0, 0, 1, 1]), rank=0, world=2)
    >>> ranks.graph.sizes.halo
    1
    """

    def __init__(
        self,
        task: Task,
        part: Tensor | None = None,
        memory_bound: bool = False,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        super().__init__(rank, world)
        _check_task(task)
        edge_index, nodes = task.graphs.edge_index, task.graphs.num_nodes
        self.part = (
            part_nodes(edge_index, nodes, self.world) if part is None else _checked_part(part, nodes, self.world)
        )
        self.graph = HaloGraph(edge_index, self.part, self.rank, self.world, memory_bound)
        self.place = torch.full((nodes,), -1)
        self.place[self.graph.nodes] = torch.arange(len(self.graph.nodes))
        self.rows = self._own_rows(task)

    def _own_rows(self, task: Task) -> Data:
        graphs, nodes, edges = task.graphs, self.graph.nodes, self.graph.edges
        rows = {"x": nodes, "pe": nodes, "edge_attr": edges, "edge_pe": edges}
        found = {name: tensor[rows[name]] for name, tensor in graphs.tensors().items() if name in rows}
        batch = torch.zeros(len(nodes), dtype=torch.int64)
        return Data(edge_index=self.graph, batch=batch, num_graphs=1, **found)

    def report(self, channels: int, dtype: torch.dtype = torch.float32) -> str:
        """A table of what each rank owns and exchanges, for layers of this many hidden channels.

        The bytes are those of the key rows of one layer: of the own ones, of the halo's that a rank holds at a time,
        and of those that it sends.
        """
        edge_index = self.graph.whole[0]
        return sizes_of(edge_index, self.part, self.world).table(channels, dtype, self.graph.memory_bound)

    def check(self, model: nn.Module, task: Task) -> None:
        """Refuse what a partitioned graph cannot train: see the errors."""
        _check_task(task)
        refuse_objective(model)
        for module in model.modules():
            reason = _why_not(module)
            if reason is not None:
                raise ValueError(f"model: on a partitioned graph, expected no {type(module).__name__}: {reason}")
        found = {"part": sha256_of("", {"part": self.part}), "memory_bound": self.graph.memory_bound}
        self.check_alike(found)

    @property
    def share(self) -> tuple[int, int]:
        """The whole batch, which is one graph."""
        return 0, 1

    def own(self, batch: Data) -> Data:
        """The own nodes of the graph. The labelled ones of the batch are `index`; a rank may have none of them."""
        labelled = batch.get("index")
        place = self.place if labelled is None else self.place[labelled]
        is_here = place >= 0
        found = self.rows.clone("x")
        found.index, found.y = place[is_here], batch.y[is_here]
        return found

    def places(self, items: Tensor) -> Tensor:
        """The own rows that are among these nodes."""
        found = self.place[items]
        return found[found >= 0]


def _check_task(task: Task) -> None:
    if task.over != "nodes":
        raise ValueError(f"task: expected one graph with labels on its nodes, got a task over {task.over}")
    if task.unseen:
        raise ValueError("task: expected one graph for training and validation, got an inductive task")
    if task.graphs.graph_attr is not None:
        raise ValueError("task: expected no features of the whole graph (graph_attr) on a partitioned graph")


def _checked_part(part: Tensor, nodes: int, world: int) -> Tensor:
    if part.dtype != torch.int64 or part.shape != (nodes,):
        raise ValueError(f"part: expected int64 of shape [{nodes}], got {part.dtype} of shape {list(part.shape)}")
    outside = ((part < 0) | (part >= world)).nonzero()
    if len(outside):
        node = int(outside[0])
        raise ValueError(f"part[{node}]: expected 0 <= rank < {world}, got {int(part[node])}")
    return part


def _why_not(module: nn.Module) -> str | None:
    """The reason why a module would not compute on the parts what it computes on the whole graph."""
    if isinstance(module, VirtualNode):
        return "it sums over the nodes of all ranks"
    if isinstance(module, RandomFeatures):
        return "the ranks would draw the same columns"
    if isinstance(module, PositionalEncoder) and module.encoding == "laplacian":
        return "the ranks would draw different signs"
    return None
