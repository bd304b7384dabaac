"""Recipes as configurations: each block against its recipe in plain PyG, sizes, and what a convolution needs."""

import copy
import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINEConv, Linear, SAGEConv, global_add_pool
from torch_geometric.utils import add_remaining_self_loops

from sirgcn.nn import CONVS, RECIPES, NetConfig, SIRNet, build_net, config_from_dict, make_conv, preset, recipe
from sirgcn.nn.baselines.baseline import Baseline
from sirgcn.nn.blocks import BLOCKS, LayerInputs
from sirgcn.ops import Neighbors
from sirgcn.ops.reductions import weighted_sum
from sirgcn.ops.rows import Rows
from sirgcn.strict import ConfigError

DOUBLE = torch.float64
NODES, STEPS, TYPES = 12, 5, 4


def graph(seed: int = 0, nodes: int = NODES, edges: int = 30) -> dict[str, Tensor]:
    """A graph of categories with encodings of nodes and edges; a node without neighbours, and repeated edges."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randint(21, (nodes, 1), generator=generator),
        "edge_index": torch.randint(nodes - 1, (2, edges), generator=generator),
        "edge_attr": torch.randint(TYPES, (edges, 1), generator=generator),
        "batch": torch.arange(nodes) // (nodes // 2 + 1),
        "pe": torch.rand(nodes, STEPS, generator=generator, dtype=DOUBLE),
        "edge_pe": torch.rand(edges, STEPS, generator=generator, dtype=DOUBLE),
    }


def small_zinc(**changes: Any) -> SIRNet:
    torch.manual_seed(0)
    sizes = {"hidden_channels": 16, "num_layers": 2, "head_channels": (8, 4), "pe_dim": STEPS, "pe_channels": 6}
    edges = {} if "edge" not in CONVS[changes.get("conv", "sir")].extra_inputs else {"edge_pe_dim": STEPS}
    return preset("gnn_plus/zinc", **sizes | edges | changes).double()


def read(conv: str, data: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a network with this convolution reads of a graph."""
    left_out = () if "edge" in CONVS[conv].extra_inputs else ("edge_attr", "edge_pe")
    return {name: value for name, value in data.items() if name not in left_out}


def assert_equal_with_gradients(net: nn.Module, found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected)
    weight = torch.randn(found.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    parameters = list(net.parameters())
    mine, theirs = (torch.autograd.grad((out * weight).sum(), parameters) for out in (found, expected))
    for own, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(own, other)


# The tuned block


def tuned_in_pyg(net: Any, x: Tensor, edge_index: Tensor) -> Tensor:
    """The authors' network with PyG's layers, which get our weights."""
    edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=len(x))
    h, total = net.encoder(x), 0
    for block in net.blocks:
        conv = block.conv
        if type(conv).__name__ == "GCN":
            layer: Any = GCNConv(conv.in_channels, conv.out_channels)
            layer.lin, layer.bias = conv.lin, conv.bias
        else:
            layer = SAGEConv(conv.in_channels, conv.out_channels)
            layer.lin_l, layer.lin_r = conv.lin_neighbors, conv.lin_self
        out = layer(h, edge_index)
        if block.residual is not None:
            out = out + block.residual[0](h)
        if isinstance(block.norm, nn.BatchNorm1d):
            out = F.batch_norm(out, None, None, block.norm.weight, block.norm.bias, training=True)
        elif isinstance(block.norm, nn.LayerNorm):
            out = F.layer_norm(out, (out.size(1),), block.norm.weight, block.norm.bias)
        h = out.relu()
        total = total + h
    return net.readout[0](h if net.jk is None else total)


@pytest.mark.parametrize("conv", ["gcn", "sage"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "layer", "encoder": "linear"}, {"norm": None, "jk": "sum"}, {"residual": False}],
    ids=str,
)
def test_the_tuned_block_is_that_of_the_authors(conv: str, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    net = preset("tuned/minesweeper", conv=conv, hidden_channels=8, num_layers=3, dropout=0, **changes).double()
    x, edge_index = torch.randn(NODES, 7, dtype=DOUBLE), graph()["edge_index"].unique(dim=1)
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)
    assert_equal_with_gradients(net, net(x, edge_index), tuned_in_pyg(net, x, edge_index))


def test_pre_linear_is_a_linear_layer_and_dropout() -> None:
    net: Any = SIRNet(RECIPES["tuned/roman_empire"])
    assert isinstance(net.encoder, Linear)
    assert type(net.encoder_act) is nn.Identity
    assert net.input_dropout.p == 0.5
    assert type(preset("tuned/minesweeper").encoder) is nn.Identity


