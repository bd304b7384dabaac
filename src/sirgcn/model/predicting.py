"""`predict`: from new tables to a frame with a prediction in every row."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sirgcn.data.tables import Inputs, apply_tables
from sirgcn.data.tables.features import Unknown
from sirgcn.files import write_atomic
from sirgcn.model.fitted import Model
from sirgcn.spreadsheet import csv_text
from sirgcn.strict import ConfigError, checked


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions, and what was odd about their inputs.

    Args:
        frame: one row for each row of the input, see `predict`.
        unseen: for each column, how many values training had not seen; they were read as other or missing.
        dropped: how many rows were left out, with their reasons in a file.

    >>> Predictions(pd.DataFrame({"id": ["a"], "prediction": [1.5]})).dropped
    0
    """

    frame: pd.DataFrame
    unseen: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0


@checked
def predict(
    model: Model,
    nodes: Any = None,
    edges: Any = None,
    *,
    graphs: Any = None,
    level: float | None = None,
    unknown: Unknown = "other",
    on_error: Literal["raise", "skip"] = "raise",
    dropped: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """A frame with a prediction for each row of new tables, which are read as those of the training were.

    It has the column `id`, then `prediction`. For classes it has `probability_<class>`, and the classes of the set as
    JSON in `set` if a level is given. For numbers it has `lower` and `upper` if a level is given. Several targets have
    these columns once for each, `prediction_<target>` and so on. Nodes of several graphs also have their `graph`, and
    edges the ids of their ends, `source` and `target`; the id of an edge is its row in the table, counted from 1.

    Args:
        model: the trained model.
        nodes: as in `load_tables`: a path, a frame, a whole graph, or a table of molecules.
        edges: as in `load_tables`.
        graphs: as in `load_tables`.
        level: the share of rows whose set or interval holds the truth, such as 0.9; None: neither sets nor intervals.
        unknown: "other" reads categories that training has not seen as other ones; "raise" refuses them.
        on_error: "skip" leaves out rows that cannot be used.
        dropped: the file for these rows and the reasons.

    Raises:
        DataError: a table cannot be used; the error names the file, column, row and value.

    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model import FitSettings, fit
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> model = fit(load_tables(nodes, edges), FitSettings("fast"))
    >>> found = predict(model, nodes.drop(columns="label"), edges)
    >>> list(found.columns), len(found)
    (['id', 'prediction', 'probability_x', 'probability_y'], 20)
    """
    inputs = read_inputs(model, nodes, edges, graphs=graphs, unknown=unknown, on_error=on_error, dropped=dropped)
    return frame_of(model, inputs, model.outputs(inputs.graphs), level)


def read_inputs(model: Model, nodes: Any, edges: Any = None, **options: Any) -> Inputs:
    """New tables as graphs, read as those of the training were.

    Args:
        model: the model.
        nodes: as in `load_tables`.
        edges: as in `load_tables`.
        options: those of `apply_tables`.
    """
    if model.preprocessing is None:
        raise ConfigError("model: expected one that was trained on tables, got one that was trained on tensors")
    return apply_tables(model.preprocessing, nodes, edges, **options)


def frame_of(model: Model, inputs: Inputs, outputs: Tensor, level: float | None = None) -> pd.DataFrame:
    """The frame of predictions from inputs and the outputs of the model for them, in the order of the tables."""
    names, places = rows_of_table(model, inputs)
    return pd.DataFrame(names | columns_of(model, outputs[torch.from_numpy(places)], level))


def rows_of_table(model: Model, inputs: Inputs) -> tuple[dict[str, Any], Any]:
    """The columns that name the rows of the predicted table, in its order, and the place of each row in the outputs."""
    level = model.problem.level
    if level == "graph":
        ids = inputs.graph_ids
        if ids is None:
            ids = np.array([1], dtype=object)
        return {"id": ids}, np.arange(len(ids))
    if level == "edge":
        places = np.flatnonzero(~inputs.added)
        places = places[np.argsort(inputs.edge_rows[places], kind="stable")]
        source, target = inputs.ids[inputs.graphs.edge_index.numpy()[:, places]]
        return {"id": inputs.edge_rows[places], "source": source, "target": target}, places
    rows = inputs.node_rows
    places = np.arange(len(inputs.ids)) if rows is None else np.argsort(rows, kind="stable")
    names = {"id": inputs.ids[places]}
    if inputs.graph_ids is not None and inputs.graphs.node_ptr is not None:
        graph = np.repeat(inputs.graph_ids, inputs.graphs.node_ptr.diff().numpy())
        names = {"id": names["id"], "graph": graph[places]}
    return names, places


def columns_of(model: Model, outputs: Tensor, level: float | None = None) -> dict[str, Any]:
    """The columns of predictions for some outputs of the model.

    Args:
        model: the model.
        outputs: as `Model.outputs` gives them.
        level: as in `predict`.
    """
    if level is not None:
        check_level(model, level)
    sort = model.problem.sort
    if sort == "numbers":
        return _numbers(model, outputs, level)
    return _labels(model, outputs, level) if sort == "labels" else _classes(model, outputs, level)


def check_level(model: Model, level: float) -> None:
    """Raise for a level that is no share, or a model whose calibration has no rows."""
    if not 0 < level < 1:
        raise ConfigError(f"level: expected a number between 0 and 1, such as 0.9, got {level}")
    if model.calibration is None or not model.calibration.has_sets:
        raise ConfigError(
            "level: expected a model with rows for its calibration, got one without: its validation part was too small"
        )


def probabilities_of(model: Model, outputs: Tensor) -> Tensor:
    """The calibrated probability of each class or label, `[rows, outputs]`."""
    if model.calibration is not None:
        return model.calibration.probabilities(outputs)
    return outputs.softmax(1) if model.problem.sort == "classes" else outputs.sigmoid()


def decided(model: Model, probabilities: Tensor) -> Tensor:
    """The predicted class of each row, or 0 or 1 for each label."""
    if model.calibration is not None:
        return model.calibration.decide(probabilities)
    return probabilities.argmax(1) if model.problem.sort == "classes" else (probabilities >= 0.5).long()


def _classes(model: Model, outputs: Tensor, level: float | None) -> dict[str, Any]:
    probabilities = probabilities_of(model, outputs)
    names = np.array(model.problem.classes, dtype=object)
    found = {"prediction": names[decided(model, probabilities).numpy()]}
    found |= {f"probability_{name}": probabilities[:, place].numpy() for place, name in enumerate(names)}
    if level is not None and model.calibration is not None:
        sets = model.calibration.sets(probabilities, level)
        found["set"] = [json.dumps(names[row].tolist(), ensure_ascii=False) for row in sets.numpy()]
    return found


def _labels(model: Model, outputs: Tensor, level: float | None) -> dict[str, Any]:
    probabilities = probabilities_of(model, outputs)
    chosen = decided(model, probabilities)
    found: dict[str, Any] = {}
    for place, ending in enumerate(endings(model)):
        found[f"prediction{ending}"] = chosen[:, place].numpy()
        found[f"probability{ending}"] = probabilities[:, place].numpy()
    if level is not None and model.calibration is not None:
        sets = model.calibration.sets(probabilities, level).numpy()
        for place, ending in enumerate(endings(model)):
            found[f"set{ending}"] = [json.dumps(np.flatnonzero(row).tolist()) for row in sets[:, place]]
    return found


def _numbers(model: Model, outputs: Tensor, level: float | None) -> dict[str, Any]:
    found = {f"prediction{ending}": outputs[:, place].numpy() for place, ending in enumerate(endings(model))}
    if level is not None and model.calibration is not None:
        lower, upper = model.calibration.interval(outputs, level)
        for place, ending in enumerate(endings(model)):
            found[f"lower{ending}"], found[f"upper{ending}"] = lower[:, place].numpy(), upper[:, place].numpy()
    return found


def endings(model: Model) -> Sequence[str]:
    """What the names of the columns of each target end in: nothing for one target, otherwise its name."""
    targets = model.problem.targets
    return [""] if len(targets) == 1 else [f"_{name}" for name in targets]


def frame_text(frame: pd.DataFrame, header: bool = True) -> str:
    r"""A frame as the text of a CSV file, whose cells no spreadsheet runs as formulas.

    >>> frame_text(pd.DataFrame({"id": ["=1+1"], "prediction": [0.5]}))
    "id,prediction\n'=1+1,0.5\n"
    """
    rows = zip(*(frame[name].tolist() for name in frame.columns), strict=True)
    return csv_text([list(frame.columns), *rows] if header else rows)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame completely or not at all, as Parquet or as CSV by the ending of the file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_frame(pd.DataFrame({"id": ["a"]}), Path(folder) / "found.csv")
    ...     (Path(folder) / "found.csv").read_text()
    'id\\na\\n'
    """
    is_parquet = check_ending(path) == "parquet"
    write_atomic(path, frame.to_parquet(index=False) if is_parquet else frame_text(frame).encode())


def check_ending(path: Path) -> Literal["csv", "parquet"]:
    """The format that the ending of a file to be written says; another ending is refused."""
    if path.suffix in (".parquet", ".pq"):
        if find_spec("pyarrow") is None:
            raise ConfigError(f"{path}: needs pyarrow: pip install 'sirgcn[data]'")
        return "parquet"
    if path.suffix != ".csv":
        raise ConfigError(f"{path}: expected a file that ends in .csv, .parquet or .pq")
    return "csv"
