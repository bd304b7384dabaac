"""What the tables of times say."""

import csv
import math

import pytest

from sirgcn.report import as_csv, compare, markdown, render_docs
from sirgcn.report.cells import Cell, Comparison
from sirgcn.report.claims import exponents, load_claims
from sirgcn.report.runs import Run
from sirgcn.report.runtimes import ratio_text, reading, span, timing_notes
from sirgcn.strict import ConfigError
from tests.report.fake import run, timed


def table(*runs: Run, number: int = 6) -> Comparison:
    return compare(runs)[number - 1]


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
    assert found.mean == pytest.approx(1.7 / 3)
    assert found.std == pytest.approx(math.sqrt(sum((t - 1.7 / 3) ** 2 for t in (0.4, 0.5, 0.8)) / 2))
    assert found.ratio() == pytest.approx((2.0, math.sqrt(1 / 12)))
    assert found.ratio(with_batches=True)[0] == pytest.approx(5 / 3)
    assert table(*RUNS).ratios(found) == pytest.approx((0.8854 / 0.4687, 2.0))
    assert ratio_text(table(*RUNS), found) == "2.00x ± 0.29"


def test_a_ratio_is_that_of_the_reference_timed_beside_it_not_of_another_day() -> None:
    slow = timed("GCN", [1.0, 1.0], [2.0, 2.0], [0.1, 0.1], config={"timing": {"threads": 1}})
    comparison = table(RUNS[0], slow)
    assert comparison.ratios(cell(comparison, "GCN"))[1] == 0.5


def test_the_table_shows_both_ratios_and_the_number_of_repetitions() -> None:
    text = markdown(table(*RUNS))
    assert "|  | ours | 0.1333 ± 0.0577 (3), 0.50x ± 0.00 |" in text
    assert "- Ours: mean ± standard deviation (number of repetitions)." in text
    assert "batches of 256 graphs built beforehand" in text
    assert "A made-up processor with AVX2, threads: 1, clock: cpu." in text


def test_the_reading_names_who_is_faster_and_what_differs_from_the_paper() -> None:
    beaten, order, ratios, batches = reading(table(*RUNS))
    assert beaten == "SIR-GCN is beaten in 1 of 3 cells: GCN at n=10 (0.50x ± 0.00)."
    assert order == (
        "Faster or slower than SIR-GCN as in the paper: 2 of 3 cells; "
        "not GraphSAGE at n=10 (1.50x ± 0.00, the paper 0.97x)."
    )
    assert "GCN 0.50 (the paper 0.75); GraphSAGE 1.50 (the paper 0.97); PNA 2.00 (the paper 1.89)." in ratios
    assert "takes at least n=10 0.1 s; counted in, the ratios are: GCN 0.67; GraphSAGE 1.33; PNA 1.67." in batches


def test_a_ratio_that_is_one_within_its_deviation_is_level() -> None:
    even = timed("GIN", [0.19, 0.21, 0.38], OURS, BATCHES)
    beaten, level, order, *_ = reading(table(*RUNS, even))
    assert beaten == "SIR-GCN is beaten in 1 of 4 cells: GCN at n=10 (0.50x ± 0.00)."
    assert level == "Level with SIR-GCN: GIN at n=10 (0.95x ± 0.06)."
    assert order.startswith("Faster or slower than SIR-GCN as in the paper: 2 of 3 cells that are not level; not Gra")


def test_the_notes_tell_how_busy_the_machine_was() -> None:
    busy = [timed("GCN", OURS, OURS, BATCHES, environment={"cpu": "A", "load_at_start": load}) for load in (0.4, 12.3)]
    assert timing_notes(table(busy[0]))[0].endswith("; A, threads: 1, clock: cpu, load of the machine before: 0.")
    both = table(busy[0], timed("GIN", OURS, OURS, BATCHES, environment=busy[1].environment))
    assert timing_notes(both)[0].endswith("before: 0 to 12.")


def test_the_reading_spans_the_columns() -> None:
    wide = [timed(made.model, list(made.times("forward")), OURS, BATCHES, column="n=20") for made in RUNS[:2]]
    more = timed("GCN", [0.5, 0.5, 1.0], OURS, BATCHES, column="n=30")
    sentences = reading(table(*RUNS[:2], *wide, more))
    assert sentences[0].startswith(
        "SIR-GCN is beaten in 2 of 3 cells: GCN at n=10 (0.50x ± 0.00), n=20 (0.50x ± 0.00)."
    )
    everywhere = reading(table(*RUNS[:2], *wide))[0]
    assert everywhere == "SIR-GCN is beaten in 2 of 2 cells: GCN in every column."
    assert "GCN 0.50 to 2.50 (the paper 0.59 to 0.78)" in sentences[2]


def test_small_ratios_are_not_printed_as_nothing() -> None:
    assert span([0.416, 0.00049]) == "0.0005 to 0.42"
    assert span([1, 1.001]) == "1.00"
    assert span([4e-5, 9.6e-4]) == "0.00004 to 0.001"


