"""Every example runs as a user would run it, on little data."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def rows(example: str, arguments: str) -> dict[str, str]:
    """The last column of the table that an example prints, by the entries of the first column."""
    command = [sys.executable, str(EXAMPLES / example), *arguments.split()]
    out = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.count("│") > 1]
    return {first: last for first, *_, last in cells}


def test_messages_between_sequences_may_be_recurrent_or_convolutional() -> None:
    assert {"recurrent g", "convolutional g", "factorised"} == rows(
        "sequence_messages.py", "--nodes 40 --steps 2"
    ).keys()
