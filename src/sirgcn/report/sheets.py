"""A table of plain values, written as Markdown, LaTeX, CSV, HTML or for the terminal.

Whoever has figures to show builds a `Sheet`: the paper's tables, what they say, and the benchmark. Only text goes into
a sheet, and every format escapes that text, so a name in a record can never become markup or a formula.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from sirgcn.spreadsheet import csv_text

if TYPE_CHECKING:
    from rich.console import Group

NOTHING = "Nothing was run yet."
"""What a page says where a table would be empty."""


@dataclass(frozen=True)
class Styled:
    """The text of a cell that is not written plainly.

    Args:
        text: what the cell says.
        is_bold: whether Markdown, LaTeX, HTML and the terminal print the text in bold.
        is_code: whether the text is code, such as a name or a formula in plain text.
        colour: a colour for the terminal, such as `"green"`.
        latex: LaTeX source that replaces the text in LaTeX, such as a formula.

    >>> Sheet("", ["model", "score"], [["GIN", Styled("0.9", is_bold=True)]]).markdown().splitlines()[-1]
    '| GIN | **0.9** |'
    """

    text: str
    is_bold: bool = False
    is_code: bool = False
    colour: str = ""
    latex: str = ""


Entry = str | Styled
"""What a cell of a sheet holds."""


@dataclass(frozen=True)
class Fact:
    """A note with a fixed label and one value; `where` names the columns or rows that it is about.

    >>> print(Fact("Metric", "mean absolute error", where="ZINC"))
    Metric (ZINC): mean absolute error
    """

    label: str
    value: str
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.label}{place}: {self.value}"


@dataclass(frozen=True)
class Sheet:
    """A table of text with a title above it and notes below it.

    Args:
        title: the name of the table; empty for a table without one.
        columns: the headings, from left to right.
        rows: the cells, row by row. Every row has a cell for every column.
        notes: what a reader must know besides, one entry per line.
        left: how many columns, counted from the left, are aligned to the left. The others are aligned to the right.
        rules: the numbers of the rows that have a rule above them.

    >>> sheet = Sheet("Times", ["peer", "seconds"], [["ours", "0.5"], ["theirs", "1.5"]], [Fact("Threads", "1")])
    >>> print(sheet.markdown(level=2))
    ## Times
    <BLANKLINE>
    | peer | seconds |
    |---|---:|
    | ours | 0.5 |
    | theirs | 1.5 |
    <BLANKLINE>
    - Threads: 1
    <BLANKLINE>
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    notes: Sequence[Fact | str] = ()
    left: int = 1
    rules: Sequence[int] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title or 'a sheet'}: expected {len(self.columns)} cells in a row, got {row}")

    def markdown(self, level: int = 0) -> str:
        """The sheet as Markdown. The title is a heading of this level; at level 0 it is a bold line."""
        right = len(self.columns) - self.left
        lines = [_bar(map(markdown_text, self.columns)), "|" + "---|" * self.left + "---:|" * right]
        lines += [_bar(map(_in_markdown, row)) for row in self.rows]
        if self.title:
            title = markdown_text(self.title)
            lines = [f"{'#' * level} {title}" if level else f"**{title}**", "", *lines]
        if self.notes:
            lines += ["", *(f"- {markdown_text(str(note))}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def latex(self, label: str, caption: str = "") -> str:
        """The sheet as a LaTeX table (booktabs, amssymb). The caption is LaTeX; without one it is the title."""
        body: list[str] = []
        for number, row in enumerate(self.rows):
            body += [r"\midrule"] * (number in self.rules) + [" & ".join(map(_in_latex, row)) + r" \\"]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{caption or latex_text(self.title)}}}",
                rf"\label{{{re.sub(r'[^a-z0-9:_-]', '-', label.lower())}}}",
                r"\centering",
                rf"\begin{{tabular}}{{{'l' * self.left}{'c' * (len(self.columns) - self.left)}}}",
                r"\toprule",
                " & ".join(map(latex_text, self.columns)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\par\small {latex_text(str(note))}" for note in self.notes),
                r"\end{table}",
                "",
            ]
        )

    def csv(self) -> str:
        """The headings and the cells as CSV. A cell that a spreadsheet would run as a formula gets an apostrophe."""
        return csv_text([self.columns, *([text_of(entry) for entry in row] for row in self.rows)])

    def html(self) -> Markup:
        """The sheet as an HTML table with a caption, and its notes as a list."""
        head = [
            Markup('<th scope="col"{}>{}</th>').format(self._html_class(place), name)
            for place, name in enumerate(self.columns)
        ]
        caption = Markup("<caption>{}</caption>").format(self.title) if self.title else Markup("")
        table = Markup('<table class="sheet">{}<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody></table>')
        rows = Markup("\n").join(map(self._html_row, self.rows))
        return table.format(caption, Markup("").join(head), rows) + html_list(self.notes)

    def _html_class(self, place: int) -> Markup:
        return Markup(' class="left"') if place < self.left else Markup("")

    def _html_row(self, row: Sequence[Entry]) -> Markup:
        first, *others = map(_in_html, row)
        cells = [Markup('<th scope="row">{}</th>').format(first)]
        for place, text in enumerate(others, start=1):
            cells.append(Markup("<td{}>{}</td>").format(self._html_class(place), text))
        return Markup("<tr>{}</tr>").format(Markup("").join(cells))

    def rich(self) -> "Group":
        """The sheet for a `rich` console, with its notes below it."""
        # The command line starts faster without rich where nothing is printed.
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = Text(self.title, style="bold") if self.title else None
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
        for place, name in enumerate(self.columns):
            is_left = place < self.left
            table.add_column(Text(name), justify="left" if is_left else "right", no_wrap=is_left)
        for number, row in enumerate(self.rows):
            if number in self.rules:
                table.add_section()
            # `Text` is not parsed for markup, so a record may hold anything.
            table.add_row(*(Text(text_of(entry), style=_rich_style(entry)) for entry in row))
        return Group(table, *[Text("\n".join(map(str, self.notes)), style="dim")] * bool(self.notes))


