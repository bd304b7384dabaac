import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from sirgcn.data import DataError, Graphs

LEVELS = ("node", "edge", "graph")
FIELDS = ("x", "edge_index", "y", "edge_attr", "pe", "batch", "ptr")


@st.composite
def lists(draw: st.DrawFn, min_size: int = 1) -> tuple[list[Data], Any]:
    """PyG graphs with the same fields and the level of their targets: also without edges, or with repeated ones."""
    level = draw(st.sampled_from(LEVELS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    features, edge_features, encodings, classes = (draw(st.booleans()) for _ in range(4))
    edge_attr, targets = draw(st.booleans()), draw(st.integers(1, 3))

    def rows(count: int, real: bool, width: int) -> Tensor:
        if real:
            return torch.randn(count, width, generator=generator, dtype=torch.float64)
        return torch.randint(0, 5, (count, width), generator=generator)

    def graph(nodes: int, edges: int) -> Data:
        count = {"node": nodes, "edge": edges, "graph": 1}[level]
        y = rows(count, False, 1).squeeze(1) if classes else rows(count, True, targets)
        if targets == 1 and not classes:
            y = y.squeeze(1)
        data = Data(
            x=rows(nodes, features, 2), edge_index=torch.randint(0, nodes, (2, edges), generator=generator), y=y
        )
        if edge_attr:
            data.edge_attr = rows(edges, edge_features, 3)
        if encodings:
            data.pe = rows(nodes, True, 4)
        return data

    sizes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), min_size=min_size, max_size=5))
    return [graph(*size) for size in sizes], level


def assert_same(found: Data, expected: Data, names: Sequence[str] = FIELDS) -> None:
    for name in names:
        a, b = found.get(name), expected.get(name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert a.dtype == b.dtype
            assert torch.equal(a, b), name


def two(**changes: Any) -> dict[str, Any]:
    """Two graphs, 0 -> 1 and 2 -> 3 -> 4, as the arguments of `Graphs`."""
    return {
        "x": torch.arange(10.0).view(5, 2),
        "edge_index": torch.tensor([[0, 2, 3], [1, 3, 4]]),
        "y": torch.tensor([0, 1, -1, 1, 0]),
        "level": "node",
        "node_ptr": torch.tensor([0, 2, 5]),
        "edge_ptr": torch.tensor([0, 1, 3]),
    } | changes


@given(lists(), st.data())
def test_batch_is_pyg_s_batch_of_the_same_graphs(drawn: tuple[list[Data], Any], data: st.DataObject) -> None:
    graphs, level = drawn
    index = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    found = Graphs.from_data(graphs, level).batch(torch.tensor(index))
    expected = Batch.from_data_list([graphs[i] for i in index])
    assert_same(found, expected)
    assert found.num_graphs == expected.num_graphs


@given(lists())
def test_without_an_index_all_graphs_are_one_batch(drawn: tuple[list[Data], Any]) -> None:
    graphs, level = drawn
    assert_same(Graphs.from_data(graphs, level).batch(), Batch.from_data_list(graphs))


@given(lists())
def test_graphs_come_back_one_by_one(drawn: tuple[list[Data], Any]) -> None:
    graphs, level = drawn
    stored = Graphs.from_data(graphs, level)
    assert len(stored) == len(graphs)
    assert stored.num_nodes == sum(graph.num_nodes for graph in graphs)
    assert stored.num_edges == sum(graph.num_edges for graph in graphs)
    for found, expected in zip(stored, graphs, strict=True):
        assert_same(found, expected, ("x", "edge_index", "y", "edge_attr", "pe"))
    assert_same(stored[-1], stored[len(graphs) - 1])


@given(lists(min_size=2), st.data())
def test_selected_graphs_are_those_alone(drawn: tuple[list[Data], Any], data: st.DataObject) -> None:
    graphs, level = drawn
    index = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=2, max_size=6))
    selected = Graphs.from_data(graphs, level).select(torch.tensor(index))
    assert selected.sha256() == Graphs.from_data([graphs[i] for i in index], level).sha256()


@given(lists())
def test_one_graph_can_be_taken_twice(drawn: tuple[list[Data], Any]) -> None:
    graphs, level = drawn
    twice = Graphs.from_data(graphs[0], level).select(torch.tensor([0, 0]))
    assert_same(twice.batch(), Batch.from_data_list([graphs[0]] * 2))


