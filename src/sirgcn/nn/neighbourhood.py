r"""The neighbourhood context of SINC-GCN (Lim et al., arXiv:2511.11046): a query that sees all neighbours at once.

.. math:: h_u^* = \bigoplus_{v \in N(u)} W_R \, \sigma(W_Q h_u + W_K h_v + W_N c_u), \qquad
    c_u = \bigotimes_{w \in N(u)} h_w

The context c_u belongs to the target. So it changes the query of each node, and no edge costs more than before.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

from sirgcn.nn.dropout import dropout
from sirgcn.nn.propagate import degree_weights
from sirgcn.ops import Neighbors
from sirgcn.ops.parts import known_parts
from sirgcn.ops.reductions import maximum, weighted_sum
from sirgcn.ops.rows import Rows

if TYPE_CHECKING:
    from sirgcn.nn.conv import SIRConv

CONTEXTS = ("sum", "mean", "sym", "max")
"""The aggregators of the neighbourhood context of `SIRConv`."""


def in_context(conv: "SIRConv", query: Rows, source: Rows, graph: Neighbors | Tensor) -> Rows:
    """The query of a layer with the neighbourhood context added: W_Q h_u + W_N c_u; without one, the query itself.

    Args:
        conv: the layer.
        query: W_Q h_u.
        source: h_v.
        graph: the grouped edges; or the `edge_index`, for the plain route.
    """
    if conv.context is None or conv.lin_context is None:
        return query
    if isinstance(graph, Neighbors):
        aggregate = _fused(conv, graph)
    else:
        aggregate = _plain(conv, graph, source.shape[-2], query.shape[-2])
    context = _projected(conv.lin_context, source, aggregate, conv.context != "max")
    return Rows(query.expand() + dropout(context, conv.dropout, conv.training))


def _projected(lin: nn.Module, source: Rows, aggregate: Callable[[Tensor], Tensor], is_linear: bool) -> Tensor:
    """W_N c_u. W_N comes before a linear aggregation where that leaves less to do."""
    if is_linear and _is_matrix(lin) and _is_cheaper_first(lin, source):
        return aggregate(source.map(lin).expand())
    out: Tensor = lin(aggregate(source.expand()))
    return out


def _is_matrix(lin: nn.Module) -> bool:
    """Whether a module is known to be a product with a matrix, which a sum may be taken out of."""
    return known_parts(lin) == [lin] and lin.bias is None


def _is_cheaper_first(lin: nn.Module, source: Rows) -> bool:
    """Whether the rows after W_N are narrower, or the table of rows that nodes share is as wide."""
    before, after = source.shape[-1], cast(Tensor, lin.weight).size(0)
    return after < before or (source.index is not None and after == before)


def _fused(conv: "SIRConv", graph: Neighbors) -> Callable[[Tensor], Tensor]:
    """The aggregation without a tensor of edges."""
    reduce = conv.context
    assert reduce is not None
    if reduce == "max":
        return lambda h: maximum(h, graph)
    return lambda h: weighted_sum(h, graph, reduce, backend=conv.backend)


def _plain(conv: "SIRConv", edge_index: Tensor, num_sources: int, num_targets: int) -> Callable[[Tensor], Tensor]:
    """The aggregation by PyG's operators. An explainer's mask of edges acts here as it does on messages."""
    ends = edge_index if conv.flow == "source_to_target" else edge_index.flip(0)
    source, target = ends
    reduce = conv.context
    assert reduce is not None

    def aggregate(h: Tensor) -> Tensor:
        of_target, of_edge = degree_weights(reduce, ends, (num_sources, num_targets), h.dtype)
        rows = h.index_select(-2, source)
        if of_edge is not None:
            rows = rows * of_edge.to(rows.dtype).unsqueeze(-1)
        if conv.explain:
            rows = cast(MessagePassing, conv).explain_message(rows, num_targets)
        out = scatter(rows, target, dim=-2, dim_size=num_targets, reduce="max" if reduce == "max" else "sum")
        return out if of_target is None else (out * of_target.unsqueeze(-1)).to(out.dtype)

    return aggregate
