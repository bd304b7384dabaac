"""Partitions: balanced, repeatable, and with few edges between their parts."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.scale.partition import part_nodes, sizes_of

HAS_METIS = importlib.util.find_spec("pymetis") is not None
METHODS = ["labels", "blocks", *(["metis"] if HAS_METIS else [])]


@pytest.mark.parametrize("method", METHODS)
@given(nodes=st.integers(0, 40), parts=st.integers(1, 5), edges=st.integers(0, 80), seed=st.integers(0, 5))
def test_parts_are_of_nearly_the_same_size_on_any_graph(
    method: str, nodes: int, parts: int, edges: int, seed: int
) -> None:
    edge_index = torch.randint(0, max(1, nodes), (2, edges if nodes else 0))
    part = part_nodes(edge_index, nodes, parts, method, seed)  # type: ignore[arg-type]
    assert part.shape == (nodes,)
    assert part.dtype == torch.int64
    assert torch.equal(part, part_nodes(edge_index, nodes, parts, method, seed))  # type: ignore[arg-type]
    sizes = torch.bincount(part, minlength=parts)
    assert len(sizes) == parts
    if method != "metis":  # METIS leaves a part empty where the graph is tiny
        assert int(sizes.max()) <= -(-nodes // parts) + int(0.05 * nodes / parts)


@pytest.mark.parametrize("method", METHODS[::2])
def test_planted_parts_are_found_again(method: str) -> None:
    draw = torch.Generator().manual_seed(0)
    planted = torch.randint(0, 4, (800,), generator=draw)
    edge_index = torch.randint(0, 800, (2, 24000), generator=draw)
    is_inside = planted[edge_index[0]] == planted[edge_index[1]]
    edge_index = edge_index[:, is_inside | (torch.rand(24000, generator=draw) < 0.02)]
    part = part_nodes(edge_index, 800, 4, method)  # type: ignore[arg-type]
    crossing = float((part[edge_index[0]] != part[edge_index[1]]).double().mean())
    planted_crossing = float((planted[edge_index[0]] != planted[edge_index[1]]).double().mean())
    assert crossing < 2 * planted_crossing + 0.02
    halo = sum(sizes_of(edge_index, part, 4).halo)
    assert halo < 0.7 * sum(sizes_of(edge_index, part_nodes(edge_index, 800, 4, "blocks"), 4).halo)


@given(nodes=st.integers(1, 20), parts=st.integers(1, 4), edges=st.integers(0, 60))
def test_sizes_are_those_that_a_plain_loop_counts(nodes: int, parts: int, edges: int) -> None:
    edge_index, part = torch.randint(0, nodes, (2, edges)), torch.randint(0, parts, (nodes,))
    needed = {(int(part[v]), int(u)) for u, v in edge_index.T.tolist() if part[u] != part[v]}
    found = sizes_of(edge_index, part, parts)
    for p in range(parts):
        assert found.nodes[p] == int((part == p).sum())
        assert found.edges[p] == int((part[edge_index[1]] == p).sum())
        assert found.halo[p] == sum(owner == p for owner, _ in needed)
        assert found.sent[p] == sum(int(part[node]) == p for _, node in needed)
        counts = [sum(owner == p and int(part[node]) == q for owner, node in needed) for q in range(parts)]
        assert found.largest[p] == max(counts)


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"method: expected .*labels.*, got 'label'"):
        part_nodes(torch.zeros(2, 0, dtype=torch.int64), 4, 2, "label")  # type: ignore[arg-type]


def test_metis_without_pymetis_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymetis", None)
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    with pytest.raises(ImportError, match=r"method: metis needs pymetis, `pip install sirgcn\[scale\]`"):
        part_nodes(edge_index, 4, 2, "metis")
    assert torch.equal(part_nodes(edge_index, 4, 2), part_nodes(edge_index, 4, 2, "labels"))
