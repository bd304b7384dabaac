"""What a table of scores says, on made-up records."""

from sirgcn.report import Comparison, Fact, Run, Sheet, compare
from sirgcn.report.scores import score_reading
from tests.report.fake import run

AGREEMENT = "Our mean and the published mean ± 2 std"
OUTSIDE = "Cells outside the published mean ± 2 std"
SCATTER = "Cells whose standard deviation is more than half of the mean"
PAIRS = "Pairs of models that the paper ranks"
CHANGED = "Pairs of models that are not in the paper's order"
AHEAD = "Models ahead of SIR-GCN"
PARAMETERS = "Parameters over the columns, and their ratio to SIR-GCN"


def table1(*runs: Run) -> Comparison:
    return compare(runs)[0]


def said(comparison: Comparison) -> dict[str, Sheet]:
    """The small tables by title."""
    return {sheet.title: sheet for sheet in score_reading(comparison)}


def test_nothing_run_says_nothing() -> None:
    assert score_reading(table1()) == []


def test_a_cell_outside_the_interval_is_listed_with_both_figures() -> None:
    found = said(table1(run(test=1.0), run(model="GCN", test=0.9)))
    assert found[AGREEMENT].columns == ["Runs", "Cells", "Inside", "Better", "Worse"]
    assert found[AGREEMENT].rows == [["full", "2", "1", "1", "0"]]
    assert found[OUTSIDE].rows == [["GCN", "n=10", "0.90 (1)", "0.10 ± 0.00", "better"]]


def test_pairs_that_the_paper_ranks_are_kept_turned_or_left_out() -> None:
    # Published: GIN 0.78, GATv2 0.99, SIR-GCN and PNA 1.00.
    models = {"SIR-GCN": 1.0, "PNA": 0.9, "GATv2": 0.5, "GIN": 0.7}
    found = said(table1(*(run(model=model, test=test) for model, test in models.items())))
    assert found[PAIRS].columns == ["Column", "Pairs", "Same order", "Level", "Other order"]
    assert found[PAIRS].rows == [["n=10", "5", "4", "0", "1"]]
    assert found[CHANGED].rows == [["n=10", "GATv2", "GIN", "the other way round"]]


def test_pairs_are_counted_by_column_and_in_all() -> None:
    runs = [run(model=model, column=column) for model in ("SIR-GCN", "GIN") for column in ("n=10", "n=20")]
    assert said(table1(*runs))[PAIRS].rows == [
        ["n=10", "1", "0", "1", "0"],
        ["n=20", "1", "0", "1", "0"],
        ["all", "2", "0", "2", "0"],
    ]


def test_pairs_that_are_level_here_are_not_called_the_paper_s_order() -> None:
    found = said(table1(run(test=1.0), run(model="GATv2", test=1.0), run(model="GIN", test=0.7)))
    assert found[PAIRS].rows == [["n=10", "3", "2", "1", "0"]]
    assert found[CHANGED].rows == [["n=10", "SIR-GCN", "GATv2", "level"]]


def test_who_beats_sir_gcn_is_listed_and_a_difference_below_the_printed_digits_is_none() -> None:
    found = said(table1(run(test=0.998), run(model="PNA", test=1.0)))
    assert found[AHEAD].rows == [["n=10", "none", "-", "-"]]
    found = said(table1(run(test=0.9), run(model="PNA", test=1.0)))
    assert found[AHEAD].rows == [["n=10", "PNA", "1.00 (1)", "0.90 (1)"]]


def test_reduced_runs_are_not_ranked_with_full_ones() -> None:
    reduced = run(model="GIN", test=1.0, reduced=True)
    found = said(table1(run(test=0.9), reduced))
    assert found[AGREEMENT].rows[1] == ["reduced †", "1", "0", "1", "0"]
    assert not {PAIRS, CHANGED, AHEAD} & found.keys()


def test_reduced_runs_that_are_ranked_are_marked() -> None:
    runs = [run(model=model, test=test, reduced=True) for model, test in (("SIR-GCN", 0.9), ("GIN", 1.0))]
    found = said(table1(*runs))
    assert found[CHANGED].rows == [["n=10†", "SIR-GCN", "GIN", "the other way round"]]
    assert found[AHEAD].rows == [["n=10†", "GIN", "1.00 (1)†", "0.90 (1)†"]]


def test_reduced_runs_of_a_model_that_was_run_in_full_too_are_ranked_where_settings_are_the_same() -> None:
    short = {"reduced": True, "config": {"train": {"epochs": 20}}}
    own = [run(test=1.0), run(test=0.8, **short), run(test=0.7, reduced=True, config={"train": {"epochs": 5}})]
    found = said(table1(*own, run(model="GCN", test=0.9, **short), run(model="GIN", test=0.5)))
    assert found[AHEAD].rows == [["n=10†", "GCN", "0.90 (1)†", "0.80 (1)†"], ["n=10", "none", "-", "-"]]
    assert found[PAIRS].rows[-1] == ["all", "2", "1", "0", "1"]
    assert found[CHANGED].rows == [["n=10†", "SIR-GCN", "GCN", "the other way round"]]


def test_medians_and_far_runs_of_a_cell_that_scatters_are_listed() -> None:
    count = {"experiment": "hetero_edge_count", "table": 2, "metric": "mse", "higher_is_better": False, "column": "c=4"}
    values = [0.001, 0.002, 0.003, 0.2]
    runs = [run(**count, seed=seed, test=value) for seed, value in enumerate(values)]
    assert said(compare(runs)[1])[SCATTER].rows == [["SIR-GCN", "c=4", "0.0025", "0.2000", "3"]]
    assert SCATTER not in said(compare(runs[1:3])[1])


def test_cost_is_listed_beside_sir_gcn_and_the_place_of_the_times_is_named() -> None:
    found = said(table1(run(), run(model="GCN", test=0.1)))[PARAMETERS]
    assert found.columns == ["Model", "Least", "Most", "Ratio, least", "Ratio, largest"]
    assert found.rows == [
        ["GCN", "4,321", "4,321", "1.00", "1.00"],
        ["SIR-GCN", "4,321", "4,321", "1.00", "1.00"],
    ]
    assert found.notes == [Fact("Times are compared in", "Table 6")]
    hiv = {"experiment": "ogbg_molhiv", "table": 4, "column": "ogbg-molhiv", "metric": "roc_auc"}
    arxiv = {"experiment": "ogbn_arxiv", "table": 4, "column": "ogbn-arxiv"}
    runs = [run(**hiv), run(**arxiv, parameters=8642), run(**arxiv, model="GCN", test=0.1)]
    found = said(compare(runs)[3])[PARAMETERS]
    assert found.rows == [
        ["GCN", "4,321", "4,321", "0.50", "0.50"],
        ["SIR-GCN", "4,321", "8,642", "1.00", "1.00"],
    ]
    assert found.notes == [Fact("Times are compared in", "the table of training steps")]
    assert PARAMETERS not in said(table1(run()))
