"""A model as a Python file of plain PyTorch and PyG, which a user can read, change and run without this package."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sirgcn.files import write_atomic
from sirgcn.model.fitted import Member, Model
from sirgcn.model.members import weights_of
from sirgcn.model.predictor import inputs_of, temperatures_of
from sirgcn.nn import NetConfig
from sirgcn.nn.convs import find_conv
from sirgcn.nn.encoder import MAX_TABLE, OGB_ATOM, OGB_BOND
from sirgcn.ops.activation import Activation
from sirgcn.strict import ConfigError

CONVOLUTIONS = ("sir", "gcn", "gin", "sage", "sage_pool", "gatv2", "mlp")
"""The convolutions that a script can have."""

# The module of torch for every activation; {} stands for the slope of leaky_relu.
_MODULES = {
    "identity": "nn.Identity()",
    "relu": "nn.ReLU()",
    "leaky_relu": "nn.LeakyReLU({})",
    "elu": "nn.ELU()",
    "gelu": "nn.GELU()",
    "gelu_tanh": 'nn.GELU("tanh")',
    "silu": "nn.SiLU()",
    "tanh": "nn.Tanh()",
    "sigmoid": "nn.Sigmoid()",
    "softplus": "nn.Softplus()",
    "square": "Square()",
}

_TYPES = {
    "x": "Tensor",
    "edge_index": "Tensor",
    "edge_attr": "Tensor",
    "edge_label_index": "Tensor",
    "edge_label_attr": "Tensor",
    "batch": "Tensor",
    "batch_size": "int",
    "pe": "Tensor",
    "edge_pe": "Tensor",
    "graph_attr": "Tensor",
}


def write_script(model: Model, path: Path) -> Path:
    """Write a model as a Python file, and its weights beside it as `.safetensors`; return the path of the file.

    Raises:
        ConfigError: the network has a part that a script cannot have; the error names it.
    """
    if path.suffix != ".py":
        raise ConfigError(f"path: expected a name that ends in .py, got {path.name}")
    text = script(model)
    # First the weights, so that a script that can be read finds them.
    write_atomic(path.with_suffix(".safetensors"), weights_of(model.members))
    write_atomic(path, text.encode())
    return path


def script(model: Model) -> str:
    """The text of the Python file. It imports torch, torch_geometric and safetensors, and nothing else.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> text = script(Model(Problem.of(task), (Member(config, build_net(config)),)))
    >>> "import sirgcn" in text, "class Layer(MessagePassing)" in text
    (False, True)
    """
    configs = list(dict.fromkeys(_key(member.config) for member in model.members))
    found = {_key(member.config): member.config for member in model.members}
    suffixes = {key: "" if place == 0 else str(place + 1) for place, key in enumerate(configs)}
    environment = Environment(
        loader=PackageLoader("sirgcn.model", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters["sigma"] = _sigma
    # A text of the model enters the file as a literal only, so that no name can become code.
    environment.filters["code"] = repr
    text = environment.get_template("script.py.jinja").render(
        problem=model.problem,
        inputs=inputs_of(model),
        arguments=", ".join(f"{name}: {_TYPES[name]}" for name in inputs_of(model)),
        networks=[_network(found[key], suffixes[key]) for key in configs],
        members=[_class_of(member.config, suffixes) for member in model.members],
        steps=[_steps(member, inputs_of(model)) for member in model.members],
        has_constant=any(member.config.edges.type == "constant" for member in model.members),
        temperatures=temperatures_of(model),
        scaling=model.scaling,
    )
    return _without_unused(re.sub(r"\n{4,}", "\n\n\n", text))


def _without_unused(text: str) -> str:
    """The text without helpers and imports that it does not use."""
    blocks = text.split("\n\n\n")
    while unused := [block for block in blocks if _is_unused(block, blocks)]:
        blocks = [block for block in blocks if block not in unused]
    rest = "".join(blocks[1:])
    lines: list[str] = []
    for line in blocks[0].splitlines():
        if line.startswith(("from torch_geometric", "import torch.nn.functional")):
            start, _, names = line.partition("import ")
            used = [name for name in names.split(", ") if re.search(rf"(?<!\.)\b{name.split(' as ')[-1]}\b", rest)]
            lines += [f"{start}import {', '.join(used)}"] if used else []
        else:
            lines.append(line)
    return "\n\n\n".join(["\n".join(lines), *blocks[1:]])


def _is_unused(block: str, blocks: list[str]) -> bool:
    """Whether a block defines a function or class that no other block names."""
    match = re.match(r"(?:class|def) (\w+)", block)
    if match is None or match[1] == "load":
        return False
    return not any(re.search(rf"\b{match[1]}\b", other) for other in blocks if other is not block)


def _key(config: NetConfig) -> str:
    return repr(config)


def _steps(member: Member, inputs: tuple[str, ...]) -> dict[str, str]:
    """The arguments of a network by their names: code that reads the inputs of `predict`."""
    step = member.preparation
    own = {name: name for name in inputs}
    if step.normalise:
        own["x"] = "normalised(x)"
    if step.walks:
        own["pe"] = f"pe[:, :{step.walks}]"
    if step.edge_walks:
        own["edge_pe"] = f"edge_pe[:, :{step.walks}]"
    if not step.edges:
        for name in ("edge_attr", "edge_label_attr", "edge_pe"):
            own.pop(name, None)
    return own


def _class_of(config: NetConfig, suffixes: dict[str, str]) -> str:
    """The call that makes the network of a configuration."""
    name = "EdgeScores" if config.head.edge_scores else "Network"
    return f"{name}{suffixes[_key(config)]}()"


def _sigma(activation: str | None) -> str:
    """The code of the module of an activation."""
    if activation == "prelu":
        return "PReLU(channels)"
    found = Activation.parse("identity" if activation is None else activation)
    return _MODULES[found.name].format(repr(found.slope))


def _network(config: NetConfig, suffix: str) -> dict[str, Any]:
    """What the template reads about a network."""
    _refuse(config)
    if config.head.edge_scores:
        channels = config.block.channels
        nodes = replace(config, out_channels=channels, head=replace(config.head, edge_scores=False))
        return _network(nodes, suffix) | {"edge_scores": (channels, config.out_channels)}
    block, conv, context = config.block, config.conv, config.context
    first = _encoder_width(config)
    joined = block.channels * block.layers if block.jk == "cat" else block.channels
    encoder_act = config.encoder.act
    if isinstance(encoder_act, bool):
        encoder_act = (block.act or "identity") if encoder_act else "identity"
    self_loops = find_conv(conv.name).self_loops if conv.self_loops is None else conv.self_loops
    return {
        "suffix": suffix,
        "edge_scores": None,
        "config": config,
        "first": first,
        "joined": joined,
        "encoder": _encoder(config.encoder.type, config.in_channels, block.channels - context.pe_channels),
        "encoder_act": encoder_act,
        "edges": _edges(config),
        "has_last_norm": block.type in ("pre_norm", "transformer") and block.norm is not None,
        "norm": {"batch": "nn.BatchNorm1d", "layer": "nn.LayerNorm", None: None}[block.norm],
        "head_norm": {"batch": "nn.BatchNorm1d", "layer": "nn.LayerNorm", None: None}[config.head.norm],
        "conv_norm": block.norm is not None and block.conv_norm,
        "readout": _readout(config, joined),
        "head": _head(config, joined),
        "self_loops": self_loops,
        "sir": _sir(config) if conv.name == "sir" else None,
        "gin_edges": _gin_edges(config, first) if conv.name == "gin" else None,
    }


def _refuse(config: NetConfig) -> None:
    if config.conv.name not in CONVOLUTIONS:
        raise ConfigError(
            f"to: a script can have the convolutions {', '.join(CONVOLUTIONS)}, got {config.conv.name}; use pt2"
        )
    if config.context.random_features:
        raise ConfigError("random_features: expected 0, because every prediction draws them anew")


def _encoder_width(config: NetConfig) -> int:
    """The width of what the first block reads."""
    if config.encoder.type == "none":
        assert isinstance(config.in_channels, int)
        return config.in_channels + config.context.pe_channels
    return config.block.channels


def _encoder(name: str, channels: Any, width: int) -> dict[str, Any]:
    """An encoder: `none`, a linear layer from a width, or the sizes of its vocabularies."""
    vocabularies = {"atom": OGB_ATOM, "bond": OGB_BOND}.get(name)
    if name == "embedding":
        vocabularies = (channels,) if isinstance(channels, int) else tuple(channels)
    sort = "categories" if vocabularies else name
    return {"sort": sort, "channels": channels, "vocabularies": vocabularies or (), "width": width}


def _edges(config: NetConfig) -> dict[str, Any]:
    """How edges are encoded, and the width that the layers read; None for a network without edge features."""
    edges = config.edges
    found = _encoder(edges.type, edges.channels, config.block.channels)
    if edges.type == "none":
        return found | {"sort": "none" if edges.channels is None else "given", "dim": edges.channels, "table": False}
    combinations = 1
    for size in found["vocabularies"]:
        combinations *= size
    # The layers read categories of edges as a table of all combinations, so that W_E acts on each of them once.
    is_table = edges.type == "constant" or (found["sort"] == "categories" and combinations <= MAX_TABLE)
    return found | {"dim": config.block.channels, "table": is_table and not edges.pe_dim}


def _hidden(config: NetConfig) -> tuple[int, ...]:
    """The hidden widths of the head. Features of graphs need at least one hidden layer."""
    if config.readout.graph_channels and not config.head.channels:
        return (config.block.channels,)
    return config.head.channels


def _readout(config: NetConfig, joined: int) -> list[tuple[int, int, bool]]:
    """The linear layers of the readout: their widths, and whether they carry a bias."""
    widths = [joined, *[config.block.channels] * config.readout.layers]
    if not _hidden(config):
        widths[-1] = config.out_channels
    return _linears(widths, config.head.bias or bool(_hidden(config)))


def _head(config: NetConfig, joined: int) -> list[tuple[int, int, bool]]:
    if not _hidden(config):
        return []
    width = config.block.channels if config.readout.layers else joined
    beside = config.block.channels if config.readout.graph_channels else 0
    return _linears([width + beside, *_hidden(config), config.out_channels], config.head.bias)


def _linears(widths: list[int], last_bias: bool) -> list[tuple[int, int, bool]]:
    pairs = list(pairwise(widths))
    return [(*pair, True if place < len(pairs) - 1 else last_bias) for place, pair in enumerate(pairs)]


def _sir(config: NetConfig) -> dict[str, Any]:
    """The options of a `SIRConv` with their defaults."""
    options: dict[str, Any] = {
        "aggr": "sum",
        "activation": "relu",
        "sigma_layers": 0,
        "variant": "corrected",
        "context": None,
        "gated": False,
    }
    options |= config.conv.options
    if options["aggr"] == "add":
        options["aggr"] = "sum"
    is_published = options["variant"] == "published"
    options["reduction"] = "sym_in" if (options["aggr"], is_published) == ("sym", True) else options["aggr"]
    options["activation"] = options["activation"].strip()
    options["learned"] = options["activation"] == "prelu"
    options["is_published"] = is_published
    return options


def _gin_edges(config: NetConfig, first: int) -> dict[str, Any]:
    """Which blocks of GIN bring edge features to the width of the nodes."""
    dim = _edges(config)["dim"]
    return {"dim": dim, "first": dim is not None and dim != first, "rest": dim not in (None, config.block.channels)}
