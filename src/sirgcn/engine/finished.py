"""Which runs are finished, and why a run that was finished no longer counts."""

from collections.abc import Sequence
from typing import Any

from sirgcn.engine import records
from sirgcn.engine.inputs import CurrentData
from sirgcn.engine.plan import Run, Settings


def unfinished(runs: Sequence[Run], settings: Settings) -> list[Run]:
    """The runs without a record of a finished run under the same settings and on the data as they are now."""
    return list(why_unfinished(runs, settings))


def why_unfinished(runs: Sequence[Run], settings: Settings) -> dict[Run, str]:
    """The runs that are not finished, each with what has changed since its record was written.

    The reason is empty for a run that was never finished. To compare them, the data of runs that seem to be finished
    are read. Nothing is downloaded.
    """
    known, current = _Records(settings), CurrentData(settings)
    left: dict[Run, str] = {}
    for run in runs:
        record = known.of(run)
        reason = "" if record is None or record["status"] != records.DONE else _what_changed(record, run, current)
        if reason is not None:
            left[run] = reason
    return left


class _Records:
    """The records of runs. Each file is read once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._known: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}

    def of(self, run: Run) -> dict[str, Any] | None:
        name = run.experiment.name
        if name not in self._known:
            found = records.read(self.settings.file_of(name))
            self._known[name] = {records.key_of(record): record for record in found}
        return self._known[name].get(run.key)


def _what_changed(record: dict[str, Any], run: Run, current: CurrentData) -> str | None:
    """What has changed since a run was finished; None if nothing has."""
    if record["config"] != run.config:
        return "the settings have changed"
    # The settings of a growth experiment describe its graphs in full.
    if run.experiment.draws_graphs or not record.get("data"):
        return None
    data = current.of(run)
    if isinstance(data, str):
        return f"the data cannot be compared: {data}"
    return None if records.is_on(record, data) else "the data have changed"
