"""The linear map by the C kernel: values, gradients, bits, and when torch is asked instead."""

import itertools
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

pytestmark = pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))

# Around the rows and columns of a tile, the depth (256, in a slot 128), rows (120) and columns (256) of a block.
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
    """The shapes of the kernel's products, which are asked for on any processor."""
    found: list[tuple[int, int]] = []

    def spy(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        found.append((a.size(0), b.size(1)))
        return product(a, b, bias)

    monkeypatch.setattr(native, "MULTIPLIES", True)
    monkeypatch.setattr(module, "product", spy)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("isa")
def test_product_is_exact_to_rounding_for_all_strides_and_threads(
    size: tuple[int, int, int], dtype: torch.dtype
) -> None:
    m, depth, n = size
    bias = torch.randn(n, dtype=dtype)
    for flip_a, flip_b, with_bias in itertools.product([False, True], repeat=3):
        a = torch.randn(depth, m, dtype=dtype).t() if flip_a else torch.randn(m, depth + 3, dtype=dtype)[:, 1:-2]
        b = torch.randn(n, depth, dtype=dtype).t() if flip_b else torch.randn(depth, n + 2, dtype=dtype)[:, :-2]
        expected = a.double() @ b.double() + (bias.double() if with_bias else 0)
        found = product(a, b, bias if with_bias else None)
        # The sum of the products' sizes times half a unit in the last place, for each of the additions.
        scale = a.double().abs() @ b.double().abs() + bias.double().abs()
        assert ((found - expected).abs() <= scale * torch.finfo(dtype).eps * (4 + depth / 16)).all()
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            again = product(a, b, bias if with_bias else None)
        finally:
            torch.set_num_threads(threads)
        assert torch.equal(again, found)


def test_nan_and_infinity_stay_in_their_row() -> None:
    a, b = torch.randn(250, 20), torch.randn(20, 40)
    clean = product(a, b)
    a[7, 3], a[249, 0] = torch.nan, torch.inf
    found = product(a, b)
    assert found[7].isnan().all()
    assert not found[249].isfinite().any()
    rest = [i for i in range(250) if i not in (7, 249)]
    assert torch.equal(found[rest], clean[rest])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(400,), (4, 100)], ids=str)
def test_linear_has_the_values_and_gradients_of_torch(
    calls: list[tuple[int, int]], shape: tuple[int, ...], bias: bool
) -> None:
    x = torch.randn(*shape, 75, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(70, 75, dtype=torch.float64, requires_grad=True)
    shift = torch.randn(70, dtype=torch.float64, requires_grad=True) if bias else None
    leaves = [t for t in (x, weight, shift) if t is not None]
    ours, theirs = linear(x, weight, shift), F.linear(x, weight, shift)
    assert calls == [(400, 70)]
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    found = torch.autograd.grad(ours, leaves, grad)
    assert calls == [(400, 70), (400, 75), (70, 75)]
    for one, other in zip(found, torch.autograd.grad(theirs, leaves, grad), strict=True):
        torch.testing.assert_close(one, other)


def test_only_the_gradients_that_are_needed_are_computed(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(400, 64), torch.randn(64, 64, requires_grad=True)
    linear(x, weight).sum().backward()
    assert calls == [(400, 64), (64, 64)]
    with torch.no_grad():
        assert not linear(x, weight).requires_grad


def test_second_derivatives_are_those_of_torch(calls: list[tuple[int, int]]) -> None:
    x = torch.randn(300, 64, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(64, 64, dtype=torch.float64, requires_grad=True)

    def penalty(function: object) -> tuple[Tensor, ...]:
        out = function(x, weight, None)  # type: ignore[operator]
        (grad,) = torch.autograd.grad(out.tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (x, weight))

    for ours, theirs in zip(penalty(linear), penalty(F.linear), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert calls


def test_a_row_has_the_same_bits_wherever_it_stands() -> None:
    for depth in (64, 300):
        x, weight, bias = torch.randn(421, depth), torch.randn(70, depth), torch.randn(70)
        assert torch.equal(product(x[1:], weight.t(), bias), product(x, weight.t(), bias)[1:])


def test_no_depth_is_a_sum_of_nothing() -> None:
    assert torch.equal(product(torch.randn(50, 0), torch.randn(0, 30)), torch.zeros(50, 30))
    assert torch.equal(product(torch.randn(50, 0), torch.randn(0, 30), torch.ones(30)), torch.ones(50, 30))


def test_torch_is_asked_where_the_kernel_does_not_fit(calls: list[tuple[int, int]]) -> None:
    x, weight = torch.randn(8000, 64), torch.randn(64, 64)
    linear(x[:200], weight)
    linear(x[:255], torch.randn(512, 64))
    linear(x, weight[:8])
    linear(x[:, :8], weight[:, :8])
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


@pytest.mark.parametrize("kind", ["negated", "nothing", "sparse", "expanded"])
def test_any_gradient_is_taken(calls: list[tuple[int, int]], kind: str) -> None:
    x, weight = torch.randn(400, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    grad = {
        "negated": torch.complex(torch.ones(400, 64), torch.randn(400, 64)).conj().imag,
        "nothing": torch._efficientzerotensor((400, 64)),
        "sparse": torch.randn(400, 64).relu().to_sparse(),
        "expanded": torch.randn(400, 1).expand(400, 64),
    }[kind]
    ours, theirs = (torch.autograd.grad(f(x, weight), (x, weight), grad) for f in (linear, F.linear))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert len(calls) == (3 if kind == "expanded" else 1)


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
    assert len(calls) == 4


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


def test_who_computes_products_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRGCN_PRODUCTS", "kernel")
    assert native.multiplies()
    monkeypatch.setenv("SIRGCN_PRODUCTS", "torch")
    assert not native.multiplies()
    monkeypatch.setenv("SIRGCN_PRODUCTS", "mkl")
    with pytest.raises(ValueError, match="SIRGCN_PRODUCTS: expected kernel or torch, got 'mkl'"):
        native.multiplies()


@pytest.mark.parametrize("by", ["kernel", "torch"])
def test_it_is_said_who_computes_products(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(native, "MULTIPLIES", by == "kernel")
    assert native.describe().endswith(f"linear layers by {'the kernel' if by == 'kernel' else 'torch'}")
    monkeypatch.setenv("SIRGCN_PRODUCTS", by)
    monkeypatch.setattr(native, "UNAVAILABLE", "no compiler")
    if by == "kernel":
        with pytest.raises(RuntimeError, match="SIRGCN_PRODUCTS: there is no kernel: no compiler"):
            native.multiplies()
    else:
        assert not native.multiplies()


def test_intels_processors_are_left_to_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIRGCN_PRODUCTS", raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    for intel, isas, expected in [
        (False, ["avx2", "baseline", "scalar"], True),
        (True, ["avx2", "baseline", "scalar"], False),
        (False, ["baseline", "scalar"], False),
    ]:
        monkeypatch.setattr("sirgcn.ops.native._kernels.is_intel", lambda intel=intel: intel)
        monkeypatch.setattr("sirgcn.ops.native._kernels.isas", lambda isas=isas: isas)
        assert native.multiplies() is expected


def test_a_lower_precision_leaves_the_product_to_torch(calls: list[str]) -> None:
    x, weight = torch.randn(2000, 64), torch.randn(64, 64)
    linear(x, weight)
    assert len(calls) == 1
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(linear(x, weight), F.linear(x, weight))
        linear(x.double(), weight.double())
    finally:
        torch.set_float32_matmul_precision(precision)
    assert len(calls) == 2
