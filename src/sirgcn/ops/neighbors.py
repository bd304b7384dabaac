"""`Neighbors`: the edges of a graph grouped by target and by source, built once and given to every layer."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_compiling, is_exporting, is_traced
from sirgcn.ops.checks import check_known, check_range, whole_number
from sirgcn.ops.door import is_open, opened

REDUCTIONS = ("sum", "mean", "sym", "sym_in")
"""Reductions that are a sum with rank-one weights a_u * b_v."""


P = ParamSpec("P")
T = TypeVar("T")


def _outside_inference(function: Callable[P, T]) -> Callable[P, T]:
    """The function, run outside inference mode: its results are kept, and later training needs ordinary tensors."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if is_compiling() or not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)

    return run


class Grouping(NamedTuple):
    """Edges in groups. `node[ptr[i]:ptr[i + 1]]` are the far ends of group i, and `edge` the places in the input.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[2, 0, 1], [1, 0, 1]]), 3)
    >>> [entries.tolist() for entries in graph.by_target]
    [[0, 1, 3, 3], [0, 2, 1], [1, 0, 2]]
    """

    ptr: Int[Tensor, " groups_plus_1"]
    node: Int[Tensor, " edges"]
    edge: Int[Tensor, " edges"]

    def owner(self) -> Int[Tensor, " edges"]:
        """The group of every entry, in the grouped order."""
        groups = torch.arange(self.ptr.numel() - 1, dtype=self.node.dtype, device=self.node.device)
        return torch.repeat_interleave(groups, self.ptr.diff(), output_size=self.node.numel())


