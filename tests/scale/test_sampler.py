import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.sampler import NegativeSampling
from torch_geometric.utils import trim_to_layer

from sirgcn import SIRConv, SIRNet
from sirgcn.ops import Neighbors, native
from sirgcn.scale import NeighborSampler
from tests.scale.drawn import drawn_data, drawn_types

KINDS: list[dict[str, Any]] = [
    {},
    {"replace": True},
    {"disjoint": True},
    {"subgraph_type": "induced"},
    {"subgraph_type": "induced", "disjoint": True},
]


def tensors_of(batch: Data) -> dict[str, Any]:
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in batch.to_dict().items()
    }


def batches_of(sampler: NeighborSampler, data: Data, **options: Any) -> list[dict[str, Any]]:
    return [tensors_of(batch) for batch in NodeLoader(data, sampler, batch_size=16, **options)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_edges_and_features_of_the_graph(kind: dict[str, Any]) -> None:
    data = drawn_data()
    for batch in NodeLoader(data, NeighborSampler(data, [5, 3], **kind), batch_size=16):
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)


@pytest.mark.skipif(native.UNAVAILABLE is not None, reason="the C extension was not built")
@pytest.mark.parametrize("kind", [*KINDS, {"subgraph_type": "bidirectional"}])
def test_native_and_torch_give_the_same_batches(kind: dict[str, Any]) -> None:
    data = drawn_data()
    ours, plain = (NeighborSampler(data, [4, 3], backend=name, **kind) for name in ("native", "torch"))
    assert batches_of(ours, data) == batches_of(plain, data)


def test_batches_do_not_depend_on_workers() -> None:
    data = drawn_data()
    sampler = NeighborSampler(data, [5, 3])
    assert batches_of(sampler, data) == batches_of(sampler, data, num_workers=2)


def test_batches_do_not_depend_on_threads() -> None:
    data, before, found = drawn_data(5000, 60_000), torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        loader = NodeLoader(data, NeighborSampler(data, [10, 5]), batch_size=2000)
        found.append([tensors_of(batch) for batch in loader])
    torch.set_num_threads(before)
    assert found[0] == found[1]


def test_workers_that_live_on_see_the_next_epoch() -> None:
    data = drawn_data()
    sampler = NeighborSampler(data, [2, 2])
    loader = NodeLoader(data, sampler, batch_size=50, num_workers=1, persistent_workers=True)
    epochs = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        epochs.append([tensors_of(batch) for batch in loader])
    assert epochs[0] == epochs[2] != epochs[1]


def test_hops_say_where_their_nodes_and_edges_begin() -> None:
    data = drawn_data()
    batch = next(iter(NodeLoader(data, NeighborSampler(data, [5, 3]), batch_size=8)))
    assert sum(batch.num_sampled_nodes) == batch.num_nodes
    assert sum(batch.num_sampled_edges) == batch.num_edges
    first, second = batch.num_sampled_nodes[:2]
    hop = batch.edge_index[:, : batch.num_sampled_edges[0]]
    assert int(hop[1].max()) < first
    assert int(hop[0].max()) < first + second


def test_trimmed_layers_give_the_seeds_the_same_output() -> None:
    data = drawn_data()
    batch = next(iter(NodeLoader(data, NeighborSampler(data, [5, 3]), batch_size=8)))
    layers = [SIRConv(4, 4), SIRConv(4, 4)]
    whole, x, edge_index = batch.x, batch.x, batch.edge_index
    for number, layer in enumerate(layers):
        whole = layer(whole, batch.edge_index)
        x, edge_index, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
        x = layer(x, edge_index)
    torch.testing.assert_close(x[:8], whole[:8])


@pytest.mark.parametrize("aggr", ["sum", "mean", "sym", "max"])
def test_all_neighbours_give_the_seeds_the_output_of_the_whole_graph(aggr: str) -> None:
    data = drawn_data()
    net = SIRNet.of(4, 8, 2, num_layers=2, aggr=aggr).eval()
    sampler = NeighborSampler(data, [-1, -1])
    for batch in NodeLoader(data, sampler, batch_size=10):
        out = net(batch.x, sampler.neighbors(batch))[: batch.batch_size]
        torch.testing.assert_close(out, net(data.x, data.edge_index)[batch.input_id])


