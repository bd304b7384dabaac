"""Reading a user's tables is measured in a process of its own, and its limits are checked; no time is judged here."""

from pathlib import Path

import pytest

from sirgcn.bench import record, run, tables_load
from sirgcn.bench.graphs import LeftOut
from sirgcn.bench.tables_load import Files, measure_tables
from sirgcn.bench.targets import check
from sirgcn.engine.timing import Effort

TINY = Files(nodes=60, edges=200)


def test_seconds_and_peak_memory_are_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_load, "LARGE", TINY)
    kept = record.Record(tmp_path / "record.json", {"form": "quick"})
    plan = run.Plan(False, (), ("tables",), (1,), Effort(1, 0.0, 0.0))
    ((title, step),) = run.steps(plan, kept, lambda text: None)
    assert title == "tables of 60 nodes and 200 edges"
    step()
    (row,) = kept.data["tables"]
    assert row.keys() == {"nodes", "rows", "threads", "seconds", "peak_bytes", "edges"}
    assert (row["nodes"], row["rows"], row["threads"]) == (60, 200, 1)
    assert 200 < row["edges"] <= 400
    limits = {target["measure"]: target for target in check(kept.data) if target["mode"] == "load"}
    assert limits["tables to a task, seconds"]["measured"] == row["seconds"]
    assert limits["tables to a task, GB of memory"]["measured"] == row["peak_bytes"] / 1e9


def test_a_process_that_fails_is_left_out_with_the_reason() -> None:
    with pytest.raises(LeftOut, match="expected at least one node"):
        measure_tables(Files(nodes=0, edges=0), 1)
