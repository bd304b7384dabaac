"""The linear layer of the convolutions and networks."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from sirgcn.ops.linear import linear


class Linear(PyGLinear):
    r"""PyG's linear layer, with the product of `sirgcn.ops.linear`.

    .. math:: x W^\top + b

    Shapes:
        - **input:** `(*, in_channels)`
        - **output:** `(*, out_channels)`
    """

    def forward(self, x: Tensor) -> Tensor:
        """One linear map."""
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            return F.linear(x, self.weight, self.bias)
        else:  # noqa: RET505 (TorchScript compiles what stands outside)
            return linear(x, self.weight, self.bias)
