"""A sheet says the same in every format, and no text can break out of its cell."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from sirgcn.report import Fact, Sheet, Styled
from sirgcn.report.plots import FORMATS, new_plot, save_plot
from sirgcn.strict import ConfigError

HOSTILE = 'x|y\n<b>&amp;</b> "q" `c` $a_b$ \\input{f} %#~^ [bold]no[/]'
SHEET = Sheet(
    "Title <i>",
    ["model", "what", "value"],
    [["GIN", "a|b", "1.0"], [HOSTILE, "c", Styled("2.0", is_bold=True, colour="green", latex="$2$")]],
    notes=[Fact("Threads", "1", where="a"), "a & b"],
    left=2,
    rules=[1],
)


def test_markdown_has_a_line_per_row_and_aligns_the_rest_to_the_right() -> None:
    title, _, head, line, *rows = SHEET.markdown().splitlines()
    assert (title, head, line) == (r"**Title \<i\>**", "| model | what | value |", "|---|---|---:|")
    assert rows[0] == r"| GIN | a\|b | 1.0 |"
    assert rows[1].endswith(" | c | **2.0** |")
    assert rows[1].replace(r"\|", "").count("|") == 4
    assert rows[2:] == ["", "- Threads (a): 1", r"- a \& b"]
    assert SHEET.markdown(level=3).startswith(r"### Title \<i\>" + "\n\n|")


def test_latex_has_rules_and_its_own_form_of_a_cell() -> None:
    text = SHEET.latex("tab:A b")
    assert r"\label{tab:a-b}" in text
    assert r"\begin{tabular}{llc}" in text
    assert r" & c & $2$ \\" in text
    assert text.count(r"\midrule") == 2
    assert r"\textbackslash{}input\{f\}" in text
    assert r"\caption{Title $<$i$>$}" in text
    assert r"\caption{$x$}" in SHEET.latex("a", caption="$x$")


def test_csv_has_the_plain_text() -> None:
    rows = list(csv.reader(io.StringIO(SHEET.csv())))
    assert rows == [["model", "what", "value"], ["GIN", "a|b", "1.0"], [HOSTILE, "c", "2.0"]]
    assert Sheet("", ["a"], [["=1+1"]]).csv() == "a\n'=1+1\n"


def test_html_escapes_everything_and_names_every_heading() -> None:
    text = str(SHEET.html())
    assert "<caption>Title &lt;i&gt;</caption>" in text
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in text
    assert '<td class="left">c</td><td><b>2.0</b></td>' in text
    assert text.endswith('<ul class="notes"><li>Threads (a): 1</li><li>a &amp; b</li></ul>')
    assert text.count("<th") - text.count("<thead") == text.count("scope=")


def test_the_terminal_prints_text_and_not_markup() -> None:
    console = Console(file=io.StringIO(), width=300)
    console.print(SHEET.rich())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]no[/]" in text
    assert "Threads (a): 1" in text


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="T: expected 2 cells in a row"):
        Sheet("T", ["a", "b"], [["1"]])


@pytest.mark.parametrize("format_", FORMATS)
def test_plots_repeat_byte_for_byte(tmp_path: Path, format_: str) -> None:
    written = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        figure, axes = new_plot(3, 2)
        axes.plot([1, 2], [2, 1], "o-", label="$x^2$")
        axes.legend()
        written.append(save_plot(figure, tmp_path / name / f"plot.{format_}").read_bytes())
    assert written[0] == written[1]
    assert [path.name for path in (tmp_path / "one").iterdir()] == [f"plot.{format_}"]


def test_an_unknown_format_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="format: expected one of png, svg, pdf, got 'gif'"):
        save_plot(new_plot()[0], tmp_path / "plot.gif")
    assert not list(tmp_path.iterdir())
