"""The record of how often random features tell graphs apart: measured again in part, and what it says."""

from pathlib import Path

import pytest

from sirgcn.report.separation import FILE, markdown, measure, read_record, write_record
from sirgcn.strict import ConfigError

ROOT = Path(__file__).parents[2]


def test_the_kept_record_is_what_is_measured() -> None:
    kept = read_record(ROOT / "results")
    assert kept is not None
    found = measure(kept["weights"], kept["draws"], kept["level"], only="a hexagon and two triangles")
    assert found["nodes"] == kept["nodes"]
    (row,), (expected, *_) = found["pairs"], kept["pairs"]
    for cell, old in zip((*row["layers"], row["copy"]), (*expected["layers"], expected["copy"]), strict=True):
        # A p-value at the level may fall to either side of it by rounding on another machine.
        assert abs(cell["hits"] - old["hits"]) <= 1
        assert cell["trials"] == old["trials"]


def test_the_kept_record_says_what_the_paper_does() -> None:
    kept = read_record(ROOT / "results")
    assert kept is not None
    assert kept["nodes"]["hits"] == kept["nodes"]["trials"]
    for row in kept["pairs"]:
        one, *_, last = row["layers"]
        # Equal distributions pass the level by chance only: more than 2 of 100 at 0.001 come once in 6,000.
        assert max(one["hits"], row["copy"]["hits"]) <= 2
        assert last["hits"] > 0.9 * last["trials"]


def test_a_record_is_kept_and_another_format_refused(tmp_path: Path) -> None:
    assert markdown(read_record(tmp_path)) == "Nothing was run yet."
    count = {"hits": 1, "trials": 4, "interval": [0.046, 0.699]}
    row = {"graphs": "one and another", "layers": [count] * 4, "copy": count}
    record = {"format": 1, "weights": 4, "draws": 50, "level": 0.001, "nodes": count, "pairs": [row]}
    assert write_record(record, tmp_path) == tmp_path / FILE
    assert read_record(tmp_path) == record
    text = markdown(record)
    assert f"\n| one and another |{' 0.25 (0.05 to 0.70) |' * 5}\n" in text
    assert "\n- Draws of the weights: 4\n" in text
    (tmp_path / FILE).write_text('{"format": 99}')
    with pytest.raises(ConfigError, match="expected format 1, got 99"):
        read_record(tmp_path)
