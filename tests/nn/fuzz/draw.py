"""Networks and batches of small graphs with repeated categories, so that the fast routes really are taken."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sirgcn.nn import CONTEXTS, SIRGCN, Rows, SIRConv, SIRNet
from sirgcn.nn.convs import CONVS
from sirgcn.ops import Neighbors

Rng = np.random.Generator
WIDTH, FEATURES, EDGE_FEATURES = 8, 5, 3
SIGMAS = ("relu", "leaky_relu(0.2)", "gelu", "tanh", "silu", "elu", "softplus", "sigmoid", "identity", "square")
WITHOUT_OR_WITH_CONTEXT = (None, None, None, *CONTEXTS)


@dataclass
class Case:
    """A network, what it is called with, and what its user did.

    Args:
        net: the network.
        given: the arguments of a call by name.
        done: what the user did, in words.
        dtype: of the parameters and the floating-point arguments.
        use: how the network is called; None for an ordinary call.
        is_plain: whether the case is run on the plainest route.
        seen: what hooks saw, a text for each call.
        cleanup: what is to be done after the case.
    """

    net: nn.Module
    given: dict[str, Any]
    done: list[str]
    dtype: torch.dtype = torch.float64
    use: "Callable[[Case], Tensor] | None" = None
    is_plain: bool = False
    is_compiled: bool = False
    seen: list[str] = field(default_factory=list)
    cleanup: list[Callable[[], Any]] = field(default_factory=list)

    def arguments(self) -> dict[str, Any]:
        """What the network is given; on the plainest route a row for every node and every edge."""
        return {name: in_rows(value) for name, value in self.given.items()} if self.is_plain else dict(self.given)

    def call(self) -> Tensor:
        """An ordinary call."""
        out: Tensor = self.net(**self.arguments())
        return out

    def leaves(self) -> dict[str, Tensor]:
        """The arguments that get a gradient."""
        found: dict[str, Tensor] = {}
        for name, value in self.given.items():
            parts = (value.table,) if isinstance(value, Rows) else value if isinstance(value, tuple) else (value,)
            tensors = [part for part in parts if isinstance(part, Tensor) and part.requires_grad]
            found |= {f"{name} {place}": tensor for place, tensor in enumerate(tensors)}
        return found


def in_rows(value: Any) -> Any:
    """A table and the places of its rows as the rows themselves."""
    if isinstance(value, Rows):
        return value.expand()
    if isinstance(value, tuple) and not value[1].is_floating_point():
        return value[0].index_select(0, value[1])
    return value


def one_of(rng: Rng, values: Any) -> Any:
    """One value, whatever its type."""
    return values[int(rng.integers(len(values)))]


def chance(rng: Rng, share: float) -> bool:
    """True in that share of the draws."""
    return bool(rng.random() < share)


def draw_case(rng: Rng) -> Case:
    """A network as it was built, in float64, and its batch."""
    make = [draw_net, draw_conv, draw_model][int(rng.choice(3, p=[0.62, 0.33, 0.05]))]
    case = make(rng)
    case.net.double()
    with torch.no_grad():
        for parameter in case.net.parameters():
            # Zeros of a fresh bias would put activations onto their kinks.
            if parameter.dim() < 2:
                parameter.add_(torch.randn_like(parameter) / 2)
    return case


# Graphs


def draw_graph(rng: Rng) -> tuple[int, Tensor, Tensor]:
    """Nodes, edges and the graph of each node: many small trees, or a few nodes with many edges."""
    graphs, size = (int(rng.integers(12, 60)), int(rng.integers(2, 5))) if chance(rng, 0.7) else (3, 10)
    edges = []
    for first in range(0, graphs * size, size):
        for v in range(1, size):
            ends = first + v, first + int(rng.integers(max(0, v - 2), v))
            edges += [ends, ends[::-1]]
        if size == 10:
            edges += [tuple(first + rng.integers(0, 8, 2)) for _ in range(60)]
    edge_index = torch.tensor(np.array(edges, dtype=np.int64).reshape(-1, 2).T.copy())
    if chance(rng, 0.2):
        edge_index = edge_index[:, torch.randperm(edge_index.size(1))]
    return graphs * size, edge_index, torch.arange(graphs).repeat_interleave(size)


def draw_edge_attr(rng: Rng, form: str, edges: int, sizes: list[int]) -> Any:
    """Edge features, or categories; a pair (table, type) of either."""
    if form == "categories":
        columns = torch.stack([torch.randint(size, (edges,)) for size in sizes], dim=1)
        return columns.squeeze(1) if len(sizes) == 1 and chance(rng, 0.5) else columns
    if form == "pair of categories":
        return torch.stack([torch.randint(size, (4,)) for size in sizes], dim=1), torch.randint(4, (edges,))
    rows = torch.randn(edges if form == "features" else 4, EDGE_FEATURES, dtype=torch.float64)
    rows.requires_grad_(chance(rng, 0.5))
    return rows if form == "features" else (rows, torch.randint(4, (edges,)))


# Networks


def draw_net(rng: Rng) -> Case:
    """`SIRNet` of any shape."""
    nodes, edge_index, batch = draw_graph(rng)
    conv = "sir" if chance(rng, 0.72) else one_of(rng, sorted(CONVS))
    encoder = one_of(rng, ["embedding"] * 5 + ["linear", "none"])
    channels: Any = one_of(rng, [2, [2], [3], [2, 2]]) if encoder == "embedding" else FEATURES
    options: dict[str, Any] = {"encoder": encoder, "conv": conv, **draw_options(rng, encoder)}
    given: dict[str, Any] = {"x": draw_nodes(rng, nodes, channels), "edge_index": edge_index, "batch": batch}
    if conv == "sir":
        options |= {
            "aggr": one_of(rng, ["sum", "mean", "sym", "max"]),
            "variant": one_of(rng, ["corrected", "corrected", "published"]),
            "activation": one_of(rng, [*SIGMAS[:-1], "prelu"]),
            "sigma_layers": one_of(rng, [0, 0, 0, 0, 1, 2]),
            "context": one_of(rng, WITHOUT_OR_WITH_CONTEXT),
        }
    extra = CONVS[conv].extra_inputs
    if "edge" in extra and chance(rng, 0.45):
        draw_edges_of_net(rng, options, given)
    elif "edge_weight" in extra and options.get("aggr") != "max" and chance(rng, 0.15):
        given["edge_weight"] = torch.rand(edge_index.size(1), dtype=torch.float64).requires_grad_(chance(rng, 0.5))
    elif "edge" not in extra and "edge_weight" not in extra and chance(rng, 0.2):
        options["self_loops"] = True
    if conv == "fagcn" and encoder == "none":
        options["encoder"] = "linear"
    if options.get("positional"):
        given["pe"] = torch.randn(nodes, 2, dtype=torch.float64)
    layers = int(rng.integers(1, 4))
    net = SIRNet.of(channels, WIDTH, 2, layers, **options)
    given["batch_size"] = int(batch[-1]) + 1
    if chance(rng, 0.2) and not options.get("self_loops") and conv not in ("egc_s", "egc_m"):
        given["edge_index"] = Neighbors.from_edge_index(edge_index, nodes)
    return Case(net, given, [f"SIRNet.of({channels}, {WIDTH}, 2, {layers}, {options})"])


def draw_nodes(rng: Rng, nodes: int, channels: Any) -> Tensor:
    """Categories for vocabularies, features for a width."""
    if channels == FEATURES:
        return torch.randn(nodes, FEATURES, dtype=torch.float64).requires_grad_(chance(rng, 0.5))
    sizes = channels if isinstance(channels, list) else [channels]
    columns = torch.stack([torch.randint(size, (nodes,)) for size in sizes], dim=1)
    return columns.squeeze(1) if len(sizes) == 1 and chance(rng, 0.5) else columns


def draw_options(rng: Rng, encoder: str) -> dict[str, Any]:
    """What a network of any convolution may have."""
    has_width = encoder != "none"
    pool = one_of(rng, ["sum", "mean", None])
    options: dict[str, Any] = {
        "encoder_act": one_of(rng, [False, False, True, "tanh"]),
        "block": one_of(rng, ["residual"] * 4 + ["skip"] * 2 + ["pre_norm", "transformer"])
        if has_width
        else "residual",
        "norm": one_of(rng, ["batch", "batch", "layer", None]),
        "act": one_of(rng, ["relu", "gelu", "leaky_relu(0.2)", None]),
        "residual": chance(rng, 0.8),
        "pool": pool,
        "readout_layers": one_of(rng, [1, 2, 3]),
        "head_channels": (6,) if pool and chance(rng, 0.2) else (),
    }
    rare: dict[str, Any] = {
        "feed_forward": 2,
        "feed_forward_norm": "around",
        "jk": one_of(rng, ["cat", "max", "lstm", "sum"]),
        "dropout": 0.3,
        "input_dropout": 0.3,
        "residual_dropout": 0.3,
        "conv_dropout": 0.3,
    }
    if has_width:
        rare |= {"virtual_node": True, "random_features": 2, "positional": one_of(rng, ["random_walk", "laplacian"])}
    options |= {name: value for name, value in rare.items() if chance(rng, 0.07)}
    if options["block"] in ("residual", "skip") and chance(rng, 0.07):
        options["conv_norm"] = False
    if "positional" in options:
        options |= {"pe_dim": 2, "pe_channels": one_of(rng, [0, 3]), "pe_norm": chance(rng, 0.5)}
    return options


def draw_edges_of_net(rng: Rng, options: dict[str, Any], given: dict[str, Any]) -> None:
    """Edge features of a network, and the batch's."""
    sizes = one_of(rng, [[2], [3], [2, 2]])
    form = one_of(rng, ["categories"] * 4 + ["pair of categories", "features", "pair"])
    edges = given["edge_index"].size(1)
    given["edge_attr"] = draw_edge_attr(rng, form, edges, sizes)
    if "categories" in form:
        options |= {"edge_channels": sizes, "edge_encoder": "embedding"}
    else:
        options |= {"edge_channels": EDGE_FEATURES, "edge_encoder": one_of(rng, ["linear", "none"])}
    # Dropout acts on the rows of a table of edge kinds, and so not on each edge by itself: see `SIRConv`.
    options.pop("conv_dropout", None)


