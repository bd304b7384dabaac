"""Move the long fields of records of format 1 into files of curves beside the records.

    python tools/convert_records.py results results/superseded

Every `.jsonl` file of a folder is written anew, line by line. A file is replaced only after all its records were read
back with equal values. Files that are converted already stay as they are.
"""

import json
import sys
from pathlib import Path
from typing import Any

from sirgcn.engine import records
from sirgcn.files import write_atomic


def convert(path: Path) -> int:
    """Convert the records of a file, and return how many were of format 1."""
    old = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    new = [record if record["format"] == records.FORMAT else converted(path, record) for record in old]
    count = sum(record["format"] == 1 for record in old)
    if count:
        lines = [json.dumps(record, allow_nan=False, separators=(",", ":")) for record in new]
        write_atomic(path, ("\n".join(lines) + "\n").encode())
    return count


def converted(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """A record of format 1 in the present format. Its curves are on the disk and equal to its long fields."""
    # The record of an early run has the mean over all epochs here.
    epoch = records.seconds_per_epoch(record)
    changes = {"format": records.FORMAT} | ({} if epoch is None else {"seconds_per_epoch": epoch})
    whole = {name: value for name, value in (record | changes).items() if value or name not in records.LONG}
    short = records.separate(path, whole)
    found = records.with_curves(path, short)
    found.pop("curves", None)
    if found != whole:
        names = [name for name in whole if found.get(name) != whole[name]]
        raise ValueError(
            f"{path}: {records.key_of(record)}: {', '.join(names)}: expected equal values after conversion"
        )
    return short


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        for file in sorted(folder.glob("*.jsonl")):
            print(f"{file}: {convert(file)} converted")
