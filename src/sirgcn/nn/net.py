"""`SIRNet`: encoder, blocks of convolutions, readout and head, as a `NetConfig` describes them."""

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from sirgcn.nn.adjacency import (
    EdgeAttr,
    Graph,
    as_neighbors,
    check_same_device,
    count_edges,
    with_self_loops,
    with_stored_values,
)
from sirgcn.nn.blocks import BLOCKS, LayerInputs, make_feed_forward, make_jk, make_mlp
from sirgcn.nn.config import NetConfig
from sirgcn.nn.context import RandomFeatures, SIRReadout, VirtualNode, make_norm
from sirgcn.nn.convs import find_conv, make_conv
from sirgcn.nn.dropout import Dropout
from sirgcn.nn.encoder import PositionalEncoder, check_features, encoded_edges, make_edge_encoder, make_encoder
from sirgcn.nn.linear import Linear
from sirgcn.nn.parts import EdgeConfig
from sirgcn.nn.sharing import run_shared
from sirgcn.ops import Neighbors
from sirgcn.ops.activation import Sigma
from sirgcn.ops.calls import is_compiling, is_exporting, is_touched
from sirgcn.ops.checks import check_devices, check_range
from sirgcn.ops.parts import is_row_by_row
from sirgcn.ops.rows import Rows, look_up
from sirgcn.strict import ConfigError, checked


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
        self.feed_forwards = nn.ModuleList(make_feed_forward(block, self.act) for _ in range(block.layers))
        self.virtual_node: VirtualNode | None = None
        if context.virtual_node:
            self.virtual_node = VirtualNode(block.channels, norm=block.norm, residual=context.virtual_residual)
        self.jk = make_jk(block)
        joined = block.channels * block.layers if block.jk == "cat" else block.channels
        is_normed_last = block.type in ("pre_norm", "transformer")
        self.last_norm = make_norm(block.norm, joined) if is_normed_last else nn.Identity()
        self.readout, self.head = self._make_readout(joined)
        self.graph_encoder = self._make_graph_encoder()

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
        # Other columns stand beside those of the encoder, so that the width of the blocks stays block.channels.
        columns, beside = context.random_features, context.pe_channels
        widths = config.in_channels, config.block.channels - columns - beside
        self.encoder, width = make_encoder("encoder", config.encoder.type, *widths)
        self.encoder_act = self._make_encoder_act()
        self.positional: PositionalEncoder | None = None
        if context.positional is not None:
            of_encoding = beside or width, beside > 0, context.pe_norm
            self.positional = PositionalEncoder(context.positional, context.pe_dim, *of_encoding)
        width += beside
        self.input_dropout = Dropout(config.encoder.dropout)
        self.random_features = RandomFeatures(columns, context.random_seed) if columns else None
        self._check_width(width + columns)
        self.edge_encoder, self.edge_dim = make_edge_encoder(config.edges, config.block.channels)
        self.edge_positional: PositionalEncoder | None = None
        if config.edges.pe_dim:
            self.edge_positional = PositionalEncoder("random_walk", config.edges.pe_dim, config.block.channels)
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
            self._check_passed_edges(layer)
        return blocks

    def _check_passed_edges(self, conv: nn.Module) -> None:
        """Refuse a convolution that passes on edge features of another width than those that it reads."""
        width = self.config.block.channels
        if getattr(conv, "passes_edges", False) and self.edge_dim not in (None, width):
            raise ConfigError(
                f"edge_encoder: {self.conv.name} adds what has {width} channels to the edge features, which have "
                f"{self.edge_dim}; use the encoder linear or embedding"
            )

    def _make_readout(self, in_channels: int) -> tuple[nn.Module, nn.Module]:
        readout, head, out_channels = self.config.readout, self.config.head, self.config.out_channels
        channels = self.config.block.channels
        widths = [in_channels, *[channels] * readout.layers]
        hidden, beside = head.channels, channels if readout.graph_channels else 0
        if beside and not hidden:
            hidden = (channels,)
        if not hidden:
            widths[-1] = out_channels
        network = make_mlp(widths, self.act, None, head.bias or bool(hidden))
        pooled: nn.Module = network if readout.pool is None else SIRReadout(network, readout.pool)
        if not hidden:
            return pooled, nn.Identity()
        return pooled, make_mlp([widths[-1] + beside, *hidden, out_channels], self.act, head.norm, head.bias)

    def _make_graph_encoder(self) -> nn.Module | None:
        """What encodes the features of whole graphs, if there are any."""
        width, block = self.config.readout.graph_channels, self.config.block
        if not width:
            return None
        return nn.Sequential(Linear(width, block.channels), self.act, Dropout(block.dropout))

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
        edge_pe: Tensor | None = None,
        graph_attr: Tensor | None = None,
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
            edge_pe: the encoding of the edges, `(|E|, edge_pe_dim)`, in the order of `edge_attr`.
            graph_attr: the features of whole graphs, `(B, graph_channels)`.
        """
        # A learned row that all edges share leaves the values of a sparse adjacency to be weights.
        of_values = None if self.config.edges.type == "constant" else self.edge_dim
        edge_attr, edge_weight = with_stored_values(edge_index, edge_attr, edge_weight, of_values)
        self._check_inputs(x, edge_index, edge_attr, edge_weight, batch, pe)
        graph = self._graph(edge_index, x.size(0))
        batch, batch_size = _checked_batch(batch, batch_size, x)
        self._check_graph_attr(graph_attr, batch_size)
        context = {"batch": batch} if "batch" in self.conv.extra_inputs else {}
        inputs = LayerInputs(graph, self._encoded_edges(edge_attr, edge_pe, graph), edge_weight, context)
        rows = run_shared(self, x, inputs)
        if rows is None:
            rows = Rows(self._run_blocks(self._encoded_nodes(x, pe), inputs, batch, batch_size))
        return self._read_out(rows, batch, batch_size, graph_attr)

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
        check_features("x", x, self.encoder)
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

    def _check_graph_attr(self, graph_attr: Tensor | None, batch_size: int) -> None:
        width = self.config.readout.graph_channels
        if graph_attr is None:
            if width:
                raise ValueError(f"graph_attr: this model expects {width} features per graph, got None")
            return
        if not width:
            raise ValueError("graph_attr: this model reads no features of graphs, expected None")
        # Without a comparison of the number of graphs, which an exporter would fix.
        if graph_attr.dim() != 2 or graph_attr.size(1) != width:
            raise ValueError(f"graph_attr: expected shape [graphs, {width}], got {list(graph_attr.shape)}")
        if not is_exporting() and graph_attr.size(0) != batch_size:
            raise ValueError(f"graph_attr: expected {batch_size} rows, one per graph, got {graph_attr.size(0)}")

    def _graph(self, edge_index: Graph, num_nodes: int) -> Graph:
        graph = edge_index if is_exporting() else as_neighbors(edge_index, num_nodes, num_nodes)
        if self.conv.name != "sir" and isinstance(graph, Neighbors):
            # The weights of a sample are known for our messages; other layers weigh what they see.
            graph = graph.alone()
        return with_self_loops(graph, num_nodes) if self.self_loops else graph

    def _encoded_nodes(self, x: Tensor, pe: Tensor | None) -> Tensor:
        """The input of the first block."""
        h = self.encoder_act(self.encoder(x))
        if self.positional is not None:
            h = self.positional(h, pe)
        h = self.input_dropout(h)
        return h if self.random_features is None else self.random_features(h)

    def _encoded_edges(self, edge_attr: EdgeAttr, edge_pe: Tensor | None, graph: Graph) -> EdgeAttr:
        """What the blocks read of edges: a pair (table, type) where possible, unless a hook would see that pair."""
        num_edges = cast(int, count_edges(graph))
        edge = encoded_edges(self.edge_encoder, edge_attr, num_edges)
        if edge_pe is not None or self.edge_positional is not None:
            return self._with_edge_encoding(edge, edge_pe, num_edges)
        if not isinstance(edge, tuple):
            return edge
        readers = (reader for block in self.blocks for reader in (block, getattr(block, "conv", block)))
        return edge[0].index_select(0, edge[1]) if any(map(is_touched, readers)) else edge

    def _with_edge_encoding(self, edge: EdgeAttr, edge_pe: Tensor | None, num_edges: int) -> Tensor:
        if self.edge_positional is None:
            raise ValueError("edge_pe: this model has no encoding of edges, expected None")
        if edge_pe is None:
            raise ValueError("edge_pe: this model expects a random_walk encoding of the edges, got None")
        if edge is None:
            raise ValueError("edge_attr: this model adds edge_pe to the encoded edge features, got None")
        width = self.config.edges.pe_dim
        if edge_pe.shape != (num_edges, width):
            raise ValueError(f"edge_pe: expected shape {[num_edges, width]}, got {list(edge_pe.shape)}")
        return self.edge_positional(look_up(*edge) if isinstance(edge, tuple) else edge, edge_pe)

    def _run_blocks(self, h: Tensor, inputs: LayerInputs, batch: Tensor, batch_size: int) -> Tensor:
        """The blocks one after the other, with a row for every node."""
        virtual, outputs = self.virtual_node, []
        if virtual is not None:
            state = virtual.start(batch_size)
            h = virtual.spread(h, state, batch)
        if "first" in self.conv.extra_inputs:
            inputs = inputs._replace(context={**inputs.context, "first": h})
        for block, feed_forward in zip(self.blocks, self.feed_forwards, strict=True):
            h, inputs = inputs.step(block, h)
            h = feed_forward(h)
            if virtual is not None:
                state = virtual.update(h, state, batch)
                h = virtual.spread(h, state, batch)
            outputs.append(h)
        return h if self.jk is None else self.jk(outputs)

    def _read_out(self, rows: Rows, batch: Tensor, batch_size: int, graph_attr: Tensor | None) -> Tensor:
        network = self.readout.network if type(self.readout) is SIRReadout else self.readout
        can_stay_shared = type(self.last_norm) is nn.Identity and is_row_by_row(network)
        if rows.index is None or not can_stay_shared:
            rows = Rows(self.last_norm(rows.expand()))
        if self.pool is None:
            return rows.map(self.readout).expand()
        h = rows.table if rows.index is None else rows
        pooled = self.readout(h, batch, dim_size=batch_size)
        if self.graph_encoder is not None and graph_attr is not None:
            pooled = torch.cat([pooled, self.graph_encoder(graph_attr)], dim=-1)
        return self.head(pooled)


class EdgeNet(nn.Module):
    r"""Scores of pairs of nodes from a network on nodes, and from the features of the edge between them.

    .. math:: s_{uv} = f([h_u \Vert h_v \Vert e_{vu}]), \qquad f \text{ an MLP with two layers}

    Args:
        network: gives node features `(|V|, channels)`.
        channels: the width of these features.
        out_channels: the width of a score.
        edges: how the features of the scored edges enter; None for pairs without features.

    >>> net = EdgeNet(SIRNet.of(3, 8, 8, num_layers=1), 8, 1)
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> net(torch.rand(4, 3), edge_index, edge_label_index=torch.tensor([[0], [3]])).shape
    torch.Size([1, 1])
    """

    def __init__(self, network: nn.Module, channels: int, out_channels: int, edges: EdgeConfig | None = None) -> None:
        super().__init__()
        self.network = network
        self.edge_encoder: nn.Module | None = None
        width = 0
        if edges is not None and edges.type != "constant":
            self.edge_encoder, encoded = make_edge_encoder(edges, channels)
            width = encoded or 0
        self.scorer = nn.Sequential(nn.Linear(2 * channels + width, channels), nn.ReLU())
        self.scorer.append(nn.Linear(channels, out_channels))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_label_index: Tensor,
        edge_label_attr: Tensor | None = None,
        **inputs: Any,
    ) -> Tensor:
        """Scores `(L, out_channels)` of the pairs `edge_label_index` `[2, L]` with features `edge_label_attr`."""
        h = self.network(x, edge_index, **inputs)
        source, target = edge_label_index
        parts = [h[target], h[source]]
        if self.edge_encoder is not None:
            if edge_label_attr is None:
                raise ValueError("edge_label_attr: this model reads the features of the scored edges, got None")
            parts.append(self.edge_encoder(edge_label_attr))
        out: Tensor = self.scorer(torch.cat(parts, dim=-1))
        return out


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
