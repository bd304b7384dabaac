import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import REDUCTIONS, Grouping, Neighbors, rank_one_weights
from sirgcn.testing import Graph

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta")


def groups_of(grouping: Grouping) -> list[list[tuple[int, int]]]:
    """(far end, place in the input) of every entry, group by group."""
    bounds = grouping.ptr.tolist()
    entries = list(zip(grouping.node.tolist(), grouping.edge.tolist(), strict=True))
    return [entries[start:end] for start, end in pairwise(bounds)]


def as_edges(neighbors: Neighbors) -> list[tuple[int, int]]:
    source, target = neighbors.edge_index.tolist()
    return list(zip(source, target, strict=True))


def tensors(neighbors: Neighbors) -> list[Tensor]:
    return [neighbors.edge_index, *neighbors.by_target, *neighbors.by_source]


def adjacency(graph: Graph) -> Tensor:
    """COO of shape [targets, sources], uncoalesced, in the order of the edges."""
    return torch.sparse_coo_tensor(
        graph.edge_index.long().flip(0),
        torch.ones(len(graph.edges)),
        (graph.num_targets, graph.num_sources),
        check_invariants=True,
    )


def compressed(
    build: Callable[..., Tensor],
    ptr: list[int],
    index: list[int],
    size: tuple[int, int],
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    return build(
        torch.tensor(ptr, dtype=dtype),
        torch.tensor(index, dtype=dtype),
        torch.ones(len(index)),
        size,
        check_invariants=False,
    )


def csr(ptr: list[int], col: list[int], size: tuple[int, int], **kwargs: Any) -> Tensor:
    return compressed(torch.sparse_csr_tensor, ptr, col, size, **kwargs)


def csc(ptr: list[int], row: list[int], size: tuple[int, int], **kwargs: Any) -> Tensor:
    return compressed(torch.sparse_csc_tensor, ptr, row, size, **kwargs)


@given(laws.graphs())
def test_groups_hold_the_edges_in_input_order(graph: Graph) -> None:
    neighbors = graph.neighbors()
    numbered = list(enumerate(graph.edges))
    assert as_edges(neighbors) == list(graph.edges)
    assert groups_of(neighbors.by_target) == [
        [(v, i) for i, (v, u) in numbered if u == target] for target in range(graph.num_targets)
    ]
    assert groups_of(neighbors.by_source) == [
        [(u, i) for i, (v, u) in numbered if v == source] for source in range(graph.num_sources)
    ]


@given(laws.graphs())
def test_places_are_permutations_and_owners_their_edges_ends(graph: Graph) -> None:
    neighbors = graph.neighbors()
    for grouping, far, near in ((neighbors.by_target, 0, 1), (neighbors.by_source, 1, 0)):
        assert sorted(grouping.edge.tolist()) == list(range(len(graph.edges)))
        place = grouping.edge.long()
        assert torch.equal(grouping.node, graph.edge_index[far][place])
        assert torch.equal(grouping.owner(), graph.edge_index[near][place])


@given(laws.graphs())
def test_degrees_count_the_edges_at_every_node(graph: Graph) -> None:
    neighbors = graph.neighbors()
    targets, sources = [u for _, u in graph.edges], [v for v, _ in graph.edges]
    assert neighbors.in_degree().tolist() == [targets.count(u) for u in range(graph.num_targets)]
    assert neighbors.out_degree().tolist() == [sources.count(v) for v in range(graph.num_sources)]


@given(laws.graphs())
def test_sizes_device_and_repr_are_those_of_the_input(graph: Graph) -> None:
    neighbors = graph.neighbors()
    assert neighbors.num_edges == len(graph.edges)
    assert (neighbors.num_sources, neighbors.num_targets) == (graph.num_sources, graph.num_targets)
    assert neighbors.edge_index.dtype == graph.dtype
    assert {tensor.dtype for tensor in tensors(neighbors)} <= {graph.dtype, torch.int32}
    assert neighbors.device == torch.device("cpu")
    assert repr(neighbors) == (
        f"Neighbors(num_sources={graph.num_sources}, num_targets={graph.num_targets}, num_edges={len(graph.edges)})"
    )


@given(laws.graphs())
def test_sparse_tensors_give_the_same_groups_as_their_edges(graph: Graph) -> None:
    coo = adjacency(graph)
    expected = graph.neighbors().to(torch.int64)
    uncoalesced = Neighbors.from_sparse(coo)
    assert all(map(torch.equal, tensors(uncoalesced), tensors(expected)))

    by_row = sorted(range(len(graph.edges)), key=lambda i: graph.edges[i][1])
    by_column = sorted(range(len(graph.edges)), key=lambda i: graph.edges[i][0])
    size = (graph.num_targets, graph.num_sources)
    ends = [list(end) for end in zip(*graph.edges, strict=True)] or [[], []]
    for order, build, ptr, far in (
        (by_row, csr, expected.by_target.ptr, 0),
        (by_column, csc, expected.by_source.ptr, 1),
    ):
        adj_t = build(ptr.tolist(), [ends[far][i] for i in order], size, dtype=graph.dtype)
        same = Graph(tuple(graph.edges[i] for i in order), graph.num_sources, graph.num_targets, graph.dtype)
        assert all(map(torch.equal, tensors(Neighbors.from_sparse(adj_t)), tensors(same.neighbors())))


@given(laws.graphs())
def test_coalesced_formats_of_one_matrix_give_the_same_neighborhoods(graph: Graph) -> None:
    coalesced = adjacency(graph).coalesce()
    sets = [
        sorted(as_edges(Neighbors.from_sparse(adj_t)))
        for adj_t in (coalesced, coalesced.to_sparse_csr(), coalesced.to_sparse_csc())
    ]
    assert sets == [sorted(set(graph.edges))] * 3


def test_values_of_a_sparse_tensor_are_not_looked_at() -> None:
    adj_t = torch.sparse_coo_tensor(torch.tensor([[1, 0], [0, 2]]), torch.zeros(2, 5), (2, 3, 5), check_invariants=True)
    assert as_edges(Neighbors.from_sparse(adj_t)) == [(0, 1), (2, 0)]


@given(laws.graphs(bipartite=False))
def test_size_none_is_one_more_than_the_largest_index(graph: Graph) -> None:
    size = max((max(edge) + 1 for edge in graph.edges), default=0)
    neighbors = Neighbors.from_edge_index(graph.edge_index)
    assert (neighbors.num_sources, neighbors.num_targets) == (size, size)
    expected = Neighbors.from_edge_index(graph.edge_index, size)
    assert all(map(torch.equal, tensors(neighbors), tensors(expected)))


@given(laws.graphs(), st.sampled_from([torch.int32, torch.int64]))
def test_to_another_index_dtype_equals_building_it_there(graph: Graph, dtype: torch.dtype) -> None:
    moved = graph.neighbors().to(dtype)
    built = Neighbors.from_edge_index(graph.edge_index.to(dtype), (graph.num_sources, graph.num_targets))
    assert all(map(torch.equal, tensors(moved), tensors(built)))
    assert {tensor.dtype for tensor in tensors(moved)} == {dtype}
    assert repr(moved) == repr(built)


def test_to_a_device_moves_every_tensor() -> None:
    moved = laws.RICH.neighbors().to("meta")
    assert moved.device.type == "meta"
    assert {tensor.device.type for tensor in tensors(moved)} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool])
