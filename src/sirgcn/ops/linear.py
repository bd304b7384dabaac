"""x W^T + b, by oneDNN where it is faster than the BLAS of torch, otherwise by torch itself.

torch brings two libraries for matrix products. In eager mode it takes MKL for float32, and MKL has only generic code
for processors that are not Intel's. oneDNN, which torch takes in compiled code, generates its code for any processor.
`results/bench/products_zen3_avx2.json` compares the two.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.door import PLAIN_TYPES, is_open

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

_SCHEMA = (
    "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, str? algorithm) -> Tensor Y"
)

# Multiplications and rows below which the fixed cost of a call of oneDNN, some 10 microseconds and a copy of W, exceeds
# what it saves.
_LEAST_WORK = 2**23
_LEAST_ROWS = 1024


def _find_onednn() -> Callable[..., Tensor] | None:
    """The linear layer of oneDNN; None where this version of torch lacks it or gave it other arguments.

    The operator is private to torch, so that any version may drop it.
    """
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    found: Callable[..., Tensor] | None = getattr(operator, "default", None)
    return found if str(getattr(found, "_schema", None)) == _SCHEMA else None


def _is_mkl_slow() -> bool:
    """Whether torch multiplies by MKL on a processor that has AVX2 and is not Intel's."""
    return (
        native.UNAVAILABLE is None
        and torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability().startswith("AVX")
        and not _kernels.is_intel()
    )


_ONEDNN = _find_onednn()

USES_ONEDNN = _ONEDNN is not None and _is_mkl_slow()
"""Whether large products are left to oneDNN. `torch.backends.mkldnn.enabled = False` turns this off too."""


def linear(
    x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"] | None = None
) -> Float[Tensor, "*rows d_out"]:
    r"""A linear map, as `torch.nn.functional.linear`.

    .. math:: Y = X W^\top + b

    oneDNN computes Y and the gradient of X where all of these hold:

    - the processor is not Intel's, and torch multiplies by MKL
    - the product is large, and the tensors are float32 on the CPU
    - the call is plain: not compiled, transformed or under autocast
    - `torch.backends.mkldnn.enabled` is True, and `torch.set_float32_matmul_precision` asks for full precision

    In all other cases, and for the gradient of W, torch computes them.

    Args:
        x: `[..., d_in]`.
        weight: `[d_out, d_in]`.
        bias: `[d_out]`, or None.

    Returns:
        `[..., d_out]`.

    >>> linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]), torch.tensor([10.0])).item()
    13.0
    """
    if not (USES_ONEDNN and _can_run_onednn(x, weight, bias)):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    else:
        out = product(rows, weight, bias)
    return out if x.dim() == 2 else out.unflatten(0, x.shape[:-1])


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b by oneDNN, of float32 matrices on the CPU."""
    assert _ONEDNN is not None
    return _ONEDNN(x, weight, bias, "none", [], "")


def _can_run_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether oneDNN can compute the map of these tensors, may do so, and saves time."""
    return (
        # First the questions that do not read sizes: in a traced call, x may have none.
        type(x) in PLAIN_TYPES
        and is_plain_call()
        and _is_large(x, weight)
        and _is_readable(x)
        and _is_readable(weight)
        and weight.is_contiguous()
        and x.size(-1) == weight.size(1)
        and (bias is None or _can_add(bias, weight))
        and _may_run_onednn()
    )


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """Whether the product has enough multiplications and rows. Most layers of small graphs have not."""
    return (
        x.numel() * weight.size(0) >= _LEAST_WORK
        and x.numel() >= _LEAST_ROWS * x.size(-1)
        and x.dim() >= 2
        and weight.dim() == 2
        and weight.numel() > 0
    )


def _is_readable(tensor: Tensor) -> bool:
    """Whether oneDNN can read the tensor: float32 values that lie in the tensor's own memory on the CPU."""
    return tensor.dtype == torch.float32 and is_open(tensor)


def _can_add(bias: Tensor, weight: Tensor) -> bool:
    return bias.shape == weight.shape[:1] and bias.is_contiguous() and _is_readable(bias)


def _may_run_onednn() -> bool:
    """Whether the switches of torch allow oneDNN; with a lower precision, torch decides what becomes of a product."""
    switches: Any = torch.backends.mkldnn
    return bool(switches.enabled) and switches.matmul.fp32_precision in ("none", "ieee")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        needs_x, needs_weight, _ = ctx.needs_input_grad
        # Tensors that no gradient reads are not saved, so that they may change in place.
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return (
            None if weight is None else _grad_of_x(grad, weight),
            # MKL is faster at this product, a long sum for each entry of W, than oneDNN.
            None if x is None else torch.mm(grad.t(), x),
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _grad_of_x(grad: Tensor, weight: Tensor) -> Tensor:
    # A second derivative goes through the operators of torch.
    if torch.is_grad_enabled() or not is_plain_call() or not _is_readable(grad) or not _may_run_onednn():
        return torch.mm(grad, weight)
    return product(grad, weight.t())
