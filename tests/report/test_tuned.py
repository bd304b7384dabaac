"""The page of a search: budget, scores, paired differences and chosen settings, with what was not run."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirgcn.engine import plan, records
from sirgcn.engine.experiment import (
    ColumnConfig,
    ModelConfig,
    SearchConfig,
    TrainConfig,
    TrainingExperiment,
)
from sirgcn.engine.run import header
from sirgcn.engine.search import trials
from sirgcn.report import beyond, render_docs, tuned
from sirgcn.report.sheets import Sheet, text_of

ROWS = (
    ModelConfig("SIR-GCN", space={"aggr": ["mean", "sum"]}),
    ModelConfig("SIR-GCN, gelu", options={"activation": "gelu"}, space={"aggr": ["mean", "sum"]}),
    ModelConfig("GCN", conv="gcn"),
    ModelConfig("Boosting", control="boosting", seeds=3, space={"max_iter": [10, 20]}),
)
EXPERIMENT = TrainingExperiment(
    "mine",
    "minesweeper",
    ROWS,
    (ColumnConfig("minesweeper"),),
    train=TrainConfig(epochs=20, batch_size=None, selection="val_metric"),
    seeds=6,
    splits=6,
    scale=100.0,
    search=SearchConfig(trials=2, train={"epochs": 5}, space={"dropout": [0.0, 0.5]}),
)
FINISHED = {"metric": "roc_auc", "higher_is_better": True, "seconds": 30.0}


def tried(folder: Path, row: ModelConfig, number: int, val: float | None) -> dict[str, Any]:
    """Record a trial of a row."""
    values = [0.0, 0.5]
    chosen: dict[str, Any] = {} if row.control else {"dropout": values[number]}
    chosen |= {name: entries[number] for name, entries in row.space.items()}
    run = trials.trial(EXPERIMENT, "minesweeper", row, number, chosen)
    found = header(run) | FINISHED | {"metrics": {"val": val}}
    if val is None:
        found |= {"status": "failed", "error": "the loss is nan"}
    return records.append(folder / "search" / "mine.jsonl", found)


def ran(folder: Path, row: ModelConfig, winner: dict[str, Any], tests: list[float]) -> None:
    """Record the runs of a winner."""
    chosen = trials.with_winners(EXPERIMENT, "minesweeper", {row.title: winner})
    for seed, test in enumerate(tests):
        found = header(plan.Run(chosen, "minesweeper", row.title, seed)) | FINISHED
        parameters = None if row.control else 1000
        records.append(folder / "mine.jsonl", found | {"metrics": {"test": test}, "parameters": parameters})


def folder_of(place: Path) -> Path:
    """Two forms of SIR-GCN, of which the second is better in validation; GCN has no run yet."""
    found: list[list[float | None]] = [[0.80, 0.85], [0.90, 0.86], [None, 0.7], [0.60, 0.65]]
    for row, vals in zip(ROWS, found, strict=True):
        made = [tried(place, row, number, val) for number, val in enumerate(vals)]
        winner = trials.winner_of(made)
        assert winner is not None
        if row.title == "SIR-GCN":
            ran(place, row, winner, [0.92, 0.93, 0.94, 0.95, 0.96, 0.97])
        if row.title == "SIR-GCN, gelu":
            ran(place, row, winner, [0.90, 0.91, 0.92, 0.93, 0.94, 0.95])
        if row.control:
            ran(place, row, winner, [0.70, 0.71, 0.72])
    return place


def cells(sheet: Sheet) -> dict[str, list[str]]:
    return {text_of(row[0]): [text_of(entry) for entry in row[1:]] for row in sheet.rows}


def test_the_page_shows_scores_budget_costs_and_who_wins(tmp_path: Path) -> None:
    scores, differences, others, chosen = tuned.tuned(EXPERIMENT, folder_of(tmp_path))
    found = cells(scores)
    assert found["SIR-GCN"] == ["94.50 ± 1.87", "6", "1,000", "30", "2 of 2", "0", "0.8500", "1.0"]
    assert found["Boosting"] == ["71.00 ± 1.00†", "3", "", "30", "2 of 2", "0", "0.6500", "1.0"]
    assert found["GCN"] == ["not run", "", "", "", "2 of 2", "1", "0.7000", "1.0"]
    notes = [str(note) for note in scores.notes]
    assert "Budget of every model: 2 trials of 5 epochs on split 0" in notes
    assert "Runs of the winners: 20 epochs on 6 seeds or splits" in notes
    assert "† reduced: fewer than 6 runs" in notes
    assert "Not run yet: GCN" in notes
    # The form that validation prefers is behind another on the test parts, and the page says so.
    assert "Best mean so far: SIR-GCN" in notes
    assert cells(differences)["SIR-GCN"] == ["6", "+2.00", "+2.00 to +2.00", "SIR-GCN"]
    assert cells(differences)["Boosting"] == ["3", "-20.00", "", "open"]
    assert "SIR-GCN, gelu" not in cells(differences)
    assert cells(others) == {"SIR-GCN": ["Boosting", "3", "-22.00", "", "open"]}
    assert cells(chosen)["SIR-GCN, gelu"] == ["dropout = 0, aggr = mean", "1", "0.9000"]
    assert cells(chosen)["GCN"] == ["dropout = 0.5", "2", "0.7000"]


def test_a_loss_of_ours_is_shown_as_the_win_of_the_other(tmp_path: Path) -> None:
    ours, other = ROWS[0], ROWS[2]
    for row, tests in ((ours, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]), (other, [0.6, 0.7, 0.6, 0.7, 0.6, 0.7])):
        made = [tried(tmp_path, row, number, 0.5) for number in range(2)]
        ran(tmp_path, row, made[0], tests)
    scores, differences, _ = tuned.tuned(EXPERIMENT, tmp_path)
    assert cells(differences)["GCN"][-1] == "GCN"
    assert "Best mean so far: GCN" in [str(note) for note in scores.notes]


def test_runs_of_other_settings_and_unfinished_searches_are_left_out(tmp_path: Path) -> None:
    row = ROWS[0]
    first = tried(tmp_path, row, 0, 0.9)
    ran(tmp_path, row, first, [0.5] * 6)
    assert cells(tuned.tuned(EXPERIMENT, tmp_path)[0])["SIR-GCN"][:2] == ["not run", ""]
    tried(tmp_path, row, 1, 0.95)
    assert cells(tuned.tuned(EXPERIMENT, tmp_path)[0])["SIR-GCN"][:2] == ["not run", ""]
    tried(tmp_path, row, 1, 0.85)
    assert cells(tuned.tuned(EXPERIMENT, tmp_path)[0])["SIR-GCN"][:2] == ["50.00 ± 0.00", "6"]


def test_a_page_without_records_says_that_nothing_was_run(tmp_path: Path) -> None:
    (scores,) = tuned.tuned(EXPERIMENT, tmp_path)
    assert {entries[0] for entries in cells(scores).values()} == {"not run"}
    assert "Not run yet: SIR-GCN, SIR-GCN, gelu, GCN, Boosting" in [str(note) for note in scores.notes]


@given(st.lists(st.floats(-5, 5), min_size=5, max_size=12))
@settings(max_examples=20)
def test_the_interval_holds_the_mean_and_shifts_with_the_differences(values: list[float]) -> None:
    low, high = tuned.interval(values)
    assert low <= np.mean(values) + 1e-9
    assert high >= np.mean(values) - 1e-9
    moved = tuned.interval([value + 3 for value in values])
    assert moved == pytest.approx((low + 3, high + 3))
    turned = tuned.interval([-value for value in values])
    assert turned == pytest.approx((-high, -low), abs=0.05 * (max(values) - min(values)) + 1e-9)


def test_an_interval_has_the_width_of_a_normal_mean() -> None:
    values = np.random.default_rng(3).normal(size=400).tolist()
    low, high = tuned.interval(values)
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(values) / math.sqrt(400), rel=0.05)
    assert all(map(math.isnan, tuned.interval([1.0, 2.0, 3.0, 4.0])))


def test_the_markers_of_a_page_are_filled(tmp_path: Path) -> None:
    page = "A.\n<!-- results: tuned --><!-- /results -->"
    texts = beyond.texts([page], tmp_path)
    assert texts["tuned"]
    assert texts["tuned"].strip() in render_docs(page, [], texts)


def test_what_records_say_of_a_search_is_plain_json(tmp_path: Path) -> None:
    record = tried(tmp_path, ROWS[0], 0, 0.9)
    assert json.loads(json.dumps(record)) == record
    assert (record["row"], record["trial"], record["settings"]) == ("SIR-GCN", 0, {"dropout": 0.0, "aggr": "mean"})
