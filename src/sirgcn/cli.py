"""The command line: `sirgcn reproduce table1`, `sirgcn report`, `sirgcn train FILE`, `sirgcn data list`, ...

torch is loaded by the commands that need it, so that help and completion are quick.
"""

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from sirgcn.engine.experiment import Experiment
    from sirgcn.engine.run import Run, Settings

app = typer.Typer(
    help="Contextualised messages on graphs: SIR-GCN. Reruns the paper's tables and trains on your own graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="Data sets: what there is, what is in one, getting and checking the files.", no_args_is_help=True
)
app.add_typer(data_app, name="data")


@app.callback()
def _every_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from; may stand behind the command too.")
    ] = False,
) -> None:
    # `main` looks for it, so that it holds for what goes wrong before a command begins.
    del debug


def _experiments(incomplete: str) -> list[str]:
    """What `reproduce` can be completed to."""
    from sirgcn.engine.experiment import names

    known = [*(f"table{number}" for number in range(1, 9)), *names()]
    return [name for name in known if name.startswith(incomplete)]


# In a file or a pipe, tables need not fold.
out, err = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)

Models = Annotated[
    list[str] | None, typer.Option("--models", "-m", help="Rows, by title; several by repeating. Default: all.")
]
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
Reduced = Annotated[bool, typer.Option("--reduced", help="The shorter form of the experiment; its records say so.")]
Results = Annotated[Path, typer.Option(help="The folder of the records.")]
Work = Annotated[Path, typer.Option(help="The folder of checkpoints and logs of unfinished runs.")]
Root = Annotated[
    Path | None, typer.Option("--data", help="The data root. Default: $SIRGCN_DATA, then a cache folder of the user.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: train.lr=1e-3. Its results stay apart from the table's."),
]
Board = Annotated[
    Path | None, typer.Option(help="Also write the curves for TensorBoard below this folder (extra: sirgcn\\[log]).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for a script instead of a table.")]


