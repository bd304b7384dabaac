"""The command line: `sirgcn reproduce table1`, `sirgcn report`, `sirgcn train FILE`, `sirgcn data list`, ...

torch is loaded by the commands that need it, so that help and completion are quick.
"""

import sys
from typing import Annotated

import typer

from sirgcn.cli import data, runs, shows
from sirgcn.cli.shared import err

app = typer.Typer(
    help="Contextualised messages on graphs: SIR-GCN. Reruns the paper's tables and trains on your own graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(runs.reproduce)
app.command()(runs.train)
app.command()(shows.report)
app.command()(shows.collisions)
app.command()(shows.figures)
# Options that are not known here go to the other command as they are.
app.command(context_settings={"ignore_unknown_options": True})(shows.bench)
app.command()(shows.backends)
app.command()(shows.models)
app.command()(shows.version)
app.add_typer(data.app, name="data")


@app.callback()
def _every_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from; may stand behind the command too.")
    ] = False,
) -> None:
    # `main` looks for it, so that it holds for what goes wrong before a command begins.
    del debug


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
