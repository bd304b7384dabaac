"""The plan of a fit: which candidates fit in the memory, how many epochs fit in the time, and what that is in words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from sirgcn.model.defaults import Candidate
from sirgcn.model.resources import Memory, TooLarge, check_memory, free_memory, memory_of, seconds_per_epoch
from sirgcn.model.trials import Workshop, append_record, read_records, without_validation
from sirgcn.nn import build_net
from sirgcn.strict import changed

# The share of a training's time that its epochs may plan with; the rest is for what a busy machine adds.
_PLANNED = 0.85

# With fewer epochs than this a schedule that falls to 0 has no time to learn.
_LEAST_EPOCHS = 3


@dataclass(frozen=True)
class Plan:
    """What will be trained.

    Args:
        candidates: the settings to try, each with as many epochs as fit in the time.
        bytes: the memory that the largest of them takes at its peak.
        seconds: how long all trainings take if none stops by itself; None if that was not measured.
        seconds_each: the time of one training; None for no limit.
        notes: what was decided, in words.
    """

    candidates: tuple[Candidate, ...]
    bytes: int
    seconds: float | None
    seconds_each: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The plan in one sentence."""
        count = len(self.candidates)
        tried = "one network is trained" if count == 1 else f"{count} networks are tried"
        long = "" if self.seconds is None else f", in at most {in_words(self.seconds)}"
        return f"{tried}{long}, with about {self.bytes / 2**30:.1f} GB of memory"

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        names = [one.name for one in self.candidates]
        return {"candidates": names, "bytes": self.bytes, "seconds": self.seconds, "seconds_each": self.seconds_each}


def make_plan(workshop: Workshop, found: Sequence[Candidate], time_limit: float | None, more: int) -> Plan:
    """The plan for these candidates. It is kept in the folder of the work, so that a resumed fit follows it.

    Args:
        workshop: where they are trained.
        found: the candidates.
        time_limit: the seconds for all trainings; None for no limit.
        more: how many trainings follow those of the candidates.
    """
    free, fitting, largest, notes = free_memory(), [], 0, []
    for one in found:
        needed = _memory(workshop, one)
        try:
            check_memory(needed, free)
        except TooLarge as error:
            notes.append(f"{one.name} is left out: {error}")
            continue
        fitting.append(one)
        largest = max(largest, needed.total)
    if not fitting:
        check_memory(min((_memory(workshop, one) for one in found), key=lambda memory: memory.total), free)
    of = len(fitting) + more
    each = None if time_limit is None else time_limit / of
    speeds = _speeds(workshop, fitting)
    if each is not None:
        fitting = [_within(one, speed, each) for one, speed in zip(fitting, speeds, strict=True)]
        notes += [f"{one.name}: {one.training.epochs} epochs fit in the time" for one in fitting]
    times = [one.training.epochs * speed for one, speed in zip(fitting, speeds, strict=True)]
    total = sum(times) + more * max(times)
    return Plan(tuple(fitting), largest, total, each, tuple(notes))


def in_words(seconds: float) -> str:
    """A time that a person can read.

    >>> in_words(8), in_words(200), in_words(8000)
    ('8 seconds', '3 minutes', '2.2 hours')
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 6000:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def _memory(workshop: Workshop, one: Candidate) -> Memory:
    with torch.random.fork_rng(devices=[]):
        return memory_of(build_net(one.config), workshop.task_of(one), one.training.batch_size)


def _speeds(workshop: Workshop, found: Sequence[Candidate]) -> list[float]:
    """The seconds of an epoch of each candidate: measured now, or by the same work before it was interrupted."""
    file = None if workshop.folder is None else workshop.folder / "speeds.jsonl"
    known = {} if file is None else {row["key"]: row["seconds"] for row in read_records(file)}
    speeds = []
    for one in found:
        key = workshop.key_of(one)
        if key not in known:
            with torch.random.fork_rng(devices=[]):
                training = without_validation(one.training, workshop.seen)
                known[key] = seconds_per_epoch(build_net(one.config), workshop.task_of(one), training)
            if file is not None:
                append_record(file, {"key": key, "seconds": known[key]})
        speeds.append(known[key])
    return speeds


def _within(one: Candidate, speed: float, seconds: float) -> Candidate:
    """The candidate with as many epochs as fit in the time; the schedule then ends with the time."""
    epochs = max(_LEAST_EPOCHS, int(_PLANNED * seconds / speed))
    training = one.training
    if epochs >= training.epochs:
        return one
    warmup = min(training.warmup, epochs // 5)
    return replace(one, training=changed(training, {"epochs": epochs, "warmup": warmup}, "train"))
