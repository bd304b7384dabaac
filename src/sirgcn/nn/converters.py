"""Trained layers of PyG as `SIRConv` with equal outputs: Section 4 of the paper as code.

Every converter copies the weights and keeps their dtype and device and the layer's training mode; what
would not be equal is refused with the reason. The call stays the same: `module(x, edge_index, ...)`,
`size` by its name; for a pair of node sets SIRConv needs the features of both, so that `(x, None)` is
refused. All parameters of the result can be trained, also those that start as 0 or I: training goes on
from the converted layer into the whole class of SIR-GCN.
"""

import copy
import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import EdgeConv, GATv2Conv, GCNConv, GINConv, GINEConv, MessagePassing, SAGEConv
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.models import MLP
from torch_geometric.typing import OptTensor
from torch_geometric.utils import (
    add_remaining_self_loops,
    add_self_loops,
    is_torch_sparse_tensor,
)

from sirgcn.nn.adjacency import EdgeAttr, Graph, as_edge_index, with_stored_values
from sirgcn.nn.conv import SIRConv
from sirgcn.ops import Activation

_Module = TypeVar("_Module", bound=nn.Module)

# Dropout and RReLU draw, norms over the edges depend on all of them: none is a function of one message.
_NOT_PER_MESSAGE = (
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.modules.batchnorm._NormBase,
)


