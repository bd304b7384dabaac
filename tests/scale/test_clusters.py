import pytest
import torch
from torch_geometric.data import Data

from sirgcn.scale import ClusterLoader, part_nodes
from tests.scale.drawn import drawn_data


def test_an_epoch_has_every_node_once_and_no_edge_twice() -> None:
    data = drawn_data()
    batches = list(ClusterLoader(data, 10, batch_size=3, shuffle=True))
    assert len(batches) == 4
    assert torch.cat([batch.n_id for batch in batches]).sort().values.tolist() == list(range(100))
    edges = torch.cat([batch.e_id for batch in batches])
    assert len(edges.unique()) == len(edges)


def test_a_batch_has_all_edges_between_its_nodes() -> None:
    data = drawn_data()
    part = part_nodes(data.edge_index, 100, 8, method="labels")
    for batch in ClusterLoader(data, part, batch_size=2):
        inside = torch.isin(data.edge_index, batch.n_id).all(0)
        assert batch.e_id.sort().values.tolist() == inside.nonzero().flatten().tolist()
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.part, part[batch.n_id])


def test_batches_of_workers_are_the_same() -> None:
    data = drawn_data()
    found = [[batch.n_id.tolist() for batch in ClusterLoader(data, 5, num_workers=n)] for n in (0, 2)]
    assert found[0] == found[1]


def test_clusters_keep_more_edges_than_blocks() -> None:
    """Two graphs whose nodes alternate: parts by edges lose nothing, blocks lose half."""
    even = torch.randint(50, (2, 400), generator=torch.Generator().manual_seed(0)) * 2
    data = Data(x=torch.ones(100, 1), edge_index=torch.cat([even, even + 1], 1))
    kept = [
        sum(batch.num_edges for batch in ClusterLoader(data, part_nodes(data.edge_index, 100, 2, method=method)))
        for method in ("labels", "blocks")
    ]
    assert kept[0] > 1.5 * kept[1]


def test_bad_parts_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"parts: expected int64 \[100\], got torch.float32"):
        ClusterLoader(drawn_data(), torch.zeros(100))
    with pytest.raises(IndexError, match=r"parts\[0\] = -1"):
        ClusterLoader(drawn_data(), torch.arange(100) - 1)
    with pytest.raises(ValueError, match="edge_index: expected a tensor"):
        ClusterLoader(Data(x=torch.ones(3, 1)), 2)
