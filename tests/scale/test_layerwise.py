import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn import SIRNet
from sirgcn.nn.baselines.heterophilous import GloGNN
from sirgcn.ops.sampling import InEdges
from sirgcn.scale import layerwise
from sirgcn.scale.budget import Budget, read_bytes
from sirgcn.scale.edgeblocks import EdgeBlocks
from tests.scale.drawn import drawn_data

NETS: list[dict[str, Any]] = [
    {},
    {"aggr": "mean"},
    {"aggr": "sym"},
    {"aggr": "sym", "variant": "published"},
    {"aggr": "max"},
    {"gated": True},
    {"context": "sym"},
    {"activation": "prelu"},
    {"sigma_layers": 1},
    {"conv": "gcn"},
    {"conv": "sage"},
    {"conv": "gin"},
    {"conv": "gatv2"},
    {"conv": "transformer"},
    {"conv": "fagcn", "encoder": "linear"},
    {"jk": "cat"},
    {"jk": "sum", "norm": "layer"},
    {"block": "pre_norm", "encoder": "linear"},
    {"block": "transformer", "encoder": "linear", "feed_forward": 2},
]


def drawn_net(**options: Any) -> SIRNet:
    """A network whose norms have statistics of their own."""
    torch.manual_seed(0)
    net = SIRNet.of(4, 8, 3, num_layers=3, residual=options.get("block") is None, **options)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return net.eval()


@torch.no_grad()
def whole(net: SIRNet, data: Data) -> Tensor:
    edge_attr = data.edge_attr if net.edge_dim else None
    out: Tensor = net(data.x, data.edge_index, edge_attr)
    return out


@pytest.mark.parametrize("options", NETS, ids=str)
@pytest.mark.parametrize("memory", ["12KB", "1GB"])
def test_layers_in_blocks_equal_one_pass(options: dict[str, Any], memory: str) -> None:
    data = drawn_data(80, 700)
    del data.edge_attr
    net = drawn_net(**options)
    # Sums over neighbours in pieces of channels are the same sums; products of fewer rows may round otherwise.
    torch.testing.assert_close(layerwise(net, data, memory=memory), whole(net, data), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", ["12KB", "1GB"])
def test_edge_features_are_read_block_by_block(memory: str) -> None:
    data = drawn_data(80, 700)
    data.edge_attr = torch.randn(700, 2)
    net = drawn_net(edge_channels=2)
    torch.testing.assert_close(layerwise(net, data, memory=memory), whole(net, data), rtol=1e-5, atol=1e-5)


def test_states_and_output_may_lie_in_files(tmp_path: Path) -> None:
    data = drawn_data(80, 700)
    del data.edge_attr
    net, out = drawn_net(), tmp_path / "out.npy"
    found = layerwise(net, data, memory="12KB", out=out, scratch=tmp_path / "scratch")
    torch.testing.assert_close(found, whole(net, data), rtol=1e-5, atol=1e-5)
    assert np.array_equal(np.load(out), found.numpy())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out.npy", "scratch"]


def test_a_failure_leaves_no_output(tmp_path: Path) -> None:
    data = drawn_data(80, 700)
    net = drawn_net()
    del data.edge_attr
    net.blocks[2].conv.lin_query = torch.nn.Linear(5, 8)  # type: ignore[union-attr]
    with pytest.raises(RuntimeError):
        layerwise(net, data, out=tmp_path / "out.npy", scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_network_stays_in_its_mode() -> None:
    data = drawn_data()
    del data.edge_attr
    net = drawn_net().train()
    layerwise(net, data)
    assert net.training


def test_blocks_hold_every_edge_once() -> None:
    data = drawn_data(60, 500)
    edges = InEdges.of(data.edge_index, (60, 60))
    blocks = list(EdgeBlocks(edges, False, 40, 10))
    assert all(len(block.source) <= 40 and block.stop - block.start <= 10 for block in blocks)
    assert [block.start for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
    assert sorted(torch.cat([block.edge for block in blocks]).tolist()) == list(range(500))


def test_a_hub_is_a_block_of_its_own() -> None:
    edge_index = torch.stack([torch.arange(50), torch.full((50,), 3)])
    blocks = list(EdgeBlocks(InEdges.of(edge_index, (50, 50)), False, 5, 50))
    assert [(block.start, block.stop, len(block.source)) for block in blocks] == [(0, 3, 0), (3, 4, 50), (4, 50, 0)]


def test_a_budget_slices_the_keys() -> None:
    slices = Budget(10**6).slices_of(64, nodes=50_000, dtype=torch.float32)
    assert all(part.stop - part.start <= 2 for part in slices)
    assert slices[0].start == 0
    assert slices[-1].stop == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 apples", "memory: expected a text such as '4GB'"),
        ("4KX", "memory: expected a text such as '4GB'"),
        (17, "memory: expected at least 10KB, got 17"),
        (True, "memory: expected a number of bytes"),
    ],
)
def test_a_bad_size_is_refused(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_bytes(text)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"pool": "sum"}, "a readout that pools"),
        ({"virtual_node": True}, "a virtual node"),
        ({"random_features": 2}, "random features"),
        ({"conv": "pna"}, "the convolution pna, which reads the whole graph"),
    ],
)
def test_a_network_that_sees_more_than_neighbours_is_refused(options: dict[str, Any], what: str) -> None:
    net = SIRNet.of(4, 8, 3, num_layers=1, encoder="linear", **options)
    with pytest.raises(ValueError, match=what):
        layerwise(net, drawn_data())


def test_other_arguments_are_refused_by_name() -> None:
    net, data = drawn_net(), drawn_data()
    with pytest.raises(TypeError, match="net: expected a SIRNet, got GloGNN"):
        layerwise(GloGNN(4, 2, 100), data)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="data: expected PyG's Data, Graphs or a DiskGraph, got list"):
        layerwise(net, [data])
    with pytest.raises(ValueError, match=r"out: expected a \.npy file"):
        layerwise(net, Data(x=data.x, edge_index=data.edge_index), out="out.csv")
    with pytest.raises(ValueError, match="edge_attr: this network expects edge features, got none"):
        layerwise(drawn_net(edge_channels=2), Data(x=data.x, edge_index=data.edge_index))