def test_to_another_dtype_than_an_index_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"expected dtype int32 or int64, got {dtype}"):
        laws.RICH.neighbors().to(dtype)


def test_to_int32_of_too_many_nodes_is_refused() -> None:
    small = Neighbors.from_edge_index(torch.zeros(2, 1, dtype=torch.int64), 1)
    large = Neighbors(small.edge_index, small.by_target, small.by_source, 1, 2**31, is_checked=True)
    with pytest.raises(ValueError, match="int32 cannot index 2147483648 edges or nodes"):
        large.to(torch.int32)


@pytest.mark.parametrize(
    ("edge_index", "size", "message"),
    [
        ([[0, 1, 3], [0, 4, 9]], 3, "edge_index[0, 2] = 3: expected 0 <= index < 3"),
        ([[0, 1, 2], [0, 4, 9]], 3, "edge_index[1, 1] = 4: expected 0 <= index < 3"),
        ([[0, -1, -2], [0, 0, 0]], 3, "edge_index[0, 1] = -1: expected 0 <= index < 3"),
        ([[0, 4], [0, 1]], (5, 1), "edge_index[1, 1] = 1: expected 0 <= index < 1"),
        ([[4, 5], [0, 0]], (5, 1), "edge_index[0, 1] = 5: expected 0 <= index < 5"),
        ([[0], [0]], 0, "edge_index[0, 0] = 0: expected 0 <= index < 0"),
        ([[2, 0], [0, -7]], None, "edge_index[1, 1] = -7: expected 0 <= index < 3"),
        ([[-5], [-5]], None, "edge_index[0, 0] = -5: expected 0 <= index < 0"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_index_out_of_range_names_the_first_offending_entry(
    edge_index: list[list[int]],
    size: int | tuple[int, int] | None,
    message: str,
    dtype: torch.dtype,
) -> None:
    end = "source" if message.startswith("edge_index[0") else "target"
    with pytest.raises(IndexError) as error:
        Neighbors.from_edge_index(torch.tensor(edge_index, dtype=dtype), size)
    assert str(error.value) == f"{message}, the number of {end} nodes"


@given(laws.graphs(), st.data())
def test_any_single_bad_entry_is_the_one_named(graph: Graph, data: st.DataObject) -> None:
    if not graph.edges:
        return
    row = data.draw(st.integers(0, 1))
    column = data.draw(st.integers(0, len(graph.edges) - 1))
    size = (graph.num_sources, graph.num_targets)
    bad = data.draw(st.one_of(st.integers(-9, -1), st.integers(size[row], size[row] + 9)))
    edge_index = graph.edge_index
    edge_index[row, column] = bad
    with pytest.raises(IndexError, match=re.escape(f"edge_index[{row}, {column}] = {bad}: ")):
        Neighbors.from_edge_index(edge_index, size)


@pytest.mark.parametrize("shape", [(3, 4), (2,), (4, 2), (2, 3, 1), (0,), ()])
def test_bad_shape_is_refused_and_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"edge_index: expected shape \[2, edges\], got ") as error:
        Neighbors.from_edge_index(torch.zeros(shape, dtype=torch.int64), 3)
    assert str(error.value).endswith(f"got {list(shape)}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.uint8, torch.bool])
def test_bad_dtype_is_refused_and_named(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"edge_index: expected dtype int32 or int64, got {dtype}"):
        Neighbors.from_edge_index(torch.zeros(2, 3, dtype=dtype), 3)


def test_other_types_than_a_tensor_are_refused() -> None:
    with pytest.raises(TypeError, match="edge_index: expected a tensor, got list"):
        Neighbors.from_edge_index([[0], [0]], 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"adj_t: expected a .*tensor, got list"):
        Neighbors.from_sparse([[0]])  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [-1, (2, -3)])
def test_negative_size_is_refused(size: int | tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"size: expected a number of .* nodes >= 0, got -"):
        Neighbors.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), size)


