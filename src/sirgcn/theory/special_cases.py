r"""Section 4 as functions: what SIR-GCN is with other parameters (of PNA speaks `influence`).

Each claim takes a layer of PyG and a graph, and gives its `Sides`: the output of SIR-GCN with the parameters that the
paper names, the output of the layer, and the paper's formula in dense matrices, with :math:`A_{uv}` the number of edges
from v to u. They are equal on any graph, isolated nodes, self-loops and repeated edges included.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, GINEConv, SAGEConv
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops, scatter, softmax

from sirgcn.nn import SIRConv, from_gatv2_scores, from_gcn, from_gin, from_gine, from_sage

X = Float[Tensor, "nodes features"]
EdgeIndex = Int[Tensor, "2 edges"]


class Sides(NamedTuple):
    """The sides of a claim: what SIR-GCN gives, what the layer gives, and what the paper's formula gives."""

    sir: Tensor
    layer: Tensor
    formula: Tensor

    def error(self) -> float:
        """The largest difference between two sides, relative to the formula's largest entry where that exceeds 1."""
        if not self.formula.numel():
            return 0.0
        sir, layer, formula = (side.detach() for side in self)
        # Of tensors, whose maximum is nan where a side is; Python's would hide it.
        apart = torch.stack([sir - formula, layer - formula]).abs().max()
        return float(apart / formula.abs().max().clamp(min=1))


def gcn(conv: GCNConv, x: X, edge_index: EdgeIndex) -> Sides:
    r"""GCN (Section 4.1): sigma the identity, :math:`W_Q = 0`, :math:`W_R W_K = W`, symmetric mean.

    .. math:: h_u^* = b + \sum_{v \in N(u)} \frac{1}{\sqrt{|N(u)|} \sqrt{|N(v)|}} W h_v

    where N(u) contains u, as the layer adds the self-loops.
    """
    edges, _ = add_remaining_self_loops(edge_index, num_nodes=x.size(0))
    counts = _counts(edges, x)
    scale = counts.sum(1).rsqrt()
    formula = _plus((scale[:, None] * counts * scale) @ conv.lin(x), conv.bias)
    return Sides(from_gcn(conv)(x, edge_index), conv(x, edge_index), formula)


def sage_mean(conv: SAGEConv, x: X, edge_index: EdgeIndex) -> Sides:
    r"""GraphSAGE with mean (Section 4.1): as `gcn`, with the mean over :math:`\tilde N(u) = N(u) \cup \{u\}`.

    .. math:: h_u^* = \frac{1}{|\tilde N(u)|} \sum_{v \in \tilde N(u)} W h_v

    plus what the layer has beyond the paper's formula: a bias, and :math:`W_1 h_u` with a root weight, which is
    SIR-GCN's residual.
    """
    edges, _ = add_remaining_self_loops(edge_index, num_nodes=x.size(0))
    counts = _counts(edges, x)
    formula = conv.lin_l(counts @ x / counts.sum(1, keepdim=True))
    if conv.root_weight:
        formula = formula + conv.lin_r(x)
    return Sides(from_sage(conv)(x, edges), conv(x, edges), formula)


def sage_max(conv: SAGEConv, x: X, edge_index: EdgeIndex) -> Sides:
    r"""GraphSAGE with max pooling (Section 4.1), 'albeit without theoretical justification'.

    .. math:: h_u^* = W \max_{v \in N(u)} \mathrm{ReLU}(W_P h_v + b_P) + b

    for a layer with `project=True`; without it the maximum is that of :math:`h_v`. The maximum over no neighbours is 0.
    """
    pooled = conv.lin(x).relu() if conv.project else x
    is_edge = _counts(edge_index, x) > 0
    # A column of -inf, so that a graph without nodes has a maximum too.
    found = torch.where(is_edge[:, :, None], pooled, -torch.inf).amax(1) if x.size(0) else pooled
    formula = conv.lin_l(torch.where(is_edge.any(1, keepdim=True), found, 0.0))
    if conv.root_weight:
        formula = formula + conv.lin_r(x)
    return Sides(from_sage(conv)(x, edge_index), conv(x, edge_index), formula)


