import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sirgcn.data import DataError, Graphs
from sirgcn.data.sets.sbm import cluster_graphs, cluster_task, pattern_graphs, pattern_task

Draw = Callable[[int, int], Graphs]
DRAWS = pytest.mark.parametrize("draw", [pattern_graphs, cluster_graphs])


@pytest.fixture(scope="module")
def pattern() -> Graphs:
    return pattern_graphs(1, 1000)


@pytest.fixture(scope="module")
def cluster() -> Graphs:
    return cluster_graphs(1, 1000)


def counted(graphs: Graphs) -> tuple[Tensor, Tensor]:
    node_ptr, edge_ptr = graphs.pointers()
    return node_ptr.diff().double(), edge_ptr.diff().double()


def rate(graphs: Graphs, kind: Callable[[Tensor, Tensor], Tensor]) -> float:
    """The share of the pairs u != v of the same graph with kind(y_u, y_v) that are edges."""
    edges, pairs = 0, 0
    for graph in itertools.islice(graphs, 200):
        wanted = kind(graph.y[:, None], graph.y[None]) & ~torch.eye(graph.num_nodes, dtype=torch.bool)
        edges += int(wanted[graph.edge_index[0], graph.edge_index[1]].sum())
        pairs += int(wanted.sum())
    return edges / pairs


@DRAWS
def test_edges_run_both_ways_once_and_never_to_themselves(draw: Draw) -> None:
    for graph in draw(0, 20):
        assert not graph.has_self_loops()
        assert graph.is_undirected()
        assert graph.edge_index.unique(dim=1).size(1) == graph.num_edges


@DRAWS
def test_same_seed_same_graphs_other_seed_others(draw: Draw) -> None:
    assert draw(0, 300).sha256() == draw(0, 300).sha256()
    assert draw(0, 300).sha256() != draw(1, 300).sha256()


@pytest.mark.parametrize(
    ("draw", "count", "digest"),
    [
        (pattern_graphs, 300, "e798579976119e23e7723c2e2903bdc4ae9a09c0946cd4f23e39ddc588e4e187"),
        (cluster_graphs, 300, "a110fc3aea2ca96c2553aedbf59c591c77ba3f87605a5b813f4f9384e9b37f81"),
    ],
)
def test_draws_are_the_recorded_ones(draw: Draw, count: int, digest: str) -> None:
    # More than are drawn at once, so that the seam is in it.
    assert draw(0, count).sha256() == digest


def test_pattern_has_the_protocol_s_sizes(pattern: Graphs) -> None:
    nodes, edges = counted(pattern)
    # Of the generator, not of its 14,000 published graphs: 117.0 +- 3 nodes and 5,870 +- 350 edges.
    assert abs(float(nodes.mean()) - 117.0) < 3
    assert abs(float(edges.mean()) - 5870) < 350
    assert nodes.min() >= 6 * 5
    assert nodes.max() <= 6 * 34


def test_cluster_has_the_protocol_s_sizes(cluster: Graphs) -> None:
    nodes, edges = counted(cluster)
    # Five standard errors of 1,000 graphs: their sizes have a standard deviation of 21 nodes and about 1,600 edges.
    assert abs(float(nodes.mean()) - 117.0) < 3.4
    assert abs(float(edges.mean()) - 4290) < 250
    assert nodes.min() >= 6 * 5
    assert nodes.max() <= 6 * 34


def test_edge_rates_of_pattern_are_the_protocol_s(pattern: Graphs) -> None:
    assert rate(pattern, lambda a, b: a != b) == pytest.approx(0.5, abs=0.01)
    # Between nodes of five communities, a fifth and a bit of the pairs are inside one.
    assert 0.37 < rate(pattern, lambda a, b: (a == 0) & (b == 0)) < 0.40
    # One hundred patterns of about 200 pairs each have their edges fixed.
    assert rate(pattern, lambda a, b: (a == 1) & (b == 1)) == pytest.approx(0.5, abs=0.03)


def test_edge_rates_of_cluster_are_the_protocol_s(cluster: Graphs) -> None:
    assert rate(cluster, lambda a, b: a == b) == pytest.approx(0.55, abs=0.01)
    assert rate(cluster, lambda a, b: a != b) == pytest.approx(0.25, abs=0.005)


