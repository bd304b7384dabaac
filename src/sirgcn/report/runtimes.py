"""What the times say: how they were taken, where SIR-GCN is beaten, how ratios and slopes compare with the paper's."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal

from sirgcn.report.cells import OURS, Cell, Comparison
from sirgcn.report.runs import Run, as_number

# A slope that is further from its exponent is named.
_NEAR = 0.15


def timing_notes(comparison: Comparison) -> list[str]:
    """How the times of a runtime or complexity table were taken, from the records; nothing where none is."""
    runs = [run for cell in comparison.cells for run in cell.runs if run.samples]
    if not runs:
        return []
    timing = [run.config.get("timing", {}) for run in runs]
    threads = f"threads: {_several(entry.get('threads') for entry in timing)}"
    clock = f"clock: {_several(entry.get('clock') for entry in timing)}"
    loads = [f"{value:.0f}" for run in runs if (value := as_number(run.environment.get("load_at_start"))) >= 0]
    load = f", load of the machine before: {_least_to_largest(loads)}" if loads else ""
    machine = f"{_several(map(_processor, runs))}, {threads}, {clock}{load}"
    if comparison.table.kind == "complexity":
        return [f"Ours: one layer in inference, random graphs whose edges were grouped beforehand; {machine}."]
    size = _several(entry.get("batch_size") for entry in timing)
    what = f"one pass over the test set, untrained weights, batches of {size} graphs built beforehand"
    if all(run.is_step for run in runs):
        what = "the mean over the first batches of the training set, built beforehand, forward, backward and update"
    return [f"Ours: {what}, all models in turn in every repetition; {machine}."]


def _processor(run: Run) -> str:
    """With its vector instructions, which a time depends on; records of a GPU's times have none."""
    return " with ".join(filter(None, (run.environment.get(key) for key in ("cpu", "torch_cpu_capability"))))


def ratio_text(comparison: Comparison, cell: Cell) -> str:
    """Our ratio to SIR-GCN: `0.64x ± 0.02`."""
    spread = cell.ratio()[1]
    return f"{comparison.ratios(cell)[1]:.2f}x" + ("" if math.isnan(spread) else f" ± {spread:.2f}")


def reading(comparison: Comparison) -> list[str]:
    """What a table of times says, in sentences; those of a table of scores are not its business."""
    read: dict[str, Callable[[Comparison], list[str]]] = {"runtime": _runtimes, "complexity": _growth}
    if comparison.table.kind not in read or not any(cell.runs for cell in comparison.cells):
        return []
    return read[comparison.table.kind](comparison)


def _runtimes(comparison: Comparison) -> list[str]:
    ratios = [(cell, *comparison.ratios(cell)) for cell in comparison.cells if cell.runs and cell.model != OURS]
    timed = [(cell, paper, ours) for cell, paper, ours in ratios if not math.isnan(ours)]
    # A ratio that is 1 within its standard deviation says nothing.
    level = [cell for cell, _, ours in timed if abs(ours - 1) <= _known(cell.ratio()[1])]
    faster = [(cell, ratio_text(comparison, cell)) for cell, _, ours in timed if ours < 1 and cell not in level]
    text = f"{OURS} is beaten in {len(faster)} of {len(timed)} cells"
    columns = Counter(cell.model for cell, *_ in timed)
    text += f": {_by_model(faster, columns)}" if faster else ""
    sentences = [f"{text}."]
    if level:
        equal = _by_model([(cell, ratio_text(comparison, cell)) for cell in level], columns)
        sentences.append(f"Level with {OURS}: {equal}.")
    both = [(cell, paper, ours) for cell, paper, ours in timed if not math.isnan(paper)]
    return sentences + _beside_the_paper(comparison, both, level, columns) + _batches([cell for cell, *_ in timed])


