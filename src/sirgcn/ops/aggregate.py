"""`sir_aggregate`: checks, choice of the backend, autograd and registration as one operator of torch."""

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sirgcn.ops import native, reference, triton_backend
from sirgcn.ops.activation import Activation
from sirgcn.ops.calls import are_saved_tensors_hooked, is_compiling, is_traced, is_transformed
from sirgcn.ops.checks import check_devices, check_range
from sirgcn.ops.door import opened, why_closed
from sirgcn.ops.native import backend as native_backend
from sirgcn.ops.neighbors import Grouping, Neighbors
from sirgcn.ops.reference import EdgeTerms, Needs, accumulation_dtype, cast


@dataclass(frozen=True)
class Backend:
    """One implementation of the aggregation, with the signatures of `sirgcn.ops.reference`.

    Args:
        forward, backward: the two passes.
        devices: where it works; none means everywhere.
        unavailable: why it is not available here; None where it is.
        reads_memory: whether it reads memory by its address and not through operators of torch, so that it serves
            plain tensors alone.
    """

    forward: Callable[[Tensor, Tensor, Neighbors, EdgeTerms, Activation, bool], tuple[Tensor, Tensor | None]]
    backward: Callable[
        [Tensor, Tensor, Tensor, Neighbors, EdgeTerms, Activation, Needs],
        tuple[Tensor, Tensor | None, Tensor | None],
    ]
    devices: tuple[str, ...] = ()
    unavailable: str | None = None
    reads_memory: bool = True


# In the order in which a default is looked for; no devices means all.
BACKENDS: dict[str, Backend] = {
    "native": Backend(native_backend.forward, native_backend.backward, ("cpu",), native.UNAVAILABLE),
    "triton": Backend(
        triton_backend.forward, triton_backend.backward, triton_backend.DEVICES, triton_backend.UNAVAILABLE
    ),
    "reference": Backend(reference.forward, reference.backward, reads_memory=False),
}


def backends() -> dict[str, str | None]:
    """The backends by name: None where one is available, else the reason why it is not."""
    return {name: backend.unavailable for name, backend in BACKENDS.items()}


def sir_aggregate(
    query: Float[Tensor, "*batch targets d"],
    key: Float[Tensor, "*batch sources d"],
    neighbors: Neighbors,
    edge: Float[Tensor, "edges d"] | tuple[Float[Tensor, "types d"], Int[Tensor, " edges"]] | None = None,
    edge_weight: Float[Tensor, " edges"] | None = None,
    activation: str | Activation = "relu",
    reduce: str = "sum",
    backend: str | None = None,
) -> Float[Tensor, "*batch targets d"]:
    r"""The sum of contextualised messages over every neighbourhood (Eq. 11 of the paper, before W_R).

    .. math:: out_u = a_u \sum_{v \in N(u)} w_{uv} \, b_v \, \sigma(q_u + k_v + e_{uv})

    Args:
        query: q, one row per target node; a leading batch dimension shares one graph (`[B, targets, d]`).
        key: k, one row per source node.
        neighbors: the graph.
        edge: the edge term e in the order of the input's edges, `[E, d]`, or a pair (table `[K, d]`, type `[E]`) which
            stands for `table[type]` without ever building it.
        edge_weight: w, one scalar per edge.
        activation: sigma, a name of the table such as `"relu"` or `"leaky_relu(0.2)"`.
        reduce: `"sum"` (a = b = 1), `"mean"` (a = 1 / in-degree of u), `"sym"` (a = in-degree of u to the power -1/2,
            b = out-degree of v to the power -1/2), `"sym_in"` (as sym with the in-degree of v); degrees at least 1.
        backend: a name from `backends()`; None takes the best available one.

    Query, key and edge term of different dtypes are promoted to one; edge_weight is cast to it (half-precision sums are
    taken in float32). A target without neighbours gets 0. The gradient
    reaches query, key, edge (or its table) and edge_weight; a second derivative is refused.
    """
    if is_transformed():
        raise RuntimeError(
            "sir_aggregate: torch.func transforms and forward-mode derivatives are not supported; "
            "SIRConv takes the plain PyG route under them"
        )
    sigma = Activation.parse(activation)
    check_nodes(query, key, neighbors, max_dim=3)
    check_width(query, key)
    table, edge_type = check_edge(edge, edge_weight, neighbors, query.size(-1))
    name = choose_backend(
        backend, query.device, {"query": query, "key": key, "edge": table, "edge_weight": edge_weight}
    )
    dtype = torch.promote_types(query.dtype, key.dtype)
    if table is not None:
        dtype = torch.promote_types(dtype, table.dtype)
        table = cast(table, dtype)
    query, key = cast(query, dtype), cast(key, dtype)
    weight_dtype = accumulation_dtype(dtype)
    if edge_weight is not None:
        edge_weight = cast(edge_weight, weight_dtype)
    batch, width = query.shape[:-2], query.size(-1)
    if batch:
        # sigma acts on each channel by itself, so that B graphs of d channels are one graph of B * d channels.
        query, key = (x.movedim(-2, 0).flatten(1) for x in (query, key))
        table = None if table is None else table.repeat(1, batch.numel())
    target_weight, source_weight = neighbors.weights(reduce, weight_dtype)
    terms = EdgeTerms(table, edge_type, edge_weight, target_weight, source_weight)
    out = _dispatch(query, key, neighbors, terms, sigma, name)
    return out.unflatten(1, (*batch, width)).movedim(0, -2) if batch else out


