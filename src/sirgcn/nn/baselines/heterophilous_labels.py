r"""Networks of Table 5 that learn from the pairs of labels of neighbours: CPGNN and GBK-GNN.

Both are trained on more than the loss of their output, see their `objective`.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot, zeros

from sirgcn.nn.adjacency import Graph
from sirgcn.nn.baselines.heterophilous import Loss, NodeNetwork, Prepared
from sirgcn.nn.baselines.messages import edge_scores
from sirgcn.nn.dropout import Dropout
from sirgcn.ops import Neighbors
from sirgcn.ops.reductions import weighted_sum
from sirgcn.strict import Probability, Size, checked


class CPGNN(NodeNetwork):
    r"""CPGNN-MLP (Zhu et al., Graph Neural Networks with Heterophily, AAAI 2021, Section 3).

    .. math:: B = \mathrm{softmax}(\mathrm{MLP}(X)), \quad \bar{B}^{(0)} = B - \tfrac{1}{c}, \quad
        \bar{B}^{(k)} = \bar{B}^{(0)} + A \bar{B}^{(k-1)} \bar{H}

    The scores of the c classes are :math:`\bar{B}^{(K)}`, and :math:`\bar{H} = H - 1/c` is the learned compatibility
    of classes. The training has two stages:

    1. Only the MLP is trained, and its output is the output of the network.
    2. The MLP and H are trained. H begins as the doubly stochastic form of :math:`Y^T A \tilde{B}`, made symmetric.
       Y are the training labels, and :math:`\tilde{B}` has the labels of the training nodes and B of the other nodes.

    Args:
        num_layers: K.
        pretraining: the number of training steps of the first stage.
        prior_weight: the weight of the loss of the MLP's output in the second stage.

    >>> CPGNN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    steps: Tensor

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 64,
        num_layers: Size = 2,
        dropout: Probability = 0.0,
        pretraining: int = 400,
        prior_weight: float = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.num_layers, self.pretraining, self.prior_weight = num_layers, pretraining, prior_weight
        self.prior = nn.Sequential(
            Linear(in_channels, hidden_channels, bias=False, weight_initializer="glorot"),
            Dropout(dropout),
            nn.ReLU(),
            Linear(hidden_channels, self.classes, bias=False, weight_initializer="glorot"),
        )
        self.compatibility = nn.Parameter(torch.zeros(self.classes, self.classes))
        # A buffer, so that a resumed training and loaded weights know their stage.
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def reset_parameters(self) -> None:
        """Draw all parameters again, and return to the first stage."""
        super().reset_parameters()
        zeros(self.compatibility)
        self.steps.zero_()

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        prior: Tensor = self.prior(x)
        return self._propagated(prior, prepared.graphs[0]) if int(self.steps) > self.pretraining else prior

    def _propagated(self, prior: Tensor, graph: Neighbors) -> Tensor:
        belief = first = prior.softmax(-1) - 1 / self.classes
        for _ in range(self.num_layers):
            belief = first + weighted_sum(belief @ self.compatibility, graph)
        return belief

    def objective(self, x: Tensor, graph: Graph | Prepared, rows: Tensor, target: Tensor, loss: Loss) -> Tensor:
        r"""The loss of the MLP, or :math:`\ell(\bar{B}^{(K)}) + \eta\, \ell(B) + \sum_i |\sum_j \bar{H}_{ij}|`.

        Args:
            x: the node features.
            graph: the edges, or the result of `prepare`.
            rows: the labelled nodes.
            target: the labels of these nodes.
            loss: the loss of logits.
        """
        label = _classes(target)
        (neighbors,) = self.prepared(x, graph).graphs
        step, prior = int(self.steps), self.prior(x)
        of_prior = loss(self.logits(prior)[rows], target)
        self.steps += 1
        if step < self.pretraining:
            return of_prior
        if step == self.pretraining:
            self._start(prior.detach(), neighbors, rows, label)
        of_output = loss(self.logits(self._propagated(prior, neighbors))[rows], target)
        return of_output + self.prior_weight * of_prior + self.compatibility.sum(-1).abs().sum()

    @torch.no_grad()
    def _start(self, prior: Tensor, graph: Neighbors, rows: Tensor, label: Tensor) -> None:
        known = torch.zeros_like(prior)
        known[rows] = F.one_hot(label, self.classes).to(prior.dtype)
        belief = prior.softmax(-1)
        belief[rows] = known[rows]
        found = doubly_stochastic(known.t() @ weighted_sum(belief, graph))
        self.compatibility.copy_((found + found.t()) / 2 - 1 / self.classes)


def _classes(target: Tensor) -> Tensor:
    if target.numel() != target.size(0):
        raise ValueError(f"target: expected one class per node, got shape {list(target.shape)}")
    return target.long().view(-1)


