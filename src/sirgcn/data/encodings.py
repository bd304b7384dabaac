"""Positional and structural encodings of nodes: random walks, Laplacian eigenvectors, degrees."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from torch_geometric.utils import degree, to_undirected

from sirgcn.data.graphs import Graphs, sha256_of
from sirgcn.data.store import cache_root, cached, progress
from sirgcn.data.task import Task
from sirgcn.data.validate import DataError, check_at_least, check_choice
from sirgcn.strict import checked

# Increased when a rule changes, so that files in the cache are computed again.
_RULE = 1
# Graphs of up to this many nodes use dense matrices: all eigenvectors are computed, and powers of a dense matrix.
_DENSE = 1_000
# The share of entries from which a block of columns is no longer sparse.
_FILLED = 0.1
# Entries of the dense block of columns for walks on a larger graph: 64 MB.
_BLOCK = 1 << 23


@checked
def with_encodings(task: Task, encoding: str, size: int, cache: str | Path | None = None, edges: bool = False) -> Task:
    """Return the task with encodings of its nodes, `graphs.pe` float32 `[V, size]`. They replace earlier ones.

    Args:
        task: any task.
        encoding: a name of `ENCODINGS`.
        size: the number of steps of the walk, of eigenvectors, or of degrees.
        cache: the root of the cache, see `cache_root`. Encodings of the same edges are read from there.
        edges: whether the edges get random walks, too, `graphs.edge_pe` float32 `[E, size]`; see `edge_random_walk`.

    >>> from tempfile import mkdtemp
    >>> from sirgcn.data import hetero_edge_count_task
    >>> task = with_encodings(hetero_edge_count_task(c=2, num_graphs=4), "degree", size=8, cache=mkdtemp())
    >>> task.graphs.pe.size(1), task.schema.encodings
    (8, 8)
    """
    check_choice("encoding", encoding, ENCODINGS)
    check_at_least(1, size=size)
    if edges and encoding != "random_walk":
        raise DataError(f"expected random_walk, the only one that edges have, got {encoding!r}", "encoding")
    functions = {"pe": (encoding, ENCODINGS[encoding])}
    if edges:
        functions["edge_pe"] = ("edge_random_walk", edge_random_walk)
    graphs = task.graphs
    structure = {name: tensor for name, tensor in graphs.tensors().items() if name in ("edge_index", "node_ptr")}
    digest = sha256_of(str(graphs.num_nodes), structure)
    found: dict[str, Tensor] = {}
    for tensor, (name, compute) in functions.items():
        header = {"data": name, "rule": _RULE, "size": int(size), "graphs": digest}
        path = cache_root(cache) / "encodings" / f"{name}-{size}-{digest[:16]}.safetensors"
        found[tensor] = cached(path, header, partial(_computed, compute, graphs, size))["pe"]
    about: dict[str, Any] = {"encoding": encoding, "size": int(size)}
    return replace(
        task,
        graphs=replace(graphs, pe=found["pe"], edge_pe=found.get("edge_pe")),
        schema=replace(task.schema, encodings=size, edge_encodings=size if edges else 0),
        details=task.details | {"encodings": about | {"edges": True} if edges else about},
    )


def _computed(compute: Callable[[Graphs, int], Tensor], graphs: Graphs, size: int) -> dict[str, Tensor]:
    return {"pe": compute(graphs, size)}


def random_walk(graphs: Graphs, size: int) -> Tensor:
    r"""Return the probability that a walk from a node along the edges is back after :math:`k = 1, \dots,` `size` steps.

    .. math:: p_v = \big((P^1)_{vv}, \dots, (P^{size})_{vv}\big), \qquad P_{vu} = \frac{|(v, u)|}{d_{out}(v)}

    A repeated edge is twice as likely. A node without outgoing edges has zeros. PyG's `AddRandomWalkPE` gives the same,
    except that it counts repeated edges once in P and twice in the degree, and keeps all of :math:`P^k`.
    """

    def of_one(num_nodes: int, edge_index: Tensor) -> Tensor:
        return _arrivals(_step(num_nodes, edge_index), torch.arange(num_nodes).expand(2, -1), size)

    return _each(graphs, size, of_one, "random walks")


def edge_random_walk(graphs: Graphs, size: int) -> Tensor:
    r"""Return the probability that a walk from the source of an edge is at its target after k steps, `[E, size]`.

    .. math:: p_{(v, u)} = \big((P^1)_{vu}, \dots, (P^{size})_{vu}\big), \qquad P \text{ as in `random_walk`}
    """

    def of_one(num_nodes: int, edge_index: Tensor) -> Tensor:
        return _arrivals(_step(num_nodes, edge_index), edge_index, size)

    return _each(graphs, size, of_one, "random walks of edges", of_edges=True)


def laplacian(graphs: Graphs, size: int) -> Tensor:
    r"""Return the eigenvectors of the normalised Laplacian :math:`I - D^{-1/2} A D^{-1/2}`, by ascending eigenvalue.

    Edges count once and in both directions, and self-loops do not count. The first eigenvector is left out. If a graph
    has too few eigenvectors, the others are zero. The sign of an eigenvector makes its largest entry (the first of
    several) positive. Eigenvectors of a repeated eigenvalue are any basis of their space. PyG's
    `AddLaplacianEigenvectorPE` computes them.
    """

    def of_one(num_nodes: int, edge_index: Tensor) -> Tensor:
        both = to_undirected(edge_index, num_nodes=num_nodes)
        graph = Data(edge_index=both, edge_weight=torch.ones(both.size(1), dtype=torch.float64), num_nodes=num_nodes)
        # The solver for large graphs starts at a random vector; here it always starts at the same one.
        start = np.random.Generator(np.random.PCG64(0)).standard_normal(num_nodes)
        transform = AddLaplacianEigenvectorPE(min(size, num_nodes - 1), "pe", is_undirected=True, v0=start)
        transform.SPARSE_THRESHOLD = max(_DENSE, 2 * size)
        vectors: Tensor = transform(graph).pe
        largest = vectors.abs() >= vectors.abs().amax(0) * (1 - 1e-6)
        sign = vectors.gather(0, largest.int().argmax(0, keepdim=True)).sign()
        return torch.nn.functional.pad(vectors * sign, (0, size - vectors.size(1)))

    # PyG draws signs from the global generator, which must not move.
    with torch.random.fork_rng(devices=[]):
        return _each(graphs, size, of_one, "Laplacian eigenvectors")


def in_degree(graphs: Graphs, size: int) -> Tensor:
    """Return the number of incoming edges as a one-hot row: 0, ..., `size` - 2, and the last for `size` - 1 or more."""
    count = degree(graphs.edge_index[1], graphs.num_nodes, dtype=torch.int64)
    return torch.nn.functional.one_hot(count.clamp(max=size - 1), size).float()


ENCODINGS: dict[str, Callable[[Graphs, int], Tensor]] = {
    "random_walk": random_walk,
    "laplacian": laplacian,
    "degree": in_degree,
}
"""All encodings by name: functions from graphs and a size to float32 `[V, size]`."""


def _each(
    graphs: Graphs, size: int, of_one: Callable[[int, Tensor], Tensor], about: str, of_edges: bool = False
) -> Tensor:
    out = torch.empty(graphs.num_edges if of_edges else graphs.num_nodes, size)
    for nodes, edges, edge_index in progress(_graphs(graphs), about, graphs.num_graphs):
        out[edges if of_edges else nodes] = of_one(nodes.stop - nodes.start, edge_index).float()
    return out


def _graphs(graphs: Graphs) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the rows of each graph's nodes and of its edges, and its edges with nodes numbered from 0."""
    node_ptr, edge_ptr = graphs.pointers()
    for (first, last), (start, stop) in zip(_pairs(node_ptr), _pairs(edge_ptr), strict=True):
        if last > first:
            yield slice(first, last), slice(start, stop), graphs.edge_index[:, start:stop] - first


