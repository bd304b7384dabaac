"""`sirgcn compare`: the models of several folders side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli.outcome import interval, number
from sirgcn.cli.shared import AsJson, err, show

Folders = Annotated[list[Path], typer.Argument(metavar="MODELS", help="Two or more folders of models.")]


def compare(models: Folders, as_json: AsJson = False) -> None:
    """Show the test scores of two or more models side by side, the best first.

    Example: sirgcn compare model_a model_b
    """
    from sirgcn.model.judging import compare_models

    if len(models) < 2:
        raise ValueError(f"MODELS: expected two folders or more, got {len(models)}")
    found = compare_models(models)
    for note in found["notes"]:
        err.print(f"warning: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(found))
        return
    head = ("model", *found["titles"].values(), "95 % interval", "networks", "parameters")
    rows = []
    for entry in found["models"]:
        scores = entry["scores"]
        shown = [number(scores[name]["value"]) if name in scores else "-" for name in found["titles"]]
        first = scores.get(found["metric"])
        rows.append(
            (entry["model"], *shown, "" if first is None else interval(first), entry["networks"], entry["parameters"])
        )
    show(head, rows, as_json=False)
