"""The parts of a network's configuration: encoders, context, convolution, blocks, readout and head."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

from sirgcn.nn.convs import check_options, find_conv
from sirgcn.ops.activation import Activation
from sirgcn.strict import ConfigError, Count, Probability, Size, check_arguments, check_fields

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
        type: as `EncoderConfig.type`, with `"bond"` for OGB's bonds, and `"constant"` for one learned row that all
            edges share. Categories reach the layers as a table, never as a tensor of edges by channels.
        pe_dim: the number of columns of a random-walk encoding of the edges, given as `edge_pe` to `forward`. A linear
            layer of it is added to the encoded edge features.

    >>> EdgeConfig((5, 6, 2), "embedding").channels
    (5, 6, 2)
    """

    channels: Channels = None
    type: Literal["none", "linear", "embedding", "bond", "constant"] = "none"
    pe_dim: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.type == "constant" and self.channels is not None:
            raise ConfigError(f"edge_channels: expected None with a constant edge encoder, got {self.channels}")
        if self.pe_dim and self.type == "none":
            raise ConfigError(
                "edge_pe_dim: expected 0 without an edge encoder, because the encoding is added to its output"
            )


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
        pe_channels: the width of the encoded encoding, which then stands beside the encoded features, so that both
            together have the width of the blocks; 0 adds it to these features.
        pe_norm: whether a batch norm precedes the linear layer of the encoding.

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
    pe_channels: Count = 0
    pe_norm: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.positional is None) != (self.pe_dim < 1):
            raise ConfigError(f"pe_dim: expected at least 1 with positional and 0 without, got {self.pe_dim}")
        if self.positional is None and self.pe_channels:
            raise ConfigError(f"pe_channels: expected 0 without positional, got {self.pe_channels}")
        if self.positional is None and self.pe_norm:
            raise ConfigError("pe_norm: expected False without positional, got True")


@dataclass(frozen=True)
class ConvConfig:
    """The convolution inside every block.

    Args:
        name: a name of `CONVS`; `"sir"` is `SIRConv`.
        options: its options, see `Conv.options`; for `"sir"` these are `aggr`, `activation`, `sigma_layers`,
            `variant`, `context` and `gated`.
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
        # A file of TOML has no None.
        found = check_arguments(conv.build, self.options, is_toml=True)
        options = self.options | {name: None for name, value in found.items() if value is None}
        object.__setattr__(self, "options", _as_json(options, "options"))


@dataclass(frozen=True)
class BlockConfig:
    """The blocks around the convolutions, with h the input of a block.

    Args:
        channels: the width of the blocks.
        layers: the number of blocks.
        type: the shape of a block:

            - `"residual"`: dropout(act(norm(conv(h) + W h))), Benchmarking GNNs and tunedGNN
            - `"skip"`: h + dropout(act(norm(conv(h)))), Open Graph Benchmark and, with `feed_forward`, GNN+
            - `"pre_norm"`: h + dropout(W act(dropout(conv(norm(h))))), heterophilous data sets; a norm follows the last
              block
            - `"transformer"`: h + dropout(conv(norm(h))), which is a layer of a transformer with `feed_forward`; a norm
              follows the last block
        act: the activation between the layers; None for none.
        norm: `"batch"`, `"layer"` or None.
        conv_norm: whether that norm follows the convolution; False leaves it to the feed-forward networks.
        dropout: after the convolution.
        residual: whether the block `"residual"` has the term W h.
        residual_dropout: after that term.
        feed_forward: the expansion factor of a feed-forward network after every block; 0 for none.
        feed_forward_norm: where its norms are. `"before"`: h + dropout(W_2 act(dropout(W_1 norm(h)))). `"around"`, as
            in GNN+: norm(y + dropout(W_2 dropout(act(W_1 y)))), y = norm(h).
        jk: how jumping knowledge joins the outputs of all blocks: `"cat"`, `"max"`, `"sum"`, `"lstm"`, or None for the
            last output alone.

    >>> BlockConfig(channels=64, layers=4, type="skip").norm
    'batch'
    """

    channels: Size
    layers: Size
    type: Literal["residual", "skip", "pre_norm", "transformer"] = "residual"
    act: str | None = "relu"
    norm: Literal["batch", "layer"] | None = "batch"
    conv_norm: bool = True
    dropout: Probability = 0.0
    residual: bool = True
    residual_dropout: Probability = 0.0
    feed_forward: Count = 0
    feed_forward_norm: Literal["before", "around"] = "before"
    jk: Literal["cat", "max", "sum", "lstm"] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.act is not None:
            _check_activation("act", self.act)
        if not self.conv_norm and self.type in ("pre_norm", "transformer"):
            raise ConfigError(
                f"conv_norm: expected True, because the block {self.type} has no norm after the convolution"
            )


@dataclass(frozen=True)
class ReadoutConfig:
    """The soft-isomorphic readout (Section 3.2): an MLP on every node, whose outputs a graph task pools.

    Args:
        layers: the linear layers of the MLP; 0 for none.
        pool: `"sum"` or `"mean"` for graph tasks, None for node tasks.
        graph_channels: the width of the features of whole graphs, given as `graph_attr` to `forward`; 0 for none. A
            linear layer and the activation encode them, and they stand beside the pooled rows before the head, which
            then has at least one hidden layer.

    >>> ReadoutConfig(layers=2, pool="sum").pool
    'sum'
    """

    layers: Count = 1
    pool: Literal["sum", "mean"] | None = None
    graph_channels: Count = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.graph_channels and self.pool is None:
            raise ConfigError("graph_channels: expected 0 with pool=None, because nodes are not pooled to graphs")


@dataclass(frozen=True)
class HeadConfig:
    """What follows the readout.

    Args:
        channels: the widths of an MLP after the pooling, with a norm and the activation between its layers; empty for
            none.
        norm: that norm: `"batch"`, `"layer"` or None.
        bias: whether the last linear layer of the network carries a bias.
        edge_scores: whether the network scores pairs of nodes in place of nodes, see `EdgeNet`.

    >>> HeadConfig(channels=(40, 20)).bias
    True
    """

    channels: tuple[Size, ...] = ()
    norm: Literal["batch", "layer"] | None = "batch"
    bias: bool = True
    edge_scores: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


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
