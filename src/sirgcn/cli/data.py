"""`sirgcn data`: list and describe data sets, download and check their files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sirgcn.cli.shared import AsJson, Root, ShortJson, out, resumable, show
from sirgcn.cli.typed import Sets, as_typed

FILES = ("nodes", "edges", "graphs")
"""What the files on the command line hold, in their order."""

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
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME | FILE...",
            help="A data set; or nodes edges \\[graphs].",
        ),
    ],
    data: Root = None,
    as_json: ShortJson = False,
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", metavar="COL", help="What is predicted; repeatable.")
    ] = None,
    level: Annotated[str | None, typer.Option(metavar="NAME", help="Of the target: node, edge, graph.")] = None,
    split: Annotated[str | None, typer.Option(metavar="COL", help="It holds train, val, test.")] = None,
    set_: Sets = None,
) -> None:
    """Describe your own files, or a data set: what was understood, what is odd.

    Example: sirgcn data describe nodes.csv edges.csv --target label
    """
    if len(names) == 1 and not is_file(names[0]):
        from sirgcn.data.sets.catalog import load

        refuse_options({"--target": target, "--level": level, "--split": split, "--set": set_})
        description = load(names[0], data).describe()
    else:
        description = describe_files(names, {"target": target or (), "level": level, "split": split}, set_)
    if as_json:
        print(json.dumps(description.to_dict()))
    else:
        out.print(as_typed(str(description)), markup=False, highlight=False)


def is_file(name: str) -> bool:
    """Whether an argument is a file and not the name of a data set, which has no ending and no folder.

    >>> is_file("nodes.csv"), is_file("Cora")
    (True, False)
    """
    return Path(name).is_file() or bool(Path(name).suffix) or "/" in name


def refuse_options(given: dict[str, Any]) -> None:
    """Refuse options that only files have."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name}: expected none for the name of a data set, whose columns are known; got {value}")


def describe_files(names: Sequence[str], given: dict[str, Any], sets: Sequence[str] | None = None) -> Any:
    """The description of the user's own files, read as `load_tables` reads them."""
    from sirgcn.cli.configured import Asked

    if len(names) > len(FILES):
        raise ValueError(f"files: expected at most {len(FILES)} ({', '.join(FILES)}), got {len(names)}")
    missing = [name for name in names if not Path(name).is_file()]
    if missing:
        raise ValueError(f"{missing[0]}: expected a file, there is none of this name")
    tables: dict[str, Any] = dict(zip(FILES, names, strict=False))
    return Asked(tables | given).with_sets(sets).task().describe()


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


@app.command("convert")
def data_convert(
    edges: Annotated[Path, typer.Argument(help="A file or a folder of files, CSV or Parquet, with a row per edge.")],
    nodes: Annotated[Path | None, typer.Argument(help="The same with a row per node. Default: no features.")] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="The folder of the new graph.")] = Path("graph"),
    memory: Annotated[str, typer.Option("--memory", metavar="4GB", help="The working set.")] = "1GB",
    ends: Annotated[
        str, typer.Option("--ends", metavar="COL,COL", help="The columns with both ends of an edge.")
    ] = "source,target",
    number: Annotated[str | None, typer.Option("--id", metavar="COL", help="The number of a node, from 0 on.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="COL", help="The label of a node.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a graph on disk from tables larger than memory. The same command goes on where it was stopped.

    All other columns of the nodes are features, and numbers.

    Example:

        sirgcn data convert edges.parquet nodes.parquet --id number --out graph --memory 4GB
    """
    from sirgcn.scale import Ends, Nodes, convert

    source, comma, target = ends.partition(",")
    if not comma or not source or not target or "," in target:
        raise ValueError(f"--ends: expected two columns such as source,target, got {ends!r}")
    if nodes is None and (number is not None or label is not None):
        raise ValueError("--id, --label: expected a table of nodes, which has these columns, got edges alone")
    table = None if nodes is None else Nodes(nodes, number, label)
    with resumable():
        made = convert(folder, edges, table, Ends(source, target), memory=memory)
    found = {"folder": str(folder), "nodes": made.num_nodes, "edges": made.num_edges, "features": made.width}
    if as_json:
        print(json.dumps(found))
        return
    sizes = ", ".join(f"{found[name]:,} {name}" for name in ("nodes", "edges", "features"))
    out.print(f"{folder}: {sizes}", markup=False, highlight=False, soft_wrap=True)
