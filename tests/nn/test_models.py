"""Whole models: `SIRGCN` beside PyG's basic models, `SIRNet` and the networks of the paper's tables."""

import copy
import inspect
import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn.models import GraphSAGE, JumpingKnowledge
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE

import sirgcn.nn.net as net_module
from sirgcn import SIRGCN, Neighbors, SIRNet, preset
from sirgcn.data import dictionary_lookup, hetero_edge_count
from sirgcn.nn import (
    OGB_ATOM,
    OGB_BOND,
    PRESETS,
    CategoricalEncoder,
    SIRConv,
    build_net,
    dictionary_lookup_preset,
    hetero_edge_count_preset,
)
from sirgcn.nn.linear import Linear
from sirgcn.nn.sharing import _can_share

EDGE_INDEX = torch.tensor([[0, 2, 1, 5, 3, 2, 3, 0, 5, 4, 6, 0], [3, 1, 1, 3, 0, 2, 5, 1, 0, 3, 2, 3]])
NODES, EDGES = 7, EDGE_INDEX.size(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def close(actual: Tensor, expected: Tensor) -> None:
    """Equal up to the rounding of float32 sums in another order."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def run_and_learn(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """The output of a training step that reaches every parameter with a finite gradient."""
    out: Tensor = model.train()(*args, **kwargs)
    out.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    return out


# SIRGCN


def test_sirgcn_is_called_as_graphsage() -> None:
    signature = inspect.signature(SIRGCN.forward)
    assert list(signature.parameters) == list(inspect.signature(GraphSAGE.forward).parameters)
    assert list(inspect.signature(SIRGCN).parameters) == list(inspect.signature(GraphSAGE).parameters)
    assert SIRGCN.supports_edge_weight
    assert SIRGCN.supports_edge_attr


@pytest.mark.parametrize("model", [SIRGCN, GraphSAGE])
@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("norm", [None, "BatchNorm", "GraphNorm", "LayerNorm"])
def test_sirgcn_stands_beside_graphsage(model: type[nn.Module], jk: str | None, norm: str | None) -> None:
    net = model(8, 16, num_layers=3, out_channels=4, dropout=0.1, act="elu", norm=norm, jk=jk, aggr="mean")
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    assert run_and_learn(net, torch.randn(NODES, 8), EDGE_INDEX, batch=batch, batch_size=2).shape == (NODES, 4)


@pytest.mark.parametrize("out_channels", [None, 4])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_sirgcn_is_its_layers_with_activations_between(num_layers: int, out_channels: int | None) -> None:
    model: Any = SIRGCN(8, 16, num_layers, out_channels, aggr="sym", edge_dim=2, activation="gelu", residual=True)
    x, edge_attr, weight = torch.randn(NODES, 8), torch.randn(EDGES, 2), torch.rand(EDGES)
    h = x
    for i, conv in enumerate(model.convs):
        assert isinstance(conv, SIRConv)
        h = conv(h, EDGE_INDEX, edge_attr, weight)
        h = h if i == num_layers - 1 else h.relu()
    close(model(x, EDGE_INDEX, edge_weight=weight, edge_attr=edge_attr), h)
    close(model(x, EDGE_INDEX, weight, edge_attr), h)
    grouped = Neighbors.from_edge_index(EDGE_INDEX, NODES)
    close(model(x, grouped, weight, edge_attr), h)


def test_sirgcn_takes_lazy_widths_and_static_graphs() -> None:
    model: Any = SIRGCN(-1, 16, 2, 4)
    signals = torch.randn(3, NODES, 8)
    close(model(signals, EDGE_INDEX), torch.stack([model(x, EDGE_INDEX) for x in signals]))


def test_sirgcn_passes_cached_and_flow_on() -> None:
    x, other = torch.randn(NODES, 8), EDGE_INDEX.flip(0)
    cached = SIRGCN(8, 16, 2, 4, cached=True)
    first = cached(x, EDGE_INDEX)
    assert torch.equal(cached(x, other), first)
    reverse, model = SIRGCN(8, 16, 2, 4, flow="target_to_source"), SIRGCN(8, 16, 2, 4)
    reverse.load_state_dict(model.state_dict())
    close(reverse(x, other), model(x, EDGE_INDEX))


def sampled() -> tuple[Tensor, Tensor, list[int], list[int]]:
    """A two-hop sample as PyG's loader lays it out: 2 seeds, then hop by hop the new nodes and the edges to them."""
    edge_index = torch.tensor([[2, 3, 3, 4, 5, 6, 7, 2, 5, 8], [0, 0, 1, 1, 2, 2, 3, 4, 4, 3]])
    return torch.randn(9, 8), edge_index, [2, 3, 4], [4, 6]


@pytest.mark.parametrize(
    ("aggr", "edge"),
    [*product(("sum", "mean", "sym"), ("none", "weight", "attr")), ("max", "none"), ("max", "attr")],
)
def test_trimming_by_hops_leaves_the_seeds_values(aggr: str, edge: str) -> None:
    x, edge_index, nodes, edges = sampled()
    model: Any = SIRGCN(8, 16, 2, 4, aggr=aggr, residual=True, edge_dim=3 if edge == "attr" else None)
    given = {"weight": {"edge_weight": torch.rand(10)}, "attr": {"edge_attr": torch.randn(10, 3)}}.get(edge, {})
    full = model(x, edge_index, **given)
    hops = {"num_sampled_nodes_per_hop": nodes, "num_sampled_edges_per_hop": edges}
    trimmed = model(x, edge_index, **given, **hops)
    assert trimmed.size(0) < 9
    if aggr == "sym":
        # The out-degree of a source counts the edges at hand, and the second layer has only those of the first hop.
        hidden = model.convs[0](x, edge_index, **given).relu()[:5]
        last = {key: value[:4] for key, value in given.items()}
        full = model.convs[1](hidden, edge_index[:, :4], **last)
    close(trimmed[:2], full[:2])


@pytest.mark.parametrize("aggr", ["sum", "max"])
def test_layer_wise_inference_equals_the_whole_model(aggr: str) -> None:
    model: Any = SIRGCN(8, 16, 2, 4, aggr=aggr, norm="BatchNorm").eval()
    x = torch.randn(NODES, 8)
    h = x
    for layer in range(2):
        h = model.inference_per_layer(layer, h, EDGE_INDEX, NODES)
    close(h, model(x, EDGE_INDEX))


# The paper's tables

# From the protocols sheet: parameters of the published variant; hidden, layers, aggregator, pooling; dropout of the
# input, inside the convolution, of the residual, after the layer.
SHEET: dict[str, tuple[int, int, int, str, str | None, tuple[float, float, float, float]]] = {
    "wikics": (102_850, 60, 4, "mean", None, (0.3, 0, 0.2, 0.1)),
    "pattern": (104_722, 80, 4, "sym", None, (0, 0, 0, 0)),
    "cluster": (105_366, 80, 4, "sym", None, (0, 0, 0, 0)),
    "mnist": (99_610, 80, 4, "max", "mean", (0, 0.1, 0.2, 0)),
    "cifar10": (100_090, 80, 4, "max", "mean", (0, 0.1, 0.2, 0)),
    "zinc": (99_676, 75, 4, "sym", "sum", (0, 0, 0, 0)),
    "ogbn-arxiv": (98_745, 95, 3, "sym", None, (0, 0.2, 0, 0.2)),
    "ogbg-molhiv": (96_521, 80, 4, "max", "mean", (0.2, 0.2, 0, 0)),
    "roman-empire": (5_422_610, 512, 5, "max", None, (0.2, 0.2, 0, 0.2)),
    "amazon-ratings": (869_893, 256, 3, "max", None, (0.2, 0.2, 0, 0.2)),
    "minesweeper": (1_321_217, 256, 5, "sym", None, (0.2, 0.2, 0, 0.2)),
    "tolokers": (1_321_985, 256, 5, "sym", None, (0.2, 0.2, 0, 0.2)),
    "questions": (3_311_105, 512, 3, "sym", None, (0.2, 0.2, 0, 0.2)),
}


def test_every_row_of_the_sheet_is_a_preset() -> None:
    # Those of SINC-GCN's paper have a sheet of their own.
    assert {name for name in PRESETS if not name.startswith("sinc/")} == set(SHEET)


@pytest.mark.parametrize("name", SHEET)
def test_published_preset_has_the_reported_parameters(name: str) -> None:
    assert parameters(preset(name, variant="published")) == SHEET[name][0]


@pytest.mark.parametrize("name", SHEET)
def test_preset_has_the_sheet_s_settings(name: str) -> None:
    _, hidden, layers, aggr, pool, (input_dropout, conv_dropout, residual_dropout, dropout) = SHEET[name]
    model: Any = preset(name)
    convs: list[Any] = [module for module in model.modules() if isinstance(module, SIRConv)]
    assert len(convs) == layers
    assert {conv.out_channels for conv in convs} == {hidden}
    assert {(conv.aggr, conv.dropout, conv.variant) for conv in convs} == {(aggr, conv_dropout, "corrected")}
    sigma = "gelu" if name in list(SHEET)[8:] else "leaky_relu(0.2)"
    assert {str(conv.activation) for conv in convs} == {f"Sigma({sigma})"}
    assert str(model.act) == f"Sigma({sigma})"
    assert model.pool == pool
    assert model.input_dropout.p == input_dropout
    assert {block.dropout.p for block in model.blocks} == {dropout}
    residuals = {block.residual[1].p for block in model.blocks if block.residual is not None}
    assert residuals == ({residual_dropout} if name in list(SHEET)[:6] else set())


def corrected_difference(model: SIRNet) -> int:
    """Biases of W_K and W_E, which the published variant has and the corrected one has not."""
    convs: list[Any] = [module for module in model.modules() if isinstance(module, SIRConv)]
    return sum(conv.hidden_channels * (1 + (conv.edge_dim is not None)) for conv in convs)


@pytest.mark.parametrize("name", SHEET)
def test_corrected_preset_lacks_the_biases_of_the_keys(name: str) -> None:
    model: Any = preset(name)
    assert parameters(model) + corrected_difference(model) == SHEET[name][0]


def inputs_of(name: str) -> tuple[Tensor, dict[str, Any]]:
    """Node features of the kind that a preset reads, and for a graph task the batch."""
    arguments: Any = PRESETS[name]
    encoder = arguments.encoder.type
    batch = {} if arguments.readout.pool is None else {"batch": torch.tensor([0, 0, 0, 0, 1, 1, 1]), "batch_size": 2}
    if encoder == "atom":
        return torch.stack([torch.randint(0, size, (NODES,)) for size in OGB_ATOM], dim=1), batch
    if encoder == "embedding":
        return torch.randint(0, arguments.in_channels, (NODES,)), batch
    return torch.randn(NODES, arguments.in_channels), batch


@pytest.mark.parametrize("variant", ["corrected", "published"])
@pytest.mark.parametrize("name", SHEET)
def test_every_preset_runs_and_learns(name: str, variant: str) -> None:
    x, batch = inputs_of(name)
    model: Any = preset(name, variant=variant)
    out = run_and_learn(model, x, EDGE_INDEX, **batch)
    assert out.shape == (2 if batch else NODES, PRESETS[name].out_channels)


def test_preset_takes_changes_and_names_the_known_ones() -> None:
    assert len(preset("zinc", num_layers=2).blocks) == 2
    assert PRESETS["zinc"].block.layers == 4
    with pytest.raises(ValueError, match=r"^name: expected one of wikics, .*questions, .*tuned/cora, .*got 'cora'"):
        preset("cora")
    with pytest.raises(ValueError, match=r"option: expected one of .*num_layers.*, got 'layers'"):
        preset("zinc", layers=3)


@pytest.mark.parametrize("n", [1, 5])
def test_dictionary_lookup_preset_runs_and_has_the_sheet_s_shape(n: int) -> None:
    model: Any = build_net(dictionary_lookup_preset(n))
    data = Batch.from_data_list(dictionary_lookup(n, num_graphs=3))
    out = run_and_learn(model, data.x, data.edge_index)
    assert out[data.query_mask].shape == (3 * n, n)
    hidden = 4 * n
    conv: Any = next(module for module in model.modules() if isinstance(module, SIRConv))
    assert conv.aggr == "sum"
    kinds = [type(module).__name__ for module in conv.activation]
    assert kinds == ["Sigma", "Linear", "Sigma"]
    assert model.blocks[0].residual is None
    # Two embeddings; W_Q with bias, W_K, sigma's linear, W_R with bias; the classifier without.
    sizes = [2 * (n + 1) * hidden, 4 * hidden * hidden + 3 * hidden, hidden * n]
    assert parameters(model) == sum(sizes)
    embedding = [table.weight for table in model.encoder.embeddings]
    h = embedding[0][data.x[:, 0]] + embedding[1][data.x[:, 1]]
    close(out, conv(h, data.edge_index) @ model.readout[0].weight.t())


@pytest.mark.parametrize("c", [1, 4])
def test_hetero_edge_count_preset_runs_and_has_the_sheet_s_shape(c: int) -> None:
    model: Any = build_net(hetero_edge_count_preset(c))
    data = Batch.from_data_list(hetero_edge_count(c, num_graphs=4, max_nodes=6))
    out = run_and_learn(model, data.x, data.edge_index, batch=data.batch, batch_size=4)
    assert out.shape == (4, 1)
    hidden = 10 * c
    assert parameters(model) == c * hidden + 3 * hidden * hidden + 2 * hidden + hidden
    conv: Any = next(module for module in model.modules() if isinstance(module, SIRConv))
    per_node = conv(model.encoder.embeddings[0].weight[data.x], data.edge_index) @ model.readout.network[0].weight.t()
    close(out, torch.stack([per_node[data.batch == g].sum(0) for g in range(4)]))


@pytest.mark.parametrize("aggr", ["sum", "sym", "max"])
@pytest.mark.parametrize("vocabularies", [(3,), (2, 3)])
def test_few_categories_are_projected_once_and_give_what_their_rows_give(
    aggr: str, vocabularies: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SIRNet.of(vocabularies, 8, 2, 2, encoder="embedding", encoder_act=True, aggr=aggr).double()
    x = torch.stack([torch.randint(size, (20,)) for size in vocabularies], 1)
    edge_index = torch.randint(20, (2, 60))
    rows: list[int] = []
    block: Any = model.blocks[0]
    multiply = Linear.forward

    # On the class: with a hook, or a forward of its own, the layer would be shown the rows of all nodes.
    def spy(layer: Linear, x: Tensor) -> Tensor:
        if layer is block.conv.lin_query:
            rows.append(len(x))
        return multiply(layer, x)

    monkeypatch.setattr(Linear, "forward", spy)
    found = []
    for few in (True, False):
        if not few:
            monkeypatch.setattr(net_module, "run_shared", lambda *given: None)
        model.zero_grad()
        found.append([run_and_learn(model, x, edge_index), *(p.grad for p in model.parameters())])
    assert rows == [math.prod(vocabularies), 20]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_categories_are_not_projected_once_where_a_node_has_more_than_its_category() -> None:
    x, edge_index = torch.zeros(20, 1, dtype=torch.int64), torch.randint(20, (2, 60))
    for options in ({"input_dropout": 0.5}, {"random_features": 2}, {"virtual_node": True}):
        model = SIRNet.of((3,), 8, 2, 1, encoder="embedding", norm="layer", **options)
        assert not _can_share(model.train(), x), options
        run_and_learn(model, x, edge_index)
    assert _can_share(SIRNet.of((3,), 8, 2, 1, encoder="embedding", input_dropout=0.5).eval(), x)
    assert not _can_share(SIRNet.of((11,), 8, 2, 1, encoder="embedding"), x)


# SIRNet, part by part


def test_blocks_are_the_formulas() -> None:
    x = torch.randn(NODES, 8)
    arguments: dict[str, Any] = {"encoder": "linear", "aggr": "mean", "activation": "gelu", "act": "silu"}
    for block in ("residual", "skip", "pre_norm", "transformer"):
        for norm in ("batch", "layer", None):
            model: Any = SIRNet.of(8, 16, 3, 2, block=block, norm=norm, **arguments).eval()
            h = model.encoder(x)
            for part in model.blocks:
                before = h
                if block == "pre_norm":
                    message = part.conv(part.norm(h), EDGE_INDEX)
                    h = before + part.lin(nn.functional.silu(message))
                elif block == "transformer":
                    h = before + part.conv(part.norm(h), EDGE_INDEX)
                else:
                    added = part.residual(h) if block == "residual" else 0
                    h = nn.functional.silu(part.norm(part.conv(h, EDGE_INDEX) + added))
                    h = before + h if block == "skip" else h
                assert (part.residual is not None) == (block == "residual")
            close(model(x, EDGE_INDEX), model.readout(model.last_norm(h)))
            kinds = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, None: nn.Identity}
            assert isinstance(model.blocks[0].norm, kinds[norm])
            assert isinstance(model.last_norm, kinds[norm] if block in ("pre_norm", "transformer") else nn.Identity)


def test_residual_may_be_left_out() -> None:
    with_residual, without = (SIRNet.of(8, 16, 3, 2, residual=residual) for residual in (True, False))
    assert parameters(with_residual) - parameters(without) == 8 * 16 + 16 + 16 * 16 + 16


@pytest.mark.parametrize("jk", ["cat", "max", "lstm", "sum"])
@pytest.mark.parametrize("block", ["residual", "skip", "pre_norm", "transformer"])
def test_jumping_knowledge_joins_the_blocks_outputs(jk: str, block: str) -> None:
    model: Any = SIRNet.of(8, 16, 3, 3, encoder="linear", block=block, norm="layer", jk=jk).eval()
    x = torch.randn(NODES, 8)
    h, outputs = model.encoder(x), []
    for part in model.blocks:
        h = part(h, EDGE_INDEX, None, None)
        outputs.append(h)
    assert isinstance(model.jk, JumpingKnowledge) == (jk != "sum")
    joined = torch.stack(outputs).sum(0) if jk == "sum" else model.jk(outputs)
    close(model(x, EDGE_INDEX), model.readout(model.last_norm(joined)))
    run_and_learn(model, x, EDGE_INDEX)


def test_feed_forward_follows_every_block() -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, encoder="linear", feed_forward=2, norm="layer", act="gelu").eval()
    x = torch.randn(NODES, 8)
    h = model.encoder(x)
    for part, feed_forward in zip(model.blocks, model.feed_forwards, strict=True):
        h = part(h, EDGE_INDEX, None, None)
        norm, first, _, _, second, _ = feed_forward.network
        assert first.out_channels == 32
        h = h + second(nn.functional.gelu(first(norm(h))))
    close(model(x, EDGE_INDEX), model.readout(h))
    run_and_learn(model, x, EDGE_INDEX)


