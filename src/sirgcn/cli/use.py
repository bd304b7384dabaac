"""What a trained model is used for: `sirgcn predict`, `sirgcn evaluate` and `sirgcn embed`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sirgcn.cli.outcome import print_lines, print_scores
from sirgcn.cli.shared import ShortJson, count, err, resumable

if TYPE_CHECKING:
    from sirgcn.data.tables import Inputs

Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a model.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILES", help="Nodes and edges, or molecules.")]
GraphsFile = Annotated[Path | None, typer.Option("--graphs", metavar="FILE", help="A table with a row for each graph.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at a bad row or unknown category.")]
Known = Annotated[
    list[Path] | None, typer.Option("--known", metavar="FILE", help="Twice: the known graph that new nodes join.")
]
OutFile = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="A .csv or .parquet file to write.")]
Level = Annotated[
    float | None, typer.Option("--level", metavar="0.9", help="Add sets or intervals that hold this share.")
]
Memory = Annotated[str | None, typer.Option("--memory", metavar="4GB", help="Compute layer by layer within it.")]


def predict(
    model: Folder,
    files: Files,
    out: OutFile = Path("predictions.csv"),
    level: Level = None,
    graphs: GraphsFile = None,
    known: Known = None,
    memory: Memory = None,
    strict: Strict = False,
    as_json: ShortJson = False,
) -> None:
    """Predict for new files: one row for each row of the input.

    Bad rows go to a file beside it. A stopped prediction of molecules goes on.

    Example: sirgcn predict model nodes.csv edges.csv --out predictions.csv
    """
    from sirgcn.model.folder import load
    from sirgcn.model.streaming import predict_files

    _check(files, graphs, known)
    tables = _tables(files, graphs, known)
    with resumable():
        found = predict_files(load(model), tables, out, level=level, strict=strict, say=_say, memory=memory)
    if as_json:
        print(json.dumps({"predictions": str(out), **found.to_dict()}))
        return
    _tell(found.unseen, found.dropped, found.bad)
    print_lines(f"predictions of {count(found.rows, 'row')}: {out}")


def evaluate(
    model: Folder,
    files: Files,
    part: Annotated[
        Literal["all", "test"], typer.Option("--part", help="All labelled rows, or the test part.")
    ] = "all",
    level: Annotated[float, typer.Option("--level", metavar="0.9", help="Of sets or intervals.")] = 0.9,
    graphs: GraphsFile = None,
    strict: Strict = False,
    as_json: ShortJson = False,
) -> None:
    """Score a model on files with the target: several metrics with intervals.

    Example: sirgcn evaluate model nodes.csv edges.csv --part test
    """
    from sirgcn.model.folder import load
    from sirgcn.model.judging import evaluate_tables

    _check(files, graphs)
    found = evaluate_tables(load(model), _tables(files, graphs), part=part, level=level, strict=strict)
    for note in found.notes:
        err.print(f"warning: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps(found.evaluation))
        return
    print_scores(found.evaluation["scores"])
    print_lines(f"on {count(found.evaluation['rows'], 'labelled row')}")


def embed(
    model: Folder,
    files: Files,
    out: OutFile = Path("embeddings.csv"),
    graphs: GraphsFile = None,
    strict: Strict = False,
    as_json: ShortJson = False,
) -> None:
    """Write the embedding of every row: what the last layer of the networks reads.

    Example: sirgcn embed model nodes.csv edges.csv --out embeddings.parquet
    """
    from sirgcn.model.embedding import embedding_frame
    from sirgcn.model.folder import load
    from sirgcn.model.predicting import check_ending, write_frame
    from sirgcn.model.streaming import bad_file, read_leniently

    check_ending(out)
    _check(files, graphs)
    found = load(model)
    bad = bad_file(out)
    inputs: Inputs = read_leniently(found, _tables(files, graphs), bad, strict)
    frame = embedding_frame(found, inputs)
    write_frame(frame, out)
    if as_json:
        about = {"rows": len(frame), "columns": frame.shape[1] - 1, "dropped": inputs.dropped}
        print(json.dumps({"embeddings": str(out), **about}))
        return
    _tell(inputs.unseen, inputs.dropped, bad)
    print_lines(f"embeddings of {count(len(frame), 'row')}: {out}")


def _check(files: list[Path], graphs: Path | None, known: list[Path] | None = None) -> None:
    from sirgcn.cli.configured import check_files

    check_files(files, graphs)
    if known:
        check_files(known, None)
        if len(known) != 2 or len(files) != 2 or graphs is not None:
            raise ValueError("--known: expected it twice, for nodes and for edges, beside new nodes and new edges")


def _tables(files: list[Path], graphs: Path | None, known: list[Path] | None = None) -> dict[str, Any]:
    tables: dict[str, Any] = dict(zip(("nodes", "edges"), files, strict=False))
    if graphs is not None:
        tables["graphs"] = graphs
    if known:
        tables["known"] = tuple(known)
    return tables


def _say(text: str) -> None:
    err.print(text, markup=False, highlight=False, soft_wrap=True)


def _tell(unseen: Mapping[str, int], dropped: int, bad: Path) -> None:
    """Print what was odd about the inputs."""
    for column, number in unseen.items():
        text = f"warning: {column}: {count(number, 'value')} that training had not seen, read as other or missing"
        err.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if dropped:
        text = f"warning: {count(dropped, 'bad row')} left out; the reasons are in {bad}"
        err.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
