"""Every example runs as its reader would run it, on little data."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def rows(example: str, arguments: str) -> dict[str, str]:
    """The last column of the table that an example prints, by the first one."""
    command = [sys.executable, str(EXAMPLES / example), *arguments.split()]
    out = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.count("│") > 1]
    return {first: last for first, *_, last in cells}


def test_demo_shows_that_sir_gcn_looks_up_what_gcn_can_only_guess() -> None:
    accuracy = rows("dictionary_lookup.py", "--n 2 --graphs 200 --epochs 15 --batch-size 8 --lr 0.01")
    assert float(accuracy["SIR-GCN"].rstrip("%")) > 99
    assert float(accuracy["GCN"].rstrip("%")) < 65


def test_messages_between_sequences_may_be_recurrent_or_convolutional() -> None:
    assert {"recurrent g", "convolutional g", "factorised"} == rows(
        "sequence_messages.py", "--nodes 40 --steps 2"
    ).keys()
