"""The page of the tuned results says what the records say: goals, published figures, lessons, ablations and curves."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import records
from sirgcn.engine.experiment import TrainingExperiment, load_training, names
from sirgcn.engine.plan import Run
from sirgcn.engine.run import header
from sirgcn.engine.search import trials
from sirgcn.engine.search.bases import based
from sirgcn.engine.search.spaces import space_of
from sirgcn.report import beyond, learning, load_claims, render_docs
from sirgcn.report.changes import changes, read_rows, reference_of
from sirgcn.report.published import KNOWN, load_published, published
from sirgcn.report.sheets import Sheet, text_of
from sirgcn.report.tuned import tuned

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tuned.md"
FOUND = {"metric": "roc_auc", "higher_is_better": True, "seconds": 60.0}


def history(level: float, epochs: int = 40) -> list[dict[str, Any]]:
    return [{"epoch": epoch, "val": level - 0.3 * math.exp(-epoch / 8)} for epoch in range(epochs)]


def searched(folder: Path, title: str, vals: list[float], tests: list[float]) -> None:
    """Record trials of a row of `tuned_minesweeper`, and runs of its winner."""
    experiment, made = load_training("tuned_minesweeper"), []
    row = experiment.model(title)
    assert experiment.search is not None
    space = space_of(experiment.search, row)
    for number, val in enumerate(vals):
        run = trials.trial(experiment, "minesweeper", row, number, {name: space[name].ends[0] for name in space})
        found = header(run) | FOUND | {"metrics": {"val": val}}
        made.append(records.append(folder / "search" / "tuned_minesweeper.jsonl", found))
    chosen = trials.with_winners(experiment, "minesweeper", {title: trials.winner_of(made) or {}}) if tests else None
    for seed, test in enumerate(tests):
        assert chosen is not None
        found = header(Run(chosen, "minesweeper", title, seed)) | FOUND | {"metrics": {"test": test, "val": test}}
        found |= {"epochs": None, "parameters": None}
        if row.control is None:
            found |= {"epochs": 40, "parameters": 60_000, "history": history(test)}
        records.append(folder / "tuned_minesweeper.jsonl", found)


def trained(folder: Path, experiment: TrainingExperiment, title: str, scores: list[tuple[float, float]]) -> None:
    """Record runs of a row with these scores on the validation and the test part."""
    for seed, (val, test) in enumerate(scores):
        found = header(Run(experiment, experiment.columns[0].title, title, seed)) | {"seconds": 9.0, "epochs": 40}
        found |= {"metric": "mae" if experiment.data == "ZINC" else "roc_auc", "metrics": {"val": val, "test": test}}
        found |= {"higher_is_better": experiment.data != "ZINC", "parameters": 1000, "history": history(val)}
        records.append(folder / f"{experiment.name}.jsonl", found)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A search of which the contextual forms are finished, GCN has three runs, and GraphSAGE seven trials."""
    last = [0.9] * 11
    searched(tmp_path, "SIR-GCN", [0.95, *last], [0.97 + 0.001 * seed for seed in range(10)])
    searched(tmp_path, "SINC-GCN", [0.97, *last], [0.98 + 0.001 * seed for seed in range(10)])
    searched(tmp_path, "SIR-GCN (gated)", [0.93, *last], [0.96 + 0.001 * seed for seed in range(10)])
    searched(tmp_path, "GCN", [0.99, *last], [0.985, 0.986, 0.987])
    searched(tmp_path, "GraphSAGE", [0.94] * 7, [])
    searched(tmp_path, "Boosting with neighbours", [0.91, *last], [0.9 + 0.001 * seed for seed in range(10)])
    return tmp_path


def cells(sheet: Sheet) -> dict[str, list[str]]:
    return {text_of(row[0]): [text_of(entry) for entry in row[1:]] for row in sheet.rows}


def test_goals_compare_the_form_that_validation_prefers_and_name_the_best_opponent(results: Path) -> None:
    zinc = load_training("zinc_plus")
    trained(results, zinc, "SIR-GCN", [(0.12, 0.14)])
    trained(results, zinc, "SIR-GCN (gated)", [(0.13, 0.11)])
    trained(results, zinc, "GIN", [(0.1, 0.105)])
    found = cells(beyond.goals(results))
    assert found["tuned_minesweeper"] == [
        *("at least 98", "98.99", "SINC-GCN", "98.45", "10"),
        *("GCN", "98.60", "yes"),
    ]
    # The gated form is better on the test part, and validation does not choose it.
    assert found["zinc_plus"] == ["at most 0.13", "0.065", "SIR-GCN", "0.140", "1", "GIN", "0.105", "no, by 0.010"]
    assert found["sinc_zinc"] == ["at most 0.286", "0.256", "", "", "", "", "", "not run"]


