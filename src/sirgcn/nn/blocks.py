"""The blocks of `SIRNet`: what stands around a convolution."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

from torch import Tensor, nn

from sirgcn.nn.adjacency import EdgeAttr, Graph
from sirgcn.nn.config import BlockConfig
from sirgcn.nn.context import make_norm
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.linear import Linear
from sirgcn.ops.rows import Rows


class LayerInputs(NamedTuple):
    """What every block reads besides the node features.

    Args:
        graph: the edges.
        edge: their features; only a pair (table, type) can be equal for many edges.
        edge_weight: a scalar per edge.
        context: what the convolution reads besides these, by name, see `Conv.extra_inputs`.
    """

    graph: Graph
    edge: EdgeAttr
    edge_weight: Tensor | None
    context: Mapping[str, Tensor]

    def run(self, layer: nn.Module, h: Tensor | Rows) -> Tensor:
        """The output of a block, or of a convolution, for node features."""
        return layer(h, self.graph, self.edge, self.edge_weight, **self.context)


class Block(nn.Module):
    """A convolution with a norm, an activation and dropout; the subclasses say in which order.

    Args:
        conv: the convolution.
        in_channels: the width of the input.
        config: the shape of the block.
        act: the activation, which all blocks share.
    """

    def __init__(self, conv: nn.Module, in_channels: int, config: BlockConfig, act: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.residual: nn.Module | None = None
        if config.type == "residual" and config.residual:
            self.residual = nn.Sequential(Linear(in_channels, config.channels), Dropout(config.residual_dropout))
        self.norm = make_norm(config.norm, config.channels)
        self.act = act
        self.dropout = Dropout(config.dropout)


class Residual(Block):
    """dropout(act(norm(conv(h) + residual(h)))); a subclass may add h itself."""

    adds_input = False

    def forward(self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor) -> Tensor:
        out = self.conv(h, graph, edge, edge_weight, **context)
        return self.finish(out, Rows(h), self.norm)

    def finish(self, out: Tensor, own: Rows, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """The output of the block from that of the convolution.

        Args:
            out: what the convolution gave.
            own: the block's input for the same nodes.
            norm: the norm, or what takes its place.
        """
        if self.residual is not None:
            out = out + self._residual_of(own)
        out = self.dropout(self.act(norm(out)))
        return own.expand() + out if self.adds_input else out

    def _residual_of(self, own: Rows) -> Tensor:
        assert self.residual is not None
        if own.index is None:
            return self.residual(own.table)
        # Rows that nodes share: the linear layer once for each of them, the dropout once for each node.
        linear, dropout = cast(nn.Sequential, self.residual)
        return dropout(own.map(linear).expand())


class Skip(Residual):
    """h + dropout(act(norm(conv(h))))."""

    adds_input = True


class PreNorm(Block):
    """h + dropout(W act(dropout(conv(norm(h)))))."""

    def __init__(self, conv: nn.Module, in_channels: int, config: BlockConfig, act: nn.Module) -> None:
        super().__init__(conv, in_channels, config, act)
        self.lin = Linear(config.channels, config.channels)

    def forward(self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor) -> Tensor:
        out = self.dropout(self.conv(self.norm(h), graph, edge, edge_weight, **context))
        return h + self.dropout(self.lin(self.act(out)))


class Transformer(Block):
    """h + dropout(conv(norm(h)))."""

    def forward(self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor) -> Tensor:
        out: Tensor = h + self.dropout(self.conv(self.norm(h), graph, edge, edge_weight, **context))
        return out


BLOCKS: dict[str, type[Block]] = {
    "residual": Residual,
    "skip": Skip,
    "pre_norm": PreNorm,
    "transformer": Transformer,
}
"""Every block by its name in `BlockConfig.type`."""


class FeedForward(nn.Module):
    """h + dropout(W_2 act(dropout(W_1 norm(h)))), with a hidden width of `feed_forward` times that of the block."""

    def __init__(self, config: BlockConfig, act: nn.Module) -> None:
        super().__init__()
        inside = config.feed_forward * config.channels
        self.network = nn.Sequential(
            make_norm(config.norm, config.channels),
            Linear(config.channels, inside),
            Dropout(config.dropout),
            act,
            Linear(inside, config.channels),
            Dropout(config.dropout),
        )

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.network(h)
        return out


def make_mlp(widths: Sequence[int], act: nn.Module, norm: str | None, last_bias: bool) -> nn.Sequential:
    """Linear layers from width to width with a norm and an activation between them; for a single width no layers."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths[:-1]):
        layers.append(Linear(before, after))
        if norm is not None:
            layers.append(make_norm(norm, after))
        layers.append(act)
    if len(widths) > 1:
        layers.append(Linear(widths[-2], widths[-1], bias=last_bias))
    return nn.Sequential(*layers)
