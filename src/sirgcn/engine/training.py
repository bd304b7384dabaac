"""One run of a training experiment: data, network, training loop, and what its record says."""

import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sirgcn.data.task import Task
from sirgcn.engine import records
from sirgcn.engine.checkpoint import Checkpoints, weights_sha256
from sirgcn.engine.controls import find_control
from sirgcn.engine.environment import environment_of, peak_memory_mb
from sirgcn.engine.experiment import TrainingExperiment
from sirgcn.engine.inputs import describe, load_data
from sirgcn.engine.loop import Trainer
from sirgcn.engine.network import build, readable
from sirgcn.engine.plan import Run, identity_of
from sirgcn.engine.run import Execution


def train(run: Run, experiment: TrainingExperiment, execution: Execution) -> dict[str, Any]:
    """Make the model of a run: train its network, or fit its control. Returns what the record says about it."""
    task = load_data(run, execution.settings)
    execution.data |= describe(task, run)
    made = _fit if experiment.model(run.model).control else _train
    found = made(run, experiment, execution, experiment.seen(task, run.split))
    return found | {
        "metric": task.metric,
        "higher_is_better": task.metric_function.maximise,
        "peak_memory_mb": peak_memory_mb(),
        "data": execution.data,
    }


def _fit(run: Run, experiment: TrainingExperiment, execution: Execution, task: Task) -> dict[str, Any]:
    """Fit the control of a run. It takes seconds, so that it has no checkpoints."""
    model = experiment.model(run.model)
    where, started = environment_of("cpu"), time.perf_counter()
    fitted = find_control(str(model.control)).build(task, split=run.split, seed=run.seed, **model.options)
    return {
        "metrics": fitted.scores(task, run.split),
        "rounds": fitted.rounds,
        "seconds": time.perf_counter() - started,
        "parameters": None,
        "environment": where,
        "threads": [torch.get_num_threads()],
    }


def _train(run: Run, experiment: TrainingExperiment, execution: Execution, task: Task) -> dict[str, Any]:
    """Train the network of a run, from its last checkpoint if there is one."""
    settings, model = execution.settings, experiment.model(run.model)
    folder = settings.checkpoints_of(run)
    log = _Log(folder.with_name("log.jsonl"), partial(execution.tell, run))
    checkpoints = Checkpoints(folder, of=identity_of(run, execution.data))
    torch.manual_seed(run.seed)
    network = build(experiment, model, task, experiment.column(run.column).options).to(settings.device)
    config = experiment.train_for(model, run.reduced)
    task = readable(experiment, model, task)
    options = (run.split, run.seed, checkpoints, settings.every, execution.should_stop, log)
    trainer = Trainer(network, task, config, *options)
    # Before hours of training: the commit whose code was loaded, and the load of the machine without ours.
    where = environment_of(str(trainer.device))
    outcome = trainer.run()
    epochs = len(outcome.history)
    return {
        "metrics": outcome.metrics,
        "epochs": epochs,
        "best_epoch": outcome.best_epoch,
        "stopped": outcome.stopped,
        "seconds": outcome.seconds,
        "seconds_per_epoch": records.seconds_per_epoch(vars(outcome) | {"epochs": epochs}),
        "parameters": sum(p.numel() for p in network.parameters()),
        "weights_sha256": weights_sha256(network),
        "environment": where,
        # More than one number if the training was resumed with another number of threads.
        "threads": outcome.threads,
        "history": [{name: _rounded(value) for name, value in row.items()} for row in outcome.history],
    }


def _rounded(value: Any) -> Any:
    """A number of a curve, with six digits. The metrics and the hash of the weights are exact."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


class _Log:
    """Writes one line of JSON per epoch into the run's folder and passes the same values on.

    A killed run is resumed some epochs before its last line. The first epoch after that drops the lines from there on.
    """

    def __init__(self, path: Path, tell: Callable[[str, dict[str, Any]], None]) -> None:
        self.path, self.tell, self.is_begun, self.is_broken = path, tell, False, False
        path.parent.mkdir(parents=True, exist_ok=True)

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        try:
            self._write(row)
        except OSError as error:
            # The log is a copy for a reader. The history is recorded anyway, and the training continues.
            if not self.is_broken:
                warnings.warn(f"{self.path}: the log cannot be written: {error.strerror}", stacklevel=2)
            self.is_broken = True
        self.tell("epoch", {**row, "epochs": epochs})

    def _write(self, row: dict[str, Any]) -> None:
        if not self.is_begun and self.path.exists():
            kept = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[: row["epoch"]]
            self.path.write_text("".join(kept), encoding="utf-8")
        self.is_begun = True
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
