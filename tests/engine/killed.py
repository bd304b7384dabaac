"""Trains in forked processes, kills them with SIGKILL and takes the training up again; run by `test_resume.py`.

    python killed.py FOLDER POINTS INSIDE SEED

prints as JSON, for each point, whether it was inside the writing of a checkpoint and whether the training that was
taken up again ended as the uninterrupted one. A process of its own, with one thread from the start, can fork safely.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sirgcn.data import Graphs, Schema, Split, Task, hetero_edge_count
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Trainer
from sirgcn.nn import SIRNet

CONFIG = TrainConfig(
    epochs=4, batch_size=8, lr=1e-2, warmup=2, schedule="plateau", patience=0, l1=1e-5, l2=1e-5, clip=100.0
)


def task() -> Task:
    """Forty small graphs."""
    graphs = Graphs.from_data(hetero_edge_count(3, 40, seed=0, max_nodes=6), "graph")
    return Task("tiny", graphs, Schema(vocabularies=(3,)), (Split.draw(40),), "mse", "mse")


def train(data: Task, folder: Path) -> str:
    """The hash of the trained weights: of those at the end and of the best, with the history."""
    torch.manual_seed(0)
    model = SIRNet.of(3, 8, 1, num_layers=2, encoder="embedding", pool="sum", dropout=0.3)
    trainer = Trainer(model, data, CONFIG, seed=0, checkpoints=Checkpoints(folder), every=0)
    outcome = trainer.run()
    history = [{key: value for key, value in row.items() if key != "seconds"} for row in outcome.history]
    return json.dumps([weights_sha256(model), history, outcome.best_epoch, outcome.metrics])


def forked(work: Callable[[], None]) -> int:
    """Do the work in a fork of this process, which ends with it; its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def die_at_write(number: int) -> None:
    """From now on, the number-th piece of a checkpoint's writing is the last thing that this process does."""
    left = iter(range(number, -1, -1))
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        if next(left) == 0:
            # What was not synchronised may be lost in part; a folder has no length.
            with contextlib.suppress(OSError):
                os.truncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real_replace(self, target)

    os.fsync = fsync  # type: ignore[assignment]
    Path.replace = replace  # type: ignore[method-assign,assignment]


def main() -> None:
    folder, points, inside, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    rng, data = random.Random(seed), task()
    started = time.perf_counter()
    expected = train(data, folder / "whole")
    length = time.perf_counter() - started
    found = []
    for point in range(points):
        place = folder / str(point)
        # A step writes two files: two times file, rename and folder.
        number = rng.randrange(6 * 10) if point < inside else None

        def work(place: Path = place, number: int | None = number) -> None:
            if number is not None:
                die_at_write(number)
            train(data, place)

        is_killed = False
        while not is_killed:  # one that was done before is begun anew
            shutil.rmtree(place, ignore_errors=True)
            child = forked(work)
            if number is None:
                time.sleep(rng.random() * length)
                os.kill(child, signal.SIGKILL)
            is_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found.append({"inside": number is not None, "same": train(data, place) == expected})
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({"found": found}))
    sys.exit(0 if all(point["same"] for point in found) else 1)


if __name__ == "__main__":
    main()
