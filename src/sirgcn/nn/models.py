"""Whole models: `SIRGCN`, which stands beside PyG's basic models, and `SIRNet`, the networks of the paper's tables."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.nn.models import JumpingKnowledge
from torch_geometric.nn.models.basic_gnn import BasicGNN

from sirgcn.nn.adjacency import (
    EdgeAttr,
    Graph,
    as_neighbors,
    check_same_device,
    through_edges,
    with_self_loops,
    with_stored_values,
)
from sirgcn.nn.context import RandomFeatures, SIRReadout, VirtualNode, make_norm
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.convs import find_conv, make_conv
from sirgcn.nn.dropout import Dropout, can_drop
from sirgcn.nn.encoder import OGB_ATOM, OGB_BOND, CategoricalEncoder, PositionalEncoder
from sirgcn.nn.linear import Linear
from sirgcn.nn.repeated import (
    Repeated,
    is_row_by_row,
    normalised,
    rows_of,
    takes_kinds,
    through,
    writes_into_input,
)
from sirgcn.ops import Neighbors
from sirgcn.ops.activation import Sigma
from sirgcn.ops.calls import is_compiling, is_exporting, is_touched
from sirgcn.ops.checks import check_devices, check_range, whole_number
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, checked

# Also those of a network that was saved or changed elsewhere.
_LINEAR = (PyGLinear, nn.Linear)


class SIRGCN(BasicGNN):
    """SIR-GCN as one of PyG's basic models, a drop-in beside `torch_geometric.nn.models.GraphSAGE`.

    Arguments are those of `BasicGNN` (`in_channels`, `hidden_channels`, `num_layers`, `out_channels`, `dropout`, `act`,
    `norm`, `jk`, ...); further ones (`aggr`, `activation`, `edge_dim`, `residual`, ...) go to every `SIRConv`. The
    edges are grouped once and serve all layers, unless per-hop counts trim them from layer to layer. `dropout` is that
    of `BasicGNN`, after a layer; the one inside `SIRConv` is not reached from here.
    """

    # As in PyG's own models, which override these for good.
    supports_edge_weight: Final[bool] = True  # type: ignore[misc]
    supports_edge_attr: Final[bool] = True  # type: ignore[misc]

    def init_conv(self, in_channels: int | tuple[int, int], out_channels: int, **kwargs: Any) -> MessagePassing:
        """A layer of this model."""
        return SIRConv(in_channels, out_channels, **kwargs)

    def forward(
        self,
        x: Tensor,
        edge_index: Graph,
        edge_weight: Tensor | None = None,
        edge_attr: EdgeAttr = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        num_sampled_nodes_per_hop: list[int] | None = None,
        num_sampled_edges_per_hop: list[int] | None = None,
    ) -> Tensor:
        """Node features `(|V|, out_channels)`; the arguments are those of `BasicGNN.forward`."""
        # `to_hetero` traces with proxies in place of tensors: its layers group their own edge types.
        if num_sampled_nodes_per_hop is None and isinstance(x, Tensor):
            convs = cast(list[SIRConv], list(self.convs))
            edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, convs[0].edge_dim)
            edge_index = _grouped(edge_index, x.size(-2), convs)
        return super().forward(
            x,
            edge_index,
            edge_weight,
            cast(Tensor | None, edge_attr),
            batch,
            batch_size,
            num_sampled_nodes_per_hop,
            num_sampled_edges_per_hop,
        )


class SIRNet(nn.Module):
    r"""Encoder, blocks of convolutions, readout and head: every network of the paper's tables is one configuration.

    Blocks, with h the layer's input:

    - `"residual"`: dropout(act(norm(conv(h) + W h))), Benchmarking GNNs; `residual=False` leaves out W h
    - `"skip"`: h + dropout(act(norm(conv(h)))), Open Graph Benchmark
    - `"pre_norm"`: h + dropout(W act(dropout(conv(norm(h))))), heterophilous data sets; a last norm follows the blocks
    - `"transformer"`: h + dropout(conv(norm(h))), with `feed_forward` a layer of a transformer; a last norm likewise

    The readout is the soft-isomorphic one (Section 3.2): an MLP on every node, whose outputs a graph task pools.

    Args:
        in_channels: width of the node features, or the sizes of their vocabularies for the encoders `"embedding"`;
            None for `"atom"`.
        hidden_channels: width of the blocks.
        out_channels: classes, targets or logits.
        num_layers: blocks.
        encoder: `"none"` feeds the features straight to the first layer, `"linear"`, `"embedding"` (a sum of
            embeddings) or `"atom"` (OGB's vocabularies).
        encoder_act: whether `act` follows the encoder, or the name of another activation that does.
        edge_channels: width of the edge features, or the sizes of their vocabularies; None for no edge features.
        edge_encoder: as `encoder`, `"bond"` for OGB's bonds; categories reach the layers as a table, never as an
            edges-by-channels tensor.
        block: the shape of a block.
        conv: the convolution, a name of `CONVS`; `"sir"` is `SIRConv`.
        conv_options: further options of the convolution, see `Conv.options`.
        self_loops: whether every node is its own neighbour; None as the convolution has it (`Conv.self_loops`).
        aggr, variant: of `SIRConv`; these and the next two mean nothing to another convolution.
        activation: sigma inside `SIRConv`.
        sigma_layers: linear layers inside sigma: sigma = activation, then linear and activation that many times.
        act: between the layers; None for none.
        norm: `"batch"`, `"layer"` or None.
        residual: whether the block `"residual"` adds a linear layer of its input.
        dropout, input_dropout, conv_dropout, residual_dropout: after the layer, after the encoder, inside the
            convolution, after the residual.
        feed_forward: expansion factor of a feed-forward network h + dropout(W_2 act(dropout(W_1 norm(h)))) after every
            block; 0 for none.
        jk: jumping knowledge over the blocks' outputs, `"cat"`, `"max"`, `"lstm"` or None.
        virtual_node: whether a `VirtualNode` carries the graph's context.
        virtual_residual: whether its state is added to its update.
        random_features: random columns appended after the encoder, from the stream of `random_seed` if one is given.
        positional: `"random_walk"`, `"laplacian"` or None, with `pe_dim` columns given as `pe` to `forward`.
        readout_layers: linear layers of MLP_R; 0 for none.
        pool: `"sum"`, `"mean"` for graph tasks, None for node tasks.
        head_channels: widths of a head after the pooling, with batch norm and act between; empty for none.
        out_bias: whether the last linear layer carries a bias.
    """

    @checked
    def __init__(
        self,
        in_channels: int | Sequence[int] | None,
        hidden_channels: Size,
        out_channels: Size,
        num_layers: Size,
        *,
        encoder: str = "none",
        encoder_act: bool | str = False,
        edge_channels: int | Sequence[int] | None = None,
        edge_encoder: str = "none",
        block: str = "residual",
        conv: str = "sir",
        conv_options: Mapping[str, Any] | None = None,
        self_loops: bool | None = None,
        aggr: str = "sum",
        variant: str = "corrected",
        activation: str = "relu",
        sigma_layers: int = 0,
        act: str | None = "relu",
        norm: str | None = "batch",
        residual: bool = True,
        dropout: Probability = 0.0,
        input_dropout: Probability = 0.0,
        conv_dropout: Probability = 0.0,
        residual_dropout: Probability = 0.0,
        feed_forward: int = 0,
        jk: str | None = None,
        virtual_node: bool = False,
        virtual_residual: bool = False,
        random_features: int = 0,
        random_seed: int | None = None,
        positional: str | None = None,
        pe_dim: int = 0,
        readout_layers: int = 1,
        pool: str | None = None,
        head_channels: Sequence[int] = (),
        out_bias: bool = True,
    ) -> None:
        super().__init__()
        _check_name("block", block, tuple(_BLOCKS))
        _check_name("jk", jk, ("cat", "max", "lstm", None))
        _check_name("pool", pool, ("sum", "mean", None))
        if (positional is None) != (pe_dim < 1):
            raise ValueError(f"pe_dim: expected at least 1 with positional and 0 without, got {pe_dim}")
        if not 0 <= random_features < hidden_channels:
            raise ValueError(f"random_features: expected 0 <= columns < hidden_channels, got {random_features}")
        if readout_layers < 0:
            raise ValueError(f"readout_layers: expected at least 0, got {readout_layers}")
        if num_layers < 1:
            raise ValueError(f"num_layers: expected at least 1, got {num_layers}")
        if feed_forward < 0:
            raise ValueError(f"feed_forward: expected at least 0, got {feed_forward}")
        if pool is None and head_channels:
            raise ValueError("head_channels: a head follows the pooling of a graph task, got pool=None")
        if readout_layers == 0 and not head_channels:
            raise ValueError("readout_layers: expected at least 1 where there is no head, got 0")
        self.act = nn.Identity() if act is None else Sigma(act)
        # Random columns stand beside the encoder's, so that the width of the blocks stays hidden_channels.
        self.encoder, width = _encoder(
            "encoder", encoder, in_channels, hidden_channels - random_features, "atom", OGB_ATOM
        )
        self.encoder_act: nn.Module = self.act if encoder_act else nn.Identity()
        if isinstance(encoder_act, str):
            self.encoder_act = Sigma(encoder_act)
        self.positional = None if positional is None else PositionalEncoder(positional, pe_dim, width)
        self.input_dropout = Dropout(input_dropout)
        self.random_features = RandomFeatures(random_features, random_seed) if random_features else None
        width += random_features
        if width != hidden_channels and (block != "residual" or virtual_node):
            raise ValueError(
                f"encoder: a virtual node and the blocks other than residual add what has {hidden_channels} channels "
                f"to the input, which has {width}; take the encoder linear or embedding"
            )
        self.edge_encoder, self.edge_dim = None, None
        if edge_channels is not None or edge_encoder != "none":
            self.edge_encoder, self.edge_dim = _encoder(
                "edge_encoder", edge_encoder, edge_channels, hidden_channels, "bond", OGB_BOND
            )

        self.conv = find_conv(conv)
        self.self_loops = self.conv.self_loops if self_loops is None else self_loops
        if self.self_loops and self.edge_dim is not None:
            raise ValueError("self_loops: a loop has no edge features, expected edge_channels=None")
        options = dict(conv_options or {})
        if conv == "sir":
            own = {"aggr": aggr, "variant": variant, "activation": activation, "sigma_layers": sigma_layers}
            options = own | options
        self.blocks = nn.ModuleList()
        # What `_rows_repeat` knows how to call; a user may put another convolution into a block.
        self._conv_type: type[nn.Module] = nn.Module
        for in_width in (width, *[hidden_channels] * (num_layers - 1)):
            layer = make_conv(conv, in_width, hidden_channels, conv_dropout, self.edge_dim, **options)
            self._conv_type = type(layer)
            added = None
            if block == "residual" and residual:
                added = nn.Sequential(Linear(in_width, hidden_channels), Dropout(residual_dropout))
            self.blocks.append(_BLOCKS[block](layer, added, hidden_channels, norm, self.act, dropout))
        self.feed_forwards = nn.ModuleList(
            _FeedForward(hidden_channels, feed_forward, norm, self.act, dropout) if feed_forward else nn.Identity()
            for _ in range(num_layers)
        )
        self.virtual_node = VirtualNode(hidden_channels, norm=norm, residual=virtual_residual) if virtual_node else None
        self.jk = None if jk is None else JumpingKnowledge(jk, hidden_channels, num_layers)
        joined = hidden_channels * num_layers if jk == "cat" else hidden_channels
        self.last_norm = make_norm(norm, joined) if block in ("pre_norm", "transformer") else nn.Identity()

        readout_widths = [joined, *[hidden_channels] * readout_layers]
        if not head_channels:
            readout_widths[-1] = out_channels
        network = _mlp(readout_widths, self.act, None, out_bias or bool(head_channels))
        self.pool = pool
        self.readout: nn.Module = network if pool is None else SIRReadout(network, pool)
        self.head: nn.Module = nn.Identity()
        if head_channels:
            self.head = _mlp([readout_widths[-1], *head_channels, out_channels], self.act, "batch", out_bias)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pe: Tensor | None = None,
    ) -> Tensor:
        """Predictions `(|V|, out_channels)`, or `(B, out_channels)` where `pool` is set.

        Args:
            x: node features, or categories of an integer dtype for the encoders `"embedding"` and `"atom"`.
            edge_index: the graph in any form that `SIRConv` takes; the edges are grouped once for all layers.
            edge_attr: edge features or categories, as `edge_encoder` asks, or a pair (table, type) of them; a table of
                floating-point numbers in place of categories counts as encoded.
            edge_weight: a scalar per edge.
            batch: the graph of each node; None for one graph.
            batch_size: the number of graphs; None reads it off `batch`, which `torch.export` cannot.
            pe: the positional encoding, `(|V|, pe_dim)`.
        """
        _check_input("x", x, self.encoder)
        edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, self.edge_dim)
        self._check_edges(edge_attr, edge_weight)
        check_same_device(x, x, edge_index, edge_attr, edge_weight)
        check_devices({"x": x, "batch": batch, "pe": pe})
        graph = _grouped(edge_index, x.size(0))
        if self.self_loops:
            graph = with_self_loops(graph, x.size(0))
        batch, batch_size = _batch(batch, batch_size, x)
        edge = self._encoded_edges(edge_attr)
        h = self._encoded_nodes(x, pe)

        virtual, outputs = self.virtual_node, []
        if virtual is not None:
            state = virtual.start(batch_size)
            h = virtual.spread(h, state, batch)
        known = {"batch": batch, "first": h}
        context = {name: tensor for name, tensor in known.items() if name in self.conv.extra_inputs}
        for block, feed_forward in zip(self.blocks, self.feed_forwards, strict=True):
            h = block(h, graph, edge, edge_weight, **context)
            # What follows wants a row for every node, unless it is the next block or the readout.
            if self.jk is not None or type(feed_forward) is not nn.Identity:
                h = rows_of(h)
            h = feed_forward(h)
            if virtual is not None:
                state = virtual.update(h, state, batch)
                h = virtual.spread(h, state, batch)
            outputs.append(h)
        h = h if self.jk is None else self.jk(outputs)
        network = self.readout.network if type(self.readout) is SIRReadout else self.readout
        if type(self.last_norm) is not nn.Identity or not is_row_by_row(network):
            h = rows_of(h)
        h = self.last_norm(h)
        if self.pool is None:
            return through(self.readout, h)
        return self.head(
            self.readout(Rows(h.table, h.kind) if isinstance(h, Repeated) else h, batch, dim_size=batch_size)
        )

    def _check_edges(self, edge_attr: EdgeAttr, edge_weight: Tensor | None) -> None:
        """Refuse what the convolution cannot take; `SIRConv` refuses for itself."""
        for argument, name, value in (("edge_attr", "edge", edge_attr), ("edge_weight", "edge_weight", edge_weight)):
            if value is not None and name not in self.conv.extra_inputs:
                raise ValueError(f"{argument}: the convolution {self.conv.name} takes none, got one")
        if edge_weight is not None and self.self_loops:
            raise ValueError("edge_weight: a self-loop has none; expected None with self_loops")

    def _encoded_nodes(self, x: Tensor, pe: Tensor | None) -> Any:
        """What goes into the first block, as `Repeated` rows where that saves matrix products."""
        if self.positional is None and pe is not None:
            raise ValueError("pe: this model has no positional encoding, got one")
        if self._rows_repeat(x):
            table, kind = cast(CategoricalEncoder, self.encoder).table(x)
            return Repeated(self.encoder_act(table), kind)
        h = self.encoder_act(self.encoder(x))
        if self.positional is not None:
            if pe is None:
                raise ValueError(f"pe: this model expects a {self.positional.encoding} encoding, got None")
            h = self.positional(h, pe)
        h = self.input_dropout(h)
        return h if self.random_features is None else self.random_features(h)

    def _rows_repeat(self, x: Tensor) -> bool:
        """Whether categories are all that the first block sees, few of them differ, and every part is as we made it.

        Modules that somebody replaced, hooked or gave a `forward` of their own are called as modules, row by row.
        """
        encoder = self.encoder
        return (
            not is_compiling()
            and isinstance(encoder, CategoricalEncoder)
            and encoder.has_table()
            and encoder.combinations <= x.size(0) // 2
            and is_row_by_row(self.encoder_act)
            and not any((self.positional, self.random_features, self.virtual_node))
            and not can_drop(self.input_dropout)
            and all(type(block) in (_PostNorm, _Skip) for block in self.blocks)
            and all(type(block.conv) is self._conv_type for block in self.blocks)
            and getattr(self.blocks[0].conv, "can_take_rows", False)
            and not any(is_touched(module) or writes_into_input(module) for module in self.modules())
        )

    def _encoded_edges(self, edge_attr: EdgeAttr) -> EdgeAttr:
        """What the blocks are given of edges: a pair (table, type) where there is one, unless somebody looks on."""
        edge = self._encoded_edge_types(edge_attr)
        if not isinstance(edge, tuple):
            return edge
        takers = (taker for block in self.blocks for taker in (block, getattr(block, "conv", block)))
        return edge[0].index_select(0, edge[1]) if any(map(is_touched, takers)) else edge

    def _encoded_edge_types(self, edge_attr: EdgeAttr) -> EdgeAttr:
        encoder = self.edge_encoder
        if edge_attr is None or encoder is None:
            return edge_attr
        is_categorical = isinstance(encoder, CategoricalEncoder)
        if isinstance(edge_attr, tuple):
            table, kind = edge_attr
            if is_categorical and table.is_floating_point():
                return edge_attr
            _check_input("edge_attr", table, encoder)
            if isinstance(encoder, CategoricalEncoder):
                return (encoder(table), kind) if encoder.has_table() else encoder(table.index_select(0, kind))
            return through_edges(encoder, edge_attr)
        if isinstance(encoder, CategoricalEncoder):
            return encoder.table(edge_attr) if encoder.has_table() else encoder(edge_attr)
        # PyG keeps a single feature as [E] or [E, 1].
        if isinstance(encoder, _LINEAR) and _input_width(encoder) == 1 and edge_attr.dim() == 1:
            edge_attr = edge_attr.unsqueeze(-1)
        _check_input("edge_attr", edge_attr, encoder)
        return encoder(edge_attr)


class _Block(nn.Module):
    """What the blocks are made of."""

    def __init__(
        self,
        conv: nn.Module,
        residual: nn.Sequential | None,
        channels: int,
        norm: str | None,
        act: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.conv = conv
        self.residual = residual
        self.norm = make_norm(norm, channels)
        self.act = act
        self.dropout = Dropout(dropout)


class _PostNorm(_Block):
    """dropout(act(norm(conv(h) + residual(h)))), with h added where `skip` is set."""

    skip = False

    def forward(
        self, h: Tensor | Repeated, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor
    ) -> Tensor | Repeated:
        x: Any = Rows(h.table, h.kind) if isinstance(h, Repeated) else h
        own, kinds = h, None
        if isinstance(h, Repeated) and edge_weight is None and not context and self._takes_kinds():
            finer = h.finer(cast(Neighbors, graph), edge)
            if finer is not None:
                x, kinds, graph, edge = finer
                own = finer.x[1]
        out = self.conv(x, graph, edge, edge_weight, **context)
        if self.residual is not None:
            out = out + self._residual_of(own)
        out = self.dropout(self.act(normalised(self.norm, out, kinds)))
        if self.skip:
            out = rows_of(own) + out
        return out if kinds is None else Repeated(out, kinds.kind, kinds)

    def _residual_of(self, h: Tensor | Repeated) -> Tensor:
        assert self.residual is not None
        if not isinstance(h, Repeated) or not _is_pair(self.residual):
            return self.residual(rows_of(h))
        linear, dropout = self.residual
        return dropout(through(linear, h))

    def _takes_kinds(self) -> bool:
        """Whether all nodes of a kind come out equal, and the block can be computed once for each."""
        if self.residual is not None and not _is_pair(self.residual):
            return False
        linear, dropout = (nn.Identity(), nn.Identity()) if self.residual is None else self.residual
        return (
            type(self.conv) is SIRConv
            and self.conv.takes_kinds
            and takes_kinds(self.norm)
            and is_row_by_row(self.act)
            and is_row_by_row(linear)
            and not can_drop(self.dropout)
            and not can_drop(dropout)
        )


class _Skip(_PostNorm):
    skip = True


class _PreNorm(_Block):
    """h + dropout(W act(dropout(conv(norm(h)))))."""

    def __init__(self, conv: nn.Module, residual: nn.Sequential | None, channels: int, *rest: Any) -> None:
        super().__init__(conv, residual, channels, *rest)
        self.lin = Linear(channels, channels)

    def forward(self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor) -> Tensor:
        out = self.dropout(self.conv(self.norm(h), graph, edge, edge_weight, **context))
        return h + self.dropout(self.lin(self.act(out)))


class _Transformer(_Block):
    """h + dropout(conv(norm(h)))."""

    def forward(self, h: Tensor, graph: Graph, edge: EdgeAttr, edge_weight: Tensor | None, **context: Tensor) -> Tensor:
        out: Tensor = h + self.dropout(self.conv(self.norm(h), graph, edge, edge_weight, **context))
        return out


_BLOCKS: dict[str, type[_Block]] = {
    "residual": _PostNorm,
    "skip": _Skip,
    "pre_norm": _PreNorm,
    "transformer": _Transformer,
}


class _FeedForward(nn.Module):
    """h + dropout(W_2 act(dropout(W_1 norm(h))))."""

    def __init__(self, channels: int, expansion: int, norm: str | None, act: nn.Module, dropout: float) -> None:
        super().__init__()
        self.network = nn.Sequential(
            make_norm(norm, channels),
            Linear(channels, expansion * channels),
            Dropout(dropout),
            act,
            Linear(expansion * channels, channels),
            Dropout(dropout),
        )

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.network(h)
        return out


def _is_pair(residual: nn.Module) -> bool:
    """Whether a residual is what the network made: a linear layer and a dropout, called one after the other."""
    return type(residual) is nn.Sequential and len(residual) == 2 and not is_touched(residual)


def _mlp(widths: Sequence[int], act: nn.Module, norm: str | None, last_bias: bool) -> nn.Module:
    """Linear layers from width to width, with norm and act between them; the identity for a single width."""
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(pairwise(widths), start=2):
        last = i == len(widths)
        layers.append(Linear(before, after, bias=last_bias or not last))
        if not last:
            layers += [*([] if norm is None else [make_norm(norm, after)]), act]
    return nn.Sequential(*layers)


def _encoder(
    argument: str,
    kind: str,
    channels: int | Sequence[int] | None,
    hidden: int,
    molecule: str,
    vocabularies: Sequence[int],
) -> tuple[nn.Module, int]:
    """An encoder and the width of its output; `molecule` names the one with OGB's vocabularies."""
    _check_name(argument, kind, ("none", "linear", "embedding", molecule))
    if kind == molecule:
        return CategoricalEncoder(vocabularies, hidden, weight_initializer="glorot"), hidden
    if channels is None:
        raise ValueError(f"{argument}: {kind} needs the width or the vocabularies of its input, got None")
    if kind == "embedding":
        return CategoricalEncoder(channels, hidden), hidden
    if isinstance(channels, Sequence):
        raise ValueError(f"{argument}: {kind} takes one width, got the vocabularies {list(channels)}")
    channels = whole_number(channels, argument, "the width of its input")
    if channels < 1 and channels != -1:
        raise ValueError(
            f"{argument}: expected the width of its input, or -1 to read it off the first one, got {channels}"
        )
    return (nn.Identity(), channels) if kind == "none" else (Linear(channels, hidden), hidden)


def _grouped(graph: Graph, num_nodes: int, convs: Iterable[SIRConv] = ()) -> Graph:
    """The edges grouped once for all layers, unless an exporter or one of the layers wants them as they are."""
    if is_exporting() or any(conv.cached or conv.flow == "target_to_source" for conv in convs):
        return graph
    return as_neighbors(graph, num_nodes, num_nodes)


def _check_input(argument: str, features: Tensor, encoder: nn.Module) -> None:
    """Refuse what a linear encoder cannot take; the layers and the embeddings refuse for themselves."""
    if features.dim() > 2:
        raise ValueError(f"{argument}: expected shape [rows, features], got {list(features.shape)}")
    if isinstance(encoder, _LINEAR):
        width = _input_width(encoder)
        if not features.is_floating_point():
            raise ValueError(f"{argument}: expected a floating-point dtype, got {features.dtype}")
        if features.dim() != 2 or features.size(1) != (width or features.size(1)):
            raise ValueError(f"{argument}: expected {width} features per row, got shape {list(features.shape)}")


def _input_width(linear: nn.Module) -> int | None:
    """The input width of a linear layer; None where a lazy one has not seen an input yet."""
    weight = linear.weight
    return None if isinstance(weight, nn.parameter.UninitializedParameter) else cast(Tensor, weight).size(1)


def _batch(batch: Tensor | None, batch_size: int | None, x: Tensor) -> tuple[Tensor, int]:
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch_size: expected 1 without batch, got {batch_size}")
        return torch.zeros(x.size(0), dtype=torch.int64, device=x.device), 1
    if batch.shape != (x.size(0),):
        raise ValueError(f"batch: expected shape {[x.size(0)]}, the graph of each node, got {list(batch.shape)}")
    if batch.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"batch: expected dtype int32 or int64, got {batch.dtype}")
    if is_compiling() and batch_size is not None:
        check_range(batch, batch_size, "batch[{}]", "batch_size", "graph")
    # Only where the look at the largest index costs no wait for a device.
    if batch.numel() and batch.device.type == "cpu" and not is_compiling():
        low, high = (int(bound) for bound in torch.aminmax(batch))
        graphs = high + 1
        if low < 0:
            first = int((batch < 0).nonzero()[0])
            raise IndexError(f"batch[{first}] = {int(batch[first])}: expected the number of a graph, at least 0")
        if batch_size is not None and graphs > batch_size:
            raise ValueError(f"batch_size: expected at least {graphs}, one per graph of batch, got {batch_size}")
    if batch_size is None:
        batch_size = int(batch.max()) + 1 if batch.numel() else 0
    return batch, batch_size


def _check_name(argument: str, name: str | None, known: tuple[str | None, ...]) -> None:
    if name not in known:
        raise ValueError(f"{argument}: expected one of {', '.join(map(str, known))}, got {name!r}")
