"""The readout, the virtual node, random features and the encoders."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import SumAggregation

from sirgcn import RandomFeatures, SIRReadout, VirtualNode
from sirgcn.nn import (
    OGB_ATOM,
    OGB_BOND,
    CategoricalEncoder,
    PositionalEncoder,
    SIRConv,
    SIRNet,
    dictionary_lookup_preset,
    preset,
)
from sirgcn.nn.linear import Linear
from sirgcn.ops.rows import Rows

# Graphs of 2, 0, 3 and 1 nodes.
BATCH = torch.tensor([0, 0, 2, 2, 2, 3])
PTR = torch.tensor([0, 2, 2, 5, 6])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


# The soft-isomorphic readout


@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_readout_adds_the_network_over_the_nodes_of_each_graph(aggr: str) -> None:
    readout = SIRReadout(network(), aggr).double()
    x = torch.randn(6, 3, dtype=torch.float64)
    rows = []
    for graph in range(4):
        nodes = [readout.network(x[v]) for v in range(6) if BATCH[v] == graph]
        total = sum(nodes, torch.zeros(2, dtype=torch.float64))
        rows.append(total / max(1, len(nodes)) if aggr == "mean" else total)
    expected = torch.stack(rows)
    torch.testing.assert_close(readout(x, BATCH), expected)
    torch.testing.assert_close(readout(x, ptr=PTR), expected)
    torch.testing.assert_close(readout(x, BATCH, dim_size=6)[:4], expected)
    assert not readout(x, BATCH, dim_size=6)[4:].any()
    torch.testing.assert_close(readout(x), readout(x, torch.zeros(6, dtype=torch.int64)))


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("own", [network(), nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))])
def test_readout_of_rows_that_nodes_share_is_that_of_all_nodes(own: nn.Module, aggr: str) -> None:
    readout = SIRReadout(own, aggr).double()
    rows = Rows(torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1, 0]))
    for given in ({"index": BATCH}, {"ptr": PTR}, {"index": BATCH, "dim_size": 6}, {}):
        torch.testing.assert_close(readout(rows, **given), readout(rows.expand(), **given))


def test_readout_stands_where_pyg_takes_an_aggregation() -> None:
    readout: Any = SIRReadout(nn.Linear(3, 3, bias=False))
    x = torch.randn(6, 3)
    with torch.no_grad():
        readout.network.weight.copy_(torch.eye(3))
    torch.testing.assert_close(readout(x, BATCH), SumAggregation()(x, BATCH))
    assert str(readout) == "SIRReadout(aggr=sum)"


def test_readout_owns_a_copy_of_its_network() -> None:
    given = network()
    before = [p.clone() for p in given.parameters()]
    readout = SIRReadout(given)
    assert not {id(p) for p in given.parameters()} & {id(p) for p in readout.parameters()}
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))
    drawn = copy.deepcopy(readout)
    readout.reset_parameters()
    assert all(not torch.equal(a, b) for a, b in zip(drawn.parameters(), readout.parameters(), strict=True))


def test_readout_names_the_known_aggregators() -> None:
    with pytest.raises(ValueError, match=r"^aggr: expected one of sum, mean, got 'max'"):
        SIRReadout(network(), "max")


# The virtual node


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_virtual_node_is_spread_and_updated_by_the_formula(num_layers: int, residual: bool) -> None:
    node = VirtualNode(4, num_layers, residual=residual).eval()
    state = node.start(4)
    assert torch.equal(state, node.embedding.weight.expand(4, -1))
    x = torch.randn(6, 4)
    spread = node.spread(x, state, BATCH)
    torch.testing.assert_close(spread, torch.stack([x[v] + state[int(BATCH[v])] for v in range(6)]))
    z = torch.stack([state[g] + x[g == BATCH].sum(0) for g in range(4)])
    linears = [module for module in node.mlp if isinstance(module, Linear)]
    assert len(linears) == num_layers
    for linear in linears:
        # Batch norm starts with running mean 0 and variance 1.
        z = nn.functional.leaky_relu(linear(z) / math.sqrt(1 + 1e-5), 0.2)
    torch.testing.assert_close(node.update(x, state, BATCH), z + state if residual else z)


def test_virtual_node_learns_its_start_vector() -> None:
    node = VirtualNode(4)
    x = torch.randn(6, 4)
    state = node.update(node.spread(x, node.start(4), BATCH), node.start(4), BATCH)
    state.square().sum().backward()
    assert all(p.grad is not None for p in node.parameters())
    before = [p.clone() for p in node.parameters() if p.dim() == 2]
    node.reset_parameters()
    after = [p for p in node.parameters() if p.dim() == 2]
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_virtual_node_dropout_acts_in_training_only() -> None:
    node = VirtualNode(32, dropout=0.5)
    x, state = torch.randn(6, 32), node.start(4)
    assert (node.update(x, state, BATCH) == 0).any()
    node.eval()
    assert not (node.update(x, state, BATCH) == 0).any()


# Random features


def test_random_columns_are_appended_and_uniform() -> None:
    x = torch.randn(5000, 3)
    out = RandomFeatures(2)(x)
    assert torch.equal(out[:, :3], x)
    noise = out[:, 3:]
    assert noise.shape == (5000, 2)
    assert noise.min() >= 0
    assert noise.max() < 1
    # Mean and variance of U[0, 1); 5 standard errors of 5000 draws.
    assert (noise.mean(0) - 0.5).abs().max() < 5 * math.sqrt(1 / 12 / 5000)
    assert (noise.var(0) - 1 / 12).abs().max() < 0.01


@pytest.mark.parametrize("training", [True, False])
def test_random_columns_are_drawn_anew_at_every_call(training: bool) -> None:
    x = torch.zeros(4, 1)
    for seed in (None, 7):
        features = RandomFeatures(seed=seed).train(training)
        assert not torch.equal(features(x), features(x))


def test_seed_gives_a_stream_of_its_own() -> None:
    x = torch.zeros(2, 4, 1)
    first, second = RandomFeatures(2, seed=3), RandomFeatures(2, seed=3)
    state = torch.get_rng_state()
    stream = [first(x) for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert all(torch.equal(second(x), value) for value in stream)
    first.restart()
    assert torch.equal(first(x), stream[0])
    first.restart(4)
    assert not torch.equal(first(x), stream[0])
    torch.manual_seed(1)
    unseeded = RandomFeatures()(x)
    torch.manual_seed(1)
    assert torch.equal(RandomFeatures()(x), unseeded)


def test_stream_goes_on_from_a_state_dict() -> None:
    x = torch.zeros(4, 1)
    first, second = RandomFeatures(seed=3), RandomFeatures(seed=3)
    first(x)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(x), first(x))


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_random_columns_stay_below_one_in_every_dtype(dtype: torch.dtype, seed: int | None) -> None:
    noise = RandomFeatures(seed=seed)(torch.zeros(20_000, 1, dtype=dtype))[:, 1]
    assert noise.dtype == dtype
    assert noise.max() < 1


def test_random_features_refuse_no_columns() -> None:
    with pytest.raises(ValueError, match=r"^channels: expected at least 1, got 0"):
        RandomFeatures(0)
    assert str(RandomFeatures(2, seed=1)) == "RandomFeatures(2, seed=1)"


# Categorical encoders


@pytest.mark.parametrize("vocabularies", [OGB_ATOM, OGB_BOND, (4,), (3, 1)])
def test_categories_are_a_sum_of_embeddings(vocabularies: tuple[int, ...]) -> None:
    encoder = CategoricalEncoder(vocabularies, 6)
    x = torch.stack([torch.randint(0, size, (9,)) for size in vocabularies], dim=-1)
    expected = torch.zeros(9, 6)
    for column, embedding in enumerate(encoder.embeddings):
        expected = expected + embedding.weight[x[:, column]]  # type: ignore[index]
    torch.testing.assert_close(encoder(x), expected)
    assert sum(p.numel() for p in encoder.parameters()) == 6 * sum(vocabularies)


def test_atoms_and_bonds_are_drawn_as_by_ogb_and_other_categories_as_by_torch() -> None:
    """The authors took OGB's AtomEncoder for ogbg-molhiv and plain embeddings for DictionaryLookup's two columns."""
    torch.manual_seed(0)
    molhiv, lookup = preset("ogbg-molhiv"), SIRNet(dictionary_lookup_preset(50))
    assert isinstance(molhiv.encoder, CategoricalEncoder)
    assert isinstance(lookup.encoder, CategoricalEncoder)
    for _ in range(2):
        for size, weight in zip(OGB_ATOM, molhiv.encoder.parameters(), strict=True):
            bound = (6 / (size + 80)) ** 0.5
            assert 0.9 * bound < weight.abs().max() <= bound
        for weight in lookup.encoder.parameters():
            assert weight.std().item() == pytest.approx(1, abs=0.05)
        molhiv.reset_parameters()
        lookup.reset_parameters()


def test_unknown_draw_of_categories_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^weight_initializer: expected one of glorot, None, got 'uniform'$"):
        CategoricalEncoder(4, 6, weight_initializer="uniform")


def test_single_column_may_be_flat() -> None:
    encoder = CategoricalEncoder(4, 6)
    x = torch.randint(0, 4, (9,))
    assert torch.equal(encoder(x), encoder(x.unsqueeze(-1)))
    assert encoder(x.to(torch.int32)).shape == (9, 6)


@pytest.mark.parametrize("vocabularies", [OGB_BOND, (7,), (3, 2)])
def test_table_of_edge_categories_stands_for_their_features(vocabularies: tuple[int, ...]) -> None:
    encoder = CategoricalEncoder(vocabularies, 6)
    x = torch.stack([torch.randint(0, size, (20,)) for size in vocabularies], dim=-1)
    table, index = encoder.table(x)
    assert isinstance(table, Tensor)
    assert table.shape == (math.prod(vocabularies), 6)
    torch.testing.assert_close(table[index], encoder(x))
    # The layer cannot tell the two apart.
    conv, h = SIRConv(3, 4, edge_dim=6), torch.randn(5, 3)
    edge_index = torch.randint(0, 5, (2, 20))
    torch.testing.assert_close(conv(h, edge_index, (table, index)), conv(h, edge_index, encoder(x)))


def test_too_many_combinations_of_categories_make_no_table() -> None:
    encoder = CategoricalEncoder((100, 100), 6)
    x = torch.randint(0, 100, (20, 2))
    features = encoder.table(x)
    assert isinstance(features, Tensor)
    assert torch.equal(features, encoder(x))


def test_bad_categories_are_named() -> None:
    encoder = CategoricalEncoder((3, 2), 6)
    with pytest.raises(IndexError, match=r"^x\[1, 1\] = 2: expected 0 <= category < 2 in column 1"):
        encoder(torch.tensor([[0, 1], [2, 2]]))
    with pytest.raises(IndexError, match=r"^x\[0, 0\] = -1: "):
        encoder(torch.tensor([[-1, 1]]))
    with pytest.raises(IndexError, match=r"^x\[0, 0\] = 3: "):
        encoder.table(torch.tensor([[3, 1]]))
    with pytest.raises(ValueError, match=r"^x: expected categories of an integer dtype, got torch.float32"):
        encoder(torch.rand(4, 2))
    with pytest.raises(ValueError, match=r"^x: expected 2 categorical columns, got shape \[4, 3\]"):
        encoder(torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^vocabularies: expected sizes of at least 1, got \(3, 0\)"):
        CategoricalEncoder((3, 0), 6)
    with pytest.raises(ValueError, match=r"^vocabularies: "):
        CategoricalEncoder((), 6)


def test_categorical_reset_draws_anew() -> None:
    encoder = CategoricalEncoder((3, 2), 6)
    before = [p.clone() for p in encoder.parameters()]
    encoder.reset_parameters()
    assert all(not torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))


# Positional encodings


def test_encoding_is_added_through_a_linear_layer() -> None:
    for encoding in ("random_walk", "laplacian"):
        encoder = PositionalEncoder(encoding, 3, 4).eval()
        x, pe = torch.randn(5, 4), torch.randn(5, 3)
        expected = x + pe @ encoder.lin.weight.t() + encoder.lin.bias
        torch.testing.assert_close(encoder(x, pe), expected)


def test_eigenvectors_change_sign_in_training_only() -> None:
    encoder = PositionalEncoder("laplacian", 2, 4)
    x, pe = torch.randn(5, 4), torch.randn(5, 2)
    signed = [
        x + encoder.lin(pe * torch.tensor(signs)) for signs in ([1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0])
    ]
    seen = set()
    for _ in range(60):
        out = encoder(x, pe)
        (match,) = [i for i, value in enumerate(signed) if torch.allclose(out, value, atol=1e-6)]
        seen.add(match)
    assert seen == {0, 1, 2, 3}
    encoder.eval()
    assert all(torch.equal(encoder(x, pe), encoder(x, pe)) for _ in range(10))
    walk = PositionalEncoder("random_walk", 2, 4)
    assert all(torch.equal(walk(x, pe), walk(x, pe)) for _ in range(10))


def test_bad_encoding_is_named() -> None:
    with pytest.raises(ValueError, match=r"^encoding: expected one of random_walk, laplacian, got 'sine'"):
        PositionalEncoder("sine", 2, 4)
    with pytest.raises(ValueError, match=r"^pe: expected shape \[5, 2\], got \[5, 3\]"):
        PositionalEncoder("laplacian", 2, 4)(torch.randn(5, 4), torch.randn(5, 3))
