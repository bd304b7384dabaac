import re
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from sirgcn.ops import Neighbors, native, sir_aggregate
from sirgcn.ops.sampling import Draw, InEdges, TorchNumbers, draw_neighbors, new_numbers, seed_of
from sirgcn.testing import Graph, graphs

needs_c = pytest.mark.skipif(native.UNAVAILABLE is not None, reason="the C extension was not built")


def stars(targets: int, degree: int) -> InEdges:
    """Targets with equally many neighbours of their own."""
    edge = torch.arange(targets * degree)
    return InEdges.of(torch.stack([edge, edge // degree]), (targets * degree, targets))


def chi_square(counts: Tensor) -> float:
    """The probability of counts as uneven as these, if all values are equally likely."""
    expected = counts.sum() / len(counts)
    return float(chi2.sf(float(((counts - expected) ** 2 / expected).sum()), len(counts) - 1))


def subset_numbers(edges: InEdges, how: Draw, degree: int) -> Tensor:
    """Which of all possible sets of neighbours each target has drawn."""
    found, owner, _ = draw_neighbors(edges, torch.arange(edges.num_targets), how)
    is_drawn = torch.zeros(edges.num_targets, degree, dtype=torch.int64)
    is_drawn[owner, found % degree] = 1
    code = (is_drawn * 2 ** torch.arange(degree)).sum(1)
    known = torch.tensor(sorted(sum(2**place for place in one) for one in combinations(range(degree), how.fanout)))
    assert bool(torch.isin(code, known).all())
    return torch.searchsorted(known, code)


@needs_c
@given(graphs(), st.integers(-1, 8), st.booleans(), st.booleans(), st.integers(-(2**63), 2**63 - 1))
def test_c_and_torch_draw_the_same(graph: Graph, fanout: int, replace: bool, has_trees: bool, seed: int) -> None:
    edges = InEdges.of(graph.edge_index, (graph.num_sources, graph.num_targets))
    frontier = torch.arange(graph.num_targets)
    root = frontier.flip(0) if has_trees else None
    keys = frontier + torch.arange(len(frontier)) * graph.num_targets if has_trees else frontier
    drawn = [draw_neighbors(edges, keys, Draw(fanout, seed, replace), root, name) for name in ("native", "torch")]
    for ours, plain in zip(*drawn, strict=True):
        assert torch.equal(ours, plain)


@needs_c
@pytest.mark.parametrize("fanout", [47, 48, 49, 300])
def test_c_and_torch_draw_the_same_from_large_neighbourhoods(fanout: int) -> None:
    edges = stars(5, 700)
    ours, plain = (draw_neighbors(edges, torch.arange(5), Draw(fanout, 3), None, name) for name in ("native", "torch"))
    assert all(map(torch.equal, ours, plain))
    assert len(ours[0].unique()) == 5 * fanout


@given(graphs(), st.integers(0, 6))
def test_drawn_edges_are_different_edges_of_the_graph(graph: Graph, fanout: int) -> None:
    edges = InEdges.of(graph.edge_index, (graph.num_sources, graph.num_targets))
    found, owner, edge = draw_neighbors(edges, torch.arange(graph.num_targets), Draw(fanout, 0))
    assert torch.equal(torch.stack([found, owner]), graph.edge_index.long()[:, edge])
    assert len(edge.unique()) == len(edge)
    wanted = edges.in_degree().long().clamp(max=fanout)
    assert torch.equal(torch.bincount(owner, minlength=graph.num_targets), wanted)


@pytest.mark.parametrize(("degree", "fanout"), [(6, 3), (5, 1), (7, 6)])
def test_every_set_of_neighbours_is_equally_likely(degree: int, fanout: int) -> None:
    numbers = subset_numbers(stars(20_000, degree), Draw(fanout, seed_of(7)), degree)
    assert chi_square(torch.bincount(numbers)) > 1e-3


def test_draws_with_replacement_are_uniform() -> None:
    found, _, _ = draw_neighbors(stars(20_000, 9), torch.arange(20_000), Draw(4, seed_of(8), replace=True))
    assert chi_square(torch.bincount(found % 9)) > 1e-3


@pytest.mark.parametrize("other", [lambda: Draw(2, seed_of(1, 1)), lambda: Draw(2, seed_of(2, 0))])
def test_draws_of_other_seeds_are_independent(other: Callable[[], Draw]) -> None:
    edges = stars(30_000, 4)
    first, second = (subset_numbers(edges, how, 4) for how in (Draw(2, seed_of(1, 0)), other()))
    assert chi_square(torch.bincount(first * 6 + second, minlength=36)) > 1e-3


def test_draws_of_neighbouring_targets_are_independent() -> None:
    numbers = subset_numbers(stars(60_000, 4), Draw(2, seed_of(5)), 4)
    assert chi_square(torch.bincount(numbers[::2] * 6 + numbers[1::2], minlength=36)) > 1e-3


@needs_c
def test_draws_do_not_depend_on_threads() -> None:
    edges, before = stars(5000, 20), torch.get_num_threads()
    drawn = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        drawn.append(draw_neighbors(edges, torch.arange(5000), Draw(7, 1)))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *drawn))


def test_a_draw_does_not_depend_on_the_frontier() -> None:
    edges = stars(100, 20)
    alone = draw_neighbors(edges, torch.tensor([42]), Draw(5, 1))[0]
    found, owner, _ = draw_neighbors(edges, torch.arange(100).flip(0), Draw(5, 1))
    assert torch.equal(found[owner == 57], alone)


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=5))
def test_numbers_in_c_and_torch_are_those_of_a_dictionary(found: list[list[int]]) -> None:
    known: dict[int, int] = {}
    ours, plain = new_numbers(), TorchNumbers()
    for keys in found:
        wanted = [known.setdefault(key, len(known)) for key in keys]
        assert ours.add(torch.tensor(keys, dtype=torch.int64)).tolist() == wanted
        assert plain.add(torch.tensor(keys, dtype=torch.int64)).tolist() == wanted
    every = torch.arange(31)
    assert ours.keys.tolist() == plain.keys.tolist() == list(known)
    assert ours.find(every).tolist() == plain.find(every).tolist() == [known.get(key, -1) for key in range(31)]


