"""The other convolutions and networks of the paper's tables, on the same fused aggregation as `SIRConv`.

- `baseline`, `sums`, `attention` and `gated` hold the convolutions, which `sirgcn.nn.convs` lists by name.
- `heterophilous`, `heterophilous_filters` and `heterophilous_labels` hold the networks of Table 5, which
  `sirgcn.nn.networks` lists by name.
- `messages` holds the sums, maxima and attention that both are made of.

No convolution adds self-loops by itself. No convolution keeps a tensor of edges by channels that its formula does not
need. Where the paper ran DGL's layer (Tables 1 and 2), the layer here computes DGL's function, which may differ from
the PyG layer of the same name.
"""

from sirgcn.nn.baselines.attention import GAT, GATv2, Transformer
from sirgcn.nn.baselines.baseline import Baseline
from sirgcn.nn.baselines.gated import FAGCN, GatedGCN, ResGatedGCN
from sirgcn.nn.baselines.sums import EGC, GCN, GIN, MLP, PNA, SAGE

__all__ = [
    "EGC",
    "FAGCN",
    "GAT",
    "GCN",
    "GIN",
    "MLP",
    "PNA",
    "SAGE",
    "Baseline",
    "GATv2",
    "GatedGCN",
    "ResGatedGCN",
    "Transformer",
]
