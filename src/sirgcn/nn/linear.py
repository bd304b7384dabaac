"""The linear layer of the convolutions and networks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from sirgcn.ops.linear import linear
from sirgcn.ops.parts import LINEAR, known_parts


def own_weights(linear: nn.Module, name: str) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of a linear layer, for a network that uses them without a call of the layer.

    Raises a `TypeError` for a layer of another class, with hooks or with its own `forward`, which would have no effect.
    """
    if known_parts(linear) != [linear]:
        raise TypeError(
            f"{name}: expected a linear layer without hooks, because this network uses its weights without a call, "
            f"got {type(linear).__name__}"
        )
    return linear.weight, linear.bias  # type: ignore[return-value]


class Linear(PyGLinear):
    r"""PyG's linear layer, with the matrix product of `sirgcn.ops.linear`.

    .. math:: x W^\top + b

    Shapes:
        - **input:** `(*, in_channels)`
        - **output:** `(*, out_channels)`

    >>> Linear(3, 2)(torch.randn(5, 3)).shape
    torch.Size([5, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x W^T + b."""
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return F.linear(x, self.weight, self.bias)
        else:  # noqa: RET505 (TorchScript compiles code outside the else branch)
            return linear(x, self.weight, self.bias)


LINEAR.update({PyGLinear, Linear})
