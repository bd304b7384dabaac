"""What a table of scores says: agreement with the paper, its ranking, where SIR-GCN is beaten, at what cost."""

from collections.abc import Callable
from itertools import combinations
from statistics import fmean, median

from sirgcn.report.cells import OURS, Cell, Comparison
from sirgcn.report.claims import Column
from sirgcn.report.runtimes import span


def score_reading(comparison: Comparison) -> list[str]:
    """What our figures of a table say beside the paper's, in sentences; nothing where nothing was run."""
    run = [cell for cell in comparison.cells if cell.runs]
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
    """Means of which one run makes more than half."""
    found = []
    for cell in run:
        if len(cell.values) > 2:
            *others, _ = sorted(cell.values, key=lambda value: abs(value - median(cell.values)))
            if abs(cell.mean - fmean(others)) > abs(cell.mean) / 2:
                digits = max(cell.decimals, 4)
                texts = (f"{value:.{digits}f}" for value in (median(cell.values), fmean(others)))
                found.append("{}, {}: median {}, mean without it {}".format(cell.model, cell.column.name, *texts))
    return [f"One run makes more than half of a mean: {'; '.join(found)}."] if found else []


def _named(cell: Cell) -> str:
    return f"{cell.model}, {cell.column.name}: {cell.ours}, {cell.verdict} than the published {cell.printed}"


def _ranking(comparison: Comparison) -> list[str]:
    """Pairs of models, column by column, whose order the paper's rounded means tell."""
    kept, turned = 0, []
    for column in comparison.columns:
        ranked = [cell for cell in _in(comparison, column) if cell.claim is not None]
        for one, other in combinations(ranked, 2):
            if _claimed(one) == _claimed(other):
                continue
            first, second = (one, other) if _better(one, other, _claimed) else (other, one)
            if _better(second, first, _measured):
                turned.append(f"{second.model} before {first.model} ({column.name})")
            else:
                kept += 1
    if not kept + len(turned):
        return []
    text = f"Of {kept + len(turned)} pairs of models that the paper ranks, {kept} stand in its order"
    return [f"{text}; turned round: {', '.join(turned)}." if turned else f"{text}."]


def _beaten(comparison: Comparison) -> list[str]:
    beaten, columns = [], []
    for column in comparison.columns:
        cells = _in(comparison, column)
        ours = next((cell for cell in cells if cell.model == OURS), None)
        if ours is None or len(cells) == 1:
            continue
        columns.append(column.name)
        better = [cell for cell in cells if _better(cell, ours, _measured)]
        beaten += [f"{cell.model} ({column.name}: {cell.ours} against {ours.ours})" for cell in better]
    if not columns:
        return []
    where = ", ".join(columns)
    return [f"{OURS} is beaten by {', '.join(beaten)}." if beaten else f"{OURS} is not beaten in {where}."]


def _cost(comparison: Comparison) -> list[str]:
    found = []
    for line in comparison.lines:
        ratios = {cost: _ratios(comparison, line.cells, cost) for cost in ("seconds_per_epoch", "parameters")}
        if line.row.model != OURS and all(ratios.values()):
            time, size = (span(values) for values in ratios.values())
            found.append(f"{line.row.model} {time}x the time of an epoch and {size}x the parameters")
    return [f"Beside {OURS}, with the same seeds: {'; '.join(found)}."] if found else []


def _ratios(comparison: Comparison, cells: tuple[Cell, ...], cost: str) -> list[float]:
    """In each column, over the runs of the seeds that SIR-GCN was run with too."""
    ours = {cell.column: _costs(cell, cost) for cell in comparison.cells if cell.model == OURS}
    ratios = []
    for cell in cells:
        theirs, of_ours = _costs(cell, cost), ours.get(cell.column, {})
        both = theirs.keys() & of_ours.keys()
        if both:
            ratios.append(fmean(theirs[seed] for seed in both) / fmean(of_ours[seed] for seed in both))
    return ratios


def _costs(cell: Cell, cost: str) -> dict[int, float]:
    return {run.seed: value for run in cell.runs if (value := getattr(run, cost))}


def _in(comparison: Comparison, column: Column) -> list[Cell]:
    """The cells of a column in which something was run: in full, or where SIR-GCN was not, reduced."""
    cells = [cell for cell in comparison.cells if cell.column == column and cell.runs]
    reduced = all(cell.is_reduced for cell in cells if cell.model == OURS)
    return [cell for cell in cells if cell.is_reduced == reduced] or cells


def _better(one: Cell, other: Cell, value: Callable[[Cell], float]) -> bool:
    """Whether `one` is better by more than the last digit that the table prints."""
    difference = value(one) - value(other)
    unit = 10.0 ** -min(one.decimals, other.decimals)
    return (difference if one.column.higher_is_better else -difference) > unit / 2


def _claimed(cell: Cell) -> float:
    assert cell.claim is not None
    return cell.claim.mean


def _measured(cell: Cell) -> float:
    return cell.mean
