"""A network is a configuration: every setting survives JSON, wrong ones are refused, and weights are drawn as ever."""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sirgcn.nn import (
    CONVS,
    NETWORKS,
    OPTIONS,
    PRESETS,
    NetConfig,
    NetworkConfig,
    SIRNet,
    build_net,
    config_from_dict,
    dictionary_lookup_preset,
    hetero_edge_count_preset,
    preset,
)
from sirgcn.strict import ConfigError

EVERYTHING: dict[str, Any] = {
    "encoder": "linear",
    "encoder_act": "gelu",
    "input_dropout": 0.1,
    "edge_channels": (3, 2),
    "edge_encoder": "embedding",
    "edge_pe_dim": 3,
    "block": "residual",
    "act": "gelu",
    "norm": "layer",
    "conv_norm": False,
    "dropout": 0.2,
    "residual": False,
    "residual_dropout": 0.3,
    "feed_forward": 2,
    "feed_forward_norm": "around",
    "jk": "cat",
    "conv": "gated_gcn",
    "conv_options": {},
    "conv_dropout": 0.4,
    "self_loops": False,
    "virtual_node": True,
    "virtual_residual": True,
    "random_features": 2,
    "random_seed": 3,
    "positional": "random_walk",
    "pe_dim": 4,
    "pe_channels": 5,
    "pe_norm": True,
    "readout_layers": 2,
    "pool": "sum",
    "graph_channels": 6,
    "head_channels": (8,),
    "head_norm": "layer",
    "out_bias": False,
    "edge_scores": False,
}


def of(**options: Any) -> NetConfig:
    return NetConfig.of(5, 16, 3, num_layers=2, **options)


def through_json(config: NetConfig | NetworkConfig) -> NetConfig | NetworkConfig:
    return config_from_dict(json.loads(json.dumps(config.to_dict())))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_json(name: str) -> None:
    assert through_json(PRESETS[name]) == PRESETS[name]


def test_every_setting_survives_json() -> None:
    assert set(EVERYTHING) | {"in_channels", "hidden_channels", "out_channels", "num_layers"} == set(OPTIONS)
    config = of(**EVERYTHING)
    assert through_json(config) == config
    assert config != of()


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_their_own_survive_json(name: str) -> None:
    config = NetworkConfig(name, 5, 3, num_nodes=20)
    assert through_json(config) == config
    assert isinstance(build_net(config), nn.Module)


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_short_name_changes_one_setting(name: str) -> None:
    """Settings that depend on each other are changed together."""
    together: dict[str, dict[str, Any]] = {
        "pe_dim": {"positional": "random_walk"},
        "pe_channels": {"positional": "random_walk", "pe_dim": 4},
        "pe_norm": {"positional": "random_walk", "pe_dim": 4},
        "edge_pe_dim": {"edge_channels": 2, "edge_encoder": "linear"},
        "positional": {"pe_dim": 4},
        "head_channels": {"pool": "sum"},
        "graph_channels": {"pool": "sum"},
    }
    needed = together.get(name, {})
    value = not of().head.edge_scores if name == "edge_scores" else EVERYTHING[name]
    part, own = OPTIONS[name]
    changed = of(**needed, **{name: value})
    assert getattr(getattr(changed, part), own) == value


def test_another_convolution_forgets_the_options_of_the_one_before() -> None:
    config = of(aggr="mean", conv_dropout=0.3)
    assert config.conv.options == {"aggr": "mean"}
    assert config.with_options(conv="sir").conv.options == {"aggr": "mean"}
    other = config.with_options(conv="gcn")
    assert other.conv.options == {}
    assert other.conv.dropout == 0.3
    with pytest.raises(ConfigError, match="options of gcn: expected none, got aggr"):
        config.with_options(conv="gcn", aggr="mean")


