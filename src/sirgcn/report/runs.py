"""The runs behind our figures: the records of `results/*.jsonl`, which are checked once, where they are read."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sirgcn.engine.records import FORMATS, KEY, read, seconds_per_epoch, was_redrawn, with_curves
from sirgcn.strict import ConfigError, from_dict


@dataclass(frozen=True)
class Run:
    """One run as it was recorded. `docs/results.md` says what each field holds.

    The curves of a run lie in a file beside its record. They are read when `history` or `samples` is asked for.

    Args:
        record: the whole record, with keys that have no field here.
        file: the file that the record was read from.

    >>> import tempfile
    >>> from sirgcn.report import read_runs
    >>> read_runs(tempfile.mkdtemp())
    ()
    """

    experiment: str
    table: int | str | None
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
    traceback: str | None = None
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    file: Path = Path()

    def __post_init__(self) -> None:
        if self.status == "done" and not (self.metric and self.metrics):
            raise ConfigError("metric and metrics: expected of a finished run, got none")

    @cached_property
    def history(self) -> tuple[dict[str, Any], ...]:
        """What was noted after every epoch of a training; empty for other runs.

        Raises:
            CurvesError: the file of curves is missing or damaged.
        """
        return tuple(self._curves.get("history") or ())

    @cached_property
    def samples(self) -> dict[str, Any]:
        """What was timed: seconds by repetition, or sizes and seconds by the size that grows; empty for a training.

        Raises:
            CurvesError: the file of curves is missing or damaged.
            ConfigError: the lists of a timing have different lengths.
        """
        has_samples = "timing" in self.config or "samples" in self.record
        samples: dict[str, Any] = self._curves.get("samples") or {} if has_samples else {}
        repeats = {what: len(_seconds(samples, what)) for what in ("forward", "reference", "batches")}
        if len(set(repeats.values())) > 1:
            place = f"{self.experiment}, {self.column}, {self.model}, {self.seed}"
            raise ConfigError(f"{place}: samples: expected a time of each for every repetition, got {repeats}")
        return samples

    @cached_property
    def _curves(self) -> dict[str, Any]:
        return with_curves(self.file, self.record)

    @property
    def value(self) -> float:
        """The metric on the test set, in the unit of the paper's table; NaN where there is none."""
        return as_number(self.metrics.get("test")) * self.scale

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells the run from other runs."""
        return tuple(getattr(self, name) for name in KEY)

    @property
    def has_score(self) -> bool:
        """Whether there is a metric on the test set. A split without a test part gives none."""
        return "test" in self.metrics

    @property
    def is_step(self) -> bool:
        """Whether training steps were timed, and nothing was trained."""
        return {"train", "timing"} <= self.config.keys()

    @property
    def making(self) -> str:
        """How the data came about: their version without the seed that drew them."""
        return re.sub(r", seed \d+", "", str(self.data.get("version", "")))

    @property
    def values(self) -> tuple[float, ...]:
        """What was measured, in the unit of the table: every pass of a timing, or the score of a training."""
        passes = self.times("forward")
        if passes:
            return tuple(seconds * self.scale for seconds in passes)
        return (self.value,) if self.has_score else ()

    def times(self, what: str) -> tuple[float, ...]:
        """The seconds of a timing by repetition: `forward`, `reference` or `batches`; empty for other runs."""
        return _seconds(self.samples, what)

    def growth(self, what: str) -> dict[str, Any]:
        """The sizes, seconds, slope and error of the slope as one size of a layer grows; empty for other runs."""
        found = self.samples.get(what)
        return found if isinstance(found, dict) else {}

    def ratios(self, with_batches: bool = False) -> tuple[float, ...]:
        """The time over the reference's, repetition by repetition.

        `with_batches` adds the time of building the batches to both.
        """
        times = [self.times(what) for what in ("forward", "reference", "batches")]
        return tuple(
            (forward + with_batches * batches) / (reference + with_batches * batches)
            for forward, reference, batches in zip(*times, strict=True)
        )


def as_number(value: object) -> float:
    """A recorded value as a float. A value that is absent, null or no number is NaN.

    >>> as_number(2), as_number(None), as_number("2")
    (2.0, nan, nan)
    """
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _seconds(samples: Mapping[str, Any], what: str) -> tuple[float, ...]:
    found = samples.get(what)
    return tuple(map(as_number, found)) if isinstance(found, list) else ()


def read_runs(path: str | Path) -> tuple[Run, ...]:
    """The runs of a `.jsonl` file, or of all such files of a folder. The last record of each key counts.

    A torn last line is left out with a warning.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: any other line is not a record. The error names its place.

    >>> import tempfile
    >>> len(read_runs(tempfile.mkdtemp()))
    0
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"results: expected a folder of .jsonl files or one such file, got {path}")
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    return tuple(as_run(record, file) for file in files for record in read(file))


def as_run(record: Mapping[str, Any], file: str | Path) -> Run:
    """A record of a file as a run. Keys that have no field stay in the record.

    Raises:
        ConfigError: a field is absent or of a wrong type, or the format is unknown. The error names the field.
    """
    names = [str(record.get(key)) for key in ("experiment", "column", "model", "seed")]
    where = f"{file}: {', '.join(names)}"
    if record.get("format") not in FORMATS:
        formats = " or ".join(map(str, FORMATS))
        raise ConfigError(f"{where}: format: expected {formats}, got {record.get('format')!r}")
    known = {entry.name for entry in fields(Run)} - {"record", "file"}
    found = {key: value for key, value in record.items() if key in known}
    if record["format"] == 1:
        # The oldest records have the mean of an epoch, also of a busy machine. Newer ones have the median.
        found["seconds_per_epoch"] = seconds_per_epoch(record)
    run: Run = from_dict(Run, {**found, "record": dict(record), "file": Path(file)}, where)
    return run


def of_other_data(runs: Iterable[Run]) -> set[int]:
    """The `id` of every finished run on another version of the data than the newest run of its experiment and column.

    Data that are drawn anew for each seed differ from seed to seed. Their runs agree if those of the same seed have the
    same hash and all have data that came about in the same way. A record that does not name its data agrees with all.
    """
    agreed: dict[tuple[str, str], dict[str, Any]] = {}
    found: set[int] = set()
    # A failed run has no date. If it names its data, it failed on the newest data of its day.
    known = [run for run in runs if run.status == "done" or run.data]
    for run in sorted(known, key=lambda run: str(run.environment.get("date", "9")))[::-1]:
        marks, newer = _data_marks(run), agreed.setdefault((run.experiment, run.column), {})
        if all(newer.get(name, mark) == mark for name, mark in marks.items()):
            newer |= marks
        elif run.status == "done":
            found.add(id(run))
    return found


def _data_marks(run: Run) -> dict[str, Any]:
    """The marks by name in which runs on one version of the data agree."""
    is_redrawn, drawing = was_redrawn(run.record), str(run.data.get("version", ""))
    # Generated data name the seed that drew them. A split of the user's own tables does not.
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
