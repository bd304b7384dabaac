"""`sirgcn explain`: what moved the prediction of one row."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sirgcn.cli.shared import ShortJson, err, out
from sirgcn.cli.use import Files, Folder, GraphsFile

_FORMS = (".svg", ".html", ".json", ".csv")


def explain(
    model: Folder,
    files: Files,
    row: Annotated[str, typer.Option("--row", metavar="ID", help="Of a row; A->B for an edge.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="A class; default: the predicted one.")
    ] = None,
    out_: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A .svg drawing, or .html, .json, .csv.")
    ] = None,
    masks: Annotated[bool, typer.Option("--masks/--no-masks", help="PyG's explainer, too.")] = True,
    graphs: GraphsFile = None,
    as_json: ShortJson = False,
) -> None:
    """Tell which neighbours and which columns moved a prediction, strongest first.

    Example: sirgcn explain model nodes.csv edges.csv --row A017 --out A017.svg
    """
    from sirgcn.cli.configured import check_files
    from sirgcn.files import write_atomic
    from sirgcn.model.explain import explain as made
    from sirgcn.model.folder import load
    from sirgcn.model.predicting import frame_text, read_inputs

    if out_ is not None and out_.suffix not in _FORMS:
        raise ValueError(f"--out: expected a name that ends in {', '.join(_FORMS)}, got {out_.name}")
    check_files(files, graphs)
    found = load(model)
    nodes, edges = (*files, None)[:2]
    inputs = read_inputs(found, nodes, edges, graphs=graphs, unknown="other")
    explanation = made(found, inputs, row, target, masks=masks)
    if out_ is not None:
        texts: dict[str, Callable[[], str]] = {
            ".svg": explanation.to_svg,
            ".html": explanation.to_html,
            ".json": explanation.to_json,
            ".csv": lambda: frame_text(explanation.to_frame("edges")),
        }
        write_atomic(out_, texts[out_.suffix]().encode())
    if as_json:
        print(explanation.to_json())
        return
    out.print(str(explanation), markup=False, highlight=False, soft_wrap=True)
    if out_ is not None:
        err.print(f"written: {out_}", markup=False, highlight=False, soft_wrap=True)
