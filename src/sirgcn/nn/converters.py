"""Converters from trained layers of PyG to `SIRConv` modules with equal outputs: Section 4 of the paper as code.

Every converter copies the weights. It keeps their dtype and device, and the training mode of the layer. A layer that
has no equal `SIRConv` raises an error with the reason. The result is called as the original layer is,
`module(x, edge_index, ...)`, with `size` given by name.

For a pair of node sets, `SIRConv` needs the features of both sets, so `(x, None)` raises an error. All parameters of
the result are trainable, also those that start as 0 or as the identity matrix. Training therefore continues from the
converted layer into the whole class of SIR-GCN.
"""

import copy
import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    EdgeConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    SAGEConv,
)
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.models import MLP

from sirgcn.nn.conv import SIRConv
from sirgcn.nn.conversion import Weights, aggregator, check, eye, refuse_weights, sir_conv
from sirgcn.nn.converted import ConvThen, Scale, WithSelfLoops
from sirgcn.ops import Activation

_Module = TypeVar("_Module", bound=nn.Module)

# Dropout and RReLU are random, and a norm depends on all edges: none of them is a function of one message.
_NOT_PER_MESSAGE = (
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.modules.batchnorm._NormBase,
)


def from_gcn(conv: GCNConv) -> WithSelfLoops | SIRConv:
    r"""GCN (Section 4.1): sigma the identity, :math:`W_Q = 0`, :math:`W_R W_K = W`, in-degrees at both ends.

    .. math:: h_u^* = b + \sum_{v \in N(u) \cup \{u\}} \frac{1}{\sqrt{d_u d_v}} W h_v

    With `normalize=False` the result is the plain sum over N(u), and it accepts `edge_weight` by name. A `cached` layer
    keeps the graph of its first call after the conversion.

    >>> conv, x, edge_index = GCNConv(3, 2), torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_gcn(conv)(x, edge_index), conv(x, edge_index), atol=1e-6)
    True
    """
    check(conv, GCNConv)
    aggr = aggregator(conv, ("sum",))
    if conv.improved:
        raise ValueError(
            "improved: expected False, because SIRConv's degrees do not count self-loops of weight 2, got True"
        )
    if conv.normalize and not conv.add_self_loops:
        raise ValueError(
            "add_self_loops: expected True with normalize=True, because GCNConv gives weight 0 to the message of a "
            "source without in-neighbours and SIRConv counts its degree as 1, got False"
        )
    weight = conv.lin.weight
    weights = Weights(weight, torch.zeros_like(weight), relation=eye(weight.size(0), weight), bias=conv.bias)
    if not conv.normalize:
        return sir_conv(conv, aggr, "identity", weights)
    return _like(conv, WithSelfLoops(sir_conv(conv, "sym_in", "identity", weights, cached=conv.cached)))


def from_sage(conv: SAGEConv) -> SIRConv | ConvThen:
    r"""GraphSAGE (Section 4.1) with mean, sum or max; W_1 of the root node is the residual.

    .. math:: h_u^* = W_1 h_u + W_R \, \mathrm{mean}_{v \in N(u)} \, \sigma(W_K h_v + b)

    with :math:`W_Q = 0`. With `project=True`, W_K and b are the projection and sigma is ReLU. Without it,
    :math:`W_K = I` and sigma is the identity.

    For mean and sum the result is one `SIRConv`. For max, W_R of a `SIRConv` acts before the maximum. There the result
    is a `SIRConv` with :math:`W_R = I`, followed by the last linear layer.

    >>> conv, x, edge_index = SAGEConv(3, 2), torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_sage(conv)(x, edge_index), conv(x, edge_index), atol=1e-6)
    True
    """
    check(conv, SAGEConv)
    aggr = aggregator(conv)
    if conv.normalize:
        raise ValueError("normalize: expected False, because SIRConv does not normalise its output, got True")
    residual = copy.deepcopy(conv.lin_r) if conv.root_weight else None
    sir = sir_conv(conv, aggr, "relu" if conv.project else "identity", _sage_weights(conv, aggr))
    if aggr == "max":
        return _like(conv, ConvThen(sir, copy.deepcopy(conv.lin_l), residual))
    sir.lin_residual = residual
    return sir


def _sage_weights(conv: SAGEConv, aggr: str) -> Weights:
    """The weights of a GraphSAGE layer without those of the root node; with max also without the last layer's."""
    last = conv.lin_l
    identity = eye(last.weight.size(1), last.weight)
    key, inner_bias = (conv.lin.weight, conv.lin.bias) if conv.project else (identity, None)
    relation, bias = (identity, None) if aggr == "max" else (last.weight, last.bias)
    query = key.new_zeros(last.weight.size(1), _target_width(conv))
    return Weights(key, query, relation, inner_bias=inner_bias, bias=bias)


