"""Several processes that share one training: what they exchange, and how they share the graphs of a batch."""

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from sirgcn.data.splits import Part
from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import packed, unpacked
from sirgcn.engine.ranks import Ranks
from sirgcn.scale.norms import shared_batch_norms
from sirgcn.scale.sampled import SampledTask


class DifferentRanks(RuntimeError):
    """The ranks do not train the same: another version, other data, other settings or other first weights.

    >>> raise DifferentRanks("rank 1: torch: expected 2.13.0, as on rank 0, got 2.12.0")
    Traceback (most recent call last):
    sirgcn.scale.ranks.DifferentRanks: rank 1: torch: expected 2.13.0, as on rank 0, got 2.12.0
    """


class DataParallel(Ranks):
    r"""The ranks of a data-parallel training: each computes its share of the graphs of every batch.

    The loss is that of the whole batch, because the outputs of all ranks are gathered first:

    .. math:: \nabla_\theta \, \ell(\hat{y}_1, \dots, \hat{y}_n)
        = \sum_r \nabla_\theta \hat{y}_r \, \frac{\partial \ell}{\partial \hat{y}_r}

    So any loss and metric is exact, also one that is no mean over rows. Batch norms have the statistics of the whole
    batch, and metrics are computed once, of all outputs. The number of ranks therefore changes the rounding and what
    dropout draws, and nothing else. The gradients of all ranks are summed in one buffer. All ranks have the same
    weights, bit for bit.

    Args:
        rank: the number of this process; None reads it from torch.distributed, which must have been initialised.
        world: the number of processes.

    >>> DataParallel(rank=1, world=2).rank
    1
    """

    def __init__(self, rank: int | None = None, world: int | None = None) -> None:
        super().__init__(dist.get_rank() if rank is None else rank, dist.get_world_size() if world is None else world)

    @contextmanager
    def joined(self, model: nn.Module, task: Task, identity: Callable[[], Any]) -> Iterator[None]:
        """As `Ranks.joined`. Raises `DifferentRanks` on every rank unless all ranks train the same."""
        self.check(model, task)
        self.check_alike({**_versions(), **identity()})
        with shared_batch_norms(model):
            yield

    def check(self, model: nn.Module, task: Task) -> None:
        """Refuse a task or a model whose training cannot be shared in this way."""
        if task.over != "graphs" and not isinstance(task, SampledTask):
            raise ValueError(
                "ranks: expected a task of several graphs or of samples, which data-parallel ranks share, got a single "
                "graph; partition it with Partitioned"
            )
        refuse_objective(model)

    def check_alike(self, identity: dict[str, Any]) -> None:
        """Raise `DifferentRanks` on every rank if the JSON values of one differ from those of rank 0."""
        text = json.dumps(identity, sort_keys=True).encode()
        raw = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        found = [bytes(part.numpy()) for part in self.parts(raw)]
        first = json.loads(found[0])
        for rank, other in enumerate(found):
            if other != found[0]:
                raise DifferentRanks(f"rank {rank}: {_difference(first, json.loads(other))}")

    @property
    def share(self) -> tuple[int, int]:
        """As `Ranks.share`. A share may have no graph."""
        return self.rank, self.world

    def gathered(self, *rows: Tensor) -> tuple[Tensor, ...]:
        """As `Ranks.gathered`. All tensors have the same number of rows on one rank."""
        sizes = self._sizes(len(rows[0]))
        return tuple(torch.cat(self._parts(tensor, sizes)) for tensor in rows)

    def parts(self, rows: Tensor) -> list[Tensor]:
        """The rows of each rank."""
        return self._parts(rows, self._sizes(len(rows)))

    def _sizes(self, own: int) -> list[int]:
        sizes = torch.empty(self.world, dtype=torch.int64)
        dist.all_gather(list(sizes.split(1)), torch.tensor([own]))
        return sizes.tolist()

    def _parts(self, own: Tensor, sizes: list[int]) -> list[Tensor]:
        # Ranks may have different numbers of rows, and gloo gathers equal ones.
        padded = own.new_zeros(max(sizes), *own.shape[1:])
        padded[: len(own)] = own.detach()
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(found, padded)
        parts = [tensor[:size] for tensor, size in zip(found, sizes, strict=True)]
        parts[self.rank] = own
        return parts

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """As `Ranks.sum_gradients`. A parameter that no rank has used keeps no gradient, as in one process.

        torch's DistributedDataParallel takes the mean over ranks that all use the same parameters. Here the ranks have
        different numbers of rows, and the same code serves the parts of a partitioned graph.
        """
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            some = [p for p in parameters if p.dtype == dtype and p.requires_grad]
            used = torch.tensor([float(p.grad is not None) for p in some], dtype=dtype)
            flat = torch.cat([*((torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in some), used])
            dist.all_reduce(flat)
            *sums, used = flat.split([*(p.numel() for p in some), len(some)])
            for p, total, count in zip(some, sums, used.tolist(), strict=True):
                p.grad = total.view_as(p) if count else None

    def seed_step(self, seed: int, epoch: int, step: int) -> None:
        """As `Ranks.seed_step`. It depends on nothing else, so a training can go on with another number of ranks."""
        drawn = np.random.SeedSequence([seed, epoch, step, self.rank]).generate_state(2, np.uint32)
        torch.manual_seed(int(drawn[0]) << 32 | int(drawn[1]))

    def any(self, flag: bool) -> bool:
        """As `Ranks.any`."""
        found = torch.tensor([int(flag)])
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def agreed(self, numbers: dict[Part, tuple[float, float]]) -> dict[Part, tuple[float, float]]:
        """As `Ranks.agreed`."""
        values = torch.tensor(list(numbers.values()), dtype=torch.float64).reshape(-1, 2)
        dist.broadcast(values, 0)
        return {part: (loss, metric) for part, (loss, metric) in zip(numbers, values.tolist(), strict=True)}

    def state_of_first(self, state: dict[str, Any] | None) -> dict[str, Any] | None:
        """As `Ranks.state_of_first`. It travels as JSON and safetensors, which hold no code."""
        if not self.any(state is not None):
            return None
        values, data = ("", b"") if state is None else packed(state)
        text = self._of_first(json.dumps(values).encode())
        return unpacked(json.loads(text), self._of_first(data))

    def _of_first(self, data: bytes) -> bytes:
        own = data if self.rank == 0 else b""
        size = torch.tensor([len(own)])
        dist.broadcast(size, 0)
        sent = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(sent, 0)
        return bytes(sent.numpy())


def refuse_objective(model: nn.Module) -> None:
    """Refuse a model with a loss of its own, which sees the rows of one rank only."""
    if getattr(model, "objective", None) is not None:
        raise ValueError(
            f"ranks: expected a model that is trained on the loss of the task, got {type(model).__name__}, "
            "which has its own objective; train it in one process"
        )


def _versions() -> dict[str, Any]:
    """What the rounding of a rank depends on."""
    return {
        "sirgcn": version("sirgcn"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _difference(first: Any, other: Any) -> str:
    """The first place where the JSON values of a rank differ from those of rank 0."""
    if isinstance(first, dict) and isinstance(other, dict):
        keys = sorted({*first, *other}, key=lambda key: (key not in _versions(), key))
        key = next(key for key in keys if first.get(key) != other.get(key))
        return f"{key}: {_difference(first.get(key), other.get(key))}"
    if isinstance(first, list) and isinstance(other, list) and len(first) == len(other):
        return next(_difference(a, b) for a, b in zip(first, other, strict=True) if a != b)
    return f"expected {first!r:.200}, as on rank 0, got {other!r:.200}"