# The block of GNN+


def plus_in_pyg(net: Any, data: dict[str, Tensor]) -> Tensor:
    """GIN+ in plain PyTorch and PyG, with our weights."""

    def normed(norm: Any, h: Tensor) -> Tensor:
        return F.batch_norm(h, None, None, norm.weight, norm.bias, training=True)

    encoded = net.positional.lin(normed(net.positional.norm, data["pe"]))
    h = torch.cat([net.encoder.embeddings[0].weight[data["x"][:, 0]], encoded], dim=1)
    e = net.edge_encoder.embeddings[0].weight[data["edge_attr"][:, 0]] + net.edge_positional.lin(data["edge_pe"])
    for block, feed_forward in zip(net.blocks, net.feed_forwards, strict=True):
        first, second = block.conv.mlp[0], block.conv.mlp[2]
        # PyG's layer draws the weights of its network anew, so that ours follows it.
        out = second(first(GINEConv(nn.Identity())(h, data["edge_index"], e)).relu())
        h = normed(feed_forward.first_norm, h + out.relu())
        inner, outer = feed_forward.network[0], feed_forward.network[3]
        h = normed(feed_forward.last_norm, h + outer(inner(h).relu()))
    pooled = global_add_pool(h, data["batch"])
    first, _, second, _, third = net.head
    return third(second(first(pooled).relu()).relu())


def test_gin_plus_is_that_of_the_authors() -> None:
    net, data = small_zinc(conv="gin"), graph()
    assert_equal_with_gradients(net, net(**data), plus_in_pyg(net, data))


def test_dropout_of_the_feed_forward_follows_the_activation_and_the_second_layer() -> None:
    net: Any = small_zinc(conv="gin", dropout=0.5)
    names = [type(part).__name__ for part in net.feed_forwards[0].network]
    assert names == ["Linear", "Sigma", "Dropout", "Linear", "Dropout"]
    assert [part.p for part in net.feed_forwards[0].network if isinstance(part, nn.Dropout)] == [0.5, 0.5]
    assert net.blocks[0].dropout.p == 0.5


def parameters(config: NetConfig) -> int:
    return sum(parameter.numel() for parameter in build_net(config).parameters())


def test_gin_plus_has_the_published_numbers_of_parameters() -> None:
    assert parameters(recipe("gnn_plus/zinc", conv="gin")) == 477_241
    assert parameters(recipe("gnn_plus/molhiv", conv="gin")) == 481_433


@pytest.mark.parametrize(
    ("name", "count", "changes"),
    [
        (
            "zinc",
            413_355,
            {"num_layers": 9, "hidden_channels": 70, "dropout": 0.05, "conv_norm": True, "head_channels": (35, 17)},
        ),
        # The authors read the one-hot classes by a linear layer, and PATTERN has one logit there.
        ("pattern", 466_001, {"encoder": "linear", "out_channels": 1}),
        ("cluster", 474_574, {"encoder": "linear"}),
        ("molhiv", 1_076_633, {"conv_norm": True}),
        ("mnist", 118_940, {}),
        ("cifar10", 116_490, {}),
    ],
)
def test_gated_gcn_plus_has_the_published_numbers_of_parameters(name: str, count: int, changes: dict[str, Any]) -> None:
    gated = {"conv": "gated_gcn", "conv_options": {"passes_edges": True}}
    assert parameters(recipe(f"gnn_plus/{name}", **gated, **changes)) == count


# GIN with edge features


@pytest.mark.parametrize("form", ["rows", "table"])
@pytest.mark.parametrize("edge_dim", [6, 3])
def test_gin_with_edge_features_is_gine(edge_dim: int, form: str) -> None:
    torch.manual_seed(0)
    conv: Any = make_conv("gin", 6, 8, edge_dim=edge_dim).double()
    data = graph()
    h = torch.randn(NODES, 6, dtype=DOUBLE, requires_grad=True)
    table = torch.randn(TYPES, edge_dim, dtype=DOUBLE, requires_grad=True)
    edge_type = data["edge_attr"][:, 0]
    theirs = GINEConv(conv.mlp, edge_dim=None if edge_dim == 6 else edge_dim).double()
    if edge_dim != 6:
        theirs.lin = conv.lin_edge
    found = conv(h, data["edge_index"], table[edge_type] if form == "rows" else (table, edge_type))
    expected = theirs(h, data["edge_index"], table[edge_type])
    torch.testing.assert_close(found, expected)
    inputs = [h, table, *conv.parameters()]
    for mine, other in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


# Edge features that are passed on


