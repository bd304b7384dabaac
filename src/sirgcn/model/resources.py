"""What a training needs, told before it runs: memory from a small pass through the network, time from first steps."""

import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from sirgcn.data.graphs import Graphs, Level
from sirgcn.data.task import Task
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.inference import call
from sirgcn.engine.loop import EVALUATED_AT_ONCE, Trainer
from sirgcn.scale import WholeGraph

# Nodes of the small graph on which a pass is measured.
_SAMPLE = 512
# Weights, gradients, two moments of the optimiser, the selected weights, and a copy while a checkpoint is written.
_COPIES = 6
BACKWARD = 1.6
"""Buffers of a backward pass beside what the forward pass keeps, by measuring passes of several networks."""

BASE = 600 << 20
"""What torch, scikit-learn and the reader of tables take before the first step."""
# How many steps are timed, or fewer once that has taken so many seconds.
_TIMED, _PATIENCE = 3, 10.0


class TooLarge(RuntimeError):
    """A training that does not fit in the free memory. The text says what it needs and what would make it smaller."""


@dataclass(frozen=True)
class Memory:
    """The memory of a training in bytes.

    Args:
        data: the tensors of the task.
        network: the weights with their gradients, moments and copies.
        pass_: what a pass over the largest batch keeps at its peak.

    >>> Memory(1 << 20, 1 << 20, 2 << 20).total >> 20
    604
    """

    data: int
    network: int
    pass_: int

    @property
    def total(self) -> int:
        """The peak of the process."""
        return BASE + self.data + self.network + self.pass_


def free_memory() -> int | None:
    """The bytes that this process may still take, by the machine and by its control group; None where unknown.

    >>> free = free_memory()
    >>> free is None or free > 0
    True
    """
    found = [value for value in (_of_machine(), _of_group()) if value is not None]
    return min(found, default=None)


def memory_of(network: nn.Module, task: Task, batch_size: int | None) -> Memory:
    """The memory that training this network on this task takes at its peak, within about a third.

    A forward pass over a small graph of the same degree says what each node keeps for the backward pass.

    >>> from sirgcn import SIRNet
    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> net = SIRNet.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> memory_of(net, task, 8).pass_ < memory_of(net, task, None).pass_
    True
    """
    graphs = task.graphs
    share = 1.0
    if task.over == "graphs" and batch_size is not None:
        share = min(1.0, batch_size / len(graphs))
    sample = _sample(graphs)
    # A copy, because a pass in training mode changes the statistics of norms.
    kept = kept_by_a_pass(deepcopy(network).train(), sample.batch(), task.level)
    per_node = kept / sample.num_nodes
    grouped = 6 * 8 * graphs.num_edges
    return Memory(
        int(bytes_of(graphs) + grouped * share),
        memory_of_weights(network),
        int(BACKWARD * per_node * graphs.num_nodes * share),
    )


def bytes_of(graphs: Graphs) -> int:
    """The tensors of graphs, as they were read and as a network reads them."""
    return 2 * sum(tensor.numel() * tensor.element_size() for tensor in graphs.tensors().values())


def memory_of_weights(network: nn.Module) -> int:
    """The weights with their gradients, moments and copies."""
    return _COPIES * sum(p.numel() * p.element_size() for p in network.parameters())


def check_memory(needed: Memory, free: int | None, advice: str = "", what: str = "free") -> None:
    """Refuse a training that does not fit in the free memory.

    Args:
        needed: what it takes.
        free: what there is; None where that is unknown, and then nothing is refused.
        advice: what the caller can change, for the error.
        what: what the memory that there is is called: free, or given.

    >>> check_memory(Memory(0, 0, 8 << 30), free=4 << 30, advice="take fewer layers")
    Traceback (most recent call last):
    sirgcn.model.resources.TooLarge: the training needs about 8.6 GB of memory, and 4.0 GB are free; take fewer layers
    """
    if free is None or needed.total <= free:
        return
    said = advice or "take a smaller width or fewer layers, close other programs, or use a larger machine"
    needs, there = (f"{size / 2**30:.1f} GB" for size in (needed.total, free))
    raise TooLarge(f"the training needs about {needs} of memory, and {there} are {what}; {said}")


def seconds_per_epoch(network: nn.Module, task: Task, training: TrainConfig, whole: WholeGraph | None = None) -> float:
    """How long an epoch takes with its evaluation, by timing a few steps. The weights change: give a spare network.

    Args:
        network: the spare network.
        task: the data.
        training: the protocol.
        whole: as in `Trainer`.

    >>> from sirgcn import SIRNet
    >>> from sirgcn.data import load
    >>> task = load("hetero_edge_count", c=2, num_graphs=20)
    >>> net = SIRNet.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> seconds_per_epoch(net, task, TrainConfig(batch_size=8)) > 0
    True
    """
    trainer = Trainer(network, task, training, whole=whole)
    is_whole = task.over != "graphs" and whole is None
    steps, began = list[float](), perf_counter()
    for place, batch in zip(range(_TIMED + 1), _repeated(task, training.batch_size), strict=False):
        started = perf_counter()
        trainer.step(batch)
        if is_whole:
            trainer.evaluate("val")
        # The first step also groups edges and allocates memory.
        if place:
            steps.append(perf_counter() - started)
        if steps and perf_counter() - began > _PATIENCE:
            break
    seconds = task.num_batches("train", training.batch_size) * sum(steps) / len(steps)
    if whole is None:
        return seconds if is_whole else seconds + _seconds_to_evaluate(trainer, task, training)
    started = perf_counter()
    trainer.evaluate("val")
    return seconds + perf_counter() - started


def _seconds_to_evaluate(trainer: Trainer, task: Task, training: TrainConfig) -> float:
    """How long the validation graphs take, by timing one batch of them."""
    size = training.eval_batch_size
    if size is None and training.batch_size is not None:
        size = EVALUATED_AT_ONCE * training.batch_size
    batches = task.num_batches("val", size)
    if not batches:
        return 0.0
    trainer.model.eval()
    started = perf_counter()
    with torch.no_grad():
        trainer.predict(next(task.batches("val", size)))
    return batches * (perf_counter() - started)


def _repeated(task: Task, batch_size: int | None) -> Iterator[Data]:
    while True:
        yield from task.batches("train", batch_size)


def _sample(graphs: Graphs) -> Graphs:
    """A graph with the first rows of features and with edges of the same mean degree, drawn at random."""
    nodes = min(_SAMPLE, graphs.num_nodes)
    edges = -(-graphs.num_edges * nodes // graphs.num_nodes)
    generator = torch.Generator().manual_seed(0)
    rows = {
        name: tensor[:count].clone()
        for name, count in (("x", nodes), ("pe", nodes), ("edge_attr", edges), ("edge_pe", edges), ("graph_attr", 1))
        if (tensor := getattr(graphs, name)) is not None
    }
    count = {"node": nodes, "edge": edges, "graph": 1}[graphs.level]
    return replace(
        graphs,
        **rows,
        edge_index=torch.randint(nodes, (2, edges), generator=generator),
        y=graphs.y[:count],
        node_ptr=None,
        edge_ptr=None,
    )


def kept_by_a_pass(network: nn.Module, batch: Data, level: Level) -> int:
    """The bytes that a forward pass keeps for the backward pass, without the weights and the inputs."""
    weights = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        output = call(network, batch, level)
    return sum(kept.values()) + output.numel() * output.element_size()


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return _physical()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else _physical()


def _physical() -> int | None:
    """All memory of a machine that does not say how much of it is free."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _of_group() -> int | None:
    """What the limit of a control group (version 2) leaves."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() else None
