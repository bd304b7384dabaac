"""The paper's tables with ours beside them: Markdown, LaTeX, CSV, one HTML file, and the pages of the documentation.

Works on the records of `results/*.jsonl` alone and never loads torch.
"""

from sirgcn.report.cells import Cell, Comparison, Line, compare
from sirgcn.report.claims import Claim, Column, Row, Table, load_claims
from sirgcn.report.docs import render_docs, write_docs
from sirgcn.report.files import FILES, write_report
from sirgcn.report.html import render_html
from sirgcn.report.runs import Run, read_runs
from sirgcn.report.tables import as_csv, latex, markdown
from sirgcn.report.terminal import print_tables

__all__ = [
    "FILES",
    "Cell",
    "Claim",
    "Column",
    "Comparison",
    "Line",
    "Row",
    "Run",
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
