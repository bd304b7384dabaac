"""Scores of edges: the formula and its gradients on any graph, by every dtype that a layer has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sirgcn import testing as laws
from sirgcn.ops import Activation
from sirgcn.ops.scores import contextual_scores
from sirgcn.testing import RICH, Graph


def drawn(graph: Graph, seed: int, channels: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = (graph.num_targets, channels), (graph.num_sources, channels), (channels,)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


@given(graph=laws.graphs(), seed=st.integers(0, 99), activation=st.sampled_from(["leaky_relu(0.2)", "gelu", "tanh"]))
def test_scores_and_their_gradients_are_the_formula(graph: Graph, seed: int, activation: str) -> None:
    inputs = query, key, weight = drawn(graph, seed)
    source, target = graph.edge_index.long()
    exact = Activation.parse(activation)(query[target] + key[source]) @ weight
    found = contextual_scores(query, key, weight, graph.neighbors(), activation)
    laws.assert_same(laws.value_and_gradients(found, inputs), laws.value_and_gradients(exact, inputs), 1e-10)


@given(graph=laws.graphs(), seed=st.integers(0, 99), moves=st.booleans())
def test_scores_with_a_weight_for_each_target_are_the_formula(graph: Graph, seed: int, moves: bool) -> None:
    query, key, _ = drawn(graph, seed)
    weight = drawn(graph, seed + 1)[0]
    # Dot products: the query is one row of zeros for all targets, and has no gradient.
    query = query if moves else query.new_zeros(5).expand_as(query)
    activation, inputs = ("tanh", [query, key, weight]) if moves else ("identity", [key, weight])
    source, target = graph.edge_index.long()
    exact = (Activation.parse(activation)(query[target] + key[source]) * weight[target]).sum(1)
    found = contextual_scores(query, key, weight, graph.neighbors(), activation)
    laws.assert_same(laws.value_and_gradients(found, inputs), laws.value_and_gradients(exact, inputs), 1e-10)


def test_scores_of_half_precision_are_summed_in_float32() -> None:
    query, key, weight = (x.detach().to(torch.bfloat16).requires_grad_() for x in drawn(RICH, 0, 64))
    source, target = RICH.edge_index
    found = contextual_scores(query, key, weight, RICH.neighbors(), "relu")
    assert found.dtype == torch.float32
    exact = (query.double()[target] + key.double()[source]).relu() @ weight.double()
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    found.sum().backward()
    assert query.grad is not None
    assert query.grad.dtype == torch.bfloat16


def test_second_derivative_is_refused() -> None:
    query, key, weight = drawn(RICH, 0)
    out = contextual_scores(query, key, weight, RICH.neighbors()).sum() + (query**3).sum()
    (first,) = torch.autograd.grad(out, query, create_graph=True)
    with pytest.raises(RuntimeError, match="contextual_scores: the second derivative is not implemented"):
        first.sum().backward()


def test_terms_that_do_not_fit_are_refused() -> None:
    query, key, weight = drawn(RICH, 0)
    with pytest.raises(ValueError, match="key: expected the channels"):
        contextual_scores(query, key[:, :3], weight, RICH.neighbors())
    with pytest.raises(ValueError, match=r"weight: expected shape \[5\] or \[7, 5\], got \[2, 5\]"):
        contextual_scores(query, key, query[:2], RICH.neighbors())
