"""What the tables of times and of growth say."""

import csv
import math

import pytest

from sirgcn.report import Cell, Comparison, Fact, Run, Sheet, as_csv, compare, markdown, render_docs
from sirgcn.report.claims import exponents, load_claims
from sirgcn.report.timing import TimeCell, ratio_digits
from sirgcn.strict import ConfigError
from tests.report.fake import run, timed

BESIDE = "Time beside SIR-GCN"
RATIOS = "Ratios to SIR-GCN over the columns"
TURNED = "Faster or slower than SIR-GCN, the other way round in the paper"
BATCHES_TAKE = "Building the batches, the same for all models"


def table(*runs: Run, number: int = 6) -> Comparison:
    return compare(runs)[number - 1]


def said(comparison: Comparison) -> dict[str, Sheet]:
    """The small tables by title."""
    return {sheet.title: sheet for sheet in comparison.presenter.reading(comparison)}


def notes_of(comparison: Comparison) -> list[str]:
    return [str(note) for note in comparison.presenter.notes(comparison)]


def cell(comparison: Comparison, model: str, column: str = "n=10") -> Cell:
    (found,) = (one for one in comparison.cells if (one.model, one.column.name) == (model, column))
    return found


# In its third repetition the machine was twice as slow: the ratios do not notice.
OURS = [0.2, 0.2, 0.4]
BATCHES = [0.1, 0.1, 0.2]
RUNS = (
    timed("SIR-GCN", OURS, OURS, BATCHES),
    timed("GCN", [0.1, 0.1, 0.2], OURS, BATCHES),
    timed("GraphSAGE", [0.3, 0.3, 0.6], OURS, BATCHES),
    timed("PNA", [0.4, 0.5, 0.8], OURS, BATCHES),
)


def test_a_cell_is_the_mean_over_repetitions_with_the_median_of_their_ratios() -> None:
    found = cell(table(*RUNS), "PNA")
    assert isinstance(found, TimeCell)
    assert found.mean == pytest.approx(1.7 / 3)
    assert found.std == pytest.approx(math.sqrt(sum((t - 1.7 / 3) ** 2 for t in (0.4, 0.5, 0.8)) / 2))
    assert found.ratio() == pytest.approx((2.0, math.sqrt(1 / 12)))
    assert found.ratio(with_batches=True)[0] == pytest.approx(5 / 3)
    assert found.ratios == pytest.approx((0.8854 / 0.4687, 2.0))
    assert found.ratio_text == "2.00x ± 0.29"


def test_a_ratio_is_that_of_the_reference_timed_beside_it_not_of_another_day() -> None:
    slow = timed("GCN", [1.0, 1.0], [2.0, 2.0], [0.1, 0.1], config={"timing": {"threads": 1}})
    assert cell(table(RUNS[0], slow), "GCN").ratios[1] == 0.5


def test_the_table_shows_both_ratios_and_the_number_of_repetitions() -> None:
    text = markdown(table(*RUNS))
    assert "|  | ours | 0.1333 ± 0.0577 (3), 0.50x ± 0.00 |" in text
    for note in (
        "Ours: mean ± standard deviation (number of repetitions)",
        "Timed: one pass over the test set with untrained weights, in batches of 256 graphs that were built before",
        "Order: all models in turn in every repetition",
        "Processor: A made-up processor with AVX2",
        "Threads: 1",
        "Clock: cpu",
    ):
        assert f"\n- {note}\n" in text


def test_the_reading_lists_who_is_faster_and_what_differs_from_the_paper() -> None:
    found = said(table(*RUNS))
    assert found[BESIDE].columns == ["Model", "n=10"]
    assert found[BESIDE].rows == [["GCN", "faster"], ["GraphSAGE", "slower"], ["PNA", "slower"]]
    assert Fact("Faster", "1 of 3 cells") in found[BESIDE].notes
    assert found[TURNED].rows == [["GraphSAGE", "n=10", "1.50x ± 0.00", "0.97x"]]
    assert found[TURNED].notes == [Fact("As in the paper", "2 of 3 cells that are not level")]
    assert found[RATIOS].columns[1:] == [
        *("Ours, least", "Ours, largest", "Paper, least", "Paper, largest"),
        *("With batches, least", "With batches, largest"),
    ]
    assert found[RATIOS].rows == [
        ["GCN", "0.50", "0.50", "0.75", "0.75", "0.67", "0.67"],
        ["GraphSAGE", "1.50", "1.50", "0.97", "0.97", "1.33", "1.33"],
        ["PNA", "2.00", "2.00", "1.89", "1.89", "1.67", "1.67"],
    ]
    assert found[BATCHES_TAKE].rows == [["n=10", "0.1"]]


