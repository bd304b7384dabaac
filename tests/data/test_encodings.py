import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE

from sirgcn.data import DataError, Graphs, Schema, Split, Task, encodings, load
from sirgcn.data.encodings import ENCODINGS, edge_random_walk, in_degree, laplacian, random_walk, with_encodings
from sirgcn.testing import EDGE_CASES, RICH, Graph
from sirgcn.testing import graphs as any_graph

some = st.lists(any_graph(bipartite=False).filter(lambda graph: graph.num_targets > 0), min_size=1, max_size=4)
sizes = st.integers(1, 9)

RING = Graph(tuple((i, (i + d) % 5) for i in range(5) for d in (1, 4)), 5, 5)
PATH = Graph(((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)), 4, 4)


def stored(graphs: Sequence[Graph]) -> Graphs:
    return Graphs.from_data(
        [
            Data(x=torch.zeros(g.num_targets, 1), edge_index=g.edge_index.long(), y=torch.zeros(g.num_targets))
            for g in graphs
        ],
        "node",
    )


def adjacency(graph: Graph) -> Tensor:
    """Dense, float64: how many edges run from v to u."""
    out = torch.zeros(graph.num_targets, graph.num_targets, dtype=torch.float64)
    for v, u in graph.edges:
        out[v, u] += 1
    return out


def normalised(graph: Graph) -> Tensor:
    both = ((adjacency(graph) + adjacency(graph).T) > 0).double()
    both.fill_diagonal_(0)
    scale = torch.where(both.sum(1) > 0, both.sum(1), 1).rsqrt()
    return torch.eye(len(both), dtype=torch.float64) - scale[:, None] * both * scale


def task(graphs: Graphs) -> Task:
    y = torch.arange(graphs.num_nodes) % 2
    count = graphs.num_graphs if graphs.num_graphs > 1 else graphs.num_nodes
    split = Split(torch.arange(count), torch.arange(0), torch.arange(0))
    with_classes = Graphs(**graphs.tensors() | {"y": y}, level="node")
    return Task("test", with_classes, Schema(features=1, outputs=2), (split,), "cross_entropy", "accuracy")


@given(some, sizes)
def test_walks_return_as_the_powers_of_the_dense_matrix_say(graphs: list[Graph], size: int) -> None:
    found = random_walk(stored(graphs), size).split([graph.num_targets for graph in graphs])
    for graph, pe in zip(graphs, found, strict=True):
        step = adjacency(graph)
        step = step / step.sum(1, keepdim=True).clamp(min=1)
        expected = torch.stack([torch.linalg.matrix_power(step, k).diagonal() for k in range(1, size + 1)], dim=1)
        assert pe.dtype == torch.float32
        torch.testing.assert_close(pe.double(), expected, atol=1e-6, rtol=1e-6)


@given(some, sizes)
def test_walks_along_edges_arrive_as_the_powers_of_the_dense_matrix_say(graphs: list[Graph], size: int) -> None:
    found = edge_random_walk(stored(graphs), size).split([len(graph.edges) for graph in graphs])
    for graph, pe in zip(graphs, found, strict=True):
        step = adjacency(graph)
        step = step / step.sum(1, keepdim=True).clamp(min=1)
        powers = torch.stack([torch.linalg.matrix_power(step, k) for k in range(1, size + 1)], dim=-1)
        source, target = graph.edge_index.long()
        torch.testing.assert_close(pe.double(), powers[source, target], atol=1e-6, rtol=1e-6)


@given(some, sizes)
def test_eigenvectors_solve_the_dense_problem(graphs: list[Graph], size: int) -> None:
    found = laplacian(stored(graphs), size).split([graph.num_targets for graph in graphs])
    for graph, pe in zip(graphs, found, strict=True):
        matrix = normalised(graph)
        values = torch.linalg.eigvalsh(matrix)[1 : size + 1]
        vectors = pe.double()[:, : len(values)]
        assert not bool(pe[:, len(values) :].any())
        # Single precision, for entries of at most 1.
        torch.testing.assert_close(matrix @ vectors, vectors * values, atol=1e-6, rtol=0)
        torch.testing.assert_close(vectors.T @ vectors, torch.eye(len(values)).double(), atol=1e-6, rtol=0)


