"""Positional and structural encodings of nodes: random walks, Laplacian eigenvectors, degrees."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from torch_geometric.utils import degree, to_undirected

from sirgcn.data.graphs import Graphs, sha256_of
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_at_least
from sirgcn.strict import checked

# Raised when a rule changes: a cache of another rule is made anew.
_RULE = 1
# Up to this many nodes all eigenvectors are computed, and powers of a dense matrix.
_DENSE = 1_000
# Entries of the dense block that walks on a larger graph: 64 MB.
_BLOCK = 1 << 23


@checked
def with_encodings(task: Task, kind: str, size: int, cache: str | Path | None = None) -> Task:
    """The task with encodings of its nodes, `graphs.pe` float32 `[V, size]`; those it had are replaced.

    Args:
        task: any.
        kind: a name of `ENCODINGS`.
        size: steps of the walk, eigenvectors, or degrees.
        cache: see `cache_root`; what was computed for the same edges is read from there.
    """
    if kind not in ENCODINGS:
        raise DataError(f"expected one of {', '.join(ENCODINGS)}, got {kind!r}", "kind", value=kind)
    check_at_least(1, size=size)
    graphs = task.graphs
    structure = {name: tensor for name, tensor in graphs.tensors().items() if name in ("edge_index", "node_ptr")}
    digest = sha256_of(str(graphs.num_nodes), structure)
    header = {"data": kind, "rule": _RULE, "size": int(size), "graphs": digest}
    path = cache_root(cache) / "encodings" / f"{kind}-{size}-{digest[:16]}.safetensors"
    pe = cached(path, header, lambda: {"pe": ENCODINGS[kind](graphs, size)})["pe"]
    return replace(
        task,
        graphs=replace(graphs, pe=pe),
        schema=replace(task.schema, encodings=size),
        details=task.details | {"encodings": {"kind": kind, "size": int(size)}},
    )


def random_walk(graphs: Graphs, size: int) -> Tensor:
    r"""The chance that a walk from a node along the edges is back after :math:`k = 1, \dots,` `size` steps.

    .. math:: p_v = \big((P^1)_{vv}, \dots, (P^{size})_{vv}\big), \qquad P_{vu} = \frac{|(v, u)|}{d_{out}(v)}

    An edge that is there twice is twice as likely; a node without outgoing edges has zeros. As PyG's `AddRandomWalkPE`,
    which counts repeated edges once in P and twice in the degree, and on large graphs keeps all of :math:`P^k`.
    """

    def of_one(num_nodes: int, edge_index: Tensor) -> Tensor:
        weight = 1 / degree(edge_index[0], num_nodes, torch.float64)[edge_index[0]]
        shape = (num_nodes, num_nodes)
        step = torch.sparse_coo_tensor(edge_index, weight, shape, check_invariants=True).coalesce()
        return _returns(step.to_dense() if num_nodes <= _DENSE else step, size)

    return _each(graphs, size, of_one, "random walks")


def laplacian(graphs: Graphs, size: int) -> Tensor:
    r"""The eigenvectors of the normalised Laplacian :math:`I - D^{-1/2} A D^{-1/2}`, by ascending eigenvalue.

    Edges count in both directions, once, without self-loops. The first eigenvector is left out, and those that a small
    graph does not have are zero. Each is given the sign that makes its largest entry, the first of several, positive;
    eigenvectors of a repeated eigenvalue are any basis of their space. Computed by PyG's `AddLaplacianEigenvectorPE`.
    """

    def of_one(num_nodes: int, edge_index: Tensor) -> Tensor:
        both = to_undirected(edge_index, num_nodes=num_nodes)
        graph = Data(edge_index=both, edge_weight=torch.ones(both.size(1), dtype=torch.float64), num_nodes=num_nodes)
        # The solver for large graphs starts anywhere; here always at the same place.
        start = np.random.Generator(np.random.PCG64(0)).standard_normal(num_nodes)
        transform = AddLaplacianEigenvectorPE(min(size, num_nodes - 1), "pe", is_undirected=True, v0=start)
        transform.SPARSE_THRESHOLD = max(_DENSE, 2 * size)
        vectors: Tensor = transform(graph).pe
        largest = vectors.abs() >= vectors.abs().amax(0) * (1 - 1e-6)
        sign = vectors.gather(0, largest.int().argmax(0, keepdim=True)).sign()
        return torch.nn.functional.pad(vectors * sign, (0, size - vectors.size(1)))

    # PyG draws signs from the global generator.
    with torch.random.fork_rng(devices=[]):
        return _each(graphs, size, of_one, "Laplacian eigenvectors")


def in_degree(graphs: Graphs, size: int) -> Tensor:
    """The number of incoming edges, one-hot: 0, ..., `size` - 2, and the last for `size` - 1 or more."""
    count = degree(graphs.edge_index[1], graphs.num_nodes, dtype=torch.int64)
    return torch.nn.functional.one_hot(count.clamp(max=size - 1), size).float()


ENCODINGS: dict[str, Callable[[Graphs, int], Tensor]] = {
    "random_walk": random_walk,
    "laplacian": laplacian,
    "degree": in_degree,
}
"""All encodings by name: from graphs and a size to float32 `[V, size]`."""


def _each(graphs: Graphs, size: int, of_one: Callable[[int, Tensor], Tensor], about: str) -> Tensor:
    out = torch.empty(graphs.num_nodes, size)
    for nodes, edge_index in progress(_graphs(graphs), about, graphs.num_graphs):
        out[nodes] = of_one(nodes.stop - nodes.start, edge_index).float()
    return out


def _graphs(graphs: Graphs) -> Iterator[tuple[slice, Tensor]]:
    """The rows of each graph's nodes, and its edges counted from 0."""
    node_ptr, edge_ptr = graphs.pointers()
    for (first, last), (start, stop) in zip(_pairs(node_ptr), _pairs(edge_ptr), strict=True):
        if last > first:
            yield slice(first, last), graphs.edge_index[:, start:stop] - first


def _pairs(pointer: Tensor) -> list[list[int]]:
    ends: list[list[int]] = torch.stack([pointer[:-1], pointer[1:]], dim=1).tolist()
    return ends


def _returns(step: Tensor, size: int) -> Tensor:
    """The diagonals of the first `size` powers."""
    count = len(step)
    out = torch.empty(count, size, dtype=torch.float64)
    for nodes in torch.arange(count).split(max(_BLOCK // count, 1)):
        own = (nodes, torch.arange(len(nodes)))
        # A column for each node: the chance to be there after k steps, from wherever the walk started.
        arrived = torch.zeros(count, len(nodes), dtype=torch.float64)
        arrived[own] = 1
        for k in range(size):
            arrived = step @ arrived
            out[nodes, k] = arrived[own]
    return out
