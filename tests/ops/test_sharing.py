"""Rows that repeat: kinds of nodes by colour refinement, messages once per pair of kinds, batch norm of kinds."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import sirgcn.ops.sharing as module
from sirgcn.ops import REDUCTIONS, Neighbors, native
from sirgcn.ops.sharing import KindEdges, Kinds, weighted_batch_norm

pytestmark = pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
DOUBLE = torch.float64


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds are looked for whether or not they pay."""
    monkeypatch.setattr(module, "_MOST_KINDS", 1.0)
    monkeypatch.setattr(module, "_MOST_EDGES", 1000)


def around(edge_index: Tensor, edge_kind: Tensor, kind: list[int], nodes: int) -> list[list[tuple[int, int]]]:
    """The neighbours of every target in order: their kind and that of the edge."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(nodes)]
    for source, target, e in zip(*edge_index.tolist(), edge_kind.tolist(), strict=True):
        found[target].append((kind[source], e))
    return [sorted(neighbours) for neighbours in found]


def assert_same_partition(found: list[int], wanted: list[object]) -> None:
    assert len(set(found)) == len(set(map(repr, wanted))) == len(set(zip(found, map(repr, wanted), strict=True)))


@pytest.mark.parametrize("edge_kinds", [1, 3])
@pytest.mark.parametrize("edges_per_node", [0, 1, 2, 30])
@pytest.mark.parametrize("nodes", [1, 7, 300])
@pytest.mark.usefixtures("always")
def test_a_round_is_that_of_the_definition(nodes: int, edges_per_node: int, edge_kinds: int) -> None:
    generator = torch.Generator().manual_seed(nodes)
    edge_index = torch.randint(nodes, (2, nodes * edges_per_node), generator=generator)
    label = torch.randint(2, (nodes,), generator=generator)
    edge_kind = torch.randint(edge_kinds, edge_index.shape[1:], generator=generator)
    graph = Neighbors.from_edge_index(edge_index, nodes)
    kinds = Kinds.of(label, graph)
    assert kinds is not None
    begun = zip(label.tolist(), graph.in_degree().tolist(), graph.out_degree().tolist(), strict=True)
    assert_same_partition(kinds.kind.tolist(), list(begun))
    for _ in range(3):
        before = kinds.kind.tolist()
        neighbours = around(edge_index, edge_kind, before, nodes)
        found = kinds.refine(edge_kind, edge_kinds)
        assert found is not None
        finer, edges, kept_kind = found
        assert_same_partition(finer.kind.tolist(), list(zip(before, neighbours, strict=True)))
        assert torch.equal(finer.kind[finer.first], torch.arange(len(finer.first)))
        assert torch.equal(finer.count, finer.kind.bincount(minlength=len(finer.first)))
        assert (edges.num_sources, edges.num_targets) == (len(kinds.first), len(finer.first))
        kept = around(edges.edge_index, kept_kind, list(range(len(kinds.first))), len(finer.first))
        assert kept == [neighbours[node] for node in finer.first.tolist()]
        kinds = finer


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.usefixtures("always")
def test_index_dtypes_and_a_fixed_point(wide: bool) -> None:
    # Two paths of 4 and a cycle of 5: 1-WL tells the ends of a path, their neighbours and the cycle's nodes apart.
    edges = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (6, 7), *((8 + i, 8 + (i + 1) % 5) for i in range(5))]
    edge_index = torch.tensor([*edges, *((b, a) for a, b in edges)]).t()
    graph = Neighbors.from_edge_index(edge_index, 13).to(torch.int64 if wide else torch.int32)
    kinds = Kinds.of(torch.zeros(13, dtype=torch.int32), graph)
    sizes = []
    for _ in range(4):
        assert kinds is not None
        sizes.append(len(kinds.first))
        found = kinds.refine()
        assert found is not None
        kinds = found[0]
    assert kinds is not None
    assert sizes == [2, 3, 3, 3]
    assert sorted(kinds.count.tolist()) == [4, 4, 5]


def test_where_it_cannot_pay() -> None:
    distinct = torch.arange(20)
    path = torch.stack([torch.arange(19), torch.arange(1, 20)])
    same = torch.zeros(20, dtype=torch.int64)
    assert Kinds.of(distinct, Neighbors.from_edge_index(path, 20)) is None
    assert Kinds.of(same, Neighbors.from_edge_index(torch.randint(20, (2, 161)), 20)) is None
    assert Kinds.of(same[:0], Neighbors.from_edge_index(path[:, :0], 0)) is None
    assert Kinds.of(same, Neighbors.from_edge_index(path, (20, 25))) is None
    large = torch.full((20,), 2**62)
    assert Kinds.of(large, Neighbors.from_edge_index(path, 20)) is None
    kinds = Kinds.of(same, Neighbors.from_edge_index(path, 20))
    assert kinds is not None
    assert kinds.refine(torch.full((19,), 3), 3) is None
    assert kinds.refine(torch.full((19,), -1), 3) is None
    with FlopCounterMode(display=False):
        assert Kinds.of(same, kinds.graph) is None
    # The round after which all 20 nodes of the path differ is not made.
    rounds = 0
    while (found := kinds.refine()) is not None:
        kinds, rounds = found[0], rounds + 1
        assert len(kinds.first) <= 18
    assert 5 < rounds < 20


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.usefixtures("always")
def test_weights_are_those_of_the_graph(reduce: str) -> None:
    edge_index = torch.randint(40, (2, 90), generator=torch.Generator().manual_seed(1))
    graph = Neighbors.from_edge_index(edge_index, 40)
    kinds = Kinds.of(torch.zeros(40, dtype=torch.int64), graph)
    assert kinds is not None
    found = kinds.refine()
    assert found is not None
    finer, edges, _ = found
    assert isinstance(edges, KindEdges)
    for of_kind, of_node, kind in zip(
        edges.weights(reduce, DOUBLE), graph.weights(reduce, DOUBLE), (finer.kind, kinds.kind), strict=True
    ):
        assert (of_kind is None) == (of_node is None)
        if of_kind is not None and of_node is not None:
            # Of every node, not only of the first one of its kind.
            assert torch.equal(of_kind[kind], of_node)


@pytest.mark.usefixtures("always")
def test_another_index_dtype_keeps_the_weights() -> None:
    graph = Neighbors.from_edge_index(torch.randint(40, (2, 90), generator=torch.Generator().manual_seed(1)), 40)
    kinds = Kinds.of(torch.zeros(40, dtype=torch.int64), graph)
    assert kinds is not None
    found = kinds.refine()
    assert found is not None
    for before, after in zip(
        found[1].weights("sym", DOUBLE), found[1].to(torch.int32).weights("sym", DOUBLE), strict=True
    ):
        assert before is not None
        assert after is not None
        assert torch.equal(before, after)


@pytest.fixture
def norm_inputs() -> Callable[[torch.dtype], tuple[Tensor, ...]]:
    def make(dtype: torch.dtype) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(90, 101, generator=generator, dtype=DOUBLE) * 3 + 5
        weight, bias = torch.randn(2, 101, generator=generator, dtype=DOUBLE)
        count = torch.randint(1, 9, (90,), generator=generator)
        table, weight, bias = (t.to(dtype).requires_grad_() for t in (table, weight, bias))
        return table, weight, bias, count

    return make


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_batch_norm_of_rows_that_stand_there_several_times(
    dtype: torch.dtype, norm_inputs: Callable[[torch.dtype], tuple[Tensor, ...]]
) -> None:
    table, weight, bias, count = norm_inputs(dtype)
    kind = torch.repeat_interleave(torch.arange(90), count)
    share = count.to(dtype) / count.sum()
    found, mean, variance = weighted_batch_norm(table, share, weight, bias, 1e-3)
    wanted = F.batch_norm(table[kind], None, None, weight, bias, training=True, eps=1e-3)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found[kind], wanted, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(mean, table[kind].mean(0), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(variance, table[kind].var(0, correction=0), rtol=tolerance, atol=tolerance)
    grad = torch.randn_like(wanted)
    inputs = (table, weight, bias)
    ours = torch.autograd.grad((found[kind] * grad).sum(), inputs)
    theirs = torch.autograd.grad((wanted * grad).sum(), inputs)
    # Sums over rows of both signs: what cancels leaves float32's rounding of the terms, which torch adds in float32.
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=10 * tolerance)


def test_batch_norm_does_not_depend_on_threads(
    norm_inputs: Callable[[torch.dtype], tuple[Tensor, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, weight, bias, count = norm_inputs(torch.float32)
    share = count.float() / count.sum()
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(native, "threads_for", lambda elements, threads=threads: threads)
        out = weighted_batch_norm(table, share, weight, bias)[0]
        results.append((out, *torch.autograd.grad(out.square().sum(), (table, weight, bias))))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_batch_norm_in_a_dispatch_mode_is_computed_by_torch() -> None:
    table = torch.randn(4, 3, dtype=DOUBLE, requires_grad=True)
    share, one = torch.full((4,), 0.25, dtype=DOUBLE), torch.ones(3, dtype=DOUBLE)
    wanted = F.batch_norm(table, None, None, one, one, training=True)
    with FlopCounterMode(display=False):
        found = weighted_batch_norm(table, share, one, one)[0]
        torch.testing.assert_close(found, wanted)
        ours = torch.autograd.grad(found.pow(3).sum(), table)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(wanted.pow(3).sum(), table)[0])
    (grad,) = torch.autograd.grad(weighted_batch_norm(table, share, one, one)[0].sum(), table, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative is not implemented"):
        grad.sum().backward()
    plain = torch.randn(4, 6, dtype=DOUBLE)[:, ::2]
    torch.testing.assert_close(
        weighted_batch_norm(plain, share, one, one)[0], F.batch_norm(plain, None, None, one, one, True)
    )


def test_batch_norm_of_tensors_that_the_kernel_cannot_read() -> None:
    table, share = torch.randn(4, 3, dtype=DOUBLE), torch.full((8,), 0.25, dtype=DOUBLE)[::2]
    one = torch.ones(3, dtype=DOUBLE)
    wanted = F.batch_norm(table, None, None, one, one, training=True)
    torch.testing.assert_close(weighted_batch_norm(table, share, one, one)[0], wanted)
    torch.testing.assert_close(weighted_batch_norm(table, share, one.float(), one.float())[0], wanted)
    with pytest.raises(ValueError, match=r"expected shapes \[K, d\], \[K\], \[d\] and \[d\], got"):
        weighted_batch_norm(table, share, one[:2], one)
