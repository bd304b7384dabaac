"""How the report shows times: every repetition, ratios to SIR-GCN, and how they compare with the paper's ratios."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median
from typing import Literal

from sirgcn.report.cells import OURS, Cell, deviation
from sirgcn.report.claims import Column
from sirgcn.report.figures import dots
from sirgcn.report.presenter import Comparison, Line, Presenter
from sirgcn.report.runs import Run, as_number
from sirgcn.report.sheets import Fact, Sheet

Pace = Literal["faster", "level", "slower"]


@dataclass(frozen=True)
class TimeCell(Cell):
    """A cell of times. Machines differ, so a time is compared by its ratio to SIR-GCN's in the same column.

    Args:
        reference: SIR-GCN's cell of the same column; None where the table has no row of SIR-GCN.
    """

    reference: Cell | None = None

    def ratio(self, with_batches: bool = False) -> tuple[float, float]:
        """The median and the standard deviation of the ratios to SIR-GCN, which was timed beside the model.

        NaN where nothing was timed beside it. `with_batches` adds the time of building the batches to both times.
        """
        found = [ratio for run in self.runs for ratio in run.ratios(with_batches)]
        return (median(found), deviation(found)) if found else (math.nan, math.nan)

    @property
    def ratios(self) -> tuple[float, float]:
        """The paper's and our ratio to SIR-GCN; NaN where there is none.

        Our ratio is the median over repetitions in which both models were timed side by side. Runs without such
        repetitions have the ratio of the means.
        """
        return self._paper_ratio(), self._our_ratio()

    @property
    def ratio_std(self) -> float:
        """The standard deviation of our ratio to SIR-GCN; NaN where there is none."""
        return self.ratio()[1]

    @property
    def ratio_text(self) -> str:
        """Our ratio to SIR-GCN: `0.64x ± 0.02`."""
        spread = "" if math.isnan(self.ratio_std) else f" ± {self.ratio_std:.2f}"
        return f"{self.ratios[1]:.2f}x{spread}"

    @property
    def published(self) -> str:
        """The paper's time with its ratio to SIR-GCN; a dash where the paper has none."""
        ratio = f", {self.ratios[0]:.2f}x" if self.claim else ""
        return f"{super().published}{ratio}"

    @property
    def pace(self) -> Pace:
        """Faster or slower than SIR-GCN; level where the ratio is 1 within its standard deviation."""
        ours, spread = self.ratios[1], self.ratio_std
        if ours == 1 or abs(ours - 1) <= spread:
            return "level"
        return "faster" if ours < 1 else "slower"

    @property
    def paper_pace(self) -> Pace:
        """Faster or slower than SIR-GCN in the paper."""
        return "faster" if self.ratios[0] < 1 else "slower"

    def _noun(self) -> str:
        return "repetition" if self.runs[0].samples else "run"

    def _counted_figure(self) -> str:
        return f"{super()._counted_figure()}, {self.ratio_text}"

    def _paper_ratio(self) -> float:
        claim = self.reference.claim if self.reference else None
        return self.claim.mean / claim.mean if self.claim and claim else math.nan

    def _our_ratio(self) -> float:
        ours, _ = self.ratio()
        return self.mean / self.reference.mean if math.isnan(ours) and self.reference else ours


class TimingPresenter(Presenter):
    """Shows the times of inference and of training steps."""

    cells = TimeCell
    ours = "mean ± standard deviation (number of repetitions)"
    figures = "Every repetition"

    def fill(self, comparison: Comparison) -> Comparison:
        """The table with SIR-GCN's cell as the reference of every cell of its column."""
        references = {cell.column: cell for cell in comparison.cells if cell.model == OURS}

        def referred(line: Line) -> Line:
            return replace(
                line, cells=tuple(replace(cell, reference=references.get(cell.column)) for cell in _timed(line.cells))
            )

        return replace(comparison, lines=tuple(map(referred, comparison.lines)))

    def own_notes(self, comparison: Comparison) -> list[Fact]:
        """What the ratios are, and how the times were taken."""
        ratio = f"ratio to {OURS} in the same column on the same machine; ours is the median over repetitions"
        return [Fact("x", ratio), *_how_timed(comparison)]

    def reading(self, comparison: Comparison) -> list[Sheet]:
        cells = [cell for cell in _timed(comparison.cells) if cell.runs and cell.model != OURS]
        timed = [cell for cell in cells if not math.isnan(cell.ratios[1])]
        if not timed:
            return []
        made = [_paces(comparison, timed), _ratios(timed), _turned(timed), _batches(timed)]
        return [sheet for sheet in made if sheet.rows]

    def panels(self, comparison: Comparison, column: Column, colours: Mapping[str, str]) -> list[tuple[str, str]]:
        return [("every repetition, seconds", dots(comparison.cells_of(column), column, colours))]


def _timed(cells: Iterable[Cell]) -> list[TimeCell]:
    return [cell for cell in cells if isinstance(cell, TimeCell)]


def _how_timed(comparison: Comparison) -> list[Fact]:
    runs = [run for cell in comparison.cells for run in cell.runs if run.samples]
    if not runs:
        return []
    sizes = several(run.config.get("timing", {}).get("batch_size") for run in runs)
    timed = f"one pass over the test set with untrained weights, in batches of {sizes} graphs that were built before"
    if all(run.is_step for run in runs):
        timed = (
            "forward pass, backward pass and update, the mean over the first batches of the training set, which were "
            "built before"
        )
    return [Fact("Timed", timed), Fact("Order", "all models in turn in every repetition"), *facts_on_machine(runs)]


