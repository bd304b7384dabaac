"""GatedGCN and ResGatedGCN: equal to their plain forms and to PyG's layer, and edge features that are passed on."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.export import Dim
from torch_geometric.nn import ResGatedGraphConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

from sirgcn import SIRConv, SIRNet
from sirgcn.bench.twins import MaterialisedGatedGCN, PlainGatedGCN
from sirgcn.nn import from_res_gated, make_conv
from sirgcn.nn.baselines import GatedGCN, ResGatedGCN
from sirgcn.nn.baselines import gated as module
from sirgcn.nn.linear import side_by_side
from sirgcn.ops.rows import Rows
from sirgcn.testing import RICH, Graph, assert_layer_laws, assert_repeats, assert_same, graphs, value_and_gradients

IN, OUT, EDGE, TYPES = 3, 4, 2, 3
FORMS = ("none", "dense", "table")
DOUBLE = torch.float64
NODES, EDGES = RICH.num_targets, len(RICH.edges)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def edges_of(form: str, count: int, width: int = EDGE) -> Any:
    if form == "none":
        return None
    if form == "dense":
        return torch.randn(count, width, dtype=DOUBLE, requires_grad=True)
    return torch.randn(TYPES, width, dtype=DOUBLE, requires_grad=True), torch.randint(TYPES, (count,))


def dense(edge: Any) -> Any:
    return edge[0][edge[1]] if isinstance(edge, tuple) else edge


def wanted(conv: nn.Module, *tensors: Any) -> list[Tensor]:
    given = [t[0] if isinstance(t, tuple) else t for t in tensors if t is not None]
    return [*given, *conv.parameters()]


def twins(kind: type[nn.Module], form: str, **options: Any) -> tuple[Any, Any]:
    """A layer in float64 and its plain form with the same weights."""
    edge_dim = None if form == "none" else EDGE
    fast = GatedGCN(IN, OUT, edge_dim=edge_dim, **options).double()
    plain = PlainGatedGCN(IN, OUT, edge_dim=edge_dim, **options).double()
    plain.load_state_dict(fast.state_dict())
    return fast, plain


# GatedGCN


@given(graph=graphs(bipartite=False), form=st.sampled_from(FORMS), seed=st.integers(0, 99))
def test_gated_gcn_equals_its_plain_form(graph: Graph, form: str, seed: int) -> None:
    torch.manual_seed(seed)
    fast, plain = twins(GatedGCN, form)
    h = torch.randn(graph.num_targets, IN, dtype=DOUBLE, requires_grad=True)
    edge = edges_of(form, len(graph.edges))
    found, expected = (
        value_and_gradients(conv(h, graph.neighbors(), edge), wanted(conv, h, edge)) for conv in (fast, plain)
    )
    assert_same(found, expected, 1e-9)


def test_the_plain_form_draws_the_same_weights() -> None:
    drawn = []
    for kind in (GatedGCN, PlainGatedGCN, MaterialisedGatedGCN):
        torch.manual_seed(3)
        drawn.append(kind(IN, OUT, edge_dim=EDGE).state_dict())
    for other in drawn[1:]:
        assert all(torch.equal(drawn[0][name], other[name]) for name in drawn[0])
        assert list(drawn[0]) == list(other)


@given(graph=graphs(bipartite=False), seed=st.integers(0, 99))
def test_gated_gcn_equals_its_form_with_a_row_of_every_edge(graph: Graph, seed: int) -> None:
    torch.manual_seed(seed)
    fast, plain = GatedGCN(IN, OUT).double(), MaterialisedGatedGCN(IN, OUT).double()
    plain.load_state_dict(fast.state_dict())
    h = torch.randn(graph.num_targets, IN, dtype=DOUBLE, requires_grad=True)
    found, expected = (value_and_gradients(conv(h, graph.neighbors()), wanted(conv, h)) for conv in (fast, plain))
    assert_same(found, expected, 1e-9)


@pytest.mark.parametrize("kind", [GatedGCN, ResGatedGCN])
def test_layers_keep_the_laws(kind: Any) -> None:
    assert_layer_laws(lambda: kind(IN, OUT), IN, examples=10)


@pytest.mark.parametrize("kind", [GatedGCN, ResGatedGCN])
@pytest.mark.parametrize("form", FORMS)
def test_forward_and_backward_repeat_bit_for_bit(kind: Any, form: str) -> None:
    conv = kind(16, 16, edge_dim=None if form == "none" else EDGE)
    h, edge_index = torch.randn(200, 16, requires_grad=True), torch.randint(0, 200, (2, 3000))
    edge = edges_of(form, 3000)
    if edge is not None:
        edge = (edge[0].float(), edge[1]) if form == "table" else edge.float()
    assert_repeats(lambda: value_and_gradients(conv(h, edge_index, edge), wanted(conv, h)))


def test_rows_of_a_table_are_multiplied_once() -> None:
    conv, table, kind = GatedGCN(IN, OUT).double(), torch.randn(3, IN, dtype=DOUBLE), torch.randint(3, (NODES,))
    seen: list[int] = []
    linear = side_by_side

    def spy(linears: Any, rows: Rows) -> Rows:
        seen.append(len(rows.table))
        return linear(linears, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "side_by_side", spy)
        found = conv(Rows(table, kind), RICH.edge_index)
    assert seen == [3]
    assert_same([found], [conv(table[kind], RICH.edge_index)])


def test_a_gate_of_another_kind_is_called() -> None:
    class Half(nn.Module):
        def forward(self, ends: Tensor) -> Tensor:
            value = ends[..., -OUT:]
            return torch.cat([value / 2, torch.full_like(value, 0.5)], dim=-1)

    conv: Any = GatedGCN(IN, OUT).double()
    conv.gate = Half()
    h, (source, target) = torch.randn(NODES, IN, dtype=DOUBLE), RICH.edge_index
    half = torch.zeros(NODES, OUT, dtype=DOUBLE).index_add(0, target, conv.lin_value(h)[source] / 2)
    degree = torch.zeros(NODES, 1, dtype=DOUBLE).index_add(0, target, torch.ones(EDGES, 1, dtype=DOUBLE) / 2)
    assert_same([conv(h, RICH.edge_index)], [conv.lin_self(h) + half / (degree + 1e-6)])


@pytest.mark.parametrize("name", ["lin_self", "lin_query", "lin_key", "lin_value", "lin_edge"])
@pytest.mark.parametrize("kind", ["gated_gcn", "res_gated"])
def test_a_hook_on_a_linear_layer_changes_its_output(kind: str, name: str) -> None:
    conv: Any = make_conv(kind, IN, OUT, edge_dim=EDGE).double()
    h, edge = torch.randn(NODES, IN, dtype=DOUBLE), edges_of("dense", EDGES)
    doubled = copy.deepcopy(conv)
    with torch.no_grad():
        for parameter in doubled.get_submodule(name).parameters():
            parameter.mul_(2)
    conv.get_submodule(name).register_forward_hook(lambda module, given, out: 2 * out)
    assert_same([conv(h, RICH.edge_index, edge)], [doubled(h, RICH.edge_index, edge)])


# ResGatedGCN


def pyg_layer(form: str, **options: Any) -> Any:
    layer: Any = ResGatedGraphConv(IN, OUT, edge_dim=None if form == "none" else EDGE, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("form", FORMS)
@given(
    graph=graphs(bipartite=False),
    act=st.sampled_from([nn.Sigmoid(), nn.Tanh(), nn.GELU()]),
    bias=st.booleans(),
    root=st.booleans(),
    seed=st.integers(0, 99),
)
def test_converted_layer_equals_pyg_s(
    form: str, graph: Graph, act: nn.Module, bias: bool, root: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = pyg_layer(form, act=act, bias=bias, root_weight=root)
    conv: Any = from_res_gated(layer)
    assert type(conv) is (SIRConv if form == "none" else ResGatedGCN)
    h = torch.randn(graph.num_targets, IN, dtype=DOUBLE, requires_grad=True)
    edge, edge_index = edges_of(form, len(graph.edges)), graph.edge_index.long()
    given = [] if edge is None else [dense(edge)]
    leaves = wanted(nn.Module(), h, edge)
    expected = value_and_gradients(layer(h, edge_index, *given), leaves)
    assert_same(value_and_gradients(conv(h, edge_index, edge), leaves), expected, 1e-9)


@pytest.mark.parametrize("form", ["none", "dense"])
def test_gradients_of_the_weights_are_pyg_s(form: str) -> None:
    layer = pyg_layer(form)
    conv: Any = from_res_gated(layer)
    h, edge = torch.randn(NODES, IN, dtype=DOUBLE), edges_of(form, EDGES)
    given = [] if edge is None else [edge]
    layer(h, RICH.edge_index.long(), *given).square().sum().backward()
    conv(h, RICH.edge_index, edge).square().sum().backward()

    def grads(*tensors: Any) -> list[Tensor]:
        return [tensor.grad for tensor in tensors]

    assert_same(
        grads(conv.lin_query.bias, conv.lin_value.bias, conv.lin_query.weight, conv.lin_key.weight),
        [
            layer.lin_key.bias.grad,
            layer.lin_value.bias.grad,
            layer.lin_key.weight.grad[:, :IN],
            layer.lin_query.weight.grad[:, :IN],
        ],
        1e-9,
    )
    if form == "dense":
        of_gate, of_value = conv.lin_edge.weight.grad.chunk(2)
        assert_same(
            [of_gate, of_value, *grads(conv.lin_self.weight, conv.lin_self.bias)],
            [
                layer.lin_key.weight.grad[:, IN:],
                layer.lin_value.weight.grad[:, IN:],
                *grads(layer.lin_skip.weight, layer.bias),
            ],
            1e-9,
        )


def test_res_gated_without_edge_features_is_pyg_s_layer() -> None:
    conv, layer = ResGatedGCN(IN, OUT).double(), pyg_layer("none")
    with torch.no_grad():
        conv.lin_self.weight.copy_(layer.lin_skip.weight)
        conv.lin_self.bias.copy_(layer.bias)
        conv.lin_query.weight.copy_(layer.lin_key.weight)
        conv.lin_query.bias.copy_(layer.lin_key.bias + layer.lin_query.bias)
        conv.lin_key.weight.copy_(layer.lin_query.weight)
        conv.lin_value.load_state_dict(layer.lin_value.state_dict())
    h = torch.randn(NODES, IN, dtype=DOUBLE, requires_grad=True)
    found, expected = (value_and_gradients(f(h, RICH.edge_index.long()), [h]) for f in (conv, layer))
    assert_same(found, expected)


def test_converted_layer_takes_two_sets_of_nodes_means_and_the_other_flow() -> None:
    layer = ResGatedGraphConv((IN, 5), OUT, aggr="mean").double()
    ends = torch.randn(9, IN, dtype=DOUBLE), torch.randn(NODES, 5, dtype=DOUBLE)
    assert_same([from_res_gated(layer)(ends, RICH.edge_index)], [layer(ends, RICH.edge_index.long())])
    h = torch.randn(NODES, IN, dtype=DOUBLE)
    other = ResGatedGraphConv(IN, OUT, flow="target_to_source").double()
    assert_same([from_res_gated(other)(h, RICH.edge_index.long())], [other(h, RICH.edge_index.long())])


def test_conversion_copies_weights_and_keeps_dtype_and_mode() -> None:
    for form in ("none", "dense"):
        layer = pyg_layer(form).float().eval()
        state = torch.get_rng_state()
        conv: Any = from_res_gated(layer)
        assert torch.equal(torch.get_rng_state(), state)
        assert not conv.training
        assert {parameter.dtype for parameter in conv.parameters()} == {torch.float32}
        assert all(parameter.requires_grad and not parameter.is_meta for parameter in conv.parameters())
        theirs = {parameter.data_ptr() for parameter in layer.parameters()}
        assert not theirs & {parameter.data_ptr() for parameter in conv.parameters()}


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SAGEConv(IN, OUT), r"^conv: expected PyG's ResGatedGraphConv itself, got SAGEConv"),
        (lambda: ResGatedGraphConv(-1, OUT), r"^conv: expected an initialised layer"),
        (lambda: ResGatedGraphConv(IN, OUT, act=torch.sin), r"^act: expected a module that the table"),
        (lambda: ResGatedGraphConv(IN, OUT, act=nn.PReLU()), r"^act: expected a module that the table"),
        (lambda: ResGatedGraphConv(IN, OUT, aggr="max"), r"^aggr: expected a ResGatedGraphConv with sum, mean"),
        (lambda: ResGatedGraphConv(IN, OUT, aggr="mean", edge_dim=2), r"^aggr: expected a ResGatedGraphConv with sum"),
        (lambda: ResGatedGraphConv((IN, 5), OUT, edge_dim=2), r"^conv: expected with edge_dim one set of nodes"),
    ],
)
def test_layers_without_an_equal_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        from_res_gated(make())


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state:UserWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled:UserWarning")
def test_converted_layer_refuses_values_that_pyg_s_layer_ignores() -> None:
    adjacency = to_torch_csr_tensor(RICH.edge_index.flip(0).long(), torch.full((EDGES,), 2.0), (NODES, NODES))
    with pytest.raises(ValueError, match=r"^edge_index: expected a sparse adjacency with values 1 only"):
        from_res_gated(pyg_layer("none"))(torch.randn(NODES, IN, dtype=DOUBLE), adjacency)


# Exported


@pytest.mark.parametrize("form", ["none", "dense"])
@pytest.mark.parametrize("name", ["gated_gcn", "res_gated", "sir"])
def test_exported_network_equals_the_eager_one_on_a_graph_of_another_size(name: str, form: str) -> None:
    options: dict[str, Any] = {"gated": True} if name == "sir" else {}
    edges: dict[str, Any] = {} if form == "none" else {"edge_channels": EDGE, "edge_encoder": "linear"}
    passes = {"passes_edges": True} if (name, form) == ("gated_gcn", "dense") else {}
    net = SIRNet.of(IN, 8, 2, 2, conv=name, conv_options={**options, **passes}, **edges).eval()
    given: list[Tensor] = [torch.randn(NODES, IN), RICH.edge_index.long()]
    other: list[Tensor] = [torch.randn(30, IN), torch.randint(0, 30, (2, 77))]
    nodes, count = Dim("nodes", min=2), Dim("edges", min=2)
    shapes: dict[str, Any] = {"x": {0: nodes}, "edge_index": {1: count}}
    if form == "dense":
        given.append(torch.randn(EDGES, EDGE))
        other.append(torch.randn(77, EDGE))
        shapes["edge_attr"] = {0: count}
    program = torch.export.export(net, tuple(given), dynamic_shapes=shapes)
    assert not any("sirgcn" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*other), net(*other))


# Edge features that are passed on


def passing() -> Any:
    return GatedGCN(IN, OUT, edge_dim=EDGE, passes_edges=True).double()


@given(graph=graphs(bipartite=False), form=st.sampled_from(FORMS[1:]), seed=st.integers(0, 99))
def test_passed_edges_are_the_gates_before_the_sigmoid(graph: Graph, form: str, seed: int) -> None:
    torch.manual_seed(seed)
    conv = passing()
    h = torch.randn(graph.num_targets, IN, dtype=DOUBLE, requires_grad=True)
    edge = edges_of(form, len(graph.edges))
    rows = dense(edge)
    z = [
        conv.lin_query(h[u]) + conv.lin_key(h[v]) + conv.lin_edge(rows[place])
        for place, (v, u) in enumerate(graph.edges)
    ]
    expected_z = torch.stack(z) if z else h.new_zeros(0, OUT)
    out = []
    for u in range(graph.num_targets):
        near = [(torch.sigmoid(z[place]), v) for place, (v, end) in enumerate(graph.edges) if end == u]
        total = sum((gate for gate, _ in near), start=h.new_zeros(OUT)) + 1e-6
        value = sum((gate * conv.lin_value(h[v]) for gate, v in near), start=h.new_zeros(OUT))
        out.append(conv.lin_self(h[u]) + value / total)
    expected = torch.stack(out) if out else h.new_zeros(0, OUT) + 0 * h.sum()
    leaves = wanted(conv, h, edge)
    found, found_z = conv(h, graph.edge_index, edge)
    weights = torch.randn(OUT, dtype=DOUBLE)
    assert_same([found, found_z], [expected, expected_z], 1e-9)
    mixed, expected_mix = (a.sum(0) + (b * weights).sum(0) for a, b in ((found, found_z), (expected, expected_z)))
    assert_same(value_and_gradients(mixed, leaves), value_and_gradients(expected_mix, leaves), 1e-9)


def test_a_layer_that_passes_edges_has_a_bias_on_every_term() -> None:
    conv = passing()
    assert all(getattr(conv, f"lin_{name}").bias is not None for name in ("self", "query", "key", "value", "edge"))
    without = GatedGCN(IN, OUT, edge_dim=EDGE)
    assert without.lin_key.bias is None
    assert without.lin_edge is not None
    assert without.lin_edge.bias is None
    with pytest.raises(ValueError, match=r"^passes_edges: expected False for a layer without edge features, got True"):
        GatedGCN(IN, OUT, passes_edges=True)


BLOCKS = ["residual", "skip", "pre_norm", "transformer"]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("encoder", ["linear", "embedding", "constant"])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_hands_the_updated_edges_to_the_next(block: str, encoder: str, training: bool) -> None:
    channels = {"linear": EDGE, "embedding": TYPES, "constant": None}[encoder]
    net: Any = SIRNet.of(
        IN, 8, 2, 3, encoder="linear", conv="gated_gcn", conv_options={"passes_edges": True}, block=block,
        edge_encoder=encoder, edge_channels=channels, act="gelu",
    ).double().train(training)  # fmt: skip
    x = torch.randn(NODES, IN, dtype=DOUBLE)
    raw = {
        "linear": torch.randn(EDGES, EDGE, dtype=DOUBLE),
        "embedding": torch.randint(TYPES, (EDGES,)),
        "constant": None,
    }[encoder]
    by_hand = copy.deepcopy(net)
    e = by_hand.edge_encoder.embedding.weight.expand(EDGES, -1) if raw is None else by_hand.edge_encoder(raw)
    h = by_hand.encoder(x)
    for one in by_hand.blocks:
        out, z = one.conv(one.norm(h) if block in ("pre_norm", "transformer") else h, RICH.edge_index, e)
        e = e + nn.functional.gelu(one.edge_norm(z))
        if block == "residual":
            h = nn.functional.gelu(one.norm(out + one.residual(h)))
        elif block == "skip":
            h = h + nn.functional.gelu(one.norm(out))
        else:
            h = h + (one.lin(nn.functional.gelu(out)) if block == "pre_norm" else out)
    expected = by_hand.readout(by_hand.last_norm(h))
    assert_same([net(x, RICH.edge_index, raw)], [expected], 1e-9)
    if training:
        net(x, RICH.edge_index, raw).square().sum().backward()
        last = dict(net.blocks[-1].edge_norm.named_parameters())
        for name, parameter in net.named_parameters():
            # Nobody reads the edges that the last block passes on.
            is_unread = any(parameter is other for other in last.values())
            assert (parameter.grad is None) == is_unread, name


def test_a_network_that_passes_edges_repeats_and_is_compiled() -> None:
    net: Any = SIRNet.of(
        IN, 8, 2, 3, conv="gated_gcn", conv_options={"passes_edges": True}, block="skip", encoder="linear",
        edge_encoder="linear", edge_channels=EDGE, norm="layer",
    )  # fmt: skip
    x, edge = torch.randn(NODES, IN), torch.randn(EDGES, EDGE)
    leaves = [parameter for name, parameter in net.named_parameters() if "blocks.2.edge_norm" not in name]
    assert_repeats(lambda: value_and_gradients(net(x, RICH.edge_index, edge), leaves))
    torch._dynamo.reset()
    compiled: Any = torch.compile(net.double(), backend="aot_eager", fullgraph=True)
    x, edge = x.double(), edge.double()
    found, expected = compiled(x, RICH.edge_index.long(), edge), net(x, RICH.edge_index, edge)
    assert_same(value_and_gradients(found, leaves), value_and_gradients(expected, leaves), 1e-9)


def test_a_network_that_passes_edges_keeps_its_gradients_when_it_is_exported() -> None:
    net: Any = SIRNet.of(
        IN, 8, 2, 2, conv="gated_gcn", conv_options={"passes_edges": True}, encoder="linear",
        edge_encoder="linear", edge_channels=EDGE, norm="layer",
    ).double()  # fmt: skip
    given = torch.randn(NODES, IN, dtype=DOUBLE), RICH.edge_index.long(), torch.randn(EDGES, EDGE, dtype=DOUBLE)
    exported = torch.export.export(net, given).module()
    names = [name for name, _ in net.named_parameters() if "blocks.1.edge_norm" not in name]
    found, expected = (
        value_and_gradients(form(*given), [dict(form.named_parameters())[name] for name in names])
        for form in (exported, net)
    )
    assert_same(found, expected, 1e-9)


# GNN+ (Luo et al., ICML 2025): the parameters of GatedGCN+ in its published settings


def walks(steps: int, channels: int) -> dict[str, Any]:
    """Random-walk encodings beside the features and on the edges."""
    beside = {"positional": "random_walk", "pe_dim": steps, "pe_channels": channels, "pe_norm": True}
    return {**beside, "edge_pe_dim": steps}


FEED_FORWARD = {"feed_forward": 2, "feed_forward_norm": "around"}
NODE_HEAD: dict[str, Any] = {"encoder": "linear", "edge_encoder": "constant", "readout_layers": 3, **FEED_FORWARD}
IMAGES: dict[str, Any] = {
    "encoder": "linear", "edge_encoder": "linear", "edge_channels": 1, "pool": "mean", **FEED_FORWARD,
}  # fmt: skip
PLUS: dict[str, tuple[tuple[Any, int, int, int], dict[str, Any], int]] = {
    "ZINC": (
        (21, 70, 1, 9),
        {
            "encoder": "embedding", "edge_encoder": "embedding", "edge_channels": 4, "pool": "sum",
            "readout_layers": 0, "head_channels": (35, 17), "head_norm": None, **FEED_FORWARD, **walks(20, 28),
        },
        413_355,
    ),
    "PATTERN": ((3, 64, 1, 12), {**NODE_HEAD, **walks(32, 16)}, 466_001),
    "CLUSTER": ((7, 56, 6, 16), {**NODE_HEAD, **walks(20, 16)}, 474_574),
    "molhiv": (
        (None, 256, 1, 3),
        {
            "encoder": "atom", "edge_encoder": "bond", "pool": "mean", "readout_layers": 0,
            "head_channels": (128, 64), "head_norm": None, **walks(20, 16), "edge_pe_dim": 0,
        },
        1_076_633,
    ),
    "MNIST": ((3, 35, 10, 10), {**IMAGES, "readout_layers": 0, "head_channels": (35, 35), "head_norm": None}, 118_940),
    "CIFAR10": ((5, 35, 10, 10), IMAGES, 116_490),
}  # fmt: skip


@pytest.mark.parametrize("name", PLUS)
def test_gated_gcn_plus_has_the_published_number_of_parameters(name: str) -> None:
    widths, options, published = PLUS[name]
    with torch.device("meta"):
        net = SIRNet.of(*widths, conv="gated_gcn", conv_options={"passes_edges": True}, block="skip", **options)
    assert sum(parameter.numel() for parameter in net.parameters()) == published
