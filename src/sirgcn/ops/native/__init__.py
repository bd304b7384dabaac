"""The C code, which runs on the CPU with the threads of torch.

Its functions are called with addresses, sizes and strides, so that one build works with every version of torch. The
code is compiled when the package is built. Where that failed, `UNAVAILABLE` holds the reason, and torch does the work.
"""

import os
from collections.abc import Callable

import torch
from torch import Tensor

from sirgcn.ops.activation import ACTIVATIONS
from sirgcn.ops.door import address, flat, in_one_piece, is_open, rows

UNAVAILABLE: str | None = None
try:
    import sirgcn.ops.native._kernels as _kernels
except ImportError as error:
    UNAVAILABLE = f"the C extension was not built ({error}); install from source with a C compiler"

DTYPES: dict[torch.dtype, int] = {}
"""The number of each stored dtype in the kernels."""

ACTIVATION_NUMBERS: dict[str, int] = {}
"""The number of each activation in the kernels."""

if UNAVAILABLE is None:
    DTYPES = {getattr(torch, name): number for number, name in enumerate(_kernels.dtypes())}
    ACTIVATION_NUMBERS = {name: number for number, name in enumerate(_kernels.activations())}
    if set(ACTIVATION_NUMBERS) != set(ACTIVATIONS):
        differing = ", ".join(sorted(set(ACTIVATION_NUMBERS) ^ set(ACTIVATIONS)))
        raise ImportError(
            f"sirgcn: the activations of ops/activation.py and of ops/native/activations.def differ in {differing}; "
            "complete the shorter list and build the package again"
        )

# With fewer elements, waking a thread costs more time than it saves.
_ONE_THREAD = 2**16


def threads_for(elements: int) -> int:
    """The number of threads for this many elements: that of torch, or one."""
    return 1 if elements < _ONE_THREAD else torch.get_num_threads()


def limit_isa(name: str) -> None:
    """Use no instruction set wider than the named one (avx512, avx2, baseline, scalar), as `SIRGCN_ISA` does."""
    if UNAVAILABLE is not None:
        raise RuntimeError(f"SIRGCN_ISA: there is no instruction set to choose from: {UNAVAILABLE}")
    if not _kernels.limit_isa(name):
        raise ValueError(f"SIRGCN_ISA: expected one that this machine has ({', '.join(_ISAS)}), got {name!r}")


_ISAS = [] if UNAVAILABLE is not None else _kernels.isas()
if UNAVAILABLE is None and "SIRGCN_ISA" in os.environ:
    limit_isa(os.environ["SIRGCN_ISA"])


def describe() -> str:
    """The widest instruction set in use, whether there are threads, and who multiplies matrices."""
    threads = "torch's threads" if _kernels.has_threads() else "one thread: no OpenMP runtime was found"
    return f"{_kernels.isas()[0]}, {threads}, linear layers by {'the kernel' if MULTIPLIES else 'torch'}"


def multiplies() -> bool:
    """Whether the products of linear layers are the C kernel's: on processors with AVX2 that are not Intel's.

    MKL asks for the vendor, and has generic code for all others, which is slow for the narrow matrices of a graph
    network. `SIRGCN_PRODUCTS`, `kernel` or `torch`, decides otherwise.
    """
    wanted = os.environ.get("SIRGCN_PRODUCTS", "")
    if wanted not in ("", "kernel", "torch"):
        raise ValueError(f"SIRGCN_PRODUCTS: expected kernel or torch, got {wanted!r}")
    if UNAVAILABLE is not None:
        if wanted == "kernel":
            raise RuntimeError(f"SIRGCN_PRODUCTS: there is no kernel: {UNAVAILABLE}")
        return False
    is_slow = torch.backends.mkl.is_available() and not _kernels.is_intel() and "avx2" in _kernels.isas()
    return wanted == "kernel" or (wanted == "" and is_slow)


MULTIPLIES = multiplies()
"""Decided once, when the package is imported."""


def group(edge_index: Tensor, num_sources: int, num_targets: int) -> tuple[tuple[int, int], list[Tensor]]:
    """The edges grouped by target and by source: ptr, node and edge of each grouping, int32 where that is wide enough.

    Before the groupings come the places of the first source and the first target that are out of range, -1 for none.
    If one of them is not -1, the groupings are meaningless.
    """
    edges = edge_index.size(1)
    source, target = in_one_piece(edge_index)
    fits = max(edges, num_sources, num_targets) <= torch.iinfo(torch.int32).max
    dtype = torch.int32 if fits else torch.int64
    sizes = (num_targets + 1, edges, edges, num_sources + 1, edges, edges)
    groupings = [edge_index.new_empty(size, dtype=dtype) for size in sizes]
    target_ptr, target_node, target_edge, source_ptr, source_node, source_edge = map(flat, groupings)
    bad: tuple[int, int] = _kernels.group(
        source=address(source),
        target=address(target),
        wide_in=edge_index.dtype == torch.int64,
        wide_out=not fits,
        edges=edges,
        num_sources=num_sources,
        num_targets=num_targets,
        target_ptr=target_ptr,
        target_node=target_node,
        target_edge=target_edge,
        source_ptr=source_ptr,
        source_node=source_node,
        source_edge=source_edge,
        threads=torch.get_num_threads(),
    )
    return bad, groupings


