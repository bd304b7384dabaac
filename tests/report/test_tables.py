"""The tables as text: ours beside the paper's in every format, and nothing in a record can break out of its cell."""

import csv
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from sirgcn.report import (
    FILES,
    Comparison,
    Fact,
    Run,
    as_csv,
    compare,
    latex,
    markdown,
    print_tables,
    read_runs,
    render_html,
    write_report,
)
from sirgcn.report.docs import summary
from sirgcn.strict import ConfigError
from tests.report.fake import folder, run

HOSTILE = 'x|y\n<b>&amp;</b> "q" `c` $a_b$ \\input{f} %#~^ [bold]no[/]'


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, ...]:
    return compare(read_runs(folder(tmp_path_factory.mktemp("made") / "results")))


def grid(text: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a Markdown table by model and whose they are."""
    found: dict[tuple[str, str], list[str]] = {}
    model = ""
    for line in text.splitlines():
        if line.startswith("| ") and " | " in line:
            name, whose, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            model = name or model
            found[model, whose] = cells
    return found


def test_markdown_has_ours_below_the_papers(comparisons: tuple[Comparison, ...]) -> None:
    rows = grid(markdown(comparisons[0]))
    assert rows["SIR-GCN", "paper"][:2] == ["**1.00 ± 0.00**", "**1.00 ± 0.00**"]
    assert rows["SIR-GCN", "ours"] == ["1.00 ± 0.00 (3)", "1.00 ± 0.00 (2)", "", "", ""]
    assert rows["GATv2", "ours"][0] == "0.70 (1)†▼"
    assert rows["GIN", "ours"][:2] == ["0.40 (1)▼", "0.50 (1)▲"]
    assert rows["PNA", "ours"][0] == "failed"
    assert ("GraphSAGE", "ours") not in rows
    assert rows["GraphSAGE", "paper"][0] == "0.10 ± 0.00"
    assert rows["GCN", "ours"][0] == "0.10 ± 0.00 (3)"  # the reduced run is not in it


def test_rows_that_were_reduced_in_another_way_are_named() -> None:
    short = {"reduced": True, "reduced_why": "epochs = 5"}
    runs = [run(model=model, **short) for model in ("GCN", "GIN")]
    assert "\n- † reduced (n=10): epochs = 5\n" in markdown(compare(runs)[0])
    text = markdown(compare([*runs, run(model="PNA", reduced=True, reduced_why="epochs = 9")])[0])
    assert "\n- † reduced (n=10: GCN, GIN): epochs = 5\n- † reduced (n=10: PNA): epochs = 9\n" in text


def test_notes_say_what_the_marks_mean(comparisons: tuple[Comparison, ...]) -> None:
    text = markdown(comparisons[0])
    for note in (
        "† reduced (n=10): epochs = 5",
        "Data of our own making (n=10, n=20): 0",
        "▲: better than the published mean ± 2 std",
        "▼: worse than the published mean ± 2 std",
        "Left out, failed: 1",
    ):
        assert f"\n- {note}\n" in text
    assert "\n- Source of the paper's rows other than SIR-GCN: Corso et al." in markdown(comparisons[3])
    assert "reduced" not in markdown(comparisons[3])


def test_column_of_failed_runs_alone_has_no_metric_to_tell() -> None:
    failed = run(experiment="mine", table=None, status="failed", metric="", metrics={}, history=[])
    comparison = compare([failed])[-1]
    assert comparison.presenter.legend(comparison) == []


def test_runtimes_carry_both_ratios(comparisons: tuple[Comparison, ...]) -> None:
    rows = grid(markdown(comparisons[5]))
    assert rows["GCN", "paper"][0] == "0.3526 ± 0.0778, 0.75x"
    assert rows["GCN", "ours"][0] == "0.0100 ± 0.0000 (3), 0.48x"


def test_complexities_stand_beside_what_was_measured(comparisons: tuple[Comparison, ...]) -> None:
    assert r"| ours | \|V\| 1.02 ± 0.01 (1), \|E\| 0.97 (1), d 1.50 |" in markdown(comparisons[7])
    assert r"$\mathcal{O}\left(\left|\mathcal{E}\right| \times d_\text{in} +" in latex(comparisons[7])


def test_latex_has_a_row_per_line_and_the_columns_of_its_head(comparisons: tuple[Comparison, ...]) -> None:
    text = latex(comparisons[4])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(row.count("&") == 6 for row in rows)
    assert r"H$_2$GCN & paper & 60.11 $\pm$ 0.52" in text
    assert r"& ours &  &  & 94.15 $\pm$ 0.13 (4) &" in text
    assert text.count(r"\midrule") == 4


def test_csv_has_every_cell_at_full_precision(comparisons: tuple[Comparison, ...]) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(comparisons))))
    assert len(rows) == sum(len(comparison.cells) for comparison in comparisons)
    by_place = {(row["table"], row["model"], row["column"]): row for row in rows}
    ours = by_place["5", "SIR-GCN", "minesweeper"]
    assert (ours["paper_mean"], ours["paper_std"], ours["runs"], ours["verdict"]) == ("94.12", "0.42", "4", "inside")
    assert float(ours["ours_mean"]) == pytest.approx(94.15)
    assert by_place["1", "GATv2", "n=10"]["reduced"] == "true"
    assert by_place["1", "GraphSAGE", "n=10"]["ours_mean"] == ""


def test_digits_follow_the_claim_and_the_size_of_the_figure() -> None:
    count = {"experiment": "hetero_edge_count", "table": 2, "column": "c=2", "metric": "mse"}
    tests = {"GCN": 22801.37, "PNA": 0.5, "MLP": 1e5}
    made = [run(**count, model=model, test=test) for model, test in tests.items()]
    cells = {cell.model: cell.ours for cell in compare(made)[1].cells if cell.runs}
    assert cells == {"GCN": "22801", "PNA": "0.500", "MLP": "100000"}


def test_the_terminal_shows_only_what_was_run(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    print_tables(folder(tmp_path / "results"), console, ["dictionary_lookup", "never_run"])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Table 1: Test accuracy on DictionaryLookup." in text
    assert "Table 2" not in text
    assert "n=30" not in text
    assert "0.70 (1)†▼" in text


def test_a_hostile_name_stays_in_its_cell() -> None:
    comparison = compare([run(model=HOSTILE)])[0]
    text = markdown(comparison)
    row = next(line for line in text.splitlines() if "| ours |" in line)
    assert row.replace(r"\|", "").count("|") == 8
    assert r"\<b\>\&amp;\</b\>" in row
    assert r"\$a\_b\$" in row
    row = next(line for line in latex(comparison).splitlines() if "& ours &" in line)
    assert r"\textbackslash{}input\{f\}" in row
    assert row.replace(r"\&", "").count("&") == 6
    assert list(csv.DictReader(io.StringIO(as_csv([comparison]))))[-1]["model"] == HOSTILE
    console = Console(file=io.StringIO(), width=300)
    console.print(comparison.sheet().rich())
    assert "[bold]no[/]" in console.file.getvalue()  # type: ignore[attr-defined]


def parts_of(*names: str) -> dict[str, float]:
    return {f"{name}{suffix}": 0.5 for name in names for suffix in ("", "_loss")}


def shown(runs: list[Run]) -> list[str]:
    """A table in all formats."""
    comparison = compare(runs)[0]
    console = Console(file=io.StringIO(), width=200)
    console.print(comparison.sheet().rich())
    texts = [markdown(comparison), latex(comparison), render_html([comparison])]
    return [*texts, console.file.getvalue()]  # type: ignore[attr-defined]


def test_a_split_without_a_test_part_has_a_dash_and_a_note() -> None:
    runs = [run(metrics=parts_of("train", "val")), run(model="GIN", test=0.8), run(model="GIN", test=0.8, seed=1)]
    for text in shown(runs):
        assert "the split has no test part" in text
        assert "nan" not in text.replace('data-value="nan"', "")
        assert "(0)" not in text
        assert "0 runs" not in text
    comparison = compare(runs)[0]
    assert grid(markdown(comparison))["SIR-GCN", "ours"][0] == "-"
    assert "\n- No score (-) (n=10): the split has no test part\n" in markdown(comparison)
    (alone, *_) = compare(runs[:1])
    assert alone.presenter.reading(alone) == []
    counts = {str(name): count for name, count in summary(compare(runs[:1])).rows}
    assert counts.pop("in the paper's tables") == "182"
    assert set(counts.values()) == {"0"}
    (row,) = (
        row
        for row in csv.DictReader(io.StringIO(as_csv([comparison])))
        if row["column"] == "n=10" and row["model"] == "SIR-GCN"
    )
    assert (row["ours_mean"], row["runs"], row["verdict"]) == ("", "1", "")


def test_a_score_that_is_not_a_number_is_told_with_its_seed_and_ranks_nowhere() -> None:
    runs = [run(metrics={**parts_of("train"), "test": None}, seed=3), run(model="GIN", test=0.8)]
    for text in shown(runs):
        assert "(n=10): SIR-GCN, seed 3" in text.replace("</b>", "")
    (comparison, *_) = compare(runs)
    assert Fact("Score that is not a number", "SIR-GCN, seed 3", "n=10") in comparison.presenter.notes(comparison)
    assert not any("Pairs of models" in sheet.title for sheet in comparison.presenter.reading(comparison))


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", '=HYPERLINK("x","y")'])
def test_no_name_is_a_formula_in_a_spreadsheet(name: str) -> None:
    own = {"experiment": name, "table": None, "column": name, "model": name, "metric": name}
    (row,) = csv.DictReader(io.StringIO(as_csv(compare([run(**own, test=-0.25)])[-1:])))
    assert {row[key] for key in ("table", "column", "model", "metric")} == {f"'{name}".replace("\r", "\n")}
    assert row["ours_mean"] == "-0.25"
    assert not any(cell.startswith(tuple("=+@\t\r")) for cell in row.values())


def test_a_report_is_four_files(tmp_path: Path, comparisons: tuple[Comparison, ...]) -> None:
    written = write_report(comparisons, tmp_path / "new" / "report")
    assert [path.name for path in written] == list(FILES)
    assert all(path.stat().st_size > 1000 for path in written)
    assert "## Table 8: Asymptotic runtime complexity." in written[1].read_text("utf-8")
    assert [path.name for path in write_report(comparisons, tmp_path, ["tables.csv"])] == ["tables.csv"]
    with pytest.raises(ConfigError, match=r"file of a report: expected one of report.html, .*, got 'tables.pdf'"):
        write_report(comparisons, tmp_path, ["tables.pdf"])


def test_a_shortened_run_is_marked_and_not_coloured_as_a_failure(
    comparisons: tuple[Comparison, ...], tmp_path: Path
) -> None:
    terminal = Console(width=300, force_terminal=True, color_system="standard", file=io.StringIO())
    with terminal.capture() as captured:
        print_tables(folder(tmp_path / "results"), terminal, ["dictionary_lookup"])
    assert "0.70 (1)†▼" in captured.get()
    coloured = set(re.findall(r"\x1b\[31m *(0\.\d0 \(1\)†?▼)", captured.get()))
    assert coloured == {"0.40 (1)▼"}
    page = render_html(comparisons[:1])
    assert '<span class="badge worse" title="outside' in page
    assert '<span class="badge " title="outside' in page
