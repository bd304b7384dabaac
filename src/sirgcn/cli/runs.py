"""`reproduce` and `train`: which runs are meant, how long they will take, what became of them."""

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sirgcn.cli.shared import AsJson, Models, Reduced, Results, Root, err, out

if TYPE_CHECKING:
    from sirgcn.engine.experiment import Experiment
    from sirgcn.engine.plan import Run, Settings

Columns = Annotated[list[str] | None, typer.Option("--columns", "-c", help="Columns, by title. Default: all.")]
Seeds = Annotated[str | None, typer.Option("--seeds", "-s", help="Such as 0-9 or 0,3,5. Default: the paper's.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time, each in a process of its own.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each run. Default: the cores shared out among the jobs.")
]
Device = Annotated[str, typer.Option(help="What models are trained on, such as cpu, cuda or cuda:1.")]
Budget = Annotated[
    str | None, typer.Option("--budget", "-b", help="Stop and save after this time, such as 2h, 90m or 30s.")
]
Work = Annotated[Path, typer.Option(help="The folder of checkpoints and logs of unfinished runs.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: train.lr=1e-3. Its results stay apart from the table's. A relative path starts at the "
        "working directory.",
    ),
]
Board = Annotated[
    Path | None, typer.Option(help="Also write the curves for TensorBoard below this folder (extra: sirgcn\\[log]).")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be run, cell by cell, and check files and settings.")
]


def _experiments(incomplete: str) -> list[str]:
    """What `reproduce` can be completed to."""
    from sirgcn.engine.experiment import names

    known = [*(f"table{number}" for number in range(1, 9)), *names()]
    return [name for name in known if name.startswith(incomplete)]


