"""`SIRConv` on `Rows` that nodes share: a network's messages once per pair of kinds."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sirgcn import SIRConv
from sirgcn.nn import Rows
from sirgcn.ops.sharing import KindPairs

DOUBLE = torch.float64
KINDS, NODES, EDGES, WIDTH = 5, 40, 400, 6


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[KindPairs | None]:
    """What `KindPairs.of` gave, call by call."""
    found: list[KindPairs | None] = []
    of = KindPairs.of

    def spy(*args: Any) -> KindPairs | None:
        found.append(of(*args))
        return found[-1]

    monkeypatch.setattr(KindPairs, "of", spy)
    return found


def rows(dtype: torch.dtype = DOUBLE) -> tuple[Rows, Tensor]:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(KINDS, WIDTH, generator=generator).to(dtype).requires_grad_()
    kind = torch.randint(KINDS, (NODES,), generator=generator)
    return Rows(table, kind), torch.randint(NODES, (2, EDGES), generator=generator)


def sigma(*more: nn.Module) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), *more)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggr": "sym", "residual": True},
        {"aggr": "mean", "cached": True},
        {"aggr": "sym_in", "flow": "target_to_source"},
        {"activation": sigma(nn.Linear(3, 3))},
        {"message_network": nn.Linear(2 * WIDTH, 3)},
    ],
    ids=str,
)
def test_values_and_gradients_are_those_of_plain_rows(options: dict[str, Any], taken: list[KindPairs | None]) -> None:
    x, edge_index = rows()
    conv = SIRConv(WIDTH, 3, **({"activation": sigma()} | options)).to(DOUBLE)
    inputs = [x.table, *conv.parameters()]
    outs = [conv(x, edge_index), conv(x.expand(), edge_index)]
    assert len(taken) == 1
    assert taken[0] is not None
    found, expected = ([out, *torch.autograd.grad(out.square().sum(), inputs)] for out in outs)
    torch.testing.assert_close(found, expected)


def test_two_sets_of_nodes(taken: list[KindPairs | None]) -> None:
    x, edge_index = rows()
    target = Rows(torch.randn(2, 4, dtype=DOUBLE), torch.tensor([0, 1, 1]))
    edge_index[1] %= 3
    conv = SIRConv((WIDTH, 4), 3, activation=sigma()).to(DOUBLE)
    found = conv((x, target), edge_index)
    assert taken[0] is not None
    torch.testing.assert_close(found, conv((x.expand(), target.expand()), edge_index))


def test_repeats_bit_for_bit(taken: list[KindPairs | None]) -> None:
    x, edge_index = rows(torch.float32)
    conv = SIRConv(WIDTH, 3, activation=sigma(nn.Linear(3, 3)))
    first, second = (
        torch.autograd.grad(conv(x, edge_index).square().sum(), [x.table, *conv.parameters()]) for _ in range(2)
    )
    assert taken[0] is not None
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "relu"},
        {"aggr": "max"},
        {"dropout": 0.5},
        {"fused": False},
        {"backend": "reference"},
        {"activation": sigma(nn.Dropout(0.5))},
    ],
    ids=str,
)
def test_other_layers_do_not_look_for_pairs(options: dict[str, Any], taken: list[KindPairs | None]) -> None:
    x, edge_index = rows()
    SIRConv(WIDTH, 3, **({"activation": sigma()} | options)).to(DOUBLE)(x, edge_index)
    assert not taken


def test_half_precision_does_not_look_for_pairs(taken: list[KindPairs | None]) -> None:
    x, edge_index = rows(torch.bfloat16)
    SIRConv(WIDTH, 3, activation=sigma()).to(torch.bfloat16)(x, edge_index)
    x, _ = rows(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        SIRConv(WIDTH, 3, activation=sigma())(x, edge_index)
    assert not taken
