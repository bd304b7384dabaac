"""The converter of PyG's `ResGatedGraphConv`, whose messages are gated."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import ResGatedGraphConv

from sirgcn.nn.baselines import ResGatedGCN
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.conversion import Weights, aggregator, check, eye, parameter, refuse_weights, sir_conv
from sirgcn.ops import Activation


def from_res_gated(conv: ResGatedGraphConv) -> SIRConv | ResGatedGCN:
    r"""ResGatedGraphConv, whose message is a gate times a value.

    .. math:: h_u^* = W_1 h_u + b + \sum_{v \in N(u)} \sigma(W_Q h_u + W_K h_v + W_E h_{u,v}) \odot
        (W_V h_v + W_F h_{u,v})

    Without edge features the result is a `SIRConv` with gates and :math:`W_R = I`, whose residual is W_1. With edge
    features the value reads them too, and the result is a `ResGatedGCN` for one set of nodes. PyG calls the query
    `lin_key`, and the key `lin_query`.

    >>> conv, x, edge_index = ResGatedGraphConv(3, 2), torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> torch.allclose(from_res_gated(conv)(x, edge_index), conv(x, edge_index), atol=1e-6)
    True
    """
    check(conv, ResGatedGraphConv)
    gate = Activation.of_module(conv.act) if isinstance(conv.act, nn.Module) else None
    if gate is None:
        raise ValueError(f"act: expected a module that the table of activations knows, got {conv.act!r:.60}")
    if conv.edge_dim is not None:
        return _res_gated_with_edges(conv, gate)
    width = conv.out_channels
    weights = Weights(
        key=conv.lin_query.weight,
        query=conv.lin_key.weight,
        relation=eye(width, conv.lin_key.weight),
        inner_bias=conv.lin_key.bias + conv.lin_query.bias,
        bias=conv.bias,
        value=conv.lin_value.weight,
        value_bias=conv.lin_value.bias,
    )
    sir = sir_conv(conv, aggregator(conv, ("sum", "mean")), gate, weights)
    sir.lin_residual = copy.deepcopy(conv.lin_skip)
    sir.register_forward_pre_hook(refuse_weights, with_kwargs=True)
    return sir


def _res_gated_with_edges(conv: Any, gate: Activation) -> ResGatedGCN:
    """The layer whose gates and values read edge features, for one set of nodes."""
    aggregator(conv, ("sum",))
    widths = conv.in_channels
    if not isinstance(widths, int) or conv.flow != "source_to_target":
        raise ValueError(
            f"conv: expected with edge_dim one set of nodes and flow='source_to_target', got in_channels={widths} and "
            f"flow={conv.flow!r}"
        )
    width = conv.lin_key.weight.size(1) - conv.edge_dim
    with torch.device("meta"):
        found = ResGatedGCN(width, conv.out_channels, edge_dim=conv.edge_dim, activation=gate)
    (of_query, key_edge), (of_key, query_edge), (of_value, value_edge) = (
        lin.weight.split([width, conv.edge_dim], dim=1) for lin in (conv.lin_key, conv.lin_query, conv.lin_value)
    )
    root = torch.zeros_like(of_query) if conv.lin_skip is None else conv.lin_skip.weight
    bias = torch.zeros_like(conv.lin_key.bias) if conv.bias is None else conv.bias
    weights: tuple[tuple[Any, Tensor, Tensor | None], ...] = (
        (found.lin_self, root, bias),
        (found.lin_query, of_query, conv.lin_key.bias + conv.lin_query.bias),
        (found.lin_key, of_key, None),
        (found.lin_value, of_value, conv.lin_value.bias),
        (found.lin_edge, torch.cat([key_edge + query_edge, value_edge]), None),
    )
    for linear, weight, offset in weights:
        linear.weight = parameter(weight)
        linear.bias = None if offset is None else parameter(offset)
    return found.train(conv.training)
