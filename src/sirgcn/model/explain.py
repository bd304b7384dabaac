"""`explain`: which neighbours and which columns moved a prediction."""

from collections.abc import Sequence

import torch

from sirgcn.data.graphs import Graphs
from sirgcn.data.tables import Inputs
from sirgcn.data.task import Task
from sirgcn.model.effects import (
    DeletionTest,
    Effects,
    Link,
    Links,
    Part,
    column_effects,
    deletion_of,
    inputs_of,
    link_effects,
    node_effects,
)
from sirgcn.model.explanation import ColumnEffect, EdgeEffect, Explanation, NodeEffect
from sirgcn.model.fitted import Model
from sirgcn.model.masks import Masks, masks_of
from sirgcn.model.messages import messages_of
from sirgcn.model.naming import NamedColumn, Names, names_of, references_of
from sirgcn.model.removal import Change, Neighbourhood, neighbourhood_of, outputs_after
from sirgcn.model.scoring import Score, score_of
from sirgcn.model.sketch import sketch
from sirgcn.strict import Count, Size, checked


@checked
def explain(
    model: Model,
    source: Inputs | Task | Graphs,
    row: str | int,
    target: str | None = None,
    *,
    most: Size = 30,
    masks: bool = True,
    draws: Count = 20,
    seed: Count = 0,
) -> Explanation:
    r"""What moved the prediction of one row: which edges, which columns and, for a graph, which nodes.

    The effect of an edge is the score of the prediction minus the score without the edge. The score is the log-odds of
    the class, or the number. So effects are no estimates: the model is asked again with each edge taken away. In a very
    large neighbourhood, that is done for the edges that the derivative of the score by their weights points to.
    The effect of a column is the same with the mean (or the most frequent category) in place of its values.

    Args:
        model: the model.
        source: new tables from `apply_tables`, a task, or graphs.
        row: the id of the row; `A->B` for an edge from A to B. A number where rows have no ids.
        target: a class, label or target; default: the most probable class, or the first target.
        most: how many edges, columns and nodes are told.
        masks: whether the masks of PyG's GNNExplainer are learned too.
        draws: how many sets of random edges the deletion test removes.
        seed: of masks and draws.

    Raises:
        ValueError: no row has this id; the error names the nearest ones.

    >>> import pandas as pd
    >>> from sirgcn.data import load_tables
    >>> from sirgcn.model import FitSettings, fit
    >>> nodes = pd.DataFrame({"id": range(20), "size": [1.0, 2.0] * 10, "label": ["x", "y"] * 10})
    >>> edges = pd.DataFrame({"source": range(18), "target": range(2, 20)})
    >>> task = load_tables(nodes, edges)
    >>> found = explain(fit(task, FitSettings("fast")), task, 7, masks=False)
    >>> found.row, found.edges[0].target, found.columns[0].column
    ('7', '7', 'size')
    """
    graphs, names = names_of(source, model.preprocessing)
    count = {"node": graphs.num_nodes, "edge": graphs.num_edges, "graph": len(graphs)}[graphs.level]
    number = names.find(graphs.level, row, count)
    near = neighbourhood_of(model, graphs, number)
    outputs = outputs_after(model, near, [Change()])
    score = score_of(model, outputs, target)
    links = Links(near, names.directed)
    effects = link_effects(score, near, links)
    learned = masks_of(score, near, seed=seed) if masks else Masks()
    edges, strongest = _edges(score, near, names, graphs, (links, effects), learned, most)
    columns = column_effects(score, near, names.of(), references_of(graphs))
    of_nodes = node_effects(score, near)
    notes = [learned.note] if learned.note else []
    if len(effects.places) < len(links):
        notes.append(f"of {len(links):,} edges, the {len(effects.places)} were tried that the derivative points to")
    return Explanation(
        names.title(graphs, number),
        graphs.level,
        score.name,
        float(score.shown(score(outputs))[0]),
        score.unit,
        model.problem.sort,
        edges,
        _columns(score, near, columns, learned, most),
        _nodes(score, near, names, graphs, of_nodes, most),
        deletion_of(score, near, links, effects, draws, seed),
        tuple(notes),
        sketch(near, lambda node: names.node(graphs, int(near.nodes[node]), near.first), links, strongest, of_nodes),
    )