def _pairs(pointer: Tensor) -> list[list[int]]:
    ends: list[list[int]] = torch.stack([pointer[:-1], pointer[1:]], dim=1).tolist()
    return ends


def _step(num_nodes: int, edge_index: Tensor) -> Any:
    """Return P, the probabilities of one step of a walk: an array for a small graph, a sparse one for a large graph."""
    # Imported when it is used: reading a data set without encodings does not need it.
    from scipy.sparse import csr_array

    weight = 1 / degree(edge_index[0], num_nodes, torch.float64)[edge_index[0]]
    step = csr_array((weight.numpy(), tuple(edge_index.numpy())), shape=(num_nodes, num_nodes))
    return step.toarray() if num_nodes <= _DENSE else step


def _arrivals(step: Any, pairs: Tensor, size: int) -> Tensor:
    """Return (P^k)_{vu} of the pairs (v, u), int64 `[2, N]`, for k = 1, ..., size, as float64 `[N, size]`.

    The columns of the powers are computed in blocks of a fixed size, and never all at once.
    """
    count, (source, target) = step.shape[0], pairs.numpy()
    out = np.empty((pairs.size(1), size))
    order = target.argsort(kind="stable")
    width = max(_BLOCK // count, 1)
    ends = np.arange(0, count + width, width).clip(max=count)
    places = np.searchsorted(target[order], ends)
    for block, (first, last) in enumerate(pairwise(ends.tolist())):
        own = order[places[block] : places[block + 1]]
        for k, arrived in enumerate(_powers(step, first, last, size)):
            out[own, k] = arrived[source[own], target[own] - first]
    return torch.from_numpy(out)


def _powers(step: Any, first: int, last: int, size: int) -> Iterator[Any]:
    """Yield the columns first, ..., last - 1 of P, P^2, ...: sparse until many nodes have been reached."""
    arrived = step[:, first:last]
    yield arrived
    for _ in range(size - 1):
        if not isinstance(arrived, np.ndarray) and arrived.nnz > _FILLED * step.shape[0] * (last - first):
            arrived = arrived.toarray()
        arrived = step @ arrived
        yield arrived
