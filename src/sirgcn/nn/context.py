"""The context of nodes and graphs: the soft-isomorphic readout, the virtual node and random features."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.inits import reset
from torch_geometric.utils import scatter

from sirgcn.nn.dropout import Dropout
from sirgcn.nn.encoder import is_plain_embedding
from sirgcn.nn.linear import Linear
from sirgcn.ops.rows import Rows
from sirgcn.strict import Probability, Size, check_name, checked


class SIRReadout(Aggregation):
    r"""The soft-isomorphic graph readout (Section 3.2).

    .. math:: h_G = \sum_{v \in V_G} \mathrm{MLP}_R(h_v)

    Args:
        network: MLP_R, which acts on each node by itself. The readout owns a copy of it, with newly drawn parameters.
        aggr: `"sum"`, or `"mean"`, which divides the sum by the number of nodes of the graph.

    Shapes:
        - **input:** node features `(|V|, F_in)`, `index` `(|V|)` or `ptr` `(B + 1)`; also as `Rows`
        - **output:** graph features `(B, F_out)`; they are 0 for a graph without nodes

    >>> readout = SIRReadout(nn.Linear(3, 2))
    >>> readout(torch.randn(5, 3), torch.tensor([0, 0, 0, 1, 1])).shape  # three nodes of one graph, two of another
    torch.Size([2, 2])
    """

    @checked
    def __init__(self, network: nn.Module, aggr: str = "sum") -> None:
        super().__init__()
        check_name("aggr", aggr, ("sum", "mean"), exact=True)
        self.network = copy.deepcopy(network)
        self.aggr = aggr
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw MLP_R's parameters again."""
        reset(self.network)

    def __call__(self, x: Tensor | Rows, index: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        """As `forward`."""
        if not isinstance(x, Rows):
            return super().__call__(x, index, *args, **kwargs)
        # PyG checks the dimensions of a tensor before it calls `forward`. Rows always have two dimensions.
        out: Tensor = nn.Module.__call__(self, x, index, *args, **kwargs)
        return out

    def forward(
        self,
        x: Tensor | Rows,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """The readout of every graph. `index` is the graph of each node, and `dim_size` the number of graphs."""
        if index is None and ptr is None:
            index = torch.zeros(x.shape[dim], dtype=torch.int64, device=x.device)
        return self.reduce(Rows.of(x).map(self.network).expand(), index, ptr, dim_size, dim, reduce=self.aggr)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(aggr={self.aggr})"


class VirtualNode(nn.Module):
    r"""A virtual node that is joined to all nodes and carries the graph's context into d, g and r (Section 3.2).

    .. math::
        h_v \leftarrow h_v + z_G, \qquad z_G \leftarrow \mathrm{MLP}\Bigl(\sum_{v \in V_G} h_v + z_G\Bigr) \; [+ z_G]

    The state z_G `[B, channels]` begins as a learned vector. A model uses the virtual node in these steps:

    1. call `start` once
    2. call `spread` before each layer and before the readout
    3. call `update` with the output of each layer

    All layers share one MLP.

    Args:
        channels: the width of h and z.
        num_layers: the number of linear layers of the MLP, each followed by a norm and LeakyReLU(0.2).
        norm: `"batch"`, `"layer"` or None. A batch norm cannot train on a single graph.
        dropout: the dropout after the MLP.
        residual: whether z_G is added to its update.

    >>> virtual, batch = VirtualNode(4), torch.tensor([0, 0, 1])
    >>> state = virtual.start(batch_size=2)
    >>> h = virtual.spread(torch.randn(3, 4), state, batch)
    >>> virtual.update(h, state, batch).shape
    torch.Size([2, 4])
    """

    @checked
    def __init__(
        self,
        channels: Size,
        num_layers: Size = 2,
        norm: str | None = "batch",
        dropout: Probability = 0.0,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.residual = residual
        self.embedding = nn.Embedding(1, channels)
        layers: list[nn.Module] = []
        for _ in range(num_layers):
            layers += [Linear(channels, channels), make_norm(norm, channels), nn.LeakyReLU(0.2)]
        self.mlp = nn.Sequential(*layers, Dropout(dropout))

    def reset_parameters(self) -> None:
        """Draw the first state and the MLP's parameters again."""
        reset(self.embedding)
        reset(self.mlp)

    def start(self, batch_size: int) -> Tensor:
        """z_G before the first layer, `[B, channels]`."""
        if is_plain_embedding(self.embedding) and len(self.embedding.weight) == 1:
            return self.embedding.weight.expand(batch_size, -1)
        device = next(self.parameters()).device
        return self.embedding(torch.zeros(batch_size, dtype=torch.int64, device=device))

    def spread(self, x: Tensor, state: Tensor, batch: Tensor) -> Tensor:
        """h_v + z_G for every node v of graph G, `[|V|, channels]`."""
        return x + state.index_select(0, batch)

    def update(self, x: Tensor, state: Tensor, batch: Tensor) -> Tensor:
        """z_G after a layer with output x, `[B, channels]`."""
        if self.training and self.norm == "batch" and state.size(0) == 1:
            raise ValueError(
                "virtual node: expected at least two graphs in a batch, because its batch norm cannot train on one, "
                "got one; drop the last batch (drop_last) or use norm='layer'"
            )
        new: Tensor = self.mlp(scatter(x, batch, dim_size=state.size(0)) + state)
        return new + state if self.residual else new


NORMS: dict[str, type[nn.BatchNorm1d] | type[nn.LayerNorm]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
"""The norms by their names."""


def make_norm(norm: str | None, channels: int) -> nn.Module:
    """The norm of this name; the identity for None."""
    check_name("norm", norm, (*NORMS, None), exact=True)
    return nn.Identity() if norm is None else NORMS[norm](channels)


class RandomFeatures(nn.Module):
    """Stochastic node features (Section 3.1): every call appends `channels` columns, drawn uniformly from [0, 1).

    With high probability they distinguish nodes with equal features and neighbourhoods. They are drawn in training
    mode and in evaluation mode.

    Args:
        channels: the number of columns to append.
        seed: None draws from torch's global generator. A number gives the module a stream of its own: `restart` begins
            it again, its position `calls` is part of the `state_dict`, and `torch.compile` cannot trace it.

    Shapes:
        - **input:** `(*, F)`
        - **output:** `(*, F + channels)`

    >>> random, x = RandomFeatures(2, seed=0), torch.zeros(3, 4)
    >>> first, second = random(x), random(x)
    >>> first.shape, torch.equal(first, second)
    (torch.Size([3, 6]), False)
    >>> random.restart()
    >>> torch.equal(random(x), first)
    True
    """

    @checked
    def __init__(self, channels: Size = 1, seed: int | None = None) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"channels: expected at least 1, got {channels}")
        self.channels = channels
        self.seed = seed
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def restart(self, seed: int | None = None) -> None:
        """Begin the stream again, with a new seed if one is given."""
        self.seed = self.seed if seed is None else seed
        self.calls = torch.zeros_like(self.calls)

    def forward(self, x: Tensor) -> Tensor:
        """x with the random columns appended."""
        shape = (*x.shape[:-1], self.channels)
        if self.seed is None:
            noise = torch.rand(shape, dtype=x.dtype, device=x.device)
        else:
            # Each call has a generator on the CPU: the columns depend on the seed and the call, not on the device.
            state = np.random.SeedSequence([self.seed, int(self.calls)]).generate_state(1)
            generator = torch.Generator().manual_seed(int(state[0]))
            noise = torch.rand(shape, generator=generator, dtype=x.dtype).to(x.device)
            self.calls = self.calls + 1
        return torch.cat([x, noise], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.channels}, seed={self.seed}"
