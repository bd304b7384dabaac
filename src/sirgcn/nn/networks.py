"""The table of networks that a row of an experiment can name in place of `SIRNet` and a convolution."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from sirgcn.nn.baselines.heterophilous import H2GCN, GloGNN
from sirgcn.nn.baselines.heterophilous_filters import FSGNN, GPRGNN, JacobiConv
from sirgcn.nn.baselines.heterophilous_labels import CPGNN, GBKGNN
from sirgcn.nn.config import NetConfig
from sirgcn.nn.convs import CONVS, Conv, check_options
from sirgcn.nn.linear import Linear
from sirgcn.nn.net import SIRNet
from sirgcn.strict import ConfigError, Count, Probability, Size, check_fields, check_name, checked, nearest


@dataclass(frozen=True)
class Network:
    """An entry of `NETWORKS`: `build(in_channels, out_channels, **options)` classifies the nodes of one graph.

    Attributes:
        name: its name in experiment files.
        title: its name in the paper's tables.
        reference: the publication.
        formula: the formula of its output, or of a layer.
        complexity: the cost of all layers, in the terms of the paper's Table 8.
        build: the function that builds the network.

    >>> NETWORKS["h2gcn"].options
    ('hidden_channels', 'num_layers', 'dropout')
    """

    name: str
    title: str
    reference: str
    formula: str
    complexity: str
    build: Callable[..., nn.Module]

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options of `build`."""
        known = ("in_channels", "out_channels", "num_nodes")
        return tuple(name for name in inspect.signature(self.build).parameters if name not in known)


def make_network(name: str, in_channels: int, out_channels: int, num_nodes: int, **options: Any) -> nn.Module:
    """A network of the table `NETWORKS`, called as `SIRNet` is.

    Args:
        name: a name of `NETWORKS`.
        in_channels: the width of x.
        out_channels: the number of logits; 1 for two classes.
        num_nodes: the number of nodes of the graph, which a network with a weight per node needs.
        options: the options of the network, see `Network.options`.

    >>> import torch
    >>> network = make_network("gprgnn", 3, 4, num_nodes=5)
    >>> network(torch.randn(5, 3), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([5, 4])
    """
    network = find_network(name)
    check_options(name, options, network.options)
    if "num_nodes" in inspect.signature(network.build).parameters:
        options["num_nodes"] = num_nodes
    return network.build(in_channels, out_channels, **options)


@dataclass(frozen=True)
class NetworkConfig:
    """One of the networks with a shape of their own (`NETWORKS`), which classify the nodes of one graph.

    Args:
        network: a name of `NETWORKS`.
        in_channels: the width of the node features.
        out_channels: the number of logits; 1 for two classes.
        num_nodes: the nodes of the graph, for networks with a weight per node.
        options: the options of the network, see `Network.options`.

    >>> NetworkConfig("gprgnn", 16, 7, num_nodes=100).to_dict()["network"]
    'gprgnn'
    """

    network: str
    in_channels: Size
    out_channels: Size
    num_nodes: Count
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        find_network(self.network)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return asdict(self)


def find_network(name: str) -> Network:
    """The entry of `NETWORKS` with this name; raises a `ConfigError` with the known names if there is none."""
    return NETWORKS[check_name("network", name, NETWORKS, exact=True)]