def test_layers_of_a_transformer_drop_what_those_of_the_heterophilous_benchmark_drop() -> None:
    options: dict[str, Any] = {"conv": "transformer", "block": "transformer", "feed_forward": 1, "act": "gelu"}
    model: Any = SIRNet.of(8, 16, 3, 1, encoder="linear", norm="layer", dropout=0.4, **options).train()
    conv, network = model.blocks[0].conv, model.feed_forwards[0].network
    dropped: list[Tensor] = []
    for part in (model.blocks[0].dropout, *(m for m in network if isinstance(m, nn.Dropout))):
        part.register_forward_hook(lambda _, given, out: dropped.append(out))
    h = model.encoder(x := torch.randn(NODES, 8))
    out = model(x, EDGE_INDEX)
    attended, inner, outer = dropped
    # Dropout stands before the activation, as there. Its p is a fraction of 16 bits.
    kept = network[1](network[0](h + attended)) / 0.6
    close(inner, torch.where(inner == 0, 0.0, kept))
    kept = network[4](nn.functional.gelu(inner)) / 0.6
    close(outer, torch.where(outer == 0, 0.0, kept))
    kept = conv(model.blocks[0].norm(h), EDGE_INDEX) / 0.6
    close(attended, torch.where(attended == 0, 0.0, kept))
    close(out, model.readout(model.last_norm(h + attended + outer)))


