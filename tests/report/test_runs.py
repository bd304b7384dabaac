"""Records: the last of each key counts, a torn end is survived, anything else that is wrong is refused by its place."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import records
from sirgcn.engine.curves import CurvesError
from sirgcn.report.runs import as_run, read_runs
from sirgcn.strict import ConfigError
from tests.report.fake import folder, record, run, write


def test_the_report_never_loads_torch(tmp_path: Path) -> None:
    code = """
import sys
from sirgcn.report import compare, print_tables, read_runs, write_report
from rich.console import Console
comparisons = compare(read_runs(sys.argv[1]))
write_report(comparisons, sys.argv[2])
print_tables(sys.argv[1], Console(), ["dictionary_lookup"])
loaded = [name for name in ("torch", "torch_geometric", "pandas", "matplotlib") if name in sys.modules]
assert not loaded, loaded
"""
    arguments = [str(folder(tmp_path / "results")), str(tmp_path / "report")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.DEVNULL)


def test_a_later_record_of_the_same_run_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [record(test=0.1), record(seed=1, test=0.2), record(test=0.3)])
    assert {run.seed: run.value for run in read_runs(path)} == {0: 0.3, 1: 0.2}
    path = write(path, [record(test=0.1), record(test=0.2, reduced=True), record(test=0.3, split=1)])
    assert len(read_runs(path)) == 3


def test_a_torn_last_line_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [record(), record(seed=1)])
    whole = path.read_bytes()
    for cut in (1, 2, 500):
        path.write_bytes(whole[:-cut])
        with pytest.warns(UserWarning, match=r"a\.jsonl: the last line is torn"):
            assert [run.seed for run in read_runs(path)] == [0]


def test_any_other_broken_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [record(), record(seed=1)])
    first, second, _ = path.read_text().split("\n")
    path.write_text(f"{first[:-9]}\n{second}\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1"):
        read_runs(path)


def test_a_folder_is_all_its_files_and_an_absent_one_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [record()])
    write(tmp_path / "b.jsonl", [record(experiment="b")])
    assert [run.experiment for run in read_runs(tmp_path)] == ["dictionary_lookup", "b"]
    with pytest.raises(FileNotFoundError, match=r"expected a folder of \.jsonl files"):
        read_runs(tmp_path / "nowhere")


def test_curves_are_read_from_the_file_beside_the_record_when_they_are_asked_for(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.jsonl", {**record(), "format": 2}
    short = records.append(path, whole)
    assert not {"history", "samples"} & short.keys()
    (found,) = read_runs(path)
    assert list(found.history) == whole["history"]
    timed = {**record(seed=1, metric="seconds", config={"timing": {}}), "format": 2}
    timed["samples"] = {"forward": [0.5, 0.25], "reference": [1.0, 1.0], "batches": [0.125, 0.125]}
    records.append(path, timed)
    assert read_runs(path)[1].ratios() == (0.5, 0.25)
    for file in (tmp_path / "curves").rglob("*.npz"):
        file.unlink()
    one, other = read_runs(path)
    assert one.values == (1.0,)
    with pytest.raises(CurvesError, match=r"a/n=10-SIR-GCN-0-\w+\.npz"):
        one.history  # noqa: B018
    with pytest.raises(CurvesError, match=r"a/n=10-SIR-GCN-1-\w+\.npz"):
        other.values  # noqa: B018


def test_further_keys_are_kept() -> None:
    assert run(weights_sha256="ff").record["weights_sha256"] == "ff"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "format: expected 1 or 2, got 3"),
        ({"split": "0"}, "split: expected a whole number, got '0'"),
        ({"status": "ok"}, "status: expected one of done, failed, got 'ok'"),
        ({"reduced": 1}, "reduced: expected true or false, got 1"),
        ({"metrics": {}}, "metric and metrics: expected of a finished run"),
    ],
)
def test_a_wrong_field_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        as_run(record(**change), "a.jsonl")
    assert str(error.value).startswith("a.jsonl: dictionary_lookup, n=10, SIR-GCN")


def test_an_absent_field_is_refused_by_name() -> None:
    short = record()
    del short["model"]
    with pytest.raises(ConfigError, match="model is not set"):
        as_run(short, "a.jsonl")


def test_a_metric_that_was_not_finite_is_nan() -> None:
    assert math.isnan(as_run(json.loads(json.dumps(record(metrics={"test": None}))), "a").value)