def test_a_goal_says_how_many_runs_are_made(tmp_path: Path) -> None:
    searched(tmp_path, "SIR-GCN", [0.95] * 12, [0.97, 0.98, 0.97])
    found = cells(beyond.goals(tmp_path))["tuned_minesweeper"]
    assert found[-1] == "no, by 0.67, so far 3 of 10 runs"


def test_the_lesson_is_read_from_the_intervals(results: Path) -> None:
    found = beyond.lesson(load_training("tuned_minesweeper"), results).splitlines()
    assert found == [
        "- Made so far: 67 of 108 trials, and the winners of 5 of 9 models.",
        "- The best mean has GCN.",
        "- SINC-GCN, the form of SIR-GCN that validation prefers, is ahead of SIR-GCN, SIR-GCN (gated), "
        "Boosting with neighbours; is open against GCN.",
    ]


def test_a_search_that_goes_on_is_shown_as_far_as_it_is(results: Path) -> None:
    found = cells(tuned(load_training("tuned_minesweeper"), results)[0])
    assert found["GraphSAGE"][0] == "not run"
    assert found["GraphSAGE"][4:7] == ["7 of 12", "0", "0.9400"]
    assert found["GCN"][:2] == ["98.60 ± 0.10†", "3"]
    assert found["GATv2"][4:7] == ["0 of 12", "0", ""]


def test_published_figures_stand_beside_ours_with_source_and_protocol(results: Path) -> None:
    text = beyond.texts(["<!-- results: published tuned_minesweeper -->"], results)["published tuned_minesweeper"]
    gcn = next(line for line in text.splitlines() if line.startswith("| GCN |"))
    assert gcn.startswith("| GCN | 97.86 ± 0.24 | 98.60 ± 0.10† | Luo et al., NeurIPS 2024 (tunedGNN) | ")
    assert "| BuNN | 98.99 ± 0.16 | no such row |" in text
    assert "| SIR-GCN | 94.12 ± 0.42 | 97.45 ± 0.30 |" in text


def test_every_published_figure_and_goal_belongs_to_an_experiment() -> None:
    found = load_published()
    columns = {column.title for name in names() for column in _columns(name)}
    assert {figure.data for figure in found.figures} <= columns
    for goal in found.goals:
        experiment = load_training(goal.experiment)
        assert experiment.column(goal.column).title == goal.column
        assert {experiment.model(title).conv for title in goal.models} == {"sir"}
        assert goal.missed_by(goal.aim) <= 0
    assert {figure.known for figure in found.figures} <= KNOWN.keys()
    # The figure of our own paper is that of its table, and no second copy.
    assert not [figure for figure in found.figures if figure.model.startswith("SIR")]
    of_paper = {column.name for table in load_claims() if table.number == 5 for column in table.columns}
    assert {column for column in of_paper if published(column, {}).rows} == of_paper


def _columns(name: str) -> tuple[Any, ...]:
    return load_training(name).columns if "tuned_" in name or "_plus" in name else ()


def test_an_ablation_shows_what_each_change_adds_by_split(results: Path) -> None:
    experiment = load_training("ablation_minesweeper")
    notes = [str(note) for note in changes(experiment, results).notes]
    made = based(experiment, results)
    assert isinstance(made, TrainingExperiment)
    assert "Not run yet: " + f"{len(made.models)} rows" in notes
    assert any(
        note.startswith("The winner: SINC-GCN of tuned_minesweeper: num_layers = 9, dropout = 0") for note in notes
    )
    trained(results, made, "the winner", [(0.9, 0.97), (0.9, 0.975), (0.9, 0.98)])
    trained(results, made, "context: none", [(0.9, 0.96), (0.9, 0.976), (0.9, 0.97)])
    trained(results, made, "norm: none", [(0.9, 0.5)])
    found = cells(changes(experiment, results))
    assert found["the winner"][:5] == ["97.50 ± 0.50", "3", "", "", ""]
    assert found["context: none"][:5] == ["96.87 ± 0.81", "3", "the winner", "-0.63", "-1.00, +0.10, -1.00"]
    assert found["norm: none"][:5] == ["50.00", "1", "the winner", "-47.00", "-47.00"]
    assert found["depth: 15"][:2] == ["not run", ""]
    # Runs from another winner are not those of today.
    searched(results, "SIR-GCN (gated)", [0.999] * 12, [])
    assert not any(row.runs for row in read_rows(based_on(experiment, results), results) if row.title != "the winner")


def based_on(experiment: TrainingExperiment, results: Path) -> TrainingExperiment:
    made = based(experiment, results)
    assert isinstance(made, TrainingExperiment)
    return made


def test_without_a_winner_the_ablation_says_which_command_makes_one(tmp_path: Path) -> None:
    notes = [str(note) for note in changes(load_training("ablation_tolokers"), tmp_path).notes]
    assert any("type: sirgcn search tuned_tolokers" in note for note in notes)


