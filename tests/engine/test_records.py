"""Records: nothing that was committed is lost, whoever writes beside and whoever is killed."""

import json
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sirgcn.engine import records
from sirgcn.engine.curves import CurvesError
from tests.engine.test_settings import TOML
from tests.test_files import limited

RESULTS = Path(__file__).parents[2] / "results"


def record(seed: int, **more: Any) -> dict[str, Any]:
    run = {"experiment": "a", "column": "b", "model": "c", "seed": seed, "split": 0, "reduced": False}
    return {**run, **more}


def test_records_come_back_and_a_later_one_replaces_an_earlier(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.jsonl"
    assert records.read(file) == []
    for given in (record(0, value=1), record(1, value=2), record(0, value=3)):
        records.append(file, given)
    assert records.read(file) == [record(1, value=2), record(0, value=3)]
    assert len(file.read_text().splitlines()) == 3


def test_what_json_has_no_word_for_becomes_null(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    records.append(file, record(0, values=[math.nan, math.inf, 1.5]))
    assert "NaN" not in file.read_text()
    assert records.read(file)[0]["values"] == [None, None, 1.5]


def test_torn_last_line_is_told_of_and_cut_off_by_the_next_record(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    records.append(file, record(0))
    with file.open("a") as stream:
        stream.write('{"experiment": "a", "col')
    with pytest.warns(UserWarning, match="the last line is torn"):
        assert records.read(file) == [record(0)]
    records.append(file, record(1))
    assert records.read(file) == [record(0), record(1)]


@pytest.mark.parametrize("line", ["{", "[]", '{"experiment": "a"}', ""])
def test_broken_line_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    records.append(file, record(0))
    with file.open("a") as stream:
        stream.write(f"{line}\n{json.dumps(record(1))}\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: not a record"):
        records.read(file)


def test_eight_writers_of_whom_some_are_killed_lose_no_committed_record(tmp_path: Path) -> None:
    rng, file = random.Random(0), tmp_path / "a.jsonl"
    script = Path(__file__).with_name("writer.py")
    writers = [
        subprocess.Popen([sys.executable, script, file, str(i), "40"], stdout=subprocess.PIPE, text=True)
        for i in range(8)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
    for writer in writers[:4]:
        time.sleep(rng.random() / 20)
        writer.kill()
    committed = {str(i): {"0", *writer.communicate()[0].split()} for i, writer in enumerate(writers)}
    records.append(file, record(0))
    found = {name: {str(r["seed"]) for r in records.read(file) if r["experiment"] == name} for name in committed}
    for name, seeds in committed.items():
        assert seeds <= found[name]
        own = [records.with_curves(file, r) for r in records.read(file) if r["experiment"] == name]
        assert all(len(r["history"]) == 2000 for r in own)
    assert all(len(committed[str(i)]) == 40 for i in range(4, 8))


def test_epoch_takes_the_median_interval_of_its_history() -> None:
    # Epochs of 2, 2 and 50 seconds: for a while the machine was busy.
    history = [{"seconds": seconds} for seconds in (1.0, 3.0, 5.0, 55.0)]
    assert records.seconds_per_epoch({"seconds": 56.0, "epochs": 4, "history": history}) == 2.0
    assert records.seconds_per_epoch({"seconds": 4.0, "epochs": 1, "history": [{"seconds": 3.0}]}) == 4.0
    assert records.seconds_per_epoch({"seconds": 4.0}) is None


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
@pytest.mark.parametrize("before", [0, 3])
def test_full_disk_is_told_with_the_path_and_leaves_the_records_as_they_were(tmp_path: Path, before: int) -> None:
    file = tmp_path / "a.jsonl"
    for seed in range(before):
        records.append(file, record(seed))
    code = f"from sirgcn.engine import records\nrecords.append(sys.argv[1], {record(9, config=[0] * 5000)!r})"
    found = limited(code, file)
    assert found.stderr.rstrip().endswith(f"File too large: '{file}'")
    assert records.read(file) == [record(seed) for seed in range(before)]
    # Nor is there an empty one.
    assert file.exists() == (before > 0)


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
@pytest.mark.parametrize("line", [0, 5000])
def test_full_disk_leaves_neither_a_record_nor_curves(tmp_path: Path, line: int) -> None:
    file, history = tmp_path / "a.jsonl", [{"epoch": 0, "val": 0.5}] * (1 if line else 20_000)
    rows = f"[row | {{'val': place ** 0.5}} for place, row in enumerate({history[:1]!r} * {len(history)})]"
    code = f"from sirgcn.engine import records\nrecords.append(sys.argv[1], {record(9, config=[0] * line)!r} | "
    found = limited(f"{code}{{'history': {rows}}})", file)
    name = file if line else tmp_path / "curves" / "a"
    assert f"File too large: '{name}" in found.stderr
    assert list(tmp_path.iterdir()) == []


def long_record(**more: Any) -> dict[str, Any]:
    """A record with all that is long."""
    rng = random.Random(0)
    history = [
        {"epoch": epoch, "lr": 1e-3, "val": float(f"{rng.random():.6g}"), "train": None if epoch % 2 else 0.1}
        for epoch in range(300)
    ]
    growth = {"|V|": {"sizes": [2, 4, 8], "seconds": [0.1, 0.2, 0.4], "slope": 1 / 3, "error": 1e-3}}
    samples = {"forward": [rng.random() for _ in range(5)], "a/b %": growth}
    return (
        record(0, history=history, samples=samples, traceback="\n".join(map(str, range(900))), error="x" * 999) | more
    )


def test_line_is_short_and_curves_beside_it_are_what_was_recorded(tmp_path: Path) -> None:
    file, given = tmp_path / "a.jsonl", long_record(value=1.5)
    stored = records.append(file, given)
    assert len(file.read_bytes()) < 3000
    (found,) = records.read(file)
    assert found == stored
    assert not {"history", "samples"} & found.keys()
    whole = records.with_curves(file, found)
    assert {name: whole[name] for name in ("history", "samples", "traceback")} == {
        name: given[name] for name in ("history", "samples", "traceback")
    }
    assert (whole["value"], whole["error"]) == (1.5, "x" * 400 + "...")
    assert re.fullmatch(r"curves/a/b-c-0-[0-9a-f]{8}\.npz", found["curves"]["file"])


def test_missing_damaged_and_foreign_curves_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    found = records.append(file, long_record())
    place = tmp_path / found["curves"]["file"]
    whole = place.read_bytes()
    for damaged in (whole[:-1], b"", whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]):
        place.write_bytes(damaged)
        with pytest.raises(CurvesError, match=rf"{place.name}: expected the curves that were written"):
            records.with_curves(file, found)
    place.unlink()
    with pytest.raises(CurvesError, match=rf"{place.name}: expected the curves of a record, got no file"):
        records.with_curves(file, found)
    for outside in ("../a.npz", "/etc/passwd", "curves/../../a.npz"):
        with pytest.raises(CurvesError, match="expected a file below the folder of the records"):
            records.with_curves(file, found | {"curves": {"file": outside, "sha256": ""}})


def test_later_record_of_a_run_leaves_the_curves_of_the_earlier_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    first = records.append(file, record(0, history=[{"epoch": 0, "val": 0.25}]))
    second = records.append(file, record(0, history=[{"epoch": 0, "val": 0.5}]))
    assert [records.with_curves(file, kept)["history"][0]["val"] for kept in (first, second)] == [0.25, 0.5]


def test_curves_hold_any_number_exactly(tmp_path: Path) -> None:
    values: list[float | None] = [None, 0.0, 1 / 3, 1e-300, 1e300, 123456.0, 16_777_217.0, -2.5, 1e-40]
    rows = [{"val": value, "digits": 0.123456, "step": 2**40} for value in values]
    found = records.append(tmp_path / "a.jsonl", record(0, history=[*rows, {"val": math.inf}]))
    whole = records.with_curves(tmp_path / "a.jsonl", found)["history"]
    assert whole[:-1] == rows
    assert whole[-1]["val"] is None


def test_record_of_the_first_format_has_its_history_in_the_line(tmp_path: Path) -> None:
    assert records.with_curves(tmp_path / "a.jsonl", record(0, history=[1]))["history"] == [1]


# The records of the benchmark and of large graphs have no runs, and tests of their own.
WITHOUT_RUNS = (RESULTS / "bench", RESULTS / "scale")
OF_RUNS = sorted(path for path in RESULTS.rglob("*.jsonl") if path.parent not in WITHOUT_RUNS)


@pytest.mark.parametrize("file", OF_RUNS, ids=lambda file: file.stem)
def test_committed_records_are_short_and_have_their_curves(file: Path) -> None:
    assert max(map(len, file.read_bytes().splitlines())) < 3000
    for found in records.read(file):
        whole = records.with_curves(file, found)
        assert whole["history"] if "epochs" in found else whole["samples"]
        if "epochs" in found:
            assert len(whole["history"]) == found["epochs"]
            assert records.seconds_per_epoch(whole) == found["seconds_per_epoch"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_device_without_room_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: .*a\.jsonl"):
        records.append(tmp_path / "a.jsonl", record(0))


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_score_of_a_run_whose_record_cannot_be_written_is_told_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TOML)
    places: list[str | Path] = [
        "--results",
        tmp_path / "results",
        "--work",
        tmp_path / "runs",
        "--threads",
        "1",
        "-s",
        "0",
    ]
    for more in ([], ["--json"]):
        code = "from sirgcn.cli import main\nif __name__ == '__main__':\n    main()"
        found = limited(code, "reproduce", tmp_path / "small.toml", *places, *more)
        assert found.returncode == 1
        assert "Traceback" not in found.stderr
        (line,) = (line for line in found.stderr.splitlines() if line.startswith("unrecorded: "))
        assert re.match(r"unrecorded: small c=2, SIR-GCN, seed 0, test mse [\d.e+]+ after 1 epochs", line)
        assert line.endswith(f"{tmp_path}/results/small.jsonl: the record cannot be written: File too large")
        assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.parametrize("named", [{}, "x", {"file": "curves/a.npz"}, {"file": 1, "sha256": "0"}], ids=str)
def test_malformed_name_of_curves_is_refused_with_the_file(named: Any, tmp_path: Path) -> None:
    with pytest.raises(CurvesError, match=r"a\.jsonl: curves: expected a file and its sha256, got"):
        records.with_curves(tmp_path / "a.jsonl", {**record(0), "curves": named})
