"""Appends records and says so; run by `test_records.py`, which kills it.

python writer.py FILE NAME COUNT
"""

import sys

from sirgcn.engine import records

if __name__ == "__main__":
    file, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for seed in range(count):
        run = {"experiment": name, "column": "a", "model": "b", "seed": seed, "split": 0, "reduced": False}
        records.append(file, {**run, "history": [{"epoch": epoch, "val": epoch / 2000} for epoch in range(2000)]})
        print(seed, flush=True)
