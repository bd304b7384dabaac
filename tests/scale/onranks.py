"""What the tests of ranks run on every rank: functions of a module, which another process can import."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sirgcn.data import Graphs, Schema, Split, Task, hetero_edge_count
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.engine.ranks import ALONE, Ranks
from sirgcn.nn import SIRNet
from sirgcn.scale.ranks import DataParallel

CONFIG = TrainConfig(epochs=3, batch_size=7, lr=1e-2, schedule="plateau", patience=0, l1=1e-5, l2=1e-5, clip=100.0)


def tiny(seed: int = 0, dtype: torch.dtype = torch.float32) -> Task:
    """Forty small graphs, of which 24 train: three batches of seven, and one of three, too few for four ranks."""
    graphs = Graphs.from_data(hetero_edge_count(3, 40, seed=seed, max_nodes=6), "graph")
    graphs = Graphs(**{**vars(graphs), "y": graphs.y.to(dtype)})
    return Task("tiny", graphs, Schema(vocabularies=(3,)), (Split.draw(40),), "mse", "mse")


def network(dropout: float = 0.0) -> SIRNet:
    torch.manual_seed(0)
    return SIRNet.of(3, 8, 1, num_layers=2, encoder="embedding", pool="sum", dropout=dropout)


def trained(ranks: Ranks, task: Task, config: TrainConfig, dropout: float = 0.0, **options: Any) -> dict[str, Any]:
    """The weights, their hash and the history of a training."""
    model = network(dropout)
    if task.graphs.y.dtype == torch.float64:
        model.double()
    outcome = Trainer(model, task, config, ranks=ranks, **options).run()
    return {
        "sha256": weights_sha256(model),
        "weights": [p.tolist() for p in model.state_dict().values()],
        "history": [{key: value for key, value in row.items() if key != "seconds"} for row in outcome.history],
        "metrics": outcome.metrics,
        "best": outcome.best_epoch,
    }


def train_data_parallel(task: Task, config: TrainConfig = CONFIG, dropout: float = 0.0) -> dict[str, Any]:
    return trained(DataParallel(), task, config, dropout)


def train_alone(task: Task, config: TrainConfig = CONFIG, dropout: float = 0.0) -> dict[str, Any]:
    return trained(ALONE, task, config, dropout)


def train_resumed(task: Task, folder: str, kill: list[int]) -> dict[str, Any]:
    """A training with checkpoints. The rank kill[0] is killed after kill[1] steps, once."""
    steps, mark = iter(range(10**9)), Path(folder) / "killed"

    def should_stop() -> bool:
        if kill and next(steps) == kill[1] and dist.get_rank() == kill[0] and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    options = {"checkpoints": Checkpoints(Path(folder) / "checkpoints"), "every": 0, "should_stop": should_stop}
    return trained(DataParallel(), task, CONFIG, 0.3, **options)


def train_until(task: Task, folder: str, steps: int) -> str:
    """A training that is asked to stop on one rank."""
    left = iter(range(steps))

    def should_stop() -> bool:
        return dist.get_rank() == 1 and next(left, None) is None

    try:
        trained(DataParallel(), task, CONFIG, checkpoints=Checkpoints(folder), every=1e9, should_stop=should_stop)
    except Exception as error:
        return json.dumps([type(error).__name__, str(error)])
    return "not stopped"


def listeners() -> list[str]:
    """The local addresses, as /proc/net writes them, on which this process listens."""
    opened = {os.readlink(f"/proc/self/fd/{entry}") for entry in os.listdir("/proc/self/fd") if _is_link(entry)}
    inodes = {name[8:-1] for name in opened if name.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1])
    dist.barrier()
    return found


def _is_link(entry: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{entry}")


def fail_on_one(message: str) -> None:
    if dist.get_rank() == 1:
        raise ValueError(message)
    dist.barrier()


def die_always() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def wait_forever() -> None:
    if dist.get_rank() == 0:
        signal.pause()
    dist.barrier()


def different(what: str) -> None:
    """Rank 1 has other data, or another version of torch, than rank 0."""
    is_other = dist.get_rank() == 1
    if is_other and what == "version":
        torch.__version__ = "2.0.0"
    trained(DataParallel(), tiny(int(is_other and what == "data")), CONFIG)


def size_of_world() -> list[int]:
    total = torch.ones(1)
    dist.all_reduce(total)
    return [dist.get_rank(), int(total)]


def fail_with_pid(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    dist.barrier()
    fail_on_one("stop")
