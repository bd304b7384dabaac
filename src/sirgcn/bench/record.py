"""The record of a run: a JSON file that grows as the run goes on.

Keys: `format`, `environment`, `settings`, `shapes`, `peers`, `times`, `memory`, `scaling`, `training`, `tables`,
`left_out`, `targets`.
Times are seconds of one call (`seconds`: median, q1, q3; `samples`), `ratio` is the peer over ours, repetition by
repetition. Memory is in bytes.
"""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from sirgcn.bench.memory import ALLOCATOR as MEMORY_ALLOCATOR
from sirgcn.bench.peers import PEERS
from sirgcn.bench.targets import check
from sirgcn.engine.environment import ALLOCATOR, environment
from sirgcn.files import write_atomic

FORMAT = 1


class Record:
    """What a run has found so far, written to `path` after every step."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "environment": environment()
            | {
                "allocator": {name: os.environ.get(name) for name in ALLOCATOR},
                "allocator_for_memory": MEMORY_ALLOCATOR,
            },
            "settings": settings,
            "shapes": {},
            "peers": [
                {"suite": peer.suite, "peer": peer.name, "family": peer.label, "what": peer.what} for peer in PEERS
            ],
            "times": [],
            "memory": [],
            "scaling": [],
            "training": [],
            "tables": [],
            "left_out": [],
            "targets": [],
        }

    def write(self) -> None:
        """Check the targets and replace the file as a whole, so that a run that is killed leaves a good one."""
        self.data["targets"] = check(self.data)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, (json.dumps(self.data, indent=1) + "\n").encode())


def with_allocator() -> None:
    """Start the process anew with the allocator's settings, which glibc reads once, before Python runs."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and not ALLOCATOR.keys() <= os.environ.keys():
        # The settings that are there already are the user's.
        os.execve(sys.executable, sys.orig_argv, ALLOCATOR | os.environ)
