"""The trials of a study, several at a time, on an `Engine` of the engine room."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sirgcn.engine.loop import Watcher
from sirgcn.engine.records import DONE
from sirgcn.engine.run import PAUSED
from sirgcn.engine.search.study import Begun, Study
from sirgcn.engine.workers import Asked, Engine, Tell, Work, Worker, signals
from sirgcn.model.seen import Seen
from sirgcn.model.trials import Listener, Trial, Workshop


class _Stopped(Exception):
    """A trial is asked to stop. Its last checkpoint stays."""


@dataclass(frozen=True)
class _Sending:
    """A watcher that sends every epoch, and ends a training that is asked to stop."""

    tell: Tell
    asked: Asked

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        self.tell(("epoch", (row, epochs)))
        if self.asked():
            raise _Stopped


@dataclass(frozen=True)
class TrialWork:
    """The work of a worker: it trains one trial, and sends every epoch and the score.

    Args:
        seen: the task.
        folder: where this trial is kept, and no other.
        trial: the candidate and the seed.
        threads: the threads of torch; None keeps torch's own number.
    """

    seen: Seen
    folder: Path
    trial: Trial
    threads: int | None = None

    def __call__(self, tell: Tell, asked: Asked) -> str:
        """Train. A trial that is asked to stop has no outcome yet."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            finished = Workshop(self.seen, self.folder, _Sending(tell, asked)).run(self.trial)
        except _Stopped:
            return PAUSED
        score = finished.score("val")
        tell(("score", None if math.isnan(score) else score))
        return DONE


@dataclass
class Trials:
    """The trials of a study that are at work.

    Args:
        study: the study.
        engine: where they are trained. It must be open.
        work_of: the work of a trial with some settings, by its number.
        watcher: is told about the epochs.
    """

    study: Study
    engine: Engine
    work_of: Callable[[int, Mapping[str, Any]], Work]
    watcher: Watcher | None = None

    def run(self, trials: int, jobs: int, is_over: Callable[[], bool]) -> None:
        """Make the trials that are left of so many, `jobs` at a time. Ctrl-C leaves those at work for the next call.

        Args:
            trials: how many trials the study shall have.
            jobs: how many are made at a time.
            is_over: asked before a trial begins; if it returns True, no more begin.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed, and all workers have ended.
        """
        self.trials, self.active = trials, dict[Worker, _AtWork]()
        with signals() as asked:
            self.asked = asked
            self._begin(jobs, asked() or is_over())
            while self.active:
                self.engine.wait(list(self.active), 0.2)
                ended = [worker for worker in list(self.active) if self._listen(worker)]
                if asked():
                    for worker in self.active:
                        worker.stop()
                elif ended:
                    self._begin(jobs, is_over())
            if asked():
                raise KeyboardInterrupt

    def _begin(self, jobs: int, is_over: bool) -> None:
        while not is_over and len(self.active) < jobs:
            begun = self.study.begin(self.trials, [one.begun.number for one in self.active.values()])
            if begun is None:
                return
            self._say(f"trial {begun.number + 1} of {self.trials} begins")
            self.active[self.engine.start(self.work_of(begun.number, begun.settings))] = _AtWork(begun)

    def _listen(self, worker: Worker) -> bool:
        """Take the messages of a worker. Returns whether it has ended."""
        end, at_work = worker.end(), self.active[worker]
        for what, value in worker.messages():
            if what == "score":
                at_work.score = value
            elif self._epoch(at_work.begun, *value):
                worker.stop()
        if end is None:
            return False
        del self.active[worker]
        # A trial that was asked to stop, and has not fallen behind, is taken up again by the next call.
        if end.outcome == DONE or at_work.begun.is_pruned:
            at_work.begun.finish(at_work.score)
        elif end.outcome != PAUSED and not (end.is_stopped and self.asked()):
            self._say(f"trial {at_work.begun.number + 1} failed: {end.why}")
            at_work.begun.finish(None)
        return True

    def _epoch(self, begun: Begun, row: dict[str, Any], epochs: int) -> bool:
        """Note an epoch. Returns whether the trial has fallen behind."""
        if self.watcher is not None:
            self.watcher.epoch(row | {"number": begun.number + 1, "of": self.trials}, epochs)
        return row["val"] is not None and begun.report(row["epoch"], row["val"])

    def _say(self, text: str) -> None:
        if isinstance(self.watcher, Listener):
            self.watcher.say(text)


@dataclass
class _AtWork:
    """A trial at work, and its score as soon as it is there."""

    begun: Begun
    score: float | None = None
