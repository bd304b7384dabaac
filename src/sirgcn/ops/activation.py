"""The table of activations sigma that every backend has inside its edge loop, with their derivatives."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sirgcn.ops.checks import check_known

_SQRT_HALF = math.sqrt(0.5)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
# The tanh form of GELU and its cubic coefficient are from Hendrycks & Gimpel, arXiv:1606.08415, Section 2.
_GELU_CUBIC = 0.044715
# torch's softplus is the identity above this threshold, so its derivative there is exactly 1.
_SOFTPLUS_THRESHOLD = 20.0


def _gelu_derivative(z: Tensor, _: float) -> Tensor:
    return 0.5 * (1 + torch.erf(z * _SQRT_HALF)) + z * torch.exp(-0.5 * z * z) * _INV_SQRT_2PI


def _gelu_tanh_derivative(z: Tensor, _: float) -> Tensor:
    t = torch.tanh(_SQRT_2_OVER_PI * (z + _GELU_CUBIC * z**3))
    inner = _SQRT_2_OVER_PI * (1 + 3 * _GELU_CUBIC * z * z)
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * inner


def _silu_derivative(z: Tensor, _: float) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


def _sigmoid_derivative(z: Tensor, _: float) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 - s)


def _softplus_derivative(z: Tensor, _: float) -> Tensor:
    return torch.where(z > _SOFTPLUS_THRESHOLD, torch.ones_like(z), torch.sigmoid(z))


_Function = Callable[[Tensor, float], Tensor]
_TABLE: dict[str, tuple[_Function, _Function]] = {
    "identity": (lambda z, _: z, lambda z, _: torch.ones_like(z)),
    "relu": (lambda z, _: torch.relu(z), lambda z, _: (z > 0).to(z.dtype)),
    "leaky_relu": (
        lambda z, slope: F.leaky_relu(z, slope),
        lambda z, slope: torch.where(z > 0, torch.ones_like(z), slope),
    ),
    "elu": (lambda z, _: F.elu(z), lambda z, _: torch.exp(z.clamp(max=0))),
    "gelu": (lambda z, _: F.gelu(z), _gelu_derivative),
    "gelu_tanh": (lambda z, _: F.gelu(z, approximate="tanh"), _gelu_tanh_derivative),
    "silu": (lambda z, _: F.silu(z), _silu_derivative),
    "tanh": (lambda z, _: torch.tanh(z), lambda z, _: 1 - torch.tanh(z) ** 2),
    "sigmoid": (lambda z, _: torch.sigmoid(z), _sigmoid_derivative),
    "softplus": (lambda z, _: F.softplus(z), _softplus_derivative),
    "square": (lambda z, _: z * z, lambda z, _: 2 * z),
}

ACTIVATIONS: tuple[str, ...] = tuple(_TABLE)
"""The names that `sir_aggregate` and `SIRConv` know as sigma."""

LEARNED: tuple[str, ...] = ("prelu",)
"""The names of activations with parameters. `SIRConv` knows them too, because it owns the parameters."""

_DEFAULT_SLOPE = 0.01  # as torch.nn.LeakyReLU
_SPEC = re.compile(r"(?P<name>\w+)(?:\((?P<slope>[^()]*)\))?")


@dataclass(frozen=True)
class Activation:
    """An element-wise activation of the table. Calling it returns sigma(z).

    Args:
        name: one of `ACTIVATIONS`.
        slope: the negative slope of `leaky_relu`; the other activations do not use it.

    >>> Activation.parse("leaky_relu(0.5)")(torch.tensor([-2.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    name: str
    slope: float = 0.0

    def __post_init__(self) -> None:
        check_known("activation", self.name, ACTIVATIONS)
        if not math.isfinite(self.slope):
            raise ValueError(f"activation: expected a finite number as the slope, got {self}")

    @classmethod
    def parse(cls, spec: "str | Activation") -> "Activation":
        """Read a name: `"relu"`, `"leaky_relu"` (slope 0.01) or `"leaky_relu(0.2)"`."""
        if isinstance(spec, Activation):
            return spec
        if not isinstance(spec, str):
            raise TypeError(
                f"activation: expected a name or an Activation, got {type(spec).__name__}; "
                f"only SIRConv and tiled_aggregate accept a module"
            )
        if spec.strip() in LEARNED:
            raise ValueError(
                f"activation: only SIRConv can have {spec.strip()}, whose slopes are parameters of the layer; "
                f"expected one of {', '.join(ACTIVATIONS)}"
            )
        match = _SPEC.fullmatch(spec.strip())
        if match is None or match["name"] not in _TABLE:
            check_known("activation", spec, ACTIVATIONS)
            raise AssertionError("a known name matches")
        name, slope = match["name"], match["slope"]
        if name != "leaky_relu":
            if slope is not None:
                raise ValueError(f"activation: expected {name} without a parameter, got {spec!r}")
            return cls(name)
        if slope is None:
            return cls(name, _DEFAULT_SLOPE)
        try:
            return cls(name, float(slope))
        except ValueError:
            raise ValueError(f"activation: expected a number as the slope of leaky_relu, got {spec!r}") from None

    @classmethod
    def of_module(cls, module: nn.Module) -> "Activation | None":
        """The activation that computes the same as a module of torch; None where the table has none."""
        if type(module) is nn.LeakyReLU:
            return cls("leaky_relu", float(module.negative_slope))
        if type(module) is nn.GELU:
            return cls("gelu" if module.approximate == "none" else "gelu_tanh")
        if type(module) is nn.ELU and module.alpha != 1:
            return None
        if type(module) is nn.Softplus and (module.beta, module.threshold) != (
            1,
            _SOFTPLUS_THRESHOLD,
        ):
            return None
        name = {
            nn.Identity: "identity",
            nn.ReLU: "relu",
            nn.ELU: "elu",
            nn.SiLU: "silu",
            nn.Tanh: "tanh",
            nn.Sigmoid: "sigmoid",
            nn.Softplus: "softplus",
        }.get(type(module))
        return None if name is None else cls(name)

    def __call__(self, z: Tensor) -> Tensor:
        return _TABLE[self.name][0](z, self.slope)

    def derivative(self, z: Tensor) -> Tensor:
        """sigma'(z). At a kink it is the one-sided derivative that torch's autograd returns (0 for relu at 0)."""
        return _TABLE[self.name][1](z, self.slope)

    def __str__(self) -> str:
        return f"{self.name}({self.slope!r})" if self.name == "leaky_relu" else self.name


class Sigma(nn.Module):
    """An activation of the table as a module: sigma(z), element by element.

    >>> Sigma("relu")(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, activation: str | Activation) -> None:
        super().__init__()
        self.activation = Activation.parse(activation)

    def forward(self, z: Tensor) -> Tensor:
        """sigma(z), of z's shape."""
        return self.activation(z)

    def extra_repr(self) -> str:
        return str(self.activation)