def deletion_test(
    model: Model,
    source: Inputs | Task | Graphs,
    row: str | int,
    target: str | None = None,
    *,
    draws: int = 20,
    seed: int = 0,
) -> DeletionTest | None:
    """Whether the edges that `explain` names matter more than random ones of the same neighbourhood.

    The strongest edges of one direction, at most five and at most a quarter of all, are taken away together; then as
    many random other ones, several times. None stands for a neighbourhood of fewer than two edges.

    Args:
        model: the model.
        source: as in `explain`.
        row: as in `explain`.
        target: as in `explain`.
        draws: how many sets of random edges are removed.
        seed: of the draws.

    >>> from sirgcn.data import load
    >>> from sirgcn.model import Member, Problem
    >>> from sirgcn.nn import NetConfig, build_net
    >>> task = load("hetero_edge_count", c=2, num_graphs=10)
    >>> config = NetConfig.of(2, 8, 1, num_layers=1, encoder="embedding", pool="sum")
    >>> model = Model(Problem.of(task), (Member(config, build_net(config).eval()),))
    >>> deletion_test(model, task, 3).passed
    True
    """
    graphs, names = names_of(source, model.preprocessing)
    count = {"node": graphs.num_nodes, "edge": graphs.num_edges, "graph": len(graphs)}[graphs.level]
    near = neighbourhood_of(model, graphs, names.find(graphs.level, row, count))
    score = score_of(model, outputs_after(model, near, [Change()]), target)
    links = Links(near, names.directed)
    return deletion_of(score, near, links, link_effects(score, near, links), draws, seed)


def _strongest(effects: Effects, most: int) -> list[tuple[int, float, float]]:
    """The number, the effect and the score without each thing, strongest first."""
    found = list(zip(effects.places, effects.effect, effects.without, strict=True))
    return sorted(found, key=lambda entry: -abs(entry[1]))[:most]


def _edges(
    score: Score,
    near: Neighbourhood,
    names: Names,
    graphs: Graphs,
    found: tuple[Links, Effects],
    masks: Masks,
    most: int,
) -> tuple[tuple[EdgeEffect, ...], list[tuple[Link, float]]]:
    """The strongest edges as they are told, and as they are drawn."""
    links, effects = found
    strongest = _strongest(effects, most)
    chosen = [links[place] for place, _, _ in strongest]
    messages = messages_of(score.model, near, [link.edges[0] for link in chosen])
    told = []
    for number, (link, (_, effect, without)) in enumerate(zip(chosen, strongest, strict=True)):
        source, target = (names.node(graphs, int(near.nodes[end]), near.first) for end in (link.source, link.target))
        told.append(
            EdgeEffect(
                source,
                target,
                int(near.hops[link.target]),
                effect,
                _shown(score, without),
                None if messages is None else messages.norm[number],
                None if messages is None else messages.contextual[number],
                None if messages is None else messages.layer[number],
                None if masks.edges is None else float(masks.edges[list(link.edges)].mean()),
            )
        )
    return tuple(told), [(link, effect) for link, (_, effect, _) in zip(chosen, strongest, strict=True)]


def _columns(
    score: Score,
    near: Neighbourhood,
    found: Sequence[tuple[Part, NamedColumn, float, float]],
    masks: Masks,
    most: int,
) -> tuple[ColumnEffect, ...]:
    told = []
    for part, column, effect, without in sorted(found, key=lambda entry: -abs(entry[2]))[:most]:
        rows = list(part.rows)
        inputs = inputs_of(near)[part.of]
        assert inputs is not None
        value = column.value(inputs[rows[0]]) if len(rows) == 1 else ""
        mask = None
        if masks.columns is not None and part.of == "nodes":
            mask = float(masks.columns[rows, column.first : column.first + column.width].mean())
        told.append(ColumnEffect(column.name, part.name, value, effect, _shown(score, without), mask))
    return tuple(told)


def _nodes(
    score: Score, near: Neighbourhood, names: Names, graphs: Graphs, effects: Effects, most: int
) -> tuple[NodeEffect, ...]:
    return tuple(
        NodeEffect(names.node(graphs, int(near.nodes[place]), near.first), effect, _shown(score, without))
        for place, effect, without in _strongest(effects, most)
    )


def _shown(score: Score, value: float) -> float:
    return float(score.shown(torch.tensor([value]))[0])
