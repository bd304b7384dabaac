"""Many runs: a pool of processes, each making one run or those that are timed side by side."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from sirgcn.engine.environment import ALLOCATOR
from sirgcn.engine.run import (
    BUSY,
    DONE,
    FAILED,
    PAUSED,
    UNRECORDED,
    Report,
    Run,
    Settings,
    execute_together,
    header,
    keep,
    unfinished,
)
from sirgcn.strict import ConfigError, read

# What a worker's exit code says; Python's own for an exception that nobody caught, 1, is not among them.
_CODES = {0: DONE, 3: PAUSED, 4: FAILED, 5: BUSY, 6: UNRECORDED}

_STOPPING = (signal.SIGINT, signal.SIGTERM)


def run_all(runs: Sequence[Run], settings: Settings, jobs: int = 1, reports: Sequence[Report] = ()) -> dict[Run, str]:
    """Make the runs in processes of their own, `jobs` at a time, and give the outcome of each.

    Runs that are timed side by side share a process, and no other of these runs meanwhile. A run that fails, or whose
    process is killed, is recorded and does not stop the others. At the deadline, at Ctrl-C and at SIGTERM the runs at
    work save their state and no new one begins: those are PAUSED. A run that another process is making is left to that
    one, and BUSY.
    """
    if read(int, jobs, "jobs") < 1:
        raise ConfigError(f"jobs: expected at least 1, got {jobs}")
    for folder in (settings.results, settings.work):  # now, not after hours of training
        folder.mkdir(parents=True, exist_ok=True)
    timed = [run.experiment.name for run in runs if run.experiment.kind != "training"]
    if timed and jobs > 1:
        raise ValueError(f"jobs: expected 1 for {timed[0]}, whose runs are timed, got {jobs}")
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(run.side_by_side, []).append(run)
    outcome: dict[Run, str] = {}
    with _signals() as asked:
        waiting, active = deque(groups.values()), list[_Worker]()
        while waiting or active:
            late = asked() or (settings.deadline is not None and time.time() >= settings.deadline)
            while waiting and len(active) < jobs and not late:
                active.append(_Worker(waiting.popleft(), settings))
                for run in active[-1].runs:
                    _tell(reports, run, "start", {})
            if late:
                outcome |= {run: PAUSED for group in waiting for run in group}
                waiting.clear()
                if asked():
                    for worker in active:
                        worker.stop()
            wait([end for worker in active for end in worker.ends], timeout=0.2)
            for worker in list(active):
                for run, event, detail in worker.messages():
                    _tell(reports, run, event, detail)
                if not worker.process.is_alive():
                    active.remove(worker)
                    for run, status, untold in worker.finish(settings, asked()):
                        outcome[run] = status
                        if untold is not None:
                            _tell(reports, run, status, untold)
    return outcome


def _tell(reports: Sequence[Report], run: Run, event: str, detail: dict[str, Any]) -> None:
    for report in reports:
        report(run, event, detail)


class _Worker:
    """A process that makes one run, or those that are timed side by side."""

    def __init__(self, runs: list[Run], settings: Settings) -> None:
        # A server that has loaded torch forks a process for each run, where there is fork.
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
        return [self.process.sentinel] if self.receiver.closed else [self.process.sentinel, self.receiver]

    def messages(self) -> Iterator[tuple[Run, str, dict[str, Any]]]:
        try:
            while not self.receiver.closed and self.receiver.poll():
                place, event, detail = self.receiver.recv()
                yield self.runs[place], event, detail
        except EOFError:
            self.receiver.close()

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def finish(self, settings: Settings, is_stopping: bool) -> Iterator[tuple[Run, str, dict[str, Any] | None]]:
        """The outcome of each run, with what the process itself has not told of it.

        The runs of a process that was killed are recorded as failed, except those whose record it had written.
        """
        self.process.join()
        code = self.process.exitcode or 0
        status = _CODES.get(code)
        # A signal that came before the process could note it, or Python's answer to Ctrl-C.
        if status is None and is_stopping and code in (1, -signal.SIGTERM, -signal.SIGINT):
            status = PAUSED
        for run in self.runs:
            if status is not None:
                yield run, status, {} if status == PAUSED else None
            elif not unfinished([run], settings):
                yield run, DONE, {}
            else:
                why = f"the process ended with {'signal' if code < 0 else 'code'} {abs(code)}"
                yield run, *keep(run, header(run) | {"status": FAILED, "error": why, "traceback": why}, settings)


def _start_server() -> None:
    """Start the server, if it is not there, with the signals that stop a run held back.

    They wait in the server and in every new process until that listens; else Ctrl-C ends the server as it loads torch.
    It and the processes that it forks keep freed memory, unless the user has settings of the allocator.
    """
    resource_tracker.ensure_running()  # which the server starts otherwise, and lets signals through behind it
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
    with _signals() as asked:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)

        def tell(run: Run, event: str, detail: dict[str, Any]) -> None:
            # The history is in the record; whoever looks on has gone perhaps.
            with contextlib.suppress(OSError):
                kept = {key: value for key, value in detail.items() if key != "history"}
                sender.send((runs.index(run), event, kept))

        status = execute_together(runs, settings, tell, asked)
    sys.exit(next(code for code, name in _CODES.items() if name == status))


class _signals:
    """Notes Ctrl-C and SIGTERM instead of dying of them; the second Ctrl-C ends the process."""

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
