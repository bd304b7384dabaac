"""A benchmark as records of the engine: an append-only file with one short line of JSON per measurement.

A file holds lines of two sorts:

- a *session* is one call of the command: the environment with the commit, the settings, and `begun`, the time at which
  the run began;
- a *measurement* names its session. `part` says what it belongs to, `config` what was measured, `metrics` has the
  figures and `repetitions` the samples behind them. `status` is `done`, or `left_out` with the reason as `error`.

A run that was interrupted is continued by a further session with the same `begun`. The figures of a file are those of
its last run.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sirgcn.bench.graphs import SHAPES
from sirgcn.bench.memory import ALLOCATOR as MEMORY_ALLOCATOR
from sirgcn.bench.peers import PEERS
from sirgcn.engine import records
from sirgcn.engine.environment import ALLOCATOR, commit, environment

TIMES, MEMORY, SCALING, TRAINING, TABLES = "times", "memory", "scaling", "training", "tables"
RATIOS, GRAPHS = "ratios", "graphs"
"""What a measurement belongs to. `ratios` compares two checkouts. `graphs` has only what could not be built."""

DONE, LEFT_OUT = "done", "left_out"

Row = dict[str, Any]
"""A measurement in one dictionary: what was measured, the figures, and the samples."""

_SESSION = "session"
_EXPERIMENT = "bench"


@dataclass
class Results:
    """The figures of one run, as tables, plots and targets read them.

    Attributes:
        environment: the machine and the versions of the last session.
        settings: the form, the effort and the numbers of threads.
        shapes: the graphs that were measured: what they are, nodes, edges and channels, by name.
        peers: the peers that were measured or left out, and what each of them runs.
        times, memory, scaling, training, tables, ratios: the measurements of each part.
        left_out: what was not measured, each entry with its part and the reason.

    >>> Results().times
    []
    """

    environment: Row = field(default_factory=dict)
    settings: Row = field(default_factory=dict)
    shapes: dict[str, Row] = field(default_factory=dict)
    peers: list[Row] = field(default_factory=list)
    times: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    scaling: list[Row] = field(default_factory=list)
    training: list[Row] = field(default_factory=list)
    tables: list[Row] = field(default_factory=list)
    ratios: list[Row] = field(default_factory=list)
    left_out: list[Row] = field(default_factory=list)


class Session:
    """One call of the command, which appends every measurement to a file as soon as it is there.

    Args:
        path: the file of records; None keeps the measurements in memory only.
        settings: what decides how a figure is measured. Sessions with other settings are other runs.
        is_fresh: whether to begin a new run where the last one could be continued.

    >>> session = Session(None, {"form": "quick"})
    >>> session.add(TABLES, {"rows": 10, "threads": 1}, "ours", {"seconds": 0.25})
    >>> session.results.tables
    [{'rows': 10, 'threads': 1, 'peer': 'ours', 'seconds': 0.25}]
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any], is_fresh: bool = False) -> None:
        self.path = path
        self.records = [] if path is None else records.read(path)
        last = None if is_fresh else _last_session(self.records)
        where = environment() | {
            "git": commit(),
            "allocator": {name: os.environ.get(name) for name in ALLOCATOR},
            "allocator_for_memory": MEMORY_ALLOCATOR,
        }
        self.is_continued = last is not None and _can_continue(last, where, settings)
        begun = last["begun"] if last is not None and self.is_continued else where["date"]
        self.begun: str = begun
        self._own = session_record(where, settings, begun)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._append(self._own)

    @property
    def results(self) -> Results:
        """The figures of the run so far, with those of the sessions that this one continues."""
        return gather(self.records)

    def add(
        self,
        part: str,
        config: Mapping[str, Any],
        peer: str,
        metrics: Mapping[str, Any],
        samples: Sequence[float] = (),
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Append what was measured of a peer; `data` describes the graph."""
        fields: Row = {"metrics": rounded(metrics)}
        if samples:
            fields["repetitions"] = rounded(list(samples))
        if data is not None:
            fields["data"] = dict(data)
        self._append(measurement(self._own["model"], part, config, peer, DONE) | fields)

    def leave_out(self, part: str, config: Mapping[str, Any], peer: str, reason: str) -> None:
        """Append that a measurement was left out, and why."""
        self._append(measurement(self._own["model"], part, config, peer, LEFT_OUT) | {"error": reason})

    def _append(self, record: Row) -> None:
        self.records.append(record)
        if self.path is not None:
            records.append(self.path, record)


def read_results(path: str | Path) -> Results:
    """The figures of the last run in a file of records.

    Raises:
        ValueError: the file holds no records of a benchmark.

    >>> read_results("absent.jsonl")
    Traceback (most recent call last):
    ValueError: absent.jsonl: expected the records of a benchmark, got none
    """
    found = records.read(path)
    if _last_session(found) is None:
        raise ValueError(f"{path}: expected the records of a benchmark, got none")
    return gather(found)


def gather(found: Sequence[Row]) -> Results:
    """The figures of the last run among the records of a file.

    >>> gather([]).left_out
    []
    """
    last = _last_session(found)
    if last is None:
        return Results()
    names = {record["model"] for record in found if record["column"] == _SESSION and record["begun"] == last["begun"]}
    measured = [record for record in found if record.get("session") in names]
    done = [record for record in measured if record["status"] == DONE]
    results = Results(last["environment"], last["config"], _shapes(done), _peers(measured))
    for record in done:
        getattr(results, record["part"]).append(_row(record))
    results.left_out += _left_out(measured, results.times)
    return results


def session_record(where: Mapping[str, Any], settings: Mapping[str, Any], begun: str) -> Row:
    """The record of a session in this environment; its name is a hash of its content.

    >>> session_record({"date": "2026-01-01"}, {"form": "quick"}, "2026-01-01")["column"]
    'session'
    """
    content = {"begun": begun, "config": dict(settings), "environment": dict(where)}
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return _header(_SESSION, name) | {"status": DONE} | content


def measurement(session: str, part: str, config: Mapping[str, Any], peer: str, status: str) -> Row:
    """What every record of a measurement begins with.

    >>> measurement("a1", SCALING, {"edges": 100, "threads": 1}, "ours", DONE)["column"]
    'scaling: edges 100, threads 1'
    """
    # `family` and `what` describe the peer, which is the model of the record.
    place = ", ".join(f"{name} {value}" for name, value in config.items() if name not in ("family", "what"))
    return _header(f"{part}: {place}", peer) | {
        "status": status,
        "session": session,
        "part": part,
        "config": dict(config),
    }


def rounded(value: Any) -> Any:
    """Numbers with nine significant digits, which is more than a clock has to say.

    >>> rounded({"seconds": 0.123456789012, "bytes": 12345678901})
    {'seconds': 0.123456789, 'bytes': 12345678901}
    """
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value


def threads_text(count: int) -> str:
    """A number of threads in words.

    >>> threads_text(1), threads_text(2)
    ('1 thread', '2 threads')
    """
    return f"{count} thread{'s' * (count > 1)}"


def _header(column: str, model: str) -> Row:
    """The fields by which the engine tells records apart."""
    key = dict(zip(records.KEY, (_EXPERIMENT, column, model, 0, 0, False), strict=True))
    return {"format": records.FORMAT, **key}


def _last_session(found: Iterable[Row]) -> Row | None:
    sessions = [record for record in found if record["column"] == _SESSION]
    return sessions[-1] if sessions else None


def _can_continue(session: Row, where: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether figures of this environment may stand beside those of a session: same settings, commit and machine.

    A checkout with changes that are not committed may have changed since, so its runs begin anew.
    """
    if session["config"] != json.loads(json.dumps(settings)):
        return False
    if str(where["git"]).endswith("+"):
        return False
    names = ("git", "sirgcn", "torch", "torch_geometric", "cpu", "native", "allocator")
    return all(session["environment"].get(name) == where[name] for name in names)


def _row(record: Row) -> Row:
    config = {name: value for name, value in record["config"].items() if name != "what"}
    samples = {"samples": record["repetitions"]} if "repetitions" in record else {}
    return {**config, "peer": record["model"], **record.get("metrics", {}), **samples}


def _left_out(measured: Iterable[Row], times: Iterable[Row]) -> list[Row]:
    """What was left out, without the peers that have been measured in another session."""
    known = {_place(row) for row in times}
    rows = [
        {"part": record["part"], **_row(record), "reason": record["error"]}
        for record in measured
        if record["status"] == LEFT_OUT
    ]
    return [row for row in rows if row["part"] != TIMES or _place(row) not in known]


def _place(row: Row) -> tuple[Any, ...]:
    """Which peer of which cell a row of the times is about."""
    return tuple(row.get(name) for name in ("suite", "shape", "threads", "peer"))


def _shapes(done: Iterable[Row]) -> dict[str, Row]:
    """The graphs of the times, in the order of `SHAPES`; graphs that are not there any more come last."""
    found = {record["config"]["shape"]: record["data"] for record in done if record["part"] == TIMES}
    order = [*(name for name in SHAPES if name in found), *(name for name in found if name not in SHAPES)]
    return {name: found[name] for name in order}


def _peers(measured: Iterable[Row]) -> list[Row]:
    """The peers of the times, in the order of `PEERS`; peers that are not there any more come last."""
    order = {(peer.suite, peer.name): place for place, peer in enumerate(PEERS)}
    found = {}
    for record in measured:
        if record["part"] == TIMES:
            key = record["config"]["suite"], record["model"]
            found[key] = {"suite": key[0], "peer": key[1], "what": record["config"]["what"]}
    return [found[key] for key in sorted(found, key=lambda key: order.get(key, len(order)))]