def gatv2_scores(conv: GATv2Conv, x: X, edge_index: EdgeIndex) -> Sides:
    r"""GATv2's score as a contextual message (Section 4.2): :math:`\sigma` = LeakyReLU, :math:`W_R = a^\top`.

    .. math::
        e_{u,v} = a^\top \mathrm{LeakyReLU}(W_Q h_u + W_K h_v), \qquad h_u^* = \sum_{v \in N(u)} e_{u,v}

    per head. The layer keeps its scores to itself: its side is their sum, read off the attention that it returns,
    :math:`\log \alpha_{u,v} = e_{u,v} - \log \sum_w \exp e_{u,w}`, and the logarithm of its normalising constant.
    """
    edges = _attended(conv, x, edge_index)
    _, (_, alpha) = conv(x, edges, return_attention_weights=True)
    target = edges[1]
    scores = (F.leaky_relu(_ends(conv, x, edges), conv.negative_slope) * conv.att).sum(-1)
    # What the softmax takes off every score of N(u); the layer does not tell it.
    constant = scores - softmax(scores, target, num_nodes=x.size(0)).log()
    from_layer = scatter(alpha.log() + constant, target, dim_size=x.size(0))
    query = conv.lin_r(x).unflatten(1, (conv.heads, -1))[:, None]
    key = conv.lin_l(x).unflatten(1, (conv.heads, -1))[None]
    dense = (F.leaky_relu(query + key, conv.negative_slope) * conv.att).sum(-1)
    formula = (_counts(edges, x)[:, :, None] * dense).sum(1)
    return Sides(from_gatv2_scores(conv)(x, edges), from_layer, formula)


class Attending(nn.Module):
    r"""The sigma with which SIR-GCN is an attention: :math:`[z || t] \mapsto [\exp(e(z)) \, t || \exp(e(z))]` per head.

    Args:
        score: e, from `(*, heads, width)` to `(*, heads)`.
        heads: how many.
        width: entries of z per head; the rest of the input is t.
    """

    def __init__(self, score: nn.Module, heads: int, width: int) -> None:
        super().__init__()
        self.score = score
        self.heads = heads
        self.width = width

    def forward(self, z: Tensor) -> Tensor:
        """The messages `(*, heads * channels + heads)` of `(*, heads * width + heads * channels)`."""
        scored, value = z.split([self.heads * self.width, z.size(-1) - self.heads * self.width], dim=-1)
        weight = self.score(scored.unflatten(-1, (self.heads, self.width))).exp()
        weighted = weight.unsqueeze(-1) * value.unflatten(-1, (self.heads, -1))
        return torch.cat([weighted.flatten(-2), weight], dim=-1)


class _Score(nn.Module):
    """a^T LeakyReLU(z) of GATv2, or LeakyReLU(z) of GAT, whose a acts before it."""

    def __init__(self, slope: float, vector: Tensor | None) -> None:
        super().__init__()
        self.slope = slope
        self.vector = None if vector is None else nn.Parameter(vector.detach().clone())

    def forward(self, z: Tensor) -> Tensor:
        z = F.leaky_relu(z, self.slope)
        return z.squeeze(-1) if self.vector is None else (z * self.vector).sum(-1)


