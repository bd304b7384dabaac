"""The backend `triton` of `sir_aggregate`: the edge loop on the GPU, or on the CPU in Triton's interpreter.

Triton is imported at the first call, because its import takes longer than that of the rest of this package, and many
machines never use it.
"""

import contextlib
import importlib.util
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sirgcn.ops.activation import Activation
from sirgcn.ops.door import opened
from sirgcn.ops.neighbors import Grouping, Neighbors, _group
from sirgcn.ops.reference import EdgeTerms, Needs, accumulation_dtype

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

DEVICES = ("cuda", "cpu") if _INTERPRETED else ("cuda",)


def _unavailable() -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    # is_available() would initialise CUDA, and then a forked process could not use it.
    if not _INTERPRETED and torch.cuda.device_count() == 0:
        return "torch finds no CUDA device"
    return None


UNAVAILABLE: str | None = _unavailable()

# The most edges of a row that is not split. Longer rows are shared by several programs, so that a hub delays no one.
_SEGMENT = 256
# The most channels of a tile, and the elements of a program: four for each thread of four warps, so that a thread loads
# 16 bytes.
_MAX_CHANNELS = 128
_ELEMENTS = 512
# How many partial sums of a long row are loaded at once.
_WINDOWS = 16


class Sent(NamedTuple):
    """The value of messages in a backward pass.

    `divisor_grad` is the gradient of the sum that divides, one row per target; `grad` gets the gradient of the value.
    """

    value: Tensor | None = None
    divisor_grad: Tensor | None = None
    grad: Tensor | None = None
    is_of_edge: bool = False


NO_VALUE = Sent()
"""What a backward pass of messages without a value gets."""