def test_virtual_node_is_added_before_each_layer_and_before_the_readout() -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, encoder="linear", norm="layer", pool="sum", virtual_node=True).eval()
    x, batch = torch.randn(NODES, 8), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    node = model.virtual_node
    assert node is not None
    h, state = model.encoder(x), node.embedding.weight.expand(2, -1)
    for part in model.blocks:
        h = part(h + state[batch], EDGE_INDEX, None, None)
        state = node.mlp(torch.stack([h[batch == g].sum(0) for g in range(2)]) + state)
    h = model.readout.network(h + state[batch])
    close(model(x, EDGE_INDEX, batch=batch), torch.stack([h[batch == g].sum(0) for g in range(2)]))
    run_and_learn(model, x, EDGE_INDEX, batch=batch)


def test_virtual_node_of_one_graph_trains_or_is_refused_by_name() -> None:
    # A node task is one graph, and so may be the last batch of an epoch: a virtual node's batch norm sees one row.
    model: Any = SIRNet.of(8, 16, 3, 2, encoder="linear", virtual_node=True)
    x = torch.randn(NODES, 8)
    try:
        assert run_and_learn(model, x, EDGE_INDEX).shape == (NODES, 3)
    except ValueError as error:
        assert "virtual" in str(error)  # noqa: PT017


