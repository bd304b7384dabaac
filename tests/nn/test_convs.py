"""The table of convolutions: each is its formula, on any graph, and stands in every block of `SIRNet`."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data
from torch_geometric.utils import add_remaining_self_loops, to_undirected

from sirgcn import SIRNet, preset
from sirgcn.data import dictionary_lookup, hetero_edge_count
from sirgcn.nn import (
    CONVS,
    PRESETS,
    build_net,
    dictionary_lookup_preset,
    hetero_edge_count_preset,
    make_conv,
    width_for_budget,
)
from sirgcn.nn.baselines import SAGE, GATv2
from sirgcn.ops.rows import Rows
from sirgcn.testing import EDGE_CASES, RICH, Graph, assert_repeats, assert_same, graphs, scale, value_and_gradients

WIDTH = 8
SYNTHETIC = ("sir", "gcn", "sage_pool", "gatv2", "gin", "pna")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def made(name: str, **options: Any) -> Any:
    """A layer in float64 and evaluation mode, with biases and norms that are not 0 and 1."""
    conv = make_conv(name, WIDTH, WIDTH, **options).double().eval()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for buffer in conv.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    return conv


def features(graph: Graph) -> Tensor:
    return torch.randn(graph.num_targets, WIDTH, dtype=torch.float64, requires_grad=True)


# The formulas, one node at a time: h, the layer, u, the neighbours of u, the graph.
Formula = Callable[[Tensor, Any, int, list[int], Graph], Tensor]


def total(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    return sum(rows, start=torch.zeros_like(like))


def spread(rows: Sequence[Tensor], eps: float) -> Tensor:
    mean = sum(rows, start=torch.zeros_like(rows[0])) / len(rows)
    squares = [(row - mean) ** 2 for row in rows]
    return (sum(squares, start=torch.zeros_like(mean)) / len(rows) + eps).sqrt()


def largest(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(list(rows)).max(0).values if rows else torch.zeros_like(like)


def attention(scores: list[Tensor], values: list[Tensor], like: Tensor) -> Tensor:
    """One head: the softmax of its scores, written out."""
    if not scores:
        return torch.zeros_like(like)
    weights = torch.stack(scores).softmax(0)
    return total([w * v for w, v in zip(weights, values, strict=True)], like)


def by_heads(conv: Any, one: Callable[[int, slice], Tensor]) -> Tensor:
    size = WIDTH // conv.heads
    return torch.cat([one(i, slice(i * size, (i + 1) * size)) for i in range(conv.heads)])


def sir(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    messages = [conv.activation(conv.lin_query(h[u]) + conv.lin_key(h[v])) for v in near]
    return conv.lin_relation(total(messages, h[u]))


def gcn(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    return total([scale(graph, "sym", v, u) * conv.lin(h[v]) for v in near], h[u]) + conv.bias


def sage(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    return conv.lin_self(h[u]) + conv.lin_neighbors(total([h[v] for v in near], h[u]) / max(1, len(near)))


def sage_pool(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    pooled = largest([F.relu(conv.lin_pool(h[v])) for v in near], h[u])
    return conv.lin_self(h[u]) + conv.lin_neighbors(pooled)


def gat(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    def head(i: int, part: slice) -> Tensor:
        value = [conv.lin(h[v])[part] for v in near]
        target = (conv.lin(h[u])[part] * conv.score_target[0, i]).sum()
        scores = [F.leaky_relu(target + (row * conv.score_source[0, i]).sum(), 0.2) for row in value]
        return attention(scores, value, h[u, part])

    return by_heads(conv, head) + conv.bias


def gatv2(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    def head(i: int, part: slice) -> Tensor:
        value = [conv.lin_key(h[v])[part] for v in near]
        query = (conv.lin_key if conv.lin_query is None else conv.lin_query)(h[u])[part]
        scores = [(F.leaky_relu(query + row, 0.2) * conv.score[0, i]).sum() for row in value]
        return attention(scores, value, h[u, part])

    return by_heads(conv, head)


def gin(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    out = h[u] + total([h[v] for v in near], h[u])
    for linear in list(conv.mlp)[::2]:
        out = F.relu(linear(out))
    return out


def pna(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    messages = [conv.lin_message(torch.cat([h[v], h[u]])) for v in near]
    zero = torch.zeros_like(h[u])
    found = {
        "sum": total(messages, zero),
        "mean": total(messages, zero) / max(1, len(near)),
        "max": largest(messages, zero),
        "min": -largest([-message for message in messages], zero),
        "std": spread(messages, 1e-10) if near else zero,
    }
    row = torch.cat([found[name] for name in conv.aggregators])
    factor = math.log(max(1, len(near)) + 1) / conv.delta
    scalers = {"identity": 1.0, "amplification": factor, "attenuation": 1 / factor}
    row = conv.lin_update(torch.cat([h[u], *(scalers[name] * row for name in conv.scalers)]))
    row = row * math.sqrt(1 / graph.num_targets)
    norm = conv.norm
    row = (row - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    return F.leaky_relu(conv.lin_mix(row), 0.01)


def egc(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    bases = {v: conv.lin_bases(h[v]).view(conv.bases, -1) for v in {*near, u}}
    rows, zero = [bases[v] for v in near], torch.zeros_like(bases[u])
    found = {
        "sum": lambda: total(rows, zero),
        "mean": lambda: total(rows, zero) / max(1, len(near)),
        "sym_in": lambda: total([scale(graph, "sym_in", v, u) * bases[v] for v in near], zero),
        "max": lambda: largest(rows, zero),
        "std": lambda: spread(rows, 1e-5) if near else zero + math.sqrt(1e-5),
    }
    weights = conv.lin_weights(h[u]).view(conv.heads, len(conv.aggregators), conv.bases)
    rows = [found[name]() for name in conv.aggregators]
    pairs = [(a, b) for a in range(len(rows)) for b in range(conv.bases)]
    heads = [total([weights[i, a, b] * rows[a][b] for a, b in pairs], zero[0]) for i in range(conv.heads)]
    return torch.cat(heads) + conv.bias


def gated_gcn(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    eta = [torch.sigmoid(conv.lin_query(h[u]) + conv.lin_key(h[v])) for v in near]
    value = total([e * conv.lin_value(h[v]) for e, v in zip(eta, near, strict=True)], h[u])
    return conv.lin_self(h[u]) + value / (total(eta, h[u]) + 1e-6)


def res_gated(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    gates = [torch.sigmoid(conv.lin_query(h[u]) + conv.lin_key(h[v])) for v in near]
    return conv.lin_self(h[u]) + total([g * conv.lin_value(h[v]) for g, v in zip(gates, near, strict=True)], h[u])


def transformer(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    def head(i: int, part: slice) -> Tensor:
        query = conv.lin_query(h[u])[part]
        scores = [query @ conv.lin_key(h[v])[part] / math.sqrt(len(query)) for v in near]
        return attention(scores, [conv.lin_value(h[v])[part] for v in near], h[u, part])

    return conv.lin_out(by_heads(conv, head))


def fagcn(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    gates = [torch.tanh(conv.gate_target(h[u]) + conv.gate_source(h[v])) for v in near]
    messages = [scale(graph, "sym_in", v, u) * gate * h[v] for gate, v in zip(gates, near, strict=True)]
    return conv.eps * h[u] + total(messages, h[u])


def mlp(h: Tensor, conv: Any, u: int, near: list[int], graph: Graph) -> Tensor:
    return conv.lin.weight @ h[u] + conv.lin.bias


FORMULAS: dict[str, Formula] = {
    "sir": sir, "gcn": gcn, "sage": sage, "sage_pool": sage_pool, "gat": gat, "gatv2": gatv2, "gin": gin, "pna": pna,
    "egc_s": egc, "egc_m": egc, "gated_gcn": gated_gcn, "res_gated": res_gated,
    "transformer": transformer, "fagcn": fagcn, "mlp": mlp,
}  # fmt: skip


def by_formula(conv: Any, h: Tensor, graph: Graph, formula: Formula) -> Tensor:
    near: list[list[int]] = [[] for _ in range(graph.num_targets)]
    for v, u in graph.edges:
        near[u].append(v)
    rows = [formula(h, conv, u, near[u], graph) for u in range(graph.num_targets)]
    return torch.stack(rows) if rows else h.new_zeros(0, WIDTH) + 0 * h.sum()


def assert_is_formula(conv: Any, graph: Graph, formula: Formula) -> None:
    """Values, and the gradients of the features and of all parameters."""
    h = features(graph)
    leaves = [h, *conv.parameters()]
    expected = value_and_gradients(by_formula(conv, h, graph, formula), leaves)
    # Near a constant neighbourhood the derivative of the root is large.
    assert_same(value_and_gradients(conv(h, graph.neighbors()), leaves), expected, 1e-9)
    assert_same([conv(h, graph.edge_index)], expected[:1], 1e-9)


def test_every_convolution_has_its_formula_here() -> None:
    assert list(FORMULAS) == list(CONVS)
    for name, conv in CONVS.items():
        assert conv.name == name
        assert all((conv.title, conv.reference, conv.formula, conv.complexity.startswith("O(")))


@pytest.mark.parametrize("name", CONVS)
@given(graph=graphs(bipartite=False))
def test_convolution_is_its_formula_on_any_graph(name: str, graph: Graph) -> None:
    torch.manual_seed(0)
    assert_is_formula(made(name), graph, FORMULAS[name])


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("gat", {"heads": 2}),
    ("gatv2", {"heads": 4, "share_weights": False}),
    ("gin", {"mlp_layers": 1}),
    ("gin", {"mlp_layers": 3}),
    (
        "pna",
        {
            "aggregators": ("mean", "max", "min", "std"),
            "scalers": ("identity", "amplification", "attenuation"),
            "delta": 1.3,
        },
    ),
    ("egc_m", {"aggregators": ("sym_in", "std", "max"), "heads": 2, "bases": 3}),
    ("egc_m", {"aggregators": ("sum", "mean", "max")}),
    ("fagcn", {"eps": 0.7}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_those_of_the_formula(name: str, options: dict[str, Any]) -> None:
    conv = made(name, **options)
    assert set(options) <= set(CONVS[name].options)
    for graph in (RICH, EDGE_CASES["isolated nodes"], EDGE_CASES["no edges"]):
        assert_is_formula(conv, graph, FORMULAS[name])


@pytest.mark.parametrize("form", ["dense", "table"])
def test_edge_features_enter_the_gates(form: str) -> None:
    conv = made("gated_gcn", edge_dim=3)
    table, kind = torch.randn(4, 3, dtype=torch.float64), torch.randint(0, 4, (len(RICH.edges),))
    edge = table[kind] if form == "dense" else (table, kind)
    h = features(RICH)
    num, den = torch.zeros(7, WIDTH, dtype=torch.float64), torch.zeros(7, WIDTH, dtype=torch.float64)
    for (v, u), e in zip(RICH.edges, table[kind], strict=True):
        eta = torch.sigmoid(conv.lin_query(h[u]) + conv.lin_key(h[v]) + conv.lin_edge(e))
        num[u] = num[u] + eta * conv.lin_value(h[v])
        den[u] = den[u] + eta
    assert_same([conv(h, RICH.neighbors(), edge)], [conv.lin_self(h) + num / (den + 1e-6)])


def test_pooling_sage_is_drawn_as_by_dgl_and_the_mean_as_by_torch() -> None:
    width = 300
    for aggr, bound in (("pool", math.sqrt(6 / width)), ("mean", 1 / math.sqrt(width))):
        conv = SAGE(width, width, aggr=aggr)
        conv.reset_parameters()
        for lin in (conv.lin_pool, conv.lin_neighbors, conv.lin_self):
            if lin is not None:
                # 90,000 draws from (-bound, bound): the largest is almost the bound.
                assert 0.999 * bound < lin.weight.abs().max().item() <= 1.000001 * bound


def test_gatv2_is_drawn_as_by_dgl_where_its_weights_are_shared_and_else_as_by_pyg() -> None:
    width = 300
    for shares, kurtosis, variance in ((True, 3.0, 2 / width), (False, 1.8, 1 / width)):
        conv = GATv2(width, width, share_weights=shares)
        conv.reset_parameters()
        for lin in (conv.lin_key, conv.lin_query):
            if lin is not None:
                # 90,000 draws of a normal and of a uniform distribution, whose fourth moments tell them apart.
                assert lin.weight.pow(2).mean().item() == pytest.approx(variance, rel=0.03)
                assert lin.weight.pow(4).mean().item() == pytest.approx(kurtosis * variance**2, rel=0.1)
                assert not lin.bias.any()
        assert conv.score.pow(2).mean().item() == pytest.approx(2 / width, rel=0.5)


def test_edge_weights_scale_the_messages_of_gcn() -> None:
    conv, h = made("gcn"), features(RICH)
    weight = torch.rand(len(RICH.edges), dtype=torch.float64)
    out = torch.zeros(7, WIDTH, dtype=torch.float64)
    for (v, u), w in zip(RICH.edges, weight, strict=True):
        out[u] = out[u] + w * scale(RICH, "sym", v, u) * conv.lin(h[v])
    assert_same([conv(h, RICH.neighbors(), None, weight)], [out + conv.bias])


# PyG's layers, where they are the same function: the layer, and our names of its weights.

PYG: dict[str, tuple[Callable[[], nn.Module], dict[str, str]]] = {
    "gcn": (
        lambda: pyg.GCNConv(WIDTH, WIDTH, add_self_loops=False),
        {"lin.weight": "lin.weight", "bias": "bias"},
    ),
    "sage": (
        lambda: pyg.SAGEConv(WIDTH, WIDTH),
        {
            "lin_l.weight": "lin_neighbors.weight",
            "lin_l.bias": "lin_self.bias",
            "lin_r.weight": "lin_self.weight",
        },
    ),
    "sage_pool": (
        lambda: pyg.SAGEConv(WIDTH, WIDTH, aggr="max", project=True),
        {
            "lin.weight": "lin_pool.weight",
            "lin.bias": "lin_pool.bias",
            "lin_l.weight": "lin_neighbors.weight",
            "lin_l.bias": "lin_self.bias",
            "lin_r.weight": "lin_self.weight",
        },
    ),
    "gat": (
        lambda: pyg.GATConv(WIDTH, 1, WIDTH, add_self_loops=False),
        {"lin.weight": "lin.weight", "att_src": "score_source", "att_dst": "score_target", "bias": "bias"},
    ),
    "gatv2": (
        lambda: pyg.GATv2Conv(WIDTH, WIDTH, share_weights=True, add_self_loops=False),
        {"lin_l.weight": "lin_key.weight", "lin_l.bias": "lin_key.bias", "att": "score"},
    ),
    "egc_s": (
        lambda: pyg.EGConv(WIDTH, WIDTH, add_self_loops=False),
        {
            "bases_lin.weight": "lin_bases.weight",
            "comb_lin.weight": "lin_weights.weight",
            "comb_lin.bias": "lin_weights.bias",
            "bias": "bias",
        },
    ),
}


@pytest.mark.parametrize("name", PYG)
def test_convolution_equals_pyg_s_layer_without_self_loops(name: str) -> None:
    conv = made(name)
    layer, names = PYG[name][0](), PYG[name][1]
    ours = conv.state_dict()
    # PyG's GATv2 has a bias at the end, which starts as 0; DGL's has none.
    layer.double().load_state_dict({theirs: ours[own] for theirs, own in names.items()}, strict=False)
    edge_index = to_undirected(RICH.edge_index)
    h = features(RICH)
    assert_same([conv(h, edge_index)], [layer(h, edge_index)])


# What any graph network keeps


@pytest.mark.parametrize("name", CONVS)
@given(graph=graphs(bipartite=False), seed=st.integers(0, 99))
def test_convolution_follows_the_names_of_the_nodes(name: str, graph: Graph, seed: int) -> None:
    torch.manual_seed(seed)
    conv, h = made(name), features(graph)
    order = torch.randperm(graph.num_targets)
    # Node order[i] of the old graph is node i of the new one; the edges come in another order too.
    place = order.argsort()
    edges = place[graph.edge_index.long()][:, torch.randperm(len(graph.edges))]
    assert_same([conv(h[order], edges)], [conv(h, graph.edge_index)[order]], 1e-9)


@pytest.mark.parametrize("name", CONVS)
def test_convolution_repeats_bit_for_bit(name: str) -> None:
    conv = make_conv(name, 16, 16)
    h = torch.randn(200, 16, requires_grad=True)
    edge_index = torch.randint(0, 200, (2, 3000))
    assert_repeats(lambda: value_and_gradients(conv(h, edge_index), [h, *conv.parameters()]))


@pytest.mark.parametrize("name", CONVS)
def test_rows_of_a_table_give_what_they_stand_for(name: str) -> None:
    conv = made(name)
    assert conv.can_take_rows == (name not in ("gin", "fagcn"))
    table, edge_index = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True), torch.randint(20, (2, 60))
    kind = torch.randint(3, (20,))
    found, expected = (
        value_and_gradients(conv(h, edge_index), [table, *conv.parameters()]) for h in (Rows(table, kind), table[kind])
    )
    assert_same(found, expected)


def test_rows_that_dropout_makes_differ_are_not_taken_from_a_table() -> None:
    conv: Any = make_conv("gcn", WIDTH, WIDTH, dropout=0.5)
    assert conv.eval().can_take_rows
    assert not conv.train().can_take_rows
    rows, edge_index = Rows(torch.randn(3, WIDTH), torch.randint(3, (20,))), torch.randint(20, (2, 60))
    assert not torch.equal(conv(rows, edge_index), conv(rows, edge_index))


@pytest.mark.parametrize("name", ["sir", "gcn", "gatv2"])
def test_gradient_of_a_table_in_half_precision_counts_all_nodes(name: str) -> None:
    conv: Any = make_conv(name, WIDTH, WIDTH)
    table, kind = torch.randn(2, WIDTH), torch.randint(2, (20_000,))
    edge_index = torch.stack([torch.randint(20_000, (20_000,)), torch.arange(20_000)])

    def gradients(enabled: bool) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = conv(Rows(table, kind), edge_index)
        return list(torch.autograd.grad(out.float().sum(), list(conv.parameters())))

    for half, whole in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(half, whole, rtol=0.05, atol=0.02 * float(whole.abs().max()))


@pytest.mark.parametrize("name", CONVS)
def test_convolution_runs_in_inference_mode_with_frozen_weights_and_compiled(name: str) -> None:
    conv, h = made(name), features(RICH).detach()
    with torch.inference_mode():
        inferred = conv(h, RICH.edge_index).clone()
    torch._dynamo.reset()  # every layer is another form of the same function, of which only some are kept
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    x = h.clone().requires_grad_()
    found, exact = (
        value_and_gradients(layer(x, RICH.neighbors()), [x, *conv.parameters()]) for layer in (compiled, conv)
    )
    assert_same(found, exact, 1e-9)
    assert_same([inferred], exact[:1])
    conv.requires_grad_(False)
    assert_same(value_and_gradients(conv(x, RICH.edge_index), [x]), exact[:2])


@pytest.mark.parametrize("name", CONVS)
def test_convolution_can_be_checkpointed(name: str) -> None:
    conv, h = made(name), features(RICH)
    found = checkpoint(conv, h, RICH.edge_index, use_reentrant=False)
    assert isinstance(found, Tensor)
    exact = value_and_gradients(conv(h, RICH.edge_index), [h])
    assert_same(value_and_gradients(found, [h]), exact)


def test_transform_of_torch_func_is_refused() -> None:
    conv = made("sage_pool")
    with pytest.raises(RuntimeError, match=r"^SAGE: torch.func transforms and forward-mode derivatives are not supp"):
        torch.func.grad(lambda h: conv(h, RICH.edge_index).sum())(features(RICH).detach())


@pytest.mark.parametrize("name", CONVS)
def test_reset_draws_the_parameters_anew(name: str) -> None:
    conv: Any = make_conv(name, WIDTH, WIDTH)
    before = copy.deepcopy(conv.state_dict())
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.fill_(9)
    conv.reset_parameters()
    for key, value in conv.state_dict().items():
        assert value.shape == before[key].shape
        assert not (value == 9).any()


@pytest.mark.parametrize("name", CONVS)
def test_dropout_acts_in_training_only(name: str) -> None:
    conv, h = make_conv(name, WIDTH, WIDTH, dropout=0.5), torch.randn(7, WIDTH)
    assert not torch.equal(conv(h, RICH.edge_index), conv(h, RICH.edge_index))
    conv.eval()
    assert torch.equal(conv(h, RICH.edge_index), conv(h, RICH.edge_index))


# In the skeleton


def learns(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """The output of a training step that reaches every parameter with a finite gradient."""
    out: Tensor = model.train()(*args, **kwargs)
    out.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    return out


@pytest.mark.parametrize("block", ["residual", "skip", "pre_norm", "transformer"])
@pytest.mark.parametrize("name", CONVS)
def test_every_convolution_learns_in_every_block(name: str, block: str) -> None:
    model = SIRNet.of(5, 16, 3, 2, encoder="linear", conv=name, block=block, dropout=0.1, conv_dropout=0.1)
    assert learns(model, torch.randn(7, 5), RICH.edge_index).shape == (7, 3)


@pytest.mark.parametrize("name", CONVS)
def test_a_batch_gives_what_its_graphs_give_one_at_a_time(name: str) -> None:
    # The last graph is empty and so is the neighbourhood of most nodes before it.
    sizes = ((4, 6), (1, 0), (5, 9), (3, 1), (2, 0))
    drawn = [Data(x=torch.randn(n, 5), edge_index=torch.randint(0, n, (2, e))) for n, e in sizes]
    model: Any = SIRNet.of(5, 16, 3, 2, encoder="linear", conv=name, pool="sum", norm="layer")
    data = Batch.from_data_list(drawn)
    learns(model, data.x, data.edge_index, batch=data.batch)
    model.eval()
    together = model(data.x, data.edge_index, batch=data.batch, batch_size=5)
    alone = torch.cat([model(one.x, one.edge_index) for one in drawn])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    nothing = model(torch.zeros(0, 5), torch.zeros(2, 0, dtype=torch.int64), batch=data.batch[:0], batch_size=2)
    assert nothing.eq(0).all()


def test_self_loops_are_added_once_where_they_lack() -> None:
    x, looped = torch.randn(7, 5), add_remaining_self_loops(RICH.edge_index, num_nodes=7)[0]
    for name in CONVS:
        model: Any = SIRNet.of(5, 16, 3, 2, encoder="linear", conv=name, self_loops=True).eval()
        torch.manual_seed(1)
        expected = copy.deepcopy(model)
        expected.self_loops = False
        torch.testing.assert_close(model(x, RICH.edge_index), expected(x, looped))
        torch.testing.assert_close(model(x, RICH.neighbors()), model(x, looped))
        assert SIRNet.of(5, 16, 3, 2, encoder="linear", conv=name).self_loops == name.startswith("egc")


def test_fagcn_s_own_network_is_a_configuration() -> None:
    model: Any = SIRNet.of(
        5, 16, 3, 3, encoder="linear", encoder_act="relu", conv="fagcn", residual=False, norm=None, act=None
    )
    x = torch.randn(7, 5)
    first = h = model.encoder(x).relu()
    for block in model.blocks:
        h = block.conv(h, RICH.edge_index) - block.conv.eps * h + block.conv.eps * first
    torch.testing.assert_close(model(x, RICH.edge_index), model.readout(h))


@pytest.mark.parametrize("name", CONVS)
def test_the_mlp_alone_does_not_see_the_graph(name: str) -> None:
    model: Any = SIRNet.of(5, 16, 3, 2, encoder="linear", conv=name, norm=None).eval()
    x = torch.randn(7, 5)
    same = torch.equal(model(x, RICH.edge_index), model(x, RICH.edge_index.flip(0)))
    assert same == (name == "mlp")


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("experiment", PRESETS)
def test_every_preset_takes_every_convolution(experiment: str, name: str) -> None:
    heads = CONVS[name].heads
    arguments = PRESETS[experiment]
    if name == "fagcn" and arguments.encoder.type == "none":
        with pytest.raises(ValueError, match=r"^in_channels: .* because fagcn keeps the width"):
            preset(experiment, conv=name)
        return
    with torch.device("meta"):
        model: Any = preset(experiment, conv=name, hidden_channels=8 * heads)
    assert len(model.blocks) == arguments.block.layers


# Tables 1 and 2


def sizes(name: str, h: int, mlp_layers: int) -> int:
    """Parameters of the layer of width h behind a row."""
    return {
        "gcn": h * h + h,
        "sage_pool": 3 * h * h + 2 * h,
        "gatv2": h * h + 2 * h,
        "gin": mlp_layers * (h * h + h),
        "pna": 2 * h * h + h + 4 * h * h + h + 2 * h + h * h + h,
    }[name]


@pytest.mark.parametrize("name", SYNTHETIC[1:])
def test_dictionary_lookup_preset_is_the_sheet_s(name: str) -> None:
    n, hidden = 5, 20
    model: Any = build_net(dictionary_lookup_preset(n, conv=name))
    data = Batch.from_data_list(dictionary_lookup(n, num_graphs=3))
    out = learns(model, data.x, data.edge_index, batch=data.batch)
    assert out[data.query_mask].shape == (3 * n, n)
    total = 2 * (n + 1) * hidden + sizes(name, hidden, 2) + hidden * n
    assert sum(p.numel() for p in model.parameters()) == total
    model.eval()
    tables = [table.weight for table in model.encoder.embeddings]
    h = (tables[0][data.x[:, 0]] + tables[1][data.x[:, 1]]).relu()
    context = {"batch": data.batch} if name == "pna" else {}
    expected = model.blocks[0].conv(h, data.edge_index, **context) @ model.readout[0].weight.t()
    torch.testing.assert_close(model(data.x, data.edge_index, batch=data.batch), expected)


@pytest.mark.parametrize("name", SYNTHETIC[1:])
def test_hetero_edge_count_preset_is_the_sheet_s(name: str) -> None:
    c, hidden = 3, 30
    model: Any = build_net(hetero_edge_count_preset(c, conv=name))
    data = Batch.from_data_list(hetero_edge_count(c, num_graphs=4, max_nodes=6))
    assert learns(model, data.x, data.edge_index, batch=data.batch).shape == (4, 1)
    assert sum(p.numel() for p in model.parameters()) == c * hidden + sizes(name, hidden, 1) + hidden
    model.eval()
    h = model.encoder.embeddings[0].weight[data.x]
    context = {"batch": data.batch} if name == "pna" else {}
    nodes = model.blocks[0].conv(h, data.edge_index, **context) @ model.readout.network[0].weight.t()
    expected = torch.stack([nodes[data.batch == graph].sum(0) for graph in range(4)])
    torch.testing.assert_close(model(data.x, data.edge_index, batch=data.batch), expected, rtol=1e-4, atol=1e-4)


def test_gcn_reads_the_keys_of_a_dictionary() -> None:
    # With the in-degree at both ends, as in PyG's GCN without self-loops, the keys would weigh nothing.
    model: Any = build_net(dictionary_lookup_preset(4, conv="gcn"))
    data = dictionary_lookup(4, num_graphs=2)
    first, second = (model(one.x, one.edge_index)[one.query_mask] for one in data)
    assert first.std(0).max() < 1e-5
    h = model.encoder(data[0].x).relu()
    message = model.blocks[0].conv.lin(h[4:]).sum(0) / 4 + model.blocks[0].conv.bias
    torch.testing.assert_close(first[0], model.readout(message))
    assert second.isfinite().all()


# Widths and refusals


@pytest.mark.parametrize("name", ["sir", "gcn", "gat", "gin", "pna", "egc_s", "egc_m"])
def test_width_fills_the_budget(name: str) -> None:
    heads = CONVS[name].heads

    def build(width: int) -> nn.Module:
        variant = {"variant": "published"} if name == "sir" else {}
        return preset("zinc", conv=name, hidden_channels=width, **variant)

    def parameters(width: int) -> int:
        return sum(p.numel() for p in build(width).parameters())

    state = torch.get_rng_state()
    width = width_for_budget(build, 100_000, heads)
    assert torch.equal(torch.get_rng_state(), state)
    assert width % heads == 0
    assert parameters(width) <= 100_000 < parameters(width + heads)
    if name == "sir":
        assert width == PRESETS["zinc"].block.channels


def test_width_for_a_budget_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^budget: expected at least 6, the parameters at width 2, got 5"):
        width_for_budget(lambda width: nn.Linear(width, 2), 5, multiple_of=2)
    with pytest.raises(ValueError, match=r"^build: expected more parameters at a larger width"):
        width_for_budget(lambda width: nn.Linear(3, 2), 100)
    assert width_for_budget(lambda width: nn.Linear(width, 1), 2) == 1


def test_refusals_name_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"^conv: expected one of sir, gcn, .*mlp, got 'GCN'"):
        SIRNet.of(5, 16, 3, 2, conv="GCN")
    with pytest.raises(ValueError, match=r"^conv: expected one of sir"):
        dictionary_lookup_preset(4, conv="graphsage")
    with pytest.raises(ValueError, match=r"^options of gin: expected one of mlp_layers, got 'heads'"):
        SIRNet.of(5, 16, 3, 2, conv="gin", conv_options={"heads": 2})
    with pytest.raises(ValueError, match=r"^options of gcn: expected none, got heads$"):
        make_conv("gcn", 8, 8, heads=2)
    with pytest.raises(ValueError, match=r"^aggregators: expected at least one of sum, mean, max, min, std, got none$"):
        make_conv("pna", 8, 8, aggregators=[])
    with pytest.raises(ValueError, match=r"^edge features: .*sir, gin, gated_gcn, res_gated; got gat\. Choose"):
        SIRNet.of(5, 16, 3, 2, conv="gat", edge_channels=3)
    with pytest.raises(ValueError, match=r"^out_channels: expected a multiple of the 8 heads, got 20"):
        SIRNet.of(5, 20, 3, 2, conv="gat")
    with pytest.raises(ValueError, match=r"^aggregators: expected one of sum, mean, max, min, std, got 'median'"):
        make_conv("pna", 8, 8, aggregators=["median"])
    with pytest.raises(ValueError, match=r"^aggr: expected one of mean, pool, got 'max'"):
        make_conv("sage", 8, 8, aggr="max")
    with pytest.raises(ValueError, match=r"^mlp_layers: expected at least 1, got 0"):
        make_conv("gin", 8, 8, mlp_layers=0)
    with pytest.raises(ValueError, match=r"^in_channels: expected 16, because fagcn keeps the width, got 8"):
        make_conv("fagcn", 8, 16)
    with pytest.raises(ValueError, match=r"^dropout: expected a number from 0 to 1, got 1.5"):
        make_conv("gcn", 8, 8, dropout=1.5)
    with pytest.raises(ValueError, match=r"^self_loops: "):
        SIRNet.of(5, 16, 3, 2, edge_channels=3, self_loops=True)
    with pytest.raises(ValueError, match=r"^encoder_act: expected one of identity, relu"):
        SIRNet.of(5, 16, 3, 2, encoder="linear", encoder_act="swish")


def test_bad_input_is_named() -> None:
    x, weight = torch.randn(7, 5), torch.rand(len(RICH.edges))
    model: Any = SIRNet.of(5, 16, 3, 2, conv="sage")
    with pytest.raises(ValueError, match=r"^edge_weight: the convolution sage has no use for it"):
        model(x, RICH.edge_index, edge_weight=weight)
    with pytest.raises(ValueError, match=r"^edge_attr: the convolution sage has no use for it"):
        model(x, RICH.edge_index, torch.randn(len(RICH.edges), 2))
    with pytest.raises(ValueError, match=r"^x: expected a floating-point dtype, got torch.int64"):
        model(torch.ones(7, 5, dtype=torch.int64), RICH.edge_index)
    with pytest.raises(ValueError, match=r"^x: expected 5 features per node, got shape \[7, 4\]"):
        model(x[:, :4], RICH.edge_index)
    with pytest.raises(ValueError, match=r"^edge_weight: a self-loop has none"):
        SIRNet.of(5, 16, 3, 2, conv="gcn", self_loops=True)(x, RICH.edge_index, edge_weight=weight)
    for conv in ("gated_gcn", "gin"):
        reader: Any = SIRNet.of(5, 16, 3, 2, conv=conv, edge_channels=2)
        with pytest.raises(ValueError, match=r"^edge_attr: expected edge features, got None"):
            reader(x, RICH.edge_index)
        with pytest.raises(ValueError, match=r"^edge_attr: expected none, got some"):
            SIRNet.of(5, 16, 3, 2, conv=conv)(x, RICH.edge_index, torch.randn(len(RICH.edges), 2))
