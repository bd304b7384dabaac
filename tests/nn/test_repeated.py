"""Networks that compute each kind of nodes once: the same outputs, gradients and running statistics as by node."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sirgcn.nn.conv as module
from sirgcn.nn import SIRNet
from sirgcn.nn.repeated import Repeated, rows_of
from sirgcn.ops import Neighbors, native, sir_aggregate

pytestmark = pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
DOUBLE = torch.float64
ATOMS, BONDS, GRAPHS, SIZE = 2, 2, 300, 5


def molecules() -> dict[str, Any]:
    """Many small trees: after few rounds there are still nodes that agree."""
    generator = torch.Generator().manual_seed(0)
    edges = []
    for g in range(GRAPHS):
        for v in range(1, SIZE):
            parent = int(torch.randint(max(0, v - 2), v, (1,), generator=generator))
            edges += [(g * SIZE + v, g * SIZE + parent), (g * SIZE + parent, g * SIZE + v)]
    return {
        "x": torch.randint(ATOMS, (GRAPHS * SIZE,), generator=generator),
        "edge_index": torch.tensor(edges).t(),
        "batch": torch.arange(GRAPHS).repeat_interleave(SIZE),
        "batch_size": GRAPHS,
    }


def network(**options: Any) -> SIRNet:
    torch.manual_seed(0)
    given = {"encoder": "embedding", "activation": "leaky_relu(0.2)", "pool": "sum", "readout_layers": 2, **options}
    return SIRNet(ATOMS, 8, 2, 3, **given).double()


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every aggregation's output."""
    found: list[int] = []

    def spy(query: Tensor, key: Tensor, neighbors: Neighbors, *args: Any) -> Tensor:
        found.append(neighbors.num_targets)
        return sir_aggregate(query, key, neighbors, *args)

    monkeypatch.setattr(module, "sir_aggregate", spy)
    return found


def by_node(net: SIRNet, monkeypatch: pytest.MonkeyPatch) -> SIRNet:
    """A copy that looks for no kinds."""
    other = copy.deepcopy(net)
    for block in other.blocks:
        monkeypatch.setattr(block, "_takes_kinds", lambda: False)
    return other


def outcome(net: SIRNet, data: dict[str, Any]) -> list[Tensor]:
    out = net(**data)
    weight = torch.randn(out.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad((out * weight).sum(), list(net.parameters()))
    return [out.detach(), *grads, *(buffer.clone() for buffer in net.buffers())]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggr": "mean", "block": "skip"},
        {"aggr": "sym", "norm": "layer"},
        {"aggr": "sym", "variant": "published"},
        {"norm": None, "residual": False},
        {"pool": None},
        {"self_loops": True, "aggr": "sym"},
        {"edge_channels": [BONDS], "edge_encoder": "embedding"},
        {"jk": "cat"},
        {"feed_forward": 2},
    ],
    ids=str,
)
def test_equal_nodes_are_computed_once(
    options: dict[str, Any], training: bool, targets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = molecules()
    if "edge_channels" in options:
        # Of the two directions of a bond, which stand side by side, the same.
        bond = torch.randint(BONDS, (data["edge_index"].size(1) // 2,), generator=torch.Generator().manual_seed(2))
        data["edge_attr"] = bond.repeat_interleave(2)
    net = network(**options).train(training)
    other = by_node(net, monkeypatch)
    found = outcome(net, data)
    nodes = GRAPHS * SIZE
    assert len(targets) == 3
    assert targets[0] < nodes / 4
    # These want the rows of all nodes after each block.
    if "jk" not in options and "feed_forward" not in options:
        assert targets == sorted(targets)
        assert targets[-1] < nodes
    wanted = outcome(other, data)
    assert targets[3:] == [nodes] * 3
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)


def is_by_node(targets: list[int]) -> bool:
    return targets == [GRAPHS * SIZE] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.5},
        {"conv_dropout": 0.5},
        {"residual_dropout": 0.5},
        {"virtual_node": True},
        {"random_features": 1},
    ],
    ids=str,
)
def test_rows_that_come_to_differ_are_computed_by_node(options: dict[str, Any], targets: list[int]) -> None:
    data, net = molecules(), network(**options)
    net(**data)
    assert is_by_node(targets)
    if any("dropout" in name for name in options):
        del targets[:]
        net.eval()(**data)
        assert not is_by_node(targets)


def test_dropout_that_is_left_on_in_evaluation(targets: list[int]) -> None:
    net = network(dropout=0.5).eval()
    for layer in net.modules():
        if isinstance(layer, nn.Dropout):
            layer.train()
    net(**molecules())
    assert is_by_node(targets)


def test_half_precision_is_computed_by_node(targets: list[int]) -> None:
    network().bfloat16()(**molecules())
    assert is_by_node(targets)


def test_hooks_see_the_rows_of_all_nodes(targets: list[int]) -> None:
    data, net = molecules(), network()
    shapes = []
    net.blocks[1].register_forward_hook(lambda block, given, out: shapes.append((given[0].shape, out.shape)))
    net(**data)
    assert targets[0] < GRAPHS * SIZE
    assert targets[1:] == [GRAPHS * SIZE] * 2
    assert [tuple(shape) for shape in shapes[0]] == [(GRAPHS * SIZE, 8)] * 2


def test_a_norm_of_another_kind_is_left_to_itself(targets: list[int]) -> None:
    data, net = molecules(), network()
    for block in net.blocks:
        block.norm = nn.BatchNorm1d(8, momentum=None).double()
    net(**data)
    assert is_by_node(targets)


def test_wrong_categories_are_refused(targets: list[int]) -> None:
    data, net = molecules(), network(edge_channels=[BONDS], edge_encoder="embedding")
    data["edge_attr"] = torch.zeros(data["edge_index"].size(1), dtype=torch.int64)
    data["edge_attr"][3] = BONDS
    with pytest.raises((IndexError, ValueError)):
        net(**data)
    data["edge_attr"][3] = 0
    data["x"][5] = ATOMS
    with pytest.raises((IndexError, ValueError)):
        net(**data)


def test_what_a_layer_gets() -> None:
    data = molecules()
    graph = Neighbors.from_edge_index(data["edge_index"], GRAPHS * SIZE)
    rows = Repeated(torch.randn(ATOMS, 4), data["x"])
    found = rows.finer(graph, None)
    assert found is not None
    (table, target), kinds, _, edge = found
    assert edge is None
    assert torch.equal(rows_of(target), rows_of(rows)[kinds.first])
    assert torch.equal(table[target.kind][kinds.kind], rows_of(rows))
    assert rows.finer(graph, torch.randn(graph.num_edges, 1)) is None