def draw_model(rng: Rng) -> Case:
    """`SIRGCN`, a basic model of PyG."""
    nodes, edge_index, _ = draw_graph(rng)
    options = {
        "aggr": one_of(rng, ["sum", "mean", "sym", "max"]),
        "activation": one_of(rng, SIGMAS[:-1]),
        "norm": one_of(rng, ["batch_norm", "layer_norm", None]),
        "jk": one_of(rng, [None, None, "cat"]),
        "residual": chance(rng, 0.3),
    }
    net = SIRGCN(FEATURES, WIDTH, 2, 3, **options)
    x = torch.randn(nodes, FEATURES, dtype=torch.float64).requires_grad_(chance(rng, 0.5))
    return Case(net, {"x": x, "edge_index": edge_index}, [f"SIRGCN({FEATURES}, {WIDTH}, 2, 3, {options})"])


# Layers


def draw_sigma(rng: Rng) -> Any:
    """A name, a module of the table, or a module of its own."""
    modules: list[Any] = [
        nn.GELU(),
        nn.LeakyReLU(0.3),
        nn.PReLU(),
        nn.PReLU(WIDTH, init=-0.5),
        nn.ELU(2.0),
        nn.Sequential(nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)),
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH)),
    ]
    return one_of(rng, [*SIGMAS, "prelu"]) if chance(rng, 0.6) else one_of(rng, modules)


