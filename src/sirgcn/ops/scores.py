"""Scores of edges, as in attention, computed by the backends of the aggregation."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.arguments import check_nodes, check_width
from sirgcn.ops.backend import BACKENDS, choose_backend
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import opened
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.reference import EdgeTerms, Needs, accumulation_dtype, cast


def contextual_scores(
    query: Float[Tensor, "targets d"],
    key: Float[Tensor, "sources d"],
    weight: Float[Tensor, " d"] | Float[Tensor, "targets d"],
    neighbors: Neighbors,
    activation: str | Activation = "leaky_relu(0.2)",
) -> Float[Tensor, " edges"]:
    r"""One score per edge, in the order of the input, without a tensor of edges by channels.

    .. math:: s_{uv} = a_u^\top \sigma(q_u + k_v)

    The score is the derivative of :math:`a_u^\top \sum_v w_{uv} \sigma(q_u + k_v)` by :math:`w_{uv}`. So the backward
    pass of the aggregation computes the scores. With the gradient of the scores as w, the aggregation computes the
    gradients of q, k and a.

    The weight a is one row for all targets, as in GATv2, or one row per target. With q = 0, one row per target and the
    identity as :math:`\sigma`, the scores are the dot products :math:`a_u^\top k_v`.

    Scores of half-precision terms are float32. A second derivative raises.

    >>> edge = Neighbors.from_edge_index(torch.tensor([[0], [1]]), 2)
    >>> contextual_scores(torch.ones(2, 3), torch.ones(2, 3), torch.ones(3), edge).tolist()
    [6.0]
    """
    sigma = Activation.parse(activation)
    check_nodes(query, key, neighbors, max_dim=2)
    check_width(query, key)
    if weight.shape not in (query.shape, query.shape[1:]):
        raise ValueError(
            f"weight: expected shape {list(query.shape[1:])} or {list(query.shape)}, got {list(weight.shape)}"
        )
    check_devices({"query": query, "weight": weight})
    dtype = torch.promote_types(query.dtype, key.dtype)
    ends = cast(query, dtype), cast(key, dtype), cast(weight, dtype)
    backend = choose_backend(None, query.device, {"query": query, "key": key, "weight": weight})
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in ends):
        return _scores(*ends, neighbors, sigma, backend)
    out: Tensor = _ContextualScores.apply(*ends, neighbors, sigma, backend)  # type: ignore[no-untyped-call]
    return out


def _scores(
    query: Tensor, key: Tensor, weight: Tensor, neighbors: Neighbors, sigma: Activation, backend: str
) -> Tensor:
    terms = _weighted(query.new_ones(neighbors.num_edges, dtype=accumulation_dtype(query.dtype)))
    needs = Needs(edge=False, edge_weight=True)
    scores = BACKENDS[backend].backward(_rows(weight, query), query, key, neighbors, terms, sigma, needs)[2]
    assert scores is not None
    return scores


def _weighted(edge_weight: Tensor) -> EdgeTerms:
    return EdgeTerms(None, None, edge_weight, None, None)


def _rows(weight: Tensor, query: Tensor) -> Tensor:
    return weight.expand_as(query).contiguous()


class _ContextualScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, weight: Tensor, neighbors: Neighbors, sigma: Activation, backend: str
    ) -> Tensor:
        ctx.save_for_backward(query, key, weight)
        ctx.others = neighbors, sigma, backend
        return _scores(query, key, weight, neighbors, sigma, backend)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = query, key, weight = ctx.saved_tensors
        neighbors, sigma, backend = ctx.others
        with torch.no_grad():
            kernels, terms = BACKENDS[backend], _weighted(opened(grad).contiguous())
            out, slopes = kernels.forward(query, key, neighbors, terms, sigma, ctx.needs_input_grad[0])
            grad_query = None if slopes is None else cast(slopes.mul_(weight), query.dtype)
            needs = Needs(edge=False, edge_weight=False)
            grad_key = kernels.backward(_rows(weight, query), query, key, neighbors, terms, sigma, needs)[0]
            grad_weight = out if weight.dim() == 2 else out.sum(0, dtype=accumulation_dtype(out.dtype))
            grads = grad_query, cast(grad_key, query.dtype), cast(grad_weight, query.dtype)
        return *once_differentiable(grads, saved, "contextual_scores"), None, None, None
