"""Run the long forms of fuzzing, kills and corruption: `python tools/soak.py [--only NAME ...] [--out FILE]`.

`make test` runs about a tenth of each. Every check runs in a process of its own and has a time limit. A check fails
where its process crashes, finds a difference or exceeds the limit. The checks, the machine and the results are written
to `results/soak.json`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirgcn.engine.environment import commit, environment

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Check:
    """One long test.

    Args:
        what: what the test does, for a reader of the record.
        command: the arguments of `python`; `{folder}` stands for an empty folder.
        seconds: the time limit.
    """

    what: str
    command: tuple[str, ...]
    seconds: int


CHECKS = {
    "graphs": Check(
        "30,000 malformed graphs and tables: each is refused, or read as a plain reader reads it",
        ("-m", "tests.data.fuzz", "--cases", "30000", "--seed", "1"),
        3600,
    ),
    "actions": Check(
        "2,000 networks that a user changed: the fast routes give what the plain one gives",
        ("-m", "tests.nn.fuzz", "--cases", "2000", "--seed", "1", "--inductor", "20"),
        3600,
    ),
    "corruption": Check(
        "12,000 damaged files of a training, a bit flipped or the end cut off: none is read without an error",
        ("-m", "tests.engine.corrupt", "--cases", "12000", "--seed", "1"),
        3600,
    ),
    "folders": Check(
        "500 bits flipped and 100 ends cut off in the files of a model's folder: none is loaded without an error",
        ("-m", "tests.model.corrupt", "--flips", "500", "--truncations", "100", "--seed", "1"),
        1800,
    ),
    "stream": Check(
        "a million molecules predicted in less than 1.5 GB, killed 10 times: no row is lost, doubled or moved",
        ("-m", "tests.model.stream", "--rows", "1000000", "--kills", "10"),
        10800,
    ),
    "stream_short": Check(
        "the check `stream` with 50,000 molecules, killed 4 times: no row is lost, doubled or moved",
        ("-m", "tests.model.stream", "--rows", "50000", "--kills", "4"),
        3600,
    ),
    "large": Check(
        "sirgcn train on 200,000 nodes and 2 million edges, 3 layers of 64 channels: at most 6 GB, and progress from "
        "the first second",
        ("-m", "tests.model.large"),
        7200,
    ),
    "kills": Check(
        "200 trainings killed at any point, 60 of them inside a write: each ends in the weights of the whole one",
        ("tests/engine/killed.py", "{folder}", "200", "60", "1"),
        3600,
    ),
    "ranks": Check(
        "20 trainings on several ranks, of which one is killed at a random step: each ends in the weights of the whole "
        "one; 50 launches of four ranks: each ends",
        ("-m", "tests.scale.killed_ranks", "20", "50", "1"),
        3600,
    ),
    "notebooks": Check(
        "the notebooks of examples/notebooks, cell by cell: each runs to its end",
        ("tools/notebooks.py", "--out", "{folder}/notebooks.json"),
        3600,
    ),
    "exchange": Check(
        "the memory of a rank with sequential exchange, on a random graph with four ranks: at most 1.3 times that of "
        "the part that it owns",
        ("-m", "tests.scale.memory"),
        1800,
    ),
}


def main() -> None:
    """Run the checks one after the other. The exit code is 1 where one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=CHECKS,
        default=list(CHECKS),
        metavar="NAME",
        help=f"checks among {', '.join(CHECKS)}",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "results" / "soak.json", help="the file of the results; default: %(default)s"
    )
    arguments = parser.parse_args()
    found = {}
    for name in arguments.only:
        print(f"{name}: {CHECKS[name].what}", flush=True)
        found[name] = run(CHECKS[name])
        print(f"{name}: {'passed' if found[name]['passed'] else 'FAILED'} in {found[name]['seconds']} s", flush=True)
    before = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    arguments.out.write_text(json.dumps({**before, **found}, indent=1) + "\n")
    sys.exit(0 if all(check["passed"] for check in found.values()) else 1)


def run(check: Check) -> dict[str, Any]:
    """Run a check and return its record. The last line that a check prints is its own summary."""
    # Taken before the check runs: files may be committed meanwhile.
    started, revision, code, output = time.monotonic(), commit(), None, ""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *(part.format(folder=folder) for part in check.command)]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=check.seconds, check=False)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            print(f"stopped after {check.seconds} s", file=sys.stderr)
    if code != 0:
        print("\n".join(output.splitlines()[-20:]), file=sys.stderr)
    return {
        "what": check.what,
        "command": ["python", *check.command],
        "passed": code == 0,
        "exit_code": code,
        "seconds": round(time.monotonic() - started),
        "summary": summary(output),
        "commit": revision,
        "environment": environment(),
    }


def summary(output: str) -> Any:
    """The summary that a check printed as JSON in its last line. Of a list of points only the counts are kept."""
    lines = output.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else None
    except ValueError:
        return lines[-1]
    if isinstance(said, dict) and isinstance(said.get("found"), list):
        return {"points": len(said["found"]), "same": sum(point["same"] for point in said["found"])}
    return said


if __name__ == "__main__":
    main()
