"""1-WL and the paper's modification (Section 4.5): where they agree, where they do not, and against other programs."""

from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import WLConv
from torch_geometric.utils import to_networkx

from sirgcn.nn import SIRConv
from sirgcn.theory.separation import circulant, equal_for_wl
from sirgcn.theory.wl import Refinement, refine, wl_test
from tests.theory.graphs import labelled_graphs, permuted, same_classes, tree


def by_definition(data: Data, rule: str, rounds: int) -> list[list[Any]]:
    """The update rule with nested tuples for colours, which need no hash."""
    colours: list[Any] = [tuple(row) for row in data.x.reshape(data.num_nodes, -1).tolist()]
    history = [colours]
    for _ in range(rounds):
        around: list[list[Any]] = [[] for _ in colours]
        for v, u in data.edge_index.T.tolist():
            around[u].append(colours[v] if rule == "classical" else (colours[v], colours[u]))
        own = colours if rule == "classical" else [None] * len(colours)
        colours = [(own[u], tuple(sorted(here, key=repr))) for u, here in enumerate(around)]
        history.append(colours)
    return history


def as_colours(values: list[Any]) -> Tensor:
    order = list(dict.fromkeys(values))
    return torch.tensor([order.index(value) for value in values], dtype=torch.int64)


@pytest.mark.parametrize("rule", ["classical", "modified"])
@given(data=labelled_graphs(), rounds=st.integers(0, 3))
def test_every_round_is_that_of_the_definition(rule: str, data: Data, rounds: int) -> None:
    found = refine(data, rule, rounds)
    assert found.rounds == rounds
    for row, expected in zip(found.colours, by_definition(data, rule, rounds), strict=True):
        assert same_classes(row, as_colours(expected))


@given(labelled_graphs(isolated=False))
def test_without_isolated_nodes_both_rules_refine_alike(data: Data) -> None:
    classical, modified = refine(data, "classical"), refine(data, "modified")
    assert classical.rounds == modified.rounds
    for one, other in zip(classical.colours, modified.colours, strict=True):
        assert same_classes(one, other)


@given(labelled_graphs(), st.integers(1, 3))
def test_an_isolated_node_keeps_its_label_in_the_classical_rule_only(data: Data, rounds: int) -> None:
    isolated = torch.bincount(data.edge_index[1], minlength=data.num_nodes) == 0
    assume(int(isolated.sum()) >= 2)
    labels = data.x[isolated]
    assert same_classes(refine(data, "classical", rounds).colours[-1][isolated], labels)
    assert len(refine(data, "modified", rounds).colours[-1][isolated].unique()) == 1
    assert same_classes(refine(data, "modified", 0).colours[0][isolated], labels)


@given(labelled_graphs(), st.integers(0, 2**16))
def test_a_sir_conv_forgets_the_features_of_isolated_nodes_unless_it_has_a_residual(data: Data, seed: int) -> None:
    isolated = torch.bincount(data.edge_index[1], minlength=data.num_nodes) == 0
    assume(int(isolated.sum()) >= 2)
    torch.manual_seed(seed)
    x = torch.nn.functional.one_hot(data.x, 3).double()
    for residual in (False, True):
        out = SIRConv(3, 4, residual=residual).double()(x, data.edge_index)[isolated]
        equal = torch.tensor([[bool((one - other).abs().max() < 1e-12) for other in out] for one in out])
        labels = data.x[isolated]
        assert torch.equal(equal, (labels[:, None] == labels) if residual else torch.ones_like(equal))


@given(labelled_graphs(), st.integers(1, 4))
def test_the_modified_rule_never_separates_what_the_classical_one_does_not(data: Data, rounds: int) -> None:
    classical, modified = (refine(data, rule, rounds).colours[-1] for rule in ("classical", "modified"))
    assert same_classes(torch.stack([classical, modified]).unique(dim=1, return_inverse=True)[1], classical)


@given(labelled_graphs(), st.sampled_from(["classical", "modified"]))
def test_refinement_ends_where_another_round_changes_nothing(data: Data, rule: str) -> None:
    found = refine(data, rule)
    assert found.is_stable
    assert found.rounds <= data.num_nodes + 2
    longer = refine(data, rule, found.rounds + 2)
    assert same_classes(longer.colours[-1], found.colours[-1])


@given(labelled_graphs(undirected=True), st.integers(1, 3))
def test_the_classical_rule_is_pyg_s(data: Data, rounds: int) -> None:
    conv, colours = WLConv(), data.x
    for _ in range(rounds):
        colours = conv(colours, data.edge_index)
    assert same_classes(refine(data, "classical", rounds).colours[-1], colours)


