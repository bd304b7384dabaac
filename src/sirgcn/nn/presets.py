"""The networks of the paper's tables as configurations."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sirgcn.nn.config import NetConfig
from sirgcn.nn.net import SIRNet
from sirgcn.nn.recipes import RECIPES, recipe
from sirgcn.strict import check_name

_BENCHMARK = {
    "num_layers": 4,
    "block": "residual",
    "norm": "batch",
    "activation": "leaky_relu(0.2)",
    "act": "leaky_relu(0.2)",
}
_SUPERPIXELS = _BENCHMARK | {
    "hidden_channels": 80,
    "out_channels": 10,
    "aggr": "max",
    "readout_layers": 3,
    "pool": "mean",
    "conv_dropout": 0.1,
    "residual_dropout": 0.2,
}
_SBM = _BENCHMARK | {"hidden_channels": 80, "aggr": "sym", "encoder": "embedding"}
_OGB = {"block": "skip", "norm": "batch", "activation": "leaky_relu(0.2)", "act": "leaky_relu(0.2)"}
_HETEROPHILOUS = {
    "block": "pre_norm",
    "encoder": "linear",
    "encoder_act": True,
    "activation": "gelu",
    "act": "gelu",
    "dropout": 0.2,
    "input_dropout": 0.2,
    "conv_dropout": 0.2,
}

_TABLES: dict[str, dict[str, Any]] = {
    "wikics": _BENCHMARK
    | {
        "in_channels": 300,
        "hidden_channels": 60,
        "out_channels": 10,
        "aggr": "mean",
        "input_dropout": 0.3,
        "residual_dropout": 0.2,
        "dropout": 0.1,
    },
    "pattern": _SBM | {"in_channels": 3, "out_channels": 2},
    "cluster": _SBM | {"in_channels": 7, "out_channels": 6},
    "mnist": _SUPERPIXELS | {"in_channels": 3},
    "cifar10": _SUPERPIXELS | {"in_channels": 5},
    "zinc": _BENCHMARK
    | {
        "in_channels": 28,
        "hidden_channels": 75,
        "out_channels": 1,
        "aggr": "sym",
        "encoder": "embedding",
        "readout_layers": 2,
        "pool": "sum",
    },
    "ogbn-arxiv": _OGB
    | {
        "in_channels": 128,
        "hidden_channels": 95,
        "out_channels": 40,
        "num_layers": 3,
        "aggr": "sym",
        "encoder": "linear",
        "conv_dropout": 0.2,
        "dropout": 0.2,
    },
    "ogbg-molhiv": _OGB
    | {
        "in_channels": None,
        "hidden_channels": 80,
        "out_channels": 1,
        "num_layers": 4,
        "aggr": "max",
        "encoder": "atom",
        "input_dropout": 0.2,
        "conv_dropout": 0.2,
        "pool": "mean",
        "readout_layers": 0,
        "head_channels": (40, 20),
    },
    "roman-empire": _HETEROPHILOUS
    | {
        "in_channels": 300,
        "hidden_channels": 512,
        "out_channels": 18,
        "num_layers": 5,
        "norm": "layer",
        "aggr": "max",
    },
    "amazon-ratings": _HETEROPHILOUS
    | {
        "in_channels": 300,
        "hidden_channels": 256,
        "out_channels": 5,
        "num_layers": 3,
        "norm": "batch",
        "aggr": "max",
    },
    "minesweeper": _HETEROPHILOUS
    | {
        "in_channels": 7,
        "hidden_channels": 256,
        "out_channels": 1,
        "num_layers": 5,
        "norm": "batch",
        "aggr": "sym",
    },
    "tolokers": _HETEROPHILOUS
    | {
        "in_channels": 10,
        "hidden_channels": 256,
        "out_channels": 1,
        "num_layers": 5,
        "norm": "layer",
        "aggr": "sym",
    },
    "questions": _HETEROPHILOUS
    | {
        "in_channels": 301,
        "hidden_channels": 512,
        "out_channels": 1,
        "num_layers": 3,
        "norm": "layer",
        "aggr": "sym",
    },
}

# Lim, Enhancing Graph Representations with Neighborhood-Contextualized Message-Passing, arXiv 2511.11046. The data sets
# are those of Tables 3 and 4; the networks differ from SIR-GCN's in these settings.
_SINC: dict[str, dict[str, Any]] = {
    "wikics": {"hidden_channels": 50, "context": "mean"},
    "pattern": {"hidden_channels": 70, "context": "mean"},
    "cluster": {"hidden_channels": 70, "context": "mean"},
    "mnist": {"hidden_channels": 75, "context": "mean"},
    "cifar10": {"hidden_channels": 75, "context": "mean"},
    "zinc": {"hidden_channels": 70, "context": "mean"},
    "ogbn-arxiv": {
        "hidden_channels": 75,
        "num_layers": 4,
        "aggr": "mean",
        "context": "sym",
        "conv_dropout": 0.1,
        "dropout": 0.3,
    },
    "ogbg-molhiv": {
        "hidden_channels": 75,
        "aggr": "mean",
        "context": "sym",
        "conv_dropout": 0.4,
        "head_channels": (37, 18),
    },
}

PRESETS: dict[str, NetConfig] = {
    **{name: NetConfig.of(**settings) for name, settings in _TABLES.items()},
    **{f"sinc/{name}": NetConfig.of(**_TABLES[name] | settings) for name, settings in _SINC.items()},
}
"""Tables 3, 4 and 5: the SIR-GCN of each data set. With `sinc/` in front of the name, the SINC-GCN of its own paper."""

_SYNTHETIC: dict[str, Any] = {
    "num_layers": 1,
    "encoder": "embedding",
    "norm": None,
    "act": None,
    "residual": False,
    "out_bias": False,
}


def dictionary_lookup_preset(n: int, conv: str = "sir") -> NetConfig:
    """Table 1: the network for DictionaryLookup with n attributes, of width 4n.

    SIR-GCN has an MLP as sigma; the other convolutions have a ReLU after the input embedding. GraphSAGE is
    `"sage_pool"`.

    >>> dictionary_lookup_preset(10).block.channels
    40
    """
    own = {"aggr": "sum", "activation": "relu", "sigma_layers": 1} if conv == "sir" else {"encoder_act": "relu"}
    return NetConfig.of((n + 1, n + 1), 4 * n, n, conv=conv, **_SYNTHETIC, **own)


def hetero_edge_count_preset(c: int, conv: str = "sir") -> NetConfig:
    """Table 2: the network for HeteroEdgeCount with c labels, of width 10c and with sum pooling.

    GIN's MLP has one layer. GraphSAGE is `"sage_pool"`.

    >>> hetero_edge_count_preset(2).readout.pool
    'sum'
    """
    own: dict[str, Any] = {"conv_options": {"mlp_layers": 1}} if conv == "gin" else {}
    if conv == "sir":
        own = {"aggr": "sum", "activation": "relu"}
    return NetConfig.of(c, 10 * c, 1, conv=conv, pool="sum", **_SYNTHETIC, **own)


def unique_signature_preset(conv: str = "sir") -> NetConfig:
    """The network for UniqueSignature: one layer of 16 units on the raw value, a ReLU, and a linear map without a bias.

    SIR-GCN sums. EGC has one head, and no self-loops.

    >>> unique_signature_preset().block.channels
    16
    """
    own: dict[str, Any] = {"sir": {"aggr": "sum", "activation": "relu"}}.get(conv, {})
    if conv in ("egc_s", "egc_m"):
        own = {"conv_options": {"heads": 1, "bases": 4}, "self_loops": False}
    return NetConfig.of(1, 16, 1, conv=conv, **_SYNTHETIC | {"encoder": "none", "act": "relu"}, **own)


def preset(name: str, **changes: Any) -> SIRNet:
    """The SIR-GCN of the paper for a data set, with any setting changed by its short name (`sirgcn.nn.OPTIONS`).

    The names are those of `PRESETS` and, for published recipes around the layer, those of `RECIPES`, see `recipe`.
    `variant="published"` is the network behind the paper's figures, whose parameter counts are the reported ones; the
    default is the corrected layer. `conv="gcn"` is the same network with another convolution, see `CONVS`, and
    `width_for_budget` finds the width at which it is as large as SIR-GCN.

    >>> preset("zinc", hidden_channels=16).config.block.channels
    16
    >>> preset("tuned/minesweeper", conv="gcn").config.block.layers
    12
    """
    check_name("name", name, (*PRESETS, *RECIPES), exact=True)
    if name in RECIPES:
        return SIRNet(recipe(name, **changes))
    return SIRNet(PRESETS[name].with_options(**changes))


def width_for_budget(build: Callable[[int], nn.Module], budget: int, multiple_of: int = 1, least: int = 1) -> int:
    """The largest width, a multiple of `multiple_of`, at which a model has no more parameters than the budget.

    `build` gives the model of a width; it is called without memory for the weights and without drawing any. The heads
    of an attention ask for a multiple: `CONVS[conv].heads`, or those of its options. A network with columns beside
    those of its encoder has a `least` width.

    >>> width_for_budget(lambda width: nn.Linear(width, 10, bias=False), budget=105)
    10
    """

    def parameters(units: int) -> int:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in build(units * multiple_of).parameters())

    first = -(-least // multiple_of)
    smallest = parameters(first)
    if smallest > budget:
        at = f"the parameters at width {first * multiple_of}"
        raise ValueError(f"budget: expected at least {smallest}, {at}, got {budget}")
    fits, exceeds = first, 2 * first
    while parameters(exceeds) <= budget:
        fits, exceeds = exceeds, 2 * exceeds
        if exceeds > 2 * budget:
            raise ValueError("build: expected more parameters at a larger width, got no more than the budget at any")
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        fits, exceeds = (middle, exceeds) if parameters(middle) <= budget else (fits, middle)
    return fits * multiple_of
