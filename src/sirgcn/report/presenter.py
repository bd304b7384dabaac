"""A table of the paper with our figures, and what the presenters of the three types of experiments share.

A presenter knows how the results of one type of experiment are shown: which cells its tables have, what the notes say,
what the figures say beside the paper's, and what is drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sirgcn.report.cells import MARKS, Cell
from sirgcn.report.claims import Column, Row, Table
from sirgcn.report.runs import Run
from sirgcn.report.sheets import Entry, Fact, Sheet, Styled

_COLOURS = {"better": "green", "worse": "red"}


@dataclass(frozen=True)
class Line:
    """A row of a table with our figures.

    >>> from sirgcn.report import compare
    >>> line = compare([])[0].lines[-1]
    >>> line.row.model, len(line.cells)
    ('SIR-GCN', 5)
    """

    row: Row
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Comparison:
    """A table of the paper with our figures. Rows of ours that the paper does not have come last.

    >>> from sirgcn.report import compare
    >>> table1 = compare([])[0]
    >>> table1.table.title, len(table1.cells), table1.run_part().lines
    ('Table 1', 30, ())
    """

    table: Table
    presenter: "Presenter"
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(cell for line in self.lines for cell in line.cells)

    @property
    def was_run(self) -> bool:
        """Whether any cell has a finished run."""
        return any(cell.runs for cell in self.cells)

    def cells_of(self, column: Column) -> list[Cell]:
        """The cells of a column that have finished runs."""
        return [cell for cell in self.cells if cell.column == column and cell.runs]

    def run_part(self) -> "Comparison":
        """Only the rows and columns in which something was run."""
        tried = [(cell.model, cell.column) for cell in self.cells if cell.runs or cell.failed]
        models, columns = {model for model, _ in tried}, {column for _, column in tried}
        lines = (
            replace(line, cells=tuple(cell for cell in line.cells if cell.column in columns))
            for line in self.lines
            if line.row.model in models
        )
        kept = tuple(column for column in self.columns if column in columns)
        return replace(self, columns=kept, lines=tuple(lines))

    def sheet(self) -> Sheet:
        """The table as a sheet: for every model a row of the paper's figures and, where we ran it, a row of ours."""
        rows: list[list[Entry]] = []
        rules: list[int] = []
        for line in self.lines:
            rules += [len(rows)] * line.row.rule_above
            rows += _rows_of(line)
        head = ["Model", "", *(column.heading for column in self.columns)]
        notes = [*self.presenter.legend(self), *self.presenter.notes(self)]
        return Sheet(self.table.full_title, head, rows, notes, left=2, rules=rules)


class Presenter(ABC):
    """How the report shows the results of one type of experiment. There is one subclass per type.

    >>> from sirgcn.report import compare
    >>> tables = compare([])
    >>> [type(tables[number - 1].presenter).__name__ for number in (1, 6, 8)]
    ['TrainingPresenter', 'TimingPresenter', 'GrowthPresenter']
    """

    cells: type[Cell]
    """The class of the cells of its tables."""

    ours: str
    """What a figure of ours is: the statistic, and what stands in brackets behind it."""

    figures: str
    """The heading of its figures on the HTML page."""

    has_formulas = False
    """Whether its cells hold formulas, which are aligned to the left."""

    def fill(self, comparison: Comparison) -> Comparison:
        """The table after its cells were made; a presenter whose cells refer to one another connects them here."""
        return comparison

    def legend(self, comparison: Comparison) -> list[Fact]:
        """How the figures are read: the metrics, what our figures are, and the marks that occur."""
        by_metric: dict[str, list[str]] = {}
        for column in comparison.columns:
            # A column in which every run failed has no metric.
            if column.metric:
                by_metric.setdefault(column.metric_title, []).append(column.name)
        legend = facts("Metric", by_metric, len(comparison.columns))
        if comparison.was_run:
            legend.append(Fact("Ours", self.ours))
        verdicts = {cell.verdict for cell in comparison.cells}
        sides = [side for side in ("better", "worse") if side in verdicts]
        return legend + [Fact(MARKS[side], f"{side} than the published mean ± 2 std") for side in sides]

    def notes(self, comparison: Comparison) -> list[Fact]:
        """What a reader must know besides: how the runs were made, which were left out, whose figures the paper has."""
        return [*self.own_notes(comparison), *_notes_on_runs(comparison), *_notes_of_the_paper(comparison.table)]

    @abstractmethod
    def own_notes(self, comparison: Comparison) -> list[Fact]:
        """The notes that only this type of experiment needs."""

    @abstractmethod
    def reading(self, comparison: Comparison) -> list[Sheet]:
        """What our figures say, as small tables; nothing where nothing was run."""

    @abstractmethod
    def panels(self, comparison: Comparison, column: Column, colours: Mapping[str, str]) -> list[tuple[str, str]]:
        """The figures of a column as SVG, each with its title."""


