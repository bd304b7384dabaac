"""Many runs: a pool of processes, each of which makes one run or the runs that are timed together."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from sirgcn.engine.environment import ALLOCATOR
from sirgcn.engine.finished import unfinished
from sirgcn.engine.plan import Run, Settings
from sirgcn.engine.records import DONE, FAILED, LONG
from sirgcn.engine.run import (
    BUSY,
    PAUSED,
    UNRECORDED,
    Listener,
    execute_together,
    failure_of,
    header,
    is_late,
    keep,
)
from sirgcn.strict import ConfigError, read

# The outcome that an exit code of a worker stands for. Python's own code for an uncaught exception, 1, is not used.
_CODES = {0: DONE, 3: PAUSED, 4: FAILED, 5: BUSY, 6: UNRECORDED}

_STOPPING = (signal.SIGINT, signal.SIGTERM)


def run_all(
    runs: Sequence[Run], settings: Settings, jobs: int = 1, listeners: Sequence[Listener] = ()
) -> dict[Run, str]:
    """Make the runs in processes of their own, `jobs` at a time, and return the outcome of each.

    - Runs of the same `Run.process` share a process. Timed runs are the only ones at work.
    - A run that fails, or whose process is killed, is recorded as failed. The other runs go on.
    - At the deadline, at Ctrl-C and at SIGTERM, the runs at work save their state and no new run starts. The outcome of
      all these runs is `PAUSED`.
    - A run that another process is making is left to that process. Its outcome is `BUSY`.

    Args:
        runs: the runs, such as those of `plan`.
        settings: where and how they are made.
        jobs: how many processes work at a time.
        listeners: called with every event of every run.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run_all([], Settings(folder, folder))
    {}
    """
    if read(int, jobs, "jobs") < 1:
        raise ConfigError(f"jobs: expected at least 1, got {jobs}")
    timed = [run.experiment.name for run in runs if run.experiment.is_timed]
    if timed and jobs > 1:
        raise ValueError(f"jobs: expected 1 for {timed[0]}, whose runs are timed, got {jobs}")
    for folder in (settings.results, settings.work):  # now, not after hours of training
        folder.mkdir(parents=True, exist_ok=True)
    with _signals() as asked:
        pool = _Pool(runs, settings, listeners, asked)
        while pool.has_work:
            pool.step(jobs)
    return pool.outcome


class _Pool:
    """The runs that wait, the processes at work, and the outcomes so far."""

    def __init__(
        self, runs: Sequence[Run], settings: Settings, listeners: Sequence[Listener], asked: Callable[[], bool]
    ) -> None:
        self.settings, self.listeners, self.asked = settings, listeners, asked
        groups: dict[tuple[Any, ...], list[Run]] = {}
        for run in runs:
            groups.setdefault(run.process, []).append(run)
        self.waiting, self.active = deque(groups.values()), list[_Worker]()
        self.outcome: dict[Run, str] = {}

    @property
    def has_work(self) -> bool:
        """Whether a run waits or is at work."""
        return bool(self.waiting or self.active)

    def step(self, jobs: int) -> None:
        """Start or stop processes, then wait a moment for messages and pass them on."""
        if self.asked() or is_late(self.settings):
            self._stop()
        else:
            self._start(jobs)
        wait([end for worker in self.active for end in worker.ends], timeout=0.2)
        for worker in list(self.active):
            self._listen(worker)

    def _start(self, jobs: int) -> None:
        """Start processes until there are as many as there are jobs."""
        while self.waiting and len(self.active) < jobs:
            worker = _Worker(self.waiting.popleft(), self.settings)
            self.active.append(worker)
            for run in worker.runs:
                self._tell(run, "start", {})

    def _stop(self) -> None:
        """Pause what waits. Processes see the deadline for themselves; a signal is passed on to them."""
        self.outcome |= {run: PAUSED for group in self.waiting for run in group}
        self.waiting.clear()
        if self.asked():
            for worker in self.active:
                worker.stop()

    def _listen(self, worker: "_Worker") -> None:
        """Pass on the messages of a process, and note the outcome of its runs when it has ended."""
        for run, event, detail in worker.messages():
            self._tell(run, event, detail)
        if worker.process.is_alive():
            return
        self.active.remove(worker)
        for run, status, untold in worker.finish(self.settings, self.asked()):
            self.outcome[run] = status
            if untold is not None:
                self._tell(run, status, untold)

    def _tell(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(run, event, detail)


class _Worker:
    """A process that makes one run, or the runs that are timed together."""

    def __init__(self, runs: list[Run], settings: Settings) -> None:
        # Where fork exists, a server that has loaded torch forks a process for each run.
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload([__name__])
            _start_server()
        self.runs = runs
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(runs, settings, sender))  # type: ignore[attr-defined]
        self.process.start()
        sender.close()

    @property
    def ends(self) -> list[Any]:
        """What to wait for: the end of the process, and its next message."""
        return [self.process.sentinel] if self.receiver.closed else [self.process.sentinel, self.receiver]

    def messages(self) -> Iterator[tuple[Run, str, dict[str, Any]]]:
        """The events that the process has sent since the last call."""
        try:
            while not self.receiver.closed and self.receiver.poll():
                place, event, detail = self.receiver.recv()
                yield self.runs[place], event, detail
        except EOFError:
            self.receiver.close()

    def stop(self) -> None:
        """Ask the process to save the state of its runs and to end."""
        if self.process.is_alive():
            self.process.terminate()

    def finish(self, settings: Settings, is_stopping: bool) -> Iterator[tuple[Run, str, dict[str, Any] | None]]:
        """The outcome of each run of a process that has ended, and what the process could not report itself.

        The runs of a killed process are recorded as failed, except those whose record it had already written.
        """
        self.process.join()
        code = self.process.exitcode or 0
        status = _CODES.get(code)
        # A signal that arrived before the process could handle it, or Python's own reaction to Ctrl-C.
        if status is None and is_stopping and code in (1, -signal.SIGTERM, -signal.SIGINT):
            status = PAUSED
        for run in self.runs:
            if status is not None:
                yield run, status, {} if status == PAUSED else None
            elif not unfinished([run], settings):
                yield run, DONE, {}
            else:
                why = f"the process ended with {'signal' if code < 0 else 'code'} {abs(code)}"
                yield run, *keep(run, header(run) | failure_of(why, why) | {"killed": True}, settings)


def _start_server() -> None:
    """Start the server that forks, if it is not running, with the signals that stop a run blocked.

    The signals stay pending in the server and in every new process until that process handles them. Otherwise Ctrl-C
    would end the server while it loads torch. The server and the processes that it forks keep freed memory, unless the
    user has settings for the allocator.
    """
    resource_tracker.ensure_running()  # otherwise the server starts it and unblocks the signals afterwards
    added = {} if any(name.startswith("MALLOC_") for name in os.environ) else ALLOCATOR
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    os.environ.update(added)
    try:
        forkserver.ensure_running()
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(runs: list[Run], settings: Settings, sender: Connection) -> None:
    """What a worker's process does. Its exit code is the outcome."""
    with _signals() as asked:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)

        def tell(run: Run, event: str, detail: dict[str, Any]) -> None:
            # The history is recorded, and not sent. The parent process may be gone.
            with contextlib.suppress(OSError):
                kept = {key: value for key, value in detail.items() if key not in LONG}
                sender.send((runs.index(run), event, kept))

        status = execute_together(runs, settings, tell, asked)
    sys.exit(next(code for code, name in _CODES.items() if name == status))


class _signals:
    """Notes Ctrl-C and SIGTERM in place of ending the process. The second Ctrl-C ends it."""

    def __enter__(self) -> Callable[[], bool]:
        self.came = False
        self.before = {number: signal.signal(number, self._note) for number in _STOPPING}
        return lambda: self.came

    def _note(self, number: int, frame: Any) -> None:
        if self.came and number == signal.SIGINT:
            os._exit(130)
        self.came = True

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