def choose_backend(
    backend: str | None, device: torch.device | None = None, tensors: Mapping[str, Tensor | None] | None = None
) -> str:
    """The name of the backend for a device and tensors (None: any); one that is asked for and cannot serve is refused.

    A backend that reads memory by its address cannot serve a tensor whose values do not lie there, such as a subclass.
    """
    if backend is not None and backend not in BACKENDS:
        raise ValueError(f"backend: expected one of {', '.join(BACKENDS)}, got {backend!r}")
    for name in BACKENDS if backend is None else (backend,):
        entry = BACKENDS[name]
        is_elsewhere = device is not None and bool(entry.devices) and device.type not in entry.devices
        reason = entry.unavailable
        if reason is None and is_elsewhere:
            reason = f"it works on {' and '.join(entry.devices)}, not on {device}"
        if reason is None and entry.reads_memory and tensors is not None:
            reason = _closed(tensors)
        if reason is None:
            return name
        if backend is not None:
            raise RuntimeError(f"backend: {name} is not available here: {reason}")
        if not is_elsewhere and not is_compiling():
            _warn_of_fallback(name, reason)
    raise AssertionError("the reference serves every device")


def _closed(tensors: Mapping[str, Tensor | None]) -> str | None:
    """Why the first tensor that is not plain is not; None where all are, and where torch traces with its own types."""
    if is_traced():
        return None
    for name, tensor in tensors.items():
        reason = None if tensor is None else why_closed(tensor)
        if reason is not None:
            return f"{name}: {reason}"
    return None


@functools.cache
def _warn_of_fallback(name: str, reason: str) -> None:
    warnings.warn(f"sirgcn: the backend {name} is not available, plain PyTorch takes its place: {reason}", stacklevel=4)


def check_nodes(query: Tensor, key: Tensor, neighbors: Neighbors, max_dim: float = math.inf) -> None:
    """Refuse node terms that are not floating-point tensors with one row per node of the graph."""
    if not isinstance(neighbors, Neighbors):
        raise TypeError(f"neighbors: expected Neighbors, got {type(neighbors).__name__}")
    for name, tensor, rows in (("query", query, neighbors.num_targets), ("key", key, neighbors.num_sources)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name}: expected a floating-point dtype, got {tensor.dtype}")
        if not 2 <= tensor.dim() <= max_dim:
            raise ValueError(f"{name}: expected shape [nodes, d] or [batch, nodes, d], got {list(tensor.shape)}")
        if tensor.size(-2) != rows:
            raise ValueError(f"{name}: expected {rows} rows, one per node of {neighbors}, got {tensor.size(-2)}")
    check_devices({"query": query, "key": key, "neighbors": neighbors})


def check_width(query: Tensor, key: Tensor) -> None:
    """Refuse a key that cannot be added to the query."""
    if query.size(-1) != key.size(-1) or query.shape[:-2] != key.shape[:-2]:
        raise ValueError(f"key: expected the channels and batch of query, {list(query.shape)}, got {list(key.shape)}")


def check_edge(
    edge: Any, edge_weight: Any, graph: Neighbors | int, width: int | None, name: str = "edge"
) -> tuple[Tensor | None, Tensor | None]:
    """The edge term as (rows, type), refused where it does not fit the graph or, unless None, the width.

    Args:
        edge: the term, or a pair (table, type).
        edge_weight: a scalar per edge, or None.
        graph: the graph, or the number of its edges where it is on no device yet.
        width: the channels of the term.
        name: how the caller calls the term.
    """
    is_pair = isinstance(edge, tuple) and len(edge) == 2
    table, edge_type = edge if is_pair else (edge, None)
    if edge is not None and not isinstance(table, Tensor):
        raise TypeError(f"{name}: expected a tensor or a pair (table, type) of tensors, got {type(edge).__name__}")
    num_edges = graph if isinstance(graph, int | torch.SymInt) else graph.num_edges
    if table is not None:
        _check_edge_rows(table, None if is_pair else num_edges, width, name)
    if is_pair:
        _check_edge_type(edge_type, num_edges)
    if edge_weight is not None:
        _check_edge_weight(edge_weight, num_edges)
    first = {"neighbors": graph} if isinstance(graph, Neighbors) else {}
    check_devices({**first, name: table, "edge type": edge_type, "edge_weight": edge_weight})
    if edge_type is not None:
        edge_type = _types_in_range(edge_type, table.size(0))
    return table, edge_type


