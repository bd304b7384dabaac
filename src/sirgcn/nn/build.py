"""`build_net`: from the configuration of a network to the network."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from sirgcn.nn.config import NetConfig
from sirgcn.nn.net import EdgeNet, SIRNet
from sirgcn.nn.networks import NetworkConfig, make_network
from sirgcn.strict import ConfigError, from_dict


def build_net(config: NetConfig | NetworkConfig, share: Literal["auto", False] = "auto") -> nn.Module:
    """The network of a configuration, with weights drawn from the generator of torch.

    Args:
        config: a `NetConfig` for a `SIRNet`, inside an `EdgeNet` where it scores edges; a `NetworkConfig` for one of
            the networks with a shape of their own.
        share: whether a `SIRNet` may compute equal rows once, see `SIRNet`.

    >>> net = build_net(NetConfig.of(3, 8, 2, num_layers=1, conv="gin"))
    >>> type(net.blocks[0].conv).__name__
    'GIN'
    """
    if not isinstance(config, (NetConfig, NetworkConfig)):
        raise TypeError(
            f"config: expected a NetConfig or a NetworkConfig, got {type(config).__name__}; "
            f"config_from_dict makes one from plain values, and PRESETS has those of the paper"
        )
    if isinstance(config, NetworkConfig):
        return make_network(config.network, config.in_channels, config.out_channels, config.num_nodes, **config.options)
    if not config.head.edge_scores:
        return SIRNet(config, share)
    channels = config.block.channels
    nodes = replace(config, out_channels=channels, head=replace(config.head, edge_scores=False))
    return EdgeNet(SIRNet(nodes, share), channels, config.out_channels, config.edges)


def config_from_dict(data: Mapping[str, Any], where: str = "network") -> NetConfig | NetworkConfig:
    """A configuration from the plain values that its `to_dict` gave, for example after a trip through JSON.

    >>> config = NetConfig.of(16, 64, 7, num_layers=2)
    >>> config_from_dict(config.to_dict()) == config
    True
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: expected a dictionary as to_dict gives it, got {type(data).__name__}")
    if "network" in data:
        found: NetworkConfig = from_dict(NetworkConfig, data, where)
        return found
    return NetConfig.from_dict(data, where)