def text_of(entry: Entry) -> str:
    """The text of a cell without its style.

    >>> text_of(Styled("0.9", is_bold=True))
    '0.9'
    """
    return entry.text if isinstance(entry, Styled) else entry


def markdown_text(text: str) -> str:
    r"""Text as Markdown that shows exactly this text.

    >>> print(markdown_text("d_out | <b>"))
    d\_out \| \<b\>
    """
    # Each of these characters can open markup, an entity or a new cell.
    return re.sub(r"([\\`*_{}\[\]<>|$~#&])", r"\\\1", " ".join(text.split()))


def latex_text(text: str) -> str:
    r"""Text as LaTeX that prints exactly this text.

    >>> print(latex_text("95 % ± 1"))
    95 \% $\pm$ 1
    """
    return "".join(_LATEX_CHARACTERS.get(char, char) for char in " ".join(text.split()))


def html_list(notes: Sequence[Fact | str]) -> Markup:
    """Notes as an HTML list; empty without any.

    >>> html_list([Fact("Threads", "1")])
    Markup('<ul class="notes"><li>Threads: 1</li></ul>')
    """
    if not notes:
        return Markup("")
    items = Markup("").join(Markup("<li>{}</li>").format(str(note)) for note in notes)
    return Markup('<ul class="notes">{}</ul>').format(items)


_LATEX_CHARACTERS = {
    **{char: rf"\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "▲": r"$^\blacktriangle$",
    "▼": r"$^\blacktriangledown$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "×": r"$\times$",
    "|": r"$|$",
    "<": r"$<$",
    ">": r"$>$",
}


def _bar(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_markdown(entry: Entry) -> str:
    if isinstance(entry, str):
        return markdown_text(entry)
    if entry.is_code:
        # In code only the border of a cell has a meaning.
        return "`{}`".format(" ".join(entry.text.split()).replace("|", r"\|"))
    text = markdown_text(entry.text)
    return f"**{text}**" if entry.is_bold else text


def _in_latex(entry: Entry) -> str:
    if isinstance(entry, str):
        return latex_text(entry)
    if entry.latex:
        return entry.latex
    return _wrapped(entry, latex_text(entry.text), bold=r"\textbf{{{}}}", code=r"\texttt{{{}}}")


def _in_html(entry: Entry) -> Markup:
    if isinstance(entry, str):
        return escape(entry)
    return Markup(_wrapped(entry, str(escape(entry.text)), bold="<b>{}</b>", code="<code>{}</code>"))


def _wrapped(entry: Styled, text: str, bold: str, code: str) -> str:
    if entry.is_code:
        return code.format(text)
    return bold.format(text) if entry.is_bold else text


def _rich_style(entry: Entry) -> str:
    if isinstance(entry, str):
        return ""
    return " ".join(["bold"] * entry.is_bold + [entry.colour] * bool(entry.colour))
