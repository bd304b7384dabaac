"""What `reproduce` and `results` print: the runs that are left, their times, the reasons, and the results."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sirgcn.cli.choose import ranges
from sirgcn.cli.shared import count, err, out

if TYPE_CHECKING:
    from sirgcn.engine.plan import Run, Settings


def announce(runs: "Sequence[Run]", left: "Sequence[Run]", settings: "Settings", jobs: int, with_cells: bool) -> None:
    """Print how many runs there are, how many are finished, and how long the others take."""
    from sirgcn.engine.estimate import expected_seconds

    times = expected_seconds(left, settings)
    text = f"{count(len(runs), 'run')}, {len(runs) - len(left)} finished before; {len(left)} to go"
    out.print(f"{text}: {estimate(times, jobs)}" if left else text, soft_wrap=True)
    if with_cells:
        _cells(runs, dict(zip(left, times, strict=True)), jobs)


def _cells(runs: "Sequence[Run]", to_go: "Mapping[Run, float | None]", jobs: int) -> None:
    """Print a line for each cell: its seeds, those that are finished, and how long the others take."""
    cells: dict[str, list[Run]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    for cell, own in cells.items():
        parts = [f"seeds {ranges(run.seed for run in own)}"]
        if finished := [run.seed for run in own if run not in to_go]:
            parts.append(f"finished {ranges(finished)}")
        if left := [to_go[run] for run in own if run in to_go]:
            parts.append(estimate(left, jobs))
        out.print(f"  {cell}: {'; '.join(parts)}", markup=False, highlight=False, soft_wrap=True)


def estimate(times: Sequence[float | None], jobs: int) -> str:
    """How long runs take, so many at a time. A run of unknown length is never counted as nothing.

    >>> estimate([600.0, 600.0, None], 2)
    'at least 10 min, and 1 run of unknown length'
    """
    known = [seconds for seconds in times if seconds is not None]
    if not known:
        return "how long is unknown"
    duration, unknown = _duration(sum(known) / jobs), len(times) - len(known)
    return f"at least {duration}, and {count(unknown, 'run')} of unknown length" if unknown else f"about {duration}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def changes(changed: "Mapping[Run, str]") -> None:
    """Print each reason for which finished runs no longer count, with their number."""
    for reason, number in Counter(filter(None, changed.values())).items():
        _warn(f"{count(number, 'run')} of these finished before and will be made again: {reason}")


def reasons(found: "Mapping[Run, str]", what: str) -> None:
    """Print each reason once, with the experiments and the number of runs that it applies to."""
    for reason in dict.fromkeys(found.values()):
        runs = [run for run, own in found.items() if own == reason]
        names = ", ".join(dict.fromkeys(run.experiment.name for run in runs))
        text = f"{names}: {count(len(runs), 'run')} {what}: {reason}"
        err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def rehearsal(left: "Sequence[Run]", settings: "Settings", as_json: bool) -> None:
    """Print what a dry run finds out. The exit code is 2 if a run would fail before it trains."""
    from sirgcn.engine.inputs import to_download
    from sirgcn.engine.records import KEY
    from sirgcn.engine.rehearsal import rehearse

    if as_json:
        print(json.dumps([dict(zip(KEY, run.key, strict=True)) for run in left]))
    for name, folder in to_download(left, settings).items():
        text = f"{name}: its files are not in {folder}; a run downloads them first"
        err.print(text, markup=False, highlight=False, soft_wrap=True)
    failing = rehearse(left)
    reasons(failing, "would fail before training")
    if failing:
        raise typer.Exit(2)


def results(names: set[str], folder: Path, outdated: Mapping[tuple[Any, ...], str], as_json: bool) -> None:
    """Print the results of experiments as tables or as JSON. Outdated runs are never shown as current ones."""
    if as_json:
        print(json.dumps(_as_json(names, folder, outdated)))
        return
    from sirgcn.report.terminal import print_tables

    print_tables(folder, out, names, outdated)
    for reason, number in Counter(outdated.values()).items():
        _warn(f"not shown, {count(number, 'run')} finished before: {reason}")


def _as_json(names: set[str], folder: Path, outdated: Mapping[tuple[Any, ...], str]) -> list[dict[str, Any]]:
    """The records without their curves. A record that no longer counts says why, as `outdated`."""
    from sirgcn.engine.records import LONG
    from sirgcn.report.runs import of_other_data, read_runs

    paths = [folder / f"{name}.jsonl" for name in sorted(names)]
    runs = [run for path in paths if path.exists() for run in read_runs(path)]
    others, found = of_other_data(runs), []
    for run in runs:
        record = {name: value for name, value in run.record.items() if name not in LONG}
        reason = outdated.get(run.key)
        if reason is None and id(run) in others:
            reason = "of another version of the data than the newest run"
        found.append(record if reason is None else record | {"outdated": reason})
    return found


def outcomes(outcome: "Mapping[Run, str]", settings: "Settings") -> None:
    """Print the runs that failed, and those that are left."""
    for run in (run for run, status in outcome.items() if status == "failed"):
        place = settings.file(run.experiment)
        err.print(f"failed: {run} (its traceback is in {place})", markup=False, highlight=False, soft_wrap=True)
    paused = [run for run, status in outcome.items() if status == "paused"]
    if not paused:
        return
    one = "is left; the same command continues with it:"
    several = "are left; the same command continues with them:"
    err.print(f"{count(len(paused), 'run')} {one if len(paused) == 1 else several}", soft_wrap=True)
    for run in paused:
        err.print(f"  {run}", markup=False, highlight=False, soft_wrap=True)


def _warn(text: str) -> None:
    err.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