@app.command()
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
    The exit code is 0 if all is finished, 1 if a run failed, 2 for a wrong argument, 3 if runs are left.

    Examples:

        sirgcn reproduce table1 --models SIR-GCN --columns n=10 --seeds 0-2

        sirgcn reproduce minesweeper --jobs 2 --budget 2h
    """
    from sirgcn.engine import experiment as config

    number = re.fullmatch(r"(?:table[\s_-]*)?(\d+)", what.strip(), re.IGNORECASE)
    found = config.of_table(int(number[1]), set_ or ()) if number else (config.load(what, set_ or ()),)
    _run(
        _chosen(found, models, columns, seeds, reduced),
        _settings(found, results, work, data, threads, device, jobs, budget),
        jobs,
        tensorboard,
        dry_run,
        as_json,
    )


@app.command()
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
    the options of `load_tables`.

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
    from sirgcn.engine.run import plan

    rows, places = _titles("models", models, experiments), _titles("columns", columns, experiments)
    runs = [
        run
        for experiment, row, place in zip(experiments, rows, places, strict=True)
        for run in plan(experiment, row, place, _seeds(seeds), reduced)
    ]
    if not runs:
        raise ValueError(f"models: expected rows of the columns {', '.join(columns or [])}, got none of them")
    return runs


def _titles(kind: str, asked: list[str] | None, experiments: "Sequence[Experiment]") -> list[list[str] | None]:
    """For each experiment its own among the titles, None for all; a title that none of them has is refused."""
    if asked is None:
        return [None] * len(experiments)
    titles = [[entry.title for entry in getattr(experiment, kind)] for experiment in experiments]
    known = dict.fromkeys(title for own in titles for title in own)
    for title in asked:
        if title.lower() not in map(str.lower, known):
            raise ValueError(f"--{kind}: expected one of {', '.join(known)}, got {title!r}")
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
    from sirgcn.engine.run import Settings

    timed = [experiment for experiment in experiments if experiment.kind != "training"]
    if timed and device != "cpu":
        raise ValueError(f"device: {timed[0].name} is timed on the cpu, got {device!r}")
    if timed and threads not in (None, timed[0].timing.threads):
        wanted = timed[0].timing.threads
        raise ValueError(
            f"threads: {timed[0].name} is timed on {wanted}; --set timing.threads={threads} and "
            "timing.clock=wall change that"
        )
    deadline = None if budget is None else time.time() + _seconds(budget)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Settings(results, work, data, threads or max(1, cores // jobs), find_device(device), deadline=deadline)


def _run(
    runs: "Sequence[Run]", settings: "Settings", jobs: int, tensorboard: Path | None, dry_run: bool, as_json: bool
) -> None:
    from sirgcn.engine.pool import run_all
    from sirgcn.engine.progress import Progress
    from sirgcn.engine.run import Report, expected_seconds, unfinished
    from sirgcn.engine.tensorboard import TensorBoard

    left = unfinished(runs, settings)
    if not as_json:
        seconds, unknown = expected_seconds(left, settings)
        estimate = f": about {_duration(seconds / jobs)}" if seconds else ": how long is not known yet"
        more = f" ({unknown} of them not timed before)" if unknown and seconds else ""
        out.print(
            f"{_count(len(runs), 'run')}, {len(runs) - len(left)} finished before; {len(left)} to go"
            f"{estimate + more if left else ''}"
        )
    if dry_run:
        if as_json:
            from sirgcn.engine.records import KEY

            print(json.dumps([dict(zip(KEY, run.key, strict=True)) for run in left]))
        for entry in () if as_json else left:
            out.print(f"  {entry}", markup=False, highlight=False)
        return
    with ExitStack() as stack:
        watching: list[Report] = [stack.enter_context(Progress(len(left), quiet=as_json))]
        if tensorboard is not None:
            watching.append(stack.enter_context(TensorBoard(tensorboard)))
        outcome = run_all(left, settings, jobs, watching)
    _summary({run.experiment.name for run in runs}, settings.results, outcome, as_json)


def _summary(names: set[str], results: Path, outcome: "dict[Run, str]", as_json: bool) -> None:
    from sirgcn.engine import records

    if as_json:
        found = [record for name in sorted(names) for record in records.read(results / f"{name}.jsonl")]
        for record in found:
            record.pop("history", None)
        print(json.dumps(found))
    else:
        from sirgcn.report.terminal import print_tables

        print_tables(results, out, names)
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
    if failed or paused:
        raise typer.Exit(1 if failed else 3)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("report"),
    results: Results = Path("results"),
    docs: Annotated[
        list[Path] | None,
        typer.Option("--docs", help="Only write the marked parts of this Markdown page anew; several by repeating."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the paper's tables with ours beside them: report.html, tables.md, tables.tex, tables.csv.

    Examples:

        sirgcn report

        sirgcn report --docs docs/results.md
    """
    from sirgcn.report import collisions, compare, read_runs, separation, write_docs, write_report

    comparisons = compare(read_runs(results))
    if docs is None:
        written = write_report(comparisons, folder)
    else:
        texts = {
            "collisions": collisions.markdown(collisions.read_record(results)),
            "separation": separation.markdown(separation.read_record(results)),
        }
        written = write_docs(docs, comparisons, texts)
    _show(("written",), [(str(path),) for path in written], as_json)


