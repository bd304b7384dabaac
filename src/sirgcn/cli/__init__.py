"""The command line: `sirgcn train nodes.csv edges.csv`, `sirgcn reproduce table1`, `sirgcn data list`, ...

torch is imported by the commands that need it, so that help and completion are quick.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sirgcn.cli import data, shows, train, use
from sirgcn.cli.compare import compare
from sirgcn.cli.explain import explain
from sirgcn.cli.export import export
from sirgcn.cli.report import report
from sirgcn.cli.reproduce import reproduce
from sirgcn.cli.search import search
from sirgcn.cli.shared import err
from sirgcn.cli.tune import tune

app = typer.Typer(
    help="Train, explain and ship graph neural networks from plain tables. Begin with "
    "[bold]sirgcn data example cora[/bold] and "
    "[bold]sirgcn train cora/nodes.csv cora/edges.csv --target topic[/bold].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
OWN, PAPER, HERE = "Your own graph or molecules", "Experiments and the paper", "What there is"
command: Callable[..., None]
for command in (train.train, train.init, use.predict, use.evaluate, explain, compare, use.embed, export, report, tune):
    app.command(rich_help_panel=OWN)(command)
for command in (reproduce, shows.results, search, shows.collisions, shows.figures):
    app.command(rich_help_panel=PAPER)(command)
# Options that are unknown here are passed on to the benchmark.
app.command(rich_help_panel=PAPER, context_settings={"ignore_unknown_options": True})(shows.bench)
for command in (shows.models, shows.backends, shows.version):
    app.command(rich_help_panel=HERE)(command)
app.add_typer(data.app, name="data", rich_help_panel=HERE)


def _show_version(asked: bool) -> None:
    if asked:
        shows.version()
        raise typer.Exit


@app.callback()
def _every_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May also follow the command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    # `main` looks for the option itself, so that it also applies to errors before a command begins.
    del debug, version


def main() -> None:
    """The command `sirgcn`. An error is printed as one line, and as a traceback with `--debug`."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(args=arguments, prog_name="sirgcn")
    except (ValueError, RuntimeError, TypeError, OSError, ImportError) as error:
        if debug:
            raise
        err.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