class ConvThen(nn.Module):
    r"""A convolution and what follows it: `after(conv(x, edge_index, ...)) + residual(x_target)`.

    Args:
        conv: the convolution.
        after: applied to its output, node by node.
        residual: applied to the target nodes' features and added at the end; None for none.
    """

    def __init__(self, conv: SIRConv, after: nn.Module, residual: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.after = after
        self.residual = residual

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        edge_weight: OptTensor = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Arguments and shapes as `SIRConv`."""
        out: Tensor = self.after(self.conv(x, edge_index, edge_attr, edge_weight, size))
        if self.residual is not None:
            out = out + self.residual(x if isinstance(x, Tensor) else x[1])
        return out


class WithSelfLoops(nn.Module):
    r"""A convolution over N(u) and u itself, as `GCNConv` has it; edge weights are refused.

    As in PyG, an `edge_index` gets the self-loops that it lacks and keeps no second one, a torch sparse
    `adj_t` gets one more at every node.
    """

    def __init__(self, conv: SIRConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Graph, edge_weight: OptTensor = None) -> Tensor:
        """One convolution of x `(|V|, F_in)` or `(B, |V|, F_in)`."""
        if not isinstance(x, Tensor):
            raise ValueError("x: expected the features of one set of nodes, as GCNConv does, got a pair")
        if with_stored_values(edge_index, None, edge_weight, None)[1] is not None:
            given = "an adjacency with values other than 1" if edge_weight is None else "edge_weight"
            raise ValueError(
                f"edge_weight: expected none, as GCNConv normalises by the sum of the weights, where SIRConv "
                f"counts the edges, got {given}"
            )
        is_plain = isinstance(edge_index, Tensor) and not is_torch_sparse_tensor(edge_index)
        if self.conv.flow == "target_to_source" and not is_plain:
            raise ValueError("flow: target_to_source needs an edge_index tensor")
        num_nodes = x.size(-2)
        edges = as_edge_index(edge_index, num_nodes, num_nodes)
        add = add_self_loops if is_torch_sparse_tensor(edge_index) else add_remaining_self_loops
        out: Tensor = self.conv(x, add(edges, num_nodes=num_nodes)[0])
        return out


class Scale(nn.Module):
    r"""GIN's residual (Section 4.3), :math:`(1 + \epsilon) h`: eps is trained if it was before."""

    def __init__(self, eps: Tensor) -> None:
        super().__init__()
        if isinstance(eps, nn.Parameter):
            self.eps: Tensor = _parameter(eps)
        else:
            self.register_buffer("eps", eps.detach().clone())

    def forward(self, h: Tensor) -> Tensor:
        """(1 + eps) * h."""
        return (1 + self.eps) * h


def from_gcn(conv: GCNConv) -> WithSelfLoops | SIRConv:
    r"""GCN (Section 4.1): sigma the identity, :math:`W_Q = 0`, :math:`W_R W_K = W`, in-degrees at both ends.

    .. math:: h_u^* = b + \sum_{v \in N(u) \cup \{u\}} \frac{1}{\sqrt{d_u d_v}} W h_v

    With `normalize=False` the plain sum over N(u), where edge weights (by name) are equal too. A `cached`
    layer keeps the graph of its first call after the conversion.
    """
    _check(conv, GCNConv)
    aggr = _aggregator(conv, ("sum",))
    if conv.improved:
        raise ValueError("improved: self-loops of weight 2 are edge weights, which SIRConv's degrees do not count")
    if conv.normalize and not conv.add_self_loops:
        raise ValueError(
            "add_self_loops: False with normalize=True is not equal, as GCNConv gives weight 0 to the "
            "message of a source without in-neighbours, where SIRConv takes its degree as 1"
        )
    weight = conv.lin.weight
    sir = _sir_conv(
        conv,
        "sym_in" if conv.normalize else aggr,
        "identity",
        key=weight,
        query=weight.new_zeros(weight.shape),
        relation=_eye(weight.size(0), weight),
        bias=conv.bias,
        cached=conv.cached and conv.normalize,
    )
    return _like(conv, WithSelfLoops(sir)) if conv.normalize else sir


def from_sage(conv: SAGEConv) -> SIRConv | ConvThen:
    r"""GraphSAGE (Section 4.1) with mean, sum or max; W_1 of the root node is the residual.

    .. math:: h_u^* = W_1 h_u + W_R \, \mathrm{mean}_{v \in N(u)} \, \sigma(W_K h_v + b)

    with :math:`W_Q = 0`; :math:`W_K = I` and sigma the identity, or with `project=True` the projection and
    ReLU. For mean and sum this is one SIRConv; for max, where SIRConv's W_R acts before the maximum, the
    max-pool is a SIRConv with :math:`W_R = I`, and the trailing linear layer follows it.
    """
    _check(conv, SAGEConv)
    aggr = _aggregator(conv)
    if conv.normalize:
        raise ValueError("normalize: SIRConv does not normalise its output, got normalize=True")
    lin, root = conv.lin_l, conv.lin_r if conv.root_weight else None
    source = lin.weight.size(1)
    target = source if root is None else root.weight.size(1)
    if root is None and isinstance(conv.in_channels, (tuple, list)) and conv.in_channels[1] > 0:
        target = conv.in_channels[1]
    key = conv.lin.weight if conv.project else _eye(source, lin.weight)
    is_max = aggr == "max"
    sir = _sir_conv(
        conv,
        aggr,
        "relu" if conv.project else "identity",
        key=key,
        query=key.new_zeros(source, target),
        relation=_eye(source, lin.weight) if is_max else lin.weight,
        inner_bias=conv.lin.bias if conv.project else None,
        bias=None if is_max else lin.bias,
    )
    residual = copy.deepcopy(root)
    if is_max:
        return _like(conv, ConvThen(sir, copy.deepcopy(lin), residual))
    sir.lin_residual = residual
    return sir


def from_gin(conv: GINConv, in_channels: int | None = None) -> ConvThen:
    r"""GIN (Section 4.3): SIRConv with the residual :math:`(1 + \epsilon) h`, then the trained network.

    .. math:: h_u^* = \mathrm{MLP}\Big((1 + \epsilon) h_u + \sum_{v \in N(u)} h_v\Big)

    with sigma the identity, :math:`W_Q = 0` and :math:`W_R = W_K = I`. GIN with mean or max is equal too.

    Args:
        conv: the trained layer.
        in_channels: the width of h, for a network that does not start with a layer that tells it.
    """
    _check(conv, GINConv)
    return _gin(conv, "identity", in_channels)


def from_gine(conv: GINEConv, in_channels: int | None = None) -> ConvThen:
    r"""GINE, GIN (Section 4.3) with edge features: sigma = ReLU and W_E the layer's own, or I without it.

    .. math:: h_u^* = \mathrm{MLP}\Big((1 + \epsilon) h_u + \sum_{v \in N(u)} \mathrm{ReLU}(h_v + W_E h_{u,v} + b)\Big)

    Arguments as `from_gin`.
    """
    _check(conv, GINEConv)
    if conv.lin is None:
        return _gin(conv, "relu", in_channels, is_edge_identity=True)
    return _gin(conv, "relu", conv.lin.weight.size(0), conv.lin.weight, conv.lin.bias)


def from_gatv2_scores(conv: GATv2Conv) -> SIRConv:
    r"""The attention of GATv2 as message (Section 4.2): the sum of its scores before the softmax, per head.

    .. math:: h^*_{u,k} = \sum_{v \in N(u)} a_k^\top \mathrm{LeakyReLU}(W_Q h_u + W_K h_v + W_E h_{u,v})

    with W_Q and W_K the layer's `lin_r` and `lin_l`, the biases of both as the inner bias and the heads' a_k as
    blocks of W_R. The sum goes over the edges as given: no self-loops are added, whatever the layer's
    `add_self_loops`. What follows the scores in GATv2 (softmax, dropout, values, residual, bias) is left
    out. A layer with `edge_dim` needs `edge_attr`.
    """
    _check(conv, GATv2Conv)
    bias_l, bias_r = _bias(conv.lin_l), _bias(conv.lin_r)
    sir = _sir_conv(
        conv,
        "sum",
        Activation("leaky_relu", float(conv.negative_slope)),
        key=conv.lin_l.weight,
        query=conv.lin_r.weight,
        relation=torch.block_diag(*conv.att.detach()[0].split(1)),
        edge=None if conv.edge_dim is None else conv.lin_edge.weight,
        inner_bias=None if bias_l is None or bias_r is None else bias_l + bias_r,
    )
    sir.register_forward_pre_hook(_refuse_weights, with_kwargs=True)
    return sir


def from_edge_conv(conv: EdgeConv) -> SIRConv:
    r"""EdgeConv with a two-layer network, of which SIRConv is the form with products per node.

    .. math:: W_2 \, \sigma(A h_u + B (h_v - h_u) + b) = W_R \, \sigma(W_Q h_u + W_K h_v + b)

    with :math:`W_1 = [A | B]`, so that :math:`W_K = B`, :math:`W_Q = A - B` and :math:`W_R = W_2`. The network is
    `nn.Sequential(Linear, activation, Linear)` or a plain `MLP` of two layers; the activation acts on each
    message by itself. Exact for max; for sum without a bias in the last layer; for mean with such a bias
    only at nodes that have a neighbour, of which a `UserWarning` tells.
    """
    _check(conv, EdgeConv)
    aggr = _aggregator(conv)
    first, activation, last = _two_layers(conv.nn)
    bias = _bias(last)
    if bias is not None and aggr == "sum":
        raise ValueError(
            "nn: expected no bias in the last layer with aggr='sum', as EdgeConv adds it once per "
            "neighbour and SIRConv once per node"
        )
    if bias is not None and aggr == "mean":
        warnings.warn(
            "from_edge_conv: with aggr='mean' an isolated node gets the last layer's bias, where EdgeConv "
            "gives 0; all other nodes are equal",
            UserWarning,
            stacklevel=2,
        )
    on_target, on_difference = first.weight.chunk(2, dim=1)
    known = Activation.of_module(activation)
    sir = _sir_conv(
        conv,
        aggr,
        "identity" if known is None else known,
        key=on_difference,
        query=on_target - on_difference,
        relation=last.weight,
        inner_bias=first.bias,
        bias=bias,
    )
    if known is None:
        sir.activation = copy.deepcopy(activation)
    sir.register_forward_pre_hook(_refuse_weights, with_kwargs=True)
    return sir


def _check(conv: MessagePassing, kind: type) -> None:
    # A subclass may compute anything.
    if type(conv) is not kind:
        raise TypeError(f"conv: expected PyG's {kind.__name__} itself, got {type(conv).__name__}")
    for name, tensor in [*conv.named_parameters(), *conv.named_buffers()]:
        if is_lazy(tensor):
            raise ValueError(f"conv: expected an initialised layer, but {name} has no shape yet; call it once first")
    # GATv2Conv has its nodes in dimension 0 and takes two dimensions only.
    if conv.node_dim != -2 and kind is not GATv2Conv:
        raise ValueError(f"node_dim: SIRConv has its nodes in dimension -2, got {conv.node_dim}")


def _aggregator(conv: MessagePassing, known: tuple[str, ...] = ("sum", "mean", "max")) -> str:
    """The layer's aggregator under SIRConv's name."""
    for name in known:
        if conv.aggr in (name, "add" if name == "sum" else name):
            return name
    raise ValueError(f"aggr: expected a {type(conv).__name__} with {', '.join(known)}, got {conv.aggr!r}")


def _gin(
    conv: GINConv | GINEConv,
    activation: str,
    in_channels: int | None,
    edge: Tensor | None = None,
    inner_bias: Tensor | None = None,
    is_edge_identity: bool = False,
) -> ConvThen:
    aggr = _aggregator(conv)
    if not isinstance(conv.nn, nn.Module):
        raise TypeError(f"nn: expected a module, got {type(conv.nn).__name__}")
    width = _input_width(conv.nn) if in_channels is None else in_channels
    identity = _eye(width, next(conv.nn.parameters(), conv.eps))
    sir = _sir_conv(
        conv,
        aggr,
        activation,
        key=identity,
        query=torch.zeros_like(identity),
        relation=identity,
        edge=identity if is_edge_identity else edge,
        inner_bias=inner_bias,
    )
    sir.lin_residual = Scale(conv.eps).train(conv.training)
    return _like(conv, ConvThen(sir, copy.deepcopy(conv.nn)))


def _input_width(network: nn.Module) -> int:
    first = network
    while isinstance(first, nn.Sequential) and len(first):
        first = first[0]
    for name in ("in_features", "in_channels", "num_features"):
        width = getattr(first, name, None)
        if isinstance(width, int) and width > 0:
            return width
    raise ValueError(
        f"in_channels: expected the width of the input, which {type(first).__name__}, the first part of "
        f"nn, does not tell"
    )


def _two_layers(network: Any) -> tuple[Linear | nn.Linear, nn.Module, Linear | nn.Linear]:
    parts: list[Any] = []
    if isinstance(network, MLP) and network.plain_last and not any(network.dropout):
        if all(isinstance(norm, nn.Identity) for norm in network.norms):
            activation = nn.Identity() if network.act is None else network.act
            parts = [layer for lin in network.lins for layer in (activation, lin)][1:]
    elif isinstance(network, nn.Sequential):
        parts = list(network)
    if len(parts) == 3:
        first, activation, last = parts
        if (
            isinstance(first, (Linear, nn.Linear))
            and isinstance(last, (Linear, nn.Linear))
            and isinstance(activation, nn.Module)
            and not any(isinstance(part, _NOT_PER_MESSAGE) for part in activation.modules())
            and first.weight.size(0) == last.weight.size(1)
        ):
            return first, activation, last
    raise ValueError(
        "nn: expected Sequential(Linear, activation, Linear) or an MLP of two layers, without norm and "
        f"dropout and with an activation module that acts on each message by itself, got {network}"
    )


def _sir_conv(
    original: MessagePassing,
    aggr: str,
    activation: str | Activation,
    key: Tensor,
    query: Tensor,
    relation: Tensor,
    edge: Tensor | None = None,
    inner_bias: Tensor | None = None,
    bias: Tensor | None = None,
    cached: bool = False,
) -> SIRConv:
    """SIRConv with these weights, copied, and with the flow and training mode of the original."""
    source, target = key.size(1), query.size(1)
    # On the meta device no weight is drawn that is replaced below, and torch's random state stays.
    with torch.device("meta"):
        conv = SIRConv(
            source if source == target else (source, target),
            relation.size(0),
            key.size(0),
            aggr=aggr,
            activation=activation,
            edge_dim=None if edge is None else edge.size(1),
            inner_bias=inner_bias is not None,
            bias=bias is not None,
            cached=cached,
            flow=original.flow,
        )
    for name, weight, offset in (
        ("lin_query", query, inner_bias),
        ("lin_key", key, None),
        ("lin_edge", edge, None),
        ("lin_relation", relation, bias),
    ):
        linear = getattr(conv, name)
        if weight is not None:
            linear.weight = _parameter(weight)
        if offset is not None:
            linear.bias = _parameter(offset)
    return conv.train(original.training)


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone())


def _bias(linear: Linear | nn.Linear) -> Tensor | None:
    # Both annotate their bias as a parameter, although it may be None.
    return linear.bias


def _eye(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _like(original: nn.Module, module: _Module) -> _Module:
    """The module in the original's training mode; its copied parts keep theirs."""
    module.training = original.training
    return module


def _refuse_weights(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """EdgeConv and GATv2's scores do not look at an adjacency's values, SIRConv would weigh by them."""
    graph = args[1] if len(args) > 1 else kwargs.get("edge_index")
    if conv.edge_dim is None and with_stored_values(graph, None, None, None)[1] is not None:
        raise ValueError(
            "edge_index: expected a sparse adjacency with values 1 only, as the converted layer has no "
            "edge weights, got other values"
        )
