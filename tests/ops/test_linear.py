"""The linear map by oneDNN: values, gradients, bits, and when torch computes it instead."""

import importlib.util
import itertools
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrizations
from torch_geometric.nn import Linear as PyGLinear

import sirgcn.ops.linear as module
from sirgcn.nn.linear import Linear
from sirgcn.ops import native
from sirgcn.ops.linear import linear, product

pytestmark = pytest.mark.skipif(module._ONEDNN is None, reason="this version of torch lacks oneDNN's linear layer")

# Rows, depth and columns around the blocks of a product.
SIZES = [
    (1, 1, 1),
    (5, 3, 2),
    (119, 16, 17),
    (120, 128, 16),
    (121, 257, 33),
    (2, 600, 519),
    (13, 129, 257),
    (30, 5000, 17),
    (20, 1100, 300),
    (600, 300, 40),
    (700, 75, 75),
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of oneDNN's products, on any processor and from 256 rows and 2**20 multiplications on."""
    found: list[tuple[int, int]] = []

    def spy(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        found.append((x.size(0), weight.size(0)))
        return product(x, weight, bias)

    monkeypatch.setattr(module, "USES_ONEDNN", True)
    monkeypatch.setattr(module, "_LEAST_WORK", 2**20)
    monkeypatch.setattr(module, "_LEAST_ROWS", 256)
    monkeypatch.setattr(module, "product", spy)
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_product_is_exact_to_rounding_for_all_strides_and_threads(size: tuple[int, int, int]) -> None:
    m, depth, n = size
    bias = torch.randn(n)
    for flip_x, flip_weight, with_bias in itertools.product([False, True], repeat=3):
        x = torch.randn(depth, m).t() if flip_x else torch.randn(m, depth + 3)[:, 1:-2]
        weight = torch.randn(depth, n).t() if flip_weight else torch.randn(n, depth)
        shift = bias if with_bias else None
        expected = F.linear(x.double(), weight.double(), bias.double() if with_bias else None)
        found = product(x, weight, shift)
        # The sum of the products' sizes times half a unit in the last place, for each of the additions.
        scale = F.linear(x.double().abs(), weight.double().abs(), bias.double().abs())
        assert ((found - expected).abs() <= scale * torch.finfo(torch.float32).eps * (4 + depth / 16)).all()
        assert torch.equal(product(x, weight, shift), found)
    torch.set_num_threads(3)
    again = product(x, weight, shift)
    assert ((again - expected).abs() <= scale * torch.finfo(torch.float32).eps * (4 + depth / 16)).all()


def test_nan_and_infinity_stay_in_their_row() -> None:
    x, weight = torch.randn(250, 20), torch.randn(40, 20)
    clean = product(x, weight)
    x[7, 3], x[249, 0] = torch.nan, torch.inf
    found = product(x, weight)
    assert found[7].isnan().all()
    assert not found[249].isfinite().any()
    rest = [i for i in range(250) if i not in (7, 249)]
    assert torch.equal(found[rest], clean[rest])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(400,), (4, 100)], ids=str)
