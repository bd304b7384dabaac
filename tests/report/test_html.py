"""The HTML report: whole in one file, and in a browser it renders, sorts and filters."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sirgcn.report import compare
from sirgcn.report.html import render_html
from sirgcn.report.runs import Run, as_run, read_runs
from tests.report.browser import CHROMIUM, Browser
from tests.report.fake import folder, record, run, write

OWN = "document.title='owned'"
HOSTILE = f'</title></style></script><script>{OWN}</script><img src=x onerror="{OWN}">\'"'
FIRST = 'section[data-table="Table 1"] .matrix'
TITLE = "SIR-GCN: our results beside the paper's"


class Elements(HTMLParser):
    """The start tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def hostile() -> dict[str, Any]:
    """A record in which every text is markup."""

    def spoil(value: Any) -> Any:
        if isinstance(value, dict):
            return {HOSTILE + key: spoil(entry) for key, entry in value.items()}
        return HOSTILE if isinstance(value, str) else value

    texts = ("model", "conv", "reduced_why", "stopped", "traceback", "experiment", "variant")
    spoiled = dict.fromkeys(texts, HOSTILE)
    return record(**spoiled, reduced=True, data=spoil(record()["data"]), environment=spoil(record()["environment"]))


def as_page(runs: list[Run] | tuple[Run, ...], path: Path) -> Path:
    path.write_text(render_html(compare(runs)), "utf-8")
    return path


def test_the_page_names_nothing_outside_itself(tmp_path: Path) -> None:
    elements = Elements(render_html(compare(read_runs(folder(tmp_path / "results"))))).found
    named = ("src", "href", "srcset", "action", "data")
    outside = [(tag, name, value) for tag, attrs in elements for name, value in attrs.items() if name in named]
    assert outside == [("link", "href", "data:,")]
    assert sum(tag in ("script", "style") for tag, _ in elements) == 2
    assert not [tag for tag, attrs in elements if any(name.startswith("on") or name == "style" for name in attrs)]


def test_tables_are_marked_up_for_those_who_cannot_see_them(tmp_path: Path) -> None:
    elements = Elements(render_html(compare(read_runs(folder(tmp_path / "results"))))).found
    assert all("scope" in attrs for tag, attrs in elements if tag == "th")
    assert all("aria-label" in attrs for tag, attrs in elements if tag == "svg")
    regions = [attrs for _, attrs in elements if attrs.get("role") == "region"]
    assert all("aria-label" in attrs or "aria-labelledby" in attrs for attrs in regions)
    assert ("html", {"lang": "en"}) in elements


def test_the_text_of_a_record_never_becomes_markup() -> None:
    failed = {**hostile(), "status": "failed", "table": None, "column": HOSTILE}
    made = [run(), as_run(hostile(), "made up"), as_run(failed, "made up")]
    text = render_html(compare(made))
    elements = Elements(text).found
    assert not [tag for tag, _ in elements if tag == "img"]
    assert sum(tag == "script" for tag, _ in elements) == 1
    assert text.count("document.title=") > 10  # it is there, as text
    assert "<script>document.title" not in text


def test_a_page_without_runs_shows_the_claims() -> None:
    text = render_html(compare([]))
    assert text.count("not run") > 200
    assert "Nothing was run yet." in text
    assert "94.12 ± 0.42" in text


def test_odd_figures_are_drawn_or_left_out(tmp_path: Path) -> None:
    odd = [record(seed=0, metrics={"test": None}, history=[]), record(seed=1, test=0.0, history=[{"epoch": 0}])]
    odd += [record(seed=2, test=-3.0, history=[{"epoch": 5, "train_loss": 0.0, "val": 1e300}])]
    odd += [record(seed=3, test=1e308, history=[{"epoch": n, "train_loss": 10.0**-n} for n in range(1000)])]
    text = render_html(compare(read_runs(write(tmp_path / "a.jsonl", odd))))
    drawn = [attrs["points"] or "" for tag, attrs in Elements(text).found if tag == "polyline"]
    assert max(len(points.split()) for points in drawn) == 120
    assert not [points for points in drawn if "nan" in points or "inf" in points]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with Browser() as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("report")
    return as_page(read_runs(folder(home / "results")), home / "report.html")


def choose(browser: Browser, field: str, value: str) -> None:
    browser.evaluate(
        f"{{ const field = document.getElementById('{field}'); field.value = '{value}';"
        " field.dispatchEvent(new Event('change')) }"
    )


def visible(browser: Browser, selector: str) -> list[str]:
    """The data-model (or data-table) of what matches and takes up room."""
    found: list[str] = browser.evaluate(
        f"[...document.querySelectorAll('{selector}')].filter(e => e.getClientRects().length)"
        ".map(e => e.dataset.model ?? e.dataset.table)"
    )
    return found


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_renders_fetches_nothing_and_fits_its_screen(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)
    assert browser.requests == [page.as_uri()]
    assert browser.errors == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('section.table').length") == 11
    assert browser.evaluate("document.getElementById('shown').textContent") == "335 of 335 cells"
    colours = "['color', 'backgroundColor'].map(name => getComputedStyle(document.body)[name])"
    text, background = (sum(map(int, re.findall(r"\d+", colour))) for colour in browser.evaluate(colours))
    assert (text > background) == dark


