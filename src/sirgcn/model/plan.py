"""The plan of a fit: which candidates fit in the memory, how many epochs fit in the time, and what that is in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from sirgcn.model.defaults import Candidate
from sirgcn.model.resources import BASE, Memory, TooLarge, check_memory, free_memory, memory_of, seconds_per_epoch
from sirgcn.model.sampling import OnSamples, on_samples, why_not
from sirgcn.model.trials import Workshop, append_record, read_records, without_validation
from sirgcn.nn import build_net
from sirgcn.scale.budget import read_bytes
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
        working_set: the bytes in which a graph is evaluated layer by layer; None: it is evaluated by one pass.
    """

    candidates: tuple[Candidate, ...]
    bytes: int
    seconds: float | None
    seconds_each: float | None = None
    notes: tuple[str, ...] = ()
    working_set: int | None = None

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
        found = {"candidates": names, "bytes": self.bytes, "seconds": self.seconds, "seconds_each": self.seconds_each}
        return found if self.working_set is None else found | {"working_set": self.working_set}


@dataclass(frozen=True)
class Limits:
    """What all trainings together may take.

    Args:
        seconds: their time; None for no limit.
        more: how many trainings follow those of the candidates.
        memory: the memory of the process, in bytes or as a text such as `"4GB"`; None is what is free.
    """

    seconds: float | None = None
    more: int = 0
    memory: int | str | None = None

    def bytes(self) -> int | None:
        """The memory in bytes; None where nobody knows what is free."""
        return free_memory() if self.memory is None else read_bytes(self.memory)

    @property
    def what(self) -> str:
        """What the memory is called."""
        return "free" if self.memory is None else "given"


def make_plan(
    workshop: Workshop,
    found: Sequence[Candidate],
    limits: Limits,
    change: Callable[[Candidate], Candidate] = lambda one: one,
) -> Plan:
    """The plan for these candidates. It is kept in the folder of the work, so that a resumed fit follows it.

    Where no candidate fits into the memory, they are trained on samples. The workshop then evaluates layer by layer.

    Args:
        workshop: where they are trained.
        found: the candidates.
        limits: what the trainings may take.
        change: makes the changes to a candidate that the caller asked for.
    """
    free, working_set = limits.bytes(), None
    kept = _Kept(workshop, found, limits)
    fitting, largest, notes = ([], 0, []) if kept.is_sampled else _whole(workshop, found, free, limits.what)
    if not fitting:
        made = kept.on_samples(free, change)
        fitting, largest = [one.candidate for one in made], max(one.memory.total for one in made)
        working_set = min(one.working_set for one in made)
        notes = [one.told for one in made]
        workshop.evaluate_in(working_set)
    return _timed(workshop, Plan(tuple(fitting), largest, None, None, tuple(notes), working_set), limits)


def _timed(workshop: Workshop, plan: Plan, limits: Limits) -> Plan:
    """The plan with its times, and with as many epochs as fit in them."""
    fitting, notes = plan.candidates, plan.notes
    each = None if limits.seconds is None else limits.seconds / (len(fitting) + limits.more)
    if workshop.crew is not None:
        # One process cannot time what the ranks share. A training ends when its time is over.
        return replace(plan, seconds_each=each)
    speeds = _speeds(workshop, fitting)
    if each is not None:
        fitting = tuple(_within(one, speed, each) for one, speed in zip(fitting, speeds, strict=True))
        notes += tuple(f"{one.name}: {one.training.epochs} epochs fit in the time" for one in fitting)
    times = [one.training.epochs * speed for one, speed in zip(fitting, speeds, strict=True)]
    total = sum(times) + limits.more * max(times)
    return replace(plan, candidates=fitting, seconds=total, seconds_each=each, notes=notes)


def _whole(
    workshop: Workshop, found: Sequence[Candidate], free: int | None, what: str
) -> tuple[list[Candidate], int, list[str]]:
    """The candidates whose passes over whole graphs fit, the memory of the largest, and a note for each other one."""
    fitting, largest, notes = [], 0, []
    for one in found:
        needed = _memory(workshop, one)
        try:
            check_memory(needed, free, what=what)
        except TooLarge as error:
            notes.append(f"{one.name} is left out: {error}")
            continue
        fitting.append(one)
        largest = max(largest, needed.total)
    return fitting, largest, notes


class _Kept:
    """The trainings of some candidates on samples, and the file that keeps the memory for which they were made.

    What is free changes from call to call, and with it a batch: a fit that goes on takes the memory that it began with.
    """

    def __init__(self, workshop: Workshop, found: Sequence[Candidate], limits: Limits) -> None:
        self.workshop, self.found, self.what = workshop, found, limits.what
        self.file = None if workshop.folder is None else workshop.folder / "samples.jsonl"
        # Whoever gives another memory begins anew.
        self.key = f"{workshop.key_of(found[0])}, {limits.memory}"
        known = [] if self.file is None else read_records(self.file)
        self.limit: int | None = next((row["limit"] for row in known if row["key"] == self.key), None)

    @property
    def is_sampled(self) -> bool:
        """Whether the fit was begun on samples."""
        return self.limit is not None

    def on_samples(self, free: int | None, change: Callable[[Candidate], Candidate]) -> list[OnSamples]:
        """The trainings of the candidates that can be sampled. Where none can, the error says why, and what helps."""
        task, limit = self.workshop.seen.task, self.limit
        reasons = {one.name: why_not(one, task) for one in self.found}
        if limit is None:
            limit = self._begin(free, reasons)
        able = [one for one in self.found if reasons[one.name] is None]
        # Candidates of another depth may have become the same.
        alike: dict[str, OnSamples] = {}
        # Every rank draws its own batches, and holds its own working set.
        share = limit // _ranks(self.workshop)
        for made in (on_samples(one, task, share, change, self.what) for one in able):
            alike.setdefault(str({**made.candidate.to_dict(), "name": ""}), made)
        if self.file is not None and self.limit is None:
            append_record(self.file, {"key": self.key, "limit": limit})
        return list(alike.values())

    def _begin(self, free: int | None, reasons: Mapping[str, str | None]) -> int:
        """The memory for them; it is told, or refused where no candidate can be sampled."""
        smallest = min((_memory(self.workshop, one) for one in self.found), key=lambda memory: memory.total)
        if None not in reasons.values():
            reason = reasons[self.found[0].name]
            check_memory(smallest, free, f"take a smaller width, fewer layers or a larger machine; {reason}", self.what)
        assert free is not None
        there = f"{free / 2**30:.1f} GB are {self.what}"
        self.workshop.say(f"passes over the whole graph need about {smallest.total / 2**30:.1f} GB, and {there}")
        return free


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
        found = memory_of(build_net(one.config), workshop.task_of(one), one.training.batch_size)
    # The ranks of a crew share the tensors and the pass, but each of them has loaded torch.
    return replace(found, data=found.data + (_ranks(workshop) - 1) * BASE)


def _ranks(workshop: Workshop) -> int:
    return 1 if workshop.crew is None else workshop.crew.group.world


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
                network, task = build_net(one.config), workshop.task_of(one)
                known[key] = seconds_per_epoch(network, task, training, workshop.whole)
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
