"""The record of a run: a JSON file that grows as the run goes on.

Keys: `format`, `environment`, `settings`, `shapes`, `peers`, `times`, `memory`, `scaling`, `left_out`, `targets`.
Times are seconds of one call (`seconds`: median, q1, q3; `samples`), `ratio` is the peer over ours, repetition by
repetition. Memory is in bytes.
"""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

import sirgcn
from sirgcn.bench.memory import ALLOCATOR as MEMORY_ALLOCATOR
from sirgcn.bench.peers import PEERS
from sirgcn.bench.targets import check
from sirgcn.ops import backends, native

FORMAT = 1

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000"}
"""Settings of glibc under which freed memory is kept and used again, so that no pass pays for page faults: without them
a peer that makes large temporary tensors looks slower than it is."""


class Record:
    """What a run has found so far, written to `path` after every step."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "environment": environment(),
            "settings": settings,
            "shapes": {},
            "peers": [
                {"suite": peer.suite, "peer": peer.name, "family": peer.label, "what": peer.what} for peer in PEERS
            ],
            "times": [],
            "memory": [],
            "scaling": [],
            "left_out": [],
            "targets": [],
        }

    def write(self) -> None:
        """Check the targets and replace the file as a whole, so that a run that is killed leaves a good one."""
        self.data["targets"] = check(self.data)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.data, indent=1) + "\n")
        part.replace(self.path)


def environment() -> dict[str, Any]:
    """The machine, the versions and the settings that a figure depends on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "sirgcn": sirgcn.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": np.__version__,
        "backends": backends(),
        "native": native.describe() if native.UNAVAILABLE is None else None,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "allocator": {name: os.environ.get(name) for name in ALLOCATOR},
        "allocator_for_memory": MEMORY_ALLOCATOR,
        "variables": {
            name: value for name, value in os.environ.items() if name.startswith(("OMP_", "KMP_", "MKL_", "SIRGCN_ISA"))
        },
    }


def with_allocator() -> None:
    """Start the process anew with the allocator's settings, which glibc reads once, before Python runs."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and not ALLOCATOR.keys() <= os.environ.keys():
        # The settings that are there already are the user's.
        os.execve(sys.executable, sys.orig_argv, ALLOCATOR | os.environ)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
