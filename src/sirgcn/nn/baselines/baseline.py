"""`Baseline`: what the other convolutions of the tables have in common."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from sirgcn.nn.adjacency import EdgeAttr, Graph, as_neighbors, check_same_device
from sirgcn.nn.dropout import Dropout, can_drop
from sirgcn.ops.calls import is_transformed
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, check_name, checked


class Baseline(nn.Module):
    """A convolution that is called as `SIRConv` is: `conv(h, graph, edge, edge_weight)`.

    A subclass has the method `convolve`, its formula.

    Args:
        in_channels: the width of h.
        out_channels: the width of the output.
        dropout: the dropout on h, before everything else.

    >>> import torch
    >>> from sirgcn.ops.reductions import weighted_sum
    >>> class Sum(Baseline):
    ...     def convolve(self, rows, graph):
    ...         return weighted_sum(rows.expand(), graph)
    >>> Sum(1, 1)(torch.tensor([[1.0], [2.0]]), torch.tensor([[0], [1]])).tolist()
    [[0.0], [1.0]]
    """

    # The formula of a layer: convolve(rows, graph, ...), with the extra inputs of `Conv.extra_inputs`.
    convolve: Callable[..., Tensor]
    # Whether the layer begins with matrix products of h, which are cheaper with the table of rows that nodes share.
    projects_first = True

    @checked
    def __init__(self, in_channels: Size, out_channels: Size, dropout: Probability = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: expected 0 <= p < 1, got {dropout}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.dropout: nn.Module = Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        for module in self.children():
            reset(module)

    @property
    def can_take_rows(self) -> bool:
        """Whether rows that several nodes share save work here. They do not where dropout makes equal rows differ."""
        return self.projects_first and not can_drop(self.dropout)

    def forward(
        self,
        h: Tensor | Rows,
        graph: Graph,
        edge: EdgeAttr = None,
        edge_weight: Tensor | None = None,
        **context: Tensor,
    ) -> Tensor:
        """Node features `(|V|, out_channels)`.

        Args:
            h: node features `(|V|, in_channels)`.
            graph: the edges, in any form that `SIRConv` accepts.
            edge: edge features.
            edge_weight: a number per edge.
            context: further inputs by name; `Conv.extra_inputs` says which ones a convolution accepts.
        """
        if is_transformed():
            raise RuntimeError(
                f"{type(self).__name__}: torch.func transforms and forward-mode derivatives are not supported"
            )
        if not h.dtype.is_floating_point:
            raise ValueError(f"x: expected a floating-point dtype, got {h.dtype}")
        if len(h.shape) != 2 or h.shape[1] != self.in_channels:
            raise ValueError(f"x: expected {self.in_channels} features per node, got shape {list(h.shape)}")
        check_same_device(h, h, graph, edge, edge_weight)
        given = {"edge": edge, "edge_weight": edge_weight}
        given = {name: value for name, value in given.items() if value is not None}
        neighbors = as_neighbors(graph, h.shape[0], h.shape[0])
        rows = Rows.of(h)
        if rows.index is None or not self.can_take_rows:
            rows = Rows(self.dropout(rows.expand()))
        return self.convolve(rows, neighbors, **given, **context)


def check_edge_given(edge: EdgeAttr, is_expected: bool) -> None:
    """Raise a `ValueError` if a convolution gets edge features that it was not built for, or misses those it was."""
    if (edge is not None) != is_expected:
        wanted, got = ("edge features", "None") if is_expected else ("none", "some")
        raise ValueError(f"edge_attr: expected {wanted}, got {got}")


def checked_heads(heads: int, channels: int) -> int:
    """The number of heads; raises a `ValueError` if the width is not a multiple of it."""
    if heads < 1 or channels % heads:
        raise ValueError(f"out_channels: expected a multiple of the {heads} heads, got {channels}")
    return heads


def check_names(argument: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise a `ValueError` unless there is at least one name and all names are known."""
    if not names:
        raise ValueError(f"{argument}: expected at least one of {', '.join(known)}, got none")
    for name in names:
        check_name(argument, name, known, exact=True)