class Passing(Baseline):
    """The sum of h_v W, and h_u + h_v + e_uv of every edge for the next layer."""

    passes_edges = True

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels)
        self.lin = nn.Linear(channels, channels)

    def convolve(self, rows: Rows, graph: Neighbors, edge: Any = None) -> Any:
        h = rows.expand()
        source, target = graph.edge_index.long()
        features = edge[0][edge[1]] if isinstance(edge, tuple) else edge
        return weighted_sum(self.lin(h), graph), h[source] + h[target] + features


@pytest.mark.parametrize("form", ["rows", "table"])
@pytest.mark.parametrize("norm", ["batch", "layer", None])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_passes_on_edge_features_with_norm_activation_and_residual(
    block: str, norm: str | None, form: str
) -> None:
    torch.manual_seed(0)
    config = NetConfig.of(3, 4, 2, num_layers=1, encoder="linear", block=block, norm=norm, act="gelu").block
    made: Any = BLOCKS[block](Passing(4), 4, config, nn.GELU()).double()
    data = graph()
    h, table = torch.randn(NODES, 4, dtype=DOUBLE), torch.randn(TYPES, 4, dtype=DOUBLE)
    edge_type = data["edge_attr"][:, 0]
    edge: Any = table[edge_type] if form == "rows" else (table, edge_type)
    out, after = LayerInputs(data["edge_index"], edge, None, {}).step(made, h)
    read_by = made.norm(h) if block in ("pre_norm", "transformer") else h
    terms = read_by[data["edge_index"][0]] + read_by[data["edge_index"][1]] + table[edge_type]
    if norm == "batch":
        terms = F.batch_norm(terms, None, None, training=True)
    elif norm == "layer":
        terms = F.layer_norm(terms, (4,))
    assert out.shape == h.shape
    torch.testing.assert_close(after.edge, table[edge_type] + F.gelu(terms))
    assert after.graph is data["edge_index"]


# Every recipe


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_survive_json(name: str) -> None:
    assert config_from_dict(json.loads(json.dumps(RECIPES[name].to_dict()))) == RECIPES[name]
    assert RECIPES[name].conv.name == "sir"


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("conv", CONVS)
def test_a_recipe_stands_around_every_convolution(name: str, conv: str) -> None:
    torch.manual_seed(0)
    small = {"hidden_channels": 24, "num_layers": 2}
    if RECIPES[name].context.pe_channels:
        small["pe_channels"] = 8
    if conv == "fagcn" and name.startswith("tuned"):
        # It keeps the width, so that a linear layer stands first.
        small["encoder"] = "linear"  # type: ignore[assignment]
    config = recipe(name, conv=conv, **small)
    net: Any = build_net(config)
    out = net(**inputs_of(config))
    assert out.shape == (2 if config.readout.pool else NODES, config.out_channels)
    out.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())


def inputs_of(config: NetConfig) -> dict[str, Tensor]:
    """A graph as the network of a configuration reads it."""
    generator, data = torch.Generator().manual_seed(0), graph()
    edges = data["edge_index"].size(1)
    given = {"edge_index": data["edge_index"], "batch": data["batch"]}
    if config.encoder.type == "atom":
        given["x"] = torch.zeros(NODES, 9, dtype=torch.int64)
    elif config.encoder.type == "embedding":
        given["x"] = torch.randint(config.in_channels, (NODES, 1), generator=generator)  # type: ignore[arg-type]
    else:
        given["x"] = torch.randn(NODES, config.in_channels, generator=generator)  # type: ignore[arg-type]
    if config.edges.type == "bond":
        given["edge_attr"] = torch.zeros(edges, 3, dtype=torch.int64)
    elif config.edges.type == "embedding":
        given["edge_attr"] = data["edge_attr"]
    elif config.edges.type == "linear":
        given["edge_attr"] = torch.randn(edges, 1, generator=generator)
    if config.context.pe_dim:
        given["pe"] = torch.rand(NODES, config.context.pe_dim, generator=generator)
    if config.edges.pe_dim:
        given["edge_pe"] = torch.rand(edges, config.edges.pe_dim, generator=generator)
    return given


def test_a_convolution_without_edge_features_gets_the_recipe_without_them() -> None:
    config = recipe("gnn_plus/zinc", conv="gcn")
    assert (config.edges.channels, config.edges.type, config.edges.pe_dim) == (None, "none", 0)
    assert config.context == RECIPES["gnn_plus/zinc"].context
    with pytest.raises(ValueError, match=r"edge features: expected a convolution that reads them: .*; got gcn"):
        preset("gnn_plus/zinc", conv="gcn", edge_channels=4, edge_encoder="embedding")


