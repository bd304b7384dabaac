"""Kills ranks at random steps, and launches ranks many times: `python -m tests.scale.killed_ranks KILLS LAUNCHES SEED`.

The last line that it prints is a summary as JSON. A part of it runs in `test_data_parallel.py` and `test_launch.py`.
"""

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from sirgcn.scale.launch import launch
from tests.scale import onranks
from tests.scale.graphs import task_on

LIMIT = 180.0
STEPS = 12
"""The steps of each training."""


def tasks() -> dict[str, Any]:
    """The task of each way to share a training."""
    nodes, _ = task_on("random", 2, torch.float32)
    return {"data parallel": onranks.tiny(), "partitioned": nodes, "memory-bound": nodes}


def kills(number: int, seed: int) -> list[dict[str, Any]]:
    """For each kill, whether the training that was started again ended as the whole one."""
    rng, whole, found = random.Random(seed), {}, []
    for point in range(number):
        how = list(tasks())[point % 3]
        ranks = 2 + point % 2
        kill = [rng.randrange(ranks), rng.randrange(STEPS)]
        with tempfile.TemporaryDirectory() as folder:
            if (how, ranks) not in whole:
                given: list[Any] = [tasks()[how], str(Path(folder) / "whole"), [], how]
                whole[how, ranks] = launch(onranks.train_resumed, ranks, given, seconds=LIMIT)
            result = launch(onranks.train_resumed, ranks, (tasks()[how], folder, kill, how), seconds=LIMIT)
            was_killed = (Path(folder) / "killed").exists()
        same = result == whole[how, ranks]
        found.append({"how": how, "ranks": ranks, "kill": kill, "same": same and was_killed})
    return found


def launches(number: int) -> int:
    """How many of the launches of four ranks ended, with the right results, in their time."""
    expected = [[rank, 4] for rank in range(4)]
    return sum(launch(onranks.size_of_world, 4, seconds=LIMIT) == expected for _ in range(number))


def main() -> None:
    torch.set_num_threads(1)
    wanted_kills, wanted_launches, seed = map(int, sys.argv[1:])
    found, ended = kills(wanted_kills, seed), launches(wanted_launches)
    same = sum(point["same"] for point in found)
    print(json.dumps({"kills": len(found), "same": same, "launches": wanted_launches, "ended": ended}))
    sys.exit(0 if same == wanted_kills and ended == wanted_launches else 1)


if __name__ == "__main__":
    main()
