"""Inputs for the laws of the theory: samples with repeated points, all sorts of pseudometrics, multisets."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from sirgcn.nn import SIRConv
from sirgcn.testing import Graph
from sirgcn.theory import (
    Pseudometric,
    discrete,
    euclidean,
    feature_distance,
    gaussian,
    layer_distance,
    mahalanobis,
    manhattan,
    squared_score,
)

SIGMAS = ("relu", "gelu", "tanh", "leaky_relu(0.2)")


@dataclass(frozen=True)
class Metric:
    """A pseudometric that satisfies Assumption 1, with a query where it asks for one."""

    d: Pseudometric
    query: Tensor | None


def seeded(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def points(draw: st.DrawFn, channels: int, min_size: int = 1, max_size: int = 7, size: int | None = None) -> Tensor:
    """Rows on a grid of halves, so that points repeat and signs cancel: `[n, channels]`."""
    count = draw(st.integers(min_size, max_size)) if size is None else size
    entries = draw(st.lists(st.integers(-6, 6), min_size=count * channels, max_size=count * channels))
    return torch.tensor(entries, dtype=torch.float64).reshape(count, channels) / 2


def layer(seed: int, channels: int, aggr: str = "sum", sigma: str = "gelu", edges: bool = False) -> SIRConv:
    """A layer with its own random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return SIRConv(channels, 3, 5, aggr=aggr, activation=sigma, edge_dim=2 if edges else None).double()


@st.composite
def metrics(draw: st.DrawFn, channels: int, features: bool | None = None, contextual: bool | None = None) -> Metric:
    """Any pseudometric of the library, and what Remark 1 makes of them.

    `features` restricts to those with (True) or without known features; `contextual` to those that ask for a query.
    """
    seed = draw(st.integers(0, 99))

    def network() -> Pseudometric:
        weight = seeded(seed, channels, 4)
        return feature_distance(lambda x: torch.tanh(x @ weight), "network")

    root = seeded(seed, channels, draw(st.integers(1, channels)))
    known = [euclidean(), squared_score(), mahalanobis(root @ root.T), network()]
    known.append(layer_distance(layer(seed, channels, sigma=draw(st.sampled_from(SIGMAS)))))
    unknown = [discrete(), gaussian(scale=2.0), manhattan() ** 0.5, gaussian(squared_score(), 3.0), euclidean() ** 0.5]
    bases = {True: known, False: unknown, None: known + unknown}[features]
    if contextual is not None:
        bases = [d for d in bases if d.contextual == contextual]
    d = draw(st.sampled_from(bases))
    for _ in range(draw(st.integers(0, 2))):
        rule = draw(st.sampled_from(["a * d", "d & d"] + ["d ** p"] * (features is not True)))
        if rule == "a * d":
            d = draw(st.sampled_from([0.25, 1.5, 3.0])) * d
        elif rule == "d & d":
            d = d & draw(st.sampled_from(bases))
        else:
            d = d ** draw(st.sampled_from([0.25, 0.5, 0.9, 1]))
    return Metric(d, seeded(seed + 1, channels) if d.contextual else None)


@st.composite
def comparable_graphs(draw: st.DrawFn) -> Graph:
    """Graphs of 6 to 9 nodes with few degrees, so that many neighbourhoods have equal sizes; sources repeat."""
    num_nodes = draw(st.integers(6, 9))
    degrees = draw(st.lists(st.sampled_from([0, 1, 2, 2, 3]), min_size=num_nodes, max_size=num_nodes))
    node = st.integers(0, num_nodes - 1)
    edges = [(draw(node), u) for u, degree in enumerate(degrees) for _ in range(degree)]
    return Graph(tuple(edges), num_nodes, num_nodes)


class Squares(nn.Module):
    """A message that reads the size of a feature and not its sign."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square()
