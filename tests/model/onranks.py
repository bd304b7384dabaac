"""What the tests of shared fits run on every rank: functions and classes that another process can import."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from sirgcn.data import Task
from sirgcn.model import trials
from sirgcn.model.training import TrainSettings, train_as_rank


@dataclass
class Killer:
    """Kills its process after an epoch."""

    after: int

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        if row["epoch"] == self.after:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_on_ranks(task: Task, folder: Path, settings: TrainSettings, after: int) -> None:
    """A training with a checkpoint after every step, whose rank 0 is killed."""
    trials._EVERY = 0.0
    watcher = Killer(after) if dist.get_rank() == 0 else None
    train_as_rank(task, folder, replace(settings, watcher=watcher))
