"""`sirgcn reproduce`: run a table of the paper, an experiment of the package, or an experiment file of one's own."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sirgcn.cli import choose, tell
from sirgcn.cli.shared import AsJson, Models, Reduced, Results, Root, err

if TYPE_CHECKING:
    from sirgcn.engine.plan import Run, Settings

Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "-c", help="Columns by title. Repeat the option for several. Default: all."),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", "-s", help="Seeds, such as 0-9 or 0,3,5. Default: those of the experiment.")
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many runs at a time, each in its own process.")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="processes, or ray: the cluster of RAY_ADDRESS, or a Ray of this machine (extra: sirgcn\\[cluster]).",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of each run. Default: the cores divided by the jobs.")
]
Device = Annotated[str, typer.Option(help="The device that models are trained on, such as cpu, cuda or cuda:1.")]
Budget = Annotated[
    str | None, typer.Option("--budget", "-b", help="Save and stop after this time, such as 2h, 90m or 30s.")
]
Work = Annotated[Path, typer.Option(help="The folder for checkpoints and logs of unfinished runs.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting, such as train.lr=1e-3. The results are kept apart from those of the unchanged "
        "experiment. A relative path starts at the working directory.",
    ),
]
Board = Annotated[
    Path | None, typer.Option(help="Also write the curves for TensorBoard below this folder (extra: sirgcn\\[log]).")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Run nothing. List the cells, and check the files and settings.")
]


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="A table of the paper (table1 or 1), an experiment (zinc), or a TOML file of your own (mine.toml).",
            autocompletion=choose.completions,
        ),
    ],
    models: Models = None,
    columns: Columns = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    engine: EngineName = "processes",
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
    """Run an experiment, and show the results beside the published figures.

    Finished runs are skipped and interrupted runs are resumed: type the same command again to continue.
    Runs whose data are not available are skipped and leave no record. The other runs are made.

    A file of your own has the keys of the experiments in the package. With `data = "tables"` it trains on your own
    tables, with the options of `load_tables`. Relative paths in the file start at the folder of the file.

    Exit codes: 0 if everything is finished. 1 if a run failed or its record could not be written. 2 for a wrong
    argument or if data are not available. 3 if runs are left, also if another process is making them.

    Examples:

        sirgcn reproduce table1 --models SIR-GCN --columns n=10 --seeds 0-2

        sirgcn reproduce minesweeper --jobs 2 --budget 2h

        sirgcn reproduce zinc --jobs 10 --threads 4 --engine ray

        sirgcn reproduce my_graph.toml --seeds 0-4
    """
    experiments = choose.with_bases(choose.experiments_of(what, set_ or ()), results)
    choose.check_unsearched(experiments, what)
    runs = choose.runs_of(experiments, choose.Choice(models, columns, seeds, reduced))
    choose.check_timed(experiments, device, jobs, threads)
    choose.check_engine(experiments, engine)
    settings = choose.settings_of(results, work, data, choose.Machine(threads, device, jobs, budget))
    changed = _announce(runs, settings, jobs, dry_run, as_json)
    if dry_run:
        tell.rehearsal(list(changed), settings, as_json)
    else:
        _make(runs, changed, settings, _Making(jobs, engine, tensorboard, as_json))


def _announce(runs: "Sequence[Run]", settings: "Settings", jobs: int, dry_run: bool, as_json: bool) -> "dict[Run, str]":
    """Say which runs are left and how long they take. Returns them, each with what has changed since it finished."""
    from sirgcn.engine.finished import why_unfinished

    changed = why_unfinished(runs, settings)
    if not as_json:
        tell.announce(runs, list(changed), settings, jobs, dry_run)
    tell.changes(changed)
    return changed


@dataclass(frozen=True)
class _Making:
    """How many runs are made at a time and where, and how they are shown."""

    jobs: int
    engine: str
    tensorboard: Path | None
    as_json: bool


def _make(runs: "Sequence[Run]", changed: "dict[Run, str]", settings: "Settings", making: _Making) -> None:
    """Make the runs that are left, show the results, and end with the exit code."""
    from sirgcn.engine.finished import unfinished
    from sirgcn.engine.inputs import without_data
    from sirgcn.engine.pool import run_all
    from sirgcn.engine.progress import Progress
    from sirgcn.engine.run import Listener
    from sirgcn.engine.tensorboard import TensorBoard
    from sirgcn.engine.workers import engine_named

    absent = without_data(list(changed), settings)
    tell.reasons(absent, "skipped, the data are not available")
    # Data that were downloaded just now may be those of finished runs.
    ready = unfinished([run for run in changed if run not in absent], settings)
    kept_out = KeptOut()
    with ExitStack() as stack:
        listeners: list[Listener] = [stack.enter_context(Progress(len(ready), quiet=making.as_json)), kept_out]
        if making.tensorboard is not None:
            listeners.append(stack.enter_context(TensorBoard(making.tensorboard)))
        where = engine_named(making.engine, making.jobs, settings.threads or 1, settings.device) if ready else None
        outcome = run_all(ready, settings, making.jobs, listeners, where and stack.enter_context(where))
    outdated = {run.key: reason for run, reason in changed.items() if reason and outcome.get(run) != "done"}
    tell.results({run.experiment.name for run in runs}, settings.results, outdated, making.as_json)
    tell.outcomes(outcome, settings)
    kept_out.tell()
    raise typer.Exit(code_of(set(outcome.values()), bool(absent)))


def code_of(outcomes: set[str], is_data_absent: bool) -> int:
    """The exit code. The worst outcome counts."""
    if outcomes & {"failed", "unrecorded"}:
        return 1
    if is_data_absent:
        return 2
    return 3 if outcomes & {"paused", "busy"} else 0


class KeptOut:
    """Collects the runs that leave no record, with the reason and the result, and prints them at the end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, run: "Run", event: str, detail: dict[str, Any]) -> None:
        """As `run_all` calls its listeners."""
        from sirgcn.engine.progress import result_of

        if event in ("busy", "unrecorded"):
            self.lines.append(f"{event}: {run}{result_of(detail)}")

    def tell(self) -> None:
        """Print them after everything else, also where no progress is shown."""
        for line in self.lines:
            err.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