def test_linear_has_the_values_and_gradients_of_torch(
    calls: list[tuple[int, int]], shape: tuple[int, ...], bias: bool
) -> None:
    x = torch.randn(*shape, 75, requires_grad=True)
    weight = torch.randn(70, 75, requires_grad=True)
    shift = torch.randn(70, requires_grad=True) if bias else None
    leaves = [t for t in (x, weight, shift) if t is not None]
    ours, theirs = linear(x, weight, shift), F.linear(x, weight, shift)
    assert calls == [(400, 70)]
    # Sums of 75 and of 400 float32 numbers around 0, in two orders.
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    grad = torch.randn_like(ours)
    found = torch.autograd.grad(ours, leaves, grad)
    assert calls == [(400, 70), (400, 75)]
    for one, other in zip(found, torch.autograd.grad(theirs, leaves, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_only_the_gradients_that_are_needed_are_computed(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(400, 64), torch.randn(64, 64, requires_grad=True)
    linear(x, weight).sum().backward()
    assert calls == [(400, 64)]
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_second_derivatives_are_those_of_torch(calls: list[tuple[int, int]]) -> None:
    x = torch.randn(300, 64, requires_grad=True)
    weight = torch.randn(64, 64, requires_grad=True)

    def penalty(function: object) -> tuple[Tensor, ...]:
        out = function(x, weight, None)  # type: ignore[operator]
        (grad,) = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (x, weight))

    # Gradients of gradients in float32, which are sums over 300 rows.
    for ours, theirs in zip(penalty(linear), penalty(F.linear), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)
    assert calls


def test_a_row_has_the_same_bits_wherever_it_stands() -> None:
    for depth in (64, 300):
        x, weight, bias = torch.randn(421, depth), torch.randn(70, depth), torch.randn(70)
        assert torch.equal(product(x[1:], weight, bias), product(x, weight, bias)[1:])


def test_values_and_gradients_repeat_bit_for_bit(calls: list[tuple[int, int]]) -> None:
    x, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((5000, 75), (70, 75), (70,)))
    grad = torch.randn(5000, 70)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        first, second = (
            [out, *torch.autograd.grad(out, (x, weight, bias), grad)]
            for out in (linear(x, weight, bias), linear(x, weight, bias))
        )
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert calls


def test_no_depth_is_a_sum_of_nothing(calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_WORK", 0)
    assert torch.equal(linear(torch.randn(50, 0), torch.randn(30, 0)), torch.zeros(50, 30))
    assert torch.equal(linear(torch.randn(50, 0), torch.randn(30, 0), torch.ones(30)), torch.ones(50, 30))
    assert calls == []


def test_torch_computes_what_onednn_does_not(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(8000, 64), torch.randn(64, 64)
    linear(x[:200], weight)
    linear(x[:255], torch.randn(512, 64))
    linear(x, weight.t())
    linear(x, torch.randn(1, 64).expand(64, 64))
    linear(x, weight, torch.randn(128)[::2])
    linear(x.double(), weight.double())
    linear(x.bfloat16(), weight.bfloat16())
    linear(x[0], weight)
    linear(torch.complex(x, x).conj().imag, weight)
    linear(torch._efficientzerotensor((8000, 64)), weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    out = torch.func.vmap(linear, in_dims=(0, None))(x.view(2, 4000, 64), weight)
    torch.testing.assert_close(out.flatten(0, 1), F.linear(x, weight))
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(linear(forward_ad.make_dual(x, x), weight)).tangent is not None
    assert linear(x.to_sparse(), weight).shape == (8000, 64)
    for bias in (torch.ones(1), torch.tensor(1.0), torch.randn(8000, 64)):
        torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    with pytest.raises(RuntimeError, match="size"):
        linear(x, weight, torch.ones(32))
    with pytest.raises(RuntimeError, match="shapes"):
        linear(x, torch.randn(64, 63))
    assert calls == []
    assert linear(x, weight).shape == (8000, 64)
    assert calls == [(8000, 64)]


@pytest.mark.parametrize("form", ["negated", "nothing", "sparse", "expanded"])
def test_gradients_of_any_form_are_accepted(calls: list[tuple[int, int]], form: str) -> None:
    x, weight = torch.randn(400, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    grad = {
        "negated": torch.complex(torch.ones(400, 64), torch.randn(400, 64)).conj().imag,
        "nothing": torch._efficientzerotensor((400, 64)),
        "sparse": torch.randn(400, 64).relu().to_sparse(),
        "expanded": torch.randn(400, 1).expand(400, 64),
    }[form]
    ours, theirs = (torch.autograd.grad(f(x, weight), (x, weight), grad) for f in (linear, F.linear))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert len(calls) == (2 if form == "expanded" else 1)


def test_gradients_can_be_batched(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(400, 64, requires_grad=True), torch.randn(64, 64)
    grads = torch.randn(3, 400, 64)
    (found,) = torch.autograd.grad(linear(x, weight), x, grads, is_grads_batched=True)
    torch.testing.assert_close(found, grads @ weight, rtol=1e-4, atol=1e-4)
    assert calls == [(400, 64)]


def test_what_no_gradient_reads_may_change_in_place(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(400, 64), torch.randn(64, 64, requires_grad=True)
    out = linear(x, weight)
    with torch.no_grad():
        weight.add_(1)
    out.sum().backward()
    y = torch.randn(400, 64, requires_grad=True)
    inner = y * 1
    out = linear(inner, weight.detach())
    inner.zero_()
    out.sum().backward()
    assert len(calls) == 3


def test_the_layer_is_that_of_pyg(calls: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    ours = Linear(64, 48)
    torch.manual_seed(0)
    theirs = PyGLinear(64, 48)
    assert isinstance(ours, PyGLinear)
    assert {name: t.tolist() for name, t in ours.state_dict().items()} == {
        name: t.tolist() for name, t in theirs.state_dict().items()
    }
    x = torch.randn(500, 64)
    torch.testing.assert_close(ours(x), theirs(x))
    assert calls
    lazy = Linear(-1, 48)
    assert lazy(x).shape == (500, 48)
    scaled = parametrizations.weight_norm(Linear(64, 48))
    torch.testing.assert_close(scaled(x), F.linear(x, scaled.weight, scaled.bias))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripts = torch.jit.script(ours), torch.jit.trace(ours, x)
    for changed in (
        torch.compile(ours, backend="eager", fullgraph=True),
        torch.fx.symbolic_trace(nn.Sequential(ours)),
        *scripts,
    ):
        torch.testing.assert_close(changed(x), theirs(x))


# torch tells users of its oneDNN switches that TF32 is for Intel's GPUs.
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_switches_of_torch_are_obeyed(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(400, 64, requires_grad=True), torch.randn(64, 64)
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    assert calls == []
    before = torch.get_float32_matmul_precision()
    for precision in ("high", "medium"):
        torch.set_float32_matmul_precision(precision)
        found, expected = linear(x, weight), F.linear(x, weight)
        torch.set_float32_matmul_precision(before)
        assert torch.equal(found, expected)
    assert calls == []
    out = linear(x, weight)
    assert calls == [(400, 64)]
    with torch.backends.mkldnn.flags(enabled=False):
        out.sum().backward()
    assert calls == [(400, 64)]


@pytest.mark.parametrize("operator", [None, torch.ops.aten.linear], ids=["missing", "with other arguments"])
def test_torch_computes_products_where_the_operator_is_missing(
    monkeypatch: pytest.MonkeyPatch, operator: object
) -> None:
    monkeypatch.setattr(
        torch.ops, "mkldnn", types.SimpleNamespace(**({"_linear_pointwise": operator} if operator else {}))
    )
    spec = importlib.util.spec_from_file_location("linear_without_operator", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    assert found._ONEDNN is None
    assert not found.USES_ONEDNN
    x, weight = torch.randn(3000, 64), torch.randn(64, 64)
    assert torch.equal(found.linear(x, weight), F.linear(x, weight))


def test_products_on_intels_processors_are_left_to_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.UNAVAILABLE is not None:
        pytest.skip(native.UNAVAILABLE)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for is_intel, capability, expected in [
        (False, "AVX2", True),
        (False, "AVX512", True),
        (True, "AVX2", False),
        (False, "DEFAULT", False),
    ]:
        monkeypatch.setattr("sirgcn.ops.native._kernels.is_intel", lambda is_intel=is_intel: is_intel)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        assert module._is_mkl_slow() is expected
