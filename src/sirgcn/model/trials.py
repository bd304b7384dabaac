"""One training of a fit: from a candidate and a seed to a network, kept in a folder so that it is made only once."""

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors
from torch import nn

from sirgcn.data.splits import PARTS
from sirgcn.data.task import Task
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.experiment import TrainConfig
from sirgcn.engine.loop import Interrupted, NotFinite, Outcome, Trainer, Watcher, splits_sha256
from sirgcn.engine.ranks import ALONE
from sirgcn.files import write_atomic
from sirgcn.model.crew import Crew
from sirgcn.model.defaults import Candidate
from sirgcn.model.fitted import Member
from sirgcn.model.sampling import sampled
from sirgcn.model.seen import Seen
from sirgcn.nn import build_net
from sirgcn.scale import WholeGraph
from sirgcn.strict import changed

RECORDS = "trials.jsonl"
"""The file of the trainings that are finished, one on a line."""

# Seconds between two checkpoints.
_EVERY = 30.0

# The losses of a row of the history.
_LOSSES = ("step_loss", "train_loss", "val_loss")


@runtime_checkable
class Listener(Protocol):
    """A watcher that is also told what a fit does."""

    def say(self, text: str) -> None:
        """Called with one sentence: what begins, how long it takes, what was decided."""


