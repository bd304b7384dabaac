"""Ranks: processes of this machine that `launch` starts and watches, or those that torchrun has started.

`launch` opens no port to the outside. The ranks meet in a file, and they talk over the loopback interface.
"""

import gc
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sirgcn.files import write_atomic
from sirgcn.strict import ConfigError, Count, Size, checked

GRACE = 10.0
"""The seconds that ranks get to end by themselves: after one of them has failed, or after all of them are done."""

# What torchrun tells each process that it starts.
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class RankError(RuntimeError):
    """A rank failed, or was killed more often than it may be. The traceback of the rank is a note of the error.

    >>> raise RankError("rank 1: ValueError: split: expected 0 <= split < 1, got 3")
    Traceback (most recent call last):
    sirgcn.scale.launch.RankError: rank 1: ValueError: split: expected 0 <= split < 1, got 3
    """


@checked
def launch(
    function: Callable[..., Any],
    ranks: Size,
    args: Sequence[Any] = (),
    restarts: Count = 3,
    seconds: float | None = None,
) -> list[Any]:
    """Call a function on several ranks of this machine, and return what each of them returned.

    Every rank is a process with its own `torch.distributed` rank. The ranks share the threads of this process. If a
    rank is killed, all ranks are started again; a training then goes on from its last checkpoint. If a rank raises an
    error, the others are stopped.

    Args:
        function: a function of a module, so that another process can import it. It returns JSON values.
        ranks: the number of processes.
        args: the arguments of the function. Tensors in them are shared by all ranks, and not copied.
        restarts: how often the ranks may be started again.
        seconds: the time limit of the whole call; None for none.

    Raises:
        RankError: the function raised an error on a rank, or ranks were killed more often than `restarts` times.
        TimeoutError: the time limit has passed. All ranks have been stopped.

    >>> from torch.distributed import get_world_size
    >>> launch(get_world_size, ranks=2, seconds=300)
    [2, 2]
    """
    limit = None if seconds is None else time.monotonic() + seconds
    killed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sirgcn-ranks-") as folder:
        for attempt in range(restarts + 1):
            place = Path(folder) / str(attempt)
            place.mkdir()
            found = _Attempt(function, args, ranks, place).results(limit)
            if isinstance(found, list):
                return found
            killed.append(found)
    raise RankError(f"{killed[-1]}; the ranks were started {restarts + 1} times (restarts={restarts})")


