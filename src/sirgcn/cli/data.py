"""`sirgcn data`: what there is, what is in one, getting and checking the files."""

import json
from typing import Annotated

import typer

from sirgcn.cli.shared import AsJson, Root, out, show

app = typer.Typer(
    help="Data sets: what there is, what is in one, getting and checking the files.", no_args_is_help=True
)


@app.command("list")
def data_list(data: Root = None, as_json: AsJson = False) -> None:
    """All data sets: size, task, metric, licence, and how to get them."""
    from sirgcn.data.sets.catalog import DATASETS

    rows = [
        (entry.name, entry.level, entry.metric, *entry.size, entry.licence, entry.how) for entry in DATASETS.values()
    ]
    show(("name", "level", "metric", "graphs", "nodes", "edges", "licence", "how"), rows, as_json)


@app.command("describe")
def data_describe(
    name: Annotated[str, typer.Argument(help="A data set; `sirgcn data list` names them.")],
    data: Root = None,
    as_json: AsJson = False,
) -> None:
    """What is in a data set: schema, degrees, labels, homophily, missing values, warnings."""
    from sirgcn.data.sets.catalog import load

    description = load(name, data).describe()
    if as_json:
        print(json.dumps(description.to_dict()))
    else:
        out.print(str(description), markup=False, highlight=False)


@app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A data set.")], data: Root = None) -> None:
    """Download a data set's files into the data root; what is there already is kept."""
    from sirgcn.data.sets.catalog import fetch

    out.print(f"{name}: in {fetch(name, data)}", markup=False)


@app.command("verify")
def data_verify(
    name: Annotated[str, typer.Argument(help="A data set.")], data: Root = None, as_json: AsJson = False
) -> None:
    """Check the hashes of a data set's files; the exit code is 1 if one is missing or not what it should be."""
    from sirgcn.data.sets.catalog import verify

    found = verify(name, data)
    if not found and not as_json:
        out.print(f"{name}: made here, there are no files to check", markup=False)
    else:
        show(("file", "state"), list(found.items()), as_json)
    if any(state == "missing" or "expected" in state for state in found.values()):
        raise typer.Exit(1)
