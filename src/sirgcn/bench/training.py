"""An epoch of training and evaluation, end to end, beside a plain PyG implementation of the same model.

- Ours is the engine as experiments use it: graphs stored flat, batches sliced, the fused layer.
- The peer has the same network with messages by PyG's `propagate`, linear layers by torch, PyG's `DataLoader` over a
  list of `Data`, and a training loop without anything else.
- Our network in the peer's loop shows what the flat graphs gain.
- Our batches alone, sliced and grouped, show what the batches cost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from sirgcn.bench.graphs import LeftOut
from sirgcn.bench.peers import OURS, as_plain
from sirgcn.data import DataError, Task, load
from sirgcn.data.splits import Part
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import EVALUATED_AT_ONCE, Trainer
from sirgcn.nn import build_net, dictionary_lookup_preset, hetero_edge_count_preset, preset
from sirgcn.ops import Neighbors

PEER = "plain PyG"
LOADER = "ours, batches by PyG's DataLoader"
BATCHES = "putting ours' batches together, alone"
PEERS = (OURS, PEER, LOADER, BATCHES)
"""What `runs` gives, in this order."""


@dataclass(frozen=True)
class Epoch:
    """A task, its network, the batch size and the ratio to reach; an epoch ends with the evaluation of some parts."""

    name: str
    task: Callable[[], Task]
    network: Callable[[], nn.Module]
    batch_size: int
    at_least: float
    evaluated: tuple[Part, ...] = ("train",)


EPOCHS = (
    Epoch(
        "HeteroEdgeCount(10)",
        lambda: load("hetero_edge_count", c=10),
        lambda: build_net(hetero_edge_count_preset(10)),
        256,
        4.0,
    ),
    Epoch(
        "DictionaryLookup(30)",
        lambda: load("dictionary_lookup", n=30),
        lambda: build_net(dictionary_lookup_preset(30)),
        256,
        2.0,
    ),
    Epoch(
        "ZINC", lambda: load("ZINC", bonds=False, download=False), lambda: preset("zinc"), 128, 2.0, ("train", "val")
    ),
)
"""The epochs that are measured. ZINC needs its files in the data root; the other tasks are generated."""


def runs(epoch: Epoch) -> dict[str, Callable[[], Any]]:
    """One epoch of each peer, as a call.

    Raises:
        LeftOut: the data are missing.
    """
    try:
        task = epoch.task()
    except DataError as error:
        raise LeftOut(str(error)) from error
    torch.manual_seed(0)
    ours, theirs = epoch.network(), as_plain(epoch.network())
    settings = TrainConfig(epochs=1, batch_size=epoch.batch_size, selection="last", schedule="plateau")
    trainer = Trainer(ours, task, settings)

    def engine() -> None:
        for batch in task.batches("train", epoch.batch_size, generator=trainer.generator):
            trainer.step(batch)
        trainer.evaluate(*epoch.evaluated)

    def batches() -> None:
        sizes = [epoch.batch_size, *(EVALUATED_AT_ONCE * epoch.batch_size for _ in epoch.evaluated)]
        for part, size in zip(("train", *epoch.evaluated), sizes, strict=True):
            for batch in task.batches(part, size, generator=trainer.generator):
                Neighbors.from_edge_index(batch.edge_index, batch.num_nodes)

    split = task.splits[0]
    parts = {part: [_alone(task, i) for i in getattr(split, part).tolist()] for part in ("train", *epoch.evaluated)}
    return {
        OURS: engine,
        PEER: _plain(task, theirs, epoch, parts),
        LOADER: _plain(task, epoch.network(), epoch, parts),
        BATCHES: batches,
    }


def _plain(task: Task, model: nn.Module, epoch: Epoch, parts: dict[Part, list[Data]]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    loss_function = task.loss_function

    def loss_of(batch: Any) -> Any:
        output = model(batch.x, batch.edge_index, batch=batch.batch, batch_size=batch.num_graphs)
        known = batch.y >= 0 if task.level == "node" else slice(None)
        return loss_function(output[known], batch.y[known])

    def run() -> None:
        model.train()
        for batch in DataLoader(parts["train"], epoch.batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for part in epoch.evaluated:
                sum(loss_of(batch).item() for batch in DataLoader(parts[part], EVALUATED_AT_ONCE * epoch.batch_size))

    return run


def _alone(task: Task, index: int) -> Data:
    graph = task.graphs[index]
    return Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
