"""The cost model of docs/scaling.md: its page is its record, its counts are exact, and its errors are stated."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT / "tools")
    yield importlib.import_module("fit_scaling")
    sys.modules.pop("fit_scaling", None)


def test_the_page_shows_the_record(tool: Any) -> None:
    page = tool.PAGE.read_text("utf-8")
    assert page.count("<!-- bench: scaling ") == 5
    assert tool.rendered(page, tool.tables(tool.read(tool.RECORD))) == page


def test_every_planned_run_was_measured_and_the_fit_has_not_seen_those_that_check_it(tool: Any) -> None:
    assert tool.missing(tool.RECORD) == []
    rows = tool.read(tool.RECORD)
    shapes = {
        use: {json.dumps([row["shape"], row["ranks"], row["local"]]) for row in rows if row["use"] == use}
        for use in ("fit", "check")
    }
    assert not shapes["fit"] & shapes["check"]
    assert {row["ranks"] for row in rows if row["use"] == "check"} == {1, 2, 3, 4}


def test_bytes_are_predicted_exactly_and_memory_closely(tool: Any) -> None:
    rows = tool.read(tool.RECORD)
    fitted, checked = ([row for row in rows if row["use"] == use] for use in ("fit", "check"))
    sent = tool.fit(fitted, "sent_bytes")
    assert sent == pytest.approx([4.0])
    assert np.abs(tool.errors(checked, "sent_bytes", sent)).max() < 1e-6
    assert np.abs(tool.errors(checked, "bytes", tool.fit(fitted, "bytes"))).max() < 0.15


def test_a_fit_finds_the_costs_that_made_the_figures(tool: Any) -> None:
    rows = [row for row in tool.read(tool.RECORD) if row["use"] == "fit"]
    costs = np.array([3e-11, 2e-8, 4e-10, 3e-8, 1e-9, 1e-8])
    for row in rows:
        for rank in row["found"]:
            terms = tool.terms_of(tool.Shape(**row["shape"]), rank, row["memory_bound"])["seconds"]
            rank["seconds"] = float(np.dot(terms, costs))
    assert tool.fit(rows, "seconds") == pytest.approx(costs)


def test_what_is_predicted_falls_with_the_machines_and_a_random_halo_is_that_of_drawn_nodes(tool: Any) -> None:
    shape = tool.Shape(nodes=2000, edges=20_000, features=8, channels=8)
    halo = tool.rank_of(shape, 4, None)["halo"]
    source, target = np.random.default_rng(0).integers(0, 2000, (2, 20_000))
    drawn = [len(np.unique(source[(target % 4 == rank) & (source % 4 != rank)])) for rank in range(4)]
    assert halo == pytest.approx(np.mean(drawn), rel=0.02)
    assert tool.rank_of(shape, 1, None)["halo"] == tool.rank_of(shape, 1, 0.5)["halo"] == 0


def test_a_measured_run_sends_what_its_halo_says(tool: Any) -> None:
    planned = tool.Planned("check", tool.Shape(600, 3000, 4, 8, layers=2), ranks=2, memory_bound=True, has_time=False)
    for rank in tool.measure(planned)["found"]:
        (times,) = tool.terms_of(planned.shape, rank, planned.memory_bound)["sent_bytes"]
        assert rank["sent_bytes"] == 4 * times > 0
        assert rank["bytes"] > 0
