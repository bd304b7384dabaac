"""A SIR-GCN with random weights tells apart what the modified 1-WL test does, and more with random features."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch_geometric.data import Data

from sirgcn.theory.separation import (
    THRESHOLD,
    Frequency,
    as_features,
    distinct_nodes,
    random_feature_test,
    separation_frequency,
    sir_separation,
)
from sirgcn.theory.wl import refine, wl_test
from tests.theory.graphs import csl, labelled_graphs, permuted, ring, tree

# What 1-WL cannot tell apart: sums in another order.
ROUNDING = 1e-12


@given(labelled_graphs(), labelled_graphs(), st.integers(0, 3), st.integers(0, 2**16))
def test_l_layers_separate_exactly_what_round_l_of_the_modified_test_does(
    one: Data, other: Data, layers: int, seed: int
) -> None:
    mine, others = wl_test(one, other, "modified", layers).history[layers]
    gap = sir_separation(one, other, layers, seed=seed)
    assert gap > THRESHOLD if mine != others else gap < ROUNDING


@given(labelled_graphs(), st.integers(0, 3), st.integers(0, 2**16))
def test_isomorphic_graphs_are_never_separated(data: Data, layers: int, seed: int) -> None:
    assert sir_separation(data, permuted(data, seed), layers, seed=seed) < ROUNDING


@given(st.integers(4, 9), st.integers(0, 2**16), st.integers(0, 2**16))
def test_trees_are_separated_where_1_wl_separates_them(nodes: int, seed: int, other_seed: int) -> None:
    one, other = tree(nodes, seed), tree(nodes, other_seed)
    verdict = wl_test(one, other)
    assume(verdict.round is not None)
    assert verdict.round is not None
    assert sir_separation(one, other, verdict.round) > THRESHOLD


REGULAR = {
    "hexagon and triangles": (ring(6), ring(3, copies=2)),
    "CSL(11, 2) and CSL(11, 3)": (csl(11, 2), csl(11, 3)),
    "CSL(41, 2) and CSL(41, 9)": (csl(41, 2), csl(41, 9)),
}


@pytest.mark.parametrize("name", REGULAR)
def test_regular_graphs_are_not_separated(name: str) -> None:
    one, other = REGULAR[name]
    assert all(sir_separation(one, other, layers, seed=seed) < ROUNDING for layers in (1, 3, 5) for seed in range(5))


@pytest.mark.parametrize("name", ["hexagon and triangles", "CSL(11, 2) and CSL(11, 3)"])
def test_random_features_separate_them_with_high_probability(name: str) -> None:
    one, other = REGULAR[name]
    assert separation_frequency(one, other, weights=20).rate >= 0.9
    # At the level 1e-3, twenty tests of equal distributions.
    assert separation_frequency(one, permuted(one, 1), weights=20).hits <= 1


def test_one_layer_is_too_few_for_random_features_to_close_a_cycle() -> None:
    one, other = REGULAR["hexagon and triangles"]
    assert separation_frequency(one, other, weights=20, layers=1).hits <= 1


@given(st.integers(3, 8), st.integers(1, 3), st.integers(0, 2**16))
def test_random_features_make_equal_nodes_distinct(nodes: int, layers: int, seed: int) -> None:
    data = ring(nodes)
    (everyone,) = refine(data).classes()
    found = distinct_nodes(data, everyone, draws=20, layers=layers, seed=seed)
    assert found.rate == 1
    # Without them they are equal.
    x = as_features(None, nodes)
    assert len(x.unique(dim=0)) == 1


@given(st.integers(1, 400), st.data())
def test_the_interval_of_a_frequency_holds_its_rate(trials: int, data: st.DataObject) -> None:
    found = Frequency(data.draw(st.integers(0, trials)), trials)
    low, high = found.interval
    assert 0 <= low <= found.rate + 1e-12
    assert found.rate - 1e-12 <= high <= 1


def test_the_interval_is_wilson_s() -> None:
    """Agresti and Coull (1998): 0 of 10 gives 0 to 0.278."""
    assert Frequency(0, 10).interval == pytest.approx((0, 0.2775), abs=1e-4)
    assert str(Frequency(10, 10)) == "10 of 10 (0.722 to 1.000)"


def test_labels_features_and_none_enter_as_they_should() -> None:
    assert as_features(None, 2).tolist() == [[1], [1]]
    assert as_features(torch.tensor([5, 7, 5]), 3).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert as_features(torch.tensor([[0.5], [2.0]]), 2).tolist() == [[0.5], [2.0]]


def test_labels_mean_the_same_in_both_graphs() -> None:
    one, other = (Data(x=torch.full((6,), label), edge_index=ring(6).edge_index) for label in (0, 1))
    assert sir_separation(one, other, 1) > THRESHOLD
    assert random_feature_test(one, other) < 1e-6
    assert random_feature_test(one, one) > 1e-3


def test_torch_s_random_state_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    random_feature_test(ring(3), ring(4), draws=100)
    sir_separation(ring(3), ring(4), 2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="draws: expected more than 10 for each of 4 channels, got 40"):
        random_feature_test(ring(3), ring(3), draws=40)
    with pytest.raises(ValueError, match="nodes: expected at least two"):
        distinct_nodes(ring(3), [0])
    with pytest.raises(ValueError, match="layers: expected at least 0"):
        sir_separation(ring(3), ring(3), -1)
    with pytest.raises(ValueError, match="level: expected 0 < level < 1"):
        separation_frequency(ring(3), ring(3), level=1.0)