def refine(
    kind: Tensor, by_target: tuple[Tensor, Tensor, Tensor], edge_kind: Tensor | None, edge_kinds: int, most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None:
    """One round of colour refinement; None where it would give more kinds than `most`.

    Args:
        kind: the kind of every node, int64 and at least 0.
        by_target: the edges grouped by target: (ptr, node, edge).
        edge_kind: the kind of every edge; None where all edges are of kind 0.
        edge_kinds: how many kinds of edges there are.
        most: the most kinds that pay off.

    Returns:
        The new kind of every node, one node of each new kind, the number of nodes of each new kind, the edges `[2, E]`
        from the old kinds to each new kind, and the kinds of these edges.
    """
    ptr, node, edge = by_target
    kind, edge_kind = kind.contiguous(), None if edge_kind is None else edge_kind.to(torch.int64).contiguous()
    finer, first, count = torch.empty_like(kind), kind.new_empty(most), kind.new_empty(most)
    edges = kind.new_empty(3, node.numel())
    source, target, edge_type = edges
    num_kinds, num_edges = _kernels.refine(
        ptr=flat(ptr),
        node=flat(node),
        edge=flat(edge),
        wide=node.dtype == torch.int64,
        nodes=kind.numel(),
        kind=flat(kind),
        edge_kind=flat(edge_kind),
        edge_kinds=edge_kinds,
        most=most,
        finer=flat(finer),
        first=flat(first),
        count=flat(count),
        source=flat(source),
        target=flat(target),
        edge_type=flat(edge_type),
    )
    if num_kinds < 0:
        return None
    return finer, first[:num_kinds], count[:num_kinds], edges[:2, :num_edges], edges[2, :num_edges]


def gather_add(query: Tensor, key: Tensor, term: Tensor | None, target: Tensor, source: Tensor, row: Tensor) -> Tensor:
    """query[target] + key[source] + term[row], one row per edge."""
    query, key = in_one_piece(query), in_one_piece(key)
    term = None if term is None else in_one_piece(term)
    out = query.new_empty(target.numel(), query.size(1))
    (query_at, query_stride), (key_at, key_stride), (term_at, term_stride) = rows(query), rows(key), rows(term)
    _kernels.gather_add(
        dtype=DTYPES[query.dtype],
        rows=out.size(0),
        width=out.size(1),
        query=query_at,
        query_stride=query_stride,
        key=key_at,
        key_stride=key_stride,
        term=term_at,
        term_stride=term_stride,
        target=flat(target),
        source=flat(source),
        wide=target.dtype == torch.int64,
        row=flat(row),
        wide_row=row.dtype == torch.int64,
        out=flat(out),
        threads=threads_for(out.numel()),
    )
    return out


def add_rows(total: Tensor, index: Tensor, added: Tensor) -> None:
    """total[index[i]] += added[i] for every i, in order."""
    _columns(_kernels.add_rows, added, index, total)


def max_rows(top: Tensor, winner: Tensor, index: Tensor, given: Tensor, start: int) -> None:
    """top[index[i]] = max(top[index[i]], given[i]), and winner = start + i where given[i] won; -1 means none yet."""
    _columns(_kernels.max_rows, given, index, top, winner, start)


def won_rows(grad: Tensor, winner: Tensor, index: Tensor, start: int) -> Tensor:
    """grad[index[i]] where winner[index[i]] is start + i, else 0: `[rows of index, d]`."""
    out = grad.new_empty(index.numel(), grad.size(1))
    _columns(_kernels.won_rows, grad, index, out, winner, start)
    return out


def can_run_rows(*tensors: Tensor) -> bool:
    """Whether the row functions of this module can run on these tensors.

    They can if all tensors are plain CPU matrices of one dtype, float32 or float64.
    """
    return (
        UNAVAILABLE is None
        and all(t.dim() == 2 and t.dtype == tensors[0].dtype and is_open(t) for t in tensors)
        and tensors[0].dtype in (torch.float32, torch.float64)
    )


def _columns(
    function: Callable[..., None],
    source: Tensor,
    index: Tensor,
    out: Tensor,
    winner: Tensor | None = None,
    start: int = 0,
) -> None:
    """Run one of the row kernels: it handles a row of `source` or of `out` for every entry of the index."""
    source, index = in_one_piece(source), index.contiguous()
    count, width = index.numel(), source.size(1)
    (source_at, source_stride), (out_at, out_stride) = rows(source), rows(out)
    function(
        dtype=DTYPES[source.dtype],
        rows=count,
        width=width,
        source=source_at,
        source_stride=source_stride,
        index=flat(index),
        wide=index.dtype == torch.int64,
        out=out_at,
        out_stride=out_stride,
        threads=threads_for(count * width),
        winner=flat(winner),
        start=start,
    )