class _FAGCN(SIRNet):
    """The network of FAGCN's authors (bdy9527/FAGCN, src/model.py), with dropout after the first linear layer only.

    They also drop the features before it and the edges' weights; without dropout, as in Table 5, nothing differs.
    """

    @checked
    def __init__(
        self,
        in_channels: Size,
        out_channels: Size,
        hidden_channels: Size = 32,
        num_layers: Size = 2,
        dropout: Probability = 0.5,
        eps: float = 0.3,
    ) -> None:
        config = NetConfig.of(
            in_channels,
            hidden_channels,
            out_channels,
            num_layers,
            encoder="linear",
            encoder_act="relu",
            input_dropout=dropout,
            conv="fagcn",
            conv_options={"eps": eps},
            residual=False,
            norm=None,
            act=None,
        )
        super().__init__(config)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, the weights of both linear layers as the authors do."""
        super().reset_parameters()
        for module in (*self.encoder.modules(), *self.readout.modules()):
            if isinstance(module, Linear):
                nn.init.xavier_normal_(module.weight, gain=math.sqrt(2))


NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network(
            name="h2gcn",
            title="H2GCN",
            reference="Zhu et al., Beyond Homophily in Graph Neural Networks, NeurIPS 2020",
            formula="[r^0 || ... || r^K] W_C, r^k = [A_1 r^{k-1} || A_2 r^{k-1}], A_i the nodes at distance i",
            complexity="O(|V| d_hidden d_in + 2^K (|E| + |E_2|) d_hidden + 2^K |V| c d_hidden), |E_2| pairs 2 apart",
            build=H2GCN,
        ),
        Network(
            name="cpgnn",
            title="CPGNN",
            reference="Zhu et al., Graph Neural Networks with Heterophily, AAAI 2021",
            formula="B^k = B^0 + A B^{k-1} H, B^0 = softmax(MLP(X)) - 1/c, H the compatibility of the c classes",
            complexity="O(|V| d_hidden d_in + |V| c d_hidden + K (|V| c^2 + |E| c))",
            build=CPGNN,
        ),
        Network(
            name="gprgnn",
            title="GPR-GNN",
            reference="Chien et al., Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021",
            formula="sum_k gamma_k A^k MLP(X), A normalised with self-loops",
            complexity="O(|V| d_hidden d_in + |V| c d_hidden + K |E| c)",
            build=GPRGNN,
        ),
        Network(
            name="fsgnn",
            title="FSGNN",
            reference="Maurya et al., Simplifying Approach to Node Classification in Graph Neural Networks, JoCS 2022",
            formula="W relu([omega_j normalised(W_j F_j)]), F_j of X, A^k X, (A + I)^k X",
            complexity="O(K |V| d_hidden d_in + K |V| c d_hidden), and once K |E| d_in",
            build=FSGNN,
        ),
        Network(
            name="glognn",
            title="GloGNN",
            reference="Li et al., Finding Global Homophily in Graph Neural Networks, ICML 2022",
            formula="(1 - gamma) Z H + gamma H^0, Z of all pairs the minimiser of a sum of squares",
            complexity="O((|V| d_in + |E| + |V| c) d_hidden + L (|V| c^2 + K |E| c)), |E| d_hidden for delta < 1 only",
            build=GloGNN,
        ),
        Network(
            name="fagcn",
            title="FAGCN",
            reference="Bo et al., Beyond Low-Frequency Information in Graph Convolutional Networks, AAAI 2021",
            formula="W h^L, h^l = eps h^0 + sum tanh(g [h_u || h_v]) h_v / sqrt(in_degree(u) in_degree(v))",
            complexity="O(|V| d_hidden d_in + L |E| d_hidden + |V| c d_hidden)",
            build=_FAGCN,
        ),
        Network(
            name="gbkgnn",
            title="GBK-GNN",
            reference="Du et al., GBK-GNN: Gated Bi-Kernel Graph Neural Networks, WWW 2022",
            formula="W_F h_u + mean(g_uv W_S h_v + (1 - g_uv) W_D h_v), g_uv = sigmoid(gate(h_u, h_v))",
            complexity="O(L (|V| d_out d_in + |E| d_out))",
            build=GBKGNN,
        ),
        Network(
            name="jacobiconv",
            title="JacobiConv",
            reference="Wang and Zhang, How Powerful are Spectral Graph Neural Networks, ICML 2022",
            formula="sum_k alpha_k prod gamma_i P_k(A) (X W + b), P_k the Jacobi polynomials",
            complexity="O(|V| c d_in + K |E| c)",
            build=JacobiConv,
        ),
    )
}
"""Every network by its name: those of Table 5, for heterophilous graphs.

>>> list(NETWORKS)[:2]
['h2gcn', 'cpgnn']
"""

MODEL_COLUMNS: tuple[str, ...] = ("name", "key", "title", "formula", "complexity", "reference", "options")
"""The columns of `model_rows`; `key` is the setting of a row of an experiment that has the name."""


def model_rows(name: str | None = None) -> list[tuple[str, ...]]:
    """Every model that a row of an experiment can name, with the columns `MODEL_COLUMNS`.

    Args:
        name: the name or the title of a model, in any letter case; only models with it are listed. None lists all.

    >>> [row[:3] for row in model_rows("FAGCN")]
    [('fagcn', 'conv', 'FAGCN (layer)'), ('fagcn', 'network', 'FAGCN')]
    """
    tables: dict[str, Mapping[str, Conv | Network]] = {"conv": CONVS, "network": NETWORKS}
    models = [(key, model) for key, table in tables.items() for model in table.values()]
    if name is not None:
        found = [(key, model) for key, model in models if name.casefold() in _called(model)]
        if not found:
            names = dict.fromkeys(model.name for _, model in models)
            hint = nearest(name, [*(model.title for _, model in models), *names])
            raise ConfigError(f"model: expected one of {', '.join(names)}, got {name!r}{hint}")
        models = found
    return [(m.name, key, m.title, m.formula, m.complexity, m.reference, ", ".join(m.options)) for key, m in models]


def _called(model: Conv | Network) -> tuple[str, str]:
    """The name and the title of a model in small letters."""
    return model.name.casefold(), model.title.casefold()
