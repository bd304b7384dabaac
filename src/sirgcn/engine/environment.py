"""The machine and the versions of libraries that a result depends on."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

from sirgcn.ops import backends, native
from sirgcn.ops.backend import choose_backend

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000"}
"""Settings of glibc with which a process keeps freed memory and uses it again. Without them, every pass pays for the
page faults of its large tensors. glibc reads them when a process starts."""


def environment() -> dict[str, Any]:
    """Machine, versions, backends and settings, as JSON values.

    >>> environment()["torch"] == torch.__version__
    True
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "sirgcn": version("sirgcn"),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": np.__version__,
        "backends": backends(),
        "native": native.describe() if native.UNAVAILABLE is None else None,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "variables": {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("OMP_", "KMP_", "MKL_", "MALLOC_", "SIRGCN_ISA", "SIRGCN_PRODUCTS"))
        },
    }


def environment_of(device: str) -> dict[str, Any]:
    """The environment of a run: also the commit, the device, the backend of the layer there, and torch's threads."""
    return environment() | {
        "git": commit(),
        "device": device,
        "backend": choose_backend(None, torch.device(device)),
        "threads": torch.get_num_threads(),
    }


def commit() -> str | None:
    """The commit of the checkout that this package runs from, with `+` if files were changed; None without one."""
    try:
        folder = Path(__file__).parent
        found = [
            # Without optional locks: a run that is killed here would leave a lock in the repository.
            subprocess.run(
                ["git", "--no-optional-locks", "-C", folder, *command],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return found[0].stdout.strip() + ("+" if found[1].stdout.strip() else "")


def find_device(name: str) -> str:
    """Check the name of a device, and return it.

    Raises:
        ValueError: models cannot be trained on it here. The error lists the devices that are available.

    >>> find_device("cpu")
    'cpu'
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    known = ["cpu"]
    if accelerator is not None:
        known += [accelerator.type, *(f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count()))]
    if name not in known:
        raise ValueError(f"device: expected one of {', '.join(known)}, got {name!r}")
    return name


def peak_memory_mb() -> float | None:
    """The largest memory that this process has had, in MB. None where the system does not say."""
    if os.name != "posix":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