def _target_width(conv: SAGEConv) -> int:
    """The width of the target nodes' features, which a layer without weights for the root node may only declare."""
    if conv.root_weight:
        return conv.lin_r.weight.size(1)
    if isinstance(conv.in_channels, (tuple, list)) and conv.in_channels[1] > 0:
        return conv.in_channels[1]
    return conv.lin_l.weight.size(1)


def from_gin(conv: GINConv, in_channels: int | None = None) -> ConvThen:
    r"""GIN (Section 4.3): SIRConv with the residual :math:`(1 + \epsilon) h`, then the trained network.

    .. math:: h_u^* = \mathrm{MLP}\Big((1 + \epsilon) h_u + \sum_{v \in N(u)} h_v\Big)

    with sigma the identity, :math:`W_Q = 0` and :math:`W_R = W_K = I`. GIN with mean or max is converted, too.

    Args:
        conv: the trained layer.
        in_channels: the width of h. It is needed where the first module of the network does not have an input width.

    >>> conv, x = GINConv(nn.Linear(3, 2)), torch.randn(4, 3)
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_gin(conv)(x, edge_index), conv(x, edge_index), atol=1e-6)
    True
    """
    check(conv, GINConv)
    return _gin(conv, "identity", in_channels)


def from_gine(conv: GINEConv, in_channels: int | None = None) -> ConvThen:
    r"""GINE, which is GIN (Section 4.3) with edge features: sigma is ReLU, and W_E is the layer's own or I.

    .. math:: h_u^* = \mathrm{MLP}\Big((1 + \epsilon) h_u + \sum_{v \in N(u)} \mathrm{ReLU}(h_v + W_E h_{u,v} + b)\Big)

    The arguments are those of `from_gin`.

    >>> conv, x, edge_attr = GINEConv(nn.Linear(3, 2), edge_dim=5), torch.randn(4, 3), torch.randn(3, 5)
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_gine(conv)(x, edge_index, edge_attr), conv(x, edge_index, edge_attr), atol=1e-6)
    True
    """
    check(conv, GINEConv)
    if conv.lin is None:
        return _gin(conv, "relu", in_channels, is_edge_identity=True)
    return _gin(conv, "relu", conv.lin.weight.size(0), conv.lin.weight, conv.lin.bias)


def from_gatv2_scores(conv: GATv2Conv) -> SIRConv:
    r"""The attention scores of GATv2 as messages (Section 4.2): their sum before the softmax, per head.

    .. math:: h^*_{u,k} = \sum_{v \in N(u)} a_k^\top \mathrm{LeakyReLU}(W_Q h_u + W_K h_v + W_E h_{u,v})

    W_Q and W_K are the layer's `lin_r` and `lin_l`. The sum of their biases is the bias inside sigma. The a_k of the
    heads are blocks of W_R. A layer with `edge_dim` needs `edge_attr`.

    The sum runs over the given edges: no self-loops are added, whatever the layer's `add_self_loops`. The later steps
    of GATv2 (softmax, dropout, values, residual, bias) are left out.

    >>> sir = from_gatv2_scores(GATv2Conv(3, 4, heads=2))
    >>> sir(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape  # one sum of scores per head
    torch.Size([5, 2])
    """
    check(conv, GATv2Conv)
    bias_l, bias_r = _bias(conv.lin_l), _bias(conv.lin_r)
    weights = Weights(
        key=conv.lin_l.weight,
        query=conv.lin_r.weight,
        relation=torch.block_diag(*conv.att.detach()[0].split(1)),
        edge=None if conv.edge_dim is None else conv.lin_edge.weight,
        inner_bias=None if bias_l is None or bias_r is None else bias_l + bias_r,
    )
    sir = sir_conv(conv, "sum", Activation("leaky_relu", float(conv.negative_slope)), weights)
    sir.register_forward_pre_hook(refuse_weights, with_kwargs=True)
    return sir