def attention_as_messages(conv: GATConv | GATv2Conv) -> SIRConv:
    r"""GAT or GATv2 up to its normalising constant, as a SIRConv (Section 4.2).

    .. math::
        h_u^* = \Bigl[\sum_v \exp(e_{u,v}) \, W h_v \,\Big\|\, \sum_v \exp(e_{u,v})\Bigr],
        \qquad W_Q = \begin{bmatrix} Q \\ 0 \end{bmatrix}, \quad W_K = \begin{bmatrix} K \\ W \end{bmatrix}

    with `Attending` as sigma, which sees the sum :math:`Q h_u + K h_v` in its first half and :math:`W h_v` alone in its
    second. For GATv2 Q and K are its :math:`W_Q` and :math:`W_K`; for GAT they are :math:`a_Q^\top W` and
    :math:`a_K^\top W`, one row per head. The last entries, one per head, are the constant.
    """
    if type(conv) not in (GATConv, GATv2Conv):
        raise TypeError(f"conv: expected PyG's GATConv or GATv2Conv itself, got {type(conv).__name__}")
    if conv.edge_dim is not None or conv.residual:
        raise ValueError("conv: expected a layer without edge_dim and residual, which the statement does not have")
    value: Tensor = _value(conv).weight
    bias: Tensor | None = None
    query: Tensor
    key: Tensor
    if isinstance(conv, GATv2Conv):
        query, key = conv.lin_r.weight, conv.lin_l.weight
        # PyG annotates its biases as parameters, although they may be None.
        if (own := getattr(conv.lin_l, "bias", None)) is not None:
            bias = torch.cat([conv.lin_r.bias + own, own])
        score, width = _Score(conv.negative_slope, conv.att[0]), conv.out_channels
    else:
        per_head = value.unflatten(0, (conv.heads, -1))
        query, key = (torch.einsum("hc,hcf->hf", vector[0], per_head) for vector in (conv.att_dst, conv.att_src))
        score, width = _Score(conv.negative_slope, None), 1
    channels = value.size(0)
    sigma = Attending(score, conv.heads, width)
    # On the meta device no weight is drawn that is replaced below, and torch's random state stays.
    with torch.device("meta"):
        sir = SIRConv(
            query.size(1),
            channels + conv.heads,
            query.size(0) + channels,
            activation=sigma,
            inner_bias=bias is not None,
        )
    sir.lin_relation = nn.Identity()
    sir.lin_query.weight = nn.Parameter(torch.cat([query, torch.zeros_like(value)]).detach())
    sir.lin_key.weight = nn.Parameter(torch.cat([key, value]).detach())
    if bias is not None:
        sir.lin_query.bias = nn.Parameter(bias.detach())
    return sir.train(conv.training)


def attention(conv: GATConv | GATv2Conv, x: X, edge_index: EdgeIndex) -> Sides:
    r"""GAT and GATv2 'may also be recovered, up to a normalizing constant' (Section 4.2).

    .. math:: h_u^* = \sum_{v \in N(u)} \frac{\exp(e_{u,v})}{\sum_{w \in N(u)} \exp(e_{u,w})} \, W h_v

    SIR-GCN's side divides the first part of `attention_as_messages` by its last, which is the constant. A node without
    neighbours has no constant and gets 0, as the layer has it.
    """
    edges = _attended(conv, x, edge_index)
    found = attention_as_messages(conv)(x, edges)
    weighted, constant = found.split([found.size(1) - conv.heads, conv.heads], dim=1)
    has_neighbors = torch.bincount(edges[1], minlength=x.size(0)).unsqueeze(1) > 0
    share = weighted.unflatten(1, (conv.heads, -1)) / torch.where(has_neighbors, constant, 1.0).unsqueeze(-1)

    value = _value(conv)(x).unflatten(1, (conv.heads, -1))
    if isinstance(conv, GATv2Conv):
        scores = (F.leaky_relu(_ends(conv, x, edges), conv.negative_slope) * conv.att).sum(-1)
    else:
        of_source, of_target = ((value * vector).sum(-1) for vector in (conv.att_src, conv.att_dst))
        scores = F.leaky_relu(of_source[edges[0]] + of_target[edges[1]], conv.negative_slope)
    alpha = softmax(scores, edges[1], num_nodes=x.size(0))
    summed = scatter(alpha.unsqueeze(-1) * value[edges[0]], edges[1], dim_size=x.size(0))
    return Sides(_finish(conv, share), conv(x, edge_index), _finish(conv, summed))