def test_a_single_graph_is_batched_without_a_copy() -> None:
    stored = Graphs.from_data(Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0], [1]]), y=torch.zeros(3)), "node")
    assert stored.batch().x.data_ptr() == stored.x.data_ptr()
    assert stored.batch().edge_index.data_ptr() == stored.edge_index.data_ptr()


@given(lists(), st.data())
def test_hash_tells_any_change(drawn: tuple[list[Data], Any], data: st.DataObject) -> None:
    graphs, level = drawn
    stored = Graphs.from_data(graphs, level)
    assert stored.sha256() == Graphs.from_data([graph.clone() for graph in graphs], level).sha256()
    name = data.draw(st.sampled_from([name for name in ("x", "y", "edge_attr", "pe") if name in stored.tensors()]))
    tensor = stored.tensors()[name].clone()
    assume(tensor.numel() > 0)
    tensor.view(-1)[data.draw(st.integers(0, tensor.numel() - 1))] += 1
    changed: dict[str, Any] = {name: tensor}
    assert replace(stored, **changed).sha256() != stored.sha256()


def test_hash_is_the_recorded_one() -> None:
    # Written down once: a hash that changes makes every cache and every record of a run a stranger.
    assert Graphs(**two()).sha256() == "2ea94711fe99532264e6086508182e3b83668f8d90fd024f42669750ce408c7f"


@pytest.mark.parametrize("value", [2, 2.5, torch.tensor(2.5), torch.tensor([2.5]), torch.tensor([[2.5]])])
def test_a_graph_s_target_may_be_a_number(value: Any) -> None:
    graph = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=value)
    assert Graphs.from_data([graph, graph], "graph").y.tolist() == [float(torch.as_tensor(value))] * 2


def test_a_graph_s_several_targets_are_a_row() -> None:
    graph = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=torch.tensor([1.0, 2.0]))
    assert Graphs.from_data([graph, graph], "graph").y.tolist() == [[1.0, 2.0]] * 2


@given(st.integers(0, 2), st.sampled_from([0, 1]), st.integers(-2, 7))
def test_an_edge_that_leaves_its_graph_is_refused(edge: int, end: int, node: int) -> None:
    edge_index = two()["edge_index"].clone()
    edge_index[end, edge] = node
    if node in ((0, 1) if edge == 0 else (2, 3, 4)):
        Graphs(**two(edge_index=edge_index))
        return
    with pytest.raises(DataError, match=r"^edge_index, row ") as refused:
        Graphs(**two(edge_index=edge_index))
    assert (refused.value.field, refused.value.row, refused.value.value) == ("edge_index", [end, edge], node)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("level", {"level": "nodes"}),
        ("x", {"x": None}),
        ("x", {"x": [[1.0]]}),
        ("x", {"x": torch.zeros(5)}),
        ("x", {"x": torch.zeros(5, 2, dtype=torch.float16)}),
        ("x", {"x": torch.zeros(5, 2).to_sparse()}),
        ("x", {"x": torch.zeros(5, 2, device="meta")}),
        ("x", {"x": torch.full((5, 1), float("nan"))}),
        ("x", {"x": torch.full((5, 1), float("inf"))}),
        ("x", {"x": torch.empty(0, 2)}),
        ("edge_index", {"edge_index": torch.tensor([0, 1])}),
        ("edge_index", {"edge_index": torch.tensor([[0.0], [1.0]])}),
        ("edge_index", {"edge_index": torch.tensor([[0], [1]], dtype=torch.int32)}),
        ("edge_index", {"edge_index": torch.tensor([[0, 0, 0]])}),
        ("edge_attr", {"edge_attr": torch.zeros(2, 1)}),
        ("edge_attr", {"edge_attr": torch.full((3, 1), float("-inf"))}),
        ("pe", {"pe": torch.zeros(5, 1, dtype=torch.int64)}),
        ("pe", {"pe": torch.zeros(4, 1)}),
        ("node_ptr", {"node_ptr": None}),
        ("node_ptr", {"edge_ptr": None}),
        ("node_ptr", {"node_ptr": torch.tensor([0, 2, 4])}),
        ("node_ptr", {"node_ptr": torch.tensor([1, 2, 5])}),
        ("node_ptr", {"node_ptr": torch.tensor([0, 6, 5])}),
        ("node_ptr", {"node_ptr": torch.tensor([5])}),
        ("edge_ptr", {"edge_ptr": torch.tensor([0, 1, 2])}),
        ("edge_ptr", {"edge_ptr": torch.tensor([0, 1, 2, 3])}),
        ("y", {"y": torch.tensor([0, 1])}),
        ("y", {"y": torch.tensor([0, 1, -2, 1, 0])}),
        ("y", {"y": torch.zeros(5, 2, dtype=torch.int64)}),
        ("y", {"y": torch.full((5,), float("inf"))}),
        ("y", {"y": torch.tensor([True] * 5)}),
        ("y", {"y": torch.zeros(5, 1, 1)}),
        ("y", {"y": None}),
    ],
)
def test_what_is_no_graph_is_refused_by_its_field(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(DataError) as refused:
        Graphs(**two(**change))
    assert refused.value.field == field


def test_missing_labels_are_no_error() -> None:
    assert Graphs(**two(y=torch.full((5,), -1))).y.tolist() == [-1] * 5
    assert bool(Graphs(**two(y=torch.full((5, 2), float("nan")))).y.isnan().all())


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("x", {"x": None}),
        ("x", {"x": torch.tensor(1.0)}),
        ("x", {"x": torch.zeros(2, 3)}),
        ("x", {"x": torch.zeros(2, 1, dtype=torch.float64)}),
        ("y", {"y": None}),
        ("y", {"y": torch.zeros(3)}),
        ("y", {"y": torch.zeros(2, dtype=torch.int64)}),
        ("edge_index", {"edge_index": None}),
        ("edge_index", {"edge_index": torch.tensor([[0], [2]])}),
        ("edge_index", {"edge_index": torch.tensor([[-1], [1]])}),
        ("edge_attr", {"edge_attr": None}),
        ("edge_attr", {"edge_attr": torch.zeros(2, 1)}),
        ("edge_attr", {"edge_attr": "none"}),
        ("pe", {"pe": torch.zeros(3, 1)}),
    ],
)
def test_a_graph_that_does_not_fit_the_others_is_named(field: str, change: dict[str, Any]) -> None:
    fields = {
        "x": torch.zeros(2, 1),
        "edge_index": torch.tensor([[0], [1]]),
        "y": torch.zeros(2),
        "edge_attr": torch.zeros(1, 1),
        "pe": torch.zeros(2, 1),
    }
    with pytest.raises(DataError, match=rf"^graph 1: {field}") as refused:
        Graphs.from_data([Data(**fields), Data(**fields | change)], "node")
    assert (refused.value.field, refused.value.source) == (field, "graph 1")


