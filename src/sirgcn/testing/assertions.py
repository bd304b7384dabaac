"""Assertions on tensors and their gradients, shared by all laws."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def value_and_gradients(out: Tensor, leaves: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """The output, followed by the gradient of every leaf. The shape of the output and the seed fix the cotangent.

    >>> x = torch.ones(2, requires_grad=True)
    >>> value, gradient = value_and_gradients(2 * x, [x])
    >>> value.tolist(), gradient.shape
    ([2.0, 2.0], torch.Size([2]))
    """
    generator = torch.Generator().manual_seed(seed)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    if not out.requires_grad:
        return [out, *(torch.zeros_like(leaf) for leaf in leaves)]
    grads = torch.autograd.grad(out, leaves, cotangent, materialize_grads=True)
    return [out.detach(), *grads]


def assert_same(
    actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float = 1e-12, law: str | None = None
) -> None:
    """Two lists of tensors are equal up to the rounding of float64 sums in another order.

    Args:
        actual: what was computed.
        expected: what should have been computed.
        tolerance: relative and absolute.
        law: what is broken if the tensors differ; the message begins with it.

    >>> assert_same([torch.ones(2)], [torch.ones(2)])
    """
    message = None if law is None else lambda text: f"{law}\n{text}"
    torch.testing.assert_close(
        list(actual), list(expected), rtol=tolerance, atol=tolerance, equal_nan=True, msg=message
    )


def assert_gradients(function: Callable[..., Tensor], leaves: Sequence[Tensor], law: str = "gradients") -> None:
    """The gradient of `function(*leaves)` equals finite differences. Use float64 and stay away from kinks.

    Args:
        function: from the leaves to a tensor.
        leaves: float64 tensors that require a gradient.
        law: what is broken if the gradient is wrong; the message begins with it.

    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    >>> assert_gradients(torch.square, [x])
    """
    try:
        torch.autograd.gradcheck(function, tuple(leaves))
    except RuntimeError as error:
        raise AssertionError(f"{law}: the gradient is not that of finite differences\n{error}") from error


def assert_repeats(run: Callable[[], Sequence[Tensor]], times: int = 3) -> None:
    """Every further run returns the bits of the first run.

    >>> assert_repeats(lambda: [torch.ones(3).sum()])
    """
    first = [tensor.clone() for tensor in run()]
    for turn in range(times):
        for place, (tensor, before) in enumerate(zip(run(), first, strict=True)):
            if not torch.equal(tensor, before):
                raise AssertionError(f"repeats: tensor {place} of run {turn + 2} differs from that of the first run")