class _Attempt:
    """The processes of one start of all ranks, and the files that they leave in a folder."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], ranks: int, folder: Path) -> None:
        self.folder, self.processes = folder, list[BaseProcess]()
        context = _context()
        threads = max(1, torch.get_num_threads() // ranks)
        try:
            for rank in range(ranks):
                given = (rank, ranks, folder, threads, function, tuple(args))
                process = context.Process(target=_work, args=given, name=f"rank {rank}", daemon=True)
                process.start()
                self.processes.append(process)
        except BaseException:
            self._end(0.0)
            raise

    def results(self, limit: float | None) -> list[Any] | str:
        """What the ranks returned, or which rank was killed."""
        try:
            self._watch(limit)
            done = [self._read("result", rank) for rank in range(len(self.processes))]
            if None not in done:
                # A rank that does not end after all ranks are done has nothing left to do.
                return [entry["value"] for entry in done if entry is not None]
            # Those that fail because another rank was killed have a grace to notice, and are not the reason.
            before = self._end(GRACE)
        finally:
            self._end(0.0)
        killed = [rank for rank, code in before.items() if code is not None and code < 0]
        if killed:
            name = signal.Signals(-(before[killed[0]] or 0)).name
            return f"rank {killed[0]} was killed by {name}"
        raise self._error(before)

    def _watch(self, limit: float | None) -> None:
        """Return when all ranks have ended or are done, or one of them has failed. A time limit that passes raises."""
        while alive := self._alive():
            wait([process.sentinel for process in alive], timeout=0.5)
            if any(process.exitcode for process in self.processes):
                return
            if self._are_done():
                self._end(GRACE)
            elif limit is not None and time.monotonic() > limit:
                names = ", ".join(process.name for process in self._alive())
                raise TimeoutError(f"seconds: the time limit passed while {names} was at work")

    def _alive(self) -> list[BaseProcess]:
        return [process for process in self.processes if process.is_alive()]

    def _are_done(self) -> bool:
        """Whether all ranks have left their results."""
        return all(self._file("result", rank).exists() for rank in range(len(self.processes)))

    def _end(self, grace: float) -> dict[int, int | None]:
        """Kill what is alive after a grace; the exit codes of the ranks that ended before that."""
        until = time.monotonic() + grace
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
        codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        return codes

    def _error(self, codes: dict[int, int | None]) -> RankError:
        """The error of the rank that failed first."""
        errors = [(rank, found) for rank in codes if (found := self._read("error", rank)) is not None]
        if not errors:
            rank = next((rank for rank, code in codes.items() if code), 0)
            return RankError(f"rank {rank}: the process ended with code {codes[rank]} and without a result")
        # The first of them: the others may have failed because its connection was gone.
        rank, first = min(errors, key=lambda entry: entry[1]["time"])
        error = RankError(f"rank {rank}: {first['error']}")
        error.add_note(first["traceback"])
        return error

    def _file(self, what: str, rank: int) -> Path:
        return self.folder / f"{what}-{rank}.json"

    def _read(self, what: str, rank: int) -> dict[str, Any] | None:
        path = self._file(what, rank)
        found: dict[str, Any] | None = json.loads(path.read_text("utf-8")) if path.exists() else None
        return found


def _context() -> Any:
    """Where fork exists, a server that has loaded torch forks the ranks."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sirgcn.scale.ranks", "sirgcn.engine.loop", "sirgcn.nn"])
    return context


def _work(
    rank: int, ranks: int, folder: Path, threads: int, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """What the process of a rank does."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # An interrupt from the keyboard reaches all processes. The one that has launched this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    # Before gloo opens its port: it would take the address of the host's name.
    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    try:
        with _group(init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks):
            value = function(*args)
            write_atomic(folder / f"result-{rank}.json", json.dumps({"value": value}).encode())
    except Exception as error:
        said = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        write_atomic(folder / f"error-{rank}.json", json.dumps({**said, "time": time.monotonic()}).encode())
        sys.stdout.flush()
        # At once: torch would wait for ranks that are gone.
        os._exit(1)


def _end_with_parent() -> None:
    """End this process when the one that has launched it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _loopback() -> str:
    """The name of the loopback interface: lo, on macOS lo0."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def is_under_torchrun() -> bool:
    """Whether torchrun, or something with its variables of the environment, has started this process.

    >>> is_under_torchrun()
    False
    """
    return all(name in os.environ for name in _TORCHRUN)


@contextmanager
def joined(seconds: float = 1800.0) -> Iterator[None]:
    """In the context, this process is one of the ranks that torchrun, or Slurm with its variables, has started.

    Args:
        seconds: how long a rank waits for the others.

    Raises:
        ConfigError: the variables of the environment that torchrun sets are missing. The error names them.

    >>> import os
    >>> with joined():  # a process that torchrun has not started
    ...     pass
    Traceback (most recent call last):
    sirgcn.strict.ConfigError: RANK: expected in the environment, where torchrun puts it; start this with torchrun
    """
    for name in _TORCHRUN:
        if name not in os.environ:
            raise ConfigError(f"{name}: expected in the environment, where torchrun puts it; start this with torchrun")
    with _group(seconds):
        yield


@contextmanager
def _group(seconds: float = 1800.0, **where: Any) -> Iterator[None]:
    """The process group. It is taken down in the one order that does not hang.

    The barrier comes first, so that no rank leaves while another talks to it. What holds the group is collected before
    the group is destroyed. After an error, there is nobody to wait for.
    """
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds), **where)
    yield
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()
