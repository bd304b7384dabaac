"""Ten thousand malformed graphs and tables in a process of their own: no crash, no silent wrong answer."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_what_is_drawn_is_refused_or_read_as_the_oracle_reads_it() -> None:
    command = [sys.executable, "-m", "tests.data.fuzz", "--cases", "10000", "--seed", "0"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    report = json.loads(found.stdout)
    assert report["cases"] == 10_000
    assert report["failures"] == []
    for kind, counts in report["counts"].items():
        total = sum(counts.values())
        assert counts["accepted"] > total / 10, kind
        assert counts["refused"] > total / 10, kind
        assert counts.get("open", 0) <= total / 20, kind


def test_the_generator_and_the_oracle_know_nothing_of_the_package() -> None:
    for name in ("draw", "oracle"):
        source = (ROOT / "tests" / "data" / "fuzz" / f"{name}.py").read_text()
        assert "sirgcn" not in source