@pytest.mark.parametrize("kind", ["random_walk", "laplacian"])
def test_positional_encoding_is_added_and_flips_in_training_only_for_eigenvectors(kind: str) -> None:
    data = Data(edge_index=torch.cat([EDGE_INDEX, EDGE_INDEX.flip(0)], dim=1), num_nodes=NODES)
    transform = (
        AddRandomWalkPE(3, "pe") if kind == "random_walk" else AddLaplacianEigenvectorPE(3, "pe", is_undirected=True)
    )
    pe = transform(data).pe
    model: Any = SIRNet.of(8, 16, 3, 2, encoder="linear", norm=None, positional=kind, pe_dim=3)
    x = torch.randn(NODES, 8)
    draws = [model(x, EDGE_INDEX, pe=pe) for _ in range(20)]
    assert all(torch.equal(draw, draws[0]) for draw in draws) == (kind == "random_walk")
    model.eval()
    h = model.encoder(x) + model.positional.lin(pe)
    for part in model.blocks:
        h = part(h, EDGE_INDEX, None, None)
    close(model(x, EDGE_INDEX, pe=pe), model.readout(h))
    run_and_learn(model, x, EDGE_INDEX, pe=pe)
    with pytest.raises(ValueError, match=rf"^pe: .*{kind}.*got None"):
        model(x, EDGE_INDEX)
    with pytest.raises(ValueError, match=r"^pe: expected shape \[7, 3\], got \[7, 2\]"):
        model(x, EDGE_INDEX, pe=pe[:, :2])
    with pytest.raises(ValueError, match=r"^pe: "):
        SIRNet.of(8, 16, 3, 2)(x, EDGE_INDEX, pe=pe)


