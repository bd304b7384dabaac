"""What users do to a network: every action changes the case and says so, or gives None where it does not apply."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as globally
from torch.nn.utils import parametrizations, parametrize, prune

from sirgcn.nn import Rows, SIRConv
from sirgcn.nn.baselines import PNA, Baseline
from tests.nn.fuzz import parts, replace
from tests.nn.fuzz.draw import Case, Rng, chance, one_of
from tests.nn.fuzz.replace import LINEAR, is_per_edge, pick

NEVER_CALLED = (nn.ModuleList, nn.ModuleDict)

Action = Callable[[Rng, Case], str | None]


# Hooks


def called_modules(net: nn.Module) -> list[str]:
    """The modules that have a `forward`."""
    found = [name for name, module in net.named_modules() if not isinstance(module, NEVER_CALLED)]
    return [
        name for name in found if "forward" in dir(type(net.get_submodule(name))) and not name.endswith("virtual_node")
    ]


def add_hook(rng: Rng, case: Case) -> str | None:
    """A hook of any sort that notes what it sees, and may change it."""
    name = one_of(rng, called_modules(case.net))
    module: Any = case.net.get_submodule(name)
    kind = one_of(rng, ["forward", "forward", "forward_pre", "full_backward", "full_backward_pre"])
    # Which of several equal maxima gets the gradient is not the same on both routes.
    is_ordered = "backward" not in kind and not is_per_edge(case.net, name)
    part = one_of(rng, [None, *(part for part in parts.CHANGES if is_ordered or part != "ranked")])
    change = None if part is None else parts.CHANGES[part]

    def note(value: Any) -> Any:
        case.seen.append(f"{kind} {name} {shapes(value)}")
        return None if change is None else parts.changed(value, change)

    hooks: dict[str, Callable[..., Any]] = {
        "forward": lambda layer, given, out: note(out),
        "forward_pre": lambda layer, given: note(given),
        "full_backward": lambda layer, given, out: note(given),
        "full_backward_pre": lambda layer, out: note(out),
    }
    getattr(module, f"register_{kind}_hook")(hooks[kind])
    return f"{kind} hook on {name}, {part}"


def shapes(value: Any) -> str:
    """The shapes of a value's tensors; what is no tensor by its type."""
    if isinstance(value, tuple):
        return ", ".join(map(shapes, value))
    return str(list(value.shape)) if isinstance(value, Tensor) else type(value).__name__


def add_step_hook(rng: Rng, case: Case) -> str | None:
    """One of PyG's own hooks, which PyG does not call in compiled code."""
    if case.is_compiled:
        return None
    convs = [(name, module) for name, module in case.net.named_modules() if isinstance(module, SIRConv)]
    if not convs:
        return None
    name, conv = one_of(rng, convs)
    step = one_of(rng, ["propagate", "message", "aggregate"])

    def double(layer: Any, given: Any, out: Tensor) -> Tensor:
        case.seen.append(f"{step} {name} {list(out.shape)}")
        return 2 * out

    getattr(conv, f"register_{step}_forward_hook")(double)
    return f"{step} hook on {name}"


def add_global_hook(rng: Rng, case: Case) -> str | None:
    """A hook on every module."""
    kind = one_of(rng, ["forward", "forward_pre", "full_backward"])

    def note(layer: nn.Module, *values: Any) -> None:
        if type(layer) is nn.BatchNorm1d:
            case.seen.append(f"global {kind} {shapes(values[0])}")

    handle = getattr(globally, f"register_module_{kind}_hook")(note)
    case.cleanup.append(handle.remove)
    return f"global {kind} hook"


def add_gradient_hook(rng: Rng, case: Case) -> str | None:
    """A hook on a parameter's gradient."""
    named = [(name, p) for name, p in case.net.named_parameters() if p.requires_grad]
    if not named:
        return None
    name, parameter = one_of(rng, named)
    parameter.register_hook(lambda grad: 2 * grad)
    return f"gradient hook on {name}"


