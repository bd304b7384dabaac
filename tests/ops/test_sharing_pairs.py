"""Messages once per pair of kinds against one message per edge."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sirgcn.ops import REDUCTIONS, Neighbors, tiled_aggregate
from sirgcn.ops.parts import acts_alike
from sirgcn.ops.rows import Rows
from sirgcn.ops.sharing import KindPairs, aggregate_network

DOUBLE = torch.float64
KINDS, NODES, EDGES, WIDTH = 5, 40, 400, 6


def graph() -> tuple[Neighbors, Tensor]:
    """Edges between the nodes but the last ones, which are isolated and of a kind of their own; every node's kind."""
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES - 4, (2, EDGES), generator=generator)
    kind = torch.randint(KINDS - 1, (NODES,), generator=generator)
    kind[-4:] = KINDS - 1
    return Neighbors.from_edge_index(edge_index, NODES), kind


def network(combine: str) -> nn.Module:
    torch.manual_seed(1)
    width = WIDTH if combine == "add" else 2 * WIDTH
    return nn.Sequential(nn.ReLU(), nn.Linear(width, 7), nn.Tanh(), nn.Linear(7, 3)).to(DOUBLE)


def tables() -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(KINDS, WIDTH, dtype=DOUBLE, requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combine", ["add", "cat"])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_pairs_give_what_edges_give(reduce: str, combine: str, weighted: bool) -> None:
    neighbors, kind = graph()
    g, (query, key) = network(combine), tables()
    weight = torch.rand(EDGES, dtype=DOUBLE, requires_grad=True) if weighted else None
    pairs = KindPairs.of(kind, kind, (KINDS, KINDS), neighbors)
    assert pairs is not None
    inputs = [query, key, *g.parameters(), *([] if weight is None else [weight])]
    outs = [
        pairs.aggregate(g, query, key, weight, reduce, combine),
        tiled_aggregate(g, query[kind], key[kind], neighbors, None, weight, reduce, combine, tile=64),
    ]
    upstream = torch.randn_like(outs[0])
    found, expected = ([out, *torch.autograd.grad(out, inputs, upstream)] for out in outs)
    torch.testing.assert_close(found, expected)
    assert found[0][-4:].abs().max() == 0
    assert found[1][-1].abs().max() == 0


def test_pairs_are_those_of_nodes_with_a_neighbour() -> None:
    edge_index = torch.tensor([[0, 0, 1, 1], [2, 2, 3, 3]])
    neighbors = Neighbors.from_edge_index(edge_index, 4)
    pairs = KindPairs.of(torch.tensor([9, 9, 4, 4]), torch.tensor([1, 0, 9, 9]), (10, 10), neighbors)
    assert pairs is not None
    assert pairs.target_kinds.tolist() == [4]
    assert pairs.source_kinds.tolist() == [0, 1]
    assert pairs.messages.edge_index.tolist() == [[1, 1, 0, 0], [2, 2, 3, 3]]


def test_pairs_are_left_alone_where_they_gain_nothing_or_take_too_much_memory() -> None:
    kind = torch.arange(4)

    def of(edges: int) -> KindPairs | None:
        every = torch.cartesian_prod(kind, kind).t().repeat(1, 4)
        return KindPairs.of(kind, kind, (len(kind),) * 2, Neighbors.from_edge_index(every[:, :edges], len(kind)))

    assert of(0) is None
    assert of(31) is None  # of 16 pairs
    assert of(32) is not None
    kind = torch.arange(40)  # 1,600 pairs of 80 nodes
    assert of(6400) is None


@pytest.mark.parametrize("wrong", [-1, KINDS, 10**13])
def test_kind_without_a_row_is_refused(wrong: int) -> None:
    neighbors, kind = graph()
    kind[-1] = wrong  # an isolated node
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        KindPairs.of(kind, kind, (KINDS, KINDS), neighbors)


def test_networks_that_may_treat_equal_inputs_differently_are_known() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    assert acts_alike(nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.Dropout(0)))
    assert acts_alike(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval())
    assert not acts_alike(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    assert not acts_alike(nn.Sequential(nn.Linear(2, 2), Noise()))
    hook = nn.modules.module.register_module_forward_hook(lambda *args: None)
    try:
        assert not acts_alike(nn.Linear(2, 2))
    finally:
        hook.remove()


@pytest.fixture
def found_pairs(monkeypatch: pytest.MonkeyPatch) -> list[KindPairs | None]:
    """What `KindPairs.of` returned, call by call."""
    found: list[KindPairs | None] = []
    of = KindPairs.of

    def spy(*args: Any) -> KindPairs | None:
        found.append(of(*args))
        return found[-1]

    monkeypatch.setattr(KindPairs, "of", spy)
    return found


def assert_as_tiled(g: nn.Module, neighbors: Neighbors, query: Rows, key: Rows, **options: Any) -> None:
    """Values and gradients are those of `tiled_aggregate` on one row per node."""
    inputs = [query.table, key.table, *g.parameters()]
    outs = [
        aggregate_network(g, query, key, neighbors, **options),
        tiled_aggregate(g, query.expand(), key.expand(), neighbors, **options),
    ]
    upstream = torch.randn_like(outs[0])
    found, expected = ([out, *torch.autograd.grad(out, inputs, upstream)] for out in outs)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("combine", ["add", "cat"])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_aggregate_network_computes_messages_once_per_pair(
    reduce: str, combine: str, found_pairs: list[KindPairs | None]
) -> None:
    neighbors, kind = graph()
    query, key = (Rows(table, kind) for table in tables())
    weight = torch.rand(EDGES, dtype=DOUBLE)
    assert_as_tiled(network(combine), neighbors, query, key, edge_weight=weight, reduce=reduce, combine=combine)
    assert len(found_pairs) == 1
    assert found_pairs[0] is not None


@pytest.mark.parametrize(
    "options",
    [{"reduce": "max"}, {"edge": torch.randn(EDGES, WIDTH, dtype=DOUBLE)}, {"backend": "reference"}],
    ids=lambda options: next(iter(options)),
)
def test_aggregate_network_computes_messages_once_per_edge(
    options: dict[str, Any], found_pairs: list[KindPairs | None]
) -> None:
    neighbors, kind = graph()
    query, key = (Rows(table, kind) for table in tables())
    assert_as_tiled(network("add"), neighbors, query, key, **options)
    assert not found_pairs


def test_aggregate_network_of_rows_that_do_not_repeat(found_pairs: list[KindPairs | None]) -> None:
    neighbors, kind = graph()
    query, key = tables()
    assert_as_tiled(network("add"), neighbors, Rows(query, kind), Rows(key[kind]))
    assert not found_pairs
    every = torch.arange(NODES)
    assert_as_tiled(network("add"), neighbors, Rows(query[kind], every), Rows(key[kind], every))
    assert found_pairs == [None]


def test_aggregate_network_leaves_pairs_alone_unless_the_call_is_plain(found_pairs: list[KindPairs | None]) -> None:
    neighbors, kind = graph()
    query, key = (Rows(table.detach().float(), kind) for table in tables())
    g = network("add").float()
    expected = tiled_aggregate(g, query.expand(), key.expand(), neighbors)
    with FlopCounterMode(display=False):
        torch.testing.assert_close(aggregate_network(g, query, key, neighbors), expected)
    half = Rows(query.table.bfloat16(), kind)
    assert aggregate_network(network("add").bfloat16(), half, half, neighbors).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        aggregate_network(g, query, key, neighbors)
    noisy = nn.Sequential(g, nn.Dropout(0.5))
    aggregate_network(noisy, query, key, neighbors)
    assert not found_pairs


def test_aggregate_network_repeats_bit_for_bit(found_pairs: list[KindPairs | None]) -> None:
    neighbors, kind = graph()
    query, key = (Rows(table.detach().float().requires_grad_(), kind) for table in tables())
    g = network("add").float()
    inputs = [query.table, key.table, *g.parameters()]
    first, second = (
        torch.autograd.grad(aggregate_network(g, query, key, neighbors).square().sum(), inputs) for _ in range(2)
    )
    assert None not in found_pairs
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_aggregate_network_refuses_what_does_not_fit_by_name() -> None:
    neighbors, kind = graph()
    query, key = (Rows(table, kind) for table in tables())
    g = network("add")
    with pytest.raises(ValueError, match=f"query: expected {NODES} rows"):
        aggregate_network(g, Rows(query.table, kind[:-1]), key, neighbors)
    with pytest.raises(ValueError, match=r"edge_weight: expected shape \[400\]"):
        aggregate_network(g, query, key, neighbors, edge_weight=torch.ones(1, dtype=DOUBLE), reduce="sym")
    with pytest.raises(ValueError, match="reduce: expected one of"):
        aggregate_network(g, query, key, neighbors, reduce="median")
    with pytest.raises(ValueError, match="combine: expected one of"):
        aggregate_network(g, query, key, neighbors, combine="multiply")
    with pytest.raises(TypeError, match=r"network: expected an nn.Module"):
        aggregate_network(torch.relu, query, key, neighbors)  # type: ignore[arg-type]