def draw_conv(rng: Rng) -> Case:
    """`SIRConv` by itself, on one set of nodes or two."""
    nodes, edge_index, _ = draw_graph(rng)
    aggr = one_of(rng, ["sum", "add", "mean", "sym", "sym_in", "max", "max"])
    is_bipartite = chance(rng, 0.2) and aggr != "sym_in"
    form = one_of(rng, ["none", "none", "none", "features", "pair", "pair"])
    options: dict[str, Any] = {
        "aggr": aggr,
        "edge_dim": None if form == "none" else EDGE_FEATURES,
        "residual": one_of(rng, [None, True, nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.Tanh())]),
        "backend": one_of(rng, [None, None, None, "reference"]),
        "cached": chance(rng, 0.1),
        "bias": chance(rng, 0.8),
    }
    if chance(rng, 0.25):
        width = 2 * FEATURES + (0 if form == "none" else EDGE_FEATURES)
        last = nn.Identity() if chance(rng, 0.5) else nn.Linear(WIDTH, WIDTH)
        options["message_network"] = nn.Sequential(nn.Linear(width, WIDTH), nn.Tanh(), last)
    else:
        options |= {"activation": draw_sigma(rng), "inner_bias": chance(rng, 0.8)}
        options |= {"context": one_of(rng, WITHOUT_OR_WITH_CONTEXT)}
        options |= {"variant": "published"} if not is_bipartite and chance(rng, 0.2) else {}
        # As in a network: not on the table of a pair.
        options |= {"dropout": 0.3} if form != "pair" and chance(rng, 0.1) else {}
    options |= {"flow": "target_to_source"} if not is_bipartite and chance(rng, 0.1) else {}
    given = {"x": draw_ends(rng, nodes, is_bipartite), "edge_index": edge_index}
    if is_bipartite:
        given["edge_index"] = edge_index % torch.tensor([[nodes], [nodes // 2]])
    if form != "none":
        given["edge_attr"] = draw_edge_attr(rng, form, edge_index.size(1), [])
    if aggr != "max" and chance(rng, 0.2):
        given["edge_weight"] = torch.rand(edge_index.size(1), dtype=torch.float64).requires_grad_(chance(rng, 0.5))
    if "flow" not in options and not is_bipartite and chance(rng, 0.2):
        given["edge_index"] = Neighbors.from_edge_index(edge_index, nodes)
    return Case(SIRConv(FEATURES, WIDTH, **options), given, [f"SIRConv({FEATURES}, {WIDTH}, {options})"])


def draw_ends(rng: Rng, nodes: int, is_bipartite: bool) -> Any:
    """Features of the nodes: rows, `Rows` that nodes share, several signals, or those of sources and targets."""

    def rows(*shape: int) -> Tensor:
        return torch.randn(*shape, FEATURES, dtype=torch.float64).requires_grad_(chance(rng, 0.5))

    if is_bipartite:
        return rows(nodes), rows(nodes // 2)
    if chance(rng, 0.5):
        return Rows(rows(3), torch.randint(3, (nodes,)))
    return rows(2, nodes) if chance(rng, 0.1) else rows(nodes)
