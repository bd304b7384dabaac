"""What users import: the layer, the readout, whole models, the other convolutions, encoders, converters."""

from sirgcn.nn.adjacency import Graph
from sirgcn.nn.build import build_net, config_from_dict
from sirgcn.nn.config import OPTIONS, NetConfig
from sirgcn.nn.context import RandomFeatures, SIRReadout, VirtualNode
from sirgcn.nn.conv import AGGREGATORS, SIRConv
from sirgcn.nn.converted import ConvThen, Scale, WithSelfLoops
from sirgcn.nn.converters import (
    from_edge_conv,
    from_gatv2_scores,
    from_gcn,
    from_gin,
    from_gine,
    from_sage,
)
from sirgcn.nn.convs import CONVS, Conv, make_conv
from sirgcn.nn.dgl import from_dgl_state_dict
from sirgcn.nn.encoder import OGB_ATOM, OGB_BOND, CategoricalEncoder, PositionalEncoder
from sirgcn.nn.gated_converters import from_res_gated
from sirgcn.nn.models import SIRGCN
from sirgcn.nn.neighbourhood import CONTEXTS
from sirgcn.nn.net import EdgeNet, SIRNet
from sirgcn.nn.networks import MODEL_COLUMNS, NETWORKS, Network, NetworkConfig, make_network, model_rows
from sirgcn.nn.parts import (
    BlockConfig,
    ContextConfig,
    ConvConfig,
    EdgeConfig,
    EncoderConfig,
    HeadConfig,
    ReadoutConfig,
)
from sirgcn.nn.presets import (
    PRESETS,
    dictionary_lookup_preset,
    hetero_edge_count_preset,
    preset,
    unique_signature_preset,
    width_for_budget,
)
from sirgcn.nn.recipes import RECIPES, recipe
from sirgcn.ops.activation import Sigma
from sirgcn.ops.rows import Rows

__all__ = [
    "AGGREGATORS",
    "CONTEXTS",
    "CONVS",
    "MODEL_COLUMNS",
    "NETWORKS",
    "OGB_ATOM",
    "OGB_BOND",
    "OPTIONS",
    "PRESETS",
    "RECIPES",
    "SIRGCN",
    "BlockConfig",
    "CategoricalEncoder",
    "ContextConfig",
    "Conv",
    "ConvConfig",
    "ConvThen",
    "EdgeConfig",
    "EdgeNet",
    "EncoderConfig",
    "Graph",
    "HeadConfig",
    "NetConfig",
    "Network",
    "NetworkConfig",
    "PositionalEncoder",
    "RandomFeatures",
    "ReadoutConfig",
    "Rows",
    "SIRConv",
    "SIRNet",
    "SIRReadout",
    "Scale",
    "Sigma",
    "VirtualNode",
    "WithSelfLoops",
    "build_net",
    "config_from_dict",
    "dictionary_lookup_preset",
    "from_dgl_state_dict",
    "from_edge_conv",
    "from_gatv2_scores",
    "from_gcn",
    "from_gin",
    "from_gine",
    "from_res_gated",
    "from_sage",
    "hetero_edge_count_preset",
    "make_conv",
    "make_network",
    "model_rows",
    "preset",
    "recipe",
    "unique_signature_preset",
    "width_for_budget",
]
