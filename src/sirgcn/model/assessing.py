"""The honest evaluation of a trained model: its scores, the controls beside it, what they say, a map of its rows."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from sirgcn.data.task import Task
from sirgcn.engine.controls import rows_of
from sirgcn.model.calibration import outputs_of
from sirgcn.model.controls import CONTROLS, ControlSettings, run_controls
from sirgcn.model.embedding import embed
from sirgcn.model.evaluation import evaluate_outputs, plain
from sirgcn.model.explain import explain
from sirgcn.model.fitted import Model
from sirgcn.model.verdict import embedding_map, first_sentence

_MAPPED = 600  # rows of a map
_EXPLAINED, _NAMED = 5, 3  # mistakes, and effects of each
_PASSES = ("mlp", "gcn")  # controls that pass over the whole graph


def assess(
    model: Model,
    task: Task,
    calibration_rows: Tensor,
    controls: ControlSettings | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Evaluate a model on the test part of a task, beside controls, as JSON values.

    The values are those of `Evaluation.to_dict`, and besides `controls`, `sentence` and `map`.

    Args:
        model: the model with its calibration.
        task: the data that it was fitted on, whose validation part lacks the rows of the calibration.
        calibration_rows: these rows, on which controls are calibrated too.
        controls: how controls are made; None makes none.
        told: called with what is done, in sentences.

    >>> from sirgcn.data import load
    >>> from sirgcn.engine.network import default_config
    >>> from sirgcn.model import Member, Problem
    >>> from sirgcn.nn import build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=50)
    >>> config = default_config(task)
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> found = assess(model, task, torch.empty(0, dtype=torch.int64), ControlSettings(("majority",)))
    >>> [control["title"] for control in found["controls"]]
    ['Mean']
    """
    rows = rows_of(task, "test")
    if not len(rows):
        return {}
    told("evaluating the test part")
    outputs = outputs_of(model, task, rows)
    evaluation = evaluate_outputs(model.problem, outputs, task, rows, model.calibration)
    found = evaluation.to_dict()
    if controls is not None:
        if model.whole is not None:
            names = tuple(name for name in controls.names or CONTROLS if name not in _PASSES)
            controls = replace(controls, names=names)
            told("no map, explanations or controls that are networks: they need passes over the whole graph")
        is_scaled = model.calibration is not None and model.problem.sort != "numbers"
        scaled = model.calibration.scaled(outputs) if is_scaled and model.calibration is not None else outputs
        results = run_controls(
            task,
            scaled,
            rows,
            controls,
            smiles=task.details.get("smiles"),
            calibration_rows=calibration_rows,
            told=lambda title: told(f"fitting the control {title}"),
        )
        found["controls"] = [result.to_dict() for result in results]
        found["sentence"] = first_sentence(evaluation, results)
    if model.whole is not None:
        return found
    found["map"] = plain(_map(model, task, rows))
    told("explaining the worst mistakes")
    found["mistakes"] = explained(model, task, found["mistakes"])
    return found


def explained(model: Model, task: Task, mistakes: list[dict[str, Any]], seconds: float = 10.0) -> list[dict[str, Any]]:
    """The worst mistakes, the first few of them with an `explanation`: the columns, edges and nodes that moved it.

    Edges are not explained. What cannot be explained, or not in time, stays as it is.

    Args:
        model: the model.
        task: the data.
        mistakes: as an evaluation lists them.
        seconds: no explanation begins after this time.
    """
    started, found = time.perf_counter(), []
    for place, mistake in enumerate(mistakes):
        in_time = time.perf_counter() - started < seconds
        if place < _EXPLAINED and in_time and task.level != "edge":
            found.append(mistake | _reasons(model, task, mistake))
        else:
            found.append(mistake)
    return found


def _reasons(model: Model, task: Task, mistake: dict[str, Any]) -> dict[str, Any]:
    row = mistake.get("id", mistake["row"])
    target = mistake.get("target") if len(model.problem.targets) > 1 else None
    try:
        made = explain(model, task, row, target, most=_NAMED, masks=False, draws=0)
    except (ValueError, RuntimeError) as error:
        return {"explanation": {"note": str(error)}}
    effects = {
        name: [asdict(effect) for effect in getattr(made, name)[:_NAMED]] for name in ("columns", "edges", "nodes")
    }
    return {"explanation": plain({"unit": made.unit, "prediction": made.prediction, **effects})}


def _map(model: Model, task: Task, rows: Tensor) -> dict[str, Any]:
    """A map of some test rows by their embeddings."""
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:_MAPPED].sort().values
    chosen, graphs = rows[drawn], task.graphs
    if graphs.num_graphs == 1:
        return dict(embedding_map(embed(model, graphs)[chosen], task, chosen))
    if task.level == "graph":
        return dict(embedding_map(embed(model, graphs.select(chosen)), task, chosen))
    # Nodes and edges of many graphs: those of the graphs that the first rows are in.
    pointer = graphs.pointers()[0 if task.level == "node" else 1]
    graph = torch.searchsorted(pointer, chosen[:_MAPPED], right=True) - 1
    needed, place = graph.unique(return_inverse=True)
    first = torch.cat([pointer.new_zeros(1), pointer.diff()[needed].cumsum(0)])
    vectors = embed(model, graphs.select(needed))[first[place] + chosen - pointer[graph]]
    return dict(embedding_map(vectors, task, chosen))
