"""Neighbour sampling without pyg-lib, behind PyG's `BaseSampler`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from sirgcn.ops import Neighbors
from sirgcn.ops.checks import check_range
from sirgcn.ops.sampling import seed_of, uses_c
from sirgcn.scale.growth import Growth, Sampled, grow
from sirgcn.scale.stores import ONE, EdgeType, Stores, stores_of
from sirgcn.strict import check_name, read

SUBGRAPHS = ("directional", "bidirectional", "induced")
"""Which edges a sampled graph has: those that were drawn, those in both directions, or all between its nodes."""


class NeighborSampler(BaseSampler):
    r"""Draws a few neighbours of every node, hop by hop, and needs no other package than PyG itself.

    It stands wherever PyG takes a sampler: in `NodeLoader`, `LinkLoader`, `NeighborLoader(neighbor_sampler=...)` and
    `LinkNeighborLoader(neighbor_sampler=...)`. Every draw is a hash of the seed, the epoch, the hop, the type of the
    edges and the node. So a batch is the same for any number of threads, workers and ranks, and it can be drawn again.
    Call `set_epoch` before every epoch; otherwise every epoch sees the same sample.

    Args:
        data: PyG's `Data` or `HeteroData`, a pair of a feature store and a graph store, `Neighbors` or a `DiskGraph`.
        num_neighbors: how many neighbours of a node are drawn in each hop, -1 for all; or such a list for every type
            of edges, or PyG's `NumNeighbors`.
        replace: draw with replacement; a node with any neighbour then has as many edges as its fan-out.
        disjoint: let every seed grow a tree of its own, see `batch` of the output. Nodes of different trees are drawn
            independently.
        subgraph_type: `"directional"` keeps the edges that were drawn; `"bidirectional"` adds their reverse;
            `"induced"` takes all edges between the sampled nodes.
        seed: the seed of all draws.
        backend: `"native"` or `"torch"`, which give equal samples; None chooses the native code where there is one.

    >>> from torch_geometric.data import Data
    >>> from torch_geometric.loader import NodeLoader
    >>> ring = Data(x=torch.eye(6), edge_index=torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]))
    >>> batch = next(iter(NodeLoader(ring, NeighborSampler(ring, [1, 1]), input_nodes=torch.tensor([0]))))
    >>> batch.n_id.tolist(), batch.num_sampled_nodes, batch.num_sampled_edges
    ([0, 5, 4], [1, 1, 1], [1, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | NumNeighbors,
        replace: bool = False,
        disjoint: bool = False,
        subgraph_type: str = "directional",
        seed: int = 0,
        backend: str | None = None,
    ) -> None:
        check_name("subgraph_type", getattr(subgraph_type, "value", subgraph_type), SUBGRAPHS, exact=True)
        uses_c(backend)
        self.subgraph_type = str(getattr(subgraph_type, "value", subgraph_type))
        self.replace, self.disjoint = read(bool, replace, "replace"), read(bool, disjoint, "disjoint")
        self.seed, self.backend = read(int, seed, "seed"), backend
        self.stores: Stores = stores_of(data)
        self.fanouts = _fanouts(num_neighbors, self.stores)
        self._degrees: dict[EdgeType, tuple[Tensor, Tensor]] = {}
        # Shared, so that workers that outlive an epoch see the next one.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    @property
    def is_hetero(self) -> bool:
        """Whether the graph has several types of nodes or edges."""
        return self.stores.is_hetero

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The number of nodes, or of nodes of every type."""
        return self.stores.num_nodes if self.is_hetero else self.stores.num_nodes[""]

    @property
    def edge_permutation(self) -> None:
        """None: edges have their numbers in the input already."""
        return None

    @property
    def epoch(self) -> int:
        """The epoch whose samples are drawn."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draw the samples of another epoch from now on, also in workers that run already."""
        self._epoch[0] = read(int, epoch, "epoch")

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """The sampled graph around seed nodes, see PyG's `BaseSampler`."""
        return self._finished(node_sample(index, self._sample))

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None, **kwargs: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The sampled graph around both ends of seed edges, see PyG's `BaseSampler`.

        Negative edges are drawn by PyG, from a seed that depends on the epoch and on the seed edges.
        """
        if index.time is not None:
            raise ValueError("edge_label_time: sampling by time is not supported, expected None")
        ends = seed_of(self.seed, self.epoch, *_ends_of(index))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(ends)
            out = edge_sample(index, self._sample, self.num_nodes, self.disjoint, None, neg_sampling)
        return self._finished(out)

    def neighbors(self, batch: Any, edge_type: EdgeType | None = None) -> Neighbors:
        """The edges of a batch with the degrees of the whole graph, for `SIRConv` and `SIRNet`.

        Sums, means and symmetric means over the sample then have the expected value of those over all neighbours, see
        `Neighbors.sampled_from`. The maximum over a sample is biased.

        Args:
            batch: what a loader gave, with `edge_index` and `n_id`.
            edge_type: the type of the edges, where there are several.

        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NodeLoader
        >>> star = Data(x=torch.eye(4), edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]))
        >>> sampler = NeighborSampler(star, [2])
        >>> batch = next(iter(NodeLoader(star, sampler, input_nodes=torch.tensor([0]))))
        >>> sampler.neighbors(batch).weights("sum", torch.float32)[0].tolist()
        [1.5, 1.0, 1.0]
        """
        if self.subgraph_type != "directional":
            raise ValueError(
                f"subgraph_type: the expected value is known where only drawn edges are kept; expected directional, "
                f"got {self.subgraph_type}"
            )
        edge_type = ONE if edge_type is None else edge_type
        check_name("edge_type", edge_type, self.stores.edges, exact=True)
        store = batch if edge_type == ONE else batch[edge_type]
        source, target = (batch if edge_type == ONE else batch[name] for name in (edge_type[0], edge_type[2]))
        size = len(source.n_id), len(target.n_id)
        into, out = self.degrees(edge_type)
        graph = Neighbors.from_edge_index(store.edge_index, size)
        device = store.edge_index.device
        return graph.sampled_from(into[target.n_id.cpu()].to(device), out[source.n_id.cpu()].to(device))

    def degrees(self, edge_type: EdgeType = ONE) -> tuple[Tensor, Tensor]:
        """The in-degree of every target and the out-degree of every source in the whole graph.

        >>> from torch_geometric.data import Data
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> [degree.tolist() for degree in NeighborSampler(path, [1]).degrees()]
        [[0, 1, 1], [1, 1, 0]]
        """
        if edge_type not in self._degrees:
            edges = self.stores.edges[edge_type]
            self._degrees[edge_type] = edges.in_degree().long(), edges.out_degree()
        return self._degrees[edge_type]

    def _sample(self, seed: Any, seed_time: Any = None, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """What PyG's `node_sample` and `edge_sample` call: a graph around seeds, one tensor or one for each type."""
        times = seed_time.values() if isinstance(seed_time, dict) else [seed_time]
        if any(time is not None for time in times):
            raise ValueError("input_time: sampling by time is not supported, expected None")
        seeds = seed if isinstance(seed, dict) else {"": seed}
        for name, nodes in seeds.items():
            check_name("input_nodes: type", name, self.stores.num_nodes, exact=True)
            check_range(nodes, self.stores.num_nodes[name], "input_nodes[{}]", "the number of nodes")
        growth = Growth(self.fanouts, self.replace, self.disjoint, self.subgraph_type == "induced", self.backend)
        found = grow(self.stores, {name: nodes.long() for name, nodes in seeds.items()}, growth, self._seed())
        return _hetero(found) if self.is_hetero else _homogeneous(found)

    def _seed(self) -> int:
        return seed_of(self.seed, self.epoch)

    def _finished(self, out: SamplerOutput | HeteroSamplerOutput) -> SamplerOutput | HeteroSamplerOutput:
        return out.to_bidirectional() if self.subgraph_type == "bidirectional" else out

    def __repr__(self) -> str:
        nodes = sum(self.stores.num_nodes.values())
        edges = sum(edges.num_edges for edges in self.stores.edges.values())
        return f"{type(self).__name__}(num_nodes={nodes}, num_edges={edges}, num_neighbors={self.fanouts})"


