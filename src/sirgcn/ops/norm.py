"""Batch norm of rows that stand for several equal ones."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.aggregate import once_differentiable
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.checks import check_devices
from sirgcn.ops.door import flat, is_open

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels


def weighted_batch_norm(
    table: Float[Tensor, "rows d"],
    share: Float[Tensor, " rows"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "rows d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    r"""Batch norm in training, with rows that weigh differently, and the moments, which have no gradient.

    .. math:: Y_k = \gamma \frac{T_k - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta, \qquad
        \mu = \sum_k s_k T_k, \qquad \sigma^2 = \sum_k s_k (T_k - \mu)^2

    Args:
        table: T, float32 or float64.
        share: s, which sums to 1; it gets no gradient.
        weight: gamma.
        bias: beta.
        eps: epsilon.
    """
    if table.dim() != 2 or not weight.shape == bias.shape == table.shape[1:] or share.shape != table.shape[:1]:
        shapes = [list(tensor.shape) for tensor in (table, share, weight, bias)]
        raise ValueError(f"weighted_batch_norm: expected shapes [K, d], [K], [d] and [d], got {shapes}")
    check_devices({"table": table, "share": share, "weight": weight, "bias": bias})
    found: tuple[Tensor, Tensor, Tensor] = _BatchNorm.apply(table, share, weight, bias, eps)  # type: ignore[no-untyped-call]
    return found


def _takes(*tensors: Tensor) -> bool:
    """Whether the kernel can work on these: of one dtype, float32 or float64, on the CPU, nobody looking on."""
    first = tensors[0]
    return native.takes_rows(first) and all(t.dtype == first.dtype and is_open(t) for t in tensors) and is_plain_call()


def _run(table: Tensor, eps: float = 0.0, **others: Tensor) -> None:
    """Forward, or backward where a gradient is given, on tensors in one piece by their names in the kernel."""
    rows, width = table.shape
    _kernels.norm(
        dtype=native.DTYPES[table.dtype],
        threads=native.threads_for(table.numel()),
        rows=rows,
        width=width,
        table=flat(table),
        **{name: flat(tensor) for name, tensor in others.items()},
        eps=eps,
    )


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: Tensor, share: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        table, share, weight, bias = (tensor.contiguous() for tensor in (table, share, weight, bias))
        if _takes(table, share, weight, bias):
            out, (mean, variance, scale) = torch.empty_like(table), table.new_empty(3, table.size(1))
            moments = {"mean": mean, "variance": variance, "scale": scale}
            _run(table, eps, share=share, weight=weight, bias=bias, **moments, out=out)
        else:
            mean = share @ table
            variance = share @ (table - mean).square()
            scale = torch.rsqrt(variance + eps)
            out = (table - mean) * (scale * weight) + bias
        ctx.save_for_backward(table, share, weight, bias, mean, scale)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        # Read once: a checkpoint computes them anew each time.
        saved = table, share, weight, _, mean, scale = ctx.saved_tensors
        if _takes(grad, table, share, weight):
            grad = grad.contiguous()
            out, (grad_weight, grad_bias) = torch.empty_like(table), table.new_empty(2, table.size(1))
            grads = {"grad": grad, "grad_weight": grad_weight, "grad_bias": grad_bias}
            _run(table, share=share, weight=weight, mean=mean, scale=scale, **grads, out=out)
        else:
            unit = (table - mean) * scale
            grad_weight, grad_bias = (grad * unit).sum(0), grad.sum(0)
            out = scale * weight * (grad - share.unsqueeze(1) * (grad_bias + unit * grad_weight))
        return once_differentiable((out, None, grad_weight, grad_bias, None), saved, "weighted_batch_norm")
