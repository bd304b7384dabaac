"""Gradients that can be used but not differentiated again."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def once_differentiable(
    grads: tuple[Tensor | None, ...], inputs: Sequence[Tensor | None], name: str
) -> tuple[Tensor | None, ...]:
    """The gradients, tied to one of the inputs, so that a second derivative raises instead of being silently 0."""
    if not torch.is_grad_enabled():
        return grads
    anchor = next(tensor for tensor in inputs if tensor is not None and tensor.requires_grad)
    return _Once.apply(name, anchor, *grads)  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """Returns the gradients unchanged, and raises when they are differentiated."""

    @staticmethod
    def forward(ctx: Any, name: str, anchor: Tensor, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.name = name
        return grads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        refuse_second_derivative(ctx.name)


def refuse_second_derivative(name: str) -> None:
    """Raise, and name the layer option that has second derivatives."""
    raise RuntimeError(
        f"{name}: the second derivative is not implemented; "
        "SIRConv(..., fused=False) takes the plain PyG route, which torch differentiates any number of times"
    )
