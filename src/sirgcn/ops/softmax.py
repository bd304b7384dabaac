"""The softmax of edge scores over every neighbourhood, in C."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import address, flat, opened, why_closed
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.neighbors import Neighbors

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels


def can_run(scores: Tensor) -> bool:
    """Whether the kernel can run: a plain call with a CPU matrix of float32 or float64 scores."""
    return is_plain_call() and native.can_run_rows(scores)


def edge_softmax(scores: Float[Tensor, "edges heads"], neighbors: Neighbors) -> Float[Tensor, "edges heads"]:
    r"""The share of every edge in its neighbourhood, head by head, in the order of the input.

    .. math:: \alpha_{uv} = \frac{\exp(s_{uv})}{\sum_{w \in N(u)} \exp(s_{uw})}

    The scores are float32 or float64 on the CPU. The values of a head are contiguous in the result. A second derivative
    raises.

    >>> two_sources = Neighbors.from_edge_index(torch.tensor([[0, 1], [0, 0]]), 2)
    >>> edge_softmax(torch.zeros(2, 1), two_sources).flatten().tolist()
    [0.5, 0.5]
    """
    if scores.dim() != 2 or scores.size(0) != neighbors.num_edges:
        raise ValueError(f"scores: expected shape [{neighbors.num_edges}, heads], got {list(scores.shape)}")
    if not native.can_run_rows(scores):
        reason = why_closed(scores) or f"its dtype is {scores.dtype}, its device {scores.device}"
        raise ValueError(f"scores: expected a plain CPU tensor of float32 or float64, got another: {reason}")
    check_devices({"scores": scores, "neighbors": neighbors})
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return _run(scores, None, neighbors)
    out: Tensor = _EdgeSoftmax.apply(scores, neighbors)  # type: ignore[no-untyped-call]
    return out


def _run(rows: Tensor, grad: Tensor | None, neighbors: Neighbors) -> Tensor:
    """The softmax of scores; with a gradient given, the gradient of the scores from the result of the softmax."""
    neighbors.check_frozen()
    ptr, _, edge = neighbors.by_target
    edges, heads = rows.shape
    out = rows.new_empty(heads, edges).t()
    (given_step, given_head), (out_step, out_head) = rows.stride(), out.stride()
    grad_step, grad_head = (0, 0) if grad is None else grad.stride()
    _kernels.softmax(
        dtype=native.DTYPES[rows.dtype],
        threads=native.threads_for(rows.numel()),
        ptr=flat(ptr),
        edge=flat(edge),
        wide=edge.dtype == torch.int64,
        groups=neighbors.num_targets,
        heads=heads,
        given=address(rows),
        given_step=given_step,
        given_head=given_head,
        grad=address(grad),
        grad_step=grad_step,
        grad_head=grad_head,
        out=address(out),
        out_step=out_step,
        out_head=out_head,
    )
    return out


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, neighbors: Neighbors) -> Tensor:
        out = _run(scores, None, neighbors)
        ctx.save_for_backward(out)
        ctx.neighbors = neighbors
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        with torch.no_grad():
            found = _run(out, opened(grad), ctx.neighbors)
        return *once_differentiable((found,), (out,), "edge_softmax"), None
