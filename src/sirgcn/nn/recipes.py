"""Published recipes around any convolution, as configurations: tunedGNN and GNN+.

Each configuration has the values of the row whose published score is the best for the data set. `SIRConv` takes the
place of its convolution, with a ReLU and, where the paper has one, the aggregator of the paper's SIR-GCN. For tolokers
and actor nobody has published a row: they start from the rows of minesweeper and squirrel.
"""

from typing import Any

from sirgcn.nn.config import NetConfig
from sirgcn.nn.convs import find_conv
from sirgcn.strict import check_name

# Luo et al., Classic GNNs are Strong Baselines, NeurIPS 2024: x = dropout(relu(norm(conv(x) + W x))), a linear head,
# and self-loops added once.
_TUNED: dict[str, Any] = {
    "block": "residual",
    "act": "relu",
    "norm": "batch",
    "conv": "sir",
    "activation": "relu",
    "aggr": "sym",
    "self_loops": True,
}
# `pre_linear` of the authors: a linear layer and dropout before the first block.
_PRE_LINEAR = {"encoder": "linear"}

# Luo et al., Can Classic GNNs Be Strong Baselines for Graph-level Tasks?, ICML 2025.
_PLUS: dict[str, Any] = {
    "block": "skip",
    "act": "relu",
    "norm": "batch",
    "feed_forward": 2,
    "feed_forward_norm": "around",
    "conv": "sir",
    "activation": "relu",
    "aggr": "sym",
}
# GIN+ has its batch norms around the feed-forward network only; GatedGCN+ has one after the convolution, too.
_GIN_PLUS = _PLUS | {"conv_norm": False, "readout_layers": 0, "head_norm": None}
# The classes that PATTERN and CLUSTER ask for are categories, and their edges have no features.
_SBM_PLUS = _PLUS | {
    "encoder": "embedding",
    "edge_encoder": "constant",
    "dropout": 0.2,
    "readout_layers": 3,
    "positional": "random_walk",
    "pe_channels": 16,
    "pe_norm": True,
}
_SUPERPIXELS_PLUS = _PLUS | {
    "hidden_channels": 35,
    "out_channels": 10,
    "num_layers": 10,
    "aggr": "max",
    "encoder": "linear",
    "edge_channels": 1,
    "edge_encoder": "linear",
    "pool": "mean",
    "head_norm": None,
}

_TABLES: dict[str, dict[str, Any]] = {
    "tuned/minesweeper": _TUNED
    | {"in_channels": 7, "hidden_channels": 64, "out_channels": 1, "num_layers": 12, "dropout": 0.2},
    "tuned/tolokers": _TUNED
    | {"in_channels": 10, "hidden_channels": 64, "out_channels": 1, "num_layers": 5, "dropout": 0.2},
    "tuned/roman_empire": _TUNED
    | _PRE_LINEAR
    | {
        "in_channels": 300,
        "hidden_channels": 512,
        "out_channels": 18,
        "num_layers": 9,
        "aggr": "max",
        "dropout": 0.5,
        "input_dropout": 0.5,
    },
    "tuned/amazon_ratings": _TUNED
    | {
        "in_channels": 300,
        "hidden_channels": 512,
        "out_channels": 5,
        "num_layers": 4,
        "aggr": "max",
        "dropout": 0.5,
    },
    "tuned/questions": _TUNED
    | _PRE_LINEAR
    | {
        "in_channels": 301,
        "hidden_channels": 512,
        "out_channels": 1,
        "num_layers": 10,
        "norm": None,
        "dropout": 0.3,
        "input_dropout": 0.3,
    },
    "tuned/squirrel_filtered": _TUNED
    | {"in_channels": 2089, "hidden_channels": 256, "out_channels": 5, "num_layers": 4, "dropout": 0.7},
    "tuned/actor": _TUNED
    | {"in_channels": 932, "hidden_channels": 256, "out_channels": 5, "num_layers": 4, "dropout": 0.7},
    "tuned/wikics": _TUNED
    | {
        "in_channels": 300,
        "hidden_channels": 512,
        "out_channels": 10,
        "num_layers": 2,
        "norm": "layer",
        "aggr": "mean",
        "dropout": 0.7,
    },
    "tuned/cora": _TUNED
    | {
        "in_channels": 1433,
        "hidden_channels": 512,
        "out_channels": 7,
        "num_layers": 3,
        "norm": None,
        "residual": False,
        "dropout": 0.7,
    },
    "tuned/ogbn_arxiv": _TUNED
    | {"in_channels": 128, "hidden_channels": 512, "out_channels": 40, "num_layers": 5, "dropout": 0.5},
    "gnn_plus/zinc": _GIN_PLUS
    | {
        "in_channels": 21,
        "hidden_channels": 80,
        "out_channels": 1,
        "num_layers": 12,
        "encoder": "embedding",
        "positional": "random_walk",
        "pe_dim": 20,
        "pe_channels": 28,
        "pe_norm": True,
        "edge_channels": 4,
        "edge_encoder": "embedding",
        "edge_pe_dim": 20,
        "pool": "sum",
        "head_channels": (40, 20),
    },
    "gnn_plus/molhiv": _GIN_PLUS
    | {
        "in_channels": None,
        "hidden_channels": 256,
        "out_channels": 1,
        "num_layers": 3,
        "aggr": "max",
        "feed_forward": 0,
        "encoder": "atom",
        "positional": "random_walk",
        "pe_dim": 20,
        "pe_channels": 16,
        "pe_norm": True,
        "edge_encoder": "bond",
        "pool": "mean",
        "head_channels": (128, 64),
    },
    "gnn_plus/pattern": _SBM_PLUS
    | {
        "in_channels": 3,
        "hidden_channels": 64,
        "out_channels": 2,
        "num_layers": 12,
        "pe_dim": 32,
        "edge_pe_dim": 32,
    },
    "gnn_plus/cluster": _SBM_PLUS
    | {
        "in_channels": 7,
        "hidden_channels": 56,
        "out_channels": 6,
        "num_layers": 16,
        "pe_dim": 20,
        "edge_pe_dim": 20,
    },
    "gnn_plus/mnist": _SUPERPIXELS_PLUS
    | {"in_channels": 3, "dropout": 0.05, "readout_layers": 0, "head_channels": (35, 35)},
    "gnn_plus/cifar10": _SUPERPIXELS_PLUS | {"in_channels": 5, "dropout": 0.15},
}

RECIPES: dict[str, NetConfig] = {name: NetConfig.of(**settings) for name, settings in _TABLES.items()}
"""The recipes tunedGNN and GNN+, by recipe and data set."""

_OF_EDGES = ("edge_channels", "edge_encoder", "edge_pe_dim")


def recipe(name: str, **changes: Any) -> NetConfig:
    """The configuration of a published recipe, with any setting changed by its short name.

    A convolution that has no use for edge features gets the recipe without them, unless the changes name some.

    >>> recipe("gnn_plus/zinc").edges.channels, recipe("gnn_plus/zinc", conv="gcn").edges.channels
    (4, None)
    """
    check_name("name", name, RECIPES, exact=True)
    config = RECIPES[name].with_options(**changes)
    if "edge" in find_conv(config.conv.name).extra_inputs or any(option in changes for option in _OF_EDGES):
        return config
    return config.with_options(edge_channels=None, edge_encoder="none", edge_pe_dim=0)