@given(labelled_graphs(undirected=True), labelled_graphs(undirected=True), st.integers(0, 2**16))
def test_the_verdict_is_never_wrong(one: Data, other: Data, seed: int) -> None:
    copy = permuted(one, seed)
    for rule in ("classical", "modified"):
        assert wl_test(one, copy, rule).isomorphic is None
        if wl_test(one, other, rule).isomorphic is False:
            match = nx.algorithms.isomorphism.categorical_node_match("x", None)
            graphs = (to_networkx(graph, node_attrs=["x"], to_multi=True) for graph in (one, other))
            assert not nx.is_isomorphic(*graphs, node_match=match)


@given(st.integers(2, 9), st.integers(0, 2**16), st.integers(0, 2**16))
def test_trees_are_told_apart_exactly_where_they_differ(nodes: int, seed: int, other_seed: int) -> None:
    one, other = tree(nodes, seed), tree(nodes, other_seed)
    isomorphic = nx.is_isomorphic(*(to_networkx(graph, to_undirected=True) for graph in (one, other)))
    assert wl_test(one, other).isomorphic is (None if isomorphic else False)
    assert wl_test(one, other, "modified").isomorphic is (None if isomorphic else False)


@pytest.mark.parametrize("name", equal_for_wl())
def test_regular_graphs_are_not_told_apart(name: str) -> None:
    one, other = equal_for_wl()[name]
    for rule in ("classical", "modified"):
        verdict = wl_test(one, other, rule)
        assert (verdict.isomorphic, verdict.round) == (None, None)
    assert not nx.is_isomorphic(*(to_networkx(graph, to_undirected=True) for graph in (one, other)))


def test_the_history_tells_the_round_and_the_colours() -> None:
    path = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    star = Data(edge_index=torch.tensor([[0, 1, 0, 2, 0, 3], [1, 0, 2, 0, 3, 0]]))
    verdict = wl_test(path, star)
    assert (verdict.isomorphic, verdict.round) == (False, 1)
    assert verdict.history[0] == ({0: 4}, {0: 4})
    assert [sorted(side.values()) for side in verdict.history[1]] == [[2, 2], [1, 3]]
    assert refine(path).classes() == [[0, 3], [1, 2]]


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.floats(0.01, 0.5))
def test_real_features_within_the_tolerance_start_in_one_class(values: list[float], tolerance: float) -> None:
    data = Data(x=torch.tensor(values, dtype=torch.float64), edge_index=torch.empty(2, 0, dtype=torch.int64))
    order = sorted(range(len(values)), key=values.__getitem__)
    assume(all(abs(values[b] - values[a] - tolerance) > 1e-9 for a, b in pairwise(order)))
    expected = [0] * len(values)
    for place, (a, b) in enumerate(pairwise(order)):
        expected[b] = expected[a] if values[b] - values[a] <= tolerance else place + 1
    assert same_classes(refine(data, rounds=0, tolerance=tolerance).colours[0], torch.tensor(expected))
    assert same_classes(refine(data, rounds=0).colours[0], as_colours(values))


def test_graphs_without_nodes_or_edges_have_a_refinement() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    found = refine(Data(edge_index=none, num_nodes=0))
    assert isinstance(found, Refinement)
    assert found.classes() == []
    assert refine(Data(edge_index=none, num_nodes=3)).classes() == [[0, 1, 2]]
    assert wl_test(Data(edge_index=none, num_nodes=3), Data(edge_index=none, num_nodes=2)).round == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "2-WL"}, "rule: expected one of classical, modified, got '2-WL'"),
        ({"rounds": -1}, "rounds: expected at least 0"),
        ({"tolerance": -1.0}, "tolerance: expected a number of at least 0"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refine(circulant(3), **arguments)


def test_graphs_that_do_not_fit_are_refused() -> None:
    edges = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="expected features in all graphs or in none"):
        wl_test(circulant(3), Data(x=torch.zeros(3), edge_index=edges))
    with pytest.raises(ValueError, match="expected features of one width, got 1, 2"):
        wl_test(Data(x=torch.zeros(2, 1), edge_index=edges), Data(x=torch.zeros(2, 2), edge_index=edges))
    with pytest.raises(ValueError, match=r"expected finite features, got \[nan\] at node 1"):
        refine(Data(x=torch.tensor([0.0, float("nan")]), edge_index=edges))
    with pytest.raises(ValueError, match="expected x or num_nodes in a graph without edges"):
        refine(Data(edge_index=edges[:, :0]))
    with pytest.raises(IndexError, match="edge_index"):
        refine(Data(edge_index=torch.tensor([[0], [-1]]), num_nodes=2))