@pytest.mark.parametrize("size", [(1, 2, 3), (1,), 3.0, "3", (3, None), (3, 2.0)])
def test_size_that_is_no_number_or_pair_is_refused_by_name(size: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^size: expected "):
        Neighbors.from_edge_index(torch.zeros(2, 1, dtype=torch.int64), size)


@pytest.mark.parametrize(
    "ptr",
    [[1, 1, 2], [0, 1, 1], [0, 1, 3], [0, 3, 2], [0, -1, 2], [0, 2], [0, 1, 2, 2], []],
    ids=str,
)
@pytest.mark.parametrize("build", [csr, csc])
def test_broken_pointers_are_refused(build: Callable[..., Tensor], ptr: list[int]) -> None:
    adj_t = build(ptr, [0, 1], (2, 2))
    with pytest.raises(ValueError, match=r"adj_t: expected .*compressed indices") as error:
        Neighbors.from_sparse(adj_t)
    assert str(ptr) in str(error.value)


@pytest.mark.parametrize(("build", "end"), [(csr, "column"), (csc, "row")])
@pytest.mark.parametrize("bad", [-1, 3])
def test_bad_plain_index_names_the_first_offending_entry(build: Callable[..., Tensor], end: str, bad: int) -> None:
    with pytest.raises(IndexError, match=f"adj_t {end} index 1 = {bad}: expected 0 <= index < 3, the number of"):
        Neighbors.from_sparse(build([0, 1, 2, 3], [0, bad, 7], (3, 3)))


def test_dense_and_blocked_matrices_are_refused_by_their_layout() -> None:
    with pytest.raises(ValueError, match=r"expected a CSR, CSC or COO tensor, got layout torch\.str"):
        Neighbors.from_sparse(torch.eye(2))
    with pytest.raises(ValueError, match=r"got layout torch\.sparse_bsr"):
        Neighbors.from_sparse(torch.eye(2).to_sparse_bsr((1, 1)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.ones(3).to_sparse(),
        lambda: torch.ones(2, 2, 2).to_sparse(),
        lambda: torch.ones(2, 2).to_sparse(1),
        lambda: torch.ones(2, 3, 3).to_sparse_csr(),
        lambda: torch.ones(2, 3, 3).to_sparse_csc(),
    ],
    ids=["COO vector", "COO of 3 dimensions", "COO of 1 dimension", "CSR batch", "CSC batch"],
)
def test_sparse_tensor_that_is_no_matrix_is_refused_by_name(build: Callable[[], Tensor]) -> None:
    with pytest.raises(ValueError, match=r"^adj_t: expected a sparse matrix"):
        Neighbors.from_sparse(build())


@pytest.mark.parametrize("reduce", REDUCTIONS)
@given(graph=laws.graphs(bipartite=False))
def test_rank_one_weights_are_the_weights_of_the_definition(reduce: str, graph: Graph) -> None:
    target_weight, source_weight = graph.neighbors().weights(reduce, torch.float64)
    for v, u in graph.edges:
        a = 1.0 if target_weight is None else float(target_weight[u])
        b = 1.0 if source_weight is None else float(source_weight[v])
        assert a * b == pytest.approx(laws.scale(graph, reduce, v, u), rel=1e-14)


def test_weights_of_nodes_without_edges_are_finite() -> None:
    none = torch.zeros(3, dtype=torch.int64)
    for reduce in REDUCTIONS:
        for weight in rank_one_weights(reduce, none, none, torch.float32):
            assert weight is None or torch.equal(weight, torch.ones(3))


def test_sym_in_of_a_bipartite_graph_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reduce: sym_in .* got 4 sources and 2 targets"):
        laws.EDGE_CASES["bipartite"].neighbors().weights("sym_in", torch.float32)


def test_unknown_reduction_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="reduce: expected one of sum, mean, sym, sym_in, got 'median'"):
        laws.RICH.neighbors().weights("median", torch.float32)


