"""The border between tensors and C: whether C may touch a tensor's memory, and the address of that memory.

C knows nothing of torch. It reads and writes at an address, so the values must really lie there: not behind a tensor
subclass, on another device, in a sparse layout, or with a sign that torch applies later. Every address that reaches C
comes from this module.
"""

import torch
from torch import Tensor, nn

PLAIN_TYPES = frozenset({Tensor, nn.Parameter, nn.Buffer})
"""The types of tensors whose values lie in their own memory."""


def why_closed(tensor: Tensor) -> str | None:
    """The reason why a tensor's memory does not hold its values, apart from its device; None where it does.

    >>> why_closed(torch.ones(2)) is None
    True
    >>> why_closed(torch.ones(2).to_sparse())
    'its layout is torch.sparse_coo'
    """
    if type(tensor) not in PLAIN_TYPES:
        return f"it is a {type(tensor).__module__}.{type(tensor).__qualname__}, not a plain tensor"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}"
    if tensor.is_nested:
        return "it is a nested tensor"
    if tensor.is_neg() or tensor.is_conj():
        return "it is a negated or conjugated view"
    if not torch._C._has_storage(tensor) or tensor._is_zerotensor():
        return "it has no memory of its own"
    return None


def is_open(tensor: Tensor) -> bool:
    """Whether C may touch the tensor's memory."""
    # The type comes first, because a proxy of torch.fx has no other properties.
    return why_closed(tensor) is None and tensor.is_cpu


def opened(tensor: Tensor) -> Tensor:
    """The tensor where C may touch its memory, else a plain copy of its values; the copy has no gradient.

    For indices and for gradients in a backward pass. A tensor on another device stays as it is.
    """
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        # Autograd refuses to keep a tensor that was made in inference mode.
        return tensor.detach().clone()
    if why_closed(tensor) is None:
        return tensor
    with torch.no_grad():
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def address(tensor: Tensor | None) -> int:
    """The address of a tensor's values, 0 for None; a tensor that C must not touch raises."""
    if tensor is None:
        return 0
    # data_ptr raises for layouts without storage, and returns 0 for wrappers without storage. A nested tensor has no
    # shape, so earlier checks refuse it.
    found = tensor.data_ptr()
    is_closed = type(tensor) not in PLAIN_TYPES or not tensor.is_cpu or tensor.is_neg()
    if is_closed or (found == 0 and tensor.numel() > 0):
        raise TypeError(
            f"sirgcn: expected a tensor whose memory C may touch, got one on {tensor.device}: "
            f"{why_closed(tensor) or 'it is not on the CPU'}"
        )
    return found


def flat(tensor: Tensor | None) -> int:
    """The address of a contiguous tensor; 0 for None."""
    if tensor is not None and not tensor.is_contiguous():
        raise TypeError(f"sirgcn: expected a contiguous tensor, got strides {tensor.stride()}")
    return address(tensor)


def rows(tensor: Tensor | None) -> tuple[int, int]:
    """The address of a matrix with contiguous rows, and the distance between its rows; 0, 0 for None."""
    if tensor is None:
        return 0, 0
    stride, step = tensor.stride()
    if step != 1 and tensor.size(1) > 1:
        raise TypeError(f"sirgcn: expected contiguous rows, got strides {tensor.stride()}")
    return address(tensor), stride


def in_one_piece(matrix: Tensor) -> Tensor:
    """The matrix, copied if its rows are not contiguous."""
    return matrix if matrix.stride(1) == 1 or matrix.size(1) <= 1 else matrix.contiguous()
