"""Training on a partitioned graph: exact gradients, the same training, and what is refused."""

import pytest
import torch

from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.ranks import ALONE
from sirgcn.nn import SIRNet
from sirgcn.ops import Neighbors, sir_aggregate
from sirgcn.scale.halo import HaloGraph
from sirgcn.scale.launch import RankError, launch
from sirgcn.scale.partitioned import Partitioned
from tests.scale import onranks
from tests.scale.graphs import GRAPHS, graph, task_on
from tests.scale.same import same_numbers

LIMIT = 240.0

FORMS = (False, True)
"""Whether the exchange is sequential."""

ON_GRAPHS = [
    *((name, "mean", 0, is_bound) for name in GRAPHS for is_bound in FORMS),
    *((name, "sym", 4, is_bound) for name in ("random", "empty rank") for is_bound in FORMS),
]
OF_NETS = [("random", net, 0, is_bound) for net in onranks.NETS for is_bound in FORMS]


def too_far(
    cases: list[tuple[str, str, int, bool]], ranks: int, is_double: bool, tolerance: float
) -> dict[object, float]:
    """The cases whose gradients differ by more than the tolerance on some rank."""
    found = launch(onranks.gradient_errors, ranks, (cases, is_double), restarts=0, seconds=LIMIT)
    largest = map(max, zip(*found, strict=True))
    return {case: error for case, error in zip(cases, largest, strict=True) if not error <= tolerance}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gradients_and_norms_of_ranks_are_those_of_one_process_on_any_graph(ranks: int) -> None:
    assert too_far(ON_GRAPHS, ranks, True, 1e-12) == {}


def test_gradients_of_ranks_are_those_of_one_process_for_any_layer_that_sums() -> None:
    assert too_far(OF_NETS, 3, True, 1e-12) == {}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_gradients_in_float32_are_those_of_one_process_up_to_its_rounding(ranks: int) -> None:
    assert too_far([*ON_GRAPHS, *OF_NETS][:: max(1, 5 - ranks)], ranks, False, 1e-5) == {}


CONFIG = TrainConfig(epochs=4, batch_size=None, lr=1e-2, selection="val_loss", clip=1.0, warmup=2)


@pytest.mark.parametrize(("name", "ranks", "is_bound"), [("random", 2, False), ("empty rank", 3, True)])
def test_a_partitioned_training_is_that_of_one_process(name: str, ranks: int, is_bound: bool) -> None:
    expected = onranks.trained_on(task_on(name, ranks, torch.float64)[0], ALONE, CONFIG)
    found = launch(onranks.train_partitioned, ranks, (name, is_bound, CONFIG), seconds=LIMIT)
    assert len({rank["sha256"] for rank in found}) == 1
    # Adam divides by the size of a gradient, and makes more of a rounding of 1e-16.
    same_numbers(found[0], expected, 1e-6)


def test_without_a_partition_the_ranks_make_the_same_one() -> None:
    found = launch(onranks.train_partitioned, 2, ("random", False, CONFIG, "auto"), seconds=LIMIT)
    assert found[0] == found[1]


@pytest.mark.parametrize("what", ["part", "memory_bound"])
def test_ranks_with_other_partitions_are_refused(what: str) -> None:
    with pytest.raises(RankError, match=f"rank 1: {what}: expected .*, as on rank 0, got "):
        launch(onranks.other_partition, 2, (what,), seconds=LIMIT)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_node_and_edge_has_one_owner_and_what_one_rank_sends_another_receives(name: str) -> None:
    edge_index, part = graph(name, 3)
    ranks = [HaloGraph(edge_index, part, rank, 3, is_bound) for rank, is_bound in enumerate((True, True, True))]
    nodes, edges = torch.cat([rank.nodes for rank in ranks]), torch.cat([rank.edges for rank in ranks])
    assert sorted(nodes.tolist()) == list(range(len(part)))
    assert sorted(edges.tolist()) == list(range(edge_index.size(1)))
    for one in ranks:
        for other in ranks:
            assert len(one.sent[other.rank]) == other.received[one.rank]


def test_one_rank_computes_what_the_whole_graph_gives() -> None:
    edge_index, _ = graph("random", 1)
    h = torch.randn(60, 4, dtype=torch.float64)
    split = HaloGraph(edge_index, torch.zeros(60, dtype=torch.int64), 0, 1)
    for reduce in ("sum", "mean", "sym", "sym_in"):
        expected = sir_aggregate(h, h, Neighbors.from_edge_index(edge_index, 60), reduce=reduce)
        assert torch.allclose(sir_aggregate(h, h, split, reduce=reduce), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"random_features": 2}, "expected no RandomFeatures: the ranks would draw the same columns"),
        ({"virtual_node": True, "encoder": "linear"}, "expected no VirtualNode"),
        ({"positional": "laplacian", "pe_dim": 2, "encoder": "linear"}, "expected no PositionalEncoder"),
    ],
)
def test_a_model_that_looks_beyond_its_nodes_is_refused(options: dict[str, object], message: str) -> None:
    task, part = task_on("random", 2, torch.float32)
    with pytest.raises(ValueError, match=message):
        Partitioned(task, part, rank=0, world=2).check(SIRNet.of(5, 8, 3, num_layers=1, **options), task)


@pytest.mark.parametrize("options", [{"aggr": "max"}, {"conv": "gatv2"}])
def test_a_layer_that_reads_single_edges_is_refused(options: dict[str, str]) -> None:
    edge_index, part = graph("random", 2)
    split = HaloGraph(edge_index, part, 0, 2)
    model = SIRNet.of(5, 8, 3, num_layers=1, **options)
    with pytest.raises(ValueError, match="neighbors: the edges of this graph are split"):
        model(torch.randn(len(split.nodes), 5), split)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), r"part: expected int64 of shape \[60\], got torch.int64 of shape \[3\]"),
        (torch.full((60,), 2), r"part\[0\]: expected 0 <= rank < 2, got 2"),
        (torch.zeros(60), r"part: expected int64"),
    ],
)
def test_a_bad_partition_is_refused(part: torch.Tensor, message: str) -> None:
    task, _ = task_on("random", 2, torch.float32)
    with pytest.raises(ValueError, match=message):
        Partitioned(task, part, rank=0, world=2)


def test_a_task_on_graphs_is_not_partitioned() -> None:
    with pytest.raises(ValueError, match="task: expected one graph with labels on its nodes, got a task over graphs"):
        Partitioned(onranks.tiny(), rank=0, world=2)


def test_an_inductive_task_is_not_partitioned() -> None:
    task, part = task_on("random", 2, torch.float32)
    with pytest.raises(ValueError, match="task: expected one graph for training and validation, got an inductive task"):
        Partitioned(task.as_inductive(), part, rank=0, world=2)


def test_the_report_says_what_each_rank_owns_and_exchanges() -> None:
    task, part = task_on("random", 2, torch.float32)
    ranks = [Partitioned(task, part, rank=rank, world=2) for rank in (0, 1)]
    rows = [line.split() for line in ranks[0].report(channels=8).splitlines()]
    for rank, row in zip(ranks, rows[1:3], strict=True):
        sizes = rank.graph.sizes
        assert [int(cell) for cell in row[1:4]] == [sizes.nodes, sizes.edges, sizes.halo]
    assert ranks[0].report(8) == ranks[1].report(8)
