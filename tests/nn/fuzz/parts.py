"""Modules, subclasses and hooks that a user puts into a network."""

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.typing import OptTensor

from sirgcn.nn import SIRConv, SIRReadout
from sirgcn.nn.baselines import GCN, SAGE
from sirgcn.nn.blocks import Residual, Skip
from sirgcn.nn.encoder import CategoricalEncoder
from sirgcn.nn.linear import Linear
from sirgcn.ops.activation import Sigma
from sirgcn.ops.rows import Rows


class Lora(nn.Module):
    """A linear layer and a low-rank correction, with dropout before it."""

    def __init__(self, base: nn.Module, width_in: int, width_out: int, p: float) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(width_in, 2, bias=False), nn.Linear(2, width_out, bias=False)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.up(self.down(self.drop(x)))
        return out


class ScaledLinear(Linear):
    """A subclass of our linear layer that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * super().forward(x)


class CentredLinear(nn.Linear):
    """A subclass of torch's linear layer that mixes rows."""

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out - out.mean(-2, keepdim=True)


class ScaledSigma(Sigma):
    """A subclass of sigma that computes something else."""

    def forward(self, z: Tensor) -> Tensor:
        return 0.5 * super().forward(z)


class Wrapper(nn.Module):
    """A module that hands its arguments on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class ScaledEncoder(CategoricalEncoder):
    """A subclass of the encoder that computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class CentredReadout(SIRReadout):
    """A subclass of the readout that looks at the rows itself."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        return super().forward(x - x.mean(0), *args, **kwargs)


class DoublingAggregation(SumAggregation):
    """A subclass of an aggregation."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return 2 * super().forward(*args, **kwargs)


class ScaledBlock(Residual):
    """A subclass of a block."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().forward(*args, **kwargs)


class ScaledSkip(Skip):
    """A subclass of a block with a skip connection."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().forward(*args, **kwargs)


class OwnMessage(SIRConv):
    """Another message."""

    def message(self, query_i: Tensor, key_j: Tensor, edge: OptTensor, weight: OptTensor) -> Tensor:  # type: ignore[override]
        return super().message(query_i, key_j, edge, weight).tanh()


class OwnAggregate(SIRConv):
    """Another aggregation."""

    def aggregate(
        self,
        inputs: Tensor,
        index: Tensor,
        ptr: OptTensor = None,
        dim_size: Optional[int] = None,  # noqa: UP045
    ) -> Tensor:
        # PyG reads annotations as text, and does not know int | None.
        return 2 * super().aggregate(inputs, index, ptr, dim_size)


class OwnUpdate(SIRConv):
    """Another update."""

    def update(self, inputs: Tensor) -> Tensor:
        return inputs.sin()


class OwnEdgeUpdate(SIRConv):
    """An update of edges, which `propagate` does not call."""

    def edge_update(self) -> Tensor:
        raise NotImplementedError


class OwnPropagate(SIRConv):
    """Another `propagate`."""

    def propagate(self, *args: Any, **kwargs: Any) -> Tensor:
        return 3 * super().propagate(*args, **kwargs)


