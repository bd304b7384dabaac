"""A graph that is split: what an aggregation over it adds up lies in several places."""

from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.neighbors import Grouping, Neighbors

_ONLY_SUMS = (
    "neighbors: the edges of this graph are split, and only sums of messages add up over its parts; "
    "expected a layer that sums over the neighbours (SIRConv with sum, mean, sym or sym_in; GCN, GraphSAGE, GIN), "
    "got one that reads single edges"
)


class Messages(NamedTuple):
    """The messages that are summed, with the names of the arguments of `sir_aggregate`."""

    query: Tensor
    key: Tensor
    edge: Tensor | tuple[Tensor, Tensor] | None
    edge_weight: Tensor | None
    activation: str | Activation
    reduce: str
    backend: str | None
    value: Tensor | None


class SplitNeighbors(Neighbors):
    """A graph some of whose sources are elsewhere, as on a rank that owns a part of the nodes.

    `sir_aggregate` leaves the sum over the edges to `aggregate`. A layer gets the rows of the `num_targets` nodes that
    are here, and sees a graph of these nodes with `num_edges` edges. Nothing else can be read from the graph.

    Args:
        num_nodes: the number of nodes that are here.
        num_edges: the number of edges that end in them.
        device: where the rows are.
    """

    def __init__(self, num_nodes: int, num_edges: int, device: torch.device) -> None:
        # The fields of the frozen class that hold edges are replaced by properties below.
        for name, value in (("num_sources", num_nodes), ("num_targets", num_nodes), ("_edges", num_edges)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_device", device)

    def aggregate(self, messages: Messages) -> Tensor:
        """The sum of messages over the neighbourhoods of the nodes that are here."""
        raise NotImplementedError

    def with_self_loops(self) -> "SplitNeighbors":
        """The graph with a self-loop at every node that has none."""
        raise NotImplementedError

    @property
    def num_edges(self) -> int:
        """The number of edges that end in the nodes that are here."""
        edges: int = self.__dict__["_edges"]
        return edges

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        device: torch.device = self.__dict__["_device"]
        return device

    @property
    def edge_index(self) -> Tensor:
        """Not to be had: a source may be elsewhere."""
        _refuse()

    @property
    def by_target(self) -> Grouping:
        """Not to be had."""
        _refuse()

    @property
    def by_source(self) -> Grouping:
        """Not to be had."""
        _refuse()

    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """Not to be had: every part of the graph has its own."""
        _refuse()

    def check_frozen(self) -> None:
        """Nothing to check: the parts check themselves."""

    def to(self, *args: Any, **kwargs: Any) -> "SplitNeighbors":
        """The graph itself, which stays where its rows are."""
        return self


def _refuse() -> NoReturn:
    raise ValueError(_ONLY_SUMS)
