"""`sirgcn export`: a model for other programs."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from sirgcn.cli.outcome import print_lines
from sirgcn.cli.shared import ShortJson
from sirgcn.cli.use import Folder


def export(
    model: Folder,
    to: Annotated[
        Literal["pt2", "onnx", "script", "hub"],
        typer.Option("--to", metavar="FORM", help="pt2, onnx, script or hub."),
    ],
    out_: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="For hub: USER/NAME.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="Of another hub.")] = None,
    as_json: ShortJson = False,
) -> None:
    """Write a model for programs without sirgcn, or upload it to a hub.

    The outputs are final. A hub needs `hf auth login` or $HF_TOKEN.

    Example: sirgcn export model --to onnx --out model.onnx
    """
    if to == "hub":
        from sirgcn.model.hub import push_to_hub

        address = push_to_hub(model, out_, private=private, endpoint=endpoint)
        print_lines(json.dumps({"address": address}) if as_json else f"uploaded: {address}")
        return
    if private or endpoint is not None:
        raise ValueError(f"--private, --endpoint: expected none of them with --to {to}, which uploads nothing")
    from sirgcn.model.export import description
    from sirgcn.model.export import export as written
    from sirgcn.model.folder import load

    found = load(model)
    path = written(found, Path(out_), to)
    about = description(found)
    if as_json:
        print(json.dumps({"file": str(path), **about}))
        return
    print_lines(f"written: {path}", f"inputs: {', '.join(about['inputs'])}", f"outputs: {', '.join(about['outputs'])}")
