import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sirgcn import testing as laws
from sirgcn.ops import ACTIVATIONS, Activation

# Both sides of every kink, the threshold of softplus, and values whose exponential overflows.
POINTS = [0.0, -0.0, 1e-30, 1e-8, 0.5, 1.0, 5.0, 19.9, 20.0, math.nextafter(20, 21), 30.0, 800.0]
POINTS += [-z for z in POINTS] + [1e6, -1e6]

every_sigma = pytest.mark.parametrize("spec", laws.SIGMAS)


def points(dtype: torch.dtype) -> Tensor:
    return torch.tensor(POINTS, dtype=dtype).requires_grad_()


def autograd_derivative(module: nn.Module, z: Tensor) -> Tensor:
    (grad,) = torch.autograd.grad(module(z).sum(), z)
    return grad


def test_table_has_exactly_the_sigmas_that_the_laws_know() -> None:
    assert set(ACTIVATIONS) == {Activation.parse(spec).name for spec in laws.SIGMAS}


@every_sigma
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_equals_torch_at_kinks_and_large_values(spec: str, dtype: torch.dtype) -> None:
    z = points(dtype).detach()
    assert torch.equal(Activation.parse(spec)(z), laws.SIGMAS[spec](z))


@every_sigma
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivative_equals_autograd_at_kinks_and_large_values(spec: str, dtype: torch.dtype) -> None:
    z = points(dtype)
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        Activation.parse(spec).derivative(z.detach()),
        autograd_derivative(laws.SIGMAS[spec], z),
        rtol=tolerance,
        atol=tolerance,
    )


@every_sigma
@given(st.floats(-1e4, 1e4))
def test_derivative_equals_autograd_anywhere(spec: str, at: float) -> None:
    z = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    derivative = Activation.parse(spec).derivative(z.detach())
    laws.assert_same([derivative], [autograd_derivative(laws.SIGMAS[spec], z)], 1e-14)


@every_sigma
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_value_and_derivative_keep_shape_and_dtype(spec: str, dtype: torch.dtype) -> None:
    sigma, z = Activation.parse(spec), torch.linspace(-3, 3, 12, dtype=dtype).reshape(3, 4)
    for result in (sigma(z), sigma.derivative(z), sigma(z[:0]), sigma.derivative(z[:0])):
        assert result.dtype == dtype
    assert sigma(z).shape == sigma.derivative(z).shape == z.shape


@every_sigma
def test_nan_gives_nan(spec: str) -> None:
    assert Activation.parse(spec)(torch.tensor([math.nan])).isnan().all()


@every_sigma
def test_parse_of_str_is_the_same_activation(spec: str) -> None:
    sigma = Activation.parse(spec)
    assert Activation.parse(str(sigma)) == sigma
    assert Activation.parse(sigma) is sigma
    assert str(sigma).startswith(sigma.name)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_parse_of_str_keeps_every_slope(slope: float) -> None:
    sigma = Activation("leaky_relu", slope)
    assert Activation.parse(str(sigma)) == sigma


def test_parse_takes_slope_or_torchs_default() -> None:
    assert Activation.parse("leaky_relu") == Activation("leaky_relu", nn.LeakyReLU().negative_slope)
    assert Activation.parse(" leaky_relu(0.2) ") == Activation("leaky_relu", 0.2)
    assert Activation.parse("leaky_relu(-1e-3)") == Activation("leaky_relu", -0.001)


@pytest.mark.parametrize("spec", ["swish", "", "ReLU", "relu()()", "relu(", "leaky relu", "relu x"])
def test_unknown_name_lists_the_known_ones(spec: str) -> None:
    with pytest.raises(ValueError, match=r"^activation: expected one of ") as error:
        Activation.parse(spec)
    assert repr(spec) in str(error.value)
    assert all(name in str(error.value) for name in ACTIVATIONS)


@pytest.mark.parametrize("slope", ["", "x", "0.1, 0.2", "0,2", "nan", "inf"])
def test_bad_slope_is_refused(slope: str) -> None:
    with pytest.raises(ValueError, match=r"activation: expected a .*number as the slope") as error:
        Activation.parse(f"leaky_relu({slope})")
    assert f"leaky_relu({slope})" in str(error.value)


def test_parameter_of_an_activation_without_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"activation: expected relu without a parameter, got 'relu\(0.1\)'"):
        Activation.parse("relu(0.1)")


@pytest.mark.parametrize("spec", [nn.ReLU(), None, torch.relu])
def test_other_types_than_a_name_are_refused(spec: object) -> None:
    with pytest.raises(TypeError, match=f"activation: expected a name.* got {type(spec).__name__}"):
        Activation.parse(spec)  # type: ignore[arg-type]


def test_unknown_name_is_refused_where_an_activation_is_built() -> None:
    with pytest.raises(ValueError, match=r"activation: expected one of identity, .*'swish'"):
        Activation("swish")


@pytest.mark.parametrize(
    "module",
    [
        *(module for module in laws.SIGMAS.values() if not isinstance(module, laws.Square)),
        nn.ReLU(inplace=True),
        nn.LeakyReLU(0.37),
        nn.LeakyReLU(0.1, inplace=True),
        nn.ELU(1.0),
        nn.Softplus(1, 20),
    ],
    ids=repr,
)
def test_activation_of_a_module_computes_what_the_module_does(module: nn.Module) -> None:
    sigma = Activation.of_module(module)
    assert sigma is not None
    z = torch.linspace(-25, 25, 101, dtype=torch.float64)
    assert torch.equal(sigma(z), module(z.clone()))


class DoubledReLU(nn.ReLU):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class LoudLeakyReLU(nn.LeakyReLU):
    pass


@pytest.mark.parametrize(
    "module",
    [
        nn.ELU(2.0),
        nn.Softplus(beta=2),
        nn.Softplus(threshold=10),
        nn.PReLU(),
        nn.RReLU(),
        nn.ReLU6(),
        nn.Hardtanh(),
        nn.Linear(2, 2),
        nn.Sequential(nn.ReLU()),
        DoubledReLU(),
        LoudLeakyReLU(),
    ],
    ids=repr,
)
def test_module_that_computes_something_else_has_no_activation(module: nn.Module) -> None:
    assert Activation.of_module(module) is None
