"""The soft-isomorphic readout: Corollary 1 for graphs (Section 3.2), with the virtual node as context."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sirgcn.nn import SIRReadout, VirtualNode
from sirgcn.theory.multisets import distance_matrix
from sirgcn.theory.pseudometrics import Pseudometric, feature_distance, observed


class ReadoutSides(NamedTuple):
    """Both sides of the statement of `readout_distances`, for every two graphs.

    >>> ReadoutSides(readout=torch.zeros(2, 2), distance=torch.zeros(2, 2)).readout.shape
    torch.Size([2, 2])
    """

    readout: Float[Tensor, "graphs graphs"]
    distance: Float[Tensor, "graphs graphs"]


def readout_pseudometric(readout: SIRReadout, has_context: bool = False) -> Pseudometric:
    r"""The pseudometric on nodes that a readout has learned (Section 3.2).

    .. math:: d(h, h') = \lVert \mathrm{MLP}_R(h) - \mathrm{MLP}_R(h') \rVert

    With `has_context` it is contextual, :math:`d(h, h'; z_G)`, and the query is the state :math:`z_G` of the virtual
    node. The state is added to the features of both nodes first, as in `VirtualNode.spread`.

    >>> d = readout_pseudometric(SIRReadout(torch.nn.Linear(2, 3)), has_context=True)
    >>> d(torch.ones(2, 2), query=torch.zeros(2)).shape
    torch.Size([2, 2])
    """
    if not has_context:
        return feature_distance(readout.network, "readout")

    def in_context(x: Tensor, state: Tensor) -> Tensor:
        with observed(readout):
            return readout.network(x + state.unsqueeze(-2))

    return feature_distance(in_context, "readout", contextual=True)


def readout_distances(
    readout: SIRReadout,
    x: Float[Tensor, "nodes features"],
    batch: Int[Tensor, " nodes"],
    virtual_node: VirtualNode | None = None,
    state: Float[Tensor, "graphs features"] | None = None,
) -> ReadoutSides:
    r"""Corollary 1 for graphs with equal numbers of nodes (Section 3.2).

    .. math::
        \lVert R(G_1) - R(G_2) \rVert = D(G_1, G_2), \qquad
        R(G) = \sum_{v \in V_G} r(h_v; z_G), \qquad r(h; z) = \mathrm{MLP}_R(h + z)

    D is the double sum of Eq. 6 over the nodes, each with the context of its graph, and with
    :math:`d((h, z), (h', z')) = \lVert r(h; z) - r(h'; z') \rVert`. If two graphs have the same context, D is the
    contextual :math:`D(\cdot, \cdot; z_G)`. Without a virtual node z is 0. A readout that takes the mean over n nodes
    gives D / n. All modules are evaluated in eval mode.

    Args:
        readout: R, with MLP_R for r.
        x: node features after the last layer.
        batch: the graph of every node, in order.
        virtual_node: its `spread` adds the context to the features.
        state: z_G of every graph; None means the first state of the virtual node.

    >>> readout, x = SIRReadout(torch.nn.Linear(2, 3)), torch.arange(8.0).view(4, 2)
    >>> sides = readout_distances(readout, x, torch.tensor([0, 0, 1, 1]))
    >>> bool(torch.allclose(sides.readout, sides.distance, atol=1e-4))
    True
    """
    sizes = _equal_sizes(batch)
    if virtual_node is None and state is not None:
        raise ValueError("state: expected None without a virtual node")
    width = x.size(1)
    d = feature_distance(lambda rows: readout.network(rows[..., :width] + rows[..., width:]), "readout")
    with observed(readout, virtual_node):
        context, seen = x.new_zeros(len(sizes), width), x
        if virtual_node is not None:
            context = virtual_node.start(len(sizes)) if state is None else state
            seen = virtual_node.spread(x, context, batch)
        found = readout(seen, batch, dim_size=len(sizes))
        # Without its features, d is summed as in Eq. 6. With them, both sides would be one and the same sum.
        rows = torch.cat([x, context[batch]], dim=1).unflatten(0, (len(sizes), -1))
        distance = distance_matrix(replace(d, features=None), rows)
    scale = int(sizes[0]) if readout.aggr == "mean" else 1
    return ReadoutSides((found[:, None] - found).norm(dim=-1), distance / scale)


def _equal_sizes(batch: Tensor) -> Tensor:
    """The number of nodes of every graph. A ValueError says if they differ, or if the nodes are not in order."""
    sizes = torch.bincount(batch)
    if len(sizes) == 0 or bool((sizes != sizes[0]).any()):
        raise ValueError(f"batch: expected graphs with equal numbers of nodes, at least one, got {sizes.tolist()}")
    if bool((batch.diff() < 0).any()):
        raise ValueError("batch: expected the nodes of a graph side by side, graph after graph")
    return sizes
