"""Settings of layers and networks are read strictly: no text for a truth value, no width below 1."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from sirgcn import Neighbors, SIRConv, SIRNet
from sirgcn.nn import CategoricalEncoder, VirtualNode
from sirgcn.nn.convs import make_conv
from sirgcn.nn.networks import make_network

Make = Callable[..., Any]


def net(**options: Any) -> SIRNet:
    return SIRNet.of(
        **{"in_channels": 4, "hidden_channels": 8, "out_channels": 2, "num_layers": 1, "encoder": "linear", **options}
    )


def conv(**options: Any) -> SIRConv:
    return SIRConv(**{"in_channels": 6, "out_channels": 8, **options})


TRUTH = [
    *((net, name) for name in ("residual", "virtual_node", "virtual_residual", "out_bias", "self_loops")),
    *((conv, name) for name in ("bias", "inner_bias", "cached", "fused")),
    (lambda **options: make_conv("gatv2", 8, 8, **options), "share_weights"),
    (lambda **options: make_network("fsgnn", 8, 3, 4, **options), "normalize"),
]


@pytest.mark.parametrize(("make", "name"), TRUTH)
def test_text_is_no_truth_value(make: Make, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected true or false.*, got 'no'"):
        make(**{name: "no"})


NUMBERS: list[tuple[Make, dict[str, Any], str]] = [
    (net, {"hidden_channels": "8"}, "hidden_channels: expected a whole number, got '8'"),
    (net, {"hidden_channels": 8.0}, "hidden_channels: expected a whole number, got 8.0"),
    (net, {"hidden_channels": -8}, "hidden_channels: expected at least 1, got -8"),
    (net, {"in_channels": -7}, "encoder: expected the width of its input, or -1 .*, got -7"),
    (net, {"in_channels": 0}, "encoder: expected the width of its input, or -1 .*, got 0"),
    (net, {"out_channels": 0}, "out_channels: expected at least 1, got 0"),
    (net, {"num_layers": True}, "num_layers: expected a whole number, got True"),
    (net, {"dropout": float("nan")}, "dropout: expected a number from 0 to 1, got nan"),
    (net, {"random_seed": "a"}, "random_seed: expected a whole number, got 'a'"),
    (conv, {"out_channels": 0}, "out_channels: expected at least 1, got 0"),
    (conv, {"hidden_channels": 0}, "hidden_channels: expected at least 1, got 0"),
    (conv, {"dropout": 1.5}, "dropout: expected a number from 0 to 1, got 1.5"),
    (lambda: make_conv("gcn", -3, 8), {}, "in_channels: expected at least 1, got -3"),
    (lambda: make_conv("egc_s", 8, 8, bases=0), {}, "bases: expected at least 1, got 0"),
    (lambda: make_conv("gatv2", 8, 0), {}, "out_channels: expected at least 1, got 0"),
    (lambda: make_network("h2gcn", 8, 3, 4, num_layers=-1), {}, "num_layers: expected at least 1, got -1"),
    (lambda: make_network("gprgnn", 8, 3, 4, order=-1), {}, "order: expected at least 1, got -1"),
    (lambda: VirtualNode(8, -1), {}, "num_layers: expected at least 1, got -1"),
]


@pytest.mark.parametrize(("make", "changes", "message"), NUMBERS)
def test_number_that_cannot_be_one_is_refused_by_name(make: Make, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    kinds: tuple[Callable[[int], Any], ...] = (np.int64, np.int32, torch.tensor)
    for number in kinds:
        assert Neighbors.from_edge_index(edges, number(5)).num_sources == 5
        assert conv(out_channels=number(8)).out_channels == 8
        assert net(hidden_channels=number(8), num_layers=number(2)) is not None
        assert CategoricalEncoder(number(3), number(8)).channels == 8


@pytest.mark.parametrize("block", ["residual", "pre_norm"])
def test_width_that_is_not_known_yet_is_seen_on_the_first_input(block: str) -> None:
    network = net(in_channels=-1, block=block)
    out = network(torch.randn(5, 4), torch.tensor([[0, 1], [1, 2]]))
    assert out.shape == (5, 2)
    assert network.encoder.weight.shape == (8, 4)
