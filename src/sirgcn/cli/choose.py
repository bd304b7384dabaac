"""What a user asked for: experiments, runs and settings from the arguments of `reproduce`."""

import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sirgcn.cli.shared import count, err

if TYPE_CHECKING:
    from sirgcn.engine.experiment import Experiment
    from sirgcn.engine.plan import Run, Settings


@dataclass(frozen=True)
class Choice:
    """The rows, columns and seeds that a user asked for, and the form. None means all."""

    models: list[str] | None = None
    columns: list[str] | None = None
    seeds: str | None = None
    reduced: bool = False


@dataclass(frozen=True)
class Machine:
    """How much of the machine runs may use, and for how long."""

    threads: int | None = None
    device: str = "cpu"
    jobs: int = 1
    budget: str | None = None


def completions(incomplete: str) -> list[str]:
    """The tables and experiments that the shell can complete an argument to.

    >>> completions("zi")
    ['zinc', 'zinc_plus', 'zinc_step']
    """
    from sirgcn.engine.experiment import names

    known = [*_tables(), *names()]
    return [name for name in known if name.startswith(incomplete)]


def _tables() -> "dict[str, int | str]":
    """The tables of papers by what a user calls them, each with what experiments call it."""
    from sirgcn.report.claims import load_claims

    return {table.argument: table.key for table in load_claims()}


def experiments_of(what: str, overrides: Sequence[str]) -> "tuple[Experiment, ...]":
    """The experiments of a table, of a name or of a file, changed by overrides."""
    from sirgcn.engine.experiment import load, of_table
    from sirgcn.strict import check_name

    if what in _tables():
        return of_table(_tables()[what], overrides)
    number = re.fullmatch(r"(?:table[\s_-]*)?(\d+)", what.strip(), re.IGNORECASE)
    if number:
        return of_table(int(number[1]), overrides)
    if Path(what).suffix != ".toml":
        check_name("experiment", what, completions(""), "a .toml file or ")
    return (load(what, overrides),)


def with_bases(experiments: "Sequence[Experiment]", results: Path) -> "tuple[Experiment, ...]":
    """The experiments with the settings of the winners that their rows start from, by the records of a folder."""
    from sirgcn.engine.search.bases import based

    return tuple(based(experiment, results) for experiment in experiments)


def runs_of(experiments: "Sequence[Experiment]", choice: Choice) -> "list[Run]":
    """The runs of the chosen rows, columns and seeds. Each experiment has those that it knows."""
    from sirgcn.engine.plan import plan, seed_by_seed

    rows = _titles("models", choice.models, experiments)
    places = _titles("columns", choice.columns, experiments)
    seeds = seeds_of(choice.seeds)
    runs = [
        run
        for experiment, row, place in zip(experiments, rows, places, strict=True)
        for run in plan(experiment, row, place, seeds, choice.reduced)
    ]
    if not runs:
        having = (experiment for experiment, place in zip(experiments, places, strict=True) if place != [])
        known = dict.fromkeys(row.title for experiment in having for row in experiment.models)
        asked = f"{', '.join(choice.models or [])} for {', '.join(choice.columns or [])}"
        raise ValueError(f"--models: expected one of {', '.join(known)}, got {asked}")
    for experiment in experiments:
        _warn_of_seeds(experiment, {run.seed for run in runs if run.experiment is experiment})
    return seed_by_seed(runs)


def _titles(field: str, asked: list[str] | None, experiments: "Sequence[Experiment]") -> list[list[str] | None]:
    """The titles of each experiment among those asked for; None for all. A title that none of them has is refused."""
    from sirgcn.strict import check_name

    if asked is None:
        return [None] * len(experiments)
    titles = [[entry.title for entry in getattr(experiment, field)] for experiment in experiments]
    known = dict.fromkeys(title for own in titles for title in own)
    for title in asked:
        check_name(f"--{field}", title, known)
    wanted = {title.lower() for title in asked}
    return [[title for title in own if title.lower() in wanted] for own in titles]