def grouped(edge_index: Tensor) -> tuple[Tensor, ...]:
    neighbors = Neighbors.from_edge_index(edge_index, (7, 7))
    return (*neighbors.by_target, *neighbors.by_source)


def test_compiled_grouping_equals_eager() -> None:
    compiled = torch.compile(grouped, backend="eager", fullgraph=True)
    for dtype in (torch.int64, torch.int32):
        edge_index = laws.RICH.edge_index.to(dtype)
        assert all(map(torch.equal, compiled(edge_index), grouped(edge_index)))


def test_compiled_grouping_checks_shapes_dtypes_and_values() -> None:
    compiled = torch.compile(grouped, backend="eager", fullgraph=True)
    bad_values = torch.tensor([[0, 99, -1], [1, 2, 3]])
    with pytest.raises(IndexError, match=r"edge_index\[0, 1\] = 99"):
        grouped(bad_values)
    with pytest.raises(RuntimeError, match=r"edge_index\[0, ...\]: expected 0 <= index < the number of source nodes"):
        compiled(bad_values)
    with pytest.raises(Exception, match=r"edge_index: expected shape \[2, edges\]"):
        compiled(torch.zeros(3, 4, dtype=torch.int64))
    with pytest.raises(Exception, match="edge_index: expected dtype int32 or int64"):
        compiled(torch.zeros(2, 4))


def test_sparse_tensor_with_strided_indices() -> None:
    ptr, node = torch.tensor([[0, 9], [1, 9], [3, 9], [3, 9]])[:, 0], torch.tensor([[2, 9], [0, 9], [1, 9]])[:, 0]
    adj_t = torch.sparse_csr_tensor(ptr, node, torch.ones(3), (3, 3), check_invariants=False)
    neighbors = Neighbors.from_sparse(adj_t)
    assert neighbors.edge_index.tolist() == [[2, 0, 1], [0, 1, 1]]
    for grouping in (neighbors.by_target, neighbors.by_source):
        assert all(tensor.is_contiguous() for tensor in grouping)