def test_lengths_that_are_wrong_twice_are_refused() -> None:
    # Too long in one graph and too short in the next: together they would fit.
    edge_index = torch.tensor([[0], [1]])
    first = Data(x=torch.zeros(2, 1), edge_index=edge_index, y=torch.zeros(3))
    second = Data(x=torch.zeros(2, 1), edge_index=edge_index, y=torch.zeros(1))
    with pytest.raises(DataError, match=r"^graph 0: y: expected shape \[2\], got \[3\]"):
        Graphs.from_data([first, second], "node")


def test_an_unknown_level_is_refused() -> None:
    graph = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.int64), y=1.0)
    with pytest.raises(DataError, match=r"^level: expected one of node, edge, graph, got 'graphs'; did you mean graph"):
        Graphs.from_data([graph], "graphs")  # type: ignore[arg-type]


def test_no_graph_is_refused() -> None:
    with pytest.raises(DataError, match=r"^graphs: expected at least one graph"):
        Graphs.from_data([], "node")


def test_what_is_no_data_is_a_wrong_type() -> None:
    with pytest.raises(TypeError, match="graph 0: expected PyG's Data, got dict"):
        Graphs.from_data([{"x": 1}], "node")


@pytest.mark.parametrize("index", [[2], [-1], [0, 5]])
def test_an_unknown_graph_is_refused(index: list[int]) -> None:
    stored = Graphs(**two())
    with pytest.raises(DataError, match=r"^index, row "):
        stored.batch(torch.tensor(index))
    with pytest.raises(DataError, match=r"^index, row "):
        stored.select(torch.tensor(index))
    with pytest.raises(IndexError, match="there are 2"):
        stored[2]


@pytest.mark.parametrize("index", [torch.tensor([0.0]), torch.tensor(0), [0]])
def test_an_index_is_a_list_of_whole_numbers(index: Any) -> None:
    with pytest.raises(DataError, match=r"^index: expected"):
        Graphs(**two()).batch(index)


def test_an_error_says_where_and_survives_a_pickle() -> None:
    error = DataError("expected a number, got 'a'", "age", "nodes.csv", 3, "a")
    assert str(error) == "nodes.csv: age, row 3: expected a number, got 'a'"
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.value, len({error, copy})) == (str(error), "a", 2)