# Weights


def freeze(rng: Rng, case: Case) -> str | None:
    share = one_of(rng, [0.2, 0.6, 1.0])
    frozen = [name for name, _ in case.net.named_parameters() if chance(rng, share)]
    for name in frozen:
        case.net.get_parameter(name).requires_grad_(False)
    return f"freeze {len(frozen)} parameters" if frozen else None


def parametrized(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, *LINEAR, nn.Embedding)
    if name is None:
        return None
    module = case.net.get_submodule(name)
    ways: dict[str, Callable[[], Any]] = {
        "parametrize": lambda: parametrize.register_parametrization(module, "weight", parts.Halved()),
        "weight_norm": lambda: parametrizations.weight_norm(module),
        "spectral_norm": lambda: parametrizations.spectral_norm(module),
        "old weight_norm": lambda: torch.nn.utils.weight_norm(module),
        "old spectral_norm": lambda: torch.nn.utils.spectral_norm(module),
    }
    way = one_of(rng, list(ways))
    ways[way]()
    module.to(case.dtype)
    return f"{way} on {name}"


def pruned(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, *LINEAR, nn.Embedding)
    if name is None:
        return None
    module = case.net.get_submodule(name)
    prune.l1_unstructured(module, "weight", 0.4)
    if chance(rng, 0.3):
        prune.remove(module, "weight")
        return f"prune {name} for good"
    return f"prune {name}"


def change_in_place(rng: Rng, case: Case) -> str | None:
    """After a call, so that nothing kept from it may be used again."""
    case.call()
    named = list(case.net.named_parameters())
    name, parameter = one_of(rng, named)
    with torch.no_grad():
        parameter.mul_(0.5)
    return f"call, then {name}.mul_(0.5)"


def assign_data(rng: Rng, case: Case) -> str | None:
    name, parameter = one_of(rng, list(case.net.named_parameters()))
    parameter.data = parameter.data + 0.25
    return f"{name}.data = another"


def train_a_step(rng: Rng, case: Case) -> str | None:
    if not any(p.requires_grad for p in case.net.parameters()):
        return None
    case.net.zero_grad()
    case.call().sum().backward()
    with torch.no_grad():
        for parameter in case.net.parameters():
            if parameter.grad is not None:
                grad = parameter.grad.to_dense()
                parameter.sub_(0.01 * grad / (1 + grad.abs().max()))
    return "a step of training"


# Modes, copies, moves


def switch_mode(rng: Rng, case: Case) -> str | None:
    name = one_of(rng, ["", "", *(name for name, _ in case.net.named_modules())])
    training = chance(rng, 0.3) and name != ""
    case.net.get_submodule(name).train(training)
    return f"{name or 'network'}.train({training})"


def infer_first(rng: Rng, case: Case) -> str | None:
    mode = one_of(rng, [torch.inference_mode, torch.no_grad])
    with mode():
        case.call()
    return f"call under {mode.__name__}"


def deep_copy(rng: Rng, case: Case) -> str | None:
    try:
        case.net = copy.deepcopy(case.net)
    except RuntimeError:
        # torch copies no tensor that was computed, such as the weight of the old weight_norm.
        return None
    return "deepcopy"


def pickle_whole(rng: Rng, case: Case) -> str | None:
    try:
        case.net = pickle.loads(pickle.dumps(case.net))
    except (AttributeError, TypeError, pickle.PicklingError):
        # A hook is a function inside a function.
        return None
    return "pickle"


def reload_state(rng: Rng, case: Case) -> str | None:
    file = io.BytesIO()
    torch.save(case.net.state_dict(), file)
    file.seek(0)
    case.net.load_state_dict(torch.load(file), assign=chance(rng, 0.5))
    return "state dict there and back"


