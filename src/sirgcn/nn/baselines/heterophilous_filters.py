r"""Networks of Table 5 that filter features by polynomials of the adjacency: GPR-GNN, JacobiConv and FSGNN."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sirgcn.nn.adjacency import Graph, as_neighbors, with_self_loops
from sirgcn.nn.baselines.heterophilous import NodeNetwork, Prepared
from sirgcn.nn.dropout import Dropout
from sirgcn.ops.reductions import weighted_sum
from sirgcn.strict import Probability, Size, checked


class GPRGNN(NodeNetwork):
    r"""GPR-GNN (Chien et al., Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021, Eq. 1).

    .. math:: Z = \sum_{k=0}^{K} \gamma_k \tilde{A}^k f(X), \quad \tilde{A} = \tilde{D}^{-1/2} (A + I) \tilde{D}^{-1/2}

    f is an MLP of two layers. The learned :math:`\gamma` begins as personalised PageRank: :math:`\gamma_k` is
    :math:`\alpha (1 - \alpha)^k`, and :math:`\gamma_K` is :math:`(1 - \alpha)^K`.

    Args:
        order: K.
        alpha: the alpha of gamma's first values.
        dropout: the dropout before each layer of f.
        propagation_dropout: the dropout on f(X).

    >>> GPRGNN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 64,
        order: Size = 10,
        alpha: float = 0.1,
        dropout: Probability = 0.5,
        propagation_dropout: Probability = 0.5,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.alpha = alpha
        self.mlp = nn.Sequential(
            Dropout(dropout),
            nn.Linear(in_channels, hidden_channels),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden_channels, self.classes),
            Dropout(propagation_dropout),
        )
        self.gamma = nn.Parameter(torch.empty(order + 1))
        self._start()

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        super().reset_parameters()
        self._start()

    @torch.no_grad()
    def _start(self) -> None:
        powers = (1 - self.alpha) ** torch.arange(len(self.gamma), dtype=self.gamma.dtype, device=self.gamma.device)
        self.gamma.copy_(self.alpha * powers)
        self.gamma[-1] = powers[-1]

    def prepare(self, x: Tensor, graph: Graph) -> Prepared:
        """The neighbourhoods, each including the node itself."""
        return Prepared(type(self), (with_self_loops(graph, x.size(0)),))

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        h: Tensor = self.mlp(x)
        out = self.gamma[0] * h
        for weight in self.gamma[1:]:
            h = weighted_sum(h, prepared.graphs[0], "sym_in")
            out = out + weight * h
        return out


class JacobiConv(NodeNetwork):
    r"""JacobiConv (Wang and Zhang, How Powerful are Spectral Graph Neural Networks, ICML 2022, Section 5).

    .. math:: Z_{:c} = \sum_{k=0}^{K} \alpha_{kc} \prod_{i<k} \gamma_i\, P_k^{a,b}(\hat{A}) (X W + b)_{:c},
        \quad \gamma_i = \gamma' \tanh \eta_i, \quad \hat{A} = D^{-1/2} A D^{-1/2}

    :math:`P_k^{a,b}` are the Jacobi polynomials, computed by their recurrence. The authors' code subtracts the
    recurrence's term with :math:`a^2 - b^2`, which we add. Every class has its own filter.

    Args:
        order: K.
        a, b: the parameters of the polynomials, both greater than -1.
        scale: gamma'.
        input_dropout: the dropout on X.
        dropout: the dropout on X W + b.

    >>> JacobiConv(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        order: Size = 10,
        a: float = 1.0,
        b: float = 1.0,
        scale: float = 1.0,
        input_dropout: Probability = 0.0,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__(in_channels, out_channels)
        if min(a, b) <= -1:
            raise ValueError(f"a, b: expected more than -1, got {a} and {b}")
        if order < 1:
            raise ValueError(f"order: expected at least 1, got {order}")
        self.a, self.b, self.scale = a, b, scale
        self.embedding = nn.Sequential(Dropout(input_dropout), nn.Linear(in_channels, self.classes), Dropout(dropout))
        # The first value in its authors' code: tanh(1 / gamma') gamma' is near 1.
        self.eta = nn.Parameter(torch.full((order,), min(1 / scale, 1.0)))
        self.filters = nn.Parameter(torch.ones(order + 1, self.classes))

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        super().reset_parameters()
        nn.init.constant_(self.eta, min(1 / self.scale, 1.0))
        nn.init.ones_(self.filters)

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        (graph,) = prepared.graphs
        a, b, gamma = self.a, self.b, self.scale * self.eta.tanh()
        h: Tensor = self.embedding(x)
        # DLMF 18.9.2 with P_1 = (a + b + 2) / 2 z + (a - b) / 2; every step multiplies by one more gamma.
        before, out = h, self.filters[0] * h
        h = gamma[0] * ((a + b + 2) / 2 * weighted_sum(h, graph, "sym_in") + (a - b) / 2 * h)
        out = out + self.filters[1] * h
        for k in range(2, len(self.filters)):
            s = 2 * k + a + b
            norm = 2 * k * (k + a + b) * (s - 2)
            step = (s - 1) * s * (s - 2) / norm * weighted_sum(h, graph, "sym_in")
            step = step + (s - 1) * (a**2 - b**2) / norm * h
            back = 2 * (k - 1 + a) * (k - 1 + b) * s / norm
            before, h = h, gamma[k - 1] * (step - gamma[k - 2] * back * before)
            out = out + self.filters[k] * h
        return out


class FSGNN(NodeNetwork):
    r"""FSGNN (Maurya et al., Simplifying Approach to Node Classification in Graph Neural Networks, 2022, Section 4).

    .. math:: \hat{y} = W_2\, \mathrm{relu}\Big(\Big\Vert_j \omega_j
        \frac{W_j F_j + b_j}{\Vert W_j F_j + b_j \Vert_2}\Big), \quad
        F_j \in \{X, A^k X, (A + I)^k X\}_{k = 1 \ldots K}

    :math:`\omega` is the softmax of a learned vector.

    Args:
        order: K.
        dropout: the dropout before W_2.
        normalize: whether A and A + I are normalised symmetrically.

    >>> FSGNN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 64,
        order: Size = 3,
        dropout: Probability = 0.5,
        normalize: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.order, self.reduce = order, "sym_in" if normalize else "sum"
        self.embeddings = nn.ModuleList(nn.Linear(in_channels, hidden_channels) for _ in range(2 * order + 1))
        self.importance = nn.Parameter(torch.ones(2 * order + 1))
        self.dropout = Dropout(dropout)
        self.classifier = nn.Linear(hidden_channels * (2 * order + 1), self.classes)

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        super().reset_parameters()
        nn.init.ones_(self.importance)

    def prepare(self, x: Tensor, graph: Graph) -> Prepared:
        """X, followed by A^k X and (A + I)^k X for every k."""
        found = [x]
        graphs = as_neighbors(graph, x.size(0), x.size(0)), with_self_loops(graph, x.size(0))
        latest = [x, x]
        for _ in range(self.order):
            latest = [weighted_sum(h, g, self.reduce) for h, g in zip(latest, graphs, strict=True)]
            found += latest
        return Prepared(type(self), features=tuple(found))

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        pieces = zip(self.embeddings, self.importance.softmax(0), prepared.features, strict=True)
        hidden = [weight * F.normalize(lin(feature), dim=-1) for lin, weight, feature in pieces]
        out: Tensor = self.classifier(self.dropout(torch.cat(hidden, dim=-1).relu()))
        return out
