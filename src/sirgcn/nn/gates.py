"""Gated messages of `SIRConv`: what it asks of a gate, and where the value stands."""

from torch import Tensor, nn

from sirgcn.nn.slopes import is_fused
from sirgcn.ops import ACTIVATIONS
from sirgcn.ops.activation import LEARNED
from sirgcn.ops.columns import split_columns


def check_gated(gated: bool, aggr: str, message_network: object) -> None:
    """Refuse a gate where the layer has no sum of sigmas that a value could enter."""
    if not gated:
        return
    if aggr == "max":
        raise ValueError("gated: expected False with aggr='max', because a gate weighs the values of a sum, got True")
    if message_network is not None:
        raise ValueError("gated: expected False with a message_network, which takes the place of sigma, got True")


def check_gate(activation: nn.Module, fused: bool) -> None:
    """Refuse a module as the gate of the fused route, which computes the activations of the table only."""
    if fused and not is_fused(activation):
        known = ", ".join((*ACTIVATIONS, *LEARNED))
        raise ValueError(
            f"activation: expected with gated=True one of {known}, got {type(activation).__name__}; a gate that is a "
            f"module needs fused=False"
        )


def key_and_value(key: Tensor, lin_value: nn.Module | None) -> tuple[Tensor, Tensor | None]:
    """The key alone and, for a layer with values, the value that stands beside it.

    >>> import torch
    >>> key_and_value(torch.tensor([[1.0, 2.0]]), None)[1] is None
    True
    >>> import torch
    >>> key_and_value(torch.tensor([[1.0, 2.0]]), nn.Linear(3, 1))
    (tensor([[1.]]), tensor([[2.]]))
    """
    if lin_value is None:
        return key, None
    key, value = split_columns(key, 2)
    return key, value