def _warn_of_seeds(experiment: "Experiment", asked: set[int]) -> None:
    beyond = [seed for seed in asked if seed >= experiment.seeds]
    if beyond:
        text = (
            f"warning: --seeds: {experiment.name} has the seeds {ranges(range(experiment.seeds))}; beyond them are "
            f"{ranges(beyond)} ({count(len(beyond), 'seed')}), which are part of its means too"
        )
        err.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)


def check_unsearched(experiments: "Sequence[Experiment]", what: str) -> None:
    """Refuse experiments whose settings are searched, for `reproduce`."""
    from sirgcn.engine.experiment import TrainingExperiment

    for experiment in experiments:
        if isinstance(experiment, TrainingExperiment) and experiment.search is not None:
            raise ValueError(f"{experiment.name}: its settings are searched first; type: sirgcn search {what}")


def check_timed(experiments: "Sequence[Experiment]", device: str, jobs: int, threads: int | None) -> None:
    """Refuse another device, several jobs and another number of threads for experiments that measure time."""
    from sirgcn.engine.experiment import GrowthExperiment, TimingExperiment

    timed = [experiment for experiment in experiments if isinstance(experiment, TimingExperiment | GrowthExperiment)]
    for experiment in timed[:1]:
        name, wanted = experiment.name, experiment.timing.threads
        if device != "cpu":
            raise ValueError(f"--device: {name} is timed on the cpu, got {device!r}")
        if jobs > 1:
            raise ValueError(f"--jobs: expected 1 for {name}, whose runs are timed, got {jobs}")
        if threads not in (None, wanted):
            raise ValueError(
                f"--threads: {name} is timed on {wanted}; --set timing.threads={threads} and timing.clock=wall "
                "change that"
            )


def check_engine(experiments: "Sequence[Experiment]", engine: str) -> None:
    """Refuse an unknown engine, and Ray for experiments that measure the time of this machine."""
    from sirgcn.engine.workers import ENGINES
    from sirgcn.strict import check_name

    check_name("--engine", engine, ENGINES, exact=True)
    timed = [experiment.name for experiment in experiments if experiment.is_timed]
    if timed and engine != "processes":
        raise ValueError(f"--engine: expected processes for {timed[0]}, whose runs are timed on this machine")


def settings_of(results: Path, work: Path, data: Path | None, machine: Machine) -> "Settings":
    """The settings under which runs are made."""
    from sirgcn.engine.environment import find_device
    from sirgcn.engine.plan import Settings

    for option, folder in (("--results", results), ("--work", work)):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{option}: expected a folder, got the file {folder}")
    deadline = None if machine.budget is None else time.time() + seconds_of(machine.budget)
    threads = threads_of(machine.threads, machine.jobs)
    return Settings(results, work, data, threads, find_device(machine.device), deadline=deadline)


def threads_of(asked: int | None, jobs: int) -> int:
    """The threads of each of some jobs: those that are asked for, or the cores of this process divided by the jobs."""
    return asked or max(1, _cores() // jobs)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seeds_of(text: str | None) -> list[int] | None:
    """The seeds that a text lists; None for None.

    >>> seeds_of("0-2,5")
    [0, 1, 2, 5]
    """
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


def ranges(seeds: Iterable[int]) -> str:
    """Seeds as `seeds_of` reads them.

    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    ends: list[list[int]] = []
    for seed in sorted(seeds):
        if ends and seed == ends[-1][1] + 1:
            ends[-1][1] = seed
        else:
            ends.append([seed, seed])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


def seconds_of(text: str) -> float:
    """The seconds of a time that a user typed.

    >>> seconds_of("1h30m")
    5400.0
    """
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?\s*(?:(\d+(?:\.\d+)?)m)?\s*(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not parts or not any(parts.groups()):
        raise ValueError(f"--budget: expected a time such as 2h, 90m, 1h30m or 45s, got {text!r}")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return 3600 * hours + 60 * minutes + seconds
