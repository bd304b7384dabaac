"""The definitions of the aggregations as loops over edges, and inputs for them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sirgcn.testing.graphs import Graph

REDUCTIONS = ("sum", "mean", "sym", "sym_in")
"""The reductions of `sir_aggregate`."""

EDGE_FORMS = ("none", "dense", "table")
"""How an edge term can be given: not at all, as one row per edge, or as a table with a row number per edge."""


class Square(nn.Module):
    """z^2 as a module, which torch does not have.

    >>> Square()(torch.tensor([3.0])).tolist()
    [9.0]
    """

    def forward(self, z: Tensor) -> Tensor:
        """The square of every entry."""
        return z**2


# A second table beside that of `sirgcn.ops`: a wrong row there differs from torch's own module here.
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
"""Every activation of `sir_aggregate` by name, as a module of torch."""

EdgeTerm = Tensor | tuple[Tensor, Tensor] | None
"""The edge term of an aggregation: rows `[edges, d]`, a pair (table `[types, d]`, type `[edges]`), or None."""


@dataclass(frozen=True)
class Inputs:
    """What an aggregation reads besides its graph.

    >>> Inputs(torch.ones(2, 3), torch.ones(4, 3)).query.shape
    torch.Size([2, 3])
    """

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
        """The same inputs, with the function applied to every floating-point tensor, in the order of `leaves`."""
        query, key = function(self.query), function(self.key)
        edge: EdgeTerm = None
        if isinstance(self.edge, tuple):
            edge = (function(self.edge[0]), self.edge[1])
        elif self.edge is not None:
            edge = function(self.edge)
        weight = None if self.edge_weight is None else function(self.edge_weight)
        return Inputs(query, key, edge, weight)

    def with_leaves(self, leaves: Sequence[Tensor]) -> "Inputs":
        """The same inputs with other tensors in the place of `leaves`."""
        given = iter(leaves)
        return self.map(lambda _: next(given))

    def with_dense_edge(self) -> "Inputs":
        """The same inputs, with one row per edge instead of a pair (table, type)."""
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
    """Inputs for a graph. All of them are leaves that require a gradient.

    Args:
        graph: the graph.
        form: a name of `EDGE_FORMS`.
        weighted: whether every edge has a weight.
        channels: the width of query, key and edge term.
        seed: of the random numbers.
        kinks: with it, sums of the inputs are multiples of 1/2, so that many are exactly 0, where ReLU has its kink.
            Without it they stay 0.1 away from 0, as finite differences need it.
        dtype: of all inputs.

    >>> graph = Graph(((0, 1), (1, 1)), 2, 2)
    >>> [tuple(leaf.shape) for leaf in inputs(graph, "dense", weighted=True).leaves()]
    [(2, 3), (2, 3), (2, 3), (2,)]
    """
    generator = torch.Generator().manual_seed(seed)

    def grid(*shape: int, offset: float = 0.0) -> Tensor:
        steps = torch.randn(*shape, generator=generator, dtype=torch.float64).mul(2).round()
        shift = 0.0 if kinks else offset
        return (steps / 2 + shift).to(dtype).requires_grad_()

    edge: EdgeTerm = None
    if form == "dense":
        edge = grid(len(graph.edges), channels, offset=0.1)
    elif form == "table":
        # No edge uses row 3 of the table.
        edge_type = torch.randint(0, 3, (len(graph.edges),), generator=generator, dtype=graph.dtype)
        edge = (grid(4, channels, offset=0.1), edge_type)
    return Inputs(
        grid(graph.num_targets, channels, offset=0.1),
        grid(graph.num_sources, channels),
        edge,
        grid(len(graph.edges), offset=0.3) if weighted else None,
    )


def scale(graph: Graph, reduce: str, source: int, target: int) -> float:
    """The weight a_u b_v that a reduction gives to the message from source v to target u. Degrees are at least 1.

    >>> scale(Graph(((0, 1), (1, 1)), 2, 2), "mean", source=0, target=1)
    0.5
    """
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
    """The definition of the aggregation, one edge at a time: `[targets, channels]`.

    The message of the edge from v to u is w_uv * scale * g(q_u + e_uv + k_v). A target without neighbours gets 0.

    Args:
        network: g, an activation or any module on rows.
        graph: the graph.
        given: q, k, e and w.
        reduce: a name of `REDUCTIONS` for the sum of the scaled messages, or "max" for the first maximum per channel.
        combine: "add" for g(q_u + e_uv + k_v), "cat" for g([q_u || e_uv || k_v]).

    >>> graph = Graph(((0, 1), (1, 1)), 2, 2)
    >>> given = Inputs(torch.zeros(2, 1), torch.tensor([[1.0], [2.0]]))
    >>> aggregate_by_loop(nn.Identity(), graph, given).tolist()
    [[0.0], [3.0]]
    """
    messages: list[list[Tensor]] = [[] for _ in range(graph.num_targets)]
    for i, ((v, u), ends) in enumerate(zip(graph.edges, _ends(graph, given), strict=True)):
        message = network(_combined(ends, combine).unsqueeze(0)).squeeze(0)
        if given.edge_weight is not None:
            message = given.edge_weight[i] * message
        messages[u].append(scale(graph, reduce, v, u) * message)
    zero = _zero_message(network, given, combine)
    rows = [_reduced(here, zero, reduce) for here in messages]
    return torch.stack(rows) if rows else zero.new_zeros(0, zero.numel())


def _ends(graph: Graph, given: Inputs) -> Iterator[list[Tensor]]:
    """The terms q_u, e_uv (if there is one) and k_v of every edge."""
    edge = given.with_dense_edge().edge
    for i, (v, u) in enumerate(graph.edges):
        between = [edge[i]] if isinstance(edge, Tensor) else []
        yield [given.query[u], *between, given.key[v]]


def _combined(ends: list[Tensor], combine: str) -> Tensor:
    return torch.cat(ends) if combine == "cat" else torch.stack(ends).sum(0)


def _zero_message(network: nn.Module, given: Inputs, combine: str) -> Tensor:
    """A message of zeros, with the width that the network returns."""
    terms = [given.query, given.key, given.with_dense_edge().edge]
    ends = [term.new_zeros(term.size(-1)) for term in terms if isinstance(term, Tensor)]
    return torch.zeros_like(network(_combined(ends, combine).unsqueeze(0)).squeeze(0))


def _reduced(messages: list[Tensor], zero: Tensor, reduce: str) -> Tensor:
    """The sum of the messages of one target, or their maximum; zero if there are none."""
    if not messages or reduce != "max":
        return sum(messages, start=zero)
    return first_maximum(messages)


def first_maximum(rows: Sequence[Tensor]) -> Tensor:
    """The largest entry of every channel, the first of equal ones. A NaN is larger than any number.

    >>> first_maximum([torch.tensor([1.0, 5.0]), torch.tensor([2.0, 4.0])]).tolist()
    [2.0, 5.0]
    """
    stacked = torch.stack(list(rows))
    picked = []
    for channel, column in enumerate(stacked.detach().t().tolist()):
        best = 0
        for i, entry in enumerate(column):
            if entry > column[best] or (math.isnan(entry) and not math.isnan(column[best])):
                best = i
        picked.append(stacked[best, channel])
    return torch.stack(picked) if picked else stacked[0]
