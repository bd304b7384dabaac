"""What runs cost: the time of finished ones, cell by cell, as a folder's records and those behind the package have it.

`experiments/costs.json` holds the package's own times, for a folder that has no records yet; `write_costs` writes it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from sirgcn.engine import records
from sirgcn.engine.experiment import FOLDER, Experiment, load, names, split_name
from sirgcn.files import write_atomic

_FORMS = {"full": False, "reduced": True}


@dataclass(frozen=True)
class Cost:
    """What a run takes.

    Args:
        seconds: of the whole run.
        epochs: that a training had; None of a timing.
        step: seconds of a training step, if that is what was timed.
        is_shipped: the time is that of the package's file and not of the folder's records.
    """

    seconds: float
    epochs: float | None = None
    step: float | None = None
    is_shipped: bool = False


Cells = dict[tuple[str, str, bool], Cost]
"""Costs by column, model and whether they are of the reduced form."""


class Costs:
    """What the runs of experiments cost.

    A folder's records go before the package's times, cell by cell.

    Args:
        results: the folder.
    """

    def __init__(self, results: Path) -> None:
        self.results = results
        self._known: dict[str, Cells] = {}

    def find(self, experiment: Experiment, column: str, model: str, reduced: bool) -> Cost | None:
        """The median of the cell's runs, or the nearest that is known; None if nothing is.

        A cell that was run in the other form alone takes the time of its epochs, and one of an experiment that
        overrides changed (`zinc+train.lr=0.01`) likewise that of the experiment itself. One that was not run takes the
        time of its row in the nearest column, times how much longer the rows that have both columns take in this one
        (the median). Without such a column it takes the time of the other rows of its own (the median; a network of its
        own goes by such networks), times how much longer its training step takes, if steps were timed; if not, it goes
        by a column of another experiment of the table, and without that by the other rows as they are.
        """
        columns = [entry.title for entry in experiment.columns]

        def nearness(title: str) -> tuple[int, int]:
            # Of two as near the later one: columns are sorted by size where they have one.
            place = columns.index(title)
            return abs(place - columns.index(column)), -place

        here = self._column(experiment, column, reduced)
        own = (self._column(experiment, title, reduced) for title in sorted(columns, key=nearness))
        found = _grown(model, here, own)
        if found is not None or not here:
            return found
        has_own = {row.title: row.network is not None for row in experiment.models}
        alike = {row: cost for row, cost in here.items() if has_own[row] == has_own[model]} or here
        is_shipped = any(cost.is_shipped for cost in alike.values())
        steps = self._steps(experiment, column, reduced)
        scaled = [alike[row].seconds * steps[model] / steps[row] for row in alike.keys() & steps if model in steps]
        if scaled:
            return Cost(median(scaled), is_shipped=is_shipped)
        others = (there for there in self._relatives(experiment, reduced) if here.keys() & there)
        plain = Cost(median(cost.seconds for cost in alike.values()), is_shipped=is_shipped)
        return _grown(model, here, others) or plain

    def _steps(self, experiment: Experiment, column: str, reduced: bool) -> dict[str, float]:
        """What the steps of a column's rows take, up to a factor, where they were timed."""
        cells = self._cells(f"{split_name(experiment.name)[0]}_step")
        timed = {row.title: cells.get((column, row.title, False)) for row in experiment.models}
        return {
            row: cost.step * experiment.train_for(experiment.model(row), reduced).epochs
            for row, cost in timed.items()
            if cost is not None and cost.step
        }

    def _column(self, experiment: Experiment, column: str, reduced: bool) -> dict[str, Cost]:
        """What is known of a column, by row."""
        told = {row.title: self._told(experiment, column, row.title, reduced) for row in experiment.models}
        return {row: cost for row, cost in told.items() if cost is not None}

    def _relatives(self, experiment: Experiment, reduced: bool) -> Iterator[dict[str, Cost]]:
        """The columns of the table's other experiments."""
        for other in _packaged():
            if other.table == experiment.table and other.name != experiment.name and other.table is not None:
                yield from (self._column(other, column.title, reduced) for column in other.columns)

    def _told(self, experiment: Experiment, column: str, row: str, reduced: bool) -> Cost | None:
        """Of the cell itself, in this form or in the other; of a changed experiment also as it was before."""
        own, before = self._cells(experiment.name), self._cells(split_name(experiment.name)[0])
        if (found := own.get((column, row, reduced))) is not None:
            return found
        near = (cells.get((column, row, form)) for cells in (own, before) for form in (reduced, not reduced))
        other = next((cost for cost in near if cost is not None and cost.epochs), None)
        if other is None or not other.epochs:
            return None
        epochs = experiment.train_for(experiment.model(row), reduced).epochs
        return replace(other, seconds=other.seconds * epochs / other.epochs, epochs=epochs)

    def _cells(self, name: str) -> Cells:
        if name not in self._known:
            self._known[name] = _shipped(name) | _medians(records.read(self.results / f"{name}.jsonl"))
        return self._known[name]


