"""The collisions of trained models: a GCN confuses dictionaries that the task tells apart, a SIR-GCN none."""

import json
from pathlib import Path

import pytest

from sirgcn.engine.experiment import load_training
from sirgcn.report.collisions import FILE, add_to_record, look_at, markdown, read_record
from sirgcn.strict import ConfigError

RESULTS = Path(__file__).parents[2] / "results"

# DictionaryLookup that is learnt in seconds.
SMALL = """
data = "dictionary_lookup"
preset = "dictionary_lookup"
columns = [{ title = "n=4", options = { n = 4, num_graphs = 500 } }]
[train]
epochs = 12
batch_size = 32
lr = 1e-2
selection = "last"
stop_loss = 1e-2
[[models]]
title = "GCN"
conv = "gcn"
[[models]]
title = "SIR-GCN"
"""


def test_a_trained_gcn_collides_where_a_trained_sir_gcn_does_not(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL, "utf-8")
    experiment = load_training(tmp_path / "small.toml")
    (sir, none), (gcn, many) = (look_at(experiment, title, "n=4") for title in ("SIR-GCN", "GCN"))
    assert (sir["found"], gcn["found"]) == (len(none), len(many)) == (0, len(many))
    assert gcn["found"] > 0.05 * gcn["separated"]
    assert gcn["accuracy"] < 0.5
    assert sir["accuracy"] == 1.0
    assert sir["closest_separated"] > sir["thresholds"][1]

    for row in (sir, gcn):
        assert add_to_record(row, tmp_path) == tmp_path / FILE
    assert read_record(tmp_path) == json.loads(json.dumps([gcn, sir]))
    low, high = sir["thresholds"]
    assert f"| SIR-GCN | 1.00 | 0 | 0.0% | {low:.2f} | {high:.2f} |" in markdown([gcn, sir])


def test_the_kept_record_says_so_of_the_table() -> None:
    rows = {row["model"]: row for row in read_record(RESULTS)}
    for row in rows.values():
        assert (row["experiment"], row["column"], row["reduced"]) == ("dictionary_lookup", "n=10", False)
    assert rows["GCN"]["found"] > 0
    assert rows["SIR-GCN"]["found"] == 0
    assert rows["SIR-GCN"]["separated"] == rows["GCN"]["separated"] > 1e6


def test_a_row_takes_the_place_of_the_former_one_and_of_other_columns(tmp_path: Path) -> None:
    row = {"experiment": "e", "column": "n=10", "seed": 0, "reduced": False, "model": "GCN", "found": 1}
    other = {**row, "model": "A"}
    for entry in (row, other, {**row, "found": 2}):
        add_to_record(entry, tmp_path)
    assert read_record(tmp_path) == [other, {**row, "found": 2}]
    add_to_record({**row, "column": "n=20"}, tmp_path)
    assert read_record(tmp_path) == [{**row, "column": "n=20"}]


def test_a_record_of_another_format_is_refused_and_none_is_said_to_be_missing(tmp_path: Path) -> None:
    assert markdown(read_record(tmp_path)) == "Nothing was run yet."
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text('{"format": 99}')
    with pytest.raises(ConfigError, match="expected format 1, got 99"):
        read_record(tmp_path)
