"""How long runs will take, by the records of the same cell."""

from collections.abc import Sequence
from statistics import median

from sirgcn.engine import records
from sirgcn.engine.checkpoint import CheckpointError
from sirgcn.engine.checkpoint import read as read_checkpoint
from sirgcn.engine.plan import Run, Settings


def expected_seconds(runs: Sequence[Run], settings: Settings) -> list[float | None]:
    """How long each run will still take; None where that is unknown.

    This is the median time of the finished runs of the same cell in the same form, less the time that a paused run has
    already spent.
    """
    times: dict[str, dict[tuple[str, str, bool], float]] = {}
    found: list[float | None] = []
    for run in runs:
        name = run.experiment.name
        if name not in times:
            times[name] = _medians(settings, name)
        seconds = times[name].get((run.column, run.model, run.reduced))
        found.append(None if seconds is None else max(0.0, seconds - _seconds_spent(run, settings)))
    return found


def _medians(settings: Settings, name: str) -> dict[tuple[str, str, bool], float]:
    """The median seconds of finished runs by column, model and whether they are reduced."""
    cells: dict[tuple[str, str, bool], list[float]] = {}
    for record in records.read(settings.file_of(name)):
        if record["status"] == records.DONE and record.get("seconds") is not None:
            cells.setdefault((record["column"], record["model"], record["reduced"]), []).append(record["seconds"])
    return {cell: median(seconds) for cell, seconds in cells.items()}


def _seconds_spent(run: Run, settings: Settings) -> float:
    """How long a run was trained up to its newest checkpoint."""
    newest = max(settings.checkpoints_of(run).glob("*.json"), default=None)
    if newest is None:
        return 0.0
    try:
        identity, state = read_checkpoint(newest)
    except CheckpointError:
        return 0.0
    return float(state["state"]["seconds"]) if identity[0] == run.config else 0.0
