"""The tables of papers filled with our runs. This is the one place that chooses the presenter of a table."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from sirgcn.engine.experiment import SORTS, Experiment, GrowthExperiment, TimingExperiment, TrainingExperiment
from sirgcn.engine.experiment import names as packaged
from sirgcn.report.cells import Cell
from sirgcn.report.claims import Column, Row, Sort, Table, load_claims
from sirgcn.report.growth import GrowthPresenter
from sirgcn.report.presenter import Comparison, Line, Presenter
from sirgcn.report.runs import Run, of_other_data
from sirgcn.report.timing import TimingPresenter
from sirgcn.report.training import TrainingPresenter
from sirgcn.strict import ConfigError

STEPS = "Training steps"
"""The title of the table of the times of training steps, which has a column per experiment."""

PRESENTERS: dict[type[Experiment], Presenter] = {
    TrainingExperiment: TrainingPresenter(),
    TimingExperiment: TimingPresenter(),
    GrowthExperiment: GrowthPresenter(),
}
"""The presenter of each type of experiment."""

_SORT_OF_METRIC: dict[str, Sort] = {"seconds": "inference", "step_seconds": "step", "complexity": "growth"}


def compare(runs: Iterable[Run]) -> tuple[Comparison, ...]:
    """Sort runs into the tables of `load_claims`, then into a table per experiment that no paper has.

    - The times of training steps of all packaged experiments are in one table.
    - Runs of the variant behind the claims fill the paper's rows.
    - Another variant, or a model that the table lacks, gets a row of its own below.
    - Full and reduced runs are never mixed: full runs count where there are any.

    Raises:
        ConfigError: a run names a table, a column or a metric that does not exist, or two experiments fill one cell.

    >>> [comparison.table.title for comparison in compare([])][:2]
    ['Table 1', 'Table 2']
    """
    by_table: dict[int | str, list[Run]] = defaultdict(list)
    for run in runs:
        name = STEPS if run.is_step and run.experiment in packaged() else run.experiment
        by_table[name if run.table is None else run.table].append(run)
    claimed = load_claims()
    found = [_filled(table, by_table.pop(table.key, [])) for table in claimed]
    for key, own in by_table.items():
        if own[0].table is not None:
            known = ", ".join(str(table.key) for table in claimed)
            raise ConfigError(f"{own[0].experiment}: table: expected one of {known}, got {key}")
        found.append(_filled(_own_table(str(key), own), own))
    return tuple(found)


def _filled(table: Table, runs: list[Run]) -> Comparison:
    """A table with the runs in its cells; rows that it lacks come last."""
    presenter, outdated = PRESENTERS[SORTS[table.sort]], of_other_data(runs)
    by_cell: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        _check_place(table, run)
        by_cell[_title(table, run), run.column].append(run)
    lines = []
    for row in _rows(table, [title for title, _ in by_cell]):
        cells = [
            _cell(presenter.cells, table, column, row, by_cell[row.model, column.name], outdated)
            for column in table.columns
        ]
        lines.append(Line(row, tuple(cells)))
    return presenter.fill(Comparison(table, presenter, table.columns, tuple(lines)))


def _check_place(table: Table, run: Run) -> None:
    """Refuse a run whose column or metric the table does not have."""
    where, columns = f"{run.experiment}: {table.title}", {column.name: column for column in table.columns}
    if run.column not in columns:
        raise ConfigError(f"{where}: column: expected one of {', '.join(columns)}, got {run.column!r}")
    metric = columns[run.column].metric
    if run.status == "done" and not SORTS[table.sort].is_timed and run.metric != metric:
        raise ConfigError(f"{where}: metric: expected {metric}, got {run.metric!r}")


def _rows(table: Table, titles: Iterable[str]) -> list[Row]:
    """The rows of the table, then a row for every other title, with a rule above the first."""
    known = {row.model for row in table.rows}
    own = [title for title in dict.fromkeys(titles) if title not in known]
    empty = ("",) * len(table.columns)
    return [*table.rows, *(Row(title, empty, rule_above=place == 0) for place, title in enumerate(own))]


def _title(table: Table, run: Run) -> str:
    is_claimed = not table.paper or run.variant == table.variant
    return run.model if is_claimed else f"{run.model} ({run.variant})"


def _cell(
    cells: type[Cell], table: Table, column: Column, row: Row, runs: list[Run], outdated: Collection[int]
) -> Cell:
    experiments = sorted({run.experiment for run in runs})
    if len(experiments) > 1:
        raise ConfigError(
            f"{table.title}, {row.model}, {column.name}: expected runs of one experiment, got "
            f"{' and '.join(experiments)}; remove `table` from the experiments that are not the paper's"
        )
    done = [run for run in runs if run.status == "done"]
    counted = _counted([run for run in done if id(run) not in outdated])
    return cells(
        table=table,
        column=column,
        model=row.model,
        claim=table.claims.get((row.model, column.name)),
        printed=row.cells[table.columns.index(column)],
        runs=tuple(sorted(counted, key=lambda run: (run.seed, run.split or 0))),
        left_out=tuple(run for run in done if all(run is not other for other in counted)),
        other_data=tuple(run for run in done if id(run) in outdated),
        failed=tuple(run for run in runs if run.status == "failed"),
    )


def _counted(done: list[Run]) -> list[Run]:
    """The runs of one protocol: those with the data and the settings of the last full run.

    Where there is no full run, the last reduced run decides.
    """
    same = [run for run in done if not run.reduced] or done
    return [run for run in same if (run.config, run.making) == (same[-1].config, same[-1].making)]


def _own_table(experiment: str, runs: list[Run]) -> Table:
    """A table without claims for an experiment that the paper does not have."""
    # A failed run may not know its metric. Finished runs come last, so their metric counts.
    in_order = sorted(runs, key=lambda run: run.status == "done")
    columns = {run.column: Column(run.column, run.metric, _unit(run), run.higher_is_better) for run in in_order}
    models = dict.fromkeys(run.model for run in runs)
    rows = tuple(Row(model, ("",) * len(columns)) for model in models)
    sort = _SORT_OF_METRIC.get(in_order[-1].metric, "training")
    return Table(None, sort, experiment, "", tuple(columns.values()), rows)


def _unit(run: Run) -> str:
    return "s" if run.metric in ("seconds", "step_seconds") else ""
