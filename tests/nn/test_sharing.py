"""Networks that compute each kind of nodes once: the same outputs, gradients and running statistics as by node."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn.aggr import MeanAggregation

import sirgcn.nn.conv as module
from sirgcn.nn import Rows, SIRNet, SIRReadout
from sirgcn.nn.blocks import LayerInputs
from sirgcn.nn.sharing import _refine
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
    return SIRNet.of(ATOMS, 8, 2, 3, **given).double()


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every aggregation's output."""
    found: list[int] = []

    def spy(query: Tensor, key: Tensor, neighbors: Neighbors, *args: Any) -> Tensor:
        found.append(neighbors.num_targets)
        return sir_aggregate(query, key, neighbors, *args)

    monkeypatch.setattr(module, "sir_aggregate", spy)
    return found


def by_node(net: SIRNet) -> SIRNet:
    """A copy that shares no rows."""
    other = copy.deepcopy(net)
    other.share = False
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
    ],
    ids=str,
)
def test_equal_nodes_are_computed_once(options: dict[str, Any], training: bool, targets: list[int]) -> None:
    data = molecules()
    if "edge_channels" in options:
        # Of the two directions of a bond, which stand side by side, the same.
        bond = torch.randint(BONDS, (data["edge_index"].size(1) // 2,), generator=torch.Generator().manual_seed(2))
        data["edge_attr"] = bond.repeat_interleave(2)
    net = network(**options).train(training)
    other = by_node(net)
    found = outcome(net, data)
    nodes = GRAPHS * SIZE
    assert len(targets) == 3
    assert targets[0] < nodes / 4
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
        {"jk": "cat"},
        {"feed_forward": 2},
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


@pytest.mark.parametrize("name", ["blocks.1", "blocks.1.conv.lin_key", "blocks.0.norm", "readout", "last_norm"])
def test_hooks_see_the_rows_of_all_nodes(name: str, targets: list[int]) -> None:
    data, net = molecules(), network()
    seen: list[Any] = []
    net.get_submodule(name).register_forward_hook(lambda layer, given, out: seen.append(given[0]))
    net(**data)
    assert is_by_node(targets)
    assert isinstance(seen[0], Tensor)
    assert seen[0].shape == (GRAPHS * SIZE, 8)


def test_backward_and_global_hooks_are_called(targets: list[int]) -> None:
    data, net = molecules(), network()
    seen: list[Any] = []

    def note(layer: nn.Module, given: Any, out: Any) -> None:
        seen.append(out[0].shape)

    handle = net.blocks[1].register_full_backward_hook(note)
    net(**data).sum().backward()
    assert seen == [(GRAPHS * SIZE, 8)]
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda layer, given, out: None)
    del targets[:]
    try:
        net(**data)
    finally:
        handle.remove()
    # PyG's own route, which calls every module.
    assert not targets


def replaced(net: SIRNet, part: str) -> None:
    """Put something else in the place of one of the network's parts."""
    if part == "feed_forward":
        net.feed_forwards[0] = nn.Sequential(nn.BatchNorm1d(8), nn.Tanh()).double()
    elif part == "readout":
        net.readout = SIRReadout(nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2)).double())
    elif part == "aggregation":
        net.readout = MeanAggregation()
    elif part == "last_norm":
        net.last_norm = nn.BatchNorm1d(8).double()
    else:
        block: Any = net.blocks[1]
        linear = block.residual[0]
        parts = {
            "act": nn.RReLU(),
            "dropout": nn.Identity(),
            "residual": nn.Sequential(nn.BatchNorm1d(8), linear).double(),
        }
        if part == "residual":
            block.residual[0] = parts[part]
        else:
            setattr(block, part, parts[part])


@pytest.mark.parametrize("part", ["feed_forward", "readout", "aggregation", "last_norm", "act", "dropout", "residual"])
def test_parts_that_were_replaced(part: str) -> None:
    net = network()
    replaced(net, part)
    outputs = []
    for each in (net, by_node(net)):
        torch.manual_seed(0)
        outputs.append(each(**molecules()))
    torch.testing.assert_close(*outputs)


