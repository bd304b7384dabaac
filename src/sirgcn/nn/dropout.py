"""Dropout that is fast on the CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sirgcn.ops.calls import is_compiling, is_touched, is_transformed

_STEPS = 2**16


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    r"""x with random elements set to 0 and the other elements scaled up, so that the expected value does not change.

    .. math:: y_i = \frac{m_i}{1 - p} \, x_i, \qquad m_i = 0 \text{ with probability } p, \text{ else } 1

    On the CPU, four elements share one 64-bit random number of torch's generator. `torch.nn.functional.dropout` draws
    a number for each element and takes about five times as long. To this end, p is rounded to a multiple of 2^-16. On
    other devices, and under `torch.compile` and torch.func transforms, this is torch's function.

    >>> x = torch.ones(1000)
    >>> dropout(x, 0.5).unique().tolist()
    [0.0, 2.0]
    >>> dropout(x, 0.5, training=False) is x
    True
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: expected 0 <= p <= 1, got {p}")
    if not training or p == 0:
        return x
    dropped = round(p * _STEPS)
    if x.device.type != "cpu" or not 0 < dropped < _STEPS or is_compiling() or is_transformed():
        return F.dropout(x, p, True)
    drawn = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
    drawn.random_(torch.iinfo(torch.int64).min, None)
    lanes = drawn.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(lanes, dropped - _STEPS // 2, out=torch.empty(x.shape, dtype=x.dtype, device=x.device))
    return x * kept.mul_(_STEPS / (_STEPS - dropped))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with the function `dropout` of this module. It never works in place.

    >>> Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)

    def forward(self, input: Tensor) -> Tensor:
        """The input with random elements set to 0 in training mode, and the input itself in evaluation mode."""
        return dropout(input, self.p, self.training)


def can_drop(dropout: nn.Module) -> bool:
    """Whether a dropout, or a module that replaced it, may make equal rows differ."""
    if is_touched(dropout):
        return True
    if type(dropout) in (nn.Dropout, Dropout):
        return bool(dropout.p) and dropout.training
    return type(dropout) is not nn.Identity
