"""Where work is done beside this process: `Processes` of this machine, or `sirgcn.engine.cluster.Ray`.

Both are an `Engine`. What the work is, and what its outcomes mean, is up to who starts it: `sirgcn.engine.pool` for
runs, `sirgcn.model.tuning` for the trials of a study.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from sirgcn.engine.environment import ALLOCATOR
from sirgcn.engine.records import DONE, FAILED
from sirgcn.engine.run import BUSY, PAUSED, UNRECORDED
from sirgcn.strict import ConfigError, check_name, read

ENGINES = ("processes", "ray")
"""The names of the engines, see `engine_named`."""

Tell = Callable[[Any], None]
"""Sends a message, which can be pickled, to the process that started the work."""

Asked = Callable[[], bool]
"""Whether the work is asked to save its state and to stop."""

Work = Callable[[Tell, Asked], str]
"""What a worker does. It can be pickled. It returns its outcome, one of those of `sirgcn.engine.run`."""


class End(NamedTuple):
    """How a worker has ended.

    Args:
        outcome: what the work returned; None if its process was killed.
        why: what happened to the process, if it was killed.
        is_stopped: whether a process that was asked to stop may have ended so because of that.

    >>> End("done").why
    ''
    """

    outcome: str | None
    why: str = ""
    is_stopped: bool = False


class Worker(Protocol):
    """One piece of work in a process of its own."""

    def end(self) -> End | None:
        """How it has ended; None while it is at work."""

    def messages(self) -> Iterator[Any]:
        """What it has sent since the last call."""

    def stop(self) -> None:
        """Ask it to save its state and to end. It does so in its own time."""


class Engine(Protocol):
    """A place where work is done. It is open as long as its context."""

    def __enter__(self) -> Self:
        """Open it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close it. Nothing that it has started stays behind."""

    def start(self, work: Work) -> Worker:
        """Start a piece of work."""

    def wait(self, workers: Sequence[Any], seconds: float) -> None:
        """Wait until one of its workers has ended or sent something, but not longer than this."""


def engine_named(name: str, jobs: int = 1, threads: int = 1, device: str = "cpu") -> Engine:
    """An engine by its name.

    Args:
        name: `processes` of this machine, or `ray`: the cluster that RAY_ADDRESS names, or a local Ray without it.
        jobs: how many pieces of work are done at a time.
        threads: the threads of each of them.
        device: the device that each of them computes on.

    >>> type(engine_named("processes")).__name__
    'Processes'
    """
    check_name("engine", name, ENGINES, exact=True)
    if name == "processes":
        return Processes()
    from sirgcn.engine.cluster import Ray

    return Ray(jobs, threads, device)


def check_jobs(jobs: int) -> None:
    """Refuse a number of jobs that is none."""
    if read(int, jobs, "jobs") < 1:
        raise ConfigError(f"jobs: expected at least 1, got {jobs}")


# The outcome that an exit code of a process stands for. Python's own code for an uncaught exception, 1, is not used.
_CODES = {0: DONE, 3: PAUSED, 4: FAILED, 5: BUSY, 6: UNRECORDED}

_STOPPING = (signal.SIGINT, signal.SIGTERM)


class Processes:
    """Processes of this machine. Where fork exists, a server that has loaded torch forks them.

    >>> with Processes() as engine:
    ...     engine.wait([], 0.0)
    """

    def __enter__(self) -> Self:
        """Nothing is open between two pieces of work, but for the server that forks."""
        return self

    def __exit__(self, *error: object) -> None:
        """Every process ends with its work."""

    def start(self, work: Work) -> "Process":
        """Start a process."""
        return Process(work)

    def wait(self, workers: Sequence["Process"], seconds: float) -> None:
        """Wait for the ends and the messages of processes."""
        wait([end for worker in workers for end in worker.ends], timeout=seconds)


class Process:
    """A process of this machine. Its exit code is the outcome of its work."""

    def __init__(self, work: Work) -> None:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload(["sirgcn.engine.pool"])
            _start_server()
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_do, args=(work, sender))  # type: ignore[attr-defined]
        self.process.start()
        sender.close()

    @property
    def ends(self) -> list[Any]:
        """What to wait for: the end of the process, and its next message."""
        return [self.process.sentinel] if self.receiver.closed else [self.process.sentinel, self.receiver]

    def end(self) -> End | None:
        """How the process has ended; None while it is at work."""
        if self.process.is_alive():
            return None
        self.process.join()
        code = self.process.exitcode or 0
        if code in _CODES:
            return End(_CODES[code])
        why = f"the process ended with {'signal' if code < 0 else 'code'} {abs(code)}"
        # A signal that arrived before the process could handle it, or Python's own reaction to Ctrl-C.
        return End(None, why, is_stopped=code in (1, -signal.SIGTERM, -signal.SIGINT))

    def messages(self) -> Iterator[Any]:
        """What the process has sent since the last call."""
        try:
            while not self.receiver.closed and self.receiver.poll():
                yield self.receiver.recv()
        except EOFError:
            self.receiver.close()

    def stop(self) -> None:
        """Ask the process to save the state of its work and to end."""
        if self.process.is_alive():
            self.process.terminate()


def _start_server() -> None:
    """Start the server that forks, if it is not running, with the signals that stop a run blocked.

    The signals stay pending in the server and in every new process until that process handles them. Otherwise Ctrl-C
    would end the server while it loads torch. The server and the processes that it forks keep freed memory, unless the
    user has settings for the allocator.
    """
    resource_tracker.ensure_running()  # otherwise the server starts it and unblocks the signals afterwards
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        with keeping_memory():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def keeping_memory() -> Iterator[None]:
    """Processes that are started in this context keep freed memory, unless the user has settings for the allocator.

    >>> with keeping_memory():
    ...     any(name.startswith("MALLOC_") for name in os.environ)
    True
    """
    added = {} if any(name.startswith("MALLOC_") for name in os.environ) else ALLOCATOR
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _do(work: Work, sender: Connection) -> None:
    """What a process does. Its exit code is the outcome."""
    with signals() as asked:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)

        def tell(message: Any) -> None:
            # The parent process may be gone.
            with contextlib.suppress(OSError):
                sender.send(message)

        outcome = work(tell, asked)
    sys.exit(next(code for code, name in _CODES.items() if name == outcome))


class signals:
    """Notes Ctrl-C and SIGTERM in place of ending the process. The second Ctrl-C ends it.

    >>> with signals() as asked:
    ...     asked()
    False
    """

    def __enter__(self) -> Asked:
        """Begin to note them. What it returns says whether one came."""
        self.came = False
        self.before = {number: signal.signal(number, self._note) for number in _STOPPING}
        return lambda: self.came

    def _note(self, number: int, frame: Any) -> None:
        if self.came and number == signal.SIGINT:
            os._exit(130)
        self.came = True

    def __exit__(self, *error: object) -> None:
        """React to them as before."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
