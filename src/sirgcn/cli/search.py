"""`sirgcn search`: search the settings of every model of an experiment, then run the winners."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sirgcn.cli import choose, tell
from sirgcn.cli.reproduce import Budget, Columns, Device, EngineName, Jobs, KeptOut, Set, Threads, Work, code_of
from sirgcn.cli.shared import AsJson, Models, Results, Root, count, out, show

if TYPE_CHECKING:
    from sirgcn.engine.experiment import TrainingExperiment
    from sirgcn.engine.plan import Run
    from sirgcn.engine.search.rounds import Search

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Run nothing. Say which trials and runs are made and which are left.")
]


def search(
    what: Annotated[
        str,
        typer.Argument(
            help="An experiment with a section \\[search], by name or as a TOML file of your own (mine.toml).",
            autocompletion=choose.completions,
        ),
    ],
    models: Models = None,
    columns: Columns = None,
    jobs: Jobs = 1,
    engine: EngineName = "processes",
    threads: Threads = None,
    device: Device = "cpu",
    budget: Budget = None,
    results: Results = Path("results"),
    work: Work = Path("runs"),
    data: Root = None,
    set_: Set = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Search the settings of every model with the same budget, and run the winners (extra: sirgcn\\[tune]).

    Every model gets the same number of trials and the same training in each. The best validation metric wins.
    The settings that win are then run on all seeds or splits. The test part is read in these runs only.

    Trials are recorded in the folder search of the results. Type the same command again to continue.

    Exit codes: 0 if everything is finished. 1 if a run failed, or its record could not be written. 2 for a wrong
    argument or if data are not available. 3 if runs are left, also if another process is making them.

    Examples:

        sirgcn search tuned_minesweeper --budget 2h

        sirgcn search my_graph.toml --models SIR-GCN --jobs 2
    """
    from sirgcn.engine.search.rounds import Search
    from sirgcn.engine.search.suggesting import check_optuna

    experiment = _experiment_of(what, set_)
    check_optuna()
    choose.check_engine([experiment], engine)
    settings = choose.settings_of(results, work, data, choose.Machine(threads, device, jobs, budget))
    made = Search(experiment, settings, *_titles(experiment, models, columns))
    code = 0
    if not dry_run:
        code = _make(made, jobs, engine, as_json)
    _tell(made, jobs, as_json, is_dry=dry_run)
    raise typer.Exit(code)


def _experiment_of(what: str, overrides: list[str] | None) -> "TrainingExperiment":
    """The one experiment that a user names, which must have a search."""
    from sirgcn.engine.experiment import TrainingExperiment
    from sirgcn.engine.search.trials import search_of

    experiments = choose.experiments_of(what, overrides or ())
    experiment = experiments[0]
    if len(experiments) > 1 or not isinstance(experiment, TrainingExperiment):
        names = ", ".join(one.name for one in experiments)
        raise ValueError(f"experiment: expected a training with a section [search], got {names}")
    search_of(experiment)
    return experiment


def _titles(
    experiment: "TrainingExperiment", models: list[str] | None, columns: list[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """The rows and columns that a user asked for; one that the experiment lacks is refused by its option."""
    from sirgcn.strict import check_name

    for option, asked, entries in (("models", models, experiment.models), ("columns", columns, experiment.columns)):
        for title in asked or ():
            check_name(f"--{option}", title, [entry.title for entry in entries])
    return models, columns


def _make(made: "Search", jobs: int, engine: str, as_json: bool) -> int:
    """Make what is left. Returns the exit code."""
    from sirgcn.engine.inputs import without_data
    from sirgcn.engine.progress import Progress
    from sirgcn.engine.workers import engine_named

    absent = without_data(made.all_runs(), made.settings)
    if absent:
        tell.reasons(absent, "cannot be made, the data are not available")
        return 2
    left = made.seconds_left()
    if not as_json:
        out.print(f"{count(len(left), 'run')} to go: {tell.estimate(left, jobs)}" if left else "nothing to go")
    kept_out = KeptOut()
    where = engine_named(engine, jobs, made.settings.threads or 1, made.settings.device)
    with where, Progress(len(left), quiet=as_json) as progress:
        outcome = made.run(jobs, [progress, kept_out], where)
    tell.outcomes({run: status for run, status in outcome.items() if status == "paused"}, made.settings)
    kept_out.tell()
    return _code(made, outcome)


def _code(made: "Search", outcome: "dict[Run, str]") -> int:
    """The exit code. A trial that failed by itself is a trial like the others; a row without a winner is a failure."""
    from sirgcn.engine.records import key_of

    counted = {run.key: status for run, status in outcome.items()}
    for study in made.studies():
        for record in study.kept:
            counted.pop(key_of(record), None)
    if any(study.kept and study.winner is None for study in made.studies()):
        return 1
    return code_of(set(counted.values()), False)


def _tell(made: "Search", jobs: int, as_json: bool, is_dry: bool) -> None:
    """Print the state of the search, and the results of the winners."""
    rows = made.state()
    if as_json:
        print(json.dumps(rows))
        return
    show(("column", "model", "trials", "failed", "best validation", "runs"), [_line(row) for row in rows], False)
    if is_dry:
        left = made.seconds_left()
        out.print(f"{count(len(left), 'run')} to go: {tell.estimate(left, jobs)}" if left else "nothing to go")
        return
    from sirgcn.report.tuned import tuned

    for sheet in tuned(made.experiment, made.settings.results):
        out.print(sheet.rich())


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    best = "-" if row["val"] is None else f"{row['val']:.4g}"
    made = f"{len(row['trials'])} of {row['trials_asked']}"
    return row["column"], row["model"], made, row["failed"], best, f"{row['runs']} of {row['runs_asked']}"
