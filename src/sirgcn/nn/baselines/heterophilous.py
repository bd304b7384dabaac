r"""The networks for heterophilous graphs (Table 5): their common class `NodeNetwork`, H2GCN and GloGNN.

Unlike the convolutions of `CONVS`, they are whole networks, not layers in a block of `SIRNet`. They classify the nodes
of one graph.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset

from sirgcn.nn.adjacency import Graph, as_edge_index, as_neighbors, with_self_loops
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.linear import own_weights
from sirgcn.ops import Neighbors
from sirgcn.ops.reductions import weighted_sum
from sirgcn.strict import Probability, Size, checked

Loss = Callable[[Tensor, Tensor], Tensor]
"""A function from the logits of labelled nodes and their targets to a scalar."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The neighbourhoods and features that a network computes once per graph, without any weights."""

    network: type["NodeNetwork"]
    graphs: tuple[Neighbors, ...] = ()
    features: tuple[Tensor, ...] = ()


class NodeNetwork(nn.Module):
    """A network that classifies the nodes of one graph.

    A subclass has the method `scores`, its formula. A call prepares the graph and then computes the scores. To prepare
    the graph only once, call `prepare` and pass its result in place of the edges:
    `network(x, network.prepare(x, edge_index))`.

    Some networks are trained on more than the loss of their output. They have a method
    `objective(x, graph, rows, target, loss)`, which returns the value to minimise, given the labelled rows.

    Args:
        in_channels: the width of x.
        out_channels: the number of logits. 1 stands for two classes, whose logit is the difference of their scores, as
            in a softmax.

    >>> network, x, edge_index = H2GCN(3, 4).eval(), torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])
    >>> prepared = network.prepare(x, edge_index)
    >>> torch.equal(network(x, prepared), network(x, edge_index))
    True
    """

    # The formula of a network: scores (|V|, classes) from x and the prepared graph.
    scores: Callable[[Tensor, Prepared], Tensor]

    @checked
    def __init__(self, in_channels: Size, out_channels: Size) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.classes = max(2, out_channels)

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        for module in self.children():
            reset(module)

    def prepare(self, x: Tensor, graph: Graph) -> Prepared:
        """The part of the computation that needs no weights. Here it groups the edges."""
        return Prepared(type(self), (as_neighbors(graph, x.size(0), x.size(0)),))

    def prepared(self, x: Tensor, graph: Graph | Prepared) -> Prepared:
        """The prepared graph; raises a `ValueError` if x does not fit it."""
        if not x.is_floating_point():
            raise ValueError(f"x: expected a floating-point dtype, got {x.dtype}")
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"x: expected {self.in_channels} features per node, got shape {list(x.shape)}")
        if not isinstance(graph, Prepared):
            return self.prepare(x, graph)
        if graph.network is not type(self):
            raise ValueError(f"graph: expected one prepared by {type(self).__name__}, got {graph.network.__name__}'s")
        rows = {len(part) for part in graph.features} | {part.num_targets for part in graph.graphs}
        if rows != {x.size(0)}:
            raise ValueError(f"graph: expected one prepared for {x.size(0)} nodes, got one for {sorted(rows)}")
        return graph

    def forward(
        self, x: Tensor, graph: Graph | Prepared, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        """Logits `(|V|, out_channels)`. A batch must consist of one graph."""
        if batch_size not in (None, 1):
            raise ValueError(f"batch_size: expected 1, because {type(self).__name__} reads one graph, got {batch_size}")
        return self.logits(self.scores(x, self.prepared(x, graph)))

    def logits(self, scores: Tensor) -> Tensor:
        """The scores of the classes, or their difference where one logit stands for two classes."""
        return scores if self.out_channels > 1 else scores[:, 1:] - scores[:, :1]


def hops(graph: Graph, num_nodes: int) -> tuple[Neighbors, Neighbors]:
    """For every node, the nodes at distance 1 and the nodes at distance 2.

    >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> one, two = hops(path, 3)
    >>> two.edge_index.tolist()
    [[2, 0], [0, 2]]
    """
    source, target = as_edge_index(graph, num_nodes, num_nodes)
    place = torch.arange(num_nodes, device=source.device)
    pairs = torch.stack([torch.cat([target, place]), torch.cat([source, place])]).unique(dim=1)
    near = torch.sparse_coo_tensor(
        pairs, torch.ones(pairs.size(1)), (num_nodes, num_nodes), device=pairs.device, check_invariants=False
    )
    with warnings.catch_warnings():
        # torch computes the product in CSR format and warns that this format is in beta.
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        walks = torch.sparse.mm(near, near)
    # Walks of two steps, where a step may stay at a node. Nodes that one step reaches become negative.
    rest = (walks - (num_nodes + 1) * near).coalesce()
    found = rest.indices()[:, rest.values() > 0]
    one = pairs[:, pairs[0] != pairs[1]]
    first, second = (Neighbors.from_edge_index(index.flip(0).contiguous(), num_nodes) for index in (one, found))
    return first, second


class H2GCN(NodeNetwork):
    r"""H2GCN (Zhu et al., Beyond Homophily in Graph Neural Networks, NeurIPS 2020, Section 3.2, S1 to S3).

    .. math:: r^{(0)} = \mathrm{relu}(X W_E), \quad r^{(k)} = [\bar{A}_1 r^{(k-1)} \Vert \bar{A}_2 r^{(k-1)}], \quad
        \hat{y} = [r^{(0)} \Vert \ldots \Vert r^{(K)}] W_C

    :math:`A_i` joins the nodes at distance exactly i, and :math:`\bar{A}_i` is :math:`D_i^{-1/2} A_i D_i^{-1/2}`. The
    defaults are those of H2GCN-2 in its authors' scripts.

    >>> H2GCN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 64,
        num_layers: Size = 2,
        dropout: Probability = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.num_layers = num_layers
        self.embedding = Linear(in_channels, hidden_channels, bias=False, weight_initializer="glorot")
        self.dropout = Dropout(dropout)
        width = hidden_channels * (2 ** (num_layers + 1) - 1)
        self.classifier = Linear(width, self.classes, bias=False, weight_initializer="glorot")

    def prepare(self, x: Tensor, graph: Graph) -> Prepared:
        """The neighbourhoods of distance 1 and of distance 2."""
        return Prepared(type(self), hops(graph, x.size(0)))

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        rounds = [self.embedding(x).relu()]
        for _ in range(self.num_layers):
            around = [weighted_sum(rounds[-1], graph, "sym_in") for graph in prepared.graphs]
            rounds.append(torch.cat(around, dim=-1))
        out: Tensor = self.classifier(self.dropout(torch.cat(rounds, dim=-1)))
        return out


class GloGNN(NodeNetwork):
    r"""GloGNN (Li et al., Finding Global Homophily in Graph Neural Networks When Meeting Heterophily, ICML 2022).

    .. math:: H^{(0)} = W_2\, \mathrm{relu}(\delta\, W_X X + (1 - \delta) W_A \hat{A}), \quad
        H^{(l+1)} = (1 - \gamma) Z H^{(l)} + \gamma H^{(0)}

    Z joins all pairs of nodes. It minimises (Section 4)

    .. math:: \Vert H - (1 - \gamma) Z H - \gamma H^{(0)} \Vert_F^2 + \alpha \Vert Z \Vert_F^2
        + \beta \Vert Z - \sum_{k=1}^{K} \lambda_k \hat{A}^k \Vert_F^2

    with learned :math:`\lambda_k`. By the Woodbury identity, Z itself is never computed: a layer costs
    :math:`O(|V| c^2 + K |E| c)` for c classes. :math:`\hat{A}` averages over a node and its neighbours.

    Args:
        alpha, beta, gamma: the coefficients above; alpha + beta must be positive.
        delta: the share of the features in H^(0); the rows of the adjacency have the share 1 - delta.
        orders: K.
        num_nodes: the number of nodes of the graph. It is needed if delta < 1, because W_A has a row per node.

    >>> GloGNN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 64,
        num_layers: Size = 2,
        dropout: Probability = 0.0,
        alpha: float = 0.0,
        beta: float = 1.0,
        gamma: float = 0.0,
        delta: float = 1.0,
        orders: int = 1,
        num_nodes: int | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels)
        if alpha + beta <= 0 or min(alpha, beta) < 0:
            raise ValueError(f"alpha, beta: expected at least 0 and one of them positive, got {alpha} and {beta}")
        if not 0 <= gamma < 1 or not 0 <= delta <= 1:
            raise ValueError(f"gamma, delta: expected 0 <= gamma < 1 and 0 <= delta <= 1, got {gamma} and {delta}")
        if delta < 1 and num_nodes is None:
            raise ValueError(f"num_nodes: expected the nodes of the graph where delta < 1, got None with delta {delta}")
        self.num_layers, self.alpha, self.beta, self.gamma, self.delta = num_layers, alpha, beta, gamma, delta
        self.of_features = nn.Linear(in_channels, hidden_channels)
        self.of_adjacency = nn.Linear(num_nodes, hidden_channels) if num_nodes is not None and delta < 1 else None
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden_channels, self.classes)
        self.orders = nn.Parameter(torch.full((orders,), 1 / orders))

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        super().reset_parameters()
        nn.init.constant_(self.orders, 1 / len(self.orders))

    def prepare(self, x: Tensor, graph: Graph) -> Prepared:
        """The neighbourhoods, each including the node itself."""
        return Prepared(type(self), (with_self_loops(graph, x.size(0)),))

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        (graph,) = prepared.graphs
        hidden = self.delta * self.of_features(self.dropout(x))
        if self.of_adjacency is not None:
            weight, bias = own_weights(self.of_adjacency, "of_adjacency")
            around = weighted_sum(weight.t().contiguous(), graph, "mean")
            hidden = hidden + (1 - self.delta) * (around if bias is None else around + bias)
        first = h = self.classifier(self.dropout(hidden.relu()))
        for _ in range(self.num_layers):
            h = self._layer(h, first, graph)
        return h

    def _layer(self, h: Tensor, first: Tensor, graph: Neighbors) -> Tensor:
        """(1 - gamma) Z H + gamma H^(0), from Q = (1 - gamma) [(1 - gamma)^2 H H^T + (alpha + beta) I]^-1 H."""
        share, total = 1 - self.gamma, self.alpha + self.beta
        # The matrix has a row per class. In float32 it would lose precision as the norm of H grows.
        gram = (h.t() @ h).double()
        core = torch.eye(h.size(1), dtype=gram.dtype, device=h.device) / share**2 + gram / total
        q = share / total * (h - h @ (torch.linalg.solve(core, gram) / total).to(h.dtype))
        inner = h.t() @ q
        out = share * (h - self.gamma * first) @ inner + self.gamma * first
        for weight in self.orders:
            q = weighted_sum(q, graph, "mean")
            out = out + self.beta * weight * q
        return out
