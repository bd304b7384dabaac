"""`tiled_aggregate`: any message network, in tiles of edges that are computed again in the backward pass."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from sirgcn.ops import native
from sirgcn.ops.aggregate import check_edge, check_nodes, check_width, choose_backend, once_differentiable
from sirgcn.ops.calls import is_compiling, is_touched
from sirgcn.ops.checks import whole_number
from sirgcn.ops.door import opened
from sirgcn.ops.linear_messages import aggregate, can_run, linear_message
from sirgcn.ops.native.network import Messages
from sirgcn.ops.neighbors import REDUCTIONS, Neighbors, check_reduce
from sirgcn.ops.parts import known_parts
from sirgcn.ops.reference import accumulation_dtype

COMBINE: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "add": lambda query, key, edge: query + key if edge is None else query + key + edge,
    "cat": lambda query, key, edge: torch.cat(
        [query, key] if edge is None else [query, edge.expand(*query.shape[:-1], edge.size(-1)), key], dim=-1
    ),
}
"""How the ends of an edge enter the message network: q_u + e_uv + k_v, or [h_u || h_uv || h_v]."""

_MIN_TILE = 256
# Tensors of a tile's size that are in use at once: a few layers' outputs and their gradients.
_TILE_TENSORS = 8


def _tile_elements() -> int:
    """Elements of a tile's tensor such that all in use fit into the last cache; 2**20 where its size is not known."""
    try:
        cache = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):
        cache = 0
    return min(max(cache // (_TILE_TENSORS * 4), 2**17), 2**21) if cache > 0 else 2**20


_TILE_ELEMENTS = _tile_elements()


def tiled_aggregate(
    network: nn.Module,
    query: Float[Tensor, "*batch targets d_query"],
    key: Float[Tensor, "*batch sources d_key"],
    neighbors: Neighbors,
    edge: Float[Tensor, "edges d_edge"] | tuple[Float[Tensor, "types d_edge"], Int[Tensor, " edges"]] | None = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
    reduce: str = "sum",
    combine: str = "add",
    tile: int | None = None,
    backend: str | None = None,
) -> Float[Tensor, "*batch targets d_out"]:
    r"""Aggregate the messages of any network over every neighbourhood, with memory bounded by a tile of edges.

    .. math:: out_u = \bigoplus_{v \in N(u)} w_{uv} \, g(q_u + e_{uv} + k_v)
        \quad\text{or}\quad \bigoplus_{v \in N(u)} w_{uv} \, g([q_u \Vert e_{uv} \Vert k_v])

    The forward pass keeps no tensor that grows with the number of edges; the backward pass computes each tile again,
    with the same random numbers, so that dropout inside the network sees the same mask. Time: one more forward pass.

    A network of the form act2(W act1(z) + b), such as that of `SIRConv(aggr="max")` or a sigma of ReLU, linear layer,
    ReLU, is found by its modules and computed in C, see `sirgcn.ops.linear_messages`: in float32 and float64 on the
    CPU, with `combine="add"`, without edge weights, batch and autocast.

    Args:
        network: g, a module that maps `[*batch, tile, d_in]` to `[*batch, tile, d_out]` row by row. Batch norm in
            training mode is refused: its statistics would depend on the tile.
        query, key: what the target and the source contribute.
        neighbors: the graph.
        edge: `[E, d_edge]`, or a pair (table `[K, d_edge]`, type `[E]`), in the order of the input's edges.
        edge_weight: w, one scalar per edge; not with `"max"`.
        reduce: sum, mean, sym, sym_in (as in `sir_aggregate`) or max. A target without neighbours gets 0. At a tie, the
            gradient of max goes to the first edge of the input; a NaN message gives NaN.
        combine: `"add"` or `"cat"`.
        tile: edges per tile; None chooses it from the widest of the inputs and of the network's parameters. The C code
            has its own.
        backend: as in `sir_aggregate`; `"reference"` leaves the C code for networks of that form aside. Any other
            network is computed by torch.

    A second derivative is refused in C and where there is more than one tile, and so is a network that changes between
    the forward and the backward pass. Under `torch.compile` the messages of all edges are built at once.
    """
    check_reduce(reduce, (*REDUCTIONS, "max"))
    if combine not in COMBINE:
        raise ValueError(f"combine: expected one of {', '.join(COMBINE)}, got {combine!r}")
    if not isinstance(network, nn.Module):
        raise TypeError(
            f"network: expected an nn.Module, whose parameters get a gradient, got {type(network).__name__}"
        )
    check_nodes(query, key, neighbors)
    if combine == "add":
        check_width(query, key)
    elif query.shape[:-2] != key.shape[:-2]:
        raise ValueError(f"key: expected the batch of query, {list(query.shape)}, got {list(key.shape)}")
    if edge_weight is not None and reduce == "max":
        raise ValueError("edge_weight: max takes no edge weights")
    table, edge_type = check_edge(edge, edge_weight, neighbors, query.size(-1) if combine == "add" else None)
    if tile is None:
        tile = _default_tile(network, query, key)
    tile = whole_number(tile, "tile", "at least 1 edge")
    if tile < 1:
        raise ValueError(f"tile: expected at least 1 edge, got {tile}")
    if tile < neighbors.num_edges:
        for name, module in network.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
                raise ValueError(
                    f"network: {name or type(module).__name__} is a batch norm in training mode, whose "
                    f"statistics would depend on the tile; take a layer norm, or tile >= {neighbors.num_edges}"
                )
    tensors = {"query": query, "key": key, "edge": table, "edge_weight": edge_weight}
    name = choose_backend(backend, query.device, tensors)
    if name == "native" and combine == "add" and edge_weight is None and not is_compiling():
        message = linear_message(network)
        if message is not None and can_run(message, query, key, table, neighbors.num_edges):
            messages = Messages(message.first, message.second, neighbors, edge_type, reduce)
            return aggregate(message, messages, query, key, table)
    plan = _Plan(network, neighbors, edge_type, reduce, combine, tile)
    parameters = [p for p in network.parameters() if p.requires_grad]
    # One tile is the definition itself: nothing is gained by computing it twice.
    if is_compiling() or tile >= neighbors.num_edges:
        return _untiled(plan, _Inputs(query, key, table, edge_weight))
    out: Tensor = _Tiled.apply(plan, query, key, table, edge_weight, *parameters)  # type: ignore[no-untyped-call]
    return out


def _default_tile(network: nn.Module, query: Tensor, key: Tensor) -> int:
    """Edges per tile; a network may widen a narrow input, so that its parameters' widths count too."""
    width = max(1, query.size(-1), key.size(-1))
    # A compiled network takes all edges at once, and a lazy parameter has no shape yet.
    if not is_compiling():
        known = [p for p in network.parameters() if not isinstance(p, nn.parameter.UninitializedParameter)]
        width = max([width, *(size for p in known for size in p.shape)])
    return max(_MIN_TILE, _TILE_ELEMENTS // max(1, query.shape[:-2].numel() * width))


class _Inputs(NamedTuple):
    query: Tensor
    key: Tensor
    table: Tensor | None
    edge_weight: Tensor | None


class _Tile(NamedTuple):
    """Some of the target-grouped edges: the first one's place, their ends, places in the input, rows of the table."""

    start: int
    target: Tensor
    source: Tensor
    edge: Tensor
    row: Tensor


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is computed, apart from the tensors that get a gradient."""

    network: nn.Module
    neighbors: Neighbors
    edge_type: Tensor | None
    reduce: str
    combine: str
    tile: int

    def weights(self) -> tuple[Tensor | None, Tensor | None]:
        """The factors a_u and b_v; asked for anew in the backward pass, for which the graph keeps them.

        float64 weights are exact enough for any message dtype; they are cast where they are applied.
        """
        return (None, None) if self.reduce == "max" else self.neighbors.weights(self.reduce, torch.float64)

    def tiles(self, size: int) -> Iterator[_Tile]:
        """Tiles of `size` edges, in target-grouped order; at least one, so that an empty graph has an output width."""
        self.neighbors.check_frozen()
        grouping, target = (
            self.neighbors.by_target,
            self.neighbors.edge_index[1].to(self.neighbors.by_target.node.dtype),
        )
        for start in range(0, max(1, self.neighbors.num_edges), size):
            edge = grouping.edge[start : start + size]
            source = grouping.node[start : start + size]
            row = edge if self.edge_type is None else self.edge_type.index_select(0, edge)
            yield _Tile(start, target.index_select(0, edge), source, edge, row)

    def ends(self, tile: _Tile, inputs: _Inputs) -> Tensor:
        """What the network reads of the tile's edges, `[*batch, tile, d_in]`."""
        query, key, table, _ = inputs
        given = [tensor for tensor in (query, key, table) if tensor is not None]
        if self.combine == "add" and not _is_traced(given) and native.takes_rows(*given):
            return native.gather_add(query, key, table, tile.target, tile.source, tile.row)
        return COMBINE[self.combine](
            query.index_select(-2, tile.target),
            key.index_select(-2, tile.source),
            None if table is None else table.index_select(-2, tile.row),
        )

    def split(self, grad_ends: Tensor, inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of a gradient of `ends` that belong to query, key and table."""
        if self.combine == "add":
            return grad_ends, grad_ends, grad_ends
        width = 0 if inputs.table is None else inputs.table.size(-1)
        query, table, key = grad_ends.split([inputs.query.size(-1), width, inputs.key.size(-1)], dim=-1)
        return query, key, table

    def message(
        self,
        tile: _Tile,
        ends: Tensor,
        edge_weight: Tensor | None,
        network: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """w_uv * b_v * g(ends) for the tile's edges, `[*batch, tile, d_out]`; a_u is applied once per node."""
        message: Tensor = (self.network if network is None else network)(ends)
        if message.shape[:-1] != ends.shape[:-1]:
            raise ValueError(
                f"network: expected one message per row of its input, shape "
                f"{[*ends.shape[:-1], 'd_out']}, got {list(message.shape)}"
            )
        if edge_weight is not None:
            message = message * edge_weight.to(message.dtype).unsqueeze(-1)
        source_weight = self.weights()[1]
        if source_weight is not None:
            factor = source_weight.index_select(0, tile.source)
            message = message * factor.to(message.dtype).unsqueeze(-1)
        return message

    def scale_targets(self, rows: Tensor) -> Tensor:
        """a_u times the row of every target u."""
        target_weight = self.weights()[0]
        if target_weight is None:
            return rows
        return rows * target_weight.to(rows.dtype).unsqueeze(-1)


def _is_traced(tensors: list[Tensor]) -> bool:
    """Whether torch compiles or differentiates what is computed from these tensors."""
    needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return needs_grad or is_compiling()


def _weights_of(tile: _Tile, inputs: _Inputs) -> Tensor | None:
    return None if inputs.edge_weight is None else inputs.edge_weight.index_select(0, tile.edge)


def _add_rows(total: Tensor, index: Tensor, rows: Tensor) -> None:
    """total[index[i]] += rows[i]; where the total has no batch, that of the rows is summed."""
    if rows.dim() > total.dim():
        rows = rows.flatten(0, -total.dim() - 1).sum(0)
    rows = rows.to(total.dtype)
    if native.takes_rows(total, rows):
        native.add_rows(total, index, rows)
    else:
        total.index_add_(-2, index, rows)


def _untiled(plan: _Plan, inputs: _Inputs) -> Tensor:
    """The definition: one tile of all edges, differentiated by torch."""
    (tile,) = plan.tiles(max(1, plan.neighbors.num_edges))
    message = plan.message(tile, plan.ends(tile, inputs), _weights_of(tile, inputs))
    shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
    if plan.reduce != "max":
        total = message.new_zeros(shape, dtype=accumulation_dtype(message.dtype))
        total = total.index_add(-2, tile.target, message.to(total.dtype))
        return plan.scale_targets(total).to(message.dtype)
    if is_compiling() or plan.neighbors.num_edges == 0:
        # One more row of zeros is what a target without neighbours takes.
        message = torch.cat([message, message.new_zeros([*message.shape[:-2], 1, message.size(-1)])], -2)
        first = _first_max(message[..., :-1, :].detach(), tile.target, plan.neighbors.num_targets)
        isolated = (plan.neighbors.in_degree() == 0).unsqueeze(-1)
        return message.gather(-2, torch.where(isolated, message.size(-2) - 1, first))
    winner = message.new_full(shape, -1, dtype=torch.int64)
    _raise_max(message.new_zeros(shape), winner, tile, message.detach())
    return torch.where(winner < 0, 0, message.gather(-2, winner.clamp(min=0)))


def _first_max(message: Tensor, segment: Tensor, num_segments: int) -> Tensor:
    """The first row of every segment that holds its channel's maximum, `[*batch, segments, d]`; NaN is the largest."""
    index = segment.to(torch.int64).unsqueeze(-1).expand_as(message)
    shape = [*message.shape[:-2], num_segments, message.size(-1)]
    top = message.new_full(shape, -torch.inf)
    top = top.scatter_reduce(-2, index, message, "amax", include_self=False)
    nearest = top.index_select(-2, segment)
    is_top = (message == nearest) | (message.isnan() & nearest.isnan())
    place = torch.arange(message.size(-2), device=message.device).unsqueeze(-1)
    place = torch.where(is_top, place, message.size(-2))
    first = place.new_full(shape, message.size(-2))
    return first.scatter_reduce(-2, index, place, "amin")


def _raise_max(top: Tensor, winner: Tensor, tile: _Tile, message: Tensor) -> None:
    """Raise the maxima so far to those of the tile's messages, and note the places of the edges that hold them."""
    if native.takes_rows(message):
        native.max_rows(top, winner, tile.target, message, tile.start)
        return
    # Only the tile's own targets take part, however many nodes lie between them.
    targets, segment = torch.unique_consecutive(tile.target, return_inverse=True)
    place = _first_max(message, segment, targets.numel())
    best = message.gather(-2, place)
    before, held = top.index_select(-2, targets), winner.index_select(-2, targets)
    better = (held < 0) | (best > before) | (best.isnan() & ~before.isnan())
    top.index_copy_(-2, targets.long(), torch.where(better, best, before))
    winner.index_copy_(-2, targets.long(), torch.where(better, place + tile.start, held))


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        query: Tensor,
        key: Tensor,
        table: Tensor | None,
        edge_weight: Tensor | None,
        *parameters: Tensor,
    ) -> Tensor:
        inputs = _Inputs(query, key, table, edge_weight)
        ctx.plan = plan
        ctx.context = _Context(query.device)
        buffers = _Buffers(plan.network)
        with ctx.context.autocast():
            out, winner = (_forward_max if plan.reduce == "max" else _forward_sum)(plan, inputs)
        buffers.check_unchanged()
        # Parameters and buffers are saved so that torch notices one that was changed in place before the backward pass.
        ctx.save_for_backward(*inputs, winner, plan.edge_type, *plan.network.parameters(), *plan.network.buffers())
        ctx.state = _state(plan.network)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Once: torch's checkpointing unpacks a tensor a single time.
        saved = ctx.saved_tensors
        with torch.no_grad():
            plan = replace(ctx.plan, edge_type=saved[5])
            grads = _Tiled._grads(ctx, plan, _Inputs(*saved[:4]), saved[4], opened(grad))
        return once_differentiable(grads, saved, "tiled_aggregate")

    @staticmethod
    def _grads(
        ctx: Any, plan: _Plan, inputs: _Inputs, winner: Tensor | None, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        state = _state(plan.network)
        if len(state) != len(ctx.state) or any(a is not b for a, b in zip(state, ctx.state, strict=True)):
            raise RuntimeError(
                "network: its modules, parameters or training mode changed between forward and backward, "
                "which computes the messages again"
            )
        network, parameters = _trainable(plan.network)
        totals = [_zeros(tensor, needed) for tensor, needed in zip(inputs, ctx.needs_input_grad[1:5], strict=True)]
        parameter_totals: list[Tensor | None] = [None] * len(parameters)
        may_write = _may_write(plan.network)
        # The weights' gradient is the one thing for which a message's value is needed again.
        if network is plan.network and totals[3] is None and not ctx.context.enabled:
            network = _without_values(plan.network)
        if winner is None:
            grad = plan.scale_targets(grad)
        with ctx.context.replay():
            for tile in plan.tiles(plan.tile):
                leaves = [plan.ends(tile, inputs).requires_grad_(any(total is not None for total in totals[:3]))]
                weight = _weights_of(tile, inputs)
                if weight is not None:
                    leaves.append(weight.requires_grad_(totals[3] is not None))
                with torch.enable_grad(), ctx.context.autocast():
                    ends = leaves[0].clone() if may_write else leaves[0]
                    message = plan.message(tile, ends, weight, network)
                grad_message = _grad_of_message(grad, winner, tile).to(message.dtype)
                wanted = [leaf for leaf in leaves if leaf.requires_grad]
                parts = list(torch.autograd.grad(message, [*wanted, *parameters], grad_message, allow_unused=True))
                if leaves[0].requires_grad and (grad_ends := parts.pop(0)) is not None:
                    places = (tile.target, tile.source, tile.row)
                    for total, place, part in zip(totals, places, plan.split(grad_ends, inputs), strict=False):
                        if total is not None:
                            _add_rows(total, place, part)
                if (total := totals[3]) is not None and (part := parts.pop(0)) is not None:
                    total.index_add_(0, tile.edge, part.to(total.dtype))
                parameter_totals = [_plus(*pair) for pair in zip(parameter_totals, parts, strict=True)]
        cast = [
            None if total is None or tensor is None else total.to(tensor.dtype)
            for total, tensor in zip(totals, inputs, strict=True)
        ]
        return None, *cast, *parameter_totals


def _trainable(network: nn.Module) -> tuple[Callable[[Tensor], Tensor], list[Tensor]]:
    """The network, and the parameters by which a tile is differentiated.

    A hook on a parameter (`weight.register_hook`) is for its whole gradient, and torch would call it for every tile:
    where there is one, copies stand in the parameters' place.
    """
    named = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    if not any(weight._backward_hooks for weight in named.values()):
        return network, list(named.values())
    copies = {name: weight.detach().requires_grad_() for name, weight in named.items()}
    return lambda ends: functional_call(network, copies, (ends,)), list(copies.values())


def _without_values(network: nn.Module) -> nn.Module:
    """The network for a backward pass that needs gradients but not messages: a linear layer at its end is skipped."""
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
    """The gradients of h W^T + b without its value: one matrix product less."""

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
    """Whether a network may change its input in place, which torch forbids for a tensor that collects a gradient."""
    return any(
        getattr(module, "inplace", False)
        or not type(module).__module__.startswith(("torch.", "sirgcn.", "torch_geometric."))
        for module in network.modules()
    )


def _state(network: nn.Module) -> list[object]:
    """Everything of a network that must be the same object in the backward pass."""
    tensors = [*network.parameters(), *network.buffers()]
    requires_grad = [tensor.requires_grad for tensor in tensors]
    return [*tensors, *requires_grad, *(x for m in network.modules() for x in (m, m.training))]


def _grad_of_message(grad: Tensor, winner: Tensor | None, tile: _Tile) -> Tensor:
    """The gradient that reaches each message of the tile: with max, only the one that won."""
    if winner is not None and native.takes_rows(grad):
        return native.won_rows(grad, winner, tile.target, tile.start)
    grad_message = grad.index_select(-2, tile.target)
    if winner is None:
        return grad_message
    place = torch.arange(tile.start, tile.start + tile.edge.numel(), device=grad.device)
    won = winner.index_select(-2, tile.target) == place.unsqueeze(-1)
    return torch.where(won, grad_message, 0)


def _zeros(tensor: Tensor | None, is_needed: bool) -> Tensor | None:
    """Where a gradient is summed up: rows in one piece, whatever strides the tensor has."""
    if tensor is None or not is_needed:
        return None
    return tensor.new_zeros(tensor.shape, dtype=accumulation_dtype(tensor.dtype))


def _plus(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    if total is None or part is None:
        return part if total is None else total
    return total + part


def _forward_sum(plan: _Plan, inputs: _Inputs) -> tuple[Tensor, None]:
    total: Tensor | None = None
    for tile in plan.tiles(plan.tile):
        message = plan.message(tile, plan.ends(tile, inputs), _weights_of(tile, inputs))
        if total is None:
            shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
            total = message.new_zeros(shape, dtype=accumulation_dtype(message.dtype))
        _add_rows(total, tile.target, message)
    assert total is not None
    return plan.scale_targets(total).to(message.dtype), None


def _forward_max(plan: _Plan, inputs: _Inputs) -> tuple[Tensor, Tensor]:
    """The maximum, and for every entry the place of the edge that holds it (-1 without neighbours)."""
    out: Tensor | None = None
    for tile in plan.tiles(plan.tile):
        message = plan.message(tile, plan.ends(tile, inputs), _weights_of(tile, inputs))
        if out is None:
            shape = [*message.shape[:-2], plan.neighbors.num_targets, message.size(-1)]
            out = message.new_zeros(shape)
            winner = torch.full(shape, -1, device=message.device)
        _raise_max(out, winner, tile, message)
    assert out is not None
    return out, winner


class _Buffers:
    """The buffers of a network before its tiles are computed, to find out whether its calls change them."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.before = self._look()

    def _look(self) -> dict[str, tuple[int, int]]:
        return {
            name: (id(buffer), 0 if buffer.is_inference() else buffer._version)
            for name, buffer in self.network.named_buffers()
        }

    def check_unchanged(self) -> None:
        for name, found in self._look().items():
            if self.before.get(name) != found:
                raise ValueError(
                    f"network: its buffer {name} changes with every call, so that messages would depend on the tile, "
                    "and those of the backward pass would be others; expected a network whose calls change nothing"
                )


class _Context:
    """The random state and the autocast mode of a forward pass, to be taken up again in its backward pass."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu_state = torch.get_rng_state()
        self.device_state = None
        if device.type != "cpu":
            self.device_state = torch.get_device_module(device).get_rng_state(device)
        self.enabled = torch.is_autocast_enabled(device.type)
        self.dtype = torch.get_autocast_dtype(device.type)

    def autocast(self) -> torch.autocast:
        # Without the cache: a weight cast under no_grad in the forward pass must not come back where a grad is needed.
        return torch.autocast(self.device.type, self.dtype, self.enabled, cache_enabled=False)

    def replay(self) -> ExitStack:
        stack = ExitStack()
        devices = [] if self.device_state is None else [self.device]
        stack.enter_context(torch.random.fork_rng(devices, device_type=self.device.type))
        torch.set_rng_state(self.cpu_state)
        if self.device_state is not None:
            torch.get_device_module(self.device).set_rng_state(self.device_state, self.device)
        return stack
