"""The parts of a module that this package knows how to compute by itself: activations and linear layers."""

from torch import Tensor, nn

from sirgcn.ops.activation import Activation, Sigma
from sirgcn.ops.calls import is_touched

LINEAR: set[type[nn.Module]] = {nn.Linear}
"""The types that compute x W^T + b from `weight` and `bias`. `sirgcn.nn.linear` adds PyG's linear layer and ours.

A subclass may compute something else, so only these very types count.
"""

_IDENTITY = Activation("identity")


def known_parts(module: nn.Module) -> list[Activation | nn.Module] | None:
    """The activations and linear layers that a module consists of, in their order.

    Dropout that drops nothing and identities are left out. The result is None for a module with any other part, and
    for one with hooks or with a `forward` of its own.

    >>> known_parts(nn.Sequential(nn.ReLU(), nn.Dropout(0.0)))
    [Activation(name='relu', slope=0.0)]
    >>> known_parts(nn.BatchNorm1d(2)) is None
    True
    """
    if is_touched(module):
        return None
    if type(module) is nn.Sequential:
        return _parts_of_all(module)
    if type(module) in LINEAR:
        return [module] if _has_plain_weights(module) else None
    if type(module) is nn.Dropout:
        return None if module.training and module.p > 0 else []
    return _activation_part(module)


def _activation_part(module: nn.Module) -> list[Activation | nn.Module] | None:
    """The part of a module that may be an activation."""
    if type(module) is Sigma:
        return [module.activation]
    known = Activation.of_module(module)
    if known is None:
        return None
    return [] if known == _IDENTITY else [known]


def _parts_of_all(modules: nn.Sequential) -> list[Activation | nn.Module] | None:
    found: list[Activation | nn.Module] = []
    for child in modules:
        parts = known_parts(child)
        if parts is None:
            return None
        found += parts
    return found


def _has_plain_weights(linear: nn.Module) -> bool:
    """Whether the weights of a linear layer are ordinary tensors, or those of a lazy layer that are not drawn yet."""
    known = (Tensor, nn.Parameter, nn.parameter.UninitializedParameter, type(None))
    return type(linear.weight) in known and type(linear.bias) in known


def acts_alike(module: nn.Module) -> bool:
    """Whether a module is known to map equal rows to equal rows: it has linear layers and activations only."""
    return known_parts(module) is not None


def is_in_place(module: nn.Module) -> bool:
    """Whether an activation or a dropout writes its output into its input."""
    return bool(module.__dict__.get("inplace"))


def is_row_by_row(module: nn.Module) -> bool:
    """Whether a module is known to act on each row by itself, alike on equal rows, and not to write into its input."""
    return acts_alike(module) and not any(map(is_in_place, module.modules()))