def test_a_ratio_that_is_one_within_its_deviation_is_level() -> None:
    even = timed("GIN", [0.19, 0.21, 0.38], OURS, BATCHES)
    found = said(table(*RUNS, even))
    assert ["GIN", "level"] in found[BESIDE].rows
    assert cell(table(*RUNS, even), "GIN").ratio_text == "0.95x ± 0.06"
    assert found[BESIDE].notes[:3] == [
        Fact("Faster", "1 of 4 cells"),
        Fact("Level", "1 of 4 cells"),
        Fact("Slower", "2 of 4 cells"),
    ]
    assert found[TURNED].notes == [Fact("As in the paper", "2 of 3 cells that are not level")]


def test_a_table_in_the_paper_s_order_says_so() -> None:
    assert said(table(*RUNS[:2]))[TURNED].rows == [["none", "-", "-", "-"]]


def test_the_notes_tell_how_busy_the_machine_was() -> None:
    busy = [timed("GCN", OURS, OURS, BATCHES, environment={"cpu": "A", "load_at_start": load}) for load in (0.4, 12.3)]
    assert notes_of(table(busy[0]))[-4:] == [
        "Processor: A",
        "Threads: 1",
        "Clock: cpu",
        "Load of the machine before: 0",
    ]
    both = table(busy[0], timed("GIN", OURS, OURS, BATCHES, environment=busy[1].environment))
    assert notes_of(both)[-1] == "Load of the machine before: 0 to 12"


def test_the_reading_spans_the_columns() -> None:
    wide = [timed(made.model, list(made.times("forward")), OURS, BATCHES, column="n=20") for made in RUNS[:2]]
    more = timed("GCN", [0.5, 0.5, 1.0], OURS, BATCHES, column="n=30")
    found = said(table(*RUNS[:2], *wide, more))
    assert found[BESIDE].columns == ["Model", "n=10", "n=20", "n=30"]
    assert found[BESIDE].rows == [["GCN", "faster", "faster", "slower"]]
    assert Fact("Faster", "2 of 3 cells") in found[BESIDE].notes
    assert found[RATIOS].rows[0][:5] == ["GCN", "0.50", "2.50", "0.59", "0.78"]


def test_small_ratios_are_not_printed_as_nothing() -> None:
    assert [ratio_digits(value) for value in (0.416, 0.00049)] == ["0.42", "0.0005"]
    assert [ratio_digits(value) for value in (1, 1.001)] == ["1.00", "1.00"]
    assert [ratio_digits(value) for value in (4e-5, 9.6e-4)] == ["0.00004", "0.001"]


def test_runs_without_samples_are_read_too_and_none_give_nothing() -> None:
    time = {"experiment": "runtime", "table": 6, "metric": "seconds", "higher_is_better": False}
    comparison = table(run(**time, test=0.04), run(**time, model="PNA", test=0.10))
    assert Fact("Faster", "0 of 1 cells") in said(comparison)[BESIDE].notes
    assert said(comparison).keys() == {BESIDE, RATIOS, TURNED}
    assert not any(note.startswith("Timed") for note in notes_of(comparison))
    assert said(table()) == {}
    assert not said(compare([run()])[0]).keys() & {BESIDE, RATIOS}


