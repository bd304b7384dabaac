"""`python -m sirgcn.bench`: measure, print tables, keep the record as JSON, draw plots."""

import argparse
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sirgcn.bench.graphs import DRAWN, SHAPES
from sirgcn.bench.peers import OURS, PEERS
from sirgcn.bench.plots import write_plots
from sirgcn.bench.record import Record, with_allocator
from sirgcn.bench.run import PARTS, Plan, steps
from sirgcn.bench.tables import markdown, print_tables, render_page
from sirgcn.engine.environment import ALLOCATOR
from sirgcn.engine.timing import Effort
from sirgcn.files import write_atomic

# A sample of the quick form lasts 20 ms at least, and a slow peer is given up early.
QUICK = Effort(repeats=5, sample_seconds=0.02, run_seconds=0.6)
FULL = Effort(repeats=15, sample_seconds=0.1, run_seconds=20.0)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    families = sorted({peer.label for peer in PEERS if peer.label != OURS})
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python -m sirgcn.bench",
        description="Time and peak memory of sirgcn against its peers, interleaved in one run and given as ratios to "
        "ours: a table in the terminal, a record as JSON, plots.",
        epilog="Real graphs are measured when their files are there: SIRGCN_DATA names the data folder. The quick form "
        "leaves out what takes long and says so; Ctrl-C ends a run and keeps what it has measured.",
    )
    parser.add_argument("--full", action="store_true", help="every peer on every graph, more repetitions")
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=SHAPES,
        metavar="SHAPE",
        help=f"of {', '.join(SHAPES)}; default: those that are drawn, with --full also the real ones",
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=families,
        metavar="PEER",
        help=f"beside ours, of {', '.join(map(repr, families))}; default: all",
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
    parser.add_argument("--output", type=Path, help="default: bench-results/quick.json, with --full full.json")
    parser.add_argument("--render", type=Path, metavar="JSON", help="print a record as Markdown and measure nothing")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="with --render: write it between the page's markers")
    args = parser.parse_args(arguments)
    if args.into is not None and args.render is None:
        parser.error("--into: expected --render with the record that is to be written into the page")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    args = parse(arguments)
    if args.render is not None:
        record = json.loads(args.render.read_text())
        if args.into is None:
            print(markdown(record), end="")
        else:
            write_atomic(args.into, render_page(args.into.read_text("utf-8"), record).encode())
        return
    effort = FULL if args.full else QUICK
    if args.repeats is not None:
        effort = Effort(args.repeats, effort.sample_seconds, effort.run_seconds)
    shapes = args.shapes or (SHAPES if args.full else DRAWN)
    plan = Plan(
        args.full,
        tuple(SHAPES[name] for name in shapes),
        tuple(args.parts),
        tuple(args.threads),
        effort,
        None if args.peers is None else tuple(args.peers),
    )
    form = "full" if args.full else "quick"
    output = args.output or Path(f"bench-results/{form}.json")
    measured = Record(output, {"form": form, "effort": vars(effort), "threads": list(plan.threads)})
    console = Console()
    if not console.is_terminal:
        # In a file or a log, tables need not fold.
        console = Console(width=160)
    _measure(plan, measured, console)
    print_tables(measured.data, console)
    _print_settings(measured, console)
    console.print(
        f"Written: {output}, {', '.join(str(path) for path in write_plots(measured.data, output.with_suffix('')))}"
    )


def _measure(plan: Plan, record: Record, console: Console) -> None:
    columns = (
        SpinnerColumn(),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Four times a second, so that drawing the line costs no time that is measured.
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task("starting")
        todo = steps(plan, record, lambda text: progress.update(task, description=text))
        progress.update(task, total=len(todo))
        try:
            for title, step in todo:
                progress.update(task, description=title)
                if not console.is_terminal:
                    console.print(f"{progress.tasks[0].elapsed or 0:6.0f} s  {title}", highlight=False)
                step()
                progress.advance(task)
        except KeyboardInterrupt:
            record.data["settings"]["interrupted"] = True
            console.print("Interrupted: what follows is what was measured until now.", style="yellow")
    record.write()


def _print_settings(record: Record, console: Console) -> None:
    facts = record.data["environment"]
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
    if any(value is None for value in facts["allocator"].values()):
        console.print(f"Not glibc: the allocator was not set ({', '.join(ALLOCATOR)}).", style="yellow")


if __name__ == "__main__":
    with_allocator()
    # PyG and torch warn of their own deprecations and betas.
    warnings.simplefilter("ignore")
    main()