@app.command()
def collisions(
    models: Models = None,
    column: Annotated[str, typer.Option("--column", "-c", help="A column of Table 1.")] = "n=10",
    seed: Annotated[int, typer.Option("--seed", "-s", min=0, help="Of data, weights and batches.")] = 0,
    reduced: Reduced = False,
    results: Results = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Train models of Table 1 and show which dictionaries their layer confuses.

    Each is kept as a row of theory/collisions.json in the folder of the records.

    Example:

        sirgcn collisions --models GCN --models SIR-GCN
    """
    from sirgcn.engine import experiment as config
    from sirgcn.report import collisions as demonstration

    table, rows = config.load("dictionary_lookup"), []
    for title in models or [model.title for model in table.models]:
        row, found = demonstration.look_at(table, title, column, seed, reduced)
        demonstration.add_to_record(row, results)
        rows.append(row)
        if not as_json:
            out.print(f"{row['model']}: {found}\n", markup=False, highlight=False)
    if as_json:
        print(json.dumps(rows))


@app.command()
def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="By number (2) or name (contours). Default: all five.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the files go.")] = Path("figures"),
    format_: Annotated[str, typer.Option("--format", "-f", help="png, svg or pdf.")] = "png",
    as_json: AsJson = False,
) -> None:
    """Draw the paper's figures from computed data: feature map, hashes, measured properties, generated samples.

    Names: soft-injective (1), contours (2), quadrants (3), dictionary-lookup (4), hetero-edge-count (5).

    Examples:

        sirgcn figures

        sirgcn figures 2 quadrants --format svg --out my_figures
    """
    from sirgcn.report.paper_figures import FIGURES, find_figure, write_figures

    entries = [find_figure(name) for name in names or FIGURES]
    written = write_figures([entry.name for entry in entries], folder, format_)
    rows = [(entry.number, entry.caption, str(path)) for entry, path in zip(entries, written, strict=True)]
    _show(("figure", "caption", "written"), rows, as_json)


# Options that are not known here go to the other command as they are.
@app.command(context_settings={"ignore_unknown_options": True})
def bench(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="As for python -m sirgcn.bench; see its --help.")
    ] = None,
) -> None:
    """Measure time and memory against PyG's layers, torch.compile and MKL.

    Example:

        sirgcn bench --full --shapes arxiv
    """
    os.execv(sys.executable, [sys.executable, "-m", "sirgcn.bench", *(arguments or [])])


@app.command()
def backends(as_json: AsJson = False) -> None:
    """Which backends of the layer are available here, and why the others are not."""
    from sirgcn.ops import backends as found
    from sirgcn.ops import native

    states = found()
    if as_json:
        print(json.dumps({"backends": states, "native": native.describe() if native.UNAVAILABLE is None else None}))
        return
    for name, reason in states.items():
        detail = f" ({native.describe()})" if name == "native" and reason is None else ""
        out.print(f"{name}: {'available' + detail if reason is None else f'not available: {reason}'}", markup=False)


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="One of them, with its options. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """The models that a row of an experiment can name, with formula, complexity and reference.

    A row names a convolution by `conv`, which stands in the preset's network, or a network of its own by `network`.

    Examples:

        sirgcn models

        sirgcn models glognn
    """
    from sirgcn.nn import MODEL_COLUMNS, model_rows

    shown = slice(None, -1 if name is None else None)
    _show(MODEL_COLUMNS[shown], [row[shown] for row in model_rows(name)], as_json)


@app.command()
def version() -> None:
    """The version of the package."""
    import sirgcn

    print(sirgcn.__version__)


@data_app.command("list")
def data_list(data: Root = None, as_json: AsJson = False) -> None:
    """All data sets: size, task, metric, licence, and how to get them."""
    from sirgcn.data.catalog import DATASETS

    rows = [
        (entry.name, entry.level, entry.metric, *entry.size, entry.licence, entry.how) for entry in DATASETS.values()
    ]
    _show(("name", "level", "metric", "graphs", "nodes", "edges", "licence", "how"), rows, as_json)


@data_app.command("describe")
def data_describe(
    name: Annotated[str, typer.Argument(help="A data set; `sirgcn data list` names them.")],
    data: Root = None,
    as_json: AsJson = False,
) -> None:
    """What is in a data set: schema, degrees, labels, homophily, missing values, warnings."""
    from sirgcn.data.catalog import load

    description = load(name, data).describe()
    if as_json:
        print(json.dumps(description.to_dict()))
    else:
        out.print(str(description), markup=False, highlight=False)


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A data set.")], data: Root = None) -> None:
    """Download a data set's files into the data root; what is there already is kept."""
    from sirgcn.data.catalog import fetch

    out.print(f"{name}: in {fetch(name, data)}", markup=False)


@data_app.command("verify")
def data_verify(
    name: Annotated[str, typer.Argument(help="A data set.")], data: Root = None, as_json: AsJson = False
) -> None:
    """Check the hashes of a data set's files; the exit code is 1 if one is missing or not what it should be."""
    from sirgcn.data.catalog import verify

    found = verify(name, data)
    if not found and not as_json:
        out.print(f"{name}: made here, there are no files to check", markup=False)
    else:
        _show(("file", "state"), list(found.items()), as_json)
    if any(state == "missing" or "expected" in state for state in found.values()):
        raise typer.Exit(1)


def _show(head: tuple[str, ...], rows: list[tuple[Any, ...]], as_json: bool) -> None:
    if as_json:
        print(json.dumps([dict(zip(head, row, strict=True)) for row in rows]))
        return
    table = Table(box=None)
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(f"{entry:,}" if isinstance(entry, int | float) else str(entry) for entry in row))
    out.print(table, markup=False)


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


def main() -> None:
    """The command `sirgcn`: an error is one line, and a traceback with `--debug`."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(args=arguments, prog_name="sirgcn")
    except (ValueError, RuntimeError, TypeError, OSError, ImportError) as error:
        if debug:
            raise
        err.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