def _check_edge_rows(table: Tensor, num_edges: int | None, width: int | None, name: str) -> None:
    """Refuse an edge term that is not floating-point rows of that width, and unless None of that number."""
    if not table.is_floating_point():
        raise ValueError(f"{name}: expected a floating-point dtype, got {table.dtype}")
    if table.dim() != 2 or (width is not None and table.size(1) != width):
        raise ValueError(f"{name}: expected shape [*, {'d' if width is None else width}], got {list(table.shape)}")
    if num_edges is not None and table.size(0) != num_edges:
        raise ValueError(f"{name}: expected {num_edges} rows, one per edge, got {table.size(0)}")


def _check_edge_weight(edge_weight: Any, num_edges: int) -> None:
    if not isinstance(edge_weight, Tensor):
        raise TypeError(f"edge_weight: expected a tensor, got {type(edge_weight).__name__}")
    if edge_weight.is_complex():
        raise ValueError(f"edge_weight: expected a real dtype, got {edge_weight.dtype}")
    if edge_weight.shape != (num_edges,):
        raise ValueError(
            f"edge_weight: expected shape [{num_edges}], one scalar per edge, got {list(edge_weight.shape)}"
        )


def _check_edge_type(edge_type: Any, num_edges: int) -> None:
    if not isinstance(edge_type, Tensor):
        raise TypeError(f"edge type: expected a tensor, got {type(edge_type).__name__}")
    if edge_type.dtype not in (torch.int32, torch.int64) or edge_type.dim() != 1:
        raise ValueError(
            f"edge type: expected int32 or int64 of shape [{num_edges}], "
            f"got {edge_type.dtype} of shape {list(edge_type.shape)}"
        )
    if edge_type.size(0) != num_edges:
        raise ValueError(f"edge type: expected {num_edges} entries, one per edge, got {edge_type.size(0)}")


def _types_in_range(edge_type: Tensor, num_types: int) -> Tensor:
    """The types of edges as a plain tensor, each of them checked in this call."""
    if not is_compiling():
        edge_type = opened(edge_type)
    check_range(edge_type, num_types, "edge type[{}]", "the rows of the table", "type")
    return edge_type


def _dispatch(
    query: Tensor, key: Tensor, neighbors: Neighbors, terms: EdgeTerms, activation: Activation, backend: str
) -> Tensor:
    """Through autograd by the shortest way; as an operator where torch traces or looks on."""
    needs_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (query, key, terms.edge, terms.edge_weight)
    )
    if is_traced():
        return _aggregate(
            query, key, neighbors.tensors(), *terms, activation.name, activation.slope, backend, needs_grad
        )[0]
    if not needs_grad:
        return BACKENDS[backend].forward(query, key, neighbors, terms, activation, False)[0]
    out: Tensor = _Aggregate.apply(query, key, terms.edge, terms.edge_weight, terms, neighbors, activation, backend)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(torch.autograd.Function):
    """The eager route: an operator's bookkeeping would cost more than a small graph's arithmetic."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        edge: Tensor | None,
        edge_weight: Tensor | None,
        terms: EdgeTerms,
        neighbors: Neighbors,
        activation: Activation,
        backend: str,
    ) -> Tensor:
        # What somebody packs away, as a checkpoint does, is computed again from what he gives back.
        is_kept = ctx.needs_input_grad[0] and not are_saved_tensors_hooked()
        out, slopes = BACKENDS[backend].forward(query, key, neighbors, terms, activation, is_kept)
        # All that the backward pass reads and a user can change in place; the graph notices that by itself.
        ctx.save_for_backward(query, key, *terms)
        ctx.others = (neighbors, activation, backend)
        ctx.slopes = slopes
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # Once: torch's checkpointing unpacks a tensor a single time.
        query, key, *rest = ctx.saved_tensors
        terms = EdgeTerms(*rest)
        saved = query, key, terms.edge, terms.edge_weight
        neighbors, activation, backend = ctx.others
        with torch.no_grad():
            grad_query = None
            if ctx.needs_input_grad[0]:
                # The slopes give their memory to the gradient; a second backward pass computes them again.
                slopes, ctx.slopes = ctx.slopes, None
                if slopes is None:
                    slopes = BACKENDS[backend].forward(query, key, neighbors, terms, activation, True)[1]
                grad_query = slopes.mul_(grad)
            grads: tuple[Tensor | None, ...] = (None, None, None)
            if any(ctx.needs_input_grad[1:4]):
                needs = Needs(*ctx.needs_input_grad[2:4])
                grads = BACKENDS[backend].backward(grad, query, key, neighbors, terms, activation, needs)
            grads = tuple(
                None if g is None or not needed else cast(g, tensor.dtype)
                for g, tensor, needed in zip((grad_query, *grads), saved, ctx.needs_input_grad[:4], strict=True)
            )
        return *once_differentiable(grads, saved, "sir_aggregate"), None, None, None, None


def once_differentiable(
    grads: tuple[Tensor | None, ...], inputs: Sequence[Tensor | None], name: str
) -> tuple[Tensor | None, ...]:
    """The gradients, tied to an input so that a second derivative is refused and not silently taken as 0."""
    if not torch.is_grad_enabled():
        return grads
    anchor = next(tensor for tensor in inputs if tensor is not None and tensor.requires_grad)
    return _Once.apply(name, anchor, *grads)  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """Passes gradients on and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, name: str, anchor: Tensor, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.name = name
        return grads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        _refuse_second_derivative(ctx.name)


