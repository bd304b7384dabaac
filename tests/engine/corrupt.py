"""Damages the files of a training and reads them: `python -m tests.engine.corrupt --cases 12000 --seed 1`.

The files are those of the checkpoints of a training, and the curves of a record. Every case flips a bit of one file or
cuts the file off at a random place, and reads it as the engine does. A case is *silent* where the damaged file is read
without an error. The last line is a summary as JSON, and the exit code is 1 where a case was silent. `test_corrupt.py`
runs a tenth of what `make soak` runs.
"""

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sirgcn.engine import checkpoint, records
from sirgcn.engine.checkpoint import CheckpointError, Checkpoints
from sirgcn.engine.curves import CurvesError
from tests.engine.killed import task, train

DAMAGES = ("flip", "truncation")


@dataclass(frozen=True)
class Target:
    """A file to damage.

    Args:
        path: the file.
        sort: the sort of file, for the summary.
        is_refused: reads the file and says whether it was refused.
    """

    path: Path
    sort: str
    is_refused: Callable[[], bool]


def main() -> None:
    """Run the cases and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.corrupt")
    parser.add_argument("--cases", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(task(), folder / "checkpoints")
        targets = [*checkpoint_targets(folder / "checkpoints"), curves_target(folder / "results.jsonl")]
        summary = damage_all(targets, arguments.cases, arguments.seed)
    print(json.dumps(summary))
    sys.exit(1 if summary["silent"] else 0)


def checkpoint_targets(folder: Path) -> list[Target]:
    """The files of the two checkpoints that a training keeps."""
    paths = sorted(folder.glob("*.json"))
    assert len(paths) == 2
    kept = checkpoint.read(paths[0])
    targets = []
    for path in paths:
        checks: list[Callable[[], bool]] = [lambda path=path: is_checkpoint_refused(path)]  # type: ignore[misc]
        if path == paths[1]:
            checks.append(lambda: is_older_one_taken(folder, kept[0], kept[1]["state"]["step"]))
        for file in (path, path.with_suffix(".safetensors")):
            targets += [Target(file, file.suffix, check) for check in checks]
    return targets


def is_checkpoint_refused(path: Path) -> bool:
    """Whether reading a checkpoint raises the error that it documents."""
    try:
        checkpoint.read(path)
    except CheckpointError:
        return True
    return False


def is_older_one_taken(folder: Path, of: object, step: int) -> bool:
    """Whether a training that is taken up warns of its newest checkpoint and goes on from the one before it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = Checkpoints(folder, of=of).load()
    has_warned = any("the checkpoint before it is used" in str(warning.message) for warning in caught)
    return has_warned and state is not None and state["state"]["step"] == step


def curves_target(path: Path) -> Target:
    """The file of curves of a record with a history and samples."""
    record = dict(zip(records.KEY, ("tiny", "column", "SIR-GCN", 0, 0, False), strict=True))
    history = [{"epoch": epoch, "step_loss": 1 / (epoch + 1), "seconds": 0.5 * epoch} for epoch in range(40)]
    samples = {"forward": [0.001 * repeat for repeat in range(20)]}
    records.append(path, {**record, "history": history, "samples": samples})
    (stored,) = records.read(path)
    file = path.parent / stored["curves"]["file"]
    return Target(file, file.suffix, lambda: are_curves_refused(path, stored))


def are_curves_refused(path: Path, record: dict[str, object]) -> bool:
    """Whether reading the curves of a record raises the error that it documents."""
    try:
        records.with_curves(path, record)
    except CurvesError:
        return True
    return False


def damage_all(targets: list[Target], cases: int, seed: int) -> dict[str, object]:
    """Damage the files in turn and restore them: how often each sort of file was damaged, and the silent cases."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    silent = []
    for number in range(cases):
        target, damage = targets[number % len(targets)], rng.choice(DAMAGES)
        whole = target.path.read_bytes()
        place = rng.randrange(8 * len(whole))
        target.path.write_bytes(damaged(whole, damage, place))
        if not target.is_refused():
            silent.append(f"case {number}, seed {seed}: {damage} at bit {place} of {target.path.name}")
        target.path.write_bytes(whole)
        counts[f"{target.sort}, {damage}"] += 1
    unharmed = [target.path.name for target in targets if target.is_refused()]
    return {"cases": cases, "counts": counts, "silent": silent, "refused without damage": unharmed}


def damaged(data: bytes, damage: str, place: int) -> bytes:
    """The bytes with one bit flipped, or cut off before the byte of that bit."""
    if damage == "truncation":
        return data[: place // 8]
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


if __name__ == "__main__":
    main()
