"""The paper's tables with our figures beside them: Markdown, LaTeX, CSV, one HTML file, pages of the documentation.

The report reads the records in `results/*.jsonl` and nothing else. It never loads torch.

Whoever else has values to show uses the same table and the same plots: a `Sheet` is a table of text that writes itself
in every format, and `sirgcn.report.plots` holds the look of our plots and saves them.
"""

from sirgcn.report.cells import Cell
from sirgcn.report.claims import Claim, Column, Row, Table, load_claims
from sirgcn.report.docs import render_docs, write_docs
from sirgcn.report.files import FILES, write_report
from sirgcn.report.filling import compare
from sirgcn.report.html import render_html
from sirgcn.report.presenter import Comparison, Line, Presenter
from sirgcn.report.runs import Run, read_runs
from sirgcn.report.sheets import Fact, Sheet, Styled
from sirgcn.report.tables import as_csv, latex, markdown
from sirgcn.report.terminal import print_tables

__all__ = [
    "FILES",
    "Cell",
    "Claim",
    "Column",
    "Comparison",
    "Fact",
    "Line",
    "Presenter",
    "Row",
    "Run",
    "Sheet",
    "Styled",
    "Table",
    "as_csv",
    "compare",
    "latex",
    "load_claims",
    "markdown",
    "print_tables",
    "read_runs",
    "render_docs",
    "render_html",
    "write_docs",
    "write_report",
]