def test_propagate_and_the_fused_route_weigh_a_sample_alike() -> None:
    data = drawn_data()
    sampler = NeighborSampler(data, [3])
    batch = next(iter(NodeLoader(data, sampler, batch_size=20)))
    for aggr in ("sum", "mean", "sym"):
        fused, plain = SIRConv(4, 3, aggr=aggr), SIRConv(4, 3, aggr=aggr, fused=False)
        plain.load_state_dict(fused.state_dict())
        graph = sampler.neighbors(batch)
        torch.testing.assert_close(fused(batch.x, graph), plain(batch.x, graph))


def test_trees_of_disjoint_seeds_share_no_node() -> None:
    data = drawn_data()
    batch = next(iter(NodeLoader(data, NeighborSampler(data, [5, 3], disjoint=True), batch_size=8)))
    source, target = batch.edge_index
    assert torch.equal(batch.batch[source], batch.batch[target])
    assert batch.batch[:8].tolist() == list(range(8))
    pairs = batch.batch * 100 + batch.n_id
    assert len(pairs.unique()) == len(pairs)


@pytest.mark.parametrize("negatives", ["binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_seed_edges_are_found_again_and_negatives_repeat(negatives: str, disjoint: bool) -> None:
    data = drawn_data()
    sampler = NeighborSampler(data, [4, 2], disjoint=disjoint)
    found = []
    for _ in range(2):
        loader = LinkLoader(data, sampler, neg_sampling=NegativeSampling(negatives), batch_size=30)
        found.append([tensors_of(batch) for batch in loader])
        torch.rand(1)
    assert found[0] == found[1]
    batch = next(iter(LinkLoader(data, sampler, neg_sampling=NegativeSampling(negatives), batch_size=30)))
    if negatives == "binary":
        ends = batch.n_id[batch.edge_label_index[:, :30]]
    else:
        ends = torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
    assert torch.equal(ends, data.edge_index[:, batch.input_id])


def test_types_of_edges_are_sampled_by_themselves() -> None:
    data = drawn_types()
    fanouts = {("paper", "to", "paper"): [3, 0], ("paper", "to", "author"): [0, 2], ("author", "to", "paper"): [1, 1]}
    sampler = NeighborSampler(data, fanouts)
    for batch in NodeLoader(data, sampler, input_nodes="paper", batch_size=20):
        for kind in data.edge_types:
            source, target = batch[kind[0]].n_id, batch[kind[2]].n_id
            row, col = batch[kind].edge_index
            assert torch.equal(torch.stack([source[row], target[col]]), data[kind].edge_index[:, batch[kind].e_id])
            assert torch.equal(batch[kind].edge_attr, batch[kind].e_id)
        assert batch["paper", "to", "author"].num_sampled_edges[0] == 0
        assert batch["paper", "to", "paper"].num_sampled_edges[1] == 0
        assert batch["paper"].num_sampled_nodes[0] == 20


def test_a_heterogeneous_model_learns_on_sampled_batches() -> None:
    data = drawn_types()
    data["paper"].y = (data["paper"].x[:, 0] > 0).long()
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = SIRConv((4, 4), 16, residual=True), SIRConv((16, 16), 2, residual=True)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    net = to_hetero(Net(), data.metadata())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    sampler, losses = NeighborSampler(data, [5, 3]), []
    for epoch in range(12):
        sampler.set_epoch(epoch)
        total = 0.0
        for batch in NodeLoader(data, sampler, input_nodes="paper", batch_size=25):
            out = net(batch.x_dict, batch.edge_index_dict)["paper"][:25]
            loss = torch.nn.functional.cross_entropy(out, batch["paper"].y[:25])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    assert losses[-1] < 0.5 * losses[0]


def test_degrees_of_types_make_an_unbiased_sample() -> None:
    data = drawn_types()
    sampler = NeighborSampler(data, [4])
    batch = next(iter(NodeLoader(data, sampler, input_nodes="paper", batch_size=20)))
    kind = ("author", "to", "paper")
    graph = sampler.neighbors(batch, kind)
    weight, _ = graph.weights("sum", torch.float32)
    assert weight is not None
    whole = torch.bincount(data[kind].edge_index[1], minlength=100)[batch["paper"].n_id].float()
    drawn = graph.in_degree().float()
    torch.testing.assert_close((weight * drawn)[drawn > 0], whole[drawn > 0])


def test_seeds_may_repeat() -> None:
    data = drawn_data()
    loader = NodeLoader(data, NeighborSampler(data, [3]), input_nodes=torch.tensor([5, 5, 7]), batch_size=3)
    batch = next(iter(loader))
    assert batch.n_id[:3].tolist() == [5, 5, 7]


def test_neighbors_are_taken_as_they_are_grouped() -> None:
    data = drawn_data()
    grouped = Neighbors.from_edge_index(data.edge_index, 100)
    assert batches_of(NeighborSampler(grouped, [3, 2]), data) == batches_of(NeighborSampler(data, [3, 2]), data)


def test_sage_of_pyg_runs_on_a_batch() -> None:
    data = drawn_data()
    batch = next(iter(NodeLoader(data, NeighborSampler(data, [3]), batch_size=8)))
    assert SAGEConv(4, 2)(batch.x, batch.edge_index).shape == (batch.num_nodes, 2)


REFUSED: list[tuple[Callable[[Data], object], type[Exception], str]] = [
    (lambda data: NeighborSampler(data, [5, -2]), ValueError, "num_neighbors[1]: expected -1 for all neighbours"),
    (lambda data: NeighborSampler(data, 5), TypeError, "num_neighbors: expected a list"),  # type: ignore[arg-type]
    (lambda data: NeighborSampler(data, [2.5]), ValueError, "num_neighbors[0]: expected"),  # type: ignore[list-item]
    (lambda data: NeighborSampler(data, {("a", "b", "c"): [1]}), TypeError, "num_neighbors: expected a list"),
    (lambda data: NeighborSampler(data, [1], subgraph_type="induce"), ValueError, "did you mean induced"),
    (lambda data: NeighborSampler(data, [1], backend="c"), ValueError, "backend: expected native, torch or None"),
    (lambda data: NeighborSampler([data], [1]), TypeError, "data: expected PyG's Data or HeteroData"),
    (lambda data: NeighborSampler(Data(x=data.x), [1]), ValueError, "edge_index: expected a tensor [2, edges]"),
    (
        lambda data: next(iter(NodeLoader(data, NeighborSampler(data, [1]), input_nodes=torch.tensor([100])))),
        IndexError,
        "input_nodes[0] = 100",
    ),
    (
        lambda data: next(
            iter(
                NodeLoader(
                    data, NeighborSampler(data, [1]), input_nodes=torch.tensor([3]), input_time=torch.tensor([1])
                )
            )
        ),
        ValueError,
        "input_time: sampling by time is not supported",
    ),
    (
        lambda data: NeighborSampler(data, [1], subgraph_type="induced").neighbors(data),
        ValueError,
        "subgraph_type: the expected value is known where only drawn edges are kept",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_bad_input_is_refused_by_name(call: Callable[[Data], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(drawn_data())


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Not all edge types"):
        NeighborSampler(drawn_types(), {("paper", "cites", "paper"): [1]})
    sampler = NeighborSampler(drawn_types(), [1])
    with pytest.raises(ValueError, match="edge_type"):
        sampler.neighbors(drawn_types(), ("paper", "from", "author"))


def test_the_page_has_the_figures_of_the_record_and_they_hold() -> None:
    root = Path(__file__).parents[2]
    lines = (root / "results/scale/sampler.jsonl").read_text("utf-8").splitlines()
    speed, trained, scored = (
        next(row["metrics"] for row in map(json.loads, lines) if row["part"] == part)
        for part in ("sampler", "training", "tolokers")
    )
    rate, means = speed["edges_per_second"], [f"{mean(values):.3f}" for values in scored["roc_auc"].values()]
    page = (root / "docs/sampling.md").read_text("utf-8")
    for text in (
        f"draws {rate['native'] / 1e6:.1f} million edges",
        f"That is {speed['ratio']:.1f} times",
        f"and {rate['native'] / rate['torch with replacement']:.1f} times",
        f"a peak of {trained['peak_mb']:.0f} MiB in {trained['seconds']:.0f} seconds",
        "{} without the graph, {} on the whole graph, {} on samples".format(*means),
        f"keeps {100 * scored['share_of_gain']:.1f} % of",
    ):
        assert text in page
    assert speed["ratio"] >= 5
    assert scored["share_of_gain"] >= 0.9
    assert trained["peak_mb"] <= 4096