def test_checkpoint_computes_it_again() -> None:
    data, net = molecules(), network()
    x = torch.zeros((), dtype=DOUBLE, requires_grad=True)
    grads = []

    def run(x: Tensor) -> Tensor:
        out: Tensor = net(**data) + x
        return out

    for again in (False, True):
        net.zero_grad()
        out: Any = checkpoint(run, x, use_reentrant=False) if again else run(x)
        out.sum().backward()
        grads.append([p.grad for p in net.parameters()])
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_block_that_is_compiled() -> None:
    data, net = molecules(), network().eval()
    net.blocks[1].compile(backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(net(**data), network().eval()(**data))


def test_a_norm_of_another_kind_is_left_to_itself(targets: list[int]) -> None:
    data, net = molecules(), network()
    for block in net.blocks:
        block.norm = nn.BatchNorm1d(8, momentum=None).double()
    net(**data)
    assert is_by_node(targets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda bond: bond[:7], "expected .* entries, one per edge, got 7"),
        (lambda bond: bond[:0], "expected .* entries, one per edge, got 0"),
        (lambda bond: bond.repeat(2), "expected .* entries, one per edge"),
        (lambda bond: bond + BONDS, r"expected .*, got|expected 0 <= "),
        (lambda bond: (torch.randn(BONDS, 8, dtype=DOUBLE), bond.double()), "expected int32 or int64"),
        (lambda bond: (torch.randn(BONDS, 8, dtype=DOUBLE), bond.unsqueeze(1)), "expected int32 or int64"),
        (lambda bond: (torch.randn(BONDS, 8, dtype=DOUBLE), bond - 1), "expected 0 <= "),
    ],
)
def test_wrong_edge_categories_are_refused_by_name(change: Callable[[Tensor], Any], message: str) -> None:
    data, net = molecules(), network(edge_channels=[BONDS], edge_encoder="embedding")
    data["edge_attr"] = change(torch.zeros(data["edge_index"].size(1), dtype=torch.int64))
    with pytest.raises((IndexError, ValueError), match=message):
        net(**data)


def test_what_a_layer_gets() -> None:
    data = molecules()
    graph = Neighbors.from_edge_index(data["edge_index"], GRAPHS * SIZE)
    rows = Rows(torch.randn(ATOMS, 4), data["x"])
    found = _refine(rows, None, LayerInputs(graph, None, None, {}))
    assert found is not None
    assert found.edge is None
    assert found.source.index is None
    assert torch.equal(found.target.expand(), rows.expand()[found.kinds.first])
    assert torch.equal(found.target.expand()[found.kinds.kind], rows.expand())


def test_features_of_every_edge_are_computed_by_node(targets: list[int]) -> None:
    net = network(edge_channels=3, edge_encoder="linear")
    data = molecules()
    net(**data, edge_attr=torch.randn(data["edge_index"].size(1), 3, dtype=DOUBLE))
    assert is_by_node(targets)


def test_a_network_that_must_not_share_computes_every_node(targets: list[int]) -> None:
    net = SIRNet(network().config, share=False).double()
    net(**molecules())
    assert is_by_node(targets)


def test_autocast_is_computed_by_node(targets: list[int]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        network().float()(**molecules())
    assert is_by_node(targets)


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_that_lost_its_statistics_is_computed_by_node(training: bool, targets: list[int]) -> None:
    net = network().train(training)
    for block in net.blocks:
        norm: Any = block.norm
        norm.running_mean = norm.running_var = None
    torch.testing.assert_close(net(**molecules()), by_node(net)(**molecules()))
    assert is_by_node(targets[:3])


@pytest.mark.parametrize("step", ["_encoded_nodes", "_run_blocks"])
def test_a_network_with_a_step_of_its_own_runs_it(step: str) -> None:
    def twice(self: SIRNet, *given: Any) -> Tensor:
        found: Tensor = 2 * getattr(SIRNet, step)(self, *given)
        return found

    net = network().eval()
    plain = net(**molecules())
    net.__class__ = type("Own", (SIRNet,), {step: twice})
    found = net(**molecules())
    assert not torch.allclose(found, plain)
    torch.testing.assert_close(found, by_node(net)(**molecules()))
