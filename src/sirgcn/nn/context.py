"""What gives a node or a graph its own context: the soft-isomorphic readout, the virtual node, random features."""

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
        network: MLP_R, which acts on every node; the readout owns a copy, drawn anew as PyG's layers do.
        aggr: `"sum"`, or `"mean"` for the statement up to a constant scale.

    Shapes:
        - **input:** node features `(|V|, F_in)`, `index` `(|V|)` or `ptr` `(B + 1)`; also as `Rows`
        - **output:** graph features `(B, F_out)`; a graph without nodes gets 0
    """

    @checked
    def __init__(self, network: nn.Module, aggr: str = "sum") -> None:
        super().__init__()
        check_name("aggr", aggr, ("sum", "mean"), exact=True)
        self.network = copy.deepcopy(network)
        self.aggr = aggr
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw MLP_R's parameters anew."""
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
        """The readout of every graph; `index` names the graph of each node, `dim_size` the number of graphs."""
        if index is None and ptr is None:
            index = torch.zeros(x.shape[dim], dtype=torch.int64, device=x.device)
        return self.reduce(Rows.of(x).map(self.network).expand(), index, ptr, dim_size, dim, reduce=self.aggr)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(aggr={self.aggr})"


class VirtualNode(nn.Module):
    r"""A virtual super node that carries the graph's context into d, g and r (Section 3.2).

    .. math::
        h_v \leftarrow h_v + z_G, \qquad z_G \leftarrow \mathrm{MLP}\Bigl(\sum_{v \in V_G} h_v + z_G\Bigr) \; [+ z_G]

    Its state z_G `[B, channels]` starts as a learned vector: `start`, then `spread` before each layer and before the
    readout, and `update` with the layer's output. One MLP serves all layers.

    Args:
        channels: width of h and z.
        num_layers: linear layers of the MLP, each followed by a norm and LeakyReLU(0.2).
        norm: `"batch"`, which cannot train on a single graph, `"layer"` or None.
        dropout: after the MLP.
        residual: whether z_G is added to its update.
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
        """Draw the start vector and the MLP's parameters anew."""
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
                "virtual node: its batch norm cannot train on a batch of one graph; "
                "batch at least two (drop_last), or take norm='layer'"
            )
        new: Tensor = self.mlp(scatter(x, batch, dim_size=state.size(0)) + state)
        return new + state if self.residual else new


NORMS: dict[str, type[nn.BatchNorm1d] | type[nn.LayerNorm]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def make_norm(norm: str | None, channels: int) -> nn.Module:
    """A norm by its name, the identity for None."""
    check_name("norm", norm, (*NORMS, None), exact=True)
    return nn.Identity() if norm is None else NORMS[norm](channels)


class RandomFeatures(nn.Module):
    """Stochastic node features (Section 3.1): `channels` columns, uniform in [0, 1), appended anew at every call.

    They tell apart, with high probability, nodes of equal features and neighbourhoods, in training and in evaluation.

    Args:
        channels: columns to append.
        seed: None draws from torch's global state; a number gives the module a stream of its own, which `restart`
            begins again, whose position `calls` is part of `state_dict`, and which `torch.compile` cannot trace.

    Shapes:
        - **input:** `(*, F)`
        - **output:** `(*, F + channels)`
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
        """Begin the stream again, with another seed if one is given."""
        self.seed = self.seed if seed is None else seed
        self.calls = torch.zeros_like(self.calls)

    def forward(self, x: Tensor) -> Tensor:
        """x with the random columns behind its own."""
        shape = (*x.shape[:-1], self.channels)
        if self.seed is None:
            noise = torch.rand(shape, dtype=x.dtype, device=x.device)
        else:
            # A generator per call, on the CPU: the columns depend on seed and call, not on the device.
            state = np.random.SeedSequence([self.seed, int(self.calls)]).generate_state(1)
            generator = torch.Generator().manual_seed(int(state[0]))
            noise = torch.rand(shape, generator=generator, dtype=x.dtype).to(x.device)
            self.calls = self.calls + 1
        return torch.cat([x, noise], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.channels}, seed={self.seed}"
