"""What a table of scores says beside the paper's: agreement, the order of the models, where SIR-GCN is beaten, cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Literal

from sirgcn.report.cells import MARKS, OURS, Cell
from sirgcn.report.claims import Column
from sirgcn.report.presenter import Comparison, Line
from sirgcn.report.sheets import Fact, Sheet
from sirgcn.report.timing import ratio_digits

_TIMED_IN = {1: "Table 6", 2: "Table 7"}
"""The table in which the models of a table take turns. The models of other tables are in the table of steps."""


def score_reading(comparison: Comparison) -> list[Sheet]:
    """What our scores say beside the paper's, as small tables; nothing where nothing was scored."""
    scored = [cell for cell in comparison.cells if cell.values]
    if not scored:
        return []
    pairs = [pair for column in comparison.columns for pair in _pairs(comparison, column)]
    ranked = [_ranked(one, other) for one, other in pairs if _is_ranked(one, other)]
    made = [
        _agreement(scored),
        _outside(scored),
        _scatter(scored),
        _order(ranked),
        _changed_order(ranked),
        _ahead(pairs),
        _parameters(comparison),
    ]
    return [sheet for sheet in made if sheet.rows]


def _agreement(scored: list[Cell]) -> Sheet:
    rows = []
    for is_reduced, name in ((False, "full"), (True, f"reduced {MARKS['reduced']}")):
        verdicts = [cell.verdict for cell in scored if cell.is_reduced == is_reduced and cell.verdict]
        if verdicts:
            counts = [verdicts.count(side) for side in ("inside", "better", "worse")]
            rows.append([name, *map(str, (len(verdicts), *counts))])
    return Sheet("Our mean and the published mean ± 2 std", ["Runs", "Cells", "Inside", "Better", "Worse"], rows)


def _outside(scored: list[Cell]) -> Sheet:
    rows = [
        [cell.model, cell.column.name, _figure(cell), cell.printed, cell.verdict]
        for cell in scored
        if cell.verdict in ("better", "worse")
    ]
    return Sheet(
        "Cells outside the published mean ± 2 std", ["Model", "Column", "Ours", "Published", "Ours is"], rows, left=2
    )


def _scatter(scored: list[Cell]) -> Sheet:
    """The medians of cells whose runs scatter, and the runs at more than ten times the median."""
    rows: list[list[str]] = []
    for cell in scored:
        if len(cell.values) > 2 and cell.std > abs(cell.mean) / 2:
            middle, digits = median(cell.values), max(cell.decimals, 4)
            far = [run for run in cell.runs if abs(run.value) > 10 * abs(middle)]
            named = [[f"{run.value:.{digits}f}", str(run.seed)] for run in far] or [["-", "-"]]
            rows += [[cell.model, cell.column.name, f"{middle:.{digits}f}", *entry] for entry in named]
    return Sheet(
        "Cells whose standard deviation is more than half of the mean",
        ["Model", "Column", "Median", "Run above ten medians", "Its seed"],
        rows,
        left=2,
    )


def _figure(cell: Cell) -> str:
    """Our figure with the number of runs, so that a reader sees where it is only one."""
    return f"{cell.ours} ({len(cell.values)}){MARKS['reduced'] * cell.is_reduced}"


Order = Literal["same", "level", "other"]


@dataclass(frozen=True)
class _Ranked:
    """Two models in the paper's order, and whether our scores have the same order."""

    place: str
    first: str
    second: str
    order: Order


def _is_ranked(one: Cell, other: Cell) -> bool:
    """Whether the paper's rounded means put two models into an order."""
    return one.claim is not None and other.claim is not None and one.claim.mean != other.claim.mean


def _ranked(one: Cell, other: Cell) -> _Ranked:
    first, second = (one, other) if _is_better(one, other, _claimed) else (other, one)
    order: Order = "level"
    if _is_better(first, second, _measured):
        order = "same"
    elif _is_better(second, first, _measured):
        order = "other"
    return _Ranked(_place(first), first.model, second.model, order)


def _order(ranked: list[_Ranked]) -> Sheet:
    """How many pairs of models have the paper's order, by column and in all."""
    places = list(dict.fromkeys(pair.place for pair in ranked))
    groups = [(place, [pair.order for pair in ranked if pair.place == place]) for place in places]
    if len(places) > 1:
        groups.append(("all", [pair.order for pair in ranked]))
    rows = [
        [place, str(len(orders)), *(str(orders.count(order)) for order in ("same", "level", "other"))]
        for place, orders in groups
    ]
    columns = ["Column", "Pairs", "Same order", "Level", "Other order"]
    return Sheet("Pairs of models that the paper ranks", columns, rows)