def _grown(row: str, here: Mapping[str, Cost], columns: Iterable[Mapping[str, Cost]]) -> Cost | None:
    """A row's time in the first column that has it, times how much longer the rows of both take here."""
    there = next((there for there in columns if row in there), None)
    if there is None:
        return None
    growth = [here[other].seconds / there[other].seconds for other in here.keys() & there if there[other].seconds]
    return replace(there[row], seconds=there[row].seconds * median(growth or [1.0]))


def machines() -> list[str]:
    """Whose times the package has: processor and threads."""
    return list(_file()["machines"])


def measured(results: Path) -> dict[str, Any]:
    """What the records of the package's experiments say, as `costs.json` has it.

    `machines`, and by experiment, column, model and form the median seconds and epochs of the finished runs.
    """
    found: dict[str, Any] = {"machines": set(), "costs": {}}
    for name in names():
        kept = records.read(results / f"{name}.jsonl")
        for (column, model, reduced), cost in _medians(kept).items():
            table = found["costs"].setdefault(name, {}).setdefault(column, {}).setdefault(model, {})
            form = next(form for form, is_reduced in _FORMS.items() if is_reduced == reduced)
            table[form] = {"seconds": _rounded(cost.seconds), "epochs": cost.epochs}
            if cost.step:
                table[form]["step"] = _rounded(cost.step)
        found["machines"] |= {_machine(record["environment"]) for record in kept if _is_timed(record)}
    return found | {"machines": sorted(found["machines"])}


def write_costs(results: Path, path: Path) -> list[Path]:
    """Write `measured` as JSON; gives the path if the file has changed."""
    text = json.dumps(measured(results), indent=1, sort_keys=True) + "\n"
    if path.exists() and path.read_text("utf-8") == text:
        return []
    write_atomic(path, text.encode())
    return [path]


def _machine(environment: Mapping[str, Any]) -> str:
    threads = environment["threads"]
    return f"{environment['cpu']}, {threads} thread{'' if threads == 1 else 's'}"


def _rounded(seconds: float) -> float:
    """Three digits: no estimate is better, and the file changes less often than the records."""
    return float(f"{seconds:.3g}")


def _is_timed(record: Mapping[str, Any]) -> bool:
    return record["status"] == "done" and record.get("seconds") is not None


def _medians(found: Iterable[Mapping[str, Any]]) -> Cells:
    cells: dict[tuple[str, str, bool], list[Mapping[str, Any]]] = {}
    for record in filter(_is_timed, found):
        cells.setdefault((record["column"], record["model"], record["reduced"]), []).append(record)
    return {
        place: Cost(
            median(record["seconds"] for record in same),
            median(record["epochs"] for record in same) if all(record.get("epochs") for record in same) else None,
            median(record["metrics"]["test"] for record in same) if same[-1].get("metric") == "step_seconds" else None,
        )
        for place, same in cells.items()
    }


@cache
def _packaged() -> tuple[Experiment, ...]:
    return tuple(map(load, names()))


@cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "costs.json").read_text("utf-8"))
    return found


def _shipped(name: str) -> Cells:
    return {
        (column, model, _FORMS[form]): Cost(**cost, is_shipped=True)
        for column, rows in _file()["costs"].get(name, {}).items()
        for model, forms in rows.items()
        for form, cost in forms.items()
    }
