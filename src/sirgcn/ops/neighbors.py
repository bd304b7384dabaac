"""Edges grouped by target and by source, built once per graph and passed on to every layer."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from sirgcn.ops import native

REDUCTIONS = ("sum", "mean", "sym", "sym_in")
"""Reductions that are a sum with rank-one weights a_u * b_v."""


class Grouping(NamedTuple):
    """Edges in groups: `node[ptr[i]:ptr[i + 1]]` are the far ends of group i, `edge` their places in the input."""

    ptr: Int[Tensor, " groups_plus_1"]
    node: Int[Tensor, " edges"]
    edge: Int[Tensor, " edges"]

    def owner(self) -> Int[Tensor, " edges"]:
        """The group of every entry, in the grouped order."""
        groups = torch.arange(self.ptr.numel() - 1, dtype=self.node.dtype, device=self.node.device)
        return torch.repeat_interleave(groups, self.ptr.diff(), output_size=self.node.numel())


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors:
    """The graph as the aggregation reads it: N(u) for every target u, and its transpose for the backward pass.

    Messages flow from source v (key) to target u (query). `by_target` is the CSR of the transposed adjacency (targets
    are rows), `by_source` its CSC; both keep, for every entry, the edge's place in the input, so that edge features
    stay in the input's order. Build it with `from_edge_index` or `from_sparse`.
    """

    edge_index: Int[Tensor, "2 edges"]
    by_target: Grouping
    by_source: Grouping
    num_sources: int
    num_targets: int
    # Degrees do not change: what was computed for one layer serves the next.
    _weights: dict[tuple[str, torch.dtype], tuple[Tensor | None, Tensor | None]] = field(
        default_factory=dict, init=False
    )

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Int[Tensor, "2 edges"],
        size: int | tuple[int, int] | None = None,
    ) -> "Neighbors":
        """Group the edges of `edge_index` (row 0: sources, row 1: targets), int32 or int64.

        The tensor is kept as it is, do not change it in place; the groups are int32 wherever that is wide enough.

        `size` is the number of nodes, or (sources, targets) for a bipartite graph; None infers it from the largest
        index. Built eagerly, a negative or too large index is refused with the first offending entry named; under
        `torch.compile` and `torch.export` only shapes and dtypes are checked.
        """
        check_edge_index(edge_index)
        if size is None:
            if torch.compiler.is_compiling():
                raise ValueError("size: expected the number of nodes under torch.compile, got None")
            # At least 0: an edge_index of negative values only is refused for its first entry.
            size = max(0, int(edge_index.max()) + 1) if edge_index.numel() else 0
        sizes = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
        if len(sizes) != 2 or not all(isinstance(n, (int, torch.SymInt)) for n in sizes):
            raise ValueError(f"size: expected a number of nodes or a pair (sources, targets), got {size!r}")
        num_sources, num_targets = sizes
        if _groups_natively(edge_index) and min(sizes) >= 0:
            bad, tensors = native.group(edge_index, num_sources, num_targets)
            if bad == (-1, -1):
                return cls(edge_index, Grouping(*tensors[:3]), Grouping(*tensors[3:]), num_sources, num_targets)
        # What the kernel found to be out of range is refused here, by name.
        check_edge_index(edge_index, (num_sources, num_targets))
        by_target = _group(edge_index[1], edge_index[0], num_targets)
        by_source = _group(edge_index[0], edge_index[1], num_sources)
        return cls(edge_index, by_target, by_source, num_sources, num_targets)

    @classmethod
    def from_sparse(cls, adj_t: Tensor) -> "Neighbors":
        """Group the non-zeros of a torch sparse CSR, CSC or COO tensor whose rows are targets, columns sources.

        This is PyG's `adj_t`: the transposed adjacency of shape `[targets, sources]`. Edges keep the order in which the
        tensor stores them; its values are not looked at.
        """
        if not isinstance(adj_t, Tensor):
            raise TypeError(f"adj_t: expected a sparse tensor, got {type(adj_t).__name__}")
        if adj_t.layout == torch.sparse_coo:
            plain = adj_t.sparse_dim() == 2
        elif adj_t.layout in (torch.sparse_csr, torch.sparse_csc):
            plain = adj_t.dim() - adj_t.dense_dim() == 2
        else:
            raise ValueError(f"adj_t: expected a CSR, CSC or COO tensor, got layout {adj_t.layout}")
        if not plain:
            raise ValueError(f"adj_t: expected a sparse matrix [targets, sources], got shape {list(adj_t.shape)}")
        num_targets, num_sources = int(adj_t.size(0)), int(adj_t.size(1))
        if adj_t.layout == torch.sparse_coo:
            row, col = adj_t._indices()
            return cls.from_edge_index(torch.stack([col, row]), (num_sources, num_targets))
        if adj_t.layout == torch.sparse_csr:
            given = _compressed(adj_t.crow_indices(), adj_t.col_indices(), num_targets, num_sources, "column")
            row, col = given.owner(), given.node
            by_target, by_source = given, _group(col, row, num_sources)
        else:
            given = _compressed(adj_t.ccol_indices(), adj_t.row_indices(), num_sources, num_targets, "row")
            row, col = given.node, given.owner()
            by_target, by_source = _group(row, col, num_targets), given
        return cls(torch.stack([col, row]), by_target, by_source, num_sources, num_targets)

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.edge_index.size(1)

    @property
    def device(self) -> torch.device:
        """Where the index tensors are."""
        return self.edge_index.device

    def in_degree(self) -> Int[Tensor, " targets"]:
        """The number of neighbours of every target u."""
        return self.by_target.ptr.diff()

    def out_degree(self) -> Int[Tensor, " sources"]:
        """The number of edges that leave every source v."""
        return self.by_source.ptr.diff()

    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The rank-one weights (a_u, b_v) of a reduction on this graph, see `rank_one_weights`."""
        if reduce == "sum":
            return None, None
        check_reduce(reduce)
        known = self._weights.get((reduce, dtype))
        if known is not None:
            return known
        if reduce == "sym_in" and self.num_sources != self.num_targets:
            raise ValueError(
                f"reduce: sym_in weighs by in-degrees at both ends and needs one set of nodes, "
                f"got {self.num_sources} sources and {self.num_targets} targets"
            )
        source_degree = self.out_degree() if reduce == "sym" else self.in_degree()
        weights = rank_one_weights(reduce, self.in_degree(), source_degree, dtype)
        if not torch.compiler.is_compiling():
            self._weights[reduce, dtype] = weights
        return weights

    def to(self, *args: Any, **kwargs: Any) -> "Neighbors":
        """A copy on another device or with another index dtype (int32, int64), arguments as `torch.Tensor.to`."""
        edge_index = self.edge_index.to(*args, **kwargs)
        check_edge_index(edge_index)
        if edge_index.dtype == torch.int32:
            largest = max(self.num_edges, self.num_sources, self.num_targets)
            if largest > torch.iinfo(torch.int32).max:
                raise ValueError(f"Neighbors.to: int32 cannot index {largest} edges or nodes")
        by_target, by_source = (
            Grouping(*(tensor.to(*args, **kwargs) for tensor in grouping))
            for grouping in (self.by_target, self.by_source)
        )
        return Neighbors(edge_index, by_target, by_source, self.num_sources, self.num_targets)

    def __repr__(self) -> str:
        return f"Neighbors(num_sources={self.num_sources}, num_targets={self.num_targets}, num_edges={self.num_edges})"