def test_conv_options_are_added_to_those_that_are_there() -> None:
    config = of(aggr="mean").with_options(conv_options={"activation": "gelu"})
    assert config.conv.options == {"aggr": "mean", "activation": "gelu"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"droput": 0.1}, "option: expected one of .*, got 'droput'; did you mean dropout?"),
        ({"Dropout": 0.1}, "got 'Dropout'; did you mean dropout?"),
        ({"dropout": 2}, "dropout: expected a number from 0 to 1, got 2"),
        ({"dropout": "much"}, "dropout: expected a number, got 'much'"),
        ({"block": "resnet"}, "block: expected one of residual, skip, pre_norm, transformer, got 'resnet'"),
        ({"norm": "bach"}, "norm: expected .*batch.*, got 'bach'"),
        ({"conv": "GCN"}, "expected one of sir, .*, got 'GCN'; did you mean gcn?"),
        ({"conv_options": {"agr": "sum"}}, "options of sir: expected one of .*, got 'agr'; did you mean aggr?"),
        ({"pe_dim": 3}, "pe_dim: expected at least 1 with positional and 0 without"),
        ({"head_channels": [8]}, "head_channels: a head follows the pooling"),
        ({"readout_layers": 0}, "readout_layers: expected at least 1 where there is no head"),
        ({"random_features": 16}, "random_features: expected 0 <= columns < hidden_channels"),
        ({"edge_scores": True, "pool": "sum"}, "edge_scores: expected pool=None"),
        ({"feed_forward": -1}, "feed_forward: expected at least 0, got -1"),
        ({"pe_dim": -3}, "pe_dim: expected at least 0, got -3"),
        ({"pe_channels": 3}, "pe_channels: expected 0 without positional, got 3"),
        ({"pe_norm": True}, "pe_norm: expected False without positional"),
        (
            {"positional": "random_walk", "pe_dim": 2, "pe_channels": 15, "random_features": 1},
            "pe_channels: expected less than hidden_channels together with random_features, got 16",
        ),
        ({"edge_pe_dim": 3}, "edge_pe_dim: expected 0 without an edge encoder"),
        (
            {"edge_encoder": "constant", "edge_channels": 3},
            "edge_channels: expected None with a constant edge encoder, got 3",
        ),
        ({"conv_norm": False, "block": "pre_norm"}, "conv_norm: expected True, because the block pre_norm has no norm"),
        ({"feed_forward_norm": "after"}, "feed_forward_norm: expected one of before, around, got 'after'"),
        ({"random_seed": -1}, "random_seed: expected at least 0, got -1"),
        ({"pool": "sum", "head_channels": [0]}, r"head_channels\[0\]: expected at least 1, got 0"),
        ({"act": "rleu"}, "^act: expected one of .*, got 'rleu'"),
        ({"encoder_act": "rleu"}, "^encoder_act: expected one of .*, got 'rleu'"),
        ({"sigma_layers": "two"}, "sigma_layers: expected a whole number, got 'two'"),
        ({"activation": torch.nn.ReLU()}, "activation: expected text, got ReLU"),
        ({"num_layers": 0}, "num_layers: expected at least 1, got 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        of().with_options(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blok": {}}, "network: unknown key 'blok'.*; did you mean block?"),
        ({"out_channels": "3"}, "network: out_channels: expected a whole number, got '3'"),
        ({"conv": {"name": "gcnn"}}, "got 'gcnn'; did you mean gcn?"),
        ({"block": {"channels": 4}}, "layers is not set"),
    ],
    ids=str,
)
def test_a_damaged_dictionary_is_refused_by_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_from_dict(of().to_dict() | change)


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 'gprgn'; did you mean gprgnn\?"):
        NetworkConfig("gprgn", 5, 3, num_nodes=2)


def test_a_network_has_few_arguments_and_keeps_its_configuration() -> None:
    assert len(inspect.signature(SIRNet).parameters) <= 12
    config = of(conv="gin")
    net = build_net(config)
    assert isinstance(net, SIRNet)
    assert net.config == config


