"""The linear layer of the convolutions and networks."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear as PyGLinear

from sirgcn.ops.linear import linear
from sirgcn.ops.parts import LINEAR, is_row_by_row, known_parts
from sirgcn.ops.rows import Rows


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


def side_by_side(linears: Sequence[nn.Module], rows: Rows) -> Rows:
    r"""The outputs of linear layers of one input, side by side, by one matrix product where nobody can see it.

    .. math:: [x W_1^\top + b_1 \Vert x W_2^\top + b_2 \Vert \dots]

    A layer of another class, with hooks or with its own `forward` is called by itself, and so are all the others then.

    >>> found = side_by_side([Linear(3, 2), Linear(3, 4)], Rows(torch.randn(5, 3)))
    >>> found.shape
    torch.Size([5, 6])
    """
    if len(linears) == 1:
        return rows.map(linears[0])
    if all(map(_is_one_product, linears)):
        return rows.map(_stacked(linears))
    if all(map(is_row_by_row, linears)):
        return rows.map(lambda table: torch.cat([linear(table) for linear in linears], dim=-1))
    return Rows(torch.cat([rows.map(linear).expand() for linear in linears], dim=-1))


def _is_one_product(linear: nn.Module) -> bool:
    """Whether a layer is x W^T + b; a lazy one, which draws its weights in a hook, is not."""
    return known_parts(linear) == [linear]


def _stacked(linears: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """The linear map whose outputs are those of all layers side by side."""
    weights = [cast(Tensor, linear.weight) for linear in linears]
    biases = [cast(Tensor | None, linear.bias) for linear in linears]
    bias = None
    if any(b is not None for b in biases):
        filled = [w.new_zeros(w.size(0)) if b is None else b for w, b in zip(weights, biases, strict=True)]
        bias = torch.cat(filled)
    weight = torch.cat(weights)
    return lambda x: linear(x, weight, bias)


LINEAR.update({PyGLinear, Linear})
