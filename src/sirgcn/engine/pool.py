"""Many runs: on an engine, whose workers each make one run or the runs that are timed together."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sirgcn.data.store import data_root
from sirgcn.engine.finished import unfinished
from sirgcn.engine.plan import Run, Settings
from sirgcn.engine.records import DONE, LONG
from sirgcn.engine.run import PAUSED, Listener, execute_together, failure_of, header, is_late, keep
from sirgcn.engine.workers import Asked, End, Engine, Processes, Tell, Worker, check_jobs, signals


def run_all(
    runs: Sequence[Run],
    settings: Settings,
    jobs: int = 1,
    listeners: Sequence[Listener] = (),
    engine: Engine | None = None,
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
        engine: where the processes are. It must be open. None means processes of this machine.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run_all([], Settings(folder, folder))
    {}
    """
    check_jobs(jobs)
    timed = [run.experiment.name for run in runs if run.experiment.is_timed]
    if timed and jobs > 1:
        raise ValueError(f"jobs: expected 1 for {timed[0]}, whose runs are timed, got {jobs}")
    if timed and not isinstance(engine, Processes | None):
        raise ValueError(f"engine: expected processes for {timed[0]}, whose runs are timed on this machine")
    for folder in (settings.results, settings.work):  # now, not after hours of training
        folder.mkdir(parents=True, exist_ok=True)
    where = engine or Processes()
    if not isinstance(where, Processes):
        settings = _anywhere(settings)
    with signals() as asked:
        pool = _Pool(runs, settings, listeners, asked, where)
        while pool.has_work:
            pool.step(jobs)
    return pool.outcome


def _anywhere(settings: Settings) -> Settings:
    """The settings for processes with another working directory and other variables of the environment."""
    data = settings.data or data_root()
    return replace(settings, results=settings.results.absolute(), work=settings.work.absolute(), data=data.absolute())


@dataclass(frozen=True)
class _Making:
    """The work of a worker: to make one run, or the runs that are timed together."""

    runs: list[Run]
    settings: Settings

    def __call__(self, tell: Tell, asked: Asked) -> str:
        def send(run: Run, event: str, detail: dict[str, Any]) -> None:
            # The history is recorded, and not sent.
            kept = {key: value for key, value in detail.items() if key not in LONG}
            tell((self.runs.index(run), event, kept))

        return execute_together(self.runs, self.settings, send, asked)


class _Pool:
    """The runs that wait, the workers, and the outcomes so far."""

    def __init__(
        self,
        runs: Sequence[Run],
        settings: Settings,
        listeners: Sequence[Listener],
        asked: Callable[[], bool],
        engine: Engine,
    ) -> None:
        self.settings, self.listeners, self.asked, self.engine = settings, listeners, asked, engine
        groups: dict[tuple[Any, ...], list[Run]] = {}
        for run in runs:
            groups.setdefault(run.process, []).append(run)
        self.waiting, self.active = deque(groups.values()), dict[Worker, list[Run]]()
        self.outcome: dict[Run, str] = {}

    @property
    def has_work(self) -> bool:
        """Whether a run waits or is at work."""
        return bool(self.waiting or self.active)

    def step(self, jobs: int) -> None:
        """Start or stop workers, then wait a moment for messages and pass them on."""
        if self.asked() or is_late(self.settings):
            self._stop()
        else:
            self._start(jobs)
        self.engine.wait(list(self.active), 0.2)
        for worker in list(self.active):
            self._listen(worker)

    def _start(self, jobs: int) -> None:
        """Start workers until there are as many as there are jobs."""
        while self.waiting and len(self.active) < jobs:
            runs = self.waiting.popleft()
            self.active[self.engine.start(_Making(runs, self.settings))] = runs
            for run in runs:
                self._tell(run, "start", {})

    def _stop(self) -> None:
        """Pause what waits. Workers see the deadline for themselves; a signal is passed on to them."""
        self.outcome |= {run: PAUSED for group in self.waiting for run in group}
        self.waiting.clear()
        if self.asked():
            for worker in self.active:
                worker.stop()

    def _listen(self, worker: Worker) -> None:
        """Pass on the messages of a worker, and note the outcome of its runs when it has ended."""
        end, runs = worker.end(), self.active[worker]
        for place, event, detail in worker.messages():
            self._tell(runs[place], event, detail)
        if end is None:
            return
        del self.active[worker]
        for run, status, untold in self._finish(runs, end):
            self.outcome[run] = status
            if untold is not None:
                self._tell(run, status, untold)

    def _finish(self, runs: list[Run], end: End) -> Iterator[tuple[Run, str, dict[str, Any] | None]]:
        """The outcome of each run of a worker that has ended, and what the worker could not report itself.

        The runs of a killed process are recorded as failed, except those whose record it had already written.
        """
        status = PAUSED if end.is_stopped and self.asked() else end.outcome
        for run in runs:
            if status is not None:
                yield run, status, {} if status == PAUSED else None
            elif not unfinished([run], self.settings):
                yield run, DONE, {}
            else:
                yield run, *keep(run, header(run) | failure_of(end.why, end.why) | {"killed": True}, self.settings)

    def _tell(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(run, event, detail)
