"""The command line: `sirgcn reproduce table1`, `sirgcn results`, `sirgcn data list`, ...

torch is imported by the commands that need it, so that help and completion are quick.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sirgcn.cli import data, shows
from sirgcn.cli.reproduce import reproduce
from sirgcn.cli.search import search
from sirgcn.cli.shared import err

MOVED = {
    "train": "to run an experiment file, type: sirgcn reproduce FILE.toml",
    "report": "to show or write the results of experiments, type: sirgcn results",
}
"""Former commands, and what to type now."""


class _Commands(TyperGroup):
    """The commands, with a hint for those that have another name now."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in MOVED:
            raise ValueError(f"sirgcn {args[0]}: there is no such command any more; {MOVED[args[0]]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Contextualised messages on graphs: SIR-GCN. Reruns the paper's tables and trains on your own graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(reproduce)
app.command()(search)
app.command()(shows.results)
app.command()(shows.collisions)
app.command()(shows.figures)
# Options that are unknown here are passed on to the benchmark.
app.command(context_settings={"ignore_unknown_options": True})(shows.bench)
app.command()(shows.backends)
app.command()(shows.models)
app.command()(shows.version)
app.add_typer(data.app, name="data")


@app.callback()
def _every_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May also follow the command.")
    ] = False,
) -> None:
    # `main` looks for the option itself, so that it also applies to errors before a command begins.
    del debug


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
