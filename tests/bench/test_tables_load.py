"""Reading a user's tables is measured in a process of its own, and its limits are checked; no time is judged here."""

import pytest

from sirgcn.bench import Session, run, tables_load
from sirgcn.bench.graphs import LeftOut
from sirgcn.bench.tables_load import Files, measure_tables
from sirgcn.bench.targets import check
from sirgcn.engine.timing import Effort

TINY = Files(nodes=60, edges=200)


def test_seconds_and_peak_memory_are_kept_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_load, "LARGE", TINY)
    session = Session(None, {"form": "quick"})
    plan = run.Plan(False, (), ("tables",), (1,), Effort(1, 0.0, 0.0))
    (step,) = run.steps(plan, session, lambda text: None)
    assert step.title == "tables of 60 nodes and 200 edges"
    assert not step.is_done
    step.measure()
    (again,) = run.steps(plan, session, lambda text: None)
    assert again.is_done
    (row,) = session.results.tables
    assert row.keys() == {"nodes", "rows", "threads", "peer", "seconds", "peak_bytes", "edges"}
    assert (row["nodes"], row["rows"], row["threads"]) == (60, 200, 1)
    assert 200 < row["edges"] <= 400
    limits = {target["measure"]: target for target in check(session.results) if target["mode"] == "load"}
    assert limits["tables to a task, seconds"]["measured"] == row["seconds"]
    assert limits["tables to a task, GB of memory"]["measured"] == row["peak_bytes"] / 1e9


def test_a_process_that_fails_is_left_out_with_the_reason() -> None:
    with pytest.raises(LeftOut, match="expected at least one node"):
        measure_tables(Files(nodes=0, edges=0), 1)
