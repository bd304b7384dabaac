"""The networks of the paper's tables as configurations of `SIRNet`."""

from typing import Any

from sirgcn.nn.models import SIRNet

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

PRESETS: dict[str, dict[str, Any]] = {
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
"""Tables 3, 4 and 5: the arguments of `SIRNet` for each data set."""

_SYNTHETIC = {
    "num_layers": 1,
    "encoder": "embedding",
    "norm": None,
    "act": None,
    "residual": False,
    "aggr": "sum",
    "activation": "relu",
    "out_bias": False,
}


def dictionary_lookup_preset(n: int) -> dict[str, Any]:
    """Table 1: the arguments of `SIRNet` for DictionaryLookup with n attributes, hidden 4n and an MLP as sigma."""
    return _SYNTHETIC | {
        "in_channels": (n + 1, n + 1),
        "hidden_channels": 4 * n,
        "out_channels": n,
        "sigma_layers": 1,
    }


def hetero_edge_count_preset(c: int) -> dict[str, Any]:
    """Table 2: the arguments of `SIRNet` for HeteroEdgeCount with c labels, hidden 10c and sum pooling."""
    return _SYNTHETIC | {"in_channels": c, "hidden_channels": 10 * c, "out_channels": 1, "pool": "sum"}


def preset(name: str, **changes: Any) -> SIRNet:
    """The SIR-GCN of the paper for a data set, with any argument of `SIRNet` changed.

    Known are the names of `PRESETS`. `variant="published"` is the network behind the paper's figures, whose parameter
    counts are the reported ones; the default is the corrected layer.
    """
    if name not in PRESETS:
        raise ValueError(f"name: expected one of {', '.join(PRESETS)}, got {name!r}")
    return SIRNet(**PRESETS[name] | changes)