@pytest.mark.parametrize("encoder", ["none", "linear"])
def test_random_columns_tell_equal_nodes_apart(encoder: str) -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, encoder=encoder, random_features=2, norm=None).eval()
    x = torch.ones(NODES, 8)
    ring = torch.stack([torch.arange(NODES), torch.arange(NODES).roll(1)])
    first, second = model(x, ring), model(x, ring)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first[0], first[1])
    width = model.blocks[0].conv.in_channels
    assert width == (10 if encoder == "none" else 16)
    plain = SIRNet.of(8, 16, 3, 2, encoder=encoder, norm=None).eval()
    assert torch.allclose(plain(x, ring)[0], plain(x, ring)[1])


# Encoders


@pytest.mark.parametrize("act", [None, "gelu"])
def test_encoder_act_is_the_networks_or_one_by_name(act: str | None) -> None:
    x = torch.randn(NODES, 8)
    own = nn.Identity() if act is None else nn.GELU()
    expected: dict[bool | str, nn.Module] = {False: nn.Identity(), True: own, "relu": nn.ReLU()}
    for encoder_act, function in expected.items():
        model: Any = SIRNet.of(8, 16, 3, 1, encoder="linear", norm=None, act=act, encoder_act=encoder_act)
        h = model.blocks[0](function(model.encoder(x)), EDGE_INDEX, None, None)
        close(model(x, EDGE_INDEX), model.readout(h))