def reproduce(
    what: Annotated[
        str,
        typer.Argument(help="A table of the paper (table1 or 1) or an experiment (zinc).", autocompletion=_experiments),
    ],
    models: Models = None,
    columns: Columns = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    device: Device = "cpu",
    budget: Budget = None,
    reduced: Reduced = False,
    results: Results = Path("results"),
    work: Work = Path("runs"),
    data: Root = None,
    set_: Set = None,
    tensorboard: Board = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the paper and show ours beside the published figures.

    Finished runs are skipped and broken ones taken up again: run the same command to go on.
    Runs whose data cannot be had are left out and leave no record; the others are made.
    The exit code is 0 if all is finished, 1 if a run failed or its record cannot be written, 2 for a wrong argument or
    if data cannot be had, 3 if runs are left, also to another process that is making them.

    Examples:

        sirgcn reproduce table1 --models SIR-GCN --columns n=10 --seeds 0-2

        sirgcn reproduce minesweeper --jobs 2 --budget 2h
    """
    from sirgcn.engine import experiment as config
    from sirgcn.strict import check_name

    number = re.fullmatch(r"(?:table[\s_-]*)?(\d+)", what.strip(), re.IGNORECASE)
    if not number and Path(what).suffix != ".toml":
        check_name("experiment", what, _experiments(""), "a .toml file or ")
    found = config.of_table(int(number[1]), set_ or ()) if number else (config.load(what, set_ or ()),)
    _run(
        _chosen(found, models, columns, seeds, reduced),
        _settings(found, results, work, data, threads, device, jobs, budget),
        jobs,
        tensorboard,
        dry_run,
        as_json,
    )


def train(
    file: Annotated[Path, typer.Argument(help="An experiment as TOML.")],
    models: Models = None,
    columns: Columns = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    device: Device = "cpu",
    budget: Budget = None,
    reduced: Reduced = False,
    results: Results = Path("results"),
    work: Work = Path("runs"),
    data: Root = None,
    set_: Set = None,
    tensorboard: Board = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of your own, described by a TOML file.

    Its keys are those of the experiments that come with the package; `data = "tables"` trains on your own tables, with
    the options of `load_tables`. Relative paths in the file start at the folder of the file.

    Example:

        sirgcn train my_graph.toml --seeds 0-4 --jobs 2
    """
    from sirgcn.engine import experiment as config

    found = (config.load(file, set_ or ()),)
    _run(
        _chosen(found, models, columns, seeds, reduced),
        _settings(found, results, work, data, threads, device, jobs, budget),
        jobs,
        tensorboard,
        dry_run,
        as_json,
    )


def _chosen(
    experiments: "Sequence[Experiment]",
    models: list[str] | None,
    columns: list[str] | None,
    seeds: str | None,
    reduced: bool,
) -> "list[Run]":
    """The runs of the rows, columns and seeds; of several experiments, each has those that it knows."""
    from sirgcn.engine.plan import plan, seed_by_seed

    rows, places = _titles("models", models, experiments), _titles("columns", columns, experiments)
    runs = [
        run
        for experiment, row, place in zip(experiments, rows, places, strict=True)
        for run in plan(experiment, row, place, _seeds(seeds), reduced)
    ]
    if not runs:
        having = (experiment for experiment, place in zip(experiments, places, strict=True) if place != [])
        known = dict.fromkeys(row.title for experiment in having for row in experiment.models)
        asked = f"{', '.join(models or [])} for {', '.join(columns or [])}"
        raise ValueError(f"--models: expected one of {', '.join(known)}, got {asked}")
    for experiment in experiments:
        _warn_of_seeds(experiment, {run.seed for run in runs if run.experiment is experiment})
    return seed_by_seed(runs)


def _warn_of_seeds(experiment: "Experiment", asked: set[int]) -> None:
    beyond = [seed for seed in asked if seed >= experiment.seeds]
    if beyond:
        told = (
            f"warning: --seeds: {experiment.name} has the seeds {_ranges(range(experiment.seeds))}; beyond them are "
            f"{_ranges(beyond)} ({_count(len(beyond), 'seed')}), which enter its means all the same"
        )
        err.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _titles(kind: str, asked: list[str] | None, experiments: "Sequence[Experiment]") -> list[list[str] | None]:
    """For each experiment its own among the titles, None for all; a title that none of them has is refused."""
    from sirgcn.strict import check_name

    if asked is None:
        return [None] * len(experiments)
    titles = [[entry.title for entry in getattr(experiment, kind)] for experiment in experiments]
    known = dict.fromkeys(title for own in titles for title in own)
    for title in asked:
        check_name(f"--{kind}", title, known)
    wanted = {title.lower() for title in asked}
    return [[title for title in own if title.lower() in wanted] for own in titles]


def _settings(
    experiments: "Sequence[Experiment]",
    results: Path,
    work: Path,
    data: Path | None,
    threads: int | None,
    device: str,
    jobs: int,
    budget: str | None,
) -> "Settings":
    from sirgcn.engine.environment import find_device
    from sirgcn.engine.experiment import GrowthExperiment, TimingExperiment
    from sirgcn.engine.plan import Settings

    timed = [experiment for experiment in experiments if isinstance(experiment, TimingExperiment | GrowthExperiment)]
    if timed and device != "cpu":
        raise ValueError(f"--device: {timed[0].name} is timed on the cpu, got {device!r}")
    if timed and jobs > 1:
        raise ValueError(f"--jobs: expected 1 for {timed[0].name}, whose runs are timed, got {jobs}")
    if timed and threads not in (None, timed[0].timing.threads):
        wanted = timed[0].timing.threads
        raise ValueError(
            f"--threads: {timed[0].name} is timed on {wanted}; --set timing.threads={threads} and "
            "timing.clock=wall change that"
        )
    for option, folder in (("--results", results), ("--work", work)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{option}: expected a folder, got the file {folder}")
    deadline = None if budget is None else time.time() + _seconds(budget)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Settings(results, work, data, threads or max(1, cores // jobs), find_device(device), deadline=deadline)


def _run(
    runs: "Sequence[Run]", settings: "Settings", jobs: int, tensorboard: Path | None, dry_run: bool, as_json: bool
) -> None:
    from sirgcn.engine.finished import unfinished, why_unfinished
    from sirgcn.engine.inputs import without_data
    from sirgcn.engine.pool import run_all
    from sirgcn.engine.progress import Progress
    from sirgcn.engine.run import Listener
    from sirgcn.engine.tensorboard import TensorBoard

    changed = why_unfinished(runs, settings)
    left = list(changed)
    if not as_json:
        _announce(runs, left, settings, jobs, dry_run)
    _tell_changed(changed)
    if dry_run:
        _rehearse(left, settings, as_json)
        return
    absent = without_data(left, settings)
    _tell_reasons(absent, "left out, the data cannot be had")
    # Data that were downloaded just now may be those of finished runs.
    ready = unfinished([run for run in left if run not in absent], settings)
    kept_out = _KeptOut()
    with ExitStack() as stack:
        watching: list[Listener] = [stack.enter_context(Progress(len(ready), quiet=as_json)), kept_out]
        if tensorboard is not None:
            watching.append(stack.enter_context(TensorBoard(tensorboard)))
        outcome = run_all(ready, settings, jobs, watching)
    outdated = {run.key: reason for run, reason in changed.items() if reason and outcome.get(run) != "done"}
    _summary({run.experiment.name for run in runs}, settings.results, outcome, outdated, as_json)
    kept_out.tell()
    raise typer.Exit(_code(set(outcome.values()), bool(absent)))


def _code(outcomes: set[str], is_data_absent: bool) -> int:
    """The exit code; the worst of what happened counts."""
    if outcomes & {"failed", "unrecorded"}:
        return 1
    if is_data_absent:
        return 2
    return 3 if outcomes & {"paused", "busy"} else 0


class _KeptOut:
    """Says of runs without a record why they have none, and what came out of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, run: "Run", event: str, detail: dict[str, Any]) -> None:
        """As `run_all` reports."""
        from sirgcn.engine.progress import result_of

        if event in ("busy", "unrecorded"):
            self.lines.append(f"{event}: {run}{result_of(detail)}")

    def tell(self) -> None:
        """Behind all else, and also where there is no progress to be seen."""
        for line in self.lines:
            err.print(line, style="red", markup=False, highlight=False, soft_wrap=True)


def _announce(runs: "Sequence[Run]", left: "Sequence[Run]", settings: "Settings", jobs: int, with_cells: bool) -> None:
    """How many runs there are, how many are finished, how long the others take."""
    from sirgcn.engine.estimate import expected_seconds

    times = expected_seconds(left, settings)
    told = f"{_count(len(runs), 'run')}, {len(runs) - len(left)} finished before; {len(left)} to go"
    out.print(f"{told}: {_estimate(times, jobs)}" if left else told, soft_wrap=True)
    if with_cells:
        _print_cells(runs, dict(zip(left, times, strict=True)), jobs)


def _rehearse(left: "Sequence[Run]", settings: "Settings", as_json: bool) -> None:
    """What a dry run finds out: the exit code is 2 if a run would fail before it trains."""
    from sirgcn.engine.inputs import to_download
    from sirgcn.engine.records import KEY
    from sirgcn.engine.rehearsal import rehearse

    if as_json:
        print(json.dumps([dict(zip(KEY, run.key, strict=True)) for run in left]))
    for name, folder in to_download(left, settings).items():
        told = f"{name}: its files are not in {folder}; a run downloads them first"
        err.print(told, markup=False, highlight=False, soft_wrap=True)
    failing = rehearse(left)
    _tell_reasons(failing, "would fail before training")
    if failing:
        raise typer.Exit(2)


def _print_cells(runs: "Sequence[Run]", to_go: "dict[Run, float | None]", jobs: int) -> None:
    """A line for each cell: its seeds, those that are finished, how long the others take."""
    cells: dict[str, list[Run]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    for cell, own in cells.items():
        told = [f"seeds {_ranges(run.seed for run in own)}"]
        if finished := [run.seed for run in own if run not in to_go]:
            told.append(f"finished {_ranges(finished)}")
        if left := [to_go[run] for run in own if run in to_go]:
            told.append(_estimate(left, jobs))
        out.print(f"  {cell}: {'; '.join(told)}", markup=False, highlight=False, soft_wrap=True)


def _tell_changed(changed: "dict[Run, str]") -> None:
    """Each reason for which finished runs count as such no more, with their number."""
    for reason in dict.fromkeys(filter(None, changed.values())):
        number = list(changed.values()).count(reason)
        told = f"of these, {_count(number, 'run')} finished before, and to be made anew: {reason}"
        err.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)


def _tell_reasons(found: "dict[Run, str]", what: str) -> None:
    """Each reason once, with the experiments and the number of runs that it holds for."""
    for reason in dict.fromkeys(found.values()):
        runs = [run for run, own in found.items() if own == reason]
        names = ", ".join(dict.fromkeys(run.experiment.name for run in runs))
        told = f"{names}: {_count(len(runs), 'run')} {what}: {reason}"
        err.print(told, style="red", markup=False, highlight=False, soft_wrap=True)


def _summary(
    names: set[str], results: Path, outcome: "dict[Run, str]", outdated: dict[tuple[Any, ...], str], as_json: bool
) -> None:
    """What was found, and what is left; scores of runs that are outdated are never shown as those of today."""
    if as_json:
        print(json.dumps(_found(names, results, outdated)))
    else:
        from sirgcn.report.terminal import print_tables

        print_tables(results, out, names, outdated)
        for reason in dict.fromkeys(outdated.values()):
            number = list(outdated.values()).count(reason)
            told = f"not shown, {_count(number, 'run')} finished before: {reason}"
            err.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
    paused = [run for run, status in outcome.items() if status == "paused"]
    failed = [run for run, status in outcome.items() if status == "failed"]
    for run in failed:
        place = results / f"{run.experiment.name}.jsonl"
        err.print(f"failed: {run} (its traceback is in {place})", markup=False, highlight=False, soft_wrap=True)
    if paused:
        is_one = len(paused) == 1
        err.print(
            f"{_count(len(paused), 'run')} {'is' if is_one else 'are'} left; the same command goes on with "
            f"{'it' if is_one else 'them'}:",
            soft_wrap=True,
        )
        for run in paused:
            err.print(f"  {run}", markup=False, highlight=False, soft_wrap=True)


def _found(names: set[str], results: Path, outdated: dict[tuple[Any, ...], str]) -> list[dict[str, Any]]:
    """The records without their curves. One that does not count today says why, as `outdated`."""
    from sirgcn.engine.records import LONG
    from sirgcn.report.runs import of_other_data, read_runs

    paths = [results / f"{name}.jsonl" for name in sorted(names)]
    runs = [run for path in paths if path.exists() for run in read_runs(path)]
    others, found = of_other_data(runs), []
    for run in runs:
        record = {name: value for name, value in run.record.items() if name not in LONG}
        reason = outdated.get(run.key)
        if reason is None and id(run) in others:
            reason = "of another version of the data than the newest run"
        found.append(record if reason is None else record | {"outdated": reason})
    return found


def _estimate(times: Sequence[float | None], jobs: int) -> str:
    """How long runs take, so many at a time. A run of unknown length is never counted as nothing."""
    known = [seconds for seconds in times if seconds is not None]
    if not known:
        return "how long is unknown"
    duration, unknown = _duration(sum(known) / jobs), len(times) - len(known)
    return f"at least {duration}, and {_count(unknown, 'run')} of unknown length" if unknown else f"about {duration}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise ValueError(f"--seeds: expected such as 0-9 or 0,3,5, got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"--seeds: expected the smaller one first, got {part.strip()!r}")
        found += range(first, last + 1)
    return found


def _ranges(seeds: Iterable[int]) -> str:
    """As `_seeds` reads them: 0-3,5."""
    ends: list[list[int]] = []
    for seed in sorted(seeds):
        if ends and seed == ends[-1][1] + 1:
            ends[-1][1] = seed
        else:
            ends.append([seed, seed])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def _seconds(text: str) -> float:
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?\s*(?:(\d+(?:\.\d+)?)m)?\s*(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not parts or not any(parts.groups()):
        raise ValueError(f"--budget: expected a time such as 2h, 90m, 1h30m or 45s, got {text!r}")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return 3600 * hours + 60 * minutes + seconds


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