def move(rng: Rng, case: Case) -> str | None:
    way = one_of(rng, ["to cpu", "share_memory", "meta"])
    if way == "to cpu":
        case.net.to("cpu")
    elif way == "share_memory":
        case.net.share_memory()
    else:
        state = copy.deepcopy(case.net.state_dict())
        # Gradients move too, and would come back as whatever lies in their memory.
        case.net.zero_grad()
        case.net.to("meta").to_empty(device="cpu")
        case.net.load_state_dict(state)
    return way


def is_steep(net: nn.Module) -> bool:
    """Whether a derivative is as large as that of sqrt(0 + 1e-10), which makes much of a small rounding."""
    return any(isinstance(module, PNA) for module in net.modules())


def cast(rng: Rng, case: Case) -> str | None:
    if is_steep(case.net):
        return None
    case.dtype = one_of(rng, [torch.float32, torch.float32, torch.bfloat16, torch.float16])
    case.net.to(case.dtype)
    case.given = {name: cast_value(value, case.dtype) for name, value in case.given.items()}
    return f"to {case.dtype}"


def cast_value(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, tuple):
        return tuple(cast_value(part, dtype) for part in value)
    if isinstance(value, Rows):
        return Rows(cast_value(value.table, dtype), value.index)
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to(dtype).requires_grad_(value.requires_grad)
    return value


def wrap(rng: Rng, case: Case) -> str | None:
    case.net = parts.Wrapper(case.net)
    return "Wrapper(network)"


def change_options(rng: Rng, case: Case) -> str | None:
    """Attributes that a user may set on a layer."""
    convs = [(name, module) for name, module in case.net.named_modules() if isinstance(module, SIRConv | Baseline)]
    name, conv = one_of(rng, convs) if convs else ("", None)
    if isinstance(conv, SIRConv):
        option, value = one_of(rng, [("fused", False), ("backend", "reference")])
        setattr(conv, option, value)
        return f"{name}.{option} = {value}"
    if isinstance(conv, Baseline):
        conv.dropout.train()
        return f"{name}.dropout.train()"
    return None


ACTIONS: dict[Action, float] = {
    replace.replace_linear: 3,
    replace.replace_sigma: 2,
    replace.replace_encoder_act: 2,
    replace.replace_norm: 1.5,
    replace.replace_dropout: 1.5,
    replace.replace_embedding: 2,
    replace.replace_encoder: 1,
    replace.replace_residual: 1.5,
    replace.replace_readout: 1.5,
    replace.replace_head: 1,
    replace.replace_aggregation: 1,
    replace.use_subclass: 2.5,
    replace.set_step: 1.5,
    replace.set_forward: 1.5,
    add_hook: 4,
    add_step_hook: 1,
    add_global_hook: 0.7,
    add_gradient_hook: 1,
    freeze: 2,
    parametrized: 2,
    pruned: 1.5,
    change_in_place: 2,
    assign_data: 1,
    train_a_step: 2,
    switch_mode: 3,
    infer_first: 2,
    deep_copy: 1.5,
    pickle_whole: 0.5,
    reload_state: 1,
    move: 1.5,
    cast: 1,
    wrap: 1,
    change_options: 0.7,
}
"""Every action with its share."""


GENTLE = (
    add_gradient_hook,
    freeze,
    change_in_place,
    assign_data,
    train_a_step,
    switch_mode,
    infer_first,
    deep_copy,
    pickle_whole,
    reload_state,
    move,
    wrap,
)
"""Actions after which the fast routes are still right."""


def act(rng: Rng, case: Case) -> None:
    """One to four actions that apply."""
    actions = list(GENTLE if chance(rng, 0.35) else ACTIONS)
    shares = np.array([ACTIONS[action] for action in actions])
    for _ in range(int(rng.integers(1, 5))):
        action = actions[int(rng.choice(len(actions), p=shares / shares.sum()))]
        torch.default_generator.manual_seed(int(rng.integers(2**31)))
        said = action(rng, case)
        if said is not None:
            case.done.append(said)