def test_training_steps_are_read_without_the_paper_which_has_none() -> None:
    config = {"train": {}, "timing": {"threads": 1, "clock": "cpu"}}
    step = {"experiment": "zinc_step", "table": None, "column": "ZINC", "metric": "step_seconds", "config": config}
    runs = [
        timed("SIR-GCN", [0.2] * 2, [0.2] * 2, [0.1] * 2, **step),
        timed("GCN", [0.1] * 2, [0.2] * 2, [0.1] * 2, **step),
    ]
    steps = compare(runs)[-1]
    found = said(steps)
    assert found.keys() == {BESIDE, RATIOS, BATCHES_TAKE}
    assert found[BESIDE].rows == [["GCN", "faster"]]
    assert cell(steps, "GCN", "ZINC").ratio_text == "0.50x ± 0.00"
    assert found[BATCHES_TAKE].rows == [["ZINC", "0.1"]]
    assert found[RATIOS].columns[3:] == ["With batches, least", "With batches, largest"]
    assert found[RATIOS].rows == [["GCN", "0.50", "0.50", "0.67", "0.67"]]
    assert any(note.startswith("Timed: forward pass, backward pass and update") for note in notes_of(steps))
    page = "".join(f"<!-- results: {what} Training steps --><!-- /results -->" for what in ("table", "reading"))
    assert render_docs(page, compare([run()])).count("Nothing was run yet.") == 2
    assert "\n| Model | ZINC |\n|---|---:|\n| GCN | faster |\n" in render_docs(page, compare(runs))


def test_samples_of_different_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="GCN, 0: samples: expected a time of each for every repetition"):
        table(timed("GCN", [1.0], [1.0, 2.0], [1.0, 2.0])).sheet()


def test_powers_are_those_of_the_formulas() -> None:
    found = {row.model: exponents(row.cells[0]) for row in load_claims()[7].rows}
    linear = {"|V|": 1, "|E|": 1, "d per node": 2, "d per edge": 1}
    assert found.pop("PNA") == {**linear, "d per edge": 2}
    assert set(found) == {"GCN", "GraphSAGE", "GAT/GATv2", "GIN", "SIR-GCN"}
    assert all(powers == linear for powers in found.values())


def test_slopes_far_from_their_exponents_are_listed() -> None:
    growth = {"experiment": "growth", "table": 8, "column": "Complexity", "history": [], "metric": "complexity"}
    slopes = {"|V|": 0.98, "|E|": 1.3, "d per node": 1.7, "d per edge": 1.1}
    samples = {name: {"sizes": [1, 2, 3], "seconds": [1, 2, 3], "slope": 1, "error": 0.02} for name in slopes}
    near, far = said(table(run(**growth, model="PNA", metrics=slopes, samples=samples), number=8)).values()
    assert near.columns == ["Size", "Slopes", "Within 0.15"]
    assert near.rows[-1] == ["all", "4", "1"]
    assert ["|E|", "1", "0"] in near.rows
    assert far.rows == [
        ["PNA", "|E|", "1.30", "1", "above"],
        ["PNA", "d per node", "1.70", "2", "below"],
        ["PNA", "d per edge", "1.10", "2", "below"],
    ]


def test_a_page_holds_the_reading_of_a_table() -> None:
    page = "<!-- results: reading 6 -->old<!-- /results -->"
    text = render_docs(page, compare(RUNS))
    assert "-->\n\n**Time beside SIR-GCN**\n\n| Model | n=10 |\n|---|---:|\n| GCN | faster |\n" in text
    assert "Nothing was run yet." in render_docs(page, compare([]))
    with pytest.raises(ConfigError, match=r"reading 9 -->: expected .* or reading N"):
        render_docs("<!-- results: reading 9 --><!-- /results -->", compare([]))


def test_csv_has_both_ratios_at_full_precision() -> None:
    lines = {(line["model"], line["column"]): line for line in csv.DictReader(as_csv([table(*RUNS)]).splitlines())}
    line = lines["PNA", "n=10"]
    assert float(line["paper_ratio"]) == 0.8854 / 0.4687
    found = cell(table(*RUNS), "PNA")
    assert (float(line["ours_ratio"]), float(line["ours_ratio_std"])) == (found.ratios[1], found.ratio_std)
    assert lines["GIN", "n=10"]["ours_ratio"] == ""


def test_a_timing_of_ones_own_gets_a_table_of_times() -> None:
    own = [
        timed(made.model, list(made.times("forward")), OURS, BATCHES, table=None, experiment="mine") for made in RUNS
    ]
    (comparison,) = compare(own)[-1:]
    assert "| GCN | ours | 0.1333 ± 0.0577 (3), 0.50x ± 0.00 |" in markdown(comparison)
    growth = run(experiment="mine", table=None, column="Complexity", metrics={"|V|": 1.0}, metric="complexity")
    assert r"| SIR-GCN | ours | \|V\| 1.00 |" in markdown(compare([growth])[-1])
