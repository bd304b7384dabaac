"""The blocks of `SIRNet`: what stands around a convolution."""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias, cast

from torch import Tensor, nn
from torch_geometric.nn.models import JumpingKnowledge

from sirgcn.nn.adjacency import EdgeAttr, Graph
from sirgcn.nn.context import make_norm
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.linear import Linear
from sirgcn.nn.parts import BlockConfig
from sirgcn.ops.rows import Rows, look_up

BlockOutput: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""Node features, or a pair of node features and the edge features that the next block reads."""


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
        """The output of a convolution, or of a block that passes on no edge features, for node features."""
        return layer(h, self.graph, self.edge, self.edge_weight, **self.context)

    def step(self, block: nn.Module, h: Tensor) -> tuple[Tensor, "LayerInputs"]:
        """The output of a block, and what the next block reads."""
        found: BlockOutput = self.run(block, h)
        if isinstance(found, tuple):
            return found[0], self._replace(edge=found[1])
        return found, self


class Block(nn.Module):
    """A convolution with a norm, an activation and dropout; the subclasses say in which order.

    A convolution with `passes_edges` returns a pair: node features, and a term z of every edge. The next block then
    reads e + dropout(act(norm(z))) as its edge features, with e those of this block and a norm of their own.

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
        norm = config.norm if config.conv_norm else None
        self.norm = make_norm(norm, config.channels)
        self.edge_norm = make_norm(norm, config.channels) if getattr(conv, "passes_edges", False) else None
        self.act = act
        self.dropout = Dropout(config.dropout)

    def forward(
        self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor
    ) -> BlockOutput:
        """Node features, and the edge features of the next block where the convolution passes them on."""
        found = self.conv(self.before(h), graph, edge, edge_weight, **context)
        if self.edge_norm is None:
            return self.after(found, h)
        out, terms = found
        return self.after(out, h), self._next_edges(edge, terms)

    def before(self, h: Tensor) -> Tensor:
        """What the convolution reads."""
        return h

    def after(self, out: Tensor, h: Tensor) -> Tensor:
        """The output of the block from that of the convolution and the input of the block."""
        raise NotImplementedError

    def _next_edges(self, edge: EdgeAttr, terms: Tensor) -> Tensor:
        assert self.edge_norm is not None
        changed: Tensor = self.dropout(self.act(self.edge_norm(terms)))
        if edge is None:
            return changed
        return changed + (look_up(*edge) if isinstance(edge, tuple) else edge)


class Residual(Block):
    """dropout(act(norm(conv(h) + residual(h)))); a subclass may add h itself."""

    adds_input = False

    def after(self, out: Tensor, h: Tensor) -> Tensor:
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

    def before(self, h: Tensor) -> Tensor:
        return self.norm(h)

    def after(self, out: Tensor, h: Tensor) -> Tensor:
        return h + self.dropout(self.lin(self.act(self.dropout(out))))


class Transformer(Block):
    """h + dropout(conv(norm(h)))."""

    def before(self, h: Tensor) -> Tensor:
        return self.norm(h)

    def after(self, out: Tensor, h: Tensor) -> Tensor:
        return h + self.dropout(out)


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


class NormedFeedForward(nn.Module):
    """norm(y + dropout(W_2 dropout(act(W_1 y)))) with y = norm(h), the feed-forward network of GNN+."""

    def __init__(self, config: BlockConfig, act: nn.Module) -> None:
        super().__init__()
        inside = config.feed_forward * config.channels
        self.first_norm = make_norm(config.norm, config.channels)
        self.network = nn.Sequential(
            Linear(config.channels, inside),
            act,
            Dropout(config.dropout),
            Linear(inside, config.channels),
            Dropout(config.dropout),
        )
        self.last_norm = make_norm(config.norm, config.channels)

    def forward(self, h: Tensor) -> Tensor:
        y = self.first_norm(h)
        out: Tensor = self.last_norm(y + self.network(y))
        return out


def make_feed_forward(config: BlockConfig, act: nn.Module) -> nn.Module:
    """What follows a block: the feed-forward network of the configuration, or the identity."""
    if not config.feed_forward:
        return nn.Identity()
    return FeedForward(config, act) if config.feed_forward_norm == "before" else NormedFeedForward(config, act)


class SumOfLayers(nn.Module):
    """Jumping knowledge as the sum of the outputs of all blocks."""

    def forward(self, outputs: Sequence[Tensor]) -> Tensor:
        return functools.reduce(Tensor.add, outputs)


def make_jk(config: BlockConfig) -> nn.Module | None:
    """What joins the outputs of all blocks; None for the last output alone."""
    if config.jk is None:
        return None
    return SumOfLayers() if config.jk == "sum" else JumpingKnowledge(config.jk, config.channels, config.layers)


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
