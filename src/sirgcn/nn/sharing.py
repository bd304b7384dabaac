r"""Equal rows are computed once: the one place that decides whether `SIRNet` may share rows, and how.

Nodes of few categories have few different features. There are two ways to use that:

1. **A table.** The first block multiplies the rows of the encoder's table by its weights, not the rows of all nodes.
2. **Kinds of nodes.** Nodes that message passing cannot tell apart (1-WL) have equal rows after every block. A block is
   then computed for one node of each kind, as long as there are clearly fewer kinds than nodes.

Both give the numbers that computing every node gives, up to rounding. `run_shared` decides once per call: it returns
None unless everything fits, and the network then computes every node.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from sirgcn.nn.adjacency import EdgeAttr
from sirgcn.nn.blocks import LayerInputs, Residual, Skip
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.dropout import can_drop
from sirgcn.nn.encoder import CategoricalEncoder
from sirgcn.nn.slopes import is_fused
from sirgcn.ops import Neighbors
from sirgcn.ops.calls import is_plain_call, is_touched
from sirgcn.ops.parts import is_in_place, is_row_by_row
from sirgcn.ops.rows import Rows, look_up
from sirgcn.ops.sharing import Kinds, weighted_batch_norm
from sirgcn.ops.split import SplitNeighbors

if TYPE_CHECKING:
    from sirgcn.nn.net import SIRNet


def run_shared(net: "SIRNet", x: Tensor, inputs: LayerInputs) -> Rows | None:
    """The output of all blocks, with equal rows computed once; None where rows cannot be shared."""
    # Kinds of nodes are those of a whole graph.
    if isinstance(inputs.graph, SplitNeighbors) or not _can_share(net, x):
        return None
    table, index = cast(CategoricalEncoder, net.encoder).table(x)
    rows, kinds = Rows(net.encoder_act(table), index), None
    has_kinds = _can_share_kinds(net, rows.table.dtype, inputs)
    for block in cast(list[Residual], list(net.blocks)):
        finer = _refine(rows, kinds, inputs) if has_kinds and rows.index is not None else None
        if finer is None:
            rows, kinds = _run_on_nodes(block, rows, inputs), None
        else:
            rows, kinds = _run_on_kinds(block, finer), finer.kinds
    return rows


def _run_on_nodes(block: Residual, rows: Rows, inputs: LayerInputs) -> Rows:
    """A block with a row of output for every node."""
    if rows.index is None:
        return Rows(inputs.run(block, rows.table))
    return Rows(block.finish(inputs.run(block.conv, rows), rows, block.norm))


def _run_on_kinds(block: Residual, finer: "_Finer") -> Rows:
    """A block with a row of output for every kind of nodes."""
    out = block.conv((finer.source, finer.target), finer.graph, finer.edge)
    norm = partial(_normalised, block.norm, finer.kinds)
    return Rows(block.finish(out, finer.target, norm), finer.kinds.kind)


@dataclass(frozen=True, eq=False)
class _Finer:
    """The arguments of a convolution whose output has one row for each kind of nodes.

    Args:
        source: the rows of the kinds before, from which messages come.
        target: the same rows, one for each of the finer kinds.
        kinds: the finer kinds.
        graph: the edges from the kinds before to the finer ones.
        edge: the features of these edges.
    """

    source: Rows
    target: Rows
    kinds: Kinds
    graph: Neighbors
    edge: EdgeAttr


def _refine(rows: Rows, kinds: Kinds | None, inputs: LayerInputs) -> _Finer | None:
    """One round of refinement of the kinds; None where too few nodes agree.

    Args:
        rows: the features.
        kinds: the kinds that have these rows; None for the first block, where the encoder's table tells them.
        inputs: the graph and its edge features.
    """
    assert rows.index is not None
    before = Kinds.of(rows.index, cast(Neighbors, inputs.graph)) if kinds is None else kinds
    if before is None:
        return None
    edge = cast(tuple[Tensor, Tensor] | None, inputs.edge)
    found = before.refine() if edge is None else before.refine(edge[1], edge[0].size(0))
    if found is None:
        return None
    finer, graph, edge_type = found
    table = rows.table
    if kinds is None:
        # The first kinds are those of the table, told apart by degrees as well.
        table = look_up(table, rows.index.index_select(0, before.first))
    target = Rows(table, before.kind.index_select(0, finer.first))
    return _Finer(Rows(table), target, finer, graph, None if edge is None else (edge[0], edge_type))


def _normalised(norm: nn.Module, kinds: Kinds, table: Tensor) -> Tensor:
    r"""`norm(table)`, as if every row of the table stood there once for each node of its kind.

    A batch norm in training then has weighted moments, where n_k of the n nodes are of kind k:

    .. math:: \mu = \sum_k \tfrac{n_k}{n} T_k, \qquad \sigma^2 = \sum_k \tfrac{n_k}{n} (T_k - \mu)^2
    """
    if not isinstance(norm, nn.BatchNorm1d) or not norm.training:
        return norm(table)
    nodes = len(kinds.kind)
    share = kinds.count.to(table.dtype) / nodes
    out, mean, variance = weighted_batch_norm(table, share, norm.weight, norm.bias, norm.eps)
    with torch.no_grad():
        norm.get_buffer("num_batches_tracked").add_(1)
        norm.get_buffer("running_mean").lerp_(mean, cast(float, norm.momentum))
        norm.get_buffer("running_var").lerp_(variance * (nodes / (nodes - 1)), cast(float, norm.momentum))
    return out


def _can_share(net: "SIRNet", x: Tensor) -> bool:
    """Whether the first block may read a table: few categories are all that it sees, and every part is as we built it.

    Modules that somebody replaced, hooked or gave a `forward` of their own are called with a row for every node.
    """
    return (
        net.share == "auto"
        and not net.has_own_steps()
        and is_plain_call(x.device.type)
        and _has_small_table(net, x)
        and _has_only_blocks(net)
        and all(_can_read_rows(block, net.conv_type) for block in net.blocks)
        and not any(is_touched(module) or is_in_place(module) for module in net.modules())
    )


def _has_small_table(net: "SIRNet", x: Tensor) -> bool:
    """Whether the encoder looks up rows of a table that is much smaller than the graph, and nothing changes them."""
    encoder = net.encoder
    return (
        isinstance(encoder, CategoricalEncoder)
        and encoder.has_table()
        and encoder.combinations <= x.size(0) // 2
        and is_row_by_row(net.encoder_act)
        and not can_drop(net.input_dropout)
    )


def _has_only_blocks(net: "SIRNet") -> bool:
    """Whether nothing but blocks stands between encoder and readout."""
    has_more = any(part is not None for part in (net.positional, net.random_features, net.virtual_node, net.jk))
    reads_first = "first" in net.conv.extra_inputs
    has_followers = any(type(part) is not nn.Identity for part in net.feed_forwards)
    is_whole = len(net.feed_forwards) == len(net.blocks)
    return not has_more and not reads_first and not has_followers and is_whole


def _can_read_rows(block: nn.Module, conv_type: type[nn.Module]) -> bool:
    """Whether a block has the parts that we built, and its convolution accepts `Rows`."""
    if type(block) not in (Residual, Skip) or not _is_known_residual(cast(Residual, block).residual):
        return False
    conv = cast(Residual, block).conv
    passes_edges = cast(Residual, block).edge_norm is not None
    return type(conv) is conv_type and not passes_edges and getattr(conv, "can_take_rows", False)


def _is_known_residual(residual: nn.Module | None) -> bool:
    """Whether a residual is as the block built it: none, or a linear layer and a dropout."""
    return residual is None or (type(residual) is nn.Sequential and len(residual) == 2)


def _can_share_kinds(net: "SIRNet", dtype: torch.dtype, inputs: LayerInputs) -> bool:
    """Whether all nodes of a kind come out of every block equal, and a block can be computed once for each kind."""
    # Sums over kinds in half precision would not be those over nodes.
    is_wide = dtype in (torch.float32, torch.float64)
    has_edge_rows = isinstance(inputs.edge, Tensor) or inputs.edge_weight is not None
    return is_wide and not has_edge_rows and all(map(_is_equal_on_kinds, cast(list[Residual], list(net.blocks))))


def _is_equal_on_kinds(block: Residual) -> bool:
    linear, dropout = (nn.Identity(), nn.Identity()) if block.residual is None else cast(nn.Sequential, block.residual)
    return (
        type(block.conv) is SIRConv
        and _is_sum_of_sigma(block.conv)
        and _has_known_norm(block)
        and is_row_by_row(block.act)
        and is_row_by_row(linear)
        and not can_drop(block.dropout)
        and not can_drop(dropout)
    )


def _is_sum_of_sigma(conv: SIRConv) -> bool:
    """Whether a convolution weighs edges by degrees only, and computes sigma by its name, without dropout."""
    projections = (
        conv.lin_query,
        conv.lin_key,
        conv.lin_edge,
        conv.lin_context,
        conv.lin_value,
        conv.lin_relation,
    )
    lins = [lin for lin in projections if lin is not None]
    return (
        conv.aggr != "max"
        and conv.message_network is None
        and conv.lin_residual is None
        and is_fused(conv.activation)
        and not (conv.training and conv.dropout)
        and not conv.cached
        and conv.flow == "source_to_target"
        and all(map(is_row_by_row, lins))
    )


def _has_known_norm(block: Residual) -> bool:
    """Whether `_normalised` can compute the norm."""
    norm = block.norm
    if type(norm) is not nn.BatchNorm1d:
        return type(norm) in (nn.LayerNorm, nn.Identity)
    has_statistics = norm.track_running_stats and norm.running_mean is not None and norm.running_var is not None
    return norm.affine and has_statistics and norm.momentum is not None
