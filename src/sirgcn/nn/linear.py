"""The linear layer of every network here."""

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
        return linear(x, self.weight, self.bias)
