"""Trained models on tables with targets, and models of several folders side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from sirgcn.data.splits import Split
from sirgcn.data.tables import Inputs
from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.evaluation import evaluate
from sirgcn.model.fitted import Model
from sirgcn.model.folder import load
from sirgcn.model.predicting import read_inputs
from sirgcn.model.problem import Problem
from sirgcn.model.verified import FolderError
from sirgcn.strict import ConfigError


@dataclass(frozen=True, eq=False)
class Judged:
    """A model on tables with targets.

    Args:
        evaluation: the scores, as `Evaluation.to_dict` gives them.
        notes: what the reader should know about the rows.
    """

    evaluation: dict[str, Any]
    notes: tuple[str, ...] = ()


def evaluate_tables(
    model: Model,
    tables: Mapping[str, Any],
    part: Literal["all", "test"] = "all",
    level: float = 0.9,
    strict: bool = False,
) -> Judged:
    """Evaluate a model on tables with targets.

    Args:
        model: the model.
        tables: the arguments nodes, edges and graphs of `load_tables`.
        part: "test" takes the rows whose ids are in the test part of the training.
        level: the level of sets and intervals.
        strict: whether unknown categories are refused.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model import FitSettings, TrainSettings, train
    >>> nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})
    >>> edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    >>> model = train(load_tables(nodes, edges), TrainSettings(FitSettings("fast"), controls=False))
    >>> evaluate_tables(model, {"nodes": nodes, "edges": edges}, part="test").evaluation["rows"]
    8
    """
    inputs = read_inputs(model, **_arguments(tables), unknown="raise" if strict else "other", targets=True)
    task = task_of(model, inputs)
    rows, notes = rows_of(task, "train"), []
    known = _places(model, inputs, "train", "val", "calibration")
    if part == "test":
        tested = _places(model, inputs, "test")
        if not tested:
            raise ConfigError("part: expected rows of the test part of the training in these files, got none")
        keep = torch.tensor(sorted(tested))
        rows = rows_of(_with_items(task, keep), "train")
    elif known and model.about.get("split", {}).get("by") == "ids":
        notes.append(
            f"{len(known):,} of the rows have ids that training used; part test takes only those it did not see"
        )
    return Judged(evaluate(model, task, rows, level=level).to_dict(), tuple(notes))


def _arguments(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {"nodes": tables.get("nodes"), "edges": tables.get("edges"), "graphs": tables.get("graphs")}


def task_of(model: Model, inputs: Inputs) -> Task:
    """Inputs with targets as a task whose training part holds everything that has a label."""
    problem = model.problem
    details = {"ids": inputs.ids, "graph_ids": inputs.graph_ids, "edge_rows": inputs.edge_rows, "added": inputs.added}
    everything = Split(torch.arange(_count(inputs)), *(torch.empty(0, dtype=torch.int64) for _ in range(2)))
    return Task(
        problem.name,
        inputs.graphs,
        problem.schema,
        (everything,),
        problem.loss,
        problem.metric,
        classes=problem.classes,
        details=details,
    )


def _count(inputs: Inputs) -> int:
    graphs = inputs.graphs
    if graphs.num_graphs > 1 or graphs.level == "graph":
        return graphs.num_graphs
    return graphs.num_nodes if graphs.level == "node" else graphs.num_edges


def _with_items(task: Task, items: torch.Tensor) -> Task:
    from dataclasses import replace

    empty = items.new_empty(0)
    return replace(task, splits=(Split(items, empty, empty),))


def _places(model: Model, inputs: Inputs, *parts: str) -> set[int]:
    """The items of tables that belong to these parts of the training's split, by their ids."""
    split = model.about.get("split", {})
    wanted = {str(name) for part in parts for name in split.get(part, ())}
    names: Any = {"nodes": inputs.ids, "graphs": inputs.graph_ids, "edges": inputs.edge_rows}.get(split.get("of", ""))
    if names is None:
        return set()
    return {place for place, name in enumerate(names.tolist()) if str(name) in wanted}


def compare_models(folders: Sequence[Path]) -> dict[str, Any]:
    """The test scores of the models of several folders, the best first, as JSON values.

    Args:
        folders: the folders; their models have the same targets.

    Raises:
        FolderError: a folder is no whole model, or is of another task.
    """
    models = [(folder, load(folder)) for folder in folders]
    first = models[0][1].problem
    for folder, model in models[1:]:
        _check_task(folder, model.problem, folders[0], first)
    rows = [_row(folder, model) for folder, model in models]
    tested = {tuple(map(str, model.about.get("split", {}).get("test", ()))) for _, model in models}
    notes = [] if len(tested) == 1 else ["the models have different test parts, so their scores are no fair comparison"]
    titles = {name: entry["title"] for row in reversed(rows) for name, entry in row["scores"].items()}
    metric = first.metric
    sign = -1 if first.metric_function.maximise else 1
    scored = [row for row in rows if metric in row["scores"]]
    scored.sort(key=lambda row: sign * row["scores"][metric]["value"])
    rest = [row for row in rows if metric not in row["scores"]]
    return {"metric": metric, "titles": titles, "notes": notes, "models": scored + rest}


def _check_task(folder: Path, problem: Problem, first_folder: Path, first: Problem) -> None:
    """Refuse a model that predicts something else than the first one does."""

    def told(one: Problem) -> str:
        return f"{one.level}, {one.sort}, {', '.join(one.targets)}"

    if (told(problem), problem.classes) != (told(first), first.classes):
        raise FolderError(
            f"{folder}: expected a model of the task of {first_folder} ({told(first)}), got one of {told(problem)}"
        )


def _row(folder: Path, model: Model) -> dict[str, Any]:
    parameters = sum(p.numel() for member in model.members for p in member.network.parameters())
    scores = model.about.get("evaluation", {}).get("scores", {})
    return {"model": str(folder), "scores": scores, "networks": len(model.members), "parameters": parameters}
