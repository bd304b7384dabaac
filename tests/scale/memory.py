"""The memory of a rank in a training step on a partitioned graph: `python -m tests.scale.memory`, see tools/soak.py.

The memory is the peak of the bytes of all tensors that the step allocates, from torch's own record of allocations, on
top of the rows and edges that the rank holds. The whole graph, which all ranks of a machine share, is not in it, nor
are the weights. It is compared with that of one process that trains on a graph of as many nodes and edges as a rank
owns, without a halo.
"""

import argparse
import json
import sys

import torch
import torch.distributed as dist

from sirgcn.data import Graphs, Schema, Split, Task
from sirgcn.engine.inference import Inference
from sirgcn.engine.ranks import ALONE, Ranks
from sirgcn.nn import SIRNet
from sirgcn.ops import Neighbors
from sirgcn.scale.launch import launch
from sirgcn.scale.partitioned import Partitioned

LIMIT = 1.3
"""The most memory of a rank with sequential exchange, in that of the part that it owns."""


def random_task(nodes: int, degree: int, channels: int) -> Task:
    """A random graph: nearly all nodes are in the halo of every rank."""
    draw = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, nodes, (2, degree * nodes), generator=draw)
    graphs = Graphs(torch.randn(nodes, channels, generator=draw), edge_index, torch.arange(nodes) % 4, "node")
    return Task(
        "random", graphs, Schema(features=channels, outputs=4), (Split.draw(nodes),), "cross_entropy", "accuracy"
    )


def peak_bytes(task: Task, ranks: Ranks, channels: int) -> int:
    """The peak of the bytes of tensors in a training step, over what there is before it."""
    torch.manual_seed(0)
    model = SIRNet.of(channels, channels, 4, num_layers=3, aggr="mean")
    parameters = list(model.parameters())
    inference = Inference(model, task, 0, torch.device("cpu"), ranks=ranks)
    with ranks.joined(model, task, dict):
        batch = next(ranks.batches(task, "train", None, 0))
        inference.training_loss(batch)[0].backward()  # what is kept for the next step is made in the first
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
            inference.training_loss(batch)[0].backward()
            ranks.sum_gradients(parameters)
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def held_bytes(task: Task, ranks: Ranks) -> int:
    """The bytes of the rows and of the grouped edges that a rank, or a process that trains alone, holds."""
    if not isinstance(ranks, Partitioned):
        graph = Neighbors.from_edge_index(task.graphs.edge_index, task.graphs.num_nodes)
        return total(task.graphs.x, task.graphs.y, *graph.tensors())
    graph, own = ranks.graph, ranks.rows
    parts = [tensor for part in (graph.local, *graph.remote.values()) for tensor in (*part.tensors(), *part.degrees)]
    return total(own.x, own.batch, graph.nodes, graph.edges, *graph.sent, *parts)


def total(*tensors: torch.Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def on_rank(nodes: int, degree: int, channels: int) -> list[int]:
    """The peaks of a rank with the two forms of exchange, and its halo."""
    task, world = random_task(nodes, degree, channels), dist.get_world_size()
    part = torch.arange(nodes) % world
    found = []
    for memory_bound in (False, True):
        ranks = Partitioned(task, part, memory_bound)
        found.append(held_bytes(task, ranks) + peak_bytes(task, ranks, channels))
    return [*found, ranks.graph.sizes.halo]


def measured(nodes: int, degree: int, channels: int, ranks: int) -> dict[str, object]:
    """The peaks of all ranks, beside that of the part that one of them owns."""
    small = random_task(nodes // ranks, degree, channels)
    owned = held_bytes(small, ALONE) + peak_bytes(small, ALONE, channels)
    found = launch(on_rank, ranks, (nodes, degree, channels), restarts=0, seconds=900)
    at_once, sequential = (max(rank[place] for rank in found) for place in (0, 1))
    return {
        "nodes": nodes,
        "edges": degree * nodes,
        "channels": channels,
        "ranks": ranks,
        "halo_rows": max(rank[2] for rank in found),
        "owned_bytes": owned,
        "at_once_bytes": at_once,
        "sequential_bytes": sequential,
        "at_once_ratio": round(at_once / owned, 3),
        "sequential_ratio": round(sequential / owned, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=40_000)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--channels", type=int, default=64)
    given = parser.parse_args()
    found = measured(given.nodes, given.degree, given.channels, 4)
    print(json.dumps(found))
    sys.exit(0 if float(str(found["sequential_ratio"])) <= LIMIT else 1)


if __name__ == "__main__":
    main()
