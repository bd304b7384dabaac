"""What every backend must keep: graphs of every kind, the definitions as loops over edges, and shared assertions."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from sirgcn.ops import Neighbors, backend, sir_aggregate

# The laws are stated on the CPU, where a GPU's backend works in Triton's interpreter only.
BACKENDS = tuple(
    name
    for name, entry in backend.BACKENDS.items()
    if entry.unavailable is None and "cpu" in (entry.devices or ("cpu",))
)
REDUCTIONS = ("sum", "mean", "sym", "sym_in")
EDGE_FORMS = ("none", "dense", "table")


class Square(nn.Module):
    """z^2, for which torch has no module."""

    def forward(self, z: Tensor) -> Tensor:
        return z**2


# Written out beside the table of `sirgcn.ops`, so that a wrong row there meets torch's own module here.
SIGMAS: dict[str, nn.Module] = {
    "identity": nn.Identity(),
    "relu": nn.ReLU(),
    "leaky_relu": nn.LeakyReLU(0.01),
    "leaky_relu(0.2)": nn.LeakyReLU(0.2),
    "elu": nn.ELU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "softplus": nn.Softplus(),
    "square": Square(),
}

EdgeTerm = Tensor | tuple[Tensor, Tensor] | None


@dataclass(frozen=True)
class Graph:
    """Edges as (source, target), in the order of the input."""

    edges: tuple[tuple[int, int], ...]
    num_sources: int
    num_targets: int
    dtype: torch.dtype = torch.int64

    @property
    def edge_index(self) -> Tensor:
        return torch.tensor(self.edges, dtype=self.dtype).reshape(-1, 2).t().contiguous()

    def neighbors(self) -> Neighbors:
        return Neighbors.from_edge_index(self.edge_index, (self.num_sources, self.num_targets))


EDGE_CASES: dict[str, Graph] = {
    "no nodes": Graph((), 0, 0),
    "no sources": Graph((), 0, 3),
    "no targets": Graph((), 3, 0),
    "no edges": Graph((), 4, 4),
    "one node": Graph((), 1, 1),
    "one self-loop": Graph(((0, 0),), 1, 1),
    "self-loops": Graph(((0, 0), (1, 0), (1, 1), (0, 2), (2, 2)), 3, 3),
    "repeated edges": Graph(((0, 1), (0, 1), (1, 0), (0, 1)), 2, 2),
    "isolated nodes": Graph(((4, 1), (1, 4)), 6, 6),
    "hub": Graph(tuple((v, 2) for v in (5, 0, 3, 1, 4, 2, 6)), 7, 7),
    "bipartite": Graph(((3, 0), (0, 1), (3, 1), (2, 0)), 4, 2),
    "int32": Graph(((1, 0), (0, 1), (2, 1), (2, 2)), 3, 3, torch.int32),
}

# One graph with all of it: isolated nodes 4 and 6, self-loops, a repeated edge, a hub, targets out of order.
RICH = Graph(((0, 3), (2, 1), (0, 3), (1, 1), (5, 3), (3, 0), (2, 2), (3, 5), (0, 1), (5, 0), (4, 3)), 7, 7)


@st.composite
def graphs(draw: st.DrawFn, *, bipartite: bool | None = None, max_edges: int = 12) -> Graph:
    """Any small graph, its edge cases first; `bipartite=False` has one set of nodes, None may have either."""
    cases = [g for g in EDGE_CASES.values() if bipartite is None or g.num_sources == g.num_targets]
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(cases))
    num_targets = draw(st.integers(0, 6))
    two_sets = draw(st.booleans()) if bipartite is None else bipartite
    num_sources = draw(st.integers(0, 6)) if two_sets else num_targets
    edges: list[tuple[int, int]] = []
    if num_sources and num_targets:
        pair = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
        edges = draw(st.lists(pair, max_size=max_edges))
    dtype = draw(st.sampled_from([torch.int64, torch.int32]))
    return Graph(tuple(edges), num_sources, num_targets, dtype)


@dataclass(frozen=True)
class Inputs:
    """What an aggregation reads beside its graph."""

    query: Tensor
    key: Tensor
    edge: EdgeTerm = None
    edge_weight: Tensor | None = None

    def leaves(self) -> list[Tensor]:
        """The tensors that get a gradient."""
        table = self.edge[0] if isinstance(self.edge, tuple) else self.edge
        every = (self.query, self.key, table, self.edge_weight)
        return [tensor for tensor in every if tensor is not None]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Inputs":
        """The same inputs with every floating-point tensor replaced."""
        edge: EdgeTerm = None
        if isinstance(self.edge, tuple):
            edge = (function(self.edge[0]), self.edge[1])
        elif self.edge is not None:
            edge = function(self.edge)
        weight = None if self.edge_weight is None else function(self.edge_weight)
        return Inputs(function(self.query), function(self.key), edge, weight)

    def with_dense_edge(self) -> "Inputs":
        """A (table, type) pair written out as one row per edge."""
        if not isinstance(self.edge, tuple):
            return self
        table, edge_type = self.edge
        return replace(self, edge=table[edge_type.long()])


def inputs(
    graph: Graph,
    form: str = "none",
    weighted: bool = False,
    channels: int = 3,
    seed: int = 0,
    kinks: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Inputs:
    """Leaves that require a gradient; sums of them hit 0 exactly with `kinks`, and stay 0.1 away from it without."""
    generator = torch.Generator().manual_seed(seed)

    def grid(*shape: int, offset: float = 0.0) -> Tensor:
        steps = torch.randn(*shape, generator=generator, dtype=torch.float64).mul(2).round()
        shift = 0.0 if kinks else offset
        return (steps / 2 + shift).to(dtype).requires_grad_()

    edge: EdgeTerm = None
    if form == "dense":
        edge = grid(len(graph.edges), channels, offset=0.1)
    elif form == "table":
        # Row 3 of the table is never used.
        edge_type = torch.randint(0, 3, (len(graph.edges),), generator=generator, dtype=graph.dtype)
        edge = (grid(4, channels, offset=0.1), edge_type)
    return Inputs(
        grid(graph.num_targets, channels, offset=0.1),
        grid(graph.num_sources, channels),
        edge,
        grid(len(graph.edges), offset=0.3) if weighted else None,
    )


def scale(graph: Graph, reduce: str, source: int, target: int) -> float:
    """The weight of the message from source v to target u, from the protocols: degrees are at least 1."""
    in_degree = Counter(u for _, u in graph.edges)
    out_degree = Counter(v for v, _ in graph.edges)
    if reduce == "mean":
        return 1 / max(1, in_degree[target])
    if reduce == "sym":
        return 1 / math.sqrt(max(1, in_degree[target]) * max(1, out_degree[source]))
    if reduce == "sym_in":
        return 1 / math.sqrt(max(1, in_degree[target]) * max(1, in_degree[source]))
    return 1.0


def aggregate_by_loop(
    network: nn.Module, graph: Graph, given: Inputs, reduce: str = "sum", combine: str = "add"
) -> Tensor:
    """The definition, one edge at a time: w_uv * scale * g(q_u + e_uv + k_v) summed over N(u), or the first maximum."""
    messages: list[list[Tensor]] = [[] for _ in range(graph.num_targets)]
    edge = given.with_dense_edge().edge
    assert not isinstance(edge, tuple)
    for i, (v, u) in enumerate(graph.edges):
        q, k = given.query[u], given.key[v]
        e = None if edge is None else edge[i]
        parts = [q, k] if e is None else [q, e, k]
        z = torch.cat(parts) if combine == "cat" else torch.stack(parts).sum(0)
        message = network(z.unsqueeze(0)).squeeze(0)
        if given.edge_weight is not None:
            message = given.edge_weight[i] * message
        messages[u].append(scale(graph, reduce, v, u) * message)
    width = sum(x.size(-1) for x in (given.query, given.key, edge) if x is not None)
    z = given.query.new_zeros(1, width if combine == "cat" else given.query.size(-1))
    zero = torch.zeros_like(network(z).squeeze(0))
    if reduce == "max":
        rows = [first_maximum(here) if here else zero for here in messages]
    else:
        rows = [sum(here, start=zero) for here in messages]
    return torch.stack(rows) if rows else zero.new_zeros(0, zero.numel())


def first_maximum(rows: Sequence[Tensor]) -> Tensor:
    """Per channel the largest entry, the first of equals; a NaN is larger than anything."""
    stacked = torch.stack(list(rows))
    picked = []
    for channel, column in enumerate(stacked.detach().t().tolist()):
        best = 0
        for i, entry in enumerate(column):
            if entry > column[best] or (math.isnan(entry) and not math.isnan(column[best])):
                best = i
        picked.append(stacked[best, channel])
    return torch.stack(picked) if picked else stacked[0]


def value_and_gradients(out: Tensor, leaves: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """The output, and the gradient of every leaf for a cotangent that is fixed by the output's shape."""
    generator = torch.Generator().manual_seed(seed)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    if not out.requires_grad:
        return [out, *(torch.zeros_like(leaf) for leaf in leaves)]
    grads = torch.autograd.grad(out, leaves, cotangent, materialize_grads=True)
    return [out.detach(), *grads]


def assert_same(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-12) -> None:
    """Equal up to the rounding of float64 sums in another order."""
    torch.testing.assert_close(list(actual), list(expected), rtol=tolerance, atol=tolerance, equal_nan=True)


def assert_equals_loop(backend: str | None, graph: Graph, given: Inputs, activation: str, reduce: str) -> None:
    """A backend's values and gradients are those of the loop over edges."""
    out = sir_aggregate(
        given.query,
        given.key,
        graph.neighbors(),
        edge=given.edge,
        edge_weight=given.edge_weight,
        activation=activation,
        reduce=reduce,
        backend=backend,
    )
    expected = aggregate_by_loop(SIGMAS[activation], graph, given, reduce)
    assert_same(
        value_and_gradients(out, given.leaves()),
        value_and_gradients(expected, given.leaves()),
    )


def assert_repeats(run: Callable[[], Sequence[Tensor]], times: int = 3) -> None:
    """Every run gives the bits of the first."""
    first = [tensor.clone() for tensor in run()]
    for _ in range(times):
        for tensor, before in zip(run(), first, strict=True):
            assert torch.equal(tensor, before)
