"""What a case gives, and whether two outcomes agree."""

import re
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.nn.fuzz.draw import Case

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-2, torch.bfloat16: 0.25, torch.float16: 0.1}
"""Relative to the largest entry of a tensor. Below float64 a rounding may cross the kink of an activation."""

FLOOR = {torch.float64: 0.1, torch.float32: 0.05, torch.bfloat16: 1.0, torch.float16: 1.0}
"""The least scale, as a share of the largest gradient: before a batch norm the gradient of a bias is rounding alone."""

REFUSALS = (
    (ValueError, "is a batch norm in training mode", "its statistics would depend on the tile"),
    (ValueError, "changes with every call, so that messages would depend on the tile", "as a batch norm's"),
    (RuntimeError, "second derivative is not implemented", "as the documentation says"),
    (RuntimeError, "modified (by an inplace operation|inplace)", "torch's own check of what the backward pass reads"),
    (RuntimeError, "changed between forward and backward", "the same of a network in tiles"),
)
"""What the fused route may refuse and the plain one need not: class, message, reason."""


@dataclass
class Outcome:
    """Values by name, or the error."""

    values: dict[str, Tensor | None] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    error: Exception | None = None


def outcome(case: Case, seed: int) -> Outcome:
    """The output, all gradients and all buffers after a call."""
    torch.default_generator.manual_seed(seed)
    case.net.zero_grad()
    case.seen.clear()
    leaves = case.leaves()
    for leaf in leaves.values():
        leaf.grad = None
    out = case.call() if case.use is None else case.use(case)
    if out.requires_grad:
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        out.backward(weight.to(out.dtype))
    values: dict[str, Tensor | None] = {"output": out.detach()}
    values |= {f"gradient of {name}": p.grad for name, p in [*case.net.named_parameters(), *leaves.items()]}
    values |= {f"buffer {name}": buffer for name, buffer in case.net.named_buffers()}
    return Outcome({name: None if v is None else v.detach().clone() for name, v in values.items()}, sorted(case.seen))


def difference(found: Outcome, expected: Outcome, case: Case) -> str | None:
    """What differs, or None."""
    if found.error is not None or expected.error is not None:
        return _of_errors(found.error, expected.error)
    if found.values.keys() != expected.values.keys():
        return f"names: {sorted(found.values.keys() ^ expected.values.keys())}"
    grads = [
        float(v.to_dense().abs().max())
        for name, v in expected.values.items()
        if "grad" in name and v is not None and v.numel()
    ]
    largest = max([0.0, *grads])
    for name, wanted in expected.values.items():
        floor = FLOOR[case.dtype] * (largest if name.startswith("gradient") else 1.0)
        said = _of_tensors(found.values[name], wanted, case.dtype, floor)
        if said is not None:
            return f"{name}: {said}"
    if not case.is_compiled and found.seen != expected.seen:
        return f"hooks saw {found.seen[:3]}, expected {expected.seen[:3]}"
    return None


def _of_errors(found: Exception | None, expected: Exception | None) -> str | None:
    if found is not None and any(isinstance(found, kind) and re.search(text, str(found)) for kind, text, _ in REFUSALS):
        return None
    if found is None or expected is None or type(found) is not type(expected):
        return f"raised {_short(found)}, expected {_short(expected)}"
    return None


def _short(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}({str(error)[:200]!r})"


def _of_tensors(found: Tensor | None, wanted: Tensor | None, dtype: torch.dtype, floor: float) -> str | None:
    if found is None or wanted is None:
        given = found if wanted is None else wanted
        return None if given is None or not given.to_dense().any() else f"got {found}, expected {wanted}"
    found, wanted = found.to_dense(), wanted.to_dense()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"got {found.dtype} {list(found.shape)}, expected {wanted.dtype} {list(wanted.shape)}"
    if wanted.numel() == 0:
        return None
    found, wanted = found.double(), wanted.double()
    scale = max(float(wanted.abs().nan_to_num().max()), floor, 1e-12)
    error = float((found - wanted).abs().max())
    if bool((found.isnan() != wanted.isnan()).any()) or error > TOLERANCE[dtype] * scale:
        return f"off by {error:.3g} of {scale:.3g}"
    return None
