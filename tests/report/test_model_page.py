"""A model's page: whole in one file, nothing that a folder holds becomes markup, and it fits a screen and a phone."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirgcn.report.model_figures import embedding_map, histogram, intervals, learning_curves, predicted_numbers
from sirgcn.report.model_page import render_model_page, shown
from tests.report.browser import CHROMIUM, Browser

OWN = "document.title='owned'"
HOSTILE = f'</title></style><script>{OWN}</script><img src=x onerror="{OWN}">\'"'


class Elements(HTMLParser):
    """The start tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def score(value: float, title: str, maximise: bool = True) -> dict[str, Any]:
    return {"title": title, "value": value, "low": value - 0.05, "high": value + 0.05, "maximise": maximise}


def values(sort: str = "classes") -> dict[str, Any]:
    """Everything that a page can show."""
    metric, title = ("accuracy", "accuracy") if sort == "classes" else ("rmse", "root mean squared error")
    scores = {metric: score(0.8, title, sort == "classes")}
    gain = {metric: {"gain": 0.1, "low": 0.02, "high": 0.18}}
    control = {"name": "boosting", "title": "Boosting", "sees": "columns", "seconds": 2.0, "note": ""}
    evaluation = {
        "rows": 400,
        "metric": metric,
        "scores": scores,
        "sentence": "The graph adds 10.0 [2.0, 18.0] points of accuracy over the best model without it (Boosting).",
        "controls": [
            {**control, "scores": {metric: score(0.7, title)}, "differences": gain},
            {**control, "title": "MLP", "scores": {metric: score(0.6, title)}, "differences": gain, "note": "7 epochs"},
            {**control, "title": "GCN", "sees": "graph", "scores": {}, "differences": {}, "note": "no memory is left"},
        ],
        "coverage": {"level": 0.9, "held": 0.91, "size": 1.4, "empty": 0.02, "rows": 200},
        "slices": [
            {"by": "class", "name": name, "rows": 30, "value": 0.8, "low": 0.7, "high": 0.9, "value_is": "accuracy"}
            for name in ("a class with a name that is far too long for a phone", "b")
        ],
        "mistakes": [
            {
                "row": 3,
                "id": "A017",
                "true": "a",
                "predicted": "b",
                "probability": 0.97,
                "explanation": {
                    "unit": "log-odds",
                    "columns": [{"column": "price", "of": "this row", "value": "12", "effect": 1.5}],
                    "edges": [{"source": "A1", "target": "A017", "effect": -0.5}],
                },
            }
        ],
        "map": {
            "points": [{"x": n / 7, "y": (n * n) % 11, "true": f"c{n % 10}"} for n in range(40)],
            "shares": [0.5, 0.2],
            "are_numbers": False,
        },
    }
    if sort == "classes":
        evaluation["confusion"] = [{"target": "", "classes": ["a", "b"], "counts": [[30, 2], [5, 3]]}]
        evaluation["reliability"] = [{"rows": 40, "probability": 0.8, "right": 0.75, "from": 0.8, "to": 0.9}]
    else:
        evaluation["residuals"] = [
            {"target": "price", "points": [[1, 1.1], [2, 1.8]], "counts": [1, 3, 1], "edges": [-1, -0.3, 0.3, 1]}
        ]
        evaluation["map"] = {"points": [{"x": n, "y": n % 3, "true": n / 3} for n in range(20)], "are_numbers": True}
    return {
        "name": "payments",
        "summary": "Predicts fraud of each edge.",
        "created": "2030-01-01",
        "command": "sirgcn train nodes.csv edges.csv --target fraud",
        "split": {"training rows": 600, "test rows": 400},
        "history": [
            {"epoch": n, "member": m, "step_loss": 1 / (n + 1), "val_loss": 1.1, "val": 0.7}
            for n in range(40)
            for m in range(2)
        ],
        "trials": [{"name": "default", "seed": 0, "parameters": 1000, "val": 0.8, "seconds": 3.0, "chosen": True}],
        "notes": ["Two networks are averaged."],
        "data": {
            "sizes": {"nodes": 1000, "edges": 4000},
            "columns": {"node 'price'": "numeric, mean 3"},
            "warnings": ["7 rows of test are copies of training rows"],
        },
        "evaluation": evaluation,
        "environment": {"torch": "2.13.0", "variables": {"OMP_NUM_THREADS": "1"}},
        "settings": {"preset": "fast"},
    }