def test_runs_without_samples_are_read_too_and_none_give_nothing() -> None:
    time = {"experiment": "runtime", "table": 6, "metric": "seconds", "higher_is_better": False}
    comparison = table(run(**time, test=0.04), run(**time, model="PNA", test=0.10))
    assert reading(comparison)[0] == "SIR-GCN is beaten in 0 of 1 cells."
    assert len(reading(comparison)) == 3
    assert timing_notes(comparison) == []
    assert reading(table()) == []
    assert reading(compare([run()])[0]) == []


def test_training_steps_are_read_without_the_paper_which_has_none() -> None:
    config = {"train": {}, "timing": {"threads": 1, "clock": "cpu"}}
    step = {"experiment": "zinc_step", "table": None, "column": "ZINC", "metric": "step_seconds", "config": config}
    runs = [
        timed("SIR-GCN", [0.2] * 2, [0.2] * 2, [0.1] * 2, **step),
        timed("GCN", [0.1] * 2, [0.2] * 2, [0.1] * 2, **step),
    ]
    steps = compare(runs)[-1]
    assert reading(steps) == [
        "SIR-GCN is beaten in 1 of 1 cells: GCN at ZINC (0.50x ± 0.00).",
        "Building the batches, the same for all models, takes at least ZINC 0.1 s; "
        "counted in, the ratios are: GCN 0.67.",
    ]
    assert timing_notes(steps)[0].startswith("Ours: the mean over the first batches of the training set")
    page = "".join(f"<!-- results: {what} Training steps --><!-- /results -->" for what in ("table", "reading"))
    assert render_docs(page, compare([run()])).count("Nothing was run yet.") == 2
    assert "GCN at ZINC" in render_docs(page, compare(runs))


def test_samples_of_different_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="samples: expected a time of each for every repetition"):
        timed("GCN", [1.0], [1.0, 2.0], [1.0, 2.0])


def test_powers_are_those_of_the_formulas() -> None:
    found = {row.model: exponents(row.cells[0]) for row in load_claims()[7].rows}
    linear = {"|V|": 1, "|E|": 1, "d per node": 2, "d per edge": 1}
    assert found.pop("PNA") == {**linear, "d per edge": 2}
    assert set(found) == {"GCN", "GraphSAGE", "GAT/GATv2", "GIN", "SIR-GCN"}
    assert all(powers == linear for powers in found.values())


def test_slopes_far_from_their_exponents_are_named() -> None:
    growth = {"experiment": "growth", "table": 8, "column": "Complexity", "history": [], "metric": "complexity"}
    slopes = {"|V|": 0.98, "|E|": 1.3, "d per node": 1.7, "d per edge": 1.1}
    samples = {name: {"sizes": [1, 2, 3], "seconds": [1, 2, 3], "slope": 1, "error": 0.02} for name in slopes}
    near, below, above = reading(table(run(**growth, model="PNA", metrics=slopes, samples=samples), number=8))
    assert near == "Within 0.15 of the exponent of the formula: 1 of 4 slopes."
    assert below == "Below the exponent by more than 0.15: d per node: PNA 1.70; d per edge: PNA 1.10."
    assert above == "Above it by more than 0.15: |E|: PNA 1.30."


def test_a_page_holds_the_reading_of_a_table() -> None:
    page = "<!-- results: reading 6 -->old<!-- /results -->"
    text = render_docs(page, compare(RUNS))
    assert "\n\n- SIR-GCN is beaten in 1 of 3 cells: GCN at n=10 (0.50x ± 0.00).\n- Faster" in text
    assert "Nothing was run yet." in render_docs(page, compare([]))
    with pytest.raises(ConfigError, match="reading 9 -->: expected reading N"):
        render_docs("<!-- results: reading 9 --><!-- /results -->", compare([]))


def test_csv_has_both_ratios_at_full_precision() -> None:
    lines = {(line["model"], line["column"]): line for line in csv.DictReader(as_csv([table(*RUNS)]).splitlines())}
    line = lines["PNA", "n=10"]
    assert float(line["paper_ratio"]) == 0.8854 / 0.4687
    assert (float(line["ours_ratio"]), float(line["ours_ratio_std"])) == cell(table(*RUNS), "PNA").ratio()
    assert lines["GIN", "n=10"]["ours_ratio"] == ""


def test_a_timing_of_ones_own_gets_a_table_of_times() -> None:
    own = [
        timed(made.model, list(made.times("forward")), OURS, BATCHES, table=None, experiment="mine") for made in RUNS
    ]
    (comparison,) = compare(own)[8:]
    assert "| GCN | ours | 0.1333 ± 0.0577 (3), 0.50x ± 0.00 |" in markdown(comparison)
    growth = run(experiment="mine", table=None, column="Complexity", metrics={"|V|": 1.0}, metric="complexity")
    assert r"| SIR-GCN | ours | \|V\| 1.00 |" in markdown(compare([growth])[8])