def test_one_row_for_all_edges_is_an_edge_feature_like_any_other() -> None:
    torch.manual_seed(0)
    net: Any = SIRNet.of(5, 8, 2, 2, encoder="linear", edge_encoder="constant").double()
    data = graph()
    x = torch.randn(NODES, 5, dtype=DOUBLE)
    row = net.edge_encoder.embedding.weight
    other = copy.deepcopy(net)
    other.edge_encoder = None
    found = net(x, data["edge_index"])
    torch.testing.assert_close(found, other(x, data["edge_index"], row.expand(30, -1)))
    # The ones that a sparse adjacency stores are no edge features.
    edges = data["edge_index"].unique(dim=1)
    ones = torch.ones(edges.size(1), dtype=DOUBLE)
    adjacency = torch.sparse_coo_tensor(edges.flip(0), ones, (NODES, NODES), check_invariants=True)
    torch.testing.assert_close(net(x, adjacency.coalesce()), net(x, edges))
    with pytest.raises(ValueError, match=r"^edge_attr: all edges share one learned row, expected None"):
        net(x, data["edge_index"], torch.randn(30, 8, dtype=DOUBLE))


# Routes


@pytest.mark.parametrize("conv", ["sir", "gin", "gated_gcn", "gcn"])
def test_the_blocks_of_gnn_plus_compile(conv: str) -> None:
    net, data = small_zinc(conv=conv).eval(), read(conv, graph())
    compiled = torch.compile(net, backend="aot_eager")
    torch.testing.assert_close(compiled(**data), net(**data))


def test_the_blocks_of_gnn_plus_export_to_graphs_of_another_size() -> None:
    net, first, second = small_zinc(aggr="mean").eval(), graph(), graph(1, nodes=17, edges=41)
    nodes, edges = torch.export.Dim("nodes", min=4), torch.export.Dim("edges", min=4)
    sizes = {
        "x": {0: nodes},
        "edge_index": {1: edges},
        "edge_attr": {0: edges},
        "batch": {0: nodes},
        "pe": {0: nodes},
        "edge_pe": {0: edges},
        "batch_size": None,
    }
    exported = torch.export.export(net, (), first | {"batch_size": 2}, dynamic_shapes=sizes).module()
    torch.testing.assert_close(exported(**second, batch_size=2), net(**second, batch_size=2))


@pytest.mark.parametrize("changes", [{"conv_norm": False}, {"feed_forward": 2, "feed_forward_norm": "around"}], ids=str)
def test_shared_rows_change_nothing(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = NetConfig.of(3, 8, 2, 2, encoder="embedding", block="skip", edge_encoder="constant", **changes)
    net = SIRNet(config).double()
    alone = SIRNet(config, share=False).double()
    alone.load_state_dict(net.state_dict())
    x = torch.randint(3, (200, 1))
    ring = torch.stack([torch.arange(200), torch.arange(200).roll(1)])
    found, expected = net(x, ring), alone(x, ring)
    torch.testing.assert_close(found, expected)
    for mine, other in zip(
        torch.autograd.grad(found.square().sum(), list(net.parameters())),
        torch.autograd.grad(expected.square().sum(), list(alone.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-8)


def test_a_virtual_node_and_random_features_stand_in_the_blocks_of_gnn_plus() -> None:
    net = small_zinc(conv="gin", virtual_node=True, random_features=2)
    out = net(**graph())
    out.sum().backward()
    assert out.shape == (2, 1)


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"edge_pe": None}, "^edge_pe: this model expects a random_walk encoding of the edges, got None"),
        ({"edge_pe": torch.zeros(30, 4, dtype=DOUBLE)}, r"^edge_pe: expected shape \[30, 5\], got \[30, 4\]"),
        ({"edge_pe": torch.zeros(29, 5, dtype=DOUBLE)}, r"^edge_pe: expected shape \[30, 5\], got \[29, 5\]"),
        ({"pe": torch.zeros(NODES, 4, dtype=DOUBLE)}, r"^pe: expected shape \[12, 5\], got \[12, 4\]"),
        ({"edge_attr": None}, "^edge_attr: this model adds edge_pe to the encoded edge features, got None"),
    ],
    ids=str,
)
def test_wrong_encodings_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_zinc()(**graph() | change)


def test_an_encoding_that_nobody_reads_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^edge_pe: this model has no encoding of edges, expected None"):
        small_zinc(edge_pe_dim=0)(**graph())


def test_unknown_recipes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"got 'tuned/minesweper'; did you mean tuned/minesweeper\?"):
        preset("tuned/minesweper")
    with pytest.raises(ConfigError, match=r"got 'zinc'"):
        recipe("zinc")
