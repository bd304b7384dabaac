"""Interleaved timing: every repetition measures each run once, so that drift of the machine affects all alike."""

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
    """How long to measure.

    Args:
        repeats: the number of repetitions.
        sample_seconds: the shortest time of a sample.
        run_seconds: a run drops out after this time.
        clock: `"wall"`, or `"cpu"` for the time that the process spends on the CPU.

    >>> Effort(repeats=3, sample_seconds=0.0, run_seconds=1.0).clock
    'wall'
    """

    repeats: int
    sample_seconds: float
    run_seconds: float
    clock: Literal["wall", "cpu"] = "wall"

    def __post_init__(self) -> None:
        check_fields(self)


def calls_per_sample(run: Callable[[], object], effort: Effort) -> int:
    """Call a run once or twice as a warm-up, and return how many calls make a sample."""
    # The first call may compile, load a library or ask the system for memory. The second call shows how long one takes.
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
    """The seconds of one call of every run, one sample per repetition.

    A long run drops out after `run_seconds`, with at least one sample. The samples of repetition r of any two runs were
    taken one after the other. The garbage collector is switched off, as in `timeit`.

    Args:
        runs: each run with its calls per sample.
        effort: how long to measure.
        on_step: called before each sample with the name of the run.
        is_enough: called before each repetition with the number of repetitions so far.

    >>> samples = interleave({"a": (lambda: sum(range(10)), 5)}, Effort(3, 0.0, 1.0))
    >>> len(samples["a"])
    3
    """
    samples: dict[str, list[float]] = {name: [] for name in runs}
    spent = dict.fromkeys(runs, 0.0)
    names = list(runs)
    for repeat in range(effort.repeats):
        if is_enough(repeat):
            break
        # The order changes, so that no run always follows the same other one.
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
    """Median and quartiles.

    >>> summary([1.0, 2.0, 3.0])
    {'median': 2.0, 'q1': 1.5, 'q3': 2.5}
    """
    low, high = np.quantile(samples, (0.25, 0.75))
    return {"median": median(samples), "q1": float(low), "q3": float(high)}


def ratios(samples: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Median and quartiles of samples / ours, repetition by repetition. Above 1, ours is faster.

    >>> ratios([2.0, 4.0], [1.0, 2.0])["median"]
    2.0
    """
    # A repetition in which one of the two runs had dropped out has no ratio.
    return summary([theirs / mine for theirs, mine in zip(samples, ours, strict=False)])
