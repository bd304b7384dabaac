"""What PyG's own `test_neighbor_loader.py` asks of a sampler, asked of ours, in PyG's `NeighborLoader`.

Left out, with the reason:

- the tests of sampling by time (`time_attr`, `input_time`) and by weights (`weight_attr`): our sampler has neither, and
  refuses a time by name
- the equality with pyg-lib and torch-sparse: neither is installed, and random numbers differ; in their place
  `tests/ops/test_sampling.py` tests the distribution
- `SparseTensor` as `adj_t`: the class is torch-sparse's
- the affinity of workers and the memory log: they are the loader's, and do not touch the sampler
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.nn import GraphConv, to_hetero
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.utils import k_hop_subgraph

from sirgcn.scale import NeighborSampler
from tests.scale.drawn import drawn_data, drawn_types

SUBGRAPHS = ["directional", "bidirectional", "induced"]


def loader_of(data: Any, fanouts: list[int], subgraph: str = "directional", **options: Any) -> NeighborLoader:
    # PyG's annotation names its own sampler; the loader calls no more than `BaseSampler` has.
    sampler: Any = NeighborSampler(data, fanouts, subgraph_type=subgraph)
    return NeighborLoader(data, fanouts, neighbor_sampler=sampler, **options)


def are_edges_of(edge_index: Tensor, whole: Tensor) -> bool:
    known = set(map(tuple, whole.t().tolist()))
    return all(edge in known for edge in map(tuple, edge_index.t().tolist()))


class Net(torch.nn.Module):
    """The network of PyG's test: two layers with weights of edges."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = GraphConv(channels, 16), GraphConv(16, 4)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight).relu()
        return out


@pytest.mark.parametrize("subgraph", SUBGRAPHS)
def test_homogeneous_batches_are_parts_of_the_graph(subgraph: str) -> None:
    data = Data(x=torch.arange(100), edge_index=drawn_data().edge_index, edge_attr=torch.arange(600))
    loader = loader_of(data, [5, 5], subgraph, batch_size=20)
    assert str(loader) == "NeighborLoader()"
    assert len(loader) == 5
    for batch in loader:
        assert batch.batch_size == 20
        assert batch.x.size(0) <= 100
        assert batch.edge_index.max() < batch.num_nodes
        ends = batch.x[batch.edge_index]
        both = (
            torch.cat([data.edge_index, data.edge_index.flip(0)], 1) if subgraph == "bidirectional" else data.edge_index
        )
        assert are_edges_of(ends, both)
        if subgraph == "bidirectional":
            assert are_edges_of(ends.flip(0), ends)


@pytest.mark.parametrize("subgraph", ["directional", "induced"])
def test_heterogeneous_batches_are_parts_of_the_graph(subgraph: str) -> None:
    data = drawn_types()
    loader = loader_of(data, [10, 10], subgraph, input_nodes="paper", batch_size=20)
    assert len(loader) == 5
    for batch in loader:
        assert set(batch.node_types) == {"paper", "author"}
        assert set(batch.edge_types) == set(data.edge_types)
        assert batch["paper"].batch_size == 20
        reached = {name: torch.zeros(batch[name].num_nodes, dtype=torch.bool) for name in batch.node_types}
        reached["paper"][:20] = True
        for kind in batch.edge_types:
            row, col = batch[kind].edge_index
            ends = torch.stack([batch[kind[0]].n_id[row], batch[kind[2]].n_id[col]])
            assert are_edges_of(ends, data[kind].edge_index)
            reached[kind[0]][row] = True
            if subgraph == "induced":
                inside = torch.isin(data[kind].edge_index[0], batch[kind[0]].n_id)
                inside &= torch.isin(data[kind].edge_index[1], batch[kind[2]].n_id)
                assert int(inside.sum()) == len(row)
        # No node comes without an edge.
        assert all(bool(nodes.all()) for nodes in reached.values())


@pytest.mark.parametrize("subgraph", ["directional", "induced"])
def test_all_neighbours_give_the_output_of_the_whole_graph(subgraph: str) -> None:
    data = drawn_data()
    data.edge_weight, seeds = torch.rand(600), torch.arange(5, 8)
    batch = next(iter(loader_of(data, [-1, -1], subgraph, input_nodes=seeds, batch_size=3)))
    if subgraph == "induced":
        nodes, _, _, _ = k_hop_subgraph(seeds, 2, data.edge_index, num_nodes=100)
        assert batch.n_id.sort().values.tolist() == nodes.tolist()
        inside = torch.isin(data.edge_index, nodes).all(0)
        assert batch.e_id.sort().values.tolist() == inside.nonzero().flatten().tolist()
    net = Net(4)
    whole = net(data.x, data.edge_index, data.edge_weight)[seeds]
    torch.testing.assert_close(net(batch.x, batch.edge_index, batch.edge_weight)[:3], whole)


