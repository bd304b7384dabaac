"""What surrounds a call: is it a plain eager call, and are the modules in it as their classes define them?

Fast routes leave out work that PyTorch would do: they call C directly, skip modules, or share rows. They may do so only
where no hook, mode or compiler would notice. Every room calls the functions of this module, and no other module probes
PyTorch for compilers, modes or hooks.
"""

import torch
from torch import nn
from torch.nn.modules import module as _hooks


def is_compiling() -> bool:
    """Whether `torch.compile` or `torch.export` is tracing this call.

    >>> is_compiling()
    False
    """
    return torch.compiler.is_compiling()


def is_exporting() -> bool:
    """Whether `torch.export` is tracing this call, for a program that must not contain our operators."""
    return torch.compiler.is_exporting()


def is_transformed() -> bool:
    """Whether a `torch.func` transform or forward-mode differentiation is active.

    Both would treat an operator of this package as a constant.
    """
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def is_dispatched() -> bool:
    """Whether a dispatch mode, such as that of fake tensors or of a FLOP counter, sees every operator."""
    return bool(torch._C._len_torch_dispatch_stack())


def is_traced() -> bool:
    """Whether operators are recorded or replaced by stand-ins, so that tensors may have no values."""
    return is_compiling() or is_dispatched()


def is_plain_call(device_type: str = "cpu") -> bool:
    """Whether PyTorch runs every operator at once, by itself and unchanged, so that a call of C can take its place.

    The call is not plain under any of these:

    - `torch.compile`, `torch.export` and `torch.jit.trace`
    - autocast on a device of this type
    - a dispatch mode
    - a `torch.func` transform or forward-mode differentiation

    >>> is_plain_call()
    True
    >>> with torch.autocast("cpu"):
    ...     is_plain_call()
    False
    """
    return not (
        is_compiling()
        or torch.is_autocast_enabled(device_type)
        or is_dispatched()
        or torch._C._get_tracing_state() is not None
        or is_transformed()
    )


def are_saved_tensors_hooked() -> bool:
    """Whether the tensors that a backward pass reads are packed away, as a checkpoint and `save_on_cpu` do."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def has_hooks(module: nn.Module) -> bool:
    """Whether calling or differentiating this module runs a hook, be it the module's own or a global one."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _hooks._global_forward_hooks
        or _hooks._global_forward_pre_hooks
        or _hooks._global_backward_hooks
        or _hooks._global_backward_pre_hooks
    )


def is_touched(module: nn.Module) -> bool:
    """Whether a module may do more than its class defines: it has hooks, a `forward` of its own, or was compiled.

    >>> linear = nn.Linear(2, 2)
    >>> is_touched(linear)
    False
    >>> handle = linear.register_forward_hook(lambda *_: None)
    >>> is_touched(linear)
    True
    """
    return "forward" in module.__dict__ or module._compiled_call_impl is not None or has_hooks(module)
