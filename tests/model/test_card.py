"""From a training to what a person reads: the card and the page say what was measured, and are written anew alike."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from sirgcn.cli import app
from sirgcn.data import Schema, load_tables
from sirgcn.model import Model, Problem
from sirgcn.model.assessing import assess
from sirgcn.model.calibration import calibrate, carve
from sirgcn.model.card import card, page_values, report_html
from sirgcn.model.controls import ControlSettings
from sirgcn.model.fitting import FitSettings, fit
from sirgcn.model.folder import load, save


@pytest.fixture(scope="module")
def trained() -> Model:
    """A model of nodes whose class is that of their neighbours, assessed beside two controls."""
    count = 400
    nodes = pd.DataFrame({"id": [f"A{i}" for i in range(count)], "size": [float(i % 5) for i in range(count)]})
    # A third of the labels is wrong, so that there are mistakes.
    nodes["label"] = ["high" if (i % 5 > 2) != (i % 3 == 0) else "low" for i in range(count)]
    edges = pd.DataFrame({"source": nodes["id"][:-1], "target": nodes["id"][1:].to_numpy()})
    task = load_tables(nodes, edges, target="label")
    left, rows = carve(task)
    settings = FitSettings("fast", train={"epochs": 3})
    model = fit(left, settings)
    model = Model(**{**vars(model), "calibration": calibrate(model, task, rows)})
    found = assess(model, left, rows, ControlSettings(("majority", "boosting"), seconds=2.0))
    about = {"evaluation": found, "command": "sirgcn train nodes.csv edges.csv", "data": task.describe().to_dict()}
    split = {"train": list(range(5)), "test": list(range(7))}
    return Model(**{**vars(model), "about": {**model.about, **about, "split": split, "environment": {"sirgcn": "9"}}})


def test_what_was_measured_is_on_the_page_and_on_the_card(trained: Model) -> None:
    evaluation = trained.about["evaluation"]
    assert [one["name"] for one in evaluation["controls"]] == ["majority", "boosting"]
    assert len(evaluation["map"]["points"]) == evaluation["rows"]
    value = f"{100 * evaluation['scores']['accuracy']['value']:.1f} %"
    for text in (card(trained), report_html(trained)):
        assert evaluation["sentence"] in text
        assert value in text
        assert "sirgcn train nodes.csv edges.csv" in text
        assert "Predicts label of each node: high, low." in text


def test_the_worst_mistakes_are_explained_by_names(trained: Model) -> None:
    mistakes = trained.about["evaluation"]["mistakes"]
    assert mistakes
    assert all(one["explanation"]["unit"] == "log-odds" for one in mistakes[:5])
    assert {effect["column"] for effect in mistakes[0]["explanation"]["columns"]} == {"size"}
    assert "What moved the prediction" in report_html(trained)


def test_the_values_of_the_page_are_json(trained: Model) -> None:
    import json

    assert json.loads(json.dumps(page_values(trained), allow_nan=False)) is not None
    assert page_values(trained)["split"] == {"training rows": 5, "test rows": 7}


def test_the_command_writes_the_same_page_from_the_folder_alone(trained: Model, tmp_path: Path) -> None:
    about = {**trained.about, "split": {}}
    folder = save(Model(**{**vars(trained), "about": about}), tmp_path / "model")
    answer = CliRunner().invoke(app, ["report", str(folder)])
    assert answer.exit_code == 0, answer.output
    assert (folder / "report.html").read_text("utf-8") == report_html(load(folder))
    assert (folder / "README.md").read_text("utf-8") == card(load(folder))
    again = (folder / "report.html").read_bytes()
    assert CliRunner().invoke(app, ["report", str(folder), "--json"]).exit_code == 0
    assert (folder / "report.html").read_bytes() == again


def test_the_command_refuses_what_is_no_model(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["report", str(tmp_path / "nothing")])
    assert answer.exit_code != 0
    assert not (tmp_path / "nothing").exists()


def test_a_model_without_a_test_part_says_that_its_quality_is_unknown(trained: Model) -> None:
    bare = Model(**{**vars(trained), "about": {}})
    assert "its quality is not known" in card(bare)
    assert "nothing can be said about how good this model is" in report_html(bare)


def test_names_of_a_table_stay_on_their_line_of_the_card() -> None:
    odd = "price\n# A heading | <script>alert(1)</script>"
    problem = Problem(odd, "node", "numbers", (odd,), (), "mse", "mse", Schema(1))
    score: dict[str, Any] = {"title": odd, "value": 1.0, "low": 0.0, "high": 2.0, "maximise": False}
    about = {"evaluation": {"rows": 3, "metric": "mse", "scores": {"mse": score}}, "command": "```\n# x"}
    text = card(Model(problem, (), about=about))
    assert "<script>" not in text
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("# ")] == [
        "# price # A heading | &lt;script>alert(1)&lt;/script>",
        "# x",
    ]
    assert text.count("```") == 4


def test_nothing_is_assessed_without_test_rows() -> None:
    nodes = pd.DataFrame({"id": range(40), "size": [1.0, 2.0] * 20, "label": ["x", "y"] * 20})
    edges = pd.DataFrame({"source": range(38), "target": range(2, 40)})
    task = load_tables(nodes, edges, fractions=(0.8, 0.2, 0.0))
    model = Model(Problem.of(task), ())
    assert assess(model, task, torch.empty(0, dtype=torch.int64)) == {}
