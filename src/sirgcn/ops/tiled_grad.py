"""The autograd function of `tiled_aggregate`: its backward pass computes every tile again."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sirgcn.ops import native
from sirgcn.ops.calls import is_touched
from sirgcn.ops.door import opened
from sirgcn.ops.gradients import once_differentiable
from sirgcn.ops.parts import known_parts
from sirgcn.ops.reference import accumulation_dtype
from sirgcn.ops.tiles import Inputs, Plan, Tile, add_rows_into, forward_max, forward_sum, weights_of


class Tiled(torch.autograd.Function):
    """The forward pass keeps no tensor that grows with the number of edges."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        query: Tensor,
        key: Tensor,
        table: Tensor | None,
        edge_weight: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        """The reduced messages; the parameters are arguments so that autograd asks for their gradients."""
        inputs = Inputs(query, key, table, edge_weight)
        ctx.plan = plan
        ctx.context = _Context(query.device)
        buffers = _Buffers(plan.network)
        with ctx.context.autocast():
            out, winner = (forward_max if plan.reduce == "max" else forward_sum)(plan, inputs)
        buffers.check_unchanged()
        # Parameters and buffers are saved so that torch notices an in-place change before the backward pass.
        ctx.save_for_backward(*inputs, winner, plan.edge_type, *plan.network.parameters(), *plan.network.buffers())
        ctx.state = _state(plan.network)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs and of the network's parameters."""
        # Read only once: the checkpoints of torch unpack a tensor a single time.
        saved = ctx.saved_tensors
        _check_unchanged(ctx.plan.network, ctx.state)
        with torch.no_grad():
            plan = replace(ctx.plan, edge_type=saved[5])
            network, parameters = _trainable(plan.network)
            totals = _Totals(plan, Inputs(*saved[:4]), ctx.needs_input_grad[1:5], len(parameters))
            # Only the gradient of the edge weights reads the value of a message.
            if network is plan.network and totals.edge_weight is None and not ctx.context.enabled:
                network = _without_values(ctx.plan.network)
            _differentiate_tiles(ctx.context, totals, (network, parameters), saved[4], opened(grad))
            grads = totals.cast()
        return once_differentiable((None, *grads), saved, "tiled_aggregate")


def _check_unchanged(network: nn.Module, before: list[object]) -> None:
    """Refuse a network that is not the one of the forward pass, because its messages are computed again."""
    state = _state(network)
    if len(state) != len(before) or any(a is not b for a, b in zip(state, before, strict=True)):
        raise RuntimeError(
            "network: its modules, parameters or training mode changed between forward and backward, "
            "which computes the messages again"
        )


def _differentiate_tiles(
    context: "_Context",
    totals: "_Totals",
    trainable: tuple[Callable[[Tensor], Tensor], list[Tensor]],
    winner: Tensor | None,
    grad: Tensor,
) -> None:
    """Compute every tile again, differentiate it, and add its gradients to the totals."""
    plan, inputs = totals.plan, totals.inputs
    network, parameters = trainable
    may_write = _may_write(plan.network)
    if winner is None:
        grad = plan.scale_targets(grad)
    with context.replay():
        for tile in plan.tiles(plan.tile):
            ends = plan.ends(tile, inputs).requires_grad_(totals.needs_ends)
            weight = weights_of(tile, inputs)
            if weight is not None:
                weight.requires_grad_(totals.edge_weight is not None)
            with torch.enable_grad(), context.autocast():
                message = plan.message(tile, ends.clone() if may_write else ends, weight, network)
            grad_message = _grad_of_message(grad, winner, tile).to(message.dtype)
            leaves = [leaf for leaf in (ends, weight) if leaf is not None and leaf.requires_grad]
            parts = torch.autograd.grad(message, [*leaves, *parameters], grad_message, allow_unused=True)
            totals.add(tile, list(parts))


class _Totals:
    """The gradients of inputs and parameters, summed over tiles; None for a gradient that is not needed.

    Args:
        plan, inputs: what is differentiated.
        needs: whether query, key, table and edge weight need a gradient.
        num_parameters: how many parameters get one.
    """

    def __init__(self, plan: Plan, inputs: Inputs, needs: tuple[bool, ...], num_parameters: int) -> None:
        self.plan, self.inputs = plan, inputs
        *self.ends, self.edge_weight = (_zeros(tensor, needed) for tensor, needed in zip(inputs, needs, strict=True))
        self.needs_ends = any(total is not None for total in self.ends)
        self.parameters: list[Tensor | None] = [None] * num_parameters

    def add(self, tile: Tile, parts: list[Tensor | None]) -> None:
        """Add the gradients of a tile: of its ends and its weights, where these are needed, then of the parameters."""
        if self.needs_ends:
            self._add_ends(tile, parts.pop(0))
        if self.edge_weight is not None:
            part = parts.pop(0)
            if part is not None:
                self.edge_weight.index_add_(0, tile.edge, part.to(self.edge_weight.dtype))
        self.parameters = [_plus(*pair) for pair in zip(self.parameters, parts, strict=True)]

    def _add_ends(self, tile: Tile, grad_ends: Tensor | None) -> None:
        if grad_ends is None:
            return
        places = (tile.target, tile.source, tile.row)
        for total, place, part in zip(self.ends, places, self.plan.split(grad_ends, self.inputs), strict=True):
            if total is not None:
                add_rows_into(total, place, part)

    def cast(self) -> tuple[Tensor | None, ...]:
        """All totals, in the dtypes of their inputs."""
        totals = [*self.ends, self.edge_weight]
        found = (
            None if total is None or tensor is None else total.to(tensor.dtype)
            for total, tensor in zip(totals, self.inputs, strict=True)
        )
        return *found, *self.parameters


