"""Sums and maxima of the neighbours' rows."""

import functools
import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sirgcn.ops.aggregate import sir_aggregate
from sirgcn.ops.calls import is_compiling, is_exporting
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import is_open
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.tiled import tiled_aggregate


def weighted_sum(
    h: Float[Tensor, "*batch sources d"],
    graph: Neighbors,
    reduce: str = "sum",
    edge_weight: Float[Tensor, " edges"] | None = None,
    backend: str | None = None,
) -> Float[Tensor, "*batch targets d"]:
    """The sum of w_uv a_u b_v h_v over N(u), where a_u b_v are the weights of a reduction of `sir_aggregate`.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1, 2], [2, 2, 0]]), 3)
    >>> weighted_sum(torch.tensor([[1.0], [2.0], [4.0]]), graph).flatten().tolist()
    [4.0, 0.0, 3.0]
    """
    return sir_aggregate(no_query(h, graph), h, graph, None, edge_weight, "identity", reduce, backend)


def no_query(h: Float[Tensor, "*batch sources d"], graph: Neighbors) -> Float[Tensor, "*batch targets d"]:
    """A query of zeros. All nodes share one row, which stays in the cache of the processor.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> no_query(torch.ones(3, 2), graph).stride()
    (0, 1)
    """
    return h.new_zeros(h.size(-1)).expand(*h.shape[:-2], graph.num_targets, -1)


def maximum(h: Float[Tensor, "*batch sources d"], graph: Neighbors) -> Float[Tensor, "*batch targets d"]:
    """The maximum of h_v over N(u); 0 if N(u) is empty.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1, 2], [2, 2, 0]]), 3)
    >>> maximum(torch.tensor([[-1.0], [-2.0], [4.0]]), graph).flatten().tolist()
    [4.0, 0.0, -1.0]
    """
    check_devices({"h": h, "graph": graph})
    graph.check_frozen()
    if is_exporting():
        return _scattered_maximum(h, graph)
    # torch's kernel for sparse matrices works on the CPU and reads memory, which a subclass of Tensor may not have.
    if is_compiling() or h.device.type != "cpu" or not is_open(h):
        return tiled_aggregate(nn.Identity(), no_query(h, graph), h, graph, reduce="max")
    _spend_notice()
    ptr, source, _ = graph.by_target
    ones, size = h.new_ones(graph.num_edges), (graph.num_targets, graph.num_sources)
    adjacency = torch.sparse_csr_tensor(ptr, source, ones, size, device=h.device, check_invariants=False)
    batch, width = h.shape[:-2], h.size(-1)
    # The maximum is taken of each channel by itself, so B signals of d channels are one signal of B * d channels.
    rows = h.movedim(-2, 0).flatten(1) if batch else h
    # torch's kernel is over ten times as fast as tiles of edges.
    out = torch.sparse.mm(adjacency, rows, "amax")
    return out.unflatten(1, (*batch, width)).movedim(0, -2) if batch else out


def _scattered_maximum(h: Tensor, graph: Neighbors) -> Tensor:
    """The maximum by an operator that every runtime of exported programs knows."""
    source, target = graph.edge_index.long()
    rows = h.index_select(-2, source)
    index = target.unsqueeze(-1).expand_as(rows)
    empty = h.new_zeros(*h.shape[:-2], graph.num_targets, h.size(-1))
    return empty.scatter_reduce_(-2, index, rows, "amax", include_self=False)


@functools.cache
def _spend_notice() -> None:
    """Make torch's warning that CSR tensors are in beta, which it gives once per process, and hide it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, empty = torch.zeros(1, dtype=torch.int64, device="cpu"), torch.zeros(0, dtype=torch.int64, device="cpu")
        torch.sparse_csr_tensor(start, empty, empty, (0, 0))