def _refuse_second_derivative(name: str) -> None:
    raise RuntimeError(
        f"{name}: the second derivative is not implemented; "
        "SIRConv(..., fused=False) takes the plain PyG route, which torch differentiates any number of times"
    )


def _checked(query: Tensor, key: Tensor, graph: Sequence[Tensor], terms: EdgeTerms) -> tuple[Neighbors, EdgeTerms]:
    """An operator's graph and terms, every index looked at: a traced graph was not, and C does not look at all."""
    neighbors = Neighbors(graph[0], Grouping(*graph[1:4]), Grouping(*graph[4:7]), key.size(0), query.size(0))
    if terms.edge is not None and terms.edge_type is not None:
        _check_edge_type(terms.edge_type, neighbors.num_edges)
        terms = terms._replace(edge_type=_types_in_range(terms.edge_type, terms.edge.size(0)))
    return neighbors, terms


@torch.library.custom_op("sirgcn::aggregate", mutates_args=())
def _aggregate(
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    backend: str,
    save: bool,
) -> tuple[Tensor, Tensor]:
    neighbors, terms = _checked(
        query, key, graph, EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    )
    out, slopes = BACKENDS[backend].forward(query, key, neighbors, terms, Activation(activation, slope), save)
    # An operator cannot return None: an empty tensor stands for what is absent.
    return out, query.new_empty(0, dtype=accumulation_dtype(query.dtype)) if slopes is None else slopes


@torch.library.custom_op("sirgcn::aggregate_backward", mutates_args=())
def _aggregate_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    target_weight: Tensor | None,
    source_weight: Tensor | None,
    activation: str,
    slope: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    neighbors, terms = _checked(
        query, key, graph, EdgeTerms(edge, edge_type, edge_weight, target_weight, source_weight)
    )
    grad_key, grad_edge, grad_weight = BACKENDS[backend].backward(
        grad, query, key, neighbors, terms, Activation(activation, slope), Needs(True, True)
    )
    empty = query.new_empty(0)
    return (
        grad_key.to(key.dtype),
        empty if grad_edge is None or edge is None else grad_edge.to(edge.dtype),
        empty.clone() if grad_weight is None or edge_weight is None else grad_weight.to(edge_weight.dtype),
    )


@_aggregate.register_fake
def _(query: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    save = args[-1]
    slopes = query.new_empty(query.shape if save else 0, dtype=accumulation_dtype(query.dtype))
    return query.new_empty(query.shape), slopes


@_aggregate_backward.register_fake
def _(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    graph: Sequence[Tensor],
    edge: Tensor | None,
    edge_type: Tensor | None,
    edge_weight: Tensor | None,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    def like(tensor: Tensor | None) -> Tensor:
        return query.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)

    return like(key), like(edge), like(edge_weight)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, graph, *optional, activation, slope, backend, _ = inputs
    ctx.save_for_backward(query, key, output[1], *graph, *optional)
    ctx.mark_non_differentiable(output[1])
    ctx.options = (activation, slope, backend)


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | list[None] | None, ...]:
    query, key, slopes, *rest = ctx.saved_tensors
    graph, optional = rest[:7], rest[7:]
    grad_query = (slopes * grad).to(query.dtype)
    grads = _aggregate_backward(grad.contiguous(), query, key, graph, *optional, *ctx.options)
    grad_edge = None if optional[0] is None else grads[1]
    grad_weight = None if optional[2] is None else grads[2]
    return (grad_query, grads[0], [None] * len(graph), grad_edge, None, grad_weight, *[None] * 6)


def _refuse(ctx: object, *grads: object) -> None:
    _refuse_second_derivative("sir_aggregate")


_aggregate.register_autograd(_backward, setup_context=_setup_context)
_aggregate_backward.register_autograd(_refuse)