def test_bond_table_equals_the_dense_embedding() -> None:
    model: Any = SIRNet.of(None, 16, 1, 2, encoder="atom", edge_encoder="bond", pool="mean").eval()
    atoms = torch.stack([torch.randint(0, size, (NODES,)) for size in OGB_ATOM], dim=1)
    bonds = torch.stack([torch.randint(0, size, (EDGES,)) for size in OGB_BOND], dim=1)
    assert isinstance(model.edge_encoder, CategoricalEncoder)
    h, dense = model.encoder(atoms), model.edge_encoder(bonds)
    for part in model.blocks:
        h = part(h, EDGE_INDEX, dense, None)
    close(model(atoms, EDGE_INDEX, bonds), model.readout(h))
    close(model(atoms, EDGE_INDEX, model.edge_encoder.table(bonds)), model.readout(h))
    model.train()
    run_and_learn(model, atoms, EDGE_INDEX, bonds, batch=torch.tensor([0, 0, 0, 0, 1, 1, 1]))


@pytest.mark.parametrize("aggr", ["sum", "max"])
@pytest.mark.parametrize(
    ("options", "edge_attr", "encoded"),
    [
        ({"edge_channels": 3}, lambda: torch.randn(EDGES, 3), lambda model, e: e),
        ({"edge_channels": 3, "edge_encoder": "linear"}, lambda: torch.randn(EDGES, 3), lambda m, e: m.edge_encoder(e)),
        (
            {"edge_channels": 4, "edge_encoder": "embedding"},
            lambda: torch.randint(0, 4, (EDGES,)),
            lambda m, e: m.edge_encoder.embeddings[0].weight[e],
        ),
    ],
    ids=["none", "linear", "embedding"],
)
def test_edge_encoder_feeds_every_layer(
    options: dict[str, Any], edge_attr: Callable[[], Tensor], encoded: Callable[[Any, Tensor], Tensor], aggr: str
) -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, aggr=aggr, norm=None, act=None, **options)
    x, edges = torch.randn(NODES, 8), edge_attr()
    h, dense = x, encoded(model, edges)
    for part in model.blocks:
        h = part.conv(h, EDGE_INDEX, dense) + part.residual(h)
    close(model(x, EDGE_INDEX, edges), model.readout(h))
    run_and_learn(model, x, EDGE_INDEX, edges)
    with pytest.raises(ValueError, match=r"^edge_attr: "):
        model(x, EDGE_INDEX)
    with pytest.raises(ValueError, match=r"^edge_attr: "):
        SIRNet.of(8, 16, 3, 2)(x, EDGE_INDEX, torch.randn(EDGES, 3))


@pytest.mark.parametrize(
    ("options", "table"),
    [
        ({"edge_channels": 16, "edge_encoder": "linear"}, lambda: torch.randn(3, 16)),
        ({"edge_channels": 4, "edge_encoder": "embedding"}, lambda: torch.tensor([2, 0, 3])),
    ],
    ids=["linear", "embedding"],
)
def test_table_of_edges_is_encoded_as_its_rows_are(options: dict[str, Any], table: Callable[[], Tensor]) -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, norm=None, **options)
    x, rows, kind = torch.randn(NODES, 8), table(), torch.randint(0, 3, (EDGES,))
    close(model(x, EDGE_INDEX, (rows, kind)), model(x, EDGE_INDEX, rows[kind]))


def test_single_edge_feature_may_have_no_dimension_of_its_own() -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, norm=None, edge_channels=1, edge_encoder="linear")
    x, feature = torch.randn(NODES, 8), torch.randn(EDGES)
    close(model(x, EDGE_INDEX, feature), model(x, EDGE_INDEX, feature.unsqueeze(-1)))


def test_edge_weights_reach_every_layer() -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, norm=None, act=None)
    x, weight = torch.randn(NODES, 8), torch.rand(EDGES)
    h = x
    for part in model.blocks:
        h = part.conv(h, EDGE_INDEX, edge_weight=weight) + part.residual(h)
    close(model(x, EDGE_INDEX, edge_weight=weight), model.readout(h))


# Graphs in batches

GRAPH_MODELS: dict[str, dict[str, Any]] = {
    "sum": {"pool": "sum"},
    "mean": {"pool": "mean", "readout_layers": 3, "aggr": "max"},
    "head": {"pool": "mean", "head_channels": (8, 4), "readout_layers": 0, "aggr": "sym"},
    "head after readout": {"pool": "sum", "head_channels": (8,), "readout_layers": 2, "norm": "layer"},
    "virtual node": {"pool": "sum", "virtual_node": True, "encoder": "linear", "jk": "cat"},
    "pre_norm": {"pool": "mean", "block": "pre_norm", "encoder": "linear", "feed_forward": 2, "jk": "lstm"},
    "around": {"pool": "sum", "block": "skip", "encoder": "linear", "feed_forward": 2, "feed_forward_norm": "around"},
    "no norm after": {"pool": "mean", "conv_norm": False, "feed_forward": 1, "head_channels": (8,), "head_norm": None},
    "one row for all edges": {"pool": "sum", "edge_encoder": "constant", "jk": "sum"},
    "edges": {"pool": "sum", "edge_channels": (3, 2), "edge_encoder": "embedding", "aggr": "mean"},
    "node task": {"aggr": "sym"},
}


