"""`tiled_aggregate`: any message network, computed in tiles of edges."""

import os

from jaxtyping import Float, Int
from torch import Tensor, nn

from sirgcn.ops.arguments import check_edge, check_nodes, check_width
from sirgcn.ops.backend import choose_backend
from sirgcn.ops.calls import is_compiling
from sirgcn.ops.checks import check_known, whole_number
from sirgcn.ops.linear_messages import aggregate, can_run, linear_message
from sirgcn.ops.native.network import Messages
from sirgcn.ops.neighbors import REDUCTIONS, Neighbors, check_reduce
from sirgcn.ops.tiled_grad import Tiled
from sirgcn.ops.tiles import COMBINE, Inputs, Plan, untiled

_MIN_TILE = 256
# How many tensors of the size of a tile are in use at once: the outputs of a few layers and their gradients.
_TILE_TENSORS = 8


def _tile_elements() -> int:
    """Elements of one tensor of a tile, such that all tensors in use fit into the last cache.

    The result is 2**20 where the size of the cache is not known.
    """
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

    The forward pass keeps no tensor that grows with the number of edges. The backward pass computes each tile again,
    with the same random numbers, so that dropout inside the network has the same mask. This costs one more forward
    pass.

    A network of the form act2(W act1(z) + b), such as that of `SIRConv(aggr="max")` or a sigma of ReLU, linear layer,
    ReLU, is recognised by its modules and computed in C, see `sirgcn.ops.linear_messages`. This happens for float32 and
    float64 on the CPU, with `combine="add"`, and without edge weights, batch or autocast.

    Args:
        network: g, a module that maps `[*batch, tile, d_in]` to `[*batch, tile, d_out]` row by row. A batch norm in
            training mode raises, because its statistics would depend on the tile.
        query, key: what the target and the source of an edge contribute.
        neighbors: the graph.
        edge: `[E, d_edge]`, or a pair (table `[K, d_edge]`, type `[E]`), in the order of the input's edges.
        edge_weight: w, one scalar per edge; not with `"max"`.
        reduce: sum, mean, sym, sym_in (as in `sir_aggregate`) or max. A target without neighbours gets 0. At a tie, the
            gradient of max goes to the first edge of the input; a NaN message gives NaN.
        combine: `"add"` or `"cat"`.
        tile: edges per tile; None chooses it by the widest of the inputs and of the network's parameters. The C code
            has tiles of its own.
        backend: as in `sir_aggregate`. With `"reference"`, torch computes networks of the form above too. All other
            networks are always computed by torch.

    A second derivative raises in C and where there is more than one tile. A network that changes between the forward
    and the backward pass raises too. Under `torch.compile` the messages of all edges are built at once.

    >>> import torch
    >>> path = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> h = torch.tensor([[1.0], [-3.0], [4.0]])
    >>> tiled_aggregate(nn.ReLU(), h, h, path).flatten().tolist()
    [0.0, 0.0, 1.0]
    """
    _check_call(network, reduce, combine)
    _check_ends(query, key, neighbors, combine)
    if edge_weight is not None and reduce == "max":
        raise ValueError("edge_weight: expected None with reduce='max', got weights")
    table, edge_type = check_edge(edge, edge_weight, neighbors, query.size(-1) if combine == "add" else None)
    tile = _checked_tile(tile, network, query, key)
    if tile < neighbors.num_edges:
        _check_batch_norms(network, neighbors.num_edges)
    inputs = Inputs(query, key, table, edge_weight)
    plan = Plan(network, neighbors, edge_type, reduce, combine, tile)
    name = choose_backend(backend, query.device, inputs.named())
    out = _by_kernel(plan, inputs) if name == "native" else None
    if out is not None:
        return out
    # One tile is the definition itself: computing it twice would save nothing.
    if is_compiling() or tile >= neighbors.num_edges:
        return untiled(plan, inputs)
    parameters = [p for p in network.parameters() if p.requires_grad]
    found: Tensor = Tiled.apply(plan, *inputs, *parameters)  # type: ignore[no-untyped-call]
    return found


def _check_call(network: nn.Module, reduce: str, combine: str) -> None:
    """Refuse an unknown reduction or combination, and a network without parameters that torch can find."""
    check_reduce(reduce, (*REDUCTIONS, "max"))
    check_known("combine", combine, COMBINE)
    if not isinstance(network, nn.Module):
        raise TypeError(
            f"network: expected an nn.Module, whose parameters get a gradient, got {type(network).__name__}"
        )


def _check_ends(query: Tensor, key: Tensor, neighbors: Neighbors, combine: str) -> None:
    """Refuse a query and a key that do not fit the graph or each other."""
    check_nodes(query, key, neighbors)
    if combine == "add":
        check_width(query, key)
    elif query.shape[:-2] != key.shape[:-2]:
        raise ValueError(f"key: expected the batch of query, {list(query.shape)}, got {list(key.shape)}")


def _checked_tile(tile: int | None, network: nn.Module, query: Tensor, key: Tensor) -> int:
    """Edges per tile, as given or by default."""
    if tile is None:
        return _default_tile(network, query, key)
    tile = whole_number(tile, "tile", "at least 1 edge")
    if tile < 1:
        raise ValueError(f"tile: expected at least 1 edge, got {tile}")
    return tile


def _check_batch_norms(network: nn.Module, num_edges: int) -> None:
    """Refuse a batch norm that takes its statistics from the tile."""
    for name, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise ValueError(
                f"network: {name or type(module).__name__} is a batch norm in training mode, whose "
                f"statistics would depend on the tile; take a layer norm, or tile >= {num_edges}"
            )


def _by_kernel(plan: Plan, inputs: Inputs) -> Tensor | None:
    """The messages of a network of the form act2(W act1(z) + b), in C; None for another network or other tensors."""
    query, key, table, edge_weight = inputs
    if plan.combine != "add" or edge_weight is not None or is_compiling():
        return None
    message = linear_message(plan.network)
    if message is None or not can_run(message, query, key, table, plan.neighbors.num_edges):
        return None
    messages = Messages(message.first, message.second, plan.neighbors, plan.edge_type, plan.reduce)
    return aggregate(message, messages, query, key, table)


def _default_tile(network: nn.Module, query: Tensor, key: Tensor) -> int:
    """Edges per tile by default. A network may widen its input, so that the widths of its parameters count too."""
    width = max(1, query.size(-1), key.size(-1))
    # A compiled network gets all edges at once, and a lazy parameter has no shape yet.
    if not is_compiling():
        known = [p for p in network.parameters() if not isinstance(p, nn.parameter.UninitializedParameter)]
        width = max([width, *(size for p in known for size in p.shape)])
    return max(_MIN_TILE, _TILE_ELEMENTS // max(1, query.shape[:-2].numel() * width))
