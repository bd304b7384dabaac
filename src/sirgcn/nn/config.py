"""A network as plain data: `NetConfig` says everything that `build_net` needs to know, and can be written as JSON.

A configuration has seven parts: how nodes and edges are encoded, which context nodes get besides their features, the
convolution, the blocks around it, the readout and the head. Experiment files and `preset(..., name=value)` name single
settings by the short names of `OPTIONS`, such as `hidden_channels` or `conv_dropout`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, get_type_hints

from sirgcn.nn.convs import check_options, find_conv
from sirgcn.ops.activation import Activation
from sirgcn.strict import (
    ConfigError,
    Count,
    Probability,
    Size,
    check_arguments,
    check_fields,
    check_name,
    from_dict,
    read,
)

Channels = int | tuple[int, ...] | None


@dataclass(frozen=True)
class EncoderConfig:
    """How the features of nodes enter the network.

    Args:
        type: `"none"` feeds the features straight to the first layer; `"linear"` is a linear layer, `"embedding"` a sum
            of embeddings, and `"atom"` the same with OGB's vocabularies.
        act: whether the network's activation follows the encoder, or the name of another activation that does.
        dropout: after the encoder.

    >>> EncoderConfig("linear", act="gelu").type
    'linear'
    """

    type: Literal["none", "linear", "embedding", "atom"] = "none"
    act: bool | str = False
    dropout: Probability = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if isinstance(self.act, str):
            _check_activation("encoder_act", self.act)


@dataclass(frozen=True)
class EdgeConfig:
    """How the features of edges enter the network.

    Args:
        channels: the width of the edge features, or the sizes of their vocabularies; None for no edge features.
        type: as `EncoderConfig.type`, with `"bond"` for OGB's bonds. Categories reach the layers as a table, never as a
            tensor of edges by channels.

    >>> EdgeConfig((5, 6, 2), "embedding").channels
    (5, 6, 2)
    """

    channels: Channels = None
    type: Literal["none", "linear", "embedding", "bond"] = "none"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class ContextConfig:
    """What nodes know besides their features and neighbours.

    Args:
        virtual_node: whether a `VirtualNode` carries the context of the whole graph.
        virtual_residual: whether the state of the virtual node is added to its update.
        random_features: how many random columns follow the encoder.
        random_seed: the stream that these columns are drawn from; None for the stream of torch.
        positional: `"random_walk"` or `"laplacian"` for a positional encoding, given as `pe` to `forward`; or None.
        pe_dim: the number of columns of that encoding.

    >>> ContextConfig(positional="random_walk")
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: pe_dim: expected at least 1 with positional and 0 without, got 0
    """

    virtual_node: bool = False
    virtual_residual: bool = False
    random_features: Count = 0
    random_seed: Count | None = None
    positional: Literal["random_walk", "laplacian"] | None = None
    pe_dim: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.positional is None) != (self.pe_dim < 1):
            raise ConfigError(f"pe_dim: expected at least 1 with positional and 0 without, got {self.pe_dim}")


@dataclass(frozen=True)
class ConvConfig:
    """The convolution inside every block.

    Args:
        name: a name of `CONVS`; `"sir"` is `SIRConv`.
        options: its options, see `Conv.options`; for `"sir"` these are `aggr`, `activation`, `sigma_layers`, `variant`
            and `context`.
        dropout: inside the convolution.
        self_loops: whether every node is a neighbour of itself; None leaves that to the convolution
            (`Conv.self_loops`).

    >>> ConvConfig("sir", {"aggr": "mean"}).options
    {'aggr': 'mean'}
    """

    name: str = "sir"
    options: dict[str, Any] = field(default_factory=dict)
    dropout: Probability = 0.0
    self_loops: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        conv = find_conv(self.name)
        check_options(self.name, self.options, conv.options)
        check_arguments(conv.build, self.options)
        object.__setattr__(self, "options", _as_json(self.options, "options"))


@dataclass(frozen=True)
class BlockConfig:
    """The blocks around the convolutions, with h the input of a block.

    Args:
        channels: the width of the blocks.
        layers: the number of blocks.
        type: the shape of a block:

            - `"residual"`: dropout(act(norm(conv(h) + W h))), Benchmarking GNNs
            - `"skip"`: h + dropout(act(norm(conv(h)))), Open Graph Benchmark
            - `"pre_norm"`: h + dropout(W act(dropout(conv(norm(h))))), heterophilous data sets; a norm follows the last
              block
            - `"transformer"`: h + dropout(conv(norm(h))), which is a layer of a transformer with `feed_forward`; a norm
              follows the last block
        act: the activation between the layers; None for none.
        norm: `"batch"`, `"layer"` or None.
        dropout: after the convolution.
        residual: whether the block `"residual"` has the term W h.
        residual_dropout: after that term.
        feed_forward: the expansion factor of a feed-forward network h + dropout(W_2 act(dropout(W_1 norm(h)))) after
            every block; 0 for none.
        jk: how jumping knowledge joins the outputs of all blocks: `"cat"`, `"max"`, `"lstm"`, or None for the last
            output alone.

    >>> BlockConfig(channels=64, layers=4, type="skip").norm
    'batch'
    """

    channels: Size
    layers: Size
    type: Literal["residual", "skip", "pre_norm", "transformer"] = "residual"
    act: str | None = "relu"
    norm: Literal["batch", "layer"] | None = "batch"
    dropout: Probability = 0.0
    residual: bool = True
    residual_dropout: Probability = 0.0
    feed_forward: Count = 0
    jk: Literal["cat", "max", "lstm"] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.act is not None:
            _check_activation("act", self.act)


@dataclass(frozen=True)
class ReadoutConfig:
    """The soft-isomorphic readout (Section 3.2): an MLP on every node, whose outputs a graph task pools.

    Args:
        layers: the linear layers of the MLP; 0 for none.
        pool: `"sum"` or `"mean"` for graph tasks, None for node tasks.

    >>> ReadoutConfig(layers=2, pool="sum").pool
    'sum'
    """

    layers: Count = 1
    pool: Literal["sum", "mean"] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class HeadConfig:
    """What follows the readout.

    Args:
        channels: the widths of an MLP after the pooling, with batch norm and the activation between its layers; empty
            for none.
        bias: whether the last linear layer of the network carries a bias.
        edge_scores: whether the network scores pairs of nodes in place of nodes, see `EdgeNet`.

    >>> HeadConfig(channels=(40, 20)).bias
    True
    """

    channels: tuple[Size, ...] = ()
    bias: bool = True
    edge_scores: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


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
    "dropout": ("block", "dropout"),
    "residual": ("block", "residual"),
    "residual_dropout": ("block", "residual_dropout"),
    "feed_forward": ("block", "feed_forward"),
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
    "virtual_node": ("context", "virtual_node"),
    "virtual_residual": ("context", "virtual_residual"),
    "random_features": ("context", "random_features"),
    "random_seed": ("context", "random_seed"),
    "positional": ("context", "positional"),
    "pe_dim": ("context", "pe_dim"),
    "readout_layers": ("readout", "layers"),
    "pool": ("readout", "pool"),
    "head_channels": ("head", "channels"),
    "out_bias": ("head", "bias"),
    "edge_scores": ("head", "edge_scores"),
}
"""The short name of every setting: the part of `NetConfig` that has it, and its name there."""

CONV_OPTIONS = ("aggr", "variant", "activation", "sigma_layers", "context")
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


def _check_activation(setting: str, name: str) -> None:
    try:
        Activation.parse(name)
    except ValueError as error:
        raise ConfigError(str(error).replace("activation:", f"{setting}:", 1)) from None


def _as_json(value: Any, where: str) -> Any:
    """The value as JSON gives it back: lists for tuples, plain numbers; anything that JSON cannot hold is refused."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _as_json(entry, f"{where}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(entry, f"{where}[{place}]") for place, entry in enumerate(value)]
    raise ConfigError(f"{where}: expected a value that JSON can hold, got {value!r}")


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
        return value
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
