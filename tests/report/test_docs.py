"""The documentation says what the records say."""

import re
from pathlib import Path

import pytest

from sirgcn.engine import records
from sirgcn.engine.experiment import Experiment, TrainingExperiment, load, split_name
from sirgcn.engine.plan import Run, Settings
from sirgcn.engine.search import trials
from sirgcn.engine.search.bases import based
from sirgcn.report import beyond, collisions, compare, defaults, read_runs, render_docs, separation, write_docs
from sirgcn.strict import ConfigError
from tests.report.fake import folder

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKED = [page for page in PAGES if "<!-- results:" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_a_page_and_the_records_agree(page: Path) -> None:
    text = page.read_text("utf-8")
    results = ROOT / "results"
    texts = (
        beyond.texts([text], results)
        | defaults.texts(results)
        | {
            "collisions": collisions.markdown(collisions.read_record(results)),
            "separation": separation.markdown(separation.read_record(results)),
        }
    )
    found = render_docs(text, compare(read_runs(results)), texts)
    assert found == text, f"write it anew: sirgcn results --docs {page.relative_to(ROOT)}"


def completed(experiment: Experiment, column: str, model: str) -> Experiment:
    """The experiment with the settings that a search chose for a row, where its settings are searched."""
    if not isinstance(experiment, TrainingExperiment) or experiment.search is None:
        return based(experiment, ROOT / "results")
    found = trials.read_trials(Settings(ROOT / "results"), experiment.name)
    winner = trials.winner_of(trials.trials_of(found, experiment, column, experiment.model(model)))
    assert winner is not None, f"{experiment.name}, {model}: its runs are on record, and its trials are not"
    return trials.with_winners(experiment, column, {model: winner})


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.jsonl")), ids=lambda file: file.stem)
def test_records_are_of_the_settings_that_the_experiment_has_now(file: Path) -> None:
    for record in records.read(file):
        experiment = completed(load(*split_name(file.stem)), record["column"], record["model"])
        run = Run(experiment, record["column"], record["model"], record["seed"], record["reduced"])
        assert record["config"] == run.config, f"{run}: run it again, and move the record to results/superseded"


def test_every_table_of_the_paper_is_on_the_page() -> None:
    text = (ROOT / "docs" / "results.md").read_text("utf-8")
    assert re.findall(r"<!-- results: table (\d) -->\n\n\| Model", text) == [str(number) for number in range(1, 9)]


def test_what_stands_between_markers_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    comparisons = compare(read_runs(folder(tmp_path / "results")))
    page = tmp_path / "page.md"
    page.write_text(
        "a <!-- results: summary -->old<!-- /results --> b\n"
        "We reach <!-- results: table 1 / SIR-GCN / n=10 --><!-- /results -->, "
        "and <!-- results: table 3 / GCN / ZINC --><!-- /results -->.\n\n"
        "<!-- results: table 8 / GAT/GATv2 / Complexity --><!-- /results -->\n"
        "<!-- results: table zinc+train.lr=1e-2 -->\nold\n<!-- /results -->\nend\n"
    )
    assert write_docs([page], comparisons) == [page]
    text = page.read_text("utf-8")
    assert text.startswith("a <!-- results: summary -->\n\n| Scores | Number |\n|---|---:|\n")
    assert "\n| in the paper's tables | 182 |\n| run in full | " in text
    assert "We reach <!-- results: table 1 / SIR-GCN / n=10 -->1.00 ± 0.00 (3)<!-- /results -->, and " in text
    assert "-->not run<!-- /results -->.\n" in text
    assert "| SIR-GCN | ours | 0.3000 (1) |" in text
    assert text.endswith("<!-- /results -->\nend\n")
    assert write_docs([page], comparisons) == []


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- results: table 9 --><!-- /results -->", "expected summary, models, table N"),
        ("<!-- results: table 1 / SIR / n=10 --><!-- /results -->", "with names of that table"),
        ("<!-- results: summary --> x <!-- results: table 1 --><!-- /results -->", "before the next one begins"),
        ("<!-- results: summary --> x", "expected <!-- /results --> behind it"),
    ],
)
def test_a_wrong_marker_is_refused_by_name(page: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        render_docs(page, compare([]))