class OwnForward(SIRConv):
    """Another `forward`, which computes with the features."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(x, *args, **kwargs) + x.mean()


class OwnConvolve(GCN):
    """A subclass of a baseline."""

    def convolve(self, rows: Rows, *args: Any, **kwargs: Any) -> Tensor:
        return super().convolve(rows, *args, **kwargs) + rows.expand().mean()


class OwnSage(SAGE):
    """A subclass of a baseline with a `forward` of its own."""

    def forward(self, h: Any, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(h, *args, **kwargs) + h.mean()


OWN_CONVS = (OwnMessage, OwnAggregate, OwnUpdate, OwnEdgeUpdate, OwnPropagate, OwnForward)


class Halved(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def width_of(linear: Any) -> tuple[int, int]:
    """The widths of a linear layer of torch or PyG."""
    if isinstance(linear, nn.Linear):
        return linear.in_features, linear.out_features
    return linear.in_channels, linear.out_channels


def stand_ins(linear: nn.Module) -> dict[str, Callable[[], nn.Module]]:
    """What may be put in the place of a linear layer."""
    width_in, width_out = width_of(linear)
    return {
        "Sequential(old, BatchNorm1d)": lambda: nn.Sequential(linear, nn.BatchNorm1d(width_out)),
        "Sequential(BatchNorm1d, old)": lambda: nn.Sequential(nn.BatchNorm1d(width_in), linear),
        "Sequential(old, LayerNorm)": lambda: nn.Sequential(linear, nn.LayerNorm(width_out)),
        "Sequential(old, Tanh)": lambda: nn.Sequential(linear, nn.Tanh()),
        "Sequential(old)": lambda: nn.Sequential(linear),
        "Sequential(ReLU in place, old)": lambda: nn.Sequential(nn.ReLU(inplace=True), linear),
        "Sequential(Dropout, old)": lambda: nn.Sequential(nn.Dropout(0.3), linear),
        "Sequential(old, Softmax over rows)": lambda: nn.Sequential(linear, nn.Softmax(dim=-2)),
        "Linear": lambda: nn.Linear(width_in, width_out),
        "ScaledLinear": lambda: ScaledLinear(width_in, width_out),
        "CentredLinear": lambda: CentredLinear(width_in, width_out),
        "LazyLinear": lambda: nn.LazyLinear(width_out),
        "Lora": lambda: Lora(linear, width_in, width_out, 0.0),
        "Lora with dropout": lambda: Lora(linear, width_in, width_out, 0.3),
        "Wrapper": lambda: Wrapper(linear),
    }


ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    "BatchNorm1d": nn.BatchNorm1d,
    "Tanh": lambda width: nn.Tanh(),
    "ReLU in place": lambda width: nn.ReLU(inplace=True),
    "PReLU": lambda width: nn.PReLU(),
    "RReLU": lambda width: nn.RReLU(),
    "Softmax over rows": lambda width: nn.Softmax(dim=-2),
    "Dropout": lambda width: nn.Dropout(0.3),
    "Identity": lambda width: nn.Identity(),
    "ScaledSigma": lambda width: ScaledSigma("gelu"),
    "Sigma": lambda width: Sigma("silu"),
    "Sequential": lambda width: nn.Sequential(nn.Tanh(), nn.BatchNorm1d(width)),
}

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "BatchNorm1d(momentum=None)": lambda width: nn.BatchNorm1d(width, momentum=None),
    "BatchNorm1d(affine=False)": lambda width: nn.BatchNorm1d(width, affine=False),
    "BatchNorm1d(track_running_stats=False)": lambda width: nn.BatchNorm1d(width, track_running_stats=False),
    "BatchNorm1d(momentum=0.5)": lambda width: nn.BatchNorm1d(width, momentum=0.5),
    "BatchNorm1d(bias=False)": lambda width: nn.BatchNorm1d(width),
    "LayerNorm": nn.LayerNorm,
    "LayerNorm(affine=False)": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "RMSNorm": lambda width: nn.RMSNorm(width),
    "Identity": lambda width: nn.Identity(),
    "Sequential(BatchNorm1d, Dropout)": lambda width: nn.Sequential(nn.BatchNorm1d(width), nn.Dropout(0.3)),
}

DROPOUTS: dict[str, Callable[[int], nn.Module]] = {
    "Identity": lambda width: nn.Identity(),
    "Dropout": lambda width: nn.Dropout(0.3),
    "AlphaDropout": lambda width: nn.AlphaDropout(0.3),
    "FeatureAlphaDropout": lambda width: nn.FeatureAlphaDropout(0.3),
    "BatchNorm1d": nn.BatchNorm1d,
    "Wrapper": lambda width: Wrapper(nn.Dropout(0.0)),
}

EMBEDDINGS: dict[str, dict[str, Any]] = {
    "max_norm": {"max_norm": 1.0},
    "padding_idx": {"padding_idx": 0},
    "scale_grad_by_freq": {"scale_grad_by_freq": True},
    "sparse": {"sparse": True},
    "more rows": {},
}

AGGREGATIONS: dict[str, Callable[[], nn.Module]] = {
    "MeanAggregation": MeanAggregation,
    "DoublingAggregation": DoublingAggregation,
    "SumAggregation": SumAggregation,
}


def changed(value: Any, by: Callable[[Tensor], Tensor]) -> Any:
    """A hook's value changed; of several tensors the first."""
    if isinstance(value, tuple):
        return tuple(changed(entry, by) if place == 0 else entry for place, entry in enumerate(value))
    return by(value) if isinstance(value, Tensor) and value.is_floating_point() else value


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "doubled": lambda rows: 2 * rows,
    "centred": lambda rows: rows - rows.mean(-2, keepdim=True) if rows.dim() > 1 else rows,
    "ranked": lambda rows: rows * torch.arange(1, len(rows) + 1).to(rows.dtype).view(-1, *[1] * (rows.dim() - 1)).cos(),
}
"""What a hook makes of rows; `ranked` depends on their order."""