def graphs_of(model: SIRNet) -> list[Data]:
    generator = torch.Generator().manual_seed(1)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=generator)

    graphs = []
    for nodes, edges in ((4, 6), (1, 0), (5, 9), (3, 1)):
        data = Data(x=torch.randn(nodes, 8, generator=generator), edge_index=integers(nodes, 2, edges))
        if isinstance(model.edge_encoder, CategoricalEncoder):
            data.edge_attr = torch.stack([integers(3, edges), integers(2, edges)], dim=1)
        graphs.append(data)
    return graphs


@pytest.mark.parametrize("name", GRAPH_MODELS)
def test_a_batch_gives_what_its_graphs_give_one_at_a_time(name: str) -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, **GRAPH_MODELS[name])
    graphs = graphs_of(model)
    data = Batch.from_data_list(graphs)
    run_and_learn(model, data.x, data.edge_index, data.edge_attr, batch=data.batch)
    model.eval()
    together = model(data.x, data.edge_index, data.edge_attr, batch=data.batch)
    alone = [model(graph.x, graph.edge_index, graph.edge_attr) for graph in graphs]
    close(together, torch.cat(alone))
    explicit = model(data.x, data.edge_index, data.edge_attr, batch=data.batch, batch_size=4)
    assert torch.equal(explicit, together)


def test_last_graphs_without_nodes_need_an_explicit_batch_size() -> None:
    model: Any = SIRNet.of(8, 16, 3, 1, pool="sum").eval()
    x, batch = torch.randn(NODES, 8), torch.zeros(NODES, dtype=torch.int64)
    out = model(x, EDGE_INDEX, batch=batch, batch_size=3)
    close(out[:1], model(x, EDGE_INDEX))
    assert not out[1:].any()


# Housekeeping


@pytest.mark.parametrize("name", GRAPH_MODELS)
def test_reset_draws_every_parameter_anew(name: str) -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, random_features=0, **GRAPH_MODELS[name])
    before = copy.deepcopy(model)
    torch.manual_seed(1)
    model.reset_parameters()
    norms = {
        f"{prefix}.{leaf}"
        for prefix, module in model.named_modules()
        if isinstance(module, (nn.BatchNorm1d, nn.LayerNorm))
        for leaf, _ in module.named_parameters()
    }
    for (key, new), (_, old) in zip(model.named_parameters(), before.named_parameters(), strict=True):
        assert torch.equal(new, old) == (key in norms), key


def test_blocks_share_no_parameter() -> None:
    model: Any = SIRNet.of(8, 8, 3, 3, sigma_layers=1, feed_forward=2)
    owned = [{id(p) for p in part.parameters()} for part in (*model.blocks, *model.feed_forwards)]
    assert all(not a & b for a, b in pairwise(owned))
    assert len(set().union(*owned)) == sum(map(len, owned))


def test_state_dict_of_a_model_goes_round() -> None:
    for make in (lambda: SIRNet.of(8, 16, 3, 2, jk="cat"), lambda: SIRGCN(8, 16, 2, 3, norm="BatchNorm")):
        model, twin = make().eval(), make().eval()
        twin.load_state_dict(model.state_dict())
        x = torch.randn(NODES, 8)
        assert torch.equal(twin(x, EDGE_INDEX), model(x, EDGE_INDEX))
        assert torch.equal(copy.deepcopy(model)(x, EDGE_INDEX), model(x, EDGE_INDEX))