def from_edge_conv(conv: EdgeConv) -> SIRConv:
    r"""EdgeConv with a network of two layers, as a SIRConv, whose matrix products are per node.

    .. math:: W_2 \, \sigma(A h_u + B (h_v - h_u) + b) = W_R \, \sigma(W_Q h_u + W_K h_v + b)

    where :math:`W_1 = [A | B]`, so that :math:`W_K = B`, :math:`W_Q = A - B` and :math:`W_R = W_2`.

    The network is `nn.Sequential(Linear, activation, Linear)` or a plain `MLP` of two layers. The activation must act
    on each message by itself. The outputs are equal

    - for max
    - for sum, if the last layer has no bias; with a bias the conversion raises an error
    - for mean; if the last layer has a bias, only at nodes with a neighbour, and a `UserWarning` says so

    >>> conv = EdgeConv(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> x, edge_index = torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_edge_conv(conv)(x, edge_index), conv(x, edge_index), atol=1e-6)
    True
    """
    check(conv, EdgeConv)
    aggr = aggregator(conv)
    first, activation, last = _two_layers(conv.nn)
    bias = _bias(last)
    if bias is not None and aggr == "sum":
        raise ValueError(
            "nn: expected no bias in the last layer with aggr='sum', because EdgeConv adds it once per neighbour and "
            "SIRConv once per node"
        )
    if bias is not None and aggr == "mean":
        warnings.warn(
            "from_edge_conv: with aggr='mean' the output of an isolated node is the last layer's bias, where EdgeConv "
            "gives 0; the outputs of all other nodes are equal",
            UserWarning,
            stacklevel=2,
        )
    on_target, on_difference = first.weight.chunk(2, dim=1)
    known = Activation.of_module(activation)
    weights = Weights(on_difference, on_target - on_difference, relation=last.weight, inner_bias=first.bias, bias=bias)
    sir = sir_conv(conv, aggr, "identity" if known is None else known, weights)
    if known is None:
        sir.activation = copy.deepcopy(activation)
    sir.register_forward_pre_hook(refuse_weights, with_kwargs=True)
    return sir


def _gin(
    conv: GINConv | GINEConv,
    activation: str,
    in_channels: int | None,
    edge: Tensor | None = None,
    inner_bias: Tensor | None = None,
    is_edge_identity: bool = False,
) -> ConvThen:
    """GIN or GINE as a `SIRConv` followed by the layer's network."""
    aggr = aggregator(conv)
    if not isinstance(conv.nn, nn.Module):
        raise TypeError(f"nn: expected a module, got {type(conv.nn).__name__}")
    width = _input_width(conv.nn) if in_channels is None else in_channels
    identity = eye(width, next(conv.nn.parameters(), conv.eps))
    edge = identity if is_edge_identity else edge
    weights = Weights(identity, torch.zeros_like(identity), identity, edge, inner_bias)
    sir = sir_conv(conv, aggr, activation, weights)
    sir.lin_residual = Scale(conv.eps).train(conv.training)
    return _like(conv, ConvThen(sir, copy.deepcopy(conv.nn)))


def _input_width(network: nn.Module) -> int:
    """The input width of the first module of a network."""
    first = network
    while isinstance(first, nn.Sequential) and len(first):
        first = first[0]
    for name in ("in_features", "in_channels", "num_features"):
        width = getattr(first, name, None)
        if isinstance(width, int) and width > 0:
            return width
    raise ValueError(
        f"in_channels: expected the width of the input, because {type(first).__name__}, the first module of nn, does "
        f"not have it, got None"
    )


def _two_layers(network: Any) -> tuple[Linear | nn.Linear, nn.Module, Linear | nn.Linear]:
    """The first linear layer, the activation and the last linear layer of a network of two layers."""
    parts: list[Any] = list(network) if isinstance(network, nn.Sequential) else _parts_of_mlp(network)
    if not _can_be_messages(parts):
        raise ValueError(
            "nn: expected Sequential(Linear, activation, Linear) or an MLP of two layers, without norm and dropout and "
            f"with an activation module that acts on each message by itself, got {network}"
        )
    first, activation, last = parts
    return first, activation, last


def _parts_of_mlp(network: Any) -> list[Any]:
    """The layers and activations of a plain `MLP` in their order; empty for anything else."""
    if not isinstance(network, MLP) or not network.plain_last or any(network.dropout):
        return []
    if not all(isinstance(norm, nn.Identity) for norm in network.norms):
        return []
    activation = nn.Identity() if network.act is None else network.act
    return [layer for lin in network.lins for layer in (activation, lin)][1:]


def _can_be_messages(parts: list[Any]) -> bool:
    """Whether the parts are a linear layer, an activation of each message by itself, and a linear layer."""
    if len(parts) != 3:
        return False
    first, activation, last = parts
    if not isinstance(first, (Linear, nn.Linear)) or not isinstance(last, (Linear, nn.Linear)):
        return False
    if not isinstance(activation, nn.Module) or first.weight.size(0) != last.weight.size(1):
        return False
    return not any(isinstance(part, _NOT_PER_MESSAGE) for part in activation.modules())


def _bias(linear: Linear | nn.Linear) -> Tensor | None:
    # Both classes annotate their bias as a parameter, although it may be None.
    return linear.bias


def _like(original: nn.Module, module: _Module) -> _Module:
    """The module in the training mode of the original layer; its parts keep their own mode."""
    module.training = original.training
    return module
