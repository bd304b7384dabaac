"""What the tests of ranks run on every rank: functions of a module, which another process can import."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sirgcn.data import Graphs, Schema, Split, Task, hetero_edge_count
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.inference import Inference
from sirgcn.engine.loop import Trainer
from sirgcn.engine.ranks import ALONE, Ranks
from sirgcn.nn import SIRNet
from sirgcn.scale.partitioned import Partitioned
from sirgcn.scale.ranks import DataParallel
from tests.scale.graphs import task_on

CONFIG = TrainConfig(epochs=3, batch_size=7, lr=1e-2, schedule="plateau", patience=0, l1=1e-5, l2=1e-5, clip=100.0)


def train_partitioned(graph: str, memory_bound: bool, config: TrainConfig, method: str | None = None) -> dict[str, Any]:
    """A training on a partitioned graph."""
    task, part = task_on(graph, dist.get_world_size(), torch.float64)
    ranks = Partitioned(task, None if method else part, memory_bound)
    return trained_on(task, ranks, config)


def trained_on(task: Task, ranks: Ranks, config: TrainConfig, **options: Any) -> dict[str, Any]:
    model = net_on(task, "mean")
    outcome = Trainer(model, task, config, ranks=ranks, **options).run()
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in outcome.history]
    return {"sha256": weights_sha256(model), "history": rows, "metrics": outcome.metrics, "best": outcome.best_epoch}


def other_partition(what: str) -> None:
    """Rank 1 has another partition, or fetches rows in another way."""
    task, part = task_on("random", 2, torch.float32)
    is_other = dist.get_rank() == 1
    if is_other and what == "part":
        part = 1 - part
    trained_on(task, Partitioned(task, part, memory_bound=is_other and what == "memory_bound"), CONFIG)


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


def train_resumed(task: Task, folder: str, kill: list[int], how: str = "data parallel") -> dict[str, Any]:
    """A training with checkpoints. The rank kill[0] is killed after kill[1] steps, once."""
    steps, mark = iter(range(10**9)), Path(folder) / "killed"

    def should_stop() -> bool:
        if kill and next(steps) == kill[1] and dist.get_rank() == kill[0] and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    options = {"checkpoints": Checkpoints(Path(folder) / "checkpoints"), "every": 0, "should_stop": should_stop}
    if how == "data parallel":
        return trained(DataParallel(), task, CONFIG, 0.3, **options)
    ranks = Partitioned(task, memory_bound=how == "memory-bound")
    return trained_on(task, ranks, TrainConfig(epochs=12, lr=1e-2), **options)


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
    opened = set()
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the descriptor of this very loop
            opened.add(str(entry.readlink()))
    inodes = {name[8:-1] for name in opened if name.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1])
    dist.barrier()
    return found


def fail_on_one(message: str) -> None:
    if dist.get_rank() == 1:
        raise ValueError(message)
    dist.barrier()


def die_always() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def wait_after_a_word() -> None:
    os.write(1, b"ready\n")  # in one piece: two ranks write at once
    signal.pause()


def wait_forever() -> None:
    if dist.get_rank() == 0:
        signal.pause()
    dist.barrier()


def different(what: str) -> None:
    """Rank 1 has other data, or another version of torch, than rank 0."""
    is_other = dist.get_rank() == 1
    if is_other and what == "version":
        torch.__version__ = torch.torch_version.TorchVersion("2.0.0")
    trained(DataParallel(), tiny(int(is_other and what == "data")), CONFIG)


def size_of_world() -> list[int]:
    total = torch.ones(1)
    dist.all_reduce(total)
    return [dist.get_rank(), int(total)]


def fail_with_pid(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    dist.barrier()
    fail_on_one("stop")


NETS: dict[str, dict[str, Any]] = {
    "mean": {"aggr": "mean"},
    "sum, no norm": {"aggr": "sum", "norm": None},
    "sym": {"aggr": "sym", "block": "skip", "encoder": "linear"},
    "self-loops": {"aggr": "sym_in", "self_loops": True},
    "context": {"aggr": "mean", "context": "sym"},
    "gated": {"gated": True, "activation": "sigmoid"},
    "prelu": {"activation": "prelu"},
    "gcn": {"conv": "gcn"},
    "normalised gates": {"conv": "gated_gcn"},
}


def net_on(task: Task, name: str) -> SIRNet:
    torch.manual_seed(1)
    edges = task.schema.edge_features
    found = SIRNet.of(5, 8, 3, num_layers=3, **NETS[name], **({"edge_channels": edges} if edges else {}))
    return found.double() if task.graphs.x.dtype == torch.float64 else found


def gradient_errors(cases: list[Any], is_double: bool) -> list[float]:
    """For each case, the largest relative difference between gradients of the ranks and of one process."""
    dtype = torch.float64 if is_double else torch.float32
    return [
        _gradient_error(task_on(graph, dist.get_world_size(), dtype, edges), net, is_bound)
        for graph, net, edges, is_bound in cases
    ]


def _gradient_error(on: tuple[Task, torch.Tensor], net: str, memory_bound: bool) -> float:
    task, part = on
    model, other = net_on(task, net), net_on(task, net)
    alone = Inference(model, task, 0, torch.device("cpu"))
    loss, _ = alone.training_loss(next(task.batches("train")))
    loss.backward()
    ranks = Partitioned(task, part, memory_bound)
    together = Inference(other, task, 0, torch.device("cpu"), ranks=ranks)
    with ranks.joined(other, task, dict):
        found, rows = together.training_loss(next(ranks.batches(task, "train", None, 0)))
        found.backward()
        ranks.sum_gradients(list(other.parameters()))
    assert rows == len(task.splits[0].train)
    pairs: list[tuple[torch.Tensor | None, torch.Tensor | None]] = [(loss, found)]
    pairs += [(p.grad, q.grad) for p, q in zip(model.parameters(), other.parameters(), strict=True)]
    pairs += zip(model.buffers(), other.buffers(), strict=True)
    assert all((p is None) == (q is None) for p, q in pairs)
    given = [(p.detach(), q.detach()) for p, q in pairs if p is not None and q is not None]
    # The gradient of a bias before a batch norm is 0 in exact arithmetic, and rounding otherwise: it is measured by the
    # largest gradient.
    largest = max(float(p.abs().max()) for p, _ in given if p.is_floating_point())
    sizes = [float(p.abs().max()) for p, _ in given]
    scales = [size if size > 1e-3 * largest else largest for size in sizes]
    return max(float((p - q).abs().max()) / scale for (p, q), scale in zip(given, scales, strict=True))