def test_a_column_sorts_best_first_then_worst_first_then_as_printed(browser: Browser, page: Path) -> None:
    browser.open(page)
    printed = ["GCN", "GraphSAGE", "GATv2", "GIN", "PNA", "SIR-GCN"]
    orders = []
    for _ in range(3):
        browser.evaluate(f"document.querySelectorAll('{FIRST} thead button')[1].click()")
        direction = browser.evaluate(f"document.querySelector('{FIRST} th:nth-child(2)').ariaSort")
        orders.append((visible(browser, f"{FIRST} tbody tr"), direction))
    # Ours: SIR-GCN 1.00, GATv2 0.70, GIN 0.40, GCN 0.10; what was not run comes last either way.
    assert orders[0] == (["SIR-GCN", "GATv2", "GIN", "GCN", "GraphSAGE", "PNA"], "descending")
    assert orders[1] == (["GCN", "GIN", "GATv2", "SIR-GCN", "GraphSAGE", "PNA"], "ascending")
    assert orders[2] == (printed, "none")
    browser.evaluate(f"document.querySelectorAll('{FIRST} thead button')[1].click()")
    choose(browser, "sort-by", "paper")
    assert visible(browser, f"{FIRST} tbody tr") == ["PNA", "SIR-GCN", "GATv2", "GIN", "GCN", "GraphSAGE"]
    browser.evaluate(f"document.querySelectorAll('{FIRST} thead button')[0].click()")
    assert visible(browser, f"{FIRST} tbody tr") == sorted(printed, key=str.lower)


def test_a_column_where_lower_is_better_sorts_from_the_lowest(browser: Browser, page: Path) -> None:
    browser.open(page)
    second = FIRST.replace("Table 1", "Table 2")
    browser.evaluate(f"document.querySelectorAll('{second} thead button')[1].click()")
    assert visible(browser, f"{second} tbody tr")[:3] == ["SIR-GCN", "GIN", "GCN"]


def test_lists_sort_by_number(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.evaluate("document.querySelectorAll('details').forEach(entry => entry.open = true)")
    browser.evaluate("document.querySelectorAll('.runs thead button')[5].click()")
    rows = "[...document.querySelectorAll('.runs tbody tr')]"
    values = browser.evaluate(f"{rows}.map(row => Number(row.cells[5].dataset.value))")
    finite = [value for value in values if value is not None]
    assert finite == sorted(finite, reverse=True)
    assert finite[0] == 22801.3


def test_filters_hide_what_does_not_fit_and_reset_shows_it_again(browser: Browser, page: Path) -> None:
    browser.open(page)
    everything = visible(browser, ".matrix tbody tr")
    choose(browser, "filter-table", "Table 5")
    assert visible(browser, "section.table") == ["Table 5"]
    choose(browser, "filter-model", "MLP")
    assert visible(browser, ".matrix tbody tr") == ["MLP"]
    assert set(visible(browser, ".series")) == {"MLP"}
    assert browser.evaluate("document.getElementById('shown').textContent") == "5 of 335 cells"
    browser.evaluate("document.querySelector('[type=reset]').click()")
    browser.evaluate("new Promise(done => setTimeout(done, 20))")
    assert visible(browser, ".matrix tbody tr") == everything


@pytest.mark.parametrize(
    ("state", "rows"),
    [
        ("reduced", ["GATv2"]),
        ("full", ["GCN", "GIN", "SIR-GCN"]),
        ("outside", ["GATv2", "GIN"]),
        ("failed", ["PNA"]),
        ("run", ["GCN", "GATv2", "GIN", "SIR-GCN"]),
    ],
)
def test_the_filter_of_runs_leaves_their_cells(browser: Browser, page: Path, state: str, rows: list[str]) -> None:
    browser.open(page)
    choose(browser, "filter-state", state)
    assert visible(browser, f"{FIRST} tbody tr") == rows
    assert browser.evaluate(f"document.querySelectorAll('{FIRST} tr:not([hidden]) td:not(.dim)').length") >= len(rows)


def test_a_hostile_record_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    browser.open(as_page([run(), as_run(hostile(), "made up")], tmp_path / "report.html"))
    assert browser.evaluate("document.title") == TITLE
    assert browser.requests == [(tmp_path / "report.html").as_uri()]
    choose(browser, "filter-state", "reduced")
    assert visible(browser, ".matrix tbody tr") == [f"{HOSTILE} ({HOSTILE})"]
    assert browser.evaluate("document.title") == TITLE
    assert browser.errors == []
    # Even markup that got in could not run: the page's policy knows no script but its own.
    image = json.dumps(f'<img src="data:," onerror="{OWN}">')
    browser.evaluate(f"document.body.insertAdjacentHTML('beforeend', {image})")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert browser.evaluate("document.title") == TITLE
