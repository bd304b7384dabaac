"""Which graphs a SIR-GCN with random weights tells apart.

Without random features they are those of the modified 1-WL test (Section 4.5). With random features there are more
(Section 3.1, after Sato et al.).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from sirgcn.nn import SIRGCN, RandomFeatures, SIRReadout
from sirgcn.strict import Count, Size, checked
from sirgcn.theory.wl import count_nodes, joined

THRESHOLD = 1e-9
"""Outputs with a larger relative distance count as different. Rounding gives about 1e-15."""


@checked
def circulant(nodes: Size, steps: Sequence[int] = (1,), copies: Size = 1) -> Data:
    """Copies of a ring of nodes, in which every node is joined to the nodes so many steps ahead.

    With the steps 1 and k this is CSL(nodes, k). All nodes have one degree and no features. 1-WL cannot tell two such
    graphs apart if they have the same degree and the same number of nodes.

    Args:
        nodes: the number of nodes of a ring, at least 3.
        steps: from 1 to nodes - 1.
        copies: the number of rings.

    >>> circulant(6), circulant(3, copies=2)
    (Data(edge_index=[2, 12], num_nodes=6), Data(edge_index=[2, 12], num_nodes=6))
    """
    if nodes < 3 or copies < 1 or not steps or not all(0 < step < nodes for step in steps):
        raise ValueError(
            f"expected at least 3 nodes, 1 copy and steps from 1 to nodes - 1, got {nodes}, {copies}, {list(steps)}"
        )
    node = torch.arange(nodes)
    ring = torch.cat([torch.stack([node, (node + step) % nodes]) for step in steps], dim=1)
    edges = torch.cat([ring + copy * nodes for copy in range(copies)], dim=1)
    return Data(edge_index=to_undirected(edges), num_nodes=nodes * copies)


def equal_for_wl() -> dict[str, tuple[Data, Data]]:
    """Pairs of graphs that are not isomorphic and that 1-WL cannot tell apart, by name.

    >>> list(equal_for_wl())[0]
    'a hexagon and two triangles'
    """
    return {
        "a hexagon and two triangles": (circulant(6), circulant(3, copies=2)),
        "an octagon and two squares": (circulant(8), circulant(4, copies=2)),
        "CSL(11, 2) and CSL(11, 3)": (circulant(11, (1, 2)), circulant(11, (1, 3))),
        "CSL(41, 2) and CSL(41, 9)": (circulant(41, (1, 2)), circulant(41, (1, 9))),
    }


class RandomSIRGCN(nn.Module):
    r"""A stack of `SIRConv` without residuals, followed by the soft-isomorphic readout, in float64 with random weights.

    Sigma and the activation of the readout are tanh. Tanh is analytic and not a polynomial, so that sums of it are
    injective on multisets for almost all weights, as Section 4.5 requires of a hash.

    Args:
        in_channels: width of the node features.
        layers: the number of `SIRConv`; with 0 the readout reads the features.
        channels: width of all layers and of the result.
        seed: of the weights; torch's global random state does not change.

    >>> network = RandomSIRGCN(in_channels=1, layers=2, channels=4)
    >>> x = torch.ones(3, 1, dtype=torch.float64)
    >>> network(x, torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 1])).shape
    torch.Size([2, 4])
    """

    @checked
    def __init__(self, in_channels: Size, layers: Count, channels: Size = 16, seed: int = 0) -> None:
        super().__init__()
        if layers < 0:
            raise ValueError(f"layers: expected at least 0, got {layers}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.gnn = SIRGCN(in_channels, channels, layers, act=None, activation="tanh") if layers else None
            width = channels if layers else in_channels
            network = nn.Sequential(nn.Linear(width, channels), nn.Tanh(), nn.Linear(channels, channels))
            self.readout = SIRReadout(network)
        self.double()

    def nodes(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node features `(*, nodes, channels)`."""
        return x if self.gnn is None else self.gnn(x, edge_index)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """The readout of every graph, `(*, graphs, channels)`."""
        num_graphs = int(batch.max()) + 1 if batch.numel() else 0
        return self.readout(self.nodes(x, edge_index), batch, dim_size=num_graphs)


@torch.no_grad()
@checked
def sir_separation(one: Data, other: Data, layers: Count, channels: Size = 16, seed: int = 0) -> float:
    r"""How far a SIR-GCN with random weights tells two graphs apart (Section 4.5).

    .. math:: \frac{\lVert h_{G_1} - h_{G_2} \rVert}{\lVert h_{G_1} \rVert + \lVert h_{G_2} \rVert}

    For almost all weights, this is above `THRESHOLD` with L layers exactly if the modified 1-WL test finds different
    numbers of nodes of some colour in round L. Labels (integers) enter as indicators of the labels of both graphs, real
    features as they are. A graph without x gets ones.

    >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    >>> star = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
    >>> sir_separation(path, path, layers=1) > THRESHOLD, sir_separation(path, star, layers=1) > THRESHOLD
    (False, True)
    """
    together = joined(one, other)
    x = as_features(together.x, together.num_nodes)
    found = RandomSIRGCN(x.size(1), layers, channels, seed)(x, together.edge_index, together.batch)
    first, second = found.norm(dim=1)
    scale = float(first + second)
    return float((found[0] - found[1]).norm()) / scale if scale > 0 else 0.0


