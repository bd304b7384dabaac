"""Batch norms whose statistics are those of the rows of all ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class SharedBatchNorm(nn.BatchNorm1d):
    r"""`torch.nn.BatchNorm1d` over the rows of all ranks; a rank may have no row.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \, \gamma + \beta

    with the mean and the variance of the rows of all ranks. torch's `SyncBatchNorm` works on GPUs only. Outside of
    training it is torch's batch norm. See `shared_batch_norms`.

    >>> SharedBatchNorm(2).eval()(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The normed rows `[N, channels]`."""
        uses_batch = self.training or self.running_mean is None
        if not uses_batch:
            return super().forward(input)
        out, mean, variance, count = _Norm.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        if self.training and self.running_mean is not None and self.running_var is not None:
            self._track(mean, variance, int(count))
        return out

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * (count / max(1, count - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)

    def _get_name(self) -> str:
        # The representation of a model belongs to the identity of a training, which has nothing to do with ranks.
        return "BatchNorm1d"


@contextmanager
def shared_batch_norms(model: nn.Module) -> Iterator[None]:
    """In the context, the batch norms of a model are those of all ranks.

    The modules stay the same objects, so that their parameters and hooks do.

    >>> model = nn.Sequential(nn.BatchNorm1d(2))
    >>> with shared_batch_norms(model):
    ...     type(model[0]).__name__
    'SharedBatchNorm'
    >>> type(model[0]).__name__
    'BatchNorm1d'
    """
    norms = [module for module in model.modules() if type(module) is nn.BatchNorm1d]
    for norm in norms:
        norm.__class__ = SharedBatchNorm
    try:
        yield
    finally:
        for norm in norms:
            norm.__class__ = nn.BatchNorm1d


class _Norm(torch.autograd.Function):
    """The normed rows, with the mean, the variance and the number of the rows of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        count, mean, variance = _moments(x)
        if count < 2:
            raise ValueError(f"batch norm: expected more than 1 row on all ranks together in training, got {count}")
        scale = (variance + eps).rsqrt()
        normed = (x - mean) * scale
        out = normed if weight is None else normed * weight
        ctx.save_for_backward(x, mean, scale, weight)
        ctx.count, ctx.has_bias = count, bias is not None
        ctx.mark_non_differentiable(mean, variance)
        return out if bias is None else out + bias, mean, variance, torch.tensor(count)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, scale, weight = ctx.saved_tensors
        normed = (x - mean) * scale
        own = torch.stack([grad.sum(0), (grad * normed).sum(0)])
        total = own.clone()
        dist.all_reduce(total)
        total /= ctx.count
        through = grad - total[0] - normed * total[1]
        grad_x = through * (scale if weight is None else scale * weight)
        # The gradients of the parameters are summed over the ranks with those of all other parameters.
        return grad_x, None if weight is None else own[1], own[0] if ctx.has_bias else None, None


def _moments(x: Tensor) -> tuple[int, Tensor, Tensor]:
    r"""The number, the mean and the variance of the rows of all ranks.

    Every rank has its own number n_r, mean and variance, and so no difference of large numbers is taken:

    .. math:: \mu = \sum_r \tfrac{n_r}{n} \mu_r, \qquad
        \sigma^2 = \sum_r \tfrac{n_r}{n} \left(\sigma_r^2 + (\mu_r - \mu)^2\right)
    """
    rows, width = x.shape
    # In float64, because a number of rows has more digits than a float32.
    own = torch.zeros(3, width, dtype=torch.float64, device=x.device)
    if rows:
        own[0] = rows
        own[2], own[1] = torch.var_mean(x, 0, correction=0)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    rows_of, mean_of, variance_of = torch.stack(found, 1).unbind(0)
    total = rows_of.sum(0)
    share = rows_of / total
    mean = (share * mean_of).sum(0)
    variance = (share * (variance_of + (mean_of - mean).square())).sum(0)
    return int(total[0]), mean.to(x.dtype), variance.to(x.dtype)
