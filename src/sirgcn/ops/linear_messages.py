"""Message networks of the form act2(W act1(z) + b): recognised in a module, and computed by the C kernel."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sirgcn.ops import native
from sirgcn.ops.activation import Activation
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.door import is_open
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.native import network as native_network
from sirgcn.ops.native.network import Inputs, Messages
from sirgcn.ops.parts import known_parts


class LinearMessage(NamedTuple):
    """act2(W act1(z) + b), W `[d_out, d_in]`."""

    first: Activation
    weight: Tensor
    bias: Tensor | None
    second: Activation


def linear_message(network: nn.Module) -> LinearMessage | None:
    """The network as activation, linear layer, activation; None where it has another form.

    The network may be an `nn.Sequential`, nested or not, of these parts, see `known_parts`:

    - activations of the table, of which either may be absent
    - one linear layer of torch, of PyG or of this package
    - dropout that drops nothing

    A subclass, a module with hooks and a module with a `forward` of its own may compute something else. They are not
    recognised.
    """
    parts = known_parts(network)
    if parts is None or len(parts) > 3:
        return None
    first, rest = _leading_activation(parts)
    if not rest or isinstance(rest[0], Activation):
        return None
    second, others = _leading_activation(rest[1:])
    weight: Any = rest[0].weight
    bias: Any = rest[0].bias
    if others or isinstance(weight, nn.parameter.UninitializedParameter):
        return None
    return LinearMessage(first, weight, bias, second)


def _leading_activation(
    parts: list[Activation | nn.Module],
) -> tuple[Activation, list[Activation | nn.Module]]:
    """The activation that the parts begin with, the identity where there is none, and the parts that follow."""
    if parts and isinstance(parts[0], Activation):
        return parts[0], parts[1:]
    return _IDENTITY, parts


_IDENTITY = Activation("identity")


def can_run(message: LinearMessage, query: Tensor, key: Tensor, table: Tensor | None, num_edges: int) -> bool:
    """Whether the kernel can run: a plain call with CPU tensors of one dtype, float32 or float64."""
    tensors = [t for t in (query, key, table, message.weight, message.bias) if t is not None]
    return (
        native.can_run_rows(query, key, message.weight)
        and all(t.dtype == query.dtype and is_open(t) for t in tensors)
        and min(message.weight.shape) > 0
        and message.weight.size(1) == query.size(1)
        and num_edges <= torch.iinfo(torch.int32).max
        and is_plain_call()
    )


def aggregate(message: LinearMessage, messages: Messages, query: Tensor, key: Tensor, table: Tensor | None) -> Tensor:
    """The reduced messages, `[targets, d_out]`."""
    inputs = Inputs(query, key, table, message.weight, message.bias)
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in inputs):
        return native_network.forward(messages, inputs, save=False)[0]
    out: Tensor = _LinearMessages.apply(messages, *inputs)  # type: ignore[no-untyped-call]
    return out


class _LinearMessages(torch.autograd.Function):
    """The backward pass computes the edges again. Only the winners of max and the signs of a ReLU are kept."""

    @staticmethod
    def forward(ctx: Any, messages: Messages, *inputs: Tensor | None) -> Tensor:
        out, winner, marks = native_network.forward(messages, Inputs(*inputs), save=True)
        ctx.messages = messages
        ctx.save_for_backward(*inputs, winner, marks, messages.edge_type)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *saved, winner, marks, edge_type = ctx.saved_tensors
        messages = replace(ctx.messages, edge_type=edge_type)
        with torch.no_grad():
            needs = ctx.needs_input_grad[1:]
            grads = native_network.backward(messages, Inputs(*saved), winner, marks, grad, needs)
        return once_differentiable((None, *grads), saved, "tiled_aggregate")
