"""The softmax of edges: the formula and its gradients on any graph, by every instruction set."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import Neighbors, native
from sirgcn.ops.softmax import can_run, edge_softmax
from sirgcn.testing import RICH, Graph

pytestmark = pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))


def drawn(graph: Graph, heads: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 5 * torch.randn(graph.edge_index.size(1), heads, generator=generator, dtype=torch.float64)


def plain(scores: Tensor, target: Tensor) -> Tensor:
    """Target by target, as in the formula."""
    out = torch.zeros_like(scores)
    for node in target.unique():
        here = target == node
        out = out.masked_scatter(here.unsqueeze(1), scores[here].softmax(0))
    return out


@given(graph=laws.graphs(), heads=st.integers(1, 3), seed=st.integers(0, 99), lies_by_head=st.booleans())
def test_shares_and_their_gradients_are_the_formula(graph: Graph, heads: int, seed: int, lies_by_head: bool) -> None:
    scores = drawn(graph, heads, seed)
    scores = (scores.t().contiguous().t() if lies_by_head else scores).requires_grad_()
    weight = drawn(graph, heads, seed + 1)
    found = edge_softmax(scores, graph.neighbors()) * weight
    exact = plain(scores, graph.edge_index[1]) * weight
    laws.assert_same(laws.value_and_gradients(found, [scores]), laws.value_and_gradients(exact, [scores]), 1e-12)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("degree", [1, 15, 16, 17, 255, 256, 257, 700])
def test_neighbourhoods_of_any_size_in_float32(degree: int) -> None:
    # Two hubs whose edges take turns, and a node without any.
    target = torch.arange(2 * degree) % 2
    neighbors = Neighbors.from_edge_index(torch.stack([torch.zeros_like(target), target]), 3)
    scores = 30 * torch.randn(2 * degree, 8)
    exact = plain(scores.double(), target)
    torch.testing.assert_close(edge_softmax(scores, neighbors).double(), exact, rtol=1e-5, atol=1e-30)


@pytest.mark.usefixtures("isa")
def test_large_scores_do_not_overflow_and_nan_stays_in_its_neighbourhood() -> None:
    target = torch.tensor([0, 0, 1, 1, 2])
    neighbors = Neighbors.from_edge_index(torch.stack([torch.zeros_like(target), target]), 3)
    scores = torch.tensor([1e30, -1e30, math.nan, 0.0, -math.inf]).unsqueeze(1)
    found = edge_softmax(scores, neighbors).squeeze(1)
    torch.testing.assert_close(found[:2], torch.tensor([1.0, 0.0]))
    assert found[2:].isnan().all()


def test_shares_are_the_same_bits_on_any_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    neighbors = Neighbors.from_edge_index(torch.randint(500, (2, 20000), generator=generator), 500)
    scores = torch.randn(20000, 8, generator=generator)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(edge_softmax(scores, neighbors))
    assert all(torch.equal(one, found[0]) for one in found)


def test_second_derivative_is_refused() -> None:
    scores = drawn(RICH, 2, 0).requires_grad_()
    out = (edge_softmax(scores, RICH.neighbors()) ** 2).sum()
    (first,) = torch.autograd.grad(out, scores, create_graph=True)
    with pytest.raises(RuntimeError, match="edge_softmax: the second derivative is not implemented"):
        first.sum().backward()


def test_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"scores: expected shape \[\d+, heads\], got \[3, 2\]"):
        edge_softmax(torch.zeros(3, 2), RICH.neighbors())
    with pytest.raises(ValueError, match=r"scores: .* CPU tensor of float32 or float64, .*its dtype is torch.bfloat16"):
        edge_softmax(drawn(RICH, 2, 0).bfloat16(), RICH.neighbors())


def test_what_the_kernel_does_not_know_is_left_to_others() -> None:
    assert can_run(torch.zeros(3, 2))
    assert not can_run(torch.zeros(3, 2, dtype=torch.bfloat16))
    with torch.autocast("cpu"):
        assert not can_run(torch.zeros(3, 2))
