"""`python -m sirgcn.bench`: measure, print tables, append records, draw plots."""

import argparse
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sirgcn.bench.graphs import DRAWN, SHAPES
from sirgcn.bench.peers import OURS, PEERS
from sirgcn.bench.plots import write_plots
from sirgcn.bench.records import Session, read_results
from sirgcn.bench.run import PARTS, Plan, Step, steps
from sirgcn.bench.tables import markdown, print_tables, render_page
from sirgcn.engine.environment import ALLOCATOR
from sirgcn.engine.timing import Effort
from sirgcn.files import write_atomic

# A sample of the quick form lasts at least 20 ms, and a slow peer drops out early.
QUICK = Effort(repeats=5, sample_seconds=0.02, run_seconds=0.6)
FULL = Effort(repeats=15, sample_seconds=0.1, run_seconds=20.0)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    families = sorted({peer.label for peer in PEERS if peer.label != OURS})
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python -m sirgcn.bench",
        description="Measure the time and the peak memory of sirgcn against its peers. All peers are interleaved in "
        "one run, and figures are ratios to ours. The command prints tables, appends records to a file and draws "
        "plots.",
        epilog="Real graphs are measured where their files are found: SIRGCN_DATA names the data folder. The quick "
        "form leaves out what takes long and says so. Ctrl-C ends a run; the same command continues it as long as the "
        "commit, the settings and the machine are the same.",
    )
    parser.add_argument("--full", action="store_true", help="every peer on every graph, more repetitions")
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=SHAPES,
        metavar="SHAPE",
        help=f"graphs among {', '.join(SHAPES)}; default: the generated ones, with --full also the real ones",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help=f"what to measure, among {', '.join(PARTS)}; default: everything",
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=families,
        metavar="PEER",
        help=f"peers beside ours, among {', '.join(map(repr, families))}; default: all",
    )
    parser.add_argument(
        "--threads",
        nargs="+",
        type=int,
        default=sorted({1, min(2, os.cpu_count() or 1)}),
        help="numbers of threads; default: %(default)s",
    )
    parser.add_argument(
        "--repeats", type=int, help=f"samples of each peer; default: {QUICK.repeats}, with --full {FULL.repeats}"
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="what is measured: the time on the wall, or the time that all threads of the process spend on the CPU, "
        "which other work on the machine changes less; OMP_WAIT_POLICY=PASSIVE keeps threads that wait out of it; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--output", type=Path, help="the file of records; default: bench-results/quick.jsonl, with --full full.jsonl"
    )
    parser.add_argument("--fresh", action="store_true", help="begin a new run and do not continue the last one")
    parser.add_argument("--render", type=Path, metavar="FILE", help="print records as Markdown and measure nothing")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="with --render: write between the markers of a page")
    args = parser.parse_args(arguments)
    if args.into is not None and args.render is None:
        parser.error("--into: expected --render with the records that are to be written into the page")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: render records, or measure."""
    args = parse(arguments)
    if args.render is not None:
        render(args.render, args.into)
        return
    form = "full" if args.full else "quick"
    output = args.output or Path(f"bench-results/{form}.jsonl")
    plan = plan_of(args)
    settings = {"form": form, "effort": vars(plan.effort), "threads": list(plan.threads)}
    session = Session(output, settings, args.fresh)
    console = Console()
    if not console.is_terminal:
        # Tables in a file or a log need not be folded.
        console = Console(width=160)
    measure(plan, session, console)
    print_tables(session.results, console)
    print_settings(session, console)
    plots = write_plots(session.results, output.with_suffix(""))
    console.print(f"Written: {', '.join(map(str, [output, *plots]))}")


def render(path: Path, page: Path | None) -> None:
    """Print the tables of a file of records as Markdown, or write them into a page.

    Raises:
        SystemExit: the file holds no records of a benchmark.
    """
    try:
        results = read_results(path)
    except ValueError as error:
        raise SystemExit(f"--render: {error}") from error
    if page is None:
        print(markdown(results), end="")
    else:
        write_atomic(page, render_page(page.read_text("utf-8"), results, path.stem).encode())


def plan_of(args: argparse.Namespace) -> Plan:
    """What the options ask to measure."""
    effort = FULL if args.full else QUICK
    repeats = effort.repeats if args.repeats is None else args.repeats
    effort = Effort(repeats, effort.sample_seconds, effort.run_seconds, args.clock)
    shapes = args.shapes or (SHAPES if args.full else DRAWN)
    families = None if args.peers is None else tuple(args.peers)
    chosen = tuple(SHAPES[name] for name in shapes)
    return Plan(args.full, chosen, tuple(args.parts), tuple(args.threads), effort, families)


def measure(plan: Plan, session: Session, console: Console) -> None:
    """Take the steps that are left, and show what is measured and what is left."""
    columns = (
        SpinnerColumn(),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Four times a second, so that drawing the line takes no time that is measured.
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task("starting")
        todo = steps(plan, session, lambda text: progress.update(task, description=text))
        left = [step for step in todo if not step.is_done]
        progress.update(task, total=len(todo), completed=len(todo) - len(left))
        if session.is_continued:
            console.print(f"Continues the run of {session.begun}: {len(left)} of {len(todo)} steps are left.")
        try:
            for step in left:
                progress.update(task, description=step.title)
                _print_step(step, todo, progress.tasks[0].elapsed or 0.0, console)
                step.measure()
                progress.advance(task)
        except KeyboardInterrupt:
            console.print(
                "Interrupted: the tables show what was measured. The same command continues the run.", style="yellow"
            )


def _print_step(step: Step, todo: list[Step], elapsed: float, console: Console) -> None:
    """A line in a log about a step that begins; a terminal shows the progress bar instead."""
    if not console.is_terminal:
        console.print(
            f"[{todo.index(step) + 1}/{len(todo)}] {elapsed:6.0f} s  {step.title}", highlight=False, markup=False
        )


def print_settings(session: Session, console: Console) -> None:
    """Print the machine, the versions, the settings of the allocator, and how to read the ratios."""
    facts = session.results.environment
    kept = ", ".join(f"{name}={value}" for name, value in facts["allocator"].items())
    counted = ", ".join(f"{name}={value}" for name, value in facts["allocator_for_memory"].items())
    console.print(
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_at_start']} at the start; torch {facts['torch']}, "
        f"PyG {facts['torch_geometric']}, native: {facts['native']}\n"
        f"Times with {kept} (fair to peers that make large temporary tensors); memory with {counted}.\n"
        "Ratios are peer / ours, median (quartiles) over interleaved repetitions: above 1, ours is faster.",
        highlight=False,
    )
    if facts["native"] is None:
        console.print(f"Ours is not the native backend: {facts['backends']['native']}", style="bold red")
    if None in facts["allocator"].values():
        console.print(f"Not glibc: the allocator was not set ({', '.join(ALLOCATOR)}).", style="yellow")


def restart_with_allocator() -> None:
    """Start the process again with the settings of the allocator, which glibc reads once, before Python runs."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and not ALLOCATOR.keys() <= os.environ.keys():
        # Settings that are there already are the user's and stay.
        os.execve(sys.executable, sys.orig_argv, ALLOCATOR | os.environ)


if __name__ == "__main__":
    restart_with_allocator()
    # PyG and torch warn of deprecations and betas of their own.
    warnings.simplefilter("ignore")
    main()