def facts(label: str, groups: Mapping[str, list[str]], columns: int) -> list[Fact]:
    """A fact per value with the columns that it holds for; without their names where one value holds for all.

    >>> [str(fact) for fact in facts("Metric", {"accuracy": ["MNIST"], "mae": ["ZINC"]}, columns=2)]
    ['Metric (MNIST): accuracy', 'Metric (ZINC): mae']
    """
    is_everywhere = [len(names) == columns for names in groups.values()] == [True]
    return [Fact(label, text, "" if is_everywhere else ", ".join(names)) for text, names in groups.items()]


def facts_on_runs(label: str, comparison: Comparison, value: Callable[[Run], str]) -> list[Fact]:
    """What holds for the runs that count, by column. `value` returns an empty text for runs without such a fact.

    Where the rows of a column differ, the rows are named: `minesweeper: CPGNN`.
    """
    found: dict[str, list[str]] = {}
    for column in comparison.columns:
        rows: dict[str, dict[str, None]] = {}
        for cell in comparison.cells_of(column):
            for text in filter(None, map(value, cell.runs)):
                rows.setdefault(text, {})[cell.model] = None
        for text, models in rows.items():
            name = column.name if len(rows) == 1 else f"{column.name}: {', '.join(models)}"
            found.setdefault(text, []).append(name)
    return facts(label, found, len(comparison.columns))


def _notes_on_runs(comparison: Comparison) -> list[Fact]:
    """Why runs were reduced, and how many were left out."""
    cells = comparison.cells
    notes = facts_on_runs(
        f"{MARKS['reduced']} reduced", comparison, lambda run: (run.reduced_why or "no reason given") * run.reduced
    )
    counts = {
        "Left out, another version of the data": sum(len(cell.other_data) for cell in cells),
        "Left out, settings changed since": sum(
            run.reduced == cell.is_reduced for cell in cells for run in cell.set_aside
        ),
        "Left out, failed": sum(len(cell.failed) for cell in cells),
    }
    return notes + [Fact(label, str(count)) for label, count in counts.items() if count]


def _notes_of_the_paper(table: Table) -> list[Fact]:
    notes = [Fact(f"Source of the paper's rows other than {table.paper}", table.source)] * bool(table.source)
    notes += [Fact("The paper's note", table.note.replace("$", ""))] * bool(table.note)
    return notes + [Fact("On the published figures", table.remark)] * bool(table.remark)


def _rows_of(line: Line) -> list[list[Entry]]:
    """The paper's row and ours; a row in which nothing was published, or nothing was run, is left out."""
    name: Entry = Styled(line.row.model, latex=line.row.latex) if line.row.latex else line.row.model
    rows: list[list[Entry]] = []
    if any(cell.printed for cell in line.cells):
        rows.append([name, "paper", *map(_published, line.cells)])
        name = ""
    if any(cell.runs or cell.failed for cell in line.cells):
        rows.append([name, "ours", *map(_ours, line.cells)])
    return rows


def _published(cell: Cell) -> Entry:
    if cell.printed and cell.claim is None:
        return Styled(cell.published, latex=f"${cell.printed}$")
    return Styled(cell.published, is_bold=True) if cell.column.best == cell.model else cell.published


def _ours(cell: Cell) -> Entry:
    # A training that was shortened on purpose is marked, and not coloured as a success or a failure.
    return Styled(cell.ours_marked, colour="" if cell.is_reduced else _COLOURS.get(cell.verdict or "", ""))
