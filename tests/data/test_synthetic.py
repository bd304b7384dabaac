from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from sirgcn.data import dictionary_lookup, hetero_edge_count

Generator = Callable[..., list[Data]]

sizes = st.integers(1, 8)
counts = st.integers(1, 5)
seeds = st.integers(0, 2**63)
generators = st.sampled_from([dictionary_lookup, hetero_edge_count])


def fields(graphs: Sequence[Data]) -> list[dict[str, list[Any]]]:
    return [{name: field.tolist() for name, field in graph.to_dict().items()} for graph in graphs]


def equal(a: Sequence[Data], b: Sequence[Data]) -> bool:
    return fields(a) == fields(b)


@given(generators, sizes, counts, seeds)
def test_same_seed_gives_same_data(generate: Generator, size: int, num_graphs: int, seed: int) -> None:
    torch.manual_seed(seed % 1000)
    state = torch.get_rng_state()
    first = generate(size, num_graphs, seed)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(first) == num_graphs
    torch.manual_seed(seed % 1000 + 1)
    assert equal(first, generate(size, num_graphs, seed))


@given(generators, st.integers(0, 1000), st.integers(0, 1000))
def test_other_seed_gives_other_data(generate: Generator, seed: int, other: int) -> None:
    # 8! ** 5 permutations and far more graphs: an equal draw would be a broken seed, not chance.
    assert equal(generate(8, 5, seed), generate(8, 5, other)) == (seed == other)


@given(sizes, counts, seeds)
def test_query_answer_is_value_of_key_with_its_attribute(n: int, num_graphs: int, seed: int) -> None:
    for graph in dictionary_lookup(n, num_graphs, seed):
        assert graph.x.dtype == graph.y.dtype == torch.int64
        assert graph.x.shape == (2 * n, 2)
        queries, keys = graph.x[graph.query_mask], graph.x[~graph.query_mask]
        value = dict(keys.tolist())
        assert sorted(value) == sorted(value.values()) == list(range(n))
        assert queries.tolist() == [[attribute, n] for attribute in range(n)]
        assert graph.y.tolist() == [value[attribute] for attribute in queries[:, 0].tolist()]


@given(sizes, seeds)
def test_every_key_sends_one_edge_to_every_query(n: int, seed: int) -> None:
    (graph,) = dictionary_lookup(n, 1, seed)
    assert graph.validate()
    assert graph.query_mask.tolist() == [True] * n + [False] * n
    assert graph.num_edges == n * n
    edges = set(zip(*graph.edge_index.tolist(), strict=True))
    assert edges == {(key, query) for key in range(n, 2 * n) for query in range(n)}


@given(sizes, counts, seeds)
def test_answers_stay_with_their_queries_in_a_batch(n: int, num_graphs: int, seed: int) -> None:
    graphs = dictionary_lookup(n, num_graphs, seed)
    batch = Batch.from_data_list(graphs)
    assert batch.num_nodes == 2 * n * num_graphs
    assert torch.equal(batch.y, torch.cat([graph.y for graph in graphs]))
    keys = batch.x[~batch.query_mask].view(num_graphs, n, 2)
    queries = batch.x[batch.query_mask].view(num_graphs, n, 2)
    assert torch.equal(batch.y.view(num_graphs, n), keys[:, :, 1].gather(1, queries[:, :, 0]))


@given(sizes, counts, seeds, st.integers(2, 12))
def test_target_counts_edges_between_labels(c: int, num_graphs: int, seed: int, max_nodes: int) -> None:
    for graph in hetero_edge_count(c, num_graphs, seed, max_nodes):
        assert graph.x.dtype == torch.int64
        assert graph.y.dtype == torch.float32
        assert graph.y.shape == (1,)
        label = graph.x.tolist()
        assert all(0 <= value < c for value in label)
        edges = list(zip(*graph.edge_index.tolist(), strict=True))
        assert graph.y.item() == sum(label[v] != label[u] for v, u in edges)


@given(sizes, counts, seeds, st.integers(2, 12))
def test_edges_are_distinct_pairs_in_the_stated_number(c: int, num_graphs: int, seed: int, max_nodes: int) -> None:
    for graph in hetero_edge_count(c, num_graphs, seed, max_nodes):
        n = graph.num_nodes
        assert 2 <= n <= max_nodes
        assert graph.validate()
        edges = list(zip(*graph.edge_index.tolist(), strict=True))
        assert len(set(edges)) == len(edges)
        assert n * n // 4 <= len(edges) <= n * n


def test_all_sizes_and_edge_numbers_occur() -> None:
    graphs = hetero_edge_count(2, num_graphs=2000, max_nodes=4)
    seen = {(graph.num_nodes, graph.num_edges) for graph in graphs}
    assert seen == {(n, m) for n in (2, 3, 4) for m in range(n * n // 4, n * n + 1)}
    assert any(graph.has_self_loops() for graph in graphs)


def test_permutations_are_uniform() -> None:
    answers = torch.stack([graph.y for graph in dictionary_lookup(3, num_graphs=6000)])
    _, occurrences = answers.unique(dim=0, return_counts=True)
    # Six permutations of expectation 1000; 145 is 5 standard deviations of Binomial(6000, 1/6).
    assert len(occurrences) == 6
    assert (occurrences - 1000).abs().max() < 145


def test_graphs_of_one_draw_differ() -> None:
    for generate in (dictionary_lookup, hetero_edge_count):
        assert not any(equal([a], [b]) for a, b in pairwise(generate(8, 20)))


@pytest.mark.parametrize(
    ("generate", "arguments", "name"),
    [
        (dictionary_lookup, {"n": 0}, "n"),
        (dictionary_lookup, {"n": 2, "num_graphs": 0}, "num_graphs"),
        (dictionary_lookup, {"n": 2, "seed": -1}, "seed"),
        (hetero_edge_count, {"c": 0}, "c"),
        (hetero_edge_count, {"c": 2, "num_graphs": -3}, "num_graphs"),
        (hetero_edge_count, {"c": 2, "seed": -1}, "seed"),
        (hetero_edge_count, {"c": 2, "max_nodes": 1}, "max_nodes"),
    ],
)
@pytest.mark.parametrize(("replacement", "error"), [(None, ValueError), (2.5, TypeError), (True, TypeError)])
def test_bad_argument_is_named(
    generate: Generator,
    arguments: dict[str, Any],
    name: str,
    replacement: object,
    error: type[Exception],
) -> None:
    value = arguments[name] if replacement is None else replacement
    with pytest.raises(error, match=rf"^{name}: expected an integer >= \d, got {value!r}"):
        generate(**{**arguments, name: value})


def test_numpy_integers_are_integers() -> None:
    assert equal(dictionary_lookup(np.int64(3), 2), dictionary_lookup(3, 2))  # type: ignore[arg-type]
