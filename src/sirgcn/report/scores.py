"""What a table of scores says: agreement with the paper, its ranking, where SIR-GCN is beaten, at what cost."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from statistics import median

from sirgcn.report.cells import OURS, Cell, Comparison
from sirgcn.report.claims import Column
from sirgcn.report.runtimes import span
from sirgcn.report.tables import MARKS

_TIMED_IN = {1: "Table 6", 2: "Table 7"}
"""The table in which the models of a table were timed side by side; those of the others are in that of the steps."""


def score_reading(comparison: Comparison) -> list[str]:
    """What our figures of a table say beside the paper's, in sentences; nothing where nothing was scored."""
    run = [cell for cell in comparison.cells if cell.values]
    if not run:
        return []
    return [*_agreement(run), *_outliers(run), *_ranking(comparison), *_beaten(comparison), *_cost(comparison)]


def _agreement(run: list[Cell]) -> list[str]:
    sentences = []
    for reduced, name in ((False, "In full"), (True, "Reduced")):
        cells = [cell for cell in run if cell.is_reduced == reduced and cell.verdict is not None]
        outside = [cell for cell in cells if cell.verdict != "inside"]
        if cells:
            text = f"{name}: {len(cells) - len(outside)} of {len(cells)} cells lie within the published mean ± 2 std"
            sentences.append(f"{text}; not {'; '.join(map(_named, outside))}." if outside else f"{text}.")
    return sentences


def _outliers(run: list[Cell]) -> list[str]:
    """Medians of cells whose runs scatter, and the runs at more than ten times that."""
    found = []
    for cell in run:
        if len(cell.values) > 2 and cell.std > abs(cell.mean) / 2:
            middle, digits = median(cell.values), max(cell.decimals, 4)
            text = f"{cell.model}, {cell.column.name}: median {middle:.{digits}f}"
            far = [run for run in cell.runs if abs(run.value) > 10 * abs(middle)]
            above = ", ".join(f"{run.value:.{digits}f} (seed {run.seed})" for run in far)
            found.append(f"{text}, more than ten times that {above}" if far else text)
    return [f"Where the standard deviation is more than half of the mean: {'; '.join(found)}."] if found else []


def _named(cell: Cell) -> str:
    return f"{cell.model}, {cell.column.name}: {_figure(cell)}, {cell.verdict} than the published {cell.printed}"


def _figure(cell: Cell) -> str:
    """Ours with the number of runs, so that one run is seen to be one."""
    return f"{cell.ours} ({len(cell.values)}){MARKS['reduced'] * cell.is_reduced}"


def _ranking(comparison: Comparison) -> list[str]:
    """Pairs of models, column by column, whose order the paper's rounded means tell."""
    kept, level, turned = 0, dict[str, list[str]](), dict[str, list[str]]()
    for column in comparison.columns:
        for one, other in _pairs(comparison, column):
            if one.claim is None or other.claim is None or _claimed(one) == _claimed(other):
                continue
            first, second = (one, other) if _better(one, other, _claimed) else (other, one)
            place = _place(first)
            if _better(second, first, _measured):
                turned.setdefault(place, []).append(f"{second.model} before {first.model}")
            elif _better(first, second, _measured):
                kept += 1
            else:
                level.setdefault(place, []).append(f"{first.model} and {second.model}")
    pairs = kept + sum(len(names) for groups in (level, turned) for names in groups.values())
    if not pairs:
        return []
    text = f"Of {pairs} pairs of models that the paper ranks, {kept} are in the same order here"
    for groups, what in ((level, "level"), (turned, "the other way round")):
        places = [f"{', '.join(names)} ({place})" for place, names in groups.items()]
        text += f"; {what}: {', '.join(places)}" if places else ""
    return [f"{text}."]


def _beaten(comparison: Comparison) -> list[str]:
    beaten, places = [], dict[str, None]()
    for column in comparison.columns:
        for pair in _pairs(comparison, column):
            other, ours = sorted(pair, key=lambda cell: cell.model == OURS)
            if ours.model == OURS:
                places[_place(ours)] = None
                if _better(other, ours, _measured):
                    beaten.append(f"{other.model} ({column.name}: {_figure(other)} against {_figure(ours)})")
    if not places:
        return []
    return [f"{OURS} is beaten by {', '.join(beaten)}." if beaten else f"{OURS} is not beaten in {', '.join(places)}."]


def _cost(comparison: Comparison) -> list[str]:
    ours = {cell.column: _parameters(cell) for cell in comparison.cells if cell.model == OURS}
    beside = []
    for line in comparison.lines:
        pairs = ((_parameters(cell), ours.get(cell.column)) for cell in line.cells)
        ratios = [theirs / of_ours for theirs, of_ours in pairs if theirs and of_ours]
        if ratios and line.row.model != OURS:
            beside.append(f"{line.row.model} {span(ratios)}x")
    if not beside:
        return []
    where = _TIMED_IN.get(comparison.table.number or 0, "the table of training steps")
    own = sorted({count for count in ours.values() if count})
    size = f"{own[0]:,}" if len(own) == 1 else f"{own[0]:,} to {own[-1]:,}"
    return [
        f"Times are compared in {where}, where the models take turns.",
        f"Parameters: {OURS} {size}; beside it: {', '.join(beside)}.",
    ]


def _parameters(cell: Cell) -> int | None:
    return next((run.parameters for run in cell.runs if run.parameters), None)


def _pairs(comparison: Comparison, column: Column) -> list[tuple[Cell, Cell]]:
    """Two models each that were run in a column in the same form.

    Where one was run in full and the other was not, reduced runs of the first stand in if their settings are the same.
    """
    cells = [cell for cell in comparison.cells if cell.column == column and cell.runs]
    found = ((_like(one, other), _like(other, one)) for one, other in combinations(cells, 2))
    # The mean of nothing, and of a score that is not a number, is neither better nor worse nor level.
    return [(one, other) for one, other in found if not math.isnan(one.mean + other.mean)]


def _like(cell: Cell, other: Cell) -> Cell:
    """The cell in the form of the other; without runs where there are none of it."""
    if cell.is_reduced or not other.is_reduced:
        return cell
    wanted = other.runs[0]
    same = (
        run
        for run in cell.set_aside
        if run.reduced and (run.config.get("train"), run.making) == (wanted.config.get("train"), wanted.making)
    )
    return replace(cell, runs=tuple(same), left_out=())


def _place(cell: Cell) -> str:
    """The column's name, marked for reduced runs."""
    return f"{cell.column.name}{MARKS['reduced'] * cell.is_reduced}"


def _better(one: Cell, other: Cell, value: Callable[[Cell], float]) -> bool:
    """Whether `one` is better by more than half a unit of the last digit that the table prints."""
    difference = value(one) - value(other)
    unit = 10.0 ** -min(one.decimals, other.decimals)
    return (difference if one.column.higher_is_better else -difference) > unit / 2


def _claimed(cell: Cell) -> float:
    assert cell.claim is not None
    return cell.claim.mean


def _measured(cell: Cell) -> float:
    return cell.mean
