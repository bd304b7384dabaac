"""A trained model behind HTTP: tables as JSON go in, predictions come out.

Start it on this machine (`pip install "sirgcn[serve]"`):

    SIRGCN_MODEL=model uvicorn --app-dir examples/serving app:app --host 127.0.0.1 --port 8000

and ask it:

    curl -s 127.0.0.1:8000/predict -H "content-type: application/json" -d @request.json
"""

import os
from typing import Annotated, Any

import pandas as pd
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from sirgcn.model import Model, load, predict
from sirgcn.model.explain import explain
from sirgcn.model.predicting import read_inputs

Row = dict[str, str | int | float | bool | None]

MOST_ROWS = 100_000
"""The most rows of a table in a request."""


class Tables(BaseModel):
    """The tables of a request, as lists of rows: nodes and edges, or molecules as nodes with a column of SMILES."""

    nodes: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
    edges: Annotated[list[Row], Field(max_length=MOST_ROWS)] | None = None
    level: Annotated[float, Field(gt=0, lt=1)] | None = None


class Question(Tables):
    """Tables, and the row whose prediction is explained."""

    row: str


def make_app(folder: str) -> FastAPI:
    """The application for the model of a folder, which is read and checked once."""
    model, app = load(folder), FastAPI(title="sirgcn")

    @app.get("/health")
    def health() -> dict[str, Any]:
        problem = model.problem
        return {"name": problem.name, "level": problem.level, "targets": problem.targets, "classes": problem.classes}

    # Plain functions: FastAPI runs them in threads, so that a long prediction does not block the others.
    @app.post("/predict")
    def predictions(tables: Tables) -> list[dict[str, Any]]:
        try:
            frame = predict(model, *_frames(model, tables), level=tables.level)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        plain = frame.astype(object).where(frame.notna(), None)
        return [dict(zip(plain.columns, row, strict=True)) for row in plain.itertuples(index=False, name=None)]

    @app.post("/explain")
    def explanation(question: Question) -> dict[str, Any]:
        try:
            inputs = read_inputs(model, *_frames(model, question), unknown="other")
            return explain(model, inputs, question.row, masks=False).to_dict()
        except ValueError as error:
            raise HTTPException(422, str(error)) from None

    return app


def _frames(model: Model, tables: Tables) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """The tables as frames. A list without edges still has the columns of their ends."""
    nodes = pd.DataFrame(tables.nodes)
    if tables.edges is None:
        return nodes, None
    assert model.preprocessing is not None
    roles = model.preprocessing.roles
    ends = [name for name in (roles.source, roles.destination) if name is not None]
    return nodes, pd.DataFrame(tables.edges, columns=None if tables.edges else ends)


if "SIRGCN_MODEL" in os.environ:
    app = make_app(os.environ["SIRGCN_MODEL"])