BAD_CONFIGURATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "conv": ({"conv": "cheb"}, r"^conv: expected one of sir, gcn, .*got 'cheb'"),
    "block": ({"block": "dense"}, r"^block: expected one of residual, skip, pre_norm, transformer, got 'dense'"),
    "norm": ({"norm": "group"}, r"^norm: expected one of batch, layer, got 'group'"),
    "jk": ({"jk": "last"}, r"^jk: expected one of cat, max, sum, lstm, got 'last'"),
    "pool": ({"pool": "max"}, r"^pool: expected one of sum, mean, got 'max'"),
    "encoder": ({"encoder": "mlp"}, r"^encoder: expected one of none, linear, embedding, atom, got 'mlp'"),
    "edge_encoder": (
        {"edge_encoder": "atom", "edge_channels": 3},
        r"^edge_encoder: expected one of none, linear, embedding, bond, constant, got 'atom'",
    ),
    "aggr": ({"aggr": "median"}, r"^aggr: expected one of sum, mean, sym, sym_in, max"),
    "variant": ({"variant": "draft"}, r"^variant: expected one of corrected, published"),
    "activation": ({"activation": "swish"}, r"^activation: expected one of identity, relu"),
    "act": ({"act": "swish"}, r"act.*: expected one of identity, relu"),
    "positional": ({"positional": "sine", "pe_dim": 2}, r"expected one of random_walk, laplacian, got 'sine'"),
    "pe_dim": ({"positional": "laplacian"}, r"^pe_dim: expected .*got 0"),
    "pe_dim alone": ({"pe_dim": 4}, r"^pe_dim: "),
    "sigma_layers": ({"sigma_layers": -1}, r"^sigma_layers: expected at least 0, got -1"),
    "feed_forward": ({"feed_forward": -1}, r"^feed_forward: expected at least 0, got -1"),
    "num_layers": ({"num_layers": 0}, r"^num_layers: expected at least 1, got 0"),
    "head without pool": ({"head_channels": (8,)}, r"^head_channels: .*pool"),
    "no readout": ({"readout_layers": 0}, r"^readout_layers: expected at least 1"),
    "negative readout": ({"readout_layers": -1}, r"^readout_layers: expected .*got -1"),
    "skip without encoder": ({"block": "skip"}, r"^encoder: .*16 channels.*has 8"),
    "virtual node without encoder": ({"virtual_node": True}, r"^encoder: .*16 channels.*has 8"),
    "width missing": ({"in_channels": None, "encoder": "linear"}, r"^encoder: .*got None"),
    "vocabularies for a linear encoder": ({"in_channels": (3, 4), "encoder": "linear"}, r"^encoder: .*\[3, 4\]"),
    "edge width missing": ({"edge_encoder": "linear"}, r"^edge_encoder: .*got None"),
    "too many random columns": ({"random_features": 16, "encoder": "linear"}, r"^random_features: .*16"),
    "dropout": ({"conv_dropout": 1.5}, r"conv_dropout: expected a number from 0 to 1, got 1.5"),
}


# torch warns of the layer of width 0 that the last configuration but one would otherwise build.
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("case", BAD_CONFIGURATIONS)
def test_bad_configuration_is_named(case: str) -> None:
    changes, message = BAD_CONFIGURATIONS[case]
    arguments = {"in_channels": 8, "hidden_channels": 16, "out_channels": 3, "num_layers": 2}
    with pytest.raises(ValueError, match=message):
        SIRNet.of(**arguments | changes)


def test_bad_input_of_a_model_is_named() -> None:
    model: Any = SIRNet.of(8, 16, 3, 2, pool="sum")
    x = torch.randn(NODES, 8)
    with pytest.raises(ValueError, match=r"^x: expected 8 features"):
        model(torch.randn(NODES, 9), EDGE_INDEX)
    with pytest.raises(IndexError, match=r"^edge_index\[0, 10\] = 6: expected 0 <= index < 6"):
        model(x[:6], EDGE_INDEX[:, [0, 1, 2, 4, 5, 6, 7, 8, 9, 9, 10]])
    with pytest.raises(ValueError, match=r"^batch: expected shape \[7\].*got \[6\]"):
        model(x, EDGE_INDEX, batch=torch.zeros(6, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^batch_size: .*2"):
        model(x, EDGE_INDEX, batch=torch.tensor([0, 0, 0, 0, 1, 1, 2]), batch_size=2)
    with pytest.raises(ValueError, match=r"^batch_size: "):
        model(x, EDGE_INDEX, batch_size=3)
    with pytest.raises(IndexError, match=r"^batch\[3\] = -1: "):
        model(x, EDGE_INDEX, batch=torch.tensor([0, 0, 0, -1, 1, 1, 1]))
    with pytest.raises(ValueError, match=r"^batch: expected dtype int32 or int64, got torch.float"):
        model(x, EDGE_INDEX, batch=torch.zeros(NODES))
    with pytest.raises(ValueError, match=r"^x: expected shape \[rows, features\], got \[2, 7, 8\]"):
        model(torch.randn(2, NODES, 8), EDGE_INDEX)
    linear: Any = SIRNet.of(8, 16, 3, 2, encoder="linear", edge_channels=4, edge_encoder="linear")
    with pytest.raises(ValueError, match=r"^x: expected 8 features per row, got shape \[7, 9\]"):
        linear(torch.randn(NODES, 9), EDGE_INDEX, torch.randn(EDGES, 4))
    with pytest.raises(ValueError, match=r"^x: expected a floating-point dtype, got torch.int64"):
        linear(torch.ones(NODES, 8, dtype=torch.int64), EDGE_INDEX, torch.randn(EDGES, 4))
    with pytest.raises(ValueError, match=r"^edge_attr: expected 4 features per row, got shape"):
        linear(x, EDGE_INDEX, torch.randn(EDGES, 3))


@pytest.mark.parametrize("pool", [None, "sum"])
def test_gradients_by_torch_func_are_those_of_autograd(pool: str | None) -> None:
    model = SIRNet.of(
        8, 16, 3, 2, pool=pool
    ).eval()  # in training batch norm's statistics are changed in place, which torch.func refuses
    x = torch.randn(NODES, 8)
    found = torch.func.grad(lambda weights: torch.func.functional_call(model, weights, (x, EDGE_INDEX)).square().sum())(
        dict(model.named_parameters())
    )
    model(x, EDGE_INDEX).square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        close(found[name], weight.grad)