@needs_c
def test_numbers_of_many_keys_survive_wider_tables() -> None:
    keys = torch.randint(2**40, (600_000,), generator=torch.Generator().manual_seed(0))
    ours, plain = new_numbers("native"), new_numbers("torch")
    assert torch.equal(ours.add(keys), plain.add(keys))
    assert torch.equal(ours.keys, plain.keys)


@pytest.mark.parametrize("reduce", ["sum", "mean", "sym", "sym_in"])
def test_a_sample_has_the_expected_value_of_the_whole_neighbourhood(reduce: str) -> None:
    """Copies of one neighbourhood: their mean is close to the whole, within 5 standard errors."""
    copies, degree, fanout = 20_000, 10, 3
    sources = torch.arange(degree).repeat(copies) + copies
    edge_index = torch.stack([sources, torch.arange(copies).repeat_interleave(degree)])
    nodes = copies + degree
    whole = Neighbors.from_edge_index(edge_index, nodes)
    found, owner, _ = draw_neighbors(InEdges.of(edge_index, (nodes, nodes)), torch.arange(nodes), Draw(fanout, 1))
    drawn = Neighbors.from_edge_index(torch.stack([found, owner]), nodes)
    drawn = drawn.sampled_from(whole.in_degree(), whole.out_degree())
    key = torch.randn(nodes, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    query = torch.full((nodes, 1), 0.3, dtype=torch.float64)
    wanted, estimate = (sir_aggregate(query, key, graph, reduce=reduce)[:copies] for graph in (whole, drawn))
    error = float(estimate.std()) / copies**0.5
    assert abs(float(estimate.mean() - wanted[0])) < 5 * error
    assert float(estimate.std()) > 0


def test_a_sample_of_all_neighbours_is_the_whole() -> None:
    graph = Neighbors.from_edge_index(torch.randint(9, (2, 40), generator=torch.Generator().manual_seed(0)), 9)
    as_sample = graph.sampled_from(graph.in_degree(), graph.out_degree())
    h = torch.randn(9, 3)
    for reduce in ("sum", "mean", "sym", "sym_in"):
        torch.testing.assert_close(
            sir_aggregate(h, h, as_sample, reduce=reduce), sir_aggregate(h, h, graph, reduce=reduce)
        )


def test_degrees_of_the_whole_graph_follow_it_to_another_dtype() -> None:
    graph = Neighbors.from_edge_index(torch.tensor([[1], [0]]), 2)
    moved = graph.sampled_from(torch.tensor([4, 0]), torch.tensor([0, 1])).to(torch.int32)
    assert moved.whole_degrees is not None
    assert moved.whole_degrees.into.tolist() == [4, 0]
    assert moved.alone().whole_degrees is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: InEdges.of(torch.tensor([[0], [5]]), (3, 3)), "edge_index[1, 0] = 5"),
        (lambda: InEdges.of(torch.tensor([[-1], [0]]), (3, 3)), "edge_index[0, 0] = -1"),
        (lambda: new_numbers("c"), "backend: expected native, torch or None, got 'c'"),
        (
            lambda: Neighbors.from_edge_index(torch.tensor([[1], [0]]), 2).sampled_from(
                torch.tensor([1]), torch.tensor([1, 1])
            ),
            "into: expected 2 whole numbers, got torch.int64 [1]",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=re.escape(message)):
        call()


@needs_c
def test_a_neighbour_that_is_no_node_is_refused() -> None:
    """Groups that come from a file, and that no constructor has checked."""
    edges = InEdges(torch.tensor([0, 1]), torch.tensor([7]), None, 3)
    with pytest.raises(ValueError, match="node: expected numbers below 3"):
        draw_neighbors(edges, torch.tensor([0]), Draw(-1, 0))
