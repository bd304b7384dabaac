"""`SIRGCN`, which stands beside PyG's basic models."""

from typing import Any, Final, cast

from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from sirgcn.nn.adjacency import EdgeAttr, Graph, as_neighbors, with_stored_values
from sirgcn.nn.conv import SIRConv
from sirgcn.ops.calls import is_exporting


class SIRGCN(BasicGNN):
    """SIR-GCN as one of PyG's basic models, a drop-in beside `torch_geometric.nn.models.GraphSAGE`.

    The arguments are those of `BasicGNN`: `in_channels`, `hidden_channels`, `num_layers`, `out_channels`, `dropout`,
    `act`, `norm`, `jk`, and so on. All other arguments (`aggr`, `activation`, `edge_dim`, `residual`, ...) go to every
    `SIRConv`. `dropout` is the one of `BasicGNN`, after a layer; the dropout inside `SIRConv` cannot be set from here.

    The edges are grouped once for all layers, unless per-hop counts trim them from layer to layer.

    >>> import torch
    >>> model = SIRGCN(3, 8, num_layers=2, out_channels=4, aggr="mean")
    >>> model(torch.rand(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
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


def _grouped(graph: Graph, num_nodes: int, convs: list[SIRConv]) -> Graph:
    """The edges grouped once for all layers, unless an exporter or one of the layers wants them as they are."""
    if is_exporting() or any(conv.cached or conv.flow == "target_to_source" for conv in convs):
        return graph
    return as_neighbors(graph, num_nodes, num_nodes)
