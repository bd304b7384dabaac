"""What a table of scores says, on made-up records."""

from sirgcn.report.cells import Comparison, compare
from sirgcn.report.runs import Run
from sirgcn.report.scores import score_reading
from tests.report.fake import run


def table1(*runs: Run) -> Comparison:
    return compare(runs)[0]


def test_nothing_run_says_nothing() -> None:
    assert score_reading(table1()) == []


def test_a_cell_outside_the_interval_is_named_with_both_figures() -> None:
    said = score_reading(table1(run(test=1.0), run(model="GCN", test=0.9)))
    assert said[0] == (
        "In full: 1 of 2 cells lie within the published mean ± 2 std; "
        "not GCN, n=10: 0.90 (1), better than the published 0.10 ± 0.00."
    )


def test_pairs_that_the_paper_ranks_are_kept_turned_or_left_out() -> None:
    # Published: GIN 0.78, GATv2 0.99, SIR-GCN and PNA 1.00.
    models = {"SIR-GCN": 1.0, "PNA": 0.9, "GATv2": 0.5, "GIN": 0.7}
    said = score_reading(table1(*(run(model=model, test=test) for model, test in models.items())))
    assert (
        "Of 5 pairs of models that the paper ranks, 4 are in the same order here; "
        "the other way round: GIN before GATv2 (n=10)."
    ) in said


def test_pairs_that_are_level_here_are_not_called_the_paper_s_order() -> None:
    said = score_reading(table1(run(test=1.0), run(model="GATv2", test=1.0), run(model="GIN", test=0.7)))
    assert (
        "Of 3 pairs of models that the paper ranks, 2 are in the same order here; level: SIR-GCN and GATv2 (n=10)."
        in said
    )


def test_who_beats_sir_gcn_is_told_and_a_difference_below_the_printed_digits_is_none() -> None:
    said = score_reading(table1(run(test=0.998), run(model="PNA", test=1.0)))
    assert "SIR-GCN is not beaten in n=10." in said
    said = score_reading(table1(run(test=0.9), run(model="PNA", test=1.0)))
    assert "SIR-GCN is beaten by PNA (n=10: 1.00 (1) against 0.90 (1))." in said


def test_reduced_runs_are_not_ranked_with_full_ones() -> None:
    reduced = run(model="GIN", test=1.0, reduced=True)
    said = score_reading(table1(run(test=0.9), reduced))
    assert said[1].startswith("Reduced: 0 of 1 cells")
    assert not any("pairs" in sentence or "beaten" in sentence for sentence in said)


def test_reduced_runs_that_are_ranked_are_marked() -> None:
    runs = [run(model=model, test=test, reduced=True) for model, test in (("SIR-GCN", 0.9), ("GIN", 1.0))]
    said = score_reading(table1(*runs))
    assert any(text.endswith("the other way round: GIN before SIR-GCN (n=10†).") for text in said)
    assert "SIR-GCN is beaten by GIN (n=10: 1.00 (1)† against 0.90 (1)†)." in said


def test_reduced_runs_of_a_model_that_was_run_in_full_too_are_ranked_where_settings_are_the_same() -> None:
    short = {"reduced": True, "config": {"train": {"epochs": 20}}}
    own = [run(test=1.0), run(test=0.8, **short), run(test=0.7, reduced=True, config={"train": {"epochs": 5}})]
    said = score_reading(table1(*own, run(model="GCN", test=0.9, **short), run(model="GIN", test=0.5)))
    assert "SIR-GCN is beaten by GCN (n=10: 0.90 (1)† against 0.80 (1)†)." in said
    assert (
        "Of 2 pairs of models that the paper ranks, 1 are in the same order here; "
        "the other way round: GCN before SIR-GCN (n=10†)."
    ) in said


def test_medians_and_far_runs_of_a_cell_that_scatters_are_told() -> None:
    count = {"experiment": "hetero_edge_count", "table": 2, "metric": "mse", "higher_is_better": False, "column": "c=4"}
    values = [0.001, 0.002, 0.003, 0.2]
    runs = [run(**count, seed=seed, test=value) for seed, value in enumerate(values)]
    sentence = (
        "Where the standard deviation is more than half of the mean: "
        "SIR-GCN, c=4: median 0.0025, more than ten times that 0.2000 (seed 3)."
    )
    assert sentence in score_reading(compare(runs)[1])
    assert not any("median" in text for text in score_reading(compare(runs[1:3])[1]))


def test_cost_is_told_beside_sir_gcn_and_times_where_the_models_take_turns() -> None:
    assert score_reading(table1(run(), run(model="GCN", test=0.1)))[-2:] == [
        "Times are compared in Table 6, where the models take turns.",
        "Parameters: SIR-GCN 4,321; beside it: GCN 1.00x.",
    ]
    hiv = {"experiment": "ogbg_molhiv", "table": 4, "column": "ogbg-molhiv", "metric": "roc_auc"}
    arxiv = {"experiment": "ogbn_arxiv", "table": 4, "column": "ogbn-arxiv"}
    runs = [run(**hiv), run(**arxiv, parameters=8642), run(**arxiv, model="GCN", test=0.1)]
    assert score_reading(compare(runs)[3])[-2:] == [
        "Times are compared in the table of training steps, where the models take turns.",
        "Parameters: SIR-GCN 4,321 to 8,642; beside it: GCN 0.50x.",
    ]