def _fanouts(given: Any, stores: Stores) -> dict[EdgeType, list[int]]:
    """The fan-outs of every type of edges, one for each hop."""
    numbers = given if isinstance(given, NumNeighbors) else _num_neighbors(given, stores.is_hetero)
    found = numbers.get_values(list(stores.edges)) if stores.is_hetero else {ONE: numbers.get_values()}
    return {
        kind: _checked_fanouts(fanouts, f" of {kind}" if stores.is_hetero else "")
        for kind, fanouts in cast(dict[EdgeType, list[int]], found).items()
    }


def _num_neighbors(given: Any, is_hetero: bool) -> NumNeighbors:
    if isinstance(given, Mapping):
        if not is_hetero:
            raise TypeError("num_neighbors: expected a list, since the graph has one type of edges, got a mapping")
        return NumNeighbors(dict(given))
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"num_neighbors: expected a list of whole numbers or one for every type, got {given!r}")
    return NumNeighbors(list(given))


def _checked_fanouts(fanouts: Sequence[Any], of_kind: str) -> list[int]:
    for hop, fanout in enumerate(fanouts):
        where = f"num_neighbors[{hop}]{of_kind}"
        if read(int, fanout, where) < -1:
            raise ValueError(f"{where}: expected -1 for all neighbours, or at least 0, got {fanout}")
    return [int(fanout) for fanout in fanouts]


def _ends_of(index: EdgeSamplerInput) -> tuple[int, int, int]:
    """Numbers that tell batches of seed edges apart."""
    if not len(index.row):
        return 0, 0, 0
    return (
        len(index.row),
        seed_of(int(index.row[0]), int(index.col[0])),
        seed_of(int(index.row[-1]), int(index.col[-1])),
    )


def _homogeneous(found: Sampled) -> SamplerOutput:
    return SamplerOutput(
        node=found.node[""],
        row=found.row[ONE],
        col=found.col[ONE],
        edge=found.edge[ONE],
        batch=None if found.tree is None else found.tree[""],
        num_sampled_nodes=None if found.num_nodes is None else found.num_nodes[""],
        num_sampled_edges=None if found.num_edges is None else found.num_edges[ONE],
    )


def _hetero(found: Sampled) -> HeteroSamplerOutput:
    return HeteroSamplerOutput(
        node=found.node,
        row=found.row,
        col=found.col,
        edge=dict(found.edge),
        batch=found.tree,
        num_sampled_nodes=found.num_nodes,
        num_sampled_edges=found.num_edges,
    )