def _beside_the_paper(
    comparison: Comparison, both: list[tuple[Cell, float, float]], level: list[Cell], columns: Mapping[str, int]
) -> list[str]:
    """How the ratios compare with the paper's; nothing where it has none."""
    if not both:
        return []
    told = [(cell, paper, ours) for cell, paper, ours in both if cell not in level]
    turned = [
        (cell, f"{ratio_text(comparison, cell)}, the paper {paper:.2f}x")
        for cell, paper, ours in told
        if (paper < 1) != (ours < 1)
    ]
    where = "cells that are not level" if level else "cells"
    text = f"Faster or slower than {OURS} as in the paper: {len(told) - len(turned)} of {len(told)} {where}"
    order = f"{text}; not {_by_model(turned, columns)}." if turned else f"{text}."
    spans = []
    for model in dict.fromkeys(cell.model for cell, *_ in both):
        paper = span(paper for cell, paper, _ in both if cell.model == model)
        spans.append(f"{model} {span(ours for cell, _, ours in both if cell.model == model)} (the paper {paper})")
    return [order, f"Ratios to {OURS}, least to largest: {'; '.join(spans)}."]


def _batches(cells: list[Cell]) -> list[str]:
    """What building the batches takes, and the ratios with it."""
    timed = [cell for cell in cells if not math.isnan(cell.ratio(with_batches=True)[0])]
    if not timed:
        return []
    columns = dict.fromkeys(cell.column for cell in timed)
    seconds = {
        column.name: min(
            t for cell in timed if cell.column == column for run in cell.runs for t in run.times("batches")
        )
        for column in columns
    }
    building = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items())
    spans = (
        f"{model} {span(cell.ratio(with_batches=True)[0] for cell in timed if cell.model == model)}"
        for model in dict.fromkeys(cell.model for cell in timed)
    )
    return [
        f"Building the batches, the same for all models, takes at least {building}; "
        f"counted in, the ratios are: {'; '.join(spans)}."
    ]


def _growth(comparison: Comparison) -> list[str]:
    slopes = [(cell.model, name, *found) for cell in comparison.cells for name, found in cell.slopes.items()]
    away = [(model, name, slope, slope - claimed) for model, name, slope, _, claimed in slopes if claimed is not None]
    near = sum(abs(distance) <= _NEAR for *_, distance in away)
    sentences = [f"Within {_NEAR} of the exponent of the formula: {near} of {len(away)} slopes."]
    for what, sign in (("Below the exponent", -1), ("Above it", 1)):
        groups: dict[str, list[str]] = {}
        for model, name, slope, distance in away:
            if sign * distance > _NEAR:
                groups.setdefault(name, []).append(f"{model} {slope:.2f}")
        texts = (f"{name}: {', '.join(found)}" for name, found in groups.items())
        sentences.append(f"{what} by more than {_NEAR}: {'; '.join(texts) or 'none'}.")
    return sentences


def _by_model(found: Iterable[tuple[Cell, str]], columns: Mapping[str, int]) -> str:
    """`GCN in every column; GIN at n=10 (0.66x), n=20 (0.60x)`; `columns` holds how many a model was timed in."""
    places: dict[str, list[str]] = {}
    for cell, text in found:
        places.setdefault(cell.model, []).append(f"{cell.column.name} ({text})")
    return "; ".join(
        f"{model} in every column" if len(texts) == columns[model] > 1 else f"{model} at {', '.join(texts)}"
        for model, texts in places.items()
    )


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def span(values: Iterable[float]) -> str:
    """Least to largest, with two decimals or, where these would be none, one digit: `0.64 to 0.99`, `0.0005`."""
    return _least_to_largest(f"{value:.2f}" if value >= 0.01 else f"{Decimal(f'{value:.1g}'):f}" for value in values)


def _least_to_largest(figures: Iterable[str]) -> str:
    known = sorted(figures, key=float)
    return known[0] if known[0] == known[-1] else f"{known[0]} to {known[-1]}"


def _several(values: Iterable[object]) -> str:
    return " and ".join(dict.fromkeys(map(str, values)))