@given(some, sizes)
def test_the_largest_entry_of_an_eigenvector_is_positive(graphs: list[Graph], size: int) -> None:
    for pe in laplacian(stored(graphs), size).split([graph.num_targets for graph in graphs]):
        for column in pe.T[: len(pe) - 1]:
            largest = column.abs() >= column.abs().max() * (1 - 1e-5)
            assert column[largest][0] > 0


@given(some, sizes)
def test_degrees_are_counted_up_to_the_last(graphs: list[Graph], size: int) -> None:
    found = in_degree(stored(graphs), size).split([graph.num_targets for graph in graphs])
    for graph, pe in zip(graphs, found, strict=True):
        assert bool((pe.sum(1) == 1).all())
        for u, column in enumerate(pe.argmax(1).tolist()):
            assert column == min(sum(target == u for _, target in graph.edges), size - 1)


def test_both_encodings_are_pyg_s_on_simple_graphs() -> None:
    # Without repeated edges; the eigenvalues of a path differ, so that only the signs are free.
    graph = Data(x=torch.zeros(4, 1), edge_index=PATH.edge_index, y=torch.zeros(4))
    walk = AddRandomWalkPE(6)(graph.clone()).random_walk_pe
    torch.testing.assert_close(random_walk(stored([PATH]), 6), walk)
    vectors = AddLaplacianEigenvectorPE(3, is_undirected=True)(graph.clone()).laplacian_eigenvector_pe
    # PyG's Laplacian is of single precision.
    torch.testing.assert_close(laplacian(stored([PATH]), 3).abs(), vectors.abs().float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_large_graph_takes_another_way_to_the_same(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A path beside a ring: eigenvalues that differ, and eigenvectors of more than 20 nodes.
    edges = tuple((a, b) for i in range(30) for a, b in ((i, i + 1), (i + 1, i)))
    large = stored([Graph(edges, 31, 31)])
    dense = ENCODINGS[encoding](large, 5)
    monkeypatch.setattr(encodings, "_DENSE", 20)
    monkeypatch.setattr(encodings, "_BLOCK", 100)
    torch.testing.assert_close(ENCODINGS[encoding](large, 5), dense, atol=1e-5, rtol=0)


def test_edges_of_a_large_graph_take_another_way_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = tuple((a, b) for i in range(30) for a, b in ((i, i + 1), (i + 1, i)))
    large = stored([Graph(edges, 31, 31)])
    dense = edge_random_walk(large, 5)
    monkeypatch.setattr(encodings, "_DENSE", 20)
    monkeypatch.setattr(encodings, "_BLOCK", 100)
    torch.testing.assert_close(edge_random_walk(large, 5), dense, atol=1e-6, rtol=0)


def test_a_task_gets_walks_of_its_edges_and_loses_them_with_the_next_encoding(tmp_path: Path) -> None:
    plain = task(stored([RICH, RING, PATH]))
    found = with_encodings(plain, "random_walk", 4, tmp_path, edges=True)
    assert (found.schema.encodings, found.schema.edge_encodings) == (4, 4)
    assert found.details["encodings"] == {"encoding": "random_walk", "size": 4, "edges": True}
    assert torch.equal(found.graphs.edge_pe, edge_random_walk(plain.graphs, 4))  # type: ignore[arg-type]
    batch = next(found.batches("train", 2))
    count = found.graphs.select(torch.tensor([0, 1])).num_edges
    assert torch.equal(batch.edge_pe, found.graphs.edge_pe[:count])  # type: ignore[index]
    assert {path.name.rsplit("-", 2)[0] for path in (tmp_path / "encodings").iterdir()} == {
        "random_walk",
        "edge_random_walk",
    }
    again = with_encodings(found, "degree", 3, tmp_path)
    assert again.graphs.edge_pe is None
    assert again.schema.edge_encodings == 0


def test_only_random_walks_are_encodings_of_edges(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="encoding: expected random_walk, the only one that edges have, got 'degree'"):
        with_encodings(task(stored([RICH])), "degree", 3, tmp_path, edges=True)


def test_a_schema_without_encodings_of_edges_reads_as_before() -> None:
    # Its text is hashed with the splits of a task; records of finished runs hold that hash.
    assert "edge_encodings" not in str(Schema(features=1))


def test_every_data_set_has_random_walks_as_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRGCN_CACHE", str(tmp_path))
    found = load("hetero_edge_count", c=2, num_graphs=3, random_walk=4, edge_walks=True)
    assert torch.equal(found.graphs.pe, random_walk(found.graphs, 4))  # type: ignore[arg-type]
    assert torch.equal(found.graphs.edge_pe, edge_random_walk(found.graphs, 4))  # type: ignore[arg-type]
    assert load("hetero_edge_count", c=2, num_graphs=3, random_walk=4).graphs.edge_pe is None
    with pytest.raises(DataError, match="random_walk: expected at least 1 step with edge_walks, got 0"):
        load("hetero_edge_count", c=2, num_graphs=3, edge_walks=True)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_edge_cases_have_finite_encodings(encoding: str) -> None:
    cases = [graph for graph in (*EDGE_CASES.values(), RICH) if graph.num_sources == graph.num_targets > 0]
    for size in (1, 3, 20):
        assert bool(ENCODINGS[encoding](stored(cases), size).isfinite().all())
        for graph in cases:
            assert ENCODINGS[encoding](stored([graph]), size).shape == (graph.num_targets, size)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_global_generator_is_neither_read_nor_moved(encoding: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ENCODINGS[encoding](stored([RICH, RING]), 4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(ENCODINGS[encoding](stored([RICH, RING]), 4), first)


def test_a_graph_without_nodes_among_others_is_passed_over() -> None:
    graphs = stored([PATH, RING])
    node_ptr, edge_ptr = graphs.pointers()
    fields = graphs.tensors() | {
        "node_ptr": torch.cat([node_ptr[:1], node_ptr]),
        "edge_ptr": torch.cat([edge_ptr[:1], edge_ptr]),
    }
    assert torch.equal(random_walk(Graphs(**fields, level="node"), 3), random_walk(graphs, 3))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("graphs", [[RICH], [RICH, RING, PATH]])
def test_a_task_gets_its_encodings_and_their_width(tmp_path: Path, encoding: str, graphs: list[Graph]) -> None:
    plain = task(stored(graphs))
    found = with_encodings(plain, encoding, 4, tmp_path)
    assert found.schema.encodings == 4
    assert found.details["encodings"] == {"encoding": encoding, "size": 4}
    assert torch.equal(found.graphs.pe, ENCODINGS[encoding](plain.graphs, 4))  # type: ignore[arg-type]
    batch = next(found.batches("train"))
    assert batch.pe.shape == (plain.graphs.num_nodes, 4)
    assert plain.graphs.pe is None
    assert with_encodings(found, encoding, 2, tmp_path).schema.encodings == 2


def test_what_was_computed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = task(stored([RICH, RING]))
    first = with_encodings(plain, "laplacian", 3, tmp_path).graphs.pe
    other = with_encodings(task(stored([RING, RICH])), "laplacian", 3, tmp_path).graphs.pe

    def fail(*_: Any) -> Tensor:
        raise AssertionError("computed again")

    monkeypatch.setitem(ENCODINGS, "laplacian", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = with_encodings(plain, "laplacian", 3, tmp_path).graphs.pe
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)
    assert other is not None
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("field", "encoding", "size"), [("encoding", "laplace", 3), ("size", "laplacian", 0), ("size", "degree", -1)]
)
def test_unknown_encodings_are_refused(tmp_path: Path, field: str, encoding: str, size: int) -> None:
    with pytest.raises(DataError) as refused:
        with_encodings(task(stored([RICH])), encoding, size, tmp_path)
    assert refused.value.field == field
    if field == "encoding":
        assert "random_walk, laplacian, degree" in str(refused.value)


def test_repeated_edges_are_walked_as_often() -> None:
    # 0 goes to 1 twice as often as to itself.
    twice = Graph(((0, 1), (0, 1), (0, 0), (1, 0)), 2, 2)
    assert random_walk(stored([twice]), 2)[0].tolist() == pytest.approx([1 / 3, 1 / 9 + 2 / 3])
