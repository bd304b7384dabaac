"""A SIR-GCN with random weights tells apart what the modified 1-WL test does, and more with random features."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from sirgcn.theory.pseudometrics import row_distances
from sirgcn.theory.separation import (
    THRESHOLD,
    Frequency,
    RandomSIRGCN,
    as_features,
    circulant,
    distinct_nodes,
    equal_for_wl,
    random_feature_test,
    separation_frequency,
    sir_separation,
)
from sirgcn.theory.wl import refine, wl_test
from tests.theory.graphs import labelled_graphs, permuted, tree

# Graphs that 1-WL cannot tell apart have the same sums in another order.
ROUNDING = 1e-12


@given(labelled_graphs(), labelled_graphs(), st.integers(0, 3), st.integers(0, 2**16))
def test_l_layers_separate_exactly_what_round_l_of_the_modified_test_does(
    one: Data, other: Data, layers: int, seed: int
) -> None:
    mine, others = wl_test(one, other, "modified", layers).history[layers]
    gap = sir_separation(one, other, layers, seed=seed)
    assert gap > THRESHOLD if mine != others else gap < ROUNDING


def equal_sums() -> Data:
    """Two trees, whose roots have children with 1 and 3 leaves, and with 2 and 2. Linear sums are equal on both."""
    edges = []
    for root, (one, other) in ((0, (1, 3)), (7, (2, 2))):
        edges += [(root, root + 1), (root, root + 2)]
        edges += [(root + 1 + (leaf >= one), root + 3 + leaf) for leaf in range(one + other)]
    return Data(x=torch.zeros(14, dtype=torch.int64), edge_index=to_undirected(torch.tensor(edges).T))


@given(labelled_graphs(), st.integers(0, 3), st.integers(0, 2**16))
@example(equal_sums(), 2, 0)
def test_l_layers_tell_nodes_apart_exactly_where_round_l_of_the_modified_test_does(
    data: Data, layers: int, seed: int
) -> None:
    colours = refine(data, "modified", layers).colours[layers]
    x = as_features(data.x, len(data.x))
    with torch.no_grad():
        found = RandomSIRGCN(x.size(1), layers, seed=seed).nodes(x, data.edge_index)
    apart = row_distances(found, found) / found.norm(dim=1).max()
    is_equal = colours[:, None] == colours
    assert bool((apart[is_equal] < ROUNDING).all())
    assert bool((apart[~is_equal] > THRESHOLD).all())


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


REGULAR = equal_for_wl()


@pytest.mark.parametrize("name", REGULAR)
def test_regular_graphs_are_not_separated(name: str) -> None:
    one, other = REGULAR[name]
    assert all(sir_separation(one, other, layers, seed=seed) < ROUNDING for layers in (1, 3, 5) for seed in range(5))


@pytest.mark.parametrize("name", ["a hexagon and two triangles", "CSL(11, 2) and CSL(11, 3)"])
def test_random_features_separate_them_with_high_probability(name: str) -> None:
    one, other = REGULAR[name]
    assert separation_frequency(one, other, weights=20).rate >= 0.9
    # At the level 1e-3, twenty tests of equal distributions.
    assert separation_frequency(one, permuted(one, 1), weights=20).hits <= 1


def test_one_layer_is_too_few_for_random_features_to_close_a_cycle() -> None:
    one, other = REGULAR["a hexagon and two triangles"]
    assert separation_frequency(one, other, weights=20, layers=1).hits <= 1


@given(st.integers(3, 8), st.integers(1, 3), st.integers(0, 2**16))
def test_random_features_make_equal_nodes_distinct(nodes: int, layers: int, seed: int) -> None:
    data = circulant(nodes)
    (everyone,) = refine(data).classes()
    found = distinct_nodes(data, everyone, draws=20, layers=layers, seed=seed)
    assert found.rate == 1
    # Without them they are equal.
    alike = RandomSIRGCN(1, layers, seed=seed).nodes(as_features(None, nodes), data.edge_index)
    torch.testing.assert_close(alike, alike[:1].expand_as(alike), rtol=ROUNDING, atol=ROUNDING)


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
    one, other = (Data(x=torch.full((6,), label), edge_index=circulant(6).edge_index) for label in (0, 1))
    assert sir_separation(one, other, 1) > THRESHOLD
    assert random_feature_test(one, other) < 1e-6
    assert random_feature_test(one, one) > 1e-3


def test_torch_s_random_state_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    random_feature_test(circulant(3), circulant(4), draws=100)
    sir_separation(circulant(3), circulant(4), 2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="draws: expected more than 10 for each of 4 channels, got 40"):
        random_feature_test(circulant(3), circulant(3), draws=40)
    with pytest.raises(ValueError, match="nodes: expected at least two"):
        distinct_nodes(circulant(3), [0])
    with pytest.raises(ValueError, match="layers: expected at least 0"):
        sir_separation(circulant(3), circulant(3), -1)
    with pytest.raises(ValueError, match="level: expected 0 < level < 1"):
        separation_frequency(circulant(3), circulant(3), level=1.0)
    none = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    with pytest.raises(ValueError, match="an edge in at least one of the graphs"):
        random_feature_test(none, none)
    with pytest.raises(ValueError, match=r"steps from 1 to nodes - 1, got 5, 1, \[5\]"):
        circulant(5, (5,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circulant(6.0), "nodes: expected a whole number, got 6.0"),  # type: ignore[arg-type]
        (lambda: RandomSIRGCN(3, -1), "layers: expected at least 0, got -1"),
        (lambda: distinct_nodes(circulant(6), [0, 1], draws=0), "draws: expected at least 1, got 0"),
        (lambda: distinct_nodes(circulant(6), [0, 99]), "nodes: expected numbers from 0 to 5"),
        (lambda: distinct_nodes(circulant(6), [0, -1]), "nodes: expected numbers from 0 to 5"),
    ],
)
def test_number_that_cannot_be_one_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        call()
