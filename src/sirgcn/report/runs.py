"""The runs behind our figures: records of `results/*.jsonl`, checked once, where they are read."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from sirgcn.engine.records import FORMATS, KEY, read, seconds_per_epoch, was_redrawn, with_curves
from sirgcn.strict import ConfigError, from_dict


@dataclass(frozen=True)
class Run:
    """One run as it was recorded; `docs/results.md` says what each field holds. `record` keeps all of it."""

    experiment: str
    table: int | None
    variant: str
    column: str
    model: str
    seed: int
    split: int | None
    status: Literal["done", "failed"]
    reduced: bool
    scale: float
    config: dict[str, Any]
    metrics: dict[str, Any] = field(default_factory=dict)
    metric: str = ""
    higher_is_better: bool = True
    reduced_why: str = ""
    epochs: int | None = None
    best_epoch: int | None = None
    stopped: str | None = None
    seconds: float | None = None
    seconds_per_epoch: float | None = None
    peak_memory_mb: float | None = None
    parameters: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    history: tuple[dict[str, Any], ...] = ()
    samples: dict[str, Any] = field(default_factory=dict)
    traceback: str | None = None
    record: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.status == "done" and not (self.metric and self.metrics):
            raise ConfigError("metric and metrics: expected of a finished run, got none")
        repeats = {what: len(self.times(what)) for what in ("forward", "reference", "batches")}
        if len(set(repeats.values())) > 1:
            raise ConfigError(f"samples: expected a time of each for every repetition, got {repeats}")

    @property
    def value(self) -> float:
        """The metric on the test set, in the unit of the paper's table; NaN where there is none."""
        return as_number(self.metrics.get("test")) * self.scale

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other runs."""
        return tuple(getattr(self, name) for name in KEY)

    @property
    def has_score(self) -> bool:
        """Whether there is a metric on the test set; a split without a test part gives none."""
        return "test" in self.metrics

    @property
    def is_step(self) -> bool:
        """Whether training steps were timed, and nothing trained."""
        return {"train", "timing"} <= self.config.keys()

    @property
    def making(self) -> str:
        """How the data came about: their version without the seed that drew them."""
        return re.sub(r", seed \d+", "", str(self.data.get("version", "")))

    @property
    def values(self) -> tuple[float, ...]:
        """What was measured, in the table's unit: every pass of a timing, the score of a training if it has one."""
        passes = self.times("forward")
        if passes:
            return tuple(seconds * self.scale for seconds in passes)
        return (self.value,) if self.has_score else ()

    def times(self, what: str) -> tuple[float, ...]:
        """The seconds of a timing by repetition: `forward`, `reference` or `batches`; nothing of other runs."""
        found = self.samples.get(what)
        return tuple(map(as_number, found)) if isinstance(found, list) else ()

    def growth(self, what: str) -> dict[str, Any]:
        """The sizes, seconds, slope and its error of one axis of a layer's growth; empty for other runs."""
        found = self.samples.get(what)
        return found if isinstance(found, dict) else {}

    def ratios(self, with_batches: bool = False) -> tuple[float, ...]:
        """The time over the reference's, repetition by repetition; `with_batches` adds their building to both."""
        times = [self.times(what) for what in ("forward", "reference", "batches")]
        return tuple(
            (forward + with_batches * batches) / (reference + with_batches * batches)
            for forward, reference, batches in zip(*times, strict=True)
        )


def as_number(value: object) -> float:
    """A recorded value as a float; what is absent, null or no number is NaN."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def read_runs(path: str | Path) -> tuple[Run, ...]:
    """The runs of a `.jsonl` file, or of all such files of a folder; the last one of each key counts.

    A torn last line is left out with a warning. Any other line that is no record is an error that names its place.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"results: expected a folder of .jsonl files or one such file, got {path}")
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return tuple(as_run(with_curves(file, record), str(file)) for file in paths for record in read(file))


def as_run(record: Mapping[str, Any], where: str) -> Run:
    """A record as a run; an absent field, a wrong type and an unknown format are refused by name, extra keys kept."""
    names = [str(record.get(key)) for key in ("experiment", "column", "model", "seed")]
    where = f"{where}: {', '.join(names)}"
    if record.get("format") not in FORMATS:
        known = " or ".join(map(str, FORMATS))
        raise ConfigError(f"{where}: format: expected {known}, got {record.get('format')!r}")
    known = {entry.name for entry in fields(Run)} - {"record"}
    found = {key: value for key, value in record.items() if key in known}
    # Not as recorded: what was once the mean of a busy machine is told as the others are.
    run: Run = from_dict(Run, {**found, "seconds_per_epoch": seconds_per_epoch(record), "record": dict(record)}, where)
    return run


def of_other_data(runs: Iterable[Run]) -> set[int]:
    """The `id` of every finished run on another version of the data than the newest of its experiment and column.

    Data that are drawn anew for each seed differ from seed to seed: there, runs of the same seed agree in the hash, and
    all in how the data came about. What a record does not say agrees with anything.
    """
    agreed: dict[tuple[str, str], dict[str, Any]] = {}
    found: set[int] = set()
    # A failed run has no date; one with data failed on those of its day, which are as new as any.
    known = [run for run in runs if run.status == "done" or run.data]
    for run in sorted(known, key=lambda run: str(run.environment.get("date", "9")))[::-1]:
        marks, newer = _data_marks(run), agreed.setdefault((run.experiment, run.column), {})
        if all(newer.get(name, mark) == mark for name, mark in marks.items()):
            newer |= marks
        elif run.status == "done":
            found.add(id(run))
    return found


def _data_marks(run: Run) -> dict[str, Any]:
    """What runs on one version of the data have in common, by name."""
    is_redrawn, drawing = was_redrawn(run.record), str(run.data.get("version", ""))
    # Generated data name the seed that drew them; a split of one's own tables does not.
    if is_redrawn and run.making == drawing:
        drawing += f", seed {run.seed}"
    marks = {
        "redraw": is_redrawn,
        "making": run.making,
        "files": run.data.get("files_sha256") if is_redrawn else None,
        f"graphs: {drawing}": run.data.get("sha256"),
        f"splits: {drawing}": run.data.get("splits_sha256"),
    }
    return {name: mark for name, mark in marks.items() if mark is not None}
