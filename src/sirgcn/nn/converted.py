"""The modules that the converters of `sirgcn.nn.converters` return where one `SIRConv` is not enough."""

from torch import Tensor, nn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, is_torch_sparse_tensor

from sirgcn.nn.adjacency import EdgeAttr, Graph, as_edge_index, with_stored_values
from sirgcn.nn.conv import SIRConv


class ConvThen(nn.Module):
    r"""A convolution followed by a module: `after(conv(x, edge_index, ...)) + residual(x_target)`.

    Args:
        conv: the convolution.
        after: the module that is applied to each row of the convolution's output.
        residual: a module whose output for the target nodes' features is added at the end. None adds nothing.

    >>> import torch
    >>> module = ConvThen(SIRConv(3, 4), nn.Linear(4, 2))
    >>> module(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 2])
    """

    def __init__(self, conv: SIRConv, after: nn.Module, residual: nn.Module | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.after = after
        self.residual = residual

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Graph,
        edge_attr: EdgeAttr = None,
        edge_weight: OptTensor = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """The output for the target nodes; arguments and shapes are those of `SIRConv`."""
        out: Tensor = self.after(self.conv(x, edge_index, edge_attr, edge_weight, size))
        if self.residual is not None:
            out = out + self.residual(x if isinstance(x, Tensor) else x[1])
        return out


class WithSelfLoops(nn.Module):
    r"""A convolution over the neighbours of a node and the node itself, as in `GCNConv`. It has no edge weights.

    The self-loops are added as PyG adds them:

    - to an `edge_index`, a loop at every node that has none, and repeated loops become one
    - to a torch sparse `adj_t`, one more loop at every node

    Args:
        conv: the convolution.

    >>> import torch
    >>> module = WithSelfLoops(SIRConv(3, 2))
    >>> module(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 2])
    """

    def __init__(self, conv: SIRConv) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Graph, edge_weight: OptTensor = None) -> Tensor:
        """One convolution of x `(|V|, F_in)` or `(B, |V|, F_in)`; `edge_weight` must be None."""
        if not isinstance(x, Tensor):
            raise ValueError("x: expected the features of one set of nodes, as GCNConv does, got a pair")
        _refuse_edge_weight(edge_index, edge_weight)
        is_plain = isinstance(edge_index, Tensor) and not is_torch_sparse_tensor(edge_index)
        if self.conv.flow == "target_to_source" and not is_plain:
            raise ValueError("flow: target_to_source needs an edge_index tensor")
        num_nodes = x.size(-2)
        edges = as_edge_index(edge_index, num_nodes, num_nodes)
        add = add_self_loops if is_torch_sparse_tensor(edge_index) else add_remaining_self_loops
        out: Tensor = self.conv(x, add(edges, num_nodes=num_nodes)[0])
        return out


def _refuse_edge_weight(graph: Graph, edge_weight: OptTensor) -> None:
    """Raise a `ValueError` if there are edge weights, given or stored as the values of a sparse adjacency."""
    if with_stored_values(graph, None, edge_weight, None)[1] is not None:
        given = "an adjacency with values other than 1" if edge_weight is None else "edge_weight"
        raise ValueError(
            f"edge_weight: expected none, because GCNConv normalises by the sum of the weights and SIRConv by the "
            f"number of edges, got {given}"
        )


class Scale(nn.Module):
    r"""GIN's residual (Section 4.3), :math:`(1 + \epsilon) h`.

    Args:
        eps: a scalar; a parameter stays trainable.

    >>> import torch
    >>> Scale(torch.tensor(0.5))(torch.tensor([2.0, 4.0]))
    tensor([3., 6.])
    """

    def __init__(self, eps: Tensor) -> None:
        super().__init__()
        if isinstance(eps, nn.Parameter):
            self.eps: Tensor = nn.Parameter(eps.detach().clone())
        else:
            self.register_buffer("eps", eps.detach().clone())

    def forward(self, h: Tensor) -> Tensor:
        """(1 + eps) * h."""
        return (1 + self.eps) * h