@dataclass(frozen=True)
class Trial:
    """A candidate with a seed.

    Args:
        candidate: the network and its training.
        seed: the seed of its weights and batches.
        seconds: after this time the training ends with the best weights so far; None for no limit.
    """

    candidate: Candidate
    seed: int
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The name of the candidate and the seed."""
        return f"{self.candidate.name}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Finished:
    """A training that has ended.

    Args:
        trial: what was trained.
        record: its scores and its history, as JSON values.
        member: the network with the selected weights; None if the training failed.
    """

    trial: Trial
    record: dict[str, Any]
    member: Member | None

    def score(self, by: str) -> float:
        """The validation metric or loss; NaN for a training that failed, or had no rows to measure."""
        value = self.record.get(by)
        return math.nan if value is None else float(value)


@dataclass(eq=False)
class Workshop:
    """Trains candidates on a task. What is finished is read from the folder, and what was interrupted goes on there.

    Args:
        seen: the task.
        folder: the folder; None keeps nothing.
        watcher: called after every epoch.
        prune: called after every epoch with the epoch and its row; if it returns True, the training ends.
        whole: evaluates a graph layer by layer in a bounded working set; None: by one pass.
        crew: the ranks that share the trainings; None: this process trains alone.
    """

    seen: Seen
    folder: Path | None = None
    watcher: Watcher | None = None
    prune: Callable[[dict[str, Any]], bool] | None = None
    whole: WholeGraph | None = None
    crew: Crew | None = None
    _tasks: dict[Any, Task] = field(default_factory=dict)
    _data: str = ""

    def task_of(self, candidate: Candidate) -> Task:
        """The task as a candidate reads it. Candidates often read the same."""
        key = candidate.preparation, candidate.fanouts
        if key not in self._tasks:
            task = self.seen.task
            self._tasks[key] = sampled(task, candidate) if candidate.fanouts else candidate.preparation.applied(task)
        return self._tasks[key]

    def evaluate_in(self, memory: int) -> None:
        """Evaluate layer by layer from now on, in a working set of so many bytes."""
        scratch = None if self.folder is None else self.folder / "scratch"
        self.whole = WholeGraph(memory, scratch)

    def say(self, text: str) -> None:
        """Tell the watcher, if it listens."""
        if isinstance(self.watcher, Listener):
            self.watcher.say(text)

    def run(self, trial: Trial, place: int = 1, of: int = 1) -> Finished:
        """Train, or read what was trained before.

        Args:
            trial: the candidate and the seed.
            place: the number of this training, for the watcher.
            of: how many trainings there are.
        """
        key = self.key(trial)
        known = self._known(key)
        if known is not None:
            return Finished(trial, known, self._read_member(trial, key) if known["status"] == "done" else None)
        torch.manual_seed(trial.seed)
        network = build_net(trial.candidate.config)
        started = time.perf_counter()
        if self.crew is not None:
            working_set = None if self.whole is None else self.whole.memory
            self.crew.tell({"candidate": trial.candidate.to_dict(), "seed": trial.seed, "working_set": working_set})
        try:
            outcome = self._train(network, trial, key, (place, of))
        except NotFinite as error:
            record = self._base(trial, network) | {"key": key, "status": "failed", "error": str(error)}
            self._keep(key, record | {"seconds": round(time.perf_counter() - started, 3)}, None)
            return Finished(trial, record, None)
        record = self._base(trial, network) | {"key": key} | _told(outcome, self.seen)
        self._keep(key, record, network)
        return Finished(trial, record, Member(trial.candidate.config, network.eval(), trial.candidate.preparation))

    def follow(self) -> None:
        """Train what rank 0 trains, until its fit is over."""
        assert self.crew is not None
        while (told := self.crew.heard()) is not None:
            # Rank 0 alone looks at the clock.
            trial = Trial(Candidate.from_dict(told["candidate"]), told["seed"])
            if told["working_set"] is not None and self.whole is None:
                self.evaluate_in(told["working_set"])
            torch.manual_seed(trial.seed)
            with suppress(NotFinite):
                self._train(build_net(trial.candidate.config), trial, "", (1, 1))

    def key(self, trial: Trial) -> str:
        """A hash of everything that decides a training."""
        return self.key_of(trial.candidate, trial.seed)

    def key_of(self, candidate: Candidate, seed: int | None = None) -> str:
        """A hash of the data, a candidate and a seed."""
        if not self._data:
            task = self.seen.task
            about = [task.name, task.loss, task.metric, task.graphs.sha256(), splits_sha256(task)]
            self._data = hashlib.sha256(json.dumps(about).encode()).hexdigest()
        decided = [self._data, candidate.to_dict(), seed]
        return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:24]

    def _train(self, network: nn.Module, trial: Trial, key: str, count: tuple[int, int]) -> Outcome:
        checkpoints = None if self.folder is None else Checkpoints(self.folder / "checkpoints" / key)
        relay = _Relay(self, trial, count)
        training, task = without_validation(trial.candidate.training, self.seen), self.task_of(trial.candidate)
        channels = trial.candidate.config.block.channels
        trainer = Trainer(
            network,
            task,
            training,
            seed=trial.seed,
            checkpoints=checkpoints,
            every=_EVERY,
            watcher=relay,
            ranks=ALONE if self.crew is None else self.crew.ranks_for(task, channels, self.say),
            whole=self.whole,
        )
        relay.trainer = trainer
        trainer.should_stop = relay.should_stop
        try:
            return trainer.run()
        except Interrupted:
            return relay.outcome()

    def _base(self, trial: Trial, network: nn.Module) -> dict[str, Any]:
        parameters = sum(p.numel() for p in network.parameters())
        found = trial.candidate.to_dict()
        return {"name": trial.candidate.name, "seed": trial.seed, "parameters": parameters, "candidate": found}

    def _known(self, key: str) -> dict[str, Any] | None:
        if self.folder is None:
            return None
        found = [record for record in read_records(self.folder / RECORDS) if record.get("key") == key]
        return found[-1] if found else None

    def _keep(self, key: str, record: dict[str, Any], network: nn.Module | None) -> None:
        """Write the weights, and then the record, without which the weights do not count."""
        if self.folder is None:
            return
        if network is not None:
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
            path = self._weights(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_safetensors(weights))
        append_record(self.folder / RECORDS, record)
        Checkpoints(self.folder / "checkpoints" / key).clear()

    def _read_member(self, trial: Trial, key: str) -> Member:
        network = build_net(trial.candidate.config)
        network.load_state_dict(load_safetensors(self._weights(key).read_bytes()))
        return Member(trial.candidate.config, network.eval(), trial.candidate.preparation)

    def _weights(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / "weights" / f"{key}.safetensors"


class _Relay:
    """Passes the epochs of a training on, in the units of the targets, and ends it when its time is over."""

    def __init__(self, workshop: Workshop, trial: Trial, count: tuple[int, int]) -> None:
        self.workshop, self.trial, self.count = workshop, trial, count
        self.trainer: Trainer | None = None
        self.ended = ""
        self.first: tuple[int, float] | None = None

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        shown = in_units([row], self.workshop.seen)[0]
        place, of = self.count
        shown |= {"trial": self.trial.candidate.name, "seed": self.trial.seed, "number": place, "of": of}
        shown["seconds_left"] = self._seconds_left(row["epoch"] + 1, epochs)
        if self.workshop.watcher is not None:
            self.workshop.watcher.epoch(shown, epochs)
        if self.workshop.prune is not None and self.workshop.prune(shown):
            self.ended = "it fell behind the trials before"

    def _seconds_left(self, done: int, epochs: int) -> float | None:
        """How long the rest of this training takes at the pace since its first epoch; None at the end of that one.

        The first epoch also groups edges and allocates memory, and says little about the others.
        """
        now = time.perf_counter()
        if self.first is None:
            self.first = (done, now)
            return None
        since, started = self.first
        return (epochs - done) * (now - started) / (done - since)

    def should_stop(self) -> bool:
        assert self.trainer is not None
        if self.trial.seconds is not None and self.trainer.state.seconds >= self.trial.seconds:
            self.ended = "its time was over"
        return bool(self.ended)

    def outcome(self) -> Outcome:
        """What a training that was ended early leaves: the best weights so far."""
        assert self.trainer is not None
        trainer, state = self.trainer, self.trainer.state
        if trainer.best_weights:
            trainer.model.load_state_dict(trainer.best_weights)
        metrics: dict[str, float] = {}
        for name, (loss, metric) in trainer.evaluate(*PARTS[:2]).items():
            metrics |= {f"{name}_loss": loss, name: metric}
        best = state.best_epoch if trainer.best_weights else state.epoch - 1
        return Outcome(state.history, best, self.ended, metrics, state.seconds, state.threads)


def without_validation(training: TrainConfig, seen: Seen) -> TrainConfig:
    """The training as the rows of a task allow it.

    Without a validation part the last weights count. Where the metric has no value on it, the loss chooses.
    """
    if not seen.has_validation:
        return changed(training, {"selection": "last", "early_stop": None, "early_on": "train"}, "train")
    if not seen.can_measure():
        return changed(training, {"selection": "val_loss", "early_on": "val"}, "train")
    return training


def in_units(history: list[dict[str, Any]], seen: Seen) -> list[dict[str, Any]]:
    """The rows of a history with losses in the units of the targets, where one factor leads there, and no NaN."""
    factor = 1.0 if seen.scaling is None else seen.scaling.loss_factor(seen.task.loss)
    rows = []
    for row in history:
        found = {
            name: value * factor if name in _LOSSES and value is not None else value for name, value in row.items()
        }
        rows.append({name: None if _is_missing(value) else value for name, value in found.items()})
    return rows


def read_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of records. A last line that was torn by a kill is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def append_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record as the last line of a file, which is written whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(known) for known in (*read_records(path), record)]
    write_atomic(path, ("\n".join(lines) + "\n").encode())


def _told(outcome: Outcome, seen: Seen) -> dict[str, Any]:
    scores = dict.fromkeys(("train", "train_loss", "val", "val_loss")) | outcome.metrics
    return {
        "status": "done",
        **in_units([scores], seen)[0],
        "epochs": len(outcome.history),
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "seconds": round(outcome.seconds, 3),
        "history": in_units(outcome.history, seen),
    }


def _is_missing(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