def _trainable(network: nn.Module) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """The network, and the parameters for which a tile is differentiated.

    A hook on a parameter (`weight.register_hook`) expects the whole gradient, but torch would call it for every tile.
    If a parameter has a hook, copies take the place of the parameters.
    """
    named = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    if not any(weight._backward_hooks for weight in named.values()):
        return network, list(named.values())
    copies = {name: weight.detach().requires_grad_() for name, weight in named.items()}
    return lambda ends: functional_call(network, copies, (ends,)), list(copies.values())


def _without_values(network: nn.Module) -> nn.Module:
    """The network for a backward pass that needs no messages: the product of a linear layer at its end is skipped."""
    if type(network) is not nn.Sequential or len(network) == 0 or is_touched(network):
        return network
    last = network[-1]
    if known_parts(last) != [last]:
        return network
    return nn.Sequential(*list(network)[:-1], _Unvalued(last))


class _Unvalued(nn.Module):
    """A linear layer whose output is never read."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = _UnvaluedLinear.apply(h, self.linear.weight, self.linear.bias)  # type: ignore[no-untyped-call]
        return out


class _UnvaluedLinear(torch.autograd.Function):
    """The gradients of h W^T + b without its value, which saves one matrix product."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(h, weight)
        return h.new_empty(*h.shape[:-1], weight.size(0))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight = ctx.saved_tensors
        needs_h, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            grad @ weight if needs_h else None,
            rows.t() @ h.flatten(0, -2) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )


def _may_write(network: nn.Module) -> bool:
    """Whether a network may write into its input. torch forbids this for a leaf that gets a gradient.

    Modules from outside of torch, PyG and this package are not known, so that they count as writing.
    """
    return any(
        getattr(module, "inplace", False)
        or not type(module).__module__.startswith(("torch.", "sirgcn.", "torch_geometric."))
        for module in network.modules()
    )


def _state(network: nn.Module) -> list[object]:
    """The parts of a network that must be the same objects in the backward pass."""
    tensors = [*network.parameters(), *network.buffers()]
    requires_grad = [tensor.requires_grad for tensor in tensors]
    return [*tensors, *requires_grad, *(x for m in network.modules() for x in (m, m.training))]


def _grad_of_message(grad: Tensor, winner: Tensor | None, tile: Tile) -> Tensor:
    """The gradient of each message of the tile; with max, 0 for messages that are not the maximum."""
    if winner is not None and native.can_run_rows(grad):
        return native.won_rows(grad, winner, tile.target, tile.start)
    grad_message = grad.index_select(-2, tile.target)
    if winner is None:
        return grad_message
    place = torch.arange(tile.start, tile.start + tile.edge.numel(), device=grad.device)
    won = winner.index_select(-2, tile.target) == place.unsqueeze(-1)
    return torch.where(won, grad_message, 0)


def _zeros(tensor: Tensor | None, is_needed: bool) -> Tensor | None:
    """A contiguous tensor of zeros in which the gradient of a tensor is summed; None where it is not needed."""
    if tensor is None or not is_needed:
        return None
    return tensor.new_zeros(tensor.shape, dtype=accumulation_dtype(tensor.dtype))


def _plus(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    if total is None or part is None:
        return part if total is None else total
    return total + part


class _Buffers:
    """The buffers of a network before its tiles are computed, to notice a call that changes them."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.before = self._versions()

    def _versions(self) -> dict[str, tuple[int, int]]:
        return {
            name: (id(buffer), 0 if buffer.is_inference() else buffer._version)
            for name, buffer in self.network.named_buffers()
        }

    def check_unchanged(self) -> None:
        """Refuse a network that changed one of its buffers."""
        for name, found in self._versions().items():
            if self.before.get(name) != found:
                raise ValueError(
                    f"network: its buffer {name} changes with every call, so that messages would depend on the tile, "
                    "and those of the backward pass would be others; expected a network whose calls change nothing"
                )


class _Context:
    """The random state and the autocast mode of a forward pass, which its backward pass restores."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu_state = torch.get_rng_state()
        self.device_state = None
        if device.type != "cpu":
            self.device_state = torch.get_device_module(device).get_rng_state(device)
        self.enabled = torch.is_autocast_enabled(device.type)
        self.dtype = torch.get_autocast_dtype(device.type)

    def autocast(self) -> torch.autocast:
        """The autocast mode of the forward pass."""
        # Without the cache: a weight that was cast under no_grad must not be reused where it needs a gradient.
        return torch.autocast(self.device.type, self.dtype, self.enabled, cache_enabled=False)

    def replay(self) -> ExitStack:
        """A context with the random state of the forward pass."""
        stack = ExitStack()
        devices = [] if self.device_state is None else [self.device]
        stack.enter_context(torch.random.fork_rng(devices, device_type=self.device.type))
        torch.set_rng_state(self.cpu_state)
        if self.device_state is not None:
            torch.get_device_module(self.device).set_rng_state(self.device_state, self.device)
        return stack
