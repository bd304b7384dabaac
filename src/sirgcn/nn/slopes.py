r"""sigma with slopes that are learned: a PReLU with one slope per channel.

.. math:: \sigma(z) = \max(z, 0) + s \min(z, 0) = (1 - s) \, \mathrm{ReLU}(z) + s \, z

A layer begins with s = 1 as its linear special case, and departs from it where that pays. The second form needs no edge
loop of its own: the sums over N(u) of ReLU(z) and of z are those of two activations of the table.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sirgcn.ops import ACTIVATIONS, Activation
from sirgcn.ops.activation import LEARNED, Sigma
from sirgcn.ops.calls import is_touched
from sirgcn.ops.checks import check_known
from sirgcn.ops.reference import accumulation_dtype, cast

_RELU, _IDENTITY = Activation("relu"), Activation("identity")


class PReLU(nn.PReLU):
    """torch's `PReLU` with its slopes along the last dimension, begun at 1: then it is the identity.

    >>> PReLU(2)(torch.tensor([[-1.0, 3.0]])).tolist()
    [[-1.0, 3.0]]
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 1.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_parameters, init, device, dtype)

    def forward(self, input: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """sigma(z), in the dtype of z."""
        return torch.where(input > 0, input, cast(self.weight, input.dtype) * input)


def make_sigma(activation: str | Activation, channels: int) -> Sigma | PReLU:
    """The activation of this name for rows of `channels`; the slopes of `"prelu"` are its own.

    >>> make_sigma("prelu", 4).weight.shape
    torch.Size([4])
    """
    name = activation.strip() if isinstance(activation, str) else activation
    if name in LEARNED:
        return PReLU(channels)
    if isinstance(name, str) and "(" not in name:
        check_known("activation", name, (*ACTIVATIONS, *LEARNED))
    return Sigma(name)


def learned_slopes(module: nn.Module, channels: int) -> PReLU | None:
    """A `PReLU` of this module in place of torch's, whose first slopes it has; None for any other module.

    Raises a `ValueError` unless there is one slope, or one for each of the channels.
    """
    if not isinstance(module, nn.PReLU) or type(module) not in (nn.PReLU, PReLU) or is_touched(module):
        return None
    if module.num_parameters not in (1, channels):
        raise ValueError(
            f"activation: expected a PReLU with 1 slope or {channels}, one per hidden channel, "
            f"got {module.num_parameters}"
        )
    found = PReLU(module.num_parameters, module.init, module.weight.device, module.weight.dtype)
    found.weight.requires_grad_(module.weight.requires_grad)
    return found


def is_fused(sigma: nn.Module) -> bool:
    """Whether `summed` can compute the messages of a sigma: an activation of the table, or one with learned slopes."""
    return type(sigma) in (Sigma, PReLU)


def summed(
    sigma: Sigma | PReLU, sum_of: Callable[[Activation], Float[Tensor, "*targets d"]]
) -> Float[Tensor, "*targets d"]:
    """The sum of the messages of a sigma, from a function that sums those of an activation of the table.

    >>> z = torch.tensor([[-1.0, 2.0], [-3.0, -4.0]])
    >>> summed(PReLU(init=0.5), lambda activation: activation(z).sum(0)).tolist()
    [-2.0, 0.0]
    """
    if isinstance(sigma, Sigma):
        return sum_of(sigma.activation)
    relu, linear = sum_of(_RELU), sum_of(_IDENTITY)
    wide = accumulation_dtype(relu.dtype)
    # torch computes ReLU's sum where the slope is 0, and the linear one where it is 1, without rounding.
    out = torch.lerp(cast(relu, wide), cast(linear, wide), cast(sigma.weight, wide))
    return cast(out, relu.dtype)
