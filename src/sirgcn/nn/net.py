"""`SIRNet`: encoder, blocks of convolutions, readout and head, as a `NetConfig` describes them."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn.inits import reset
from torch_geometric.nn.models import JumpingKnowledge

from sirgcn.nn.adjacency import (
    EdgeAttr,
    Graph,
    as_neighbors,
    check_same_device,
    through_edges,
    with_self_loops,
    with_stored_values,
)
from sirgcn.nn.blocks import BLOCKS, FeedForward, LayerInputs, make_mlp
from sirgcn.nn.config import Channels, NetConfig
from sirgcn.nn.context import RandomFeatures, SIRReadout, VirtualNode, make_norm
from sirgcn.nn.convs import find_conv, make_conv
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.encoder import OGB_ATOM, OGB_BOND, CategoricalEncoder, PositionalEncoder
from sirgcn.nn.linear import Linear
from sirgcn.nn.sharing import run_shared
from sirgcn.ops.activation import Sigma
from sirgcn.ops.calls import is_compiling, is_exporting, is_touched
from sirgcn.ops.checks import check_devices, check_range
from sirgcn.ops.parts import is_row_by_row
from sirgcn.ops.rows import Rows
from sirgcn.strict import ConfigError, checked

# Also the linear layers of a network that was saved or changed elsewhere.
_LINEAR = (PyGLinear, nn.Linear)


class SIRNet(nn.Module):
    r"""Encoder, blocks of convolutions, readout and head: every network of the paper's tables is one configuration.

    Args:
        config: the network as plain data, see `NetConfig`. `NetConfig.of` takes single settings by short names.
        share: `"auto"` computes equal rows once wherever nobody can see the difference, see `sirgcn.nn.sharing`; False
            always computes every node.

    Shapes:
        - **input:** node features `(|V|, F_in)` or categories `(|V|, C)`, a graph in any form that `SIRConv` accepts
        - **output:** `(|V|, out_channels)`, or `(B, out_channels)` for B graphs where the readout pools

    >>> net = SIRNet(NetConfig.of(3, 8, 2, num_layers=2, aggr="mean"))
    >>> net(torch.rand(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
    torch.Size([4, 2])
    """

    @checked
    def __init__(self, config: NetConfig, share: Literal["auto", False] = "auto") -> None:
        super().__init__()
        if config.head.edge_scores:
            raise ConfigError("edge_scores: expected False, since build_net puts an EdgeNet around a SIRNet")
        self.config = config
        self.share = share
        block, context = config.block, config.context
        self.conv = find_conv(config.conv.name)
        self.self_loops = self.conv.self_loops if config.conv.self_loops is None else config.conv.self_loops
        self.pool = config.readout.pool
        self.act = nn.Identity() if block.act is None else Sigma(block.act)

        width = self._add_encoders()
        self.blocks = self._make_blocks(width)
        # A user may put another convolution into a block; rows are shared with this type only.
        self.conv_type: type[nn.Module] = type(cast(nn.Module, self.blocks[0].conv))
        self.feed_forwards = nn.ModuleList(
            FeedForward(block, self.act) if block.feed_forward else nn.Identity() for _ in range(block.layers)
        )
        self.virtual_node: VirtualNode | None = None
        if context.virtual_node:
            self.virtual_node = VirtualNode(block.channels, norm=block.norm, residual=context.virtual_residual)
        self.jk = None if block.jk is None else JumpingKnowledge(block.jk, block.channels, block.layers)
        joined = block.channels * block.layers if block.jk == "cat" else block.channels
        is_normed_last = block.type in ("pre_norm", "transformer")
        self.last_norm = make_norm(block.norm, joined) if is_normed_last else nn.Identity()
        self.readout, self.head = self._make_readout(joined)

    @classmethod
    def of(cls, in_channels: Any, hidden_channels: int, out_channels: int, num_layers: int, **options: Any) -> "SIRNet":
        """A network from the short names of its settings, see `NetConfig.of`.

        >>> SIRNet.of(3, 8, 2, num_layers=2, conv="gcn").conv.title
        'GCN'
        """
        return cls(NetConfig.of(in_channels, hidden_channels, out_channels, num_layers, **options))

    def _add_encoders(self) -> int:
        """The parts before the blocks; returns the width of what they give."""
        config, context = self.config, self.config.context
        # Random columns stand beside those of the encoder, so that the width of the blocks stays block.channels.
        columns = context.random_features
        widths = config.in_channels, config.block.channels - columns
        self.encoder, width = _make_encoder("encoder", config.encoder.type, *widths)
        self.encoder_act = self._make_encoder_act()
        self.positional: PositionalEncoder | None = None
        if context.positional is not None:
            self.positional = PositionalEncoder(context.positional, context.pe_dim, width)
        self.input_dropout = Dropout(config.encoder.dropout)
        self.random_features = RandomFeatures(columns, context.random_seed) if columns else None
        self._check_width(width + columns)
        self.edge_encoder, self.edge_dim = _make_edge_encoder(config)
        if self.self_loops and self.edge_dim is not None:
            raise ConfigError("self_loops: a loop has no edge features, expected edge_channels=None")
        return width + columns

    def _make_encoder_act(self) -> nn.Module:
        act = self.config.encoder.act
        if isinstance(act, str):
            return Sigma(act)
        return self.act if act else nn.Identity()

    def _make_blocks(self, in_channels: int) -> nn.ModuleList:
        config, conv = self.config.block, self.config.conv
        blocks = nn.ModuleList()
        for width in (in_channels, *[config.channels] * (config.layers - 1)):
            layer = make_conv(conv.name, width, config.channels, conv.dropout, self.edge_dim, **conv.options)
            blocks.append(BLOCKS[config.type](layer, width, config, self.act))
        return blocks

    def _make_readout(self, in_channels: int) -> tuple[nn.Module, nn.Module]:
        readout, head, out_channels = self.config.readout, self.config.head, self.config.out_channels
        widths = [in_channels, *[self.config.block.channels] * readout.layers]
        if not head.channels:
            widths[-1] = out_channels
        network = make_mlp(widths, self.act, None, head.bias or bool(head.channels))
        pooled: nn.Module = network if readout.pool is None else SIRReadout(network, readout.pool)
        if not head.channels:
            return pooled, nn.Identity()
        return pooled, make_mlp([widths[-1], *head.channels, out_channels], self.act, "batch", head.bias)

    def _check_width(self, width: int) -> None:
        """Refuse an encoder whose output cannot be added to that of a block."""
        block = self.config.block
        is_added = block.type != "residual" or self.config.context.virtual_node
        if is_added and width != block.channels:
            raise ConfigError(
                f"encoder: a virtual node and the blocks other than residual add what has {block.channels} channels "
                f"to the input, which has {width}; use the encoder linear or embedding"
            )

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
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
        """Predictions `(|V|, out_channels)`, or `(B, out_channels)` where the readout pools.

        Args:
            x: node features, or categories of an integer dtype for the encoders `"embedding"` and `"atom"`.
            edge_index: the graph in any form that `SIRConv` accepts. Its edges are grouped once for all layers.
            edge_attr: edge features or categories, as the edge encoder expects them, or a pair (table, type) of them.
                A table of floating-point numbers in place of categories counts as encoded already.
            edge_weight: a scalar per edge.
            batch: the graph of each node; None for one graph.
            batch_size: the number of graphs; None reads it off `batch`, which `torch.export` cannot do.
            pe: the positional encoding, `(|V|, pe_dim)`.
        """
        edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, self.edge_dim)
        self._check_inputs(x, edge_index, edge_attr, edge_weight, batch, pe)
        graph = self._graph(edge_index, x.size(0))
        batch, batch_size = _checked_batch(batch, batch_size, x)
        context = {"batch": batch} if "batch" in self.conv.extra_inputs else {}
        inputs = LayerInputs(graph, self._encoded_edges(edge_attr), edge_weight, context)
        rows = run_shared(self, x, inputs)
        if rows is None:
            rows = Rows(self._run_blocks(self._encoded_nodes(x, pe), inputs, batch, batch_size))
        return self._read_out(rows, batch, batch_size)

    def has_own_steps(self) -> bool:
        """Whether a subclass or this instance replaces a step of `forward` that shared rows would leave out."""
        steps = ("_encoded_nodes", "_run_blocks")
        return any(name in self.__dict__ or getattr(type(self), name) is not getattr(SIRNet, name) for name in steps)

    def _check_inputs(
        self,
        x: Tensor,
        edge_index: Graph,
        edge_attr: EdgeAttr,
        edge_weight: Tensor | None,
        batch: Tensor | None,
        pe: Tensor | None,
    ) -> None:
        _check_features("x", x, self.encoder)
        for argument, name, value in (("edge_attr", "edge", edge_attr), ("edge_weight", "edge_weight", edge_weight)):
            if value is not None and name not in self.conv.extra_inputs:
                raise ValueError(f"{argument}: the convolution {self.conv.name} has no use for it, expected None")
        if edge_weight is not None and self.self_loops:
            raise ValueError("edge_weight: a self-loop has none; expected None with self_loops")
        if self.positional is None and pe is not None:
            raise ValueError("pe: this model has no positional encoding, expected None")
        if self.positional is not None and pe is None:
            raise ValueError(f"pe: this model expects a {self.positional.encoding} encoding, got None")
        check_same_device(x, x, edge_index, edge_attr, edge_weight)
        check_devices({"x": x, "batch": batch, "pe": pe})

    def _graph(self, edge_index: Graph, num_nodes: int) -> Graph:
        graph = edge_index if is_exporting() else as_neighbors(edge_index, num_nodes, num_nodes)
        return with_self_loops(graph, num_nodes) if self.self_loops else graph

    def _encoded_nodes(self, x: Tensor, pe: Tensor | None) -> Tensor:
        """The input of the first block."""
        h = self.encoder_act(self.encoder(x))
        if self.positional is not None:
            h = self.positional(h, pe)
        h = self.input_dropout(h)
        return h if self.random_features is None else self.random_features(h)

    def _encoded_edges(self, edge_attr: EdgeAttr) -> EdgeAttr:
        """What the blocks read of edges: a pair (table, type) where possible, unless a hook would see that pair."""
        edge = self._encoded_edge_types(edge_attr)
        if not isinstance(edge, tuple):
            return edge
        readers = (reader for block in self.blocks for reader in (block, getattr(block, "conv", block)))
        return edge[0].index_select(0, edge[1]) if any(map(is_touched, readers)) else edge

    def _encoded_edge_types(self, edge_attr: EdgeAttr) -> EdgeAttr:
        encoder = self.edge_encoder
        if edge_attr is None or encoder is None:
            return edge_attr
        if isinstance(encoder, CategoricalEncoder):
            return _encoded_categories(encoder, edge_attr)
        table = edge_attr[0] if isinstance(edge_attr, tuple) else edge_attr
        # PyG keeps a single feature as [E] or [E, 1].
        if isinstance(encoder, _LINEAR) and _input_width(encoder) == 1 and table.dim() == 1:
            table = table.unsqueeze(-1)
        _check_features("edge_attr", table, encoder)
        return through_edges(encoder, (table, edge_attr[1]) if isinstance(edge_attr, tuple) else table)

    def _run_blocks(self, h: Tensor, inputs: LayerInputs, batch: Tensor, batch_size: int) -> Tensor:
        """The blocks one after the other, with a row for every node."""
        virtual, outputs = self.virtual_node, []
        if virtual is not None:
            state = virtual.start(batch_size)
            h = virtual.spread(h, state, batch)
        if "first" in self.conv.extra_inputs:
            inputs = inputs._replace(context={**inputs.context, "first": h})
        for block, feed_forward in zip(self.blocks, self.feed_forwards, strict=True):
            h = feed_forward(inputs.run(block, h))
            if virtual is not None:
                state = virtual.update(h, state, batch)
                h = virtual.spread(h, state, batch)
            outputs.append(h)
        return h if self.jk is None else self.jk(outputs)

    def _read_out(self, rows: Rows, batch: Tensor, batch_size: int) -> Tensor:
        network = self.readout.network if type(self.readout) is SIRReadout else self.readout
        can_stay_shared = type(self.last_norm) is nn.Identity and is_row_by_row(network)
        if rows.index is None or not can_stay_shared:
            rows = Rows(self.last_norm(rows.expand()))
        if self.pool is None:
            return rows.map(self.readout).expand()
        h = rows.table if rows.index is None else rows
        return self.head(self.readout(h, batch, dim_size=batch_size))


class EdgeNet(nn.Module):
    r"""Scores of pairs of nodes from a network on nodes.

    .. math:: s_{uv} = f([h_u \Vert h_v]), \qquad f \text{ an MLP with two layers}

    Args:
        network: gives node features `(|V|, channels)`.
        channels: the width of these features.
        out_channels: the width of a score.

    >>> net = EdgeNet(SIRNet.of(3, 8, 8, num_layers=1), 8, 1)
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> net(torch.rand(4, 3), edge_index, edge_label_index=torch.tensor([[0], [3]])).shape
    torch.Size([1, 1])
    """

    def __init__(self, network: nn.Module, channels: int, out_channels: int) -> None:
        super().__init__()
        self.network = network
        self.scorer = nn.Sequential(nn.Linear(2 * channels, channels), nn.ReLU(), nn.Linear(channels, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor, **inputs: Any) -> Tensor:
        """Scores `(L, out_channels)` of the pairs `edge_label_index` `[2, L]`."""
        h = self.network(x, edge_index, **inputs)
        source, target = edge_label_index
        out: Tensor = self.scorer(torch.cat([h[target], h[source]], dim=-1))
        return out


# Encoders with the vocabularies of OGB's molecules.
_MOLECULES: dict[str, tuple[int, ...]] = {"atom": OGB_ATOM, "bond": OGB_BOND}


def _make_encoder(argument: str, name: str, channels: Channels, out_channels: int) -> tuple[nn.Module, int]:
    """An encoder and the width of its output."""
    if name in _MOLECULES:
        return CategoricalEncoder(_MOLECULES[name], out_channels, weight_initializer="glorot"), out_channels
    if channels is None:
        raise ConfigError(f"{argument}: {name} needs the width or the vocabularies of its input, got None")
    if name == "embedding":
        return CategoricalEncoder(channels, out_channels), out_channels
    if isinstance(channels, Sequence):
        raise ConfigError(f"{argument}: {name} needs one width, got the vocabularies {list(channels)}")
    if channels < 1 and channels != -1:
        raise ConfigError(
            f"{argument}: expected the width of its input, or -1 to read it off the first one, got {channels}"
        )
    if name == "none":
        return nn.Identity(), channels
    return Linear(channels, out_channels), out_channels


def _make_edge_encoder(config: NetConfig) -> tuple[nn.Module | None, int | None]:
    """The encoder of edges and the width that the layers read; None for a network without edge features."""
    edges = config.edges
    if edges.channels is None and edges.type == "none":
        return None, None
    return _make_encoder("edge_encoder", edges.type, edges.channels, config.block.channels)


def _encoded_categories(encoder: CategoricalEncoder, edge_attr: Tensor | tuple[Tensor, Tensor]) -> EdgeAttr:
    """Embedded categories of edges, as a pair (table, type) where the encoder has a table."""
    if not isinstance(edge_attr, tuple):
        return encoder.table(edge_attr) if encoder.has_table() else encoder(edge_attr)
    table, edge_type = edge_attr
    if table.is_floating_point():
        return edge_attr
    _check_features("edge_attr", table, encoder)
    if encoder.has_table():
        return encoder(table), edge_type
    return encoder(table.index_select(0, edge_type))


def _check_features(argument: str, features: Tensor, encoder: nn.Module) -> None:
    """Refuse what a linear encoder cannot read; the layers and the embeddings check their own input."""
    if features.dim() > 2:
        raise ValueError(f"{argument}: expected shape [rows, features], got {list(features.shape)}")
    if isinstance(encoder, _LINEAR):
        width = _input_width(encoder)
        if not features.is_floating_point():
            raise ValueError(f"{argument}: expected a floating-point dtype, got {features.dtype}")
        if features.dim() != 2 or features.size(1) != (width or features.size(1)):
            raise ValueError(f"{argument}: expected {width} features per row, got shape {list(features.shape)}")


def _input_width(linear: nn.Module) -> int | None:
    """The input width of a linear layer; None for a lazy one that has not seen an input yet."""
    weight = linear.weight
    return None if isinstance(weight, nn.parameter.UninitializedParameter) else cast(Tensor, weight).size(1)


def _checked_batch(batch: Tensor | None, batch_size: int | None, x: Tensor) -> tuple[Tensor, int]:
    """The graph of each node and the number of graphs."""
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(f"batch_size: expected 1 without batch, got {batch_size}")
        return torch.zeros(x.size(0), dtype=torch.int64, device=x.device), 1
    if batch.shape != (x.size(0),):
        raise ValueError(f"batch: expected shape {[x.size(0)]}, the graph of each node, got {list(batch.shape)}")
    if batch.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"batch: expected dtype int32 or int64, got {batch.dtype}")
    _check_graphs(batch, batch_size)
    if batch_size is None:
        batch_size = int(batch.max()) + 1 if batch.numel() else 0
    return batch, batch_size


def _check_graphs(batch: Tensor, batch_size: int | None) -> None:
    """Refuse a graph below 0 or beyond `batch_size`, where looking at the values does not wait for a device."""
    if is_compiling():
        if batch_size is not None:
            check_range(batch, batch_size, "batch[{}]", "batch_size", "graph")
        return
    if batch.numel() == 0 or batch.device.type != "cpu":
        return
    low, high = (int(bound) for bound in torch.aminmax(batch))
    if low < 0:
        first = int((batch < 0).nonzero()[0])
        raise IndexError(f"batch[{first}] = {int(batch[first])}: expected the number of a graph, at least 0")
    if batch_size is not None and high >= batch_size:
        raise ValueError(f"batch_size: expected at least {high + 1}, one per graph of batch, got {batch_size}")
