from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from sirgcn.data import DataError, Task, dictionary_lookup, hetero_edge_count, unique_signature
from sirgcn.data.sets.synthetic import dictionary_lookup_task, hetero_edge_count_task, unique_signature_task
from sirgcn.strict import ConfigError

Generator = Callable[..., list[Data]]


def signatures(r: int, num_graphs: int = 5000, seed: int = 0) -> list[Data]:
    return unique_signature(0.5, r, num_graphs, seed)


sizes = st.integers(1, 8)
counts = st.integers(1, 5)
seeds = st.integers(0, 2**63)
generators = st.sampled_from([dictionary_lookup, hetero_edge_count, signatures])


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


@given(st.floats(0, 1), st.integers(1, 7), counts, seeds, st.integers(1, 5), st.integers(0, 5))
def test_a_signature_is_the_sum_of_the_neighbours_among_their_values(
    p: float, r: int, num_graphs: int, seed: int, least: int, more: int
) -> None:
    for graph in unique_signature(p, r, num_graphs, seed, least, least + more):
        assert least <= graph.num_nodes <= least + more
        value = graph.x.squeeze(1).tolist()
        assert set(value) <= set(range(-(r // 2), r - r // 2))
        edges = set(zip(*graph.edge_index.tolist(), strict=True))
        assert len(edges) == graph.num_edges
        assert all(v != u and (u, v) in edges for v, u in edges)
        for u in range(graph.num_nodes):
            seen = [value[v] for v, end in edges if end == u]
            assert graph.y[u] == float(sum(seen) in seen)


def test_every_pair_is_joined_with_the_same_chance() -> None:
    graphs = unique_signature(0.3, 3, num_graphs=20_000, min_nodes=4, max_nodes=4)
    pairs = torch.cat([4 * graph.edge_index[0] + graph.edge_index[1] for graph in graphs]).bincount(minlength=16)
    joined = pairs.view(4, 4).triu(1)[torch.ones(4, 4).triu(1).bool()]
    # Five standard deviations of Binomial(20000, 0.3).
    assert (joined - 6000).abs().max() < 325
    values = torch.cat([graph.x for graph in graphs]).add(1).long().view(-1).bincount()
    assert (values - 80_000 / 3).abs().max() < 667


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
        (unique_signature, {"r": 0}, "r"),
        (unique_signature, {"num_graphs": 0}, "num_graphs"),
        (unique_signature, {"seed": -1}, "seed"),
        (unique_signature, {"min_nodes": 0}, "min_nodes"),
        (unique_signature, {"max_nodes": 29}, "max_nodes"),
    ],
)
def test_bad_argument_is_named(generate: Generator, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(DataError, match=rf"^{name}: expected a whole number >= \d+, got {arguments[name]!r}"):
        generate(**arguments)
    for value in (2.5, True, "3"):
        with pytest.raises(ConfigError, match=f"^{name}: expected a whole number, got {value!r}"):
            generate(**{**arguments, name: value})


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(DataError, match=rf"^p: expected a probability, got {p}"):
        unique_signature(p)


def test_numpy_integers_are_integers() -> None:
    assert equal(dictionary_lookup(np.int64(3), 2), dictionary_lookup(3, 2))  # type: ignore[arg-type]


@given(st.integers(2, 8), st.integers(2, 6), seeds)
def test_lookup_task_holds_the_same_graphs(n: int, num_graphs: int, seed: int) -> None:
    task = dictionary_lookup_task(n, seed, num_graphs)
    listed = dictionary_lookup(n, num_graphs, seed)
    assert len(task.graphs) == num_graphs
    for found, expected in zip(task.graphs, listed, strict=True):
        assert torch.equal(found.x, expected.x)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert torch.equal(found.y[expected.query_mask], expected.y)
        assert bool((found.y[~expected.query_mask] == -1).all())
    assert (task.schema.vocabularies, task.schema.outputs) == ((n + 1, n + 1), n)
    for batch in task.batches("train", 2):
        assert torch.equal(batch.index, (batch.x[:, 1] == n).nonzero().squeeze(1))


@given(sizes, st.integers(2, 6), seeds, st.integers(2, 9))
def test_count_task_holds_the_same_graphs(c: int, num_graphs: int, seed: int, max_nodes: int) -> None:
    task = hetero_edge_count_task(c, seed, num_graphs, max_nodes)
    listed = hetero_edge_count(c, num_graphs, seed, max_nodes)
    assert len(task.graphs) == num_graphs
    for found, expected in zip(task.graphs, listed, strict=True):
        assert torch.equal(found.x.squeeze(1), expected.x)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert torch.equal(found.y, expected.y)
    assert (task.schema.vocabularies, task.schema.outputs) == ((c,), 1)


@given(st.sampled_from([0.3, 0.5]), st.integers(2, 6), seeds)
def test_signature_task_holds_the_same_graphs(p: float, num_graphs: int, seed: int) -> None:
    task = unique_signature_task(p, 3, seed, num_graphs)
    for found, expected in zip(task.graphs, unique_signature(p, 3, num_graphs, seed), strict=True):
        assert torch.equal(found.x, expected.x)
        assert torch.equal(found.edge_index, expected.edge_index)
        assert torch.equal(found.y, expected.y)
    assert (task.schema.features, task.schema.outputs) == (1, 1)


def signature_task(r: int, seed: int = 0, num_graphs: int = 5000) -> Task:
    return unique_signature_task(0.5, r, seed, num_graphs, min_nodes=3, max_nodes=4)


@pytest.mark.parametrize("make", [dictionary_lookup_task, hetero_edge_count_task, signature_task])
@pytest.mark.parametrize(("count", "train"), [(5000, 4000), (10, 8), (7, 5), (2, 1)])
def test_first_four_fifths_train_and_the_rest_tests(make: Callable[..., Task], count: int, train: int) -> None:
    (split,) = make(2, num_graphs=count).splits
    assert split.train.tolist() == list(range(train))
    assert split.test.tolist() == list(range(train, count))
    assert len(split.val) == 0


@pytest.mark.parametrize(
    ("task", "loss", "metric", "version"),
    [
        (dictionary_lookup_task(3, seed=4, num_graphs=5), "cross_entropy", "accuracy", "generated, seed 4"),
        (hetero_edge_count_task(3, seed=4, num_graphs=5), "mse", "mse", "generated, seed 4"),
        (
            unique_signature_task(seed=4, num_graphs=5),
            "binary_cross_entropy",
            "balanced_accuracy",
            "generated, seed 4",
        ),
    ],
)
def test_tasks_are_the_protocol_s(task: Task, loss: str, metric: str, version: str) -> None:
    assert (task.loss, task.metric, task.version) == (loss, metric, version)


@pytest.mark.parametrize(
    ("make", "arguments", "digest"),
    [
        (dictionary_lookup_task, (3, 0, 10), "ee4c53ccc1db267133d787ec13366f024bf19ae7dd749b5c00651fe164cf839f"),
        (dictionary_lookup_task, (10, 0, 5000), "9059b3dcfd18fb2a0c3fabc50a3f3d078db001c95450da81a7ba815826d98f1e"),
        (dictionary_lookup_task, (50, 9, 5000), "a7ede960a0232a1edee59feab327fe3926e2191cf985e3d06eab1bcaf4950c57"),
        (hetero_edge_count_task, (3, 0, 10), "f9d6330c6b4af08a7572995bd0c6b94b40b84d0e167a546fa0915d757374a07a"),
        (hetero_edge_count_task, (2, 0, 5000), "ea231f8e96ffdb270294f54551abb21e9b3355c9533346412061160cc0cbc984"),
        (hetero_edge_count_task, (10, 9, 5000), "d5402137a4c45c385d54dc58fd5d23515f9ed655f83788b7b9b4472d3e9f23a7"),
        (unique_signature_task, (0.3, 3, 9, 10), "ddded5592ad35179be6adb55b474bd490337cd4e4d83e7092cfbd8ed4d43e418"),
        (unique_signature_task, (0.5, 5, 0, 5000), "148a269cf7835397b5133b6f04c925b41f756c1c33ecef6e564ead1e3c2be31b"),
    ],
)
def test_draws_are_the_recorded_ones(make: Callable[..., Task], arguments: tuple[int, ...], digest: str) -> None:
    assert make(*arguments).graphs.sha256() == digest


def test_edge_sets_are_uniform() -> None:
    # Two nodes have four ordered pairs; of those graphs with two edges each of the six sets is as likely.
    graphs = [graph for graph in hetero_edge_count(1, num_graphs=20_000, max_nodes=2) if graph.num_edges == 2]
    sets = [tuple(sorted((2 * graph.edge_index[0] + graph.edge_index[1]).tolist())) for graph in graphs]
    expected = len(sets) / 6
    assert len(set(sets)) == 6
    # Five standard deviations of Binomial(N, 1/6).
    assert all(abs(sets.count(each) - expected) < 5 * (expected * 5 / 6) ** 0.5 for each in set(sets))


def test_one_key_leaves_nothing_to_predict() -> None:
    with pytest.raises(DataError, match=r"^n: expected a whole number >= 2, got 1"):
        dictionary_lookup_task(1)
