"""`sirgcn data`: list and describe data sets, download and check their files."""

import json
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli.shared import AsJson, Root, out, show

app = typer.Typer(help="List and describe data sets, download and check their files.", no_args_is_help=True)


@app.command("list")
def data_list(data: Root = None, as_json: AsJson = False) -> None:
    """List all data sets: size, task, metric, licence, and how to get them.

    Example:

        sirgcn data list
    """
    from sirgcn.data.sets.catalog import DATASETS

    rows = [
        (entry.name, entry.level, entry.metric, *entry.size, entry.licence, entry.how) for entry in DATASETS.values()
    ]
    show(("name", "level", "metric", "graphs", "nodes", "edges", "licence", "how"), rows, as_json)


@app.command("describe")
def data_describe(
    name: Annotated[str, typer.Argument(help="The name of a data set; see `sirgcn data list`.")],
    data: Root = None,
    as_json: AsJson = False,
) -> None:
    """Describe a data set: schema, degrees, labels, homophily, missing values, warnings.

    Example:

        sirgcn data describe dictionary_lookup
    """
    from sirgcn.data.sets.catalog import load

    description = load(name, data).describe()
    if as_json:
        print(json.dumps(description.to_dict()))
    else:
        out.print(str(description), markup=False, highlight=False)


@app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="The name of a data set; see `sirgcn data list`.")], data: Root = None
) -> None:
    """Download the files of a data set into the folder of the data sets. Files that are there are kept.

    Example:

        sirgcn data fetch minesweeper
    """
    from sirgcn.data.sets.catalog import fetch

    out.print(f"{name}: in {fetch(name, data)}", markup=False)


@app.command("verify")
def data_verify(
    name: Annotated[str, typer.Argument(help="The name of a data set; see `sirgcn data list`.")],
    data: Root = None,
    as_json: AsJson = False,
) -> None:
    """Check the hashes of the files of a data set. The exit code is 1 if a file is missing or differs.

    Example:

        sirgcn data verify Cora
    """
    from sirgcn.data.sets.catalog import verify

    found = verify(name, data)
    if not found and not as_json:
        out.print(f"{name}: generated here; there are no files to check", markup=False)
    else:
        show(("file", "state"), list(found.items()), as_json)
    if any(state == "missing" or "expected" in state for state in found.values()):
        raise typer.Exit(1)


@app.command("example")
def data_example(
    name: Annotated[str | None, typer.Argument(help="cora or esol. Default: list them.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write to. Default: the name of the example.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write example tables, real data that come with the package, to try the other commands with.

    Example:

        sirgcn data example cora
    """
    from sirgcn.data.examples import EXAMPLES, write_example
    from sirgcn.strict import check_name

    if name is None:
        rows = [(one.name, one.what, one.target, one.source) for one in EXAMPLES.values()]
        show(("name", "what it holds", "target", "source and licence"), rows, as_json)
        return
    example = EXAMPLES[check_name("example", name, EXAMPLES)]
    written = write_example(name, folder or Path(example.name))
    if as_json:
        print(json.dumps({"files": [str(path) for path in written], "target": example.target}))
        return
    for path in written:
        out.print(str(path), markup=False, highlight=False, soft_wrap=True)
    out.print(f"{example.what}; the target is {example.target!r} ({example.source})", markup=False, highlight=False)