class WholeDegrees(NamedTuple):
    """The degrees that the nodes of a sampled graph have in the whole graph, see `Neighbors.sampled_from`.

    >>> WholeDegrees(torch.tensor([3, 0]), torch.tensor([1, 2])).to(torch.int32).into.dtype
    torch.int32
    """

    into: Int[Tensor, " targets"]
    out: Int[Tensor, " sources"]

    def to(self, *args: Any, **kwargs: Any) -> "WholeDegrees":
        """A copy on another device or of another dtype, arguments as `torch.Tensor.to`."""
        return WholeDegrees(self.into.to(*args, **kwargs), self.out.to(*args, **kwargs))


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors:
    """The graph as the aggregation reads it: N(u) for every target u, and its transpose for the backward pass.

    Messages flow from source v (key) to target u (query). `by_target` is the CSR of the transposed adjacency (targets
    are rows), and `by_source` its CSC. Both keep the place of every edge in the input, so that edge features stay in
    the order of the input. Build it with `from_edge_index` or `from_sparse`.

    >>> graph = Neighbors.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> graph.num_edges, graph.in_degree().tolist()
    (2, [0, 1, 1])
    """

    edge_index: Int[Tensor, "2 edges"]
    by_target: Grouping
    by_source: Grouping
    num_sources: int
    num_targets: int
    # None where this is the whole graph.
    whole_degrees: WholeDegrees | None = field(default=None, kw_only=True)
    # Degrees do not change, so the weights of one layer serve the next. The versions show an in-place change of them.
    _weights: dict[tuple[str, torch.dtype], tuple[tuple[Tensor | None, Tensor | None], list[int]]] = field(
        default_factory=dict, init=False
    )
    _versions: list[int] | None = field(default=None, init=False)
    # True where the caller has checked or made all values. The values of a graph built by hand are checked here.
    is_checked: InitVar[bool] = field(default=False, kw_only=True)

    def __post_init__(self, is_checked: bool) -> None:
        if is_compiling():
            return
        if not is_checked:
            _check_groupings(self.tensors(), self.num_sources, self.num_targets)
        object.__setattr__(self, "_versions", _versions(self.tensors()))

    def tensors(self) -> tuple[Tensor, ...]:
        """All index tensors: `edge_index`, then the three of `by_target` and the three of `by_source`."""
        return self.edge_index, *self.by_target, *self.by_source

    def check_frozen(self) -> None:
        """Refuse a graph whose tensors were changed in place after their values had been checked.

        Every function that reads the tensors calls this first, in the forward and in the backward pass, because C does
        not check an index before it follows it. Code that torch compiled has its own checks.
        """
        if is_compiling():
            return
        if self._versions is not None and self._versions != _versions(self.tensors()):
            raise RuntimeError(
                "edge_index: expected the graph as it was when its edges were grouped, but one of its index tensors "
                "was changed in place since; build Neighbors anew, or clone() edge_index before changing it"
            )

    def __getstate__(self) -> dict[str, Any]:
        """The state for copies and pickles; a graph that was changed in place raises."""
        self.check_frozen()
        return {name: value for name, value in self.__dict__.items() if name not in ("_weights", "_versions")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _weights={}, _versions=None)
        self.__dict__["_versions"] = _versions(self.tensors())

    @classmethod
    @_outside_inference
    def from_edge_index(
        cls,
        edge_index: Int[Tensor, "2 edges"],
        size: int | tuple[int, int] | None = None,
    ) -> "Neighbors":
        """Group the edges of `edge_index` (row 0: sources, row 1: targets), int32 or int64.

        The graph keeps the tensor, and raises when it is used after an in-place change of it. A subclass of `Tensor`
        is copied into a plain tensor. The groups are int32 wherever that is wide enough.

        A negative or too large index raises an error that names the first such entry. Under `torch.compile` an
        assertion in the compiled code raises. Under `torch.export` only shapes and dtypes are checked.

        Args:
            edge_index: the edges.
            size: the number of nodes, or (sources, targets) for a bipartite graph; None infers it from the largest
                index.
        """
        check_edge_index(edge_index)
        if not is_compiling():
            edge_index = opened(edge_index)
        num_sources, num_targets = _checked_size(_inferred_size(edge_index) if size is None else size)
        if _can_group_in_c(edge_index) and min(num_sources, num_targets) >= 0:
            bad, tensors = native.group(edge_index, num_sources, num_targets)
            if bad == (-1, -1):
                by_target, by_source = Grouping(*tensors[:3]), Grouping(*tensors[3:])
                return cls(edge_index, by_target, by_source, num_sources, num_targets, is_checked=True)
        # If the kernel found an index out of range, this check names it.
        check_edge_index(edge_index, (num_sources, num_targets))
        by_target = _group(edge_index[1], edge_index[0], num_targets)
        by_source = _group(edge_index[0], edge_index[1], num_sources)
        return cls(edge_index, by_target, by_source, num_sources, num_targets, is_checked=True)

    @classmethod
    @_outside_inference
    def from_sparse(cls, adj_t: Tensor) -> "Neighbors":
        """Group the non-zeros of a torch sparse CSR, CSC or COO tensor whose rows are targets, columns sources.

        This is PyG's `adj_t`: the transposed adjacency of shape `[targets, sources]`. Edges keep the order in which the
        tensor stores them. The values of the tensor are not read.
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
        edge_index = torch.stack([col, row])
        return cls(edge_index, by_target, by_source, num_sources, num_targets, is_checked=True)

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
        return _count(self.edge_index[1], self.num_targets) if is_exporting() else self.by_target.ptr.diff()

    def out_degree(self) -> Int[Tensor, " sources"]:
        """The number of edges that leave every source v."""
        return _count(self.edge_index[0], self.num_sources) if is_exporting() else self.by_source.ptr.diff()

    @_outside_inference
    def weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The rank-one weights (a_u, b_v) of a reduction on this graph, see `rank_one_weights` and `sampled_from`."""
        if reduce == "sum" and self.whole_degrees is None:
            return None, None
        check_reduce(reduce)
        known, versions = self._weights.get((reduce, dtype), (None, None))
        if known is not None and (is_compiling() or versions == _versions(known)):
            return known
        if reduce == "sym_in" and self.num_sources != self.num_targets:
            raise ValueError(
                f"reduce: sym_in weighs by in-degrees at both ends and needs one set of nodes, "
                f"got {self.num_sources} sources and {self.num_targets} targets"
            )
        weights = self._new_weights(reduce, dtype)
        if not is_compiling():
            self._weights[reduce, dtype] = weights, _versions(weights)
        return weights

    def _new_weights(self, reduce: str, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        into, out = self.whole_degrees or (self.in_degree(), self.out_degree())
        weights = rank_one_weights(reduce, into, out if reduce == "sym" else into, dtype)
        if self.whole_degrees is None:
            return weights
        return _expanded(weights[0], into, self.in_degree(), dtype), weights[1]

    def sampled_from(self, into: Int[Tensor, " targets"], out: Int[Tensor, " sources"]) -> "Neighbors":
        r"""This graph as a sample of a larger one, in which its nodes have other degrees.

        If :math:`k_u` of the :math:`d_u` neighbours of u were drawn uniformly, every reduction weighs their messages so
        that the expected value is what the whole graph gives:

        .. math:: a_u = \frac{d_u}{k_u} \, a_u^{\text{whole}}, \qquad b_v = b_v^{\text{whole}}

        A sum is scaled by d_u / k_u, a mean is the mean of the sample, and sym and sym_in weigh by the degrees of the
        whole graph. The maximum of a sample is at most that of all neighbours, and nothing corrects that.

        Args:
            into: the in-degree of every target in the whole graph.
            out: the out-degree of every source in the whole graph.

        >>> drawn = Neighbors.from_edge_index(torch.tensor([[1], [0]]), 2)
        >>> drawn = drawn.sampled_from(torch.tensor([3, 0]), torch.tensor([0, 1]))
        >>> target_weight, _ = drawn.weights("sum", torch.float32)
        >>> target_weight.tolist()
        [3.0, 1.0]
        """
        for name, degree, count in (("into", into, self.num_targets), ("out", out, self.num_sources)):
            if degree.shape != (count,) or degree.is_floating_point():
                raise ValueError(f"{name}: expected {count} whole numbers, got {degree.dtype} {list(degree.shape)}")
        return replace(self, whole_degrees=WholeDegrees(into, out), is_checked=True)

    def alone(self) -> "Neighbors":
        """This graph as one of its own, also where it is a sample of a larger one."""
        return self if self.whole_degrees is None else replace(self, whole_degrees=None, is_checked=True)

    @_outside_inference
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
        whole = None if self.whole_degrees is None else self.whole_degrees.to(*args, **kwargs)
        sizes = self.num_sources, self.num_targets
        return Neighbors(edge_index, by_target, by_source, *sizes, whole_degrees=whole, is_checked=True)

    def __repr__(self) -> str:
        return f"Neighbors(num_sources={self.num_sources}, num_targets={self.num_targets}, num_edges={self.num_edges})"


def rank_one_weights(
    reduce: str, in_degree: Tensor, source_degree: Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The factors (a_u `[targets]`, b_v `[sources]`) by which a reduction weighs the message from v to u.

    - sum: 1
    - mean: 1 / in_degree(u)
    - sym: 1 / sqrt(in_degree(u) * out_degree(v))
    - sym_in: as sym with the in-degree of v, as in PyG's GCN and in the published figures of the paper

    Degrees are clamped to at least 1. None stands for factors that are all 1.

    Args:
        reduce: one of `REDUCTIONS`.
        in_degree: the in-degree of every target.
        source_degree: the out-degree of every source; for sym_in, the in-degree.
        dtype: the dtype of the factors.

    >>> in_degree, out_degree = torch.tensor([0, 2]), torch.tensor([1, 1])
    >>> target_weight, source_weight = rank_one_weights("mean", in_degree, out_degree, torch.float32)
    >>> target_weight.tolist(), source_weight is None
    ([1.0, 0.5], True)
    """
    if reduce == "sum":
        return None, None
    if reduce == "mean":
        return in_degree.clamp(min=1).to(dtype).reciprocal(), None
    return (
        in_degree.clamp(min=1).to(dtype).rsqrt(),
        source_degree.clamp(min=1).to(dtype).rsqrt(),
    )


def _expanded(weight: Tensor | None, whole: Tensor, drawn: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight of every target, times the number of its neighbours for each one that was drawn."""
    factor = whole.clamp(min=1).to(dtype) / drawn.clamp(min=1).to(dtype)
    factor = torch.where(drawn > 0, factor, torch.ones_like(factor))
    return factor if weight is None else weight * factor


def _count(ends: Tensor, num_nodes: int) -> Tensor:
    """How many edges have each node as an end, by an operator that every runtime of exported programs knows."""
    return ends.new_zeros(num_nodes).index_add_(0, ends, torch.ones_like(ends))


def _versions(tensors: Sequence[Tensor | None]) -> list[int]:
    """How often each tensor was changed in place. torch does not count changes of tensors made in inference mode."""
    try:
        return [tensor._version for tensor in tensors if tensor is not None]
    except RuntimeError:
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors if tensor is not None]


def _inferred_size(edge_index: Tensor) -> int:
    """The number of nodes, from the largest index."""
    if is_compiling():
        raise ValueError("size: expected the number of nodes under torch.compile, got None")
    # At least 0: an edge_index that has only negative values is refused for its first entry.
    return max(0, int(edge_index.max()) + 1) if edge_index.numel() else 0


def _checked_size(size: Any) -> tuple[int, int]:
    """The numbers of sources and of targets."""
    is_pair = isinstance(size, (tuple, list)) or getattr(size, "ndim", 0) == 1
    sizes = tuple(size) if is_pair else (size, size)
    expected = "a number of nodes or a pair (sources, targets)"
    if len(sizes) != 2:
        raise ValueError(f"size: expected {expected}, got {size!r}")
    num_sources, num_targets = (whole_number(n, "size", expected) for n in sizes)
    return num_sources, num_targets


def check_reduce(reduce: str, known: tuple[str, ...] = REDUCTIONS) -> None:
    """Refuse an unknown reduction and list the known ones."""
    check_known("reduce", reduce, known)


def check_edge_index(edge_index: Tensor, size: tuple[int, int] | None = None) -> None:
    """Refuse an `edge_index` that is not an int32 or int64 tensor of shape [2, edges].

    If `size` (sources, targets) is given, refuse values outside of it too, see `check_range`.
    """
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"edge_index: expected a tensor, got {type(edge_index).__name__}")
    if edge_index.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"edge_index: expected dtype int32 or int64, got {edge_index.dtype}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index: expected shape [2, edges], got {list(edge_index.shape)}")
    if size is None:
        return
    for row, (count, end) in enumerate(zip(size, ("source", "target"), strict=True)):
        if count < 0:
            raise ValueError(f"size: expected a number of {end} nodes >= 0, got {count}")
        check_range(edge_index[row], count, f"edge_index[{row}, {{}}]", f"the number of {end} nodes")