def rank_one_weights(
    reduce: str, in_degree: Tensor, source_degree: Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The factors (a_u `[targets]`, b_v `[sources]`) with which a reduction weighs the message from v to u.

    sum: 1; mean: 1 / in_degree(u); sym: 1 / sqrt(in_degree(u) * out_degree(v)); sym_in: the same with v's in-degree, as
    GCN in PyG and the paper's published figures have it. Degrees are clamped to at least 1; None stands for all ones.
    """
    if reduce == "sum":
        return None, None
    if reduce == "mean":
        return in_degree.clamp(min=1).to(dtype).reciprocal(), None
    return (
        in_degree.clamp(min=1).to(dtype).rsqrt(),
        source_degree.clamp(min=1).to(dtype).rsqrt(),
    )


def check_reduce(reduce: str, known: tuple[str, ...] = REDUCTIONS) -> None:
    """Refuse an unknown reduction and list the known ones."""
    if reduce not in known:
        raise ValueError(f"reduce: expected one of {', '.join(known)}, got {reduce!r}")


def check_edge_index(edge_index: Tensor, size: tuple[int, int] | None = None) -> None:
    """Refuse an `edge_index` that is not an int32 or int64 tensor of shape [2, edges].

    With `size` (sources, targets) given, and not under `torch.compile` or `torch.export`, values outside it too.
    """
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index: expected a tensor, got {type(edge_index).__name__}")
    if edge_index.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"edge_index: expected dtype int32 or int64, got {edge_index.dtype}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index: expected shape [2, edges], got {list(edge_index.shape)}")
    if size is None or torch.compiler.is_compiling():
        return
    for row, (count, end) in enumerate(zip(size, ("source", "target"), strict=True)):
        if count < 0:
            raise ValueError(f"size: expected a number of {end} nodes >= 0, got {count}")
        _check_range(edge_index[row], count, f"edge_index[{row}, {{}}]", end)


def _check_range(index: Tensor, size: int, place: str, end: str) -> None:
    if index.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(index))
    if low >= 0 and high < size:
        return
    first = int(((index < 0) | (index >= size)).nonzero()[0])
    raise IndexError(
        f"{place.format(first)} = {int(index[first])}: expected 0 <= index < {size}, the number of {end} nodes"
    )


def _groups_natively(edge_index: Tensor) -> bool:
    return (
        native.UNAVAILABLE is None
        and not torch.compiler.is_compiling()
        and edge_index.device.type == "cpu"
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
    )


def _group(by: Tensor, other: Tensor, num_groups: int) -> Grouping:
    """Group edges by one of their ends; within a group the input's order is kept, so that sums repeat bit for bit."""
    sorted_by, order = torch.sort(by, stable=True)
    bounds = torch.arange(num_groups + 1, dtype=by.dtype, device=by.device)
    ptr = torch.searchsorted(sorted_by.contiguous(), bounds, out_int32=by.dtype == torch.int32)
    return Grouping(ptr, other.index_select(0, order), order.to(by.dtype))


def _compressed(ptr: Tensor, node: Tensor, groups: int, size: int, end: str) -> Grouping:
    """A checked grouping from the compressed and plain indices of a sparse tensor (torch does not check by default)."""
    if not torch.compiler.is_compiling():
        rising = ptr.numel() == groups + 1 and int(ptr[0]) == 0 and int(ptr[-1]) == node.numel()
        if not rising or bool((ptr.diff() < 0).any()):
            raise ValueError(
                f"adj_t: expected {groups + 1} compressed indices that rise from 0 to {node.numel()}, "
                f"got {ptr[:8].tolist()}{' ...' if ptr.numel() > 8 else ''}"
            )
        _check_range(node, size, f"adj_t {end} index {{}}", end)
    ptr, node = ptr.contiguous(), node.contiguous()
    return Grouping(ptr, node, torch.arange(node.numel(), dtype=node.dtype, device=node.device))