def test_each_pattern_is_the_same_in_all_its_graphs(pattern: Graphs) -> None:
    sizes = [int(graph.y.sum()) for graph in pattern]
    assert all(sizes[i] == sizes[i % 100] for i in range(len(sizes)))
    assert len(set(sizes)) > 20
    assert min(sizes) >= 5
    assert max(sizes) <= 34
    for first, second in ((3, 103), (7, 907), (50, 450)):
        a, b = (planted(pattern[i]) for i in (first, second))
        assert a == b


def planted(graph: Any) -> list[Any]:
    """What does not depend on the order of the pattern's nodes: each one's signal, degree and neighbours' signals."""
    inside = graph.subgraph(graph.y == 1)
    signal = inside.x[:, 0].tolist()
    near: list[list[int]] = [[] for _ in signal]
    for v, u in inside.edge_index.T.tolist():
        near[u].append(signal[v])
    return sorted((own, sorted(others)) for own, others in zip(signal, near, strict=True))


def test_signals_of_pattern_are_uniform(pattern: Graphs) -> None:
    share = torch.bincount(pattern.x[pattern.y == 0, 0], minlength=3) / int((pattern.y == 0).sum())
    assert torch.allclose(share, torch.full((3,), 1 / 3), atol=0.01)


def test_one_node_of_each_community_is_named(cluster: Graphs) -> None:
    for graph in itertools.islice(cluster, 50):
        named = graph.x[:, 0].nonzero().squeeze(1)
        assert sorted(graph.x[named, 0].tolist()) == [1, 2, 3, 4, 5, 6]
        assert torch.equal(graph.x[named, 0], graph.y[named] + 1)
        size = torch.bincount(graph.y)
        assert len(size) == 6
        assert bool(((size >= 5) & (size <= 34)).all())


@DRAWS
def test_nodes_are_shuffled(draw: Draw) -> None:
    # In order, neighbours in the list would nearly always be of the same label.
    same = [float((graph.y[1:] == graph.y[:-1]).double().mean()) for graph in draw(0, 100)]
    expected = [float((torch.bincount(graph.y) / graph.num_nodes).square().sum()) for graph in draw(0, 100)]
    assert sum(same) / 100 == pytest.approx(sum(expected) / 100, abs=0.03)


@pytest.mark.parametrize(
    ("make", "count", "parts", "schema"),
    [
        (pattern_task, 28, (20, 4, 4), ((3,), 2)),
        (pattern_task, 3, (1, 1, 1), ((3,), 2)),
        (cluster_task, 24, (20, 2, 2), ((7,), 6)),
    ],
)
def test_tasks_are_the_benchmark_s(tmp_path: Path, make: Any, count: int, parts: Any, schema: Any) -> None:
    made = make(seed=2, num_graphs=count, root=tmp_path)
    (split,) = made.splits
    assert tuple(len(part) for part in (split.train, split.val, split.test)) == parts
    assert torch.cat([split.train, split.val, split.test]).tolist() == list(range(count))
    assert (made.schema.vocabularies, made.schema.outputs) == schema
    assert (made.loss, made.metric) == ("weighted_cross_entropy", "class_accuracy")
    assert made.version == f"generated, seed 2, {count} graphs"
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    assert make(seed=2, num_graphs=count, root=tmp_path).graphs.sha256() == made.graphs.sha256()


def test_full_sizes_are_the_defaults() -> None:
    # Of 14,000 graphs each of 100 patterns has 100, 20 and 20: the parts end at multiples of 100.
    import inspect

    assert inspect.signature(pattern_task).parameters["num_graphs"].default == 14_000
    assert inspect.signature(cluster_task).parameters["num_graphs"].default == 12_000


@pytest.mark.parametrize(
    ("field", "arguments"), [("num_graphs", {"num_graphs": 2}), ("seed", {"num_graphs": 3, "seed": -1})]
)
@pytest.mark.parametrize("make", [pattern_task, cluster_task])
def test_arguments_out_of_range_are_named(tmp_path: Path, make: Any, field: str, arguments: dict[str, int]) -> None:
    with pytest.raises(DataError) as refused:
        make(**arguments, root=tmp_path)
    assert refused.value.field == field