def facts_on_machine(runs: list[Run]) -> list[Fact]:
    """On which machine times were taken, and how busy it was, as far as the records say."""
    timing = [run.config.get("timing", {}) for run in runs]
    facts = [
        Fact("Processor", several(map(_processor, runs))),
        Fact("Threads", several(entry.get("threads") for entry in timing)),
        Fact("Clock", several(entry.get("clock") for entry in timing)),
    ]
    loads = [value for run in runs if (value := as_number(run.environment.get("load_at_start"))) >= 0]
    if loads:
        ends = dict.fromkeys(f"{value:.0f}" for value in (min(loads), max(loads)))
        facts.append(Fact("Load of the machine before", " to ".join(ends)))
    return facts


def _processor(run: Run) -> str:
    """The processor with its vector instructions, on which a time depends. Times of a GPU have none."""
    return " with ".join(filter(None, (run.environment.get(key) for key in ("cpu", "torch_cpu_capability"))))


def several(values: Iterable[object]) -> str:
    """The different values of a list: `1, 2`."""
    return ", ".join(dict.fromkeys(map(str, values)))


def _paces(comparison: Comparison, timed: list[TimeCell]) -> Sheet:
    """Who is faster than SIR-GCN, cell by cell, with the counts below."""
    found = {(cell.model, cell.column.name): cell.pace for cell in timed}
    models = dict.fromkeys(cell.model for cell in timed)
    names = [column.name for column in comparison.columns if any(cell.column == column for cell in timed)]
    rows = [[model, *(found.get((model, name), "-") for name in names)] for model in models]
    paces = list(found.values())
    counts = {"Faster": paces.count("faster"), "Level": paces.count("level"), "Slower": paces.count("slower")}
    notes = [Fact(label, f"{count} of {len(paces)} cells") for label, count in counts.items()]
    notes.append(Fact("Level means", "the ratio is 1 within its standard deviation"))
    return Sheet(f"Time beside {OURS}", ["Model", *names], rows, notes)


def _ratios(timed: list[TimeCell]) -> Sheet:
    """The least and the largest ratio of every model over the columns."""
    models = [cell.model for cell in timed]
    shown = {name: _ends_by_model(models, ratios) for name, ratios in _ratios_shown(timed).items()}
    rows = [[model, *(text for ends in shown.values() for text in ends[model])] for model in dict.fromkeys(models)]
    columns = [f"{name}, {end}" for name in shown for end in ("least", "largest")]
    notes = [Fact("With batches", "the time of building the batches is added to both")] * ("With batches" in shown)
    return Sheet(f"Ratios to {OURS} over the columns", ["Model", *columns], rows, notes)


def _ratios_shown(timed: list[TimeCell]) -> dict[str, list[float]]:
    """Our ratio, the paper's, and ours with the time of building the batches, as far as there are any."""
    found = {
        "Ours": [cell.ratios[1] for cell in timed],
        "Paper": [cell.ratios[0] for cell in timed],
        "With batches": [cell.ratio(with_batches=True)[0] for cell in timed],
    }
    return {name: ratios for name, ratios in found.items() if not all(map(math.isnan, ratios))}


def _ends_by_model(models: list[str], ratios: list[float]) -> dict[str, tuple[str, str]]:
    """The least and the largest ratio of every model; dashes where it has none."""
    known: dict[str, list[float]] = {model: [] for model in models}
    for model, ratio in zip(models, ratios, strict=True):
        if not math.isnan(ratio):
            known[model].append(ratio)
    return {
        model: (ratio_digits(min(found)), ratio_digits(max(found))) if found else ("-", "-")
        for model, found in known.items()
    }


def _turned(timed: list[TimeCell]) -> Sheet:
    """The cells that are not level and are faster where the paper's are slower, or the other way round."""
    told = [cell for cell in timed if not math.isnan(cell.ratios[0]) and cell.pace != "level"]
    turned = [cell for cell in told if cell.pace != cell.paper_pace]
    rows = [[cell.model, cell.column.name, cell.ratio_text, f"{cell.ratios[0]:.2f}x"] for cell in turned]
    if told and not turned:
        rows = [["none", "-", "-", "-"]]
    notes = [Fact("As in the paper", f"{len(told) - len(turned)} of {len(told)} cells that are not level")]
    return Sheet(
        f"Faster or slower than {OURS}, the other way round in the paper",
        ["Model", "Column", "Ours", "Paper"],
        rows,
        notes,
        left=2,
    )


def _batches(timed: list[TimeCell]) -> Sheet:
    """What building the batches takes, which is the same for all models."""
    least: dict[str, float] = {}
    for cell in timed:
        for seconds in (seconds for run in cell.runs for seconds in run.times("batches")):
            least[cell.column.name] = min(seconds, least.get(cell.column.name, math.inf))
    rows = [[name, f"{seconds:.2g}"] for name, seconds in least.items()]
    return Sheet("Building the batches, the same for all models", ["Column", "Seconds, at least"], rows)


def ratio_digits(value: float) -> str:
    """A ratio with two decimals or, where these would be zero, with one digit.

    >>> ratio_digits(0.416), ratio_digits(0.00049), ratio_digits(4e-5)
    ('0.42', '0.0005', '0.00004')
    """
    return f"{value:.2f}" if value >= 0.01 else f"{Decimal(f'{value:.1g}'):f}"
