"""How a user calls the network: compiled, under autocast, in a checkpoint, with other weights, without a gradient."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sirgcn.nn import SIRConv
from tests.nn.fuzz.actions import is_steep
from tests.nn.fuzz.draw import Case, Rng, one_of

Use = Callable[[Case], Tensor]


def compiled(case: Case, backend: str) -> Tensor:
    """By `torch.compile`; on the plainest route an ordinary call."""
    if case.is_plain:
        return case.call()
    torch._dynamo.reset()
    # The random numbers of eager code.
    options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
    out: Tensor = torch.compile(case.net, backend=backend, options=options)(**case.arguments())
    return out


def compiled_part(case: Case) -> Tensor:
    """One of the parts compiled, and called twice."""
    blocks = [module for module in case.net.modules() if isinstance(module, nn.ModuleList)]
    if not case.is_plain and blocks:
        torch._dynamo.reset()
        blocks[-1][0].compile(backend="eager")
    return case.call()


def under_autocast(case: Case) -> Tensor:
    """In bfloat16 where torch thinks it safe."""
    if is_steep(case.net):
        return case.call()
    case.dtype = torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        return case.call()


def in_checkpoint(case: Case) -> Tensor:
    """Computed again in the backward pass, if that computes the same: each call of a spectral norm moves its weight."""
    if any(name.endswith("_u") for name, _ in case.net.named_buffers()):
        return case.call()
    names = list(case.given)
    values = list(case.arguments().values())
    out: Tensor = checkpoint(
        lambda *args: case.net(**dict(zip(names, args, strict=True))), *values, use_reentrant=False
    )
    return out


def with_other_weights(case: Case) -> Tensor:
    """By `functional_call`, with weights that are no parameters."""
    weights = {name: 0.75 * parameter for name, parameter in case.net.named_parameters()}
    out: Tensor = torch.func.functional_call(case.net, weights, (), case.arguments())
    return out


def without_gradient(case: Case) -> Tensor:
    """Under `no_grad`."""
    with torch.no_grad():
        return case.call()


def in_inference_mode(case: Case) -> Tensor:
    """Under `inference_mode`."""
    with torch.inference_mode():
        return case.call().clone()


def twice(case: Case) -> Tensor:
    """Two calls in one graph of autograd."""
    return case.call() + case.call()


def changed_before_backward(case: Case, name: str) -> Tensor:
    """A weight is changed between the passes: torch refuses, or the gradient is that of the weight before."""
    out = case.call()
    if not case.is_plain:
        with torch.no_grad():
            case.net.get_parameter(name).mul_(3)
    return out


USES: dict[str, float] = {
    "ordinary": 0.62,
    "compiled, eager": 0.025,
    "compiled, aot_eager": 0.004,
    "a compiled part": 0.01,
    "autocast": 0.04,
    "checkpoint": 0.07,
    "functional_call": 0.06,
    "no_grad": 0.04,
    "inference_mode": 0.04,
    "twice": 0.041,
    "changed before backward": 0.05,
}
"""Every way with its share."""

_SIMPLE: dict[str, Use] = {
    "a compiled part": compiled_part,
    "autocast": under_autocast,
    "checkpoint": in_checkpoint,
    "functional_call": with_other_weights,
    "no_grad": without_gradient,
    "inference_mode": in_inference_mode,
    "twice": twice,
}


def draw_use(rng: Rng, inductor: bool) -> str:
    """The name of a way."""
    drawn = str(rng.choice(list(USES), p=list(USES.values())))
    return "compiled, inductor" if inductor else drawn


def still(net: nn.Module) -> None:
    """Nothing drops any more: compiled code draws other random numbers."""
    for module in net.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.RReLU):
            module.lower = module.upper
        elif isinstance(module, SIRConv):
            module.dropout = 0.0


def set_use(rng: Rng, case: Case, name: str) -> None:
    """Have the case called that way."""
    case.done.append(name)
    if case.is_compiled:
        still(case.net)
    if name.startswith("compiled, "):
        case.use = partial(compiled, backend=name.removeprefix("compiled, "))
    elif name == "changed before backward":
        names = [name for name, _ in case.net.named_parameters()]
        case.use = partial(changed_before_backward, name=one_of(rng, names))
    else:
        case.use = _SIMPLE.get(name)