def _changed_order(ranked: list[_Ranked]) -> Sheet:
    here = {"level": "level", "other": "the other way round"}
    places = [pair.place for pair in ranked]
    changed = sorted((pair for pair in ranked if pair.order != "same"), key=lambda pair: places.index(pair.place))
    rows = [[pair.place, pair.first, pair.second, here[pair.order]] for pair in changed]
    columns = ["Column", "Ahead in the paper", "Behind in the paper", "Here"]
    return Sheet("Pairs of models that are not in the paper's order", columns, rows, left=4)


def _ahead(pairs: list[tuple[Cell, Cell]]) -> Sheet:
    """Who is ahead of SIR-GCN, column by column."""
    rows: dict[str, list[list[str]]] = {}
    for pair in pairs:
        other, ours = sorted(pair, key=lambda cell: cell.model == OURS)
        if ours.model == OURS:
            found = rows.setdefault(_place(ours), [])
            if _is_better(other, ours, _measured):
                found.append([_place(ours), other.model, _figure(other), _figure(ours)])
    listed = [row for place, found in rows.items() for row in found or [[place, "none", "-", "-"]]]
    return Sheet(f"Models ahead of {OURS}", ["Column", "Model", "Its score", OURS], listed, left=2)


def _parameters(comparison: Comparison) -> Sheet:
    """The number of parameters of every model, over the columns, and its ratio to SIR-GCN's."""
    ours = {cell.column.name: _parameters_of(cell) for cell in comparison.cells if cell.model == OURS}
    rows = [row for line in comparison.lines if (row := _parameter_row(line, ours))]
    where = _TIMED_IN.get(comparison.table.number or 0, "the table of training steps")
    return Sheet(
        f"Parameters over the columns, and their ratio to {OURS}",
        ["Model", "Least", "Most", "Ratio, least", "Ratio, largest"],
        # A comparison needs another model.
        rows if len(rows) > 1 else [],
        [Fact("Times are compared in", where)],
    )


def _parameter_row(line: Line, ours: dict[str, int | None]) -> list[str]:
    """The ends of a model's parameters and of their ratios; empty where no column has both."""
    pairs = [(_parameters_of(cell), ours.get(cell.column.name)) for cell in line.cells]
    known = [(theirs, of_ours) for theirs, of_ours in pairs if theirs and of_ours]
    if not known:
        return []
    counts, ratios = [theirs for theirs, _ in known], [theirs / of_ours for theirs, of_ours in known]
    ends = [f"{count:,}" for count in (min(counts), max(counts))]
    return [line.row.model, *ends, *map(ratio_digits, (min(ratios), max(ratios)))]


def _parameters_of(cell: Cell) -> int | None:
    return next((run.parameters for run in cell.runs if run.parameters), None)


def _pairs(comparison: Comparison, column: Column) -> list[tuple[Cell, Cell]]:
    """Every two models that were run in a column in the same form, full or reduced.

    Where one model was run in full and the other was not, reduced runs of the first stand in for its full runs, if
    their settings are those of the second.
    """
    found = (
        (_in_form_of(one, other), _in_form_of(other, one))
        for one, other in combinations(comparison.cells_of(column), 2)
    )
    # The mean of no runs, and a mean that is not a number, is neither better nor worse nor level.
    return [(one, other) for one, other in found if not math.isnan(one.mean + other.mean)]


def _in_form_of(cell: Cell, other: Cell) -> Cell:
    """The cell with its runs in the form of the other's; without runs where it has none of that form."""
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
    """The name of the column, marked for reduced runs."""
    return f"{cell.column.name}{MARKS['reduced'] * cell.is_reduced}"


def _is_better(one: Cell, other: Cell, value: Callable[[Cell], float]) -> bool:
    """Whether `one` is better by more than half a unit of the last digit that the table prints."""
    difference = value(one) - value(other)
    unit = 10.0 ** -min(one.decimals, other.decimals)
    return (difference if one.column.higher_is_better else -difference) > unit / 2


def _claimed(cell: Cell) -> float:
    assert cell.claim is not None
    return cell.claim.mean


def _measured(cell: Cell) -> float:
    return cell.mean
