"""`sirgcn report`: the page of a model, written anew."""

import json
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli.outcome import print_lines
from sirgcn.cli.shared import AsJson

Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")]


def report(model: Folder, as_json: AsJson = False) -> None:
    """Write report.html and README.md of a model anew, from what its folder holds.

    Example: sirgcn report model
    """
    from sirgcn.model.card import card, report_html
    from sirgcn.model.folder import load, rewrite

    found = load(model)
    rewrite(model, {"README.md": card(found).encode(), "report.html": report_html(found).encode()})
    if as_json:
        print(json.dumps({"report": str(model / "report.html"), "card": str(model / "README.md")}))
        return
    print_lines(f"report: {model / 'report.html'}")
