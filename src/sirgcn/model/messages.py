r"""The contextual messages of edges, and how much of them depends on the node that receives them.

The message of an edge is :math:`m(h_u, h_v) = W_R \, \sigma(W_Q h_u + W_K h_v + W_E h_{u,v})`. With :math:`\bar h` in
place of :math:`h_u`, the mean over all nodes, it is what v would send to an average node. The contextual part is the
difference of the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sirgcn.engine.inference import call
from sirgcn.model.fitted import Member, Model
from sirgcn.model.removal import Neighbourhood, prepared_batch
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.neighbourhood import in_context
from sirgcn.ops.rows import Rows, look_up


@dataclass(frozen=True, eq=False)
class Messages:
    """The messages of some edges in the layer where each of them last reaches the explained row.

    Args:
        norm: the norm of the message.
        contextual: the norm of its contextual part, as a part of the norm of the message.
        layer: the number of the layer, from 1.
        vectors: the messages of the first network with a `SIRConv`, one vector for each edge.
    """

    norm: list[float]
    contextual: list[float]
    layer: list[int]
    vectors: list[list[float]]


@torch.no_grad()
def messages_of(model: Model, near: Neighbourhood, edges: Sequence[int]) -> Messages | None:
    """The messages of edges, averaged over the networks of a model; None for a model without `SIRConv`.

    Args:
        model: the model.
        near: the neighbourhood of the explained row.
        edges: the numbers of directed edges in the neighbourhood.
    """
    members = [member for member in model.members if member.config.conv.name == "sir"]
    if not members or not edges:
        return None
    found = [_of_member(member, near, edges) for member in members]
    norms = torch.stack([message.norm(dim=1) for message, _, _ in found])
    parts = torch.stack([part.norm(dim=1) / message.norm(dim=1).clamp_min(1e-12) for message, part, _ in found])
    message, _, layers = found[0]
    return Messages(norms.mean(0).tolist(), parts.mean(0).tolist(), [n + 1 for n in layers], message.tolist())


def _of_member(member: Member, near: Neighbourhood, edges: Sequence[int]) -> tuple[Tensor, Tensor, list[int]]:
    """The messages of one network, their contextual parts, and the layers."""
    seen = _inputs_of_layers(member, near)
    hops = near.hops[near.graphs.edge_index[1, list(edges)]]
    # A message into a node of d hops is read d layers before the last one.
    layers = (len(seen) - 1 - hops).clamp(min=0).tolist()
    messages = torch.zeros(len(edges), seen[0][0].out_channels)
    parts = torch.zeros_like(messages)
    for layer in set(layers):
        places = [place for place, own in enumerate(layers) if own == layer]
        index = torch.tensor([edges[place] for place in places])
        conv, h, edge = seen[layer]
        messages[places], parts[places] = _in_layer(conv, h, edge, near, index)
    return messages, parts, layers


def _inputs_of_layers(member: Member, near: Neighbourhood) -> list[tuple[SIRConv, Tensor, Any]]:
    """Every layer of a network, with the node features and the edge features that it reads."""
    layers = [module for module in member.network.modules() if isinstance(module, SIRConv)]
    seen: dict[int, tuple[SIRConv, Tensor, Any]] = {}

    def keep(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert isinstance(layer, SIRConv)
        seen[id(layer)] = layer, Rows.of(arguments[0]).expand(), arguments[2]

    handles = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        call(member.network, prepared_batch(near, member.preparation), near.level)
    finally:
        for handle in handles:
            handle.remove()
    return [seen[id(layer)] for layer in layers]


def _in_layer(conv: SIRConv, h: Tensor, edge: Any, near: Neighbourhood, index: Tensor) -> tuple[Tensor, Tensor]:
    """The messages of edges in a layer, and their difference from those to an average node."""
    source, target = near.graphs.edge_index[:, index]
    query = conv.lin_query(h).index_select(0, target)
    average = conv.lin_query(h.mean(0, keepdim=True)).expand_as(query)
    # The neighbourhood context belongs to the place of the node, and stays.
    nothing = Rows(torch.zeros(h.size(0), query.size(1), dtype=h.dtype))
    context = in_context(conv, nothing, Rows(h), near.graphs.edge_index).expand().index_select(0, target)
    key = conv.lin_key(h)
    if conv.lin_value is not None:
        key = torch.cat([key, conv.lin_value(h)], dim=-1)
    term = None
    if conv.lin_edge is not None and edge is not None:
        rows = look_up(edge[0], edge[1][index]) if isinstance(edge, tuple) else edge[index]
        term = conv.lin_edge(rows.unsqueeze(-1) if rows.dim() == 1 else rows)
    made, plain = (
        _finished(conv, conv.message(of_query + context, key.index_select(0, source), term, None))
        for of_query in (query, average)
    )
    return made, made - plain


def _finished(conv: SIRConv, message: Tensor) -> Tensor:
    """W_R times a message; with max it is inside already."""
    if conv.aggr == "max":
        return message
    return F.linear(message, conv.lin_relation.weight)  # type: ignore[arg-type]
