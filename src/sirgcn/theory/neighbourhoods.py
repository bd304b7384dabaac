r"""What a layer knows of a neighbourhood: the counts of its values, its sum, and which message depends on what.

SINC-GCN is the successor of SIR-GCN (Lim et al., arXiv:2511.11046). Its message depends on the whole neighbourhood,
where that of SIR-GCN depends on the two ends of an edge. The aggregator decides what the next layer learns:

- The maximum keeps which values a neighbourhood has, and loses how often. So the sum of the values is lost too.
- The sum of messages can keep how often each value occurs, and the sum of the values follows from these counts.
- With a context, one layer compares each neighbour with the sum of all of them.
"""

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.nn import SIRConv

X = Float[Tensor, "nodes features"]
EdgeIndex = Int[Tensor, "2 edges"]


def without_repetitions(x: X, edge_index: EdgeIndex) -> Int[Tensor, "2 fewer"]:
    r"""The edges, with one neighbour for each different feature: :math:`\{\!\{h_v\}\!\}` as the set :math:`\{h_v\}`.

    A layer by max has the same output on both graphs, whatever its weights are. The sums of the two neighbourhoods
    differ, so that no layer after it can compute the sum.

    >>> x = torch.tensor([[1.0], [1.0], [2.0]])
    >>> without_repetitions(x, torch.tensor([[0, 1, 2], [2, 2, 2]])).tolist()
    [[0, 2], [2, 2]]
    """
    _, value = torch.unique(x, dim=0, return_inverse=True)
    seen: set[tuple[int, int]] = set()
    kept = []
    for place, (source, target) in enumerate(edge_index.t().tolist()):
        pair = int(value[source]), target
        if pair not in seen:
            seen.add(pair)
            kept.append(place)
    return edge_index[:, kept]


def count_values(
    x: Float[Tensor, " nodes"], edge_index: EdgeIndex, values: Float[Tensor, " values"]
) -> Float[Tensor, "nodes values"]:
    r"""How many neighbours of every node have each value, by a SIR-GCN with sum that was never trained.

    .. math:: n_{u,j} = |\{v \in N(u) : x_v = t_j\}| = \sum_{v \in N(u)} W_R \, \mathrm{ReLU}(x_v - b)_j

    The values :math:`t_1 < t_2 < \dots` are known, :math:`b_1 = t_1 - 1`, and :math:`b_j = t_{j-1}` after that. The
    matrix :math:`A_{ij} = \mathrm{ReLU}(t_j - b_i)` is then triangular, and :math:`W_R` is its inverse.

    Args:
        x: a feature of every node, each one of the values.
        edge_index: the edges.
        values: the values, each once and in rising order.

    >>> x, values = torch.tensor([3.0, 3.0, -1.0]), torch.tensor([-1.0, 3.0])
    >>> count_values(x, torch.tensor([[0, 1, 2], [2, 2, 2]]), values)[2].tolist()
    [1.0, 2.0]
    """
    if values.dim() != 1 or len(values) == 0 or bool((values.diff() <= 0).any()):
        raise ValueError(f"values: expected different numbers in rising order, got {values.tolist()}")
    below = torch.cat([values[:1] - 1, values[:-1]])
    conv = SIRConv(1, len(values), aggr="sum", bias=False).to(x)
    inverse = torch.linalg.inv((values - below[:, None]).relu())
    _set(conv.lin_query, torch.zeros(len(values), 1), -below)
    _set(conv.lin_key, torch.ones(len(values), 1))
    _set(conv.lin_relation, inverse)
    with torch.no_grad():
        out: Tensor = conv(x[:, None], edge_index)
    return out


def count_signatures(x: Float[Tensor, " nodes"], edge_index: EdgeIndex) -> Float[Tensor, " nodes"]:
    r"""How many neighbours have the sum of the neighbourhood as their feature, by one layer with a context.

    .. math:: \sum_{v \in N(u)} \left[ R(z_v + 1) - 2 R(z_v) + R(z_v - 1) \right],
        \qquad z_v = x_v - \sum_{w \in N(u)} x_w, \qquad R = \mathrm{ReLU}

    For integers the bracket is 1 where z is 0, and 0 elsewhere. A node is positive in UniqueSignature if this count is
    not 0. The layer was never trained: :math:`W_Q = 0`, :math:`W_K = 1` and :math:`W_N = -1`, with the sum as context.

    Args:
        x: an integer feature of every node, as floating-point numbers.
        edge_index: the edges.

    >>> x = torch.tensor([2.0, 0.0, -2.0, 5.0])
    >>> count_signatures(x, torch.tensor([[0, 1, 2], [3, 3, 3]])).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    conv = SIRConv(1, 1, hidden_channels=3, aggr="sum", context="sum", bias=False).to(x)
    _set(conv.lin_query, torch.zeros(3, 1), torch.tensor([1.0, 0.0, -1.0]))
    _set(conv.lin_key, torch.ones(3, 1))
    _set(conv.lin_context, -torch.ones(3, 1))
    _set(conv.lin_relation, torch.tensor([[1.0, -2.0, 1.0]]))
    with torch.no_grad():
        out: Tensor = conv(x[:, None], edge_index)
    return out[:, 0]


def context_dependence(conv: SIRConv, x: X, edge_index: EdgeIndex) -> Float[Tensor, " edges"]:
    r"""How much the message of each edge depends on nodes other than the edge's ends.

    .. math:: \max_{w \notin \{u, v\}} \left\lVert \frac{\partial m_{uv}}{\partial h_w} \right\rVert_\infty

    It is 0 for every SIR-GCN. With a context and weights drawn at random it is not 0 where :math:`\sigma' \neq 0` and
    the context sees a third node.

    Args:
        conv: a layer on one set of nodes.
        x: the features.
        edge_index: the edges.

    >>> x, edge_index = torch.eye(3), torch.tensor([[0, 1], [2, 2]])
    >>> context_dependence(SIRConv(3, 4, activation="tanh"), x, edge_index).tolist()
    [0.0, 0.0]
    >>> bool((context_dependence(SIRConv(3, 4, activation="tanh", context="sum"), x, edge_index) > 0).all())
    True
    """
    seen: list[Tensor] = []
    observed = copy.deepcopy(conv)
    observed.register_message_forward_hook(lambda module, given, out: seen.append(out))

    def messages(x: Tensor) -> Tensor:
        observed(x, edge_index)
        return seen.pop()

    jacobian = torch.autograd.functional.jacobian(messages, x)
    # The shape is [edges, channels, nodes, features].
    found = jacobian.abs().amax((1, 3))
    return found.scatter(1, edge_index.t(), 0.0).amax(1)


def _set(lin: nn.Module | None, weight: Tensor, bias: Tensor | None = None) -> None:
    """Give a linear layer these weights."""
    with torch.no_grad():
        for name, value in (("weight", weight), ("bias", bias)):
            parameter = getattr(lin, name)
            if value is not None:
                parameter.copy_(value)
