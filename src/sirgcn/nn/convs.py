"""The table of convolutions that a block of `SIRNet` can have, by their names in experiment files."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from sirgcn.nn.baselines import EGC, FAGCN, GAT, GCN, GIN, MLP, PNA, SAGE, GatedGCN, GATv2, ResGatedGCN, Transformer
from sirgcn.nn.conv import SIRConv
from sirgcn.nn.linear import Linear
from sirgcn.nn.slopes import make_sigma
from sirgcn.strict import ConfigError, Probability, Size, check_name, checked


@dataclass(frozen=True)
class Conv:
    """An entry of `CONVS`: `build(in_channels, out_channels, dropout=..., **options)` returns a layer `conv(h, graph)`.

    Attributes:
        name: its name in `SIRNet(conv=...)` and in experiment files.
        title: its name in the paper's tables.
        reference: the publication.
        formula: the formula of h_u^*; sums run over v in N(u).
        complexity: the cost of our implementation, in the terms of the paper's Table 8; k is the number of pairs of
            an aggregator and a scaler.
        build: the function that builds the layer.
        extra_inputs: the inputs that a call accepts besides h and the graph: `edge` (features), `edge_weight`, `batch`
            (the graph of each node) and `first` (the features that the first layer read).
        self_loops: whether N(u) contains u; if so, `SIRNet` adds the self-loops once for all layers.
        heads: the number of heads; the width must be a multiple of it.

    >>> CONVS["gatv2"].title, CONVS["gatv2"].options
    ('GATv2', ('heads', 'share_weights'))
    """

    name: str
    title: str
    reference: str
    formula: str
    complexity: str
    build: Callable[..., nn.Module]
    extra_inputs: tuple[str, ...] = ()
    self_loops: bool = False
    heads: int = 1

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options of `build`."""
        known = ("in_channels", "out_channels", "dropout", "edge_dim")
        return tuple(name for name in inspect.signature(self.build).parameters if name not in known)


def make_conv(
    name: str, in_channels: int, out_channels: int, dropout: float = 0.0, edge_dim: int | None = None, **options: Any
) -> nn.Module:
    """A layer of the table `CONVS`, called as `conv(h, graph, edge, edge_weight)`.

    Args:
        name: a name of `CONVS`.
        in_channels: the width of h.
        out_channels: the width of the output.
        dropout: the dropout inside the layer: on the projected terms for `sir`, on h for the others.
        edge_dim: the width of the edge features; None without edge features.
        options: the options of the convolution, see `Conv.options`.

    >>> import torch
    >>> conv = make_conv("gat", 3, 8, heads=2)
    >>> conv(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 8])
    """
    conv = find_conv(name)
    check_options(name, options, conv.options)
    if edge_dim is not None:
        if "edge" not in conv.extra_inputs:
            known = [other.name for other in CONVS.values() if "edge" in other.extra_inputs]
            raise ValueError(
                f"edge features: expected a convolution that reads them: {', '.join(known)}; got {name}. "
                f"Choose one of these, or leave the edge features out"
            )
        options["edge_dim"] = edge_dim
    return conv.build(in_channels, out_channels, dropout=dropout, **options)


def check_options(name: str, options: Collection[str], known: Collection[str]) -> None:
    """Raise a `ConfigError` if the convolution or network of this name does not have one of the options."""
    if options and not known:
        raise ConfigError(f"options of {name}: expected none, got {', '.join(options)}")
    for option in options:
        check_name(f"options of {name}", option, known, exact=True)


def find_conv(name: str) -> Conv:
    """The entry of `CONVS` with this name; raises a `ConfigError` with the known names if there is none."""
    return CONVS[check_name("conv", name, CONVS, exact=True)]


@checked
def _sir(
    in_channels: Size,
    out_channels: Size,
    dropout: Probability = 0.0,
    edge_dim: int | None = None,
    aggr: str = "sum",
    activation: str = "relu",
    sigma_layers: int = 0,
    variant: str = "corrected",
    context: str | None = None,
    gated: bool = False,
) -> nn.Module:
    """A `SIRConv` whose sigma is the activation and then, `sigma_layers` times, a linear layer and the activation."""
    if sigma_layers < 0:
        raise ValueError(f"sigma_layers: expected at least 0, got {sigma_layers}")
    parts: list[nn.Module] = [make_sigma(activation, out_channels)]
    for _ in range(sigma_layers):
        parts += [Linear(out_channels, out_channels), make_sigma(activation, out_channels)]
    sigma = nn.Sequential(*parts) if sigma_layers else parts[0]
    return SIRConv(
        in_channels,
        out_channels,
        aggr=aggr,
        activation=sigma,
        edge_dim=edge_dim,
        dropout=dropout,
        variant=variant,
        context=context,
        gated=gated,
    )


_PER_NODE = "O(|V| d_out d_in + |E| d_out)"

