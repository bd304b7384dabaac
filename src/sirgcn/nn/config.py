"""A network as plain data: `NetConfig` says everything that `build_net` needs to know, and can be written as JSON.

A configuration has seven parts: how nodes and edges are encoded, which context nodes get besides their features, the
convolution, the blocks around it, the readout and the head. Experiment files and `preset(..., name=value)` name single
settings by the short names of `OPTIONS`, such as `hidden_channels` or `conv_dropout`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, get_type_hints

from sirgcn.nn.convs import find_conv
from sirgcn.nn.parts import (
    BlockConfig,
    Channels,
    ContextConfig,
    ConvConfig,
    EdgeConfig,
    EncoderConfig,
    HeadConfig,
    ReadoutConfig,
)
from sirgcn.strict import ConfigError, Size, check_fields, check_name, from_dict, read


@dataclass(frozen=True)
class NetConfig:
    """A network of encoder, blocks of convolutions, readout and head. Every `SIRNet` of the paper's tables is one.

    Args:
        in_channels: the width of the node features, or the sizes of their vocabularies for the encoder `"embedding"`;
            None for `"atom"`.
        out_channels: classes, targets or logits.
        block: the blocks.
        conv: the convolution inside them.
        encoder: what comes before them.
        edges: the edge features.
        context: what nodes know besides their features.
        readout: what follows the blocks.
        head: what follows the readout.

    >>> config = NetConfig.of(16, 64, 7, num_layers=2, conv="gcn", dropout=0.5)
    >>> config.block.channels, config.conv.name
    (64, 'gcn')
    >>> NetConfig.from_dict(config.to_dict()) == config
    True
    """

    in_channels: Channels
    out_channels: Size
    block: BlockConfig
    conv: ConvConfig = field(default_factory=ConvConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    edges: EdgeConfig = field(default_factory=EdgeConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    readout: ReadoutConfig = field(default_factory=ReadoutConfig)
    head: HeadConfig = field(default_factory=HeadConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        columns = self.context.random_features
        if not 0 <= columns < self.block.channels:
            raise ConfigError(f"random_features: expected 0 <= columns < hidden_channels, got {columns}")
        beside = columns + self.context.pe_channels
        if beside >= self.block.channels:
            raise ConfigError(
                f"pe_channels: expected less than hidden_channels together with random_features, got {beside}"
            )
        if self.readout.pool is None and self.head.channels:
            raise ConfigError("head_channels: a head follows the pooling of a graph task, got pool=None")
        if self.readout.layers == 0 and not self.head.channels:
            raise ConfigError("readout_layers: expected at least 1 where there is no head, got 0")
        if self.head.edge_scores and self.readout.pool is not None:
            raise ConfigError("edge_scores: expected pool=None, since pairs of nodes are scored before any pooling")

    @classmethod
    def of(
        cls, in_channels: Any, hidden_channels: int, out_channels: int, num_layers: int, **options: Any
    ) -> "NetConfig":
        """A configuration from the short names of its settings, which are those of `OPTIONS`.

        >>> NetConfig.of(16, 64, 7, num_layers=2, droput=0.5)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sirgcn.strict.ConfigError: option: expected one of ..., got 'droput'; did you mean dropout?
        """
        block = BlockConfig(
            read(Size, hidden_channels, "hidden_channels"),
            read(Size, num_layers, "num_layers"),
        )
        start = cls(read(Channels, in_channels, "in_channels"), read(Size, out_channels, "out_channels"), block)
        return start.with_options(**options)

    def with_options(self, **options: Any) -> "NetConfig":
        """The configuration with settings changed by the short names of `OPTIONS`.

        Another convolution forgets the options of the one before, which had a meaning for that one only.

        >>> NetConfig.of(16, 64, 7, num_layers=2, aggr="mean").with_options(conv="gcn").conv
        ConvConfig(name='gcn', options={}, dropout=0.0, self_loops=None)
        """
        values = {name: read_option(name, value) for name, value in options.items()}
        parts = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        parts["conv"] = _changed_conv(self.conv, values)
        for part in ("block", "encoder", "edges", "context", "readout", "head"):
            parts[part] = replace(parts[part], **_own(values, part))
        return NetConfig(**parts | _own(values, ""))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "network") -> "NetConfig":
        """A configuration from what `to_dict` gave; unknown keys and wrong types are refused by name."""
        found: NetConfig = from_dict(cls, data, where)
        return found


OPTIONS: dict[str, tuple[str, str]] = {
    "in_channels": ("", "in_channels"),
    "out_channels": ("", "out_channels"),
    "hidden_channels": ("block", "channels"),
    "num_layers": ("block", "layers"),
    "block": ("block", "type"),
    "act": ("block", "act"),
    "norm": ("block", "norm"),
    "conv_norm": ("block", "conv_norm"),
    "dropout": ("block", "dropout"),
    "residual": ("block", "residual"),
    "residual_dropout": ("block", "residual_dropout"),
    "feed_forward": ("block", "feed_forward"),
    "feed_forward_norm": ("block", "feed_forward_norm"),
    "jk": ("block", "jk"),
    "conv": ("conv", "name"),
    "conv_options": ("conv", "options"),
    "conv_dropout": ("conv", "dropout"),
    "self_loops": ("conv", "self_loops"),
    "encoder": ("encoder", "type"),
    "encoder_act": ("encoder", "act"),
    "input_dropout": ("encoder", "dropout"),
    "edge_channels": ("edges", "channels"),
    "edge_encoder": ("edges", "type"),
    "edge_pe_dim": ("edges", "pe_dim"),
    "virtual_node": ("context", "virtual_node"),
    "virtual_residual": ("context", "virtual_residual"),
    "random_features": ("context", "random_features"),
    "random_seed": ("context", "random_seed"),
    "positional": ("context", "positional"),
    "pe_dim": ("context", "pe_dim"),
    "pe_channels": ("context", "pe_channels"),
    "pe_norm": ("context", "pe_norm"),
    "readout_layers": ("readout", "layers"),
    "pool": ("readout", "pool"),
    "graph_channels": ("readout", "graph_channels"),
    "head_channels": ("head", "channels"),
    "head_norm": ("head", "norm"),
    "out_bias": ("head", "bias"),
    "edge_scores": ("head", "edge_scores"),
}
"""The short name of every setting: the part of `NetConfig` that has it, and its name there."""

CONV_OPTIONS = ("aggr", "variant", "activation", "sigma_layers", "context", "gated")
"""Options of `SIRConv` that have short names too: `aggr="mean"` is `conv_options={"aggr": "mean"}`."""

_PARTS: dict[str, Any] = {
    "": NetConfig,
    "block": BlockConfig,
    "conv": ConvConfig,
    "encoder": EncoderConfig,
    "edges": EdgeConfig,
    "context": ContextConfig,
    "readout": ReadoutConfig,
    "head": HeadConfig,
}


def read_option(name: str, value: Any, where: str = "") -> Any:
    """The value of a setting, read by the type of that setting; an unknown name and a wrong value are refused.

    Args:
        name: a short name.
        value: what was given.
        where: the place of the settings, for errors.

    >>> read_option("dropout", 2)
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: dropout: expected a number from 0 to 1, got 2.0
    """
    check_name(where.removesuffix(": ") or "option", name, (*OPTIONS, *CONV_OPTIONS), exact=True)
    if name in CONV_OPTIONS:
        hint = get_type_hints(find_conv("sir").build, include_extras=True)[name]
    else:
        part, own = OPTIONS[name]
        hint = get_type_hints(_PARTS[part], include_extras=True)[own]
    return read(hint, value, f"{where}{name}")


def _own(values: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The settings of one part, by their names there."""
    found = {}
    for name, value in values.items():
        if name not in CONV_OPTIONS and OPTIONS[name][0] == part:
            found[OPTIONS[name][1]] = value
    return found


def _changed_conv(conv: ConvConfig, values: Mapping[str, Any]) -> ConvConfig:
    own = _own(values, "conv")
    is_same = own.get("name", conv.name) == conv.name
    options = dict(conv.options) if is_same else {}
    options |= {name: values[name] for name in CONV_OPTIONS if name in values}
    options |= own.pop("options", {})
    return replace(conv, options=options, **own)