def forward(
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    terms: EdgeTerms,
    activation: Activation,
    save: bool,
    value: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The output and, with `save`, the slopes a_u * sum of w * b_v * sigma'(z), both `[targets, d]`.

    A value multiplies sigma and sigma' in both.
    """
    from sirgcn.ops import triton_kernels as kernels

    neighbors.check_frozen()
    dtype = accumulation_dtype(query.dtype)
    empty = not (neighbors.num_edges and query.size(1))
    make = query.new_zeros if empty else query.new_empty
    out, slopes = make(query.shape), make(query.shape, dtype=dtype) if save else None
    if empty:
        return out, slopes
    tiling = _Tiling.of(neighbors.by_target, query.size(1))
    partial = tiling.partial_sums(out, dtype)
    partial_slopes = tiling.partial_sums(out, dtype) if save else None
    query, key, edge = _rows(query), _rows(key), None if terms.edge is None else _rows(terms.edge)
    tiling.launch(
        kernels.forward,
        *(query, query.stride(0)),
        *(key, key.stride(0)),
        *_strided(value),
        *(edge, 0 if edge is None else edge.stride(0), _contiguous(terms.edge_type)),
        *(_contiguous(terms.edge_weight), terms.target_weight, terms.source_weight),
        *(out, slopes, partial, partial_slopes),
        activation=activation,
    )
    tiling.combine(kernels.combine, terms.target_weight, partial, out, partial_slopes, slopes)
    return out, slopes


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    terms: EdgeTerms,
    activation: Activation,
    needs: Needs,
    sent: Sent = NO_VALUE,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of key, edge rows and edge weights in one pass over the edges grouped by source.

    The gradient of a table takes a second pass, over the edges grouped by type: there a type is a row, of which the
    kernel sums the same products, so that neither an edges-by-channels tensor nor an atomic addition is needed.
    """
    neighbors.check_frozen()
    grad = opened(grad)
    needs_edge = terms.edge is not None and needs.edge
    swapped = terms._replace(target_weight=terms.source_weight, source_weight=terms.target_weight)
    dense = Needs(needs_edge and terms.edge_type is None, terms.edge_weight is not None and needs.edge_weight)
    grad_key, grad_edge, grad_weight = _backward(
        grad, key, query, neighbors.by_source, swapped, activation, dense, sent
    )
    if needs_edge and terms.edge is not None and terms.edge_type is not None:
        passed = sent._replace(grad=None, is_of_edge=True)
        grad_edge = _grad_table(grad, query, key, neighbors, terms, activation, passed)
    return grad_key, grad_edge, grad_weight


def _grad_table(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    neighbors: Neighbors,
    terms: EdgeTerms,
    activation: Activation,
    sent: Sent,
) -> Tensor:
    assert terms.edge is not None
    assert terms.edge_type is not None
    source, target = neighbors.edge_index
    by_type = _group(terms.edge_type.to(neighbors.by_target.node.dtype), target, terms.edge.size(0))
    weight = terms.edge_weight
    if terms.source_weight is not None:
        source_weight = terms.source_weight.index_select(0, source)
        weight = source_weight if weight is None else weight * source_weight
    # The type's row is added to q_u, grouped with it, and to k_v, which stands where the edge term was.
    roles = EdgeTerms(key, source, weight, None, terms.target_weight)
    return _backward(grad, terms.edge, query, by_type, roles, activation, Needs(False, False), sent)[0]


def _backward(
    grad: Tensor,
    own: Tensor,
    other: Tensor,
    grouping: Grouping,
    terms: EdgeTerms,
    activation: Activation,
    needs: Needs,
    sent: Sent,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradient of the rows by which the edges are grouped, and the gradients of edge terms and edge weights."""
    from sirgcn.ops import triton_kernels as kernels

    dtype = accumulation_dtype(other.dtype)
    edges, width = grouping.node.numel(), own.size(1)
    empty = not (edges and width)
    make = own.new_zeros if empty else own.new_empty
    tiling = _Tiling.of(grouping, width)
    grad_own = make(own.shape, dtype=dtype)
    grad_edge = make((edges, width), dtype=dtype) if needs.edge else None
    grad_weight = make((tiling.tiles, edges), dtype=dtype) if needs.edge_weight else None
    value, divisor_grad, grad_value, is_of_edge = sent
    if not empty:
        partial = tiling.partial_sums(grad_own, dtype)
        partial_value = None if grad_value is None else tiling.partial_sums(grad_own, dtype)
        grad, own, other = _rows(grad), _rows(own), _rows(other)
        edge = None if terms.edge is None else _rows(terms.edge)
        tiling.launch(
            kernels.backward,
            *(grad, grad.stride(0)),
            *(own, own.stride(0)),
            *(other, other.stride(0)),
            *(edge, 0 if edge is None else edge.stride(0), _contiguous(terms.edge_type)),
            *(_contiguous(terms.edge_weight), terms.target_weight, terms.source_weight),
            *_strided(value),
            divisor_grad,
            *(grad_own, partial, grad_value, partial_value, grad_edge, grad_weight),
            activation=activation,
            VALUE_OF_EDGE=is_of_edge,
        )
        tiling.combine(kernels.combine, terms.target_weight, partial, grad_own, partial_value, grad_value)
    return grad_own, grad_edge, None if grad_weight is None else grad_weight.sum(0)


class _Tiling(NamedTuple):
    """How the rows of a grouping, and their channels, are divided among programs."""

    grouping: Grouping
    width: int
    segment: int
    tiles: int
    channels: int
    rows: int

    @classmethod
    def of(cls, grouping: Grouping, width: int) -> "_Tiling":
        channels = min(_MAX_CHANNELS, 1 << max(0, width - 1).bit_length())
        return cls(grouping, width, _SEGMENT, -(-width // channels), channels, _ELEMENTS // channels)

    @property
    def windows(self) -> int:
        """The number of windows, 0 where no row can be long."""
        edges = self.grouping.node.numel()
        return -(-edges // self.segment) if edges > self.segment else 0

    def partial_sums(self, out: Tensor, dtype: torch.dtype) -> Tensor | None:
        """The buffer for partial sums, with two rows per window."""
        return out.new_empty((2 * self.windows, self.width), dtype=dtype) if self.windows else None

    def launch(self, kernel: Any, *arguments: Tensor | int | None, activation: Activation, **constants: bool) -> None:
        """Run the kernel `forward` or `backward` over every row, and over every window of the long rows."""
        ptr, nodes, edges = self.grouping
        groups = ptr.numel() - 1
        blocks = -(-groups // self.rows) + -(-2 * self.windows // self.rows)
        with _device_of(ptr):
            kernel[(blocks, self.tiles)](
                *(ptr, nodes, edges, groups, nodes.numel(), groups.bit_length()),
                *arguments,
                self.width,
                **constants,
                ACTIVATION=activation.name,
                SLOPE=activation.slope,
                SEGMENT=self.segment,
                ROWS=self.rows,
                CHANNELS=self.channels,
            )

    def combine(
        self,
        kernel: Any,
        weight: Tensor | None,
        partial: Tensor | None,
        out: Tensor,
        partial_slopes: Tensor | None,
        slopes: Tensor | None,
    ) -> None:
        """Add the partial sums of all windows to the long rows."""
        if partial is None:
            return
        ptr = self.grouping.ptr
        groups = ptr.numel() - 1
        with _device_of(ptr):
            kernel[(self.windows, self.tiles)](
                *(ptr, groups, groups.bit_length(), weight),
                *(partial, out, partial_slopes, slopes),
                self.width,
                SEGMENT=self.segment,
                WINDOWS=_WINDOWS,
                CHANNELS=self.channels,
            )


def _device_of(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """A context in which the device of the tensor is current, because Triton launches on the current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def _rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(1) == 1 or tensor.size(1) <= 1 else tensor.contiguous()


def _strided(matrix: Tensor | None) -> tuple[Tensor | None, int]:
    """A matrix with contiguous rows, and the distance between its rows."""
    if matrix is None:
        return None, 0
    matrix = _rows(matrix)
    return matrix, matrix.stride(0)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()