def _check_groupings(graph: Sequence[Tensor], num_sources: int, num_targets: int) -> None:
    """Refuse the seven tensors of a graph, see `Neighbors.tensors`, if an entry points outside of the graph."""
    edge_index, by_target, by_source = graph[0], Grouping(*graph[1:4]), Grouping(*graph[4:7])
    check_edge_index(edge_index, (num_sources, num_targets))
    for grouping, groups, nodes in ((by_target, num_targets, num_sources), (by_source, num_sources, num_targets)):
        _check_compressed(grouping.ptr, grouping.node, groups, "by_target, by_source")
        if not grouping.node.shape == grouping.edge.shape == edge_index.shape[1:]:
            raise ValueError(f"by_target, by_source: expected {edge_index.size(1)} edges, got {len(grouping.edge)}")
        check_range(grouping.node, nodes, "by_target, by_source: node[{}]", "the number of nodes")
        check_range(grouping.edge, edge_index.size(1), "by_target, by_source: edge[{}]", "the number of edges")


def _can_group_in_c(edge_index: Tensor) -> bool:
    """Whether C can group these edges."""
    return (
        native.UNAVAILABLE is None
        and not is_traced()
        and is_open(edge_index)
        and not torch._C._are_functorch_transforms_active()
    )


def _group(by: Tensor, other: Tensor, num_groups: int) -> Grouping:
    """Group edges by one of their ends. Groups keep the order of the input, so that sums repeat bit for bit."""
    sorted_by, order = torch.sort(by, stable=True)
    bounds = torch.arange(num_groups + 1, dtype=by.dtype, device=by.device)
    ptr = torch.searchsorted(sorted_by.contiguous(), bounds, out_int32=by.dtype == torch.int32)
    return Grouping(ptr, other.index_select(0, order), order.to(by.dtype))


def _compressed(ptr: Tensor, node: Tensor, groups: int, size: int, end: str) -> Grouping:
    """A checked grouping from the indices of a sparse tensor, which torch does not check by default."""
    if not is_compiling():
        ptr, node = opened(ptr), opened(node)
        _check_compressed(ptr, node, groups, "adj_t")
        check_range(node, size, f"adj_t {end} index {{}}", f"the number of {end} nodes")
    ptr, node = ptr.contiguous(), node.contiguous()
    return Grouping(ptr, node, torch.arange(node.numel(), dtype=node.dtype, device=node.device))


def _check_compressed(ptr: Tensor, node: Tensor, groups: int, name: str) -> None:
    if ptr.dtype != node.dtype or ptr.shape != (groups + 1,) or node.dim() != 1:
        raise ValueError(f"{name}: expected {groups + 1} compressed indices of {node.dtype}, got {ptr}")
    if int(ptr[0]) != 0 or int(ptr[-1]) != node.numel() or bool((ptr.diff() < 0).any()):
        raise ValueError(
            f"{name}: expected {groups + 1} compressed indices that rise from 0 to {node.numel()}, "
            f"got {ptr[:8].tolist()}{' ...' if ptr.numel() > 8 else ''}"
        )
