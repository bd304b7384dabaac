"""Convert the benchmark's JSON files of format 1 to records: `python tools/convert_bench.py FILE.json ...`.

Until November 2026 a benchmark wrote one JSON document, and `tools/compare_speed.py` another one. Both become a file of
records, `FILE.jsonl`, with the same figures.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sirgcn.bench import records
from sirgcn.bench.records import DONE, LEFT_OUT, Row, measurement, rounded, session_record
from sirgcn.engine.records import append
from sirgcn.engine.timing import summary

METRICS = {
    "times": ("seconds", "ratio", "calls_per_sample"),
    "memory": ("added_bytes", "peak_bytes"),
    "scaling": ("nodes", "seconds", "nanoseconds_per_edge"),
    "training": ("seconds", "ratio"),
    "tables": ("seconds", "peak_bytes", "edges"),
}
"""The fields of a row that are figures; the others say what was measured."""


def main() -> None:
    """Convert every file that is named, and leave the old one in its place."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        old, new = json.loads(path.read_text("utf-8")), path.with_suffix(".jsonl")
        new.unlink(missing_ok=True)
        for record in converted_ratios(old) if "ratios" in old else converted(old):
            append(new, record)


def converted(old: dict[str, Any]) -> Iterator[Row]:
    """The records of a benchmark."""
    session = session_record(old["environment"], old["settings"], old["environment"]["date"])
    yield session
    peers = {(peer["suite"], peer["peer"]): peer for peer in old["peers"]}
    for part, names in METRICS.items():
        for row in old[part]:
            record = converted_row(session["model"], part, names, row)
            if part == records.TIMES:
                record["config"]["what"] = peers[row["suite"], row["peer"]]["what"]
                record["data"] = old["shapes"][row["shape"]]
            yield record
    for row in old["left_out"]:
        yield converted_left_out(session["model"], row, peers)


def converted_left_out(session: str, row: Row, peers: dict[tuple[str, str], Row]) -> Row:
    """The record of something that was left out."""
    suite = row.get("suite", "")
    part = {"": records.GRAPHS, "tables": records.TABLES}.get(suite, records.TIMES)
    if suite.startswith("memory, "):
        part, suite = records.MEMORY, suite.removeprefix("memory, ")
    peer = row.get("peer", "ours")
    config = {name: value for name, value in row.items() if name not in ("suite", "peer", "reason")}
    if part in (records.TIMES, records.MEMORY):
        config |= {"suite": suite, "family": peers[suite, peer]["family"], "what": peers[suite, peer]["what"]}
    return measurement(session, part, config, peer, LEFT_OUT) | {"error": row["reason"]}


def converted_row(session: str, part: str, names: tuple[str, ...], row: Row) -> Row:
    """The record of one row; `names` are its figures."""
    config = {name: value for name, value in row.items() if name not in (*names, "peer", "samples")}
    fields: Row = {"metrics": rounded({name: row[name] for name in names})}
    if "samples" in row:
        fields["repetitions"] = rounded(row["samples"])
    return measurement(session, part, config, row.get("peer", "ours"), DONE) | fields


def converted_ratios(old: dict[str, Any]) -> Iterator[Row]:
    """The records of a comparison of two checkouts."""
    settings = {"form": "two checkouts", "after": old["after"], "before": old["before"], "clock": "wall"}
    session = session_record(old["environment"], settings, old["environment"]["date"])
    yield session
    for call, ratios in old["ratios"].items():
        fields = {"metrics": {"ratio": rounded(summary(ratios))}, "repetitions": ratios}
        yield (
            measurement(session["model"], records.RATIOS, {"call": call, "threads": 1}, "after / before", DONE) | fields
        )


if __name__ == "__main__":
    main()
