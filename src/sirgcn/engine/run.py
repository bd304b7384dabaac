"""Making runs in this process: locks, execution, failures, and the record that is appended."""

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from sirgcn.engine import records
from sirgcn.engine.checkpoint import Checkpoints
from sirgcn.engine.locks import Busy, held
from sirgcn.engine.loop import Interrupted
from sirgcn.engine.plan import Run, Settings
from sirgcn.engine.records import DONE, FAILED

PAUSED, BUSY, UNRECORDED = "paused", "busy", "unrecorded"
"""Outcomes of runs without a record, besides the `DONE` and `FAILED` of records."""


class Listener(Protocol):
    """Is called with every event of every run: a progress bar, say."""

    def __call__(self, run: Run, event: str, detail: dict[str, Any]) -> None:
        """The event is `start`, `epoch` or the outcome of the run."""


@dataclass
class Execution:
    """What an experiment needs while its runs are made.

    Args:
        settings: where and how.
        tell: is called with the events of the runs.
        should_stop: whether the runs are to save their state and stop.
        data: what records say about the data. It is filled as soon as the data have been read, so that the record of a
            run that fails later has it too.
    """

    settings: Settings
    tell: Listener
    should_stop: Callable[[], bool]
    data: dict[str, Any] = field(default_factory=dict)


def execute(
    run: Run,
    settings: Settings,
    tell: Callable[[str, dict[str, Any]], None] = lambda event, detail: None,
    asked: Callable[[], bool] = lambda: False,
) -> str:
    """Make one run in this process and append its record.

    Returns:
        The outcome:

        - `DONE` or `FAILED`: there is a record.
        - `PAUSED`: the run was asked to stop and its state is saved.
        - `BUSY`: another process is making the run.
        - `UNRECORDED`: the record could not be written. `tell` receives the reason and the result.

    >>> from tempfile import TemporaryDirectory
    >>> from sirgcn.engine.experiment import ColumnConfig, ModelConfig, TrainConfig, TrainingExperiment
    >>> from sirgcn.engine.plan import plan
    >>> experiment = TrainingExperiment(
    ...     "mine",
    ...     data="hetero_edge_count",
    ...     models=(ModelConfig("SIR-GCN"),),
    ...     columns=(ColumnConfig("c=2", {"c": 2, "num_graphs": 20}),),
    ...     preset="hetero_edge_count",
    ...     train=TrainConfig(epochs=1, selection="last"),
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     execute(plan(experiment, seeds=[0])[0], Settings(folder, folder))
    'done'
    """
    return execute_together([run], settings, lambda run, event, detail: tell(event, detail), asked)


def execute_together(
    runs: Sequence[Run], settings: Settings, tell: Listener, asked: Callable[[], bool] = lambda: False
) -> str:
    """Make runs of the same `Run.process`, as `execute` makes one, and append a record of each."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)

    def should_stop() -> bool:
        return asked() or is_late(settings)

    with ExitStack() as stack:
        try:
            for run in runs:
                stack.enter_context(held(settings.checkpoints_of(run).with_name("lock")))
        except Busy as error:
            return _kept_out(runs, BUSY, f"another process is making it: {error}", tell)
        except OSError as error:
            # A full disk, say. Nothing was trained, and the next attempt may find room.
            why = f"{error.filename}: the run cannot begin: {error.strerror or error}"
            return _kept_out(runs, UNRECORDED, why, tell)
        return _execute(runs, Execution(settings, tell, should_stop))


def is_late(settings: Settings) -> bool:
    """Whether the deadline has passed."""
    return settings.deadline is not None and time.time() >= settings.deadline


def _kept_out(runs: Sequence[Run], outcome: str, why: str, tell: Listener) -> str:
    for run in runs:
        tell(run, outcome, {"error": why})
    return outcome


def _execute(runs: Sequence[Run], execution: Execution) -> str:
    """Make runs whose locks are held."""
    status = DONE
    try:
        found = runs[0].experiment.execute(runs, execution)
    except Interrupted:
        return PAUSED
    # Any error at all is recorded, so that one bad cell does not stop a table.
    except Exception as error:
        status, failure = FAILED, failure_of(str(error), traceback.format_exc()) | {"data": execution.data}
        found = [failure] * len(runs)
    outcomes = []
    for run, fields in zip(runs, found, strict=True):
        outcome, record = keep(run, header(run) | fields, execution.settings)
        outcomes.append(outcome)
        execution.tell(run, outcome, record)
    return UNRECORDED if UNRECORDED in outcomes else status


def keep(run: Run, record: dict[str, Any], settings: Settings) -> tuple[str, dict[str, Any]]:
    """Append the record of a run.

    Returns:
        The outcome, and the record. If the record could not be written, its `error` says so.
    """
    status, file = str(record["status"]), settings.file(run.experiment)
    try:
        records.append(file, record)
    except OSError as error:
        why = f"{file}: the record cannot be written: {error.strerror or error}"
        return UNRECORDED, record | {"error": f"{why}; {record['error']}" if "error" in record else why}
    if status == DONE:
        Checkpoints(settings.checkpoints_of(run)).clear()
    return status, record


def failure_of(error: str, traceback: str) -> dict[str, Any]:
    """What the record of a failed run says."""
    return {"status": FAILED, "error": error, "traceback": traceback}


def header(run: Run) -> dict[str, Any]:
    """What every record of a run says, whatever its sort and its outcome."""
    model, experiment = run.experiment.model(run.model), run.experiment
    changes = experiment.reduced_for(model) if run.reduced else {}
    return {
        "format": records.FORMAT,
        **dict(zip(records.KEY, run.key, strict=True)),
        "table": experiment.table,
        "variant": experiment.variant,
        "conv": next(iter(model.architecture.values())),
        "status": DONE,
        "reduced_why": ", ".join(f"{key} = {value}" for key, value in changes.items()),
        "config": run.config,
        "scale": experiment.scale,
        "traceback": None,
        **experiment.marks(run.model),
        # The name of an experiment with long overrides has only their hash.
        **({"overrides": list(experiment.overrides)} if experiment.overrides else {}),
    }