def test_all_neighbours_give_a_heterogeneous_model_the_output_of_the_whole_graph() -> None:
    plain, seeds = drawn_data(), torch.arange(5, 8)
    data = HeteroData()
    data["paper"].x = plain.x
    data["paper", "to", "paper"].edge_index = plain.edge_index
    data["paper", "to", "paper"].edge_weight = torch.rand(600)
    batch = next(iter(loader_of(data, [-1, -1], input_nodes=("paper", seeds), batch_size=3)))
    net = Net(4)
    of_types = to_hetero(net, data.metadata())
    of_types.load_state_dict({f"{a}.paper__to__paper.{b}": v for (a, _, b), v in (
        (name.partition("."), value) for name, value in net.state_dict().items()
    )})  # fmt: skip
    whole = net(plain.x, plain.edge_index, data["paper", "to", "paper"].edge_weight)[seeds]
    found = of_types(batch.x_dict, batch.edge_index_dict, batch.edge_weight_dict)["paper"][:3]
    torch.testing.assert_close(found, whole)


def test_stores_of_other_layouts_give_the_same_nodes() -> None:
    data = drawn_types()
    features, graph = MyFeatureStore(), MyGraphStore()
    for name in data.node_types:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for layout, kind in zip(("coo", "csc", "coo"), data.edge_types, strict=True):
        source, target = data[kind].edge_index
        size = (data[kind[0]].num_nodes, data[kind[2]].num_nodes)
        ends = (source, target)
        if layout == "csc":
            order = torch.sort(target, stable=True).indices
            ends = (source[order], torch.searchsorted(target[order].contiguous(), torch.arange(size[1] + 1)))
        graph.put_edge_index(edge_index=ends, edge_type=kind, layout=layout, size=size)
    loaders = (
        loader_of(data, [-1, -1], input_nodes=("paper", torch.arange(100)), batch_size=20),
        loader_of((features, graph), [-1, -1], input_nodes=("paper", torch.arange(100)), batch_size=20),
    )
    assert len(loaders[0]) == len(loaders[1])
    for ours, theirs in zip(*loaders, strict=True):
        for name in data.node_types:
            assert sorted(ours[name].x[:, 0].tolist()) == sorted(theirs[name].x[:, 0].tolist())
        for kind in data.edge_types:
            assert ours[kind].edge_index.shape == theirs[kind].edge_index.shape


def test_counts_of_hops_are_those_of_a_known_graph() -> None:
    ends = [[2, 3, 4, 5, 7, 7, 10, 11, 12, 13], [0, 1, 2, 3, 2, 3, 7, 7, 7, 7]]
    data = Data(edge_index=torch.tensor(ends), num_nodes=14)
    sampler_input: dict[str, Any] = {"input_nodes": torch.tensor([0, 1]), "batch_size": 2}
    batch = next(iter(loader_of(data, [1, 2, 4], **sampler_input)))
    assert batch.num_sampled_nodes == [2, 2, 3, 4]
    assert batch.num_sampled_edges == [2, 4, 4]


def test_counts_of_hops_are_those_of_a_known_graph_of_types() -> None:
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 4
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    data["a", "to", "b"].edge_index = torch.tensor([[1, 2], [0, 1]])
    batch = next(iter(loader_of(data, [2, 2], input_nodes=("a", torch.tensor([0])), batch_size=1)))
    assert batch.num_sampled_nodes_dict == {"a": [1, 0, 2], "b": [0, 2, 0]}
    assert batch.num_sampled_edges_dict == {("b", "to", "a"): [2, 0], ("a", "to", "b"): [0, 2]}


def test_numbers_of_the_graph_come_with_a_batch_unless_it_has_its_own() -> None:
    data = drawn_data()
    for batch in loader_of(data, [3, 2], batch_size=10):
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    data.n_id = torch.arange(100) + 1000
    batch = next(iter(loader_of(data, [3, 2], batch_size=10)))
    assert int(batch.n_id.min()) >= 1000


def test_a_mask_chooses_seeds_and_an_input_id_is_passed_on() -> None:
    data = drawn_data()
    mask = torch.zeros(100, dtype=torch.bool)
    mask[[3, 50, 99]] = True
    batch = next(iter(loader_of(data, [2], input_nodes=mask, batch_size=3)))
    assert batch.n_id[:3].tolist() == [3, 50, 99]
    assert batch.input_id.tolist() == [3, 50, 99]


def test_a_graph_without_edges_has_batches_of_seeds() -> None:
    data = Data(x=torch.ones(5, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
    batch = next(iter(loader_of(data, [3], batch_size=5)))
    assert (batch.num_nodes, batch.num_edges) == (5, 0)


def test_the_loader_of_edges_takes_the_sampler_too() -> None:
    data = drawn_data()
    sampler: Any = NeighborSampler(data, [3, 2])
    loader = LinkNeighborLoader(
        data,
        [3, 2],
        edge_label_index=data.edge_index[:, :50],
        neg_sampling_ratio=1.0,
        neighbor_sampler=sampler,
        batch_size=25,
    )
    for batch in loader:
        assert batch.edge_label_index.shape == (2, 50)
        assert batch.edge_label[:25].eq(1).all()
        assert batch.edge_label[25:].eq(0).all()


def test_a_transform_sees_every_batch() -> None:
    data = drawn_data()
    loader = loader_of(data, [2], batch_size=50, transform=lambda batch: batch.update({"seen": True}))
    assert [batch.seen for batch in loader] == [True, True]