def as_features(x: Tensor | None, num_nodes: int) -> Tensor:
    """Features `(nodes, features)` in float64: ones, indicators of the labels of every column, or x itself.

    >>> as_features(torch.tensor([5, 7, 5]), num_nodes=3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if x is None:
        return torch.ones(num_nodes, 1, dtype=torch.float64)
    x = x if x.dim() > 1 else x.unsqueeze(1)
    if x.is_floating_point():
        return x.double()
    columns = [(column[:, None] == column.unique()).double() for column in x.unbind(1)]
    return torch.cat(columns, dim=1)


@dataclass(frozen=True)
class Frequency:
    """How often something happened, with the 95% interval of Wilson's score.

    >>> print(Frequency(hits=9, trials=10))
    9 of 10 (0.596 to 0.982)
    """

    hits: int
    trials: int

    @property
    def rate(self) -> float:
        """The share of hits."""
        return self.hits / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that holds the probability."""
        z, n, p = 1.959964, self.trials, self.rate
        middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.hits} of {self.trials} ({low:.3f} to {high:.3f})"


@torch.no_grad()
@checked
def distinct_nodes(data: Data, nodes: Sequence[int], draws: Size = 200, layers: Count = 1, seed: int = 0) -> Frequency:
    r"""How often random features give pairwise different outputs to nodes that are equal without them (Section 3.1).

    "One may also inject stochasticity into the node features to distinguish between nodes with identical features and
    neighborhood features with high probability."

    Args:
        data: a graph.
        nodes: some of its nodes, such as a class of `Refinement.classes`.
        draws: how often the features are drawn; each draw is one column, uniform in [0, 1).
        layers: the number of layers of the SIR-GCN.
        seed: of the weights and of the features.

    >>> distinct_nodes(circulant(6), [0, 1, 2], draws=20).hits
    20
    """
    if len(nodes) < 2:
        raise ValueError(f"nodes: expected at least two, got {list(nodes)}")
    if not all(0 <= node < count_nodes(data) for node in nodes):
        raise IndexError(f"nodes: expected numbers from 0 to {count_nodes(data) - 1}, got {list(nodes)}")
    x = as_features(data.x, count_nodes(data)).expand(draws, -1, -1)
    x = RandomFeatures(seed=seed)(x)
    found = RandomSIRGCN(x.size(-1), layers, seed=seed).nodes(x, data.edge_index)[:, list(nodes)]
    gaps = torch.cdist(found, found) / found.norm(dim=-1).amax(1)[:, None, None]
    gaps = gaps + torch.diag_embed(torch.full(gaps.shape[:2], torch.inf, dtype=gaps.dtype))
    return Frequency(int((gaps.flatten(1).amin(1) > THRESHOLD).sum()), draws)


@torch.no_grad()
@checked
def random_feature_test(
    one: Data, other: Data, layers: Count = 3, draws: Size = 1000, channels: Size = 4, seed: int = 0
) -> float:
    r"""The p-value of "with random features, both graphs have the same mean output", by Hotelling's test.

    A single draw tells any two graphs apart, even a graph from itself. Invariant under isomorphism is the distribution
    of the output over draws. If 1-WL cannot tell two graphs apart, their distributions may still differ, because the
    random feature of a node returns to it along a cycle. Isomorphic graphs have equal distributions. With

    .. math::
        T^2 = (\bar h_1 - \bar h_2)^\top \bigl(\tfrac{1}{m} S_1 + \tfrac{1}{m} S_2\bigr)^{-1} (\bar h_1 - \bar h_2)

    over m draws each, the p-value is that of a chi-square with `channels` degrees of freedom. If no node has a
    neighbour, no random feature arrives anywhere, and there is nothing to compare: this raises a ValueError.

    >>> random_feature_test(circulant(6), circulant(3, copies=2)) < 0.001
    True
    """
    if draws <= 10 * channels:
        raise ValueError(f"draws: expected more than 10 for each of {channels} channels, got {draws}")
    together = joined(one, other)
    if layers and not together.edge_index.numel():
        raise ValueError("one, other: expected an edge in at least one of the graphs, got none")
    x = as_features(together.x, together.num_nodes).expand(draws, -1, -1)
    x = RandomFeatures(seed=seed)(x)
    samples = RandomSIRGCN(x.size(-1), layers, channels, seed)(x, together.edge_index, together.batch).unbind(-2)
    gap = samples[0].mean(0) - samples[1].mean(0)
    covariance = sum((sample.T.cov() for sample in samples), start=torch.zeros(channels, channels)) / draws
    statistic = gap @ torch.linalg.solve(covariance, gap)
    return float(torch.special.gammaincc(torch.tensor(channels / 2.0, dtype=torch.float64), statistic / 2))


def separation_frequency(
    one: Data, other: Data, weights: int = 50, level: float = 1e-3, layers: int = 3, draws: int = 1000
) -> Frequency:
    """For how many draws of the weights `random_feature_test` tells two graphs apart at a level of significance.

    >>> separation_frequency(circulant(6), circulant(3, copies=2), weights=2).trials
    2
    """
    if not 0 < level < 1:
        raise ValueError(f"level: expected 0 < level < 1, got {level}")
    found = (random_feature_test(one, other, layers, draws, seed=seed) for seed in range(weights))
    return Frequency(sum(p < level for p in found), weights)
