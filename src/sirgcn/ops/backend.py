"""The backends of the aggregation: a table of them, and the choice of one."""

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.ops import native, reference, triton_backend, triton_gated
from sirgcn.ops.activation import Activation
from sirgcn.ops.calls import is_compiling, is_traced
from sirgcn.ops.checks import check_known
from sirgcn.ops.door import why_closed
from sirgcn.ops.native import backend as native_backend
from sirgcn.ops.native import gated as native_gated
from sirgcn.ops.neighbors import Neighbors
from sirgcn.ops.reference import EdgeTerms, Ends, Gate, GatedSums, GradEnds, Needs


@dataclass(frozen=True)
class GatedPasses:
    """The two passes of messages with a value, with the signatures of the reference's `gated_` functions."""

    forward: Callable[[Ends, Neighbors, EdgeTerms, Gate, bool], GatedSums]
    backward: Callable[
        [Tensor, Ends, GatedSums, Neighbors, EdgeTerms, Gate, Needs, GradEnds],
        tuple[Tensor | None, Tensor | None],
    ]


@dataclass(frozen=True)
class Backend:
    """One implementation of the aggregation, with the signatures of `sirgcn.ops.reference`.

    Args:
        forward, backward: the two passes.
        devices: the device types that it works on; an empty tuple stands for all devices.
        unavailable: the reason why it is not available here; None where it is available.
        reads_memory: whether it reads memory by its address and not through operators of torch. Such a backend works
            on plain tensors only.
        gated: the passes of messages with a value; None for a backend that knows no value.
    """

    forward: Callable[[Tensor, Tensor, Neighbors, EdgeTerms, Activation, bool], tuple[Tensor, Tensor | None]]
    backward: Callable[
        [Tensor, Tensor, Tensor, Neighbors, EdgeTerms, Activation, Needs],
        tuple[Tensor, Tensor | None, Tensor | None],
    ]
    devices: tuple[str, ...] = ()
    unavailable: str | None = None
    reads_memory: bool = True
    gated: GatedPasses | None = None


# The default is the first backend that can run.
BACKENDS: dict[str, Backend] = {
    "native": Backend(
        native_backend.forward,
        native_backend.backward,
        ("cpu",),
        native.UNAVAILABLE,
        gated=GatedPasses(native_gated.forward, native_gated.backward),
    ),
    "triton": Backend(
        triton_backend.forward,
        triton_backend.backward,
        triton_backend.DEVICES,
        triton_backend.UNAVAILABLE,
        gated=GatedPasses(triton_gated.forward, triton_gated.backward),
    ),
    "reference": Backend(
        reference.forward,
        reference.backward,
        reads_memory=False,
        gated=GatedPasses(reference.gated_forward, reference.gated_backward),
    ),
}


def backends() -> dict[str, str | None]:
    """The backends by name: None where one is available, otherwise the reason why it is not.

    >>> backends()["reference"] is None
    True
    """
    return {name: backend.unavailable for name, backend in BACKENDS.items()}


def choose_backend(
    backend: str | None,
    device: torch.device | None = None,
    tensors: Mapping[str, Tensor | None] | None = None,
    is_gated: bool = False,
) -> str:
    """The name of the backend for a device and for tensors.

    A backend that was asked for by name raises where it cannot run. Without a name, the first backend that can run is
    returned, with one warning where a faster one should have been able to.

    Args:
        backend: a name from `backends()`, or None.
        device: the device; None stands for any device.
        tensors: the tensors by the names of their arguments; None stands for any tensors. A backend that reads memory
            by its address cannot read a tensor whose values lie elsewhere, such as a subclass.
        is_gated: whether the messages have a value.

    >>> choose_backend("reference")
    'reference'
    """
    if backend is not None:
        check_known("backend", backend, BACKENDS)
        reason = _why_not(backend, device, tensors, is_gated)
        if reason is not None:
            raise RuntimeError(f"backend: {backend} is not available here: {reason}")
        return backend
    for name in BACKENDS:
        reason = _why_not(name, device, tensors, is_gated)
        if reason is None:
            return name
        if not _is_elsewhere(name, device) and not is_compiling():
            _warn_of_fallback(name, reason)
    raise AssertionError("the reference runs on every device")


def _is_elsewhere(name: str, device: torch.device | None) -> bool:
    """Whether a backend is made for other devices."""
    devices = BACKENDS[name].devices
    return device is not None and bool(devices) and device.type not in devices


def _why_not(
    name: str, device: torch.device | None, tensors: Mapping[str, Tensor | None] | None, is_gated: bool
) -> str | None:
    """The reason why a backend cannot run on a device or on tensors; None where it can."""
    entry = BACKENDS[name]
    if entry.unavailable is not None:
        return entry.unavailable
    if is_gated and entry.gated is None:
        return "it has no messages with a value"
    if _is_elsewhere(name, device):
        return f"it works on {' and '.join(entry.devices)}, not on {device}"
    if entry.reads_memory and tensors is not None:
        return _why_not_read(tensors)
    return None


def _why_not_read(tensors: Mapping[str, Tensor | None]) -> str | None:
    """The reason why the first tensor that cannot be read by its address cannot be; None where all can.

    Tensors that torch traces with types of its own pass: the compiled code gets others.
    """
    if is_traced():
        return None
    for name, tensor in tensors.items():
        reason = None if tensor is None else why_closed(tensor)
        if reason is not None:
            return f"{name}: {reason}"
    return None


@functools.cache
def _warn_of_fallback(name: str, reason: str) -> None:
    """Warn once for each backend and reason."""
    warnings.warn(f"sirgcn: the backend {name} is not available, plain PyTorch takes its place: {reason}", stacklevel=4)