CONVS: dict[str, Conv] = {
    conv.name: conv
    for conv in (
        Conv(
            name="sir",
            title="SIR-GCN",
            reference="Lim et al., Contextualized Messages Boost Graph Representations, TMLR 2025",
            formula="sum W_R sigma(W_Q h_u + W_K h_v)",
            complexity="O(|V| d_hidden d_in + |E| d_hidden + |V| d_out d_hidden)",
            build=_sir,
            extra_inputs=("edge", "edge_weight"),
        ),
        Conv(
            name="gcn",
            title="GCN",
            reference="Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
            formula="sum W h_v / sqrt(in_degree(u) out_degree(v)) + b",
            complexity=_PER_NODE,
            build=GCN,
            extra_inputs=("edge_weight",),
        ),
        Conv(
            name="sage",
            title="GraphSAGE",
            reference="Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
            formula="W h_u + b + W_N mean(h_v)",
            complexity=_PER_NODE,
            build=SAGE,
        ),
        Conv(
            name="sage_pool",
            title="GraphSAGE (pool)",
            reference="Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
            formula="W h_u + b + W_N max(relu(W_P h_v + b_P))",
            complexity="O(|V| d_in^2 + |V| d_out d_in + |E| d_in)",
            build=partial(SAGE, aggr="pool"),
        ),
        Conv(
            name="gat",
            title="GAT",
            reference="Velickovic et al., Graph Attention Networks, ICLR 2018",
            formula="sum softmax(leaky_relu(a_T W h_u + a_S W h_v)) W h_v + b, per head",
            complexity=_PER_NODE,
            build=GAT,
            heads=8,
        ),
        Conv(
            name="gatv2",
            title="GATv2",
            reference="Brody et al., How Attentive are Graph Attention Networks?, ICLR 2022",
            formula="sum softmax(a leaky_relu(W h_u + W h_v)) W h_v, per head",
            complexity=_PER_NODE,
            build=GATv2,
        ),
        Conv(
            name="gin",
            title="GIN",
            reference="Xu et al., How Powerful are Graph Neural Networks?, ICLR 2019",
            formula="MLP(h_u + sum h_v)",
            complexity="O(|E| d_in + |V| MLP)",
            build=GIN,
            extra_inputs=("edge",),
        ),
        Conv(
            name="pna",
            title="PNA",
            reference="Corso et al., Principal Neighbourhood Aggregation for Graph Nets, NeurIPS 2020",
            formula="leaky_relu(W_X norm(W_U [h_u || aggregators(W_M [h_v || h_u])] / sqrt(|V_G|)))",
            complexity="O(|V| d_in^2 + |E| d_in k + |V| d_out d_in k + |V| d_out^2)",
            build=PNA,
            extra_inputs=("batch",),
        ),
        Conv(
            name="egc_s",
            title="EGC-S",
            reference="Tailor et al., Do We Need Anisotropic Graph Neural Networks?, ICLR 2022",
            formula="sum_b w_{u,b} sum W_b h_v / sqrt(in_degree(u) in_degree(v)) + b, per head",
            complexity="O(|V| d_out d_in B / H + |V| d_in H B + |E| d_out B / H + |V| d_out B)",
            build=EGC,
            self_loops=True,
            heads=8,
        ),
        Conv(
            name="egc_m",
            title="EGC-M",
            reference="Tailor et al., Do We Need Anisotropic Graph Neural Networks?, ICLR 2022",
            formula="sum_{+,b} w_{u,+,b} aggregated_+(W_b h_v) + b, + of sum, std, max, per head",
            complexity="O(|V| d_out d_in B / H + |V| d_in H B k + |E| d_out k B / H + |V| d_out k B)",
            build=partial(EGC, heads=4, aggregators=("sum", "std", "max")),
            self_loops=True,
            heads=4,
        ),
        Conv(
            name="gated_gcn",
            title="GatedGCN",
            reference="Bresson and Laurent, Residual Gated Graph ConvNets, 2017; Dwivedi et al., JMLR 2023",
            formula="A h_u + sum eta B h_v / (sum eta + 1e-6), eta = sigmoid(D h_u + E h_v)",
            complexity=_PER_NODE,
            build=GatedGCN,
            extra_inputs=("edge",),
        ),
        Conv(
            name="res_gated",
            title="ResGatedGCN",
            reference="Bresson and Laurent, Residual Gated Graph ConvNets, 2017",
            formula="A h_u + b + sum sigmoid(D h_u + E h_v) (B h_v + b_B)",
            complexity=_PER_NODE,
            build=ResGatedGCN,
            extra_inputs=("edge",),
        ),
        Conv(
            name="transformer",
            title="GraphTransformer",
            reference="Shi et al., Masked Label Prediction, IJCAI 2021; Platonov et al., ICLR 2023",
            formula="W_O sum softmax(W_Q h_u . W_K h_v / sqrt(d_head)) W_V h_v, per head",
            complexity="O(|V| d_out d_in + |E| d_out + |V| d_out^2)",
            build=Transformer,
            heads=8,
        ),
        Conv(
            name="fagcn",
            title="FAGCN (layer)",
            reference="Bo et al., Beyond Low-Frequency Information in Graph Convolutional Networks, AAAI 2021",
            formula="eps h_u^(0) + sum tanh(g [h_u || h_v]) h_v / sqrt(in_degree(u) in_degree(v))",
            complexity="O(|V| d_in + |E| d_in)",
            build=FAGCN,
            extra_inputs=("first",),
        ),
        Conv(
            name="mlp",
            title="MLP",
            reference="the control that does not see the graph",
            formula="W h_u + b",
            complexity="O(|V| d_out d_in)",
            build=MLP,
        ),
    )
}
"""Every convolution by its name: those of the paper's tables, GatedGCN and an MLP as controls, and ResGatedGCN.

>>> CONVS["gcn"].title
'GCN'
"""
