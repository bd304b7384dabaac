"""How the query changes the aggregated neighbourhood.

In PNA it can only shift it (Section 4.4). For any layer, two measured numbers give its place in Figure 3.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import degree, scatter

from sirgcn.strict import Size, check_name, checked

Layer = Callable[[Tensor, Tensor], Tensor]

_SHIFTED = ("sum", "mean", "max", "min")
MOMENTS = {"std": 2, "skewness": 3, "kurtosis": 4}
"""PNA's aggregators of central moments, and the order of each moment."""

PNA_AGGREGATORS = (*_SHIFTED, *MOMENTS)
"""The aggregators of `pna_query_influence`."""


class Influence(NamedTuple):
    """Both sides of the statement of `pna_query_influence`, for the nodes that have a neighbour.

    `aggregated` is PNA's aggregate. `shifted` is the aggregate of the keys alone, plus `shift`, the part of the query.

    >>> Influence(torch.ones(1, 2), torch.ones(1, 2), torch.zeros(1, 2)).shift.tolist()
    [[0.0, 0.0]]
    """

    aggregated: Float[Tensor, "nodes channels"]
    shifted: Float[Tensor, "nodes channels"]
    shift: Float[Tensor, "nodes channels"]


def pna_query_influence(
    aggregator: str,
    x: Float[Tensor, "nodes features"],
    edge_index: Int[Tensor, "2 edges"],
    query: Float[Tensor, "channels features"],
    key: Float[Tensor, "channels features"],
) -> Influence:
    r"""PNA (Section 4.4): the query only shifts the aggregate of :math:`m(h_v, h_u) = W_K h_v + b_u`, b_u = W_Q h_u.

    .. math:: \bigoplus_{v \in N(u)} m(h_v, h_u) = \bigoplus_{v \in N(u)} W_K h_v + s_u

    The shift :math:`s_u` is

    - :math:`b_u` for mean, max and min,
    - :math:`|N(u)| \, b_u` for sum,
    - 0 for the standard deviation and for PNA's normalised moments :math:`\sqrt[n]{E[(m - E[m])^n]}` (the root keeps
      the sign), where :math:`b_u` cancels.

    Args:
        aggregator: one of `PNA_AGGREGATORS`.
        x: node features.
        edge_index: messages go from row 0 to row 1.
        query: W_Q.
        key: W_K.

    >>> x, edge_index = torch.tensor([[1.0], [2.0]]), torch.tensor([[0, 1], [1, 1]])
    >>> found = pna_query_influence("mean", x, edge_index, torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    >>> found.aggregated.tolist(), found.shifted.tolist(), found.shift.tolist()
    ([[7.5]], [[7.5]], [[6.0]])
    """
    check_name("aggregator", aggregator, PNA_AGGREGATORS, exact=True)
    source, target = edge_index.long()
    bias, keys = x @ query.T, x @ key.T
    num_neighbors = degree(target, x.size(0), dtype=x.dtype)
    shift = torch.zeros_like(bias)
    if aggregator in _SHIFTED:
        shift = num_neighbors[:, None] * bias if aggregator == "sum" else bias
    with_query = _aggregate(aggregator, keys[source] + bias[target], target, x.size(0))
    without = _aggregate(aggregator, keys[source], target, x.size(0))
    has = num_neighbors > 0
    return Influence(with_query[has], (without + shift)[has], shift[has])


def _aggregate(aggregator: str, messages: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    if aggregator in _SHIFTED:
        return scatter(messages, target, dim_size=num_nodes, reduce=aggregator)
    mean = scatter(messages, target, dim_size=num_nodes, reduce="mean")
    order = MOMENTS[aggregator]
    moment = scatter((messages - mean[target]) ** order, target, dim_size=num_nodes, reduce="mean")
    return moment.sign() * moment.abs() ** (1 / order)


class Place(NamedTuple):
    """The place of a layer in Figure 3. `measured_place` returns it.

    `context` is how much a query changes the effect of its neighbours, 0 for an isotropic layer. `growth` is 1 if the
    effect of the neighbours grows with their number (sum) and 0 if it does not (mean).

    >>> Place(context=0.0, growth=1.0).growth
    1.0
    """

    context: float
    growth: float


@checked
def measured_place(layers: Sequence[Layer], channels: Size, num_nodes: Size = 8, seed: int = 0) -> Place:
    r"""Two measured properties of a layer (Figure 3), averaged over several draws of its weights.

    The graph is random and undirected, without self-loops. Let f be the output of the layer at a node u,
    :math:`h_u, h_u'` two queries, and H, H' two draws of the features of all other nodes. Then

    .. math::
        \mathrm{context} = \frac{\lVert [f(h_u', H') - f(h_u', H)] - [f(h_u, H') - f(h_u, H)] \rVert}
            {\lVert f(h_u', H') - f(h_u', H) \rVert + \lVert f(h_u, H') - f(h_u, H) \rVert},
        \qquad
        \mathrm{growth} = \log_2 \frac{\lVert f_2(h_u, H') - f_2(h_u, H) \rVert}{\lVert f(h_u, H') - f(h_u, H) \rVert}.

    The context is 0 if a message depends on the key alone, and if the query only adds a term of its own: GIN's
    residual, GraphSAGE's root weight, PNA's :math:`b_u`. For the growth, :math:`f_2` reads the graph with two copies of
    every node, each joined to both copies of its neighbours. This doubles every neighbourhood and keeps its
    proportions.

    Args:
        layers: the same layer with several draws of its weights, each called as `layer(x, edge_index)`.
        channels: the width of x.
        num_nodes: the number of nodes of the graph.
        seed: of the graph and of the features.

    >>> from torch_geometric.nn import GINConv
    >>> place = measured_place([GINConv(torch.nn.Identity())], channels=2)
    >>> round(place.context, 6), round(place.growth, 6)
    (0.0, 1.0)
    """
    if not layers:
        raise ValueError("layers: expected at least one, got none")
    generator = torch.Generator().manual_seed(seed)
    # A ring with random chords, so that every node has a neighbour.
    chords = torch.rand(num_nodes, num_nodes, generator=generator) < 0.4
    ring = torch.eye(num_nodes, dtype=torch.bool).roll(1, 0)
    edges = ((chords | chords.T | ring | ring.T) & ~torch.eye(num_nodes, dtype=torch.bool)).nonzero().T.contiguous()
    found = torch.tensor(
        [_place(layer, edges, channels, num_nodes, generator) for layer in layers], dtype=torch.float64
    )
    context, growth = found.mean(0).tolist()
    return Place(context, growth)


@torch.no_grad()
def _place(layer: Layer, edges: Tensor, channels: int, num_nodes: int, generator: torch.Generator) -> Place:
    one, other = torch.randn(2, num_nodes, channels, generator=generator, dtype=torch.float64)
    query = torch.randn(2, channels, generator=generator, dtype=torch.float64)

    def effect(own: Tensor, edge_index: Tensor, copies: int) -> Tensor:
        """How the output of u changes from H to H'."""
        outputs = []
        for features in (one, other):
            x = features.clone()
            x[0] = own
            outputs.append(layer(x.repeat(copies, 1), edge_index)[0])
        return outputs[1] - outputs[0]

    first, second = (effect(own, edges, 1) for own in query)
    shifts = torch.cartesian_prod(torch.arange(2), torch.arange(2)).T * num_nodes
    doubled = (edges.unsqueeze(1) + shifts.unsqueeze(2)).flatten(1)
    context = (second - first).norm() / (second.norm() + first.norm())
    growth = (effect(query[0], doubled, 2).norm() / first.norm()).log2()
    return Place(float(context), float(growth))