def gin(conv: GINConv, x: X, edge_index: EdgeIndex, in_channels: int | None = None) -> Sides:
    r"""GIN (Section 4.3): residual :math:`(1 + \epsilon) h`, sigma the identity, :math:`W_Q = 0`, :math:`W_R W_K = I`.

    .. math:: h_u^* = (1 + \epsilon) \, h_u + \sum_{v \in N(u)} h_v

    and then the layer's network, which is `nn.Identity()` in the paper's formula.
    """
    formula = conv.nn((1 + conv.eps) * x + _counts(edge_index, x) @ x)
    return Sides(from_gin(conv, in_channels)(x, edge_index), conv(x, edge_index), formula)


def gine(
    conv: GINEConv,
    x: X,
    edge_index: EdgeIndex,
    edge_attr: Float[Tensor, "edges edge_features"],
    in_channels: int | None = None,
) -> Sides:
    r"""GIN with edge features (Appendix E): as `gin`, with sigma = ReLU and :math:`W_E h_{u,v}` inside it.

    .. math:: h_u^* = (1 + \epsilon) \, h_u + \sum_{v \in N(u)} \mathrm{ReLU}(h_v + W_E h_{u,v} + b)
    """
    lin: nn.Module | None = conv.lin
    edge = edge_attr if lin is None else lin(edge_attr)
    source, target = edge_index
    messages = (x[source] + edge).relu()
    to_target = F.one_hot(target.long(), x.size(0)).to(x.dtype)
    formula = conv.nn((1 + conv.eps) * x + to_target.T @ messages)
    sir = from_gine(conv, in_channels)(x, edge_index, edge_attr)
    return Sides(sir, conv(x, edge_index, edge_attr), formula)


def count_heterophilous_edges(
    labels: Int[Tensor, " nodes"], edge_index: EdgeIndex, num_classes: int
) -> Float[Tensor, " nodes"]:
    r"""The layer that solves HeteroEdgeCount (Section 5.1): at every node, its in-edges from other labels.

    .. math:: h_u^* = \sum_{v \in N(u)} \mathbf{1}^\top \mathrm{ReLU}(h_u - h_v)

    on indicators of the labels: :math:`W_Q = I`, :math:`W_K = -I`, :math:`W_R = \mathbf{1}^\top`. The sum over the
    nodes is the target of every graph.
    """
    conv = SIRConv(num_classes, 1, num_classes, inner_bias=False, bias=False).double()
    eye = torch.eye(num_classes, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in (("query", eye), ("key", -eye), ("relation", eye.sum(0, keepdim=True))):
            conv.get_parameter(f"lin_{name}.weight").copy_(weight)
        return conv(F.one_hot(labels.long(), num_classes).double(), edge_index).squeeze(-1)


def _counts(edge_index: EdgeIndex, x: Tensor) -> Tensor:
    """A_uv, the number of edges from v to u, in x's dtype."""
    counts = x.new_zeros(x.size(0), x.size(0))
    return counts.index_put((edge_index[1].long(), edge_index[0].long()), x.new_ones(()), accumulate=True)


def _ends(conv: GATv2Conv, x: Tensor, edges: Tensor) -> Tensor:
    """W_Q h_u + W_K h_v of every edge, `(edges, heads, channels)`."""
    return (conv.lin_r(x)[edges[1]] + conv.lin_l(x)[edges[0]]).unflatten(1, (conv.heads, -1))


def _value(conv: GATConv | GATv2Conv) -> Linear:
    """W, which the attention weighs."""
    lin = conv.lin_l if isinstance(conv, GATv2Conv) else conv.lin
    if lin is None:
        raise ValueError("conv: expected a layer for one set of nodes, got one for a (source, target) pair")
    return lin


def _attended(conv: GATConv | GATv2Conv, x: Tensor, edge_index: EdgeIndex) -> Tensor:
    """The edges that the layer attends over: with one self-loop each, if it adds them."""
    if not conv.add_self_loops:
        return edge_index
    return add_self_loops(remove_self_loops(edge_index)[0], num_nodes=x.size(0))[0]


def _finish(conv: GATConv | GATv2Conv, heads: Tensor) -> Tensor:
    """What the layer does with its heads `(nodes, heads, channels)`: side by side or their mean, plus the bias."""
    return _plus(heads.flatten(1) if conv.concat else heads.mean(1), conv.bias)


def _plus(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias
