"""The tables of what the defaults reach: the best is bold whoever has it, and nothing is left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from sirgcn.report import defaults
from sirgcn.report.sheets import NOTHING

RECORDS = Path(__file__).parents[2] / "results"


def trained(metric: str, ours: float, **controls: float | None) -> dict[str, Any]:
    score = {"value": ours, "low": ours - 0.1, "high": ours + 0.1}
    made = {
        name: {"title": name, "note": ""} | ({} if value is None else {"value": value})
        for name, value in controls.items()
    }
    return {
        "metric": metric,
        "test": score,
        "controls": made,
        "test_rows": 1000,
        "networks": 3,
        "cpu_seconds": 90.0,
    }


def cells(record: dict[str, Any]) -> list[list[str]]:
    lines = defaults.road(record).markdown().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("metric", "best"), [("accuracy", "gcn"), ("rmse", "mlp")])
def test_best_is_bold_also_where_it_is_a_simple_model(metric: str, best: str) -> None:
    (row,) = cells({"cora": trained(metric, 0.5, gcn=0.6, mlp=0.4)})
    assert row[0].startswith("Cora, ")
    bold = [place for place, cell in enumerate(row) if cell.startswith("**")]
    assert bold == [{"gcn": 2, "mlp": 6}[best]]


def test_scores_that_are_printed_alike_are_bold_together_and_missing_ones_are_dashes() -> None:
    (row,) = cells({"other": trained("accuracy", 0.81234, gcn=0.81236, mlp=None)})
    assert row == ["other, accuracy", "**81.2**", "**81.2**", "-", "-", "-", "-", "-"]


def test_data_stand_in_one_order_whenever_they_were_measured() -> None:
    found = cells({"mutag": trained("accuracy", 0.5), "tolokers": trained("roc_auc", 0.5), "cora": trained("rmse", 1)})
    assert [row[0].partition(",")[0] for row in found] == ["Cora", "tolokers", "MUTAG"]


def test_every_part_says_so_where_there_is_no_record(tmp_path: Path) -> None:
    assert set(defaults.texts(tmp_path).values()) == {NOTHING}


def test_splits_that_were_not_run_say_so() -> None:
    runs = {"ESOL": {"1": {"ours": {"score": 0.5, "seconds": 9.0}}}}
    rows = defaults.chemprop({"runs": runs}).rows
    assert len(rows) == 6
    assert rows[0] == ["ESOL", "0", *["not run"] * 4]
    assert rows[1] == ["ESOL", "1", "0.5000", "not run", "9", "not run"]


def test_every_data_set_of_the_record_has_its_row() -> None:
    record = json.loads((RECORDS / "model" / "road.json").read_text("utf-8"))
    assert len(cells(record)) == len(record) >= 2
    assert all(found["predicted_rows"] > 0 for found in record.values())