def test_rows_of_one_difference_are_compared_with_their_own_model(tmp_path: Path) -> None:
    experiment = load_training("minesweeper_differences")
    titles = [row.title for row in experiment.models]
    assert reference_of("GAT, width 512", titles) == "GAT"
    assert {title: reference_of(title, titles) for title in ("GCN", "GAT")} == {"GCN": "GCN", "GAT": "GAT"}
    trained(tmp_path, experiment, "GAT", [(0.8, 0.9)])
    trained(tmp_path, experiment, "GAT, layer norm", [(0.8, 0.91)])
    found = cells(changes(experiment, tmp_path))
    assert found["GAT, layer norm"][2:5] == ["GAT", "+1.00", "+1.00"]
    assert found["GAT"][2:5] == ["", "", ""]


def test_rows_without_edges_to_the_protocol_differ_in_one_setting_each() -> None:
    experiment = load_training("minesweeper_differences")
    protocol = load_training("minesweeper")
    for name in ("GCN", "GAT"):
        row, ours = experiment.model(name), protocol.model(name)
        assert (row.conv, row.options, row.train) == (ours.conv, ours.options, ours.train)
    assert experiment.train == protocol.train


def test_curves_are_the_median_of_the_runs_and_drawn_where_there_are_some(results: Path, tmp_path: Path) -> None:
    experiment = load_training("tuned_minesweeper")
    found = learning.curves_of(experiment, results)["minesweeper"]
    # Boosting has no epochs, and GraphSAGE no run yet.
    assert list(found) == ["SIR-GCN", "SINC-GCN", "SIR-GCN (gated)", "GCN"]
    line = learning.line_of(found["GCN"], "val")
    assert [epoch for epoch, _ in line] == list(range(40))
    assert line[0][1] == pytest.approx(68.6, abs=0.01)
    page = "<!-- results: curves tuned_minesweeper -->\n<!-- results: curves tuned_tolokers -->"
    (path,) = learning.write_curves([page], results, tmp_path / "drawn")
    assert path.name == "curves-tuned_minesweeper.svg"
    again = learning.write_curves([page], results, tmp_path / "again")
    assert again[0].read_bytes() == path.read_bytes()
    # A model far behind would press the others together. Its name says that it lies outside.
    searched(results, "MLP", [0.5] * 12, [0.51])
    drawn = learning.write_curves([page], results, tmp_path / "third")[0].read_text()
    assert "<!-- MLP (outside) -->" in drawn
    assert "<!-- GCN -->" in drawn
    text = learning.markdown("tuned_minesweeper", results)
    assert f"(_generated/{path.name})" in text
    assert "SINC-GCN 10, SIR-GCN (gated) 10, GCN 3, MLP 1." in text
    assert learning.markdown("tuned_tolokers", results) == learning.NOTHING


def test_signatures_have_a_panel_for_each_column_that_was_run(tmp_path: Path) -> None:
    experiment = load_training("unique_signature")
    for column in ("p=0.5 r=3", "p=0.5 r=5"):
        for title in ("SINC-GCN", "SIR-GCN (sum)"):
            found = header(Run(experiment, column, title, 0)) | FOUND | {"metrics": {"test": 0.99}, "epochs": 3}
            found |= {
                "metric": "balanced_accuracy",
                "history": [{"epoch": e, "train": 0.3 * e + 0.3} for e in range(3)],
            }
            records.append(tmp_path / "unique_signature.jsonl", found)
    found_curves = learning.curves_of(experiment, tmp_path)
    assert {column: list(own) for column, own in found_curves.items()} == {
        "p=0.5 r=3": ["SINC-GCN", "SIR-GCN (sum)"],
        "p=0.5 r=5": ["SINC-GCN", "SIR-GCN (sum)"],
    }
    (path,) = learning.write_curves(["<!-- results: curves unique_signature -->"], tmp_path, tmp_path / "drawn")
    assert path.read_text().startswith("<?xml")


def test_scores_by_seed_are_those_of_the_records(tmp_path: Path) -> None:
    experiment = load_training("pattern", ["redraw=true"])
    trained(tmp_path, experiment, "GCN", [(0.8, 0.85), (0.8, 0.86)])
    sheet = beyond.by_seed(experiment.name, tmp_path)
    assert sheet.columns == ["Model", "seed 0", "seed 1", "standard deviation"]
    assert cells(sheet) == {"GCN": ["85.00", "86.00", "0.71"]}


def test_the_page_is_written_with_nothing_and_with_a_part_of_the_runs(results: Path, tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    for folder in (tmp_path / "nothing", results):
        text = render_docs(page, (), beyond.texts([page], folder))
        assert not re.search(r"\bnan\b", text)
        assert text.count("<!-- /results -->") == page.count("<!-- /results -->")
    assert "7 of 12" in text