def doubly_stochastic(matrix: Tensor, steps: int = 1000) -> Tensor:
    """A non-negative matrix, scaled so that every row and every column sums to 1 (Sinkhorn and Knopp).

    >>> doubly_stochastic(torch.tensor([[1.0, 3.0], [3.0, 1.0]])).round(decimals=3).tolist()
    [[0.25, 0.75], [0.75, 0.25]]
    """
    # A matrix with zeros, from classes that are never neighbours, may have no such scaling.
    found = matrix.double() + 1e-9 * matrix.sum().clamp(min=1)
    for _ in range(steps):
        last = found
        found = found / found.sum(0, keepdim=True)
        found = found / found.sum(1, keepdim=True)
        if float((found - last).abs().max()) < 1e-12:
            break
    return found.to(matrix.dtype)


class _BiKernel(nn.Module):
    r"""W_F h_u + b plus the mean of g_uv W_S h_v + (1 - g_uv) W_D h_v, and the logits of the gates `(|E|)`.

    g_uv is sigmoid(leaky_relu(a_T W_G h_u + a_S W_G h_v)).
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_self = Linear(in_channels, out_channels)
        self.lin_similar, self.lin_dissimilar, self.lin_gate = (
            Linear(in_channels, out_channels, bias=False, weight_initializer="glorot") for _ in range(3)
        )
        self.gate_target, self.gate_source = (nn.Parameter(torch.empty(1, out_channels)) for _ in range(2))
        self._start()

    def reset_parameters(self) -> None:
        for lin in (self.lin_self, self.lin_similar, self.lin_dissimilar, self.lin_gate):
            lin.reset_parameters()
        self._start()

    def _start(self) -> None:
        glorot(self.gate_target)
        glorot(self.gate_source)

    def forward(self, h: Tensor, graph: Neighbors) -> tuple[Tensor, Tensor]:
        ends = self.lin_gate(h)
        target, source = ((ends * weight).sum(-1, keepdim=True) for weight in (self.gate_target, self.gate_source))
        logits = edge_scores(lambda t, s: F.leaky_relu(t + s, 0.2), target, source, graph).squeeze(-1)
        gates = logits.sigmoid()
        similar = weighted_sum(self.lin_similar(h), graph, "mean", gates)
        dissimilar = weighted_sum(self.lin_dissimilar(h), graph, "mean", 1 - gates)
        return self.lin_self(h) + similar + dissimilar, logits


class GBKGNN(NodeNetwork):
    r"""GBK-GNN (Du et al., Gated Bi-Kernel Graph Neural Networks, WWW 2022, Section 4).

    .. math:: h_u^* = W_F h_u + \frac{1}{|N(u)|} \sum_{v \in N(u)} g_{uv} W_S h_v + (1 - g_{uv}) W_D h_v

    with ReLU and dropout between the layers. The gate :math:`g_{uv} = \mathrm{sigmoid}(\mathrm{leaky\_relu}(a_T^T W_G
    h_u + a_S^T W_G h_v))` estimates whether u and v have the same class, and is trained on this, too.

    The form of the gate is that of the authors' code (Xzh0u/GBK-GNN). Otherwise, where the code differs from the paper,
    this class follows the paper. The code differs in three points:

    - the second kernel reads h_u in place of h_v
    - if the width is even, two kernels of half the width stand side by side
    - the gates' loss uses g and 1 - g as logits, which makes it smaller at the same lambda

    Args:
        num_layers: the number of layers.
        gate_weight: lambda, the weight of the gates' loss.

    >>> GBKGNN(3, 4)(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 16,
        num_layers: Size = 2,
        dropout: Probability = 0.5,
        gate_weight: float = 30.0,
    ) -> None:
        super().__init__(in_channels, out_channels)
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), self.classes]
        self.layers = nn.ModuleList(_BiKernel(*pair) for pair in pairwise(widths))
        self.dropout = Dropout(dropout)
        self.gate_weight = gate_weight

    def scores(self, x: Tensor, prepared: Prepared) -> Tensor:
        return self._outputs(x, prepared.graphs[0])[0]

    def _outputs(self, x: Tensor, graph: Neighbors) -> tuple[Tensor, list[Tensor]]:
        found: list[Tensor] = []
        for layer in self.layers:
            x, gates = layer(x if not found else self.dropout(x.relu()), graph)
            found.append(gates)
        return x, found

    def objective(self, x: Tensor, graph: Graph | Prepared, rows: Tensor, target: Tensor, loss: Loss) -> Tensor:
        r""":math:`\ell(\hat{y}) + \lambda \sum_l` the cross-entropy of the gates of edges between labelled nodes.

        The target of a gate is whether both ends have the same label. The arguments are those of `CPGNN.objective`.
        """
        label = torch.full((x.size(0),), -1, dtype=torch.int64, device=x.device)
        label[rows] = _classes(target)
        (neighbors,) = self.prepared(x, graph).graphs
        scores, gates = self._outputs(x, neighbors)
        source, goal = (label.index_select(0, end) for end in neighbors.edge_index)
        known = ((source >= 0) & (goal >= 0)).nonzero().squeeze(1)
        total = loss(self.logits(scores)[rows], target)
        if len(known):
            same = (source == goal)[known].to(x.dtype)
            total = total + self.gate_weight * sum(
                F.binary_cross_entropy_with_logits(gate[known], same) for gate in gates
            )
        return total
