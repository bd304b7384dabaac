"""Runs in the cells of the paper's tables."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.engine.experiment import SORTS, load, names
from sirgcn.report import Cell, Comparison, Fact, compare
from sirgcn.report.claims import load_claims
from sirgcn.report.filling import PRESENTERS
from sirgcn.report.runs import Run
from sirgcn.strict import ConfigError
from tests.report.fake import run

SHORT = {"reduced": True, "reduced_why": "epochs = 5", "config": {"train": {"epochs": 5}}}


def cell(comparisons: tuple[Comparison, ...], table: int = 1, model: str = "SIR-GCN", column: str = "n=10") -> Cell:
    found = [one for one in comparisons[table - 1].cells if (one.model, one.column.name) == (model, column)]
    assert len(found) == 1
    return found[0]


OTHER_DATA = "Left out, another version of the data"


def notes_of(comparison: Comparison) -> list[Fact]:
    return comparison.presenter.notes(comparison)


def of(*runs: Run) -> Cell:
    return cell(compare(runs))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_cell_is_the_mean_and_the_sample_deviation_of_its_runs(values: list[float]) -> None:
    found = of(*(run(seed=seed, test=value) for seed, value in enumerate(values)))
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert len(found.runs) == len(values)
    assert math.isnan(found.std) if len(values) == 1 else found.std == pytest.approx(statistics.stdev(values))


def test_the_scale_leads_to_the_papers_unit() -> None:
    sweep = {"experiment": "minesweeper", "table": 5, "column": "minesweeper", "metric": "roc_auc", "scale": 100.0}
    found = cell(compare([run(**sweep, test=0.9412)]), 5, column="minesweeper")
    assert found.mean == pytest.approx(94.12)
    assert (found.ours, found.verdict) == ("94.12", "inside")


def test_full_and_reduced_runs_are_never_mixed() -> None:
    short = [run(seed=seed, test=0.5, **SHORT) for seed in range(3)]
    alone = of(*short)
    assert alone.is_reduced
    assert len(alone.runs) == 3
    both = of(*short, run(seed=0, test=1.0))
    assert not both.is_reduced
    assert (both.mean, len(both.runs), len(both.left_out)) == (1.0, 1, 3)


def test_runs_of_other_settings_than_the_last_do_not_count() -> None:
    old = run(seed=0, test=0.2, config={"train": {"epochs": 10}})
    found = of(old, run(seed=1, test=0.8))
    assert (found.mean, found.left_out) == (0.8, (old,))


def test_runs_on_other_data_are_in_no_mean_but_a_seed_s_own_draw_is() -> None:
    part = run(test=0.5, data={"version": "10 of 100 images"})
    drawn = [run(test=0.8, seed=seed, data={"version": f"generated, seed {seed}"}) for seed in (1, 2)]
    found = of(part, *drawn)
    assert (found.mean, found.left_out) == (0.8, (part,))


def on(sha256: str, seed: int = 0, redraw: bool = False, **changes: Any) -> Run:
    data = {
        "version": "own data",
        "sha256": sha256,
        "splits_sha256": sha256,
        "redraw": redraw,
        **changes.pop("data", {}),
    }
    return run(seed=seed, data=data, **changes)


def test_means_never_mix_two_versions_of_the_data_and_the_table_says_what_it_leaves_out() -> None:
    old = [on("before", seed, test=0.2) for seed in (1, 2)]
    (comparison, *_) = compare([*old, on("after", 0, test=0.8)])
    (found,) = (cell for cell in comparison.cells if cell.runs)
    assert (found.mean, found.left_out, found.other_data) == (0.8, tuple(old), tuple(old))
    assert Fact(OTHER_DATA, "2") in notes_of(comparison)
    (comparison, *_) = compare([old[0], on("after", 0, test=0.8)])
    assert Fact(OTHER_DATA, "1") in notes_of(comparison)


def test_rows_of_a_column_are_of_one_version_of_the_data_that_of_the_newest_record() -> None:
    dates: list[dict[str, Any]] = [{"environment": {"date": f"2026-01-0{day}"}} for day in (1, 2)]
    newest, other = on("after", model="GIN", **dates[1]), on("before", model="GCN", **dates[0])
    for runs in ([other, newest], [newest, other]):
        (comparison, *_) = compare(runs)
        assert [cell.model for cell in comparison.cells if cell.runs] == ["GIN"]
        assert Fact(OTHER_DATA, "1") in notes_of(comparison)
    # Another column may have changed at another time.
    (comparison, *_) = compare([on("before", column="n=20", **dates[0]), newest])
    assert len([cell for cell in comparison.cells if cell.runs]) == 2


def test_split_that_changed_is_another_version_though_the_graphs_are_the_same() -> None:
    old = on("same", 1, data={"splits_sha256": "before"})
    assert of(old, on("same", 0)).other_data == (old,)


def test_data_that_are_drawn_for_each_seed_differ_and_are_one_version() -> None:
    drawn = [on(f"drawn {seed}", seed, redraw=True, data={"files_sha256": "a"}) for seed in range(3)]
    assert len(of(*drawn).runs) == 3
    # A draw of the same seed that differs, another source, and data that were not drawn anew are of another version.
    assert of(drawn[0], on("other", 0, redraw=True, model="SIR-GCN", split=1)).other_data == (drawn[0],)
    assert of(*drawn[:2], on("drawn 2", 2, redraw=True, data={"files_sha256": "b"})).other_data == tuple(drawn[:2])
    assert of(*drawn[:2], on("drawn 0", 2)).other_data == tuple(drawn[:2])


def test_records_that_do_not_say_whether_data_were_redrawn_are_told_by_their_seeds() -> None:
    drawn = [run(seed=seed, data={"version": f"generated, seed {seed}", "sha256": f"{seed}"}) for seed in range(3)]
    assert len(of(*drawn).runs) == 3
    same = [run(seed=seed, data={"version": "generated, seed 0", "sha256": "0"}) for seed in (1, 2)]
    assert of(drawn[1], *same).other_data == (drawn[1],)
    assert len(of(drawn[0], *same).runs) == 3


def test_a_failed_run_is_counted_apart() -> None:
    failed = run(seed=1, status="failed", metrics={}, metric="", traceback="why")
    found = of(run(seed=0), failed)
    assert (len(found.runs), found.failed) == (1, (failed,))
    assert of(failed).ours == ""


def test_cells_that_were_not_run_keep_their_claim() -> None:
    for comparison in compare([]):
        assert all(not one.runs and one.verdict is None and not one.ours for one in comparison.cells)
    assert str(cell(compare([]), model="GIN").claim) == "0.78 ± 0.07"


@pytest.mark.parametrize(
    ("model", "test", "verdict"),
    [
        ("GIN", 0.78, "inside"),
        ("GIN", 0.64, "inside"),  # 0.78 - 2 * 0.07
        ("GIN", 0.60, "worse"),
        ("GIN", 0.96, "better"),
        ("SIR-GCN", 0.9996, "inside"),  # prints as 1.00
        ("SIR-GCN", 0.98, "worse"),
        ("GCN", 0.0961, "inside"),
        ("GIN", None, "worse"),
    ],
)
def test_a_cell_outside_the_published_interval_is_marked(model: str, test: float | None, verdict: str) -> None:
    made = run(model=model, metrics={"test": test})
    assert cell(compare([made]), model=model).verdict == verdict


def test_lower_is_better_where_the_column_says_so() -> None:
    count = {"experiment": "hetero_edge_count", "table": 2, "column": "c=2", "metric": "mse", "model": "GIN"}
    for test, verdict in ((30.0, "better"), (39.0, "inside"), (50.0, "worse")):
        assert cell(compare([run(**count, test=test)]), 2, "GIN", "c=2").verdict == verdict


def test_runtimes_are_compared_as_ratios_to_sir_gcn() -> None:
    time = {"experiment": "runtime", "table": 6, "metric": "seconds", "higher_is_better": False}
    comparison = compare([run(**time, test=0.04), run(**time, model="PNA", test=0.10)])[5]
    assert cell((comparison,), model="PNA").ratios == pytest.approx((0.8854 / 0.4687, 2.5))
    assert all(one.verdict is None for one in comparison.cells)
    assert math.isnan(cell((comparison,), model="GCN").ratios[1])


def test_another_variant_and_another_model_get_rows_of_their_own() -> None:
    other = run(experiment="lookup_corrected", variant="corrected", test=0.5)
    comparison = compare([run(test=1.0), other, run(model="MLP", test=0.1)])[0]
    assert [line.row.model for line in comparison.lines[6:]] == ["SIR-GCN (corrected)", "MLP"]
    assert cell((comparison,)).mean == 1.0
    assert cell((comparison,), model="SIR-GCN (corrected)").claim is None


def test_an_experiment_that_the_paper_lacks_gets_a_table_of_its_own() -> None:
    comparisons = compare([run(experiment="mine", table=None, column="a", metric="f1", test=0.3)])
    assert len(comparisons) == len(load_claims()) + 1
    assert comparisons[-1].table.title == "mine"
    assert comparisons[-1].cells[0].ours == "0.3000"
    failed = run(experiment="mine", table=None, column="a", metric="", metrics={}, status="failed", seed=1)
    mine = compare([*comparisons[-1].cells[0].runs, failed])[-1].cells[0]
    assert (mine.ours, mine.failed) == ("0.3000", (failed,))


def test_only_what_was_run_is_left_by_run_part() -> None:
    part = compare([run(column="n=20"), run(model="GIN", column="n=40")])[0].run_part()
    assert [line.row.model for line in part.lines] == ["GIN", "SIR-GCN"]
    assert [column.name for column in part.columns] == ["n=20", "n=40"]
    assert compare([])[0].run_part().lines == ()


def test_every_type_of_experiment_has_its_presenter() -> None:
    assert PRESENTERS.keys() == set(SORTS.values())
    for comparison in compare([]):
        assert comparison.presenter is PRESENTERS[SORTS[comparison.table.sort]]
        assert all(isinstance(one, comparison.presenter.cells) for one in comparison.cells)


def test_what_does_not_belong_into_a_table_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Table 1: column: expected one of n=10, .*, got 'n = 10'"):
        compare([run(column="n = 10")])
    with pytest.raises(ConfigError, match=r"table: expected one of 1, 2, .*, 8, sinc_scores, .*, got 9"):
        compare([run(table=9)])
    with pytest.raises(ConfigError, match="Table 1: metric: expected accuracy, got 'mse'"):
        compare([run(metric="mse")])
    with pytest.raises(ConfigError, match="expected runs of one experiment, got a and b"):
        compare([run(experiment="a"), run(experiment="b", seed=1)])


def test_every_cell_says_how_to_run_it() -> None:
    comparisons = compare(
        [run(**SHORT), run(experiment="zinc+train.lr=1e+2+seeds=3", table=None, column="ZINC", metric="mae")]
    )
    assert cell(comparisons).command == "sirgcn reproduce table1 --models SIR-GCN --columns n=10 --reduced"
    own = comparisons[len(load_claims())].cells[0].command
    assert own == "sirgcn reproduce zinc --models SIR-GCN --columns ZINC --set train.lr=1e+2 --set seeds=3"
    assert cell(compare([]), 8, "GAT/GATv2", "Complexity").command.endswith("--models GAT/GATv2 --columns Complexity")
    mine = compare([run(experiment="mine", table=None, model="a b")])[-1].cells[0]
    assert mine.command == "sirgcn reproduce mine.toml --models 'a b' --columns n=10"


@pytest.mark.parametrize("name", names())
def test_the_experiments_have_the_columns_of_their_table(name: str) -> None:
    experiment = load(name)
    if experiment.table is not None:
        (table,) = (table for table in load_claims() if table.key == experiment.table)
        columns = {column.name for column in table.columns}
        assert {column.title for column in experiment.columns} <= columns
