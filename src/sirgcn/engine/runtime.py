"""Times as results: of inference (Tables 6 and 7), of a training step, and of a growing layer (Table 8).

No model is trained to the end, because a time does not depend on the values of the weights.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.task import Task
from sirgcn.engine.environment import environment_of
from sirgcn.engine.experiment import AxisConfig, ColumnConfig, GrowthExperiment, ModelConfig, TimingExperiment
from sirgcn.engine.experiment.configs import TimingConfig
from sirgcn.engine.inputs import describe, load_data
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.network import build
from sirgcn.engine.plan import Run
from sirgcn.engine.run import Execution
from sirgcn.engine.timing import Effort, calls_per_sample, interleave
from sirgcn.nn.adjacency import as_neighbors
from sirgcn.nn.convs import find_conv, make_conv

# A first call that takes longer is the only call of the warm-up.
_WARM_SECONDS = 1.0

# The name of the measurement of building batches, beside the models. No row has an empty title.
_BATCHES = ""

# So many batches of the training set stand for all.
_STEPS = 4


@dataclass(frozen=True)
class Stopwatch:
    """How to measure, with which seed, and when to stop.

    Args:
        timing: how time is measured.
        seed: the seed of weights and random graphs.
        should_stop: whether to raise `Interrupted`.
    """

    timing: TimingConfig
    seed: int = 0
    should_stop: Callable[[], bool] = lambda: False


def time_column(runs: Sequence[Run], experiment: TimingExperiment, execution: Execution) -> list[dict[str, Any]]:
    """Time the rows of a column, and return what the record of each says."""
    first, timing = runs[0], experiment.timing_for(runs[0].reduced)
    torch.set_num_threads(timing.threads)
    where = environment_of("cpu")  # before the measurement adds to the load of the machine
    task = load_data(first, execution.settings)
    execution.data |= describe(task, first)
    models, watch = [experiment.model(run.model) for run in runs], Stopwatch(timing, first.seed, execution.should_stop)
    found = time_passes(experiment, experiment.column(first.column), models, task, watch)
    return [fields | {"data": execution.data, "environment": where} for fields in found]


def time_layers(runs: Sequence[Run], experiment: GrowthExperiment, execution: Execution) -> list[dict[str, Any]]:
    """Time the growing layer of each row, and return what its record says."""
    first, timing = runs[0], experiment.timing_for(runs[0].reduced)
    torch.set_num_threads(timing.threads)
    where = environment_of("cpu")  # before the measurement adds to the load of the machine
    watch = Stopwatch(timing, first.seed, execution.should_stop)
    found = [time_growth(experiment, experiment.model(run.model), watch) for run in runs]
    return [fields | {"environment": where} for fields in found]


def time_passes(
    experiment: TimingExperiment,
    column: ColumnConfig,
    models: Sequence[ModelConfig],
    task: Task,
    watch: Stopwatch,
) -> list[dict[str, Any]]:
    """Time passes over batches, with all models in one interleaved measurement.

    A sample of the sort `"inference"` is inference over the test set, in eval mode and without gradients. A sample of
    the sort `"step"` is one step of the protocol's training: the mean over the first batches of the training set.
    Batches are built beforehand. What a model does with the edges, such as grouping them, is part of its time.

    Returns:
        What the record of each model says. `samples` has the seconds of every repetition: of the model (`forward`, for
        a step all of it), of the reference row (`reference`, which is always timed) and of building the batches
        (`batches`).
    """
    started = time.perf_counter()
    reference = watch.timing.reference
    rows = {model.title: model for model in (experiment.model(reference), *models)}
    batches = list(_batches(experiment, task, watch.timing))
    passes, sizes = dict[str, Callable[[], object]](), dict[str, int]()
    for title, model in rows.items():
        torch.manual_seed(watch.seed)
        network = build(experiment, model, task, column.options)
        sizes[title] = sum(p.numel() for p in network.parameters())
        # The trainer knows how a model is called and what a step is.
        trainer = Trainer(network.eval(), task, experiment.train_for(model))
        work = trainer.step if experiment.is_step else torch.no_grad()(trainer.predict)
        passes[title] = partial(_each, work, batches)
    passes[_BATCHES] = lambda: _each(lambda batch: None, _batches(experiment, task, watch.timing))
    samples = _interleaved(passes, watch.timing, watch.should_stop)
    if experiment.is_step:
        samples = {title: [seconds / len(batches) for seconds in found] for title, found in samples.items()}
    seconds = (time.perf_counter() - started) / len(models)
    return [
        {
            "metrics": {"test": fmean(samples[model.title]), "batches": fmean(samples[_BATCHES])},
            "metric": "step_seconds" if experiment.is_step else "seconds",
            "higher_is_better": False,
            "repeats": len(samples[model.title]),
            "samples": {
                "forward": _rounded(samples[model.title]),
                "reference": _rounded(samples[reference]),
                "batches": _rounded(samples[_BATCHES]),
            },
            "seconds": seconds,
            "parameters": sizes[model.title],
        }
        for model in models
    ]


def _batches(experiment: TimingExperiment, task: Task, timing: TimingConfig) -> Iterable[Data]:
    """The batches that a sample goes over, built one by one."""
    if experiment.is_step:
        return islice(task.batches("train", experiment.train.batch_size), _STEPS)
    return task.batches("test", timing.batch_size)


def _each(work: Callable[[Data], object], batches: Iterable[Data]) -> None:
    for batch in batches:
        work(batch)


def time_growth(experiment: GrowthExperiment, model: ModelConfig, watch: Stopwatch) -> dict[str, Any]:
    """Measure the exponent with which the time of a layer grows along each axis of the experiment.

    The layer goes from width d to width d, in eval mode and without gradients. It runs on random graphs whose edges
    were grouped beforehand, as a network does once for all its layers. All points of a model are interleaved.

    Returns:
        What the record says. `metrics` has the slope of each axis. `samples` has the sizes, the median seconds and the
        standard error of the slope.
    """
    started = time.perf_counter()
    options = {"variant": experiment.variant} if "variant" in find_conv(model.conv).options else {}
    calls: dict[str, Callable[[], object]] = {}
    for size in dict.fromkeys(size for axis in experiment.axes for size in axis.sizes):
        calls[str(size)] = _layer(model.conv, {**options, **model.options}, size, watch.seed)
    samples = _interleaved(calls, watch.timing, watch.should_stop)
    found = {axis.title: _growth(axis, samples) for axis in experiment.axes}
    return {
        "metrics": {title: growth["slope"] for title, growth in found.items()},
        "metric": "complexity",
        "higher_is_better": False,
        "repeats": min(map(len, samples.values())),
        "samples": found,
        "seconds": time.perf_counter() - started,
        "data": {"name": "random graphs", "version": f"drawn, seed {watch.seed}", "sha256": None},
    }


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    r"""The exponent a of :math:`t = c\, s^a` by least squares of log t on log s, and its standard error.

    There must be three points or more. The error is that of a line with independent residuals, so that both noise and
    curvature widen it.

    >>> exponent, error = slope([1, 10, 100], [3.0, 300.0, 30000.0])
    >>> round(exponent, 6)
    2.0
    """
    if len(sizes) != len(seconds) or len(set(sizes)) < 3:
        raise ValueError(f"slope: expected a time for each of three sizes or more, got {list(sizes)}, {list(seconds)}")
    (exponent, _), covariance = np.polyfit(np.log(sizes), np.log(seconds), 1, cov=True)
    return float(exponent), float(math.sqrt(max(0.0, covariance[0, 0])))


def _growth(axis: AxisConfig, samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    seconds = [median(samples[str(size)]) for size in axis.sizes]
    exponent, error = slope(axis.grows, seconds)
    return {"sizes": list(axis.grows), "seconds": _rounded(seconds), "slope": exponent, "error": error}


def _layer(conv: str, options: dict[str, Any], size: tuple[int, int, int], seed: int) -> Callable[[], Tensor]:
    """A call of a layer on a random graph of (|V|, |E|, d)."""
    nodes, edges, width = size
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(nodes, width, generator=generator)
    graph = as_neighbors(torch.randint(nodes, (2, edges), generator=generator), nodes, nodes)
    torch.manual_seed(seed)
    layer = make_conv(conv, width, width, **options).eval()
    return torch.no_grad()(lambda: layer(h, graph))


def _interleaved(
    runs: Mapping[str, Callable[[], object]], timing: TimingConfig, should_stop: Callable[[], bool]
) -> dict[str, list[float]]:
    """The samples of every run, the same number for each. Raises `Interrupted` when the measurement is to stop."""

    def check(name: str) -> None:
        if should_stop():
            raise Interrupted("stopped while timing; the samples so far are dropped")

    effort = Effort(timing.repeats, timing.sample_seconds, math.inf, timing.clock)
    ready = {}
    for name, run in runs.items():
        check(name)
        ready[name] = run, calls_per_sample(run, replace(effort, run_seconds=_WARM_SECONDS))
    started = time.perf_counter()

    def is_enough(repeats: int) -> bool:
        return repeats >= timing.least and time.perf_counter() - started > timing.seconds

    return interleave(ready, effort, check, is_enough)


def _rounded(seconds: Sequence[float]) -> list[float]:
    """Seconds with six digits, which is more than a clock can measure."""
    return [float(f"{value:.6g}") for value in seconds]