def spoiled(value: Any) -> Any:
    """The same values with markup in every text."""
    if isinstance(value, dict):
        return {key: spoiled(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [spoiled(entry) for entry in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("sort", ["classes", "numbers"])
def test_the_page_shows_what_the_values_hold(sort: str) -> None:
    text = Elements(render_model_page(values(sort))).text
    shown = [
        "The graph adds 10.0",
        "Boosting",
        "7 epochs",
        "could not be made: no memory is left",
        "A017",
        "price = 12",
        "payments",
        "91.0 %",
    ]
    shown += ["sirgcn train nodes.csv", "7 rows of test are copies", "Two networks are averaged.", "2.13.0"]
    for part in shown:
        assert part in text
    assert "paper" not in text.lower()


@pytest.mark.parametrize("sort", ["classes", "numbers"])
def test_the_page_names_nothing_outside_itself(sort: str) -> None:
    elements = Elements(render_model_page(values(sort))).found
    named = ("src", "href", "srcset", "action", "data")
    outside = [(tag, name, value) for tag, attrs in elements for name, value in attrs.items() if name in named]
    assert outside == [("link", "href", "data:,")]
    assert not [tag for tag, _ in elements if tag == "script"]
    assert not [tag for tag, attrs in elements if any(name.startswith("on") or name == "style" for name in attrs)]


@pytest.mark.parametrize("sort", ["classes", "numbers"])
def test_the_text_of_a_folder_never_becomes_markup(sort: str) -> None:
    page = render_model_page(spoiled(values(sort)))
    elements = Elements(page).found
    assert not [tag for tag, _ in elements if tag in ("script", "img")]
    assert page.count("document.title=") > 5


@pytest.mark.parametrize("sort", ["classes", "numbers"])
def test_figures_and_tables_are_marked_up_for_those_who_cannot_see_them(sort: str) -> None:
    elements = Elements(render_model_page(values(sort))).found
    assert all("scope" in attrs for tag, attrs in elements if tag == "th")
    assert all("aria-label" in attrs or "aria-hidden" in attrs for tag, attrs in elements if tag == "svg")
    regions = [attrs for _, attrs in elements if attrs.get("role") == "region"]
    assert all("aria-label" in attrs or "aria-labelledby" in attrs for attrs in regions)
    ids = {attrs["id"] for _, attrs in elements if "id" in attrs}
    assert {attrs["aria-labelledby"] for attrs in regions if "aria-labelledby" in attrs} <= ids


@pytest.mark.parametrize("left_out", [*values(), "everything"])
def test_whatever_is_absent_is_left_out(left_out: str) -> None:
    given = {} if left_out == "everything" else {key: value for key, value in values().items() if key != left_out}
    assert render_model_page(given).startswith("<!doctype html>")


@pytest.mark.parametrize("left_out", list(values()["evaluation"]))
def test_an_evaluation_may_lack_any_part(left_out: str) -> None:
    given = values()
    del given["evaluation"][left_out]
    assert render_model_page(given).startswith("<!doctype html>")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=4), inside, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*values()["evaluation"], "residuals"]), json_values)
def test_values_of_another_shape_never_break_the_page(key: str, odd: Any) -> None:
    given = values() | {"history": []}
    given["evaluation"][key] = odd
    page = render_model_page(json.loads(json.dumps(given)))
    assert "nan," not in page
    assert "inf," not in page


def test_shares_are_percent_and_other_numbers_are_not() -> None:
    assert shown(0.5, "roc_auc") == "50.0 %"
    assert shown(0.5, "mae") == "0.5"
    assert shown(float("nan"), "mae") == "–"


def test_figures_without_numbers_are_empty() -> None:
    assert learning_curves([{"epoch": 0, "val": None}], "val", "") == ""
    assert intervals([{"name": "a", "value": None}], "") == ""
    assert predicted_numbers([[None, 1.0]], "y") == ""
    assert histogram([1], [0.0], "error") == ""
    assert embedding_map([{"x": float("nan"), "y": 0.0}], False) == ("", [])


def test_a_curve_has_a_line_for_each_network_and_keeps_its_ends() -> None:
    rows = [{"epoch": n, "member": m, "val": n * 1.0} for n in range(1000) for m in range(3)]
    lines = [
        attrs["points"] or "" for tag, attrs in Elements(learning_curves(rows, "val", "")).found if tag == "polyline"
    ]
    assert len(lines) == 3
    assert all(len(line.split()) == 150 for line in lines)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with Browser() as made:
        yield made


@pytest.mark.parametrize("sort", ["classes", "numbers"])
@pytest.mark.parametrize(("width", "dark"), [(1300, False), (390, True)])
def test_the_page_fits_its_screen_and_fetches_nothing(
    browser: Browser, tmp_path: Path, sort: str, width: int, dark: bool
) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_model_page(values(sort)), "utf-8")
    browser.open(page, width, dark=dark)
    assert browser.requests == [page.as_uri()]
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # The page's own style applies: its policy names the right hash.
    assert browser.evaluate("getComputedStyle(document.querySelector('.verdict')).borderLeftWidth") == "5px"
    text = "Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height))"
    assert browser.evaluate(text) >= 9


def test_a_hostile_folder_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_model_page(spoiled(values())), "utf-8")
    browser.open(page)
    assert "owned" not in browser.evaluate("document.title").replace(OWN, "")
