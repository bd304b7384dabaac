"""Users put something else into the place of a part: a module, a subclass, a function on an instance."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import Linear as PyGLinear

from sirgcn.nn import Rows, SIRConv, SIRNet, SIRReadout
from sirgcn.nn.baselines import GCN, SAGE
from sirgcn.nn.blocks import Block, Residual, Skip
from sirgcn.nn.encoder import CategoricalEncoder
from sirgcn.ops.activation import Sigma
from tests.nn.fuzz import parts
from tests.nn.fuzz.draw import FEATURES, WIDTH, Case, Rng, chance, one_of

LINEAR = (nn.Linear, PyGLinear)
SIGMA = (Sigma, nn.ReLU, nn.Tanh, nn.GELU, nn.LeakyReLU)
BY_ORDER = ("dropout", "Dropout", "RReLU", "Softmax", "Centred")
"""Parts that draw numbers for every row, or mix rows, have these in their names: a message network must do neither."""


def pick(rng: Rng, net: nn.Module, *types: type) -> str | None:
    """The name of a submodule of one of the types; None where there is none."""
    names = [name for name, module in net.named_modules() if name and isinstance(module, types)]
    return one_of(rng, names) if names else None


def parent_of(net: nn.Module, name: str) -> nn.Module:
    """The module that holds another one."""
    return net.get_submodule(name.rpartition(".")[0])


def put(net: nn.Module, name: str, module: nn.Module) -> None:
    """Set a submodule in the dtype of the network, also inside a list."""
    parameters = [p for p in net.parameters() if p.is_floating_point()]
    module.to(parameters[0].dtype if parameters else torch.float64)
    setattr(parent_of(net, name), name.rpartition(".")[2], module)


def is_per_edge(net: nn.Module, name: str) -> bool:
    """Whether a module acts on edges, whose order the fused route chooses."""
    conv = parent_of(net, name)
    steps = name.split(".")
    if any(step in ("activation", "message_network", "gate") for step in steps):
        return True
    return "lin_relation" in steps and any(isinstance(m, SIRConv) and m.aggr == "max" for m in (conv, *net.modules()))


def fitting(rng: Rng, case: Case, name: str, table: dict[str, Any]) -> str:
    """One of the parts; none where edges come in tiles that is not a function of a row."""
    if isinstance(case.given["x"], Rows):
        # There are no rows yet to work in.
        table = {part: made for part, made in table.items() if "in place" not in part}
    net = case.net
    names = [part for part in table if not (is_per_edge(net, name) and any(word in part for word in BY_ORDER))]
    return str(one_of(rng, names))


def replace_linear(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, *LINEAR)
    if name is None:
        return None
    table = parts.stand_ins(case.net.get_submodule(name))
    part = fitting(rng, case, name, table)
    put(case.net, name, table[part]())
    return f"{name} = {part}"


def replace_by(rng: Rng, case: Case, table: dict[str, Callable[[int], nn.Module]], *types: type) -> str | None:
    name = pick(rng, case.net, *types)
    if name is None:
        return None
    part = fitting(rng, case, name, table)
    put(case.net, name, table[part](WIDTH))
    return f"{name} = {part}"


def replace_sigma(rng: Rng, case: Case) -> str | None:
    return replace_by(rng, case, parts.ACTIVATIONS, *SIGMA)


def replace_encoder_act(rng: Rng, case: Case) -> str | None:
    if not isinstance(case.net, SIRNet):
        return None
    part = one_of(rng, list(parts.ACTIVATIONS))
    put(case.net, "encoder_act", parts.ACTIVATIONS[part](FEATURES if type(case.net.encoder) is nn.Identity else WIDTH))
    return f"encoder_act = {part}"


def replace_norm(rng: Rng, case: Case) -> str | None:
    return replace_by(rng, case, parts.NORMS, nn.BatchNorm1d, nn.LayerNorm)


def replace_dropout(rng: Rng, case: Case) -> str | None:
    return replace_by(rng, case, parts.DROPOUTS, nn.Dropout)


def replace_embedding(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, nn.Embedding)
    if name is None:
        return None
    old: Any = case.net.get_submodule(name)
    part = one_of(rng, list(parts.EMBEDDINGS))
    rows = old.num_embeddings + (2 if part == "more rows" else 0)
    put(case.net, name, nn.Embedding(rows, old.embedding_dim, **parts.EMBEDDINGS[part]))
    return f"{name} = Embedding({part})"


def replace_encoder(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, CategoricalEncoder)
    if name is None:
        return None
    old: Any = case.net.get_submodule(name)
    if chance(rng, 0.5):
        put(case.net, name, parts.ScaledEncoder(old.vocabularies, old.channels))
        return f"{name} = ScaledEncoder"
    put(case.net, name, parts.Wrapper(old))
    return f"{name} = Wrapper(old)"


def replace_residual(rng: Rng, case: Case) -> str | None:
    names = [name for name, module in case.net.named_modules() if isinstance(module, Block) and module.residual]
    if not names:
        return None
    name = one_of(rng, names)
    old: Any = case.net.get_submodule(f"{name}.residual")
    made: dict[str, Callable[[], nn.Module]] = {
        "Sequential of three": lambda: nn.Sequential(*old, nn.BatchNorm1d(WIDTH)),
        "Wrapper": lambda: parts.Wrapper(old),
        "its linear layer": lambda: old[0],
        "Sequential(old, Tanh)": lambda: nn.Sequential(old, nn.Tanh()),
    }
    part = one_of(rng, list(made))
    put(case.net, f"{name}.residual", made[part]())
    return f"{name}.residual = {part}"


def replace_readout(rng: Rng, case: Case) -> str | None:
    net = case.net
    if not isinstance(net, SIRNet):
        return None
    if not isinstance(net.readout, SIRReadout):
        put(net, "readout", nn.Sequential(net.readout, nn.BatchNorm1d(2)))
        return "readout = Sequential(old, BatchNorm1d)"
    network: Any = net.readout.network
    made: dict[str, Callable[[], nn.Module]] = {
        "CentredReadout": lambda: parts.CentredReadout(network),
        "SIRReadout(BatchNorm1d)": lambda: SIRReadout(
            nn.Sequential(nn.BatchNorm1d(parts.width_of(network[0])[0]), *network)
        ),
        "Wrapper": lambda: parts.Wrapper(net.readout),
        **parts.AGGREGATIONS,
    }
    part = one_of(rng, list(made))
    put(net, "readout", made[part]())
    return f"readout = {part}"


def replace_head(rng: Rng, case: Case) -> str | None:
    names = [name for name in ("last_norm", "feed_forwards.0", "head") if isinstance(case.net, SIRNet)]
    if not names:
        return None
    name = one_of(rng, names)
    made = {
        "last_norm": nn.LazyBatchNorm1d,
        "feed_forwards.0": lambda: nn.Sequential(nn.LazyBatchNorm1d()),
        "head": nn.Tanh,
    }
    put(case.net, name, made[name]())  # type: ignore[operator]
    return f"{name} = another"


def replace_aggregation(rng: Rng, case: Case) -> str | None:
    name = pick(rng, case.net, SIRConv) if not isinstance(case.net, SIRConv) else ""
    if name is None:
        return None
    conv: Any = case.net.get_submodule(name)
    part = one_of(rng, [*parts.AGGREGATIONS, "forward"])
    if part == "forward":
        ours = conv.aggr_module.forward
        conv.aggr_module.forward = lambda *args, **kwargs: 2 * ours(*args, **kwargs)
    else:
        conv.aggr_module = parts.AGGREGATIONS[part]()
    return f"{name}.aggr_module = {part}"


def use_subclass(rng: Rng, case: Case) -> str | None:
    """A module's class becomes a subclass."""
    own: dict[type, Any] = {
        SIRConv: one_of(rng, parts.OWN_CONVS),
        GCN: parts.OwnConvolve,
        SAGE: parts.OwnSage,
        Residual: parts.ScaledBlock,
        Skip: parts.ScaledSkip,
        SIRReadout: parts.CentredReadout,
        CategoricalEncoder: parts.ScaledEncoder,
        Sigma: parts.ScaledSigma,
    }
    named = [(name, module) for name, module in case.net.named_modules() if type(module) in own]
    if not named:
        return None
    name, module = one_of(rng, named)
    if own[type(module)] is parts.OwnForward and isinstance(case.given["x"], Rows | tuple):
        return None
    module.__class__ = own[type(module)]
    return f"{name}.__class__ = {type(module).__name__}"


def set_step(rng: Rng, case: Case) -> str | None:
    """A step of `propagate` on the instance."""
    convs = [(name, module) for name, module in case.net.named_modules() if isinstance(module, SIRConv)]
    if not convs:
        return None
    name, conv = one_of(rng, convs)
    step = one_of(rng, ["message", "aggregate", "update", "propagate"])
    ours = getattr(conv, step)
    setattr(conv, step, lambda *args, **kwargs: 2 * ours(*args, **kwargs))
    return f"{name}.{step} = another"


def set_forward(rng: Rng, case: Case) -> str | None:
    """A `forward` on the instance of any module that gives a tensor."""
    name = pick(rng, case.net, *LINEAR, *SIGMA, nn.BatchNorm1d, nn.LayerNorm, nn.Embedding, nn.Dropout, nn.Sequential)
    if name is None:
        return None
    module = case.net.get_submodule(name)
    ours = module.forward
    module.forward = lambda *args, **kwargs: 2 * ours(*args, **kwargs)
    return f"{name}.forward = another"
