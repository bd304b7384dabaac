"""Times as experiments: of inference (Tables 6 and 7), of a training step, of a layer whose input grows (Table 8).

No model is trained to the end: a time does not depend on the values of the weights.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from statistics import fmean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from sirgcn.data.task import Task
from sirgcn.engine.experiment import AxisConfig, ColumnConfig, Experiment, ModelConfig, TimingConfig
from sirgcn.engine.loop import Interrupted, Trainer
from sirgcn.engine.network import build
from sirgcn.engine.timing import Effort, calls_per_sample, interleave
from sirgcn.nn.adjacency import as_neighbors
from sirgcn.nn.convs import make_conv

# A first call that takes longer warms up alone.
_WARM_SECONDS = 1.0

# The building of batches, which is timed beside the models; no title of a row.
_BATCHES = ""

# So many batches of the training set stand for all.
_STEPS = 4


def time_passes(
    experiment: Experiment,
    column: ColumnConfig,
    models: Sequence[ModelConfig],
    task: Task,
    seed: int,
    timing: TimingConfig,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[dict[str, Any]]:
    """Passes over batches, all models in one interleaved measurement: what the records say, model by model.

    Of the kind `"runtime"` a sample is inference over the test set, in eval mode and without gradients; of the kind
    `"step"` it is a step of the protocol's training, the mean over the first batches of the training set. Batches are
    built beforehand; what a model does with the edges, such as grouping them, is in the time. `samples` holds,
    repetition by repetition, the seconds of the model (`forward`, for a step all of it), of the reference row
    (`reference`, timed in any case) and of building the batches (`batches`).
    """
    started = time.perf_counter()
    is_step = experiment.kind == "step"
    rows = {model.title: model for model in (experiment.model(timing.reference), *models)}
    passes, sizes = dict[str, Callable[[], object]](), dict[str, int]()

    def built() -> Iterable[Data]:
        if is_step:
            return islice(task.batches("train", experiment.train.batch_size), _STEPS)
        return task.batches("test", timing.batch_size)

    batches = list(built())
    for title, model in rows.items():
        torch.manual_seed(seed)
        network = build(experiment, model, task, column.options)
        sizes[title] = sum(p.numel() for p in network.parameters())
        # The trainer knows how a model is called and what a step is.
        trainer = Trainer(network.eval(), task, experiment.train_for(model))
        passes[title] = partial(_each, trainer.step if is_step else torch.no_grad()(trainer.predict), batches)
    passes[_BATCHES] = lambda: _each(lambda batch: None, built())
    samples = _interleaved(passes, timing, should_stop)
    if is_step:
        samples = {title: [seconds / len(batches) for seconds in found] for title, found in samples.items()}
    seconds = (time.perf_counter() - started) / len(models)
    data = {"name": task.name, "version": task.version, "sha256": task.graphs.sha256()}
    return [
        {
            "metrics": {"test": fmean(samples[model.title]), "batches": fmean(samples[_BATCHES])},
            "metric": "step_seconds" if is_step else "seconds",
            "higher_is_better": False,
            "repeats": len(samples[model.title]),
            "samples": {
                "forward": _rounded(samples[model.title]),
                "reference": _rounded(samples[timing.reference]),
                "batches": _rounded(samples[_BATCHES]),
            },
            "seconds": seconds,
            "parameters": sizes[model.title],
            "data": data,
        }
        for model in models
    ]


def _each(work: Callable[[Data], object], batches: Iterable[Data]) -> None:
    for batch in batches:
        work(batch)


def time_growth(
    experiment: Experiment,
    model: ModelConfig,
    seed: int,
    timing: TimingConfig,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """The exponent with which a layer's time grows along each axis of the experiment: what the record says.

    One layer from width d to width d, in eval mode and without gradients, on random graphs whose edges were grouped
    beforehand, as a network does once for all its layers. All points of a model are interleaved; `metrics` holds the
    slope of each axis, `samples` the sizes, the median seconds and the slope's standard error.
    """
    started = time.perf_counter()
    options = {"variant": experiment.variant} if model.conv == "sir" else {}
    calls: dict[str, Callable[[], object]] = {}
    for axis in experiment.axes:
        for size in axis.sizes:
            if str(size) not in calls:
                calls[str(size)] = _layer(model.conv, {**options, **model.options}, size, seed)
    samples = _interleaved(calls, timing, should_stop)
    found = {axis.title: _growth(axis, samples) for axis in experiment.axes}
    return {
        "metrics": {title: growth["slope"] for title, growth in found.items()},
        "metric": "complexity",
        "higher_is_better": False,
        "repeats": min(map(len, samples.values())),
        "samples": found,
        "seconds": time.perf_counter() - started,
        "data": {"name": "random graphs", "version": f"drawn, seed {seed}", "sha256": None},
    }


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    r"""The exponent a of :math:`t = c\, s^a` by least squares of log t on log s, and its standard error.

    With three points or more; the error is that of a line with independent residuals, so that noise and curvature
    both widen it.
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
    """The samples of every run, as many of one as of another; `Interrupted` where it is to stop."""

    def check(name: str) -> None:
        if should_stop():
            raise Interrupted("stopped while timing; what was timed so far is dropped")

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
    """A clock has no more than six digits to say."""
    return [float(f"{value:.6g}") for value in seconds]
