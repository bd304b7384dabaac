"""Deviations and attention over N(u) by the fused aggregation: the parts of the other models of the tables."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.ops import Activation, Neighbors, sir_aggregate
from sirgcn.ops.calls import is_compiling, is_exporting
from sirgcn.ops.gated import gated_aggregate, gated_columns
from sirgcn.ops.prepare import GATES
from sirgcn.ops.reductions import no_query, weighted_sum
from sirgcn.ops.reference import EdgeTerms, Ends, Gate, gated_forward
from sirgcn.ops.scores import contextual_scores
from sirgcn.ops.softmax import can_run, edge_softmax


def edge_sum(h: Tensor, graph: Neighbors, edge: EdgeAttr, activation: str = "relu") -> Tensor:
    """The sum of sigma(h_v + e_uv) over N(u).

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1], [2, 2]]), 3)
    >>> edge_sum(torch.tensor([[1.0], [2.0], [4.0]]), graph, torch.tensor([[-3.0], [5.0]])).flatten().tolist()
    [0.0, 0.0, 7.0]
    """
    return sir_aggregate(no_query(h, graph), h, graph, edge, None, activation)


def gated_sum(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    graph: Neighbors,
    edge: EdgeAttr = None,
    activation: str | Activation = "sigmoid",
    reduce: str = "sum",
    start: Tensor | None = None,
) -> Tensor:
    """`gated_aggregate` without edge weights; an exported program gets plain operators of torch.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1], [2, 2]]), 3)
    >>> nothing = torch.zeros(3, 1)
    >>> gated_sum(nothing, nothing, torch.tensor([[1.0], [2.0], [4.0]]), graph, start=nothing + 10).flatten().tolist()
    [10.0, 10.0, 11.5]
    """
    if not is_exporting():
        return gated_aggregate(query, key, value, graph, edge, None, activation, reduce, None, start)
    table, edge_type = edge if isinstance(edge, tuple) else (edge, None)
    gate = Gate(Activation.parse(activation), reduce == GATES)
    return gated_forward(
        Ends(query, key, value, start), graph, EdgeTerms(table, edge_type, None, None, None), gate, False
    ).out


def gated_sums(
    stacked: Tensor,
    graph: Neighbors,
    activation: str | Activation = "sigmoid",
    edge: EdgeAttr = None,
    reduce: str = "sum",
) -> Tensor:
    """`gated_sum` of the four equal parts of a matrix, in this order: start, query, key and value.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1], [2, 2]]), 3)
    >>> gated_sums(torch.tensor([[10.0, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 4]]), graph).flatten().tolist()
    [10.0, 10.0, 11.5]
    """
    if not is_exporting():
        return gated_columns(stacked, graph, edge, activation, reduce)
    start, query, key, value = stacked.chunk(4, dim=-1)
    return gated_sum(query, key, value, graph, edge, activation, reduce, start)


def deviation(h: Tensor, graph: Neighbors, eps: float) -> Tensor:
    """sqrt(variance + eps) of h_v over N(u), in two passes, so that no squares of large numbers cancel."""
    # The mean needs no gradient, because the derivative of the variance by the mean is 0.
    mean = weighted_sum(h.detach(), graph, "mean")
    return (sir_aggregate(-mean, h, graph, activation="square", reduce="mean") + eps).sqrt()


def edge_scores(score: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor, graph: Neighbors) -> Tensor:
    """score(q_u, k_v) of every edge, `(|E|, H)`. It gathers a row per edge, so it suits narrow rows."""
    source, target = graph.edge_index
    return score(query.index_select(0, target), key.index_select(0, source))


def head_scores(query: Tensor, key: Tensor, weight: Tensor, graph: Neighbors, activation: str) -> Tensor:
    """a_h . sigma(q_u + k_v) of every edge and head, `(|E|, H)`.

    Shapes: query and key `(|V|, H, F)`, weight a `(H, F)`.
    """
    if is_compiling():
        sigma = Activation.parse(activation)
        return edge_scores(lambda q, k: (sigma(q + k) * weight).sum(-1), query, key, graph)
    heads = zip(query.unbind(1), key.unbind(1), weight, strict=True)
    return torch.stack([contextual_scores(*head, graph, activation) for head in heads]).t()


def dot_scores(query: Tensor, key: Tensor, graph: Neighbors) -> Tensor:
    """q_u . k_v of every edge and head, `(|E|, H)`, query and key `(|V|, H, F)`."""
    if is_compiling():
        return edge_scores(lambda q, k: (q * k).sum(-1), query, key, graph)
    heads = zip(query.unbind(1), key.unbind(1), strict=True)
    return torch.stack([contextual_scores(no_query(q, graph), k, q, graph, "identity") for q, k in heads]).t()


def attend(scores: Tensor, value: Tensor, graph: Neighbors) -> Tensor:
    """The sum of softmax(scores) times value over N(u) of every head, side by side.

    Shapes: scores `(|E|, H)`, value `(|V|, H, F)`, result `(|V|, H * F)`.
    """
    if can_run(scores):
        alpha = edge_softmax(scores, graph)
    else:
        alpha = softmax(scores, graph.edge_index[1].long(), num_nodes=value.size(0))
    heads = (weighted_sum(v, graph, "sum", a) for v, a in zip(value.unbind(1), alpha.unbind(1), strict=True))
    return torch.cat(list(heads), dim=-1)
