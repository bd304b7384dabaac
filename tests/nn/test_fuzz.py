"""Three hundred things that users do to networks, in a process of their own: no crash, no silent difference."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirgcn.ops import native

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(native.UNAVAILABLE is not None, reason=str(native.UNAVAILABLE))
def test_what_users_do_gives_the_same_on_the_fast_and_on_the_plainest_route() -> None:
    command = [sys.executable, "-m", "tests.nn.fuzz", "--cases", "300", "--seed", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)
    lines = found.stdout.splitlines()
    # The number of a case is printed before it is run: a crash of the interpreter is that of the last one.
    assert lines, found.stderr[-3000:]
    assert lines[-1].startswith("{"), f"crashed in {lines[-1]}: {found.stderr[-3000:]}"
    report = json.loads(lines[-1])
    assert report["failures"] == []
    assert report["never taken"] == []
    assert report["counts"]["compared"] > 280
    assert found.returncode == 0
