"""Interleaved timing: in every repetition each run has its turn, so that drift of the machine hits all alike."""

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from sirgcn.strict import check_fields


@dataclass(frozen=True)
class Effort:
    """How long to measure: repetitions, seconds that one sample lasts at least, seconds after which a run drops out.

    `clock` is `"wall"`, or `"cpu"` for the time that the process spends on the CPU.
    """

    repeats: int
    sample_seconds: float
    run_seconds: float
    clock: Literal["wall", "cpu"] = "wall"

    def __post_init__(self) -> None:
        check_fields(self)


def calls_per_sample(run: Callable[[], object], effort: Effort) -> int:
    """Call it once or twice, as a warm-up, and say how many calls make a sample."""
    # The first call may compile, load a library or ask the system for memory: a second one says how long it takes.
    seconds = _seconds(run, 1, effort.clock)
    if seconds < effort.run_seconds:
        seconds = _seconds(run, 1, effort.clock)
    return max(1, math.ceil(effort.sample_seconds / max(seconds, 1e-7)))


def interleave(
    runs: Mapping[str, tuple[Callable[[], object], int]],
    effort: Effort,
    on_step: Callable[[str], None] = lambda name: None,
    is_enough: Callable[[int], bool] = lambda repeats: False,
) -> dict[str, list[float]]:
    """The seconds of one call of every run, given with its calls per sample: one sample per repetition.

    A run that is long drops out after `run_seconds`, with one sample at least; the samples of repetition r of any two
    runs were taken side by side. `is_enough` is asked before a repetition, with the number of those that were made.
    The garbage collector rests, as with `timeit`.
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    spent = dict.fromkeys(runs, 0.0)
    names = list(runs)
    for repeat in range(effort.repeats):
        if is_enough(repeat):
            break
        # Nobody always runs in the wake of the same other.
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            if repeat and spent[name] > effort.run_seconds:
                continue
            on_step(name)
            run, calls = runs[name]
            seconds = _seconds(run, calls, effort.clock)
            samples[name].append(seconds)
            spent[name] += seconds * calls
    return samples


_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def _seconds(run: Callable[[], object], calls: int, name: str) -> float:
    clock, enabled = _CLOCKS[name], gc.isenabled()
    gc.disable()
    try:
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls
    finally:
        if enabled:
            gc.enable()


def summary(samples: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, high = np.quantile(samples, (0.25, 0.75))
    return {"median": median(samples), "q1": float(low), "q3": float(high)}


def ratios(samples: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of samples / ours, repetition by repetition; above 1, ours is faster."""
    # A repetition in which one of the two had dropped out has no ratio.
    return summary([theirs / mine for theirs, mine in zip(samples, ours, strict=False)])