def test_edges_are_scored_by_a_network_around_the_one_on_nodes() -> None:
    net = build_net(of(edge_scores=True))
    x, edge_index = torch.rand(6, 5), torch.randint(6, (2, 9))
    assert net(x, edge_index, edge_index[:, :4]).shape == (4, 3)
    with pytest.raises(ConfigError, match="edge_scores: expected False"):
        SIRNet(of(edge_scores=True))


@pytest.mark.parametrize("share", ["never", True, None])
def test_share_is_auto_or_false(share: Any) -> None:
    with pytest.raises(ConfigError, match="share: expected"):
        SIRNet(of(), share=share)


def digest(model: nn.Module) -> str:
    """The names, shapes and bytes of all weights and buffers."""
    found = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        found.update(str(tuple(tensor.shape)).encode())
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def block_of_every_part(block: str) -> NetConfig:
    return NetConfig.of(
        5,
        16,
        3,
        2,
        encoder="linear",
        block=block,
        feed_forward=2,
        jk="cat",
        virtual_node=True,
        pool="sum",
        readout_layers=2,
        head_channels=(8,),
        positional="random_walk",
        pe_dim=4,
        random_features=2,
        edge_channels=(3, 2),
        edge_encoder="embedding",
        norm="layer",
    )


def networks() -> dict[str, Callable[[], nn.Module]]:
    """Every network whose weights are on record."""
    found: dict[str, Callable[[], nn.Module]] = {}
    for name in PRESETS:
        found[f"preset {name}"] = partial(preset, name)
        found[f"preset {name} published"] = partial(preset, name, variant="published")
    for conv in CONVS:
        c = 8 if conv in ("gat", "gatv2", "transformer") else 4
        found[f"zinc {conv}"] = partial(preset, "zinc", conv=conv, hidden_channels=16)
        found[f"dictionary_lookup {conv}"] = partial(build_net, dictionary_lookup_preset(4, conv))
        found[f"hetero_edge_count {conv}"] = partial(build_net, hetero_edge_count_preset(c, conv))
    for block in ("residual", "skip", "pre_norm", "transformer"):
        found[f"block {block}"] = partial(build_net, block_of_every_part(block))
    for network in NETWORKS:
        found[f"network {network}"] = partial(build_net, NetworkConfig(network, 5, 3, num_nodes=20))
    return found


WEIGHTS: dict[str, str] = json.loads((Path(__file__).parent / "weights.json").read_text())
"""The weights of seed 0, as they were drawn before networks were configurations."""


def test_every_network_on_record_is_still_there() -> None:
    assert WEIGHTS.keys() <= networks().keys()


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_seed_draws_the_same_weights_as_ever(name: str) -> None:
    torch.manual_seed(0)
    assert digest(networks()[name]()) == WEIGHTS[name]


def test_a_changed_configuration_is_another_network() -> None:
    config = replace(of(), out_channels=4)
    assert build_net(config)(torch.rand(3, 5), torch.tensor([[0, 1], [1, 2]])).shape == (3, 4)


def test_options_of_a_convolution_are_what_json_gives_back() -> None:
    config = of(conv="pna", conv_options={"aggregators": ("mean", "max"), "delta": np.float64(1.5)})
    assert config.conv.options == {"aggregators": ["mean", "max"], "delta": 1.5}
    assert through_json(config) == config


@pytest.mark.parametrize("given", [None, "{}", []], ids=str)
def test_what_is_no_dictionary_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="network: expected a dictionary"):
        config_from_dict(given)


@pytest.mark.parametrize("given", [None, "zinc", {}], ids=str)
def test_what_is_no_configuration_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="config: expected a NetConfig or a NetworkConfig"):
        build_net(given)


def test_the_former_call_of_a_network_names_its_arguments() -> None:
    former: Any = SIRNet
    with pytest.raises(TypeError, match="SIRNet: too many positional arguments; its arguments are config, share"):
        former(4, 6, 2, 2)
