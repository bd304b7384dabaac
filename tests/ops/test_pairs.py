"""Messages once per pair of kinds against one message per edge."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sirgcn import SIRConv
from sirgcn.nn import Repeated
from sirgcn.ops import REDUCTIONS, Neighbors, tiled_aggregate
from sirgcn.ops.pairs import KindPairs, acts_alike

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
    pairs = KindPairs.of(kind, kind, neighbors)
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
    edge_index = torch.tensor([[0, 0, 0, 1, 1, 1], [2, 2, 2, 3, 3, 3]])
    pairs = KindPairs.of(
        torch.tensor([9, 9, 4, 4]), torch.tensor([1, 0, 9, 9]), Neighbors.from_edge_index(edge_index, 4)
    )
    assert pairs is not None
    assert pairs.target_kinds.tolist() == [4]
    assert pairs.source_kinds.tolist() == [0, 1]
    assert pairs.messages.edge_index.tolist() == [[1, 1, 1, 0, 0, 0], [2, 2, 2, 3, 3, 3]]


def test_pairs_are_left_alone_where_they_save_nothing() -> None:
    kind = torch.arange(4)
    few = Neighbors.from_edge_index(torch.randint(4, (2, 31), generator=torch.Generator().manual_seed(0)), 4)
    assert KindPairs.of(kind, kind, few) is None
    assert KindPairs.of(kind, kind, Neighbors.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 4)) is None


def test_networks_that_may_treat_equal_inputs_differently_are_known() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    assert acts_alike(nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.Dropout(0)))
    assert acts_alike(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval())
    assert not acts_alike(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    assert not acts_alike(nn.Sequential(nn.Linear(2, 2), Noise()))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"aggr": "sym"}, True),
        ({"message_network": nn.Linear(2 * WIDTH, 3)}, True),
        ({"aggr": "max"}, False),
        ({"dropout": 0.5}, False),
        ({"fused": False}, False),
        ({"activation": nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.Dropout(0.5))}, False),
    ],
)
def test_layer_takes_pairs_for_a_network_and_repeated_rows(
    options: dict[str, object], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbors, kind = graph()
    table = torch.randn(KINDS, WIDTH, dtype=DOUBLE)
    sigma = nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
    conv = SIRConv(WIDTH, 3, **({"activation": sigma, "residual": True} | options)).to(DOUBLE)  # type: ignore[arg-type]
    taken = []
    of = KindPairs.of

    def spy(*args: Any) -> KindPairs | None:
        taken.append(args)
        return of(*args)

    monkeypatch.setattr(KindPairs, "of", spy)
    torch.manual_seed(0)
    repeated = conv(Repeated(table, kind), neighbors)
    assert bool(taken) == expected
    if expected:
        torch.testing.assert_close(repeated, conv(table[kind], neighbors))
        assert len(taken) == 1


def test_gradients_of_a_layer_are_those_without_pairs() -> None:
    neighbors, kind = graph()
    table = torch.randn(KINDS, WIDTH, dtype=DOUBLE, requires_grad=True)
    sigma = nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
    conv = SIRConv(WIDTH, 3, activation=sigma, aggr="mean").to(DOUBLE)
    inputs = [table, *conv.parameters()]
    found, expected = (
        torch.autograd.grad(conv(x, neighbors).square().sum(), inputs) for x in (Repeated(table, kind), table[kind])
    )
    torch.testing.assert_close(found, expected)
