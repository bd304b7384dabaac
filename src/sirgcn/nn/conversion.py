"""What all converters do: they check a layer of PyG, and put its weights into a `SIRConv`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import GATv2Conv, MessagePassing

from sirgcn.nn.adjacency import with_stored_values
from sirgcn.nn.conv import SIRConv
from sirgcn.ops import Activation


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a `SIRConv`: W_K, W_Q, W_R, W_E, the bias inside sigma, the bias of W_R, and W_V with its bias."""

    key: Tensor
    query: Tensor
    relation: Tensor
    edge: Tensor | None = None
    inner_bias: Tensor | None = None
    bias: Tensor | None = None
    value: Tensor | None = None
    value_bias: Tensor | None = None


def check(conv: MessagePassing, expected: type) -> None:
    """Raise an error unless the layer is of this very type, has its weights, and has its nodes in dimension -2."""
    # A subclass may compute anything.
    if type(conv) is not expected:
        raise TypeError(f"conv: expected PyG's {expected.__name__} itself, got {type(conv).__name__}")
    for name, tensor in [*conv.named_parameters(), *conv.named_buffers()]:
        if is_lazy(tensor):
            raise ValueError(f"conv: expected an initialised layer, but {name} has no shape yet; call it once first")
    # GATv2Conv has its nodes in dimension 0 and accepts two dimensions only.
    if conv.node_dim != -2 and expected is not GATv2Conv:
        raise ValueError(f"node_dim: expected -2, the dimension of SIRConv's nodes, got {conv.node_dim}")


def aggregator(conv: MessagePassing, known: tuple[str, ...] = ("sum", "mean", "max")) -> str:
    """The layer's aggregator under SIRConv's name."""
    for name in known:
        if conv.aggr in (name, "add" if name == "sum" else name):
            return name
    raise ValueError(f"aggr: expected a {type(conv).__name__} with {', '.join(known)}, got {conv.aggr!r}")


def sir_conv(
    original: MessagePassing, aggr: str, activation: str | Activation, weights: Weights, cached: bool = False
) -> SIRConv:
    """A `SIRConv` with copies of the weights and with the flow and training mode of the original layer."""
    source, target = weights.key.size(1), weights.query.size(1)
    # On the meta device no weights are drawn, which would be replaced below, and torch's random state does not change.
    with torch.device("meta"):
        conv = SIRConv(
            source if source == target else (source, target),
            weights.relation.size(0),
            weights.key.size(0),
            aggr=aggr,
            activation=activation,
            edge_dim=None if weights.edge is None else weights.edge.size(1),
            inner_bias=weights.inner_bias is not None,
            bias=weights.bias is not None,
            cached=cached,
            flow=original.flow,
            gated=weights.value is not None,
        )
    for name, weight, offset in (
        ("lin_query", weights.query, weights.inner_bias),
        ("lin_key", weights.key, None),
        ("lin_edge", weights.edge, None),
        ("lin_value", weights.value, weights.value_bias),
        ("lin_relation", weights.relation, weights.bias),
    ):
        linear = getattr(conv, name)
        if weight is not None:
            linear.weight = parameter(weight)
        if offset is not None:
            linear.bias = parameter(offset)
    return conv.train(original.training)


def parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone())


def eye(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def refuse_weights(conv: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a `ValueError` for a sparse adjacency with values other than 1.

    EdgeConv, GATv2's scores and ResGatedGraphConv ignore such values, and SIRConv would use them as edge weights.
    """
    graph = args[1] if len(args) > 1 else kwargs.get("edge_index")
    if conv.edge_dim is None and with_stored_values(graph, None, None, None)[1] is not None:
        raise ValueError(
            "edge_index: expected a sparse adjacency with values 1 only, because the converted layer has no edge "
            "weights, got other values"
        )
