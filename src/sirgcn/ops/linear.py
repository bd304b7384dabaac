"""x W^T + b, by torch or, where the BLAS of torch is slow, by our kernel in C.

torch multiplies float32 matrices by MKL, which has only generic code for processors that are not Intel's. torch also
brings oneDNN, which generates its code for any processor. `tools/compare_products.py` compares the three:

- oneDNN is level with our kernel, or faster, in Y and in the gradient of X of large matrices.
- oneDNN takes about 1.5 times as long as MKL and our kernel for the gradient of W.
- oneDNN prepares its code again for every new number of rows, which costs little for large matrices and several times
  the product for small ones. Batches of molecules hardly ever have the same number of rows twice, and training on ZINC
  took about 1.3 times as long (one comparison, not on record).
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sirgcn.ops import native
from sirgcn.ops.calls import is_plain_call
from sirgcn.ops.door import PLAIN_TYPES, address, flat, is_open

if native.UNAVAILABLE is None:
    import sirgcn.ops.native._kernels as _kernels

# Multiplications below which a call of torch costs less; the narrowest matrices that fill the tiles of the kernel; and
# the rows below which laying out W costs more than the kernel saves.
_LEAST_WORK = 2**20
_LEAST_WIDTH = 16
_LEAST_ROWS = 256


def linear(
    x: Float[Tensor, "*rows d_in"], weight: Float[Tensor, "d_out d_in"], bias: Float[Tensor, " d_out"] | None = None
) -> Float[Tensor, "*rows d_out"]:
    r"""A linear map, as `torch.nn.functional.linear`.

    .. math:: Y = X W^\top + b

    Our kernel computes Y and all gradients where all of these hold:

    - the processor is not Intel's, and has AVX2
    - the product is large, and the tensors are float32 or float64 on the CPU
    - the call is plain: not compiled, transformed or under autocast
    - `torch.set_float32_matmul_precision` asks for full precision

    In all other cases torch computes them.

    Args:
        x: `[..., d_in]`.
        weight: `[d_out, d_in]`.
        bias: `[d_out]`, or None.

    Returns:
        `[..., d_out]`.

    >>> linear(torch.ones(1, 2), torch.tensor([[1.0, 2.0]]), torch.tensor([10.0])).item()
    13.0
    """
    if not native.MULTIPLIES or not _can_run_kernel(x, weight, bias):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        out: Tensor = _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    else:
        out = product(rows, weight.t(), bias)
    return out if x.dim() == 2 else out.unflatten(0, x.shape[:-1])


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b + bias `[m, n]` by the C kernel: a `[m, k]` and b `[k, n]` with any strides, all float32 or all float64."""
    (m, depth), n = a.shape, b.size(1)
    bias = None if bias is None else bias.contiguous()
    out = a.new_empty(m, n)
    (a_row, a_step), (b_row, b_step) = a.stride(), b.stride()
    _kernels.product(
        dtype=native.DTYPES[a.dtype],
        threads=native.threads_for(m * n * depth // _LEAST_WIDTH),
        m=m,
        n=n,
        depth=depth,
        a=address(a),
        a_row=a_row,
        a_step=a_step,
        b=address(b),
        b_row=b_row,
        b_step=b_step,
        c=flat(out),
        bias=flat(bias),
    )
    return out


def _can_run_kernel(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel can compute the map of these tensors, may do so, and saves time."""
    return (
        # First the questions that do not read sizes: in a traced call, x may have none.
        type(x) in PLAIN_TYPES
        and is_plain_call()
        and _is_large(x, weight)
        and x.size(-1) == weight.size(1)
        and _is_plain(x, x)
        and _is_plain(weight, x)
        and (bias is None or (_is_plain(bias, x) and bias.shape == weight.shape[:1]))
        and (x.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest")
    )


def _is_large(x: Tensor, weight: Tensor) -> bool:
    """Whether the product has enough multiplications, rows and columns. Most layers of small graphs have not."""
    return (
        x.numel() * weight.size(0) >= _LEAST_WORK
        and x.numel() >= _LEAST_ROWS * x.size(-1)
        and x.dim() >= 2
        and weight.dim() == 2
        and min(weight.shape) >= _LEAST_WIDTH
    )


def _is_plain(tensor: Tensor, like: Tensor) -> bool:
    """Whether C may read the tensor's memory, in a dtype that the kernel knows and the other tensor has."""
    return is_open(tensor) and tensor.dtype == like.dtype and tensor.dtype in (torch.float32, torch.float64)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        needs_x, needs_weight, _ = ctx.needs_input_grad
        # What no gradient reads may be changed in place.
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        return product(x, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        # Second derivatives are those of torch's own operators.
        ours = not torch.is_grad_enabled() and is_plain_call() and _is_plain(grad, grad)
        multiply = product if ours else torch.mm
        return (
            None if weight is None else multiply(grad, weight),
            None if x is None else multiply(grad.t(), x),
            grad.sum(0) if ctx.needs_input_grad[2] else None,
        )
