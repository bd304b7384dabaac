"""Tasks whose training batches are sampled, for the engine's one training loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from sirgcn.data import Graphs, Task
from sirgcn.data.splits import Part
from sirgcn.nn import SIRNet
from sirgcn.ops import Neighbors
from sirgcn.ops.sampling import InEdges
from sirgcn.scale.budget import read_bytes
from sirgcn.scale.inputs import Inputs, inputs_of
from sirgcn.scale.layerwise import layerwise
from sirgcn.scale.sampler import NeighborSampler
from sirgcn.strict import ConfigError


@dataclass(frozen=True, eq=False)
class SampledTask(Task):
    """A task on one graph whose training batches are seed nodes, or seed edges, with sampled neighbourhoods.

    `Trainer` takes it as any other task. The parts for validation and test stay whole: they are computed by one pass
    over the graph, or by the `whole` of the trainer. A batch gives the degrees of the whole graph to `SIRConv`, so that
    its sums, means and symmetric means estimate those over all neighbours without bias; `NeighborSampler.neighbors`
    says how.

    Args:
        num_neighbors: how many neighbours are drawn in each hop, -1 for all; one hop per layer.
        seed: the seed of the draws. Every epoch has draws of its own, from the generator that orders the batches.

    >>> from torch_geometric.data import Data
    >>> from sirgcn.data import Graphs, Schema, Split
    >>> ring = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), y=torch.tensor([0, 1, 0, 1]))
    >>> split = Split(torch.tensor([0, 1, 2]), torch.tensor([3]), torch.tensor([], dtype=torch.int64))
    >>> schema = Schema(outputs=2, features=4)
    >>> task = Task("ring", Graphs.from_data(ring, "node"), schema, (split,), "cross_entropy", "accuracy")
    >>> sampled = SampledTask.of(task, [2])
    >>> [(batch.num_nodes, batch.y.tolist()) for batch in sampled.batches("train", batch_size=2)]
    [(3, [0, 1]), (2, [0])]
    """

    num_neighbors: tuple[int, ...] = (10, 10)
    seed: int = 0
    _samplers: dict[int, NeighborSampler] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, task: Task, num_neighbors: Sequence[int], seed: int = 0) -> "SampledTask":
        """A task with sampled training batches."""
        if task.over == "graphs":
            raise ConfigError(f"task: expected one graph with labels of nodes or edges, got labels over {task.over}")
        fanouts = tuple(num_neighbors)
        known = {entry.name: getattr(task, entry.name) for entry in fields(Task) if entry.init}
        # The version is part of the identity of a training, and so of its checkpoints.
        known["version"] = f"{task.version}; sampled {list(fanouts)}, seed {seed}"
        return cls(**known, num_neighbors=fanouts, seed=seed)

    def sampler(self, split: int = 0) -> NeighborSampler:
        """What draws the neighbourhoods, from the graph that training sees, see `Task.seen`."""
        graphs, place = self.seen(split)
        key = -1 if place is None else split
        if key not in self._samplers:
            edges = InEdges.of(graphs.edge_index, (graphs.num_nodes, graphs.num_nodes))
            self._samplers[key] = NeighborSampler(edges, self.num_neighbors, seed=self.seed)
        return self._samplers[key]

    def num_batches(self, part: Part, batch_size: int | None = None, split: int = 0) -> int:
        """Return the number of batches that `batches` yields."""
        items = len(self._items(part, batch_size, split))
        return min(items, 1) if batch_size is None or part != "train" else -(-items // batch_size)

    def batches(
        self,
        part: Part,
        batch_size: int | None = None,
        split: int = 0,
        generator: torch.Generator | None = None,
        start: int = 0,
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[Data]:
        """Yield the batches of a part: sampled ones for training, otherwise the whole graph.

        The arguments are those of `Task.batches`; `batch_size` is the number of seeds, and `share` a share of them.
        """
        if part != "train":
            yield from super().batches(part, batch_size, split, generator, start, share)
            return
        items, epoch = self._items(part, batch_size, split), 0
        if generator is not None:
            epoch = int(torch.randint(2**62, (), generator=generator))
            items = items[torch.randperm(len(items), generator=generator)]
        graphs, place = self.seen(split)
        seeds_of = (lambda items: items) if place is None else place.__getitem__
        for chunk in items.split(batch_size or max(1, len(items)))[start:]:
            # Set again for every batch: another loop over this task may have moved on.
            self.sampler(split).set_epoch(epoch)
            yield self._around(graphs, self.sampler(split), seeds_of(chunk.tensor_split(share[1])[share[0]]))

    def _around(self, graphs: Graphs, sampler: NeighborSampler, seeds: Tensor) -> Data:
        """The sampled batch around seed nodes, or around both ends of seed edges."""
        if self.over == "nodes":
            batch = self._sampled(graphs, sampler, seeds)
            batch.index = torch.arange(len(seeds))
        else:
            nodes, batch_pairs = graphs.edge_index[:, seeds].unique(return_inverse=True)
            batch = self._sampled(graphs, sampler, nodes)
            batch.edge_label_index = batch_pairs
            if graphs.edge_attr is not None:
                batch.edge_label_attr = graphs.edge_attr[seeds]
        batch.y = graphs.y[seeds]
        return batch

    def _sampled(self, graphs: Graphs, sampler: NeighborSampler, nodes: Tensor) -> Data:
        found = sampler.sample_from_nodes(NodeSamplerInput(None, nodes))
        assert isinstance(found, SamplerOutput)
        drawn = found.node
        into, out = sampler.degrees()
        edge_index = torch.stack([found.row, found.col])
        graph = Neighbors.from_edge_index(edge_index, len(drawn)).sampled_from(into[drawn], out[drawn])
        batch = Data(x=graphs.x[drawn], edge_index=graph, n_id=drawn, num_graphs=1)
        batch.batch = torch.zeros(len(drawn), dtype=torch.int64)
        if graphs.pe is not None:
            batch.pe = graphs.pe[drawn]
        for name in ("edge_attr", "edge_pe"):
            tensor = getattr(graphs, name)
            if tensor is not None:
                batch[name] = tensor[found.edge]
        return batch

    def whole(self) -> Task:
        """The task without sampling."""
        known = {entry.name: getattr(self, entry.name) for entry in fields(Task) if entry.init}
        return replace(Task(**known), version=self.version.rpartition("; sampled")[0])


class WholeGraph:
    """The outputs of a network for all nodes of a graph by `layerwise`: the `whole` of a `Trainer`.

    Args:
        memory: the working set, in bytes or as a text such as `"4GB"`.
        scratch: a folder for what is kept between layers; None keeps it in memory.

    >>> WholeGraph("2GB").memory
    2000000000
    """

    def __init__(self, memory: int | str = "1GB", scratch: str | Path | None = None) -> None:
        self.memory, self.scratch = read_bytes(memory), scratch
        self._known: tuple[Graphs, Inputs] | None = None

    def __call__(self, model: nn.Module, task: Task) -> Tensor:
        """One row for every node of a task."""
        if task.over != "nodes":
            raise ConfigError(
                f"whole: expected a task with labels of the nodes of one graph, got labels over {task.over}"
            )
        return self.outputs(model, task.graphs)

    def outputs(self, model: nn.Module, graphs: Graphs) -> Tensor:
        """One row for every node of a graph."""
        if self._known is None or self._known[0] is not graphs:
            # The edges are grouped once, not at every evaluation.
            self._known = graphs, inputs_of(graphs, model)
        assert isinstance(model, SIRNet)
        return layerwise(model, self._known[1], self.memory, scratch=self.scratch)
